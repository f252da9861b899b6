/* A tokenizer from GGUF metadata: the same parts as a tokenizer.json has, chosen by two names.
 *
 * "gpt2" is byte-level BPE with merges; `pre` names the splitting of the model that the file was made from. "llama" is
 * SentencePiece's BPE: no merges, but a score for each token. The regular expressions are facts about those models. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/load.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K_BUT_DIGITS(digits) \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define LLAMA3 CL100K_BUT_DIGITS("\\p{N}{1,3}")
#define QWEN2 CL100K_BUT_DIGITS("\\p{N}")
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail
#define TEKKEN CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
#define O200K CASED(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
#define CJK "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+"
#define DEEPSEEK3                                                                                         \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " \
    "?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES
/* Cased letters, less those that tables of some years ago did not have. */
#define CASED_RANGES                                                                                                 \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"   \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"     \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"        \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"       \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"        \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                  \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"        \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"                 \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"        \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

enum { MAX_SPLITS = 6 };
typedef struct {
    const char *name;
    bool ignore_merges, add_bos, digits, nfc;
    const char *splits[MAX_SPLITS]; /* one after another, isolated; before them single digits if `digits` */
} pre_kind;

static const pre_kind pre_kinds[] = {
    {"llama-bpe", .ignore_merges = true, .add_bos = true, .splits = {LLAMA3}},
    {"llama3", .ignore_merges = true, .add_bos = true, .splits = {LLAMA3}},
    {"llama-v3", .ignore_merges = true, .add_bos = true, .splits = {LLAMA3}},
    {"falcon3", .ignore_merges = true, .add_bos = true, .splits = {LLAMA3}},
    {"pixtral", .ignore_merges = true, .add_bos = true, .splits = {LLAMA3}},
    {"dbrx", .splits = {LLAMA3}},
    {"smaug-bpe", .splits = {LLAMA3}},
    {"qwen2", .nfc = true, .splits = {QWEN2}},
    {"deepseek-r1-qwen", .nfc = true, .splits = {QWEN2}},
    {"megrez", .nfc = true, .splits = {QWEN2}},
    {"stablelm2", .splits = {QWEN2}},
    {"tekken", .ignore_merges = true, .add_bos = true, .splits = {TEKKEN}},
    {"gpt-4o", .splits = {O200K}},
    {"llama4", .splits = {O200K}},
    {"gpt-2", .splits = {sp_load_gpt2_regex}},
    {"phi-2", .splits = {sp_load_gpt2_regex}},
    {"mpt", .splits = {sp_load_gpt2_regex}},
    {"olmo", .splits = {sp_load_gpt2_regex}},
    {"jais", .splits = {sp_load_gpt2_regex}},
    {"exaone4", .splits = {sp_load_gpt2_regex}},
    {"smollm", .digits = true, .splits = {sp_load_gpt2_regex}},
    {"starcoder", .digits = true, .splits = {sp_load_gpt2_regex}},
    {"refact", .digits = true, .splits = {sp_load_gpt2_regex}},
    {"command-r", .digits = true, .splits = {sp_load_gpt2_regex}},
    {"codeshell", .digits = true, .splits = {sp_load_gpt2_regex}},
    {"deepseek-v3", .splits = {"\\p{N}{1,3}", CJK, DEEPSEEK3}},
    {"deepseek-coder", .splits = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                                  "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+", "\\p{N}"}},
    {"deepseek-llm",
     .splits = {"[\\r\\n]", "\\s?[" CASED_RANGES "]+",
                "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
                "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+", "\\p{N}"}},
    {"falcon", .splits = {"[\\p{P}$+<=>^~|`]+", sp_load_gpt2_regex, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"default", .splits = {"[\\p{P}$+<=>^~|]+", sp_load_gpt2_regex, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

static int32_t type_of(const sp_tokenizer_gguf *src, size_t id) { return src->types ? src->types[id] : TYPE_NORMAL; }

/* A token's text must be UTF-8 here; what is not is made so, which leaves it a token that no text gives. */
static bool add_token(sp_tokenizer *t, const sp_tokenizer_gguf *src, size_t id, sp_error *err) {
    sp_string token = src->tokens[id];
    int32_t type = type_of(src, id);
    bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    uint8_t flags = special ? SP_TOK_ADDED | SP_TOK_SPECIAL : SP_TOK_MODEL | (type == TYPE_USER ? SP_TOK_ADDED : 0);
    if (type == TYPE_BYTE) flags = SP_TOK_MODEL;
    sp_buf text = {0};
    bool ok =
        sp_utf8_lossy(&text, token.text, token.n_bytes) || sp_fail(err, SP_ERR_MEMORY, "no memory for token %zu", id);
    ok = ok && sp_vocab_add(&t->vocab, (int64_t)id, text.data ? text.data : "", text.n_bytes, flags, err);
    sp_buf_deinit(&text);
    return ok;
}

static bool add_tokens(sp_tokenizer *t, const sp_tokenizer_gguf *src, sp_error *err) {
    for (size_t id = 0; id < src->n_tokens; id++)
        if (!add_token(t, src, id, err)) return false;
    return sp_vocab_index_literal(&t->vocab, err);
}

/* Control and user-defined tokens are found in the text. */
static bool match_tokens(sp_tokenizer *t, sp_error *err) {
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        sp_added_token token = {.id = (int32_t)id};
        if (!(t->vocab.flags[id] & SP_TOK_ADDED) || t->vocab.literal[id].n_bytes == 0) continue;
        if (!sp_tokenizer_match_added(t, token, err)) return false;
    }
    return true;
}

/* Merges that name absent tokens cannot take place; files have them, and they are passed over. */
static bool add_merges(sp_tokenizer *t, const sp_tokenizer_gguf *src, sp_error *err) {
    sp_buf joined = {0};
    bool ok = sp_bpe_reserve(&t->bpe, src->n_merges, err);
    for (size_t rank = 0; ok && rank < src->n_merges; rank++) {
        sp_string merge = src->merges[rank];
        const char *space = merge.n_bytes > 1 ? memchr(merge.text + 1, ' ', merge.n_bytes - 1) : NULL;
        if (!space) {
            ok = sp_fail(err, SP_ERR_INPUT, "merge %zu has no space, want \"left right\"", rank);
            break;
        }
        size_t left = (size_t)(space - merge.text), right = merge.n_bytes - left - 1;
        sp_buf_clear(&joined);
        if (!sp_buf_add(&joined, merge.text, left) || !sp_buf_add(&joined, space + 1, right)) {
            ok = sp_fail(err, SP_ERR_MEMORY, "no memory for merge %zu", rank);
            break;
        }
        int32_t a = sp_vocab_find_literal(&t->vocab, merge.text, left);
        int32_t b = sp_vocab_find_literal(&t->vocab, space + 1, right);
        int32_t c = sp_vocab_find_literal(&t->vocab, joined.data, joined.n_bytes);
        if (a >= 0 && b >= 0 && c >= 0)
            sp_bpe_merge_add(&t->bpe, (uint32_t)a, (uint32_t)b, (uint32_t)rank, (uint32_t)c);
    }
    sp_buf_deinit(&joined);
    return ok;
}

static bool setup_gpt2(sp_tokenizer *t, const sp_tokenizer_gguf *src, bool *add_bos, sp_error *err) {
    const char *name = src->pre ? src->pre : "default";
    const pre_kind *kind = NULL;
    for (size_t i = 0; i < sizeof pre_kinds / sizeof pre_kinds[0]; i++)
        if (strcmp(pre_kinds[i].name, name) == 0) kind = &pre_kinds[i];
    if (!kind) {
        char shown[48];
        return sp_fail(err, SP_ERR_SUPPORT, "tokenizer.ggml.pre '%s' is not supported",
                       sp_printable(name, strlen(name), shown, sizeof shown));
    }
    *add_bos = kind->add_bos;
    t->bpe.ignore_merges = kind->ignore_merges;
    if (kind->nfc && !sp_load_add_norm(t, SP_NORM_NFC, err)) return false;
    if (kind->digits) {
        sp_pre *digits = sp_load_add_pre(t, SP_PRE_SPLIT, err);
        if (!digits) return false;
        digits->pattern.kind = SP_PATTERN_NUMERIC;
    }
    for (size_t i = 0; i < MAX_SPLITS && kind->splits[i]; i++)
        if (!sp_load_add_regex(t, kind->splits[i], strlen(kind->splits[i]), err)) return false;
    return sp_load_add_byte_level(t, false, false, err) && sp_load_add_decoder(t, SP_DEC_BYTE_LEVEL, err) &&
           add_tokens(t, src, err) && add_merges(t, src, err);
}

/* ---- llama: scores ---- */

typedef struct {
    float score;
    uint32_t id;
} scored;

static int by_falling_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* ranks[id]: place of the score among all, equal scores sharing one: then the leftmost merge is first. */
static bool rank_scores(sp_tokenizer *t, const sp_tokenizer_gguf *src, sp_error *err) {
    size_t n = src->n_tokens;
    scored *all = malloc((n + 1) * sizeof *all);
    t->bpe.ranks = malloc((n + 1) * sizeof *t->bpe.ranks);
    if (!all || !t->bpe.ranks) {
        free(all);
        return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu scores", n);
    }
    for (size_t id = 0; id < n; id++)
        all[id] = (scored){isnan(src->scores[id]) ? -INFINITY : src->scores[id], (uint32_t)id};
    qsort(all, n, sizeof *all, by_falling_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && all[i].score != all[i - 1].score) rank++;
        bool merges = type_of(src, all[i].id) != TYPE_BYTE && (t->vocab.flags[all[i].id] & SP_TOK_MODEL);
        t->bpe.ranks[all[i].id] = merges ? rank : UINT32_MAX;
    }
    t->bpe.n_ranks = n ? (size_t)rank + 1 : 0;
    free(all);
    return true;
}

static bool setup_llama(sp_tokenizer *t, const sp_tokenizer_gguf *src, sp_error *err) {
    static const char marker[] = "\xe2\x96\x81"; /* U+2581 */
    bool prefix = src->add_space_prefix != 0;
    if (!src->scores) return sp_fail(err, SP_ERR_INPUT, "tokenizer 'llama' without tokenizer.ggml.scores");
    sp_norm *prepend = prefix ? sp_load_add_norm(t, SP_NORM_PREPEND, err) : NULL;
    if (prefix && !prepend) return false;
    if (prepend) *prepend = (sp_norm){.kind = SP_NORM_PREPEND, .content = marker, .n_bytes = sizeof marker - 1};
    sp_norm *spaces = sp_load_add_norm(t, SP_NORM_REPLACE, err);
    if (!spaces) return false;
    spaces->content = marker;
    spaces->n_bytes = sizeof marker - 1;
    spaces->pattern = (sp_pattern){.kind = SP_PATTERN_LITERAL, .literal = " ", .n_bytes = 1};
    sp_dec *unmark = sp_load_add_decoder(t, SP_DEC_REPLACE, err);
    if (!unmark) return false;
    *unmark = (sp_dec){.kind = SP_DEC_REPLACE,
                       .pattern = marker,
                       .pattern_bytes = sizeof marker - 1,
                       .content = " ",
                       .content_bytes = 1};
    if (!sp_load_add_decoder(t, SP_DEC_BYTE_FALLBACK, err) || !sp_load_add_decoder(t, SP_DEC_FUSE, err)) return false;
    sp_dec *strip = prefix ? sp_load_add_decoder(t, SP_DEC_STRIP, err) : NULL;
    if (prefix && !strip) return false;
    if (strip) {
        strip->pattern = " ";
        strip->pattern_bytes = 1;
        strip->n_start = 1;
    }
    t->bpe.by_score = t->bpe.byte_fallback = true;
    return add_tokens(t, src, err) && rank_scores(t, src, err) && sp_bpe_reserve(&t->bpe, 0, err);
}

/* ---- what both have ---- */

static bool set_special(sp_tokenizer *t, const char *name, int64_t id, sp_error *err) {
    if (id < 0) return true;
    if ((size_t)id >= t->vocab.n_ids)
        return sp_fail(err, SP_ERR_INPUT, "%s has id %lld, but there are %zu tokens", name, (long long)id,
                       t->vocab.n_ids);
    if (!sp_load_special(t, name, sp_vocab_text(&t->vocab, (size_t)id), t->vocab.literal[id].n_bytes, err))
        return false;
    if (strcmp(name, "bos_token") == 0) t->bos_id = (int32_t)id; /* two tokens may share a text */
    if (strcmp(name, "eos_token") == 0) t->eos_id = (int32_t)id;
    return true;
}

/* What add_special puts around a text. */
static void surround(sp_tokenizer *t, bool add_bos, bool add_eos) {
    if (add_bos && t->bos_id >= 0) {
        t->prefix = SP_ARENA_NEW(&t->arena, int32_t);
        t->prefix[t->n_prefix++] = t->bos_id;
    }
    if (add_eos && t->eos_id >= 0) {
        t->suffix = SP_ARENA_NEW(&t->arena, int32_t);
        t->suffix[t->n_suffix++] = t->eos_id;
    }
}

static bool setup(sp_tokenizer *t, const sp_tokenizer_gguf *src, sp_error *err) {
    char shown[48];
    bool add_bos = false, add_eos = false;
    if (strcmp(src->model, "gpt2") == 0) {
        if (!setup_gpt2(t, src, &add_bos, err)) return false;
    } else if (strcmp(src->model, "llama") == 0) {
        add_bos = true;
        if (!setup_llama(t, src, err)) return false;
    } else {
        return sp_fail(err, SP_ERR_SUPPORT, "tokenizer.ggml.model '%s' is not supported, only gpt2 and llama",
                       sp_printable(src->model, strlen(src->model), shown, sizeof shown));
    }
    if (src->add_bos >= 0) add_bos = src->add_bos;
    if (src->add_eos >= 0) add_eos = src->add_eos;
    if (!set_special(t, "bos_token", src->bos_id, err) || !set_special(t, "eos_token", src->eos_id, err) ||
        !set_special(t, "unk_token", src->unk_id, err))
        return false;
    if (src->unk_id >= 0 && t->bpe.by_score) t->bpe.unk_id = (int32_t)src->unk_id;
    surround(t, add_bos, add_eos);
    return match_tokens(t, err) && sp_tokenizer_finish(t, err);
}

sp_tokenizer *sp_tokenizer_open_gguf(const sp_tokenizer_gguf *src, sp_error *err) {
    sp_tokenizer *t = sp_tokenizer_new(err);
    if (t && setup(t, src, err)) return t;
    sp_error_wrap(err, "GGUF tokenizer");
    sp_tokenizer_free(t);
    return NULL;
}
