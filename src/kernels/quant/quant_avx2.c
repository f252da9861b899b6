/* Dequantizers compiled for AVX2 (quant.inc.c). */
#define SP_QUANT_TABLE sp_quant_avx2
#include "kernels/quant/quant.inc.c"
