/* What the files of src/kernels share: the device's inside and the two tables an ISA can fill.
 *
 * Each ISA file exports const tables; device.c picks, best first, those whose features the processor has. Nothing in an
 * ISA file runs before that check. A table's functions are called inside pool tasks, in the compute fp environment. */
#ifndef SPILL_KERNELS_INTERNAL_H
#define SPILL_KERNELS_INTERNAL_H

#include "kernels/device.h"
#include "kernels/ops.h"

/* Runs of n_elems numbers (whole blocks) of each format to fp32, exact, and to bf16, that fp32 rounded to nearest even.
 * The scalar table (format.c) has every format; NULL in another falls through to it. */
typedef struct {
    void (*to_f32[SP_FMT_COUNT])(const void *src, size_t n_elems, float *dst);
    void (*to_bf16[SP_FMT_COUNT])(const void *src, size_t n_elems, sp_bf16 *dst);
} sp_quant_isa;
extern const sp_quant_isa sp_quant_scalar, sp_quant_avx2, sp_quant_avx512;

static inline void sp_dequantize_f32(const sp_quant_isa *isa, sp_format_id id, const void *src, size_t n, float *dst) {
    (isa->to_f32[id] ? isa : &sp_quant_scalar)->to_f32[id](src, n, dst);
}
static inline void sp_dequantize_bf16(const sp_quant_isa *isa, sp_format_id id, const void *src, size_t n,
                                      sp_bf16 *dst) {
    (isa->to_bf16[id] ? isa : &sp_quant_scalar)->to_bf16[id](src, n, dst);
}

/* A task's share of a product: these rows of the matrix over these tokens. */
typedef struct {
    size_t row0, row1;
    size_t token0, token1;
} sp_linear_part;

/* Products. A packed buffer belongs to the table that filled it. */
typedef struct {
    const char *isa;
    bool bf16_only;       /* fp32 mode falls through to the next ISA */
    size_t row_tile;      /* rows of a part are best a multiple of this */
    size_t token_tile;    /* tokens too, where a part does not hold them all */
    bool square_parts;    /* so fast that tokens read from beyond L2 cost time too: no slender parts */
    size_t scratch_bytes; /* that run needs */
    /* Panel form (kernels/ops.h) of row_tile rows; NULL where this ISA has none. panel_form changes one tile at w, in
     * place; scratch holds row_tile rows of k bf16 and a cache line each. panel_row reads back row r of a tile. */
    void (*panel_form)(const sp_format *format, void *w, size_t k, void *scratch);
    void (*panel_row)(const void *tile, size_t k, size_t r, sp_bf16 *out);
    size_t (*packed_bytes)(sp_mode mode, size_t n_tokens, size_t k);
    /* Packs columns [k0, k0 + n_cols) of one token's k activations (row[0] is column k0) as token t of n_tokens. k0 is
     * a multiple of SP_PACK_COLS, n_cols too unless k0 + n_cols == k: that last part also writes the padding past k.
     * Different t, and different parts of one t, may be packed by different threads. */
    void (*pack_row)(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t, size_t n_tokens,
                     void *packed);
    /* One part of a job over packed [n_tokens, k]; scratch is the calling thread's. */
    void (*run)(sp_mode mode, const sp_linear *job, const sp_linear_part *part, const void *packed, size_t n_tokens,
                void *scratch);
} sp_linear_isa;
extern const sp_linear_isa sp_linear_scalar, sp_linear_avx2, sp_linear_avx512, sp_linear_avx512bf16, sp_linear_amx,
    sp_linear_neon;

/* Everything that is not a product: the same source (cpu/vector.inc.c) compiled per ISA over 16 lanes. */
typedef struct sp_vector_isa sp_vector_isa;                    /* in kernels/vector.h */
const sp_vector_isa *sp_vector_isa_find(const char *isa_name); /* NULL: this ISA has no vector code of its own */

struct sp_device {
    sp_pool *pool;
    sp_mode mode;
    const sp_linear_isa *linear;
    const sp_vector_isa *vector;
    size_t n_threads;
    void **scratch;       /* [n_threads] 64-byte aligned, for products and vector code */
    size_t scratch_bytes; /* of each; grown by sp_device_scratch outside of pool tasks */
};

/* Makes every thread's scratch at least n_bytes; aborts when memory ends (kilobytes to a few megabytes). */
void sp_device_scratch(sp_device *device, size_t n_bytes);

#endif
