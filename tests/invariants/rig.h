/* A test's way to an engine: model, plan, pool, device and engine opened in one call, and logits of given tokens. */
#ifndef SPILL_TESTS_RIG_H
#define SPILL_TESTS_RIG_H

#include "engine/engine.h"
#include "planner/plan.h"

/* Zero means the planner's choice. */
typedef struct {
    sp_mode mode;
    size_t n_threads;
    const char *disable_isa;
    size_t rows, pass_tokens;
    size_t row_tokens;  /* longest row, 256 by default */
    size_t chunk_bytes; /* cut the weights smaller than planned */
    size_t ring_slots;  /* streamed through a ring of this many chunks instead of resident; then these count: */
    size_t n_pinned_layers;
    bool pin_head, keep_embed;
    sp_ring_backend backend;
    size_t read_depth, read_request_bytes;
    size_t grow_from; /* more KV pages, as much as the weights take twice; the test gives them up from this pass on */
    size_t ffn_block;
} rig_options;

typedef struct {
    sp_model *model;
    sp_plan plan;
    sp_pool *pool;
    sp_device *device;
    sp_engine *engine;
} rig;

bool rig_open(rig *r, const char *model_path, const rig_options *options, sp_error *err) SP_MUST_CHECK;
void rig_close(rig *r);

/* Brings a sequence to its first n_length tokens, in passes of at most pass_tokens; the logits [V] of the last, valid
 * until the next pass, or NULL. */
const float *rig_feed(const rig *r, uint32_t seq, const int32_t *ids, size_t n_length, size_t pass_tokens,
                      sp_error *err);

#endif
