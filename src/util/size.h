/* Size arithmetic on numbers that come from a file: every product and sum is checked. Pure, thread-safe. */
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
static inline size_t sp_round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
static inline size_t sp_div_up(size_t n, size_t d) { return n / d + (n % d != 0); }
static inline size_t sp_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t sp_max_size(size_t a, size_t b) { return a > b ? a : b; }

#endif
