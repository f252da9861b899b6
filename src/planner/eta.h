/* The estimate of a run that is under way: what is left is simulated with the rates that its passes have shown. Starts
 * from what earlier runs showed, so it narrows as the run goes; follows a drive or processors that slow down within a
 * few passes. No I/O and no clock, so tests run it on invented machines. Not thread-safe; nothing is allocated after
 * sp_eta_new but room for a greater forest. */
#ifndef SPILL_PLANNER_ETA_H
#define SPILL_PLANNER_ETA_H

#include "planner/plan.h"

typedef struct sp_eta sp_eta;

/* A row as the run knows it. */
typedef struct {
    size_t n_prompt, n_new, max_new; /* tokens: prompt, generated, to generate at most */
    size_t n_cached;                 /* in its pages; 0 unless it runs */
    uint32_t block;                  /* of the forest; 0: its prompt begins like no other */
} sp_eta_row;

/* What a pass took, from the end of the one before: results and rows in between belong to it. */
typedef struct {
    sp_pass_load load;
    double seconds, wait_seconds; /* of them, waiting for the drive */
    double bytes_read;
    bool is_first;   /* loads weights */
    bool was_spared; /* with a thread less than the machine has: says nothing of how fast that computes */
} sp_eta_pass;

/* plan is copied, observed may be NULL; rows_max rows are given to sp_eta_left at most. */
sp_eta *sp_eta_new(const sp_model *model, const sp_machine *machine, const sp_plan *plan, const sp_observed *observed,
                   size_t rows_max);
void sp_eta_free(sp_eta *eta); /* NULL is fine */

void sp_eta_add_pass(sp_eta *eta, const sp_eta_pass *pass);
void sp_eta_add_row(sp_eta *eta, size_t n_new, size_t max_new); /* a row that has ended */

/* Rows that are left. */
typedef struct {
    const sp_eta_row *running, *queued; /* the newest last; in order */
    size_t n_running, n_queued;
    size_t n_more;           /* that nobody has read yet */
    const sp_forest *forest; /* of their prompts; NULL: no two begin alike */
} sp_eta_rows;
sp_estimate sp_eta_left(sp_eta *eta, const sp_eta_rows *left);

const sp_observed *sp_eta_observed(const sp_eta *eta); /* earlier runs and this one */
/* The drive's rate in passes that waited for it, and the bytes of those; 0: none did. */
double sp_eta_disk_bps(const sp_eta *eta, double *n_bytes);

#endif
