/* Number formats of weights: one row of formats.def each, known to nothing else in the program.
 *
 * A matrix of a format is rows of whole blocks: block_elems numbers in block_bytes bytes. The engine never looks
 * inside; kernels turn runs of blocks into fp32 (exact) or bf16 (that fp32 value rounded to nearest even). Thread-safe.
 */
#ifndef SPILL_KERNELS_FORMAT_H
#define SPILL_KERNELS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t sp_bf16; /* the high half of an IEEE fp32 */

typedef enum {
#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type) SP_FMT_##id,
#include "kernels/formats.def"
#undef SP_FORMAT
    SP_FMT_COUNT
} sp_format_id;

typedef struct {
    sp_format_id id;
    const char *name;   /* "BF16", "Q4_1": as safetensors and GGUF write them */
    size_t block_elems; /* numbers in a block; 1 for plain formats */
    size_t block_bytes;
    int32_t ggml_type; /* GGUF's tensor type number (ggml.h, enum ggml_type) */
    /* dst[i] = value of element i, i < n_elems; n_elems is a multiple of block_elems; src needs no alignment. Plain C;
     * the products have the same code compiled for their ISA (internal.h, sp_quant_isa). */
    void (*to_f32)(const void *src, size_t n_elems, float *dst);
} sp_format;

const sp_format *sp_format_get(sp_format_id id);
const sp_format *sp_format_find(const char *name);       /* NULL: no such */
const sp_format *sp_format_from_ggml(int32_t ggml_type); /* NULL: no such */

/* fp32 -> bf16, to nearest even; NaN stays NaN (quiet). */
static inline sp_bf16 sp_bf16_from_f32(float value) {
    union {
        float f;
        uint32_t u;
    } bits = {value};
    /* by masks, not branches, so that loops of it become vectors */
    const uint32_t is_nan = (uint32_t)0 - ((bits.u & 0x7fffffffu) > 0x7f800000u);
    const uint32_t rounded = (bits.u + 0x7fffu + (bits.u >> 16 & 1u)) >> 16, quiet = bits.u >> 16 | 0x40u;
    return (sp_bf16)((quiet & is_nan) | (rounded & ~is_nan));
}
static inline float sp_bf16_to_f32(sp_bf16 value) {
    union {
        uint32_t u;
        float f;
    } bits = {(uint32_t)value << 16};
    return bits.f;
}

#endif
