/* The schedule of a job without its weights: the passes that planner/policy.h decides, as jobs/batch.c executes them,
 * timed by planner/cost.h. Pure: same job, same answer.
 *
 * Runs of passes that differ only in their rows' lengths are one step, so 10,000 rows take milliseconds. A simulator
 * holds scratch memory alone and may be used again; not thread-safe. */
#ifndef SPILL_PLANNER_SIMULATE_H
#define SPILL_PLANNER_SIMULATE_H

#include "planner/cost.h"
#include "planner/prefix.h"

typedef struct {
    size_t n_tokens;      /* prompt, and what it has generated so far */
    size_t n_cached;      /* of them in its pages; 0 unless it runs */
    size_t n_left;        /* tokens it will generate yet, at least 1 */
    size_t n_new, n_most; /* generated so far; in all, at most, which is what the policy knows (0: n_new + n_left) */
    uint32_t block;       /* of the job's forest, 0: none; all before it, too, are shared with other rows */
} sp_sim_row;

typedef struct {
    const sp_sim_row *running; /* [n_running], the newest last */
    size_t n_running;
    const sp_sim_row *queued; /* [n_queued] in order */
    size_t n_queued;
    const sp_sim_row *like; /* [n_like] rows that the n_more after them repeat in turn */
    size_t n_like, n_more;
    const sp_forest *forest;            /* of the rows' prompts, parents before children; NULL: no two begin alike */
    size_t rows, kv_pages, pass_tokens; /* as in the plan */
    double weight_bytes;                /* of the whole model */
    double share; /* of n_most that rows are expected to generate; 0: all; where they end is in n_left */
    double streamed_bytes, layer_bytes; /* read in every pass; of a layer */
    double logits_bytes;                /* of streamed_bytes, what a pass without logits leaves out */
    double page_bytes;                  /* of KV; with the three below: pages that are no longer needed pin layers */
    size_t n_unpinned_layers;
    double read_bps;     /* of the drives, 0: nothing is read */
    double first_read_s; /* the drive's part of the first pass, in which all weights are read; 0: as of any other. Where
                          nothing streams it is work of the cores, and nothing hides it */
} sp_sim_job;

typedef struct {
    double seconds;
    double n_passes, n_prefill, n_decode; /* passes; tokens of them */
    double row_passes;                    /* rows in flight, summed over passes */
} sp_sim_result;

typedef struct sp_simulator sp_simulator;

sp_simulator *sp_simulator_new(size_t rows_max);
void sp_simulator_free(sp_simulator *simulator); /* NULL is fine */

/* Simulates at most max_rows rows from the queue; what is more goes on at the rate of the later half of them. Gives up
 * when `stop_seconds` have passed in the simulation (0: never): then seconds is at least that. */
sp_sim_result sp_simulate(sp_simulator *simulator, const sp_cost *cost, const sp_sim_job *job, size_t max_rows,
                          double stop_seconds);

/* The share of the weights that is in panel form while so many bytes of them are read in every pass. */
double sp_sim_panel_share(const sp_sim_job *job, double streamed_bytes);

/* Layers that can stay in memory, beyond those of the plan, when only n_pages of KV may still be needed. Shared with
 * the batch loop. */
size_t sp_sim_freed_layers(const sp_sim_job *job, size_t n_pages);

#endif
