/* What the files of src/kernels share: the device's inside and the two tables an ISA can fill.
 *
 * Each ISA file exports const tables; device.c picks, best first, those whose features the processor has. Nothing in an
 * ISA file runs before that check. A table's functions are called inside pool tasks, in the compute fp environment. */
#ifndef SPILL_KERNELS_INTERNAL_H
#define SPILL_KERNELS_INTERNAL_H

#include "kernels/device.h"
#include "kernels/ops.h"

/* Products. A packed buffer belongs to the table that filled it. */
typedef struct {
    const char *isa;
    size_t (*packed_bytes)(sp_mode mode, size_t n_tokens, size_t k);
    /* Packs columns [k0, k0 + n_cols) of one token's k activations (row[0] is column k0) as token t of n_tokens. k0 is
     * a multiple of SP_PACK_COLS, n_cols too unless k0 + n_cols == k: that last part also writes the padding past k.
     * Different t, and different parts of one t, may be packed by different threads. */
    void (*pack_row)(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t, size_t n_tokens,
                     void *packed);
    /* Rows [row0, row1) of a job over all n_tokens; scratch is the calling thread's. */
    void (*run)(sp_mode mode, const sp_linear *job, size_t row0, size_t row1, const void *packed, size_t n_tokens,
                void *scratch);
    size_t (*scratch_bytes)(sp_mode mode, size_t k_max);
} sp_linear_isa;

/* Everything that is not a product: the same source (cpu/vector.inc.c) compiled per ISA over 16 lanes. */
typedef struct sp_vector_isa sp_vector_isa; /* in kernels/vector.h */

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
