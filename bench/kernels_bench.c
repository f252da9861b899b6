/* Speed of the products against the machine's own limits, measured in the same run.
 *
 * Sections: gemm (matrices of a 70B model at 32, 128 and 512 tokens), tune (a few seconds' worth of the same), small
 * (those of SmolLM2-135M), one (few tokens over weights far bigger than any cache, BF16 and quantized). A line is the
 * best of several repetitions, each paired with a burst of the ISA's peak (register-only multiply-adds on every thread)
 * or a plain read of the same weights, so that a ratio compares moments close together. --panels: the weights are in
 * panel form. */
#include "bench/kernels_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/peak.h"
#include "kernels/ops.h"
#include "util/clock.h"
#include "util/fpenv.h"
#include "util/size.h"

/* At least so many repetitions, and so many seconds of them: a core that others share is at times slow for long. */
enum { REPEATS = 7, READ_TASK_BYTES = 1 << 20, READ_MAX_TOKENS = 128 };
static const double MIN_SECONDS = 0.5;

/* ---- memory ---- */

static volatile float sink;

typedef struct {
    const uint8_t *bytes;
    size_t n_bytes;
} read_ctx;

static void read_task(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const read_ctx *read = ctx;
    const size_t from = i_task * READ_TASK_BYTES, to = sp_min_size(from + READ_TASK_BYTES, read->n_bytes);
    const uint64_t *p = (const uint64_t *)(const void *)(read->bytes + from);
    typedef uint64_t lanes __attribute__((vector_size(16)));
    const lanes *v = (const lanes *)(const void *)p;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < (to - from) / sizeof *v / 4; i++, v += 4) a |= v[0], b |= v[1], c |= v[2], d |= v[3];
    a |= b | c | d;
    sink = (float)(a[0] | a[1]);
}

static double read_once(sp_pool *pool, const void *bytes, size_t n_bytes) {
    read_ctx ctx = {bytes, n_bytes};
    const uint64_t start = bench_now_ns(pool);
    sp_pool_run(pool, sp_div_up(n_bytes, READ_TASK_BYTES), read_task, &ctx);
    return (double)n_bytes / (double)(bench_now_ns(pool) - start) * 1e9;
}

/* ---- one line ---- */

typedef struct {
    sp_device *device;
    sp_pool *pool;
    const char *isa;
    uint8_t *weights; /* of at least the greatest matrix */
    bool panels;      /* take the weights to be in panel form; numbers are numbers */
} bench;

static double larger(double a, double b) { return a > b ? a : b; }

static void line(const bench *b, sp_format_id id, size_t n_rows, size_t k, size_t n_tokens) {
    const sp_format *format = sp_format_get(id);
    if (b->panels && sp_panel_rows(b->device, format, k) == 0) return;
    const size_t row_bytes = k / format->block_elems * format->block_bytes;
    float *x = aligned_alloc(64, sp_round_up(n_tokens * k * sizeof *x, 64));
    float *y = aligned_alloc(64, sp_round_up(n_tokens * n_rows * sizeof *y, 64));
    void *packed = aligned_alloc(64, sp_round_up(sp_packed_bytes(b->device, n_tokens, k), 64));
    SP_CHECK(x && y && packed);
    for (size_t i = 0; i < n_tokens * k; i++) x[i] = (float)(i % 17) * 0.125f - 1.0f;
    memset(y, 0, n_tokens * n_rows * sizeof *y);
    const sp_linear job = {.format = format,
                           .w = b->weights,
                           .row_bytes = row_bytes,
                           .panels = b->panels,
                           .n_rows = n_rows,
                           .k = k,
                           .y = y,
                           .ldy = n_rows};
    double rate = 0, pack_rate = 0, peak = 0, read = 0;
    const double flop = 2.0 * (double)n_rows * (double)k * (double)n_tokens;
    const size_t inner = 1 + (size_t)(2e8 / flop);
    const uint64_t begin = sp_clock_ns();
    for (int i = 0; i < REPEATS || (double)(sp_clock_ns() - begin) < MIN_SECONDS * 1e9; i++) {
        peak = larger(peak, bench_peak(b->pool, b->isa));
        if (n_tokens <= READ_MAX_TOKENS) read = larger(read, read_once(b->pool, b->weights, n_rows * row_bytes));
        const uint64_t start = bench_now_ns(b->pool);
        for (size_t j = 0; j < inner; j++) sp_op_pack(b->device, x, k, n_tokens, k, packed);
        const uint64_t middle = bench_now_ns(b->pool);
        for (size_t j = 0; j < inner; j++) sp_op_linear(b->device, &job, 1, packed, n_tokens);
        const double seconds = (double)(bench_now_ns(b->pool) - middle) * 1e-9 / (double)inner;
        rate = larger(rate, flop / seconds);
        pack_rate = larger(pack_rate, flop / (seconds + (double)(middle - start) * 1e-9 / (double)inner));
    }
    printf("%-10s %-5s %6zu x %-6zu %4zu tokens %8.1f GFLOP/s, %8.1f with packing", b->isa, format->name, n_rows, k,
           n_tokens, rate * 1e-9, pack_rate * 1e-9);
    if (peak > 0) printf(", peak %8.1f, ratio %.2f", peak * 1e-9, rate / peak);
    if (read > 0) {
        const double bps = rate / flop * (double)(n_rows * row_bytes);
        printf(", %5.2f GB/s of %5.2f, ratio %.2f", bps * 1e-9, read * 1e-9, bps / read);
    }
    printf("\n");
    fflush(stdout);
    free(x);
    free(y);
    free(packed);
}

static void section_gemm(const bench *b) {
    static const size_t shapes[][2] = {{8192, 8192}, {28672, 8192}, {8192, 28672}, {1024, 8192}};
    static const size_t tokens[] = {32, 128, 512};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++) line(b, SP_FMT_BF16, shapes[i][0], shapes[i][1], tokens[j]);
}

static void section_small(const bench *b) {
    static const size_t shapes[][2] = {{576, 576}, {192, 576}, {1536, 576}, {576, 1536}, {49152, 576}};
    static const size_t tokens[] = {1, 32, 200, 512};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++) line(b, SP_FMT_BF16, shapes[i][0], shapes[i][1], tokens[j]);
}

static void section_tune(const bench *b) {
    line(b, SP_FMT_BF16, 2048, 8192, 32);
    line(b, SP_FMT_BF16, 2048, 8192, 128);
    line(b, SP_FMT_BF16, 2048, 8192, 512);
    line(b, SP_FMT_BF16, 576, 576, 32);
    line(b, SP_FMT_BF16, 576, 576, 200);
}

static void section_one(const bench *b) {
    static const size_t tokens[] = {1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24};
    for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) line(b, SP_FMT_BF16, 28672, 8192, tokens[j]);
    line(b, SP_FMT_BF16, 8192, 28672, 1);
    line(b, SP_FMT_BF16, 49152, 576, 1);
    static const sp_format_id formats[] = {SP_FMT_F32,  SP_FMT_F16,  SP_FMT_Q8_0, SP_FMT_Q4_0,
                                           SP_FMT_Q4_1, SP_FMT_Q5_0, SP_FMT_Q5_1};
    for (size_t j = 0; j < sizeof formats / sizeof *formats; j++) line(b, formats[j], 28672, 8192, 1);
    line(b, SP_FMT_Q4_1, 28672, 8192, 32);
}

static const struct {
    const char *name;
    void (*run)(const bench *b);
} sections[] = {{"gemm", section_gemm}, {"small", section_small}, {"one", section_one}, {"tune", section_tune}};

/* The list for SPILL_DISABLE_ISA that leaves isa the best. */
static void list_better(const char *isa, char *out, size_t out_bytes) {
    out[0] = 0;
    for (const char *const *name = sp_device_isa_names(); *name && strcmp(*name, isa) != 0; name++) {
        const size_t n = strlen(out);
        snprintf(out + n, out_bytes - n, "%s%s", n ? "," : "", *name);
    }
}

static void bench_isa(sp_pool *pool, const char *isa, const char *section, bool panels, uint8_t *weights) {
    char better[100];
    sp_error err = {0};
    list_better(isa, better, sizeof better);
    sp_device *device = sp_device_open_cpu(pool, SP_MODE_BF16, better, &err);
    SP_CHECK(device != NULL);
    const bench b = {device, pool, isa, weights, panels};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!section || strcmp(section, sections[i].name) == 0) sections[i].run(&b);
    sp_device_close(device);
}

int kernels_bench(int argc, char **argv) {
    const char *section = NULL, *only_isa = NULL;
    size_t n_threads = 0;
    bool panels = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
            only_isa = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            n_threads = strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--panels") == 0)
            panels = true;
        else
            section = argv[i];
    }
    sp_error err = {0};
    sp_pool *pool = sp_pool_new(n_threads, &err);
    if (!pool) return fprintf(stderr, "%s\n", err.text), EXIT_FAILURE;
    const size_t n_bytes = (size_t)28672 * 8192 * sizeof(float);
    uint8_t *weights = aligned_alloc(2 << 20, n_bytes);
    SP_CHECK(weights != NULL);
    madvise(weights, n_bytes, MADV_HUGEPAGE); /* as the engine's weights lie */
    bench_fill(weights, n_bytes);
    printf("%zu threads\n", sp_pool_n_threads(pool));
    for (const char *const *name = sp_device_isa_names(); *name; name++)
        if (sp_device_isa_usable(*name) && (only_isa ? strcmp(only_isa, *name) == 0 : strcmp(*name, "scalar") != 0))
            bench_isa(pool, *name, section, panels, weights);
    free(weights);
    sp_pool_free(pool);
    return EXIT_SUCCESS;
}
