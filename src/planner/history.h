/* history.json: what runs of a model showed (how long passes took against what was computed for them, where rows
 * ended), kept per model, mode, instruction set and number of threads for the estimates of later runs. At most
 * SP_HISTORY_ENTRIES of them, the latest used. Not thread-safe; of two programs that save at a time one is lost. */
#ifndef SPILL_PLANNER_HISTORY_H
#define SPILL_PLANNER_HISTORY_H

#include "planner/estimate.h"
#include "util/error.h"

enum { SP_HISTORY_ENTRIES = 64 };

typedef struct {
    const char *model;     /* a hash */
    const sp_rates *rates; /* what passes were computed with: other rates make those of no use */
} sp_history_key;

/* All 0 when there is nothing, or nothing readable: estimates do without. */
void sp_history_load(const char *path, const sp_history_key *key, sp_observed *observed);
/* By an atomic rename; the directory must exist. A file that cannot be read is replaced. */
bool sp_history_save(const char *path, const sp_history_key *key, const sp_observed *observed,
                     sp_error *err) SP_MUST_CHECK;

#endif
