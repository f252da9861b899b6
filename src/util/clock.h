/* Time. Monotonic nanoseconds for durations and deadlines, processor time for bounds on work, wall seconds for what is
 * shown. Thread-safe. */
#ifndef SPILL_UTIL_CLOCK_H
#define SPILL_UTIL_CLOCK_H

#include <stdint.h>

uint64_t sp_clock_ns(void);     /* monotonic */
uint64_t sp_clock_cpu_ns(void); /* processor time of the calling thread: what others use does not count */
int64_t sp_clock_wall_s(void);  /* seconds since 1970, UTC */

#endif
