/* Cuts the model's matrices into chunks in the order of a pass. The same walk runs twice: first to count, then to
 * write. */
#include "engine/schedule.h"

#include "util/size.h"

typedef struct {
    size_t chunk_bytes;
    uint32_t i_layer, group;
    sp_extent *out; /* NULL: only count */
    size_t n, max_bytes;
} cutter;

static void cut(cutter *c, sp_weight weight, const sp_matrix *matrix, size_t row0, size_t row1) {
    size_t step = sp_max_size(1, c->chunk_bytes / matrix->row_bytes);
    while (row0 < row1) {
        size_t n_rows = sp_min_size(step, row1 - row0);
        sp_extent extent = {matrix, weight, c->i_layer, c->group, row0, n_rows};
        if (c->out) c->out[c->n] = extent;
        c->n++;
        c->max_bytes = sp_max_size(c->max_bytes, sp_extent_bytes(&extent));
        row0 += n_rows;
    }
}

static void cut_layer(cutter *c, const sp_layer *layer, size_t ffn_block) {
    cut(c, SP_WEIGHT_Q, &layer->q, 0, layer->q.n_rows);
    cut(c, SP_WEIGHT_K, &layer->k, 0, layer->k.n_rows);
    cut(c, SP_WEIGHT_V, &layer->v, 0, layer->v.n_rows);
    c->group++;
    cut(c, SP_WEIGHT_O, &layer->o, 0, layer->o.n_rows);
    c->group++;
    for (size_t f0 = 0; f0 < layer->gate.n_rows; f0 += ffn_block) {
        size_t f1 = sp_min_size(f0 + ffn_block, layer->gate.n_rows);
        cut(c, SP_WEIGHT_GATE, &layer->gate, f0, f1);
        cut(c, SP_WEIGHT_UP, &layer->up, f0, f1);
        c->group++;
    }
    cut(c, SP_WEIGHT_DOWN, &layer->down, 0, layer->down.n_rows);
    c->group++;
}

static void walk(cutter *c, const sp_model *model, size_t ffn_block) {
    for (size_t l = 0; l < model->arch.n_layers; l++) {
        c->i_layer = (uint32_t)l;
        cut_layer(c, &model->layers[l], ffn_block);
    }
    c->i_layer = (uint32_t)model->arch.n_layers;
    cut(c, SP_WEIGHT_HEAD, &model->head, 0, model->head.n_rows);
}

void sp_schedule_build(const sp_model *model, size_t chunk_bytes, size_t ffn_block, sp_arena *arena,
                       sp_schedule *schedule) {
    cutter count = {.chunk_bytes = chunk_bytes};
    walk(&count, model, ffn_block);
    cutter write = {.chunk_bytes = chunk_bytes, .out = SP_ARENA_ARRAY(arena, sp_extent, count.n)};
    walk(&write, model, ffn_block);
    *schedule = (sp_schedule){write.out, write.n, write.max_bytes};
}
