/* One transformer layer, and the head.
 *
 * Reads like the paper. A product's matrix comes from the stream in any number of chunks; each chunk fills its own rows
 * of the output, so no result depends on where it was cut. The wide middle of the feed-forward is worked off in blocks
 * of ffn_block columns: gate and up exist for one block at a time, their product is packed at once.
 *
 * In the last layer every token gives its key and value, but only the tokens whose logits are wanted go further. */
#include <assert.h>
#include <string.h>

#include "engine/internal.h"
#include "util/size.h"

/* Where the rows of one matrix of a group go: y[t * ldy + row - row0]. */
typedef struct {
    size_t n_rows, row0;
    const float *bias; /* [whole matrix] or NULL */
    float *y;
    size_t ldy;
    bool add;
} sink;

/* Pinned chunks are put in panel form, each once: after it was hashed, before its first product, while it is in cache.
 * Rows of an embedding can be read back as they were if they were bf16. */
static void form_panels(sp_engine *e, sp_chunk *chunks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sp_chunk *c = &chunks[i];
        const sp_matrix *matrix = c->matrix;
        if (!c->is_pinned || c->has_panels || sp_panel_rows(e->device, matrix->format, matrix->n_cols) == 0) continue;
        if (c->weight == SP_WEIGHT_HEAD && e->model->arch.tied_head && matrix->format->id != SP_FMT_BF16) continue;
        sp_op_panels(e->device, matrix->format, sp_stream_to_panels(e->stream, c), c->n_rows, matrix->n_cols);
    }
}

_Static_assert((int)SP_STREAM_TAKE <= (int)SP_LINEAR_JOBS, "what is taken together is multiplied together");

/* y <- W x for the matrices `first`, first + 1, ... of one group, whose input is packed [n_tokens, k]. */
static bool multiply(sp_engine *e, sp_weight first, const sink *sinks, size_t n_sinks, const void *packed,
                     size_t n_tokens, sp_error *err) {
    size_t n_left = 0;
    for (size_t i = 0; i < n_sinks; i++) n_left += sinks[i].n_rows;
    while (n_left > 0) {
        sp_chunk chunks[SP_STREAM_TAKE];
        sp_linear jobs[SP_STREAM_TAKE];
        size_t n = sp_stream_take(e->stream, n_tokens, chunks, err); /* about square: each operand is read as often */
        if (n == 0) return false;
        sp_content_see(e->content, chunks, n);
        form_panels(e, chunks, n);
        for (size_t i = 0; i < n; i++) {
            const sp_chunk *c = &chunks[i];
            const sink *to = &sinks[c->weight - first];
            assert(c->weight >= first && (size_t)(c->weight - first) < n_sinks && c->n_rows <= n_left);
            jobs[i] = (sp_linear){.format = c->matrix->format,
                                  .w = c->w,
                                  .row_bytes = c->matrix->row_bytes,
                                  .n_rows = c->n_rows,
                                  .k = c->matrix->n_cols,
                                  .bias = to->bias ? to->bias + c->row0 : NULL,
                                  .add = to->add,
                                  .y = to->y + (c->row0 - to->row0),
                                  .ldy = to->ldy,
                                  .panels = c->has_panels};
            n_left -= c->n_rows;
        }
        sp_op_linear(e->device, jobs, n, packed, n_tokens);
        sp_stream_release(e->stream);
    }
    return true;
}

static sp_norm norm_of(const sp_arch *arch, const float *w) {
    return (sp_norm){w, arch->norm_eps, arch->norm_plus_one};
}

/* q, k, v <- norm(x) by their matrices; q and k turned to their positions; k and v into the cache. */
static bool project(sp_engine *e, size_t l, sp_error *err) {
    const sp_arch *arch = &e->model->arch;
    const sp_layer *layer = &e->model->layers[l];
    const sp_layer_params *p = &e->params.layers[l];
    sp_acts *a = &e->acts;
    const sp_pass *pass = &e->pass;

    sp_norm norm = norm_of(arch, p->attn_norm);
    sp_op_norm_pack(e->device, &norm, a->x, a->ld_d, pass->n_tokens, arch->d_model, a->packed_d);
    const sink sinks[] = {{layer->q.n_rows, 0, p->q_bias, a->q, a->ld_q, false},
                          {layer->k.n_rows, 0, p->k_bias, a->k, a->ld_kv, false},
                          {layer->v.n_rows, 0, p->v_bias, a->v, a->ld_kv, false}};
    if (!multiply(e, SP_WEIGHT_Q, sinks, 3, a->packed_d, pass->n_tokens, err)) return false;

    uint32_t i_rope = arch->layers[l].i_rope;
    const sp_rope *rope = &arch->ropes[i_rope];
    sp_rope_table table = {a->rope_cos[i_rope], a->rope_sin[i_rope], rope->n_dims, layer->q.rope_interleaved};
    sp_op_rope_kv(e->device, &(sp_rope_kv_args){.n_heads = arch->n_heads,
                                                .n_kv_heads = arch->n_kv_heads,
                                                .head_dim = arch->head_dim,
                                                .q = a->q,
                                                .k = a->k,
                                                .v = a->v,
                                                .ldq = a->ld_q,
                                                .ldkv = a->ld_kv,
                                                .q_norm = p->q_norm,
                                                .k_norm = p->k_norm,
                                                .norm_eps = arch->norm_eps,
                                                .norm_plus_one = arch->norm_plus_one,
                                                .rope = rope->n_dims ? &table : NULL,
                                                .spans = pass->spans,
                                                .n_spans = pass->n_spans,
                                                .kv = sp_kv_layer(e->kv, l)});
    return true;
}

static void attend(sp_engine *e, size_t l, const sp_kv_span *spans, size_t n_spans, void *packed) {
    const sp_arch *arch = &e->model->arch;
    sp_acts *a = &e->acts;
    sp_op_attention(e->device, &(sp_attention_args){.n_heads = arch->n_heads,
                                                    .n_kv_heads = arch->n_kv_heads,
                                                    .head_dim = arch->head_dim,
                                                    .q = a->q,
                                                    .ldq = a->ld_q,
                                                    .scale = arch->attn_scale,
                                                    .cap = arch->layers[l].attn_cap_on ? arch->attn_cap : 0,
                                                    .window = arch->layers[l].window,
                                                    .spans = spans,
                                                    .n_spans = n_spans,
                                                    .kv = sp_kv_layer(e->kv, l),
                                                    .out = a->attn,
                                                    .ldo = a->ld_q,
                                                    .packed = packed,
                                                    .n_tokens = e->pass.n_tokens});
}

/* Attention of the last layer: only for the tokens whose logits are wanted, whose rows of x move to the front. */
static void attend_last(sp_engine *e, size_t l) {
    const sp_arch *arch = &e->model->arch;
    sp_acts *a = &e->acts;
    sp_pass *pass = &e->pass;
    size_t width = arch->n_heads * arch->head_dim;
    attend(e, l, pass->last_spans, pass->n_logits, NULL);
    for (size_t i = 0; i < pass->n_logits; i++) { /* i <= t: no row is overwritten before it has moved */
        size_t t = pass->last_spans[i].first_token;
        if (t == i) continue;
        memcpy(a->x + i * a->ld_d, a->x + t * a->ld_d, arch->d_model * sizeof *a->x);
        memcpy(a->attn + i * a->ld_q, a->attn + t * a->ld_q, width * sizeof *a->attn);
    }
    sp_op_pack(e->device, a->attn, a->ld_q, pass->n_logits, width, a->packed_wide);
}

/* x <- x + W_down (act(W_gate h) * (W_up h)), h = norm(x) */
static bool feed_forward(sp_engine *e, size_t l, size_t n_tokens, sp_error *err) {
    const sp_arch *arch = &e->model->arch;
    const sp_layer *layer = &e->model->layers[l];
    const sp_layer_params *p = &e->params.layers[l];
    sp_acts *a = &e->acts;

    sp_norm norm = norm_of(arch, p->ffn_norm);
    sp_op_norm_pack(e->device, &norm, a->x, a->ld_d, n_tokens, arch->d_model, a->packed_d);
    for (size_t f0 = 0; f0 < arch->d_ffn; f0 += e->plan->ffn_block) {
        size_t n_cols = sp_min_size(e->plan->ffn_block, arch->d_ffn - f0);
        const sink sinks[] = {{n_cols, f0, p->gate_bias, a->gate, a->ld_ffn, false},
                              {n_cols, f0, p->up_bias, a->up, a->ld_ffn, false}};
        if (!multiply(e, SP_WEIGHT_GATE, sinks, 2, a->packed_d, n_tokens, err)) return false;
        sp_op_glu_pack(e->device,
                       &(sp_glu){.act = arch->act,
                                 .gate = a->gate,
                                 .up = a->up,
                                 .ld = a->ld_ffn,
                                 .n_tokens = n_tokens,
                                 .f0 = f0,
                                 .n_cols = n_cols,
                                 .f = arch->d_ffn},
                       a->packed_wide);
    }
    const sink down = {layer->down.n_rows, 0, p->down_bias, a->x, a->ld_d, true};
    return multiply(e, SP_WEIGHT_DOWN, &down, 1, a->packed_wide, n_tokens, err);
}

bool sp_block_forward(sp_engine *e, size_t l, sp_error *err) {
    const sp_layer *layer = &e->model->layers[l];
    sp_acts *a = &e->acts;
    const sp_pass *pass = &e->pass;
    bool narrow = l + 1 == e->model->arch.n_layers && pass->n_logits < pass->n_tokens;
    size_t n_tokens = narrow ? pass->n_logits : pass->n_tokens;

    if (!project(e, l, err)) return false;
    if (n_tokens == 0) return true;
    if (narrow)
        attend_last(e, l);
    else
        attend(e, l, pass->spans, pass->n_spans, a->packed_wide);
    const sink out = {layer->o.n_rows, 0, e->params.layers[l].o_bias, a->x, a->ld_d, true};
    if (!multiply(e, SP_WEIGHT_O, &out, 1, a->packed_wide, n_tokens, err)) return false;
    return feed_forward(e, l, n_tokens, err);
}

bool sp_head_forward(sp_engine *e, sp_error *err) {
    const sp_arch *arch = &e->model->arch;
    sp_acts *a = &e->acts;
    size_t n_logits = e->pass.n_logits;
    if (n_logits == 0) return true;
    sp_norm norm = norm_of(arch, e->params.final_norm);
    sp_op_norm_pack(e->device, &norm, a->x, a->ld_d, n_logits, arch->d_model, a->packed_d);
    const sink logits = {arch->n_vocab, 0, NULL, a->logits, a->ld_vocab, false};
    if (!multiply(e, SP_WEIGHT_HEAD, &logits, 1, a->packed_d, n_logits, err)) return false;
    if (arch->logit_cap > 0) sp_op_softcap(e->device, arch->logit_cap, a->logits, n_logits * a->ld_vocab);
    return true;
}
