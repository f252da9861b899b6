/* The safetensors files of a model directory. Private to the model module. */
#ifndef SPILL_MODEL_CHECKPOINT_H
#define SPILL_MODEL_CHECKPOINT_H

#include "model/model.h"
#include "model/tensors.h"

/* Finds the directory's weights (model.safetensors, or the shards that model.safetensors.index.json names), reads
 * every header into the set and checks index, shards and directory against each other. *files are in the order of their
 * names, and from the arena. */
bool sp_checkpoint_read(const char *directory, sp_arena *arena, sp_tensor_set *set, const sp_model_file **files,
                        size_t *n_files, sp_error *err) SP_MUST_CHECK;

#endif
