/* Products in plain C: one lane, fmaf. The specification the other ISAs are tested against, and the last resort. */
#include <math.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

typedef float vec;
typedef float word;
typedef float words; /* also holds a dword of two bf16, by its bits */

static inline vec vec_zero(void) { return 0.0f; }
static inline vec vec_load(const float *p) { return *p; }
static inline void vec_store(float *p, vec a) { *p = a; }
static inline vec vec_add(vec a, vec b) { return a + b; }
static inline words words_load(const word *p) { return *p; }
static inline void words_store(word *p, words a) { *p = a; }
static inline vec mac(vec acc, words w, const word *x) { return fmaf(w, *x, acc); }

static inline void transpose(const uint8_t *const *rows, size_t offset, words *out) {
    __builtin_memcpy(out, rows[0] + offset, sizeof *out);
}

static inline void split(const words *dwords, words *even, words *odd) {
    uint32_t pair;
    __builtin_memcpy(&pair, dwords, sizeof pair);
    *even = sp_bf16_to_f32((sp_bf16)pair);
    *odd = sp_bf16_to_f32((sp_bf16)(pair >> 16));
}

#include "kernels/cpu/linear_fp32.inc.c"

#define LANES 1
#define CHAIN 16
#define TILE_VECTORS 4
#define TILE_TOKENS 6
#define FLOW_TOKENS 6
#define BOTH_TOKENS 1
#define MEMORY_TOKENS 1
#define PANEL_TILES 4
#define DIRECT_TOKENS 1
#define ISA_NAME "scalar"
#define ISA_TABLE sp_linear_scalar
#define ISA_QUANT sp_quant_scalar
#define ISA_BF16_ONLY false
#include "kernels/cpu/linear_rows.inc.c"
