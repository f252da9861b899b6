/* Jobs as their directories tell. */
#include "jobs/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/json.h"

enum { PROGRESS_BYTES_MAX = 1 << 20 };

static const char *const state_names[] = {
    [SP_RUN_RUNNING] = "running", [SP_RUN_DONE] = "done", [SP_RUN_STOPPED] = "stopped",
    [SP_RUN_FAILED] = "failed",   [SP_RUN_DIED] = "died", [SP_RUN_BROKEN] = "broken",
};

const char *sp_run_state_name(sp_run_state state) { return state_names[state]; }

/* Whole lines of the results file that are this run's: what a process that died could not tell any more. */
static uint64_t count_lines(const char *path, const char *id) {
    char own[80], *line = NULL;
    size_t room = 0, n_own = (size_t)snprintf(own, sizeof own, "{\"id\":\"batch_req_%s-", id);
    struct stat st;
    uint64_t n = 0;
    FILE *file = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
    if (!file) return 0;
    for (ssize_t got; (got = getline(&line, &room, file)) > 0;)
        n += line[got - 1] == '\n' && strncmp(line, own, n_own) == 0;
    free(line);
    fclose(file);
    return n;
}

static sp_run_state state_of(const sp_run *run) {
    if (!run->manifest) return SP_RUN_BROKEN;
    if (sp_rundir_is_running(&run->rundir)) return SP_RUN_RUNNING;
    const char *name = json_string_value(json_object_get(run->manifest, "state"));
    for (int state = SP_RUN_DONE; name && state <= SP_RUN_FAILED; state++)
        if (strcmp(name, state_names[state]) == 0) return (sp_run_state)state;
    return SP_RUN_DIED;
}

static void forget(sp_run *run) {
    json_decref(run->manifest);
    json_decref(run->progress);
    run->manifest = run->progress = NULL;
}

void sp_run_refresh(sp_run *run) {
    sp_error ignored = {0};
    char path[4200];
    forget(run);
    snprintf(path, sizeof path, "%s/progress.json", run->rundir.path);
    run->manifest = sp_rundir_load_manifest(&run->rundir, &ignored);
    sp_error_clear(&ignored);
    run->progress = sp_json_load(path, PROGRESS_BYTES_MAX, &ignored);
    sp_json_get_path(run->manifest, "results", run->results_path, sizeof run->results_path);
    run->state = state_of(run);
    int64_t begun_s = json_integer_value(json_object_get(run->manifest, "begun_s"));
    run->is_fresh = json_integer_value(json_object_get(run->progress, "updated_s")) >= begun_s;
    const json_t *told = run->state == SP_RUN_RUNNING || run->state == SP_RUN_DIED
                             ? run->progress
                             : json_object_get(run->manifest, "result");
    run->n_rows = (uint64_t)json_integer_value(json_object_get(told, "rows"));
    run->n_errors = (uint64_t)json_integer_value(json_object_get(told, "errors"));
    if (run->state == SP_RUN_DIED) run->n_rows = count_lines(run->results_path, run->rundir.id);
}

/* The newest that runs, else the newest. */
static bool pick(const char *home, sp_rundir *rundir, sp_error *err) {
    char **ids;
    size_t n;
    bool found = false;
    if (!sp_rundir_list(home, &ids, &n, err)) return false;
    for (size_t i = 0; i < n; i++) {
        sp_rundir here;
        sp_error ignored = {0};
        if (!sp_rundir_open(&here, home, ids[i], &ignored)) continue;
        bool is_running = sp_rundir_is_running(&here);
        if (!found || is_running) *rundir = here;
        found = true;
        if (is_running) break;
    }
    sp_rundir_list_free(ids, n);
    return found || sp_fail(err, SP_ERR_USAGE, "no job found; spill run begins one");
}

bool sp_run_open(sp_run *run, const char *home, const char *id, sp_error *err) {
    *run = (sp_run){0};
    if (!(id ? sp_rundir_open(&run->rundir, home, id, err) : pick(home, &run->rundir, err))) return false;
    sp_run_refresh(run);
    return true;
}

void sp_run_close(sp_run *run) { forget(run); }

json_t *sp_run_json(const sp_run *run) {
    json_t *json = json_pack("{s:o,s:s,s:I,s:I,s:o}", "run", sp_json_text(run->rundir.id), "state",
                             state_names[run->state], "rows", (json_int_t)run->n_rows, "errors",
                             (json_int_t)run->n_errors, "results", sp_json_text(run->results_path));
    static const char *const sections[] = {"created", "updated", "command", "model", "input", "result", "error"};
    for (size_t i = 0; run->manifest && i < sizeof sections / sizeof *sections; i++)
        json_object_set(json, sections[i], json_object_get(run->manifest, sections[i]));
    if (run->progress && (run->is_fresh || run->state != SP_RUN_RUNNING))
        json_object_set(json, "progress", run->progress);
    return json;
}
