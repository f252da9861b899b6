/* Typed getters over GGUF metadata, and its fields as JSON for the readers that config.json has. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf_file.h"

enum { FIELD_MAX_ELEMS = 4096 };

static bool fail_type(const sp_gguf_value *value, const char *want, sp_error *err) {
    return sp_fail(err, SP_ERR_INPUT, "key %s is %s of type %s, want %s", value->key,
                   value->is_array ? "an array" : "a value", sp_gguf_type_name(value->type), want);
}

/* A whole number of any width as int64_t; false for other types and for a uint64 past INT64_MAX. */
static bool int_at(const sp_gguf_value *value, size_t i, int64_t *out) {
    switch (value->type) {
        case SP_GGUF_U8:
            *out = ((const uint8_t *)value->data)[i];
            return true;
        case SP_GGUF_I8:
            *out = ((const uint8_t *)value->data)[i];
            if (*out > INT8_MAX) *out -= 256;
            return true;
        case SP_GGUF_U16:
            *out = ((const uint16_t *)value->data)[i];
            return true;
        case SP_GGUF_I16:
            *out = ((const int16_t *)value->data)[i];
            return true;
        case SP_GGUF_U32:
            *out = ((const uint32_t *)value->data)[i];
            return true;
        case SP_GGUF_I32:
            *out = ((const int32_t *)value->data)[i];
            return true;
        case SP_GGUF_U64:
            *out = (int64_t)((const uint64_t *)value->data)[i];
            return *out >= 0;
        case SP_GGUF_I64:
            *out = ((const int64_t *)value->data)[i];
            return true;
        default:
            return false;
    }
}

/* One element as JSON, NULL for a real that is not finite, a huge integer or text that is not UTF-8. */
static json_t *json_at(const sp_gguf_value *value, size_t i) {
    int64_t whole = 0;
    if (int_at(value, i, &whole)) return json_integer(whole);
    if (value->type == SP_GGUF_F32) return json_real((double)((const float *)value->data)[i]);
    if (value->type == SP_GGUF_F64) return json_real(((const double *)value->data)[i]);
    if (value->type == SP_GGUF_BOOL) return json_boolean(((const uint8_t *)value->data)[i]);
    if (value->type != SP_GGUF_TEXT) return NULL;
    const sp_string *text = (const sp_string *)value->data + i;
    return json_stringn(text->text, text->n_bytes);
}

static json_t *field_to_json(const sp_gguf_value *value) {
    if (!value->is_array) return json_at(value, 0);
    json_t *list = json_array();
    for (size_t i = 0; list && i < value->n_elems; i++) {
        if (json_array_append_new(list, json_at(value, i)) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

json_t *sp_gguf_fields(const sp_gguf *gguf, const char *prefix, sp_error *err) {
    size_t n_prefix = strlen(prefix);
    json_t *fields = json_object();
    for (size_t i = 0; fields && i < sp_gguf_n_values(gguf); i++) {
        const sp_gguf_value *value = sp_gguf_at(gguf, i);
        bool is_long = value->is_array && (value->n_elems > FIELD_MAX_ELEMS || value->type == SP_GGUF_TEXT);
        if (is_long || strncmp(value->key, prefix, n_prefix) != 0) continue;
        if (json_object_set_new(fields, value->key + n_prefix, field_to_json(value)) == 0) continue;
        sp_fail(err, SP_ERR_INPUT, "key %s is not a finite number or UTF-8 text", value->key);
        json_decref(fields);
        return NULL;
    }
    if (!fields) sp_fail(err, SP_ERR_MEMORY, "no memory for metadata");
    return fields;
}

bool sp_gguf_get_text(const sp_gguf *gguf, const char *key, sp_string *out, bool *found, sp_error *err) {
    const sp_gguf_value *value = sp_gguf_find(gguf, key);
    *found = value != NULL;
    *out = (sp_string){0};
    if (!value) return true;
    if (value->is_array || value->type != SP_GGUF_TEXT) return fail_type(value, "a string", err);
    *out = *(const sp_string *)value->data;
    return true;
}

bool sp_gguf_get_int(const sp_gguf *gguf, const char *key, int64_t fallback, int64_t *out, sp_error *err) {
    const sp_gguf_value *value = sp_gguf_find(gguf, key);
    *out = fallback;
    if (!value) return true;
    return (!value->is_array && int_at(value, 0, out)) || fail_type(value, "a whole number", err);
}

bool sp_gguf_get_flag(const sp_gguf *gguf, const char *key, int *out, sp_error *err) {
    const sp_gguf_value *value = sp_gguf_find(gguf, key);
    *out = -1;
    if (!value) return true;
    if (value->is_array || value->type != SP_GGUF_BOOL) return fail_type(value, "a bool", err);
    *out = *(const uint8_t *)value->data;
    return true;
}

/* The data of an array of `type`, NULL and 0 when the key is absent. */
static bool get_array(const sp_gguf *gguf, const char *key, sp_gguf_type type, const char *want, const void **out,
                      size_t *n, sp_error *err) {
    const sp_gguf_value *value = sp_gguf_find(gguf, key);
    *out = NULL;
    *n = 0;
    if (!value) return true;
    if (!value->is_array || value->type != type) return fail_type(value, want, err);
    *out = value->data;
    *n = value->n_elems;
    return true;
}

bool sp_gguf_get_texts(const sp_gguf *gguf, const char *key, const sp_string **out, size_t *n, sp_error *err) {
    const void *data = NULL;
    bool good = get_array(gguf, key, SP_GGUF_TEXT, "an array of strings", &data, n, err);
    *out = data;
    return good;
}

bool sp_gguf_get_floats(const sp_gguf *gguf, const char *key, const float **out, size_t *n, sp_error *err) {
    const void *data = NULL;
    bool good = get_array(gguf, key, SP_GGUF_F32, "an array of float32", &data, n, err);
    *out = data;
    return good;
}

bool sp_gguf_get_int32s(const sp_gguf *gguf, const char *key, const int32_t **out, size_t *n, sp_error *err) {
    const void *data = NULL;
    bool good = get_array(gguf, key, SP_GGUF_I32, "an array of int32", &data, n, err);
    *out = data;
    return good;
}

bool sp_gguf_get_template(const sp_gguf *gguf, const char *name, sp_string *out, bool *found, sp_error *err) {
    static const char stem[] = "tokenizer.chat_template";
    if (!name) return sp_gguf_get_text(gguf, stem, out, found, err);
    char key[256];
    int n_bytes = snprintf(key, sizeof key, "%s.%s", stem, name);
    if (n_bytes < 0 || (size_t)n_bytes >= sizeof key) {
        *found = false;
        return true;
    }
    return sp_gguf_get_text(gguf, key, out, found, err);
}
