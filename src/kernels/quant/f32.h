/* F32: the value itself, bit for bit. */
#ifndef SPILL_KERNELS_QUANT_F32_H
#define SPILL_KERNELS_QUANT_F32_H

#include <stdint.h>
#include <string.h>

#include "kernels/format.h"

static inline void decode_F32(const uint8_t *restrict block, float *restrict out) { memcpy(out, block, sizeof *out); }

#endif
