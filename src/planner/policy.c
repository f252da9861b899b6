/* Joining looks ahead in passes: the rows in flight are summed at SAMPLES moments up to the last one's expected end,
 * each with the tokens it has by then. A row that would join must fit beside them at each moment that it lives to see.
 */
#include "planner/policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "util/arena.h"
#include "util/size.h"

/* HALF: what a row's last page is expected to waste. SLACK: pages kept back for chance (lengths that fall together on a
 * page's end), of SLACK_OF or more. DOUBT: one page of so many is kept back where ends are not known at all, which
 * makes pre-emptions, each of which feeds a row again, rare: of 500 rows 3 instead of 86, for 1% fewer rows in flight.
 */
enum { SAMPLES = 64, HALF = SP_KV_PAGE_TOKENS / 2, SLACK = 2, SLACK_OF = 64, DOUBT = 25 };

/* What the rows in flight leave: spare[g] is the greatest number of tokens that a row may have now which lives to see
 * moment g, g * step passes from now, and needs no page at any moment until then that is not there. */
typedef struct {
    size_t step;
    size_t spare[SAMPLES];
} outlook;

sp_policy *sp_policy_new(size_t rows_max) {
    sp_policy *p = calloc(1, sizeof *p);
    SP_CHECK(p != NULL);
    p->running = calloc(rows_max + 1, sizeof *p->running);
    p->back = calloc(rows_max + 1, sizeof *p->back);
    p->waiting = calloc(SP_POLICY_WINDOW, sizeof *p->waiting);
    SP_CHECK(p->running && p->back && p->waiting);
    return p;
}

void sp_policy_free(sp_policy *p) {
    if (!p) return;
    free(p->running);
    free(p->back);
    free(p->waiting);
    free(p);
}

void sp_policy_begin(sp_policy *p, const sp_policy_limits *limits) {
    p->limits = *limits;
    p->n_running = p->n_back = p->n_waiting = 0;
    p->pages_free = limits->kv_pages;
    p->n_joined = p->overdue_at = 0;
    p->share = 1;
    p->forest = NULL;
    p->n_shared = p->n_unfilled = p->n_kept = 0;
    p->drop = NULL;
    p->is_full = false;
}

/* ---- a row's numbers ---- */

static size_t most_left(const sp_policy_row *r) { return r->n_most > r->n_new ? r->n_most - r->n_new : 1; }

/* Tokens that it is expected to generate yet: one that is past the mean ends halfway to its most. */
static size_t left_of(const sp_policy *p, const sp_policy_row *r) {
    size_t n_mean = (size_t)(p->share * (double)r->n_most + 0.5);
    return r->n_new < n_mean ? n_mean - r->n_new : (most_left(r) + 1) / 2;
}

static size_t pages_of(size_t n_tokens) { return sp_div_up(n_tokens, SP_KV_PAGE_TOKENS); }

size_t sp_policy_needed(const sp_policy_row *r, size_t n) {
    size_t n_pages = pages_of(r->n_cached + n);
    return n_pages > r->n_pages ? n_pages - r->n_pages : 0;
}

/* ---- prefixes ---- */

static sp_block *block_at(const sp_policy *p, uint32_t i) { return &p->forest->blocks[i]; }

static size_t depth_of(const sp_policy *p, const sp_policy_row *r) {
    return r->block ? block_at(p, r->block)->depth : 0;
}

/* Tokens that are the row's alone, and the pages beside them that it goes through are counted in n_shared. */
static size_t own_tokens(const sp_policy *p, const sp_policy_row *r) {
    return r->n_tokens - depth_of(p, r) * SP_KV_PAGE_TOKENS;
}

/* Those of a row that is not in flight: of its blocks, those that no row in flight has are counted with it. */
static size_t tokens_to_add(const sp_policy *p, const sp_policy_row *r) {
    uint32_t b = r->block;
    while (b && block_at(p, b)->n_users == 0) b = block_at(p, b)->parent;
    return r->n_tokens - (b ? block_at(p, b)->depth * SP_KV_PAGE_TOKENS : 0);
}

static void count_waiting(sp_policy *p, const sp_policy_row *r, bool comes) {
    for (uint32_t b = r->block; b; b = block_at(p, b)->parent) {
        if (comes)
            block_at(p, b)->n_waiting++;
        else
            block_at(p, b)->n_waiting--;
    }
}

static void enter(sp_policy *p, const sp_policy_row *r) {
    for (uint32_t b = r->block; b; b = block_at(p, b)->parent) {
        sp_block *block = block_at(p, b);
        if (block->n_users++ > 0) continue;
        p->n_shared++;
        if (block->is_filled)
            p->n_kept--;
        else
            p->n_unfilled++;
    }
}

static void give_up(sp_policy *p, uint32_t b) {
    sp_block *block = block_at(p, b);
    block->is_filled = false;
    if (block->parent) block_at(p, block->parent)->n_children--;
    p->pages_free++;
    if (p->drop) p->drop(p->ctx, b);
}

/* The row's pages go: its own at once, shared ones with their last user, unless rows wait for them. */
static void leave(sp_policy *p, const sp_policy_row *r) {
    size_t n_filled = sp_min_size(depth_of(p, r), r->n_cached / SP_KV_PAGE_TOKENS);
    p->pages_free += r->n_pages - sp_min_size(r->n_pages, n_filled);
    for (uint32_t b = r->block, parent; b; b = parent) {
        sp_block *block = block_at(p, b);
        parent = block->parent;
        if (r->has_begun && block->depth > n_filled) block->has_filler = false;
        if (--block->n_users > 0) continue;
        p->n_shared--;
        if (!block->is_filled)
            p->n_unfilled--;
        else if (block->n_waiting > 0)
            p->n_kept++;
        else
            give_up(p, b);
    }
}

/* Gives up pages that are kept for rows that wait, until n are free or none is left; the deepest of a prompt first. */
static void evict(sp_policy *p, size_t n) {
    for (size_t b = p->n_kept > 0 ? p->forest->n_blocks : 0; b-- > 1 && p->n_kept > 0 && p->pages_free < n;) {
        const sp_block *block = block_at(p, (uint32_t)b);
        if (!block->is_filled || block->n_users > 0 || block->n_children > 0) continue;
        p->n_kept--;
        give_up(p, (uint32_t)b);
        if (block->parent > b) b = (size_t)block->parent + 1; /* it alone may be one to give up now */
    }
}

/* Marks the blocks of a row up to n_tokens as filled, and what is behind them as its to fill. */
static void fill(sp_policy *p, const sp_policy_row *r, size_t n_tokens) {
    for (uint32_t b = r->block; b; b = block_at(p, b)->parent) {
        sp_block *block = block_at(p, b);
        if (block->is_filled) return;
        block->is_filled = block->depth * SP_KV_PAGE_TOKENS <= n_tokens;
        block->has_filler = !block->is_filled;
        if (!block->is_filled) continue;
        p->n_unfilled--;
        if (block->parent) block_at(p, block->parent)->n_children++;
    }
}

/* A row that holds nothing yet takes the filled pages of its prefix. False: another row is about to fill more of it. */
static bool begin_row(sp_policy *p, sp_policy_row *r) {
    uint32_t b = r->block, next = 0;
    for (; b && !block_at(p, b)->is_filled; b = block_at(p, b)->parent) next = b;
    if (next && block_at(p, next)->has_filler) return false;
    r->n_pages = b ? block_at(p, b)->depth : 0;
    r->n_cached = r->n_pages * SP_KV_PAGE_TOKENS;
    r->has_begun = true;
    return true;
}

/* ---- rows that wait ---- */

/* A row that an earlier run had in flight comes first: its tokens should not wait. */
static bool has_more_to_do(const sp_policy_row *a, const sp_policy_row *b) {
    if ((a->n_new > 0) != (b->n_new > 0)) return a->n_new > 0;
    size_t left_a = most_left(a), left_b = most_left(b);
    return left_a != left_b ? left_a > left_b : a->n_tokens > b->n_tokens;
}

void sp_policy_wait(sp_policy *p, const sp_policy_row *row) {
    assert(p->n_waiting < SP_POLICY_WINDOW && row->n_tokens > 0);
    size_t low = 0, high = p->n_waiting; /* behind those with as much to do: they came before */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (has_more_to_do(row, &p->waiting[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&p->waiting[low + 1], &p->waiting[low], (p->n_waiting - low) * sizeof *p->waiting);
    p->waiting[low] = *row;
    p->waiting[low].came = p->n_joined;
    p->waiting[low].n_cached = p->waiting[low].n_pages = p->waiting[low].n_span = 0;
    p->waiting[low].has_begun = false;
    count_waiting(p, row, true);
    p->n_waiting++;
    p->is_full = false;
}

/* The row that has been overtaken too often, the oldest if there are several; n_waiting: none has. */
static size_t find_overdue(sp_policy *p) {
    if (p->n_joined < p->overdue_at) return p->n_waiting;
    uint64_t first = UINT64_MAX;
    size_t found = p->n_waiting;
    for (size_t i = 0; i < p->n_waiting; i++)
        if (p->waiting[i].came < first) first = p->waiting[i].came, found = i;
    if (found == p->n_waiting) return found;
    p->overdue_at = first + SP_POLICY_OVERTAKEN;
    return p->n_joined >= p->overdue_at ? found : p->n_waiting;
}

/* ---- joining ---- */

static size_t less(size_t n, size_t by) { return n > by ? n - by : 0; }

static void look_out(const sp_policy *p, outlook *out) {
    size_t n_rows[SAMPLES] = {0},
           n_tokens[SAMPLES] = {0}; /* that end in the step behind a moment, with today's tokens */
    size_t longest = 1, n_alive = 0, n_held = 0;
    for (size_t i = 0; i < p->n_running; i++) longest = sp_max_size(longest, left_of(p, &p->running[i]));
    out->step = sp_div_up(longest, SAMPLES);
    for (size_t i = 0; i < p->n_running; i++) {
        size_t last = (left_of(p, &p->running[i]) - 1) / out->step;
        n_rows[last]++;
        n_tokens[last] += own_tokens(p, &p->running[i]);
    }
    size_t n_pages = p->limits.kv_pages, n_kept_back = sp_min_size(SLACK, n_pages / SLACK_OF);
    n_kept_back += (size_t)((1 - p->share) * (double)n_pages / DOUBT);
    size_t room = less(n_pages, p->n_shared + n_kept_back) * SP_KV_PAGE_TOKENS;
    for (size_t g = SAMPLES; g-- > 0;) {
        n_alive += n_rows[g];
        n_held += n_tokens[g];
        out->spare[g] = less(room, n_held + (n_alive + 1) * (g * out->step + HALF));
    }
    for (size_t g = 1; g < SAMPLES; g++) out->spare[g] = sp_min_size(out->spare[g], out->spare[g - 1]);
}

/* A sixteenth and one cover what look_out keeps back: SLACK pages from SLACK_OF on, and one of DOUBT. */
size_t sp_policy_roomy_pages(size_t n_rows, size_t n_tokens) {
    size_t n_pages = pages_of(n_tokens + n_rows * HALF);
    return n_pages + n_pages / 16 + 1;
}

static bool fits(const sp_policy *p, const outlook *out, const sp_policy_row *r) {
    if (p->n_running == 0) return true; /* alone: it has all there is */
    size_t left = left_of(p, r), n_own = tokens_to_add(p, r);
    size_t last = sp_min_size((left - 1) / out->step, SAMPLES - 1);
    return n_own <= out->spare[last] && n_own + left <= p->limits.kv_pages * SP_KV_PAGE_TOKENS;
}

/* Of the rows that wait the one to join; n_waiting: none has room. */
static size_t choose(sp_policy *p, const outlook *out) {
    size_t overdue = find_overdue(p), none = p->n_waiting;
    if (overdue < none) return fits(p, out, &p->waiting[overdue]) ? overdue : none;
    if (p->n_joined % SP_POLICY_SHORT_EVERY == 0 && fits(p, out, &p->waiting[none - 1])) return none - 1;
    for (size_t i = 0; i < none; i++)
        if (fits(p, out, &p->waiting[i])) return i;
    return none;
}

/* Tokens that the rows in flight could feed at once. */
static size_t tokens_to_feed(const sp_policy *p) {
    size_t n = p->n_unfilled * SP_KV_PAGE_TOKENS;
    for (size_t i = 0; i < p->n_running; i++) {
        const sp_policy_row *r = &p->running[i];
        n += r->n_tokens - sp_max_size(r->n_cached, depth_of(p, r) * SP_KV_PAGE_TOKENS);
    }
    return n;
}

bool sp_policy_join(sp_policy *p) {
    if (p->n_running == p->limits.rows || p->is_full || p->n_back + p->n_waiting == 0) return false;
    if (tokens_to_feed(p) >= p->limits.pass_tokens) return false;
    outlook out;
    look_out(p, &out);
    sp_policy_row *to = &p->running[p->n_running];
    if (p->n_back > 0) {
        p->is_full = !fits(p, &out, &p->back[p->n_back - 1]);
        if (p->is_full) return false;
        *to = p->back[--p->n_back];
    } else {
        size_t i = choose(p, &out);
        p->is_full = i == p->n_waiting;
        if (p->is_full) return false;
        *to = p->waiting[i];
        p->n_waiting--;
        memmove(&p->waiting[i], &p->waiting[i + 1], (p->n_waiting - i) * sizeof *p->waiting);
        p->n_joined++;
    }
    p->n_running++;
    enter(p, to);
    count_waiting(p, to, false);
    return true;
}

/* ---- rows leave ---- */

static void empty(sp_policy_row *r) {
    r->n_pages = r->n_cached = r->n_span = 0;
    r->has_begun = false;
}

void sp_policy_uncache(sp_policy *p, size_t i) {
    leave(p, &p->running[i]);
    empty(&p->running[i]);
    enter(p, &p->running[i]);
}

void sp_policy_remove(sp_policy *p, size_t i) {
    leave(p, &p->running[i]);
    p->n_running--;
    memmove(&p->running[i], &p->running[i + 1], (p->n_running - i) * sizeof *p->running);
    p->is_full = false;
}

static void preempt_newest(sp_policy *p) {
    sp_policy_row *r = &p->running[--p->n_running];
    count_waiting(p, r, true);
    leave(p, r);
    empty(r);
    p->back[p->n_back++] = *r;
}

/* ---- a pass ---- */

typedef struct {
    size_t left_tokens;    /* that may still be added to the pass */
    size_t promised_pages; /* that its tokens will take */
    size_t n_spans;
} pass;

static size_t pages_left(const sp_policy *p, const pass *now) {
    return p->pages_free + p->n_kept - now->promised_pages;
}

/* Makes room for n tokens more of running row i: newer rows that are not in the pass yet give way. */
static void make_room(sp_policy *p, const pass *now, size_t i, size_t n) {
    while (pages_left(p, now) < sp_policy_needed(&p->running[i], n) && p->n_running - 1 > i &&
           p->running[p->n_running - 1].n_span == 0)
        preempt_newest(p);
}

/* Of n tokens as many as there are pages for. */
static size_t tokens_with_room(const sp_policy *p, const pass *now, const sp_policy_row *r, size_t n) {
    size_t room = (r->n_pages + pages_left(p, now)) * SP_KV_PAGE_TOKENS;
    return sp_min_size(n, room - r->n_cached);
}

/* Rows that lack one token (decode) or more (prefill). A prompt takes what is left; a row that decodes, and the one
 * that would else leave the pass empty, drive newer ones out. */
static void add_spans(sp_policy *p, pass *now, bool is_prefill) {
    for (size_t i = 0; i < p->n_running && now->left_tokens > 0; i++) {
        sp_policy_row *r = &p->running[i];
        if ((r->n_tokens - r->n_cached > 1) != is_prefill) continue;
        bool begins = !r->has_begun;
        if (begins && !begin_row(p, r)) continue;
        size_t n = sp_min_size(r->n_tokens - r->n_cached, now->left_tokens);
        if (!is_prefill || now->n_spans == 0) make_room(p, now, i, n);
        n = tokens_with_room(p, now, r, n);
        if (n == 0 && begins) empty(r);
        if (n == 0) continue;
        r->n_span = n;
        fill(p, r, r->n_cached + n);
        now->promised_pages += sp_policy_needed(r, n);
        evict(p, now->promised_pages);
        now->left_tokens -= n;
        now->n_spans++;
    }
}

bool sp_policy_build(sp_policy *p, size_t *i_row) {
    pass now = {.left_tokens = p->limits.pass_tokens};
    for (size_t i = 0; i < p->n_running; i++) p->running[i].n_span = 0;
    add_spans(p, &now, false);
    add_spans(p, &now, true);
    *i_row = 0;
    return now.n_spans > 0 || p->n_running == 0;
}

void sp_policy_resume(sp_policy *p, size_t i, size_t n_cached) {
    sp_policy_row *r = &p->running[i];
    enter(p, r);
    if (n_cached == 0) return;
    uint32_t b = r->block;
    while (b && (!block_at(p, b)->is_filled || block_at(p, b)->depth * SP_KV_PAGE_TOKENS > n_cached))
        b = block_at(p, b)->parent;
    r->n_pages = b ? block_at(p, b)->depth : 0;
    r->n_cached = r->n_pages * SP_KV_PAGE_TOKENS;
    r->has_begun = true;
    size_t n_more = sp_min_size(n_cached - r->n_cached, p->pages_free * SP_KV_PAGE_TOKENS);
    fill(p, r, r->n_cached + n_more);
    sp_policy_advance(p, i, n_more);
}

size_t sp_policy_pages_most(const sp_policy *p) {
    size_t n_pages = p->n_shared;
    for (size_t i = 0; i < p->n_running; i++)
        n_pages += pages_of(own_tokens(p, &p->running[i]) + most_left(&p->running[i]));
    return n_pages;
}

sp_pass_load sp_policy_load(const sp_policy *p, size_t *n_prefill) {
    sp_pass_load load = {0};
    *n_prefill = 0;
    for (size_t i = 0; i < p->n_running; i++) {
        const sp_policy_row *r = &p->running[i];
        bool is_prefill = r->n_tokens - r->n_cached > 1;
        load.n_tokens += r->n_span;
        load.n_logits += r->n_span > 0 && r->n_cached + r->n_span == r->n_tokens;
        if (is_prefill) *n_prefill += r->n_span;
        *(is_prefill ? &load.prefill_keys : &load.decode_keys) += sp_keys_seen(r->n_cached, r->n_span);
    }
    return load;
}

void sp_policy_advance(sp_policy *p, size_t i, size_t n) {
    sp_policy_row *r = &p->running[i];
    size_t n_pages = sp_policy_needed(r, n);
    r->n_pages += n_pages;
    p->pages_free -= n_pages;
    r->n_cached += n;
}
