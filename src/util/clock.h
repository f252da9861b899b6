/* Time. Monotonic nanoseconds for durations and deadlines, wall seconds for what is shown. Thread-safe. */
#ifndef SPILL_UTIL_CLOCK_H
#define SPILL_UTIL_CLOCK_H

#include <stdint.h>

uint64_t sp_clock_ns(void);    /* monotonic */
int64_t sp_clock_wall_s(void); /* seconds since 1970, UTC */

#endif
