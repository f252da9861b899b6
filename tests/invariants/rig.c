#include "rig.h"

#include <stdio.h>

#include "util/size.h"

static bool open_plan(rig *r, const rig_options *o, sp_error *err) {
    const sp_machine machine = {.ram_bytes = 4ull << 30, .limit_bytes = 4ull << 30, .n_cpus = 2, .isa = "test"};
    const sp_plan_request request = {.mode = o->mode,
                                     .placement = o->ring_slots ? SP_PLACE_STREAM : SP_PLACE_RESIDENT,
                                     .rows_cap = o->rows ? o->rows : 4,
                                     .pass_tokens = o->pass_tokens,
                                     .row_tokens_max = o->row_tokens ? o->row_tokens : 256};
    if (!sp_plan_build(r->model, &machine, &request, &r->plan, err)) return false;
    if (o->chunk_bytes) r->plan.chunk_bytes = o->chunk_bytes;
    if (o->ring_slots) r->plan.ring_slots = o->ring_slots;
    if (o->ffn_block) r->plan.ffn_block = o->ffn_block;
    return true;
}

bool rig_open(rig *r, const char *model_path, const rig_options *options, sp_error *err) {
    *r = (rig){.model = sp_model_open(model_path, err)};
    if (!r->model || !open_plan(r, options, err)) return false;
    r->pool = sp_pool_new(options->n_threads ? options->n_threads : 1, err);
    if (r->pool) r->device = sp_device_open_cpu(r->pool, options->mode, options->disable_isa, err);
    if (r->device) r->engine = sp_engine_open(r->model, &r->plan, r->device, err);
    return r->engine != NULL;
}

void rig_close(rig *r) {
    sp_engine_close(r->engine);
    sp_device_close(r->device);
    sp_pool_free(r->pool);
    sp_model_close(r->model);
    *r = (rig){0};
}

const float *rig_feed(rig *r, uint32_t seq, const int32_t *ids, size_t n_length, size_t pass_tokens, sp_error *err) {
    size_t n_done = sp_engine_seq_set_length(r->engine, seq, n_length);
    while (n_done < n_length) {
        size_t n = sp_min_size(pass_tokens, n_length - n_done);
        const sp_span span = {seq, ids + n_done, n, n_done + n == n_length};
        if (!sp_engine_pass(r->engine, &span, 1, NULL, err)) return NULL;
        n_done += n;
    }
    return sp_engine_logits(r->engine, 0);
}
