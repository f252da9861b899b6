#include "planner/history.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/json.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_PATH_BYTES = 4096, KEY_BYTES = 160 };

static const char *key_text(const sp_history_key *key, char text[KEY_BYTES]) {
    const sp_rates *r = key->rates;
    snprintf(text, KEY_BYTES, "%.64s %s %s %s %zu", key->model, r->mode == SP_MODE_FP32 ? "fp32" : "bf16", r->isa,
             r->format, r->n_threads);
    return text;
}

/* ---- reading: whatever makes no sense counts as nothing ---- */

static double number_at(const json_t *array, size_t i) {
    double number = json_number_value(json_array_get(array, i));
    return number >= 0 && number < 1e15 ? number : 0;
}

static void read_passes(const json_t *passes, sp_cost_seen *seen) {
    const json_t *n = json_object_get(passes, "count"), *plain = json_object_get(passes, "computed_seconds"),
                 *actual = json_object_get(passes, "actual_seconds");
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) {
        double ratio = number_at(plain, b) > 0 ? number_at(actual, b) / number_at(plain, b) : 0;
        if (!(ratio > 1e-3 && ratio < 1e3) || number_at(n, b) < 1) continue;
        seen->n_passes[b] = number_at(n, b);
        seen->plain_s[b] = number_at(plain, b);
        seen->actual_s[b] = number_at(actual, b);
    }
}

static void read_ends(const json_t *rows, sp_ends_seen *seen) {
    double n = number_at(rows, 0), n_full = number_at(rows, 1), fractions = number_at(rows, 2);
    if (n_full <= n && fractions <= n - n_full) *seen = (sp_ends_seen){n, n_full, fractions};
}

static json_t *find(const json_t *entries, const char *key) {
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry) {
        const char *text = json_string_value(json_object_get(entry, "key"));
        if (text && strcmp(text, key) == 0) return entry;
    }
    return NULL;
}

void sp_history_load(const char *path, const sp_history_key *key, sp_observed *observed) {
    *observed = (sp_observed){0};
    char text[KEY_BYTES];
    sp_error err = {0};
    json_t *entries = sp_json_load(path, MAX_FILE_BYTES, &err);
    const json_t *entry = find(entries, key_text(key, text));
    json_int_t measured_s = json_integer_value(json_object_get(entry, "rates_measured"));
    if (entry && measured_s == key->rates->measured_s) read_passes(json_object_get(entry, "passes"), &observed->passes);
    if (entry) read_ends(json_object_get(entry, "rows"), &observed->ends);
    json_decref(entries);
}

/* ---- writing ---- */

static json_t *buckets_json(const double values[SP_COST_BUCKETS]) {
    json_t *array = json_array();
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) json_array_append_new(array, json_real(values[b]));
    return array;
}

static json_t *entry_json(const char *key, const sp_rates *rates, const sp_observed *o) {
    return json_pack("{s:s, s:I, s:{s:o, s:o, s:o}, s:[f, f, f]}", "key", key, "rates_measured",
                     (json_int_t)rates->measured_s, "passes", "count", buckets_json(o->passes.n_passes),
                     "computed_seconds", buckets_json(o->passes.plain_s), "actual_seconds",
                     buckets_json(o->passes.actual_s), "rows", o->ends.n_rows, o->ends.n_full, o->ends.fractions);
}

bool sp_history_save(const char *path, const sp_history_key *key, const sp_observed *observed, sp_error *err) {
    char text[KEY_BYTES], temporary[MAX_PATH_BYTES];
    sp_error unreadable = {0};
    json_t *old = sp_json_load(path, MAX_FILE_BYTES, &unreadable), *entries = json_array();
    json_array_append_new(entries, entry_json(key_text(key, text), key->rates, observed));
    const json_t *same = find(old, text);
    size_t i;
    json_t *entry;
    json_array_foreach(old, i, entry) {
        if (entry != same && json_array_size(entries) < SP_HISTORY_ENTRIES) json_array_append(entries, entry);
    }
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    bool good =
        json_dump_file(entries, temporary, JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0 && rename(temporary, path) == 0;
    if (!good) {
        sp_fail_errno(err, "%s: cannot be written", path);
        unlink(temporary);
    }
    json_decref(entries);
    json_decref(old);
    return good;
}
