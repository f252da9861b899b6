/* Normalizers, pre-tokenizers, post-processors and decoders from their JSON. Each kind has a table of types; what is
 * not in it is refused by name. A Sequence is flattened into the list of parts. */
#include <string.h>

#include "tokenizer/load.h"
#include "util/size.h"

typedef bool load_fn(sp_tokenizer *t, const json_t *value, sp_error *err);
typedef struct {
    const char *type;
    load_fn *load;
} loader;

const char sp_load_gpt2_regex[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool load_by_type(sp_tokenizer *t, const char *what, const loader *loaders, size_t n, const json_t *value,
                         sp_error *err) {
    char shown[48];
    sp_string type = {NULL, 0};
    if (!json_is_object(value)) return sp_fail(err, SP_ERR_INPUT, "a %s is not an object", what);
    if (!sp_load_text(value, "type", &type, err)) return false;
    if (!type.text) return sp_fail(err, SP_ERR_INPUT, "a %s has no type", what);
    sp_printable(type.text, type.n_bytes, shown, sizeof shown);
    for (size_t i = 0; i < n; i++)
        if (strcmp(loaders[i].type, shown) == 0)
            return loaders[i].load(t, value, err) || sp_error_wrap(err, "%s '%s'", what, shown);
    return sp_fail(err, SP_ERR_SUPPORT, "%s '%s' is not supported", what, shown);
}

static bool load_sequence(sp_tokenizer *t, const json_t *value, const char *member, load_fn *load, sp_error *err) {
    const json_t *list = json_object_get(value, member);
    if (!json_is_array(list)) return sp_fail(err, SP_ERR_INPUT, "no array '%s'", member);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (json_is_null(item)) return sp_fail(err, SP_ERR_INPUT, "'%s' has a null", member);
        if (!load(t, item, err)) return false;
    }
    return true;
}

static bool too_many(const char *what, sp_error *err) {
    return sp_fail(err, SP_ERR_SUPPORT, "more than %d %s", SP_TOK_MAX_PARTS, what);
}

/* A required string, copied to the arena. */
static bool keep_text(sp_tokenizer *t, const json_t *object, const char *name, const char **text, size_t *n_bytes,
                      sp_error *err) {
    sp_string value = {NULL, 0};
    if (!sp_load_text(object, name, &value, err)) return false;
    if (!value.text) return sp_fail(err, SP_ERR_INPUT, "no string '%s'", name);
    *text = sp_arena_text(&t->arena, value.text, value.n_bytes);
    *n_bytes = value.n_bytes;
    return true;
}

/* {"String": ...} or {"Regex": ...} under "pattern". */
static bool load_pattern(sp_tokenizer *t, const json_t *object, sp_pattern *pattern, sp_error *err) {
    const json_t *value = json_object_get(object, "pattern");
    const json_t *regex = json_object_get(value, "Regex");
    if (json_is_string(regex)) {
        pattern->kind = SP_PATTERN_REGEX;
        pattern->regex = sp_regex_new(json_string_value(regex), json_string_length(regex), err);
        return pattern->regex != NULL;
    }
    pattern->kind = SP_PATTERN_LITERAL;
    if (!json_is_object(value)) return sp_fail(err, SP_ERR_INPUT, "no object 'pattern'");
    if (!keep_text(t, value, "String", &pattern->literal, &pattern->n_bytes, err)) return false;
    return pattern->n_bytes > 0 || sp_fail(err, SP_ERR_SUPPORT, "an empty pattern is not supported");
}

/* ---- normalizers ---- */

sp_norm *sp_load_add_norm(sp_tokenizer *t, sp_norm_kind kind, sp_error *err) {
    if (t->n_norms == SP_TOK_MAX_PARTS) {
        too_many("normalizers", err);
        return NULL;
    }
    t->norms[t->n_norms] = (sp_norm){.kind = kind};
    return &t->norms[t->n_norms++];
}

static bool load_nfc(sp_tokenizer *t, const json_t *value, sp_error *err) {
    (void)value;
    return sp_load_add_norm(t, SP_NORM_NFC, err) != NULL;
}

static bool load_prepend(sp_tokenizer *t, const json_t *value, sp_error *err) {
    sp_norm *norm = sp_load_add_norm(t, SP_NORM_PREPEND, err);
    return norm && keep_text(t, value, "prepend", &norm->content, &norm->n_bytes, err);
}

static bool load_replace(sp_tokenizer *t, const json_t *value, sp_error *err) {
    sp_norm *norm = sp_load_add_norm(t, SP_NORM_REPLACE, err);
    return norm && keep_text(t, value, "content", &norm->content, &norm->n_bytes, err) &&
           load_pattern(t, value, &norm->pattern, err);
}

static bool load_normalizers(sp_tokenizer *t, const json_t *value, sp_error *err) {
    return load_sequence(t, value, "normalizers", sp_load_normalizer, err);
}

bool sp_load_normalizer(sp_tokenizer *t, const json_t *value, sp_error *err) {
    static const loader loaders[] = {
        {"NFC", load_nfc}, {"Prepend", load_prepend}, {"Replace", load_replace}, {"Sequence", load_normalizers}};
    if (!value || json_is_null(value)) return true;
    return load_by_type(t, "normalizer", loaders, sizeof loaders / sizeof loaders[0], value, err);
}

/* ---- pre-tokenizers ---- */

sp_pre *sp_load_add_pre(sp_tokenizer *t, sp_pre_kind kind, sp_error *err) {
    if (t->bpe.byte_level) {
        sp_fail(err, SP_ERR_SUPPORT, "a pre-tokenizer behind ByteLevel is not supported");
        return NULL;
    }
    if (t->n_pres == SP_TOK_MAX_PARTS) {
        too_many("pre-tokenizers", err);
        return NULL;
    }
    t->pres[t->n_pres] = (sp_pre){.kind = kind, .behavior = SP_SPLIT_ISOLATED};
    return &t->pres[t->n_pres++];
}

bool sp_load_add_regex(sp_tokenizer *t, const char *regex, size_t n_bytes, sp_error *err) {
    sp_pre *pre = sp_load_add_pre(t, SP_PRE_SPLIT, err);
    if (!pre) return false;
    pre->pattern.kind = SP_PATTERN_REGEX;
    pre->pattern.regex = sp_regex_new(regex, n_bytes, err);
    return pre->pattern.regex != NULL;
}

bool sp_load_add_byte_level(sp_tokenizer *t, bool prefix_space, bool use_regex, sp_error *err) {
    if (prefix_space && !sp_load_add_pre(t, SP_PRE_PREFIX_SPACE, err)) return false;
    if (use_regex && !sp_load_add_regex(t, sp_load_gpt2_regex, strlen(sp_load_gpt2_regex), err)) return false;
    if (t->bpe.byte_level) return sp_fail(err, SP_ERR_SUPPORT, "a pre-tokenizer behind ByteLevel is not supported");
    t->bpe.byte_level = true;
    return true;
}

static bool load_byte_level(sp_tokenizer *t, const json_t *value, sp_error *err) {
    bool prefix_space = true, use_regex = true;
    return sp_load_bool(value, "add_prefix_space", &prefix_space, err) &&
           sp_load_bool(value, "use_regex", &use_regex, err) && sp_load_add_byte_level(t, prefix_space, use_regex, err);
}

static bool load_split(sp_tokenizer *t, const json_t *value, sp_error *err) {
    static const char *const names[] = {
        [SP_SPLIT_REMOVED] = "Removed",
        [SP_SPLIT_ISOLATED] = "Isolated",
        [SP_SPLIT_PREVIOUS] = "MergedWithPrevious",
        [SP_SPLIT_NEXT] = "MergedWithNext",
        [SP_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    sp_pre *pre = sp_load_add_pre(t, SP_PRE_SPLIT, err);
    sp_string behavior = {"", 0};
    if (!pre || !load_pattern(t, value, &pre->pattern, err) || !sp_load_text(value, "behavior", &behavior, err) ||
        !sp_load_bool(value, "invert", &pre->invert, err))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == behavior.n_bytes && memcmp(names[i], behavior.text, behavior.n_bytes) == 0) {
            pre->behavior = (sp_split_behavior)i;
            return true;
        }
    }
    char shown[48];
    return sp_fail(err, SP_ERR_SUPPORT, "behavior '%s' is not supported",
                   sp_printable(behavior.text, behavior.n_bytes, shown, sizeof shown));
}

static bool load_digits(sp_tokenizer *t, const json_t *value, sp_error *err) {
    bool individual = false;
    sp_pre *pre = sp_load_add_pre(t, SP_PRE_SPLIT, err);
    if (!pre || !sp_load_bool(value, "individual_digits", &individual, err)) return false;
    pre->pattern.kind = SP_PATTERN_NUMERIC;
    pre->behavior = individual ? SP_SPLIT_ISOLATED : SP_SPLIT_CONTIGUOUS;
    return true;
}

/* The settings that Metaspace has as pre-tokenizer and as decoder. */
static bool load_metaspace_settings(const json_t *value, char *replacement, sp_prepend *prepend, sp_error *err) {
    static const char *const names[] = {
        [SP_PREPEND_NEVER] = "never", [SP_PREPEND_FIRST] = "first", [SP_PREPEND_ALWAYS] = "always"};
    sp_string mark = {NULL, 0}, scheme = {"always", 6};
    bool prefix = true;
    uint32_t c;
    if (!sp_load_text(value, "replacement", &mark, err) || !sp_load_text(value, "prepend_scheme", &scheme, err) ||
        !sp_load_bool(value, "add_prefix_space", &prefix, err))
        return false;
    if (!mark.text || mark.n_bytes == 0 || sp_char_next(mark.text, &c) != mark.n_bytes || c == 0)
        return sp_fail(err, SP_ERR_INPUT, "'replacement' is not one character");
    memcpy(replacement, mark.text, mark.n_bytes);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) != scheme.n_bytes || memcmp(names[i], scheme.text, scheme.n_bytes) != 0) continue;
        *prepend = prefix ? (sp_prepend)i : SP_PREPEND_NEVER;
        return true;
    }
    char shown[48];
    return sp_fail(err, SP_ERR_SUPPORT, "prepend_scheme '%s' is not supported, only never, first and always",
                   sp_printable(scheme.text, scheme.n_bytes, shown, sizeof shown));
}

static bool load_metaspace(sp_tokenizer *t, const json_t *value, sp_error *err) {
    bool split = true;
    sp_pre *pre = sp_load_add_pre(t, SP_PRE_METASPACE, err);
    if (!pre || !load_metaspace_settings(value, pre->replacement, &pre->prepend, err) ||
        !sp_load_bool(value, "split", &split, err))
        return false;
    sp_pre *cut = split ? sp_load_add_pre(t, SP_PRE_SPLIT, err) : NULL;
    if (!cut) return !split;
    cut->behavior = SP_SPLIT_NEXT;
    cut->pattern =
        (sp_pattern){.kind = SP_PATTERN_LITERAL, .literal = pre->replacement, .n_bytes = strlen(pre->replacement)};
    return true;
}

static bool load_pre_tokenizers(sp_tokenizer *t, const json_t *value, sp_error *err) {
    return load_sequence(t, value, "pretokenizers", sp_load_pre_tokenizer, err);
}

bool sp_load_pre_tokenizer(sp_tokenizer *t, const json_t *value, sp_error *err) {
    static const loader loaders[] = {{"Split", load_split},
                                     {"ByteLevel", load_byte_level},
                                     {"Digits", load_digits},
                                     {"Metaspace", load_metaspace},
                                     {"Sequence", load_pre_tokenizers}};
    if (!value || json_is_null(value)) return true;
    return load_by_type(t, "pre-tokenizer", loaders, sizeof loaders / sizeof loaders[0], value, err);
}

/* ---- post-processors ---- */

static bool load_nothing(sp_tokenizer *t, const json_t *value, sp_error *err) {
    (void)t, (void)value, (void)err; /* ByteLevel changes offsets only */
    return true;
}

/* Of real templates: 3 entries, one id each. Every encoding carries them, so a file may not ask for millions. */
enum { MAX_TEMPLATE_ENTRIES = 64, MAX_TEMPLATE_IDS = 64 };

/* Appends the ids of one special token of a template to prefix or suffix. */
static bool add_template_ids(sp_tokenizer *t, const json_t *entry, const json_t *specials, int32_t **ids, size_t *n,
                             sp_error *err) {
    sp_string name = {NULL, 0};
    if (!sp_load_text(entry, "id", &name, err)) return false;
    const json_t *list = name.text ? json_object_get(json_object_get(specials, name.text), "ids") : NULL;
    if (!json_is_array(list)) return sp_fail(err, SP_ERR_INPUT, "a special token of 'single' has no array 'ids'");
    size_t n_more = json_array_size(list);
    if (n_more > MAX_TEMPLATE_IDS - *n)
        return sp_fail(err, SP_ERR_SUPPORT, "'single' adds more than %d ids at one end", MAX_TEMPLATE_IDS);
    int32_t *all = SP_ARENA_ARRAY(&t->arena, int32_t, *n + n_more);
    if (*n) memcpy(all, *ids, *n * sizeof *all);
    for (size_t i = 0; i < n_more; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return sp_fail(err, SP_ERR_INPUT, "a special token's id is not an integer from 0 to %d", INT32_MAX);
        all[(*n)++] = (int32_t)json_integer_value(id);
    }
    *ids = all;
    return true;
}

static bool load_template(sp_tokenizer *t, const json_t *value, sp_error *err) {
    const json_t *single = json_object_get(value, "single");
    if (t->n_prefix || t->n_suffix) return sp_fail(err, SP_ERR_SUPPORT, "a second one is not supported");
    if (!json_is_array(single) || json_array_size(single) > MAX_TEMPLATE_ENTRIES)
        return sp_fail(err, SP_ERR_INPUT, "'single' is not an array of at most %d entries", MAX_TEMPLATE_ENTRIES);
    size_t n_texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *entry = json_array_get(single, i);
        const json_t *special = json_object_get(entry, "SpecialToken");
        if (json_object_get(entry, "Sequence")) {
            n_texts++;
            continue;
        }
        if (!special)
            return sp_fail(err, SP_ERR_INPUT, "'single' has an entry that is neither SpecialToken nor Sequence");
        if (!add_template_ids(t, special, json_object_get(value, "special_tokens"), n_texts ? &t->suffix : &t->prefix,
                              n_texts ? &t->n_suffix : &t->n_prefix, err))
            return false;
    }
    return n_texts == 1 || sp_fail(err, SP_ERR_SUPPORT, "'single' has %zu sequences, want 1", n_texts);
}

static bool load_post_processors(sp_tokenizer *t, const json_t *value, sp_error *err) {
    return load_sequence(t, value, "processors", sp_load_post_processor, err);
}

bool sp_load_post_processor(sp_tokenizer *t, const json_t *value, sp_error *err) {
    static const loader loaders[] = {
        {"TemplateProcessing", load_template}, {"ByteLevel", load_nothing}, {"Sequence", load_post_processors}};
    if (!value || json_is_null(value)) return true;
    return load_by_type(t, "post-processor", loaders, sizeof loaders / sizeof loaders[0], value, err);
}

/* ---- decoders ---- */

sp_dec *sp_load_add_decoder(sp_tokenizer *t, sp_dec_kind kind, sp_error *err) {
    bool fused = false;
    for (size_t i = 0; i < t->n_decs; i++) {
        sp_dec_kind before = t->decs[i].kind;
        fused = fused || before == SP_DEC_FUSE || before == SP_DEC_BYTE_LEVEL;
    }
    if (fused && (kind == SP_DEC_BYTE_LEVEL || kind == SP_DEC_BYTE_FALLBACK)) {
        sp_fail(err, SP_ERR_SUPPORT, "a decoder of tokens behind one that joins them is not supported");
        return NULL;
    }
    if (t->n_decs == SP_TOK_MAX_PARTS) {
        too_many("decoders", err);
        return NULL;
    }
    t->decs[t->n_decs] = (sp_dec){.kind = kind, .fused = fused};
    return &t->decs[t->n_decs++];
}

static bool load_dec_byte_level(sp_tokenizer *t, const json_t *value, sp_error *err) {
    (void)value;
    return sp_load_add_decoder(t, SP_DEC_BYTE_LEVEL, err) != NULL;
}

static bool load_dec_byte_fallback(sp_tokenizer *t, const json_t *value, sp_error *err) {
    (void)value;
    return sp_load_add_decoder(t, SP_DEC_BYTE_FALLBACK, err) != NULL;
}

static bool load_dec_fuse(sp_tokenizer *t, const json_t *value, sp_error *err) {
    (void)value;
    return sp_load_add_decoder(t, SP_DEC_FUSE, err) != NULL;
}

static bool load_dec_replace(sp_tokenizer *t, const json_t *value, sp_error *err) {
    sp_dec *dec = sp_load_add_decoder(t, SP_DEC_REPLACE, err);
    const json_t *pattern = json_object_get(value, "pattern");
    if (!dec || !keep_text(t, value, "content", &dec->content, &dec->content_bytes, err)) return false;
    if (!json_is_string(json_object_get(pattern, "String")))
        return sp_fail(err, SP_ERR_SUPPORT, "a pattern other than a String is not supported");
    if (!keep_text(t, pattern, "String", &dec->pattern, &dec->pattern_bytes, err)) return false;
    return dec->pattern_bytes > 0 || sp_fail(err, SP_ERR_SUPPORT, "an empty pattern is not supported");
}

static bool load_count(const json_t *object, const char *name, size_t *value, sp_error *err) {
    const json_t *member = json_object_get(object, name);
    if (!json_is_integer(member) || json_integer_value(member) < 0)
        return sp_fail(err, SP_ERR_INPUT, "'%s' is not a count", name);
    *value = (size_t)json_integer_value(member);
    return true;
}

static bool load_dec_strip(sp_tokenizer *t, const json_t *value, sp_error *err) {
    sp_dec *dec = sp_load_add_decoder(t, SP_DEC_STRIP, err);
    uint32_t c;
    if (!dec || !keep_text(t, value, "content", &dec->pattern, &dec->pattern_bytes, err) ||
        !load_count(value, "start", &dec->n_start, err) || !load_count(value, "stop", &dec->n_stop, err))
        return false;
    if (dec->pattern_bytes > 0 && sp_char_next(dec->pattern, &c) == dec->pattern_bytes) return true;
    return sp_fail(err, SP_ERR_INPUT, "'content' is not one character");
}

static bool load_dec_metaspace(sp_tokenizer *t, const json_t *value, sp_error *err) {
    char replacement[8] = "";
    sp_prepend prepend = SP_PREPEND_ALWAYS;
    sp_dec *dec = sp_load_add_decoder(t, SP_DEC_METASPACE, err);
    if (!dec || !load_metaspace_settings(value, replacement, &prepend, err)) return false;
    dec->pattern_bytes = strlen(replacement);
    dec->pattern = sp_arena_text(&t->arena, replacement, dec->pattern_bytes);
    dec->drop_first = prepend != SP_PREPEND_NEVER;
    return true;
}

static bool load_decoders(sp_tokenizer *t, const json_t *value, sp_error *err) {
    return load_sequence(t, value, "decoders", sp_load_decoder, err);
}

bool sp_load_decoder(sp_tokenizer *t, const json_t *value, sp_error *err) {
    static const loader loaders[] = {
        {"ByteLevel", load_dec_byte_level},
        {"ByteFallback", load_dec_byte_fallback},
        {"Fuse", load_dec_fuse},
        {"Replace", load_dec_replace},
        {"Strip", load_dec_strip},
        {"Metaspace", load_dec_metaspace},
        {"Sequence", load_decoders},
    };
    if (!value || json_is_null(value)) return sp_load_add_decoder(t, SP_DEC_JOIN, err) != NULL;
    return load_by_type(t, "decoder", loaders, sizeof loaders / sizeof loaders[0], value, err);
}
