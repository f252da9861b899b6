/* What the files of the tokenizer share: the vocabulary, the parts of the pipeline, and the state of one call.
 *
 *   text --added (raw)--> pieces --normalizers--> --added (normalized)--> --pre-tokenizers--> words --bpe--> ids
 *   ids --decoder stages--> text
 */
#ifndef SPILL_TOKENIZER_INTERNAL_H
#define SPILL_TOKENIZER_INTERNAL_H

#include "tokenizer/tokenizer.h"
#include "util/arena.h"
#include "util/utf8.h"

enum {
    SP_TOK_MODEL = 1,    /* in the model's vocabulary: merges and whole-word lookups see it */
    SP_TOK_ADDED = 2,    /* matched in the text before anything else */
    SP_TOK_SPECIAL = 4,  /* dropped by skip_special, ordinary text under plain_text */
    SP_TOK_BYTES = 8,    /* every character is of the byte-level alphabet */
    SP_TOK_RENAMED = 16, /* decoded from its normalized text: an added token that normalizers change */
};
enum {
    SP_TOK_MAX_ADDED_BYTES = 512, /* bounds the matcher at texts that almost hold a token everywhere */
    SP_TOK_MAX_PARTS = 64,        /* pre-tokenizers, normalizers or decoders of one tokenizer */
};

/* ---- vocabulary (vocab.c) ---- */

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
bool sp_vocab_add(sp_vocab *v, int64_t id, const char *text, size_t n_bytes, uint8_t flags, sp_error *err);
/* Builds by_literal (all tokens) or by_model; byte_level takes raw bytes. A text twice: the later id wins. */
bool sp_vocab_index_literal(sp_vocab *v, sp_error *err);
bool sp_vocab_index_one(sp_vocab *v, int32_t id, sp_error *err); /* one more into by_literal */
bool sp_vocab_index_model(sp_vocab *v, bool byte_level, sp_error *err);
int32_t sp_vocab_find_literal(const sp_vocab *v, const char *text, size_t n_bytes);
int32_t sp_vocab_find_model(const sp_vocab *v, bool byte_level, const char *text, size_t n_bytes);
/* From now on the token is decoded from this text, which the library then no longer takes for a special token's. */
bool sp_vocab_rename(sp_vocab *v, int32_t id, const char *text, size_t n_bytes, sp_error *err);
/* The text that decoding starts from. */
sp_slice sp_vocab_shown(const sp_vocab *v, size_t id);
void sp_vocab_deinit(sp_vocab *v);
static inline const char *sp_vocab_text(const sp_vocab *v, size_t id) { return v->text.data + v->literal[id].offset; }

/* The byte that a character of the byte-level alphabet stands for, or -1. */
int sp_byte_of_char(uint32_t c);
/* Appends the bytes of a byte-level text; false, with nothing appended, if a character is outside the alphabet. */
bool sp_bytes_of_text(const char *text, size_t n_bytes, sp_buf *out);

/* ---- regular expressions (regex.c) ---- */

typedef struct sp_regex sp_regex;     /* compiled, shared by threads */
typedef struct sp_matcher sp_matcher; /* one call's match data, stack and time */
/* `pattern` is in the syntax of Oniguruma's default; what means something else in PCRE2 is translated or refused. */
sp_regex *sp_regex_new(const char *pattern, size_t n_bytes, sp_error *err);
void sp_regex_free(sp_regex *r);
/* n_bytes: of the text that this matcher will see in all; bounds its time. */
sp_matcher *sp_matcher_new(size_t n_bytes, sp_error *err);
void sp_matcher_free(sp_matcher *m);

/* A thing to look for in a text. */
typedef enum { SP_PATTERN_LITERAL, SP_PATTERN_REGEX, SP_PATTERN_NUMERIC } sp_pattern_kind;
typedef struct {
    sp_pattern_kind kind;
    const char *literal; /* SP_PATTERN_LITERAL; never empty */
    size_t n_bytes;
    sp_regex *regex; /* owned by the tokenizer */
} sp_pattern;

/* Successive matches of a pattern in one text, in the way of the library's find_iter: an empty match right behind the
 * last one is passed over. */
typedef struct {
    const sp_pattern *pattern;
    sp_matcher *matcher;
    size_t at, last_match_end; /* SIZE_MAX: no match yet */
} sp_matches;
/* 1 with *begin and *end set, 0 at the end, -1 with err filled. `shadow` is text with stand-ins for characters whose
 * properties depend on the Unicode version (unicode.c); it may be text itself. */
int sp_matches_next(sp_matches *it, const char *text, const char *shadow, size_t n_bytes, size_t *begin, size_t *end,
                    sp_error *err);

/* ---- characters (unicode.c) ---- */

/* Decodes the character at text (valid UTF-8, n_bytes > 0). Returns its bytes. */
size_t sp_char_next(const char *text, uint32_t *c);
size_t sp_char_put(uint32_t c, char *out); /* at most 4 bytes */
bool sp_char_is_numeric(uint32_t c);       /* Rust's char::is_numeric: categories Nd, Nl, No of Unicode 17 */
bool sp_char_is_space(uint32_t c);         /* White_Space */
bool sp_char_is_word(uint32_t c);          /* \w of Rust's regex crate */
bool sp_char_is_nfc_young(uint32_t c);     /* newer than Unicode 9 and not inert there: inert for us */
/* Whether any character of text needs a stand-in; from the first such one on, they are put in place. */
bool sp_text_has_standins(const char *text, size_t n_bytes);
void sp_text_put_standins(char *text, size_t n_bytes);

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
                  sp_matcher *matcher, sp_buf *out, sp_error *err);

/* ---- added tokens (added.c) ---- */

enum { SP_ADDED_LSTRIP = 1, SP_ADDED_RSTRIP = 2, SP_ADDED_SINGLE_WORD = 4, SP_ADDED_NORMALIZED = 8 };
typedef struct {
    int32_t id;
    uint8_t rules; /* SP_ADDED_* */
} sp_added_token;
typedef struct {
    uint64_t key; /* node << 8 | byte, + 1; 0: free */
    uint32_t child;
} sp_trie_edge;
typedef struct {
    sp_added_token *tokens; /* by rank of insertion */
    size_t n_tokens, room_tokens;
    sp_trie_edge *edges;
    size_t n_edges, n_slots;
    uint32_t *ends; /* [n_nodes] token + 1 that ends at the node, 0: none */
    size_t n_nodes, room_nodes;
    bool first[256]; /* bytes that start a token */
    bool has_special;
} sp_added_set;
/* The first of two tokens with one text wins. */
bool sp_added_set_add(sp_added_set *set, const char *text, size_t n_bytes, sp_added_token token, sp_error *err);
void sp_added_set_deinit(sp_added_set *set);

/* Walks a text: pieces of text and added tokens in turn. */
typedef struct {
    const sp_added_set *set;
    const uint8_t *flags; /* the vocabulary's, by id */
    const char *text;
    size_t n_bytes;
    const sp_span_bytes *ranges; /* where special tokens are text */
    size_t n_ranges, i_range;
    bool plain_text;
    size_t at;    /* where the search goes on */
    size_t begin; /* end of the last piece or token */
    int32_t held; /* token found behind the piece just given, or -1 */
    size_t held_begin, held_end;
} sp_added_walk;
/* The next part; *id is -1 for text. False at the end. */
bool sp_added_next(sp_added_walk *walk, size_t *begin, size_t *end, int32_t *id);

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

/* ---- byte pair encoding (bpe.c) ---- */

typedef struct {
    uint32_t left, right; /* ids; left UINT32_MAX: free slot */
    uint32_t rank, merged;
} sp_merge;
typedef struct {
    sp_merge *slots;
    size_t n_slots, n_merges;
    bool byte_level;   /* symbols start as bytes, else as characters */
    bool by_score;     /* merges are not listed: any two symbols whose text is a token, best score first */
    uint32_t *ranks;   /* [n_ids] by_score: place of the token's score, UINT32_MAX: never a merge's result */
    uint32_t *results; /* [n_ranks] listed merges: the id that the merge of a rank makes */
    size_t n_ranks;
    bool ignore_merges; /* a whole word in the vocabulary is that token */
    bool byte_fallback;
    bool fuse_unk;
    int32_t unk_id;        /* -1: unknown characters are dropped; -2: named, but not in the vocabulary */
    int32_t byte_ids[256]; /* first symbol of a byte: of the alphabet if byte_level, else <0xNN>; -1: none */
    bool cut_at_marker;    /* a word may be cut before U+2581, except behind the characters of joins */
    uint32_t *joins;       /* [n_joins] ascending: characters in front of U+2581 within some token */
    size_t n_joins;
} sp_bpe;
/* n_merges_max bounds the table and the ranks; false when memory ends. */
bool sp_bpe_reserve(sp_bpe *bpe, size_t n_merges_max, sp_error *err);
void sp_bpe_merge_add(sp_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);
/* Fills byte_ids and what the cutting of words needs, once vocabulary and merges are complete. */
bool sp_bpe_prepare(sp_bpe *bpe, const sp_vocab *v, sp_error *err);
void sp_bpe_deinit(sp_bpe *bpe);

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
bool sp_decode_prepare(sp_tokenizer *t, sp_error *err);

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

sp_tokenizer *sp_tokenizer_new(sp_error *err); /* empty, ids -1 */
/* Decoder stages, byte ids and indexes, once vocabulary, merges and parts are there. */
bool sp_tokenizer_finish(sp_tokenizer *t, sp_error *err);
/* Puts a token of the vocabulary into the right matcher. */
bool sp_tokenizer_match_added(sp_tokenizer *t, sp_added_token token, sp_error *err);

/* ---- one call of encode (encode.c) ---- */

typedef struct {
    uint32_t id;         /* or one of bpe.c's marks: no token (by_score only), merged into the left neighbour */
    uint32_t prev, next; /* symbol numbers; the number of symbols or more: none */
} sp_symbol;
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
    sp_symbol *symbols;
    size_t room_symbols;
    uint64_t *heap; /* waiting merges: rank << 32 | symbol number */
    size_t n_heap, room_heap;
    uint32_t *begins; /* by_score: offset of each symbol in its word */
    size_t room_begins;
    sp_cached_word *cache;
    size_t n_cache; /* a power of two, or 0 */
} sp_encoder;

/* Announces that bytes were appended to work from `from` on: text and shadow follow. */
bool sp_encoder_appended(sp_encoder *e, size_t from);
bool sp_encoder_push(sp_encoder *e, const int32_t *ids, size_t n);
/* Pre-tokenizers from number i_pre on, then the model, over text[at, at + n_bytes). `first`: it begins the input. */
bool sp_pretokenize(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first);
/* One word to ids. */
bool sp_bpe_word(sp_encoder *e, size_t at, size_t n_bytes);

/* ---- loading (load.c, load_parts.c, load_config.c, json_scan.c) ---- */

/* Cuts model.vocab and model.merges out of a tokenizer.json: *rest is the text with null in their places. */
typedef struct {
    const char *vocab, *merges; /* NULL when absent */
    size_t vocab_bytes, merges_bytes;
} sp_json_cut;
bool sp_json_cut_model(const char *text, size_t n_bytes, sp_json_cut *cut, sp_buf *rest, sp_error *err);
/* A cursor over JSON text that was cut out. */
typedef struct {
    const char *at, *end;
} sp_json_cursor;
bool sp_json_take(sp_json_cursor *c, char wanted); /* passes white space, then the character if it is there */
/* A string; appended to *out decoded. A non-negative integer of at most 18 digits. */
bool sp_json_take_string(sp_json_cursor *c, sp_buf *out, sp_error *err);
bool sp_json_take_integer(sp_json_cursor *c, int64_t *value, sp_error *err);

#endif
