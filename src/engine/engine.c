/* Opens an engine inside its plan, and runs passes.
 *
 *     spans -> tokens, pages, positions -> embed -> L layers -> final norm and head of the tokens whose logits are
 * wanted
 *
 * A pass is prepared completely (everything that can be refused is refused, pages are taken) before a kernel runs, and
 * sequences move on only after it has succeeded. Nothing is allocated after open, except a row's page list when it
 * opens. */
#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/internal.h"
#include "model/rope.h"
#include "util/clock.h"
#include "util/size.h"

enum { LD = 16, ALIGN = 64 };

/* ---- sequences ---- */

/* A number that stands for the rotary frequencies of a row of n_length tokens: rows with the same number have the same.
 */
static size_t rope_length(const sp_arch *arch, size_t n_length) {
    size_t key = 0;
    for (size_t i = 0; i < arch->n_ropes; i++) {
        const sp_rope *rope = &arch->ropes[i];
        if (rope->switch_pos && n_length > rope->switch_pos) key = sp_max_size(key, rope->switch_pos + 1);
    }
    return key;
}

static sp_seq *seq_at(const sp_engine *e, uint32_t seq) {
    assert(seq < e->plan->rows && e->seqs[seq].open);
    return &e->seqs[seq];
}

static void drop_pages(sp_engine *e, sp_seq *seq, size_t n_kept) {
    while (seq->n_pages > n_kept) sp_kv_drop(e->kv, seq->pages[--seq->n_pages]);
}

bool sp_engine_seq_open(sp_engine *e, size_t n_prompt, size_t n_tokens_max, uint32_t *seq, sp_error *err) {
    size_t n_pages_max = sp_div_up(n_tokens_max, SP_KV_PAGE_TOKENS);
    if (n_pages_max > e->plan->kv_pages)
        return sp_fail(
            err, SP_ERR_MEMORY,
            "row of %zu tokens: the KV cache has room for %zu tokens (a greater --memory, or a smaller max_tokens)",
            n_tokens_max, e->plan->kv_pages * SP_KV_PAGE_TOKENS);
    size_t i = 0;
    while (i < e->plan->rows && e->seqs[i].open) i++;
    if (i == e->plan->rows) return sp_fail(err, SP_ERR_MEMORY, "rows in flight: all %zu are taken", e->plan->rows);
    uint32_t *pages = malloc(sp_max_size(1, n_pages_max) * sizeof *pages);
    SP_CHECK(pages != NULL);
    e->seqs[i] = (sp_seq){
        .open = true, .n_prompt = n_prompt, .n_tokens_max = n_tokens_max, .pages = pages, .n_pages_max = n_pages_max};
    *seq = (uint32_t)i;
    return true;
}

void sp_engine_seq_close(sp_engine *e, uint32_t seq) {
    sp_seq *s = seq_at(e, seq);
    drop_pages(e, s, 0);
    free(s->pages);
    *s = (sp_seq){0};
}

size_t sp_engine_seq_set_length(sp_engine *e, uint32_t seq, size_t n_length) {
    sp_seq *s = seq_at(e, seq);
    size_t key = rope_length(&e->model->arch, n_length);
    if (key != s->rope_length) {
        drop_pages(e, s, 0);
        s->n_tokens = 0;
    }
    s->n_length = n_length;
    s->rope_length = key;
    return s->n_tokens;
}

size_t sp_engine_pages_needed(const sp_engine *e, uint32_t seq, size_t n_tokens) {
    const sp_seq *s = seq_at(e, seq);
    size_t n_pages = sp_div_up(s->n_tokens + n_tokens, SP_KV_PAGE_TOKENS);
    return n_pages > s->n_pages ? n_pages - s->n_pages : 0;
}

static void take_pages(sp_engine *e, sp_seq *seq, size_t n_tokens) {
    while (seq->n_pages < sp_div_up(n_tokens, SP_KV_PAGE_TOKENS)) seq->pages[seq->n_pages++] = sp_kv_take(e->kv);
}

void sp_engine_seq_reserve(sp_engine *e, uint32_t seq, size_t n_tokens) { take_pages(e, seq_at(e, seq), n_tokens); }

uint32_t sp_engine_seq_page(const sp_engine *e, uint32_t seq, size_t i_page) {
    assert(i_page < seq_at(e, seq)->n_pages);
    return seq_at(e, seq)->pages[i_page];
}

void sp_engine_seq_adopt(sp_engine *e, uint32_t seq, const uint32_t *pages, size_t n_pages) {
    sp_seq *s = seq_at(e, seq);
    assert(s->n_pages == 0 && n_pages <= s->n_pages_max);
    for (; s->n_pages < n_pages; s->n_pages++) {
        s->pages[s->n_pages] = pages[s->n_pages];
        sp_kv_share(e->kv, pages[s->n_pages]);
    }
    s->n_tokens = n_pages * SP_KV_PAGE_TOKENS;
}

void sp_engine_page_keep(sp_engine *e, uint32_t page) { sp_kv_share(e->kv, page); }
void sp_engine_page_drop(sp_engine *e, uint32_t page) { sp_kv_drop(e->kv, page); }

size_t sp_engine_pages_free(const sp_engine *e) { return sp_kv_pages_free(e->kv); }

void sp_engine_set_kv_limit(sp_engine *e, size_t n_pages) {
    size_t n_bytes = sp_kv_bytes_above(e->kv, n_pages);
    if (n_bytes == 0 || n_bytes < sp_stream_growth_bytes(e->stream)) return;
    sp_stream_grow(e->stream, sp_kv_set_limit(e->kv, n_pages));
}

/* ---- preparing a pass ---- */

static bool check_tokens(const sp_engine *e, const sp_span *span, sp_error *err) {
    for (size_t t = 0; t < span->n_tokens; t++)
        if (span->tokens[t] < 0 || (size_t)span->tokens[t] >= e->model->arch.n_vocab)
            return sp_fail(err, SP_ERR_INPUT, "token id %d: the model's vocabulary has %zu", span->tokens[t],
                           e->model->arch.n_vocab);
    return true;
}

static bool check_spans(const sp_engine *e, const sp_span *spans, size_t n_spans, sp_error *err) {
    size_t n_tokens = 0, n_logits = 0, n_pages = 0;
    for (size_t i = 0; i < n_spans; i++) {
        const sp_seq *seq = seq_at(e, spans[i].seq);
        size_t n_after = seq->n_tokens + spans[i].n_tokens;
        if (spans[i].n_tokens == 0) return sp_fail(err, SP_ERR_USAGE, "span %zu is empty", i);
        if (n_after > seq->n_tokens_max)
            return sp_fail(err, SP_ERR_USAGE, "span %zu: row of %zu tokens, opened for %zu", i, n_after,
                           seq->n_tokens_max);
        if (rope_length(&e->model->arch, sp_max_size(seq->n_length, n_after)) != seq->rope_length && seq->n_tokens > 0)
            return sp_fail(err, SP_ERR_USAGE, "span %zu: the row's length %zu was not announced", i, n_after);
        if (!check_tokens(e, &spans[i], err)) return false;
        n_tokens += spans[i].n_tokens;
        n_logits += spans[i].want_logits;
        n_pages += sp_engine_pages_needed(e, spans[i].seq, spans[i].n_tokens);
    }
    if (n_spans > e->plan->rows || n_tokens > e->plan->pass_tokens || n_logits > e->plan->pass_logits)
        return sp_fail(err, SP_ERR_USAGE,
                       "pass of %zu spans, %zu tokens, %zu logits: at most %zu, %zu, %zu are planned", n_spans,
                       n_tokens, n_logits, e->plan->rows, e->plan->pass_tokens, e->plan->pass_logits);
    if (n_pages > sp_kv_pages_free(e->kv))
        return sp_fail(err, SP_ERR_MEMORY, "KV cache: %zu pages wanted, %zu free", n_pages, sp_kv_pages_free(e->kv));
    return true;
}

/* cos and sin of a span's tokens for layers of one kind, run by run of tokens with the same frequencies. */
static void fill_rope_kind(sp_engine *e, const sp_seq *seq, const sp_kv_span *span, size_t i_rope) {
    const sp_rope *rope = &e->model->arch.ropes[i_rope];
    size_t n_pairs = rope->n_dims / 2, n_run;
    for (size_t i = 0; i < span->n_tokens; i += n_run) {
        size_t pos = span->first_pos + i, to = (span->first_token + i) * n_pairs;
        float scale;
        n_run = sp_rope_run(rope, seq->n_prompt, pos, span->n_tokens - i);
        sp_rope_inv_freq(rope, sp_rope_total(rope, seq->n_prompt, seq->n_length, pos), e->acts.inv_freq, &scale);
        sp_rope_fill(e->acts.inv_freq, n_pairs, pos, n_run, scale, e->acts.rope_cos[i_rope] + to,
                     e->acts.rope_sin[i_rope] + to);
    }
}

static void fill_rope(sp_engine *e, const sp_seq *seq, const sp_kv_span *span) {
    for (size_t i = 0; i < e->model->arch.n_ropes; i++)
        if (e->model->arch.ropes[i].n_dims) fill_rope_kind(e, seq, span, i);
}

/* Lays the spans out as tokens of the pass, and takes their pages. */
static void prepare(sp_engine *e, const sp_span *spans, size_t n_spans) {
    sp_pass *pass = &e->pass;
    pass->n_tokens = pass->n_logits = 0;
    pass->n_spans = n_spans;
    for (size_t i = 0; i < n_spans; i++) {
        sp_seq *seq = seq_at(e, spans[i].seq);
        size_t n_tokens = spans[i].n_tokens, n_after = seq->n_tokens + n_tokens;
        take_pages(e, seq, n_after);
        seq->n_length = sp_max_size(seq->n_length, n_after);
        seq->rope_length = rope_length(&e->model->arch, seq->n_length);
        pass->spans[i] = (sp_kv_span){pass->n_tokens, n_tokens, seq->n_tokens, seq->pages};
        memcpy(pass->tokens + pass->n_tokens, spans[i].tokens, n_tokens * sizeof *pass->tokens);
        fill_rope(e, seq, &pass->spans[i]);
        pass->n_tokens += n_tokens;
        pass->row_of_span[i] = SIZE_MAX;
        if (!spans[i].want_logits) continue;
        pass->last_spans[pass->n_logits] = (sp_kv_span){pass->n_tokens - 1, 1, n_after - 1, seq->pages};
        pass->row_of_span[i] = pass->n_logits++;
    }
}

/* ---- the pass ---- */

/* The content hash wants every byte once: also of an embedding that no product takes. */
static bool see_embed(sp_engine *e, sp_error *err) {
    size_t n_left = sp_content_is_whole(e->content) ? 0 : e->model->embed.n_rows;
    while (n_left > 0) {
        sp_chunk chunks[SP_STREAM_TAKE];
        size_t n = sp_stream_take(e->stream, 1, chunks, err);
        if (n == 0) return false;
        sp_content_see(e->content, chunks, n);
        for (size_t i = 0; i < n; i++) n_left -= chunks[i].n_rows;
        sp_stream_release(e->stream);
    }
    return true;
}

static sp_stream_part part_of_pass(const sp_engine *e) {
    if (e->pass.n_logits == 0) return SP_STREAM_NO_LOGITS;
    return sp_content_is_whole(e->content) ? SP_STREAM_LOGITS : SP_STREAM_ALL;
}

static bool forward(sp_engine *e, sp_error *err) {
    const sp_arch *arch = &e->model->arch;
    sp_pass *pass = &e->pass;
    sp_stream_part part = part_of_pass(e);
    sp_stream_begin_pass(e->stream, part);
    if (!sp_stream_embed(e->stream, pass->tokens, pass->n_tokens, pass->rows, err)) return false;
    sp_op_embed(e->device, e->model->embed.format, pass->rows, pass->n_tokens, arch->d_model, arch->embed_scale,
                e->acts.x, e->acts.ld_d);
    for (size_t l = 0; l < arch->n_layers; l++)
        if (!sp_block_forward(e, l, err)) return sp_error_wrap(err, "layer %zu", l);
    if (!sp_head_forward(e, err) || (part == SP_STREAM_ALL && !see_embed(e, err))) return false;
    return sp_stream_end_pass(e->stream, err);
}

/* Reads want a processor too: the kernel's and the hypervisor's threads that move what is read. While the drive is the
 * limit by far, judged by the last pass, products leave them one. */
static bool may_spare(const sp_engine *e) {
    static const double share = 0.8; /* of a pass that computing may come to */
    const sp_last_pass *last = &e->last;
    if (e->plan->placement != SP_PLACE_STREAM) return false; /* only its first pass has waited */
    if (last->seconds <= 0 || sp_pool_n_threads(sp_device_pool(e->device)) < 2) return false;
    double grown = (double)e->pass.n_tokens / (double)last->n_tokens;
    return last->spared_compute_s * (grown > 1 ? grown : 1) < share * last->seconds;
}

static void keep_last(sp_engine *e, const sp_pass_stats *stats) {
    double n = (double)sp_pool_n_threads(sp_device_pool(e->device));
    double slower = stats->was_spared || n < 2 ? 1 : n / (n - 1);
    e->last = (sp_last_pass){.n_tokens = stats->n_tokens,
                             .seconds = (double)stats->ns * 1e-9,
                             .spared_compute_s = (double)(stats->ns - stats->wait_ns) * 1e-9 * slower};
}

bool sp_engine_pass(sp_engine *e, const sp_span *spans, size_t n_spans, sp_pass_stats *stats, sp_error *err) {
    uint64_t start_ns = sp_clock_ns(), wait_ns = sp_stream_wait_ns(e->stream);
    uint64_t boundary_wait_ns = sp_stream_boundary_wait_ns(e->stream);
    uint64_t bytes_read = sp_stream_bytes_read(e->stream);
    if (!check_spans(e, spans, n_spans, err)) return false;
    prepare(e, spans, n_spans);
    bool spares = may_spare(e);
    if (spares) sp_pool_set_active(sp_device_pool(e->device), sp_pool_n_threads(sp_device_pool(e->device)) - 1);
    bool ok = forward(e, err);
    if (spares) sp_pool_set_active(sp_device_pool(e->device), 0);
    for (size_t i = 0; i < n_spans; i++) {
        sp_seq *seq = seq_at(e, spans[i].seq);
        if (ok)
            seq->n_tokens += spans[i].n_tokens;
        else
            drop_pages(e, seq, sp_div_up(seq->n_tokens, SP_KV_PAGE_TOKENS));
    }
    sp_pass_stats done = {.ns = sp_clock_ns() - start_ns,
                          .wait_ns = sp_stream_wait_ns(e->stream) - wait_ns,
                          .boundary_wait_ns = sp_stream_boundary_wait_ns(e->stream) - boundary_wait_ns,
                          .bytes_read = sp_stream_bytes_read(e->stream) - bytes_read,
                          .n_tokens = e->pass.n_tokens,
                          .n_logits = e->pass.n_logits,
                          .was_spared = spares};
    keep_last(e, &done);
    if (stats) *stats = done;
    return ok;
}

bool sp_engine_content_hash(const sp_engine *e, sp_hash *out) { return sp_content_hash(e->content, out); }

const float *sp_engine_logits(const sp_engine *e, size_t i_span) {
    assert(i_span < e->pass.n_spans && e->pass.row_of_span[i_span] != SIZE_MAX);
    return e->acts.logits + e->pass.row_of_span[i_span] * e->acts.ld_vocab;
}

/* ---- open, close ---- */

typedef struct {
    void **to; /* where the pointer goes */
    size_t n_bytes;
} buffer;

enum { N_BUFFERS = 10 };

static void set_widths(const sp_arch *arch, const sp_plan *plan, sp_acts *a) {
    a->ld_d = sp_round_up(arch->d_model, LD);
    a->ld_q = sp_round_up(arch->n_heads * arch->head_dim, LD);
    a->ld_kv = sp_round_up(arch->n_kv_heads * arch->head_dim, LD);
    a->ld_ffn = sp_round_up(sp_min_size(plan->ffn_block, arch->d_ffn), LD);
    a->ld_vocab = sp_round_up(arch->n_vocab, LD);
}

/* One mapping for all buffers of a pass. Pages are touched as passes grow, so a small job stays small. */
static bool allocate(sp_engine *e, sp_error *err) {
    const sp_arch *arch = &e->model->arch;
    size_t n = e->plan->pass_tokens, wide = sp_max_size(arch->n_heads * arch->head_dim, arch->d_ffn);
    sp_acts *a = &e->acts;
    set_widths(arch, e->plan, a);
    const buffer buffers[N_BUFFERS] = {
        {(void **)&a->x, n * a->ld_d * sizeof(float)},
        {(void **)&a->q, n * a->ld_q * sizeof(float)},
        {(void **)&a->k, n * a->ld_kv * sizeof(float)},
        {(void **)&a->v, n * a->ld_kv * sizeof(float)},
        {(void **)&a->attn, n * a->ld_q * sizeof(float)},
        {(void **)&a->gate, n * a->ld_ffn * sizeof(float)},
        {(void **)&a->up, n * a->ld_ffn * sizeof(float)},
        {&a->packed_d, sp_packed_bytes(e->device, n, arch->d_model)},
        {&a->packed_wide, sp_packed_bytes(e->device, n, wide)},
        {(void **)&a->logits, e->plan->pass_logits * a->ld_vocab * sizeof(float)},
    };
    for (size_t i = 0; i < N_BUFFERS; i++) e->memory_bytes += sp_round_up(buffers[i].n_bytes, ALIGN);
    void *memory =
        mmap(NULL, e->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return sp_fail(
            err, SP_ERR_MEMORY,
            "activations: %zu bytes of memory cannot be had; fewer --rows, or a greater limit of the process "
            "(ulimit -v)",
            e->memory_bytes);
    e->memory = memory;
    size_t at_bytes = 0;
    for (size_t i = 0; i < N_BUFFERS; i++) {
        *buffers[i].to = (char *)memory + at_bytes;
        at_bytes += sp_round_up(buffers[i].n_bytes, ALIGN);
    }
    return true;
}

static void allocate_tables(sp_engine *e) {
    const sp_arch *arch = &e->model->arch;
    size_t n = e->plan->pass_tokens, n_rows = e->plan->rows, n_dims_max = 2;
    sp_acts *a = &e->acts;
    a->rope_cos = SP_ARENA_ARRAY(&e->arena, float *, arch->n_ropes);
    a->rope_sin = SP_ARENA_ARRAY(&e->arena, float *, arch->n_ropes);
    for (size_t i = 0; i < arch->n_ropes; i++) {
        a->rope_cos[i] = SP_ARENA_ARRAY(&e->arena, float, n * arch->ropes[i].n_dims / 2);
        a->rope_sin[i] = SP_ARENA_ARRAY(&e->arena, float, n * arch->ropes[i].n_dims / 2);
        n_dims_max = sp_max_size(n_dims_max, arch->ropes[i].n_dims);
    }
    a->inv_freq = SP_ARENA_ARRAY(&e->arena, float, n_dims_max / 2);
    e->pass = (sp_pass){.tokens = SP_ARENA_ARRAY(&e->arena, int32_t, n),
                        .rows = SP_ARENA_ARRAY(&e->arena, const void *, n),
                        .spans = SP_ARENA_ARRAY(&e->arena, sp_kv_span, n_rows),
                        .last_spans = SP_ARENA_ARRAY(&e->arena, sp_kv_span, n_rows),
                        .row_of_span = SP_ARENA_ARRAY(&e->arena, size_t, n_rows)};
    e->seqs = SP_ARENA_ARRAY(&e->arena, sp_seq, n_rows);
}

static bool check_supported(const sp_model *model, sp_error *err) {
    if (model->arch.post_norms)
        return sp_fail(err, SP_ERR_SUPPORT, "%s: norms after attention and feed-forward are not supported",
                       model->name);
    for (size_t l = 0; l < model->arch.n_layers; l++)
        if (model->arch.layers[l].ffn != SP_FFN_GLU)
            return sp_fail(err, SP_ERR_SUPPORT, "%s: layer %zu has experts, which are not supported", model->name, l);
    return true;
}

/* Of an embedding that is the head and was put in panel form for it. */
static void embed_row(void *device, const sp_chunk *chunk, size_t i_row, void *out) {
    sp_panel_row(device, chunk->w, chunk->n_rows, chunk->matrix->n_cols, i_row, out);
}

/* The kernels' memory for panels of the widest matrix. */
static void reserve_panels(sp_engine *e) {
    const sp_arch *arch = &e->model->arch;
    sp_panel_reserve(e->device, sp_max_size(arch->d_model, sp_max_size(arch->n_heads * arch->head_dim, arch->d_ffn)));
}

sp_engine *sp_engine_open(const sp_model *model, const sp_plan *plan, sp_device *device, sp_error *err) {
    if (!check_supported(model, err)) return NULL;
    sp_arena arena = {0};
    sp_engine *e = SP_ARENA_NEW(&arena, sp_engine);
    *e = (sp_engine){.model = model, .plan = plan, .device = device, .arena = arena};
    const sp_stream_options options = {.chunk_bytes = plan->chunk_bytes,
                                       .ffn_block = plan->ffn_block,
                                       .n_slots = plan->ring_slots,
                                       .n_pinned_layers = plan->n_pinned_layers,
                                       .pin_head = plan->pin_head,
                                       .keep_embed = plan->keep_embed,
                                       .n_embed_max = plan->pass_tokens,
                                       .backend = plan->read_backend,
                                       .depth = plan->read_depth,
                                       .request_bytes = plan->read_request_bytes,
                                       .panel_row = embed_row,
                                       .panel_ctx = device};
    size_t page_bytes = sp_kv_page_bytes(device, model->arch.n_kv_heads, model->arch.head_dim);
    e->stream = sp_stream_open(model, &options, err);
    if (e->stream) e->content = sp_content_new(model, sp_stream_n_extents(e->stream), device, &e->arena);
    if (e->stream && sp_params_read(model, &e->arena, e->content, &e->params, err) && allocate(e, err)) {
        e->kv = sp_kv_open(model->arch.n_layers, page_bytes, plan->kv_pages, err);
        allocate_tables(e);
        reserve_panels(e);
    }
    if (e->kv) return e;
    sp_engine_close(e);
    return NULL;
}

void sp_engine_close(sp_engine *e) {
    if (!e) return;
    sp_stream_close(e->stream);
    sp_kv_close(e->kv);
    for (size_t i = 0; e->seqs && i < e->plan->rows; i++) free(e->seqs[i].pages);
    if (e->memory) munmap(e->memory, e->memory_bytes);
    sp_arena arena = e->arena;
    sp_arena_deinit(&arena);
}

size_t sp_engine_memory_bytes(const sp_engine *e) {
    return sp_stream_memory_bytes(e->stream) + e->memory_bytes + e->arena.total_bytes;
}
