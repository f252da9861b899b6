#include "rig.h"

#include "kernels/ops.h"
#include "planner/pin.h"
#include "util/size.h"

static uint64_t bytes_of(const sp_matrix *matrix) { return (uint64_t)matrix->n_rows * matrix->row_bytes; }

static uint64_t layer_bytes(const sp_layer *layer) {
    return bytes_of(&layer->q) + bytes_of(&layer->k) + bytes_of(&layer->v) + bytes_of(&layer->o) +
           bytes_of(&layer->gate) + bytes_of(&layer->up) + bytes_of(&layer->down);
}

/* Streamed as the test wants it, whatever the planner thinks of it. */
static void stream_as_asked(rig *r, const rig_options *o) {
    sp_plan *plan = &r->plan;
    plan->ring_slots = o->ring_slots;
    plan->n_pinned_layers = sp_min_size(o->n_pinned_layers, r->model->arch.n_layers);
    plan->pin_head = o->pin_head;
    plan->keep_embed = o->keep_embed && !r->model->arch.tied_head;
    plan->read_backend = o->backend;
    plan->read_depth = o->read_depth;
    plan->read_request_bytes = o->read_request_bytes;
    plan->pinned_bytes =
        (plan->pin_head ? bytes_of(&r->model->head) : 0) + (plan->keep_embed ? bytes_of(&r->model->embed) : 0);
    for (uint32_t n = 0; n < plan->n_pinned_layers; n++)
        plan->pinned_bytes += layer_bytes(&r->model->layers[sp_pin_order((uint32_t)r->model->arch.n_layers, n)]);
}

static bool open_plan(rig *r, const rig_options *o, sp_error *err) {
    const sp_machine machine = {.ram_bytes = 4ull << 30, .limit_bytes = 4ull << 30, .n_cpus = 2, .isa = "test"};
    const sp_plan_request request = {.mode = o->mode,
                                     .placement = o->ring_slots ? SP_PLACE_STREAM : SP_PLACE_RESIDENT,
                                     .rows_cap = o->rows ? o->rows : 4,
                                     .pass_tokens = o->pass_tokens,
                                     .row_tokens_max = o->row_tokens ? o->row_tokens : 256};
    if (!sp_plan_build(r->model, &machine, &request, &r->plan, err)) return false;
    if (o->chunk_bytes) r->plan.chunk_bytes = o->chunk_bytes;
    if (o->ring_slots) stream_as_asked(r, o);
    if (o->grow_from)
        r->plan.kv_pages += (size_t)(2 * r->model->weight_bytes / (r->plan.kv_token_bytes * SP_KV_PAGE_TOKENS));
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

const float *rig_feed(const rig *r, uint32_t seq, const int32_t *ids, size_t n_length, size_t pass_tokens,
                      sp_error *err) {
    size_t n_done = sp_engine_seq_set_length(r->engine, seq, n_length);
    while (n_done < n_length) {
        size_t n = sp_min_size(pass_tokens, n_length - n_done);
        const sp_span span = {seq, ids + n_done, n, n_done + n == n_length};
        if (!sp_engine_pass(r->engine, &span, 1, NULL, err)) return NULL;
        n_done += n;
    }
    return sp_engine_logits(r->engine, 0);
}
