/* Speed of attention, norms and activations against the machine's multiply-adds, measured in the same run.
 *
 * Sections: decode (32 rows of text, one new token each, 200 to 2000 keys), prefill (one row of 200 to 4000 tokens),
 * rows (norm, activation, rotation, log-probabilities). A line is the best of several repetitions, each paired with a
 * burst of register-only multiply-adds. With one thread, time is the thread's own, so that a busy machine shows less.
 * FLOP are those of the two products over visible keys, 4 E a key and head. */
#include "bench/vector_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/peak.h"
#include "kernels/quant/f16.h"
#include "kernels/vector.h"

enum { REPEATS = 5, HUGE_BYTES = 2 << 20 };

static volatile float sink;

typedef struct {
    sp_device *device;
    sp_pool *pool;
    double peak; /* FLOP/s, best so far of this line; 0: unknown */
} bench;

static void measure_peak(bench *b) {
    const double rate = bench_peak(b->pool, b->device->vector->isa);
    if (rate > b->peak) b->peak = rate;
}

/* Seconds of one call, the best of REPEATS runs of about 50 ms. */
static double seconds_of(bench *b, void (*call)(void *ctx), void *ctx) {
    double best = 1e30;
    size_t n = 1;
    b->peak = 0;
    for (int i = 0; i <= REPEATS; i++) {
        measure_peak(b);
        uint64_t start = bench_now_ns(b->pool);
        for (size_t j = 0; j < n; j++) call(ctx);
        double seconds = (double)(bench_now_ns(b->pool) - start) * 1e-9 / (double)n;
        if (i == 0) n = 1 + (size_t)(0.05 / (seconds + 1e-9)); /* the first run warms up */
        if (i > 0 && seconds < best) best = seconds;
    }
    return best;
}

static void *new_bytes(size_t n_bytes) {
    void *p = aligned_alloc(64, sp_round_up(n_bytes, 64));
    SP_CHECK(p != NULL);
    return p;
}

static float *new_floats(size_t n) {
    float *p = new_bytes(n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = (float)(i * 7919 % 1009) * (2.0f / 1009) - 1.0f;
    return p;
}

static void report(const bench *b, const char *what, double seconds, double flop, double bytes) {
    printf("%-10s %-44s %10.1f us", b->device->vector->isa, what, seconds * 1e6);
    if (flop > 0) printf(" %8.1f GFLOP/s", flop / seconds * 1e-9);
    if (flop > 0 && b->peak > 0) printf(" of %8.1f, ratio %.2f", b->peak * 1e-9, flop / seconds / b->peak);
    if (bytes > 0) printf(", %6.1f GB/s", bytes / seconds * 1e-9);
    printf("\n");
    fflush(stdout);
}

/* ---- attention ---- */

static const struct {
    const char *name;
    size_t n_heads, n_kv_heads, head_dim;
} shapes[] = {{"SmolLM2-135M 9/3x64", 9, 3, 64},
              {"Qwen2.5-0.5B 14/2x64", 14, 2, 64},
              {"Llama-70B 64/8x128", 64, 8, 128},
              {"MHA 16/16x128", 16, 16, 128}};

typedef struct {
    sp_device *device;
    sp_attention_args args;
} attention_call;

static void call_attention(void *ctx) {
    const attention_call *call = ctx;
    sp_op_attention(call->device, &call->args);
}

/* n_rows rows of text with n_keys keys each, n_new of them queries. Pages lie scattered. */
static void line_attention(bench *b, size_t i_shape, size_t n_rows, size_t n_keys, size_t n_new) {
    size_t h = shapes[i_shape].n_heads, k = shapes[i_shape].n_kv_heads, e = shapes[i_shape].head_dim;
    size_t row_pages = sp_div_up(n_keys, SP_KV_PAGE_TOKENS), n_pages = row_pages * n_rows, n_tokens = n_rows * n_new;
    size_t page_bytes = sp_kv_page_bytes(b->device, k, e), kv_bytes = n_pages * page_bytes;
    float *q = new_floats(n_tokens * h * e), *out = new_floats(n_tokens * h * e);
    uint16_t *kv =
        aligned_alloc(HUGE_BYTES, sp_round_up(kv_bytes, HUGE_BYTES)); /* scattered pages want few TLB entries */
    SP_CHECK(kv != NULL);
    madvise(kv, sp_round_up(kv_bytes, HUGE_BYTES), MADV_HUGEPAGE);
    for (size_t i = 0; i < kv_bytes / 2; i++) kv[i] = sp_f16_from_f32((float)(i * 7919 % 1009) * (2.0f / 1009) - 1.0f);
    uint32_t *pages = new_bytes(n_pages * sizeof *pages);
    for (size_t i = 0; i < n_pages; i++) pages[i] = (uint32_t)(i % row_pages * n_rows + i / row_pages);
    sp_kv_span *spans = new_bytes(n_rows * sizeof *spans);
    for (size_t i = 0; i < n_rows; i++)
        spans[i] = (sp_kv_span){i * n_new, n_new, n_keys - n_new, pages + i * row_pages};
    attention_call call = {b->device,
                           {.n_heads = h,
                            .n_kv_heads = k,
                            .head_dim = e,
                            .q = q,
                            .ldq = h * e,
                            .scale = 0.125f,
                            .spans = spans,
                            .n_spans = n_rows,
                            .kv = kv,
                            .out = out,
                            .ldo = h * e,
                            .n_tokens = n_tokens}};
    double seconds = seconds_of(b, call_attention, &call), n_visible = 0;
    for (size_t i = 0; i < n_new; i++) n_visible += (double)(n_keys - i) * (double)n_rows;
    char what[100];
    snprintf(what, sizeof what, "%s, %zu x %zu keys, %zu new", shapes[i_shape].name, n_rows, n_keys, n_new);
    report(b, what, seconds, 4.0 * (double)(e * h) * n_visible, n_new == 1 ? (double)kv_bytes : 0);
    free(q), free(out), free(kv), free(pages), free(spans);
}

static void section_decode(bench *b) {
    static const size_t keys[] = {200, 600, 2000};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < 3; j++) line_attention(b, i, 32, keys[j], 1);
    line_attention(b, 0, 1, 2000, 1);
}

static void section_prefill(bench *b) {
    static const size_t tokens[] = {200, 1000, 4000};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t j = 0; j < (i < 2 ? 3 : 2); j++) line_attention(b, i, 1, tokens[j], tokens[j]);
}

/* ---- rows ---- */

typedef struct {
    sp_device *device;
    size_t n_tokens, n;
    float *x, *y, *w;
    void *packed;
    sp_rope_table rope;
    sp_kv_span span;
} rows_call;

static void call_norm(void *ctx) {
    rows_call *call = ctx;
    sp_norm norm = {call->w, 1e-5f, false};
    sp_op_norm(call->device, &norm, call->x, call->n, call->n_tokens, call->n, call->y, call->n);
}
static void call_norm_pack(void *ctx) {
    rows_call *call = ctx;
    sp_norm norm = {call->w, 1e-5f, false};
    sp_op_norm_pack(call->device, &norm, call->x, call->n, call->n_tokens, call->n, call->packed);
}
static void call_glu_pack(void *ctx) {
    rows_call *call = ctx;
    sp_glu glu = {SP_ACT_SILU, call->x, call->y, call->n, call->n_tokens, 0, call->n, call->n};
    sp_op_glu_pack(call->device, &glu, call->packed);
}
static void call_logsumexp(void *ctx) {
    rows_call *call = ctx;
    bool is_finite;
    for (size_t t = 0; t < call->n_tokens; t++)
        sink = sp_logsumexp(call->device, call->x + t * call->n, call->n, &is_finite);
}
static void call_weights(void *ctx) {
    rows_call *call = ctx;
    for (size_t t = 0; t < call->n_tokens; t++)
        sink = sp_softmax_weights(call->device, call->x + t * call->n, call->n, 1.5f, call->y);
}
static void call_argmax(void *ctx) {
    rows_call *call = ctx;
    for (size_t t = 0; t < call->n_tokens; t++) sink = (float)sp_argmax(call->device, call->x + t * call->n, call->n);
}
static void call_rope_kv(void *ctx) { /* heads of 64: 9 of q, 3 of k and v */
    rows_call *call = ctx;
    sp_rope_kv_args args = {.n_heads = 9,
                            .n_kv_heads = 3,
                            .head_dim = 64,
                            .q = call->x,
                            .k = call->y,
                            .v = call->y,
                            .ldq = 576,
                            .ldkv = 192,
                            .rope = &call->rope,
                            .spans = &call->span,
                            .n_spans = 1,
                            .kv = call->packed};
    sp_op_rope_kv(call->device, &args);
}

static void line_rows(bench *b, const char *name, void (*call)(void *), size_t n_tokens, size_t n, double bytes_each) {
    rows_call rows = {.device = b->device, .n_tokens = n_tokens, .n = n};
    rows.x = new_floats(n_tokens * n);
    rows.y = new_floats(n_tokens * n);
    rows.w = new_floats(n_tokens * n);
    size_t packed_bytes = sp_packed_bytes(b->device, n_tokens, n), n_pages = n_tokens / SP_KV_PAGE_TOKENS + 1;
    rows.packed = new_bytes(packed_bytes + n_pages * sp_kv_page_bytes(b->device, 3, 64));
    uint32_t *pages = new_bytes(n_pages * sizeof *pages);
    for (size_t i = 0; i < n_pages; i++) pages[i] = (uint32_t)i;
    rows.rope = (sp_rope_table){rows.w, rows.w, 64, false};
    rows.span = (sp_kv_span){0, n_tokens, 0, pages};
    double seconds = seconds_of(b, call, &rows);
    char what[100];
    snprintf(what, sizeof what, "%s %zu x %zu", name, n_tokens, n);
    report(b, what, seconds, 0, bytes_each * (double)(n_tokens * n));
    free(rows.x), free(rows.y), free(rows.w), free(rows.packed), free(pages);
}

static void section_rows(bench *b) {
    static const size_t tokens[] = {1, 32, 512};
    for (size_t i = 0; i < 3; i++) {
        line_rows(b, "norm", call_norm, tokens[i], 576, 8);
        line_rows(b, "norm_pack", call_norm_pack, tokens[i], 576, 4);
        line_rows(b, "norm_pack", call_norm_pack, tokens[i], 8192, 4);
        line_rows(b, "glu_pack", call_glu_pack, tokens[i], 1536, 8);
        line_rows(b, "glu_pack", call_glu_pack, tokens[i], 14336, 8);
        line_rows(b, "rope_kv 9/3x64", call_rope_kv, tokens[i], 576, 4);
    }
    line_rows(b, "logsumexp", call_logsumexp, 1, 151936, 4);
    line_rows(b, "softmax_weights", call_weights, 1, 151936, 8);
    line_rows(b, "argmax", call_argmax, 1, 151936, 4);
}

static const struct {
    const char *name;
    void (*run)(bench *b);
} sections[] = {{"decode", section_decode}, {"prefill", section_prefill}, {"rows", section_rows}};

int vector_bench(int argc, char **argv) {
    const char *section = NULL, *only_isa = NULL;
    size_t n_threads = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc) {
            only_isa = argv[++i];
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            n_threads = strtoul(argv[++i], NULL, 10);
        } else {
            section = argv[i];
        }
    }
    sp_error err = {0};
    sp_pool *pool = sp_pool_new(n_threads, &err);
    if (!pool) return fprintf(stderr, "%s\n", err.text), EXIT_FAILURE;
    printf("%zu threads\n", sp_pool_n_threads(pool));
    for (const char *const *name = sp_device_isa_names(); *name; name++) {
        if (!sp_device_isa_usable(*name) || !sp_vector_isa_find(*name)) continue;
        if (only_isa ? strcmp(only_isa, *name) != 0 : strcmp(*name, "scalar") == 0) continue;
        sp_device *device = sp_device_open_cpu(pool, SP_MODE_BF16, NULL, &err);
        SP_CHECK(device != NULL);
        device->vector = sp_vector_isa_find(*name);
        bench b = {device, pool, 0};
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
            if (!section || strcmp(section, sections[i].name) == 0) sections[i].run(&b);
        sp_device_close(device);
    }
    sp_pool_free(pool);
    return EXIT_SUCCESS;
}
