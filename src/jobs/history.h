/* Jobs as their directories tell: those that run in other processes too. Reads only; a job is never disturbed. */
#ifndef SPILL_JOBS_HISTORY_H
#define SPILL_JOBS_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "jobs/rundir.h"

typedef enum {
    SP_RUN_RUNNING, /* a process works on it */
    SP_RUN_DONE,
    SP_RUN_STOPPED, /* by a signal or the time limit, with a checkpoint */
    SP_RUN_FAILED,  /* by an error that it has told */
    SP_RUN_DIED,    /* killed, or the machine went down */
    SP_RUN_BROKEN,  /* its manifest cannot be read */
} sp_run_state;
const char *sp_run_state_name(sp_run_state state);

typedef struct {
    sp_rundir rundir;
    sp_run_state state;
    json_t *manifest; /* NULL when broken */
    json_t *progress; /* of the running or the last process; NULL: none yet */
    bool is_fresh;    /* progress: by the process that runs */
    char results_path[4096];
    uint64_t n_rows, n_errors; /* rows with a result; how many are errors, as last told */
} sp_run;

/* By id, or with id NULL the newest that runs, else the newest. False with SP_ERR_USAGE when there is none. */
bool sp_run_open(sp_run *run, const char *home, const char *id, sp_error *err) SP_MUST_CHECK;
/* Its state now; the manifest is read again. */
void sp_run_refresh(sp_run *run);
void sp_run_close(sp_run *run);

/* What status and runs print of it with --json; the caller's. */
json_t *sp_run_json(const sp_run *run);

#endif
