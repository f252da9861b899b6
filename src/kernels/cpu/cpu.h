/* What this processor, and the kernel under it, can run. Asked once, cached; thread-safe. */
#ifndef SPILL_KERNELS_CPU_CPU_H
#define SPILL_KERNELS_CPU_CPU_H

#include <stdint.h>

enum {
    SP_CPU_AVX2 = 1 << 0,   /* AVX2, FMA and F16C, registers saved by the system */
    SP_CPU_AVX512 = 1 << 1, /* F, BW, DQ, VL, CD */
    SP_CPU_AVX512BF16 = 1 << 2,
    SP_CPU_AMX_BF16 = 1 << 3, /* the tiles too, and the system has granted their use to this process */
    SP_CPU_NEON = 1 << 4,
};
uint32_t sp_cpu_features(void);

#endif
