/* An earlier run of a job: where it is, what it has, whether this is still the same job. */
#include "jobs/resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/manifest.h"
#include "jobs/output.h"
#include "jobs/results_read.h"
#include "util/json.h"

enum { PROGRESS_BYTES_MAX = 1 << 20 };

void sp_resume_close(sp_resume *resume) {
    if (!resume) return;
    if (resume->lock_fd >= 0) close(resume->lock_fd);
    json_decref(resume->manifest);
    sp_journal_state_free(resume->journal);
    if (resume->lines) fclose(resume->lines);
    free(resume->line_at);
    free(resume->done);
    free(resume);
}

static const char *text_of(const json_t *object, const char *section, const char *key) {
    const json_t *at = section ? json_object_get(object, section) : object;
    const char *text = json_string_value(json_object_get(at, key));
    return text ? text : "";
}

/* ---- what there is ---- */

static bool check_manifest(sp_resume *resume, sp_error *err) {
    const json_t *format = json_object_get(resume->manifest, "format");
    if (json_integer_value(format) != SP_MANIFEST_FORMAT)
        return sp_fail(err, SP_ERR_USAGE, "%s: written by another version of spill; run the rows as a new job",
                       resume->rundir.id);
    const json_t *model = json_object_get(resume->manifest, "model"),
                 *input = json_object_get(resume->manifest, "input");
    sp_json_get_path(resume->manifest, "results", resume->results_path, sizeof resume->results_path);
    sp_json_get_path(model, "path", resume->model_path, sizeof resume->model_path);
    sp_json_get_path(input, "path", resume->input_path, sizeof resume->input_path);
    return true;
}

/* Whether neither its manifest nor its progress tells of a result. */
static bool wrote_none(const sp_rundir *rundir, const json_t *manifest) {
    char path[4200];
    sp_error ignored = {0};
    snprintf(path, sizeof path, "%s/progress.json", rundir->path);
    json_t *progress = sp_json_load(path, PROGRESS_BYTES_MAX, &ignored);
    bool none = json_integer_value(json_object_get(json_object_get(manifest, "result"), "rows")) == 0 &&
                json_integer_value(json_object_get(progress, "rows")) == 0;
    json_decref(progress);
    return none;
}

/* Where no line is in the way, the file is free once the run is gone; hint[4200]. */
static const char *drop_hint(const sp_resume *resume, char *hint) {
    hint[0] = '\0';
    if (resume->n_done == 0) snprintf(hint, 4200, ", or drop the run with rm -r %s", resume->rundir.path);
    return hint;
}

static void set_input_remedy(sp_resume *resume) {
    char hint[4200];
    snprintf(resume->input_remedy, sizeof resume->input_remedy,
             "give that input to spill resume %s, or name another file with -o for a new job%s", resume->rundir.id,
             drop_hint(resume, hint));
}

/* Locks the job and reads its state. */
static sp_resume *load(const sp_rundir *rundir, sp_error *err) {
    sp_resume *resume = calloc(1, sizeof *resume);
    SP_CHECK(resume != NULL);
    resume->rundir = *rundir;
    resume->lock_fd = -1;
    resume->manifest = sp_rundir_load_manifest(rundir, err);
    bool good = resume->manifest && check_manifest(resume, err);
    if (!good && err->code == SP_ERR_INPUT) err->code = SP_ERR_USAGE;
    good = good && sp_rundir_lock(rundir, &resume->lock_fd, err);
    if (good) {
        resume->wrote_none = wrote_none(rundir, resume->manifest);
        resume->journal = sp_journal_read(rundir, err);
        good = resume->journal && sp_results_read(resume, err);
        set_input_remedy(resume);
    }
    int64_t n_rows = json_integer_value(json_object_get(json_object_get(resume->manifest, "result"), "rows"));
    resume->is_complete =
        strcmp(text_of(resume->manifest, NULL, "state"), "done") == 0 && (uint64_t)n_rows == resume->n_done;
    if (good) return resume;
    sp_resume_close(resume);
    return NULL;
}

/* ---- finding it ---- */

/* Whether a job's results went to a pipe or a device: they are their reader's. */
static bool has_no_file(const json_t *manifest) {
    char path[4096];
    struct stat st;
    sp_json_get_path(manifest, "results", path, sizeof path);
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* The newest job that is not done and can go on; if there is none, one that runs or whose results went to no file. */
static bool newest_unfinished(const char *home, sp_rundir *rundir, sp_error *err) {
    char **ids;
    size_t n;
    if (!sp_rundir_list(home, &ids, &n, err)) return false;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        sp_rundir here;
        sp_error ignored = {0};
        json_t *manifest =
            sp_rundir_open(&here, home, ids[i], &ignored) ? sp_rundir_load_manifest(&here, &ignored) : NULL;
        bool is_unfinished = manifest && strcmp(text_of(manifest, NULL, "state"), "done") != 0;
        bool can_go_on = is_unfinished && !has_no_file(manifest) && !sp_rundir_is_running(&here);
        json_decref(manifest);
        if (!is_unfinished || (found && !can_go_on)) continue;
        *rundir = here;
        found = true;
        if (can_go_on) break;
    }
    sp_rundir_list_free(ids, n);
    return found || sp_fail(err, SP_ERR_USAGE, "no unfinished job found; spill runs lists all, spill run begins one");
}

sp_resume *sp_resume_by_id(const char *home, const char *id, sp_error *err) {
    sp_rundir rundir;
    bool good = id ? sp_rundir_open(&rundir, home, id, err) : newest_unfinished(home, &rundir, err);
    return good ? load(&rundir, err) : NULL;
}

/* The newest job whose results file is output, which is empty or missing; NULL when there is none. */
static sp_resume *writer_of(const char *home, const char *output, bool is_missing, sp_error *err) {
    char **ids;
    size_t n;
    sp_resume *resume = NULL;
    if (!sp_rundir_list(home, &ids, &n, err)) return NULL;
    for (size_t i = 0; i < n; i++) {
        sp_rundir rundir;
        sp_error ignored = {0};
        json_t *manifest =
            sp_rundir_open(&rundir, home, ids[i], &ignored) ? sp_rundir_load_manifest(&rundir, &ignored) : NULL;
        char results[4096];
        sp_json_get_path(manifest, "results", results, sizeof results);
        bool is_it = manifest && (is_missing ? sp_output_is_same_place(output, results) && wrote_none(&rundir, manifest)
                                             : sp_output_is_same_file(output, results));
        json_decref(manifest);
        if (!is_it) continue;
        resume = load(&rundir, err);
        break;
    }
    sp_rundir_list_free(ids, n);
    return resume;
}

bool sp_resume_by_output(const char *home, const char *output, sp_resume **found, sp_error *err) {
    struct stat st;
    char id[48];
    *found = NULL;
    bool is_missing = stat(output, &st) != 0;
    if (is_missing) {
        *found = writer_of(home, output, true, err);
        return *found || err->code == SP_OK;
    }
    if (!S_ISREG(st.st_mode)) return true;
    bool has_line = st.st_size > 0 && sp_results_first_id(output, id);
    sp_rundir rundir;
    sp_error ignored = {0};
    if (!has_line) {
        *found = writer_of(home, output, false, err);
    } else if (sp_rundir_open(&rundir, home, id, &ignored)) {
        *found = load(&rundir, err);
        bool is_its = *found && sp_output_is_same_file(output, (*found)->results_path);
        if (*found && !is_its) {
            sp_fail(err, SP_ERR_USAGE, "%s: holds results of run %s, which writes to %s; name another file with -o",
                    output, id, (*found)->results_path);
            sp_resume_close(*found);
            *found = NULL;
        }
    }
    if (*found || err->code != SP_OK) return *found != NULL;
    return st.st_size == 0 ||
           sp_fail(err, SP_ERR_USAGE, "%s: holds %lld bytes that are not this job's results; name another file with -o",
                   output, (long long)st.st_size);
}

bool sp_resume_is_bound(const sp_resume *resume) {
    bool is_done = strcmp(text_of(resume->manifest, NULL, "state"), "done") == 0;
    return resume->n_done > 0 || (!is_done && sp_journal_has_tokens(resume->journal));
}

/* ---- whether it is the same ---- */

/* A parameter as people write it, short; text[64]. */
static const char *value_text(const json_t *value, char *text) {
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    snprintf(text, 64, "%s", dumped ? dumped : "none");
    free(dumped);
    return text;
}

bool sp_resume_check_parameters(const sp_resume *resume, const sp_job_options *options, sp_error *err) {
    json_t *now = sp_manifest_parameters(options);
    const json_t *then = json_object_get(resume->manifest, "parameters");
    const char *key;
    json_t *value;
    bool good = true;
    json_object_foreach(now, key, value) {
        json_t *old = json_object_get(then, key);
        if (old && json_equal(old, value)) continue;
        char option[64], found[64], wanted[64], hint[4200];
        snprintf(option, sizeof option, "%s", key);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        good = sp_fail(err, SP_ERR_USAGE,
                       "--%s: %s found, %s in run %s; give the same or spill resume %s to continue it, or name another "
                       "file with -o%s",
                       option, value_text(value, found), value_text(old, wanted), resume->rundir.id, resume->rundir.id,
                       drop_hint(resume, hint));
        break;
    }
    json_decref(now);
    return good;
}

static bool other_model(const sp_resume *resume, const sp_model *model, const char *what, sp_error *err) {
    char hint[4200];
    return sp_fail(err, SP_ERR_USAGE,
                   "%s: the model changed since run %s began (%s); restore it, or name another file with -o for a new "
                   "job%s",
                   model->path, resume->rundir.id, what, drop_hint(resume, hint));
}

bool sp_resume_check_model(const sp_resume *resume, const sp_model *model, const char *hash, sp_error *err) {
    if (strcmp(text_of(resume->manifest, "model", "name"), model->name) != 0)
        return other_model(resume, model, "its name", err);
    if (strcmp(text_of(resume->manifest, "model", "hash"), hash) != 0)
        return other_model(resume, model, model->is_gguf ? "its header" : "its config, tokenizer or template", err);
    const json_t *files = json_object_get(json_object_get(resume->manifest, "model"), "files");
    if (json_array_size(files) != model->n_files) return other_model(resume, model, "its number of files", err);
    for (size_t i = 0; i < model->n_files; i++) {
        const json_t *n_bytes = json_object_get(json_array_get(files, i), "bytes");
        if ((uint64_t)json_integer_value(n_bytes) != model->files[i].n_bytes)
            return other_model(resume, model, "the size of its weights", err);
    }
    return true;
}

bool sp_resume_check_weights(const sp_resume *resume, const char *hash, sp_error *err) {
    const char *then = text_of(resume->manifest, "model", "content_hash");
    /* A run that has not come to its first result has none: nothing can contradict. */
    if (!*then || strcmp(then, hash) == 0) return true;
    return sp_fail(err, SP_ERR_USAGE,
                   "%s: the content of its weights changed since run %s began; restore it, or name another file with "
                   "-o for a new job",
                   text_of(resume->manifest, "model", "path"), resume->rundir.id);
}

bool sp_resume_check_input(const sp_resume *resume, const char *path, sp_error *err) {
    struct stat st;
    const sp_input_mark *mark = sp_resume_mark(resume);
    bool is_sample = strcmp(path, "sample") == 0;
    if (mark->n_bytes == 0 || (!is_sample && (stat(path, &st) != 0 || !S_ISREG(st.st_mode)))) return true;
    sp_input *input = sp_input_open(path, err);
    if (!input) return false;
    sp_input_expect(input, mark, resume->input_remedy);
    sp_line line;
    int got = 1;
    while (got > 0 && (sp_input_is_expecting(input) || mark->at_end)) got = sp_input_next(input, &line, err);
    sp_input_close(input);
    return got >= 0;
}

const sp_input_mark *sp_resume_mark(const sp_resume *resume) { return sp_journal_mark(resume->journal); }

bool sp_resume_is_done(const sp_resume *resume, size_t i_line) {
    return i_line < resume->done_lines && (resume->done[i_line / 8] >> (i_line % 8) & 1);
}

/* ---- its options ---- */

static int64_t count_of(const json_t *parameters, const char *key) {
    return json_integer_value(json_object_get(parameters, key));
}

void sp_resume_options(sp_resume *resume, sp_job_options *options) {
    const json_t *parameters = json_object_get(resume->manifest, "parameters");
    sp_decoding *decoding = &options->decoding;
    *decoding = sp_decoding_default();
    options->model_path = resume->model_path;
    options->input_path = resume->input_path;
    options->command = text_of(resume->manifest, NULL, "command");
    options->mode = strcmp(text_of(parameters, NULL, "mode"), "fp32") == 0 ? SP_MODE_FP32 : SP_MODE_BF16;
    decoding->max_tokens = (size_t)count_of(parameters, "max_tokens");
    decoding->temperature = json_number_value(json_object_get(parameters, "temperature"));
    decoding->top_p = json_number_value(json_object_get(parameters, "top_p"));
    decoding->top_k = (size_t)count_of(parameters, "top_k");
    options->seed = count_of(parameters, "seed");
    options->limit = (size_t)count_of(parameters, "limit");
    options->prompt.plain_text = json_is_true(json_object_get(parameters, "plain_text"));
    options->prompt.now_s = count_of(parameters, "date");
    options->echo_tokens = json_is_true(json_object_get(parameters, "echo_tokens"));
    const json_t *limits = json_object_get(resume->manifest, "limits");
    if (!options->memory_bytes) options->memory_bytes = (uint64_t)count_of(limits, "memory_bytes");
    if (!options->n_threads) options->n_threads = (size_t)count_of(limits, "threads");
    if (!options->rows_cap) options->rows_cap = (size_t)count_of(limits, "rows");
    bool is_own = json_is_true(json_object_get(resume->manifest, "own_results"));
    options->output_path = is_own ? NULL : resume->results_path;
    options->resume = resume;
}

int64_t sp_resume_now_s(const sp_resume *resume) { return count_of(resume->manifest, "now_s"); }
int64_t sp_resume_created_s(const sp_resume *resume) { return count_of(resume->manifest, "created_s"); }

const char *sp_resume_content_hash(const sp_resume *resume) {
    const char *hash = text_of(resume->manifest, "model", "content_hash");
    return *hash ? hash : NULL;
}
