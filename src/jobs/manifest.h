/* The manifest of a job: what produced its results, so that a number in a table can be traced. */
#ifndef SPILL_JOBS_MANIFEST_H
#define SPILL_JOBS_MANIFEST_H

#include "jobs/job.h"

enum { SP_MANIFEST_FORMAT = 1 }; /* of what resume reads: manifest, journal, result lines */

typedef struct {
    const sp_job_options *options;
    const sp_model *model;
    const char *model_hash;   /* of its description */
    const char *content_hash; /* of its weights; NULL while they have not been read */
    const sp_machine *machine;
    const sp_plan_request *request; /* what was planned for */
    const sp_plan *plan;
    const char *isa;
    const sp_stop_ids *stops;
    const char *input_hash;            /* NULL while the input is not read to its end */
    int64_t created_s, begun_s, now_s; /* the job; this process; what templates see as today */
    const char *run_id;
    const char *state; /* "running", "done", "stopped", "failed" */
    const char *error; /* NULL unless it failed */
    const sp_job_result *result;
} sp_manifest;

/* The parameters that decide bytes, each by its option's name; the caller owns the object. */
json_t *sp_manifest_parameters(const sp_job_options *options);
/* The caller owns the object. */
json_t *sp_manifest_json(const sp_manifest *manifest);

#endif
