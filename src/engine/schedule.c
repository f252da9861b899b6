/* Cuts the model's matrices into chunks in the order of a pass. The same walk runs twice: first to count, then to
 * write. */
#include "engine/schedule.h"

#include "util/size.h"

typedef struct {
    size_t chunk_bytes;
    uint32_t i_layer, group;
    sp_schedule *out; /* NULL: only count */
    size_t n, max_bytes;
} cutter;

/* CUT_ROWS: a multiple of every ISA's panel; FEW_ROWS: of a step of the products' loops. */
enum { CUT_ROWS = 32, FEW_ROWS = 8 };

static void cut(cutter *c, sp_weight weight, const sp_matrix *matrix, size_t row0, size_t row1) {
    size_t step = sp_max_size(1, c->chunk_bytes / matrix->row_bytes);
    if (step > FEW_ROWS) step -= step % (step > CUT_ROWS ? CUT_ROWS : FEW_ROWS);
    while (row0 < row1) {
        size_t n_rows = sp_min_size(step, row1 - row0);
        sp_extent extent = {matrix, weight, c->i_layer, c->group, row0, n_rows};
        if (c->out) c->out->extents[c->n] = extent;
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
    size_t n_layers = model->arch.n_layers;
    for (size_t l = 0; l < n_layers; l++) {
        c->i_layer = (uint32_t)l;
        if (c->out) c->out->layer_first[l] = c->n;
        cut_layer(c, &model->layers[l], ffn_block);
    }
    c->i_layer = (uint32_t)n_layers;
    if (c->out) c->out->layer_first[n_layers] = c->out->i_embed = c->n;
    cut(c, SP_WEIGHT_HEAD, &model->head, 0, model->head.n_rows);
    c->group++;
    if (c->out) c->out->n_products = c->n;
    if (model->arch.tied_head) return;
    if (c->out) c->out->i_embed = c->n;
    cut(c, SP_WEIGHT_EMBED, &model->embed, 0, model->embed.n_rows);
}

void sp_schedule_build(const sp_model *model, size_t chunk_bytes, size_t ffn_block, sp_arena *arena,
                       sp_schedule *schedule) {
    cutter count = {.chunk_bytes = chunk_bytes};
    walk(&count, model, ffn_block);
    *schedule = (sp_schedule){.extents = SP_ARENA_ARRAY(arena, sp_extent, count.n),
                              .n_extents = count.n,
                              .max_bytes = count.max_bytes,
                              .layer_first = SP_ARENA_ARRAY(arena, size_t, model->arch.n_layers + 1)};
    cutter write = {.chunk_bytes = chunk_bytes, .out = schedule};
    walk(&write, model, ffn_block);
    schedule->i_logits = schedule->layer_first[model->arch.n_layers - 1];
    while (schedule->extents[schedule->i_logits].weight != SP_WEIGHT_O) schedule->i_logits++;
}
