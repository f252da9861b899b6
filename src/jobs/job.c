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

#include "jobs/forecast.h"
#include "jobs/intake.h"
#include "jobs/journal.h"
#include "jobs/manifest.h"
#include "jobs/output.h"
#include "jobs/progress.h"
#include "jobs/reading.h"
#include "jobs/result.h"
#include "jobs/results_read.h"
#include "jobs/resume.h"
#include "jobs/rundir.h"
#include "jobs/writer.h"
#include "model/identity.h"
#include "util/clock.h"
#include "util/size.h"

/* UNKNOWN_ROW_TOKENS: what a row beyond the look-ahead may need (address space alone until it does). PATIENCE_MS: with
 * a pipe that has given a row: somebody who types, or a program that writes row by row, wants it answered. */
enum { UNKNOWN_ROW_TOKENS = 1 << 17, PATIENCE_MS = 1000 };

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
    sp_forecast *forecast;
    char model_hash[SP_HASH_HEX_BYTES], content_hash[SP_HASH_HEX_BYTES]; /* content: empty until it is known */

    sp_intake intake;

    sp_rundir rundir;
    sp_resume *resume, *found; /* the run that goes on, or NULL; found: of it what this job has opened itself */
    int lock_fd;               /* of a new run */
    int64_t begun_s;           /* wall clock */
    sp_prompt_options prompt;  /* the options', with the day that templates see */
    sp_result_context context;
    sp_writer results, out;
    sp_journal *journal;
    sp_progress_file progress_file;
    uint64_t noted_bytes;      /* of the input, in the journal */
    bool noted_dry;            /* and that there are no more */
    size_t done_prompt_tokens; /* of rows that have ended */
    sp_buf line;
    bool has_begun, is_recorded; /* writing has; there is a manifest */
    bool reader_left;
    sp_error late_err; /* of what was written between passes */
} job;

/* ---- what the job directory says ---- */

static bool write_manifest(job *j, const char *state, const sp_error *failure, sp_error *err) {
    sp_input_mark mark;
    sp_input_mark_get(j->intake.input, &mark);
    sp_manifest manifest = {
        .options = j->options,
        .model = j->model,
        .model_hash = j->model_hash,
        .content_hash = j->content_hash[0] ? j->content_hash
                        : j->resume        ? sp_resume_content_hash(j->resume)
                                           : NULL,
        .machine = &j->machine,
        .request = &j->request,
        .plan = &j->plan,
        .isa = sp_device_isa(j->device),
        .stops = &j->frontend.stops,
        .input_hash = j->intake.is_dry ? mark.hash : NULL,
        .created_s = j->context.created_s,
        .begun_s = j->begun_s,
        .now_s = j->prompt.now_s,
        .run_id = j->rundir.id,
        .state = state,
        .error = failure ? failure->text : NULL,
        .result = j->result,
    };
    json_t *json = sp_manifest_json(&manifest);
    bool good = sp_rundir_manifest(&j->rundir, json, err);
    json_decref(json);
    j->is_recorded |= good;
    return good;
}

/* What is written from now on depends on the input as far as it is read. */
static bool note_input(job *j, sp_error *err) {
    if (sp_input_bytes_read(j->intake.input) == j->noted_bytes && j->intake.is_dry == j->noted_dry) return true;
    sp_input_mark mark;
    sp_input_mark_get(j->intake.input, &mark);
    j->noted_bytes = mark.n_bytes;
    j->noted_dry = j->intake.is_dry;
    return sp_journal_input(j->journal, &mark, err);
}

/* What an earlier run has written goes to stdout first, so that all of it arrives there. */
static bool copy_earlier(job *j, sp_error *err) {
    char chunk[1 << 14];
    if (j->out.fd < 0 || j->resume->results_bytes == 0) return true;
    FILE *file = fopen(j->result->results_path, "re");
    if (!file) return sp_fail_errno(err, "%s", j->result->results_path);
    bool good = true;
    for (uint64_t left = j->resume->results_bytes; good && left > 0;) {
        size_t got = fread(chunk, 1, left < sizeof chunk ? (size_t)left : sizeof chunk, file);
        good = got > 0 ? sp_writer_line(&j->out, chunk, got, err)
                       : sp_fail(err, SP_ERR_IO, "%s: it became shorter while it was read", j->result->results_path);
        left -= got;
    }
    j->reader_left |= j->out.is_closed_by_reader;
    fclose(file);
    return good;
}

/* The first write. Of a job that goes on nothing is touched before its weights are known to be the same. */
static bool begin_writing(job *j, sp_error *err) {
    if (j->has_begun) return true;
    j->has_begun = true;
    if (j->resume && !(sp_writer_cut(&j->results, err) && copy_earlier(j, err))) return false;
    return write_manifest(j, "running", NULL, err) && note_input(j, err) && sp_intake_release(&j->intake, err);
}

/* Everything so far is on the drive, now (force) or within a second; in-flight rows with the tokens they have. */
static bool checkpoint(job *j, bool force) {
    sp_error *err = &j->late_err;
    return note_input(j, err) && sp_journal_tokens(j->journal, force, err) && sp_journal_sync(j->journal, force, err);
}

/* ---- results ---- */

static bool put_line(job *j, const char *line, size_t n_bytes, sp_error *err) {
    if (!begin_writing(j, err) || !note_input(j, err)) return false;
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
static void compare_expected(job *j, const json_t *expected, sp_string text) {
    if (!json_is_string(expected)) return;
    sp_string want = sp_string_trimmed((sp_string){json_string_value(expected), json_string_length(expected)});
    text = sp_string_trimmed(text);
    bool is_same =
        text.n_bytes == want.n_bytes && (text.n_bytes == 0 || memcmp(text.text, want.text, text.n_bytes) == 0);
    j->result->n_expected++;
    j->result->n_matched += is_same;
}

/* A row of the input that an earlier run has answered. */
static void earlier_row(void *ctx, const sp_request *request) {
    job *j = ctx;
    sp_buf text = {0};
    if (json_is_string(request->expected) && sp_results_text(j->resume, request->i_line, &text))
        compare_expected(j, request->expected, (sp_string){text.data, text.n_bytes});
    sp_buf_deinit(&text);
}

static bool put_answer(job *j, sp_row *row, sp_error *err) {
    sp_buf text = {0};
    sp_answer answer = {0};
    sp_buf_clear(&j->line);
    bool good = sp_row_read_answer(row, &j->frontend, &text, &answer, err) &&
                (sp_result_row(&j->line, &j->context, row, &answer) ||
                 sp_fail(err, SP_ERR_MEMORY, "%s: no memory for its result line", row->request.custom_id)) &&
                put_line(j, j->line.data, j->line.n_bytes, err);
    if (good) {
        j->result->n_done++;
        compare_expected(j, row->request.expected, answer.content);
        sp_forecast_row(j->forecast, row);
        sp_job_row event = {.custom_id = row->request.custom_id,
                            .n_tokens = row->n_new,
                            .finish_reason = sp_finish_name(row->finish),
                            .text = row->text.data ? row->text.data : "",
                            .expected = row->request.expected};
        if (j->events->row) j->events->row(j->events->ctx, &event);
    }
    sp_answer_deinit(&answer);
    sp_buf_deinit(&text);
    return good;
}

static bool row_done(void *ctx, sp_row *row, sp_row_code code, const char *message, sp_error *err) {
    job *j = ctx;
    bool good = code == SP_ROW_OK
                    ? put_answer(j, row, err)
                    : put_error(j, &(sp_bad_row){row->request.custom_id, row->request.i_line, code, message}, err);
    j->done_prompt_tokens += row->n_prompt;
    sp_journal_leave(j->journal, row);
    sp_prefixes_leave(j->intake.prefixes, row->block);
    sp_row_free(row);
    return good;
}

/* ---- stops ---- */

static double seconds_since(uint64_t start_ns) { return (double)(sp_clock_ns() - start_ns) / 1e9; }

static bool should_stop(void *ctx) {
    job *j = ctx;
    if (j->has_begun && !checkpoint(j, false)) return true;
    bool is_late = j->options->time_limit_s > 0 && seconds_since(j->start_ns) >= j->options->time_limit_s;
    bool is_stop = is_late || (j->options->stop_flag && *j->options->stop_flag);
    if (is_stop && j->has_begun) checkpoint(j, true);
    return is_stop || j->late_err.code != SP_OK;
}

/* ---- rows come ---- */

static bool row_at(void *ctx, size_t i, bool may_wait, const sp_row **row, sp_error *err) {
    job *j = ctx;
    *row = NULL;
    if (!sp_intake_fill(&j->intake, i + 1, may_wait ? SP_INTAKE_WAITS : 0, err)) return false;
    while (may_wait && j->intake.n_queued == 0 && !j->intake.is_dry) /* nothing but bad rows, as many as may be held */
        if (!begin_writing(j, err) || !sp_intake_fill(&j->intake, 1, SP_INTAKE_WAITS, err)) return false;
    if (i < j->intake.n_queued) *row = sp_intake_at(&j->intake, i);
    return true;
}

static sp_row *take_row(void *ctx, const sp_row *row) {
    job *j = ctx;
    size_t i = 0;
    while (sp_intake_at(&j->intake, i) != row) i++;
    sp_row *taken = sp_intake_take(&j->intake, i);
    sp_journal_enter(j->journal, taken);
    return taken;
}

static bool is_dry(void *ctx) {
    const job *j = ctx;
    return j->intake.is_dry && j->intake.n_queued == 0;
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
    result->prompt_tokens = j->done_prompt_tokens; /* each once, however often a row was prefilled */
    for (size_t i = 0; i < n_running; i++)
        result->prompt_tokens += sp_min_size(running[i]->n_cached, running[i]->n_prompt);
    result->new_tokens += pass->new_tokens;
    sp_forecast_pass(j->forecast, pass);
    sp_job_progress progress = {
        .pass = pass,
        .left = sp_forecast_left(j->forecast, &j->intake, running, n_running),
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
    sp_progress_write(&j->progress_file, &j->rundir, &progress, result);
    if (j->events->passed) j->events->passed(j->events->ctx, &progress);
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
        .created_s = j->resume ? sp_resume_created_s(j->resume) : sp_clock_wall_s(),
        .echo_tokens = j->options->echo_tokens,
        .tokenizer = tokenizer,
    };
}

static bool check_output(const job *j, sp_error *err) {
    const sp_job_options *options = j->options;
    sp_output output = {.path = options->output_path, .to_stdout = options->to_stdout};
    return sp_output_check(&output, options->input_path, j->model, err);
}

/* Whether this is the earlier job. Of several things that differ, model and input are named before options. */
static bool is_earlier(const job *j, bool is_bound, sp_error *err) {
    sp_error differs = {0};
    if (!sp_resume_check_model(j->resume, j->model, j->model_hash, err)) return false;
    bool good = sp_resume_check_parameters(j->resume, j->options, &differs);
    if (good && is_bound) return true; /* the input is compared as it is read */
    if (sp_resume_check_input(j->resume, j->options->input_path, err)) {
        *err = differs;
        return good;
    }
    sp_error_clear(&differs);
    return false;
}

/* The run that this one goes on with, if there is one. One that has neither a result nor a token binds nobody: then
 * whatever differs makes a new job. */
static bool find_earlier(job *j, sp_error *err) {
    const sp_job_options *options = j->options;
    j->resume = options->resume;
    if (!j->resume && options->output_path) {
        if (!sp_resume_by_output(options->home, options->output_path, &j->found, err)) return false;
        j->resume = j->found;
    }
    if (!j->resume) return true;
    bool is_bound = !j->found || sp_resume_is_bound(j->resume);
    if (!is_earlier(j, is_bound, err)) {
        if (is_bound) return false;
        sp_error_clear(err);
        sp_resume_close(j->found);
        j->resume = j->found = NULL;
        return true;
    }
    j->prompt.now_s = sp_resume_now_s(j->resume);
    j->result->was_resumed = true;
    j->result->n_done = j->result->n_before = j->resume->n_done;
    j->result->n_errors = j->resume->n_errors;
    return true;
}

static bool plan_job(job *j, sp_error *err) {
    j->request = (sp_plan_request){
        .mode = j->options->mode,
        .placement = j->options->placement,
        .memory_bytes = j->options->memory_bytes,
        .rows_cap = j->options->rows_cap,
        .row_tokens_max = j->intake.longest_row_tokens,
    };
    if (!j->intake.is_dry) {
        size_t n_tokens = sp_min_size(j->model->arch.n_positions, UNKNOWN_ROW_TOKENS);
        j->request.row_tokens_max = sp_max_size(j->intake.longest_row_tokens, n_tokens);
    }
    const sp_forecast_setup setup = {.home = j->options->home,
                                     .machine_path = j->options->machine_path,
                                     .model = j->model,
                                     .model_hash = j->model_hash,
                                     .device = j->device,
                                     .n_threads = sp_pool_n_threads(j->pool),
                                     .input_path = j->options->input_path,
                                     .limit = j->options->limit};
    if (!sp_forecast_open(&setup, &j->intake, seconds_since(j->start_ns), &j->machine, &j->request, &j->forecast, err))
        return false;
    if (sp_plan_build(j->model, &j->machine, &j->request, &j->plan, err)) return true;
    if (err->code == SP_ERR_MEMORY) err->code = SP_ERR_USAGE; /* too small a --memory, told before any work */
    return false;
}

static bool open_results(job *j, sp_error *err) {
    if (j->options->to_stdout && !sp_writer_open_fd(&j->out, STDOUT_FILENO, "stdout", err)) return false;
    if (j->resume)
        j->rundir = j->resume->rundir;
    else if (!sp_rundir_create(&j->rundir, j->options->home, err))
        return false;
    char path[4200];
    if (j->resume)
        snprintf(path, sizeof path, "%s", j->resume->results_path);
    else if (j->options->output_path)
        snprintf(path, sizeof path, "%s", j->options->output_path);
    else
        snprintf(path, sizeof path, "%s/results.jsonl", j->rundir.path);
    snprintf(j->result->results_path, sizeof j->result->results_path, "%.4095s", path);
    snprintf(j->result->run_id, sizeof j->result->run_id, "%s", j->rundir.id);
    j->journal = sp_journal_open(&j->rundir, j->resume ? j->resume->journal : NULL, &j->results);
    if (j->resume) return sp_writer_reopen(&j->results, path, j->resume->results_bytes, err);
    return sp_rundir_lock(&j->rundir, &j->lock_fd, err) && sp_writer_open(&j->results, path, err);
}

static bool read_ahead(job *j, sp_error *err) {
    sp_intake_setup setup = {
        .path = j->options->input_path,
        .frontend = &j->frontend,
        .arch = &j->model->arch,
        .decoding = &j->options->decoding,
        .prompt = &j->prompt,
        .resume = j->resume,
        .seed = j->options->seed,
        .limit = j->options->limit,
        .ctx = j,
        .earlier_row = earlier_row,
        .bad_row = put_error,
        .should_stop = should_stop,
    };
    if (!sp_intake_open(&j->intake, &setup, err)) return false;
    if (!sp_intake_fill(&j->intake, 1, SP_INTAKE_WAITS, err) ||
        !sp_intake_fill(&j->intake, SP_LOOK_AHEAD_ROWS, PATIENCE_MS, err)) {
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
        .n_bad_known = j->intake.n_held,
        .first_bad_line = sp_intake_first_bad(&j->intake),
    };
    j->result->estimate_s = j->plan.estimate.likely_s;
    if (j->events->planned) j->events->planned(j->events->ctx, &info);
}

static void close_job(job *j) {
    sp_journal_close(j->journal);
    if (j->journal && !j->resume && !j->is_recorded) {
        sp_rundir_discard(&j->rundir);
        j->result->run_id[0] = '\0'; /* nothing there to go on with */
    }
    if (j->lock_fd >= 0) close(j->lock_fd);
    sp_resume_close(j->found);
    sp_intake_close(&j->intake);
    sp_writer_close(&j->results);
    sp_writer_close(&j->out);
    sp_buf_deinit(&j->line);
    sp_forecast_close(j->forecast);
    sp_device_close(j->device);
    sp_pool_free(j->pool);
    sp_frontend_deinit(&j->frontend);
    sp_model_close(j->model);
}

static job job_begin(const sp_job_options *options, const sp_job_events *events, sp_job_result *result) {
    *result = (sp_job_result){0};
    sp_prompt_options prompt = options->prompt;
    if (prompt.now_s == 0) prompt.now_s = sp_clock_wall_s(); /* one day for all rows, and for a run that goes on */
    return (job){.options = options,
                 .prompt = prompt,
                 .lock_fd = -1,
                 .begun_s = sp_clock_wall_s(),
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
    if (j->resume && !sp_resume_check_weights(j->resume, j->content_hash, err)) return false;
    return j->has_begun ? write_manifest(j, "running", NULL, err) : begin_writing(j, err);
}

static bool run_batch(job *j, sp_error *err) {
    sp_engine *engine = sp_engine_open(j->model, &j->plan, j->device, err);
    if (!engine) return false;
    sp_forecast_begin(j->forecast, &j->machine, &j->plan);
    sp_batch_setup setup = {
        .engine = engine,
        .device = j->device,
        .pool = j->pool,
        .model = j->model,
        .plan = &j->plan,
        .stops = &j->frontend.stops,
        .prefixes = j->intake.prefixes,
        .observed = sp_forecast_observed(j->forecast),
        .calls = {.ctx = j,
                  .row_at = row_at,
                  .take_row = take_row,
                  .is_dry = is_dry,
                  .row_done = row_done,
                  .content_known = content_known,
                  .pass_done = pass_done,
                  .should_stop = should_stop},
    };
    bool good = (j->resume || begin_writing(j, err)) && sp_batch_run(&setup, &j->result->stopped, err);
    sp_journal_kept(j->journal, &j->result->n_in_flight, &j->result->n_kept_tokens);
    sp_journal_land(j->journal);
    sp_engine_close(engine);
    if (good && j->late_err.code != SP_OK) {
        *err = j->late_err;
        good = false;
    }
    if (!good && (j->reader_left || err->code == SP_ERR_CANCEL)) { /* not a failure of ours: as if stopped */
        sp_error_clear(err);
        j->result->stopped = true;
        good = true;
    }
    /* A run whose last rows were all bad has had no pass. */
    return good && (j->result->stopped || begin_writing(j, err));
}

/* Somebody may have removed the job's directory: then its results file is all that is there of it. */
static void tell_if_gone(const job *j, bool is_done, sp_error *err) {
    sp_job_result *result = j->result;
    if (access(j->rundir.path, F_OK) == 0) return;
    result->run_id[0] = '\0'; /* there is nothing to go on with */
    sp_error_clear(err);
    sp_fail(err, SP_ERR_IO, "%s: deleted while the run worked; %s%zu row%s in %s%s", j->rundir.path,
            is_done ? "all " : "", result->n_done, result->n_done == 1 ? " is" : "s are", result->results_path,
            is_done ? "" : ", the run cannot be continued, run the rows as a new job");
}

/* What a run leaves: all of it on the drive, and a manifest that says how it ended. */
static bool finish(job *j, bool good, sp_error *err) {
    sp_error end_err = {0};
    sp_job_result *result = j->result;
    result->seconds = seconds_since(j->start_ns);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) result->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (!j->is_recorded) return good;
    result->has_no_file = !j->results.is_regular;
    if (good && !sp_writer_check(&j->results, err)) {
        good = false;
        result->run_id[0] = '\0'; /* there is no going on with them */
    }
    bool is_done = good && !result->stopped;
    bool kept = note_input(j, &end_err) && sp_journal_sync(j->journal, true, &end_err) &&
                write_manifest(j,
                               is_done ? "done"
                               : good  ? "stopped"
                                       : "failed",
                               good ? NULL : err, &end_err) &&
                (!is_done || sp_journal_finish(j->journal, &end_err));
    if (kept) return good;
    if (good) *err = end_err;
    if (err->code == SP_ERR_IO) tell_if_gone(j, is_done, err);
    return false;
}

bool sp_job_run(const sp_job_options *options, const sp_job_events *events, sp_job_result *result, sp_error *err) {
    job j = job_begin(options, events, result);
    bool good = open_model(&j, err) && check_output(&j, err) && find_earlier(&j, err);
    if (good) set_context(&j);
    good = good && read_ahead(&j, err);
    if (good && j.resume && j.resume->is_complete) {
        snprintf(result->run_id, sizeof result->run_id, "%s", j.resume->rundir.id);
        snprintf(result->results_path, sizeof result->results_path, "%s", j.resume->results_path);
        result->was_complete = true;
    } else if (good) {
        good = plan_job(&j, err) && open_results(&j, err);
        if (good) {
            set_context(&j);
            announce(&j);
            good = run_batch(&j, err);
        }
        good = finish(&j, good, err);
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
