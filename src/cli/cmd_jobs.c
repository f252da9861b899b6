/* spill status, tail, runs: what job directories tell, for people and for programs. (spill resume: cmd_run.c.) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/opts.h"
#include "jobs/history.h"
#include "util/json.h"
#include "util/units.h"

/* TAIL_ROWS: rows that were done before tail began to look; SHOWN_ROWS: of those in flight. */
enum { TAIL_ROWS = 10, TAIL_NS = 500000000, SHOWN_ROWS = 4, TEXT_BYTES = 400 };

static const char *member_text(const json_t *object, const char *section, const char *key) {
    const json_t *at = section ? json_object_get(object, section) : object;
    const char *text = json_string_value(json_object_get(at, key));
    return text ? text : "";
}

static double member_number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static uint64_t member_count(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void put_json(json_t *json) {
    json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(json);
}

/* ---- status ---- */

/* What to do next, by state. */
static void print_next(const sp_run *run) {
    static const char *const next[] = {
        [SP_RUN_RUNNING] = "follow it: spill tail",
        [SP_RUN_STOPPED] = "continue: spill resume",
        [SP_RUN_FAILED] = "continue: spill resume",
        [SP_RUN_DIED] = "continue: spill resume",
        [SP_RUN_BROKEN] = NULL,
        [SP_RUN_DONE] = NULL,
    };
    struct stat st;
    bool has_no_file = stat(run->results_path, &st) == 0 && !S_ISREG(st.st_mode);
    if (next[run->state] && has_no_file && run->state != SP_RUN_RUNNING)
        printf("  results went to no regular file: it cannot be continued\n");
    else if (next[run->state])
        printf("  %s %s\n", next[run->state], run->rundir.id);
}

static void print_progress(const json_t *progress) {
    char tokens[SP_UNITS_BYTES], prompt[SP_UNITS_BYTES], memory[SP_UNITS_BYTES], time[SP_UNITS_BYTES];
    double seconds = member_number(progress, "seconds");
    printf("  tokens   %s new (%.1f/s), %s prompt; pass %llu: %.3f s, read %.2f GB/s\n",
           sp_units_count(member_count(progress, "tokens"), tokens),
           seconds > 0 ? member_number(progress, "tokens") / seconds : 0.0,
           sp_units_count(member_count(progress, "prompt_tokens"), prompt),
           (unsigned long long)member_count(progress, "pass"), member_number(progress, "pass_seconds"),
           member_number(progress, "read_bps") / 1e9);
    printf("  memory   %s; %s so far", sp_units_bytes(member_count(progress, "rss_bytes"), memory),
           sp_units_time(seconds, time));
    const json_t *left = json_object_get(progress, "eta_seconds");
    char high[SP_UNITS_BYTES];
    if (left)
        printf(", %s - %s to go", sp_units_time(member_number(left, "low"), time),
               sp_units_time(member_number(left, "high"), high));
    putchar('\n');
}

static bool total_is_known(const sp_run *run) {
    return run->state != SP_RUN_DONE && json_is_true(json_object_get(run->progress, "all_rows_known"));
}

/* " of 60" once the input was read to its end; room for SP_UNITS_BYTES and a word. */
static const char *total_rows(const sp_run *run, char text[SP_UNITS_BYTES + 8]) {
    char count[SP_UNITS_BYTES];
    text[0] = '\0';
    if (total_is_known(run))
        snprintf(text, SP_UNITS_BYTES + 8, " of %s", sp_units_count(member_count(run->progress, "rows_known"), count));
    return text;
}

/* Rows done, and what is in flight or kept of it. */
static void print_rows(const sp_run *run) {
    char total[SP_UNITS_BYTES + 8], kept[SP_UNITS_BYTES];
    bool has_ended = run->state == SP_RUN_STOPPED || run->state == SP_RUN_FAILED;
    const json_t *from = has_ended ? json_object_get(run->manifest, "result") : run->progress;
    uint64_t n_in_flight = run->state == SP_RUN_DONE ? 0 : member_count(from, "in_flight");
    printf("  rows     %llu%s done (%llu error%s)", (unsigned long long)run->n_rows, total_rows(run, total),
           (unsigned long long)run->n_errors, sp_units_s(run->n_errors));
    if (n_in_flight) printf(", %llu in flight", (unsigned long long)n_in_flight);
    if (n_in_flight && has_ended)
        printf(" with %s tokens kept", sp_units_count(member_count(from, "kept_tokens"), kept));
    putchar('\n');
}

static void print_status(const sp_run *run) {
    char shown[300];
    const char *input = member_text(run->manifest, "input", "path");
    printf("%s  %s\n", run->rundir.id, sp_run_state_name(run->state));
    printf("  model    %s\n", sp_printable(member_text(run->manifest, "model", "path"),
                                           strlen(member_text(run->manifest, "model", "path")), shown, sizeof shown));
    printf("  input    %s\n", sp_printable(input, strlen(input), shown, sizeof shown));
    print_rows(run);
    if (run->state == SP_RUN_RUNNING && run->progress && run->is_fresh) print_progress(run->progress);
    if (run->state == SP_RUN_RUNNING && !run->is_fresh) puts("  pass     the first of this process is under way");
    printf("  results  %s\n", sp_printable(run->results_path, strlen(run->results_path), shown, sizeof shown));
    const char *error = member_text(run->manifest, NULL, "error");
    if (run->state == SP_RUN_FAILED && *error)
        printf("  error    %s\n", sp_printable(error, strlen(error), shown, sizeof shown));
    print_next(run);
}

static const char *first_arg(const sp_invocation *invocation) {
    return invocation->n_args ? invocation->args[0] : NULL;
}

int sp_cmd_status(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_run run;
    if (!sp_run_open(&run, NULL, first_arg(invocation), &err)) return sp_cli_fail(&err);
    if (invocation->options[SP_OPT_JSON].given)
        put_json(sp_run_json(&run));
    else
        print_status(&run);
    sp_run_close(&run);
    return 0;
}

/* ---- runs ---- */

static void print_row(const sp_run *run) {
    char rows[SP_UNITS_BYTES], total[SP_UNITS_BYTES + 8], counted[2 * SP_UNITS_BYTES + 8], shown[200];
    const char *model = member_text(run->manifest, "model", "name");
    uint64_t n_told = total_is_known(run) ? member_count(run->progress, "rows_known") : run->n_rows;
    snprintf(counted, sizeof counted, "%s%s", sp_units_count(run->n_rows, rows), total_rows(run, total));
    printf("%-24s %-8s %12s row%-2s ", run->rundir.id, sp_run_state_name(run->state), counted, sp_units_s(n_told));
    printf("%-20s ", sp_printable(model, strlen(model), shown, 60));
    printf("%s\n", sp_printable(run->results_path, strlen(run->results_path), shown, sizeof shown));
}

int sp_cmd_runs(const sp_invocation *invocation) {
    sp_error err = {0};
    char **ids;
    size_t n;
    if (!sp_rundir_list(NULL, &ids, &n, &err)) return sp_cli_fail(&err);
    for (size_t i = 0; i < n; i++) {
        sp_run run;
        sp_error gone = {0};
        if (!sp_run_open(&run, NULL, ids[i], &gone)) continue;
        if (invocation->options[SP_OPT_JSON].given)
            put_json(sp_run_json(&run));
        else
            print_row(&run);
        sp_run_close(&run);
    }
    sp_rundir_list_free(ids, n);
    return 0;
}

/* ---- tail ---- */

typedef struct {
    bool as_json, is_terminal;
    FILE *results;
    char *line;
    size_t room, n_line; /* a line that is not whole yet */
    size_t n_drawn;      /* lines of the block of growing text */
    double drawn_s;      /* the progress that it shows */
} tail;

static void clear_block(tail *t) {
    if (t->n_drawn) printf("\033[%zuA\033[J", t->n_drawn);
    t->n_drawn = 0;
}

/* The calls of an answer, behind what it says. */
static void print_calls(const json_t *calls, bool is_first) {
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call) {
        char name[80], arguments[TEXT_BYTES];
        const char *name_text = member_text(call, "function", "name");
        const char *arguments_text = member_text(call, "function", "arguments");
        printf("%s%s(%s)", is_first ? "" : " ", sp_printable(name_text, strlen(name_text), name, sizeof name),
               sp_printable(arguments_text, strlen(arguments_text), arguments, sizeof arguments));
        is_first = false;
    }
}

/* custom_id, how it ended, its text and calls; or its error. */
static void print_result(const tail *t, size_t n_bytes) {
    sp_error ignored = {0};
    if (t->as_json) {
        fwrite(t->line, 1, n_bytes, stdout);
        return;
    }
    json_t *line = sp_json_parse(t->line, n_bytes, "result", &ignored);
    const json_t *body = json_object_get(json_object_get(line, "response"), "body");
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    const json_t *error = json_object_get(line, "error");
    const char *text =
        json_is_object(error) ? member_text(error, NULL, "message") : member_text(choice, "message", "content");
    const char *how = json_is_object(error) ? "error" : member_text(choice, NULL, "finish_reason");
    char id[80], shown[TEXT_BYTES + 200];
    size_t n_text = strlen(text);
    sp_printable(member_text(line, NULL, "custom_id"), strlen(member_text(line, NULL, "custom_id")), id, sizeof id);
    printf("%s (%s): %s", id, how, sp_printable(text, n_text, shown, sizeof shown));
    print_calls(json_object_get(json_object_get(choice, "message"), "tool_calls"), n_text == 0);
    putchar('\n');
    json_decref(line);
}

/* Whole lines that have come; the rest of an unfinished one is kept. */
static void print_new(tail *t) {
    for (int c; (c = getc(t->results)) != EOF;) {
        if (t->n_line + 1 >= t->room) {
            t->room = t->room ? 2 * t->room : 4096;
            t->line = realloc(t->line, t->room);
            SP_CHECK(t->line != NULL);
        }
        t->line[t->n_line++] = (char)c;
        if (c != '\n') continue;
        clear_block(t);
        print_result(t, t->n_line);
        t->n_line = 0;
    }
    clearerr(t->results);
}

/* The text of rows in flight, in place, on a terminal. */
static void draw_block(tail *t, const sp_run *run) {
    if (!t->is_terminal || t->as_json || !run->progress || run->state != SP_RUN_RUNNING) return;
    if (member_number(run->progress, "seconds") == t->drawn_s && t->n_drawn) return;
    t->drawn_s = member_number(run->progress, "seconds");
    clear_block(t);
    uint64_t n_rows = member_count(run->progress, "rows");
    printf("%llu row%s done, %llu in flight\n", (unsigned long long)n_rows, sp_units_s(n_rows),
           (unsigned long long)member_count(run->progress, "in_flight"));
    const json_t *rows = json_object_get(run->progress, "running");
    size_t n = json_array_size(rows);
    for (size_t i = 0; i < n && i < SHOWN_ROWS; i++) {
        const char *text = member_text(json_array_get(rows, i), NULL, "text");
        size_t n_text = strlen(text), from = n_text > 50 ? n_text - 50 : 0;
        char shown[80], id[20];
        while (((unsigned char)text[from] & 0xc0) == 0x80) from++;
        const char *name = member_text(json_array_get(rows, i), NULL, "custom_id");
        sp_printable(name, strlen(name), id, sizeof id);
        printf("  %-14s  %s\n", id, sp_printable(text + from, n_text - from, shown, sizeof shown));
    }
    t->n_drawn = 1 + (n < SHOWN_ROWS ? n : SHOWN_ROWS);
}

/* Puts the file at its last TAIL_ROWS lines. */
static void seek_tail(FILE *file) {
    char chunk[4096];
    size_t n_lines = 0;
    if (fseeko(file, 0, SEEK_END) != 0) return;
    off_t at = ftello(file), start = 0;
    while (at > 0 && start == 0) {
        size_t n_bytes = at < (off_t)sizeof chunk ? (size_t)at : sizeof chunk;
        at -= (off_t)n_bytes;
        if (fseeko(file, at, SEEK_SET) != 0 || fread(chunk, 1, n_bytes, file) != n_bytes) break;
        for (size_t i = n_bytes; i-- > 0 && start == 0;)
            if (chunk[i] == '\n' && ++n_lines == TAIL_ROWS + 1) start = at + (off_t)i + 1;
    }
    fseeko(file, start, SEEK_SET);
}

/* What went into a pipe is its reader's: opening it here would wait for more, or take lines away from it. */
static FILE *open_results(const char *path, sp_error *err) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        sp_fail(err, SP_ERR_USAGE,
                "%s: results go to no regular file, they cannot be followed; spill status tells more", path);
        return NULL;
    }
    FILE *file = fopen(path, "re");
    if (!file) sp_fail_open(err, path);
    return file;
}

int sp_cmd_tail(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_run run;
    if (!sp_run_open(&run, NULL, first_arg(invocation), &err)) return sp_cli_fail(&err);
    tail t = {.as_json = invocation->options[SP_OPT_JSON].given,
              .is_terminal = isatty(STDOUT_FILENO),
              .results = open_results(run.results_path, &err)};
    if (!t.results) {
        sp_run_close(&run);
        return sp_cli_fail(&err);
    }
    seek_tail(t.results);
    for (;;) {
        bool is_last = run.state != SP_RUN_RUNNING; /* asked before reading: nothing comes after it */
        print_new(&t);
        draw_block(&t, &run);
        if (is_last || fflush(stdout) != 0) break;
        nanosleep(&(struct timespec){.tv_nsec = TAIL_NS}, NULL);
        sp_run_refresh(&run);
    }
    clear_block(&t);
    fflush(stdout); /* what erases the block, before a line that it would erase */
    if (!t.as_json)
        fprintf(stderr, "%s: %s, %llu row%s\n", run.rundir.id, sp_run_state_name(run.state),
                (unsigned long long)run.n_rows, sp_units_s(run.n_rows));
    fclose(t.results);
    free(t.line);
    sp_run_close(&run);
    return 0;
}
