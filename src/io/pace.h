/* How many requests a drive is given at a time: few or many, whichever was faster lately.
 *
 * Many keep a drive with a queue of its own busy, and a reader that has to wait for a processor late. Few go round in
 * so little memory that it stays in the processor's last cache, which a virtual drive, whose host copies what arrives,
 * can be faster for by a third, or slower (docs/decisions/005-warm-slots.md). Which holds changes within seconds, so it
 * is found out while reading: trials of a hundred megabytes, and from time to time one of the other.
 *
 * Plain data and arithmetic; the caller has the lock and the clock. */
#ifndef SPILL_IO_PACE_H
#define SPILL_IO_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t few, many;  /* requests in flight; few == 0: always many */
    bool is_few;       /* now */
    bool explores;     /* tries the one that was slower */
    bool starved;      /* in this trial there was room for a request, and none to be had */
    uint64_t start_ns; /* of the trial; 0: begins with what lands next */
    int64_t n_bytes;   /* of the trial; negative: before it */
    size_t n_trials;   /* since the last switch */
    double bps[2];     /* lately, of many and of few; 0: not known */
} sp_pace;

static inline size_t sp_pace_limit(const sp_pace *pace) { return pace->is_few ? pace->few : pace->many; }

/* There was room for a request, and nothing to read: the rate of this trial is not the drive's. */
static inline void sp_pace_starved(sp_pace *pace) { pace->starved = true; }

/* n_bytes landed. True: the limit is another now. */
bool sp_pace_landed(sp_pace *pace, size_t n_bytes, uint64_t now_ns);

#endif
