/* Size arithmetic. Products and sums of numbers that come from a file go through the checked forms; the others are for
 * numbers that are bounded already. Pure, thread-safe. */
#ifndef SPILL_UTIL_SIZE_H
#define SPILL_UTIL_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b (or a + b); false, with *out untouched, when it does not fit. */
static inline bool sp_mul_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool sp_add_size(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
/* The next multiple of `multiple` (> 0) at or above n; the caller knows that it fits. */
static inline size_t sp_round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
/* n / d (d > 0), rounded up. */
static inline size_t sp_div_up(size_t n, size_t d) { return n / d + (n % d != 0); }
static inline size_t sp_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t sp_max_size(size_t a, size_t b) { return a > b ? a : b; }

#endif
