/* Measures this machine: a drive's cold read rate, memory's, and the products' per instruction set.
 *
 * A rate is the median of several rounds with its spread, and is not believed when memory may have given it: the
 * drive's own counter of sectors must have seen the bytes, or, where there is none, reads must be slower than reads out
 * of the page cache. Nothing is kept: a test file is unlinked before it is filled. Not thread-safe; takes all the
 * processors it may for seconds. */
#ifndef SPILL_PLANNER_PROBE_H
#define SPILL_PLANNER_PROBE_H

#include "planner/machine_file.h"
#include "util/threads.h"

/* What is being measured, for somebody who waits. */
typedef void sp_probe_progress(void *ctx, const char *what);

/* Zero means default. */
typedef struct {
    bool quick;           /* in 1 to 2 s, few settings, only on weights that are there: what a run can wait for */
    double round_seconds; /* of one measurement of one setting; default 0.4, quick 0.2 */
    uint64_t file_bytes;  /* of the test file; default 2 GiB, a quarter of what is free at most */
    sp_probe_progress *progress; /* may be NULL */
    void *progress_ctx;
} sp_probe_options;

/* path: a model's directory or file, whose own weights are then read (the better measurement); or any directory, where
 * a test file of fresh random bytes is written. False when nothing can be measured there; a rate that is not believed
 * is no failure: read_bps 0 and a note. */
bool sp_probe_drive(const char *path, const sp_probe_options *options, sp_machine_drive *drive,
                    sp_error *err) SP_MUST_CHECK;

/* Fills machine.memory_bps and rates, the best instruction set first. */
bool sp_probe_compute(sp_pool *pool, const sp_probe_options *options, sp_machine_file *file,
                      sp_error *err) SP_MUST_CHECK;

/* ---- the judgement, pure: for sp_probe_drive and tests ---- */

typedef struct {
    sp_drive_kind kind;
    bool direct, is_virtual, own_file;      /* own_file: a test file that the probe has just written */
    double read_bps, cached_bps, again_bps; /* first reads; out of the page cache; the same bytes a second time */
    uint64_t bytes_read, device_bytes;      /* as we and the device counted them; device_bytes 0: it has no counter */
} sp_probe_evidence;

/* Can only memory have given this rate? The reason goes to note (SP_MACHINE_NOTE_BYTES), which may say something about
 * a believed rate too. */
bool sp_probe_is_believed(const sp_probe_evidence *evidence, char *note);

#endif
