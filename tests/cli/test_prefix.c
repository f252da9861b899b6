/* Rows whose prompts begin alike: what they share is computed once, and every row has the bytes that it has alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

#define MODEL "models/fields"
enum { N_ROWS = 200, N_ALONE = 8, LINE_BYTES = 8192, PREFIX_TOKENS = 500, PAGE = 32 };

static char lines[N_ROWS][LINE_BYTES];
static json_t *want[N_ALONE]; /* bodies of rows i * N_ROWS / N_ALONE, each of a run of its own */

static json_t *body_of(const json_t *results, const char *id) {
    json_t *body = json_object_get(json_object_get(json_object_get(results, id), "response"), "body");
    assert_non_null(body);
    return body;
}

static long prompt_tokens(const json_t *body) {
    return (long)json_integer_value(json_object_get(json_object_get(body, "usage"), "prompt_tokens"));
}

static json_t *run_alone(const char *line) {
    program_run run = run_spill("run --quiet " MODEL " -", line);
    if (run.status != 0) fail_msg("status %d: %.600s %.600s", run.status, run.err, run.out);
    json_t *results = result_lines(run.out);
    program_run_free(&run);
    return results;
}

/* A system prompt long enough, and a question of each row's own; some are sampled. */
static int setup(void **state) {
    (void)state;
    char system[LINE_BYTES / 2] = "", file[] = "rows.jsonl";
    size_t used = 0;
    for (int i = 0; i < 40; i++)
        used += (size_t)sprintf(system + used, "%d lamps for Ms Weiss, %d for Mr Berg. ", i, 7 * i);
    char *all = calloc(N_ROWS, LINE_BYTES);
    for (int i = 0, at = 0; i < N_ROWS; i++) {
        sprintf(lines[i],
                "{\"custom_id\":\"r%d\",\"prompt\":\"%s and %d chairs\",\"max_tokens\":%d,\"temperature\":%s}\n", i,
                system, i * i, 2 + i % 7, i % 2 ? "2" : "0");
        at += sprintf(all + at, "%s", lines[i]);
    }
    scratch_file(file, all);
    free(all);
    for (size_t i = 0; i < N_ALONE; i++) {
        size_t row = i * N_ROWS / N_ALONE;
        char id[16];
        snprintf(id, sizeof id, "r%zu", row);
        json_t *results = run_alone(lines[row]);
        want[i] = json_incref(body_of(results, id));
        json_decref(results);
    }
    assert_true(prompt_tokens(want[0]) > PREFIX_TOKENS);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ALONE; i++) json_decref(want[i]);
    return 0;
}

/* Text, tokens and counts; id and created are the run's. */
static void expect_same(json_t *one, json_t *other, size_t row) {
    static const char *const fields[] = {"choices", "usage"};
    for (size_t i = 0; i < 2; i++) {
        char *a = json_dumps(json_object_get(one, fields[i]), JSON_SORT_KEYS);
        char *b = json_dumps(json_object_get(other, fields[i]), JSON_SORT_KEYS);
        if (strcmp(a, b) != 0) fail_msg("row %zu:\n%s\n%s", row, a, b);
        free(a);
        free(b);
    }
}

/* The tokens that went in as prompts; the rows' usage together goes to *all_tokens. */
static long tokens_fed(const char *options, long *all_tokens) {
    char args[300];
    snprintf(args, sizeof args, "run --json %s " MODEL " %s/rows.jsonl", options, scratch_dir());
    program_run run = run_spill(args, NULL);
    if (run.status != 0) fail_msg("%s: status %d, %.500s", args, run.status, run.err);
    json_t *results = result_lines(run.out);
    assert_int_equal(json_object_size(results), N_ROWS);
    *all_tokens = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%zu", i);
        *all_tokens += prompt_tokens(body_of(results, id));
        if (i % (N_ROWS / N_ALONE) == 0) expect_same(want[i * N_ALONE / N_ROWS], body_of(results, id), i);
    }
    json_decref(results);
    long n_fed = 0;
    for (char *at = run.err, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_t *event = json_loadb(at, (size_t)(end - at), 0, NULL);
        if (strcmp(json_string_value(json_object_get(event, "event")), "pass") == 0)
            n_fed += (long)json_integer_value(json_object_get(event, "prefill_tokens"));
        json_decref(event);
    }
    program_run_free(&run);
    return n_fed;
}

/* Whatever the rows in flight: one row pays for the prefix, each other for its own tokens and less than a page more. */
static void test_a_prefix_is_computed_once(void **state) {
    (void)state;
    static const char *const options[] = {"", "--rows 1", "--rows 5 --threads 1", "--rows 50 --placement stream",
                                          "--rows 200"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        long all_tokens, n_fed = tokens_fed(options[i], &all_tokens);
        long n_own = all_tokens - (long)N_ROWS * PREFIX_TOKENS;
        if (n_fed > PREFIX_TOKENS + n_own + (N_ROWS - 1) * PAGE || n_fed < PREFIX_TOKENS)
            fail_msg("'%s': %ld tokens of prompts went in, of %ld", options[i], n_fed, all_tokens);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_prefix_is_computed_once)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
