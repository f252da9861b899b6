/* 16 lanes of fp32 in one AVX-512 register; what each function computes is in lanes_scalar.h. */
#ifndef SPILL_KERNELS_CPU_LANES_AVX512_H
#define SPILL_KERNELS_CPU_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/format.h"

#define LANES static inline __attribute__((always_inline))
/* 6 rows x 2 x 16 lanes, an even and an odd chain each: 24 accumulators; 4 registers hold the panel's row. */
#define TILE_ROWS 6
#define TILE_LANES 2

typedef __m512 v16;

LANES __mmask16 first_lanes(size_t n) { return (__mmask16)((1u << n) - 1u); }
LANES __m512i int1(int32_t x) { return _mm512_set1_epi32(x); }

LANES v16 v16_set1(float x) { return _mm512_set1_ps(x); }
LANES v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
LANES void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
LANES v16 v16_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
LANES void v16_store_n(float *p, size_t n, v16 a) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
LANES v16 v16_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
LANES void v16_store_f16(uint16_t *p, v16 a) {
    v16 most = v16_set1(65504.0f), least = v16_set1(-65504.0f);
    a = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(most, a, _CMP_LT_OQ), a, most);
    a = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, least, _CMP_LT_OQ), a, least);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

LANES v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
LANES v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
LANES v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
LANES v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
LANES v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
LANES v16 v16_nfma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); }
LANES v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
LANES v16 v16_if_lt(v16 a, v16 b, v16 yes, v16 no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
LANES bool v16_any_equal(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0; }
LANES v16 v16_keep(v16 a, size_t lo, size_t hi, float fill) {
    return _mm512_mask_blend_ps(first_lanes(hi) & (__mmask16)~first_lanes(lo), v16_set1(fill), a);
}
LANES v16 v16_abs(v16 a) { return _mm512_abs_ps(a); }
LANES v16 v16_copysign(v16 magnitude, v16 sign) {
    enum { SIGN_OF_C_ELSE_A = 0xb8 }; /* truth table of (a & ~b) | (c & b), b the mask */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(magnitude), int1(INT32_MIN),
                                                         _mm512_castps_si512(sign), SIGN_OF_C_ELSE_A));
}
LANES v16 v16_scale_exp(v16 p, v16 t) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
LANES v16 v16_round_bf16(v16 a) {
    __m512i bits = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), int1(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, int1(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, int1(0x00400000));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, int1((int32_t)0xffff0000u)));
}
LANES float v16_sum(v16 a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
LANES float v16_greatest(v16 a) {
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
