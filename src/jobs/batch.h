/* Continuous batching: executes what planner/policy.h decides, which rows run in which pass, with an engine.
 *
 * A finished row's place is filled for the next pass, from the rows that wait. When KV pages run out, the newest row
 * gives its pages up and is prefilled again later; its bytes do not change (docs/DESIGN.md section 1). */
#ifndef SPILL_JOBS_BATCH_H
#define SPILL_JOBS_BATCH_H

#include "engine/engine.h"
#include "jobs/prefixes.h"
#include "jobs/row.h"
#include "util/threads.h"

typedef struct {
    uint64_t i_pass; /* from 1 */
    sp_pass_stats pass;
    sp_pass_load load;
    size_t n_rows;                        /* running in it */
    size_t prefill_tokens, decode_tokens; /* that went in */
    size_t new_tokens;                    /* that rows got */
} sp_batch_pass;

/* Where rows come from and go to. All are called on the caller's thread, between passes. */
typedef struct {
    void *ctx;
    /* Row i of those that wait, the oldest first, still the callee's; NULL when there are not so many yet. may_wait:
     * there is nothing else to do until one comes. False: a failure that ends the job. */
    bool (*row_at)(void *ctx, size_t i, bool may_wait, const sp_row **row, sp_error *err);
    sp_row *(*take_row)(void *ctx, const sp_row *row); /* a row that waits, the batch's from now on */
    bool (*is_dry)(void *ctx);                         /* no row waits, and none will */
    /* A row that is done: code SP_ROW_OK, or the error and its message. Ownership moves to the callee. */
    bool (*row_done)(void *ctx, sp_row *row, sp_row_code code, const char *message, sp_error *err);
    /* Once, when a pass has read all weights for the first time, before a row of it is done: the hash of their content.
     * False: a failure that ends the job. */
    bool (*content_known)(void *ctx, const sp_hash *content, sp_error *err);
    /* After each pass; running[n_running] are the rows in flight. */
    void (*pass_done)(void *ctx, const sp_batch_pass *pass, sp_row *const *running, size_t n_running);
    bool (*should_stop)(void *ctx); /* asked before each pass */
} sp_batch_calls;

typedef struct {
    sp_engine *engine;
    sp_device *device;
    sp_pool *pool;
    const sp_model *model;
    const sp_plan *plan;
    const sp_stop_ids *stops;
    sp_prefixes *prefixes;       /* of the rows' prompts */
    const sp_observed *observed; /* where rows end, as it becomes known */
    sp_batch_calls calls;
} sp_batch_setup;

/* Runs until there are no more rows and all are done, or should_stop says so (then *stopped is set and the rows in
 * flight are dropped), or a failure. Nothing that was handed to row_done is lost in any case. */
bool sp_batch_run(const sp_batch_setup *setup, bool *stopped, sp_error *err) SP_MUST_CHECK;

#endif
