/* progress.json: how far a running job is, for other processes. Replaced at most once a second by an atomic rename;
 * what it says is not needed to go on, so that a drive that refuses it stops nothing. */
#ifndef SPILL_JOBS_PROGRESS_H
#define SPILL_JOBS_PROGRESS_H

#include "jobs/job.h"
#include "jobs/rundir.h"

typedef struct {
    uint64_t written_ns; /* 0: never */
} sp_progress_file;

/* result: what is known of the whole job, its rows of earlier runs included. */
void sp_progress_write(sp_progress_file *file, const sp_rundir *rundir, const sp_job_progress *progress,
                       const sp_job_result *result);

#endif
