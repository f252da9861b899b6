/* Jobs that go on: stopped, killed, torn, refused when something changed; what other terminals see of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "program.h"

#define MODEL "models/fields"
#define RUN "\"$SPILL\" run --quiet "

/* stop FILE N COMMAND...: ends COMMAND with $SIGNAL (TERM) once FILE has more than N lines. */
#define STOP                                                                                                         \
    "stop() { f=$1; n=$2; shift 2; exec 3<&0; \"$@\" <&3 & p=$!; while kill -0 $p && [ $(cat $f | wc -l) -le $n ]; " \
    "do sleep "                                                                                                      \
    "0.02; "                                                                                                         \
    "done 2>/dev/null; kill -${SIGNAL:-TERM} $p; wait $p; }; "

/* Runs a command in a shell, with $D the scratch directory; the exit status must be as wanted. */
static char *shell(int want_status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static char *shell(int want_status, const char *format, ...) {
    char command[4000] = STOP "D=$SPILL_HOME; ";
    size_t used = strlen(command);
    va_list args;
    va_start(args, format);
    vsnprintf(command + used, sizeof command - used, format, args);
    va_end(args);
    program_run run = run_shell(command, NULL);
    if (run.status != want_status)
        fail_msg("%s\nstatus %d, wanted %d: %.600s %.300s", command, run.status, want_status, run.err, run.out);
    size_t err_bytes = strlen(run.err);
    char *both = calloc(1, run.out_bytes + err_bytes + 1);
    memcpy(both, run.out, run.out_bytes);
    memcpy(both + run.out_bytes, run.err, err_bytes);
    program_run_free(&run);
    return both;
}

static void expect(int want_status, const char *want_text, const char *command) {
    char *text = shell(want_status, "%s", command);
    if (want_text && !strstr(text, want_text)) fail_msg("%s\n'%s' wanted, found: %.600s", command, want_text, text);
    free(text);
}

static json_t *lines_of(const char *path) {
    char *text = shell(0, "cat %s", path);
    json_t *lines = result_lines(text);
    free(text);
    return lines;
}

/* All lines but for what differs between runs: bodies, and errors with their codes. */
static void expect_same(const char *want_path, const char *got_path) {
    json_t *want = lines_of(want_path), *got = lines_of(got_path), *line;
    const char *id;
    assert_int_equal(json_object_size(got), json_object_size(want));
    json_object_foreach(want, id, line) {
        const json_t *other = json_object_get(got, id);
        char *one = result_body(line), *two = result_body(other);
        bool same = one ? two && strcmp(one, two) == 0
                        : !two && json_equal(json_object_get(line, "error"), json_object_get(other, "error"));
        if (!same) fail_msg("row %s:\n%s\n%s", id, one, two);
        free(one);
        free(two);
    }
    json_decref(want);
    json_decref(got);
}

/* Rows of all kinds: long and short, sampled, with log-probabilities, stop strings, wrong ones, doubled ones. */
static void write_rows(void) {
    char *rows = calloc(1, 1 << 20);
    size_t used = 0;
    for (int i = 0; i < 240; i++) {
        used += (size_t)sprintf(rows + used,
                                "{\"custom_id\":\"r%d\",\"prompt\":\"%d lamps for Ms Weiss\",\"max_tokens\":%d,"
                                "\"temperature\":%s%s%s%s}\n",
                                i == 200 ? 199 : i, i, 5 + i * 7 % 200, i % 2 ? "9" : "0",
                                i % 3 ? "" : ",\"logprobs\":true,\"top_logprobs\":3", i % 5 ? "" : ",\"stop\":[\"er\"]",
                                i % 4 ? "" : ",\"frequency_penalty\":0.5,\"presence_penalty\":-1,\"min_tokens\":4");
        if (i % 50 == 7) used += (size_t)sprintf(rows + used, "\n{\"prompt\":%d}\n", i);
    }
    scratch_file("rows.jsonl", rows);
    free(rows);
}

#define ROWS " " MODEL " $D/rows.jsonl "

static int setup(void **state) {
    (void)state;
    write_rows();
    free(shell(3, RUN ROWS "-o $D/want"));
    return 0;
}

/* ---- going on ---- */

/* Stopped again and again; continued by the same command and by resume in turn. */
static void test_stop_and_go_on(void **state) {
    (void)state;
    free(shell(3,
               "i=0; until [ $i = 12 ]; do i=$((i+1)); if [ $((i%%2)) = 0 ] && [ -e $D/out ];"
               "then \"$SPILL\" resume --quiet --time-limit 0.15s; else " RUN "--time-limit 0.15s --rows $i" ROWS
               "-o $D/out; fi; s=$?; [ $s = 75 ] || exit $s; done; " RUN ROWS "-o $D/out"));
    expect_same("$D/want", "$D/out");
    expect(3, "complete already: 245 rows (6 errors)", RUN ROWS "-o $D/out");
    expect_same("$D/want", "$D/out");
}

/* Tokens are kept of a row that was read after the last result was written: its line must be the same, too. Line 260
 * is the first that the input's second 128 KB are read for, and joins at once. */
static void test_a_row_read_last(void **state) {
    (void)state;
    free(shell(75,
               "seq 1 270 | awk '{ n = $1 == 260 ? 900 : 1; printf \"%%-488s,\\\"prompt\\\":\\\"%%03d\\\"}\\n\","
               "\"{\\\"temperature\\\":9,\\\"min_tokens\\\":\" n \",\\\"max_tokens\\\":\" n, $1 }' >$D/wide.jsonl;"
               "stop $D/wide 3 " RUN "--rows 1 --placement stream " MODEL " $D/wide.jsonl -o $D/wide"));
    expect(2, "changed, it",
           "[ $(wc -l <$D/wide) = 4 ] || exit 9; sed -i '260s/\"260\"/\"261\"/' $D/wide.jsonl; " RUN "--rows 1 " MODEL
           " $D/wide.jsonl -o $D/wide");
    free(shell(0, "rm -rf $D/runs/$(ls $D/runs | tail -n 1)"));
}

/* resume keeps to what the command was allowed to take, unless it is told otherwise. */
static void test_limits_are_kept(void **state) {
    (void)state;
    free(shell(75, "stop $D/limits 12 " RUN "--memory 300M --threads 1 --rows 3" ROWS "-o $D/limits"));
    expect(75, "\"budget_bytes\":419430400", "\"$SPILL\" resume --json --time-limit 0.3s --memory 400M");
    free(shell(3, "\"$SPILL\" resume --json 2>$D/events"));
    expect(0, "\"budget_bytes\":419430400", "grep -m1 '\"rows\":3,' $D/events");
    expect(0, "\"threads\": 1", "grep -A4 '\"limits\"' $(ls -d $D/runs/* | tail -n 1)/manifest.json");
    expect_same("$D/want", "$D/limits");
}

/* More rows in flight than are read ahead, all of which come back. */
static void test_many_in_flight(void **state) {
    (void)state;
    free(shell(0,
               "seq 1 900 | awk '{ printf "
               "\"{\\\"custom_id\\\":\\\"m%%d\\\",\\\"prompt\\\":\\\"%%d\\\",\\\"max_tokens\\\":%%d}\\n\","
               "$1, $1, 20 + $1 %% 30 }' >$D/m.jsonl; " RUN "--temperature 9 " MODEL " $D/m.jsonl >$D/m.want"));
    free(shell(75, "SIGNAL=HUP; stop $D/m.out 3 " RUN "--temperature 9 --rows 800 " MODEL " $D/m.jsonl -o $D/m.out"));
    free(shell(0, "\"$SPILL\" resume --quiet --rows 9"));
    expect_same("$D/m.want", "$D/m.out");
}

/* Without -o, results are in the job directory, and on stdout as those of an undisturbed run. */
static void test_own_results(void **state) {
    (void)state;
    free(shell(75, "stop $D/first 12 " RUN "--rows 3 --placement stream" ROWS ">$D/first"));
    json_decref(lines_of("$D/first"));
    free(shell(3, "\"$SPILL\" resume --quiet >$D/second"));
    expect_same("$D/want", "$D/second");
    free(shell(0, "cmp $D/second $(ls -d $D/runs/* | tail -n 1)/results.jsonl"));
}

/* Standard input again: the same bytes go on, others are refused. */
static void test_standard_input(void **state) {
    (void)state;
    free(shell(75, "mkfifo $D/pipe; cat $D/rows.jsonl >$D/pipe & stop $D/piped 12 " RUN "--rows 3 " MODEL
                   " - -o $D/piped <$D/pipe"));
    expect(
        2, "changed, it",
        "cp $D/piped $D/before; tail -n +2 $D/rows.jsonl | \"$SPILL\" resume; s=$?; cmp $D/piped $D/before && exit $s");
    expect(2, "standard input: changed, it", "\"$SPILL\" resume </dev/null");
    free(shell(3, "cat $D/rows.jsonl | \"$SPILL\" resume --quiet"));
    expect_same("$D/want", "$D/piped");
}

/* From another directory, and the built-in rows even where a file has their name. */
static void test_elsewhere(void **state) {
    (void)state;
    free(shell(0, "cp -r " MODEL " $D/here; cd $D; : >sample; " RUN "here sample >sample.want"));
    free(shell(75, "cd $D; stop sample.out 0 " RUN "--rows 1 here sample -o sample.out"));
    free(shell(0, "cd /; \"$SPILL\" resume --quiet"));
    expect_same("$D/sample.want", "$D/sample.out");
}

/* "N of M as expected" counts the rows that were there before. */
static void test_expected_of_all_rows(void **state) {
    (void)state;
    free(shell(0, "\"$SPILL\" run " MODEL " " MODEL "/sample.jsonl -o $D/score.want 2>$D/said;"
                  "grep -o '[1-9][0-9]* of 48 as expected' $D/said >$D/score"));
    free(shell(75, "stop $D/scored 5 " RUN "--rows 2 " MODEL " " MODEL "/sample.jsonl -o $D/scored"));
    free(shell(0, "\"$SPILL\" resume 2>$D/said; cat $D/said; grep -qF \"$(cat $D/score)\" $D/said"));
}

/* Rows that are left and are errors need no weights; which weights the others had stays known. */
static void test_only_errors_left(void **state) {
    (void)state;
    free(shell(3, "printf '%%s\\n' '{\"prompt\":\"a\",\"max_tokens\":2}' '{\"prompt\":1}' >$D/two.jsonl; " RUN MODEL
                  " $D/two.jsonl -o $D/two"));
    free(shell(0,
               "grep -o '\"content_hash\": \"[0-9a-f]*\"' $D/runs/*/manifest.json | tail -n 1 >$D/hash; [ -s $D/hash ];"
               "grep -v '\"response\":null' $D/two >$D/good; cat $D/good >$D/two"));
    free(shell(3, RUN MODEL " $D/two.jsonl -o $D/two"));
    free(shell(0,
               "grep -o '\"content_hash\": \"[0-9a-f]*\"' $D/runs/*/manifest.json | tail -n 1 | cmp - $D/hash; [ $(wc "
               "-l <$D/two) = 2 ]"));
}

/* Model, rows and results under names that are no UTF-8, relative ones too, and one with an escape in it. */
static void test_any_path(void **state) {
    (void)state;
    free(shell(75,
               "R=$PWD; mkdir $D/$(printf 'a\\377%%%%41'); cd $D/$(printf 'a\\377%%%%41'); mkdir $(printf 'm\\376'); "
               "cp -r $R/" MODEL " m*; cp $D/rows.jsonl $(printf 'r\\200.jsonl'); stop $(printf 'o\\303') 12 " RUN
               "--rows 3 m*/fields r*.jsonl -o $(printf 'o\\303')"));
    expect(0, "/a%FF%2541/o%C3", "cat $(ls -d $D/runs/* | tail -n 1)/manifest.json");
    expect(0, "): ", "\"$SPILL\" tail");
    free(shell(3, "\"$SPILL\" resume --quiet; s=$?; cp $D/a*/o* $D/odd.out; exit $s"));
    expect_same("$D/want", "$D/odd.out");
}

/* What a crash leaves behind whole lines goes, in results and journal; what is nobody's crash is refused. */
static void test_torn_ends(void **state) {
    (void)state;
    static const char *const tears[] = {
        "printf '{\"id\":\"batch_req_x' >>$D/torn",
        "head -c 5000 /dev/zero >>$D/torn",
        "{ printf '{\"id\":'; head -c 9000 /dev/zero; } >>$D/torn",
        "printf xyz >>$J",
        "truncate -s -7 $J",
        "truncate -s 9 $J",
        "printf 'xxxxxxxxx' | dd of=$J bs=1 seek=1000 conv=notrunc 2>/dev/null",
        "rm $J",
        "head -c 200 $D/torn >$D/torn2; cat $D/torn2 >$D/torn",
    };
    for (size_t i = 0; i < sizeof tears / sizeof *tears; i++) {
        free(shell(75, "rm -f $D/torn; stop $D/torn 12 " RUN "--rows 3" ROWS "-o $D/torn"));
        free(shell(0, "J=$(ls -d $D/runs/* | tail -n 1)/journal; %s", tears[i]));
        free(shell(3, RUN ROWS "-o $D/torn"));
        expect_same("$D/want", "$D/torn");
    }
    free(shell(75,
               "rm -f $D/torn; stop $D/torn 12 " RUN "--rows 3" ROWS "-o $D/torn; s=$?; echo '{}' >>$D/torn; exit $s"));
    expect(2, "is not a result of run",
           "cp $D/torn $D/before; " RUN ROWS "-o $D/torn; s=$?; cmp $D/torn $D/before && exit $s");
    expect(2, "is not a result of run",
           "head -n 2 $D/before >$D/torn; head -n 1 $D/before >>$D/torn; " RUN ROWS "-o $D/torn");
    expect(2, "are gone", "rm $D/torn; \"$SPILL\" resume");
    expect(2, "that are not this job's results", "echo hello >$D/hello; " RUN ROWS "-o $D/hello");
}

/* Zeros within a line are not what a power cut leaves at the end: the lines behind it stay. */
static void test_damaged_line(void **state) {
    (void)state;
    free(shell(75, "stop $D/holed 12 " RUN "--rows 3" ROWS "-o $D/holed; s=$?; cp $D/holed $D/whole; exit $s"));
    free(shell(0,
               "head -c 40 /dev/zero | dd of=$D/holed bs=1 seek=$(($(head -n 4 $D/holed | wc -c) + 90)) conv=notrunc "
               "2>/dev/null; cp $D/holed $D/before"));
    expect(2, "line 5 is damaged, it holds bytes that are zero; take it out",
           "\"$SPILL\" resume; s=$?; cmp $D/holed $D/before && exit $s");
    free(shell(0, "sed -i 5d $D/holed; head -n 4 $D/whole >$D/kept4; tail -n +6 $D/whole >>$D/kept4"));
    free(shell(3, "\"$SPILL\" resume --quiet; s=$?; head -c $(wc -c <$D/kept4) $D/holed | cmp - $D/kept4 && exit $s"));
    expect_same("$D/want", "$D/holed");
}

/* A manifest in which a number was altered, by a hand or by the drive, is not gone on with: other results would come.
 */
static void test_altered_manifest(void **state) {
    (void)state;
    free(shell(75, "rm -rf $D/runs/*; stop $D/sealed 12 " RUN "--rows 3" ROWS "-o $D/sealed"));
    free(shell(0, "cp $D/sealed $D/before; cp $D/runs/*/manifest.json $D/manifest"));
    static const char *const alterations[] = {"s/\"seed\": 0/\"seed\": 1/",
                                              "s/\"top_p\": 1.0/\"top_p\": 1e300/",
                                              "s/\"max_tokens\": 256/\"max_tokens\": -1/",
                                              "/\"temperature\"/d",
                                              "s/\"seal\": \"/&0/",
                                              "s/\"seal\": .*/\"seal\": 5/"};
    for (size_t i = 0; i < sizeof alterations / sizeof *alterations; i++) {
        free(shell(0,
                   "sed '%s' $D/manifest >$(echo $D/runs/*/manifest.json); cmp -s $D/manifest $D/runs/*/manifest.json"
                   "&& exit 9; exit 0",
                   alterations[i]));
        expect(2, "altered since spill wrote it", "\"$SPILL\" resume $(ls $D/runs)");
        expect(2, "altered since spill wrote it", RUN ROWS "-o $D/sealed");
        expect(0, "broken", "\"$SPILL\" runs; cmp $D/sealed $D/before");
    }
    free(shell(3, "tr -d '\\n' <$D/manifest >$(echo $D/runs/*/manifest.json); \"$SPILL\" resume --quiet"));
    expect_same("$D/want", "$D/sealed");
}

/* ---- refusals ---- */

static void test_changes_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *names;
    } changes[] = {
        {"--max-tokens 7", "--max-tokens"},
        {"--temperature 0.5", "--temperature"},
        {"--top-p 0.5", "--top-p"},
        {"--top-k 3", "--top-k"},
        {"--seed 1", "--seed"},
        {"--mode fp32", "--mode"},
        {"--limit 20", "--limit"},
        {"--date 2024-02-29", "--date"},
        {"--plain-text", "--plain-text"},
        {"--echo-tokens", "--echo-tokens"},
    };
    free(shell(0, "cp -r " MODEL " $D/fields"));
    free(shell(75, "stop $D/kept 12 " RUN "--rows 3 $D/fields $D/rows.jsonl -o $D/kept; s=$?; cp $D/kept $D/before;"
                   "cp -r $(ls -d $D/runs/* | tail -n 1) $D/run; exit $s"));
#define UNTOUCHED "; s=$?; cmp $D/kept $D/before && diff -r $D/run $(ls -d $D/runs/* | tail -n 1) && exit $s"
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char command[600];
        snprintf(command, sizeof command, RUN "%s $D/fields $D/rows.jsonl -o $D/kept" UNTOUCHED, changes[i].options);
        expect(2, changes[i].names, command);
    }
    static const char *const edits[][2] = {
        {"sed -i 's/\"r1\"/\"s1\"/' $D/rows.jsonl", "bytes that the job has read; give that input to spill resume 2"},
        {"sed -i 's/^{/{ /' $D/fields/generation_config.json", "config, tokenizer or template"},
        {"printf ' ' >>$D/fields/tokenizer_config.json", "config, tokenizer or template"},
        /* one byte of the weights, under the same time and size */
        {"printf '\\101' | dd of=$D/fields/model.safetensors bs=1 seek=3000000 conv=notrunc 2>/dev/null;"
         "touch -r $D/old/model.safetensors $D/fields/model.safetensors",
         "content of its weights"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char command[800];
        free(shell(0, "rm -rf $D/old; cp -a $D/fields $D/old; cp $D/rows.jsonl $D/old.jsonl; %s", edits[i][0]));
        snprintf(command, sizeof command, "\"$SPILL\" resume" UNTOUCHED);
        expect(2, edits[i][1], command);
        free(shell(0, "rm -rf $D/fields; mv $D/old $D/fields; mv $D/old.jsonl $D/rows.jsonl"));
    }
    free(shell(3, "\"$SPILL\" resume --quiet --threads 1 --rows 3 --memory 300M --placement stream"));
    expect_same("$D/want", "$D/kept");
    expect(2, "--seed", RUN "--seed 4 $D/fields $D/rows.jsonl -o $D/kept");
    expect(2, "is not the", "echo >>$D/rows.jsonl; " RUN "$D/fields $D/rows.jsonl -o $D/kept");
    /* an end that was found after the first rows were done */
    free(shell(0, "yes '{\"prompt\":\"x\",\"max_tokens\":1}' | head -n 300 >$D/more.jsonl; " RUN MODEL
                  " $D/more.jsonl -o $D/more"));
    expect(0, "complete already", "\"$SPILL\" run " MODEL " $D/more.jsonl -o $D/more");
    expect(2, "is not the", "head -n 1 $D/more.jsonl >>$D/more.jsonl; " RUN MODEL " $D/more.jsonl -o $D/more");
    write_rows();
}

/* Results that are still empty bind nobody. */
static void test_empty_results_may_change(void **state) {
    (void)state;
    free(shell(0, "(echo; sleep 1) | " RUN "--time-limit 0.1s " MODEL " - -o $D/empty; : >>$D/empty"));
    free(shell(0, RUN "--max-tokens 3 --limit 2" ROWS "-o $D/empty"));
    expect(0, "2", "wc -l <$D/empty");
}

/* No result yet, but tokens: they are not given up without a word; the results file is made anew. */
static void test_tokens_without_a_result(void **state) {
    (void)state;
    /* long rows, and a job that is stopped as soon as its journal has grown by 900 bytes */
#define SOON                                                                                                          \
    "soon() { J=0; for j in $D/runs/*/journal; do [ -s $j ] && J=$(wc -c <$j); done; \"$@\" & p=$!; "                 \
    "until [ -s $D/runs/*/journal ] && [ $(wc -c <$(echo $D/runs/*/journal)) -gt $((J+900)) ]; do sleep 0.01; done; " \
    "kill -TERM $p; wait $p; }; "
    free(shell(0,
               "rm -rf $D/runs/*; seq 1 40 | awk '{ printf "
               "\"{\\\"custom_id\\\":\\\"t%%d\\\",\\\"prompt\\\":\\\"%%d\\\",\\\"max_tokens\\\":1000,"
               "\\\"logit_bias\\\":{\\\"2\\\":-100}}\\n\","
               "$1, $1 }' >$D/long.jsonl; sed 's/t1\"/u1\"/' $D/long.jsonl >$D/other.jsonl"));
    free(shell(75, SOON "soon " RUN MODEL " $D/long.jsonl -o $D/tokens; s=$?; [ ! -s $D/tokens ] && exit $s"));
    expect(0, "0 of 40 done (0 errors), 40 in flight with ", "\"$SPILL\" status");
    expect(0, "0 of 40 rows", "\"$SPILL\" runs");
    for (int i = 0; i < 2; i++) { /* empty, then missing */
        expect(2, "or drop the run with rm -r", RUN "--max-tokens 5 " MODEL " $D/long.jsonl -o $D/tokens");
        expect(2, "for a new job, or drop the run with rm -r ", RUN MODEL " $D/other.jsonl -o $D/tokens");
        expect(2, "changed, it", RUN "--seed 4 " MODEL " $D/other.jsonl -o $D/tokens"); /* before options */
        free(shell(0, "[ $(ls $D/runs | wc -l) = 1 ] && rm -f $D/tokens"));
    }
    free(shell(75, SOON "soon \"$SPILL\" resume --quiet"));
    free(shell(75, SOON "rm $D/tokens; M=$PWD/" MODEL "; cd $D; soon " RUN "$M long.jsonl -o tokens"));
    /* on a terminal, the last line of tail comes after what erases its block */
    expect(0, "stopped, 0 rows",
           "command -v script >/dev/null || { echo stopped, 0 rows; exit 0; }; rm $D/runs/*/progress.json;"
           "\"$SPILL\" resume --quiet & p=$!; until [ -e $D/runs/*/progress.json ]; do sleep 0.01; done;"
           "script -qc '\"$SPILL\" tail' /dev/null >$D/typed </dev/null & t=$!; sleep 0.4; kill -TERM $p; wait $p; "
           "wait $t;"
           "grep -q 'in flight' $D/typed && tail -n 1 $D/typed");
    free(shell(0, "[ $(ls $D/runs | wc -l) = 1 ] && [ -e $D/tokens ]; rm -rf $D/runs/* $D/tokens"));
}

/* A run that died without a result does not count those of the run that took its file. */
static void test_lines_of_another_run(void **state) {
    (void)state;
    free(shell(
        0,
        "rm -rf $D/runs/*; " RUN "--max-tokens 3 --limit 2" ROWS
        "-o $D/taken;"
        "A=$(echo $D/runs/*); B=$D/runs/20200101-000000-000000; mkdir $B;"
        "sed \"s/\\\"done\\\"/\\\"running\\\"/; s/$(basename $A)/$(basename $B)/; s/\\\"seal/\\\"_/\" $A/manifest.json "
        ">$B/manifest.json"));
    expect(0, "died                0 rows", "\"$SPILL\" runs");
    free(shell(0, "rm -rf $D/runs/*"));
}

/* ---- two at once, and other terminals ---- */

static void test_seen_from_outside(void **state) {
    (void)state;
    free(shell(0,
               "for i in 1 2 3 4 5 6 7 8; do sed \"s/custom_id\\\":\\\"/&$i/; s/max_tokens\\\":/&2/\" $D/rows.jsonl; "
               "done >$D/many.jsonl"));
    free(shell(0,
               "rm -rf $D/runs/*; " RUN "--rows 2 " MODEL " $D/many.jsonl -o $D/seen & p=$!;"
               "until [ -s $D/seen ] && ls $D/runs/*/progress.json >/dev/null 2>&1; do sleep 0.05; done;"
               "\"$SPILL\" resume && exit 9; " RUN MODEL " $D/many.jsonl -o $D/seen && exit 9;"
               "\"$SPILL\" status >$D/status.txt; grep -q running $D/status.txt || exit 8;"
               "\"$SPILL\" status --json >$D/status.json; \"$SPILL\" runs --json >$D/runs.json;"
               "\"$SPILL\" tail --json >$D/tailed & t=$!; \"$SPILL\" tail >$D/tailed.txt & u=$!;"
               "sleep 1.5; kill -STOP $p; sed -i 's/\"updated_s\":[0-9]*/\"updated_s\":1/' $D/runs/*/progress.json;"
               "\"$SPILL\" status >$D/status.txt; grep -q 'the first of this process' $D/status.txt || exit 4;"
               "grep -q tokens $D/status.txt && exit 3; kill -KILL $p; wait $p; wait $t || exit 7; wait $u || exit 6;"
               "\"$SPILL\" status >$D/status.txt; grep -q died $D/status.txt || exit 5"));
    char *text = shell(0, "cat $D/status.json");
    json_t *status = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "running");
    assert_non_null(json_object_get(json_object_get(status, "progress"), "running"));
    json_decref(status);
    free(text);
    json_decref(lines_of("$D/tailed")); /* whole result lines */
    expect(0, "): ", "cat $D/tailed.txt");
    expect(75, "stopped", "\"$SPILL\" resume --quiet --time-limit 3s");
    json_decref(lines_of("$D/seen"));
    expect(0, "stopped", "\"$SPILL\" status");
    expect(2, "no unfinished job", "rm -rf $D/runs/*; \"$SPILL\" resume");
    expect(2, "no such job", "\"$SPILL\" resume ../runs");
    expect(2, "no such job", "\"$SPILL\" status nothing");
}

/* Whatever lies in a job's place, the commands that look at it end. */
static void test_pipes_are_not_waited_on(void **state) {
    (void)state;
    free(shell(0, "rm -rf $D/runs/*; mkfifo $D/out.pipe; cat $D/out.pipe >$D/read & " RUN
                  "--max-tokens 3 --limit 2" ROWS "-o $D/out.pipe"));
    expect(2, "no regular file", "timeout 20 \"$SPILL\" tail");
    /* a reader that leaves: no promise that would not be kept */
    free(shell(0, "rm -rf $D/runs/*; head -n 1 $D/out.pipe >$D/read & timeout 60 \"$SPILL\" run --rows 2" ROWS
                  "-o $D/out.pipe 2>$D/said; s=$?; grep -q 'the run cannot be continued' $D/said && "
                  "! grep 'spill resume' $D/said && [ $s = 75 ]"));
    expect(0, "it cannot be continued", "\"$SPILL\" status");
    /* an older one can: resume without an id passes over what only its reader has */
    free(shell(75, "rm -rf $D/runs/* $D/plain; stop $D/plain 3 " RUN "--rows 2" ROWS "-o $D/plain"));
    free(shell(75, "head -n 1 $D/out.pipe >$D/read & timeout 60 " RUN "--rows 2" ROWS "-o $D/out.pipe"));
    free(shell(3, "\"$SPILL\" resume --quiet"));
    expect_same("$D/want", "$D/plain");
    expect(2, "no regular file", "\"$SPILL\" resume; s=$?; rm -rf $D/runs/*; exit $s");
    free(shell(0, "cat $D/out.pipe >$D/read & " RUN "--max-tokens 3 --limit 2" ROWS "-o $D/out.pipe"));
    expect(0, "done", "L=$(ls -d $D/runs/*)/lock; rm $L; mkfifo $L; timeout 20 \"$SPILL\" status");
}

static void test_one_row(void **state) {
    (void)state;
    free(shell(0, "rm -rf $D/runs/*; " RUN "--max-tokens 3 --limit 1" ROWS "-o $D/one"));
    expect(0, "1 row  ", "\"$SPILL\" runs");
    expect(0, "done, 1 row\n", "\"$SPILL\" tail");
}

/* A run that had nothing to write yet leaves nothing, and does not tell to go on with it. */
static void test_nothing_to_go_on_with(void **state) {
    (void)state;
    expect(0, "0",
           "rm -rf $D/runs/*; (ulimit -f 0; trap '' XFSZ; " RUN MODEL
           " $D/rows.jsonl -o $D/none 2>&1) | grep 'too large' | grep -c 'spill resume' || :; ls $D/runs | wc -l");
    expect(1, "too large", "(ulimit -f 0; trap '' XFSZ; " RUN MODEL " $D/rows.jsonl -o $D/none)");
}

/* "done" means that the results are there. */
static void test_results_taken_away(void **state) {
    (void)state;
    const char *const acts[][2] = {{"rm $D/gone", "deleted while"},
                                   {": >$D/gone", "bytes of the"},
                                   {"echo foreign >>$D/gone", ": 8 bytes found that another program wrote"}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        char command[400];
        snprintf(command, sizeof command,
                 RUN "--rows 1 --limit 24 " MODEL
                     " $D/many.jsonl -o $D/gone & p=$!; until [ -s $D/gone ]; do sleep 0.02; done; %s; wait $p",
                 acts[i][0]);
        expect(1, acts[i][1], command);
        expect(0, acts[i][1], "\"$SPILL\" status | grep '  error  '");
        if (strstr(acts[i][0], "foreign"))
            free(shell(3, "sed -i /^foreign/d $D/gone; " RUN "--limit 24 " MODEL
                          " $D/many.jsonl -o $D/gone; s=$?; [ $(wc -l <$D/gone) = 24 ] && exit $s"));
        free(shell(0, "rm -f $D/gone"));
    }
}

/* Rows of another file, or none, come from an input that is written to while it is read: no line says so by itself. */
static void test_input_changes_under_the_run(void **state) {
    (void)state;
    static const char *const acts[] = {"truncate -s 400000 $D/fed", ": >$D/fed", "sed s/lamp/bulb/ $D/feed >$D/fed"};
    free(shell(0,
               "seq 1 1500 | awk '{ printf \"%%-488s,\\\"prompt\\\":\\\"lamp %%04d\\\"}\\n\","
               "\"{\\\"max_tokens\\\":3\", $1 }' >$D/feed; " RUN MODEL " $D/feed -o $D/fed.want"));
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        free(shell(0, "cp $D/feed $D/fed; rm -f $D/fed.out"));
        char command[400];
        snprintf(command, sizeof command,
                 RUN "--rows 1 " MODEL
                     " $D/fed -o $D/fed.out & p=$!; until [ -s $D/fed.out ]; do sleep 0.02; done; "
                     "%s; wait $p",
                 acts[i]);
        expect(1, "fed: changed while it was read", command);
        free(shell(0, "cp $D/feed $D/fed; " RUN MODEL " $D/fed -o $D/fed.out"));
        expect_same("$D/fed.want", "$D/fed.out");
    }
}

/* The directory of jobs goes while one works: what is there, and nothing about going on. */
static void test_directory_taken_away(void **state) {
    (void)state;
#define TAKEN                                                                                                     \
    "rm -f $D/alone; " RUN "--rows 2 --limit %d " MODEL                                                           \
    " $D/many.jsonl -o $D/alone 2>$D/said & p=$!; "                                                               \
    "until grep -q '\"error\":null' $D/alone; do sleep 0.02; done 2>/dev/null; until rm -rf $D/runs; do :; done " \
    "2>/dev/null; %s; wait $p; s=$?; cat $D/said; "                                                               \
    "grep -q 'spill resume' $D/said && exit 9; exit $s"
    char command[600];
    snprintf(command, sizeof command, TAKEN, 24, ":");
    expect(1, "deleted while the run worked; all 24 rows are in ", command);
    expect(0, "24", "wc -l <$D/alone");
    snprintf(command, sizeof command, TAKEN, 1900, "kill -TERM $p");
    expect(1, "the run cannot be continued", command);
}

/* A name that is no text does not break the list. */
static void test_odd_names_are_listed(void **state) {
    (void)state;
    free(shell(0, "mkdir -p $D/runs/$(printf '\\377'); \"$SPILL\" runs --json >$D/runs.json"));
    expect(0, "broken", "cat $D/runs.json");
    free(shell(0, "rm -rf $D/runs/*"));
}

/* ---- many rows ---- */

/* Peak memory of a run over n rows out of a packed file; one in a hundred is good. In so small a budget the machine is
 * not measured, which would take more memory than the rows. */
static long long peak_of(size_t n) {
    free(shell(3,
               "seq 1 %zu | awk '{ printf \"{\\\"custom_id\\\":\\\"row-%%08d\\\",\\\"prompt\\\":%%s}\\n\", $1,"
               "$1 %% 100 ? 0 : \"\\\"x\\\"\" }' | gzip -1 >$D/packed.jsonl.gz;"
               "\"$SPILL\" run --json --memory 200M --max-tokens 1 " MODEL
               " $D/packed.jsonl.gz -o $D/packed$$ 2>$D/events; s=$?;"
               "[ $(wc -l <$D/packed$$) = %zu ] || exit 9; rm $D/packed$$; exit $s",
               n, n));
    char *text = shell(0, "tail -n 1 $D/events");
    const char *peak = strstr(text, "\"peak_rss_bytes\":");
    assert_non_null(peak);
    long long bytes = atoll(peak + strlen("\"peak_rss_bytes\":"));
    free(text);
    return bytes;
}

static void test_memory_does_not_follow_rows(void **state) {
    (void)state;
    enum { FEW = 20000, MANY = 400000 }; /* tables double: not where one has just done so */
    long long few = peak_of(FEW), many = peak_of(MANY);
    if (many - few > 64 * (MANY - FEW)) fail_msg("%lld bytes a row", (many - few) / (MANY - FEW));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_and_go_on),
        cmocka_unit_test(test_own_results),
        cmocka_unit_test(test_many_in_flight),
        cmocka_unit_test(test_limits_are_kept),
        cmocka_unit_test(test_a_row_read_last),
        cmocka_unit_test(test_standard_input),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_expected_of_all_rows),
        cmocka_unit_test(test_only_errors_left),
        cmocka_unit_test(test_any_path),
        cmocka_unit_test(test_torn_ends),
        cmocka_unit_test(test_damaged_line),
        cmocka_unit_test(test_altered_manifest),
        cmocka_unit_test(test_changes_are_refused),
        cmocka_unit_test(test_empty_results_may_change),
        cmocka_unit_test(test_tokens_without_a_result),
        cmocka_unit_test(test_lines_of_another_run),
        cmocka_unit_test(test_seen_from_outside),
        cmocka_unit_test(test_pipes_are_not_waited_on),
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_nothing_to_go_on_with),
        cmocka_unit_test(test_results_taken_away),
        cmocka_unit_test(test_input_changes_under_the_run),
        cmocka_unit_test(test_directory_taken_away),
        cmocka_unit_test(test_odd_names_are_listed),
        cmocka_unit_test(test_memory_does_not_follow_rows),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
