/* Products of every ISA against a plain restatement of the canonical order, byte for byte; with --bench, their speed.
 *
 *     check_linear                         the tests; ISAs this machine lacks are named as skipped
 *     check_linear --quick                 a part of them, for an emulated processor
 *     check_linear --isa NAME              of one ISA; exit 77 where it is missing
 *     check_linear --write-hashes FILE     the committed hashes of outputs, from the plain restatement
 *     check_linear --bench [SECTION] [--isa NAME] [--threads N] [--panels]
 *
 * Inputs are drawn from a counter-based generator keyed by the case, so every machine sees the same ones, and the
 * hashes in tests/golden/kernels/linear_hashes.txt hold machines with different ISAs to the same bytes. Weights end at
 * a page that cannot be read, outputs at one that cannot be written. It needs nothing but libc, so that it can be built
 * alone where the program's libraries are missing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/kernels_bench.h"
#include "kernels/ops.h"
#include "util/fpenv.h"
#include "util/size.h"

#define HASH_FILE "tests/golden/kernels/linear_hashes.txt"

enum { MAX_JOBS = 3, MAX_ISAS = 8, BLOCK = 32, EXIT_SKIP = 77 };

/* What numbers a case is made of. */
typedef enum {
    VALUES_PLAIN, /* of the size of real weights and activations */
    VALUES_WIDE,  /* exponents from denormal to the greatest whose sums stay finite */
    VALUES_INF,   /* a few infinities among plain ones: outputs may be inf or NaN */
} values;

typedef struct {
    sp_format_id format;
    sp_mode mode;
    size_t n_rows, k, n_tokens;
    values kind;
    bool bias, add;
    size_t shift_bytes; /* of the matrix from a 64-byte boundary, when it does not end at the guard page */
    size_t pad_bytes;   /* between rows */
} test_case;

/* ---- inputs ---- */

typedef struct {
    uint64_t state;
} rng;

static uint64_t rng_next(rng *r) { /* splitmix64 */
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float float_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float draw(rng *r, values kind) {
    const uint64_t bits = rng_next(r);
    const uint32_t sign_mantissa = (uint32_t)bits & 0x807fffffu, dice = (uint32_t)(bits >> 32) % 64;
    if (kind == VALUES_INF && dice == 0) return float_from_bits((sign_mantissa & 0x80000000u) | 0x7f800000u);
    if (kind != VALUES_WIDE) return (float)(int32_t)(bits >> 32) * 0x1p-31f;
    /* products of two reach from far below the least normal to 2^104 */
    const uint32_t exponents[] = {0, 0, 1, 2, 30, 63, 64, 65, 66, 100, 120, 127, 140, 160, 178, 179};
    return float_from_bits(sign_mantissa | exponents[dice % 16] << 23);
}

/* A row of k numbers in its format. Halves that scale a quantized block stay finite. */
static void draw_row(rng *r, const test_case *c, uint8_t *row) {
    const sp_format *format = sp_format_get(c->format);
    for (size_t i = 0; i < c->k / format->block_elems; i++) {
        uint8_t *block = row + i * format->block_bytes;
        const float value = draw(r, c->kind);
        if (c->format == SP_FMT_F32) {
            memcpy(block, &value, sizeof value);
        } else if (c->format == SP_FMT_BF16) {
            const sp_bf16 half = sp_bf16_from_f32(value);
            memcpy(block, &half, sizeof half);
        } else {
            for (size_t j = 0; j < format->block_bytes; j++) block[j] = (uint8_t)rng_next(r);
            const size_t n_halves = c->format == SP_FMT_F16 || format->block_bytes % 4 ? 1 : 2;
            for (size_t j = 0; j < n_halves; j++)
                if ((block[2 * j + 1] & 0x7c) == 0x7c) block[2 * j + 1] &= 0xbf;
        }
    }
}

/* ---- the plain restatement ---- */

/* Both operands as the products see them: exact fp32, or that rounded to bf16. */
static float operand(sp_mode mode, float value) {
    return mode == SP_MODE_BF16 ? sp_bf16_to_f32(sp_bf16_from_f32(value)) : value;
}

static float dot(const float *w, const float *x, size_t k) {
    float c = 0.0f;
    for (size_t k0 = 0; k0 < k; k0 += BLOCK) {
        float chain[2] = {0.0f, 0.0f};
        for (size_t i = 0; i < BLOCK; i++) {
            const bool inside = k0 + i < k;
            chain[i % 2] = fmaf(inside ? w[k0 + i] : 0.0f, inside ? x[k0 + i] : 0.0f, chain[i % 2]);
        }
        c += chain[0] + chain[1];
    }
    return c;
}

typedef struct {
    test_case c;
    uint8_t *mapping; /* weights, ending at the guard page or shifted */
    size_t mapping_bytes, row_bytes;
    uint8_t *w;
    float *x, *bias, *before, *expected; /* x [n_tokens, k]; before, expected [n_tokens, n_rows] */
} inputs;

static uint8_t *map_before_guard(size_t n_bytes, size_t *mapping_bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = sp_round_up(n_bytes, page);
    uint8_t *p = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SP_CHECK(p != MAP_FAILED && mprotect(p + body, page, PROT_NONE) == 0);
    *mapping_bytes = body + page;
    return p + body - n_bytes;
}

static void unmap_before_guard(uint8_t *p, size_t mapping_bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((uint8_t *)((uintptr_t)p / page * page), mapping_bytes);
}

static void *new_floats(size_t n) {
    void *p = aligned_alloc(64, sp_round_up(n * sizeof(float) + 1, 64));
    SP_CHECK(p != NULL);
    return p;
}

static void inputs_init(inputs *in, const test_case *c, uint64_t seed) {
    const sp_format *format = sp_format_get(c->format);
    rng r = {seed};
    in->c = *c;
    in->row_bytes = c->k / format->block_elems * format->block_bytes + c->pad_bytes;
    const size_t n_bytes = c->n_rows * in->row_bytes - c->pad_bytes; /* the last row is not padded */
    in->w = in->mapping = map_before_guard(n_bytes + c->shift_bytes, &in->mapping_bytes);
    for (size_t i = 0; i < c->n_rows; i++) draw_row(&r, c, in->w + i * in->row_bytes);
    in->x = new_floats(c->n_tokens * c->k);
    for (size_t i = 0; i < c->n_tokens * c->k; i++) in->x[i] = draw(&r, c->kind == VALUES_INF ? VALUES_PLAIN : c->kind);
    in->bias = new_floats(c->n_rows);
    for (size_t i = 0; i < c->n_rows; i++) in->bias[i] = draw(&r, VALUES_PLAIN);
    in->before = new_floats(c->n_tokens * c->n_rows);
    for (size_t i = 0; i < c->n_tokens * c->n_rows; i++) in->before[i] = draw(&r, VALUES_PLAIN);

    in->expected = new_floats(c->n_tokens * c->n_rows);
    float *row = new_floats(c->k), *rounded = new_floats(c->n_tokens * c->k);
    const sp_fpenv env = sp_fpenv_enter();
    for (size_t i = 0; i < c->n_tokens * c->k; i++) rounded[i] = operand(c->mode, in->x[i]);
    for (size_t i = 0; i < c->n_rows; i++) {
        format->to_f32(in->w + i * in->row_bytes, c->k, row);
        for (size_t j = 0; j < c->k; j++) row[j] = operand(c->mode, row[j]);
        for (size_t t = 0; t < c->n_tokens; t++) {
            float y = dot(row, rounded + t * c->k, c->k);
            if (c->bias) y += in->bias[i];
            if (c->add) y += in->before[t * c->n_rows + i];
            in->expected[t * c->n_rows + i] = y;
        }
    }
    sp_fpenv_leave(env);
    free(row);
    free(rounded);
}

static void inputs_deinit(inputs *in) {
    unmap_before_guard(in->mapping, in->mapping_bytes);
    free(in->x);
    free(in->bias);
    free(in->before);
    free(in->expected);
}

static void describe(const test_case *c, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "%s/%s/%zux%zu/t%zu/%s%s%s", sp_format_get(c->format)->name,
             c->mode == SP_MODE_BF16 ? "bf16" : "fp32", c->n_rows, c->k, c->n_tokens,
             c->kind == VALUES_PLAIN  ? "plain"
             : c->kind == VALUES_WIDE ? "wide"
                                      : "inf",
             c->bias ? "+bias" : "", c->add ? "+add" : "");
}

/* ---- one case on one device ---- */

static size_t n_passed, n_failed;

static void verdict(bool good, const char *isa, const char *what, const char *detail) {
    n_passed += good;
    n_failed += !good;
    if (!good) printf("FAILED %s %s: %s\n", isa, what, detail);
}

/* Equal bytes; any NaN equals any other, since a NaN's payload is the processor's affair. */
static bool same(float a, float b) {
    uint32_t bits[2];
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] == bits[1] || (isnan(a) && isnan(b));
}

/* y [n_tokens, ldy] before a guard page, its gaps filled with a mark that must stay. */
static bool run_case(sp_device *device, const inputs *in, size_t ldy, bool two_jobs, const uint8_t *panels,
                     char *detail, size_t detail_bytes) {
    const test_case *c = &in->c;
    const float mark = -12345.75f;
    const size_t n_out = (c->n_tokens - 1) * ldy + c->n_rows;
    size_t mapping_bytes;
    float *y = (float *)(void *)map_before_guard(n_out * sizeof(float), &mapping_bytes);
    for (size_t i = 0; i < n_out; i++) y[i] = mark;
    for (size_t t = 0; t < c->n_tokens; t++)
        for (size_t i = 0; i < c->n_rows; i++) y[t * ldy + i] = in->before[t * c->n_rows + i];
    void *packed = aligned_alloc(64, sp_round_up(sp_packed_bytes(device, c->n_tokens, c->k), 64));
    SP_CHECK(packed != NULL);
    memset(packed, 0xff, sp_packed_bytes(device, c->n_tokens, c->k)); /* stale bytes are NaN */
    sp_op_pack(device, in->x, c->k, c->n_tokens, c->k, packed);
    const size_t cut = two_jobs ? c->n_rows / 3 : 0; /* the same matrix as two jobs of uneven size */
    const sp_linear whole = {.format = sp_format_get(c->format),
                             .w = panels ? panels : in->w,
                             .row_bytes = in->row_bytes,
                             .n_rows = c->n_rows,
                             .k = c->k,
                             .bias = c->bias ? in->bias : NULL,
                             .add = c->add,
                             .y = y,
                             .ldy = ldy,
                             .panels = panels != NULL};
    sp_linear jobs[2] = {whole, whole};
    jobs[0].n_rows = cut;
    jobs[1].n_rows = c->n_rows - cut;
    jobs[1].w = in->w + cut * in->row_bytes;
    jobs[1].bias = c->bias ? in->bias + cut : NULL;
    jobs[1].y = y + cut;
    sp_op_linear(device, cut ? jobs : &whole, cut ? 2 : 1, packed, c->n_tokens);
    bool good = true;
    for (size_t i = 0; i < n_out && good; i++) {
        const size_t t = i / ldy, row = i % ldy;
        const float want = row < c->n_rows ? in->expected[t * c->n_rows + row] : mark;
        good = same(y[i], want);
        if (!good) snprintf(detail, detail_bytes, "token %zu row %zu is %a, want %a", t, row, y[i], want);
    }
    free(packed);
    unmap_before_guard((uint8_t *)y, mapping_bytes);
    return good;
}

/* The same with the weights in panel form, before a guard page; and rows read back. True where it has none. */
static bool run_panels(sp_device *device, const inputs *in, size_t ldy, char *detail, size_t detail_bytes) {
    const test_case *c = &in->c;
    const sp_format *format = sp_format_get(c->format);
    const size_t row_bytes = c->k * sizeof(sp_bf16);
    if (sp_panel_rows(device, format, c->k) == 0 || in->row_bytes != row_bytes) return true;
    size_t mapping_bytes;
    uint8_t *w = map_before_guard(c->n_rows * row_bytes, &mapping_bytes);
    memcpy(w, in->w, c->n_rows * row_bytes);
    sp_op_panels(device, format, w, c->n_rows, c->k);
    bool good = run_case(device, in, ldy, false, w, detail, detail_bytes);
    float *want = new_floats(c->k);
    sp_bf16 *row = new_floats(c->k);
    for (size_t r = 0; good && c->format == SP_FMT_BF16 && r < c->n_rows; r++) {
        sp_panel_row(device, w, c->n_rows, c->k, r, row);
        format->to_f32(in->w + r * row_bytes, c->k, want);
        for (size_t i = 0; good && i < c->k; i++) good = row[i] == sp_bf16_from_f32(want[i]);
        if (!good) snprintf(detail, detail_bytes, "row %zu comes back from its panel as another", r);
    }
    free(row);
    free(want);
    unmap_before_guard(w, mapping_bytes);
    return good;
}

/* ---- devices, one for each ISA that is here ---- */

typedef struct {
    sp_device *device[MAX_ISAS][2]; /* by ISA and mode; NULL: the mode is another ISA's */
    const char *name[MAX_ISAS];
    size_t n;
} devices;

/* Everything better than isa_name, as a list for SPILL_DISABLE_ISA. */
static void list_better(const char *isa_name, char *out, size_t out_bytes) {
    out[0] = 0;
    for (const char *const *name = sp_device_isa_names(); strcmp(*name, isa_name) != 0; name++) {
        const size_t n = strlen(out);
        snprintf(out + n, out_bytes - n, "%s%s", n ? "," : "", *name);
    }
}

/* only: NULL, or the one ISA wanted */
static void devices_open(devices *all, sp_pool *pool, const char *only) {
    all->n = 0;
    for (const char *const *name = sp_device_isa_names(); *name; name++) {
        if (only && strcmp(only, *name) != 0) continue;
        if (!sp_device_isa_usable(*name)) {
            printf("skipped: %s is not on this machine\n", *name);
            continue;
        }
        char better[100];
        list_better(*name, better, sizeof better);
        for (int mode = 0; mode < 2; mode++) {
            sp_error err = {0};
            sp_device *device = sp_device_open_cpu(pool, (sp_mode)mode, better, &err);
            SP_CHECK(device != NULL);
            if (strcmp(sp_device_isa(device), *name) != 0) {
                sp_device_close(device);
                device = NULL;
            }
            all->device[all->n][mode] = device;
        }
        all->name[all->n++] = *name;
    }
}

static void devices_close(devices *all) {
    for (size_t i = 0; i < all->n; i++)
        for (int mode = 0; mode < 2; mode++) sp_device_close(all->device[i][mode]);
}

/* ---- the cases ---- */

/* An emulator's VCVTPH2PS may take denormal halves for zero when DAZ is set, which no processor does: QEMU 7.2. */
#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static bool halves_convert(void) {
    const sp_fpenv env = sp_fpenv_enter();
    volatile int least = 1;
    const float value = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(least)));
    sp_fpenv_leave(env);
    return value == 0x1p-24f;
}
#endif

/* Is this case beyond what the machine, being emulated, can show? Says so once. */
static bool beyond_emulator(const test_case *c, const char *isa) {
#if defined(__x86_64__)
    static bool said;
    if (c->format == SP_FMT_F32 || c->format == SP_FMT_BF16 || strcmp(isa, "scalar") == 0 || halves_convert())
        return false;
    if (!said) printf("skipped: formats with halves in vectors, this emulator takes denormal halves for zero\n");
    said = true;
    return true;
#else
    return (void)c, (void)isa, false;
#endif
}

static void check_case(const devices *all, const test_case *c, uint64_t seed) {
    inputs in;
    inputs_init(&in, c, seed);
    char what[100], detail[200];
    describe(c, what, sizeof what);
    for (size_t i = 0; i < all->n; i++) {
        sp_device *device = all->device[i][c->mode];
        if (!device || beyond_emulator(c, all->name[i])) continue;
        bool good = run_case(device, &in, c->n_rows + seed % 5, seed % 3 == 0, NULL, detail, sizeof detail);
        verdict(good, all->name[i], what, detail);
        good = run_panels(device, &in, c->n_rows + seed % 5, detail, sizeof detail);
        verdict(good, all->name[i], what, detail);
    }
    inputs_deinit(&in);
}

static void check_shapes(const devices *all, bool quick) {
    static const struct {
        size_t n_rows, k, n_tokens;
    } shapes[] = {
        {1, 1, 1},     {1, 32, 1},    {3, 31, 2},   {7, 33, 3},   {8, 64, 4},    {15, 65, 5},     {16, 96, 6},
        {17, 100, 7},  {31, 7, 8},    {32, 128, 1}, {33, 255, 1}, {47, 256, 9},  {48, 257, 12},   {64, 288, 13},
        {65, 512, 16}, {70, 300, 17}, {70, 1, 40},  {129, 64, 2}, {130, 96, 3},  {200, 32, 4},    {257, 224, 1},
        {64, 544, 31}, {96, 64, 32},  {33, 64, 33}, {5, 800, 1},  {40, 96, 300}, {300, 1100, 70}, {33, 64, 530},
    };
    uint64_t seed = 1;
    for (int format = 0; format < SP_FMT_COUNT; format++)
        for (int mode = 0; mode < 2; mode++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++, seed++) {
                if (quick && i % 5 != (size_t)format % 5) continue;
                const size_t elems = sp_format_get((sp_format_id)format)->block_elems;
                const test_case c = {.format = (sp_format_id)format,
                                     .mode = (sp_mode)mode,
                                     .n_rows = shapes[i].n_rows,
                                     .k = sp_round_up(shapes[i].k, elems),
                                     .n_tokens = shapes[i].n_tokens,
                                     .kind = elems == 1 ? (values)(seed % 2) : VALUES_PLAIN,
                                     .bias = seed % 4 < 2,
                                     .add = seed % 3 == 0,
                                     .shift_bytes = seed % 7 == 0 ? 1 + seed % 63 : 0,
                                     .pad_bytes = seed % 5 == 0 ? 2 + seed % 64 : 0};
                check_case(all, &c, seed);
            }
}

/* Random shapes, and infinities, where the formats can hold them. */
static void check_random(const devices *all, bool quick) {
    rng r = {77};
    for (size_t i = 0; i < (quick ? 40 : 300); i++) {
        const sp_format_id format = (sp_format_id)(rng_next(&r) % SP_FMT_COUNT);
        const size_t elems = sp_format_get(format)->block_elems;
        const test_case c = {.format = format,
                             .mode = (sp_mode)(rng_next(&r) % 2),
                             .n_rows = 1 + rng_next(&r) % 140,
                             .k = sp_round_up(1 + rng_next(&r) % 700, elems),
                             .n_tokens = 1 + rng_next(&r) % 40,
                             .kind = elems == 1 && format != SP_FMT_F16 ? (values)(rng_next(&r) % 3) : VALUES_PLAIN,
                             .bias = rng_next(&r) % 2,
                             .add = rng_next(&r) % 2,
                             .shift_bytes = rng_next(&r) % 2 ? rng_next(&r) % 64 : 0,
                             .pad_bytes = rng_next(&r) % 2 ? rng_next(&r) % 100 : 0};
        check_case(all, &c, 1000 + i);
    }
}

/* More tokens, rows and columns than any kernel keeps in cache at a time. */
static void check_large(const devices *all) {
    static const size_t shapes[][3] = {{70, 2200, 1100}, {1100, 2200, 40}, {300, 4128, 130}, {100, 1632, 530}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const test_case c = {.format = SP_FMT_BF16,
                             .mode = SP_MODE_BF16,
                             .n_rows = shapes[i][0],
                             .k = shapes[i][1],
                             .n_tokens = shapes[i][2],
                             .bias = i == 0,
                             .add = i == 1};
        check_case(all, &c, 2000 + i);
    }
}

/* Panel form: every number of tokens that a pass may end in, panels whole and with a rest. */
static void check_panels(const devices *all, bool quick) {
    static const size_t shapes[][2] = {{64, 576}, {150, 96}, {33, 1120}, {7, 32}, {300, 288}};
    for (size_t n_tokens = 1; n_tokens <= 70; n_tokens += quick ? 9 : 1) {
        const size_t *shape = shapes[n_tokens % 5];
        const test_case c = {.format = n_tokens % 7 == 0 ? SP_FMT_F16 : SP_FMT_BF16,
                             .n_rows = shape[0],
                             .k = shape[1],
                             .n_tokens = n_tokens,
                             .kind = n_tokens % 7 && n_tokens % 2 ? VALUES_WIDE : VALUES_PLAIN,
                             .bias = n_tokens % 3 == 0,
                             .add = n_tokens % 4 == 0};
        check_case(all, &c, 3000 + n_tokens);
    }
}

/* A packed buffer has room for fewer tokens and columns than it was made for. */
static void check_packed_bytes(const devices *all) {
    for (size_t i = 0; i < all->n; i++)
        for (int mode = 0; mode < 2; mode++) {
            const sp_device *device = all->device[i][mode];
            for (size_t n_tokens = 2; device && n_tokens <= 70; n_tokens++) {
                const size_t n_bytes = sp_packed_bytes(device, n_tokens, 100);
                const bool fewer = sp_packed_bytes(device, n_tokens - 1, 100) <= n_bytes;
                const bool narrower = sp_packed_bytes(device, n_tokens, 99 - n_tokens) <= n_bytes;
                verdict(fewer && narrower, all->name[i], "sp_packed_bytes", "less would take more");
            }
        }
}

/* ---- hashes that are the same on every machine ---- */

static uint64_t hash_floats(const float *x, size_t n) { /* FNV-1a over 32-bit words */
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

static size_t hash_case(size_t i, test_case *c) {
    static const size_t shapes[][3] = {{50, 96, 1}, {37, 576, 5}, {100, 1024, 19}};
    const size_t n_shapes = sizeof shapes / sizeof *shapes;
    *c = (test_case){.format = (sp_format_id)(i / n_shapes / 2 % SP_FMT_COUNT),
                     .mode = (sp_mode)(i / n_shapes % 2),
                     .n_rows = shapes[i % n_shapes][0],
                     .k = shapes[i % n_shapes][1],
                     .n_tokens = shapes[i % n_shapes][2]};
    if (sp_format_get(c->format)->block_elems == 1 && i % 2) c->kind = VALUES_WIDE;
    return n_shapes * 2 * SP_FMT_COUNT;
}

static int write_hashes(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return perror(path), EXIT_FAILURE;
    test_case c;
    for (size_t i = 0; i < hash_case(i, &c); i++) {
        inputs in;
        char what[100];
        inputs_init(&in, &c, 5000 + i);
        describe(&c, what, sizeof what);
        fprintf(file, "%s %016llx\n", what, (unsigned long long)hash_floats(in.expected, c.n_rows * c.n_tokens));
        inputs_deinit(&in);
    }
    return fclose(file) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void check_hashes(const devices *all) {
    FILE *file = fopen(HASH_FILE, "r");
    verdict(file != NULL, "hashes", HASH_FILE, "cannot be read");
    if (!file) return;
    test_case c;
    for (size_t i = 0; i < hash_case(i, &c); i++) {
        inputs in;
        char what[100], want_what[100], detail[200];
        unsigned long long want;
        inputs_init(&in, &c, 5000 + i);
        describe(&c, what, sizeof what);
        const bool known = fscanf(file, "%99s %llx", want_what, &want) == 2 && strcmp(what, want_what) == 0;
        verdict(known, "hashes", what, "not in " HASH_FILE);
        verdict(known && want == hash_floats(in.expected, c.n_rows * c.n_tokens), "reference", what, "other bytes");
        for (size_t j = 0; j < all->n; j++) {
            if (!all->device[j][c.mode] || beyond_emulator(&c, all->name[j])) continue;
            verdict(run_case(all->device[j][c.mode], &in, c.n_rows, false, NULL, detail, sizeof detail), all->name[j],
                    what, detail);
        }
        inputs_deinit(&in);
    }
    fclose(file);
}

static int check_all(bool quick, const char *only) {
    if (only && !sp_device_isa_usable(only)) {
        printf("skipped: %s is not on this machine\n", only);
        return EXIT_SKIP;
    }
    const size_t thread_counts[] = {3, 1};
    for (size_t i = 0; i < (quick ? 1 : 2); i++) {
        sp_error err = {0};
        sp_pool *pool = sp_pool_new(thread_counts[i], &err);
        SP_CHECK(pool != NULL);
        devices all;
        devices_open(&all, pool, only);
        check_shapes(&all, quick);
        check_random(&all, quick);
        check_panels(&all, quick);
        if (i == 0) check_packed_bytes(&all);
        if (!quick && i == 0) check_large(&all);
        if (i == 0) check_hashes(&all);
        devices_close(&all);
        sp_pool_free(pool);
    }
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write-hashes") == 0) return write_hashes(argv[2]);
    if (argc >= 2 && strcmp(argv[1], "--bench") == 0) return kernels_bench(argc - 2, argv + 2);
    const char *only = argc == 3 && strcmp(argv[1], "--isa") == 0 ? argv[2] : NULL;
    return check_all(argc == 2 && strcmp(argv[1], "--quick") == 0, only);
}
