/* Vector code for AVX2 and FMA. */
#include "kernels/cpu/lanes_avx2.h"

#define VECTOR_ISA sp_vector_avx2
#define VECTOR_ISA_NAME "avx2"
#include "kernels/cpu/vector.inc.c"
