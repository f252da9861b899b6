/* Features of this processor, and the tiles of tiles_emulated.h where it has the AVX-512 that goes with them. Takes the
 * place of kernels/cpu/cpu.c. */
#define sp_cpu_features features_here
#include "kernels/cpu/cpu.c"
#undef sp_cpu_features

uint32_t sp_cpu_features(void);
uint32_t sp_cpu_features(void) {
    const uint32_t here = features_here();
    return here & SP_CPU_AVX512 ? here | SP_CPU_AMX_BF16 : here;
}
