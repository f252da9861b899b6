/* Memory: whatever is asked of spill, its resident set stays inside --memory, and inside what the plan says beside the
 * program itself; a cgroup that grants hardly more than the budget does not kill it; and what rows that have ended
 * leave free keeps weights. Random shapes, budgets and rows from a fixed seed, on models with random weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "util/rng.h"

/* PROGRAM_BYTES: the program, its libraries, tokenizer and rows' text; far less than the plan's allowance for them. */
enum { N_MODELS = 6, N_PLANS = 100, N_ROWS = 8, FIRST_RUN_MB = 110, PROGRAM_BYTES = 24 << 20 };

static uint32_t n_drawn;

static uint32_t draw(uint32_t low, uint32_t high) {
    return low + sp_rng_philox(4, n_drawn++, 0).v[0] % (high - low + 1);
}

/* ---- models and rows ---- */

static void make_model(int i_model, unsigned n_layers, unsigned hidden, unsigned ffn, unsigned vocab) {
    static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3"};
    static const char *const formats[] = {"BF16", "BF16", "F16", "F32"};
    char command[500];
    snprintf(command, sizeof command,
             "$SPILL_MAKE_MODEL %s/m%d --family %s --dtype %s --layers %u --hidden %u --heads %u --kv-heads %u "
             "--head-dim 64 --ffn %u --vocab %u %s >&2",
             scratch_dir(), i_model, families[i_model % 4], formats[draw(0, 3)], n_layers, hidden, hidden / 64,
             hidden / 128, ffn, vocab, i_model % 2 ? "--tied" : "");
    program_run run = run_shell(command, NULL);
    if (run.status != 0) fail_msg("%s: %s", command, run.err);
    program_run_free(&run);
}

static void make_rows(void) {
    static char text[1 << 16];
    size_t used = 0;
    for (int i = 0; i < N_ROWS; i++) {
        used += (size_t)sprintf(
            text + used,
            "{\"custom_id\":\"r%d\",\"body\":{\"max_tokens\":%u,\"messages\":[{\"role\":\"user\",\"content\":\"", i,
            draw(1, 12));
        for (uint32_t n = draw(1, 500); n > 0; n--) text[used++] = (char)('a' + n % 26);
        used += (size_t)sprintf(text + used, "\"}]}}\n");
    }
    scratch_file("rows.jsonl", text);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) make_model(i, draw(2, 10), 128 * draw(1, 4), 64 * draw(4, 20), draw(300, 9000));
    make_model(N_MODELS, 16, 1024, 2816, 8192);
    make_rows();
    return 0;
}

/* ---- what a run says ---- */

static json_t *event_of(const program_run *run, const char *name) {
    char *text = strdup(run->err), *at = text;
    json_t *found = NULL;
    for (char *line; !found && (line = strsep(&at, "\n"));) {
        json_t *object = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(object, "event"));
        if (event && strcmp(event, name) == 0) found = json_incref(object);
        json_decref(object);
    }
    free(text);
    return found;
}

static long long number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) fail_msg("no %s", key);
    return json_integer_value(value);
}

/* The budget that the message of a smaller one asks for, in MB. */
static unsigned least_memory(const char *options) {
    char args[400];
    snprintf(args, sizeof args, "run --memory 1M %s %s/rows.jsonl -o -", options, scratch_dir());
    program_run run = run_spill(args, NULL);
    const char *at = strstr(run.err, "give --memory ");
    unsigned megabytes = 0;
    if (!at || sscanf(at, "give --memory %uM", &megabytes) != 1) fail_msg("%s: no budget in: %s", args, run.err);
    program_run_free(&run);
    return megabytes;
}

static void check_run(const program_run *run, const char *what, unsigned megabytes) {
    /* 3: a row may be too long for the least of budgets */
    if (run->status != 0 && run->status != 3) fail_msg("%s: status %d, %s", what, run->status, run->err);
    json_t *plan = event_of(run, "plan"), *done = event_of(run, "done");
    assert_true(plan && done);
    long long peak = number(done, "peak_rss_bytes");
    long long planned = number(plan, "ring_bytes") + number(plan, "pinned_bytes") + number(plan, "activation_bytes") +
                        number(plan, "kv_bytes");
    if (peak > (long long)megabytes << 20) fail_msg("%s: peak %lld, budget %uM", what, peak, megabytes);
    if (peak > planned + PROGRAM_BYTES) fail_msg("%s: peak %lld, %lld planned", what, peak, planned);
    json_decref(plan);
    json_decref(done);
}

static void no_plan_is_exceeded(void **state) {
    (void)state;
    static const char *const placements[] = {"auto", "stream", "stream"};
    for (int i = 0; i < N_PLANS; i++) {
        char options[200], args[500];
        snprintf(options, sizeof options, "--json --placement %s --rows %u --threads 2 %s/m%u", placements[draw(0, 2)],
                 draw(1, N_ROWS), scratch_dir(), draw(0, N_MODELS - 1));
        unsigned megabytes = least_memory(options) + draw(0, 1) * draw(0, 100);
        snprintf(args, sizeof args, "run --memory %uM %s %s/rows.jsonl -o -", megabytes, options, scratch_dir());
        program_run run = run_spill(args, NULL);
        check_run(&run, args, megabytes);
        program_run_free(&run);
    }
}

/* Nothing is known of the machine yet, and the job is worth an estimate: measuring has no budget of its own. */
static void a_first_run_keeps_its_budget(void **state) {
    (void)state;
    char command[600];
    snprintf(
        command, sizeof command,
        "for i in $(seq 60); do echo \"{\\\"prompt\\\":\\\"name $i\\\",\\\"max_tokens\\\":300}\"; done "
        ">%s/first.jsonl; "
        "SPILL_HOME=\"$SPILL_HOME/first\" $SPILL run --memory %uM --json --rows 1 models/fields %s/first.jsonl -o -",
        scratch_dir(), FIRST_RUN_MB, scratch_dir());
    program_run run = run_shell(command, NULL);
    check_run(&run, "a first run", FIRST_RUN_MB);
    program_run_free(&run);
}

/* ---- a long row ---- */

/* 20 MB of one letter are one word of as many symbols: program, text, word and answer fit in 500 MB of addresses. */
static void a_long_word_takes_little(void **state) {
    (void)state;
    program_run run = run_shell(
        "{ printf '{\"prompt\":\"'; head -c 20000000 /dev/zero | tr '\\0' a; echo '\"}'; } >"
        "\"$SPILL_HOME/long.jsonl\" && ulimit -v 500000 && "
        "exec \"$SPILL\" tokenize models/fields \"$SPILL_HOME/long.jsonl\" >/dev/null",
        NULL);
    if (run.status != 0) fail_msg("status %d, %s", run.status, run.err);
    program_run_free(&run);
}

/* ---- a real limit ---- */

/* A new cgroup with this limit, by its path; NULL where none can be made. */
static const char *make_cgroup(unsigned long long limit_bytes) {
    static char path[100];
    static const struct {
        const char *parent, *limit_file;
    } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}};
    for (size_t i = 0; i < 2; i++) {
        char file[200];
        snprintf(path, sizeof path, "%s/spill-test-%d", kinds[i].parent, (int)getpid());
        if (mkdir(path, 0700) != 0) continue;
        snprintf(file, sizeof file, "%s/%s", path, kinds[i].limit_file);
        FILE *limit = fopen(file, "r+");
        int written = limit ? fprintf(limit, "%llu\n", limit_bytes) : -1;
        if (limit && fclose(limit) == 0 && written > 0) return path;
        rmdir(path);
    }
    return NULL;
}

static void a_cgroup_kills_nothing(void **state) {
    (void)state;
    char options[200], command[800];
    snprintf(options, sizeof options, "--json --placement stream --threads 2 %s/m%d", scratch_dir(), N_MODELS);
    unsigned megabytes = least_memory(options) + 40;
    const char *cgroup = make_cgroup((unsigned long long)megabytes * 105 / 100 << 20);
    if (!cgroup) {
        print_message("no cgroup can be made here\n");
        skip();
    }
    snprintf(command, sizeof command, "echo $$ >%s/cgroup.procs && exec $SPILL run --memory %uM %s %s/rows.jsonl -o -",
             cgroup, megabytes, options, scratch_dir());
    program_run run = run_shell(command, NULL);
    rmdir(cgroup);
    check_run(&run, command, megabytes);
    program_run_free(&run);
}

/* ---- the tail ---- */

/* Eight rows of one length, no two of which begin alike, that end one after the other, the last long after the others.
 */
static void make_tail_rows(void) {
    static char text[1 << 13], prompt[401];
    memset(prompt, 'a', sizeof prompt - 1);
    size_t used = 0;
    for (int i = 0; i < 8; i++)
        used +=
            (size_t)sprintf(text + used, "{\"prompt\":\"%d%s\",\"max_tokens\":%d}\n", i, prompt, i == 7 ? 40 : 12 + i);
    scratch_file("tail.jsonl", text);
}

/* Mean of bytes_read over passes of so many rows, the first aside; 0 when there is none. */
static double mean_read(const program_run *run, long long min_rows, long long max_rows) {
    double sum = 0, n = 0;
    char *text = strdup(run->err), *at = text;
    for (char *line; (line = strsep(&at, "\n"));) {
        json_t *object = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(object, "event"));
        bool is_pass = event && strcmp(event, "pass") == 0 && number(object, "pass") > 1;
        if (is_pass && number(object, "rows") >= min_rows && number(object, "rows") <= max_rows) {
            sum += (double)number(object, "bytes_read");
            n++;
        }
        json_decref(object);
    }
    free(text);
    return n > 0 ? sum / n : 0;
}

static void the_tail_of_a_job_reads_less(void **state) {
    (void)state;
    make_tail_rows();
    char options[200], args[400];
    snprintf(options, sizeof options, "--json --placement stream --threads 2 %s/m%d", scratch_dir(), N_MODELS);
    unsigned megabytes = least_memory(options) + 170;
    snprintf(args, sizeof args, "run --memory %uM %s %s/tail.jsonl -o -", megabytes, options, scratch_dir());
    program_run run = run_spill(args, NULL);
    check_run(&run, args, megabytes);
    json_t *plan = event_of(&run, "plan");
    assert_true(number(plan, "pinned_layers") < 10 && number(plan, "rows") > 3);
    double full = mean_read(&run, 4, 8), tail = mean_read(&run, 1, 1);
    if (full == 0 || tail == 0 || tail > 0.95 * full) fail_msg("%.0f bytes read a pass, %.0f at the end", full, tail);
    json_decref(plan);
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plan_is_exceeded),          cmocka_unit_test(a_first_run_keeps_its_budget),
        cmocka_unit_test(a_long_word_takes_little),     cmocka_unit_test(a_cgroup_kills_nothing),
        cmocka_unit_test(the_tail_of_a_job_reads_less),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
