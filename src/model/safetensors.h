/* The header of one safetensors file. Private to the model module.
 *
 * Layout: 8 bytes little-endian header length N, N bytes of JSON, then data without holes:
 *   {"__metadata__": {text: text}, "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
 * The checks are those of the format's reference library: docs/formats.md lists them. */
#ifndef SPILL_MODEL_SAFETENSORS_H
#define SPILL_MODEL_SAFETENSORS_H

#include "io/file.h"
#include "model/tensors.h"

/* Adds every tensor of `file` to the set, as file number i_file. Names go into the arena. On failure the set may hold
 * some of them. */
bool sp_safetensors_read(const sp_file *file, uint32_t i_file, sp_arena *arena, sp_tensor_set *set,
                         sp_error *err) SP_MUST_CHECK;

#endif
