/* What the files of the tokenizer share: the parts of the pipeline, the tokenizer itself, and the state of one call.
 *
 *   text --added (raw)--> pieces --normalizers--> --added (normalized)--> --pre-tokenizers--> words --bpe--> ids
 *   ids --decoder stages--> text
 */
#ifndef SPILL_TOKENIZER_INTERNAL_H
#define SPILL_TOKENIZER_INTERNAL_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"
#include "util/arena.h"

enum { SP_TOK_MAX_PARTS = 64 }; /* pre-tokenizers, normalizers or decoders of one tokenizer */

/* ---- normalizers (normalize.c) ---- */

typedef enum { SP_NORM_NFC, SP_NORM_PREPEND, SP_NORM_REPLACE } sp_norm_kind;
typedef struct {
    sp_norm_kind kind;
    const char *content; /* what is prepended or put in */
    size_t n_bytes;
    sp_pattern pattern; /* SP_NORM_REPLACE */
} sp_norm;
/* Appends the normalized text to *out. `skip_prepend` leaves Prepend out, for parts of a piece. */
bool sp_normalize(const sp_norm *norms, size_t n_norms, const char *text, size_t n_bytes, bool skip_prepend,
                  sp_matcher *matcher, sp_buf *out, sp_error *err) SP_MUST_CHECK;

/* ---- pre-tokenizers (pretokenize.c) ---- */

typedef enum {
    SP_SPLIT_REMOVED,
    SP_SPLIT_ISOLATED,
    SP_SPLIT_PREVIOUS,
    SP_SPLIT_NEXT,
    SP_SPLIT_CONTIGUOUS,
} sp_split_behavior;
typedef enum { SP_PRE_SPLIT, SP_PRE_PREFIX_SPACE, SP_PRE_METASPACE } sp_pre_kind;
typedef enum { SP_PREPEND_NEVER, SP_PREPEND_FIRST, SP_PREPEND_ALWAYS } sp_prepend;
typedef struct {
    sp_pre_kind kind;
    sp_pattern pattern; /* SP_PRE_SPLIT */
    sp_split_behavior behavior;
    bool invert;
    sp_prepend prepend;  /* SP_PRE_METASPACE */
    char replacement[8]; /* SP_PRE_METASPACE: UTF-8 of one character, NUL-terminated */
} sp_pre;

/* ---- decoder stages (decode.c) ---- */

typedef enum {
    SP_DEC_BYTE_LEVEL,
    SP_DEC_BYTE_FALLBACK,
    SP_DEC_REPLACE,
    SP_DEC_FUSE,
    SP_DEC_STRIP,
    SP_DEC_METASPACE,
    SP_DEC_JOIN, /* no decoder: tokens joined by a space */
} sp_dec_kind;
typedef struct {
    sp_dec_kind kind;
    bool fused;          /* the stage sees the text as one string, not token by token */
    const char *pattern; /* REPLACE; STRIP's and METASPACE's one character */
    size_t pattern_bytes;
    const char *content; /* REPLACE */
    size_t content_bytes;
    size_t n_start, n_stop; /* STRIP */
    bool drop_first;        /* METASPACE: the first token loses its markers */
} sp_dec;
/* Fills vocab.bytes and raw from the literal texts and the stages. */
bool sp_decode_prepare(sp_tokenizer *t, sp_error *err) SP_MUST_CHECK;

/* ---- the whole ---- */

typedef struct {
    const char *name, *text;
} sp_named_text;

struct sp_tokenizer {
    sp_arena arena; /* small texts of the parts */
    sp_vocab vocab;
    sp_bpe bpe;
    sp_norm norms[SP_TOK_MAX_PARTS];
    size_t n_norms;
    sp_pre pres[SP_TOK_MAX_PARTS];
    size_t n_pres;
    sp_dec decs[SP_TOK_MAX_PARTS];
    size_t n_decs;
    sp_added_set added_raw, added_normalized;
    int32_t *prefix, *suffix; /* ids around the text with add_special, in the arena */
    size_t n_prefix, n_suffix;
    sp_named_text *specials;
    size_t n_specials;
    int32_t bos_id, eos_id;
    bool rewrites; /* some part changes text: a call works on its own copy */
};

sp_tokenizer *sp_tokenizer_new(sp_error *err) SP_MUST_CHECK; /* empty, ids -1 */
/* Decoder stages, byte ids and indexes, once vocabulary, merges and parts are there. */
bool sp_tokenizer_finish(sp_tokenizer *t, sp_error *err) SP_MUST_CHECK;
/* Puts a token of the vocabulary into the right matcher. */
bool sp_tokenizer_match_added(sp_tokenizer *t, sp_added_token token, sp_error *err) SP_MUST_CHECK;

/* ---- one call of encode (encode.c) ---- */

typedef struct {
    uint32_t hash, n_bytes;
    size_t at, first_id;
    uint32_t n_ids; /* 0: free */
} sp_cached_word;

/* Text is named by offsets into `text`, since a rewriting part appends to the buffer and moves it. */
typedef struct {
    const sp_tokenizer *t;
    sp_ids *out;
    sp_error *err;
    const char *text;   /* the caller's, or work.data */
    const char *shadow; /* the same with stand-ins, or text itself */
    sp_buf work;        /* used when t->rewrites */
    sp_buf shadow_text; /* used once a stand-in was needed */
    bool shadowed;
    sp_matcher *matcher;
    uint32_t *symbols; /* of the word at hand; bpe.c has their form */
    size_t room_symbols;
    uint64_t *heap; /* waiting merges: rank << 32 | symbol number */
    size_t n_heap, room_heap;
    uint32_t *begins; /* by_score: offset of each symbol in its word */
    size_t room_begins;
    sp_cached_word *cache;
    size_t n_cache; /* a power of two, or 0 */
} sp_encoder;

/* Each of these returns false with e->err filled.
 *
 * Announces that bytes were appended to work from `from` on: text and shadow follow. */
bool sp_encoder_appended(sp_encoder *e, size_t from);
/* Appends ids to the output. */
bool sp_encoder_push(sp_encoder *e, const int32_t *ids, size_t n);
/* Pre-tokenizers from number i_pre on, then the model, over text[at, at + n_bytes). `first`: it begins the input. */
bool sp_pretokenize(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first);
/* One word to ids. */
bool sp_bpe_word(sp_encoder *e, size_t at, size_t n_bytes);

#endif
