/* Who a model is: hashes of what decides its results. Two models with the same identity give the same bytes.
 *
 * The small files (configs, tokenizer, template; the metadata of a GGUF file) are hashed here. The content of weights
 * is hashed while it is first streamed (docs/DESIGN.md section 2): whoever streams fills in `files`. XXH3, 128 bits,
 * canonical (big-endian) byte order. */
#ifndef SPILL_MODEL_IDENTITY_H
#define SPILL_MODEL_IDENTITY_H

#include "model/model.h"
#include "util/error.h"

enum { SP_HASH_BYTES = 16, SP_HASH_HEX_BYTES = 2 * SP_HASH_BYTES + 1 };

typedef struct {
    unsigned char bytes[SP_HASH_BYTES];
} sp_hash;

typedef struct {
    const char *path; /* borrowed from the model */
    uint64_t n_bytes;
    bool is_known; /* content has been hashed */
    sp_hash content;
} sp_file_identity;

typedef struct {
    sp_hash description;     /* of config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
                                chat_template.jinja, each with its name and length, absent ones as absent */
    sp_file_identity *files; /* [n_files] of the model, none known yet */
    size_t n_files;
} sp_model_identity;

/* Reads the small files; the model is borrowed and must outlive *out. False with SP_ERR_IO when one cannot be read. */
bool sp_model_identity_read(const sp_model *model, sp_model_identity *out, sp_error *err) SP_MUST_CHECK;
void sp_model_identity_deinit(sp_model_identity *identity);

/* Of the two halves that the library gives. */
sp_hash sp_hash_of(uint64_t high, uint64_t low);
/* 32 lower-case digits; returns out. */
const char *sp_hash_hex(const sp_hash *hash, char out[SP_HASH_HEX_BYTES]);

#endif
