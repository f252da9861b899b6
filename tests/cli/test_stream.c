/* spill run from a drive that has faults: what passes changes no byte, what stays ends the run in one line and keeps
 * every finished row. And who a model is: its content. Faults come by a library that is loaded before the system's
 * (faults.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

/* One row after the other, and bytes of weights read before a fault: about a third of what the whole run reads. */
#define STREAM "--quiet --placement stream"
#define ROWS "models/fields/sample.jsonl"
#define N_ROWS "6"
#define AFTER_BYTES "300000000"

static char model[128]; /* a copy that may be damaged */
static char memory[32]; /* the least that one row needs: nothing is pinned */
static json_t *undisturbed;

static void copy_model(void) {
    char command[600];
    snprintf(model, sizeof model, "%s/model", scratch_dir());
    snprintf(command, sizeof command,
             "rm -rf %s && cp -r models/fields %s && cp %s/model.safetensors %s/model.safetensors.copy", model, model,
             model, model);
    program_run run = run_shell(command, NULL);
    assert_int_equal(run.status, 0);
    program_run_free(&run);
}

/* The message of a budget that is too small says which would do. */
static void find_memory(void) {
    program_run run =
        run_spill("run --placement stream --memory 1M --limit " N_ROWS " models/fields " ROWS " -o -", NULL);
    const char *at = strstr(run.err, "give --memory ");
    if (!at || sscanf(at, "give --memory %31[0-9A-Z]", memory) != 1) fail_msg("no budget in: %s", run.err);
    program_run_free(&run);
}

static program_run run_with(const char *environment, const char *options) {
    char command[2000];
    snprintf(command, sizeof command, "%s $SPILL run --memory %s --rows 1 --limit " N_ROWS " %s %s " ROWS " -o -",
             environment, memory, options, model);
    return run_shell(command, NULL);
}

static program_run run_fault(const char *kind, const char *options) {
    char environment[600];
    snprintf(environment, sizeof environment,
             "SPILL_FAULT=%s SPILL_FAULT_AFTER=" AFTER_BYTES
             " SPILL_FAULT_FILE=model.safetensors LD_PRELOAD=$SPILL_FAULTS",
             kind);
    return run_with(environment, options);
}

static int set_up(void **state) {
    (void)state;
    copy_model();
    find_memory();
    program_run run = run_with("", STREAM);
    if (run.status != 0) fail_msg("%s", run.err);
    undisturbed = result_lines(run.out);
    program_run_free(&run);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    json_decref(undisturbed);
    return 0;
}

/* Every row of the text, and there are n_min to n_max of them, as without faults. */
static void expect_rows(const char *text, size_t n_min, size_t n_max) {
    json_t *lines = result_lines(text), *line;
    const char *id;
    json_object_foreach(lines, id, line) {
        char *want = result_body(json_object_get(undisturbed, id)), *got = result_body(line);
        if (!want || !got || strcmp(want, got) != 0) fail_msg("row %s differs: %s", id, got);
        free(want);
        free(got);
    }
    size_t n = json_object_size(lines);
    if (n < n_min || n > n_max) fail_msg("%zu rows, %zu to %zu wanted", n, n_min, n_max);
    json_decref(lines);
}

static size_t n_lines(const char *text) {
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* ---- faults ---- */

static void faults_that_pass_change_nothing(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio-that-passes", "eintr", "short", "slow"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        program_run run = run_fault(kinds[i], STREAM);
        if (run.status != 0) fail_msg("%s: status %d, %s", kinds[i], run.status, run.err);
        expect_rows(run.out, json_object_size(undisturbed), json_object_size(undisturbed));
        program_run_free(&run);
    }
}

static void faults_that_stay_end_the_run_in_one_line(void **state) {
    (void)state;
    static const struct {
        const char *kind, *says;
    } table[] = {{"eio", "Input/output error"}, {"truncated", ""}, {"replaced", "changed"}, {"deleted", "gone"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        program_run run = run_fault(table[i].kind, STREAM);
        if (run.status != 1) fail_msg("%s: status %d, %s", table[i].kind, run.status, run.err);
        if (n_lines(run.err) != 1 || !strstr(run.err, "model.safetensors") || !strstr(run.err, table[i].says))
            fail_msg("%s: %s", table[i].kind, run.err);
        expect_rows(run.out, 1, json_object_size(undisturbed) - 1);
        program_run_free(&run);
        copy_model();
    }
}

/* ---- waits ---- */

static double sum_of(const char *events, const char *event, const char *key) {
    double sum = 0;
    char *text = strdup(events), *at = text;
    for (char *line; (line = strsep(&at, "\n"));) {
        json_t *object = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(object, "event"));
        if (name && strcmp(name, event) == 0) {
            assert_true(json_is_number(json_object_get(object, key)));
            sum += json_number_value(json_object_get(object, key));
        }
        json_decref(object);
    }
    free(text);
    return sum;
}

/* A pass says how long it waited for the drive, and how much of that at its beginning. */
static void waits_are_told(void **state) {
    (void)state;
    program_run run = run_fault("slow", "--json --placement stream");
    assert_int_equal(run.status, 0);
    double wait_s = sum_of(run.err, "pass", "wait_seconds");
    double boundary_s = sum_of(run.err, "pass", "boundary_wait_seconds");
    assert_true(boundary_s > 0 && wait_s >= boundary_s);
    assert_true(wait_s > 0.3 * sum_of(run.err, "done", "seconds"));
    program_run_free(&run);
}

/* ---- memory that cannot be had ---- */

/* Less and less address space, until the weights' memory is what does not fit. */
static void refused_memory_is_one_line(void **state) {
    (void)state;
    bool told = false;
    for (int kilobytes = 30000; !told; kilobytes -= 1000) {
        char limit[64];
        snprintf(limit, sizeof limit, "ulimit -v %d; exec", kilobytes);
        program_run run = run_with(limit, STREAM " --threads 1");
        if (run.status != 0 && run.status != 1) fail_msg("%d kB: status %d, %s", kilobytes, run.status, run.err);
        if (run.status == 1 && n_lines(run.err) != 1) fail_msg("%s", run.err);
        bool lacks_memory = strstr(run.err, "of memory cannot be had") || strstr(run.err, "cannot be reserved");
        if (lacks_memory && !strstr(run.err, "ulimit -v")) fail_msg("no remedy: %s", run.err);
        told = strstr(run.err, "weights: ") && strstr(run.err, "bytes of memory cannot be had");
        program_run_free(&run);
    }
}

/* ---- identity ---- */

static char *content_hash(const char *options) {
    program_run run = run_with("", options);
    if (run.status != 0) fail_msg("%s", run.err);
    json_t *lines = result_lines(run.out), *line;
    const char *id;
    char *hash = NULL;
    json_object_foreach(lines, id, line) {
        const char *now = json_string_value(json_object_get(json_object_get(line, "spill"), "content_hash"));
        assert_non_null(now);
        assert_true(!hash || strcmp(hash, now) == 0);
        if (!hash) hash = strdup(now);
    }
    json_decref(lines);
    program_run_free(&run);
    return hash;
}

static void identity_means_content(void **state) {
    (void)state;
    char *streamed = content_hash(STREAM), *resident = content_hash("--quiet --placement resident");
    assert_string_equal(streamed, resident);
    char command[700];
    snprintf(command, sizeof command,
             "cd %s && touch -r model.safetensors stamp && printf '\\001' | dd of=model.safetensors bs=1 seek=3000001 "
             "conv=notrunc "
             "status=none && touch -r stamp model.safetensors",
             model);
    program_run run = run_shell(command, NULL);
    assert_int_equal(run.status, 0);
    program_run_free(&run);
    char *altered = content_hash(STREAM);
    assert_string_not_equal(streamed, altered);
    free(streamed);
    free(resident);
    free(altered);
    copy_model();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_that_pass_change_nothing),
        cmocka_unit_test(faults_that_stay_end_the_run_in_one_line),
        cmocka_unit_test(waits_are_told),
        cmocka_unit_test(refused_memory_is_one_line),
        cmocka_unit_test(identity_means_content),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
