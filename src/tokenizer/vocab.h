/* The vocabulary: tokens by id, and ids by text. Filled while a tokenizer is opened, immutable after, shared by
 * threads. Private to the tokenizer. */
#ifndef SPILL_TOKENIZER_VOCAB_H
#define SPILL_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/error.h"

/* What a token is. */
enum {
    SP_TOK_MODEL = 1,    /* in the model's vocabulary: merges and whole-word lookups see it */
    SP_TOK_ADDED = 2,    /* matched in the text before anything else */
    SP_TOK_SPECIAL = 4,  /* dropped by skip_special, ordinary text under plain_text */
    SP_TOK_BYTES = 8,    /* every character is of the byte-level alphabet */
    SP_TOK_RENAMED = 16, /* decoded from its normalized text: an added token that normalizers change */
};

typedef struct {
    uint32_t offset, n_bytes;
} sp_slice;

typedef struct {
    int32_t id;
    sp_slice slice; /* into the vocabulary's texts */
} sp_renamed;

/* Open-addressing hash from text to id over slices of a buffer; a slot holds id + 1, 0 is free. */
typedef struct {
    uint32_t *slots;
    size_t n_slots; /* a power of two, 0 before it is built */
} sp_text_index;

typedef struct {
    sp_buf text;       /* literal texts, one after another */
    sp_buf bytes;      /* the bytes that ids contribute to text */
    sp_slice *literal; /* [n_ids] into text */
    sp_slice *raw;     /* [n_ids] into bytes */
    uint8_t *flags;    /* [n_ids] SP_TOK_*, 0: no such token */
    size_t n_ids, room_ids;
    size_t n_model; /* tokens with SP_TOK_MODEL */
    sp_renamed *renamed;
    size_t n_renamed;
    sp_text_index by_literal;
    sp_text_index by_model; /* what the model looks words up in: raw bytes if byte-level, else literal text */
} sp_vocab;

/* Adds a token. False, with err filled, if the id is taken, or if memory ends. The index is not touched. */
bool sp_vocab_add(sp_vocab *v, int64_t id, const char *text, size_t n_bytes, uint8_t flags,
                  sp_error *err) SP_MUST_CHECK;
/* Builds by_literal (all tokens) or by_model; byte_level takes raw bytes. A text twice: the later id wins. */
bool sp_vocab_index_literal(sp_vocab *v, sp_error *err) SP_MUST_CHECK;
bool sp_vocab_index_one(sp_vocab *v, int32_t id, sp_error *err) SP_MUST_CHECK; /* one more into by_literal */
bool sp_vocab_index_model(sp_vocab *v, bool byte_level, sp_error *err) SP_MUST_CHECK;
int32_t sp_vocab_find_literal(const sp_vocab *v, const char *text, size_t n_bytes);
int32_t sp_vocab_find_model(const sp_vocab *v, bool byte_level, const char *text, size_t n_bytes);
/* From now on the token is decoded from this text, which the library then no longer takes for a special token's. */
bool sp_vocab_rename(sp_vocab *v, int32_t id, const char *text, size_t n_bytes, sp_error *err) SP_MUST_CHECK;
/* The text that decoding starts from. */
sp_slice sp_vocab_shown(const sp_vocab *v, size_t id);
void sp_vocab_deinit(sp_vocab *v);
static inline const char *sp_vocab_text(const sp_vocab *v, size_t id) { return v->text.data + v->literal[id].offset; }

/* The byte that a character of the byte-level alphabet stands for, or -1. */
int sp_byte_of_char(uint32_t c);
/* Appends the bytes of a byte-level text; false, with nothing appended, if a character is outside the alphabet. */
bool sp_bytes_of_text(const char *text, size_t n_bytes, sp_buf *out);

#endif
