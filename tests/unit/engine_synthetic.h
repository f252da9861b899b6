/* A made-up llama for tests of planner and engine: a description of any shape, and on demand a file of random BF16
 * weights, without going through the model readers. */
#ifndef SPILL_TESTS_ENGINE_SYNTHETIC_H
#define SPILL_TESTS_ENGINE_SYNTHETIC_H

#include "model/model.h"

typedef struct {
    size_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ffn, n_vocab;
    bool tied_head;
} synthetic_shape;

/* file_path NULL: headers only. The file is written in an order that is not the schedule's. Aborts on failure. */
sp_model *synthetic_new(const synthetic_shape *shape, const char *file_path);
void synthetic_free(sp_model *model);

/* Byte i of the file. */
unsigned char synthetic_byte(uint64_t i);

#endif
