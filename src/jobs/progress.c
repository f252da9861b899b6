/* progress.json. */
#include "jobs/progress.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/json.h"
#include "util/size.h"

/* SHOWN_ROWS rows with the last SHOWN_BYTES of their text: what a screen holds. */
enum { WRITE_NS = 1000000000, SHOWN_ROWS = 16, SHOWN_BYTES = 400 };

static json_t *row_json(const sp_row *row) {
    const char *text = row->text.data ? row->text.data : "";
    size_t n_bytes = row->text.n_bytes, from = n_bytes > SHOWN_BYTES ? n_bytes - SHOWN_BYTES : 0;
    while (from < n_bytes && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
    return json_pack("{s:s,s:I,s:o}", "custom_id", row->request.custom_id, "tokens", (json_int_t)row->n_new, "text",
                     sp_json_text(text + from));
}

static json_t *progress_json(const sp_job_progress *progress, const sp_job_result *result) {
    const sp_batch_pass *pass = progress->pass;
    double pass_s = (double)pass->pass.ns / 1e9;
    json_t *texts = json_array();
    for (size_t i = 0; i < progress->n_running && i < SHOWN_ROWS; i++)
        json_array_append_new(texts, row_json(progress->running[i]));
    json_t *json =
        json_pack("{s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:I,s:f,s:f,s:I,s:f,s:I,s:o}", "updated_s",
                  (json_int_t)sp_clock_wall_s(), "seconds", progress->seconds, "rows", (json_int_t)progress->n_done,
                  "errors", (json_int_t)progress->n_errors, "rows_before", (json_int_t)result->n_before, "in_flight",
                  (json_int_t)progress->n_running, "rows_known", (json_int_t)progress->n_rows_known, "all_rows_known",
                  (int)progress->all_rows_known, "prompt_tokens", (json_int_t)progress->prompt_tokens, "tokens",
                  (json_int_t)progress->new_tokens, "pass", (json_int_t)pass->i_pass, "pass_seconds", pass_s,
                  "read_bps", pass_s > 0 ? (double)pass->pass.bytes_read / pass_s : 0.0, "bytes_read",
                  (json_int_t)progress->bytes_read, "wait_seconds", (double)progress->wait_ns / 1e9, "rss_bytes",
                  (json_int_t)progress->rss_bytes, "running", texts);
    const sp_estimate *left = &progress->left;
    if (left->high_s > 0)
        json_object_set_new(
            json, "eta_seconds",
            json_pack("{s:f,s:f,s:f}", "low", left->low_s, "likely", left->likely_s, "high", left->high_s));
    return json;
}

void sp_progress_write(sp_progress_file *file, const sp_rundir *rundir, const sp_job_progress *progress,
                       const sp_job_result *result) {
    uint64_t now = sp_clock_ns();
    if (file->written_ns && now - file->written_ns < WRITE_NS) return;
    file->written_ns = now;
    char path[4200], part[4210];
    snprintf(path, sizeof path, "%s/progress.json", rundir->path);
    snprintf(part, sizeof part, "%s.part", path);
    json_t *json = progress_json(progress, result);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(json);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    size_t n_bytes = text ? strlen(text) : 0;
    bool good = fd >= 0 && text && write(fd, text, n_bytes) == (ssize_t)n_bytes;
    if (fd >= 0) close(fd);
    if (!good || rename(part, path) != 0) unlink(part);
    free(text);
}
