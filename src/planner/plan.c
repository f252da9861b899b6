/* Splits the memory budget and picks placement, rows and the size of a pass.
 *
 *     budget = overhead + weights (pinned) or ring + activations(pass_tokens, rows) + KV pages
 *
 * Rows and activations depend on each other (a row's logits are kept for the pass), so rows are fixed first from what
 * is asked, then reduced until their activations and one page each fit. Sizes are upper bounds that need no device. */
#include "planner/plan.h"

#include <math.h>
#include <string.h>

#include "kernels/ops.h"
#include "util/size.h"
#include "util/units.h"

/* PASS_TOKENS: past about 512 tokens a product's rate no longer grows, and the buffers do. ROWS: decode is bound by
 * arithmetic from some tens of rows on, and results come sooner with fewer in flight; where weights are streamed, every
 * row is free until the disk is hidden, so only memory limits them. FFN_BLOCK_BYTES bounds gate and up; below it one
 * block holds all. */
enum { PASS_TOKENS = 512, ROWS_RESIDENT = 64, ROWS_STREAM = 256, ROW_TOKENS_UNKNOWN = 1024 };
enum { FFN_BLOCK_BYTES = 16 << 20, CHUNK_RESIDENT_BYTES = 64 << 20, CHUNK_STREAM_BYTES = 16 << 20, RING_SLOTS = 8 };
enum { OVERHEAD_BYTES = 96 << 20, TABLES_BYTES = 4 << 20, N_VECTORS = 13, TILE = 64, LD = 16 };

static const char *const placement_names[] = {"auto", "resident", "stream"};

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

/* What the engine allocates beside weights and pages, rounded up. */
static uint64_t activation_bytes(const sp_model *model, const sp_plan *plan) {
    const sp_arch *arch = &model->arch;
    size_t n = plan->pass_tokens, width_q = arch->n_heads * arch->head_dim,
           width_kv = arch->n_kv_heads * arch->head_dim;
    uint64_t token_bytes = ld_bytes(arch->d_model) + 2 * ld_bytes(width_q) + 2 * ld_bytes(width_kv) +
                           2 * ld_bytes(plan->ffn_block) + model->embed.row_bytes;
    uint64_t wide_bytes =
        packed_bytes(plan->mode, n, arch->d_model) + packed_bytes(plan->mode, n, sp_max_size(width_q, arch->d_ffn));
    uint64_t logits_bytes = plan->pass_logits * ld_bytes(arch->n_vocab);
    return n * token_bytes + wide_bytes + rope_bytes(arch, n) + logits_bytes + params_bytes(model) + TABLES_BYTES;
}

static uint64_t kv_token_bytes(const sp_arch *arch, sp_mode mode) {
    size_t value_bytes = mode == SP_MODE_BF16 ? sizeof(sp_bf16) : sizeof(float);
    size_t n_values =
        sp_round_up(arch->head_dim, 2) + sp_round_up(arch->head_dim, LD); /* a key, a value in whole lanes */
    return (uint64_t)arch->n_layers * arch->n_kv_heads * n_values * value_bytes;
}

static size_t ffn_block(const sp_arch *arch, size_t pass_tokens) {
    size_t n_cols = FFN_BLOCK_BYTES / (2 * sizeof(float) * pass_tokens) / SP_PACK_COLS * SP_PACK_COLS;
    n_cols = sp_max_size(n_cols, 4 * SP_PACK_COLS);
    if (n_cols >= arch->d_ffn) return arch->d_ffn;
    size_t n_blocks = sp_div_up(arch->d_ffn, n_cols); /* blocks of about the same width */
    return sp_round_up(sp_div_up(arch->d_ffn, n_blocks), SP_PACK_COLS);
}

/* Tokens of an average row of the request. */
static size_t average_tokens(const sp_plan_request *request) {
    size_t n_tokens = request->prompt_tokens + request->new_tokens;
    if (request->n_rows > 0 && n_tokens > 0) return sp_max_size(1, sp_div_up(n_tokens, request->n_rows));
    return request->row_tokens_max > 0 ? request->row_tokens_max : ROW_TOKENS_UNKNOWN;
}

/* Fills all that follows from placement, rows and pass_tokens; returns the bytes without KV. */
static uint64_t lay_out(const sp_model *model, sp_plan *plan) {
    const sp_arch *arch = &model->arch;
    bool resident = plan->placement == SP_PLACE_RESIDENT;
    plan->pass_tokens = sp_max_size(plan->pass_tokens, plan->rows);
    plan->pass_logits = plan->rows;
    plan->ffn_block = ffn_block(arch, plan->pass_tokens);
    plan->n_pinned_layers = resident ? arch->n_layers : 0;
    plan->pin_head = plan->keep_embed = resident;
    plan->ring_slots = resident ? 0 : RING_SLOTS;
    plan->chunk_bytes = resident ? CHUNK_RESIDENT_BYTES : CHUNK_STREAM_BYTES;
    size_t row_bytes_max = sp_max_size(model->layers[0].down.row_bytes, model->head.row_bytes);
    plan->ring_bytes = (uint64_t)plan->ring_slots * sp_max_size(plan->chunk_bytes, row_bytes_max);
    plan->pinned_bytes = resident ? plan->weight_bytes : 0;
    plan->overhead_bytes = OVERHEAD_BYTES;
    plan->activation_bytes = activation_bytes(model, plan);
    return plan->overhead_bytes + plan->pinned_bytes + plan->ring_bytes + plan->activation_bytes;
}

/* Gives KV what is left, as far as rows can use it; false when rows of average length do not fit. */
static bool fit_rows(const sp_model *model, const sp_plan_request *request, sp_plan *plan) {
    uint64_t fixed_bytes = lay_out(model, plan);
    uint64_t page_bytes = plan->kv_token_bytes * SP_KV_PAGE_TOKENS;
    uint64_t left_bytes = plan->budget_bytes > fixed_bytes ? plan->budget_bytes - fixed_bytes : 0;
    size_t row_tokens = sp_max_size(average_tokens(request), request->row_tokens_max);
    size_t pages_wanted = plan->rows * sp_div_up(row_tokens, SP_KV_PAGE_TOKENS);
    plan->kv_pages = (size_t)(left_bytes / page_bytes);
    if (plan->kv_pages > pages_wanted) plan->kv_pages = pages_wanted;
    plan->kv_bytes = plan->kv_pages * page_bytes;
    return plan->kv_pages >= plan->rows * sp_div_up(average_tokens(request), SP_KV_PAGE_TOKENS);
}

/* The most rows of at most n_rows that fit. */
static bool choose_rows(const sp_model *model, const sp_plan_request *request, size_t pass_tokens, size_t n_rows,
                        sp_plan *plan) {
    size_t low = 0, high = n_rows + 1; /* low rows fit, high rows do not */
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        plan->rows = middle;
        plan->pass_tokens = pass_tokens;
        if (fit_rows(model, request, plan))
            low = middle;
        else
            high = middle;
    }
    plan->rows = sp_max_size(low, 1);
    plan->pass_tokens = pass_tokens;
    return fit_rows(model, request, plan);
}

static bool try_placement(const sp_model *model, const sp_plan_request *request, sp_placement placement,
                          sp_plan *plan) {
    plan->placement = placement;
    size_t n_rows = placement == SP_PLACE_RESIDENT ? ROWS_RESIDENT : ROWS_STREAM;
    if (request->n_rows > 0) n_rows = sp_min_size(n_rows, request->n_rows);
    if (request->rows_cap > 0)
        n_rows = sp_min_size(request->rows_cap, request->n_rows > 0 ? request->n_rows : SIZE_MAX);
    n_rows = sp_min_size(n_rows, 1 << 16);
    if (request->pass_tokens > 0) return choose_rows(model, request, request->pass_tokens, n_rows, plan);
    /* A pass need not hold more tokens than there are; a tight budget gets shorter passes before it gets none. */
    size_t pass_tokens = PASS_TOKENS;
    if (request->prompt_tokens > 0) pass_tokens = sp_min_size(pass_tokens, sp_max_size(request->prompt_tokens, n_rows));
    for (; pass_tokens >= SP_KV_PAGE_TOKENS; pass_tokens /= 2)
        if (choose_rows(model, request, pass_tokens, n_rows, plan)) return true;
    return choose_rows(model, request, sp_min_size(SP_KV_PAGE_TOKENS, pass_tokens), n_rows, plan);
}

/* Seconds of one pass over n_tokens: whichever of arithmetic, memory and drive takes longest. 0: not known. */
static double pass_seconds(const sp_model *model, const sp_machine *machine, const sp_plan *plan, double n_tokens) {
    bool stream = plan->placement == SP_PLACE_STREAM;
    double compute_s = machine->gemm_flops > 0 ? 2.0 * (double)model->n_params * n_tokens / machine->gemm_flops : 0;
    double memory_s = machine->memory_bps > 0 ? (double)plan->weight_bytes / machine->memory_bps : 0;
    double disk_s = stream && machine->disk_bps > 0 ? (double)plan->weight_bytes / machine->disk_bps : 0;
    if (compute_s == 0 || (stream ? disk_s : memory_s) == 0) return 0;
    return fmax(compute_s, fmax(memory_s, disk_s));
}

static void estimate(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, sp_plan *plan) {
    plan->pass_seconds = pass_seconds(model, machine, plan, (double)plan->rows);
    if (plan->pass_seconds == 0 || request->n_rows == 0) return;
    double n_decode = ceil((double)request->new_tokens / (double)plan->rows);
    double n_prefill = ceil((double)request->prompt_tokens / (double)plan->pass_tokens);
    double prefill_s = pass_seconds(model, machine, plan, (double)plan->pass_tokens);
    plan->estimate_high_s = 1.1 * (n_prefill * prefill_s + n_decode * plan->pass_seconds);
    plan->estimate_low_s = 0.9 * n_prefill * prefill_s + 0.25 * n_decode * plan->pass_seconds; /* early ends */
    plan->estimate_likely_s = 0.5 * (plan->estimate_low_s + plan->estimate_high_s);
}

bool sp_plan_build(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, sp_plan *plan,
                   sp_error *err) {
    sp_plan p = {.mode = request->mode,
                 .budget_bytes = request->memory_bytes ? request->memory_bytes : machine->limit_bytes / 4 * 3,
                 .weight_bytes = model->weight_bytes,
                 .kv_token_bytes = kv_token_bytes(&model->arch, request->mode)};
    bool fits = false;
    if (request->placement != SP_PLACE_STREAM) fits = try_placement(model, request, SP_PLACE_RESIDENT, &p);
    if (!fits && request->placement != SP_PLACE_RESIDENT) fits = try_placement(model, request, SP_PLACE_STREAM, &p);
    if (!fits) {
        uint64_t row_bytes =
            sp_div_up(average_tokens(request), SP_KV_PAGE_TOKENS) * SP_KV_PAGE_TOKENS * p.kv_token_bytes;
        uint64_t wanted_bytes = p.budget_bytes;
        uint64_t fixed_bytes = p.overhead_bytes + p.pinned_bytes + p.ring_bytes + p.activation_bytes;
        if (fixed_bytes + row_bytes > wanted_bytes) wanted_bytes = fixed_bytes + row_bytes;
        uint64_t wanted_mb = (wanted_bytes >> 20) + 1;
        return sp_fail(
            err, SP_ERR_MEMORY,
            "memory: %s needs %lluM for one row of %zu tokens, %s, and may have %lluM (--memory %lluM would do)",
            model->name, (unsigned long long)wanted_mb, average_tokens(request), placement_names[p.placement],
            (unsigned long long)(p.budget_bytes >> 20), (unsigned long long)wanted_mb);
    }
    estimate(model, machine, request, &p);
    *plan = p;
    return true;
}

/* ---- text ---- */

static bool add_bytes(uint64_t n_bytes, sp_buf *out) {
    char text[SP_UNITS_BYTES];
    return sp_buf_text(out, sp_units_bytes(n_bytes, text));
}

static bool add_time(double seconds, sp_buf *out) {
    char text[SP_UNITS_BYTES];
    return sp_buf_text(out, sp_units_time(seconds, text));
}

static bool first_line(const sp_model *model, const sp_machine *machine, const sp_plan *plan, sp_buf *out) {
    bool stream = plan->placement == SP_PLACE_STREAM;
    bool fits = plan->overhead_bytes + plan->weight_bytes + plan->activation_bytes <= plan->budget_bytes;
    bool ok = sp_buf_printf(out, "%s ", model->name);
    for (const char *c = model->dominant_format; *c; c++)
        ok = ok && sp_buf_char(out, *c >= 'A' && *c <= 'Z' ? (char)(*c + ('a' - 'A')) : *c);
    ok = ok && sp_buf_text(out, ", ") && add_bytes(plan->weight_bytes, out) &&
         sp_buf_text(out, fits ? ", fits in " : ", does not fit in ") && add_bytes(plan->budget_bytes, out);
    if (!stream) return ok && sp_buf_text(out, ": resident\n");
    if (machine->disk_bps == 0) return ok && sp_buf_text(out, ": streaming (drive not measured)\n");
    return ok && sp_buf_text(out, ": streaming at ") && add_bytes((uint64_t)machine->disk_bps, out) &&
           sp_buf_text(out, "/s (measured here)\n");
}

bool sp_plan_text(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, const sp_plan *plan,
                  sp_buf *out) {
    bool stream = plan->placement == SP_PLACE_STREAM;
    bool ok =
        first_line(model, machine, plan, out) && sp_buf_text(out, stream ? "plan: ring " : "plan: weights ") &&
        add_bytes(stream ? plan->ring_bytes : plan->pinned_bytes, out) && sp_buf_text(out, ", KV ") &&
        add_bytes(plan->kv_bytes, out) &&
        sp_buf_printf(out, " = %zu rows x %zu tokens", plan->rows, plan->kv_pages * SP_KV_PAGE_TOKENS / plan->rows);
    if (ok && plan->pass_seconds > 0) {
        ok = sp_buf_text(out, ", pass ") && add_time(plan->pass_seconds, out);
    }
    if (ok && request->n_rows > 0) ok = sp_buf_printf(out, ", %zu rows", request->n_rows);
    if (ok && plan->estimate_high_s > 0) {
        ok = sp_buf_text(out, " in ") && add_time(plan->estimate_low_s, out) && sp_buf_text(out, " - ") &&
             add_time(plan->estimate_high_s, out);
    }
    return ok && sp_buf_char(out, '\n');
}

json_t *sp_plan_json(const sp_plan *plan) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:{s:f, s:f, s:f}}", "placement",
                     placement_names[plan->placement], "budget_bytes", (json_int_t)plan->budget_bytes, "weight_bytes",
                     (json_int_t)plan->weight_bytes, "ring_bytes", (json_int_t)plan->ring_bytes, "pinned_bytes",
                     (json_int_t)plan->pinned_bytes, "activation_bytes", (json_int_t)plan->activation_bytes, "kv_bytes",
                     (json_int_t)plan->kv_bytes, "rows", (json_int_t)plan->rows, "pass_tokens",
                     (json_int_t)plan->pass_tokens, "pass_seconds", plan->pass_seconds, "estimate_seconds", "low",
                     plan->estimate_low_s, "likely", plan->estimate_likely_s, "high", plan->estimate_high_s);
}
