/* Products for AVX-512: sixteen rows a vector; both chains of a 2 x 6 tile fit in 32 registers. */
#include <immintrin.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

typedef __m512 vec;
typedef float word;
typedef __m512i words;

static inline vec vec_zero(void) { return _mm512_setzero_ps(); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
static inline vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline words words_load(const word *p) { return _mm512_loadu_si512(p); }
static inline void words_store(word *p, words a) { _mm512_storeu_si512(p, a); }
static inline vec mac(vec acc, words w, const word *x) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_set1_ps(*x), acc);
}

static inline void split(const words *dwords, words *even, words *odd) {
    *even = _mm512_slli_epi32(*dwords, 16);
    *odd = _mm512_and_si512(*dwords, _mm512_set1_epi32((int)0xffff0000));
}

#include "kernels/cpu/lanes_512.inc.c"
#include "kernels/cpu/linear_fp32.inc.c"

#define LANES 16
#define CHAIN 16
#define TILE_VECTORS 2
#define TILE_TOKENS 6
#define FLOW_TOKENS 6
#define BOTH_TOKENS 6
#define MEMORY_TOKENS 3
#define PANEL_TILES 4
#define DIRECT_TOKENS 8
#define ISA_NAME "avx512"
#define ISA_TABLE sp_linear_avx512
#define ISA_QUANT sp_quant_avx512
#define ISA_BF16_ONLY false
#include "kernels/cpu/linear_rows.inc.c"
