/* F16: IEEE half. Every half, denormals included, is a normal fp32 (or 0, inf, NaN), so the conversion is exact.
 *
 * Selected by masks, not branches, so that the compiler turns a run of it into vectors: a normal half is its bits
 * shifted, with the exponent moved from bias 15 to 127; a denormal one m * 2^-24 is (2^-14 + m * 2^-24) - 2^-14, where
 * no step is denormal in fp32 (denormals are zero in the compute environment); inf and NaN get the greatest exponent.
 */
#ifndef SPILL_KERNELS_QUANT_F16_H
#define SPILL_KERNELS_QUANT_F16_H

#include <stdint.h>
#include <string.h>

#include "kernels/format.h"

static inline float sp_f16_to_f32(uint16_t half) {
    union {
        uint32_t u;
        float f;
    } tiny, value;
    const uint32_t bias = 112u << 23, top = 31u << 23; /* 127 - 15; the exponent of inf and NaN, shifted */
    const uint32_t shifted = (half & 0x7fffu) << 13, exponent = shifted & top;
    const uint32_t is_tiny = (uint32_t)0 - (exponent == 0), is_top = (uint32_t)0 - (exponent == top);
    tiny.u = shifted + bias + (1u << 23);
    tiny.f -= 0x1p-14f;
    value.u = (tiny.u & is_tiny) | ((shifted + bias + (bias & is_top)) & ~is_tiny);
    value.u |= (half & 0x8000u) << 16;
    return value.f;
}

/* fp32 -> half, to nearest even; beyond the greatest half, infinities included, +-65504; NaN stays NaN (quiet). */
static inline uint16_t sp_f16_from_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477fe000u) return (uint16_t)(sign | 0x7bffu); /* 65504 */
    if (magnitude >= 0x38800000u)                                    /* 2^-14: a normal half */
        return (uint16_t)(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13);
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return (uint16_t)sign; /* below 2^-25, half of the least half */
    const uint32_t shift = 126 - exponent, digits = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t half = digits >> shift, rest = digits & ((1u << shift) - 1u), middle = 1u << (shift - 1);
    return (uint16_t)(sign | (half + (rest > middle || (rest == middle && (half & 1u)))));
}

static inline void decode_F16(const uint8_t *restrict block, float *restrict out) {
    uint16_t half;
    memcpy(&half, block, sizeof half);
    *out = sp_f16_to_f32(half);
}

#endif
