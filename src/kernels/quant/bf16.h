/* BF16: the high half of an fp32. */
#ifndef SPILL_KERNELS_QUANT_BF16_H
#define SPILL_KERNELS_QUANT_BF16_H

#include <stdint.h>
#include <string.h>

#include "kernels/format.h"

static inline void decode_BF16(const uint8_t *restrict block, float *restrict out) {
    sp_bf16 value;
    memcpy(&value, block, sizeof value);
    *out = sp_bf16_to_f32(value);
}

#endif
