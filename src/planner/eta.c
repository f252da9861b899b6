#include "planner/eta.h"

#include <math.h>
#include <stdlib.h>

#include "util/size.h"

/* RECENT: weight of the latest pass in what rates are now, as far as its like was seen: a pass of a size that is new
 * says more of the size than of the hour. WAITS: from this share of a pass on it was the drive that
 * limited it; the first pass says too little of it unless it falls below FIRST_LEAST of what was known. DOUBT: shrinks
 * with the passes seen, from what a plan doubts to the noise of a machine. */
static const double recent = 0.35, waits = 0.15, first_least = 0.5, doubt_first = 0.25, doubt_least = 0.04,
                    doubt_passes = 12;
enum { LEFT_ROWS = 320 }; /* three simulations of them take a millisecond */

struct sp_eta {
    sp_plan plan;
    sp_cost cost; /* without corrections */
    sp_sim_job job;
    sp_observed observed;
    sp_simulator *simulator;
    sp_sim_row *running, *queued; /* [rows_max] */
    size_t rows_max;
    double slowness; /* recent passes against what all of them say */
    double disk_bps, disk_bytes;
    double n_passes;
};

sp_eta *sp_eta_new(const sp_model *model, const sp_machine *machine, const sp_plan *plan, const sp_observed *observed,
                   size_t rows_max) {
    sp_eta *eta = calloc(1, sizeof *eta);
    SP_CHECK(eta != NULL);
    eta->plan = *plan;
    sp_plan_cost(model, machine, NULL, &eta->cost);
    eta->job = sp_plan_sim_job(model, machine, plan);
    eta->job.first_read_s = 0;
    if (observed) eta->observed = *observed;
    eta->simulator = sp_simulator_new(plan->rows);
    eta->rows_max = rows_max;
    eta->running = calloc(rows_max, sizeof *eta->running);
    eta->queued = calloc(rows_max, sizeof *eta->queued);
    SP_CHECK(eta->running && eta->queued);
    eta->slowness = 1;
    return eta;
}

void sp_eta_free(sp_eta *eta) {
    if (!eta) return;
    sp_simulator_free(eta->simulator);
    free(eta->running);
    free(eta->queued);
    free(eta);
}

/* ---- what passes show ---- */

static void see_drive(sp_eta *eta, const sp_eta_pass *pass) {
    if (eta->plan.placement != SP_PLACE_STREAM || pass->bytes_read <= 0) return;
    double bps = pass->bytes_read / sp_cost_read_seconds(pass->seconds, pass->wait_seconds);
    bool limits = pass->wait_seconds >= waits * pass->seconds;
    if (pass->is_first && bps > first_least * eta->job.read_bps) limits = false; /* it hashed, and pages were new */
    if (limits) {
        eta->disk_bps = eta->disk_bps > 0 ? exp((1 - recent) * log(eta->disk_bps) + recent * log(bps)) : bps;
        eta->disk_bytes += pass->bytes_read;
    }
    double now_bps = limits ? eta->disk_bps : fmax(pass->bytes_read / pass->seconds, eta->job.read_bps);
    eta->job.read_bps = now_bps;
}

void sp_eta_add_pass(sp_eta *eta, const sp_eta_pass *pass) {
    if (pass->seconds <= 0) return;
    see_drive(eta, pass);
    eta->n_passes++;
    sp_pass_load load = pass->load;
    load.panel_share = sp_sim_panel_share(&eta->job, pass->bytes_read);
    if (pass->is_first || pass->was_spared)
        return; /* pages are touched for the first time, weights come from elsewhere */
    double read_s = eta->job.read_bps > 0 ? pass->bytes_read / eta->job.read_bps : 0;
    double compute_s = sp_cost_alone_seconds(pass->seconds, pass->wait_seconds, read_s);
    sp_cost cost = eta->cost;
    sp_cost_correct(&cost, &eta->observed.passes);
    double ratio = compute_s / fmax(sp_cost_compute_seconds(&cost, &load), 1e-9);
    double weight = recent * sp_cost_trust(&eta->observed.passes, load.n_tokens);
    eta->slowness = exp((1 - weight) * log(eta->slowness) + weight * log(fmin(fmax(ratio, 0.05), 20)));
    sp_cost_see(&eta->observed.passes, &eta->cost, &load, compute_s);
}

void sp_eta_add_row(sp_eta *eta, size_t n_new, size_t max_new) { sp_ends_see(&eta->observed.ends, n_new, max_new); }

/* ---- what is left ---- */

static void fill(sp_sim_row *to, const sp_eta_row *rows, size_t n, const sp_ends *ends) {
    for (size_t i = 0; i < n; i++)
        to[i] = (sp_sim_row){.n_tokens = rows[i].n_prompt + rows[i].n_new,
                             .n_cached = rows[i].n_cached,
                             .n_left = sp_ends_left(ends, i, rows[i].max_new, rows[i].n_new),
                             .n_new = rows[i].n_new,
                             .n_most = rows[i].max_new,
                             .block = rows[i].block};
}

static double seconds_with(sp_eta *eta, const sp_cost *cost, const sp_eta_rows *left, sp_ends ends) {
    sp_sim_job job = eta->job;
    job.n_running = sp_min_size(left->n_running, eta->rows_max);
    job.n_queued = sp_min_size(left->n_queued, eta->rows_max);
    fill(eta->running, left->running, job.n_running, &ends);
    fill(eta->queued, left->queued, job.n_queued, &ends);
    job.running = eta->running;
    job.queued = eta->queued;
    job.n_more = left->n_more;
    job.forest = left->forest;
    job.like = job.n_queued > 0 ? eta->queued : eta->running;
    job.n_like = job.n_queued > 0 ? job.n_queued : job.n_running;
    sp_ends likely = sp_ends_likely(&eta->observed.ends);
    job.share = sp_ends_share(&likely);
    return sp_simulate(eta->simulator, cost, &job, LEFT_ROWS, 0).seconds;
}

sp_estimate sp_eta_left(sp_eta *eta, const sp_eta_rows *left) {
    sp_cost cost = eta->cost;
    sp_cost_correct(&cost, &eta->observed.passes);
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) cost.scale[b] *= eta->slowness;
    double doubt = fmax(doubt_least, doubt_first / (1 + eta->n_passes / doubt_passes));
    const sp_ends_seen *seen = &eta->observed.ends;
    double likely_s = seconds_with(eta, &cost, left, sp_ends_likely(seen));
    double early_s = seconds_with(eta, &cost, left, sp_ends_early(seen));
    double latest_s = seconds_with(eta, &cost, left, (sp_ends){1, 1});
    return sp_estimate_range(early_s, likely_s, latest_s, doubt);
}

const sp_observed *sp_eta_observed(const sp_eta *eta) { return &eta->observed; }

double sp_eta_disk_bps(const sp_eta *eta, double *n_bytes) {
    *n_bytes = eta->disk_bytes;
    return eta->disk_bps;
}
