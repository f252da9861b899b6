/* F16: IEEE half. Every half, denormals included, is a normal fp32 (or 0, inf, NaN), so the conversion is exact.
 *
 * Without branches, so that the compiler can turn a run of it into vectors: a normal half is its bits shifted, with the
 * exponent moved from bias 15 to 127; a denormal one m * 2^-24 is (2^-14 + m * 2^-24) - 2^-14, where no step is
 * denormal in fp32 (denormals are zero in the compute environment); inf and NaN get the greatest exponent. */
#ifndef SPILL_KERNELS_QUANT_F16_H
#define SPILL_KERNELS_QUANT_F16_H

#include <stdint.h>
#include <string.h>

#include "kernels/format.h"

static inline float sp_f16_to_f32(uint16_t half) {
    union {
        uint32_t u;
        float f;
    } normal, tiny;
    const uint32_t bias = 112u << 23; /* 127 - 15 */
    uint32_t shifted = (half & 0x7fffu) << 13, exponent = shifted & 0x0f800000u;
    tiny.u = shifted + bias + (1u << 23);
    tiny.f -= 0x1p-14f;
    normal.u = shifted + bias + (exponent == 0x0f800000u ? bias : 0u);
    normal.u = (exponent == 0 ? tiny.u : normal.u) | (half & 0x8000u) << 16;
    return normal.f;
}

static inline void decode_F16(const uint8_t *restrict block, float *restrict out) {
    uint16_t half;
    memcpy(&half, block, sizeof half);
    *out = sp_f16_to_f32(half);
}

#endif
