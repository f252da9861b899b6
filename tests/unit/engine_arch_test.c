/* Fields of the architecture that no family sets yet: each changes logits as model/arch.h says, or is refused before
 * a weight is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine_synthetic.h"
#include "kernels/ops.h"

enum { N_TOKENS = 12, N_VOCAB = 331, ONE_AND_HALF = 0x3fc0, HALF = 0x3f00 };

static const synthetic_shape shape = {
    .n_layers = 2, .d_model = 48, .n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .d_ffn = 136, .n_vocab = N_VOCAB};

/* The model's description, to be changed by a test: the synthetic one owns these structs. */
static sp_arch *arch_of(sp_model *model) { return &model->arch; }
static sp_layer_arch *layer_of(sp_model *model, size_t l) { return (sp_layer_arch *)(uintptr_t)&model->arch.layers[l]; }

/* ---- a file of weights that can be changed ---- */

typedef struct {
    char path[64];
    sp_model *model;
} fixture;

static void write_bf16(const fixture *f, uint64_t offset_bytes, uint16_t value) {
    int fd = open(f->path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, &value, sizeof value, (off_t)offset_bytes) == sizeof value);
    close(fd);
}

static void set_norms(const fixture *f, uint16_t value) {
    for (size_t i = 0; i < shape.d_model; i++) {
        write_bf16(f, f->model->final_norm.offset_bytes + 2 * i, value);
        for (size_t l = 0; l < shape.n_layers; l++) {
            write_bf16(f, f->model->layers[l].attn_norm.offset_bytes + 2 * i, value);
            write_bf16(f, f->model->layers[l].ffn_norm.offset_bytes + 2 * i, value);
        }
    }
}

/* Twice a bf16 is one more in its exponent. */
static void double_embedding(const fixture *f) {
    for (uint64_t i = 0; i < (uint64_t)N_VOCAB * shape.d_model; i++) {
        uint64_t at = f->model->embed.offset_bytes + 2 * i;
        unsigned value = (unsigned)synthetic_byte(at) | (unsigned)synthetic_byte(at + 1) << 8;
        write_bf16(f, at, (uint16_t)(value + 0x80));
    }
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    snprintf(f->path, sizeof f->path, "/tmp/spill-arch-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    f->model = synthetic_new(&shape, f->path);
    set_norms(f, ONE_AND_HALF); /* those of the file are small, and scores with them */
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    unlink(f->path);
    synthetic_free(f->model);
    free(f);
    return 0;
}

/* ---- logits ---- */

static sp_engine *open_engine(const sp_model *model, sp_plan *plan, sp_device *device, sp_error *err) {
    const sp_machine machine = {.ram_bytes = 4ull << 30, .limit_bytes = 4ull << 30, .n_cpus = 1, .isa = "test"};
    const sp_plan_request request = {
        .mode = SP_MODE_FP32, .placement = SP_PLACE_RESIDENT, .rows_cap = 1, .row_tokens_max = 64};
    if (!sp_plan_build(model, &machine, &request, plan, err)) fail_msg("%s", err->text);
    return sp_engine_open(model, plan, device, err);
}

/* Those after n tokens, with the description as it is now. */
static void logits_after(const fixture *f, size_t n, float cap, float *logits) {
    sp_error err = {0};
    sp_plan plan;
    uint32_t seq = 0;
    int32_t tokens[N_TOKENS];
    for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)(i * 37 % N_VOCAB);
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    ((sp_model_file *)(uintptr_t)f->model->files)->mtime_ns =
        (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    sp_pool *pool = sp_pool_new(1, &err);
    sp_device *device = pool ? sp_device_open_cpu(pool, SP_MODE_FP32, NULL, &err) : NULL;
    sp_engine *engine = device ? open_engine(f->model, &plan, device, &err) : NULL;
    if (!engine || !sp_engine_seq_open(engine, n, n, &seq, &err)) fail_msg("%s", err.text);
    sp_engine_seq_set_length(engine, seq, n);
    const sp_span span = {seq, tokens, n, true};
    if (!sp_engine_pass(engine, &span, 1, NULL, &err)) fail_msg("%s", err.text);
    memcpy(logits, sp_engine_logits(engine, 0), N_VOCAB * sizeof *logits);
    if (cap > 0) sp_op_softcap(device, cap, logits, N_VOCAB);
    sp_engine_close(engine);
    sp_device_close(device);
    sp_pool_free(pool);
}

static void test_norms_of_one_plus_w(void **state) {
    fixture *f = *state;
    float plain[N_VOCAB], plus_one[N_VOCAB];
    logits_after(f, N_TOKENS, 0, plain);
    set_norms(f, HALF);
    arch_of(f->model)->norm_plus_one = true;
    logits_after(f, N_TOKENS, 0, plus_one);
    assert_memory_equal(plain, plus_one, sizeof plain);
}

static void test_scale_of_the_embedding(void **state) {
    fixture *f = *state;
    float scaled[N_VOCAB], doubled[N_VOCAB];
    arch_of(f->model)->embed_scale = 2;
    logits_after(f, N_TOKENS, 0, scaled);
    arch_of(f->model)->embed_scale = 1;
    double_embedding(f);
    logits_after(f, N_TOKENS, 0, doubled);
    assert_memory_equal(scaled, doubled, sizeof scaled);
}

static void test_cap_of_logits(void **state) {
    fixture *f = *state;
    float want[N_VOCAB], capped[N_VOCAB];
    logits_after(f, N_TOKENS, 0.25f, want);
    arch_of(f->model)->logit_cap = 0.25f;
    logits_after(f, N_TOKENS, 0, capped);
    assert_memory_equal(want, capped, sizeof want);
}

/* The cap's values are check_vector's affair; here: on the layers that ask for it, and on no other. */
static void test_cap_of_scores_by_layer(void **state) {
    fixture *f = *state;
    float plain[N_VOCAB], first[N_VOCAB], last[N_VOCAB];
    logits_after(f, N_TOKENS, 0, plain);
    arch_of(f->model)->attn_cap = 1e-3f;
    logits_after(f, N_TOKENS, 0, first);
    assert_memory_equal(plain, first, sizeof plain); /* no layer asks */
    layer_of(f->model, 0)->attn_cap_on = true;
    logits_after(f, N_TOKENS, 0, first);
    layer_of(f->model, 0)->attn_cap_on = false;
    layer_of(f->model, 1)->attn_cap_on = true;
    logits_after(f, N_TOKENS, 0, last);
    assert_memory_not_equal(plain, first, sizeof plain);
    assert_memory_not_equal(plain, last, sizeof plain);
    assert_memory_not_equal(first, last, sizeof plain);
}

static void test_window_by_layer(void **state) {
    fixture *f = *state;
    float full[N_VOCAB], alternating[N_VOCAB];
    for (size_t n = 4; n <= 5; n++) { /* four tokens are inside a window of four */
        layer_of(f->model, 0)->window = 0;
        logits_after(f, n, 0, full);
        layer_of(f->model, 0)->window = 4;
        logits_after(f, n, 0, alternating);
        assert_int_equal(memcmp(full, alternating, sizeof full) == 0, n == 4);
    }
}

/* The model has no file: what is refused is refused without looking for it. */
static void expect_refusal(const sp_model *model, const char *word) {
    sp_error err = {0};
    sp_plan plan;
    sp_pool *pool = sp_pool_new(1, &err);
    sp_device *device = pool ? sp_device_open_cpu(pool, SP_MODE_FP32, NULL, &err) : NULL;
    assert_non_null(device);
    assert_null(open_engine(model, &plan, device, &err));
    assert_int_equal(err.code, SP_ERR_SUPPORT);
    assert_non_null(strstr(err.text, word));
    sp_device_close(device);
    sp_pool_free(pool);
}

static void test_refused(void **state) {
    (void)state;
    sp_model *model = synthetic_new(&shape, NULL);
    arch_of(model)->post_norms = true;
    expect_refusal(model, "norms after attention");
    arch_of(model)->post_norms = false;
    layer_of(model, 1)->ffn = SP_FFN_MOE;
    expect_refusal(model, "layer 1 has experts");
    synthetic_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_norms_of_one_plus_w, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_scale_of_the_embedding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cap_of_logits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cap_of_scores_by_layer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_window_by_layer, set_up, tear_down),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
