/* Tokenizer: text to token ids and back, exactly as the `tokenizers` library does it from tokenizer.json, and from the
 * metadata of a GGUF file. docs/tokenizers.md says which components are known; any other one is refused by name.
 *
 * An sp_tokenizer is immutable after it was opened and is shared by threads; every call is thread-safe, state of a call
 * lives in the call. Text is UTF-8 with an explicit length and may hold NUL bytes. */
#ifndef SPILL_TOKENIZER_TOKENIZER_H
#define SPILL_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/error.h"

typedef struct sp_tokenizer sp_tokenizer;

/* Opens a model directory: tokenizer.json, and tokenizer_config.json (added_tokens_decoder and the named special
 * tokens) if it is there. NULL on failure. */
sp_tokenizer *sp_tokenizer_open_hf(const char *dir, sp_error *err) SP_MUST_CHECK;

/* The same from the text of the two files; config may be NULL. `name` is used in messages. */
sp_tokenizer *sp_tokenizer_open_json(sp_string tokenizer_json, const sp_string *config, const char *name,
                                     sp_error *err) SP_MUST_CHECK;

/* What a GGUF file says about its tokenizer (keys tokenizer.ggml.*), as plain arrays. Everything is borrowed for the
 * call alone. Flags are 1, 0, or -1 when the key is absent. */
typedef struct {
    const char *model; /* "gpt2" or "llama" */
    const char *pre;   /* the pre-tokenizer's name for gpt2; NULL when absent */
    const sp_string *tokens;
    size_t n_tokens;
    const float *scores;     /* [n_tokens], required for llama; else may be NULL */
    const int32_t *types;    /* [n_tokens] 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte; may be NULL */
    const sp_string *merges; /* "left right", for gpt2 */
    size_t n_merges;
    int64_t bos_id, eos_id, unk_id; /* -1: none */
    int add_bos, add_eos, add_space_prefix;
} sp_tokenizer_gguf;
sp_tokenizer *sp_tokenizer_open_gguf(const sp_tokenizer_gguf *src, sp_error *err) SP_MUST_CHECK;

void sp_tokenizer_free(sp_tokenizer *t); /* NULL is fine */

size_t sp_tokenizer_n_vocab(const sp_tokenizer *t);              /* 1 + highest id */
int32_t sp_tokenizer_eos_id(const sp_tokenizer *t);              /* -1: none */
int32_t sp_tokenizer_bos_id(const sp_tokenizer *t);              /* -1: none */
bool sp_tokenizer_is_special(const sp_tokenizer *t, int32_t id); /* false for ids without a token */
/* Whether decoding with skip_special leaves it out: all special tokens but those that a normalizer changes. */
bool sp_tokenizer_is_skipped(const sp_tokenizer *t, int32_t id);

/* Id of the token whose literal text in the vocabulary this is, added tokens first; -1 if there is none. */
int32_t sp_tokenizer_find(const sp_tokenizer *t, const char *text, size_t n_bytes);

/* A named special token of the configuration ("bos_token", "eos_token", "unk_token", "pad_token", ...), NUL-terminated
 * and owned by the tokenizer; NULL when it is absent or null. */
const char *sp_tokenizer_special_text(const sp_tokenizer *t, const char *name);

/* ---- text to ids ---- */

typedef struct {
    int32_t *ids;
    size_t n, room;
} sp_ids; /* zero-initialised is empty */
void sp_ids_deinit(sp_ids *ids);

typedef struct {
    bool add_special; /* put the post-processor's tokens (BOS and the like) around the text */
    bool plain_text;  /* special tokens written in the text are ordinary text */
} sp_encode_options;

/* Appends the ids of text to *out. options may be NULL (all false). On failure *out is as it was. Fails on text that is
 * not UTF-8 and when a regular expression of the tokenizer exceeds its bounds on this text. */
bool sp_tokenizer_encode(const sp_tokenizer *t, const char *text, size_t n_bytes, const sp_encode_options *options,
                         sp_ids *out, sp_error *err) SP_MUST_CHECK;

/* The same, but special tokens are ordinary text only where they touch one of the byte ranges [begin, end), which are
 * ascending and do not overlap: the parts of a rendered prompt that users wrote. */
typedef struct {
    size_t begin, end;
} sp_span_bytes;
bool sp_tokenizer_encode_ranges(const sp_tokenizer *t, const char *text, size_t n_bytes,
                                const sp_encode_options *options, const sp_span_bytes *ranges, size_t n_ranges,
                                sp_ids *out, sp_error *err) SP_MUST_CHECK;

/* ---- ids to text ---- */

/* Appends the text of ids, exactly as the library's decode: the decoder chain applied, invalid UTF-8 as U+FFFD, ids
 * without a token passed over. Fails only when *out does not take it (its limit, memory). */
bool sp_tokenizer_decode(const sp_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, sp_buf *out,
                         sp_error *err) SP_MUST_CHECK;

/* Raw bytes with which one id contributes to text (possibly a part of a character; the literal text for special
 * tokens), owned by the tokenizer. False for ids without a token. */
bool sp_tokenizer_token_bytes(const sp_tokenizer *t, int32_t id, const char **bytes, size_t *n_bytes);

/* The literal vocabulary text of one id ("Ġthe", "<|im_end|>"), owned by the tokenizer. */
bool sp_tokenizer_token_text(const sp_tokenizer *t, int32_t id, const char **text, size_t *n_bytes);

/* Streaming: ids one by one. Each push appends what can no longer change, never a part of a character; all that was
 * appended until finish is what sp_tokenizer_decode gives for the whole. One thread per detok. A detok borrows t. */
typedef struct sp_detok sp_detok;
sp_detok *sp_detok_new(const sp_tokenizer *t, bool skip_special, sp_error *err) SP_MUST_CHECK;
bool sp_detok_push(sp_detok *d, int32_t id, sp_buf *out); /* false: *out did not take it */
bool sp_detok_finish(sp_detok *d, sp_buf *out);           /* afterwards the detok is as new */
void sp_detok_free(sp_detok *d);                          /* NULL is fine */

#endif
