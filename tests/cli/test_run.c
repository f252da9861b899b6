/* spill run on the bundled model: the reference's tokens, the same bytes however it is run, rows that are wrong, stops.
 */
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
#define ROWS "models/fields/sample.jsonl"

static json_t *run_rows(const char *args, int want_status) {
    program_run run = run_spill(args, NULL);
    if (run.status != want_status) fail_msg("spill %s: status %d, %.500s", args, run.status, run.err);
    json_t *lines = result_lines(run.out);
    program_run_free(&run);
    return lines;
}

/* ---- the reference's tokens ---- */

static void check_golden(const char *mode) {
    char args[200];
    snprintf(args, sizeof args, "run --quiet --mode %s " MODEL " " ROWS, mode);
    json_t *lines = run_rows(args, 0);
    json_error_t where;
    json_t *golden = json_load_file("tests/golden/fields_greedy.json", 0, &where);
    assert_non_null(golden);
    const char *id;
    json_t *want;
    size_t n = 0;
    json_object_foreach(golden, id, want) {
        const json_t *line = json_object_get(lines, id);
        const json_t *tokens = json_object_get(json_object_get(line, "spill"), "tokens");
        if (!json_equal((json_t *)tokens, json_object_get(want, "tokens")))
            fail_msg("%s, row %s: other tokens", mode, id);
        const json_t *body = json_object_get(json_object_get(line, "response"), "body");
        const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
        const char *text = json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
        assert_string_equal(text, json_string_value(json_object_get(want, "text")));
        n++;
    }
    assert_int_equal(n, json_object_size(lines));
    json_decref(golden);
    json_decref(lines);
}

static void test_tokens_of_the_reference(void **state) {
    (void)state;
    check_golden("fp32");
    check_golden("bf16");
}

/* ---- the same bytes ---- */

/* Every row of b as in a. */
static void expect_same(json_t *a, json_t *b, const char *how) {
    const char *id;
    json_t *line;
    json_object_foreach(b, id, line) {
        char *one = result_body(json_object_get(a, id)), *other = result_body(line);
        if (!one || !other || strcmp(one, other) != 0) fail_msg("%s, row %s:\n%s\n%s", how, id, one, other);
        free(one);
        free(other);
    }
}

/* Rows with sampling, log-probabilities and lengths of all kinds, in two orders. */
static char *mixed_rows(bool reversed) {
    char *text = calloc(1, 1 << 20);
    size_t used = 0;
    for (int k = 0; k < 40; k++) {
        int i = reversed ? 39 - k : k;
        used += (size_t)sprintf(text + used, "{\"custom_id\":\"r%d\",\"prompt\":\"", i);
        for (int w = 0; w < (i % 8 == 5 ? 45 : i * 3 % 11); w++)
            used += (size_t)sprintf(text + used, "%d lamps for %d.50 EUR ", w, i);
        used += (size_t)sprintf(
            text + used, "Ms Weiss\",\"max_tokens\":%d,\"temperature\":%s,\"logprobs\":true,\"top_logprobs\":%d}\n",
            5 + i % 20, i % 3 ? "0.9" : "0", i % 5);
    }
    return text;
}

static void test_same_bytes(void **state) {
    (void)state;
    char *forward = mixed_rows(false), *backward = mixed_rows(true);
    const char *rows = scratch_file("mixed.jsonl", forward), *shuffled = scratch_file("shuffled.jsonl", backward);
    static const struct {
        const char *env, *options;
        bool other_order;
    } ways[] = {
        {"", "--threads 1", false},
        {"", "--threads 2 --rows 1", false},
        {"", "--rows 7", true},
        {"", "--rows 32 --threads 3", true},
        {"", "--placement stream", false},
        {"", "--memory 300M", true},
        {"SPILL_DISABLE_ISA=amx", "", false},
        {"SPILL_DISABLE_ISA=amx,avx512bf16", "", true},
        {"SPILL_DISABLE_ISA=amx,avx512", "", false},
        {"SPILL_DISABLE_ISA=amx,avx512,avx2", "--rows 3 --limit 5", false}, /* plain C is slow: the short ones */
    };
    const char *modes[] = {"bf16", "fp32"};
    for (size_t m = 0; m < 2; m++) {
        char command[600];
        snprintf(command, sizeof command, "run --quiet --mode %s " MODEL " %s", modes[m], rows);
        json_t *want = run_rows(command, 0);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            snprintf(command, sizeof command, "%s exec \"$SPILL\" run --quiet --mode %s %s " MODEL " %s", ways[i].env,
                     modes[m], ways[i].options, ways[i].other_order ? shuffled : rows);
            program_run run = run_shell(command, NULL);
            if (run.status != 0) fail_msg("%s: status %d, %.500s", command, run.status, run.err);
            json_t *got = result_lines(run.out);
            assert_int_equal(json_object_size(got), strstr(ways[i].options, "--limit 5") ? 5 : 40);
            expect_same(want, got, command);
            json_decref(got);
            program_run_free(&run);
        }
        json_decref(want);
    }
    free(forward);
    free(backward);
}

/* ---- rows that are wrong ---- */

static void test_bad_rows_do_not_disturb(void **state) {
    (void)state;
    static const char rows[] =
        "{\"custom_id\":\"good\",\"prompt\":\"Ms Weiss ordered 3 lamps\",\"max_tokens\":4}\n"
        "\n"
        "[]\n"
        "{\"custom_id\":\"good\",\"prompt\":\"again\"}\n"
        "{\"custom_id\":\"tools\",\"prompt\":\"x\",\"tools\":[{\"type\":\"function\"}]}\n"
        "{\"custom_id\":\"n\",\"prompt\":\"x\",\"n\":3}\n"
        "{\"custom_id\":\"last\",\"prompt\":\"Ms Weiss ordered 3 lamps\",\"max_tokens\":4}\n";
    program_run run = run_spill("run --quiet " MODEL " -", rows);
    assert_int_equal(run.status, 3);
    json_t *lines = result_lines(run.out);
    assert_int_equal(json_object_size(lines), 6);
    static const struct {
        const char *id, *code;
    } want[] = {{"row-000003", "invalid_json"},
                {"good (error again)", "duplicate_custom_id"},
                {"tools", "invalid_request"},
                {"n", "invalid_request"}};
    for (size_t i = 0; i < 4; i++) {
        const json_t *line = json_object_get(lines, want[i].id);
        if (!line && i == 1) line = json_object_get(lines, "good"); /* whichever of the two came second */
        const json_t *error = json_object_get(line, "error");
        if (i == 1 && !json_is_object(error))
            line = json_object_get(lines, "good (error again)"), error = json_object_get(line, "error");
        assert_string_equal(json_string_value(json_object_get(error, "code")), want[i].code);
        assert_true(json_is_null(json_object_get(line, "response")));
    }
    const json_t *first = json_object_get(lines, "good");
    if (json_is_object(json_object_get(first, "error"))) first = json_object_get(lines, "good (result again)");
    char *one = result_body(first), *other = result_body(json_object_get(lines, "last"));
    assert_string_equal(one, other);
    free(one);
    free(other);
    json_decref(lines);
    program_run_free(&run);
}

static void test_too_long(void **state) {
    (void)state;
    char *row = malloc(200000);
    size_t used = (size_t)sprintf(row, "{\"custom_id\":\"long\",\"prompt\":\"");
    for (int i = 0; i < 2000; i++) used += (size_t)sprintf(row + used, "lamps %d ", i);
    sprintf(
        row + used,
        "\"}\n{\"custom_id\":\"cut\",\"prompt\":\"Ms Weiss\",\"max_tokens\":100000,\"temperature\":5,\"stop\":[]}\n");
    program_run run = run_spill("run --quiet " MODEL " -", row);
    assert_int_equal(run.status, 3);
    json_t *lines = result_lines(run.out);
    const json_t *error = json_object_get(json_object_get(lines, "long"), "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), "context_length_exceeded");
    const json_t *body = json_object_get(json_object_get(json_object_get(lines, "cut"), "response"), "body");
    const json_t *usage = json_object_get(body, "usage");
    assert_true(json_integer_value(json_object_get(usage, "total_tokens")) <= 1024);
    json_decref(lines);
    program_run_free(&run);
    free(row);
}

/* ---- stops ---- */

static const char *content_of(const json_t *line, const char **finish) {
    const json_t *body = json_object_get(json_object_get(line, "response"), "body");
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    *finish = json_string_value(json_object_get(choice, "finish_reason"));
    return json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
}

static void test_stops(void **state) {
    (void)state;
    program_run run = run_spill(
        "run --quiet " MODEL " -",
        "{\"custom_id\":\"whole\",\"prompt\":\"Ms Hanna Weiss ordered 3 lamps for 42.50 EUR.\"}\n"
        "{\"custom_id\":\"string\",\"prompt\":\"Ms Hanna Weiss ordered 3 lamps for 42.50 EUR.\",\"stop\":\":\\\"\"}\n"
        "{\"custom_id\":\"length\",\"prompt\":\"Ms Hanna Weiss ordered 3 lamps for 42.50 EUR.\",\"max_tokens\":3}\n");
    assert_int_equal(run.status, 0);
    json_t *lines = result_lines(run.out);
    const char *finish, *whole = content_of(json_object_get(lines, "whole"), &finish);
    assert_string_equal(finish, "stop");
    assert_true(whole[0] == '{' && whole[strlen(whole) - 1] == '}');
    const char *cut = content_of(json_object_get(lines, "string"), &finish);
    assert_string_equal(finish, "stop");
    assert_true(strlen(cut) == (size_t)(strstr(whole, ":\"") - whole) && strncmp(cut, whole, strlen(cut)) == 0);
    content_of(json_object_get(lines, "length"), &finish);
    assert_string_equal(finish, "length");
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(json_object_get(lines, "length"), "spill"), "tokens")), 3);
    json_decref(lines);
    program_run_free(&run);
}

/* Bad rows before and beyond the look-ahead, and a row that needs more memory than any that planning saw. */
static void test_rows_beyond_the_look_ahead(void **state) {
    (void)state;
    char *rows = calloc(1, 1 << 20);
    size_t used = 0;
    for (int i = 0; i < 5000; i++) used += (size_t)sprintf(rows + used, "{\"custom_id\":\"bad%d\",\"prompt\":5}\n", i);
    for (int i = 0; i < 300; i++)
        used += (size_t)sprintf(rows + used, "{\"custom_id\":\"r%d\",\"prompt\":\"x\",\"max_tokens\":1}\n", i);
    sprintf(rows + used, "{\"custom_id\":\"long\",\"prompt\":\"3 lamps\",\"max_tokens\":900,\"temperature\":9}\n");
    program_run run = run_spill("run --quiet --rows 2 " MODEL " -", rows);
    assert_int_equal(run.status, 3);
    json_t *lines = result_lines(run.out);
    assert_int_equal(json_object_size(lines), 5301);
    assert_true(json_is_object(json_object_get(json_object_get(lines, "long"), "response")));
    const char *id;
    json_t *line;
    json_object_foreach(lines, id, line) { /* the first as the last: each says which run it is of */
        const char *name = json_string_value(json_object_get(json_object_get(line, "spill"), "run"));
        if (!name || strlen(name) < 10) fail_msg("row %s: run '%s'", id, name);
    }
    json_decref(lines);
    program_run_free(&run);
    free(rows);
}

/* A pipe that says nothing for a while is not waited for: the rows that are there go on to their ends. */
static void test_a_silent_pipe_holds_nobody_up(void **state) {
    (void)state;
    program_run run = run_shell(
        "D=$SPILL_HOME; { seq 1 260 | awk '{ printf \"{\\\"prompt\\\":\\\"%d\\\",\\\"max_tokens\\\":4}\\n\", $1 }';"
        "i=0; until [ -e $D/seen ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; echo '{\"prompt\":\"x\"}'; } |"
        "\"$SPILL\" run --quiet " MODEL
        " - -o $D/silent & p=$!; i=0;"
        "until [ $(cat $D/silent 2>/dev/null | wc -l) -ge 260 ] || [ $i = 200 ]; do i=$((i+1)); sleep 0.1; done;"
        "wc -l <$D/silent; touch $D/seen; wait $p; wc -l <$D/silent",
        NULL);
    assert_int_equal(run.status, 0);
    char *second;
    assert_int_equal(strtol(run.out, &second, 10), 260);
    assert_int_equal(strtol(second, NULL, 10), 261);
    program_run_free(&run);
}

/* Nor is it waited for at the start: the first rows are answered though their writer does not close the pipe. */
static void test_rows_of_an_open_pipe(void **state) {
    (void)state;
    program_run run = run_shell(
        "D=$SPILL_HOME; { seq 1 3 | awk '{ printf \"{\\\"prompt\\\":\\\"%d\\\",\\\"max_tokens\\\":4}\\n\", $1 }';"
        "i=0; until [ -e $D/open.seen ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done;"
        "seq 1 40 | sed 's/.*/{\"prompt\":\"x\",\"max_tokens\":4}/'; } | \"$SPILL\" run --json " MODEL
        " - -o $D/open 2>$D/open.events & p=$!; i=0;"
        "until [ $(cat $D/open 2>/dev/null | wc -l) -ge 3 ] || [ $i = 200 ]; do i=$((i+1)); sleep 0.1; done;"
        "wc -l <$D/open; touch $D/open.seen; wait $p; wc -l <$D/open;"
        "grep -o '\"rows\":[0-9]*,\"pass_tokens\"' $D/open.events | head -n 1 | tr -dc 0-9",
        NULL);
    assert_int_equal(run.status, 0);
    char *second, *rows;
    assert_int_equal(strtol(run.out, &second, 10), 3);
    assert_int_equal(strtol(second, &rows, 10), 43);
    assert_true(strtol(rows, NULL, 10) > 3); /* more may come than were there when it was planned */
    program_run_free(&run);
}

/* Twenty megabytes of as many values as they can be: refused in a small part of the memory that the tree would take. */
static void test_many_values(void **state) {
    (void)state;
    const size_t n_values = 6500000;
    char *rows = malloc(3 * n_values + 200);
    size_t used = (size_t)sprintf(rows, "{\"prompt\":\"x\",\"metadata\":[");
    for (size_t i = 0; i < n_values; i++, used += 3) memcpy(rows + used, "{},", 3);
    strcpy(rows + used, "1]}\n{\"custom_id\":\"good\",\"prompt\":\"x\",\"max_tokens\":2}\n");
    program_run run = run_spill("run --json " MODEL " -", rows);
    assert_int_equal(run.status, 3);
    json_t *lines = result_lines(run.out);
    assert_true(json_is_object(json_object_get(json_object_get(lines, "good"), "response")));
    const char *done = strstr(run.err, "\"peak_rss_bytes\":");
    assert_non_null(done);
    long long peak_bytes = atoll(done + strlen("\"peak_rss_bytes\":"));
#ifndef SP_SANITIZED /* sanitizers take memory of their own */
    assert_true(peak_bytes < 200000000);
#endif
    assert_true(peak_bytes > 0);
    json_decref(lines);
    program_run_free(&run);
    free(rows);
}

/* A signal or the time limit ends a run that waits for input which does not come. */
static void test_stopped_while_waiting(void **state) {
    (void)state;
    static const char *const ways[] = {
        "mkfifo $SPILL_HOME/fifo; exec 3<>$SPILL_HOME/fifo; timeout -s INT 4 \"$SPILL\" run --quiet " MODEL " - <&3",
        "exec 3<>$SPILL_HOME/fifo; head -n 2 " ROWS " >&3; timeout -s TERM 4 \"$SPILL\" run --quiet " MODEL " - <&3",
        "exec 3<>$SPILL_HOME/fifo; \"$SPILL\" run --quiet --time-limit 0.5s " MODEL " - <&3",
        "exec \"$SPILL\" run --quiet --time-limit 0.5s " MODEL " $SPILL_HOME/fifo",
        /* twice at once is one request */
        "\"$SPILL\" run --quiet " MODEL " - <>$SPILL_HOME/fifo & sleep 2; kill $!; kill $!; kill $!; wait $!",
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        program_run run = run_shell(ways[i], NULL);
        /* timeout(1) says 124 when it had to send its signal, whatever became of it; it sends it twice */
        if (run.status != 75 && run.status != 124) fail_msg("%s: status %d, %.300s", ways[i], run.status, run.err);
        assert_non_null(strstr(run.err, "stopped"));
        program_run_free(&run);
    }
}

/* Two runs, one results file: the second is refused while the first is at work. */
static void test_results_file_is_locked(void **state) {
    (void)state;
    char *rows = calloc(1, 1 << 20);
    for (size_t i = 0, used = 0; i < 2000; i++)
        used += (size_t)sprintf(rows + used, "{\"prompt\":\"%zu lamps\",\"max_tokens\":900,\"temperature\":9}\n", i);
    scratch_file("many.jsonl", rows);
    program_run run = run_shell("\"$SPILL\" run --quiet --time-limit 200s " MODEL
                                " $SPILL_HOME/many.jsonl -o $SPILL_HOME/two & i=0;"
                                "until [ -s $SPILL_HOME/two ] || [ $i -gt 1500 ]; do sleep 0.1; i=$((i+1)); done;"
                                "\"$SPILL\" run --quiet " MODEL
                                " $SPILL_HOME/many.jsonl -o $SPILL_HOME/two; status=$?;"
                                "kill -INT $!; wait $!; echo $?; exit $status",
                                NULL);
    assert_int_equal(run.status, 2);
    assert_string_equal(run.out, "75\n");
    program_run_free(&run);
    run = run_shell("cat $SPILL_HOME/two", NULL);
    json_decref(result_lines(run.out)); /* whole lines, none twice */
    program_run_free(&run);
    free(rows);
}

/* A results file that may not grow on ends in a whole line. */
static void test_no_room_for_results(void **state) {
    (void)state;
    program_run run =
        run_shell("ulimit -f 32; \"$SPILL\" run --quiet --rows 2 " MODEL " " ROWS " -o $SPILL_HOME/full", NULL);
    assert_int_equal(run.status, 1);
    assert_non_null(strstr(run.err, ": File too large"));
    program_run_free(&run);
    run = run_shell("cat $SPILL_HOME/full", NULL);
    json_t *lines = result_lines(run.out);
    assert_true(json_object_size(lines) > 1);
    json_decref(lines);
    program_run_free(&run);
}

static void test_stopped_from_outside(void **state) {
    (void)state;
    program_run run = run_spill("run --quiet --time-limit 0.001s " MODEL " " ROWS, NULL);
    assert_int_equal(run.status, 75);
    program_run_free(&run);
    run = run_shell("\"$SPILL\" run --quiet " MODEL " " ROWS " | head -n 1 >/dev/null; exit 0", NULL);
    assert_int_equal(run.status, 0);
    program_run_free(&run);
}

/* ---- what is written besides ---- */

static void test_files_and_events(void **state) {
    (void)state;
    char args[300];
    snprintf(args, sizeof args, "run --json --limit 5 " MODEL " " ROWS " -o %s/out.jsonl", scratch_dir());
    program_run run = run_spill(args, NULL);
    assert_int_equal(run.status, 0);
    assert_int_equal(run.out_bytes, 0); /* with -o nothing goes to stdout */
    size_t n_rows = 0, n_passes = 0, n_plans = 0;
    json_t *done = NULL;
    for (char *at = run.err, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_t *event = json_loadb(at, (size_t)(end - at), 0, NULL);
        const char *name = json_string_value(json_object_get(event, "event"));
        assert_non_null(name);
        n_rows += strcmp(name, "row") == 0;
        n_passes += strcmp(name, "pass") == 0;
        n_plans += strcmp(name, "plan") == 0;
        if (strcmp(name, "done") == 0) done = json_incref(event);
        json_decref(event);
    }
    assert_true(n_rows == 5 && n_plans == 1 && n_passes > 5 && done);
    assert_int_equal(json_integer_value(json_object_get(done, "rows")), 5);
    const char *id = json_string_value(json_object_get(done, "run"));
    char path[300];
    snprintf(path, sizeof path, "%s/runs/%s/manifest.json", scratch_dir(), id);
    json_t *manifest = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(manifest, "state")), "done");
    assert_non_null(json_string_value(json_object_get(json_object_get(manifest, "model"), "hash")));
    assert_non_null(strstr(json_string_value(json_object_get(manifest, "command")), "--limit 5"));
    assert_true(json_is_object(json_object_get(json_object_get(manifest, "plan"), "estimate_seconds")));
    json_decref(manifest);
    json_decref(done);
    program_run_free(&run);
    run = run_shell("wc -l < \"$SPILL_HOME/out.jsonl\"", NULL);
    assert_int_equal(atoi(run.out), 5);
    program_run_free(&run);
}

/* A model that gives no numbers: its rows are errors, and got no token. */
static void test_numeric_errors_are_no_tokens(void **state) {
    (void)state;
    program_run run = run_shell("d=\"$SPILL_HOME/nan\"; cp -r --no-preserve=mode " MODEL
                                " \"$d\" && "
                                "f=\"$d/model.safetensors\" && head -c 64 /dev/zero | tr '\\0' '\\377' | "
                                "dd of=\"$f\" bs=1 conv=notrunc status=none seek=$(($(stat -c %s \"$f\") - 64)) && "
                                "exec \"$SPILL\" run --json --limit 3 \"$d\" " ROWS " -o \"$SPILL_HOME/nan.jsonl\"",
                                NULL);
    assert_int_equal(run.status, 3);
    assert_non_null(strstr(run.err, "\"errors\":3,\"prompt_tokens\":"));
    assert_non_null(strstr(run.err, ",\"tokens\":0,\"seconds\":"));
    program_run_free(&run);
    run = run_shell("grep -c '\"numeric_error\"' \"$SPILL_HOME/nan.jsonl\"", NULL);
    assert_int_equal(atoi(run.out), 3);
    program_run_free(&run);
}

static void test_no_control_bytes_off_a_terminal(void **state) {
    (void)state;
    program_run run = run_spill("run --limit 3 " MODEL " " ROWS, NULL);
    assert_int_equal(run.status, 0);
    size_t n_columns = 0;
    for (const char *c = run.err; *c; c++) {
        assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        if (n_columns == 0 && strncmp(c, "results: ", 9) == 0) break; /* a path: as long as it is */
        n_columns = *c == '\n' ? 0 : n_columns + 1;
        assert_true(n_columns <= 100);
    }
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_the_reference),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_bad_rows_do_not_disturb),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_rows_beyond_the_look_ahead),
        cmocka_unit_test(test_a_silent_pipe_holds_nobody_up),
        cmocka_unit_test(test_rows_of_an_open_pipe),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_stopped_while_waiting),
        cmocka_unit_test(test_results_file_is_locked),
        cmocka_unit_test(test_no_room_for_results),
        cmocka_unit_test(test_stopped_from_outside),
        cmocka_unit_test(test_files_and_events),
        cmocka_unit_test(test_numeric_errors_are_no_tokens),
        cmocka_unit_test(test_no_control_bytes_off_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
