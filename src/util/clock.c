/* Time from clock_gettime. */
#include "util/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sp_clock_ns(void) { return read_ns(CLOCK_MONOTONIC); }

uint64_t sp_clock_cpu_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }

int64_t sp_clock_wall_s(void) { return (int64_t)time(NULL); }
