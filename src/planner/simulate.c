/* Executes the policy with numbers in place of tokens. One step is one pass, or as many passes as go by without a row
 * finishing, joining or taking the last page. */
#include "planner/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "planner/policy.h"
#include "util/size.h"

struct sp_simulator {
    sp_policy *policy;
    sp_forest forest; /* the job's, as far as it comes; room for so many blocks */
};

typedef struct {
    sp_policy *p; /* a row's tag: tokens that it will generate yet */
    const sp_cost *cost;
    const sp_sim_job *job;
    size_t n_taken, n_rows; /* rows that have come to wait, of so many that may */
    double joined_work;     /* of the rows that are or were in flight */
    double streamed_bytes;
    sp_pass_load load;
    size_t n_prefill;
    sp_sim_result result;
} state;

sp_simulator *sp_simulator_new(size_t rows_max) {
    sp_simulator *s = calloc(1, sizeof *s);
    SP_CHECK(s != NULL);
    s->policy = sp_policy_new(rows_max);
    return s;
}

void sp_simulator_free(sp_simulator *s) {
    if (!s) return;
    sp_policy_free(s->policy);
    free(s->forest.blocks);
    free(s);
}

/* ---- rows come ---- */

static sp_policy_row new_row(const sp_sim_row *from) {
    size_t n_left = sp_max_size(1, from->n_left);
    return (sp_policy_row){.n_tokens = sp_max_size(1, from->n_tokens),
                           .n_new = from->n_new,
                           .block = from->block,
                           .n_most = sp_max_size(from->n_new + n_left, from->n_most),
                           .tag = n_left};
}

/* Row i of the queue. */
static const sp_sim_row *row_at(const sp_sim_job *job, size_t i) {
    size_t n_like = sp_max_size(1, job->n_like); /* none: all rows are queued ones */
    return i < job->n_queued ? &job->queued[i] : &job->like[(i - job->n_queued) % n_like];
}

/* What a row adds to a job, in passes. */
static double work_of(const sp_sim_job *job, size_t n_tokens, size_t n_left) {
    return (double)n_left + (double)n_tokens / (double)job->pass_tokens;
}

/* Of rows [first, end) of the queue. */
static double work_between(const sp_sim_job *job, size_t first, size_t end) {
    double work = 0, round = 0;
    for (; first < end && first < job->n_queued; first++)
        work += work_of(job, row_at(job, first)->n_tokens, row_at(job, first)->n_left);
    for (size_t i = 0; i < job->n_like; i++) round += work_of(job, job->like[i].n_tokens, job->like[i].n_left);
    size_t n_rounds = job->n_like > 0 ? (end - first) / job->n_like : 0;
    work += (double)n_rounds * round;
    for (first += n_rounds * job->n_like; first < end; first++)
        work += work_of(job, row_at(job, first)->n_tokens, row_at(job, first)->n_left);
    return work;
}

static bool join(state *st) {
    uint64_t n_joined = st->p->n_joined;
    if (!sp_policy_join(st->p)) return false;
    const sp_policy_row *row = &st->p->running[st->p->n_running - 1];
    if (st->p->n_joined > n_joined) st->joined_work += work_of(st->job, row->n_tokens, (size_t)row->tag);
    return true;
}

static void admit(state *st) {
    do {
        while (st->p->n_waiting < SP_POLICY_WINDOW && st->n_taken < st->n_rows) {
            sp_policy_row row = new_row(row_at(st->job, st->n_taken++));
            sp_policy_wait(st->p, &row);
        }
    } while (join(st));
}

static bool is_dry(const state *st) { return st->n_taken == st->n_rows && st->p->n_waiting == 0 && st->p->n_back == 0; }

/* ---- a pass ---- */

/* False: a row that no memory is left for has gone. */
static bool build(state *st) {
    size_t i_row;
    if (!sp_policy_build(st->p, &i_row)) {
        sp_policy_remove(st->p, i_row);
        return false;
    }
    st->load = sp_policy_load(st->p, &st->n_prefill);
    return true;
}

/* Tokens move into the pages, rows that wanted logits get one token more or leave. */
static void take_results(state *st) {
    for (size_t i = st->p->n_running; i-- > 0;) {
        sp_policy_row *r = &st->p->running[i];
        if (r->n_span == 0) continue;
        sp_policy_advance(st->p, i, r->n_span);
        if (r->n_cached == r->n_tokens) r->n_tokens++, r->n_new++, r->tag--;
        if (r->tag == 0) sp_policy_remove(st->p, i);
    }
}

/* ---- many passes at once ---- */

static bool has_pages(const state *st, size_t n) {
    size_t n_pages = 0;
    for (size_t i = 0; i < st->p->n_running; i++) n_pages += sp_policy_needed(&st->p->running[i], n);
    return n_pages <= st->p->pages_free;
}

/* Passes from here on in which every row decodes one token and nothing else happens. */
static size_t quiet_passes(const state *st) {
    const sp_policy *p = st->p;
    bool waits = p->n_back + p->n_waiting > 0 || st->n_taken < st->n_rows;
    if (p->n_running == 0 || p->n_running > p->limits.pass_tokens) return 0;
    if (waits && p->n_running < p->limits.rows && !p->is_full) return 0;
    size_t n = SIZE_MAX;
    for (size_t i = 0; i < p->n_running; i++) {
        const sp_policy_row *r = &p->running[i];
        if (r->n_tokens - r->n_cached != 1) return 0;
        n = sp_min_size(n, r->tag - 1);
    }
    while (n > 0 && !has_pages(st, n)) n /= 2;
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
    if (st->result.n_passes == 0 && st->job->first_read_s > 0) {
        if (st->job->streamed_bytes <= 0) return sp_cost_pass_seconds(st->cost, &st->load, 0) + st->job->first_read_s;
        read_s = st->job->first_read_s;
    }
    return sp_cost_pass_seconds(st->cost, &st->load, read_s);
}

static void skip_quiet(state *st) {
    size_t n = quiet_passes(st), n_running = st->p->n_running;
    if (n == 0) return;
    sp_pass_load load = {.n_tokens = n_running, .n_logits = n_running};
    for (size_t i = 0; i < n_running; i++) {
        sp_policy_row *r = &st->p->running[i];
        load.decode_keys += sp_keys_seen(r->n_cached, n) / (double)n; /* of a pass in the middle */
        sp_policy_advance(st->p, i, n);
        r->n_tokens += n;
        r->n_new += n;
        r->tag -= n;
    }
    st->load = load;
    st->result.seconds += (double)n * pass_seconds(st);
    st->result.n_passes += (double)n;
    st->result.n_decode += (double)(n * n_running);
    st->result.row_passes += (double)(n * n_running);
}

/* ---- the tail ---- */

size_t sp_sim_freed_layers(const sp_sim_job *job, size_t n_pages) {
    if (n_pages >= job->kv_pages || job->layer_bytes <= 0) return 0;
    double n = (double)(job->kv_pages - n_pages) * job->page_bytes / job->layer_bytes;
    return n < (double)job->n_unpinned_layers ? (size_t)n : job->n_unpinned_layers;
}

/* Once no row waits, pages that nobody will need are layers that are not read again. */
static void use_freed_pages(state *st) {
    if (st->job->n_unpinned_layers == 0 || !is_dry(st)) return;
    size_t n_layers = sp_sim_freed_layers(st->job, sp_policy_pages_most(st->p));
    st->streamed_bytes = st->job->streamed_bytes - (double)n_layers * st->job->layer_bytes;
}

/* ---- the whole ---- */

/* A forest in which nobody has a page. */
static void plant(sp_simulator *s, const sp_forest *of) {
    if (of->n_blocks > s->forest.n_blocks) {
        s->forest.n_blocks = of->n_blocks;
        s->forest.blocks = realloc(s->forest.blocks, of->n_blocks * sizeof *s->forest.blocks);
        SP_CHECK(s->forest.blocks != NULL);
    }
    for (size_t b = 0; b < of->n_blocks; b++)
        s->forest.blocks[b] = (sp_block){.parent = of->blocks[b].parent, .depth = of->blocks[b].depth};
    for (size_t b = of->n_blocks; b < s->forest.n_blocks; b++) s->forest.blocks[b] = (sp_block){0};
    s->policy->forest = &s->forest;
}

static void begin(state *st, sp_simulator *s) {
    sp_policy *p = st->p;
    const sp_sim_job *job = st->job;
    sp_policy_begin(p, &(sp_policy_limits){job->rows, job->kv_pages, job->pass_tokens});
    if (job->share > 0) p->share = job->share;
    if (job->forest) plant(s, job->forest);
    for (size_t i = 0; i < job->n_running && i < job->rows; i++) {
        sp_policy_row row = new_row(&job->running[i]);
        size_t n_cached = sp_min_size(job->running[i].n_cached, row.n_tokens - 1);
        p->running[p->n_running++] = row;
        sp_policy_resume(p, i, n_cached);
    }
}

static void step(state *st) {
    admit(st);
    if (st->p->n_running == 0 || !build(st)) return;
    st->result.seconds += pass_seconds(st);
    st->result.n_passes++;
    st->result.n_prefill += (double)st->n_prefill;
    st->result.n_decode += (double)(st->load.n_tokens - st->n_prefill);
    st->result.row_passes += (double)st->p->n_running;
    take_results(st);
    use_freed_pages(st);
    skip_quiet(st);
}

/* Of the rows from the queue. */
static double work_done(const state *st) {
    double work = st->joined_work;
    for (size_t i = 0; i < st->p->n_running; i++) {
        const sp_policy_row *r = &st->p->running[i];
        work -= work_of(st->job, r->n_tokens - r->n_cached, (size_t)r->tag);
    }
    return work;
}

/* What lay between two moments of the queue, `more` times again. */
static void add_more(sp_sim_result *r, const sp_sim_result *half, const sp_sim_result *whole, double more) {
    r->seconds += (whole->seconds - half->seconds) * more;
    r->n_passes += (whole->n_passes - half->n_passes) * more;
    r->n_prefill += (whole->n_prefill - half->n_prefill) * more;
    r->n_decode += (whole->n_decode - half->n_decode) * more;
    r->row_passes += (whole->row_passes - half->row_passes) * more;
}

sp_sim_result sp_simulate(sp_simulator *s, const sp_cost *cost, const sp_sim_job *job, size_t max_rows,
                          double stop_seconds) {
    size_t n_all = job->n_queued + (job->n_like > 0 ? job->n_more : 0), n_rows = sp_min_size(n_all, max_rows);
    state st = {.p = s->policy, .cost = cost, .job = job, .n_rows = n_rows, .streamed_bytes = job->streamed_bytes};
    begin(&st, s);
    sp_sim_result half = {0}, whole = {0};
    /* Of a long job the time in between counts, when rows come as others go; not its last rows, which are short ones.
     */
    size_t n_more = n_all - n_rows, n_last = n_rows >= 4 * SP_POLICY_WINDOW ? n_rows - SP_POLICY_WINDOW : n_rows;
    double half_work = 0, whole_work = 0;
    for (bool has_half = n_more == 0, has_whole = has_half;;) {
        step(&st);
        if (!has_half && st.p->n_joined >= n_last / 2) {
            half = st.result, half_work = work_done(&st);
            has_half = true;
        }
        if (!has_whole && st.p->n_joined >= n_last) {
            whole = st.result, whole_work = work_done(&st);
            has_whole = true;
        }
        if (st.p->n_running == 0 && is_dry(&st)) break;
        if (stop_seconds > 0 && st.result.seconds >= stop_seconds) return st.result;
    }
    if (whole_work > half_work)
        add_more(&st.result, &half, &whole, work_between(job, n_rows, n_all) / (whole_work - half_work));
    return st.result;
}
