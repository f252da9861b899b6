/* What the loading files share: the parts of a tokenizer.json as JSON values. */
#ifndef SPILL_TOKENIZER_LOAD_H
#define SPILL_TOKENIZER_LOAD_H

#include "tokenizer/internal.h"
#include "tokenizer/json_scan.h"
#include "util/json.h"

/* Members of an object with their type checked. An absent or null member leaves *value as it is. */
bool sp_load_bool(const json_t *object, const char *name, bool *value, sp_error *err) SP_MUST_CHECK;
bool sp_load_text(const json_t *object, const char *name, sp_string *value, sp_error *err) SP_MUST_CHECK;

/* Pipeline parts (load_parts.c); each takes the value of its key, null included. */
bool sp_load_normalizer(sp_tokenizer *t, const json_t *value, sp_error *err) SP_MUST_CHECK;
bool sp_load_pre_tokenizer(sp_tokenizer *t, const json_t *value, sp_error *err) SP_MUST_CHECK;
bool sp_load_post_processor(sp_tokenizer *t, const json_t *value, sp_error *err) SP_MUST_CHECK;
bool sp_load_decoder(sp_tokenizer *t, const json_t *value, sp_error *err) SP_MUST_CHECK;

/* How GPT-2 splits: ByteLevel's own regular expression, and that of several GGUF pre-tokenizers. */
extern const char sp_load_gpt2_regex[];

/* Building blocks, also used for GGUF files: each appends a part to the pipeline and gives it out to be filled. NULL or
 * false when there are too many, or when the part cannot stand there. */
sp_pre *sp_load_add_pre(sp_tokenizer *t, sp_pre_kind kind, sp_error *err) SP_MUST_CHECK;
/* A Split that isolates the matches. */
bool sp_load_add_regex(sp_tokenizer *t, const char *regex, size_t n_bytes, sp_error *err) SP_MUST_CHECK;
bool sp_load_add_byte_level(sp_tokenizer *t, bool prefix_space, bool use_regex, sp_error *err) SP_MUST_CHECK;
sp_norm *sp_load_add_norm(sp_tokenizer *t, sp_norm_kind kind, sp_error *err) SP_MUST_CHECK;
sp_dec *sp_load_add_decoder(sp_tokenizer *t, sp_dec_kind kind, sp_error *err) SP_MUST_CHECK;

/* Added tokens of both files, and the named special tokens (load_config.c). */
bool sp_load_added_tokens(sp_tokenizer *t, const json_t *list, sp_error *err) SP_MUST_CHECK;
bool sp_load_config(sp_tokenizer *t, sp_string text, sp_error *err) SP_MUST_CHECK;
bool sp_load_special(sp_tokenizer *t, const char *name, const char *text, size_t n_bytes, sp_error *err) SP_MUST_CHECK;

#endif
