/* Continuous batching over the engine's passes.
 *
 *   admit -> spans (decode first, then prefill) -> pass -> sample -> push tokens -> finished rows leave
 */
#include "jobs/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/size.h"

typedef struct {
    const sp_batch_setup *setup;
    sp_row **running; /* [rows] in order of admission: the last is the newest */
    size_t n_running;
    sp_row **waiting; /* [rows] pre-empted rows, a stack; they go before new ones */
    size_t n_waiting;
    bool source_is_dry;
    bool content_is_told;
    sp_span *spans;     /* [rows] of this pass */
    sp_row **span_rows; /* [rows] whose span it is */
    size_t n_spans;
    size_t promised_pages;   /* that they will take */
    size_t left_tokens;      /* that may still join them */
    sp_sampler **samplers;   /* [n_threads] */
    sp_sample *samples;      /* [rows] */
    sp_error *sample_errors; /* [rows] */
    sp_batch_pass pass;
} batch;

static size_t n_tokens(const sp_row *row) { return row->n_prompt + row->n_new; }

/* ---- rows leave ---- */

static void remove_running(batch *b, size_t i) {
    sp_row *row = b->running[i];
    sp_engine_seq_close(b->setup->engine, row->seq);
    row->is_running = false;
    row->n_cached = 0;
    memmove(&b->running[i], &b->running[i + 1], (b->n_running - i - 1) * sizeof *b->running);
    b->n_running--;
}

static bool hand_over(batch *b, sp_row *row, sp_row_code code, const char *message, sp_error *err) {
    if (row->finished_ns == 0) row->finished_ns = sp_clock_ns();
    return b->setup->calls.row_done(b->setup->calls.ctx, row, code, message, err);
}

static void preempt_newest(batch *b) {
    sp_row *row = b->running[b->n_running - 1];
    remove_running(b, b->n_running - 1);
    b->waiting[b->n_waiting++] = row;
}

/* ---- rows come ---- */

static bool next_row(batch *b, sp_row **row, sp_error *err) {
    *row = NULL;
    if (b->n_waiting) {
        *row = b->waiting[--b->n_waiting];
        return true;
    }
    if (b->source_is_dry) return true;
    if (!b->setup->calls.next_row(b->setup->calls.ctx, row, err)) return false;
    b->source_is_dry = *row == NULL;
    return true;
}

/* Pages there must be before another row may join: its first chunk, and one page for each row that runs. */
static bool has_room(const batch *b, const sp_row *row) {
    size_t chunk = sp_min_size(n_tokens(row), b->setup->plan->pass_tokens);
    return sp_engine_pages_free(b->setup->engine) >= sp_div_up(chunk, SP_KV_PAGE_TOKENS) + b->n_running;
}

static bool admit(batch *b, sp_error *err) {
    while (b->n_running < b->setup->plan->rows) {
        sp_row *row = NULL;
        if (!next_row(b, &row, err)) return false;
        if (!row) return true;
        if (b->n_running > 0 && !has_room(b, row)) {
            b->waiting[b->n_waiting++] = row;
            return true;
        }
        /* A row that asks for more than there is memory for may still end early: it is refused when it gets there. */
        size_t kv_tokens = b->setup->plan->kv_pages * SP_KV_PAGE_TOKENS;
        size_t n_tokens_max = sp_min_size(row->n_prompt + row->max_new, kv_tokens);
        if (!sp_engine_seq_open(b->setup->engine, row->n_prompt, n_tokens_max, &row->seq, err)) {
            sp_row_free(row);
            return false;
        }
        if (row->started_ns == 0) row->started_ns = sp_clock_ns();
        row->is_running = true;
        b->running[b->n_running++] = row;
    }
    return true;
}

/* When no row will join any more, KV pages that those in flight cannot come to need become pinned weights. */
static void shrink_kv(batch *b) {
    if (!b->source_is_dry || b->n_waiting > 0) return;
    size_t n_pages = 0;
    for (size_t i = 0; i < b->n_running; i++) {
        const sp_row *row = b->running[i];
        n_pages += sp_div_up(row->n_prompt + row->max_new, SP_KV_PAGE_TOKENS);
    }
    if (n_pages < b->setup->plan->kv_pages) sp_engine_set_kv_limit(b->setup->engine, n_pages);
}

/* ---- a pass ---- */

/* Makes room for n more tokens of running[i]; newer rows give way. False when even alone it does not fit. */
static bool make_room(batch *b, size_t i, size_t n) {
    const sp_engine *engine = b->setup->engine;
    while (sp_engine_pages_free(engine) < sp_engine_pages_needed(engine, b->running[i]->seq, n)) {
        if (b->n_running - 1 == i) return false;
        preempt_newest(b);
    }
    return true;
}

static void add_span(batch *b, sp_row *row, size_t n, bool is_prefill) {
    double n_keys = (double)n * ((double)row->n_cached + 0.5 * ((double)n + 1)); /* seen by its tokens together */
    *(is_prefill ? &b->pass.load.prefill_keys : &b->pass.load.decode_keys) += n_keys;
    b->pass.load.n_tokens += n;
    b->pass.load.n_logits += row->n_cached + n == n_tokens(row);
    *(is_prefill ? &b->pass.prefill_tokens : &b->pass.decode_tokens) += n;
    b->span_rows[b->n_spans] = row;
    b->spans[b->n_spans++] = (sp_span){
        .seq = row->seq,
        .tokens = row->tokens + row->n_cached,
        .n_tokens = n,
        .want_logits = row->n_cached + n == n_tokens(row),
    };
}

/* Row i is alone and more than memory holds: it leaves with an error. */
static bool refuse_alone(batch *b, size_t i, sp_error *err) {
    sp_row *row = b->running[i];
    char message[200];
    snprintf(message, sizeof message, "row of %zu tokens: memory has room for %zu, give more with --memory",
             n_tokens(row), b->setup->plan->kv_pages * SP_KV_PAGE_TOKENS);
    remove_running(b, i);
    return hand_over(b, row, SP_ROW_TOO_LONG, message, err);
}

/* Spans of the rows that lack one token (decode) or more (prefill), in order of admission, while tokens and pages last.
 */
static bool add_spans(batch *b, bool is_prefill, sp_error *err) {
    const sp_engine *engine = b->setup->engine;
    for (size_t i = 0; i < b->n_running && b->left_tokens > 0; i++) {
        sp_row *row = b->running[i];
        size_t lacking = n_tokens(row) - row->n_cached;
        if ((lacking > 1) != is_prefill) continue;
        size_t n = sp_min_size(lacking, b->left_tokens), n_pages = sp_engine_pages_needed(engine, row->seq, n);
        if (sp_engine_pages_free(engine) < b->promised_pages + n_pages) {
            if (b->n_spans > 0) return true; /* those that fit run now; the next pass makes room */
            if (!make_room(b, i, n)) return refuse_alone(b, i, err);
        }
        add_span(b, row, n, is_prefill);
        b->promised_pages += n_pages;
        b->left_tokens -= n;
    }
    return true;
}

/* One span a row at most. */
static bool build_spans(batch *b, sp_error *err) {
    b->n_spans = 0;
    b->promised_pages = 0;
    b->left_tokens = b->setup->plan->pass_tokens;
    b->pass.load = (sp_pass_load){0};
    b->pass.prefill_tokens = b->pass.decode_tokens = b->pass.new_tokens = 0;
    for (size_t i = 0; i < b->n_running; i++) {
        sp_row *row = b->running[i];
        row->n_cached = sp_engine_seq_set_length(b->setup->engine, row->seq, n_tokens(row));
    }
    return add_spans(b, false, err) && add_spans(b, true, err);
}

static void sample_task(void *ctx, size_t i_task, size_t i_thread) {
    batch *b = ctx;
    if (!b->spans[i_task].want_logits) return;
    const sp_row *row = b->span_rows[i_task];
    const float *logits = sp_engine_logits(b->setup->engine, i_task);
    sp_error_clear(&b->sample_errors[i_task]);
    /* an error is looked at when the pass is taken in */
    (void)!sp_sample_token(b->samplers[i_thread], b->setup->device, &row->sampling, logits, n_tokens(row),
                           &b->samples[i_task], &b->sample_errors[i_task]);
}

static size_t find_running(const batch *b, const sp_row *row) {
    size_t i = 0;
    while (b->running[i] != row) i++;
    return i;
}

/* What the pass gave: tokens move into the caches, samples into the rows, finished rows out. */
static bool take_results(batch *b, sp_error *err) {
    for (size_t i = 0; i < b->n_spans; i++) {
        sp_row *row = b->span_rows[i];
        row->n_cached += b->spans[i].n_tokens;
        if (!b->spans[i].want_logits) continue;
        sp_error row_err = b->sample_errors[i];
        if (row_err.code == SP_OK && sp_row_push(row, &b->samples[i], b->setup->stops, &row_err)) {
            b->pass.new_tokens++;
            if (row->finish == SP_FINISH_NONE) continue;
        }
        sp_row_code code = row_err.code == SP_OK ? SP_ROW_OK : SP_ROW_NUMERIC;
        remove_running(b, find_running(b, row));
        if (!hand_over(b, row, code, row_err.text, err)) return false;
    }
    return true;
}

static bool tell_content(batch *b, sp_error *err) {
    sp_hash content;
    if (b->content_is_told || !sp_engine_content_hash(b->setup->engine, &content)) return true;
    b->content_is_told = true;
    return b->setup->calls.content_known(b->setup->calls.ctx, &content, err);
}

static bool run_pass(batch *b, sp_error *err) {
    if (!build_spans(b, err)) return false;
    if (b->n_spans == 0) return true; /* a row left for want of memory: look again */
    b->pass.i_pass++;
    b->pass.n_rows = b->n_running;
    if (!sp_engine_pass(b->setup->engine, b->spans, b->n_spans, &b->pass.pass, err)) return false;
    sp_pool_run(b->setup->pool, b->n_spans, sample_task, b);
    if (!tell_content(b, err) || !take_results(b, err)) return false;
    b->setup->calls.pass_done(b->setup->calls.ctx, &b->pass, b->running, b->n_running);
    return true;
}

static bool loop(batch *b, bool *stopped, sp_error *err) {
    for (;;) {
        *stopped = b->setup->calls.should_stop(b->setup->calls.ctx);
        if (*stopped) return true;
        if (!admit(b, err)) return false;
        if (b->n_running == 0) return true;
        shrink_kv(b);
        if (!run_pass(b, err)) return false;
    }
}

static void batch_init(batch *b, const sp_batch_setup *setup) {
    size_t n = setup->plan->rows, n_threads = sp_pool_n_threads(setup->pool);
    *b = (batch){.setup = setup};
    b->running = calloc(n, sizeof *b->running);
    b->waiting = calloc(n + 1, sizeof *b->waiting);
    b->spans = calloc(n, sizeof *b->spans);
    b->span_rows = calloc(n, sizeof *b->span_rows);
    b->samplers = calloc(n_threads, sizeof *b->samplers);
    b->samples = calloc(n, sizeof *b->samples);
    b->sample_errors = calloc(n, sizeof *b->sample_errors);
    SP_CHECK(b->running && b->waiting && b->spans && b->span_rows && b->samplers && b->samples && b->sample_errors);
    for (size_t i = 0; i < n_threads; i++) {
        b->samplers[i] = sp_sampler_new(setup->model->arch.n_vocab);
        SP_CHECK(b->samplers[i] != NULL);
    }
}

static void batch_deinit(batch *b) {
    while (b->n_running) {
        sp_row *row = b->running[b->n_running - 1];
        remove_running(b, b->n_running - 1);
        sp_row_free(row);
    }
    while (b->n_waiting) sp_row_free(b->waiting[--b->n_waiting]);
    for (size_t i = 0; i < sp_pool_n_threads(b->setup->pool); i++) sp_sampler_free(b->samplers[i]);
    free(b->running);
    free(b->waiting);
    free(b->spans);
    free(b->span_rows);
    free(b->samplers);
    free(b->samples);
    free(b->sample_errors);
}

bool sp_batch_run(const sp_batch_setup *setup, bool *stopped, sp_error *err) {
    batch b;
    batch_init(&b, setup);
    bool good = loop(&b, stopped, err);
    batch_deinit(&b);
    return good;
}
