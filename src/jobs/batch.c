/* Continuous batching over the engine's passes.
 *
 *   join -> spans -> pass -> sample -> push tokens -> finished rows leave
 *
 * The policy knows the rows that wait, the look-ahead of the input, and those in flight; a row's tag is its pointer. */
#include "jobs/batch.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/policy.h"
#include "util/clock.h"
#include "util/size.h"

typedef struct {
    const sp_batch_setup *setup;
    sp_policy *policy;
    bool content_is_told;
    sp_span *spans;     /* [rows] of this pass */
    sp_row **span_rows; /* [rows] whose span it is */
    size_t n_spans;
    uint32_t *pages;         /* [kv_pages] of a prefix */
    sp_row **running;        /* [rows] as the policy has them, for who looks on */
    sp_sampler **samplers;   /* [n_threads] */
    sp_sample *samples;      /* [rows] */
    sp_error *sample_errors; /* [rows] */
    sp_batch_pass pass;
} batch;

static size_t n_tokens(const sp_row *row) { return row->n_prompt + row->n_new; }
static sp_row *row_of(const sp_policy_row *row) { return (sp_row *)(uintptr_t)row->tag; }

/* ---- rows leave ---- */

static void close_seq(batch *b, sp_row *row) {
    sp_engine_seq_close(b->setup->engine, row->seq);
    row->is_running = false;
    row->n_cached = 0;
}

static void remove_running(batch *b, size_t i) {
    close_seq(b, row_of(&b->policy->running[i]));
    sp_policy_remove(b->policy, i);
}

static bool hand_over(batch *b, sp_row *row, sp_row_code code, const char *message, sp_error *err) {
    if (row->finished_ns == 0) row->finished_ns = sp_clock_ns();
    return b->setup->calls.row_done(b->setup->calls.ctx, row, code, message, err);
}

/* ---- rows come ---- */

/* The policy's rows that wait are the first of those that the input has. */
static bool look_ahead(batch *b, sp_error *err) {
    sp_policy *p = b->policy;
    bool may_wait = p->n_running + p->n_back + p->n_waiting == 0;
    for (const sp_row *row; p->n_running < p->limits.rows && p->n_waiting < SP_POLICY_WINDOW; may_wait = false) {
        if (!b->setup->calls.row_at(b->setup->calls.ctx, p->n_waiting, may_wait, &row, err)) return false;
        if (!row) return true;
        sp_policy_wait(p, &(sp_policy_row){.n_tokens = n_tokens(row),
                                           .n_new = row->n_new,
                                           .n_most = row->max_new,
                                           .block = row->block,
                                           .tag = (uintptr_t)row});
    }
    return true;
}

/* The policy's newest running row begins, a new one or one that was pre-empted. */
static bool start_newest(batch *b, bool is_new, sp_error *err) {
    sp_row *row = row_of(&b->policy->running[b->policy->n_running - 1]);
    if (is_new) row = b->setup->calls.take_row(b->setup->calls.ctx, row);
    /* A row that asks for more than there is memory for may still end early: it is refused when it gets there. */
    size_t kv_tokens = b->setup->plan->kv_pages * SP_KV_PAGE_TOKENS;
    size_t n_tokens_max = sp_min_size(row->n_prompt + row->max_new, kv_tokens);
    if (!sp_engine_seq_open(b->setup->engine, row->n_prompt, n_tokens_max, &row->seq, err)) {
        b->policy->n_running--;
        sp_row_free(row);
        return false;
    }
    if (row->started_ns == 0) row->started_ns = sp_clock_ns();
    row->is_running = true;
    return true;
}

static bool admit(batch *b, sp_error *err) {
    sp_ends likely = sp_ends_likely(&b->setup->observed->ends);
    b->policy->share = sp_ends_share(&likely);
    for (;;) {
        uint64_t n_joined = b->policy->n_joined;
        if (!look_ahead(b, err)) return false;
        if (!sp_policy_join(b->policy)) return true;
        if (!start_newest(b, b->policy->n_joined > n_joined, err)) return false;
    }
}

/* When no row will join any more, KV pages that those in flight cannot come to need become pinned weights. */
static void shrink_kv(batch *b) {
    const sp_policy *p = b->policy;
    if (p->n_waiting + p->n_back > 0 || !b->setup->calls.is_dry(b->setup->calls.ctx)) return;
    size_t n_pages = sp_policy_pages_most(p);
    if (n_pages < b->setup->plan->kv_pages) sp_engine_set_kv_limit(b->setup->engine, n_pages);
}

/* ---- a pass ---- */

static void add_span(batch *b, const sp_policy_row *r) {
    sp_row *row = row_of(r);
    size_t n = r->n_span;
    b->span_rows[b->n_spans] = row;
    b->spans[b->n_spans++] = (sp_span){.seq = row->seq,
                                       .tokens = row->tokens + r->n_cached,
                                       .n_tokens = n,
                                       .want_logits = r->n_cached + n == r->n_tokens};
}

/* Row i is alone and more than memory holds: it leaves with an error. */
static bool refuse_alone(batch *b, size_t i, sp_error *err) {
    sp_row *row = row_of(&b->policy->running[i]);
    char message[200];
    snprintf(message, sizeof message, "row of %zu tokens: memory has room for %zu, give more with --memory",
             n_tokens(row), b->setup->plan->kv_pages * SP_KV_PAGE_TOKENS);
    remove_running(b, i);
    return hand_over(b, row, SP_ROW_TOO_LONG, message, err);
}

/* Some models' caches are of no use any more when a row outgrows a length. */
static void tell_lengths(batch *b) {
    for (size_t i = 0; i < b->policy->n_running; i++) {
        sp_policy_row *r = &b->policy->running[i];
        sp_row *row = row_of(r);
        row->n_cached = sp_engine_seq_set_length(b->setup->engine, row->seq, n_tokens(row));
        if (row->n_cached != r->n_cached) sp_policy_uncache(b->policy, i); /* all of it went */
    }
}

/* A block's page goes: the policy says so. */
static void drop_block(void *ctx, uint32_t block) {
    batch *b = ctx;
    sp_engine_page_drop(b->setup->engine, *sp_prefixes_page(b->setup->prefixes, block));
}

/* A row that begins behind pages of others takes them; blocks that its span fills get their pages, for those that begin
 * behind them in this very pass. */
static void share_pages(batch *b, const sp_policy_row *r) {
    sp_engine *engine = b->setup->engine;
    const sp_block *blocks = sp_prefixes_forest(b->setup->prefixes)->blocks;
    sp_row *row = row_of(r);
    if (r->n_cached > row->n_cached) {
        for (uint32_t i = r->block; i; i = blocks[i].parent)
            if (blocks[i].depth <= r->n_pages) b->pages[blocks[i].depth - 1] = *sp_prefixes_page(b->setup->prefixes, i);
        sp_engine_seq_adopt(engine, row->seq, b->pages, r->n_pages);
        row->n_cached = r->n_cached;
    }
    size_t n_after = r->n_cached + r->n_span;
    if (r->n_cached / SP_KV_PAGE_TOKENS >= blocks[r->block].depth) return;
    sp_engine_seq_reserve(engine, row->seq, n_after);
    for (uint32_t i = r->block; blocks[i].depth * (size_t)SP_KV_PAGE_TOKENS > r->n_cached; i = blocks[i].parent) {
        if (blocks[i].depth * (size_t)SP_KV_PAGE_TOKENS > n_after) continue;
        uint32_t page = sp_engine_seq_page(engine, row->seq, blocks[i].depth - 1);
        *sp_prefixes_page(b->setup->prefixes, i) = page;
        sp_engine_page_keep(engine, page);
    }
}

/* One span a row at most. None: a row left for want of memory. */
static bool build_spans(batch *b, sp_error *err) {
    sp_policy *p = b->policy;
    size_t n_back = p->n_back, i_row;
    b->n_spans = 0;
    b->pass.new_tokens = 0;
    tell_lengths(b);
    bool good = sp_policy_build(p, &i_row);
    for (size_t i = n_back; i < p->n_back; i++) close_seq(b, row_of(&p->back[i]));
    if (!good) return refuse_alone(b, i_row, err);
    b->pass.load = sp_policy_load(p, &b->pass.prefill_tokens);
    b->pass.decode_tokens = b->pass.load.n_tokens - b->pass.prefill_tokens;
    for (size_t i = 0; i < p->n_running; i++)
        if (p->running[i].n_span > 0) {
            share_pages(b, &p->running[i]);
            add_span(b, &p->running[i]);
        }
    return true;
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
    while (row_of(&b->policy->running[i]) != row) i++;
    return i;
}

/* What the pass gave: tokens move into the caches, samples into the rows, finished rows out. */
static bool take_results(batch *b, sp_error *err) {
    for (size_t i = 0; i < b->n_spans; i++) {
        sp_row *row = b->span_rows[i];
        size_t i_running = find_running(b, row);
        sp_policy_advance(b->policy, i_running, b->spans[i].n_tokens);
        row->n_cached += b->spans[i].n_tokens;
        if (!b->spans[i].want_logits) continue;
        sp_error row_err = b->sample_errors[i];
        if (row_err.code == SP_OK && sp_row_push(row, &b->samples[i], b->setup->stops, &row_err)) {
            b->pass.new_tokens++;
            b->policy->running[i_running].n_tokens = n_tokens(row);
            b->policy->running[i_running].n_new = row->n_new;
            if (row->finish == SP_FINISH_NONE) continue;
        }
        sp_row_code code = row_err.code == SP_OK ? SP_ROW_OK : SP_ROW_NUMERIC;
        remove_running(b, i_running);
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
    b->pass.n_rows = b->policy->n_running;
    if (!sp_engine_pass(b->setup->engine, b->spans, b->n_spans, &b->pass.pass, err)) return false;
    sp_pool_run(b->setup->pool, b->n_spans, sample_task, b);
    if (!tell_content(b, err) || !take_results(b, err)) return false;
    assert(b->policy->pages_free == sp_engine_pages_free(b->setup->engine) ||
           b->setup->calls.is_dry(b->setup->calls.ctx));
    for (size_t i = 0; i < b->policy->n_running; i++) b->running[i] = row_of(&b->policy->running[i]);
    b->setup->calls.pass_done(b->setup->calls.ctx, &b->pass, b->running, b->policy->n_running);
    return true;
}

static bool loop(batch *b, bool *stopped, sp_error *err) {
    for (;;) {
        *stopped = b->setup->calls.should_stop(b->setup->calls.ctx);
        if (*stopped) return true;
        if (!admit(b, err)) return false;
        if (b->policy->n_running == 0 && b->setup->calls.is_dry(b->setup->calls.ctx)) return true;
        shrink_kv(b);
        if (!run_pass(b, err)) return false;
    }
}

static void batch_init(batch *b, const sp_batch_setup *setup) {
    size_t n = setup->plan->rows, n_threads = sp_pool_n_threads(setup->pool);
    *b = (batch){.setup = setup};
    b->policy = sp_policy_new(n);
    sp_policy_begin(b->policy, &(sp_policy_limits){n, setup->plan->kv_pages, setup->plan->pass_tokens});
    b->policy->forest = sp_prefixes_forest(setup->prefixes);
    b->policy->drop = drop_block;
    b->policy->ctx = b;
    b->pages = calloc(setup->plan->kv_pages, sizeof *b->pages);
    b->running = calloc(n, sizeof *b->running);
    b->spans = calloc(n, sizeof *b->spans);
    b->span_rows = calloc(n, sizeof *b->span_rows);
    b->samplers = calloc(n_threads, sizeof *b->samplers);
    b->samples = calloc(n, sizeof *b->samples);
    b->sample_errors = calloc(n, sizeof *b->sample_errors);
    SP_CHECK(b->pages && b->running && b->spans && b->span_rows && b->samplers && b->samples && b->sample_errors);
    for (size_t i = 0; i < n_threads; i++) {
        b->samplers[i] = sp_sampler_new(setup->model->arch.n_vocab);
        SP_CHECK(b->samplers[i] != NULL);
    }
}

static void batch_deinit(batch *b) {
    sp_policy *p = b->policy;
    while (p->n_running > 0) {
        sp_row *row = row_of(&p->running[p->n_running - 1]);
        remove_running(b, p->n_running - 1);
        sp_row_free(row);
    }
    while (p->n_back > 0) sp_row_free(row_of(&p->back[--p->n_back]));
    sp_policy_free(p);
    for (size_t i = 0; i < sp_pool_n_threads(b->setup->pool); i++) sp_sampler_free(b->samplers[i]);
    free(b->pages);
    free(b->running);
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
