/* Linear layers: how products are cut into tasks. The arithmetic is the ISA's (cpu/linear_*.c).
 *
 * A task is a strip of rows of one job, over all tokens, so that a strip's weights are read once; only when rows are
 * too few for the threads, or so few to a strip that the tokens are what costs, are the tokens cut too. Strips are cut
 * fine enough that claiming them one by one evens out threads of unequal speed, and never finer than the ISA's tile.
 * Nothing here can change a result: an output element belongs to one task, and its order of summation to k alone. */
#include <assert.h>
#include <string.h>

#include "kernels/internal.h"
#include "util/size.h"

enum {
    TASKS_PER_THREAD = 8, /* of a large product: the last task's wait is then under an eighth of the whole */
    MAX_STRIP_ROWS = 256, /* more rows to a task gain nothing: a panel is smaller */
    SLENDER = 8,          /* tokens to a row; a row's weights come from memory, a token's column from a shared cache */
    PACK_TASK_ELEMS = 16384,
    PANEL_COLS = 32, /* the block of the canonical order */
    LINE_BYTES = 64,
};

size_t sp_packed_bytes(const sp_device *device, size_t n_tokens, size_t k) {
    return device->linear->packed_bytes(device->mode, n_tokens, k);
}

typedef struct {
    const sp_device *device;
    const float *x;
    size_t ldx, n_tokens, k, tokens_per_task;
    void *packed;
} pack_run;

static void pack_task(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const pack_run *run = ctx;
    size_t t0 = i_task * run->tokens_per_task, t1 = sp_min_size(t0 + run->tokens_per_task, run->n_tokens);
    for (size_t t = t0; t < t1; t++)
        run->device->linear->pack_row(run->device->mode, run->x + t * run->ldx, 0, run->k, run->k, t, run->n_tokens,
                                      run->packed);
}

void sp_op_pack(sp_device *device, const float *x, size_t ldx, size_t n_tokens, size_t k, void *packed) {
    pack_run run = {device, x, ldx, n_tokens, k, sp_max_size(1, PACK_TASK_ELEMS / k), packed};
    sp_pool_run(device->pool, sp_div_up(n_tokens, run.tokens_per_task), pack_task, &run);
}

typedef struct {
    const sp_device *device;
    const sp_linear *jobs;
    size_t n_jobs, n_tokens;
    const void *packed;
    size_t strip_rows, span_tokens, n_spans;
    size_t first_strip[SP_LINEAR_JOBS + 1]; /* of each job, in strips of all jobs */
} linear_run;

static void linear_task(void *ctx, size_t i_task, size_t i_thread) {
    const linear_run *run = ctx;
    size_t strip = i_task / run->n_spans, span = i_task % run->n_spans, j = 0;
    while (strip >= run->first_strip[j + 1]) j++;
    const sp_linear *job = &run->jobs[j];
    sp_linear_part part;
    part.row0 = (strip - run->first_strip[j]) * run->strip_rows;
    part.row1 = sp_min_size(part.row0 + run->strip_rows, job->n_rows);
    part.token0 = span * run->span_tokens;
    part.token1 = sp_min_size(part.token0 + run->span_tokens, run->n_tokens);
    run->device->linear->run(run->device->mode, job, &part, run->packed, run->n_tokens, run->device->scratch[i_thread]);
}

/* Rows to a strip and tokens to a span. */
static void cut(linear_run *run, size_t n_threads) {
    const sp_linear_isa *isa = run->device->linear;
    size_t n_tiles = 0, wanted = n_threads * TASKS_PER_THREAD;
    for (size_t j = 0; j < run->n_jobs; j++) n_tiles += sp_div_up(run->jobs[j].n_rows, isa->row_tile);
    size_t most = sp_max_size(1, MAX_STRIP_ROWS / isa->row_tile);
    size_t tiles = sp_min_size(sp_max_size(1, n_tiles / wanted), most);
    run->strip_rows = tiles * isa->row_tile;
    run->span_tokens = run->n_tokens;
    size_t n_spans = n_threads * 2 / sp_max_size(1, n_tiles / tiles);
    if (n_spans > 1 && run->n_tokens > isa->token_tile)
        run->span_tokens = sp_round_up(sp_div_up(run->n_tokens, n_spans), isa->token_tile);
    if (isa->square_parts) /* as many parts, but each reads fewer bytes for what it multiplies */
        for (; run->span_tokens >= SLENDER * run->strip_rows; run->strip_rows *= 2)
            run->span_tokens = sp_round_up(sp_div_up(run->span_tokens, 2), isa->token_tile);
    run->n_spans = sp_div_up(run->n_tokens, run->span_tokens);
}

void sp_op_linear(sp_device *device, const sp_linear *jobs, size_t n_jobs, const void *packed, size_t n_tokens) {
    assert(n_jobs <= SP_LINEAR_JOBS);
    if (n_tokens == 0) return;
    linear_run run = {.device = device, .jobs = jobs, .n_jobs = n_jobs, .n_tokens = n_tokens, .packed = packed};
    cut(&run, device->n_threads);
    for (size_t j = 0; j < n_jobs; j++) {
        assert(jobs[j].k == jobs[0].k && jobs[j].k % jobs[j].format->block_elems == 0);
        run.first_strip[j + 1] = run.first_strip[j] + sp_div_up(jobs[j].n_rows, run.strip_rows);
    }
    sp_pool_run(device->pool, run.first_strip[n_jobs] * run.n_spans, linear_task, &run);
}

/* ---- panel form ---- */

size_t sp_panel_rows(const sp_device *device, const sp_format *format, size_t k) {
    const bool narrow = format->id == SP_FMT_BF16 || format->id == SP_FMT_F16;
    return device->mode == SP_MODE_BF16 && device->linear->panel_form && narrow && k % PANEL_COLS == 0
               ? device->linear->row_tile
               : 0;
}

void sp_panel_reserve(sp_device *device, size_t k) {
    if (device->linear->panel_form)
        sp_device_scratch(device, device->linear->row_tile * (k * sizeof(sp_bf16) + LINE_BYTES));
}

typedef struct {
    const sp_device *device;
    const sp_format *format;
    uint8_t *w;
    size_t panel_bytes, k;
} panel_run;

static void panel_task(void *ctx, size_t i_task, size_t i_thread) {
    const panel_run *run = ctx;
    run->device->linear->panel_form(run->format, run->w + i_task * run->panel_bytes, run->k,
                                    run->device->scratch[i_thread]);
}

void sp_op_panels(sp_device *device, const sp_format *format, void *w, size_t n_rows, size_t k) {
    const size_t panel_rows = device->linear->row_tile;
    assert(sp_panel_rows(device, format, k) == panel_rows && (uintptr_t)w % 64 == 0);
    sp_panel_reserve(device, k);
    panel_run run = {device, format, w, panel_rows * k * sizeof(sp_bf16), k};
    sp_pool_run(device->pool, n_rows / panel_rows, panel_task, &run);
}

void sp_panel_row(const sp_device *device, const void *w, size_t n_rows, size_t k, size_t i_row, sp_bf16 *out) {
    const size_t panel_rows = device->linear->row_tile, row_bytes = k * sizeof(sp_bf16);
    const size_t first = i_row / panel_rows * panel_rows;
    if (first + panel_rows > n_rows)
        memcpy(out, (const uint8_t *)w + i_row * row_bytes, row_bytes);
    else
        device->linear->panel_row((const uint8_t *)w + first * row_bytes, k, i_row - first, out);
}
