/* 16 lanes of fp32 in four NEON registers; what each function computes is in lanes_scalar.h. */
#ifndef SPILL_KERNELS_CPU_LANES_NEON_H
#define SPILL_KERNELS_CPU_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "kernels/format.h"

#define LANES static inline __attribute__((always_inline))
#define EACH_PART for (int i = 0; i < 4; i++)
/* 2 rows x 16 lanes, an even and an odd chain each: 16 of the 32 registers are accumulators, 8 hold the panel's row. */
#define TILE_ROWS 2
#define TILE_LANES 1

typedef struct {
    float32x4_t part[4]; /* lanes 4i .. 4i + 3 */
} v16;

LANES float32x4_t as_float(uint32x4_t a) { return vreinterpretq_f32_u32(a); }
LANES uint32x4_t as_int(float32x4_t a) { return vreinterpretq_u32_f32(a); }
LANES uint32x4_t lane_numbers(int i) {
    static const uint32_t number[4] = {0, 1, 2, 3};
    return vaddq_u32(vld1q_u32(number), vdupq_n_u32(4 * (uint32_t)i));
}

LANES v16 v16_set1(float x) {
    v16 r;
    EACH_PART r.part[i] = vdupq_n_f32(x);
    return r;
}
LANES v16 v16_load(const float *p) {
    v16 r;
    EACH_PART r.part[i] = vld1q_f32(p + 4 * i);
    return r;
}
LANES void v16_store(float *p, v16 a) { EACH_PART vst1q_f32(p + 4 * i, a.part[i]); }
LANES v16 v16_load_n(const float *p, size_t n) {
    if (n == 16) return v16_load(p);
    float lane[16] = {0};
    memcpy(lane, p, n * sizeof *p);
    return v16_load(lane);
}
LANES void v16_store_n(float *p, size_t n, v16 a) {
    if (n == 16) {
        v16_store(p, a);
        return;
    }
    float lane[16];
    v16_store(lane, a);
    memcpy(p, lane, n * sizeof *p);
}
LANES v16 v16_load_f16(const uint16_t *p) {
    v16 r;
    EACH_PART r.part[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
    return r;
}
LANES void v16_store_f16(uint16_t *p, v16 a) {
    float32x4_t most = vdupq_n_f32(65504.0f), least = vdupq_n_f32(-65504.0f);
    EACH_PART {
        float32x4_t x = vbslq_f32(vcltq_f32(most, a.part[i]), most, a.part[i]);
        x = vbslq_f32(vcltq_f32(x, least), least, x);
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x)));
    }
}

LANES v16 v16_add(v16 a, v16 b) {
    EACH_PART a.part[i] = vaddq_f32(a.part[i], b.part[i]);
    return a;
}
LANES v16 v16_sub(v16 a, v16 b) {
    EACH_PART a.part[i] = vsubq_f32(a.part[i], b.part[i]);
    return a;
}
LANES v16 v16_mul(v16 a, v16 b) {
    EACH_PART a.part[i] = vmulq_f32(a.part[i], b.part[i]);
    return a;
}
LANES v16 v16_div(v16 a, v16 b) {
    EACH_PART a.part[i] = vdivq_f32(a.part[i], b.part[i]);
    return a;
}
LANES v16 v16_fma(v16 a, v16 b, v16 c) {
    EACH_PART c.part[i] = vfmaq_f32(c.part[i], a.part[i], b.part[i]);
    return c;
}
LANES v16 v16_nfma(v16 a, v16 b, v16 c) {
    EACH_PART c.part[i] = vfmsq_f32(c.part[i], a.part[i], b.part[i]);
    return c;
}
/* FMAX would return NaN where either is NaN: compare and select instead. */
LANES float32x4_t greater_of(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
LANES v16 v16_max(v16 a, v16 b) {
    EACH_PART a.part[i] = greater_of(a.part[i], b.part[i]);
    return a;
}
LANES v16 v16_if_lt(v16 a, v16 b, v16 yes, v16 no) {
    EACH_PART yes.part[i] = vbslq_f32(vcltq_f32(a.part[i], b.part[i]), yes.part[i], no.part[i]);
    return yes;
}
LANES bool v16_any_equal(v16 a, v16 b) {
    uint32x4_t any = vdupq_n_u32(0);
    EACH_PART any = vorrq_u32(any, vceqq_f32(a.part[i], b.part[i]));
    return vmaxvq_u32(any) != 0;
}
LANES v16 v16_keep(v16 a, size_t lo, size_t hi, float fill) {
    uint32x4_t first = vdupq_n_u32((uint32_t)lo), end = vdupq_n_u32((uint32_t)hi);
    EACH_PART {
        uint32x4_t lane = lane_numbers(i);
        uint32x4_t kept = vandq_u32(vcgeq_u32(lane, first), vcltq_u32(lane, end));
        a.part[i] = vbslq_f32(kept, a.part[i], vdupq_n_f32(fill));
    }
    return a;
}
LANES v16 v16_abs(v16 a) {
    EACH_PART a.part[i] = vabsq_f32(a.part[i]);
    return a;
}
LANES v16 v16_copysign(v16 magnitude, v16 sign) {
    EACH_PART magnitude.part[i] = vbslq_f32(vdupq_n_u32(0x80000000u), sign.part[i], magnitude.part[i]);
    return magnitude;
}
LANES v16 v16_scale_exp(v16 p, v16 t) {
    EACH_PART p.part[i] = as_float(vaddq_u32(as_int(p.part[i]), vshlq_n_u32(as_int(t.part[i]), 23)));
    return p;
}
LANES v16 v16_round_bf16(v16 a) {
    EACH_PART {
        uint32x4_t bits = as_int(a.part[i]);
        uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
        uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
        uint32x4_t is_number = vceqq_f32(a.part[i], a.part[i]);
        rounded = vbslq_u32(is_number, rounded, vorrq_u32(bits, vdupq_n_u32(0x00400000)));
        a.part[i] = as_float(vandq_u32(rounded, vdupq_n_u32(0xffff0000u)));
    }
    return a;
}
LANES float v16_sum(v16 a) {
    float32x4_t b = vaddq_f32(a.part[0], a.part[2]), c = vaddq_f32(a.part[1], a.part[3]);
    b = vaddq_f32(b, c);
    float32x2_t d = vadd_f32(vget_low_f32(b), vget_high_f32(b));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
LANES float v16_greatest(v16 a) {
    float32x4_t b = greater_of(a.part[0], a.part[2]), c = greater_of(a.part[1], a.part[3]);
    b = greater_of(b, c);
    b = greater_of(b, vextq_f32(b, b, 2));
    return vgetq_lane_f32(greater_of(b, vdupq_laneq_f32(b, 1)), 0);
}

#endif
