/* Dequantizers for AVX-512: sixteen numbers a vector. */
#include <immintrin.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

#define LANES 16
#define SP_QUANT_TABLE sp_quant_avx512
typedef __m512 fvec;

static inline fvec fvec_set1(float x) { return _mm512_set1_ps(x); }
static inline fvec fvec_mul(fvec a, fvec b) { return _mm512_mul_ps(a, b); }
static inline fvec fvec_add(fvec a, fvec b) { return _mm512_add_ps(a, b); }
static inline fvec from_int8(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
static inline fvec load_f32(const void *p) { return _mm512_loadu_ps(p); }
static inline fvec load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline fvec load_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline void store_f32(float *p, fvec a) { _mm512_storeu_ps(p, a); }

static inline void store_bf16(sp_bf16 *p, fvec a) { /* sp_bf16_from_f32; VCVTNEPS2BF16 would flush denormals */
    const __m512i bits = _mm512_castps_si512(a), top = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i out = _mm512_mask_or_epi32(rounded, is_nan, top, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(out));
}

#include "kernels/quant/quant_x86.inc.c"
