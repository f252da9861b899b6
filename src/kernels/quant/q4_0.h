/* Q4_0: 32 numbers d * (q - 8); byte j holds element j (low nibble) and j + 16 (high). d has 11 significant bits, q at
 * most 4: the product is exact in fp32. */
#ifndef SPILL_KERNELS_QUANT_Q4_0_H
#define SPILL_KERNELS_QUANT_Q4_0_H

#include <stdint.h>

#include "kernels/format.h"
#include "kernels/quant/f16.h"

typedef struct __attribute__((packed)) { /* at any address */
    uint16_t d;                          /* half */
    uint8_t q[16];
} block_q4_0;
_Static_assert(sizeof(block_q4_0) == 18, "Q4_0 block");

static inline void decode_Q4_0(const uint8_t *restrict bytes, float *restrict out) {
    const block_q4_0 *b = (const void *)bytes;
    const float d = sp_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((b->q[j] & 15) - 8);
        out[j + 16] = d * (float)((b->q[j] >> 4) - 8);
    }
}

#endif
