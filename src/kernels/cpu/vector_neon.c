/* Vector code for NEON (armv8-a). */
#include "kernels/cpu/lanes_neon.h"

#define VECTOR_ISA sp_vector_neon
#define VECTOR_ISA_NAME "neon"
#include "kernels/cpu/vector.inc.c"
