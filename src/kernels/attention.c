/* Attention over a pass and the way into the KV cache: how the spans are cut into tasks for the threads.
 *
 * A span's tokens are cut into units of a few consecutive tokens; units of all spans are numbered through. Entering the
 * cache, a task is a unit; in attention it is (unit, kv head), the last units, which see most keys, first. How the
 * units lie changes no byte: a token's result is its own (cpu/attention.inc.c). */
#include <assert.h>
#include <string.h>

#include "kernels/vector.h"

enum {
    ROWS_PER_TASK = 24,       /* rows (token, head) that share a page while it is in L1; their state has to fit too */
    STORE_TOKENS_PER_TASK = 8 /* a few microseconds of work */
};

/* ---- units ---- */

typedef struct {
    const sp_kv_span *spans;
    size_t n_spans, unit_tokens;
    size_t *first_unit; /* [n_spans + 1]: number of each span's first unit, then their sum */
} span_units;

typedef struct {
    const sp_kv_span *span;
    size_t first, n_tokens; /* tokens [first, first + n_tokens) of the span */
} span_unit;

/* Lays the numbering behind task_bytes of the calling thread's scratch, and makes each thread's big enough. */
static span_units units_of(sp_device *device, const sp_kv_span *spans, size_t n_spans, size_t unit_tokens,
                           size_t task_bytes) {
    task_bytes = sp_round_up(task_bytes, 64);
    sp_device_scratch(device, task_bytes + (n_spans + 1) * sizeof(size_t));
    span_units units = {spans, n_spans, unit_tokens, (size_t *)(void *)((char *)device->scratch[0] + task_bytes)};
    units.first_unit[0] = 0;
    for (size_t i = 0; i < n_spans; i++)
        units.first_unit[i + 1] = units.first_unit[i] + sp_div_up(spans[i].n_tokens, unit_tokens);
    return units;
}

static size_t n_units(const span_units *units) { return units->first_unit[units->n_spans]; }

static span_unit unit_get(const span_units *units, size_t i_unit) {
    size_t lo = 0, hi = units->n_spans; /* the last span whose first unit is <= i_unit: it is not empty */
    while (hi - lo > 1) {
        size_t middle = (lo + hi) / 2;
        if (units->first_unit[middle] <= i_unit) lo = middle;
        if (units->first_unit[middle] > i_unit) hi = middle;
    }
    const sp_kv_span *span = &units->spans[lo];
    size_t first = (i_unit - units->first_unit[lo]) * units->unit_tokens;
    return (span_unit){span, first, sp_min_size(units->unit_tokens, span->n_tokens - first)};
}

size_t sp_kv_page_bytes(const sp_device *device, size_t n_kv_heads, size_t head_dim) {
    return n_kv_heads * sp_kv_head_bytes(device->mode, head_dim);
}

/* ---- into the cache ---- */

typedef struct {
    sp_device *device;
    const sp_rope_kv_args *args;
    span_units units;
} store_job;

/* x <- one head's row as it goes into scores: order of pairs, norm, rotation. copy: [E] scratch. */
static void turn_head(const store_job *job, const float *norm_w, size_t t, float *x, float *copy) {
    const sp_rope_kv_args *args = job->args;
    const sp_rope_table *rope = args->rope;
    size_t n_pairs = rope ? rope->n_dims / 2 : 0;
    if (rope && rope->interleaved) {
        memcpy(copy, x, rope->n_dims * sizeof *x);
        for (size_t j = 0; j < n_pairs; j++) {
            x[j] = copy[2 * j];
            x[j + n_pairs] = copy[2 * j + 1];
        }
    }
    if (norm_w) {
        sp_norm norm = {norm_w, args->norm_eps, args->norm_plus_one};
        job->device->vector->norm(&norm, x, args->head_dim, x);
    }
    if (rope) job->device->vector->rope(rope->cos + t * n_pairs, rope->sin + t * n_pairs, n_pairs, x);
}

/* k and v [E] into slot `slot` of a head's part of a page; its layout is in vector.h. halves: [E16] scratch. */
static void store_slot_f16(const sp_vector_isa *vector, const float *k, const float *v, size_t head_dim, size_t slot,
                           void *page_head, uint16_t *halves) {
    uint16_t *keys = page_head;
    uint16_t *values = (uint16_t *)(void *)((char *)page_head + sp_kv_value_offset(SP_MODE_BF16, head_dim));
    vector->to_f16(k, head_dim, halves);
    for (size_t i = 0; i < head_dim; i++) keys[i * SP_KV_PAGE_TOKENS + slot] = halves[i];
    vector->to_f16(v, head_dim, values + slot * sp_kv_value_lanes(head_dim));
}

static void store_slot_fp32(const float *k, const float *v, size_t head_dim, size_t slot, void *page_head) {
    float *keys = page_head;
    float *values = (float *)(void *)((char *)page_head + sp_kv_value_offset(SP_MODE_FP32, head_dim));
    for (size_t i = 0; i < head_dim; i++) keys[i * SP_KV_PAGE_TOKENS + slot] = k[i];
    memcpy(values + slot * sp_kv_value_lanes(head_dim), v, head_dim * sizeof *v);
}

static void store_unit(void *ctx, size_t i_task, size_t i_thread) {
    const store_job *job = ctx;
    const sp_rope_kv_args *args = job->args;
    size_t head_dim = args->head_dim, page_bytes = sp_kv_page_bytes(job->device, args->n_kv_heads, head_dim);
    size_t head_bytes = sp_kv_head_bytes(job->device->mode, head_dim);
    float *row = job->device->scratch[i_thread], *copy = row + head_dim;
    uint16_t *halves = (uint16_t *)(void *)(copy + head_dim);
    span_unit unit = unit_get(&job->units, i_task);
    for (size_t i = unit.first; i < unit.first + unit.n_tokens; i++) {
        size_t t = unit.span->first_token + i, pos = unit.span->first_pos + i, slot = pos % SP_KV_PAGE_TOKENS;
        for (size_t h = 0; h < args->n_heads; h++)
            turn_head(job, args->q_norm, t, args->q + t * args->ldq + h * head_dim, copy);
        char *page = (char *)args->kv + unit.span->pages[pos / SP_KV_PAGE_TOKENS] * page_bytes;
        for (size_t h = 0; h < args->n_kv_heads; h++, page += head_bytes) {
            memcpy(row, args->k + t * args->ldkv + h * head_dim, head_dim * sizeof *row);
            turn_head(job, args->k_norm, t, row, copy);
            const float *v = args->v + t * args->ldkv + h * head_dim;
            if (job->device->mode == SP_MODE_BF16)
                store_slot_f16(job->device->vector, row, v, head_dim, slot, page, halves);
            else
                store_slot_fp32(row, v, head_dim, slot, page);
        }
    }
}

void sp_op_rope_kv(sp_device *device, const sp_rope_kv_args *args) {
    assert(args->n_heads % args->n_kv_heads == 0);
    assert(!args->rope || (args->rope->n_dims % 2 == 0 && args->rope->n_dims <= args->head_dim));
    size_t task_bytes = 2 * args->head_dim * sizeof(float) + sp_kv_value_lanes(args->head_dim) * sizeof(uint16_t);
    store_job job = {device, args, units_of(device, args->spans, args->n_spans, STORE_TOKENS_PER_TASK, task_bytes)};
    sp_pool_run(device->pool, n_units(&job.units), store_unit, &job);
}

/* ---- attention ---- */

typedef struct {
    sp_device *device;
    const sp_attention_args *args;
    span_units units;
} attention_job;

static void attend_unit(void *ctx, size_t i_task, size_t i_thread) {
    const attention_job *job = ctx;
    const sp_attention_args *args = job->args;
    size_t group = args->n_heads / args->n_kv_heads, kv_head = i_task % args->n_kv_heads;
    span_unit unit = unit_get(&job->units, n_units(&job->units) - 1 - i_task / args->n_kv_heads);
    size_t t = unit.span->first_token + unit.first, column = kv_head * group * args->head_dim;
    sp_attention_task task = {
        .mode = job->device->mode,
        .n_tokens = unit.n_tokens,
        .group = group,
        .head_dim = args->head_dim,
        .first_pos = unit.span->first_pos + unit.first,
        .window = args->window,
        .scale = args->scale,
        .cap = args->cap,
        .q = args->q + t * args->ldq + column,
        .ldq = args->ldq,
        .kv = (const char *)args->kv + kv_head * sp_kv_head_bytes(job->device->mode, args->head_dim),
        .page_bytes = sp_kv_page_bytes(job->device, args->n_kv_heads, args->head_dim),
        .pages = unit.span->pages,
        .out = args->out + t * args->ldo + column,
        .ldo = args->ldo,
        .scratch = job->device->scratch[i_thread],
    };
    job->device->vector->attention(&task);
}

static void pack_unit(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const attention_job *job = ctx;
    const sp_attention_args *args = job->args;
    size_t k = args->n_heads * args->head_dim;
    span_unit unit = unit_get(&job->units, i_task);
    for (size_t i = unit.first; i < unit.first + unit.n_tokens; i++) {
        size_t t = unit.span->first_token + i;
        job->device->linear->pack_row(job->device->mode, args->out + t * args->ldo, 0, k, k, t, args->n_tokens,
                                      args->packed);
    }
}

void sp_op_attention(sp_device *device, const sp_attention_args *args) {
    assert(args->n_heads % args->n_kv_heads == 0);
    size_t group = args->n_heads / args->n_kv_heads;
    size_t unit_tokens = sp_max_size(1, ROWS_PER_TASK / group);
    size_t task_bytes = sp_attention_scratch_elems(unit_tokens * group, args->head_dim) * sizeof(float);
    attention_job job = {device, args, units_of(device, args->spans, args->n_spans, unit_tokens, task_bytes)};
    sp_pool_run(device->pool, n_units(&job.units) * args->n_kv_heads, attend_unit, &job);
    if (args->packed) sp_pool_run(device->pool, n_units(&job.units), pack_unit, &job);
}
