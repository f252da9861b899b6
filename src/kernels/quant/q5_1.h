/* Q5_1: 32 numbers d * q + m; bits as in Q5_0. d has 11 significant bits, q at most 5: the product is exact in fp32, so
 * the sum is rounded once, whether or not a compiler fuses the two. */
#ifndef SPILL_KERNELS_QUANT_Q5_1_H
#define SPILL_KERNELS_QUANT_Q5_1_H

#include <stdint.h>

#include "kernels/format.h"
#include "kernels/quant/f16.h"

typedef struct __attribute__((packed)) { /* at any address */
    uint16_t d, m;                       /* halves */
    uint8_t h[4];
    uint8_t q[16];
} block_q5_1;
_Static_assert(sizeof(block_q5_1) == 24, "Q5_1 block");

static inline void decode_Q5_1(const uint8_t *restrict bytes, float *restrict out) {
    const block_q5_1 *b = (const void *)bytes;
    const float d = sp_f16_to_f32(b->d), m = sp_f16_to_f32(b->m);
    const uint32_t high =
        (uint32_t)b->h[0] | (uint32_t)b->h[1] << 8 | (uint32_t)b->h[2] << 16 | (uint32_t)b->h[3] << 24;
    for (int j = 0; j < 16; j++) {
        uint32_t low = (b->q[j] & 15u) | (high >> j & 1u) << 4;
        uint32_t top = (b->q[j] >> 4) | (high >> (j + 16) & 1u) << 4;
        out[j] = d * (float)(int32_t)low + m;
        out[j + 16] = d * (float)(int32_t)top + m;
    }
}

#endif
