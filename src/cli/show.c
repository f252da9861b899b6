/* The live block, plain lines and JSON events of a run.
 *
 * The block is redrawn in place, at most ten times a second:
 *
 *   rows    12 done, 32 in flight of 48            2 errors
 *   tokens  1,234 new (212/s), 9,800 prompt        pass 34: 0.15 s
 *   memory  1.2 GB   read 1.90 GB/s, 97% of the drive's, waited 2%
 *   time    42 s so far, 1 m 02 s - 1 m 10 s to go
 *     capital     The capital of France is Par
 *     haiku       Waves upon the shore
 */
#include "cli/show.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "cli/opts.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/size.h"
#include "util/units.h"
#include "util/utf8.h"

enum { REDRAW_NS = 100000000, PLAIN_EVERY_S = 30, SHOWN_ROWS = 4, NAME_COLUMNS = 14, BLOCK_LINES = 4 + SHOWN_ROWS };

struct sp_show {
    sp_show_style style;
    size_t n_lines; /* of the block on screen */
    size_t widths[BLOCK_LINES];
    uint64_t drawn_ns;
    double plain_s; /* when the last plain line was printed */
    size_t columns;
    double disk_bps; /* the drive's, measured; 0: not known */
};

sp_show *sp_show_new(sp_show_style style) {
    sp_show *show = calloc(1, sizeof *show);
    SP_CHECK(show != NULL);
    show->style = style == SP_SHOW_LIVE && !isatty(STDERR_FILENO) ? SP_SHOW_PLAIN : style;
    return show;
}

void sp_show_free(sp_show *show) { free(show); }

static size_t terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* How much of a line goes into room columns: up to its last comma, for "1 m 02 s" stays together, else all of it. */
static size_t fold_at(const char *text, size_t room) {
    size_t at = strlen(text);
    if (at <= room) return at;
    for (size_t i = 1; i <= room; i++)
        if (text[i] == ' ' && strchr(",;:", text[i - 1])) at = i;
    return at;
}

/* The plan's lines, control bytes escaped: a model's name is a path's, and so anybody's. On a terminal that is too
 * narrow for one, its rest is indented below. */
static void plan_lines(FILE *to, const char *lines) {
    enum { INDENT = 6, MIN_COLUMNS = 40 };
    struct winsize size;
    bool folds = isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col >= MIN_COLUMNS;
    char shown[2048];
    for (size_t n_bytes; *lines; lines += n_bytes + (lines[n_bytes] == '\n')) {
        n_bytes = strcspn(lines, "\n");
        const char *at = sp_printable(lines, n_bytes, shown, sizeof shown);
        for (int indent = 0; folds && strlen(at) + (size_t)indent > size.ws_col; indent = INDENT) {
            size_t n = fold_at(at, size.ws_col - (size_t)indent);
            if (!at[n]) break;
            fprintf(to, "%*s%.*s\n", indent, "", (int)n, at);
            at += n + 1;
        }
        fprintf(to, "%*s%s\n", at == shown ? 0 : INDENT, "", at);
    }
}

static void clear(sp_show *show) {
    if (show->style != SP_SHOW_LIVE) return;
    size_t columns = terminal_columns();
    fputs("\r\033[2K", stderr);            /* what a signal left below it: ^C, what cmd_run.c says of it */
    for (; show->n_lines; show->n_lines--) /* a terminal that was made narrower since has folded the line */
        for (size_t i = 0; i < sp_max_size(1, sp_div_up(show->widths[show->n_lines - 1], columns)); i++)
            fputs("\033[A\033[2K", stderr);
    fflush(stderr);
}

/* ---- JSON events ---- */

/* One event a line, written at once. Takes the object. */
static void emit(json_t *event) {
    char *text = event ? json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(event);
}

json_t *sp_show_plan_json(const sp_job_info *info) {
    json_t *plan = sp_plan_json(info->model, info->machine, info->request, info->plan);
    json_t *bad = json_pack("{s:I,s:I,s:I}", "rows_known", (json_int_t)info->n_rows_known, "bad_rows",
                            (json_int_t)info->n_bad_known, "first_bad_line", (json_int_t)info->first_bad_line);
    if (plan && bad) json_object_update(plan, bad);
    json_decref(bad);
    return plan;
}

void sp_show_plan(FILE *to, const sp_job_info *info) {
    sp_buf text = {0};
    sp_plan_text(info->model, info->machine, info->request, info->plan, &text);
    if (text.data) plan_lines(to, text.data);
    sp_buf_clear(&text);
    if (sp_plan_warning(info->machine, info->request, info->plan, &text) && text.n_bytes)
        fprintf(to, "warning: %.*s\n", (int)text.n_bytes, text.data);
    sp_buf_deinit(&text);
    if (info->n_bad_known)
        fprintf(to, "rows: %zu of the %s%zu will be error%s, the first at line %zu; spill check tells more\n",
                info->n_bad_known, info->all_rows_known ? "" : "first ", info->n_rows_known,
                sp_units_s(info->n_bad_known), info->first_bad_line);
}

static void emit_plan(const sp_job_info *info) {
    json_t *event = json_pack("{s:s,s:s,s:s,s:o,s:s}", "event", "plan", "run", info->run_id, "model", info->model->name,
                              "results", sp_json_text(info->results_path), "isa", info->isa);
    json_t *plan = sp_show_plan_json(info);
    if (event && plan) json_object_update(event, plan);
    json_decref(plan);
    emit(event);
}

static void emit_pass(const sp_job_progress *progress) {
    const sp_batch_pass *pass = progress->pass;
    const sp_estimate *left = &progress->left;
    double seconds = (double)pass->pass.ns / 1e9;
    emit(json_pack("{s:s,s:I,s:f,s:I,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:{s:f,s:f,s:f}}", "event", "pass", "pass",
                   (json_int_t)pass->i_pass, "seconds", seconds, "bytes_read", (json_int_t)pass->pass.bytes_read,
                   "read_bps", seconds > 0 ? (double)pass->pass.bytes_read / seconds : 0.0, "wait_seconds",
                   (double)pass->pass.wait_ns / 1e9, "boundary_wait_seconds", (double)pass->pass.boundary_wait_ns / 1e9,
                   "rows", (json_int_t)pass->n_rows, "prefill_tokens", (json_int_t)pass->prefill_tokens,
                   "decode_tokens", (json_int_t)pass->decode_tokens, "rss_bytes", (json_int_t)progress->rss_bytes,
                   "eta_seconds", "low", left->low_s, "likely", left->likely_s, "high", left->high_s));
}

static void emit_row(const sp_job_row *row) {
    json_t *event = json_pack("{s:s,s:s,s:I,s:s?}", "event", "row", "custom_id", row->custom_id, "tokens",
                              (json_int_t)row->n_tokens, "finish_reason", row->finish_reason);
    if (event && row->error_message) json_object_set_new(event, "error", json_string(row->error_message));
    emit(event);
}

static void emit_done(const sp_job_result *result) {
    json_t *event = json_pack("{s:s,s:s,s:b,s:I,s:I,s:I,s:I,s:f,s:I,s:f,s:f,s:I,s:f,s:o}", "event", "done", "run",
                              result->run_id, "stopped", (int)result->stopped, "rows", (json_int_t)result->n_done,
                              "errors", (json_int_t)result->n_errors, "prompt_tokens",
                              (json_int_t)result->prompt_tokens, "tokens", (json_int_t)result->new_tokens, "seconds",
                              result->seconds, "bytes_read", (json_int_t)result->bytes_read, "read_bps",
                              result->seconds > 0 ? (double)result->bytes_read / result->seconds : 0.0, "wait_seconds",
                              (double)result->wait_ns / 1e9, "peak_rss_bytes", (json_int_t)result->peak_rss_bytes,
                              "estimate_seconds", result->estimate_s, "results", sp_json_text(result->results_path));
    if (event && result->was_resumed)
        json_object_set_new(event, "rows_before", json_integer((json_int_t)result->n_before));
    if (event && result->n_expected)
        json_object_set_new(
            event, "expected",
            json_pack("{s:I,s:I}", "rows", (json_int_t)result->n_expected, "matched", (json_int_t)result->n_matched));
    emit(event);
}

/* ---- the block ---- */

/* Prints one line of the block, cut at the terminal's width. */
static void block_line(sp_show *show, const char *text, size_t n_bytes) {
    size_t used = 0, at = 0;
    while (at < n_bytes) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n_bytes - at), &c);
        if (n <= 0) break;
        int width = utf8proc_charwidth(c);
        if (used + (size_t)(width > 0 ? width : 0) >= show->columns) break;
        used += (size_t)(width > 0 ? width : 0);
        at += (size_t)n;
    }
    fprintf(stderr, "%.*s\n", (int)at, text);
    show->widths[show->n_lines++] = used;
}

static void SP_PRINTF(2, 3) block_printf(sp_show *show, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    block_line(show, text, n > 0 ? strnlen(text, sizeof text) : 0);
}

/* The end of a row's text, on one line, safe to print. */
static void block_row(sp_show *show, const sp_row *row) {
    size_t room = show->columns > NAME_COLUMNS + 6 ? show->columns - NAME_COLUMNS - 4 : 1;
    size_t n = row->text.n_bytes, from = n > room ? n - room : 0;
    const char *text = row->text.data ? row->text.data : "";
    while (from < n && sp_utf8_continues(text[from])) from++;
    char plain[1024], shown[1024], name[64];
    size_t n_plain = 0;
    for (size_t i = from; i < n && n_plain < sizeof plain; i++)
        plain[n_plain++] = text[i] == '\n' || text[i] == '\t' ? ' ' : text[i];
    sp_printable(plain, n_plain, shown, sizeof shown);
    sp_printable(row->request.custom_id, strlen(row->request.custom_id), name, NAME_COLUMNS + 4);
    block_printf(show, "  %-*s  %s%s", NAME_COLUMNS, name,
                 row->n_new == 0 ? "(reading the prompt)"
                 : from          ? "..."
                                 : "",
                 shown);
}

/* " of 64", ", 1 m 02 s - 1 m 10 s to go": each empty if it is not known. */
static void tell_rest(const sp_job_progress *progress, char total[32], char left[96]) {
    char low[SP_UNITS_BYTES], high[SP_UNITS_BYTES];
    total[0] = left[0] = '\0';
    if (progress->all_rows_known) snprintf(total, 32, " of %zu", progress->n_rows_known);
    if (progress->left.high_s > 0)
        snprintf(left, 96, ", %s - %s to go", sp_units_time(progress->left.low_s, low),
                 sp_units_time(progress->left.high_s, high));
}

static void draw_block(sp_show *show, const sp_job_progress *progress) {
    char total[32], new_tokens[32], prompt_tokens[32], memory[32], elapsed[32], left[96];
    const sp_pass_stats *pass = &progress->pass->pass;
    double seconds = progress->seconds > 0 ? progress->seconds : 1e-9, pass_s = (double)pass->ns / 1e9;
    tell_rest(progress, total, left);
    clear(show);
    show->columns = terminal_columns();
    block_printf(show, "rows    %zu done, %zu in flight%s   %zu error%s", progress->n_done, progress->n_running, total,
                 progress->n_errors, sp_units_s(progress->n_errors));
    block_printf(show, "tokens  %s new (%.1f/s), %s prompt   pass %llu: %.3f s",
                 sp_units_count(progress->new_tokens, new_tokens), (double)progress->new_tokens / seconds,
                 sp_units_count(progress->prompt_tokens, prompt_tokens), (unsigned long long)progress->pass->i_pass,
                 pass_s);
    sp_units_bytes(progress->rss_bytes, memory);
    if (pass->bytes_read && pass_s > 0) {
        double read_bps = (double)pass->bytes_read / pass_s;
        char share[40] = "";
        if (show->disk_bps > 0)
            snprintf(share, sizeof share, ", %.0f%% of the drive's", 100.0 * read_bps / show->disk_bps);
        block_printf(show, "memory  %s   read %.2f GB/s%s, waited %.0f%%", memory, read_bps / 1e9, share,
                     100.0 * (double)pass->wait_ns / (double)pass->ns);
    } else {
        block_printf(show, "memory  %s", memory);
    }
    block_printf(show, "time    %s so far%s", sp_units_time(seconds, elapsed), left);
    for (size_t i = 0; i < progress->n_running && i < SHOWN_ROWS; i++) block_row(show, progress->running[i]);
    fflush(stderr);
}

/* ---- events ---- */

static void on_plan(void *ctx, const sp_job_info *info) {
    sp_show *show = ctx;
    show->disk_bps = info->machine->disk_bps;
    if (show->style == SP_SHOW_JSON) emit_plan(info);
    if (show->style != SP_SHOW_LIVE && show->style != SP_SHOW_PLAIN) return;
    clear(show);
    sp_show_plan(stderr, info);
    if (show->style != SP_SHOW_LIVE) return;
    show->columns = terminal_columns();
    block_printf(show, "first pass: reading the prompts of up to %zu row%s", info->plan->rows,
                 sp_units_s(info->plan->rows));
    fflush(stderr);
}

static void on_pass(void *ctx, const sp_job_progress *progress) {
    sp_show *show = ctx;
    if (show->style == SP_SHOW_JSON) emit_pass(progress);
    if (show->style == SP_SHOW_LIVE) {
        uint64_t now = sp_clock_ns();
        if (now - show->drawn_ns < REDRAW_NS) return;
        draw_block(show, progress);
        show->drawn_ns = now;
    }
    if (show->style == SP_SHOW_PLAIN && progress->seconds - show->plain_s >= PLAIN_EVERY_S) {
        char total[32], left[96], tokens[SP_UNITS_BYTES];
        show->plain_s = progress->seconds;
        tell_rest(progress, total, left);
        fprintf(stderr, "%zu%s row%s done, %zu in flight, %s new tokens (%.1f/s)%s\n", progress->n_done, total,
                sp_units_s(*total ? progress->n_rows_known : progress->n_done), progress->n_running,
                sp_units_count(progress->new_tokens, tokens), (double)progress->new_tokens / progress->seconds, left);
    }
}

static void on_row(void *ctx, const sp_job_row *event) {
    sp_show *show = ctx;
    if (show->style == SP_SHOW_JSON) emit_row(event);
}

sp_job_events sp_show_events(sp_show *show) {
    return (sp_job_events){.ctx = show, .planned = on_plan, .passed = on_pass, .row = on_row};
}

void sp_show_end(sp_show *show, const sp_job_result *result) {
    clear(show);
    if (show->style == SP_SHOW_JSON) {
        emit_done(result);
        return;
    }
    char tokens[32], time[32], memory[32], scored[64] = "", before[64] = "", next[80] = "", path[280];
    sp_printable(result->results_path, strlen(result->results_path), path, sizeof path);
    if (result->was_complete) {
        fprintf(stderr, "complete already: %zu row%s (%zu error%s), nothing to do; results: %s\n", result->n_done,
                sp_units_s(result->n_done), result->n_errors, sp_units_s(result->n_errors), path);
        return;
    }
    if (result->n_before) snprintf(before, sizeof before, ", %zu of them from before", result->n_before);
    if (result->stopped && result->has_no_file)
        snprintf(next, sizeof next, "; no regular file, the run cannot be continued");
    else if (result->stopped && *result->run_id)
        snprintf(next, sizeof next, "; continue with spill resume %s", result->run_id);
    if (result->n_expected)
        snprintf(scored, sizeof scored, ", %zu of %zu as expected (%.1f%%)", result->n_matched, result->n_expected,
                 100.0 * (double)result->n_matched / (double)result->n_expected);
    fprintf(stderr, "%s: %zu row%s (%zu error%s)%s, %s new token%s in %s (%.1f/s), peak %s\nresults: %s%s%s\n",
            result->stopped ? "stopped" : "done", result->n_done, sp_units_s(result->n_done), result->n_errors,
            sp_units_s(result->n_errors), before, sp_units_count(result->new_tokens, tokens),
            sp_units_s(result->new_tokens), sp_units_time(result->seconds, time),
            result->seconds > 0 ? (double)result->new_tokens / result->seconds : 0.0,
            sp_units_bytes(result->peak_rss_bytes, memory), path, scored, next);
}

void sp_show_fail(sp_show *show, const sp_error *err) {
    clear(show);
    if (show->style != SP_SHOW_JSON) {
        sp_cli_fail(err);
        return;
    }
    emit(json_pack("{s:s,s:s,s:i}", "event", "error", "message", err->text, "status", sp_cli_status(err)));
}
