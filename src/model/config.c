/* Checked readers over a parsed JSON object. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "util/json.h"

enum { SHOWN_BYTES = 80, WANT_BYTES = 160 };

const json_t *sp_config_get(const sp_config *config, const char *key) {
    const json_t *value = json_object_get(config->object, key);
    return json_is_null(value) ? NULL : value;
}

bool sp_config_fail(const sp_config *config, const char *key, const char *want, sp_error *err) {
    char shown[SHOWN_BYTES];
    return sp_fail(err, SP_ERR_INPUT, "%s: %s%s is %s, want %s", config->file, config->inside, key,
                   sp_json_shown(sp_config_get(config, key), shown, sizeof shown), want);
}

bool sp_config_unsupported(const sp_config *config, const char *key, const char *what_is, sp_error *err) {
    char shown[SHOWN_BYTES];
    return sp_fail(err, SP_ERR_SUPPORT, "%s: %s%s is %s: not supported (%s)", config->file, config->inside, key,
                   sp_json_shown(sp_config_get(config, key), shown, sizeof shown), what_is);
}

/* A whole number, also one written as a real. */
static bool whole_number(const json_t *value, int64_t *out) {
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value)) return false;
    double real = json_real_value(value);
    if (real != floor(real) || fabs(real) > 9007199254740992.0) return false; /* 2^53: exact up to there */
    *out = (int64_t)real;
    return true;
}

bool sp_config_size(const sp_config *config, const char *key, size_t min, size_t max, size_t *out, sp_error *err) {
    int64_t value = 0;
    if (whole_number(sp_config_get(config, key), &value) && value >= 0 && (uint64_t)value >= min &&
        (uint64_t)value <= max) {
        *out = (size_t)value;
        return true;
    }
    char want[WANT_BYTES];
    snprintf(want, sizeof want, "a whole number from %zu to %zu", min, max);
    return sp_config_fail(config, key, want, err);
}

bool sp_config_real(const sp_config *config, const char *key, double min, double max, double *out, sp_error *err) {
    const json_t *value = sp_config_get(config, key);
    if (json_is_number(value)) {
        double real = json_number_value(value);
        if (real >= min && real <= max) {
            *out = real;
            return true;
        }
    }
    char want[WANT_BYTES];
    snprintf(want, sizeof want, "a number from %g to %g", min, max);
    return sp_config_fail(config, key, want, err);
}

bool sp_config_size_if(const sp_config *config, const char *key, size_t min, size_t max, size_t *out, sp_error *err) {
    return !sp_config_get(config, key) || sp_config_size(config, key, min, max, out, err);
}

bool sp_config_real_if(const sp_config *config, const char *key, double min, double max, double *out, sp_error *err) {
    return !sp_config_get(config, key) || sp_config_real(config, key, min, max, out, err);
}

bool sp_config_bool_if(const sp_config *config, const char *key, bool *out, sp_error *err) {
    const json_t *value = sp_config_get(config, key);
    if (!value) return true;
    if (!json_is_boolean(value)) return sp_config_fail(config, key, "true or false", err);
    *out = json_is_true(value);
    return true;
}

bool sp_config_text_if(const sp_config *config, const char *key, const char **out, sp_error *err) {
    const json_t *value = sp_config_get(config, key);
    if (!value) return true;
    if (!json_is_string(value)) return sp_config_fail(config, key, "a string", err);
    *out = json_string_value(value);
    return true;
}

bool sp_config_choice_if(const sp_config *config, const char *key, const sp_config_choice *choices, size_t n, int *out,
                         sp_error *err) {
    const char *word = NULL;
    if (!sp_config_text_if(config, key, &word, err)) return false;
    if (!word) return true;
    char known[WANT_BYTES] = "known:";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(choices[i].word, word) == 0) {
            *out = choices[i].value;
            return true;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s %s", i ? "," : "", choices[i].word);
    }
    return sp_config_unsupported(config, key, known, err);
}

bool sp_config_reals(const sp_config *config, const char *key, double min, double max, size_t n, float *out,
                     sp_error *err) {
    const json_t *list = sp_config_get(config, key);
    char want[WANT_BYTES];
    snprintf(want, sizeof want, "a list of %zu numbers from %g to %g", n, min, max);
    if (!json_is_array(list)) return sp_config_fail(config, key, want, err);
    if (json_array_size(list) != n)
        return sp_fail(err, SP_ERR_INPUT, "%s: %s%s has %zu entries, want %zu", config->file, config->inside, key,
                       json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        double real = json_is_number(value) ? json_number_value(value) : NAN;
        if (!(real >= min && real <= max)) {
            char shown[SHOWN_BYTES];
            return sp_fail(err, SP_ERR_INPUT, "%s: %s%s[%zu] is %s, want a number from %g to %g", config->file,
                           config->inside, key, i, sp_json_shown(value, shown, sizeof shown), min, max);
        }
        out[i] = (float)real;
    }
    return true;
}

bool sp_config_object_if(const sp_config *config, const char *key, const char *inside, sp_config *out, bool *found,
                         sp_error *err) {
    const json_t *value = sp_config_get(config, key);
    *found = value != NULL;
    if (!value) return true;
    if (!json_is_object(value)) return sp_config_fail(config, key, "an object", err);
    *out = (sp_config){.object = value, .file = config->file, .inside = inside};
    return true;
}

static bool add_id(const sp_config *config, const char *key, const json_t *value, size_t n_vocab, int32_t *ids,
                   size_t room, size_t *n, sp_error *err) {
    int64_t id = -1;
    if (!whole_number(value, &id) || id < 0 || (uint64_t)id >= n_vocab) {
        char shown[SHOWN_BYTES];
        return sp_fail(err, SP_ERR_INPUT, "%s: %s%s holds %s, want token ids below the vocabulary of %zu", config->file,
                       config->inside, key, sp_json_shown(value, shown, sizeof shown), n_vocab);
    }
    for (size_t i = 0; i < *n; i++)
        if (ids[i] == (int32_t)id) return true;
    if (*n == room)
        return sp_fail(err, SP_ERR_INPUT, "%s: %s%s: more than %zu token ids", config->file, config->inside, key, room);
    ids[(*n)++] = (int32_t)id;
    return true;
}

bool sp_config_ids_if(const sp_config *config, const char *key, size_t n_vocab, int32_t *ids, size_t room, size_t *n,
                      sp_error *err) {
    const json_t *value = sp_config_get(config, key);
    if (!value) return true;
    if (!json_is_array(value)) return add_id(config, key, value, n_vocab, ids, room, n, err);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_id(config, key, json_array_get(value, i), n_vocab, ids, room, n, err)) return false;
    return true;
}
