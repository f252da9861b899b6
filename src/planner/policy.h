/* The schedule's decisions over plain numbers: which waiting row joins next, which tokens a pass carries, who gives way
 * when pages run out. The batch loop (jobs/batch.c) executes them with an engine, the simulator (planner/simulate.c)
 * with numbers: one policy, so that an estimate is of what will be done.
 *
 *     wait -> join -> build a pass -> (the caller runs it) -> advance -> remove those that have ended
 *               ^_________ pre-empted: the newest row's pages are given up, it joins again before others
 *
 * Order. Long rows join first, so that no wall of them stands at the end; every SP_POLICY_SHORT_EVERY-th to join, from
 * the first on, is the shortest, so that results show early. A row that SP_POLICY_OVERTAKEN have overtaken is next,
 * the oldest such first.
 * Tokens. A row joins when the pass at hand has tokens left for its prompt: before that its place would be of no use.
 * Pages. A row joins when the rows in flight and it, each as long as it is expected to become, never need more pages
 * than there are at any pass to come. When expectations were wrong and pages run out, the newest rows give way.
 * Prefixes. Rows whose prompts begin alike share whole pages (planner/prefix.h): the first fills them, the others join
 * meanwhile and begin behind them, in the very pass that fills the last one. When the last row in flight that has a
 * page leaves, the page is kept as long as rows wait for it and nobody needs it more.
 *
 * A pass: every row that lacks one token gets it, then the prompts, the oldest first, as far as tokens and pages go.
 *
 * Pure and deterministic. Nothing is allocated after sp_policy_new. Not thread-safe. */
#ifndef SPILL_PLANNER_POLICY_H
#define SPILL_PLANNER_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "planner/cost.h"
#include "planner/prefix.h"

enum { SP_POLICY_WINDOW = 256, SP_POLICY_SHORT_EVERY = 16, SP_POLICY_OVERTAKEN = 2 * SP_POLICY_WINDOW };

typedef struct {
    size_t n_tokens; /* prompt, and what it has generated so far */
    size_t n_cached; /* of them in its pages */
    size_t n_new;    /* those that it has generated */
    size_t n_most;   /* tokens it generates at most */
    size_t n_pages;  /* that it holds, shared ones included */
    size_t n_span;   /* its tokens in the pass at hand, [n_cached, n_cached + n_span) */
    uint32_t block;  /* the last of its prompt's, which ends before the prompt does; 0: none */
    bool has_begun;  /* to hold pages */
    uint64_t came;   /* rows that had joined when it began to wait */
    uint64_t tag;    /* the caller's own */
} sp_policy_row;

typedef struct {
    size_t rows;        /* in flight at most */
    size_t kv_pages;    /* pages of SP_KV_PAGE_TOKENS tokens */
    size_t pass_tokens; /* of a pass at most, at least rows */
} sp_policy_limits;

typedef struct {
    sp_policy_limits limits;
    sp_policy_row *running; /* [n_running] in order of joining: the last is the newest */
    size_t n_running;
    sp_policy_row *back; /* [n_back] pre-empted rows, a stack */
    size_t n_back;
    sp_policy_row *waiting; /* [n_waiting] the one with most to do first */
    size_t n_waiting;
    size_t pages_free;                       /* that hold nothing */
    sp_forest *forest;                       /* the caller's, or NULL; it may grow */
    size_t n_shared;                         /* blocks that rows in flight go through */
    size_t n_unfilled;                       /* of them, those whose page is yet to be filled */
    size_t n_kept;                           /* blocks that hold a page for rows that wait, of no row in flight */
    void (*drop)(void *ctx, uint32_t block); /* called, if not NULL, when a block's page is given up */
    void *ctx;
    double share;        /* of n_most that rows are expected to generate; may change at any time */
    uint64_t n_joined;   /* rows so far, those that join again not counted */
    uint64_t overdue_at; /* no waiting row has been overtaken too often before so many have joined */
    bool is_full;        /* nobody that waits has room until a row leaves or comes */
} sp_policy;

/* Never NULL. rows_max: limits.rows at most. */
sp_policy *sp_policy_new(size_t rows_max);
void sp_policy_free(sp_policy *policy);                                  /* NULL is fine */
void sp_policy_begin(sp_policy *policy, const sp_policy_limits *limits); /* anew: no rows, a share of 1 */

/* A row that waits, at most SP_POLICY_WINDOW at a time; of it n_tokens (at least 1), n_new, n_most, block and tag
 * count. */
void sp_policy_wait(sp_policy *policy, const sp_policy_row *row);
/* The next row to join, now the last of running. False: none may, or none waits. */
bool sp_policy_join(sp_policy *policy);
/* Decides the pass: n_span of all running rows, n_cached and n_pages of those that begin behind shared pages; may move
 * the newest to back. False: *i_row is more than all pages hold, alone; remove it. With a row in flight some n_span is
 * not 0 afterwards. */
bool sp_policy_build(sp_policy *policy, size_t *i_row);
/* What the pass that was built costs by, and how many of its tokens belong to rows that lack more than one. */
sp_pass_load sp_policy_load(const sp_policy *policy, size_t *n_prefill);
/* The pass has been run: running row i holds n tokens more. */
void sp_policy_advance(sp_policy *policy, size_t i, size_t n);
/* Running row i has n_cached tokens already (it holds none yet): a job that is taken up on its way. */
void sp_policy_resume(sp_policy *policy, size_t i, size_t n_cached);
/* Running row i gives up its pages but stays. */
void sp_policy_uncache(sp_policy *policy, size_t i);
void sp_policy_remove(sp_policy *policy, size_t i);

/* Pages with which so many rows are let in at once that hold n_tokens together, shared ones counted once. */
size_t sp_policy_roomy_pages(size_t n_rows, size_t n_tokens);

/* Pages that the rows in flight hold when each is as long as it can become. */
size_t sp_policy_pages_most(const sp_policy *policy);
size_t sp_policy_needed(const sp_policy_row *row, size_t n); /* pages that n tokens more of it take */

#endif
