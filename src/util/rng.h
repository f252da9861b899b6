/* Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 * A number is a function of key and counter alone, so it does not matter who draws it or when. Pure, thread-safe. */
#ifndef SPILL_UTIL_RNG_H
#define SPILL_UTIL_RNG_H

#include <stdint.h>

typedef struct {
    uint32_t v[4];
} sp_rng_block;

/* The 128 random bits of a key (64 bits) and a counter (128 bits). */
static inline sp_rng_block sp_rng_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio, sqrt(3) - 1: the paper's Weyl constants */
        k1 += 0xBB67AE85u;
    }
    return (sp_rng_block){{c0, c1, c2, c3}};
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double sp_rng_uniform(uint64_t key, uint64_t counter) {
    sp_rng_block block = sp_rng_philox(key, counter, 0);
    uint64_t bits = (uint64_t)block.v[0] << 32 | block.v[1];
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
