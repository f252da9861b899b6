/* Rows of the tests of others' bugs, and looks into their results. */
#include "cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char rows[8 << 20]; /* the input that a test puts together */
static size_t n_bytes;

void rows_begin(void) {
    n_bytes = 0;
    rows[0] = '\0';
}

const char *rows_text(void) { return rows; }

void rows_put(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(rows + n_bytes, sizeof rows - n_bytes, format, args);
    va_end(args);
    assert_true(n >= 0 && n_bytes + (size_t)n < sizeof rows);
    n_bytes += (size_t)n;
}

void rows_put_string(const char *text, size_t n) {
    rows_put("\"");
    for (size_t i = 0; i < n; i++) rows_put(text[i] == '"' || text[i] == '\\' ? "\\%c" : "%c", text[i]);
    rows_put("\"");
}

json_t *run_on(const char *model, const char *options, int want_status) {
    char args[1000];
    snprintf(args, sizeof args, "run --quiet %s %s -", options, model);
    program_run run = run_spill(args, rows);
    if (run.status != want_status)
        fail_msg("spill %s: status %d, %d wanted; %.500s", args, run.status, want_status, run.err);
    json_t *lines = result_lines(run.out); /* each line whole, each id once */
    program_run_free(&run);
    return lines;
}

json_t *run_rows(const char *options, int want_status) { return run_on(MODEL, options, want_status); }

static const json_t *choice_of(const json_t *lines, const char *id) {
    const json_t *response = json_object_get(json_object_get(lines, id), "response");
    const json_t *choice = json_array_get(json_object_get(json_object_get(response, "body"), "choices"), 0);
    if (!choice) fail_msg("row %s: no answer", id);
    return choice;
}

const char *content_of(const json_t *lines, const char *id) {
    return json_string_value(json_object_get(json_object_get(choice_of(lines, id), "message"), "content"));
}

const char *finish_of(const json_t *lines, const char *id) {
    return json_string_value(json_object_get(choice_of(lines, id), "finish_reason"));
}

const json_t *ids_of(const json_t *lines, const char *id, const char *key) {
    return json_object_get(json_object_get(json_object_get(lines, id), "spill"), key);
}

size_t n_tokens_of(const json_t *lines, const char *id) { return json_array_size(ids_of(lines, id, "tokens")); }

const json_t *logprobs_of(const json_t *lines, const char *id) {
    return json_object_get(json_object_get(choice_of(lines, id), "logprobs"), "content");
}

void expect_error(const json_t *lines, const char *id, const char *code, const char *message) {
    const json_t *error = json_object_get(json_object_get(lines, id), "error");
    const char *found = json_string_value(json_object_get(error, "code"));
    const char *told = json_string_value(json_object_get(error, "message"));
    if (!found || strcmp(found, code) != 0 || !strstr(told, message))
        fail_msg("row %s: %s wanted with '%s', found %s: %s", id, code, message, found, told);
}

void expect_same_body(const json_t *a, const char *a_id, const json_t *b, const char *b_id) {
    char *one = result_body(json_object_get(a, a_id)), *other = result_body(json_object_get(b, b_id));
    if (!one || !other || strcmp(one, other) != 0) fail_msg("%s and %s:\n%s\n%s", a_id, b_id, one, other);
    free(one);
    free(other);
}

size_t n_in_prompt(const json_t *lines, const char *id, json_int_t token) {
    size_t i, n = 0;
    const json_t *value;
    json_array_foreach(ids_of(lines, id, "prompt_tokens_ids"), i, value) n += json_integer_value(value) == token;
    return n;
}

const char *make_variant(const char *edit) {
    static char dir[200];
    static int n_made;
    snprintf(dir, sizeof dir, "%s/variant%d", scratch_dir(), n_made++);
    char command[3000];
    snprintf(command, sizeof command,
             "V=%s; mkdir $V && cp " MODEL "/*.json $V && chmod u+w $V/* && ln -s $PWD/" MODEL
             "/model.safetensors $V && %s",
             dir, edit);
    program_run run = run_shell(command, NULL);
    if (run.status != 0) fail_msg("%s: %s", command, run.err);
    program_run_free(&run);
    return dir;
}
