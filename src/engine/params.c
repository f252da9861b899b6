/* Reads norm weights and biases, a few kilobytes a layer, with plain reads. */
#include "engine/params.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/size.h"

typedef struct {
    const sp_model *model;
    sp_arena *arena;
    sp_content *content;
    int *fds;  /* [n_files] */
    char *raw; /* grows: one tensor as it lies in the file */
    size_t raw_bytes;
    sp_error *err;
} reader;

static bool read_raw(reader *r, const sp_vector *vector, size_t n_bytes) {
    const char *path = r->model->files[vector->i_file].path;
    if (n_bytes > r->raw_bytes) {
        free(r->raw);
        r->raw = malloc(n_bytes);
        SP_CHECK(r->raw != NULL);
        r->raw_bytes = n_bytes;
    }
    for (size_t n_done = 0; n_done < n_bytes;) {
        off_t at = (off_t)(vector->offset_bytes + n_done);
        ssize_t n = pread(r->fds[vector->i_file], r->raw + n_done, n_bytes - n_done, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return sp_fail_errno(r->err, "%s: reading '%s'", path, vector->name);
        if (n == 0) return sp_fail(r->err, SP_ERR_IO, "%s ends inside '%s': the file has shrunk", path, vector->name);
        n_done += (size_t)n;
    }
    return true;
}

static bool read_vector(reader *r, const sp_vector *vector, const float **out) {
    if (!vector->name) return true;
    const sp_format *format = vector->format;
    size_t n_bytes = vector->n_elems / format->block_elems * format->block_bytes;
    if (!read_raw(r, vector, n_bytes)) return false;
    sp_content_add_vector(r->content, r->raw, n_bytes);
    float *values = SP_ARENA_ARRAY(r->arena, float, vector->n_elems);
    format->to_f32(r->raw, vector->n_elems, values);
    *out = values;
    return true;
}

static bool read_layer(reader *r, const sp_layer *layer, sp_layer_params *out) {
    const struct {
        const sp_vector *from;
        const float **to;
    } table[] = {
        {&layer->attn_norm, &out->attn_norm}, {&layer->ffn_norm, &out->ffn_norm},
        {&layer->q_norm, &out->q_norm},       {&layer->k_norm, &out->k_norm},
        {&layer->q_bias, &out->q_bias},       {&layer->k_bias, &out->k_bias},
        {&layer->v_bias, &out->v_bias},       {&layer->o_bias, &out->o_bias},
        {&layer->gate_bias, &out->gate_bias}, {&layer->up_bias, &out->up_bias},
        {&layer->down_bias, &out->down_bias},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!read_vector(r, table[i].from, table[i].to)) return false;
    return true;
}

static bool open_files(reader *r) {
    for (size_t i = 0; i < r->model->n_files; i++) {
        r->fds[i] = open(r->model->files[i].path, O_RDONLY | O_CLOEXEC);
        if (r->fds[i] < 0) return sp_fail_errno(r->err, "%s cannot be opened", r->model->files[i].path);
    }
    return true;
}

bool sp_params_read(const sp_model *model, sp_arena *arena, sp_content *content, sp_params *params, sp_error *err) {
    reader r = {.model = model,
                .arena = arena,
                .content = content,
                .err = err,
                .fds = SP_ARENA_ARRAY(arena, int, model->n_files)};
    for (size_t i = 0; i < model->n_files; i++) r.fds[i] = -1;
    sp_layer_params *layers = SP_ARENA_ARRAY(arena, sp_layer_params, model->arch.n_layers);
    bool ok = open_files(&r) && read_vector(&r, &model->final_norm, &params->final_norm);
    for (size_t l = 0; ok && l < model->arch.n_layers; l++) ok = read_layer(&r, &model->layers[l], &layers[l]);
    params->layers = layers;
    free(r.raw);
    for (size_t i = 0; i < model->n_files; i++)
        if (r.fds[i] >= 0) close(r.fds[i]);
    return ok;
}
