/* Products for NEON: four rows a vector, both chains of a 2 x 6 tile in 32 registers. Denormals are flushed by FPCR.FZ
 * (util/fpenv.h). */
#include <arm_neon.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"

typedef float32x4_t vec;
typedef float word;
typedef float32x4_t words;

static inline vec vec_zero(void) { return vdupq_n_f32(0.0f); }
static inline vec vec_load(const float *p) { return vld1q_f32(p); }
static inline void vec_store(float *p, vec a) { vst1q_f32(p, a); }
static inline vec vec_add(vec a, vec b) { return vaddq_f32(a, b); }
static inline words words_load(const word *p) { return vld1q_f32(p); }
static inline void words_store(word *p, words a) { vst1q_f32(p, a); }
static inline vec mac(vec acc, words w, const word *x) { return vfmaq_n_f32(acc, w, *x); }

static inline void transpose(const uint8_t *const *rows, size_t offset, words *out) { /* 4 x 4 dwords */
    uint32x4_t row[4];
    for (size_t r = 0; r < 4; r++) row[r] = vreinterpretq_u32_u8(vld1q_u8(rows[r] + offset));
    const uint64x2_t even01 = vreinterpretq_u64_u32(vtrn1q_u32(row[0], row[1])); /* dwords 0 and 2 of rows 0, 1 */
    const uint64x2_t odd01 = vreinterpretq_u64_u32(vtrn2q_u32(row[0], row[1]));
    const uint64x2_t even23 = vreinterpretq_u64_u32(vtrn1q_u32(row[2], row[3]));
    const uint64x2_t odd23 = vreinterpretq_u64_u32(vtrn2q_u32(row[2], row[3]));
    out[0] = vreinterpretq_f32_u64(vtrn1q_u64(even01, even23));
    out[1] = vreinterpretq_f32_u64(vtrn1q_u64(odd01, odd23));
    out[2] = vreinterpretq_f32_u64(vtrn2q_u64(even01, even23));
    out[3] = vreinterpretq_f32_u64(vtrn2q_u64(odd01, odd23));
}

static inline void split(const words *dwords, words *even, words *odd) {
    const uint32x4_t pairs = vreinterpretq_u32_f32(*dwords);
    *even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000)));
}

#include "kernels/cpu/linear_fp32.inc.c"

#define LANES 4
#define CHAIN 16
#define TILE_VECTORS 2
#define TILE_TOKENS 6
#define FLOW_TOKENS 6
#define BOTH_TOKENS 6
#define MEMORY_TOKENS 3
#define PANEL_TILES 8
#define DIRECT_TOKENS 8
#define ISA_NAME "neon"
#define ISA_TABLE sp_linear_neon
#define ISA_QUANT sp_quant_scalar
#define ISA_BF16_ONLY false
#include "kernels/cpu/linear_rows.inc.c"
