/* Products for AVX2 and FMA: eight rows a vector, 2 x 6 accumulators of one chain at a time in 16 registers. */
#include <immintrin.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

typedef __m256 vec;
typedef float word;
typedef __m256 words;

static inline vec vec_zero(void) { return _mm256_setzero_ps(); }
static inline vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vec_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline words words_load(const word *p) { return _mm256_loadu_ps(p); }
static inline void words_store(word *p, words a) { _mm256_storeu_ps(p, a); }
static inline vec mac(vec acc, words w, const word *x) { return _mm256_fmadd_ps(w, _mm256_broadcast_ss(x), acc); }

/* 8 x 8 dwords. Rows r and r + 4 meet in one register on loading (that insert is no shuffle), so that two rounds of
 * unpacking inside 128-bit halves finish the job. */
static inline void transpose(const uint8_t *const *rows, size_t offset, words *out) {
    for (size_t half = 0; half < 2; half++) { /* dwords 0..3, then 4..7 */
        __m256 both[4];
        for (size_t r = 0; r < 4; r++) {
            const __m128 low = _mm_loadu_ps((const float *)(const void *)(rows[r] + offset + half * 16));
            const __m128 high = _mm_loadu_ps((const float *)(const void *)(rows[r + 4] + offset + half * 16));
            both[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
        }
        const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(both[0], both[1]));
        const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(both[2], both[3]));
        const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(both[0], both[1]));
        const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(both[2], both[3]));
        out[half * 4 + 0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
        out[half * 4 + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
        out[half * 4 + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
        out[half * 4 + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
    }
}

static inline void split(const words *dwords, words *even, words *odd) {
    const __m256i pairs = _mm256_castps_si256(*dwords);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

#include "kernels/cpu/linear_fp32.inc.c"

#define LANES 8
#define CHAIN 16
#define TILE_VECTORS 2
#define TILE_TOKENS 6
#define FLOW_TOKENS 6
#define BOTH_TOKENS 2
#define MEMORY_TOKENS 2
#define PANEL_TILES 4
#define DIRECT_TOKENS 8
#define ISA_NAME "avx2"
#define ISA_TABLE sp_linear_avx2
#define ISA_QUANT sp_quant_avx2
#define ISA_BF16_ONLY false
#include "kernels/cpu/linear_rows.inc.c"
