/* The manifest, section by section. */
#include "jobs/manifest.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/json.h"
#include "util/version.h"

static json_t *time_text(int64_t wall_s) {
    char text[32];
    time_t t = (time_t)wall_s;
    struct tm utc;
    gmtime_r(&t, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

/* A path as another process finds it. */
static void set_absolute_path(json_t *object, const char *key, const char *path) {
    char directory[4096], whole[8200];
    bool is_relative = *path != '/' && access(path, F_OK) == 0 && getcwd(directory, sizeof directory);
    if (is_relative) snprintf(whole, sizeof whole, "%s/%s", directory, path);
    sp_json_set_path(object, key, is_relative ? whole : path);
}

static json_t *model_section(const sp_manifest *m) {
    json_t *files = json_array();
    for (size_t i = 0; i < m->model->n_files; i++)
        json_array_append_new(files, json_pack("{s:o,s:I}", "path", sp_json_text(m->model->files[i].path), "bytes",
                                               (json_int_t)m->model->files[i].n_bytes));
    json_t *stops = json_array();
    for (size_t i = 0; i < m->stops->n; i++) json_array_append_new(stops, json_integer(m->stops->ids[i]));
    json_t *section = json_object();
    set_absolute_path(section, "path", m->model->path);
    json_t *rest =
        json_pack("{s:s,s:s,s:s,s:s?,s:I,s:I,s:o,s:o}", "name", m->model->name, "family", m->model->arch.family, "hash",
                  m->model_hash, "content_hash", m->content_hash, "parameters", (json_int_t)m->model->n_params,
                  "weight_bytes", (json_int_t)m->model->weight_bytes, "files", files, "stop_ids", stops);
    json_object_update(section, rest);
    json_decref(rest);
    return section;
}

json_t *sp_manifest_parameters(const sp_job_options *options) {
    const sp_decoding *decoding = &options->decoding;
    return json_pack("{s:s,s:I,s:f,s:f,s:I,s:I,s:I,s:b,s:b,s:I}", "mode",
                     options->mode == SP_MODE_FP32 ? "fp32" : "bf16", "max_tokens", (json_int_t)decoding->max_tokens,
                     "temperature", decoding->temperature, "top_p", decoding->top_p, "top_k",
                     (json_int_t)decoding->top_k, "seed", (json_int_t)options->seed, "limit",
                     (json_int_t)options->limit, "plain_text", (int)options->prompt.plain_text, "echo_tokens",
                     (int)options->echo_tokens, "date", (json_int_t)options->prompt.now_s);
}

/* What the command allowed the job to take; zeros: what the plan says. */
static json_t *limits_section(const sp_job_options *options) {
    return json_pack("{s:I,s:I,s:I}", "memory_bytes", (json_int_t)options->memory_bytes, "threads",
                     (json_int_t)options->n_threads, "rows", (json_int_t)options->rows_cap);
}

static json_t *machine_section(const sp_manifest *m) {
    return json_pack("{s:I,s:I,s:I,s:s}", "ram_bytes", (json_int_t)m->machine->ram_bytes, "limit_bytes",
                     (json_int_t)m->machine->limit_bytes, "cpus", (json_int_t)m->machine->n_cpus, "isa", m->isa);
}

static json_t *result_section(const sp_job_result *result) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:I}", "rows", (json_int_t)result->n_done, "errors",
                     (json_int_t)result->n_errors, "in_flight", (json_int_t)result->n_in_flight, "kept_tokens",
                     (json_int_t)result->n_kept_tokens, "prompt_tokens", (json_int_t)result->prompt_tokens,
                     "new_tokens", (json_int_t)result->new_tokens, "seconds", result->seconds, "peak_rss_bytes",
                     (json_int_t)result->peak_rss_bytes);
}

json_t *sp_manifest_json(const sp_manifest *m) {
    const char *path = m->options->input_path;
    bool is_path = strcmp(path, "-") != 0 && strcmp(path, "sample") != 0;
    json_t *input = json_object();
    if (is_path)
        set_absolute_path(input, "path", path);
    else
        sp_json_set_path(input, "path", path);
    json_object_set_new(input, "xxh3_128", m->input_hash ? json_string(m->input_hash) : json_null());
    json_t *manifest =
        json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "run", m->run_id, "state", m->state, "version",
                  SP_VERSION, "created", time_text(m->created_s), "updated", time_text(sp_clock_wall_s()), "command",
                  sp_json_text(m->options->command ? m->options->command : ""), "model", model_section(m), "input",
                  input, "parameters", sp_manifest_parameters(m->options), "machine", machine_section(m), "plan",
                  sp_plan_json(m->model, m->machine, m->request, m->plan), "result", result_section(m->result));
    set_absolute_path(manifest, "results", m->result->results_path);
    /* Beside what people look for, what resume needs. */
    json_object_set_new(manifest, "limits", limits_section(m->options));
    if (m->error) json_object_set_new(manifest, "error", sp_json_text(m->error));
    json_object_set_new(manifest, "format", json_integer(SP_MANIFEST_FORMAT));
    json_object_set_new(manifest, "own_results", json_boolean(m->options->output_path == NULL));
    json_object_set_new(manifest, "created_s", json_integer(m->created_s));
    json_object_set_new(manifest, "begun_s", json_integer(m->begun_s));
    json_object_set_new(manifest, "now_s", json_integer(m->now_s));
    return manifest;
}
