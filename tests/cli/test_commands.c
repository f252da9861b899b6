/* Commands, options, refusals: exit status and what is said, without a model's arithmetic. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "program.h"

#define MODEL "models/fields"
#define ROWS "models/fields/sample.jsonl"

static const struct {
    const char *args;
    int status;
    const char *out, *err; /* parts of what is printed; NULL: nothing may be printed there */
} cases[] = {
    {"--help", 0, "usage: spill COMMAND", NULL},
    {"--help", 0, "kept in $SPILL_HOME", NULL},
    {"--version", 0, "spill ", NULL},
    {"help", 0, "tokenize", NULL},
    {"help run", 0, "--max-tokens N", NULL},
    {"help man", 0, ".TH SPILL 1", NULL},
    {"help completion", 0, "complete -o filenames -F _spill spill", NULL},
    {"help man", 0, "not to use, of: ", NULL},
    {"help nonsense", 2, NULL, "nonsense: no such command; see spill --help"},
    {"help rum", 2, NULL, "did you mean spill run?"},
    {"run --help", 0, "usage: spill run MODEL INPUT.jsonl", NULL},
    {"check --help", 0, "usage: spill check FILE", NULL},
    {"", 2, NULL, "no command found"},
    {"rum " MODEL " " ROWS, 2, NULL, "did you mean spill run?"},
    {"run", 2, NULL, "0 arguments found"},
    {"run a b c", 2, NULL, "3 arguments found"},
    {"run --max-token 5 a b", 2, NULL, "did you mean --max-tokens?"},
    {"run --temp 1 a b", 2, NULL, "did you mean --temperature?"},
    {"run --nonsense a b", 2, NULL, "--nonsense: no such option"},
    {"run --max-tokens", 2, NULL, "--max-tokens: no value found"},
    {"run --max-tokens x a b", 2, NULL, "--max-tokens: 'x' found, a whole number wanted"},
    {"run --max-tokens 0 a b", 2, NULL, "at least 1 wanted"},
    {"run --max-tokens=3 --max-tokens=4 a b", 2, NULL, "given twice"},
    {"run --top-p 2 a b", 2, NULL, "--top-p: 2 found"},
    {"run --memory 4X a b", 2, NULL, "a size such as 4G"},
    {"run --memory 4GiBs a b", 2, NULL, "a size such as 4G"},
    {"run --memory 4GiB --threads 0 a b", 2, NULL, "at least 1 wanted"},
    {"run --time-limit 5y a b", 2, NULL, "a time such as 90m"},
    {"run --time-limit 5mB a b", 2, NULL, "a time such as 90m"},
    {"run --temperature -1 a b", 2, NULL, "--temperature: '-1' found, a number of at least 0 wanted"},
    {"run --date 2026-02-31 a b", 2, NULL, "a date YYYY-MM-DD wanted"},
    {"run --temperature 1e39 a b", 2, NULL, "--temperature: 1e39 found"},
    {"run '' b", 2, NULL, "an empty argument"},
    {"run " MODEL " /dev/zero", 2, NULL, "a device found"},
    {"run --memory 1 " MODEL " " ROWS, 2, NULL, "give --memory "},
    {"run --mode fp16 a b", 2, NULL, "bf16|fp32 wanted"},
    {"run --precision 8bit a b", 2, NULL, "not supported yet"},
    {"run --quiet=yes a b", 2, NULL, "takes no value"},
    {"run --threads 0 a b", 2, NULL, "at least 1 wanted"},
    {"run /nonexistent/model " ROWS, 2, NULL, "/nonexistent/model"},
    {"run " MODEL " /nonexistent/rows.jsonl", 2, NULL, "/nonexistent/rows.jsonl"},
    {"run " MODEL " /dev/null", 2, NULL, "no row found"},
    {"run " MODEL " " MODEL, 2, NULL, "a directory found"},
    {"run " MODEL " " ROWS " -o " ROWS, 2, NULL, "is the input"},
    {"run " MODEL " " ROWS " -o " MODEL "/model.safetensors", 2, NULL, "a file of the model"},
    {"run " MODEL " " ROWS " -o README.md", 2, NULL, "not this job's results"},
    {"run " MODEL " " ROWS " -o /nonexistent/out.jsonl", 2, NULL, "/nonexistent/out.jsonl"},
    {"plan " MODEL " " ROWS, 0, "fields", NULL},
    {"plan --json " MODEL " " ROWS, 0, "\"placement\"", NULL},
    {"plan --machine README.md " MODEL " " ROWS, 2, NULL, "README.md"},
    {"check " ROWS, 0, "48 good rows of shape prompt", NULL},
    {"check --model " MODEL " " ROWS, 0, "prompt tokens", NULL},
    {"check --json " ROWS, 0, "\"good\":true", NULL},
    {"check README.md", 2, NULL, "README.md:1: line 1: not JSON at column 1"},
    {"run " MODEL " " ROWS " -o models", 2, NULL, "name one in it with -o"},
    {"check /dev/null", 2, NULL, "no row found"},
    {"tokenize /nonexistent " ROWS, 2, NULL, "no such model directory"},
    {"tokenize --limit 1 " MODEL " " ROWS, 0, "\"prompt\":", NULL},
};

static void test_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run run = run_spill(cases[i].args, "");
        bool good = run.status == cases[i].status;
        good = good && (cases[i].out ? strstr(run.out, cases[i].out) != NULL : run.out_bytes == 0);
        good = good && (cases[i].err ? strstr(run.err, cases[i].err) != NULL : run.err[0] == '\0');
        if (good && cases[i].err) { /* a refusal is one line under 500 bytes that begins with the program's name */
            size_t n_bytes = strlen(run.err);
            good =
                n_bytes < 500 && strchr(run.err, '\n') == run.err + n_bytes - 1 && strncmp(run.err, "spill: ", 7) == 0;
        }
        if (!good)
            fail_msg("spill %s: status %d, out '%.300s', err '%.600s'", cases[i].args, run.status, run.out, run.err);
        program_run_free(&run);
    }
}

/* Inputs that are packed, cut or short of a line, and what plan sees of bad rows. */
static void test_inputs_told_early(void **state) {
    (void)state;
    static const struct {
        const char *command;
        int status;
        const char *text;
    } told[] = {
        {"gzip -c " ROWS " | head -c 300 >$D/cut.gz; \"$SPILL\" check $D/cut.gz", 2, "it was cut off"},
        {"cp " ROWS " $D/false.gz; \"$SPILL\" check $D/false.gz", 2, "pack it again"},
        {"gzip -c " ROWS " >$D/rows.bin; \"$SPILL\" run " MODEL " $D/rows.bin", 2, "gzip data found"},
        {"head -n 1 " ROWS " >$D/one; \"$SPILL\" check $D/one", 0, "1 good row of shape"},
        {"{ head -n 3 " ROWS "; echo '{'; echo 1; } >$D/bad; \"$SPILL\" plan " MODEL " $D/bad", 0,
         "rows: 2 of the 5 will be errors, the first at line 4"},
        {"\"$SPILL\" plan --json " MODEL " $D/bad", 0, "\"first_bad_line\":4"},
        {"cat $D/one $D/one >$D/twice; \"$SPILL\" run --quiet " MODEL " $D/twice", 3,
         "'sample-000' found, an earlier row has the same"},
        {"echo '{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}' >$D/parts;"
         "\"$SPILL\" check --model " MODEL " $D/parts",
         2, "write content as a string"},
        {"echo '{\"prompt\":\"x\",\"logit_bias\":{\"99999\":1}}' >$D/bias; \"$SPILL\" check --model " MODEL " $D/bias",
         2, "logit_bias: id 99999 found, below 1024 wanted"},
        {"echo '{\"prompt\":\"x\",\"documents\":[{\"text\":\"t\"}]}' >$D/documents; \"$SPILL\" check --model " MODEL
         " $D/documents",
         2, "documents: the model's chat template never reads it"},
        {"mkdir $D/base && ln -s $PWD/" MODEL "/* $D/base && rm $D/base/tokenizer_config.json && "
         "sed '/chat_template/d; s/\\(add_prefix_space.*\\),/\\1/' " MODEL
         "/tokenizer_config.json >$D/base/tokenizer_config.json;"
         "echo '{\"prompt\":\"x\",\"chat_template_kwargs\":{\"k\":1}}' >$D/kwargs;"
         "\"$SPILL\" check --model $D/base $D/kwargs",
         2, "chat_template_kwargs: the model has no chat_template"},
        /* on a terminal of 80 columns what is left is not cut off */
        {"command -v script >/dev/null || { echo to go; exit 0; }; script -qc 'stty cols 80; \"$SPILL\" run " MODEL
         " " ROWS "' /dev/null </dev/null | grep '^time  '",
         0, "to go"},
        /* completion knows commands and jobs */
        {"command -v bash >/dev/null || { echo status; exit 0; }; \"$SPILL\" help completion >$D/c; bash -c '. '$D'/c;"
         "COMP_WORDS=(spill help sta) COMP_CWORD=2; _spill; echo ${COMPREPLY[@]}'",
         0, "status"},
        {"\"$SPILL\" run -q --limit 1 " MODEL " " ROWS " >$D/o 2>&1; command -v bash >/dev/null || { echo -; exit 0; };"
         "bash -c '. '$D'/c; COMP_WORDS=(\"$SPILL\" tail 2) COMP_CWORD=2; _spill; echo ${COMPREPLY[@]}'",
         0, "-"},
        /* nor is a figure of the plan folded */
        {"command -v script >/dev/null || { echo '      48 rows in'; exit 0; }; script -qc 'stty cols 60; \"$SPILL\" "
         "plan " MODEL " " ROWS "' /dev/null </dev/null",
         0, "tokens,\r\n      "},
        /* a signal is answered at once, though a pass may take a minute */
        {"command -v script >/dev/null || { echo stopping after this pass; exit 75; }; head -n 1 " ROWS
         " >$D/row; script -qec '{ cat '$D'/row; sleep 3; } | { timeout 1.5 \"$SPILL\" run " MODEL
         " - -o '$D'/stopped; exit $?; }' /dev/null </dev/null; [ $? = 124 ] && exit 75",
         75, "stopping after this pass"},
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char command[1000];
        snprintf(command, sizeof command, "D=$SPILL_HOME; { %s; } 2>&1", told[i].command);
        program_run run = run_shell(command, NULL);
        if (run.status != told[i].status || !strstr(run.out, told[i].text))
            fail_msg("%s: status %d: %.500s", told[i].command, run.status, run.out);
        program_run_free(&run);
    }
}

/* A machine that is not here: its memory, its drive, its rates. */
static const char other_machine[] =
    "{\"ram_bytes\": 400000000, \"limit_bytes\": 400000000, \"cpus\": 4, \"isa\": \"avx2\", \"memory_bps\": 2e10,"
    " \"rates\": [{\"isa\": \"avx2\", \"mode\": \"bf16\", \"format\": \"BF16\", \"threads\": 4,"
    "  \"product_flops\": [1e9, 2e9, 3e9, 4e9, 4e9], \"vector_bps\": 1e10,"
    "  \"decode_attention_flops\": 1e9, \"prefill_attention_flops\": 1e9}],"
    " \"drives\": [{\"mount\": \"/data\", \"read_bps\": 1234000000, \"reader\": \"threads\", \"depth\": 6,"
    "  \"request_bytes\": 4194304, \"measured\": 1700000000}]}";

static double number_at(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void test_plan_for_another_machine(void **state) {
    (void)state;
    char args[400];
    const char *machine = scratch_file("machine.json", other_machine);
    snprintf(args, sizeof args, "plan --placement stream --json --machine %s " MODEL " " ROWS, machine);
    program_run run = run_spill(args, NULL);
    assert_int_equal(run.status, 0);
    json_error_t where;
    json_t *plan = json_loads(run.out, 0, &where);
    assert_non_null(plan);
    assert_true(number_at(plan, "budget_bytes") == 300000000 && number_at(plan, "disk_bps") == 1234000000);
    assert_true(number_at(plan, "read_depth") == 6 && number_at(plan, "read_request_bytes") == 4194304);
    assert_string_equal(json_string_value(json_object_get(plan, "reader")), "threads");
    const json_t *range = json_object_get(plan, "estimate_seconds");
    assert_true(number_at(range, "low") > 0 && number_at(range, "low") <= number_at(range, "likely"));
    assert_true(number_at(range, "likely") <= number_at(range, "high") && number_at(plan, "estimate_passes") > 1);
    json_decref(plan);
    program_run_free(&run);
    snprintf(args, sizeof args, "plan --placement stream --machine %s " MODEL " " ROWS, machine);
    run = run_spill(args, NULL);
    assert_non_null(strstr(run.out, "streaming at 1.2 GB/s (measured 2023-11-14)"));
    program_run_free(&run);
}

/* Rows that nobody has read yet are counted by the length of those that were, not by what a buffer has taken in. */
static void test_plan_counts_rows_that_wait(void **state) {
    (void)state;
    static const struct {
        int n_rows;
        const char *pack, *suffix;
    } inputs[] = {{1000, "cat", ""}, {20000, "cat", ""}, {20000, "gzip", ".gz"}, {20000, "zstd -q", ".zst"}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        char command[600];
        snprintf(
            command, sizeof command,
            "command -v %s >/dev/null || exit 77; rows=$SPILL_HOME/waiting%s; awk 'BEGIN { srand(1); for (i = 0; i < "
            "%d; i++) printf \"{\\\"prompt\\\":\\\"%%d %%d\\\"}\\n\", 1e8 * rand(), 1e8 * rand() }' | %s >$rows; "
            "\"$SPILL\" plan --json " MODEL " $rows",
            inputs[i].pack, inputs[i].suffix, inputs[i].n_rows, inputs[i].pack);
        program_run run = run_shell(command, NULL);
        bool is_skipped = run.status == 77 || strstr(run.err, "built without");
        json_error_t where;
        json_t *plan = json_loads(run.out, 0, &where);
        double found = number_at(plan, "input_rows") / inputs[i].n_rows;
        if (!is_skipped && !(found > 0.8 && found < 1.25))
            fail_msg("%d rows%s: %.2f of them; %.300s", inputs[i].n_rows, inputs[i].suffix, found, run.err);
        json_decref(plan);
        program_run_free(&run);
    }
}

/* What is known of the machine after a plan for some seconds of products; NULL: nothing. */
static json_t *plan_and_load(const char *home) {
    char command[600], path[300];
    snprintf(command, sizeof command,
             "export SPILL_HOME='%s'; mkdir -p \"$SPILL_HOME\"; seq 20000 | "
             "sed 's/.*/{\"custom_id\":\"&\",\"prompt\":\"a b c\",\"max_tokens\":200}/' >\"$SPILL_HOME/rows\"; "
             "\"$SPILL\" plan " MODEL " \"$SPILL_HOME/rows\"",
             home);
    program_run run = run_shell(command, NULL);
    assert_int_equal(run.status, 0);
    program_run_free(&run);
    snprintf(path, sizeof path, "%s/machine.json", home);
    json_error_t where;
    return json_load_file(path, 0, &where);
}

/* The machine's rates are kept as so many times what they are, measured then: does a plan leave them so? */
static bool keeps_rates(const char *home, const json_t *measured, double times, time_t measured_s) {
    char path[300];
    snprintf(path, sizeof path, "%s/machine.json", home);
    json_t *machine = json_deep_copy(measured), *rates = json_array_get(json_object_get(machine, "rates"), 0);
    json_t *flops = json_object_get(rates, "product_flops");
    for (size_t i = 0; i < json_array_size(flops); i++)
        json_array_set_new(flops, i, json_real(times * json_number_value(json_array_get(flops, i))));
    json_object_set_new(rates, "measured", json_integer(measured_s));
    double kept = json_number_value(json_array_get(flops, 0));
    assert_int_equal(json_dump_file(machine, path, 0), 0);
    json_decref(machine);
    json_t *after = plan_and_load(home);
    assert_non_null(after);
    rates = json_array_get(json_object_get(after, "rates"), 0);
    double now = json_number_value(json_array_get(json_object_get(rates, "product_flops"), 0));
    json_decref(after);
    return fabs(now - kept) <= 1e-3 * kept;
}

static void test_rates_of_a_busy_moment_do_not_stay(void **state) {
    (void)state;
    char home[200];
    snprintf(home, sizeof home, "%s/slow", scratch_dir());
    json_t *measured = plan_and_load(home);
    if (!measured) skip(); /* no memory to measure in */
    time_t now_s = time(NULL), long_ago_s = now_s - 86400;
    assert_true(keeps_rates(home, measured, 1e-6, now_s));
    assert_true(keeps_rates(home, measured, 100, long_ago_s)); /* this hour's slowness is history's */
    assert_false(keeps_rates(home, measured, 1e-6, long_ago_s));
    json_decref(measured);
}

/* Every pass says what is left; the second run knows how the first one's rows ended. */
static void test_time_left_is_told(void **state) {
    (void)state;
    program_run run = run_spill("run --json --limit 4 --max-tokens 3 " MODEL " " ROWS " -o -", NULL);
    assert_int_equal(run.status, 0);
    size_t n_passes = 0;
    double last_s = -1;
    for (const char *at = run.err; (at = strstr(at, "\"eta_seconds\":")) != NULL; at++, n_passes++)
        assert_int_equal(sscanf(at, "\"eta_seconds\":{\"low\":%lf", &last_s), 1);
    assert_true(n_passes >= 3 && last_s >= 0);
    program_run_free(&run);
    run = run_shell("cat \"$SPILL_HOME\"/history.json", NULL);
    assert_true(run.status != 0 || strstr(run.out, "\"passes\"") != NULL); /* kept if there are rates */
    program_run_free(&run);
}

static void test_doctor_tells_what_runs_here(void **state) {
    (void)state;
    program_run run = run_spill("doctor --json", NULL);
    json_error_t where;
    json_t *found = json_loads(run.out, 0, &where);
    assert_non_null(found);
    assert_true(json_is_boolean(json_object_get(found, "io_uring")));
    assert_true(json_is_boolean(json_object_get(json_object_get(found, "build"), "zstd")));
    assert_true(json_is_array(json_object_get(found, "drives")));
    assert_true(json_is_integer(json_object_get(found, "resident_params_max")));
    json_decref(found);
    program_run_free(&run);
}

static void test_output_is_untouched_by_a_refusal(void **state) {
    (void)state;
    char args[300];
    const char *out = scratch_file("kept.jsonl", "something else\n");
    snprintf(args, sizeof args, "run " MODEL " " ROWS " -o %s", out);
    program_run run = run_spill(args, NULL);
    assert_int_equal(run.status, 2);
    program_run_free(&run);
    snprintf(args, sizeof args, "cat %s", out);
    run = run_shell(args, NULL);
    assert_string_equal(run.out, "something else\n");
    program_run_free(&run);
}

static void test_tokenize_shapes(void **state) {
    (void)state;
    program_run run = run_spill("tokenize " MODEL " -",
                                "{\"custom_id\":\"t\",\"text\":\"order 7 lamps\"}\n"
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n"
                                "nonsense\n");
    assert_int_equal(run.status, 3);
    json_t *lines = result_lines(run.out);
    assert_int_equal(json_object_size(lines), 3);
    assert_string_equal(json_string_value(json_object_get(json_object_get(lines, "t"), "text")), "order 7 lamps");
    const json_t *chat = json_object_get(lines, "row-000002");
    assert_non_null(strstr(json_string_value(json_object_get(chat, "prompt")), "<|im_start|>user\nhi<|im_end|>"));
    assert_true(json_array_size(json_object_get(chat, "tokens")) > 5);
    assert_true(
        json_is_string(json_object_get(json_object_get(json_object_get(lines, "row-000003"), "error"), "message")));
    json_decref(lines);
    program_run_free(&run);
}

/* transformers writes 10^30 for "no limit": beyond any integer, and to be passed over. */
static void test_model_max_length_of_transformers(void **state) {
    (void)state;
    program_run run =
        run_shell("cp -r --no-preserve=mode " MODEL
                  " \"$SPILL_HOME/wide\" && sed -i "
                  "'s/\\\"model_max_length\\\": 1024/\\\"model_max_length\\\": 1000000000000000019884624838656/' "
                  "\"$SPILL_HOME/wide/tokenizer_config.json\" && "
                  "exec \"$SPILL\" tokenize --limit 1 \"$SPILL_HOME/wide\" " ROWS,
                  NULL);
    if (run.status != 0) fail_msg("%s", run.err);
    assert_non_null(strstr(run.out, "\"prompt\":"));
    program_run_free(&run);
}

static void test_plain_text(void **state) {
    (void)state;
    static const char row[] = "{\"custom_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x<|im_end|>y\"}]}\n";
    program_run plain = run_spill("tokenize --plain-text " MODEL " -", row);
    program_run usual = run_spill("tokenize " MODEL " -", row);
    json_t *plain_lines = result_lines(plain.out), *usual_lines = result_lines(usual.out);
    const json_t *plain_ids = json_object_get(json_object_get(plain_lines, "a"), "tokens");
    const json_t *usual_ids = json_object_get(json_object_get(usual_lines, "a"), "tokens");
    size_t n_ends[2] = {0, 0};
    for (size_t i = 0; i < json_array_size(usual_ids); i++)
        n_ends[0] += json_integer_value(json_array_get(usual_ids, i)) == 2;
    for (size_t i = 0; i < json_array_size(plain_ids); i++)
        n_ends[1] += json_integer_value(json_array_get(plain_ids, i)) == 2;
    assert_int_equal(n_ends[0], n_ends[1] + 1); /* the written one is text, the template's own stay */
    json_decref(plain_lines);
    json_decref(usual_lines);
    program_run_free(&plain);
    program_run_free(&usual);
}

/* Standard streams that are closed, full or read-only; what the shell makes of them is part of the command. */
static void test_odd_streams(void **state) {
    (void)state;
    static const struct {
        const char *command;
        int status;
        const char *err;
    } ways[] = {
        {"exec \"$SPILL\" --help >/dev/full", 1, "No space left"},
        {"exec \"$SPILL\" run --help >/dev/full", 1, "No space left"},
        {"exec \"$SPILL\" --version >&-", 1, "stdout"},
        {"exec \"$SPILL\" run --limit 1 " MODEL " " ROWS " >&-", 2, "stdout: closed"},
        {"exec \"$SPILL\" run --limit 1 " MODEL " - <&-", 2, "standard input: reading line 1"},
        {"cat " ROWS " >$SPILL_HOME/r.jsonl; exec \"$SPILL\" run " MODEL " $SPILL_HOME/r.jsonl >>$SPILL_HOME/r.jsonl",
         2, "stdout: is a file that this run reads"},
        {"exec \"$SPILL\" run " MODEL " - <$SPILL_HOME/r.jsonl -o $SPILL_HOME/r.jsonl", 2, "is the input"},
        {"mkfifo $SPILL_HOME/p; (sleep 0.5; : <$SPILL_HOME/p) & exec \"$SPILL\" tokenize " MODEL " " ROWS
         " >$SPILL_HOME/p",
         75, ""},
        /* nothing that is opened may become stdout or stderr */
        {"\"$SPILL\" run --limit 1 " MODEL " " ROWS " -o $SPILL_HOME/o.jsonl >&- 2>&-; wc -l <$SPILL_HOME/o.jsonl >&2",
         0, "1\n"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        program_run run = run_shell(ways[i].command, NULL);
        if (run.status != ways[i].status || !strstr(run.err, ways[i].err))
            fail_msg("%s: status %d, %.300s", ways[i].command, run.status, run.err);
        program_run_free(&run);
    }
}

/* Names of any bytes: JSON stays JSON, and what people read has no control bytes and one line. */
static void test_odd_names(void **state) {
    (void)state;
    program_run run = run_shell("d=\"$SPILL_HOME/$(printf 'm\\377\\033[2J')\"; cp -r --no-preserve=mode " MODEL
                                " \"$d\"; o=\"$SPILL_HOME/$(printf 'o\\377\\n\\033x')\";"
                                "\"$SPILL\" run --limit 1 \"$d\" " ROWS " -o \"$o\" && cat \"$o\"",
                                NULL);
    assert_int_equal(run.status, 0);
    for (const char *c = run.err; *c; c++) assert_true((unsigned char)*c >= 0x20 || *c == '\n');
    assert_non_null(strstr(run.err, "o\\xff\\x0a\\x1bx"));
    json_t *lines = result_lines(run.out);
    const json_t *body = json_object_get(json_object_get(json_object_get(lines, "sample-000"), "response"), "body");
    assert_string_equal(json_string_value(json_object_get(body, "model")), "m\xef\xbf\xbd\033[2J");
    json_decref(lines);
    program_run_free(&run);
}

static void test_json_is_all_that_json_says(void **state) {
    (void)state;
    static const char *const failing[] = {"run --json /nonexistent " ROWS, "run --json --top-p 2 " MODEL " " ROWS};
    for (size_t i = 0; i < 2; i++) {
        program_run run = run_spill(failing[i], NULL);
        assert_int_equal(run.status, 2);
        json_t *event = json_loads(run.err, 0, NULL);
        assert_string_equal(json_string_value(json_object_get(event, "event")), "error");
        assert_int_equal(json_integer_value(json_object_get(event, "status")), 2);
        json_decref(event);
        program_run_free(&run);
    }
}

static void test_full_stdout_is_a_failure(void **state) {
    (void)state;
    program_run run = run_shell("exec \"$SPILL\" tokenize " MODEL " " ROWS " > /dev/full", NULL);
    assert_int_equal(run.status, 1);
    assert_non_null(strstr(run.err, "No space left"));
    program_run_free(&run);
    run = run_shell("exec \"$SPILL\" run --limit 2 " MODEL " " ROWS " > /dev/full", NULL);
    assert_int_equal(run.status, 1);
    program_run_free(&run);
}

/* A file that cannot be looked at is a fault of the input, wherever it is met. */
static void test_links_in_a_circle(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer_config.json",   "tokenizer.json",      "config.json",
                                        "special_tokens_map.json", "chat_template.jinja", "generation_config.json",
                                        "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char command[600];
        snprintf(command, sizeof command,
                 "d=\"$SPILL_HOME/circle%zu\"; cp -r --no-preserve=mode " MODEL
                 " \"$d\" && rm -f \"$d/%s\" && "
                 "ln -s %s \"$d/%s\" && exec \"$SPILL\" run --limit 1 \"$d\" " ROWS,
                 i, names[i], names[i], names[i]);
        program_run run = run_shell(command, NULL);
        if (run.status != 2 || !strstr(run.err, names[i]))
            fail_msg("%s: status %d, err '%.300s'", names[i], run.status, run.err);
        program_run_free(&run);
    }
    program_run run = run_shell("exec \"$SPILL\" tokenize \"$SPILL_HOME/circle0\" " ROWS, NULL);
    assert_int_equal(run.status, 2);
    program_run_free(&run);
}

/* A directory's name may hold any byte; what is shown of it stays on its line. */
static void test_name_with_control_bytes(void **state) {
    (void)state;
    program_run run = run_shell("d=\"$SPILL_HOME/a\nb\033[2Jc\"; cp -r " MODEL
                                " \"$d\" && "
                                "\"$SPILL\" plan \"$d\" " ROWS " && exec \"$SPILL\" run --limit 1 \"$d\" " ROWS,
                                NULL);
    if (run.status != 0) fail_msg("%s", run.err);
    assert_ptr_equal(strstr(run.out, "a\\x0ab\\x1b[2Jc bf16, "), run.out);
    assert_non_null(strstr(run.err, "a\\x0ab\\x1b[2Jc bf16, "));
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_inputs_told_early),
        cmocka_unit_test(test_plan_for_another_machine),
        cmocka_unit_test(test_time_left_is_told),
        cmocka_unit_test(test_plan_counts_rows_that_wait),
        cmocka_unit_test(test_rates_of_a_busy_moment_do_not_stay),
        cmocka_unit_test(test_doctor_tells_what_runs_here),
        cmocka_unit_test(test_output_is_untouched_by_a_refusal),
        cmocka_unit_test(test_tokenize_shapes),
        cmocka_unit_test(test_model_max_length_of_transformers),
        cmocka_unit_test(test_plain_text),
        cmocka_unit_test(test_odd_streams),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_json_is_all_that_json_says),
        cmocka_unit_test(test_full_stdout_is_a_failure),
        cmocka_unit_test(test_links_in_a_circle),
        cmocka_unit_test(test_name_with_control_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
