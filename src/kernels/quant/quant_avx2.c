/* Dequantizers for AVX2 and F16C: eight numbers a vector. */
#include <immintrin.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

#define LANES 8
#define SP_QUANT_TABLE sp_quant_avx2
typedef __m256 fvec;

static inline fvec fvec_set1(float x) { return _mm256_set1_ps(x); }
static inline fvec fvec_mul(fvec a, fvec b) { return _mm256_mul_ps(a, b); }
static inline fvec fvec_add(fvec a, fvec b) { return _mm256_add_ps(a, b); }
static inline fvec from_int8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
static inline fvec load_f32(const void *p) { return _mm256_loadu_ps(p); }
static inline fvec load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline fvec load_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline void store_f32(float *p, fvec a) { _mm256_storeu_ps(p, a); }

static inline void store_bf16(sp_bf16 *p, fvec a) { /* sp_bf16_from_f32 */
    const __m256i bits = _mm256_castps_si256(a), top = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i is_nan =
        _mm256_cmpgt_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)), _mm256_set1_epi32(0x7f800000));
    const __m256i out = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), is_nan);
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1)));
}

#include "kernels/quant/quant_x86.inc.c"
