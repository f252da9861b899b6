/* Walks the batch loop with numbers in place of tokens. One step is one pass, or as many passes as go by without a row
 * finishing, joining or taking the last page. */
#include "planner/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "util/size.h"

/* A row in flight. */
typedef struct {
    size_t n_tokens, n_cached, n_left, n_pages;
    size_t n_span; /* tokens in this pass */
} row;

struct sp_simulator {
    size_t rows_max;
    row *running; /* [rows_max] */
    row *waiting; /* [rows_max + 1] a stack */
};

typedef struct {
    sp_simulator *s;
    const sp_cost *cost;
    const sp_sim_job *job;
    row *running, *waiting;
    size_t n_running, n_waiting, n_taken, n_rows; /* rows taken from the queue, of so many that may be */
    size_t pages_free;
    double streamed_bytes;
    sp_pass_load load;
    size_t n_prefill;
    sp_sim_result result;
} state;

sp_simulator *sp_simulator_new(size_t rows_max) {
    sp_simulator *s = calloc(1, sizeof *s);
    SP_CHECK(s != NULL);
    s->rows_max = rows_max;
    s->running = calloc(rows_max + 1, sizeof *s->running);
    s->waiting = calloc(rows_max + 1, sizeof *s->waiting);
    SP_CHECK(s->running && s->waiting);
    return s;
}

void sp_simulator_free(sp_simulator *s) {
    if (!s) return;
    free(s->running);
    free(s->waiting);
    free(s);
}

/* ---- rows come and go ---- */

static row new_row(const sp_sim_row *from) {
    size_t n_left = sp_max_size(1, from->n_left), n_tokens = sp_max_size(1, from->n_tokens);
    return (row){.n_tokens = n_tokens, .n_cached = sp_min_size(from->n_cached, n_tokens - 1), .n_left = n_left};
}

static size_t pages_of(size_t n_tokens) { return sp_div_up(n_tokens, SP_KV_PAGE_TOKENS); }

static bool next_row(state *st, row *next) {
    const sp_sim_job *job = st->job;
    if (st->n_waiting > 0) {
        *next = st->waiting[--st->n_waiting];
        return true;
    }
    if (st->n_taken == st->n_rows) return false;
    size_t i = st->n_taken++;
    size_t n_like = sp_max_size(1, job->n_like); /* none: all rows are queued ones */
    *next = new_row(i < job->n_queued ? &job->queued[i] : &job->like[(i - job->n_queued) % n_like]);
    return true;
}

static bool has_room(const state *st, const row *r) {
    size_t chunk = sp_min_size(r->n_tokens, st->job->pass_tokens);
    return st->pages_free >= pages_of(chunk) + st->n_running;
}

static void admit(state *st) {
    while (st->n_running < st->job->rows) {
        row next;
        if (!next_row(st, &next)) return;
        if (st->n_running > 0 && !has_room(st, &next)) {
            st->waiting[st->n_waiting++] = next;
            return;
        }
        st->running[st->n_running++] = next;
    }
}

static void remove_row(state *st, size_t i) {
    st->pages_free += st->running[i].n_pages;
    memmove(&st->running[i], &st->running[i + 1], (st->n_running - i - 1) * sizeof *st->running);
    st->n_running--;
}

static void preempt_newest(state *st) {
    row newest = st->running[st->n_running - 1];
    remove_row(st, st->n_running - 1);
    newest.n_cached = newest.n_pages = newest.n_span = 0;
    st->waiting[st->n_waiting++] = newest;
}

/* ---- a pass ---- */

static size_t pages_needed(const row *r, size_t n) {
    size_t n_pages = pages_of(r->n_cached + n);
    return n_pages > r->n_pages ? n_pages - r->n_pages : 0;
}

/* Sum over n tokens, the first of which sees first + 1 keys. */
static double keys_seen(size_t first, size_t n) { return (double)n * ((double)first + 0.5 * ((double)n + 1)); }

static void add_span(state *st, row *r, size_t n, bool is_prefill) {
    r->n_span = n;
    st->load.n_tokens += n;
    st->load.n_logits += r->n_cached + n == r->n_tokens;
    if (is_prefill) st->n_prefill += n;
    *(is_prefill ? &st->load.prefill_keys : &st->load.decode_keys) += keys_seen(r->n_cached, n);
}

/* As build_spans of jobs/batch.c. False: a row that no memory is left for has gone. */
static bool build(state *st) {
    size_t budget = st->job->pass_tokens, promised = 0, n_spans = 0;
    st->load = (sp_pass_load){0};
    st->n_prefill = 0;
    for (size_t i = 0; i < st->n_running; i++) st->running[i].n_span = 0;
    for (int is_prefill = 0; is_prefill <= 1; is_prefill++) {
        for (size_t i = 0; i < st->n_running && budget > 0; i++) {
            row *r = &st->running[i];
            size_t left = r->n_tokens - r->n_cached;
            if ((left > 1) != is_prefill) continue;
            size_t n = sp_min_size(left, budget);
            if (st->pages_free < promised + pages_needed(r, n)) {
                if (n_spans > 0) break;
                while (st->pages_free < pages_needed(r, n) && st->n_running - 1 > i) preempt_newest(st);
                if (st->pages_free < pages_needed(r, n)) {
                    remove_row(st, i);
                    return false;
                }
            }
            promised += pages_needed(r, n);
            add_span(st, r, n, is_prefill);
            budget -= n;
            n_spans++;
        }
    }
    return true;
}

static void take_pages(state *st, row *r, size_t n) {
    size_t n_pages = pages_needed(r, n);
    r->n_pages += n_pages;
    st->pages_free -= n_pages;
    r->n_cached += n;
}

/* Tokens move into the pages, rows that wanted logits get one token more or leave. */
static void take_results(state *st) {
    size_t kept = 0;
    for (size_t i = 0; i < st->n_running; i++) {
        row *r = &st->running[i];
        if (r->n_span > 0) {
            take_pages(st, r, r->n_span);
            if (r->n_cached == r->n_tokens) r->n_tokens++, r->n_left--;
            if (r->n_left == 0) {
                st->pages_free += r->n_pages;
                continue;
            }
        }
        st->running[kept++] = *r;
    }
    st->n_running = kept;
}

/* ---- many passes at once ---- */

static bool fits(const state *st, size_t n) {
    size_t n_pages = 0;
    for (size_t i = 0; i < st->n_running; i++) n_pages += pages_needed(&st->running[i], n);
    return n_pages <= st->pages_free;
}

/* Passes from here on in which every row decodes one token and nothing else happens. */
static size_t quiet_passes(const state *st) {
    bool may_join = st->n_running < st->job->rows && (st->n_waiting > 0 || st->n_taken < st->n_rows);
    if (st->n_running == 0 || st->n_running > st->job->pass_tokens) return 0;
    if (may_join && (st->n_waiting == 0 || has_room(st, &st->waiting[st->n_waiting - 1]))) return 0;
    size_t n = SIZE_MAX;
    for (size_t i = 0; i < st->n_running; i++) {
        const row *r = &st->running[i];
        if (r->n_tokens - r->n_cached != 1) return 0;
        n = sp_min_size(n, r->n_left - 1);
    }
    while (n > 0 && !fits(st, n)) n /= 2;
    return n;
}

double sp_sim_panel_share(const sp_sim_job *job, double streamed_bytes) {
    return job->weight_bytes > streamed_bytes ? 1 - streamed_bytes / job->weight_bytes : 0;
}

static double pass_seconds(state *st) {
    st->load.panel_share = sp_sim_panel_share(st->job, st->streamed_bytes);
    double left_out_bytes = st->load.n_logits == 0 ? st->job->logits_bytes : 0;
    double read_bytes = st->streamed_bytes > left_out_bytes ? st->streamed_bytes - left_out_bytes : 0;
    double read_s = st->job->read_bps > 0 ? read_bytes / st->job->read_bps : 0;
    if (st->result.n_passes == 0 && st->job->first_read_s > 0) read_s = st->job->first_read_s;
    return sp_cost_pass_seconds(st->cost, &st->load, read_s);
}

static void skip_quiet(state *st) {
    size_t n = quiet_passes(st);
    if (n == 0) return;
    sp_pass_load load = {.n_tokens = st->n_running, .n_logits = st->n_running};
    for (size_t i = 0; i < st->n_running; i++) {
        row *r = &st->running[i];
        load.decode_keys += keys_seen(r->n_cached, n) / (double)n; /* of a pass in the middle */
        take_pages(st, r, n);
        r->n_tokens += n;
        r->n_left -= n;
    }
    st->load = load;
    st->result.seconds += (double)n * pass_seconds(st);
    st->result.n_passes += (double)n;
    st->result.n_decode += (double)(n * st->n_running);
}

/* ---- the tail ---- */

size_t sp_sim_freed_layers(const sp_sim_job *job, size_t n_pages) {
    if (n_pages >= job->kv_pages || job->layer_bytes <= 0) return 0;
    double n = (double)(job->kv_pages - n_pages) * job->page_bytes / job->layer_bytes;
    return n < (double)job->n_unpinned_layers ? (size_t)n : job->n_unpinned_layers;
}

/* Once no row waits, pages that nobody will need are layers that are not read again. */
static void use_freed_pages(state *st) {
    if (st->job->n_unpinned_layers == 0 || st->n_waiting > 0 || st->n_taken < st->n_rows) return;
    size_t n_pages = 0;
    for (size_t i = 0; i < st->n_running; i++) n_pages += pages_of(st->running[i].n_tokens + st->running[i].n_left);
    size_t n_layers = sp_sim_freed_layers(st->job, n_pages);
    st->streamed_bytes = st->job->streamed_bytes - (double)n_layers * st->job->layer_bytes;
}

/* ---- the whole ---- */

static void begin(state *st) {
    for (size_t i = 0; i < st->job->n_running && i < st->job->rows; i++) {
        row *r = &st->running[st->n_running++];
        *r = new_row(&st->job->running[i]);
        r->n_pages = sp_min_size(pages_of(r->n_cached), st->pages_free);
        st->pages_free -= r->n_pages;
    }
}

static void step(state *st) {
    admit(st);
    if (st->n_running == 0 || !build(st)) return;
    st->result.seconds += pass_seconds(st);
    st->result.n_passes++;
    st->result.n_prefill += (double)st->n_prefill;
    st->result.n_decode += (double)(st->load.n_tokens - st->n_prefill);
    take_results(st);
    use_freed_pages(st);
    skip_quiet(st);
}

/* What lay between two moments of the queue, `more` times again. */
static void add_more(sp_sim_result *r, const sp_sim_result *half, const sp_sim_result *whole, double more) {
    r->seconds += (whole->seconds - half->seconds) * more;
    r->n_passes += (whole->n_passes - half->n_passes) * more;
    r->n_prefill += (whole->n_prefill - half->n_prefill) * more;
    r->n_decode += (whole->n_decode - half->n_decode) * more;
}

sp_sim_result sp_simulate(sp_simulator *s, const sp_cost *cost, const sp_sim_job *job, size_t max_rows,
                          double stop_seconds) {
    size_t n_all = job->n_queued + (job->n_like > 0 ? job->n_more : 0), n_rows = sp_min_size(n_all, max_rows);
    state st = {.s = s, .cost = cost, .job = job, .running = s->running, .waiting = s->waiting, .n_rows = n_rows};
    st.pages_free = job->kv_pages;
    st.streamed_bytes = job->streamed_bytes;
    begin(&st);
    sp_sim_result half = {0}, whole = {0};
    size_t n_half = 0;
    for (bool all_taken = false;;) {
        step(&st);
        if (n_half == 0 && st.n_taken >= n_rows / 2 && n_rows < n_all) half = st.result, n_half = st.n_taken;
        if (!all_taken && st.n_taken == n_rows) whole = st.result, all_taken = true;
        if (st.n_running == 0 && st.n_waiting == 0 && st.n_taken == n_rows) break;
        if (stop_seconds > 0 && st.result.seconds >= stop_seconds) return st.result;
    }
    if (n_half > 0 && n_half < n_rows)
        add_more(&st.result, &half, &whole, (double)(n_all - n_rows) / (double)(n_rows - n_half));
    return st.result;
}
