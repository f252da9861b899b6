/* Opening a tokenizer.json: files, vocabulary, merges and the model's settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/load.h"
#include "util/file.h"
#include "util/json.h"

/* Real files reach 35 MB, of which all but 1 MB is vocabulary and merges. JSON values take up to 45 times their text.
 */
enum { MAX_FILE_BYTES = 192 << 20, MAX_REST_BYTES = 8 << 20, MAX_CONFIG_BYTES = 4 << 20 };

static bool fail_want(const char *name, const json_t *found, const char *want, sp_error *err) {
    char shown[80];
    return sp_fail(err, SP_ERR_INPUT, "'%s' is %s, want %s", name, sp_json_shown(found, shown, sizeof shown), want);
}

bool sp_load_bool(const json_t *object, const char *name, bool *value, sp_error *err) {
    const json_t *member = json_object_get(object, name);
    if (!member || json_is_null(member)) return true;
    if (!json_is_boolean(member)) return fail_want(name, member, "true or false", err);
    *value = json_is_true(member);
    return true;
}

bool sp_load_text(const json_t *object, const char *name, sp_string *value, sp_error *err) {
    const json_t *member = json_object_get(object, name);
    if (!member || json_is_null(member)) return true;
    if (!json_is_string(member)) return fail_want(name, member, "a string", err);
    *value = (sp_string){json_string_value(member), json_string_length(member)};
    return true;
}

/* ---- the model ---- */

static bool load_vocab(sp_tokenizer *t, const sp_scan_cut *cut, sp_error *err) {
    sp_scan c = {cut->vocab, cut->vocab + cut->vocab_bytes};
    sp_buf text = {0};
    bool ok = sp_scan_take(&c, '{');
    bool more = ok && !sp_scan_take(&c, '}');
    while (ok && more) {
        int64_t id = 0;
        sp_buf_clear(&text);
        ok = sp_scan_take_string(&c, &text, err) &&
             (sp_scan_take(&c, ':') || sp_fail(err, SP_ERR_INPUT, "a ':' was expected")) &&
             sp_scan_take_integer(&c, &id, err) &&
             sp_vocab_add(&t->vocab, id, text.data, text.n_bytes, SP_TOK_MODEL, err);
        more = ok && sp_scan_take(&c, ',');
        if (ok && !more && !(sp_scan_take(&c, '}') && c.at == c.end))
            ok = sp_fail(err, SP_ERR_INPUT, "a ',' or '}' was expected");
    }
    sp_buf_deinit(&text);
    if (!ok) {
        sp_fail(err, SP_ERR_INPUT, "not an object");
        return sp_error_wrap(err, "model.vocab, byte %zu of it", (size_t)(c.at - cut->vocab));
    }
    return sp_vocab_index_literal(&t->vocab, err);
}

/* The two halves of a merge, one behind the other in *text: "left right", or a pair. */
static bool take_merge(sp_scan *c, sp_buf *text, size_t *left_bytes, sp_error *err) {
    sp_buf_clear(text);
    if (sp_scan_take(c, '[')) {
        if (!sp_scan_take_string(c, text, err)) return false;
        *left_bytes = text->n_bytes;
        if (!sp_scan_take(c, ',')) return sp_fail(err, SP_ERR_INPUT, "a merge is a pair of strings");
        if (!sp_scan_take_string(c, text, err)) return false;
        return sp_scan_take(c, ']') || sp_fail(err, SP_ERR_INPUT, "a merge is a pair of strings");
    }
    if (!sp_scan_take_string(c, text, err)) return false;
    char *space = text->n_bytes ? memchr(text->data, ' ', text->n_bytes) : NULL;
    size_t left = space ? (size_t)(space - text->data) : 0;
    if (!space || memchr(space + 1, ' ', text->n_bytes - left - 1)) {
        char shown[64];
        return sp_fail(err, SP_ERR_INPUT, "merge '%s' does not have exactly one space",
                       sp_printable(text->data ? text->data : "", text->n_bytes, shown, sizeof shown));
    }
    memmove(space, space + 1, text->n_bytes - left - 1);
    text->n_bytes--;
    *left_bytes = left;
    return true;
}

static bool add_merge(sp_tokenizer *t, const sp_buf *text, size_t left_bytes, size_t rank, sp_error *err) {
    const struct {
        const char *text;
        size_t n_bytes;
    } parts[3] = {
        {text->data, left_bytes}, {text->data + left_bytes, text->n_bytes - left_bytes}, {text->data, text->n_bytes}};
    int32_t ids[3];
    for (int i = 0; i < 3; i++) {
        ids[i] = sp_vocab_find_literal(&t->vocab, parts[i].text, parts[i].n_bytes);
        if (ids[i] < 0) {
            char shown[64];
            return sp_fail(err, SP_ERR_INPUT, "merge %zu: '%s' is not in the vocabulary", rank,
                           sp_printable(parts[i].text, parts[i].n_bytes, shown, sizeof shown));
        }
    }
    sp_bpe_merge_add(&t->bpe, (uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)rank, (uint32_t)ids[2]);
    return true;
}

static bool load_merges(sp_tokenizer *t, const sp_scan_cut *cut, sp_error *err) {
    sp_scan c = {cut->merges, cut->merges + cut->merges_bytes};
    size_t n_max = 1; /* each merge but the last is followed by a comma outside its own pair; commas inside only add */
    for (const char *s = c.at; s < c.end; s++) n_max += *s == ',';
    sp_buf text = {0};
    size_t rank = 0;
    bool ok = sp_bpe_reserve(&t->bpe, n_max, err) && sp_scan_take(&c, '[');
    bool more = ok && !sp_scan_take(&c, ']');
    while (ok && more) {
        size_t left_bytes = 0;
        ok = take_merge(&c, &text, &left_bytes, err) && add_merge(t, &text, left_bytes, rank++, err);
        more = ok && sp_scan_take(&c, ',');
        if (ok && !more && !(sp_scan_take(&c, ']') && c.at == c.end))
            ok = sp_fail(err, SP_ERR_INPUT, "a ',' or ']' was expected");
    }
    sp_buf_deinit(&text);
    if (ok) return true;
    sp_fail(err, SP_ERR_INPUT, "not an array");
    return sp_error_wrap(err, "model.merges, byte %zu of it", (size_t)(c.at - cut->merges));
}

static bool must_be_empty(const json_t *model, const char *name, sp_error *err) {
    sp_string value = {"", 0};
    if (!sp_load_text(model, name, &value, err)) return false;
    return value.n_bytes == 0 || sp_fail(err, SP_ERR_SUPPORT, "'%s' is not supported", name);
}

static bool load_model(sp_tokenizer *t, const json_t *model, const sp_scan_cut *cut, sp_error *err) {
    if (!json_is_object(model)) return sp_fail(err, SP_ERR_INPUT, "no object 'model'");
    sp_string type = {"BPE", 3}, unk = {NULL, 0};
    char shown[48];
    if (!sp_load_text(model, "type", &type, err)) return false;
    if (type.n_bytes != 3 || memcmp(type.text, "BPE", 3) != 0)
        return sp_fail(err, SP_ERR_SUPPORT, "model type '%s' is not supported, only BPE",
                       sp_printable(type.text, type.n_bytes, shown, sizeof shown));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return sp_fail(err, SP_ERR_SUPPORT, "model.dropout is not supported");
    if (!must_be_empty(model, "continuing_subword_prefix", err) || !must_be_empty(model, "end_of_word_suffix", err) ||
        !sp_load_bool(model, "fuse_unk", &t->bpe.fuse_unk, err) ||
        !sp_load_bool(model, "byte_fallback", &t->bpe.byte_fallback, err) ||
        !sp_load_bool(model, "ignore_merges", &t->bpe.ignore_merges, err) ||
        !sp_load_text(model, "unk_token", &unk, err))
        return false;
    if (!cut->vocab || !cut->merges)
        return sp_fail(err, SP_ERR_INPUT, "model has no %s", cut->vocab ? "array 'merges'" : "object 'vocab'");
    if (!load_vocab(t, cut, err) || !load_merges(t, cut, err)) return false;
    if (unk.text) {
        t->bpe.unk_id = sp_vocab_find_literal(&t->vocab, unk.text, unk.n_bytes);
        if (t->bpe.unk_id < 0) t->bpe.unk_id = SP_UNK_ABSENT;
    }
    return true;
}

/* ---- files ---- */

/* A byte-level model looks its words up by the bytes that its decoder gives. */
static bool check_byte_level(const sp_tokenizer *t, sp_error *err) {
    bool decodes = t->n_decs > 0 && t->decs[0].kind == SP_DEC_BYTE_LEVEL;
    return !t->bpe.byte_level || decodes ||
           sp_fail(err, SP_ERR_SUPPORT, "pre-tokenizer 'ByteLevel' without decoder 'ByteLevel' is not supported");
}

static bool load_all(sp_tokenizer *t, const json_t *root, const sp_scan_cut *cut, sp_error *err) {
    if (!json_is_object(root)) return sp_fail(err, SP_ERR_INPUT, "not a JSON object");
    return sp_load_normalizer(t, json_object_get(root, "normalizer"), err) &&
           sp_load_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), err) &&
           sp_load_post_processor(t, json_object_get(root, "post_processor"), err) &&
           sp_load_decoder(t, json_object_get(root, "decoder"), err) && check_byte_level(t, err) &&
           load_model(t, json_object_get(root, "model"), cut, err) &&
           sp_load_added_tokens(t, json_object_get(root, "added_tokens"), err);
}

sp_tokenizer *sp_tokenizer_open_json(sp_string tokenizer_json, const sp_string *config, const char *name,
                                     sp_error *err) {
    sp_scan_cut cut;
    sp_buf rest = {.limit_bytes = MAX_REST_BYTES};
    json_t *root = NULL;
    sp_tokenizer *t = sp_tokenizer_new(err);
    bool ok = t != NULL;
    if (ok) ok = sp_scan_cut_model(tokenizer_json.text, tokenizer_json.n_bytes, &cut, &rest, err);
    if (ok) ok = (root = sp_json_parse(rest.data ? rest.data : "", rest.n_bytes, "tokenizer.json", err)) != NULL;
    sp_buf_deinit(&rest);
    ok = ok && load_all(t, root, &cut, err);
    json_decref(root);
    if (ok && config && !sp_load_config(t, *config, err)) ok = sp_error_wrap(err, "tokenizer_config.json");
    ok = ok && sp_tokenizer_finish(t, err);
    if (ok) return t;
    sp_error_wrap(err, "%s", name);
    sp_tokenizer_free(t);
    return NULL;
}

sp_tokenizer *sp_tokenizer_open_hf(const char *dir, sp_error *err) {
    char path[4096], config_path[4096];
    sp_buf text = {0}, config = {0};
    sp_tokenizer *t = NULL;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", dir) >= (int)sizeof path ||
        snprintf(config_path, sizeof config_path, "%s/tokenizer_config.json", dir) >= (int)sizeof config_path) {
        sp_fail(err, SP_ERR_INPUT, "%s: a path of more than %zu bytes", dir, sizeof path);
        return NULL;
    }
    bool has_config = !sp_file_is_absent(config_path);
    if (sp_file_read(path, MAX_FILE_BYTES, &text, err) &&
        (!has_config || sp_file_read(config_path, MAX_CONFIG_BYTES, &config, err))) {
        sp_string config_text = {config.data ? config.data : "", config.n_bytes};
        t = sp_tokenizer_open_json((sp_string){text.data ? text.data : "", text.n_bytes},
                                   has_config ? &config_text : NULL, path, err);
    }
    sp_buf_deinit(&text);
    sp_buf_deinit(&config);
    return t;
}
