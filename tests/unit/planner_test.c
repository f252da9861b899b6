/* Properties of plans on models and machines of any size, the texts, and cgroup limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_synthetic.h"
#include "kernels/ops.h"
#include "planner/layout.h"
#include "planner/machine.h"
#include "planner/pin.h"
#include "planner/plan.h"
#include "util/rng.h"
#include "util/size.h"

static const synthetic_shape shapes[] = {
    {2, 56, 4, 4, 14, 112, 320, false},
    {30, 576, 9, 3, 64, 1536, 49152, true},
    {24, 896, 14, 2, 64, 4864, 151936, true},
    {80, 8192, 64, 8, 128, 28672, 128256, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static uint64_t pick(uint64_t key, uint64_t i, uint64_t low, uint64_t high) {
    return low + (uint64_t)(sp_rng_uniform(key, i) * (double)(high - low));
}

enum { MAX_KNOWN = 100 };

/* Rows of the request go to known[MAX_KNOWN]. */
static sp_plan_request random_request(uint64_t key, sp_plan_row *known) {
    sp_plan_request r = {.mode = pick(key, 0, 0, 4) ? SP_MODE_BF16 : SP_MODE_FP32,
                         .placement = (sp_placement)pick(key, 1, 0, 3),
                         .memory_bytes = pick(key, 2, 0, 2) ? pick(key, 3, 100ull << 20, 40ull << 30) : 0,
                         .rows_cap = pick(key, 4, 0, 2) ? pick(key, 5, 1, 300) : 0,
                         .cached_share = sp_rng_uniform(key, 10)};
    size_t prompt_most = pick(key, 7, 1, 3000), new_most = pick(key, 8, 1, 600);
    r.n_known = pick(key, 6, 0, MAX_KNOWN);
    r.n_known = r.n_known * r.n_known / MAX_KNOWN; /* few mostly: their plans are quick */
    for (size_t i = 0; i < r.n_known; i++) {
        known[i] =
            (sp_plan_row){pick(key, 100 + 2 * i, 1, prompt_most + 1), pick(key, 101 + 2 * i, 1, new_most + 1), 0};
        r.prompt_tokens += known[i].n_prompt;
        r.new_tokens += known[i].max_new;
        size_t n_tokens = known[i].n_prompt + known[i].max_new;
        if (n_tokens > r.row_tokens_max) r.row_tokens_max = n_tokens;
    }
    r.known = known;
    r.n_rows = r.n_known;
    if (r.n_known == 0) r.row_tokens_max = pick(key, 9, 1, 8000);
    return r;
}

static sp_machine machine_with(double flops, double disk_bps) {
    sp_machine m = {.ram_bytes = 24ull << 30,
                    .limit_bytes = 24ull << 30,
                    .n_cpus = 2,
                    .isa = "avx2",
                    .memory_bps = 17e9,
                    .disk_bps = disk_bps};
    m.rates = (sp_rates){.linear_flops = {flops / 8, flops / 2, flops * 0.8, flops, flops},
                         .decode_flops = flops / 4,
                         .prefill_flops = flops / 3,
                         .vector_bps = 1e10,
                         .call_s = 2e-6};
    return m;
}

static sp_machine random_machine(uint64_t key) {
    static const double flops[] = {2e10, 1e11, 2e12}, disk_bps[] = {2e8, 2e9, 7e9};
    sp_machine m = machine_with(flops[pick(key, 30, 0, 3)], disk_bps[pick(key, 31, 0, 3)]);
    if (pick(key, 32, 0, 2)) m.read_depth = 16, m.read_request_bytes = 8 << 20, m.read_backend = SP_RING_THREADS;
    return m;
}

static uint64_t total_bytes(const sp_plan *p) {
    return p->overhead_bytes + p->pinned_bytes + p->ring_bytes + p->activation_bytes + p->kv_bytes;
}

static void check_pins(const sp_model *model, const sp_plan *p) {
    size_t n_layers = model->arch.n_layers;
    uint64_t n_bytes =
        (p->pin_head ? sp_layout_head_bytes(model) : 0) + (p->keep_embed ? sp_layout_embed_bytes(model) : 0);
    for (size_t i = 0; i < p->n_pinned_layers; i++)
        n_bytes += sp_layout_layer_bytes(model, sp_pin_order((uint32_t)n_layers, (uint32_t)i));
    assert_int_equal(n_bytes, p->pinned_bytes);
    assert_true(p->n_pinned_layers <= n_layers);
    if (p->placement == SP_PLACE_RESIDENT) assert_true(p->n_pinned_layers == n_layers && p->pin_head && p->keep_embed);
    if (p->placement == SP_PLACE_STREAM) assert_true(p->ring_bytes <= 1000000000 && p->ring_slots >= 4);
}

static void check_plan(const sp_model *model, const sp_plan_request *r, const sp_plan *p) {
    assert_true(total_bytes(p) <= p->budget_bytes);
    assert_true(p->placement == SP_PLACE_RESIDENT || p->placement == SP_PLACE_STREAM);
    if (r->placement != SP_PLACE_AUTO) assert_int_equal(p->placement, r->placement);
    check_pins(model, p);
    assert_true(p->rows >= 1 && p->kv_pages >= 1 && p->pass_tokens >= p->rows && p->pass_logits == p->rows);
    if (r->rows_cap) assert_true(p->rows <= r->rows_cap);
    if (r->n_rows) assert_true(p->rows <= r->n_rows);
    assert_int_equal(p->kv_bytes, p->kv_pages * SP_KV_PAGE_TOKENS * p->kv_token_bytes);
    assert_true(p->ffn_block == model->arch.d_ffn || p->ffn_block % SP_PACK_COLS == 0);
    assert_true(p->estimate.low_s <= p->estimate.likely_s && p->estimate.likely_s <= p->estimate.high_s);
}

static void plans_keep_their_budget(void **state) {
    (void)state;
    size_t n_plans = 0, n_refused = 0;
    for (size_t s = 0; s < N_SHAPES; s++) {
        sp_model *model = synthetic_new(&shapes[s], NULL);
        for (uint64_t key = 0; key < 300; key++) {
            sp_plan_row known[MAX_KNOWN];
            sp_plan_request request = random_request(key, known);
            sp_machine machine = random_machine(key);
            sp_plan plan, again;
            sp_error err = {0};
            if (!sp_plan_build(model, &machine, &request, &plan, &err)) {
                assert_int_equal(err.code, SP_ERR_MEMORY);
                n_refused++;
                continue;
            }
            n_plans++;
            check_plan(model, &request, &plan);
            assert_true(sp_plan_build(model, &machine, &request, &again, &err));
            assert_memory_equal(&plan, &again, sizeof plan);
        }
        synthetic_free(model);
    }
    assert_true(n_plans > 600 && n_refused > 10);
}

/* Resident with as many rows as there may be, all as long as the longest. */
static bool is_ample(const sp_plan *plan, const sp_plan_request *request) {
    size_t rows = request->rows_cap ? request->rows_cap : 64;
    if (rows > request->n_rows) rows = request->n_rows;
    size_t pages = (request->row_tokens_max + SP_KV_PAGE_TOKENS - 1) / SP_KV_PAGE_TOKENS;
    return plan->placement == SP_PLACE_RESIDENT && plan->rows >= rows && plan->kv_pages >= rows * pages &&
           (plan->pass_tokens >= 512 || plan->pass_tokens >= request->prompt_tokens);
}

static void more_memory_is_never_slower(void **state) {
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        sp_model *model = synthetic_new(&shapes[s], NULL);
        for (uint64_t key = 0; key < 10; key++) {
            sp_plan_row known[MAX_KNOWN];
            sp_plan_request request = random_request(key, known);
            sp_machine machine = random_machine(key);
            if (request.n_known == 0) continue;
            bool had = false;
            sp_plan last = {0};
            for (uint64_t mb = 64; mb < 400000; mb = mb * 4 / 3) {
                sp_plan plan;
                sp_error err = {0};
                request.memory_bytes = mb << 20;
                bool has = sp_plan_build(model, &machine, &request, &plan, &err);
                assert_true(has || !had);
                if (has && had && last.kv_pages * SP_KV_PAGE_TOKENS >= request.row_tokens_max) { /* else rows fail */
                    bool begins_to_fit = is_ample(&plan, &request) && !is_ample(&last, &request);
                    double allowed = begins_to_fit ? 1.15 : 1 + 1e-9;
                    if (plan.estimate.likely_s > last.estimate.likely_s * allowed)
                        fail_msg("shape %zu, request %llu, %lluM: %f s, with less %f s", s, (unsigned long long)key,
                                 (unsigned long long)mb, plan.estimate.likely_s, last.estimate.likely_s);
                    assert_true(plan.rows >= last.rows || plan.pinned_bytes >= last.pinned_bytes ||
                                plan.kv_bytes > last.kv_bytes || plan.pass_tokens > last.pass_tokens);
                }
                had = has;
                last = plan;
            }
            assert_true(had);
        }
        synthetic_free(model);
    }
}

/* The number in the message is enough. */
static void a_refusal_names_what_would_do(void **state) {
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        sp_model *model = synthetic_new(&shapes[s], NULL);
        for (uint64_t key = 0; key < 60; key++) {
            sp_plan_row known[MAX_KNOWN];
            sp_plan_request request = random_request(key, known);
            sp_machine machine = random_machine(key);
            request.memory_bytes = 50ull << 20;
            sp_plan plan;
            sp_error err = {0};
            assert_false(sp_plan_build(model, &machine, &request, &plan, &err));
            const char *remedy = strstr(err.text, "--memory ");
            assert_non_null(remedy);
            request.memory_bytes = strtoull(remedy + strlen("--memory "), NULL, 10) << 20;
            sp_error_clear(&err);
            assert_true(sp_plan_build(model, &machine, &request, &plan, &err));
            check_plan(model, &request, &plan);
            request.memory_bytes -= 2ull << 20; /* and the smaller placement's: a little less is not */
            assert_false(sp_plan_build(model, &machine, &request, &plan, &err));
        }
        synthetic_free(model);
    }
}

/* A little over the floor of streaming one row of a big model, and its own memory's worth: the layers that fit stay. */
static void spare_memory_pins_layers(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_machine machine = machine_with(2e11, 1.9e9);
    const sp_plan_row row = {200, 16, 0};
    sp_plan_request request = {
        .n_rows = 1, .prompt_tokens = 200, .new_tokens = 16, .row_tokens_max = 216, .known = &row, .n_known = 1};
    static const struct {
        uint64_t memory_bytes;
        size_t n_least, n_most; /* pinned layers */
    } cases[] = {{1ull << 30, 0, 0}, {18000000000, 9, 10}, {100000000000, 54, 58}};
    for (size_t i = 0; i < 3; i++) {
        sp_plan plan;
        sp_error err = {0};
        request.memory_bytes = cases[i].memory_bytes;
        assert_true(sp_plan_build(model, &machine, &request, &plan, &err));
        assert_int_equal(plan.placement, SP_PLACE_STREAM);
        assert_in_range(plan.n_pinned_layers, cases[i].n_least, cases[i].n_most);
    }
    synthetic_free(model);
}

/* Many short rows want KV before layers; few rows leave it all to layers. */
static void rows_and_layers_share(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_machine machine = machine_with(4e12, 1.9e9);
    sp_plan plans[2];
    for (int i = 0; i < 2; i++) {
        const sp_plan_row row = {500, 25, 0};
        size_t n_rows = i ? 2000 : 4;
        sp_plan_request request = {.memory_bytes = 18000000000,
                                   .n_rows = n_rows,
                                   .prompt_tokens = n_rows * 500,
                                   .new_tokens = n_rows * 25,
                                   .row_tokens_max = 525,
                                   .known = &row,
                                   .n_known = 1};
        sp_error err = {0};
        assert_true(sp_plan_build(model, &machine, &request, &plans[i], &err));
    }
    assert_int_equal(plans[0].rows, 4);
    assert_true(plans[1].rows > 30 && plans[1].n_pinned_layers < plans[0].n_pinned_layers);
    synthetic_free(model);
}

/* What stays in memory is multiplied at the rate of panels, what streams is not. */
static void panels_count_where_weights_stay(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_plan_row row = {500, 25, 0};
    for (int resident = 0; resident < 2; resident++) {
        double likely_s[2];
        for (int panels = 0; panels < 2; panels++) {
            sp_machine machine = machine_with(1e11, 5e10);
            machine.limit_bytes = machine.ram_bytes = 400ull << 30;
            for (size_t i = 0; i < SP_RATE_POINTS && panels; i++)
                machine.rates.panel_flops[i] = 2 * machine.rates.linear_flops[i];
            sp_plan_request request = {.placement = resident ? SP_PLACE_RESIDENT : SP_PLACE_STREAM,
                                       .memory_bytes = resident ? 300ull << 30 : 2ull << 30,
                                       .n_rows = 8,
                                       .prompt_tokens = 8 * 500,
                                       .new_tokens = 8 * 25,
                                       .row_tokens_max = 525,
                                       .known = &row,
                                       .n_known = 1};
            sp_plan plan;
            sp_error err = {0};
            assert_true(sp_plan_build(model, &machine, &request, &plan, &err));
            likely_s[panels] = plan.estimate.likely_s;
        }
        double ratio = likely_s[0] / likely_s[1];
        assert_true(resident ? ratio > 1.5 && ratio < 2.1 : ratio > 0.95 && ratio < 1.05);
    }
    synthetic_free(model);
}

/* As many tokens of prompts ride in a pass as hide behind the drive: fewer take more passes, more make passes longer.
 */
static void prompts_hide_behind_the_drive(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_machine machine = machine_with(4e12, 3e9);
    const sp_plan_row row = {2000, 100, 0};
    sp_plan_request request = {.memory_bytes = 18ull << 30,
                               .n_rows = 2000,
                               .prompt_tokens = 2000 * 2000,
                               .new_tokens = 2000 * 100,
                               .row_tokens_max = 2100,
                               .known = &row,
                               .n_known = 1};
    sp_plan chosen, plan;
    sp_error err = {0};
    assert_true(sp_plan_build(model, &machine, &request, &chosen, &err));
    for (request.pass_tokens = 32; request.pass_tokens <= 4096; request.pass_tokens *= 2) {
        assert_true(sp_plan_build(model, &machine, &request, &plan, &err));
        bool is_it = request.pass_tokens == chosen.pass_tokens;
        if (plan.estimate.likely_s < chosen.estimate.likely_s * (is_it ? 0.999 : 0.98))
            fail_msg("%f s with %zu tokens a pass, %f s with the planner's %zu", plan.estimate.likely_s,
                     plan.pass_tokens, chosen.estimate.likely_s, chosen.pass_tokens);
    }
    synthetic_free(model);
}

/* Rows of less than a page are all let in at once: the policy counts more than a page for each of 20 tokens. */
static void short_rows_are_in_flight_together(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_machine machine = machine_with(4e12, 3e9);
    enum { N = 32, PROMPT = 16, NEW = 4 };
    sp_plan_row rows[N];
    for (size_t i = 0; i < N; i++) rows[i] = (sp_plan_row){PROMPT, NEW, 0};
    sp_plan_request request = {.memory_bytes = 18ull << 30,
                               .n_rows = N,
                               .prompt_tokens = N * PROMPT,
                               .new_tokens = N * NEW,
                               .row_tokens_max = PROMPT + NEW,
                               .known = rows,
                               .n_known = N};
    sp_plan plan;
    sp_error err = {0};
    assert_true(sp_plan_build(model, &machine, &request, &plan, &err));
    assert_true(plan.rows == N && plan.pass_tokens >= N * PROMPT && plan.estimate_passes == NEW);

    rows[0] = (sp_plan_row){6000, 200, 0}; /* one alone gets what it may need, and hardly more */
    request = (sp_plan_request){
        .n_rows = 1, .prompt_tokens = 6000, .new_tokens = 200, .row_tokens_max = 6200, .known = rows, .n_known = 1};
    sp_model *small = synthetic_new(&shapes[0], NULL);
    assert_true(sp_plan_build(small, &machine, &request, &plan, &err));
    size_t n_pages = sp_div_up(6200, SP_KV_PAGE_TOKENS);
    assert_true(plan.kv_pages >= n_pages && plan.kv_pages <= n_pages + n_pages / 8);
    synthetic_free(small);
    synthetic_free(model);
}

static void auto_streams_what_does_not_fit(void **state) {
    (void)state;
    sp_model *big = synthetic_new(&shapes[3], NULL), *small = synthetic_new(&shapes[1], NULL);
    sp_plan plan;
    sp_error err = {0};
    const sp_machine machine = machine_with(1e11, 1.9e9);
    const sp_plan_request request = {.n_rows = 10, .prompt_tokens = 2000, .new_tokens = 160, .row_tokens_max = 300};
    assert_true(sp_plan_build(big, &machine, &request, &plan, &err));
    assert_int_equal(plan.placement, SP_PLACE_STREAM);
    assert_true(sp_plan_build(small, &machine, &request, &plan, &err));
    assert_int_equal(plan.placement, SP_PLACE_RESIDENT);
    synthetic_free(big);
    synthetic_free(small);
}

static void the_text_is_two_lines(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shapes[3], NULL);
    const sp_plan_request request = {
        .n_rows = 41, .prompt_tokens = 41 * 500, .new_tokens = 41 * 25, .row_tokens_max = 525};
    for (int measured = 0; measured < 2; measured++) {
        sp_machine m = machine_with(1e11, measured ? 1.9e9 : 0);
        if (!measured) m.rates = (sp_rates){0};
        sp_plan plan;
        sp_error err = {0};
        sp_buf text = {0};
        assert_true(sp_plan_build(model, &m, &request, &plan, &err));
        assert_true(sp_plan_text(model, &m, &request, &plan, &text));
        size_t n_lines = 0;
        for (size_t i = 0; i < text.n_bytes; i++) n_lines += text.data[i] == '\n';
        assert_int_equal(n_lines, 2);
        assert_non_null(strstr(text.data, "synthetic bf16, 141.1 GB, does not fit in 19.3 GB: streaming"));
        assert_non_null(strstr(text.data, "plan: ring "));
        assert_int_equal(strstr(text.data, "(measured here)") != NULL, measured);
        assert_non_null(strstr(text.data, "/80 layers"));
        sp_buf_deinit(&text);
        json_t *event = sp_plan_json(model, &m, &request, &plan);
        assert_string_equal(json_string_value(json_object_get(event, "placement")), "stream");
        assert_true(json_is_real(json_object_get(json_object_get(event, "estimate_seconds"), "likely")));
        json_decref(event);
    }
    synthetic_free(model);
}

/* Whether the plan's text (lines) or its warning (not lines) holds this. */
static bool says(bool lines, const sp_model *model, const sp_machine *m, const sp_plan_request *request,
                 const char *want) {
    sp_plan plan;
    sp_error err = {0};
    sp_buf text = {0};
    assert_true(sp_plan_build(model, m, request, &plan, &err));
    assert_true(lines ? sp_plan_text(model, m, request, &plan, &text) : sp_plan_warning(m, request, &plan, &text));
    bool is_there = *want ? text.data && strstr(text.data, want) : text.n_bytes == 0;
    if (!is_there) print_message("'%s' wanted in: %s\n", want, text.data ? text.data : "");
    json_t *event = sp_plan_json(model, m, request, &plan);
    if (!lines) is_there &= (*want != '\0') == (json_object_get(event, "warning") != NULL);
    json_decref(event);
    sp_buf_deinit(&text);
    return is_there;
}

static void what_was_asked_is_told(void **state) {
    (void)state;
    sp_model *big = synthetic_new(&shapes[3], NULL), *small = synthetic_new(&shapes[1], NULL);
    sp_machine m = machine_with(1e11, 1.9e9), caged = m;
    caged.limit_bytes = 8ull << 30;
    sp_plan_request request = {.n_rows = 41, .prompt_tokens = 41 * 500, .new_tokens = 41 * 25, .row_tokens_max = 525};
    assert_true(says(false, big, &caged, &request, ""));
    request.memory_bytes = 24ull << 30;
    assert_true(says(false, big, &m, &request, ""));
    assert_true(
        says(false, big, &caged, &request, "--memory: 25.8 GB given, its cgroup allows 8.6 GB; the plan takes 25"));
    assert_true(says(false, big, &caged, &request, "past the limit it swaps or is killed"));
    assert_true(says(false, small, &caged, &request, "which fits"));
    request.memory_bytes = 40ull << 30;
    assert_true(says(false, big, &m, &request, "--memory: 42.9 GB given, the machine has 25.8 GB"));
    request.placement = SP_PLACE_STREAM;
    assert_true(says(true, small, &m, &request, "(measured here); as asked: "));
    assert_true(says(true, big, &m, &request, "/s (measured here)\n"));
    synthetic_free(big);
    synthetic_free(small);
}

/* The longest run of layers, around the circle, of which none is among the first n of the order. */
static uint32_t longest_gap(uint32_t n_layers, uint32_t n) {
    bool pinned[200] = {false};
    for (uint32_t i = 0; i < n; i++) pinned[sp_pin_order(n_layers, i)] = true;
    uint32_t longest = 0, run = 0;
    for (uint32_t l = 0; l < 2 * n_layers; l++) {
        run = pinned[l % n_layers] ? 0 : run + 1;
        if (run > longest) longest = run;
    }
    return longest;
}

static void pinned_layers_are_spread(void **state) {
    (void)state;
    for (uint32_t n_layers = 1; n_layers <= 200; n_layers++) {
        bool seen[200] = {false};
        for (uint32_t i = 0; i < n_layers; i++) {
            uint32_t layer = sp_pin_order(n_layers, i);
            assert_true(layer < n_layers && !seen[layer]);
            seen[layer] = true;
        }
        for (uint32_t n = 1; n < n_layers; n++) /* three times the mean gap at most */
            assert_true(longest_gap(n_layers, n) <= 3 * n_layers / n);
    }
    assert_int_equal(sp_pin_order(80, 0), 0);
    assert_int_equal(sp_pin_order(80, 1), 64);
    assert_int_equal(sp_pin_order(80, 2), 32);
}

static void write_text(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void the_least_limit_up_the_tree_binds(void **state) {
    (void)state;
    char root[] = "/tmp/spill-cgroup-XXXXXX";
    assert_non_null(mkdtemp(root));
    write_text(root, "a/memory.max", "5000\n");
    write_text(root, "a/b/memory.max", "max\n");
    write_text(root, "a/b/c/memory.max", "7000\n");
    write_text(root, "memory/x/memory.limit_in_bytes", "3000\n");
    write_text(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(sp_machine_cgroup_limit("0::/a/b/c\n", root), 5000);
    assert_int_equal(sp_machine_cgroup_limit("0::/a/b/gone/deep\n", root), 5000);
    assert_int_equal(sp_machine_cgroup_limit("4:memory:/x/y\n1:cpu:/z\n0::/\n", root), 3000);
    assert_int_equal(sp_machine_cgroup_limit("4:cpu,memory:/x\n0::/a/b/c\n", root), 3000);
    assert_true(sp_machine_cgroup_limit("0::/\n", root) == UINT64_MAX);
    assert_true(sp_machine_cgroup_limit("nonsense\n::\n:\n", root) == UINT64_MAX);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void this_machine_reads(void **state) {
    (void)state;
    sp_machine m;
    sp_error err = {0};
    assert_true(sp_machine_read(&m, &err));
    assert_true(m.limit_bytes > 0 && m.limit_bytes <= m.ram_bytes && m.n_cpus > 0 && m.isa[0] != '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_keep_their_budget),
        cmocka_unit_test(more_memory_is_never_slower),
        cmocka_unit_test(a_refusal_names_what_would_do),
        cmocka_unit_test(spare_memory_pins_layers),
        cmocka_unit_test(rows_and_layers_share),
        cmocka_unit_test(panels_count_where_weights_stay),
        cmocka_unit_test(prompts_hide_behind_the_drive),
        cmocka_unit_test(short_rows_are_in_flight_together),
        cmocka_unit_test(auto_streams_what_does_not_fit),
        cmocka_unit_test(the_text_is_two_lines),
        cmocka_unit_test(what_was_asked_is_told),
        cmocka_unit_test(pinned_layers_are_spread),
        cmocka_unit_test(the_least_limit_up_the_tree_binds),
        cmocka_unit_test(this_machine_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
