/* The order in which a pass needs the weights, cut into chunks: pure data from the model's headers.
 *
 *     layer 0 | layer 1 | ... | last layer: q k v | its o, gate, up, down | head | embedding
 *                                                 ^ i_logits                     ^ n_products
 *
 * Per layer: q, k, v (one group: same input), o, then for every block of ffn_block rows gate and up (one group), then
 * down; after the last layer the head. A pass that wants no logits stops at i_logits. Behind n_products lies an untied
 * embedding, which no product takes: it is there to be kept in memory, or to be looked at once. Plain data, immutable
 * once built. */
#ifndef SPILL_ENGINE_SCHEDULE_H
#define SPILL_ENGINE_SCHEDULE_H

#include "engine/stream.h"
#include "util/arena.h"

typedef struct {
    const sp_matrix *matrix;
    sp_weight weight;
    uint32_t i_layer;
    uint32_t group; /* chunks of one group take the same input and follow one another */
    size_t row0, n_rows;
} sp_extent;

typedef struct {
    sp_extent *extents; /* in the arena */
    size_t n_extents;
    size_t max_bytes;    /* of the greatest chunk */
    size_t *layer_first; /* [L + 1] a layer's first extent; [L]: the head's */
    size_t i_logits;     /* the first that only a pass with logits needs */
    size_t n_products;   /* end of the head */
    size_t i_embed;      /* the first with rows of the embedding: the head's when they are tied */
} sp_schedule;

static inline size_t sp_extent_bytes(const sp_extent *extent) { return extent->n_rows * extent->matrix->row_bytes; }
static inline uint64_t sp_extent_offset(const sp_extent *extent) {
    return extent->matrix->offset_bytes + (uint64_t)extent->row0 * extent->matrix->row_bytes;
}

/* Chunks of at most chunk_bytes, or one row; whole panels (kernels/ops.h) where that is more than one. */
void sp_schedule_build(const sp_model *model, size_t chunk_bytes, size_t ffn_block, sp_arena *arena,
                       sp_schedule *schedule);

#endif
