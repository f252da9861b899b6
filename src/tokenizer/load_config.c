/* Added tokens of tokenizer.json and tokenizer_config.json, and the special tokens that the configuration names. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/load.h"

enum { MAX_SPECIALS = 64 };

typedef struct {
    sp_string content;
    sp_added_token token;
    bool special;
} added;

static bool load_rules(const json_t *entry, added *a, sp_error *err) {
    static const struct {
        const char *name;
        uint8_t rule;
    } names[] = {{"lstrip", SP_ADDED_LSTRIP},
                 {"rstrip", SP_ADDED_RSTRIP},
                 {"single_word", SP_ADDED_SINGLE_WORD},
                 {"normalized", SP_ADDED_NORMALIZED}};
    if (!json_is_object(entry)) return sp_fail(err, SP_ERR_INPUT, "an added token is not an object");
    if (!sp_load_text(entry, "content", &a->content, err)) return false;
    if (!a->content.text) return sp_fail(err, SP_ERR_INPUT, "an added token has no content");
    if (!sp_load_bool(entry, "special", &a->special, err)) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool set = names[i].rule == SP_ADDED_NORMALIZED && !a->special;
        if (!sp_load_bool(entry, names[i].name, &set, err)) return false;
        if (set) a->token.rules |= names[i].rule;
    }
    return true;
}

/* Gives the token its id: of the vocabulary if its text is there, else `wanted`. */
static bool place(sp_tokenizer *t, added *a, int64_t wanted, sp_error *err) {
    int32_t id = sp_vocab_find_literal(&t->vocab, a->content.text, a->content.n_bytes);
    if (id < 0) {
        if (!sp_vocab_add(&t->vocab, wanted, a->content.text, a->content.n_bytes, SP_TOK_ADDED, err)) return false;
        id = (int32_t)wanted;
        if (!sp_vocab_index_one(&t->vocab, id, err)) return false;
    }
    t->vocab.flags[id] |= SP_TOK_ADDED | (a->special ? SP_TOK_SPECIAL : 0);
    a->token.id = id;
    return true;
}

/* Special tokens come first in the matchers: the first of two with one text wins. */
static bool match_all(sp_tokenizer *t, const added *list, size_t n, sp_error *err) {
    for (int special = 1; special >= 0; special--)
        for (size_t i = 0; i < n; i++)
            if (list[i].special == special && list[i].content.n_bytes &&
                !sp_tokenizer_match_added(t, list[i].token, err))
                return false;
    return true;
}

/* The library's ids: tokens that the model does not know are numbered on behind it, whatever "id" says. A text that
 * comes twice keeps its id, and its later rules. */
static bool place_all(sp_tokenizer *t, added *list, size_t n, sp_error *err) {
    int64_t next = (int64_t)t->vocab.n_model;
    for (size_t i = 0; i < n; i++) {
        if (list[i].content.n_bytes == 0) continue;
        if (!place(t, &list[i], next, err)) return false;
        if (list[i].token.id >= next) next = (int64_t)list[i].token.id + 1;
    }
    return true;
}

bool sp_load_added_tokens(sp_tokenizer *t, const json_t *array, sp_error *err) {
    if (!array || json_is_null(array)) return true;
    if (!json_is_array(array)) return sp_fail(err, SP_ERR_INPUT, "'added_tokens' is not an array");
    size_t n = json_array_size(array);
    added *list = calloc(n + 1, sizeof *list);
    if (!list) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu added tokens", n);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = load_rules(json_array_get(array, i), &list[i], err) || sp_error_wrap(err, "added_tokens[%zu]", i);
    ok = ok && place_all(t, list, n, err) && match_all(t, list, n, err);
    free(list);
    return ok;
}

/* ---- tokenizer_config.json ---- */

/* added_tokens_decoder: {"id": {content, rules}}. Tokens that tokenizer.json has are left as it has them. */
static bool load_decoder_tokens(sp_tokenizer *t, const json_t *object, sp_error *err) {
    const char *key;
    json_t *entry;
    if (!object || json_is_null(object)) return true;
    if (!json_is_object(object)) return sp_fail(err, SP_ERR_INPUT, "'added_tokens_decoder' is not an object");
    json_object_foreach((json_t *)object, key, entry) {
        added a = {0};
        char *end = NULL;
        long long id = strtoll(key, &end, 10);
        if (*key < '0' || *key > '9' || *end)
            return sp_fail(err, SP_ERR_INPUT, "added_tokens_decoder: '%s' is no id", key);
        if (!load_rules(entry, &a, err)) return sp_error_wrap(err, "added_tokens_decoder[%s]", key);
        int32_t known = sp_vocab_find_literal(&t->vocab, a.content.text, a.content.n_bytes);
        if (a.content.n_bytes == 0 || (known >= 0 && (t->vocab.flags[known] & SP_TOK_ADDED))) continue;
        if (!place(t, &a, id, err)) return sp_error_wrap(err, "added_tokens_decoder[%s]", key);
        if (!sp_tokenizer_match_added(t, a.token, err)) return false;
    }
    return true;
}

bool sp_load_special(sp_tokenizer *t, const char *name, const char *text, size_t n_bytes, sp_error *err) {
    if (memchr(text, '\0', n_bytes)) return sp_fail(err, SP_ERR_INPUT, "'%s' has a NUL", name);
    if (!t->specials) t->specials = SP_ARENA_ARRAY(&t->arena, sp_named_text, MAX_SPECIALS);
    if (t->n_specials == MAX_SPECIALS) return sp_fail(err, SP_ERR_SUPPORT, "more than %d special tokens", MAX_SPECIALS);
    t->specials[t->n_specials++] =
        (sp_named_text){sp_arena_text(&t->arena, name, strlen(name)), sp_arena_text(&t->arena, text, n_bytes)};
    int32_t id = sp_vocab_find_literal(&t->vocab, text, n_bytes);
    if (strcmp(name, "bos_token") == 0) t->bos_id = id;
    if (strcmp(name, "eos_token") == 0) t->eos_id = id;
    return true;
}

/* Members called *_token that are a string or an object with content. */
static bool load_named(sp_tokenizer *t, const json_t *config, sp_error *err) {
    static const char ending[] = "_token";
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value) {
        size_t n = strlen(key);
        if (n < sizeof ending || strcmp(key + n - (sizeof ending - 1), ending) != 0) continue;
        const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (!json_is_string(text)) continue; /* null, and flags like add_bos_token */
        if (!sp_load_special(t, key, json_string_value(text), json_string_length(text), err)) return false;
    }
    return true;
}

bool sp_load_config(sp_tokenizer *t, sp_string text, sp_error *err) {
    /* Integers as reals: model_max_length is often 10^30, and no integer value here matters. */
    json_error_t where;
    json_t *config =
        json_loadb(text.text, text.n_bytes,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &where);
    if (!config)
        return sp_fail(err, SP_ERR_INPUT, "not JSON at line %d column %d: %s", where.line, where.column, where.text);
    bool ok = json_is_object(config) || sp_fail(err, SP_ERR_INPUT, "not a JSON object");
    ok = ok && load_decoder_tokens(t, json_object_get(config, "added_tokens_decoder"), err) &&
         load_named(t, config, err);
    json_decref(config);
    return ok;
}
