/* Products for AVX-512 with VDPBF16PS: a word is the pair (k, k + 2), k in the high half.
 *
 * VDPBF16PS adds the high halves' product to the accumulator, then the low halves', each a fused step rounded to
 * nearest even with denormals flushed. On pairs (k, k + 1) that is another order than the canonical one; on (0, 2),
 * (4, 6), ... it is the even chain exactly, two steps at a time, and on (1, 3), (5, 7), ... the odd one
 * (docs/decisions/001-vdpbf16ps.md). */
#include <immintrin.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

typedef __m512 vec;
typedef uint32_t word;
typedef __m512i words;

static inline vec vec_zero(void) { return _mm512_setzero_ps(); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
static inline vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline words words_load(const word *p) { return _mm512_loadu_si512(p); }
static inline void words_store(word *p, words a) { _mm512_storeu_si512(p, a); }
static inline vec mac(vec acc, words w, const word *x) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32((int)*x));
}

/* Dwords (0, 1) and (2, 3), first number low, to the pairs 0:2 and 1:3, first number high. */
static inline void split(const words *dwords, words *even, words *odd) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    /* ternary 0xca: bits of the second operand where the first has ones, of the third elsewhere */
    *even = _mm512_ternarylogic_epi32(high, _mm512_slli_epi32(dwords[0], 16), dwords[1], 0xca);
    *odd = _mm512_ternarylogic_epi32(high, dwords[0], _mm512_srli_epi32(dwords[1], 16), 0xca);
}

static inline void pack_block(sp_mode mode, const float *restrict x, word *restrict out) {
    (void)mode;
    for (int i = 0; i < 8; i++) {
        out[i] = (uint32_t)sp_bf16_from_f32(x[4 * i]) << 16 | sp_bf16_from_f32(x[4 * i + 2]);
        out[8 + i] = (uint32_t)sp_bf16_from_f32(x[4 * i + 1]) << 16 | sp_bf16_from_f32(x[4 * i + 3]);
    }
}

#include "kernels/cpu/lanes_512.inc.c"

#define LANES 16
#define CHAIN 8
#define TILE_VECTORS 2
#define TILE_TOKENS 6
#define FLOW_TOKENS 8
#define BOTH_TOKENS 0
#define MEMORY_TOKENS 5
#define PANEL_TILES 4
#define DIRECT_TOKENS 8
#define ISA_NAME "avx512bf16"
#define ISA_TABLE sp_linear_avx512bf16
#define ISA_QUANT sp_quant_avx512
#define ISA_BF16_ONLY true
#include "kernels/cpu/linear_rows.inc.c"
