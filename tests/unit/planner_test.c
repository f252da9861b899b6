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
#include "planner/machine.h"
#include "planner/pin.h"
#include "planner/plan.h"
#include "util/rng.h"

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

static sp_plan_request random_request(uint64_t key) {
    sp_plan_request r = {.mode = pick(key, 0, 0, 4) ? SP_MODE_BF16 : SP_MODE_FP32,
                         .placement = (sp_placement)pick(key, 1, 0, 3),
                         .memory_bytes = pick(key, 2, 0, 2) ? pick(key, 3, 100ull << 20, 40ull << 30) : 0,
                         .rows_cap = pick(key, 4, 0, 2) ? pick(key, 5, 1, 300) : 0,
                         .n_rows = pick(key, 6, 0, 2000)};
    r.prompt_tokens = r.n_rows * pick(key, 7, 1, 3000);
    r.new_tokens = r.n_rows * pick(key, 8, 1, 600);
    r.row_tokens_max = pick(key, 9, 1, 8000);
    return r;
}

static const sp_machine machine = {.ram_bytes = 24ull << 30,
                                   .limit_bytes = 24ull << 30,
                                   .n_cpus = 2,
                                   .isa = "avx2",
                                   .disk_bps = 1.9e9,
                                   .gemm_flops = 1e11,
                                   .memory_bps = 17e9};

static uint64_t total_bytes(const sp_plan *p) {
    return p->overhead_bytes + p->pinned_bytes + p->ring_bytes + p->activation_bytes + p->kv_bytes;
}

static void check_plan(const sp_model *model, const sp_plan_request *r, const sp_plan *p) {
    assert_true(total_bytes(p) <= p->budget_bytes);
    assert_true(p->placement == SP_PLACE_RESIDENT || p->placement == SP_PLACE_STREAM);
    if (r->placement != SP_PLACE_AUTO) assert_int_equal(p->placement, r->placement);
    assert_int_equal(p->pinned_bytes, p->placement == SP_PLACE_RESIDENT ? model->weight_bytes : 0);
    assert_true(p->rows >= 1 && p->kv_pages >= 1 && p->pass_tokens >= p->rows && p->pass_logits == p->rows);
    if (r->rows_cap) assert_true(p->rows <= r->rows_cap);
    if (r->n_rows) assert_true(p->rows <= r->n_rows);
    assert_int_equal(p->kv_bytes, p->kv_pages * SP_KV_PAGE_TOKENS * p->kv_token_bytes);
    assert_true(p->ffn_block == model->arch.d_ffn || p->ffn_block % SP_PACK_COLS == 0);
    assert_true(p->estimate_low_s <= p->estimate_likely_s && p->estimate_likely_s <= p->estimate_high_s);
}

static void plans_keep_their_budget(void **state) {
    (void)state;
    size_t n_plans = 0, n_refused = 0;
    for (size_t s = 0; s < N_SHAPES; s++) {
        sp_model *model = synthetic_new(&shapes[s], NULL);
        for (uint64_t key = 0; key < 500; key++) {
            sp_plan_request request = random_request(key);
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
    assert_true(n_plans > 500 && n_refused > 10);
}

static void more_memory_never_plans_less(void **state) {
    (void)state;
    for (size_t s = 0; s < N_SHAPES; s++) {
        sp_model *model = synthetic_new(&shapes[s], NULL);
        for (uint64_t key = 0; key < 40; key++) {
            sp_plan_request request = random_request(key);
            request.placement = pick(key, 20, 0, 2) ? SP_PLACE_STREAM : SP_PLACE_RESIDENT;
            bool had = false;
            sp_plan last = {0};
            for (uint64_t mb = 64; mb < 400000; mb = mb * 5 / 4) {
                sp_plan plan;
                sp_error err = {0};
                request.memory_bytes = mb << 20;
                bool has = sp_plan_build(model, &machine, &request, &plan, &err);
                assert_true(has || !had);
                if (has && had) assert_true(plan.rows >= last.rows || plan.pass_tokens > last.pass_tokens);
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
            sp_plan_request request = random_request(key);
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
        }
        synthetic_free(model);
    }
}

static void auto_streams_what_does_not_fit(void **state) {
    (void)state;
    sp_model *big = synthetic_new(&shapes[3], NULL), *small = synthetic_new(&shapes[1], NULL);
    sp_plan plan;
    sp_error err = {0};
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
        sp_machine m = machine;
        if (!measured) m.disk_bps = m.gemm_flops = m.memory_bps = 0;
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
        assert_int_equal(strstr(text.data, "measured here") != NULL, measured);
        sp_buf_deinit(&text);
        json_t *event = sp_plan_json(&plan);
        assert_string_equal(json_string_value(json_object_get(event, "placement")), "stream");
        assert_true(json_is_real(json_object_get(json_object_get(event, "estimate_seconds"), "likely")));
        json_decref(event);
    }
    synthetic_free(model);
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
        cmocka_unit_test(more_memory_never_plans_less),
        cmocka_unit_test(a_refusal_names_what_would_do),
        cmocka_unit_test(auto_streams_what_does_not_fit),
        cmocka_unit_test(the_text_is_two_lines),
        cmocka_unit_test(pinned_layers_are_spread),
        cmocka_unit_test(the_least_limit_up_the_tree_binds),
        cmocka_unit_test(this_machine_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
