/* Time from clock_gettime. */
#include "util/clock.h"

#include <time.h>

uint64_t sp_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t sp_clock_wall_s(void) { return (int64_t)time(NULL); }
