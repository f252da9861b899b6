/* Q8_0: 32 numbers d * q. d has 11 significant bits, q at most 8: the product is exact in fp32. */
#ifndef SPILL_KERNELS_QUANT_Q8_0_H
#define SPILL_KERNELS_QUANT_Q8_0_H

#include <stdint.h>

#include "kernels/format.h"
#include "kernels/quant/f16.h"

typedef struct __attribute__((packed)) { /* at any address */
    uint16_t d;                          /* half */
    int8_t q[32];
} block_q8_0;
_Static_assert(sizeof(block_q8_0) == 34, "Q8_0 block");

static inline void decode_Q8_0(const uint8_t *restrict bytes, float *restrict out) {
    const block_q8_0 *b = (const void *)bytes;
    const float d = sp_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++) out[i] = d * (float)b->q[i];
}

#endif
