#include "planner/layout.h"

#include "kernels/ops.h"
#include "util/size.h"

/* FFN_BLOCK_BYTES bounds gate and up; below it one block holds all. RING_AHEAD_BYTES: what lands while the cores are at
 * something that takes no weights; slots that are not needed for that are never touched. BLOCK: slots and rows of the
 * embedding are widened to blocks of the drive. */
enum { FFN_BLOCK_BYTES = 16 << 20, CHUNK_RESIDENT_BYTES = 64 << 20 };
enum { RING_BYTES_MAX = 1000000000, RING_AHEAD_BYTES = 64 << 20, SLOTS_IN_USE = 4, SLOTS_MIN = 8 };
enum { OVERHEAD_BYTES = 96 << 20, TABLES_BYTES = 4 << 20, N_VECTORS = 13, TILE = 64, LD = 16, BLOCK = 1 << 16 };

static uint64_t ld_bytes(size_t n) { return (uint64_t)sp_round_up(n, LD) * sizeof(float); }

/* Any ISA's packed buffer: whole tiles of tokens and columns, two bytes a value in bf16 mode. */
static uint64_t packed_bytes(sp_mode mode, size_t n_tokens, size_t k) {
    size_t value_bytes = mode == SP_MODE_BF16 ? sizeof(sp_bf16) : sizeof(float);
    return (uint64_t)sp_round_up(n_tokens, TILE) * sp_round_up(k, TILE) * value_bytes;
}

static uint64_t rope_bytes(const sp_arch *arch, size_t n_tokens) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < arch->n_ropes; i++) n_bytes += (uint64_t)n_tokens * arch->ropes[i].n_dims * sizeof(float);
    return n_bytes;
}

/* Norm weights and biases as fp32. */
static uint64_t params_bytes(const sp_model *model) {
    uint64_t n_elems = model->final_norm.n_elems;
    for (size_t l = 0; l < model->arch.n_layers; l++) {
        const sp_layer *layer = &model->layers[l];
        const sp_vector *vectors[N_VECTORS] = {
            &layer->attn_norm, &layer->ffn_norm, &layer->attn_post_norm, &layer->ffn_post_norm, &layer->q_norm,
            &layer->k_norm,    &layer->q_bias,   &layer->k_bias,         &layer->v_bias,        &layer->o_bias,
            &layer->gate_bias, &layer->up_bias,  &layer->down_bias};
        for (size_t i = 0; i < N_VECTORS; i++)
            if (vectors[i]->name) n_elems += vectors[i]->n_elems;
    }
    return n_elems * sizeof(float);
}

/* What the engine allocates beside weights and pages, rounded up; rows of an embedding that is not kept included. */
static uint64_t activation_bytes(const sp_model *model, const sp_plan *plan) {
    const sp_arch *arch = &model->arch;
    size_t n = plan->pass_tokens, width_q = arch->n_heads * arch->head_dim,
           width_kv = arch->n_kv_heads * arch->head_dim;
    uint64_t token_bytes = ld_bytes(arch->d_model) + 2 * ld_bytes(width_q) + 2 * ld_bytes(width_kv) +
                           2 * ld_bytes(plan->ffn_block) + model->embed.row_bytes + 2 * 4096;
    uint64_t wide_bytes =
        packed_bytes(plan->mode, n, arch->d_model) + packed_bytes(plan->mode, n, sp_max_size(width_q, arch->d_ffn));
    uint64_t logits_bytes = plan->pass_logits * ld_bytes(arch->n_vocab);
    return n * token_bytes + wide_bytes + rope_bytes(arch, n) + logits_bytes + params_bytes(model) + TABLES_BYTES;
}

uint64_t sp_layout_kv_token_bytes(const sp_arch *arch, sp_mode mode) {
    size_t value_bytes = mode == SP_MODE_BF16 ? sizeof(sp_bf16) : sizeof(float);
    size_t n_values =
        sp_round_up(arch->head_dim, 2) + sp_round_up(arch->head_dim, LD); /* a key, a value in whole lanes */
    return (uint64_t)arch->n_layers * arch->n_kv_heads * n_values * value_bytes;
}

static uint64_t matrix_bytes(const sp_matrix *matrix) { return (uint64_t)matrix->n_rows * matrix->row_bytes; }

uint64_t sp_layout_layer_bytes(const sp_model *model, size_t i_layer) {
    const sp_layer *l = &model->layers[i_layer];
    return matrix_bytes(&l->q) + matrix_bytes(&l->k) + matrix_bytes(&l->v) + matrix_bytes(&l->o) +
           matrix_bytes(&l->gate) + matrix_bytes(&l->up) + matrix_bytes(&l->down);
}

uint64_t sp_layout_head_bytes(const sp_model *model) { return matrix_bytes(&model->head); }
uint64_t sp_layout_embed_bytes(const sp_model *model) {
    return model->arch.tied_head ? 0 : matrix_bytes(&model->embed);
}

static size_t ffn_block(const sp_arch *arch, size_t pass_tokens) {
    size_t n_cols = FFN_BLOCK_BYTES / (2 * sizeof(float) * pass_tokens) / SP_PACK_COLS * SP_PACK_COLS;
    n_cols = sp_max_size(n_cols, 4 * SP_PACK_COLS);
    if (n_cols >= arch->d_ffn) return arch->d_ffn;
    size_t n_blocks = sp_div_up(arch->d_ffn, n_cols); /* blocks of about the same width */
    return sp_round_up(sp_div_up(arch->d_ffn, n_blocks), SP_PACK_COLS);
}

/* Slots for all that is in flight on the drive, and for the chunks that products are using. */
static void lay_out_ring(const sp_model *model, sp_plan *plan) {
    size_t depth = plan->read_depth ? plan->read_depth : SP_RING_DEPTH;
    size_t request_bytes = plan->read_request_bytes ? plan->read_request_bytes : SP_RING_REQUEST_BYTES;
    size_t row_bytes = sp_max_size(model->layers[0].down.row_bytes, model->head.row_bytes);
    size_t chunk_bytes = sp_ring_chunk_bytes(request_bytes);
    size_t slot_bytes = sp_max_size(chunk_bytes, row_bytes) + 2 * BLOCK;
    size_t in_flight_bytes = sp_min_size(depth, RING_BYTES_MAX / request_bytes + 1) * request_bytes;
    size_t n_slots = sp_max_size(SLOTS_MIN, sp_div_up(in_flight_bytes + RING_AHEAD_BYTES, chunk_bytes));
    size_t whole = (size_t)(model->weight_bytes / chunk_bytes) + 1; /* a small model wants no more than itself */
    n_slots = sp_min_size(n_slots, whole + SLOTS_IN_USE);
    plan->chunk_bytes = chunk_bytes;
    plan->ring_slots = sp_max_size(SLOTS_IN_USE, sp_min_size(n_slots, RING_BYTES_MAX / slot_bytes));
    plan->ring_bytes = (uint64_t)plan->ring_slots * slot_bytes;
}

uint64_t sp_layout_fill(const sp_model *model, sp_plan *plan) {
    plan->pass_tokens = sp_max_size(plan->pass_tokens, plan->rows);
    plan->pass_logits = plan->rows;
    plan->ffn_block = ffn_block(&model->arch, plan->pass_tokens);
    plan->ring_slots = 0;
    plan->ring_bytes = 0;
    plan->chunk_bytes = CHUNK_RESIDENT_BYTES;
    if (plan->placement == SP_PLACE_STREAM) lay_out_ring(model, plan);
    plan->overhead_bytes = OVERHEAD_BYTES;
    plan->activation_bytes = activation_bytes(model, plan);
    return plan->overhead_bytes + plan->ring_bytes + plan->activation_bytes;
}
