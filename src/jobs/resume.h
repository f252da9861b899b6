/* An earlier run of a job that is to go on: finding it, and refusing what would not give the bytes of an undisturbed
 * run.
 *
 * Finding takes the job's lock and reads what is there; nothing is written. Whatever refuses names one thing that
 * differs, and all is as it was. Not thread-safe. */
#ifndef SPILL_JOBS_RESUME_H
#define SPILL_JOBS_RESUME_H

#include <stdio.h>

#include "jobs/job.h"
#include "jobs/journal.h"
#include "jobs/rundir.h"
#include "model/identity.h"

struct sp_resume {
    sp_rundir rundir;
    json_t *manifest;
    char results_path[4096], model_path[4096], input_path[4096];
    int lock_fd;
    bool is_complete;        /* all rows are done */
    bool wrote_none;         /* it never told of a result: its file may be missing */
    unsigned char *done;     /* bit i: the row of line i has a result */
    size_t done_lines;       /* [ceil(done_lines/8)] */
    FILE *lines;             /* the results, for earlier answers; NULL until one is asked for */
    uint64_t *line_at;       /* [done_lines] where each row's line begins; as lines */
    size_t n_done, n_errors; /* rows with a result, and those that are errors */
    uint64_t results_bytes;  /* whole lines of this job's results */
    char input_remedy[4400]; /* what to do about an input that is another one */
    sp_journal_state *journal;
};

/* The job that writes its results to output, be they still empty or, of one that had none yet, missing: *found stays
 * NULL when that is to be a new job. False with SP_ERR_USAGE when the file holds something else. */
bool sp_resume_by_output(const char *home, const char *output, sp_resume **found, sp_error *err) SP_MUST_CHECK;

/* Whether something of it would be lost to a new job with the same results file: result lines, or tokens of rows in
 * flight. */
bool sp_resume_is_bound(const sp_resume *resume);
/* Whether the options ask for the same bytes. */
bool sp_resume_check_parameters(const sp_resume *resume, const sp_job_options *options, sp_error *err) SP_MUST_CHECK;
/* The model as far as its headers and small files tell. */
bool sp_resume_check_model(const sp_resume *resume, const sp_model *model, const char *hash,
                           sp_error *err) SP_MUST_CHECK;
/* The weights, by content. */
bool sp_resume_check_weights(const sp_resume *resume, const char *hash, sp_error *err) SP_MUST_CHECK;

/* The input, as far as it can be read again now: what is no regular file passes. */
bool sp_resume_check_input(const sp_resume *resume, const char *path, sp_error *err) SP_MUST_CHECK;

/* What the input must begin with. */
const sp_input_mark *sp_resume_mark(const sp_resume *resume);
int64_t sp_resume_now_s(const sp_resume *resume);            /* what templates saw as today */
int64_t sp_resume_created_s(const sp_resume *resume);        /* when it began */
const char *sp_resume_content_hash(const sp_resume *resume); /* of its weights; NULL: it had not read them */
bool sp_resume_is_done(const sp_resume *resume, size_t i_line);

#endif
