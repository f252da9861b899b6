/* A job: opens the model, reads rows ahead, plans, runs the batch, writes results.
 *
 *   input lines -> intake (parse, prompt, look-ahead queue) -> batch (passes) -> results
 *                      \_ bad rows _______________________________________/
 *
 * The look-ahead is what planning sees of the input; rows beyond it are parsed when a place for them is free. */
#include "jobs/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/intake.h"
#include "jobs/manifest.h"
#include "jobs/result.h"
#include "jobs/rundir.h"
#include "jobs/writer.h"
#include "model/identity.h"
#include "util/clock.h"
#include "util/size.h"

/* What a row beyond the look-ahead may need (address space alone until it does). */
enum { UNKNOWN_ROW_TOKENS = 1 << 17 };

typedef struct {
    const sp_job_options *options;
    const sp_job_events *events;
    sp_job_result *result;
    uint64_t start_ns;

    sp_model *model;
    sp_frontend frontend;
    sp_machine machine;
    sp_pool *pool;
    sp_device *device;
    sp_plan_request request;
    sp_plan plan;
    char model_hash[SP_HASH_HEX_BYTES], content_hash[SP_HASH_HEX_BYTES]; /* content: empty until it is known */

    sp_intake intake;

    sp_rundir rundir;
    sp_result_context context;
    sp_writer results, out;
    sp_buf line;
    bool reader_left;
} job;

/* ---- results ---- */

static bool put_line(job *j, const char *line, size_t n_bytes, sp_error *err) {
    if (j->results.fd >= 0 && !sp_writer_line(&j->results, line, n_bytes, err)) {
        j->reader_left |= j->results.is_closed_by_reader;
        return false;
    }
    if (j->out.fd < 0 || sp_writer_line(&j->out, line, n_bytes, err)) return true;
    j->reader_left |= j->out.is_closed_by_reader;
    return false;
}

static bool put_error(void *ctx, const sp_bad_row *row, sp_error *err) {
    job *j = ctx;
    sp_buf_clear(&j->line);
    if (!sp_result_error(&j->line, &j->context, row->custom_id, row->i_line, row->code, row->message))
        return sp_fail(err, SP_ERR_MEMORY, "%s: no memory for its result line", row->custom_id);
    if (!put_line(j, j->line.data, j->line.n_bytes, err)) return false;
    j->result->n_done++;
    j->result->n_errors++;
    sp_job_row event = {.custom_id = row->custom_id, .error_message = row->message};
    if (j->events->row) j->events->row(j->events->ctx, &event);
    return true;
}

/* Whether the answer equals what the input row expects, white space around both aside. */
static void compare_expected(job *j, const sp_row *row) {
    const char *want = json_string_value(row->request.expected);
    if (!want) return;
    const char *text = row->text.data ? row->text.data : "";
    size_t n = row->text.n_bytes, n_want = json_string_length(row->request.expected);
    while (n && strchr(" \t\r\n", *text)) text++, n--;
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    while (n_want && strchr(" \t\r\n", *want)) want++, n_want--;
    while (n_want && strchr(" \t\r\n", want[n_want - 1])) n_want--;
    j->result->n_expected++;
    j->result->n_matched += n == n_want && memcmp(text, want, n) == 0;
}

static bool row_done(void *ctx, sp_row *row, sp_row_code code, const char *message, sp_error *err) {
    job *j = ctx;
    bool good;
    if (code != SP_ROW_OK) {
        good = put_error(j, &(sp_bad_row){row->request.custom_id, row->request.i_line, code, message}, err);
    } else {
        sp_buf_clear(&j->line);
        good = sp_result_row(&j->line, &j->context, row) ||
               sp_fail(err, SP_ERR_MEMORY, "%s: no memory for its result line", row->request.custom_id);
        good = good && put_line(j, j->line.data, j->line.n_bytes, err);
        if (good) {
            j->result->n_done++;
            compare_expected(j, row);
            sp_job_row event = {.custom_id = row->request.custom_id,
                                .n_tokens = row->n_new,
                                .finish_reason = sp_finish_name(row->finish),
                                .text = row->text.data ? row->text.data : "",
                                .expected = row->request.expected};
            if (j->events->row) j->events->row(j->events->ctx, &event);
        }
    }
    sp_row_free(row);
    return good;
}

/* ---- stops ---- */

static double seconds_since(uint64_t start_ns) { return (double)(sp_clock_ns() - start_ns) / 1e9; }

static bool should_stop(void *ctx) {
    job *j = ctx;
    sp_error err = {0};
    if (!sp_writer_sync(&j->results, false, &err)) return false; /* the next write tells */
    if (j->options->stop_flag && *j->options->stop_flag) return true;
    return j->options->time_limit_s > 0 && seconds_since(j->start_ns) >= j->options->time_limit_s;
}

/* ---- rows come ---- */

static bool next_row(void *ctx, sp_row **row, sp_error *err) {
    job *j = ctx;
    *row = NULL;
    if (!sp_intake_fill(&j->intake, 1, err)) return false;
    *row = sp_intake_take(&j->intake);
    return true;
}

/* ---- progress ---- */

static uint64_t rss_bytes(void) {
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void pass_done(void *ctx, const sp_batch_pass *pass, sp_row *const *running, size_t n_running) {
    job *j = ctx;
    sp_job_result *result = j->result;
    result->bytes_read += pass->pass.bytes_read;
    result->wait_ns += pass->pass.wait_ns;
    result->prompt_tokens += pass->prefill_tokens;
    result->new_tokens += pass->pass.n_logits;
    if (!j->events->passed) return;
    sp_job_progress progress = {
        .pass = pass,
        .n_done = result->n_done,
        .n_errors = result->n_errors,
        .n_running = n_running,
        .prompt_tokens = result->prompt_tokens,
        .new_tokens = result->new_tokens,
        .seconds = seconds_since(j->start_ns),
        .bytes_read = result->bytes_read,
        .wait_ns = result->wait_ns,
        .rss_bytes = rss_bytes(),
        .running = running,
        .n_rows_known = j->intake.n_lines,
        .all_rows_known = j->intake.is_dry,
    };
    j->events->passed(j->events->ctx, &progress);
}

/* ---- opening ---- */

static bool open_model(job *j, sp_error *err) {
    const sp_job_options *options = j->options;
    j->model = sp_model_open(options->model_path, err);
    if (!j->model || !sp_frontend_open_model(&j->frontend, j->model, err)) return false;
    if (!sp_machine_read(&j->machine, err)) return false;
    j->pool = sp_pool_new(options->n_threads, err);
    if (!j->pool) return false;
    j->device = sp_device_open_cpu(j->pool, options->mode, options->disable_isa, err);
    sp_model_identity identity;
    if (!j->device || !sp_model_identity_read(j->model, &identity, err)) return false;
    sp_hash_hex(&identity.description, j->model_hash);
    sp_model_identity_deinit(&identity);
    return true;
}

static void set_context(job *j) {
    const sp_tokenizer *tokenizer = j->frontend.tokenizer;
    j->context = (sp_result_context){
        .run_id = j->rundir.id,
        .model_name = j->model->name,
        .model_hash = j->model_hash,
        .mode = j->options->mode == SP_MODE_FP32 ? "fp32" : "bf16",
        .precision = j->model->dominant_format,
        .placement = j->plan.placement == SP_PLACE_STREAM ? "stream" : "resident",
        .isa = sp_device_isa(j->device),
        .mode_backend = "cpu",
        .created_s = sp_clock_wall_s(),
        .echo_tokens = j->options->echo_tokens,
        .tokenizer = tokenizer,
    };
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool same_as_open(const char *path, int fd) {
    struct stat x, y;
    return stat(path, &x) == 0 && fstat(fd, &y) == 0 && S_ISREG(y.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* The input must not grow by the results: neither rows.jsonl >> rows.jsonl nor "-" from the file that stdout is. */
static bool check_stdout(const job *j, sp_error *err) {
    const char *input = j->options->input_path;
    if (!j->options->to_stdout) return true;
    bool is_input = same_as_open(strcmp(input, "-") == 0 ? "/dev/stdin" : input, STDOUT_FILENO);
    for (size_t i = 0; i < j->model->n_files; i++) is_input |= same_as_open(j->model->files[i].path, STDOUT_FILENO);
    return !is_input || sp_fail(err, SP_ERR_USAGE, "stdout: is a file that this run reads; name another file with -o");
}

/* -o must not name something that the job reads. */
static bool check_output(const job *j, sp_error *err) {
    const char *output = j->options->output_path;
    if (!check_stdout(j, err)) return false;
    if (!output) return true;
    if (same_file(output, strcmp(j->options->input_path, "-") == 0 ? "/dev/stdin" : j->options->input_path))
        return sp_fail(err, SP_ERR_USAGE, "%s: is the input; name another file with -o", output);
    for (size_t i = 0; i < j->model->n_files; i++)
        if (same_file(output, j->model->files[i].path))
            return sp_fail(err, SP_ERR_USAGE, "%s: is a file of the model; name another file with -o", output);
    struct stat st;
    if (stat(output, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        return sp_fail(err, SP_ERR_USAGE,
                       "%s: holds %lld bytes that are not this job's results; name another file with -o", output,
                       (long long)st.st_size);
    return true;
}

static bool plan_job(job *j, sp_error *err) {
    j->request = (sp_plan_request){
        .mode = j->options->mode,
        .placement = j->options->placement,
        .memory_bytes = j->options->memory_bytes,
        .rows_cap = j->options->rows_cap,
        .n_rows = j->intake.n_queued,
        .prompt_tokens = j->intake.queued_prompt_tokens,
        .new_tokens = j->intake.queued_new_tokens,
        .row_tokens_max = j->intake.longest_row_tokens,
    };
    if (!j->intake.is_dry) {
        size_t n_tokens = sp_min_size(j->model->arch.n_positions, UNKNOWN_ROW_TOKENS);
        j->request.row_tokens_max = sp_max_size(j->intake.longest_row_tokens, n_tokens);
    }
    if (sp_plan_build(j->model, &j->machine, &j->request, &j->plan, err)) return true;
    if (err->code == SP_ERR_MEMORY) err->code = SP_ERR_USAGE; /* too small a --memory, told before any work */
    return false;
}

static bool open_results(job *j, sp_error *err) {
    if (j->options->to_stdout && !sp_writer_open_fd(&j->out, STDOUT_FILENO, "stdout", err)) return false;
    if (!sp_rundir_create(&j->rundir, j->options->home, err)) return false;
    char path[4200];
    if (j->options->output_path)
        snprintf(path, sizeof path, "%s", j->options->output_path);
    else
        snprintf(path, sizeof path, "%s/results.jsonl", j->rundir.path);
    snprintf(j->result->results_path, sizeof j->result->results_path, "%.4095s", path);
    snprintf(j->result->run_id, sizeof j->result->run_id, "%s", j->rundir.id);
    if (!sp_writer_open(&j->results, path, err)) {
        sp_rundir_discard(&j->rundir);
        return false;
    }
    return true;
}

static bool read_ahead(job *j, sp_error *err) {
    sp_intake_setup setup = {
        .path = j->options->input_path,
        .frontend = &j->frontend,
        .arch = &j->model->arch,
        .decoding = &j->options->decoding,
        .prompt = &j->options->prompt,
        .seed = j->options->seed,
        .limit = j->options->limit,
        .ctx = j,
        .bad_row = put_error,
        .should_stop = should_stop,
    };
    if (!sp_intake_open(&j->intake, &setup, err)) return false;
    if (!sp_intake_fill(&j->intake, SP_LOOK_AHEAD_ROWS, err)) {
        if (err->code == SP_ERR_IO) err->code = SP_ERR_INPUT; /* unreadable, told before any work */
        return false;
    }
    return j->intake.n_lines > 0 ||
           sp_fail(err, SP_ERR_INPUT, "%s: no row found, at least one JSON line wanted", j->options->input_path);
}

static void announce(job *j) {
    sp_job_info info = {
        .run_id = j->rundir.id,
        .run_dir = j->rundir.path,
        .results_path = j->result->results_path,
        .model = j->model,
        .machine = &j->machine,
        .request = &j->request,
        .plan = &j->plan,
        .isa = sp_device_isa(j->device),
        .n_rows_known = j->intake.n_lines,
        .all_rows_known = j->intake.is_dry,
    };
    j->result->estimate_s = j->plan.estimate_likely_s;
    if (j->events->planned) j->events->planned(j->events->ctx, &info);
}

static bool write_manifest(job *j, const char *state, sp_error *err) {
    sp_input_mark mark;
    sp_input_mark_get(j->intake.input, &mark);
    sp_manifest manifest = {
        .options = j->options,
        .model = j->model,
        .model_hash = j->model_hash,
        .content_hash = j->content_hash[0] ? j->content_hash : NULL,
        .machine = &j->machine,
        .plan = &j->plan,
        .isa = sp_device_isa(j->device),
        .stops = &j->frontend.stops,
        .input_hash = j->intake.is_dry ? mark.hash : NULL,
        .created_s = j->context.created_s,
        .run_id = j->rundir.id,
        .state = state,
        .result = j->result,
    };
    json_t *json = sp_manifest_json(&manifest);
    bool good = sp_rundir_manifest(&j->rundir, json, err);
    json_decref(json);
    return good;
}

static void close_job(job *j) {
    sp_intake_close(&j->intake);
    sp_writer_close(&j->results);
    sp_writer_close(&j->out);
    sp_buf_deinit(&j->line);
    sp_device_close(j->device);
    sp_pool_free(j->pool);
    sp_frontend_deinit(&j->frontend);
    sp_model_close(j->model);
}

static job job_begin(const sp_job_options *options, const sp_job_events *events, sp_job_result *result) {
    *result = (sp_job_result){0};
    return (job){.options = options,
                 .events = events,
                 .result = result,
                 .start_ns = sp_clock_ns(),
                 .results.fd = -1,
                 .out.fd = -1};
}

/* ---- running ---- */

/* From now on results and manifest say which weights these were. */
static bool content_known(void *ctx, const sp_hash *content, sp_error *err) {
    job *j = ctx;
    j->context.content_hash = sp_hash_hex(content, j->content_hash);
    return write_manifest(j, "running", err);
}

static bool run_batch(job *j, sp_error *err) {
    sp_engine *engine = sp_engine_open(j->model, &j->plan, j->device, err);
    if (!engine) return false;
    sp_batch_setup setup = {
        .engine = engine,
        .device = j->device,
        .pool = j->pool,
        .model = j->model,
        .plan = &j->plan,
        .stops = &j->frontend.stops,
        .calls = {.ctx = j,
                  .next_row = next_row,
                  .row_done = row_done,
                  .content_known = content_known,
                  .pass_done = pass_done,
                  .should_stop = should_stop},
    };
    bool good = sp_intake_release(&j->intake, err) && sp_batch_run(&setup, &j->result->stopped, err);
    sp_engine_close(engine);
    if (!good && (j->reader_left || err->code == SP_ERR_CANCEL)) { /* not a failure of ours: as if stopped */
        sp_error_clear(err);
        j->result->stopped = true;
        good = true;
    }
    return good;
}

bool sp_job_run(const sp_job_options *options, const sp_job_events *events, sp_job_result *result, sp_error *err) {
    job j = job_begin(options, events, result);
    bool good = open_model(&j, err) && check_output(&j, err);
    if (good) set_context(&j);
    good = good && read_ahead(&j, err) && plan_job(&j, err) && open_results(&j, err);
    if (good) {
        set_context(&j);
        announce(&j);
        good = write_manifest(&j, "running", err) && run_batch(&j, err);
        sp_error end_err = {0};
        bool synced = sp_writer_sync(&j.results, true, &end_err);
        result->seconds = seconds_since(j.start_ns);
        struct rusage usage;
        if (getrusage(RUSAGE_SELF, &usage) == 0) result->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
        bool recorded = write_manifest(&j, !good ? "failed" : result->stopped ? "stopped" : "done", &end_err);
        if (good && !(synced && recorded)) {
            *err = end_err;
            good = false;
        }
    }
    close_job(&j);
    return good;
}

bool sp_job_plan(const sp_job_options *options, const sp_job_events *events, sp_error *err) {
    sp_job_result result;
    job j = job_begin(options, events, &result);
    bool good = open_model(&j, err);
    if (good) set_context(&j);
    good = good && read_ahead(&j, err) && plan_job(&j, err);
    if (good) announce(&j);
    close_job(&j);
    return good;
}
