/* 16 lanes of fp32 in two AVX registers; what each function computes is in lanes_scalar.h. */
#ifndef SPILL_KERNELS_CPU_LANES_AVX2_H
#define SPILL_KERNELS_CPU_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/format.h"

#define LANES static inline __attribute__((always_inline))
/* 3 rows x 16 lanes, an even and an odd chain each: 12 of the 16 registers are accumulators. */
#define TILE_ROWS 3
#define TILE_LANES 1

typedef struct {
    __m256 lo, hi; /* lanes 0-7, 8-15 */
} v16;

LANES __m256i int1(int32_t x) { return _mm256_set1_epi32(x); }
/* all ones in lanes j + first < n */
LANES __m256i lanes_below(size_t n, int first) {
    __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), int1(first));
    return _mm256_cmpgt_epi32(int1((int32_t)n), lane);
}
LANES __m256 as_float(__m256i a) { return _mm256_castsi256_ps(a); }
LANES __m256i as_int(__m256 a) { return _mm256_castps_si256(a); }

LANES v16 v16_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LANES v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LANES void v16_store(float *p, v16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
LANES v16 v16_load_n(const float *p, size_t n) {
    if (n == 16) return v16_load(p); /* masked stores, and on some processors loads, are slow */
    return (v16){_mm256_maskload_ps(p, lanes_below(n, 0)), _mm256_maskload_ps(p + 8, lanes_below(n, 8))};
}
LANES void v16_store_n(float *p, size_t n, v16 a) {
    if (n == 16) {
        v16_store(p, a);
        return;
    }
    _mm256_maskstore_ps(p, lanes_below(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, lanes_below(n, 8), a.hi);
}
LANES v16 v16_load_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
LANES __m128i half_to_f16(__m256 a) {
    __m256 most = _mm256_set1_ps(65504.0f), least = _mm256_set1_ps(-65504.0f);
    a = _mm256_blendv_ps(a, most, _mm256_cmp_ps(most, a, _CMP_LT_OQ));
    a = _mm256_blendv_ps(a, least, _mm256_cmp_ps(a, least, _CMP_LT_OQ));
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LANES void v16_store_f16(uint16_t *p, v16 a) {
    _mm_storeu_si128((__m128i *)p, half_to_f16(a.lo));
    _mm_storeu_si128((__m128i *)(p + 8), half_to_f16(a.hi));
}

LANES v16 v16_add(v16 a, v16 b) { return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
LANES v16 v16_sub(v16 a, v16 b) { return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
LANES v16 v16_mul(v16 a, v16 b) { return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
LANES v16 v16_div(v16 a, v16 b) { return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
LANES v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LANES v16 v16_nfma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
LANES v16 v16_max(v16 a, v16 b) { return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
LANES v16 v16_if_lt(v16 a, v16 b, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
LANES bool v16_any_equal(v16 a, v16 b) {
    __m256 lo = _mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), hi = _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ);
    return _mm256_movemask_ps(_mm256_or_ps(lo, hi)) != 0;
}
LANES __m256 keep_half(__m256 a, size_t lo, size_t hi, float fill, int first) {
    __m256i kept = _mm256_andnot_si256(lanes_below(lo, first), lanes_below(hi, first));
    return _mm256_blendv_ps(_mm256_set1_ps(fill), a, as_float(kept));
}
LANES v16 v16_keep(v16 a, size_t lo, size_t hi, float fill) {
    return (v16){keep_half(a.lo, lo, hi, fill, 0), keep_half(a.hi, lo, hi, fill, 8)};
}
LANES v16 v16_abs(v16 a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
LANES v16 v16_copysign(v16 magnitude, v16 sign) {
    __m256 bit = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
                 _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
}
LANES __m256 scale_half(__m256 p, __m256 t) {
    return as_float(_mm256_add_epi32(as_int(p), _mm256_slli_epi32(as_int(t), 23)));
}
LANES v16 v16_scale_exp(v16 p, v16 t) { return (v16){scale_half(p.lo, t.lo), scale_half(p.hi, t.hi)}; }
LANES __m256 round_half(__m256 a) {
    __m256i bits = as_int(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), int1(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, int1(0x7fff)), odd);
    __m256 quiet = as_float(_mm256_or_si256(bits, int1(0x00400000)));
    __m256 either = _mm256_blendv_ps(as_float(rounded), quiet, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_and_ps(either, as_float(int1((int32_t)0xffff0000u)));
}
LANES v16 v16_round_bf16(v16 a) { return (v16){round_half(a.lo), round_half(a.hi)}; }
LANES float v16_sum(v16 a) {
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
LANES float v16_greatest(v16 a) {
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
