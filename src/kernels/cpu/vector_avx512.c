/* Vector code for AVX-512 (F, BW, DQ, VL). */
#include "kernels/cpu/lanes_avx512.h"

#define VECTOR_ISA sp_vector_avx512
#define VECTOR_ISA_NAME "avx512"
#include "kernels/cpu/vector.inc.c"
