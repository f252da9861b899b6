/* Syncs files in the background, so that a drive that takes its time does not hold up passes: a thread of its own. One
 * caller's thread. */
#ifndef SPILL_JOBS_SYNCER_H
#define SPILL_JOBS_SYNCER_H

#include <stdbool.h>

#include "util/error.h"

typedef struct sp_syncer sp_syncer;

sp_syncer *sp_syncer_new(sp_error *err) SP_MUST_CHECK;
void sp_syncer_free(sp_syncer *syncer); /* waits for what was begun; NULL is fine */

bool sp_syncer_is_busy(sp_syncer *syncer);
/* When it is not busy: begins to sync first, then second (-1: none). They must stay open until sp_syncer_wait. */
void sp_syncer_begin(sp_syncer *syncer, int first, int second);
/* Waits for the end of what was begun. */
void sp_syncer_wait(sp_syncer *syncer);
/* False when syncing has ever failed. */
bool sp_syncer_check(sp_syncer *syncer, sp_error *err) SP_MUST_CHECK;

#endif
