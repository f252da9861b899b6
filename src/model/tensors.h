/* The tensors of a checkpoint, by name: what safetensors and GGUF headers have in common. Private to the model module.
 *
 * A set is filled by the readers of both formats, then asked by name while the architecture is bound to it. Whatever
 * nobody asked for is found at the end, so that no tensor is silently ignored. Not thread-safe. */
#ifndef SPILL_MODEL_TENSORS_H
#define SPILL_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/format.h"
#include "util/arena.h"
#include "util/error.h"

enum { SP_TENSOR_MAX_DIMS = 8, SP_TENSOR_MAX_COUNT = 1000000, SP_TENSOR_NAME_MAX_BYTES = 1024 };

typedef struct {
    const char *name;
    const char *type_name;   /* as the file writes it: "BF16", "I64" */
    const sp_format *format; /* NULL: a type that weights cannot have here */
    uint32_t i_file;
    uint32_t n_dims;
    size_t dims[SP_TENSOR_MAX_DIMS]; /* row-major, the last one contiguous */
    uint64_t offset_bytes;           /* from the start of the file */
    uint64_t n_bytes;
    bool used;
} sp_tensor;

typedef struct {
    sp_tensor *items; /* in the order of addition */
    size_t n;
    size_t room;
    uint32_t *slots; /* open addressing over items, index + 1; n_slots is a power of two */
    size_t n_slots;
} sp_tensor_set; /* zero-initialised is empty */

/* Takes a copy of *tensor; its name must outlive the set. False when the name is there already (SP_ERR_INPUT), when
 * there are too many, or when memory ends. `path` is for messages. */
bool sp_tensor_set_add(sp_tensor_set *set, const sp_tensor *tensor, const char *path, sp_error *err) SP_MUST_CHECK;
sp_tensor *sp_tensor_set_find(const sp_tensor_set *set, const char *name); /* borrowed until the next add, or NULL */
/* Indices of the tensors from `first` on, by offset, empty ones before others at the same place; free() it. NULL when
 * memory ends. */
uint32_t *sp_tensor_set_order(const sp_tensor_set *set, size_t first) SP_MUST_CHECK;
void sp_tensor_set_deinit(sp_tensor_set *set);

/* "[64, 128]" into out; returns out. */
const char *sp_tensor_shape_text(const size_t *dims, uint32_t n_dims, char *out, size_t out_bytes);

#endif
