/* A GGUF file of any bytes, opened as a model; every value that was accepted is read. */
#include <stdlib.h>

#include "fuzz_model_file.h"
#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Sums that keep the reads; a sanitizer sees a bad one. */
static volatile size_t sink;

static void read_value(const sp_gguf_value *value) {
    static const size_t elem_bytes[SP_GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    size_t sum = 0;
    if (value->type == SP_GGUF_TEXT) {
        const sp_string *texts = value->data;
        for (size_t i = 0; i < value->n_elems; i++)
            for (size_t k = 0; k < texts[i].n_bytes; k += 7) sum += (unsigned char)texts[i].text[k];
    } else {
        if ((uintptr_t)value->data % elem_bytes[value->type]) abort();
        const unsigned char *bytes = value->data;
        for (size_t i = 0; i < value->n_elems * elem_bytes[value->type]; i++) sum += bytes[i];
    }
    sink = sum;
}

static void check_matrix(const sp_model *model, const sp_matrix *m) {
    uint64_t n_bytes = model->files[0].n_bytes;
    if (m->offset_bytes > n_bytes || m->n_rows * m->row_bytes > n_bytes - m->offset_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    sp_error err = {0};
    sp_model *model = sp_model_open(fuzz_model_file(data, n_bytes), &err);
    if (!model) {
        if (err.code == SP_OK) abort();
        return 0;
    }
    for (size_t i = 0; i < sp_gguf_n_values(model->gguf); i++) read_value(sp_gguf_at(model->gguf, i));
    check_matrix(model, &model->embed);
    check_matrix(model, &model->head);
    for (size_t l = 0; l < model->arch.n_layers; l++) {
        check_matrix(model, &model->layers[l].q);
        check_matrix(model, &model->layers[l].v);
        check_matrix(model, &model->layers[l].up);
        check_matrix(model, &model->layers[l].down);
    }
    sp_model_close(model);
    return 0;
}
