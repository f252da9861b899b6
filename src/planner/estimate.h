/* How long rows will take: a range, from simulations with early, likely and latest ends. Pure. */
#ifndef SPILL_PLANNER_ESTIMATE_H
#define SPILL_PLANNER_ESTIMATE_H

#include "planner/simulate.h"

typedef struct {
    double low_s, likely_s, high_s;
} sp_estimate;

/* Where rows end: so large a share of them runs to max_tokens, the others end at this fraction of theirs. */
typedef struct {
    double full_share, fraction;
} sp_ends;

/* What rows of a model were seen to do. */
typedef struct {
    double n_rows, n_full;
    double fractions; /* sum over the rows that ended before max_tokens */
} sp_ends_seen;

/* Earlier passes and rows of a model on this machine (planner/history.h). All 0: none. */
typedef struct {
    sp_cost_seen passes;
    sp_ends_seen ends;
} sp_observed;

/* Adds a row that generated n_new of max_new tokens; old rows fade, so that it stays a picture of the last thousand. */
void sp_ends_see(sp_ends_seen *seen, size_t n_new, size_t max_new);
/* Without a row seen: all run to max_tokens. */
sp_ends sp_ends_likely(const sp_ends_seen *seen);
sp_ends sp_ends_early(const sp_ends_seen *seen);
double sp_ends_share(const sp_ends *ends); /* of max_tokens that a row generates, on average */
/* Tokens that row i will yet generate, of max_new in all, n_new of them done; at least 1. */
size_t sp_ends_left(const sp_ends *ends, size_t i, size_t max_new, size_t n_new);

/* From three simulations, whose rows end early, as likely, and last; doubt: the share by which rates may be wrong. */
sp_estimate sp_estimate_range(double early_s, double likely_s, double latest_s, double doubt);

#endif
