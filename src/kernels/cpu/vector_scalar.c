/* Vector code in plain C: the specification, and what a processor without anything better runs. */
#include "kernels/cpu/lanes_scalar.h"

#define VECTOR_ISA sp_vector_scalar
#define VECTOR_ISA_NAME "scalar"
#include "kernels/cpu/vector.inc.c"
