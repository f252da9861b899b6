/* Measures products, attention and the rest with the operations that passes are made of.
 *
 * A matrix of products is a region of weights larger than a last-level cache; the more tokens, the fewer of its rows,
 * so that every point takes about as long. Best of the rounds: others on the machine can only slow one down. */
#include "planner/rates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/ops.h"
#include "util/clock.h"
#include "util/size.h"

const size_t sp_rate_tokens[SP_RATE_POINTS] = {1, 8, 32, 128, 512};
static const size_t point_rows[SP_RATE_POINTS] = {4096, 4096, 2048, 1024, 512};

/* N_COLS: of a 70B model. Attention and vectors: of a small one, whose share of them is the greatest. */
enum { N_COLS = 8192, MAX_ROWS = 4096, MAX_TOKENS = 512, ALIGN = 64, HUGE_PAGE = 2 << 20, N_ROUNDS = 3, N_CALLS = 200 };
enum { N_HEADS = 16, N_KV_HEADS = 4, HEAD_DIM = 64, CONTEXT = 512, N_DECODE = 16, N_PREFILL = 128 };
enum { WIDTH_Q = N_HEADS * HEAD_DIM, WIDTH_KV = N_KV_HEADS * HEAD_DIM };
enum { N_VECTOR_TOKENS = 128, VECTOR_D = 1024, VECTOR_F = 4096 };

typedef struct {
    sp_device *device;
    const sp_format *format;
    char *weights; /* [MAX_ROWS] rows of row_bytes, mapped */
    size_t row_bytes, weights_bytes;
    float *x, *y, *z; /* [MAX_TOKENS, N_COLS], [MAX_TOKENS, MAX_ROWS] twice */
    void *packed;
    char *kv;
    bool has_panels; /* the weights */
    uint64_t end_ns; /* no further round begins after this */
} bench;

/* Small values in every format: bytes around 0x3c make fp32, fp16 and bf16 numbers near 1/64 to 1. */
static void fill(void *to, size_t n_bytes) {
    unsigned char *bytes = to;
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (unsigned char)(i % 2 ? 0x3c : (i * 167) >> 3);
}

static bool open_bench(bench *b, sp_error *err) {
    b->row_bytes = N_COLS / b->format->block_elems * b->format->block_bytes;
    b->weights_bytes = MAX_ROWS * b->row_bytes;
    void *mapping = mmap(NULL, b->weights_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->weights = mapping == MAP_FAILED ? NULL : mapping;
    size_t packed_bytes = sp_packed_bytes(b->device, MAX_TOKENS, N_COLS);
    size_t kv_bytes = N_DECODE * CONTEXT / SP_KV_PAGE_TOKENS * sp_kv_page_bytes(b->device, N_KV_HEADS, HEAD_DIM);
    b->x = aligned_alloc(ALIGN, (size_t)MAX_TOKENS * N_COLS * sizeof *b->x);
    b->y = aligned_alloc(ALIGN, (size_t)MAX_TOKENS * MAX_ROWS * sizeof *b->y);
    b->z = aligned_alloc(ALIGN, (size_t)MAX_TOKENS * MAX_ROWS * sizeof *b->z);
    b->packed = aligned_alloc(ALIGN, sp_round_up(packed_bytes, ALIGN));
    b->kv = aligned_alloc(ALIGN, sp_round_up(kv_bytes, ALIGN));
    if (!b->weights || !b->x || !b->y || !b->z || !b->packed || !b->kv)
        return sp_fail(err, SP_ERR_MEMORY, "no memory to measure products with");
    madvise(b->weights, b->weights_bytes, MADV_HUGEPAGE);
    fill(b->weights, b->row_bytes);
    for (size_t i = 1; i < MAX_ROWS; i++) memcpy(b->weights + i * b->row_bytes, b->weights, b->row_bytes);
    fill(b->x, (size_t)MAX_TOKENS * N_COLS * sizeof *b->x);
    fill(b->kv, kv_bytes);
    return true;
}

static void close_bench(bench *b) {
    if (b->weights) munmap(b->weights, b->weights_bytes);
    free(b->x);
    free(b->y);
    free(b->z);
    free(b->packed);
    free(b->kv);
}

/* Best seconds of a few rounds, at least one. */
static double best_seconds(bench *b, void (*run)(bench *b, size_t n), size_t n) {
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < N_ROUNDS && (i == 0 || sp_clock_ns() < b->end_ns); i++) {
        uint64_t start_ns = sp_clock_ns();
        run(b, n);
        uint64_t ns = sp_clock_ns() - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    return (double)best_ns * 1e-9;
}

/* ---- what is measured ---- */

static void multiply(bench *b, size_t n_tokens, size_t n_rows, size_t n_cols, bool panels) {
    sp_linear job = {.format = b->format,
                     .w = b->weights,
                     .row_bytes = b->row_bytes,
                     .n_rows = n_rows,
                     .k = n_cols,
                     .y = b->y,
                     .ldy = MAX_ROWS,
                     .panels = panels};
    sp_op_linear(b->device, &job, 1, b->packed, n_tokens);
}

static void run_product(bench *b, size_t i_point) {
    multiply(b, sp_rate_tokens[i_point], point_rows[i_point], N_COLS, b->has_panels);
}

static void run_calls(bench *b, size_t n_calls) {
    for (size_t i = 0; i < n_calls; i++) multiply(b, 1, SP_PACK_COLS, SP_PACK_COLS, false);
}

/* n rows, one token each at the end of CONTEXT; n == 1: N_PREFILL tokens of one row. */
static void run_attention(bench *b, size_t n) {
    enum { N_PAGES = CONTEXT / SP_KV_PAGE_TOKENS };
    uint32_t pages[N_DECODE * N_PAGES];
    sp_kv_span spans[N_DECODE];
    size_t n_tokens = n == 1 ? N_PREFILL : 1;
    for (size_t i = 0; i < n * N_PAGES; i++) pages[i] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) spans[i] = (sp_kv_span){i, n_tokens, CONTEXT - n_tokens, pages + i * N_PAGES};
    sp_op_attention(b->device, &(sp_attention_args){.n_heads = N_HEADS,
                                                    .n_kv_heads = N_KV_HEADS,
                                                    .head_dim = HEAD_DIM,
                                                    .q = b->x,
                                                    .ldq = WIDTH_Q,
                                                    .scale = 0.125f,
                                                    .spans = spans,
                                                    .n_spans = n,
                                                    .kv = b->kv,
                                                    .out = b->y,
                                                    .ldo = WIDTH_Q,
                                                    .packed = b->packed,
                                                    .n_tokens = n * n_tokens});
}

static void run_vectors(bench *b, size_t n_tokens) {
    sp_norm norm = {b->x, 1e-5f, false};
    sp_op_norm_pack(b->device, &norm, b->y, VECTOR_D, n_tokens, VECTOR_D, b->packed);
    sp_op_glu_pack(b->device,
                   &(sp_glu){.act = SP_ACT_SILU,
                             .gate = b->y,
                             .up = b->z,
                             .ld = MAX_ROWS,
                             .n_tokens = n_tokens,
                             .n_cols = VECTOR_F,
                             .f = VECTOR_F},
                   b->packed);
}

static void measure_products(bench *b, double flops[SP_RATE_POINTS]) {
    for (size_t i = SP_RATE_POINTS; i-- > 0;) { /* the most tokens first: they warm the caches of code */
        sp_op_pack(b->device, b->x, N_COLS, sp_rate_tokens[i], N_COLS, b->packed);
        double n = 2.0 * (double)point_rows[i] * N_COLS * (double)sp_rate_tokens[i];
        flops[i] = n / best_seconds(b, run_product, i);
    }
}

static void measure_all(bench *b, sp_rates *rates) {
    static const double key_flops = 4.0 * WIDTH_Q;
    measure_products(b, rates->linear_flops);
    rates->call_s = best_seconds(b, run_calls, N_CALLS) / N_CALLS;
    rates->decode_flops = key_flops * N_DECODE * CONTEXT / best_seconds(b, run_attention, N_DECODE);
    double prefill_keys = N_PREFILL * (CONTEXT - 0.5 * (N_PREFILL - 1));
    rates->prefill_flops = key_flops * prefill_keys / best_seconds(b, run_attention, 1);
    memset(b->z, 0, (size_t)N_VECTOR_TOKENS * MAX_ROWS * sizeof *b->z);
    double vector_bytes = (double)N_VECTOR_TOKENS * (VECTOR_D + 2.0 * VECTOR_F) * sizeof(float);
    rates->vector_bps = vector_bytes / best_seconds(b, run_vectors, N_VECTOR_TOKENS);
    if (sp_panel_rows(b->device, b->format, N_COLS) == 0) return;
    sp_op_panels(b->device, b->format, b->weights, MAX_ROWS, N_COLS);
    b->has_panels = true;
    measure_products(b, rates->panel_flops);
}

bool sp_rates_measure(sp_device *device, const sp_format *format, size_t n_threads, double limit_s, sp_rates *rates,
                      sp_error *err) {
    sp_rates measured = {.mode = sp_device_mode(device), .n_threads = n_threads, .measured_s = sp_clock_wall_s()};
    snprintf(measured.isa, sizeof measured.isa, "%s", sp_device_isa(device));
    snprintf(measured.format, sizeof measured.format, "%s", format->name);
    bench b = {.device = device, .format = format, .end_ns = sp_clock_ns() + (uint64_t)(limit_s * 1e9)};
    bool good = open_bench(&b, err);
    if (good) measure_all(&b, &measured);
    close_bench(&b);
    if (good) *rates = measured;
    return good;
}

/* ---- use ---- */

static double weight_seconds(const double flops[SP_RATE_POINTS], double n_tokens) {
    double at[SP_RATE_POINTS];
    for (size_t i = 0; i < SP_RATE_POINTS; i++) at[i] = 2.0 * (double)sp_rate_tokens[i] / flops[i];
    size_t i = 1;
    while (i + 1 < SP_RATE_POINTS && n_tokens > (double)sp_rate_tokens[i]) i++;
    double from = (double)sp_rate_tokens[i - 1], to = (double)sp_rate_tokens[i];
    double seconds = at[i - 1] + (at[i] - at[i - 1]) * (n_tokens - from) / (to - from);
    return seconds > at[0] ? seconds : at[0];
}

double sp_rates_weight_seconds(const sp_rates *rates, double n_tokens, double panel_share) {
    double raw_s = weight_seconds(rates->linear_flops, n_tokens);
    if (panel_share <= 0 || rates->panel_flops[0] <= 0) return raw_s;
    return (1 - panel_share) * raw_s + panel_share * weight_seconds(rates->panel_flops, n_tokens);
}
