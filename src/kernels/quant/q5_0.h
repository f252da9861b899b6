/* Q5_0: 32 numbers d * (q - 16); byte j holds the low four bits of element j (low nibble) and j + 16 (high), bit i of h
 * the fifth bit of element i. d has 11 significant bits, q at most 5: the product is exact in fp32. */
#ifndef SPILL_KERNELS_QUANT_Q5_0_H
#define SPILL_KERNELS_QUANT_Q5_0_H

#include <stdint.h>

#include "kernels/format.h"
#include "kernels/quant/f16.h"

typedef struct __attribute__((packed)) { /* at any address */
    uint16_t d;                          /* half */
    uint8_t h[4];
    uint8_t q[16];
} block_q5_0;
_Static_assert(sizeof(block_q5_0) == 22, "Q5_0 block");

static inline void decode_Q5_0(const uint8_t *restrict bytes, float *restrict out) {
    const block_q5_0 *b = (const void *)bytes;
    const float d = sp_f16_to_f32(b->d);
    const uint32_t high =
        (uint32_t)b->h[0] | (uint32_t)b->h[1] << 8 | (uint32_t)b->h[2] << 16 | (uint32_t)b->h[3] << 24;
    for (int j = 0; j < 16; j++) {
        int32_t low = (int32_t)((b->q[j] & 15u) | (high >> j & 1u) << 4);
        int32_t top = (int32_t)((b->q[j] >> 4) | (high >> (j + 16) & 1u) << 4);
        out[j] = d * (float)(low - 16);
        out[j + 16] = d * (float)(top - 16);
    }
}

#endif
