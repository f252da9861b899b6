/* Splits the memory budget and picks placement, rows, pinned layers and the size of a pass.
 *
 *     budget = overhead + ring + activations(pass_tokens, rows) + KV pages + pinned weights
 *
 * More rows share a pass, more pinned layers shorten it, and both want the same memory: candidates of (rows, KV pages,
 * pass_tokens) are tried, each with as many pinned layers as then fit, and the one whose simulation ends first is
 * taken. Candidates do not depend on the budget, only which of them fit it and how many layers they can pin does: so
 * more memory can only make the best better. A model that fits with all that its rows could want is resident without
 * a look at the others, which would at best save the few percent of a wider batch. */
#include "planner/plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "planner/layout.h"
#include "planner/pin.h"
#include "planner/policy.h"
#include "util/size.h"

/* ROWS: resident decode is bound by arithmetic from some tens of rows on, and results come sooner with fewer in
 * flight; where weights are streamed, every row is free until the disk is hidden. SELECT_ROWS, FINAL_ROWS: of a long
 * input, so many are simulated to choose, and to estimate. */
enum { ROWS_RESIDENT = 64, ROWS_STREAM = 256, ROW_TOKENS_UNKNOWN = 1024, ROWS_MAX = 1 << 16 };
enum { SELECT_ROWS = 1024, FINAL_ROWS = 2048, N_PASS_TOKENS = 6 };
static const size_t pass_tokens_tried[N_PASS_TOKENS] = {512, 1024, 2048, 256, 128, SP_KV_PAGE_TOKENS};

/* What a choice is made with where nothing was measured: a machine of today, per processor, and its drive. */
static const double assumed_flops[SP_RATE_POINTS] = {1e10, 4e10, 6e10, 8e10, 8e10};
static const double assumed_disk_bps = 2e9, assumed_cached_bps = 3e9, assumed_touch_bps = 3e9;
/* By how much rates may be wrong when the model has run here before, and when it has not. */
static const double doubt_seen = 0.2, doubt_unseen = 0.35;

typedef struct {
    const sp_model *model;
    const sp_machine *machine;
    const sp_plan_request *request;
    sp_cost cost;
    sp_simulator *simulator;
    sp_sim_row *rows; /* [n_rows] known ones, or one of average length */
    size_t n_rows, n_all;
    size_t average_pages, longest_pages;
    size_t average_own_pages, n_shared_pages; /* of average_pages, a row's own; pages that rows share */
    double share;                             /* of max_tokens that rows are expected to generate */
    double prompt_tokens, new_tokens;         /* of the rows that choices are simulated with, as they likely end */
    sp_plan best;
    double best_s;
    bool found;
} search;

/* ---- rates ---- */

static sp_rates assumed_rates(const sp_machine *machine) {
    sp_rates r = {.vector_bps = 4e9 * (double)machine->n_cpus, .call_s = 3e-6};
    for (size_t i = 0; i < SP_RATE_POINTS; i++) r.linear_flops[i] = assumed_flops[i] * (double)machine->n_cpus;
    r.decode_flops = r.prefill_flops = r.linear_flops[1];
    return r;
}

bool sp_plan_cost(const sp_model *model, const sp_machine *machine, const sp_observed *observed, sp_cost *cost) {
    bool known = machine->rates.linear_flops[0] > 0;
    sp_rates rates = known ? machine->rates : assumed_rates(machine);
    sp_cost_init(cost, model, &rates);
    if (observed) sp_cost_correct(cost, &observed->passes);
    return known;
}

sp_sim_job sp_plan_sim_job(const sp_model *model, const sp_machine *machine, const sp_plan *plan) {
    bool stream = plan->placement == SP_PLACE_STREAM;
    const sp_arch *arch = &model->arch;
    sp_sim_job job = {.rows = plan->rows,
                      .kv_pages = plan->kv_pages,
                      .pass_tokens = plan->pass_tokens,
                      .weight_bytes = (double)plan->weight_bytes,
                      .page_bytes = (double)plan->kv_token_bytes * SP_KV_PAGE_TOKENS};
    if (!stream) return job;
    for (size_t i = plan->n_pinned_layers; i < arch->n_layers; i++)
        job.streamed_bytes += (double)sp_layout_layer_bytes(model, sp_pin_order((uint32_t)arch->n_layers, (uint32_t)i));
    if (!plan->pin_head) {
        job.logits_bytes = (double)sp_layout_head_bytes(model);
        job.streamed_bytes += job.logits_bytes;
    }
    job.layer_bytes = (double)sp_layout_layer_bytes(model, 0);
    job.n_unpinned_layers = arch->n_layers - plan->n_pinned_layers;
    job.read_bps = machine->disk_bps > 0 ? machine->disk_bps : assumed_disk_bps;
    job.first_read_s = (double)plan->weight_bytes / job.read_bps; /* all: pinned layers come, and content is hashed */
    return job;
}

/* Weights that stay come out of the page cache, where an earlier run has left them or the drive puts them now; then
 * their memory is touched, hashed and put in panel form: assumed_touch_bps. */
static double load_seconds(const search *s, const sp_plan *plan) {
    double disk_bps = s->machine->disk_bps > 0 ? s->machine->disk_bps : assumed_disk_bps;
    double cached_bps = s->machine->cached_bps > 0 ? s->machine->cached_bps : assumed_cached_bps;
    double share = s->request->cached_share;
    return (double)plan->weight_bytes * (1 / cached_bps + (1 - share) / disk_bps + 1 / assumed_touch_bps);
}

/* ---- rows ---- */

/* Tokens of a known row that other rows' pages hold too. */
static size_t shared_tokens(const sp_plan_request *request, size_t i) {
    uint32_t block = request->known[i].block;
    return block ? request->forest->blocks[block].depth * (size_t)SP_KV_PAGE_TOKENS : 0;
}

/* Tokens of an average row of the request. */
static size_t average_tokens(const sp_plan_request *request) {
    size_t n_tokens = request->prompt_tokens + request->new_tokens;
    if (request->n_rows > 0 && n_tokens > 0) return sp_max_size(1, sp_div_up(n_tokens, request->n_rows));
    return request->row_tokens_max > 0 ? request->row_tokens_max : ROW_TOKENS_UNKNOWN;
}

static size_t rows_most(const sp_plan_request *request, sp_placement placement) {
    size_t n_rows = placement == SP_PLACE_RESIDENT ? ROWS_RESIDENT : ROWS_STREAM;
    if (request->rows_cap > 0) n_rows = request->rows_cap;
    if (request->n_rows > 0) n_rows = sp_min_size(n_rows, request->n_rows);
    return sp_min_size(n_rows, ROWS_MAX);
}

static sp_plan_row row_at(const search *s, size_t i) {
    const sp_plan_request *r = s->request;
    if (r->n_known > 0) return r->known[i];
    size_t n_tokens = average_tokens(r), max_new = sp_max_size(1, n_tokens / 4);
    if (r->n_rows > 0 && r->new_tokens > 0) max_new = sp_max_size(1, r->new_tokens / r->n_rows);
    return (sp_plan_row){n_tokens > max_new ? n_tokens - max_new : 1, max_new, 0};
}

static void fill_rows(search *s, const sp_ends *ends) {
    for (size_t i = 0; i < s->n_rows; i++) {
        sp_plan_row row = row_at(s, i);
        s->rows[i] = (sp_sim_row){.n_tokens = row.n_prompt,
                                  .n_left = sp_ends_left(ends, i, row.max_new, 0),
                                  .n_most = row.max_new,
                                  .block = row.block};
    }
}

static void begin(search *s) {
    const sp_plan_request *r = s->request;
    s->n_rows = r->n_known > 0 ? r->n_known : 1;
    s->n_all = sp_max_size(s->n_rows, r->n_rows > 0 ? r->n_rows : rows_most(r, SP_PLACE_STREAM));
    s->rows = calloc(s->n_rows, sizeof *s->rows);
    SP_CHECK(s->rows != NULL);
    s->simulator = sp_simulator_new(sp_max_size(rows_most(r, SP_PLACE_RESIDENT), rows_most(r, SP_PLACE_STREAM)));
    s->average_pages = sp_div_up(average_tokens(r), SP_KV_PAGE_TOKENS);
    s->average_own_pages = s->average_pages;
    if (r->forest && r->n_known > 0) {
        size_t n_shared = 0; /* pages */
        for (size_t i = 0; i < r->n_known; i++) n_shared += shared_tokens(r, i) / SP_KV_PAGE_TOKENS;
        s->average_own_pages -= sp_min_size(n_shared / r->n_known, s->average_pages - 1);
        s->n_shared_pages = r->forest->n_blocks;
    }
    size_t longest = r->n_known == 0 ? sp_max_size(r->row_tokens_max, average_tokens(r)) : 1;
    for (size_t i = 0; i < r->n_known; i++) longest = sp_max_size(longest, r->known[i].n_prompt + r->known[i].max_new);
    s->longest_pages = sp_max_size(s->average_pages, sp_div_up(longest, SP_KV_PAGE_TOKENS));
    sp_ends ends = sp_ends_likely(r->observed ? &r->observed->ends : &(sp_ends_seen){0});
    s->share = sp_ends_share(&ends);
    fill_rows(s, &ends);
    for (size_t i = 0; i < s->n_rows; i++) {
        double times = (double)sp_min_size(s->n_all, SELECT_ROWS) / (double)s->n_rows;
        s->new_tokens += (double)s->rows[i].n_left * times;
        s->prompt_tokens += (double)(s->rows[i].n_tokens - (s->rows[i].block ? shared_tokens(r, i) : 0)) * times;
    }
}

/* ---- memory ---- */

static void pin(sp_plan *plan, uint64_t n_bytes) {
    plan->pinned_bytes += n_bytes;
    plan->overhead_bytes += SP_LAYOUT_PIN_SLACK;
}

/* Pins what left_bytes hold, layers first. A plan that was asked to stream leaves a layer and the head to do so. */
static void pin_layers(const sp_model *model, const sp_plan_request *request, sp_plan *plan, uint64_t left_bytes) {
    size_t n_layers = model->arch.n_layers, n_most = n_layers - (request->placement == SP_PLACE_STREAM);
    while (plan->n_pinned_layers < n_most) {
        uint32_t layer = sp_pin_order((uint32_t)n_layers, (uint32_t)plan->n_pinned_layers);
        uint64_t n_bytes = sp_layout_layer_bytes(model, layer);
        if (n_bytes + SP_LAYOUT_PIN_SLACK > left_bytes) return;
        left_bytes -= n_bytes + SP_LAYOUT_PIN_SLACK;
        pin(plan, n_bytes);
        plan->n_pinned_layers++;
    }
    uint64_t head_bytes = sp_layout_head_bytes(model);
    if (n_most < n_layers || head_bytes + SP_LAYOUT_PIN_SLACK > left_bytes) return;
    pin(plan, head_bytes);
    plan->pin_head = true;
}

static uint64_t resident_bytes(const sp_model *model) {
    uint64_t n_bytes = sp_layout_head_bytes(model) + sp_layout_embed_bytes(model);
    for (size_t l = 0; l < model->arch.n_layers; l++) n_bytes += sp_layout_layer_bytes(model, l);
    return n_bytes;
}

static uint64_t total_bytes(const sp_plan *p) {
    return p->overhead_bytes + p->ring_bytes + p->activation_bytes + p->kv_bytes + p->pinned_bytes;
}

static void set_kv(sp_plan *plan, size_t n_pages) {
    plan->kv_pages = n_pages;
    plan->kv_bytes = (uint64_t)n_pages * SP_KV_PAGE_TOKENS * plan->kv_token_bytes;
}

uint64_t sp_plan_budget_bytes(const sp_machine *machine, uint64_t memory_bytes) {
    return memory_bytes ? memory_bytes : machine->limit_bytes / 4 * 3;
}

/* The least that this candidate takes: all weights when resident, none when streamed. */
static void lay_out(const search *s, sp_placement placement, size_t rows, size_t kv_pages, size_t pass_tokens,
                    sp_plan *plan) {
    const sp_plan_request *r = s->request;
    memset(plan, 0, sizeof *plan); /* plans are compared as bytes */
    plan->placement = placement;
    plan->mode = r->mode;
    plan->budget_bytes = sp_plan_budget_bytes(s->machine, r->memory_bytes);
    plan->weight_bytes = s->model->weight_bytes;
    plan->kv_token_bytes = sp_layout_kv_token_bytes(&s->model->arch, r->mode);
    plan->rows = rows;
    plan->pass_tokens = pass_tokens;
    if (placement == SP_PLACE_STREAM) {
        plan->read_backend = s->machine->read_backend;
        plan->read_depth = s->machine->read_depth;
        plan->read_request_bytes = s->machine->read_request_bytes;
    }
    sp_layout_fill(s->model, plan);
    set_kv(plan, kv_pages);
    if (placement == SP_PLACE_STREAM) return;
    plan->n_pinned_layers = s->model->arch.n_layers;
    plan->pin_head = plan->keep_embed = true;
    plan->pinned_bytes = resident_bytes(s->model);
    plan->overhead_bytes += (s->model->arch.n_layers + 2) * (uint64_t)SP_LAYOUT_PIN_SLACK;
}

/* ---- choice ---- */

static sp_sim_result simulate(search *s, const sp_plan *plan, size_t max_rows, double stop_s) {
    sp_sim_job job = sp_plan_sim_job(s->model, s->machine, plan);
    if (plan->placement == SP_PLACE_RESIDENT) job.first_read_s = load_seconds(s, plan);
    job.queued = job.like = s->rows;
    job.n_queued = job.n_like = s->n_rows;
    job.n_more = s->n_all - s->n_rows;
    job.share = s->share;
    job.forest = s->request->forest;
    return sp_simulate(s->simulator, &s->cost, &job, max_rows, stop_s);
}

/* Every place taken all the time, every pass full, no attention: no schedule is faster. */
static double least_seconds(const search *s, const sp_plan *plan) {
    sp_sim_job job = sp_plan_sim_job(s->model, s->machine, plan);
    sp_pass_load load = {.n_tokens = plan->rows, .n_logits = plan->rows, .panel_share = 1};
    sp_pass_load full = {.n_tokens = plan->pass_tokens, .panel_share = 1};
    double read_bytes = job.streamed_bytes - (double)plan->kv_bytes; /* the tail pins layers in place of KV */
    double read_s = job.read_bps > 0 && read_bytes > 0 ? read_bytes / job.read_bps : 0;
    double n_decode = s->new_tokens / (double)plan->rows, n_full = s->prompt_tokens / (double)plan->pass_tokens;
    double decode_s = n_decode * sp_cost_compute_seconds(&s->cost, &load);
    double prefill_s = n_full * sp_cost_compute_seconds(&s->cost, &full);
    double disk_s = n_decode * read_s, compute_s = decode_s > prefill_s ? decode_s : prefill_s;
    return 0.9 * (compute_s > disk_s ? compute_s : disk_s);
}

/* False: it does not fit. */
static bool try_candidate(search *s, sp_placement placement, size_t rows, size_t kv_pages, size_t pass_tokens) {
    sp_plan plan;
    lay_out(s, placement, rows, kv_pages, pass_tokens, &plan);
    if (total_bytes(&plan) > plan.budget_bytes) return false;
    if (placement == SP_PLACE_STREAM) pin_layers(s->model, s->request, &plan, plan.budget_bytes - total_bytes(&plan));
    if (s->found && least_seconds(s, &plan) >= s->best_s) return true;
    double seconds = simulate(s, &plan, SELECT_ROWS, s->found ? s->best_s : 0).seconds;
    if (s->found && seconds >= s->best_s) return true;
    s->best = plan;
    s->best_s = seconds;
    s->found = true;
    return true;
}

/* KV pages with which the policy lets so many average rows in at once. */
static size_t roomy_pages(const search *s, size_t rows) {
    size_t n_shared = (s->average_pages - s->average_own_pages) * SP_KV_PAGE_TOKENS; /* less than a row's */
    size_t n_own = average_tokens(s->request) - n_shared;
    return sp_policy_roomy_pages(rows, rows * n_own + s->n_shared_pages * SP_KV_PAGE_TOKENS);
}

/* Rows from the most downwards by steps of 3/4 and 1/2; KV for rows of average length, barely and with room, and of
 * greatest length. */
static void try_rows(search *s, sp_placement placement, size_t pass_tokens) {
    size_t n_most = rows_most(s->request, placement);
    for (size_t half = n_most; half > 0; half /= 2) {
        for (size_t quarters = 4; quarters >= 3; quarters--) {
            size_t rows = half * quarters / 4;
            if (rows == 0 || (quarters == 3 && rows <= half / 2)) continue;
            size_t least = sp_max_size(rows * s->average_own_pages + s->n_shared_pages, s->longest_pages);
            const size_t more[] = {roomy_pages(s, rows), rows * s->longest_pages};
            bool fits = try_candidate(s, placement, rows, least, pass_tokens);
            for (size_t i = 0; fits && i < 2; i++)
                if (more[i] > least) try_candidate(s, placement, rows, more[i], pass_tokens);
        }
    }
}

/* A pass need not hold more tokens than there are. */
static size_t pass_tokens_most(const sp_plan_request *request, size_t n_rows) {
    if (request->pass_tokens > 0) return request->pass_tokens;
    return request->prompt_tokens > 0 ? sp_max_size(request->prompt_tokens, n_rows) : SIZE_MAX;
}

static void try_placement(search *s, sp_placement placement) {
    size_t n_most = pass_tokens_most(s->request, rows_most(s->request, placement)), last = 0;
    for (size_t i = 0; i < N_PASS_TOKENS; i++) {
        if (placement == SP_PLACE_RESIDENT && pass_tokens_tried[i] > 512) continue; /* nothing to hide */
        size_t pass_tokens = s->request->pass_tokens ? n_most : sp_min_size(n_most, pass_tokens_tried[i]);
        if (pass_tokens == last) continue;
        try_rows(s, placement, pass_tokens);
        last = pass_tokens;
    }
}

/* All that rows could want, and the policy keeps back, fits beside the whole model: no need to look further. */
static bool try_ample(search *s) {
    size_t rows = rows_most(s->request, SP_PLACE_RESIDENT), n_most = pass_tokens_most(s->request, rows);
    size_t pass_tokens = s->request->pass_tokens ? n_most : sp_min_size(n_most, pass_tokens_tried[0]);
    size_t kv_pages = sp_max_size(rows * s->longest_pages, roomy_pages(s, rows));
    lay_out(s, SP_PLACE_RESIDENT, rows, kv_pages, pass_tokens, &s->best);
    s->found = total_bytes(&s->best) <= s->best.budget_bytes;
    return s->found;
}

static bool is_allowed(const search *s, sp_placement placement) {
    return s->request->placement == SP_PLACE_AUTO || s->request->placement == placement;
}

/* One row at a time, with pages for one of average length at least. False: *need_bytes would do. */
static bool try_least(search *s, uint64_t *need_bytes, sp_placement *least) {
    *need_bytes = UINT64_MAX;
    for (sp_placement placement = SP_PLACE_RESIDENT; placement <= SP_PLACE_STREAM; placement++) {
        if (!is_allowed(s, placement)) continue;
        sp_plan plan;
        size_t pass_tokens = sp_min_size(SP_KV_PAGE_TOKENS, pass_tokens_most(s->request, 1));
        if (s->request->pass_tokens > 0) pass_tokens = s->request->pass_tokens;
        lay_out(s, placement, 1, s->average_pages, pass_tokens, &plan);
        if (total_bytes(&plan) < *need_bytes) {
            *need_bytes = total_bytes(&plan);
            *least = placement;
            s->best = plan;
        }
    }
    return s->best.budget_bytes >= *need_bytes;
}

/* What is left over holds pages for longer rows than are known: memory only if they come. */
static void extend_kv(const search *s, sp_plan *plan) {
    size_t longest = sp_div_up(s->request->row_tokens_max, SP_KV_PAGE_TOKENS);
    size_t n_wanted = plan->rows * sp_max_size(longest, s->longest_pages);
    uint64_t page_bytes = plan->kv_token_bytes * SP_KV_PAGE_TOKENS;
    if (n_wanted <= plan->kv_pages || page_bytes == 0) return;
    size_t n_more = (size_t)((plan->budget_bytes - total_bytes(plan)) / page_bytes);
    set_kv(plan, sp_min_size(n_wanted, plan->kv_pages + n_more));
}

/* ---- estimate ---- */

static double seconds_with(search *s, const sp_plan *plan, sp_ends ends, double *n_passes) {
    fill_rows(s, &ends);
    sp_sim_result result = simulate(s, plan, FINAL_ROWS, 0);
    *n_passes = result.n_passes;
    return s->request->elapsed_s + result.seconds;
}

static void estimate(search *s, sp_plan *plan) {
    const sp_observed *seen = s->request->observed;
    sp_sim_job job = sp_plan_sim_job(s->model, s->machine, plan);
    size_t context = average_tokens(s->request) / 2;
    sp_pass_load load = {.n_tokens = plan->rows,
                         .n_logits = plan->rows,
                         .decode_keys = (double)plan->rows * (double)context,
                         .panel_share = sp_sim_panel_share(&job, job.streamed_bytes)};
    double read_s = job.read_bps > 0 ? job.streamed_bytes / job.read_bps : 0;
    plan->pass_seconds = sp_cost_pass_seconds(&s->cost, &load, read_s);
    if (s->request->n_rows == 0) return;
    static const sp_ends_seen nothing = {0};
    const sp_ends_seen *ends = seen ? &seen->ends : &nothing;
    double n_passes;
    double early_s = seconds_with(s, plan, sp_ends_early(ends), &n_passes);
    double latest_s = seconds_with(s, plan, (sp_ends){1, 1}, &n_passes);
    double likely_s = seconds_with(s, plan, sp_ends_likely(ends), &plan->estimate_passes);
    bool is_seen = seen && sp_cost_is_seen(&seen->passes);
    plan->estimate = sp_estimate_range(early_s, likely_s, latest_s, is_seen ? doubt_seen : doubt_unseen);
}

/* ---- the whole ---- */

static bool refuse(const search *s, uint64_t need_bytes, sp_placement least, sp_error *err) {
    unsigned long long need_mb = (need_bytes >> 20) + 1;
    return sp_fail(err, SP_ERR_MEMORY,
                   "memory: %lluM wanted to %s %s with one row of %zu tokens, %lluM found; give --memory %lluM",
                   need_mb, least == SP_PLACE_STREAM ? "stream" : "hold", s->model->name, average_tokens(s->request),
                   (unsigned long long)(s->best.budget_bytes >> 20), need_mb);
}

static bool choose(search *s, sp_plan *plan, sp_error *err) {
    bool ample = is_allowed(s, SP_PLACE_RESIDENT) && try_ample(s);
    if (!ample && is_allowed(s, SP_PLACE_RESIDENT)) try_placement(s, SP_PLACE_RESIDENT);
    if (!ample && is_allowed(s, SP_PLACE_STREAM)) try_placement(s, SP_PLACE_STREAM);
    uint64_t need_bytes;
    sp_placement least = SP_PLACE_RESIDENT;
    if (!s->found && !try_least(s, &need_bytes, &least)) return refuse(s, need_bytes, least, err);
    *plan = s->best;
    return true;
}

bool sp_plan_build(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, sp_plan *plan,
                   sp_error *err) {
    search s = {.model = model, .machine = machine, .request = request};
    bool rates_known = sp_plan_cost(model, machine, request->observed, &s.cost);
    begin(&s);
    sp_plan chosen = {0};
    bool good = choose(&s, &chosen, err);
    if (good && rates_known && (chosen.placement == SP_PLACE_RESIDENT || machine->disk_bps > 0)) estimate(&s, &chosen);
    if (good) extend_kv(&s, &chosen);
    sp_simulator_free(s.simulator);
    free(s.rows);
    if (good) *plan = chosen;
    return good;
}
