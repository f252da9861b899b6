#include "bench/peak.h"

#include <string.h>
#include <time.h>

#include "util/clock.h"

enum { BURST_LOOPS = 40000 };

typedef struct {
    const char *isa;
    sp_task_fn *burst; /* BURST_LOOPS loops of register-only work */
    double flop_per_loop;
} peak_row;

static volatile float sink;

void bench_fill(uint8_t *w, size_t n_bytes) {
    uint32_t *words = (uint32_t *)(void *)w, x = 1;
    for (size_t i = 0; i < n_bytes / 4; i++) {
        x = x * 1664525u + 1013904223u;
        words[i] = ((x & 0xbfffbfffu) | 0x30003000u) & 0xbf7fbf7fu;
    }
}

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
    bench_fill(tiles[0], sizeof tiles);
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

uint64_t bench_now_ns(const sp_pool *pool) {
    if (sp_pool_n_threads(pool) > 1) return sp_clock_ns();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double bench_peak(sp_pool *pool, const char *isa) {
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        if (!peaks[i].isa || strcmp(peaks[i].isa, isa) != 0) continue;
        const size_t n_tasks = sp_pool_n_threads(pool) * 4;
        const uint64_t start = bench_now_ns(pool);
        sp_pool_run(pool, n_tasks, peaks[i].burst, NULL);
        return (double)n_tasks * BURST_LOOPS * peaks[i].flop_per_loop / (double)(bench_now_ns(pool) - start) * 1e9;
    }
    return 0;
}
