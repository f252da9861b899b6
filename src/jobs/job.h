/* A job: rows of an input through a model, results in a file, its story in a directory.
 *
 * A job directory ($SPILL_HOME/runs/ID) holds manifest.json (command, model identity, input hash, versions, machine,
 * plan, parameters as applied) and, unless an output file was named, results.jsonl. A job is an object that emits
 * events; who shows them (a terminal, JSON lines) is the caller's affair. One job per thread. */
#ifndef SPILL_JOBS_JOB_H
#define SPILL_JOBS_JOB_H

#include <signal.h>

#include "jobs/batch.h"
#include "jobs/frontend.h"
#include "planner/machine.h"
#include "planner/plan.h"

/* An earlier run that is to go on; sp_job_run finds the one that output_path belongs to by itself. */
typedef struct sp_resume sp_resume;
/* By its id, or the newest unfinished one that can go on (id NULL). Takes the job's lock. home as in the options. */
sp_resume *sp_resume_by_id(const char *home, const char *id, sp_error *err) SP_MUST_CHECK;
void sp_resume_close(sp_resume *resume); /* NULL is fine */

typedef struct {
    const char *model_path;
    const char *input_path;  /* "-": stdin, "sample": the built-in set */
    const char *output_path; /* NULL: the job directory's results.jsonl */
    bool to_stdout;          /* results to stdout as well */
    const char *home;        /* $SPILL_HOME; NULL: from the environment */
    const char *command;     /* as typed, for the manifest */
    sp_decoding decoding;    /* for rows without their own */
    int64_t seed;            /* for rows without their own */
    sp_mode mode;
    sp_placement placement;
    uint64_t memory_bytes;
    size_t n_threads, rows_cap;
    size_t limit;            /* first N rows; 0: all */
    double time_limit_s;     /* 0: none */
    const char *disable_isa; /* $SPILL_DISABLE_ISA */
    sp_prompt_options prompt;
    bool echo_tokens;
    /* sp_job_plan: the machine.json of another machine to plan for; NULL: this one */
    const char *machine_path;
    const volatile sig_atomic_t *stop_flag; /* set from outside: stop before the next pass */
    sp_resume *resume;                      /* go on with this one; borrowed */
} sp_job_options;

/* Sets what the earlier run was given and what decides bytes, and its limits (memory, threads, rows) where options have
 * none; the others (placement, time limit...) stay. Strings are borrowed from it. */
void sp_resume_options(sp_resume *resume, sp_job_options *options);

/* Known once planning is done. */
typedef struct {
    const char *run_id, *run_dir, *results_path;
    const sp_model *model;
    const sp_machine *machine;
    const sp_plan_request *request; /* what was planned for */
    const sp_plan *plan;
    const char *isa;
    size_t n_rows_known; /* rows of the input read so far */
    bool all_rows_known;
    size_t n_bad_known, first_bad_line; /* of them: those that will be errors, and the first one's line */
} sp_job_info;

typedef struct {
    const sp_batch_pass *pass;
    size_t n_done, n_errors, n_running;
    size_t prompt_tokens, new_tokens; /* of the whole job so far */
    double seconds;
    uint64_t bytes_read, wait_ns, rss_bytes;
    sp_row *const *running; /* [n_running], for their text */
    sp_estimate left;       /* seconds to go; 0: not known */
    size_t n_rows_known;
    bool all_rows_known;
} sp_job_progress;

typedef struct {
    const char *custom_id;
    size_t n_tokens;
    const char *finish_reason; /* NULL: an error */
    const char *error_message;
    const char *text;       /* the answer */
    const json_t *expected; /* the input row's, or NULL */
} sp_job_row;

typedef struct {
    void *ctx; /* any of the calls may be NULL */
    void (*planned)(void *ctx, const sp_job_info *info);
    void (*passed)(void *ctx, const sp_job_progress *progress);
    void (*row)(void *ctx, const sp_job_row *row);
} sp_job_events;

typedef struct {
    size_t n_done; /* rows with a result line, errors included, those of earlier runs too */
    size_t n_errors;
    size_t n_before;   /* of n_done: lines that an earlier run of the job had written */
    bool was_resumed;  /* went on with an earlier run */
    bool was_complete; /* there was nothing to do, nothing was touched */
    size_t prompt_tokens, new_tokens;
    size_t n_expected, n_matched; /* rows with "expected", and those whose trimmed text equals it */
    double seconds;
    uint64_t bytes_read, wait_ns, peak_rss_bytes;
    size_t n_in_flight,
        n_kept_tokens; /* rows that an end in between left unfinished, and their tokens in the journal */
    bool has_no_file;  /* its results went to no regular file: what is missing of them cannot be continued */
    bool stopped;      /* by stop_flag, the time limit or a reader that left */
    double estimate_s;
    char run_id[48];
    char results_path[4096];
} sp_job_result;

/* Runs it to its end. False: a failure, nothing finished is lost (result tells how far it came). Stopped before there
 * was a row to run: false with SP_ERR_CANCEL, nothing is written. */
bool sp_job_run(const sp_job_options *options, const sp_job_events *events, sp_job_result *result,
                sp_error *err) SP_MUST_CHECK;

/* Opens everything and plans, executes nothing and writes nothing. */
bool sp_job_plan(const sp_job_options *options, const sp_job_events *events, sp_error *err) SP_MUST_CHECK;

#endif
