/* 16 lanes of fp32 in plain C: the specification of what every lanes_<isa>.h computes, lane by lane.
 *
 * The names are static and the same in each of these headers; a file includes one of them. */
#ifndef SPILL_KERNELS_CPU_LANES_SCALAR_H
#define SPILL_KERNELS_CPU_LANES_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/format.h"
#include "kernels/quant/f16.h"

#define LANES static __attribute__((noinline, unused)) /* inlined, calls of fmaf would fill a very large file */
#define EACH_LANE _Pragma("GCC unroll 1") for (int j = 0; j < 16; j++)
#define TILE_ROWS 1
#define TILE_LANES 1 /* attention's register tile: query rows x 16 lanes */

typedef struct {
    float lane[16];
} v16;

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

LANES v16 v16_set1(float x) {
    v16 r;
    EACH_LANE r.lane[j] = x;
    return r;
}
LANES v16 v16_load(const float *p) {
    v16 r;
    EACH_LANE r.lane[j] = p[j];
    return r;
}
LANES void v16_store(float *p, v16 a) { EACH_LANE p[j] = a.lane[j]; }
/* The first n <= 16 lanes only; nothing past them is touched, the other lanes of a load are 0. */
LANES v16 v16_load_n(const float *p, size_t n) {
    v16 r;
    EACH_LANE r.lane[j] = (size_t)j < n ? p[j] : 0.0f;
    return r;
}
LANES void v16_store_n(float *p, size_t n, v16 a) {
    for (size_t j = 0; j < n; j++) p[j] = a.lane[j];
}
/* 16 halves (IEEE fp16), exactly. */
LANES v16 v16_load_f16(const uint16_t *p) {
    v16 r;
    EACH_LANE r.lane[j] = sp_f16_to_f32(p[j]);
    return r;
}
/* To nearest even, beyond the greatest half +-65504, NaN stays NaN. */
LANES void v16_store_f16(uint16_t *p, v16 a) { EACH_LANE p[j] = sp_f16_from_f32(a.lane[j]); }

LANES v16 v16_add(v16 a, v16 b) {
    EACH_LANE a.lane[j] += b.lane[j];
    return a;
}
LANES v16 v16_sub(v16 a, v16 b) {
    EACH_LANE a.lane[j] -= b.lane[j];
    return a;
}
LANES v16 v16_mul(v16 a, v16 b) {
    EACH_LANE a.lane[j] *= b.lane[j];
    return a;
}
LANES v16 v16_div(v16 a, v16 b) {
    EACH_LANE a.lane[j] /= b.lane[j];
    return a;
}
/* a * b + c, and c - a * b, rounded once */
LANES v16 v16_fma(v16 a, v16 b, v16 c) {
    EACH_LANE c.lane[j] = fmaf(a.lane[j], b.lane[j], c.lane[j]);
    return c;
}
LANES v16 v16_nfma(v16 a, v16 b, v16 c) {
    EACH_LANE c.lane[j] = fmaf(-a.lane[j], b.lane[j], c.lane[j]);
    return c;
}
/* a > b ? a : b, so b where either is NaN */
LANES v16 v16_max(v16 a, v16 b) {
    EACH_LANE a.lane[j] = a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j];
    return a;
}
/* a < b ? yes : no, so no where either is NaN */
LANES v16 v16_if_lt(v16 a, v16 b, v16 yes, v16 no) {
    EACH_LANE yes.lane[j] = a.lane[j] < b.lane[j] ? yes.lane[j] : no.lane[j];
    return yes;
}
LANES bool v16_any_equal(v16 a, v16 b) {
    bool any = false;
    EACH_LANE any |= a.lane[j] == b.lane[j];
    return any;
}
/* lanes lo <= j < hi of a, fill elsewhere */
LANES v16 v16_keep(v16 a, size_t lo, size_t hi, float fill) {
    EACH_LANE a.lane[j] = (size_t)j >= lo && (size_t)j < hi ? a.lane[j] : fill;
    return a;
}
LANES v16 v16_abs(v16 a) {
    EACH_LANE a.lane[j] = fabsf(a.lane[j]);
    return a;
}
LANES v16 v16_copysign(v16 magnitude, v16 sign) {
    EACH_LANE magnitude.lane[j] = copysignf(magnitude.lane[j], sign.lane[j]);
    return magnitude;
}
/* p * 2^n for p near 1 and n in the low bits of t (math.h, SP_ROUND_MAGIC), while the result is a normal number */
LANES v16 v16_scale_exp(v16 p, v16 t) {
    EACH_LANE p.lane[j] = float_of(bits_of(p.lane[j]) + (bits_of(t.lane[j]) << 23));
    return p;
}
/* to the nearest bf16, ties to even, as sp_bf16_from_f32 */
LANES v16 v16_round_bf16(v16 a) {
    EACH_LANE a.lane[j] = sp_bf16_to_f32(sp_bf16_from_f32(a.lane[j]));
    return a;
}
/* Fixed trees: lanes j and j + 8, then + 4, + 2, + 1. */
LANES float v16_sum(v16 a) {
    for (int step = 8; step > 0; step /= 2)
        for (int j = 0; j < step; j++) a.lane[j] = a.lane[j] + a.lane[j + step];
    return a.lane[0];
}
LANES float v16_greatest(v16 a) {
    for (int step = 8; step > 0; step /= 2)
        for (int j = 0; j < step; j++) a.lane[j] = a.lane[j] > a.lane[j + step] ? a.lane[j] : a.lane[j + step];
    return a.lane[0];
}

#endif
