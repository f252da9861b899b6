/* Dequantizers compiled for AVX-512 (quant.inc.c). */
#define SP_QUANT_TABLE sp_quant_avx512
#include "kernels/quant/quant.inc.c"
