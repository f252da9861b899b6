/* Failure kit: jobs that are killed, interrupted, refused space or torn at random moments, continued until they end,
 * and compared with an undisturbed run: no row lost, none doubled, no byte different.
 *
 *     check_failures [--kills N] [--seed S] [--model DIR]
 *
 * Ends with a line of what was done, and "N passed, N failed". SPILL names the program, SPILL_WRITE_FAULTS the library
 * of faults (write_faults.c), without which drives do not fail. The seed is printed; all choices follow from it, but
 * when a kill lands is the machine's affair. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

static uint64_t seed = 1, state;
static size_t n_passed, n_failed;
static const char *model = "models/fields";

/* xorshift64* */
static uint64_t random_bits(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1dull) >> 16;
}

static size_t random_below(size_t n) { return (size_t)(random_bits() % n); }

static void verdict(bool good, const char *what) {
    n_passed += good;
    n_failed += !good;
    if (!good) printf("FAILED: %s\n", what);
}

/* ---- rows, and comparing results ---- */

static void write_rows(const char *name, size_t n_rows, size_t tokens) {
    char *text = calloc(1, n_rows * 400);
    size_t used = 0;
    for (size_t i = 0; i < n_rows; i++)
        used += (size_t)sprintf(text + used,
                                "{\"custom_id\":\"r%zu\",\"prompt\":\"%zu lamps for Ms Weiss\",\"max_tokens\":%zu,"
                                "\"temperature\":%s%s%s}\n%s",
                                i % 60 == 59 ? i - 1 : i, i, 3 + i * 37 % tokens, i % 3 ? "9" : "0",
                                i % 4 ? "" : ",\"logprobs\":true,\"top_logprobs\":2", i % 5 ? "" : ",\"stop\":[\"er\"]",
                                i % 40 == 39 ? "{\"prompt\":0}\n\n" : "");
    scratch_file(name, text);
    free(text);
}

static json_t *read_results(const char *name) {
    char command[700];
    snprintf(command, sizeof command, "cat $SPILL_HOME/%s", name);
    program_run run = run_shell(command, NULL);
    json_t *lines = result_lines(run.out); /* ends the process on a doubled row or a line that is torn */
    program_run_free(&run);
    return lines;
}

/* How many rows of want are missing in got, or different. */
static size_t n_different(json_t *want, json_t *got) {
    const char *id;
    json_t *line;
    size_t n = json_object_size(got) != json_object_size(want);
    json_object_foreach(want, id, line) {
        const json_t *other = json_object_get(got, id);
        char *one = result_body(line), *two = result_body(other);
        n += one ? !two || strcmp(one, two) != 0
                 : !other || two || !json_equal(json_object_get(line, "error"), json_object_get(other, "error"));
        free(one);
        free(two);
    }
    return n;
}

static void expect_same(json_t *want, const char *name, const char *what) {
    json_t *got = read_results(name);
    size_t n = n_different(want, got);
    if (n) printf("%s: %zu of %zu rows differ\n", what, n, json_object_size(want));
    verdict(n == 0, what);
    json_decref(got);
}

/* ---- kills ---- */

typedef struct {
    const char *name, *options, *rows;
} job_kind;

/* Runs a command and sends it a signal after delay_us; its exit status, 128 + signal when that ended it. */
static int run_and_signal(const char *command, useconds_t delay_us, int signal_number) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    usleep(delay_us);
    kill(pid, signal_number);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether the last life's stderr holds that. */
static bool said(const char *text) {
    program_run run = run_shell("cat $SPILL_HOME/said", NULL);
    bool has = strstr(run.out, text) != NULL;
    program_run_free(&run);
    return has;
}

/* One job through its life, with at most n_kills kills; returns how many it had. */
static size_t kill_job(const job_kind *kind, size_t i_job, size_t n_kills, useconds_t span_us, json_t *want) {
    char output[64], command[800], what[200];
    size_t n_done = 0, n_soft = 0;
    snprintf(output, sizeof output, "out%zu", i_job);
    for (size_t i_life = 0;; i_life++) {
        const char *how = i_life > 0 && random_below(3) == 0 ? "resume" : "run";
        snprintf(command, sizeof command, "exec \"$SPILL\" %s --quiet %s --rows %zu %s%s%s%s%s 2>$SPILL_HOME/said", how,
                 kind->options, 1 + random_below(40), *how == 'r' && how[1] == 'u' ? model : "",
                 how[1] == 'u' ? " $SPILL_HOME/" : "", how[1] == 'u' ? kind->rows : "",
                 how[1] == 'u' ? " -o $SPILL_HOME/" : "", how[1] == 'u' ? output : "");
        bool is_last = n_done >= n_kills;
        int number = random_below(5) ? SIGKILL : random_below(2) ? SIGINT : SIGTERM;
        useconds_t delay = 10000 + (useconds_t)random_below(span_us);
        int status = is_last ? run_and_signal(command, 0, 0) : run_and_signal(command, delay, number);
        bool was_killed = status == 128 + SIGKILL, was_stopped = status == 75 || status == 128 + number;
        n_done += was_killed;
        n_soft += was_stopped && !was_killed;
        /* resume has nothing to go on with when every life ended before there was a job */
        bool is_early = status == 2 && how[1] == 'e' && said("no unfinished job found");
        if (was_killed || was_stopped || is_early) continue;
        snprintf(what, sizeof what, "%s job, %zu kills, %zu signals, status %d", kind->name, n_done, n_soft, status);
        verdict(status == 0 || status == 3, what);
        expect_same(want, output, what);
        printf("%s\n", what);
        return n_done;
    }
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check_kills(size_t n_kills) {
    static const job_kind kinds[] = {
        {"resident", "--placement resident", "long.jsonl"},
        {"streamed", "--placement stream", "long.jsonl"},
        {"one thread", "--threads 1", "short.jsonl"},
    };
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    write_rows("long.jsonl", 300, 300);
    write_rows("short.jsonl", 1500, 12);
    json_t *want[N_KINDS];
    useconds_t spans[N_KINDS];
    for (size_t i = 0; i < N_KINDS; i++) {
        char command[600];
        double start_s = seconds_now();
        snprintf(command, sizeof command, "\"$SPILL\" run --quiet %s %s $SPILL_HOME/%s >$SPILL_HOME/want%zu",
                 kinds[i].options, model, kinds[i].rows, i);
        program_run run = run_shell(command, NULL);
        verdict(run.status == 3, "an undisturbed run");
        program_run_free(&run);
        spans[i] = (useconds_t)(50000 + 1e6 * (seconds_now() - start_s) / 8);
        snprintf(command, sizeof command, "want%zu", i);
        want[i] = read_results(command);
    }
    size_t n_done = 0;
    for (size_t i = 0; n_done < n_kills; i++) {
        size_t k = i % N_KINDS, quota = n_kills - n_done < 12 ? n_kills - n_done : 12;
        n_done += kill_job(&kinds[k], i, quota, spans[k], want[k]);
    }
    for (size_t i = 0; i < N_KINDS; i++) json_decref(want[i]);
    printf("%zu kills over jobs resident and streamed\n", n_done);
}

/* ---- the drive ---- */

/* The command with fault number i; the next run without it must give all. False once the fault lies beyond the end. */
static bool check_fault(const char *fault, size_t i, json_t *want) {
    char command[900], what[200];
    snprintf(command, sizeof command,
             "rm -rf $SPILL_HOME/runs $SPILL_HOME/fault; LD_PRELOAD=$SPILL_WRITE_FAULTS SPILL_WRITE_FAULT=%s:%zu "
             "exec \"$SPILL\" run --quiet --rows 4 %s $SPILL_HOME/few.jsonl -o $SPILL_HOME/fault",
             fault, i, model);
    program_run run = run_shell(command, NULL);
    bool was_ended = run.status != 3, is_kill = *fault == 'k';
    const char *line_end = strchr(run.err, '\n');
    bool is_clear = is_kill ? run.status == 128 + SIGKILL : run.status == 1 && line_end && !line_end[1];
    const char *want_text = *fault == 'f' ? "No space left on device" : *fault == 'e' ? "Input/output error" : "";
    snprintf(what, sizeof what, "%s at %zu: status %d, %.90s", fault, i, run.status, run.err);
    verdict(!was_ended || (is_clear && strstr(run.err, want_text)), what);
    program_run_free(&run);
    run = run_shell(
        "for i in 1 2; do \"$SPILL\" run --quiet $M $SPILL_HOME/few.jsonl -o $SPILL_HOME/fault || s=$?; done;"
        "exit $s",
        NULL);
    if (run.status != 3) printf("%s: then status %d, %.200s\n", what, run.status, run.err);
    verdict(run.status == 3, what);
    program_run_free(&run);
    expect_same(want, "fault", what);
    return was_ended;
}

/* What was written cannot be brought to the drive, which is found out in the background. */
static void check_late_sync(void) {
    json_t *want = read_results("want0");
    program_run run = run_shell(
        "LD_PRELOAD=$SPILL_WRITE_FAULTS SPILL_WRITE_FAULT=late:1 exec \"$SPILL\" run --quiet "
        "--rows 1 $M $SPILL_HOME/long.jsonl -o $SPILL_HOME/late",
        NULL);
    bool is_told = run.status == 1 && strstr(run.err, "syncing results: Input/output error");
    if (!is_told) printf("late sync: status %d, %.300s\n", run.status, run.err);
    verdict(is_told, "a sync that fails late");
    program_run_free(&run);
    run = run_shell("exec \"$SPILL\" run --quiet $M $SPILL_HOME/long.jsonl -o $SPILL_HOME/late", NULL);
    verdict(run.status == 3, "after a sync that failed late");
    program_run_free(&run);
    expect_same(want, "late", "a sync that fails late");
    json_decref(want);
}

static void check_drive(void) {
    static const char *const faults[] = {"full", "error", "kill"};
    if (!getenv("SPILL_WRITE_FAULTS")) return;
    write_rows("few.jsonl", 45, 60);
    setenv("M", model, 1);
    program_run run = run_shell("\"$SPILL\" run --quiet $M $SPILL_HOME/few.jsonl >$SPILL_HOME/few", NULL);
    verdict(run.status == 3, "an undisturbed run");
    program_run_free(&run);
    json_t *want = read_results("few");
    size_t n = 0;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 1; check_fault(faults[k], i, want); n++) i += i < 12 ? 1 : 5 + random_below(20);
    check_fault("short", 1, want);
    printf("%zu faults of the drive\n", n);
    check_late_sync();
    run = run_shell(
        "LD_PRELOAD=$SPILL_WRITE_FAULTS SPILL_CLOCK=jump; export LD_PRELOAD SPILL_CLOCK; i=0;"
        "until [ $i = 4 ]; do i=$((i+1)); \"$SPILL\" run --quiet --rows 2 --time-limit 0.2s $M "
        "$SPILL_HOME/few.jsonl -o $SPILL_HOME/clock; done;"
        "\"$SPILL\" run --quiet $M $SPILL_HOME/few.jsonl -o $SPILL_HOME/clock",
        NULL);
    verdict(run.status == 3, "clock jumps");
    program_run_free(&run);
    expect_same(want, "clock", "clock jumps");
    json_decref(want);
}

/* A file system of n kilobytes that runs full, is given room, and so on; as root alone. */
static void check_full_disk(void) {
    char disk[300], options[64];
    if (geteuid() != 0 || !getenv("SPILL_WRITE_FAULTS")) {
        printf("full disk: skipped, only root can mount one\n");
        return;
    }
    snprintf(disk, sizeof disk, "%s/disk", scratch_dir());
    if (mkdir(disk, 0777) != 0 || mount("tmpfs", disk, "tmpfs", 0, "size=4k") != 0) {
        printf("full disk: skipped, mount: %s\n", strerror(errno));
        return;
    }
    json_t *want = read_results("few");
    size_t n_full = 0;
    int status = 1;
    for (size_t kilobytes = 4; status != 3 && kilobytes < 2000; kilobytes += 8) {
        snprintf(options, sizeof options, "size=%zuk", kilobytes);
        if (mount("tmpfs", disk, "tmpfs", MS_REMOUNT, options) != 0) perror("remount");
        program_run run = run_shell(
            "SPILL_HOME=$SPILL_HOME/disk exec \"$SPILL\" run --quiet --rows 4 $M "
            "$SPILL_HOME/few.jsonl -o $SPILL_HOME/disk/out",
            NULL);
        status = run.status;
        bool is_full = status == 1 && strstr(run.err, "No space left on device");
        if (status != 3 && !is_full) printf("%zu kB: status %d, %.200s\n", kilobytes, status, run.err);
        verdict(status == 3 || is_full, "a full disk");
        n_full += is_full;
        program_run_free(&run);
    }
    expect_same(want, "disk/out", "a full disk");
    printf("full disk: ran full %zu times\n", n_full);
    json_decref(want);
    umount(disk);
}

int main(int argc, char **argv) {
    size_t n_kills = 12;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--kills") == 0) n_kills = strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--model") == 0) model = argv[i + 1];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    printf("seed %llu\n", (unsigned long long)seed);
    check_kills(n_kills);
    check_drive();
    check_full_disk();
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed > 0;
}
