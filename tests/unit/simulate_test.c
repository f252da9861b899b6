/* Schedules, costs, estimates and time left on invented machines: no clock, no drive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_synthetic.h"
#include "kernels/ops.h"
#include "planner/eta.h"
#include "planner/history.h"
#include "planner/simulate.h"
#include "util/clock.h"
#include "util/rng.h"

/* A pass takes a second and a millisecond for each token, whatever is in it. */
static sp_cost unit_cost(void) {
    sp_cost cost = {.layer_weights = 1, .rates = {.decode_flops = 1, .prefill_flops = 1, .vector_bps = 1}};
    for (size_t i = 0; i < SP_RATE_POINTS; i++) {
        double n_tokens = (double)sp_rate_tokens[i];
        cost.rates.linear_flops[i] = 2 * n_tokens / (1 + 0.001 * n_tokens);
    }
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) cost.scale[b] = 1;
    return cost;
}

static sp_sim_result simulate(const sp_sim_job *job, size_t max_rows) {
    sp_cost cost = unit_cost();
    sp_simulator *s = sp_simulator_new(job->rows);
    sp_sim_result result = sp_simulate(s, &cost, job, max_rows, 0);
    sp_simulator_free(s);
    return result;
}

/* ---- schedules ---- */

static void one_row_is_counted(void **state) {
    (void)state;
    const sp_sim_row row = {.n_tokens = 100, .n_left = 10};
    sp_sim_job job = {.queued = &row, .n_queued = 1, .rows = 4, .kv_pages = 100, .pass_tokens = 32};
    sp_sim_result r = simulate(&job, 100);
    assert_true(r.n_passes == 13); /* 32 + 32 + 32 + 4, whose last gives a token; then 9 */
    assert_true(r.n_prefill == 100 && r.n_decode == 9);
    assert_true(fabs(r.seconds - (13 + 0.109)) < 1e-9);
}

static void decode_goes_first_and_places_are_refilled(void **state) {
    (void)state;
    const sp_sim_row rows[] = {
        {.n_tokens = 8, .n_left = 3}, {.n_tokens = 8, .n_left = 5}, {.n_tokens = 8, .n_left = 2}};
    sp_sim_job job = {.queued = rows, .n_queued = 3, .rows = 2, .kv_pages = 100, .pass_tokens = 16};
    sp_sim_result r = simulate(&job, 100);
    /* pass 1: prompts of a and b; 2, 3: both decode, a ends; 4: b decodes, prompt of c; 5: both, both end */
    assert_true(r.n_passes == 5 && r.n_prefill == 24 && r.n_decode == 7);
}

static void the_newest_gives_way(void **state) {
    (void)state;
    const sp_sim_row rows[] = {{.n_tokens = 60, .n_left = 40}, {.n_tokens = 62, .n_left = 38}};
    sp_sim_job job = {.queued = rows, .n_queued = 2, .rows = 2, .kv_pages = 5, .pass_tokens = 128};
    sp_sim_result careful = simulate(&job, 100); /* one after the other */
    job.share = 0.1;                             /* they are thought to end soon: both join */
    sp_sim_result tight = simulate(&job, 100);
    job.kv_pages = 100;
    sp_sim_result ample = simulate(&job, 100);
    assert_true(tight.n_prefill > ample.n_prefill && tight.seconds > ample.seconds);
    assert_true(ample.n_prefill == 122 && ample.n_decode == 76);
    assert_true(careful.n_prefill == 122 && careful.n_passes == 78);
    job.kv_pages = 2; /* neither can ever finish: they leave */
    sp_sim_result small = simulate(&job, 100);
    assert_true(small.n_passes > 5 && small.n_passes < 20);
}

/* Steps of many passes give what single passes give. */
static void quiet_passes_are_counted_as_many(void **state) {
    (void)state;
    for (uint64_t key = 0; key < 50; key++) {
        sp_sim_row rows[40];
        double n_new = 0, n_prompt = 0;
        for (size_t i = 0; i < 40; i++) {
            rows[i] = (sp_sim_row){.n_tokens = 1 + (size_t)(sp_rng_uniform(key, 2 * i) * 500),
                                   .n_left = 1 + (size_t)(sp_rng_uniform(key, 2 * i + 1) * 300)};
            n_new += (double)rows[i].n_left - 1; /* the first comes with the prompt */
            n_prompt += (double)rows[i].n_tokens;
        }
        sp_sim_job job = {.queued = rows, .n_queued = 40, .rows = 8, .kv_pages = 4000, .pass_tokens = 128};
        sp_sim_result r = simulate(&job, 100);
        assert_true(r.n_prefill + r.n_decode == n_prompt + n_new); /* a last token of a prompt counts as decode */
        assert_true(fabs(r.seconds - (r.n_passes + 0.001 * (n_prompt + n_new))) < 1e-6 * r.seconds);
    }
}

static void long_inputs_are_extrapolated_in_milliseconds(void **state) {
    (void)state;
    sp_sim_row rows[256];
    for (size_t i = 0; i < 256; i++)
        rows[i] = (sp_sim_row){.n_tokens = 20 + (size_t)(sp_rng_uniform(1, i) * 400), .n_left = 1 + i % 200};
    sp_sim_job job = {.queued = rows,
                      .n_queued = 256,
                      .like = rows,
                      .n_like = 256,
                      .n_more = 9744,
                      .rows = 64,
                      .kv_pages = 100000,
                      .pass_tokens = 512};
    uint64_t start_ns = sp_clock_ns();
    sp_sim_result all = simulate(&job, SIZE_MAX);
    double all_s = (double)(sp_clock_ns() - start_ns) * 1e-9;
    sp_sim_result some = simulate(&job, 1024);
    assert_true(fabs(some.seconds / all.seconds - 1) < 0.02);
    assert_true(all_s < 2); /* 10 ms on an idle machine */
}

static void freed_pages_pin_layers(void **state) {
    (void)state;
    const sp_sim_row rows[] = {{.n_tokens = 10, .n_left = 10}, {.n_tokens = 10, .n_left = 200}};
    sp_sim_job job = {.queued = rows,
                      .n_queued = 2,
                      .rows = 2,
                      .kv_pages = 100,
                      .pass_tokens = 64,
                      .streamed_bytes = 100,
                      .read_bps = 10,
                      .page_bytes = 1,
                      .layer_bytes = 10,
                      .n_unpinned_layers = 10};
    assert_int_equal(sp_sim_freed_layers(&job, 100), 0);
    assert_int_equal(sp_sim_freed_layers(&job, 79), 2);
    assert_int_equal(sp_sim_freed_layers(&job, 0), 10);
    double seconds = simulate(&job, 10).seconds;
    job.n_unpinned_layers = 0;
    assert_true(seconds < 0.5 * simulate(&job, 10).seconds);
}

/* Rows that begin alike: the estimate counts their prefix once, from the start and under way. */
static void a_common_prefix_is_counted_once(void **state) {
    (void)state;
    sp_block blocks[] = {{0}, {.depth = 1}, {.parent = 1, .depth = 2}};
    const sp_forest forest = {blocks, 3};
    sp_sim_row rows[10];
    for (size_t i = 0; i < 10; i++) rows[i] = (sp_sim_row){.n_tokens = 70, .n_left = 4, .block = 2};
    sp_sim_job job = {.queued = rows, .n_queued = 10, .like = rows, .n_like = 10, .n_more = 10, .forest = &forest};
    job.rows = 5, job.kv_pages = 30, job.pass_tokens = 128;
    sp_sim_result r = simulate(&job, 100);
    assert_true(r.n_prefill == 64 + 20 * 6 && r.n_passes == 16); /* five begin in the pass that fills the prefix */
    for (size_t i = 0; i < 3; i++) rows[i].n_cached = 69;
    job.running = rows, job.n_running = 3;
    job.queued = rows + 3, job.n_queued = 7;
    r = simulate(&job, 100);
    assert_true(r.n_prefill == 17 * 6);
    job.forest = NULL;
    for (size_t i = 0; i < 10; i++) rows[i].block = 0;
    assert_true(simulate(&job, 100).n_prefill == 17 * 70);
}

/* ---- estimates ---- */

static void rows_end_as_they_were_seen_to(void **state) {
    (void)state;
    sp_ends_seen seen = {0};
    sp_ends none = sp_ends_likely(&seen);
    assert_true(none.full_share == 1);
    assert_int_equal(sp_ends_left(&none, 7, 100, 40), 60);
    for (int i = 0; i < 3000; i++) sp_ends_see(&seen, i % 4 ? 30 : 100, 100);
    assert_true(seen.n_rows <= 1000);
    sp_ends likely = sp_ends_likely(&seen);
    assert_true(fabs(likely.full_share - 0.25) < 0.01 && fabs(likely.fraction - 0.3) < 0.01);
    size_t n_tokens = 0;
    for (size_t i = 0; i < 1000; i++) n_tokens += sp_ends_left(&likely, i, 100, 0);
    assert_in_range(n_tokens, 46500, 48500);              /* 250 x 100 + 750 x 30 */
    assert_true(sp_ends_left(&likely, 1, 100, 90) == 10); /* past its likely end: it may go to the last */
}

static sp_machine machine_of(double flops, double disk_bps) {
    sp_machine m = {.ram_bytes = 24ull << 30, .limit_bytes = 24ull << 30, .n_cpus = 2, .disk_bps = disk_bps};
    m.rates = (sp_rates){.linear_flops = {flops / 8, flops / 2, flops, flops, flops},
                         .decode_flops = flops,
                         .prefill_flops = flops,
                         .vector_bps = 1e10,
                         .call_s = 1e-6,
                         .isa = "avx2",
                         .format = "BF16",
                         .measured_s = 5};
    return m;
}

enum { N_ROWS = 24, N_PROMPT = 100, N_NEW = 40 };

typedef struct {
    sp_model *model;
    sp_plan plan;
    sp_eta *eta;
    sp_eta_row rows[N_ROWS];
} run;

static void open_run(run *r, const sp_machine *m, const sp_observed *observed) {
    static const synthetic_shape shape = {80, 8192, 64, 8, 128, 28672, 128256, false};
    static sp_plan_row known[N_ROWS];
    for (size_t i = 0; i < N_ROWS; i++) known[i] = (sp_plan_row){N_PROMPT, N_NEW, 0};
    r->model = synthetic_new(&shape, NULL);
    const sp_plan_request request = {.memory_bytes = 8ull << 30,
                                     .n_rows = N_ROWS,
                                     .prompt_tokens = N_ROWS * N_PROMPT,
                                     .new_tokens = N_ROWS * N_NEW,
                                     .row_tokens_max = N_PROMPT + N_NEW,
                                     .known = known,
                                     .n_known = N_ROWS,
                                     .observed = observed};
    sp_error err = {0};
    assert_true(sp_plan_build(r->model, m, &request, &r->plan, &err));
    r->eta = sp_eta_new(r->model, m, &r->plan, observed, N_ROWS);
    for (size_t i = 0; i < N_ROWS; i++) r->rows[i] = (sp_eta_row){N_PROMPT, 1, N_NEW, N_PROMPT, 0};
}

static void close_run(run *r) {
    sp_eta_free(r->eta);
    synthetic_free(r->model);
}

/* One decode pass of all rows at this rate of the drive; what is left afterwards. */
static sp_estimate pass(run *r, double disk_bps, bool is_first) {
    double n_bytes = (double)r->model->weight_bytes, seconds = n_bytes / disk_bps;
    const sp_eta_pass seen = {.load = {.n_tokens = N_ROWS, .n_logits = N_ROWS, .decode_keys = N_ROWS * N_PROMPT},
                              .seconds = seconds,
                              .wait_seconds = 0.8 * seconds,
                              .bytes_read = n_bytes,
                              .is_first = is_first};
    sp_eta_add_pass(r->eta, &seen);
    for (size_t i = 0; i < N_ROWS; i++) r->rows[i].n_new++, r->rows[i].n_cached++;
    return sp_eta_left(r->eta, &(sp_eta_rows){.running = r->rows, .n_running = N_ROWS});
}

static void what_is_left_narrows(void **state) {
    (void)state;
    run r;
    sp_machine m = machine_of(4e12, 2e9);
    open_run(&r, &m, NULL);
    sp_estimate first = pass(&r, 2e9, true), last = first;
    for (int i = 0; i < 20; i++) last = pass(&r, 2e9, false);
    assert_true(last.low_s <= last.likely_s && last.likely_s <= last.high_s && last.likely_s < first.likely_s);
    assert_true(last.high_s / last.likely_s < first.high_s / first.likely_s);
    double truth_s = (double)(N_NEW - r.rows[0].n_new) * (double)r.model->weight_bytes / 2e9;
    assert_true(fabs(last.likely_s / truth_s - 1) < 0.25); /* its tail pins layers */
    close_run(&r);
}

static void a_drive_that_slows_down_shows(void **state) {
    (void)state;
    run r;
    sp_machine m = machine_of(4e12, 2e9);
    open_run(&r, &m, NULL);
    sp_estimate before = {0}, after = {0};
    for (int i = 0; i < 10; i++) before = pass(&r, 2e9, i == 0);
    for (int i = 0; i < 6; i++) after = pass(&r, 2e8, false);
    assert_true(after.likely_s > 5 * before.likely_s);
    close_run(&r);
}

static void earlier_runs_correct_the_rates(void **state) {
    (void)state;
    run r;
    sp_machine m = machine_of(1e11, 2e10);
    sp_observed observed = {0};
    sp_cost cost;
    open_run(&r, &m, NULL);
    sp_plan_cost(r.model, &m, NULL, &cost);
    const sp_pass_load load = {.n_tokens = 32, .n_logits = 32};
    for (int i = 0; i < 50; i++) sp_cost_see(&observed.passes, &cost, &load, 3 * sp_cost_plain_seconds(&cost, &load));
    double plain_s = r.plan.estimate.likely_s;
    close_run(&r);
    open_run(&r, &m, &observed);
    assert_true(fabs(r.plan.estimate.likely_s / plain_s - 3) < 0.5);
    close_run(&r);
}

/* What a pass says of its products is what its cost was computed from, whichever was the limit. */
static void products_are_told_from_reads(void **state) {
    (void)state;
    run r;
    sp_machine m = machine_of(1e11, 2e10);
    sp_cost cost;
    open_run(&r, &m, NULL);
    sp_plan_cost(r.model, &m, NULL, &cost);
    const sp_pass_load load = {.n_tokens = 32, .n_logits = 32};
    double compute_s = sp_cost_compute_seconds(&cost, &load);
    for (int i = 0; i < 8; i++) {
        double read_s = 0.5 * i * compute_s, wait_s = fmax(read_s - compute_s, 0);
        double pass_s = sp_cost_pass_seconds(&cost, &load, read_s);
        assert_true(fabs(sp_cost_alone_seconds(pass_s, wait_s, read_s) / compute_s - 1) < 1e-9);
        if (wait_s > 0) assert_true(fabs(sp_cost_read_seconds(pass_s, wait_s) / read_s - 1) < 1e-9);
    }
    close_run(&r);
}

/* ---- history ---- */

static void history_is_kept_by_model_and_rates(void **state) {
    (void)state;
    char path[] = "/tmp/spill-history-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    sp_rates rates = machine_of(1e11, 1e9).rates;
    sp_observed a = {0}, b;
    sp_error err = {0};
    a.passes.n_passes[3] = 9, a.passes.plain_s[3] = 2, a.passes.actual_s[3] = 3;
    a.ends = (sp_ends_seen){10, 4, 3};
    for (int i = 0; i < SP_HISTORY_ENTRIES + 5; i++) {
        char model[16];
        snprintf(model, sizeof model, "model%d", i);
        const sp_history_key key = {model, &rates};
        assert_true(sp_history_save(path, &key, &a, &err));
    }
    const sp_history_key gone = {"model2", &rates}, kept = {"model20", &rates};
    sp_history_load(path, &gone, &b);
    assert_true(b.ends.n_rows == 0);
    sp_history_load(path, &kept, &b);
    assert_memory_equal(&a, &b, sizeof a);
    sp_rates newer = rates;
    newer.measured_s++; /* other rates: where rows end is still true, what passes took in terms of them is not */
    const sp_history_key other = {"model20", &newer};
    sp_history_load(path, &other, &b);
    assert_true(b.ends.n_rows == 10 && !sp_cost_is_seen(&b.passes));
    FILE *file = fopen(path, "w");
    fputs("[{\"key\": 3, \"passes\": [1]}, {\"key\": \"model20 bf16 avx2 BF16 0\", \"rows\": [\"a\", -1]}]", file);
    fclose(file);
    sp_history_load(path, &kept, &b);
    assert_true(b.ends.n_rows == 0);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row_is_counted),
        cmocka_unit_test(decode_goes_first_and_places_are_refilled),
        cmocka_unit_test(the_newest_gives_way),
        cmocka_unit_test(quiet_passes_are_counted_as_many),
        cmocka_unit_test(long_inputs_are_extrapolated_in_milliseconds),
        cmocka_unit_test(freed_pages_pin_layers),
        cmocka_unit_test(a_common_prefix_is_counted_once),
        cmocka_unit_test(rows_end_as_they_were_seen_to),
        cmocka_unit_test(products_are_told_from_reads),
        cmocka_unit_test(what_is_left_narrows),
        cmocka_unit_test(a_drive_that_slows_down_shows),
        cmocka_unit_test(earlier_runs_correct_the_rates),
        cmocka_unit_test(history_is_kept_by_model_and_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
