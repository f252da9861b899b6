/* The table of number formats: formats.def's rows with the plain C of quant/<format>.h, run by run. The same functions
 * are the scalar and NEON products' dequantizers, and those of a format that an ISA has no vectors for. */
#include "kernels/format.h"

#include <string.h>

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

const sp_quant_isa sp_quant_scalar = {
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

static const sp_format formats[SP_FMT_COUNT] = {
#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type) \
    [SP_FMT_##id] = {SP_FMT_##id, name, block_elems, block_bytes, ggml_type, to_f32_##id},
#include "kernels/formats.def"
#undef SP_FORMAT
};

const sp_format *sp_format_get(sp_format_id id) { return &formats[id]; }

const sp_format *sp_format_find(const char *name) {
    for (size_t i = 0; i < SP_FMT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const sp_format *sp_format_from_ggml(int32_t ggml_type) {
    for (size_t i = 0; i < SP_FMT_COUNT; i++)
        if (formats[i].ggml_type == ggml_type) return &formats[i];
    return NULL;
}
