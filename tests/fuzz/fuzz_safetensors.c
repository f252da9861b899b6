/* A safetensors file of any bytes: refused, or read so that every tensor lies inside it. */
#include <stdlib.h>

#include "fuzz_model_file.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    sp_error err = {0};
    sp_file file;
    sp_tensor_set set = {0};
    sp_arena arena = {0};
    if (!sp_file_open(&file, fuzz_model_file(data, n_bytes), &err)) return 0;
    if (sp_safetensors_read(&file, 0, &arena, &set, &err)) {
        for (size_t i = 0; i < set.n; i++) {
            const sp_tensor *t = &set.items[i];
            if (t->offset_bytes > n_bytes || t->n_bytes > n_bytes - t->offset_bytes) abort();
            if (sp_tensor_set_find(&set, t->name) != t) abort();
        }
    } else if (err.code == SP_OK) {
        abort();
    }
    sp_file_close(&file);
    sp_tensor_set_deinit(&set);
    sp_arena_deinit(&arena);
    return 0;
}
