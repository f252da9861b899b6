/* Sums of row hashes, one a matrix. */
#include "engine/content.h"

#include <string.h>
#include <xxhash.h>

#include "util/size.h"
#include "util/threads.h"

/* A task hashes about this much: enough to outweigh its start, little enough to share a chunk of a few megabytes. */
enum { TASK_BYTES = 256 << 10, N_PER_LAYER = SP_WEIGHT_HEAD };

typedef struct {
    uint64_t high, low;
} sum128;

struct sp_content {
    const sp_model *model;
    sp_pool *pool;
    bool *is_seen; /* [n_extents] */
    size_t n_extents, n_seen;
    sum128 *sums; /* [L * N_PER_LAYER + 2] by layer and weight; the head, the embedding */
    XXH128_hash_t vectors;
    /* of the chunk at hand */
    sp_chunk chunk;
    size_t task_rows;
    sum128 *parts; /* [n_threads] */
};

sp_content *sp_content_new(const sp_model *model, size_t n_extents, const sp_device *device, sp_arena *arena) {
    sp_content *c = SP_ARENA_NEW(arena, sp_content);
    c->model = model;
    c->pool = sp_device_pool(device);
    c->n_extents = n_extents;
    c->is_seen = SP_ARENA_ARRAY(arena, bool, n_extents);
    c->sums = SP_ARENA_ARRAY(arena, sum128, model->arch.n_layers * N_PER_LAYER + 2);
    c->parts = SP_ARENA_ARRAY(arena, sum128, sp_pool_n_threads(c->pool));
    return c;
}

void sp_content_add_vector(sp_content *c, const void *raw, size_t n_bytes) {
    const uint64_t chained[] = {c->vectors.high64, c->vectors.low64, XXH3_64bits(raw, n_bytes), n_bytes};
    c->vectors = XXH3_128bits(chained, sizeof chained);
}

/* ---- rows ---- */

static void add(sum128 *sum, uint64_t high, uint64_t low) {
    sum->low += low;
    sum->high += high + (sum->low < low);
}

static void hash_rows(void *ctx, size_t i_task, size_t i_thread) {
    const sp_content *c = ctx;
    size_t row_bytes = c->chunk.matrix->row_bytes, first = i_task * c->task_rows;
    size_t end = sp_min_size(first + c->task_rows, c->chunk.n_rows);
    for (size_t i = first; i < end; i++) {
        XXH128_hash_t row = XXH3_128bits((const char *)c->chunk.w + i * row_bytes, row_bytes);
        const uint64_t numbered[] = {row.high64, row.low64, c->chunk.row0 + i};
        XXH128_hash_t hash = XXH3_128bits(numbered, sizeof numbered);
        add(&c->parts[i_thread], hash.high64, hash.low64);
    }
}

static size_t index_of(const sp_chunk *chunk) {
    return (size_t)chunk->i_layer * N_PER_LAYER + (chunk->weight < SP_WEIGHT_HEAD ? chunk->weight : 0) +
           (chunk->weight == SP_WEIGHT_EMBED);
}

static void see_chunk(sp_content *c, const sp_chunk *chunk) {
    size_t n_threads = sp_pool_n_threads(c->pool);
    c->chunk = *chunk;
    c->task_rows = sp_max_size(1, TASK_BYTES / chunk->matrix->row_bytes);
    memset(c->parts, 0, n_threads * sizeof *c->parts);
    sp_pool_run(c->pool, sp_div_up(chunk->n_rows, c->task_rows), hash_rows, c);
    for (size_t i = 0; i < n_threads; i++) add(&c->sums[index_of(chunk)], c->parts[i].high, c->parts[i].low);
    c->is_seen[chunk->i_extent] = true;
    c->n_seen++;
}

void sp_content_see(sp_content *c, const sp_chunk *chunks, size_t n_chunks) {
    for (size_t i = 0; i < n_chunks && c->n_seen < c->n_extents; i++)
        if (!c->is_seen[chunks[i].i_extent]) see_chunk(c, &chunks[i]);
}

/* ---- the model ---- */

bool sp_content_is_whole(const sp_content *c) { return c->n_seen == c->n_extents; }

static void chain(XXH128_hash_t *state, const sp_matrix *matrix, const sum128 *sum) {
    const uint64_t chained[] = {
        state->high64,  state->low64,   XXH3_64bits(matrix->format->name, strlen(matrix->format->name)),
        matrix->n_rows, matrix->n_cols, sum->high,
        sum->low};
    *state = XXH3_128bits(chained, sizeof chained);
}

bool sp_content_hash(const sp_content *c, sp_hash *out) {
    if (!sp_content_is_whole(c)) return false;
    XXH128_hash_t state = c->vectors;
    size_t n_layers = c->model->arch.n_layers;
    for (size_t l = 0; l < n_layers; l++) {
        const sp_layer *layer = &c->model->layers[l];
        const sp_matrix *matrices[N_PER_LAYER] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                                  &layer->gate, &layer->up, &layer->down};
        for (size_t i = 0; i < N_PER_LAYER; i++) chain(&state, matrices[i], &c->sums[l * N_PER_LAYER + i]);
    }
    chain(&state, &c->model->head, &c->sums[n_layers * N_PER_LAYER]);
    if (!c->model->arch.tied_head) chain(&state, &c->model->embed, &c->sums[n_layers * N_PER_LAYER + 1]);
    *out = sp_hash_of(state.high64, state.low64);
    return true;
}
