/* What a plan takes, in bytes: upper bounds from the model's shape alone, no device needed. Pure. */
#ifndef SPILL_PLANNER_LAYOUT_H
#define SPILL_PLANNER_LAYOUT_H

#include "planner/plan.h"

/* Fills all that follows from mode, placement, rows, pass_tokens and the reader's settings, but neither KV nor what is
 * pinned; returns overhead, ring and activations together. */
uint64_t sp_layout_fill(const sp_model *model, sp_plan *plan);

uint64_t sp_layout_kv_token_bytes(const sp_arch *arch, sp_mode mode); /* of one token, all layers */

/* Matrices of a layer, the head, an untied embedding (0 when tied). */
uint64_t sp_layout_layer_bytes(const sp_model *model, size_t i_layer);
uint64_t sp_layout_head_bytes(const sp_model *model);
uint64_t sp_layout_embed_bytes(const sp_model *model);

/* What a pinned layer (or the head) takes beyond its bytes: matrices begin where their first byte lies in a block of
 * the drive. */
enum { SP_LAYOUT_PIN_SLACK = 7 * 2 * 4096 };

#endif
