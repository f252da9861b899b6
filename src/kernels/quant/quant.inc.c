/* Runs of blocks to fp32 and to bf16, for every row of formats.def, compiled once per ISA: the including file names its
 * table SP_QUANT_TABLE, and the flags of that file let the compiler vectorize the plain loops of quant/<format>.h.
 * Only integer and exact fp32 operations, or one rounding: the same bytes whatever the ISA. */
#include "kernels/internal.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/f32.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/q8_0.h"

#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type)                                                \
    static void to_f32_##id(const void *src, size_t n_elems, float *dst) {                                      \
        const uint8_t *restrict in = src;                                                                       \
        float *restrict out = dst;                                                                              \
        for (size_t i = 0; i < n_elems / (block_elems); i++)                                                    \
            decode_##id(in + i * (block_bytes), out + i * (block_elems));                                       \
    }                                                                                                           \
    static void to_bf16_##id(const void *src, size_t n_elems, sp_bf16 *dst) {                                   \
        const uint8_t *restrict in = src;                                                                       \
        sp_bf16 *restrict out = dst;                                                                            \
        for (size_t i = 0; i < n_elems / (block_elems); i++) {                                                  \
            float value[block_elems];                                                                           \
            decode_##id(in + i * (block_bytes), value);                                                         \
            for (size_t j = 0; j < (block_elems); j++) out[i * (block_elems) + j] = sp_bf16_from_f32(value[j]); \
        }                                                                                                       \
    }
#include "kernels/formats.def"
#undef SP_FORMAT

const sp_quant_isa SP_QUANT_TABLE = {
    .to_f32 =
        {
#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type) [SP_FMT_##id] = to_f32_##id,
#include "kernels/formats.def"
#undef SP_FORMAT
        },
    .to_bf16 =
        {
#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type) [SP_FMT_##id] = to_bf16_##id,
#include "kernels/formats.def"
#undef SP_FORMAT
        },
};
