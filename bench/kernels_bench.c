/* Speed of the products against the machine's own limits, measured in the same run.
 *
 * Sections: gemm (matrices of a 70B model at 32, 128 and 512 tokens), tune (a few seconds' worth of the same), small
 * (those of SmolLM2-135M), one (few tokens over weights far bigger than any cache, BF16 and quantized). A line is the
 * best of several repetitions, each paired with a burst of the ISA's peak (register-only multiply-adds on every thread)
 * or a plain read of the same weights, so that a ratio compares moments close together. The peak of tiles is taken
 * with numbers like those of the weights: with zeros they draw less and run a quarter faster. --panels: the weights are
 * in panel form. */
#include "bench/kernels_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/ops.h"
#include "util/clock.h"
#include "util/fpenv.h"
#include "util/size.h"

/* At least so many repetitions, and so many seconds of them: a core that others share is at times slow for long. */
enum { REPEATS = 7, BURST_LOOPS = 40000, READ_TASK_BYTES = 1 << 20, READ_MAX_TOKENS = 128 };
static const double MIN_SECONDS = 0.5;

/* bf16 pairs, halves and bytes: finite and never denormal */
static void fill_weights(uint8_t *w, size_t n_bytes) {
    uint32_t *words = (uint32_t *)(void *)w, x = 1;
    for (size_t i = 0; i < n_bytes / 4; i++) {
        x = x * 1664525u + 1013904223u;
        words[i] = ((x & 0xbfffbfffu) | 0x30003000u) & 0xbf7fbf7fu;
    }
}

/* ---- the machine's limits ---- */

typedef struct {
    const char *isa;
    sp_task_fn *burst; /* BURST_LOOPS loops of register-only work */
    double flop_per_loop;
} peak_row;

static volatile float sink;

#if defined(__x86_64__)
#include <immintrin.h>

enum { CHAINS = 12 };
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

__attribute__((target("avx2,fma"))) static void burst_avx2(void *ctx, size_t i_task, size_t i_thread) {
    (void)ctx, (void)i_task, (void)i_thread;
    __m256 acc[CHAINS];
    UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_set1_ps((float)i);
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.0f);
    for (int n = 0; n < BURST_LOOPS; n++) {
        UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
        __asm__ volatile("");
    }
    UNROLL for (int i = 1; i < CHAINS; i++) acc[0] = _mm256_add_ps(acc[0], acc[i]);
    sink = _mm256_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f"))) static void burst_avx512(void *ctx, size_t i_task, size_t i_thread) {
    (void)ctx, (void)i_task, (void)i_thread;
    __m512 acc[CHAINS];
    UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_set1_ps((float)i);
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.0f);
    for (int n = 0; n < BURST_LOOPS; n++) {
        UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
        __asm__ volatile("");
    }
    UNROLL for (int i = 1; i < CHAINS; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    sink = _mm512_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f,avx512bf16"))) static void burst_avx512bf16(void *ctx, size_t i_task, size_t i_thread) {
    (void)ctx, (void)i_task, (void)i_thread;
    __m512 acc[CHAINS];
    UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_set1_ps((float)i);
    const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3c003c00), b = (__m512bh)_mm512_set1_epi32(0x3c003c00);
    for (int n = 0; n < BURST_LOOPS; n++) {
        UNROLL for (int i = 0; i < CHAINS; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
        __asm__ volatile("");
    }
    UNROLL for (int i = 1; i < CHAINS; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    sink = _mm512_cvtss_f32(acc[0]);
}

#define NOPS ".rept 16\n\tnop\n\t.endr"

__attribute__((target("amx-tile,amx-bf16"))) static void burst_amx(void *ctx, size_t i_task, size_t i_thread) {
    (void)ctx, (void)i_task, (void)i_thread;
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("" ::"r"(&config) : "memory"); /* GCC 12 drops all stores but those to the first 8 bytes */
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _Alignas(64) uint8_t tiles[4][1024];
    fill_weights(tiles[0], sizeof tiles);
    __asm__ volatile("" ::"r"(&tiles) : "memory"); /* nor does it know what tile loads read */
    _tile_loadd(4, tiles[0], 64);
    _tile_loadd(5, tiles[1], 64);
    _tile_loadd(6, tiles[2], 64);
    _tile_loadd(7, tiles[3], 64);
    for (int n = 0; n < BURST_LOOPS; n++) {
        _tile_dpbf16ps(0, 4, 6);
        __asm__ volatile(NOPS); /* cost nothing, and help where the core is shared: src/kernels/cpu/linear_amx.c */
        _tile_dpbf16ps(1, 4, 7);
        __asm__ volatile(NOPS);
        _tile_dpbf16ps(2, 5, 6);
        __asm__ volatile(NOPS);
        _tile_dpbf16ps(3, 5, 7);
        __asm__ volatile(NOPS);
    }
    _tile_release();
}

static const peak_row peaks[] = {
    {"amx", burst_amx, 4.0 * 16 * 16 * 32 * 2},
    {"avx512bf16", burst_avx512bf16, CHAINS * 64.0},
    {"avx512", burst_avx512, CHAINS * 32.0},
    {"avx2", burst_avx2, CHAINS * 16.0},
};
#else
static const peak_row peaks[] = {{NULL, NULL, 0}};
#endif

/* One thread is timed by its own processor time, which a busy machine disturbs least; several by the wall clock. */
static uint64_t now_ns(const sp_pool *pool) {
    if (sp_pool_n_threads(pool) > 1) return sp_clock_ns();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double seconds_of(sp_pool *pool, size_t n_tasks, sp_task_fn *fn, void *ctx) {
    const uint64_t start = now_ns(pool);
    sp_pool_run(pool, n_tasks, fn, ctx);
    return (double)(now_ns(pool) - start) * 1e-9;
}

/* FLOP/s of all threads; 0 where the ISA's peak is not known. */
static double peak_once(sp_pool *pool, const char *isa) {
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        if (!peaks[i].isa || strcmp(peaks[i].isa, isa) != 0) continue;
        const size_t n_tasks = sp_pool_n_threads(pool) * 4;
        return (double)n_tasks * BURST_LOOPS * peaks[i].flop_per_loop / seconds_of(pool, n_tasks, peaks[i].burst, NULL);
    }
    return 0;
}

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
    return (double)n_bytes / seconds_of(pool, sp_div_up(n_bytes, READ_TASK_BYTES), read_task, &ctx);
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
        peak = larger(peak, peak_once(b->pool, b->isa));
        if (n_tokens <= READ_MAX_TOKENS) read = larger(read, read_once(b->pool, b->weights, n_rows * row_bytes));
        const uint64_t start = now_ns(b->pool);
        for (size_t j = 0; j < inner; j++) sp_op_pack(b->device, x, k, n_tokens, k, packed);
        const uint64_t middle = now_ns(b->pool);
        for (size_t j = 0; j < inner; j++) sp_op_linear(b->device, &job, 1, packed, n_tokens);
        const double seconds = (double)(now_ns(b->pool) - middle) * 1e-9 / (double)inner;
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
    fill_weights(weights, n_bytes);
    printf("%zu threads\n", sp_pool_n_threads(pool));
    for (const char *const *name = sp_device_isa_names(); *name; name++)
        if (sp_device_isa_usable(*name) && (only_isa ? strcmp(only_isa, *name) == 0 : strcmp(*name, "scalar") != 0))
            bench_isa(pool, *name, section, panels, weights);
    free(weights);
    sp_pool_free(pool);
    return EXIT_SUCCESS;
}
