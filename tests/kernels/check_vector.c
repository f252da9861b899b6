/* Everything that is not a product: each operation on every ISA against the scalar lanes, byte for byte, and the scalar
 * lanes against plain double arithmetic within a bound; with --bench, their speed.
 *
 *     check_vector                        the tests; ISAs this machine lacks are named as skipped
 *     check_vector --quick                a part of them, for an emulated processor
 *     check_vector --write-hashes FILE    the committed hashes of outputs, from the scalar lanes
 *     check_vector --exhaustive           exp, log and tanh of every float, sin and cos of many: errors in ulp
 *     check_vector --bench [SECTION] [--isa NAME] [--threads N]
 *
 * A case writes its numbers into a sink, and for the scalar lanes what double arithmetic makes of them. Inputs come
 * from a counter-based generator, so every machine sees the same ones, and tests/golden/kernels/vector_hashes.txt holds
 * machines with different ISAs to the same bytes. Inputs and outputs end at a page that cannot be touched. It needs
 * nothing but libc, so that it can be built alone where the program's libraries are missing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/vector_bench.h"
#include "kernels/quant/f16.h"
#include "kernels/vector.h"
#include "util/fpenv.h"

#define HASH_FILE "tests/golden/kernels/vector_hashes.txt"
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MAX_ISAS = 8, MAX_DETAIL = 160 };

static size_t n_passed, n_failed;

static void verdict(bool good, const char *who, const char *what, const char *detail) {
    if (good) n_passed++;
    if (good) return;
    n_failed++;
    printf("FAIL %s: %s: %s\n", who, what, detail);
}

/* ---- inputs ---- */

static uint64_t mix(uint64_t z) { /* splitmix64's finalizer */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Number i of stream `key`: even in (-1, 1). */
static float draw(uint64_t key, uint64_t i) {
    return (float)(int32_t)(mix(key * 0x9e3779b97f4a7c15u + mix(i + 1)) >> 32) * 0x1p-31f;
}

static float float_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Among plain numbers, of size about `size`: zeros, denormals, infinities, NaN, the greatest and the least. */
static float draw_wild(uint64_t key, uint64_t i, float size) {
    static const uint32_t odd[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff,
                                   0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7fffffff, 0x3f800000};
    uint64_t dice = mix(key ^ mix(i)) % 64;
    return dice < COUNT(odd) ? float_from_bits(odd[dice]) : draw(key, i) * size;
}

/* n floats that end at a page that cannot be touched. */
typedef struct {
    float *at;
    void *mapping;
    size_t mapping_bytes;
} guarded;

static int guard_protection = PROT_NONE;

static guarded guarded_new(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = sp_round_up(n * sizeof(float) + 1, page);
    guarded g = {.mapping_bytes = body + page};
    g.mapping = mmap(NULL, g.mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SP_CHECK(g.mapping != MAP_FAILED && mprotect((char *)g.mapping + body, page, guard_protection) == 0);
    g.at = (float *)(void *)((char *)g.mapping + body - n * sizeof(float));
    return g;
}

static guarded guarded_draw(uint64_t key, size_t n, float size) {
    guarded g = guarded_new(n);
    for (size_t i = 0; i < n; i++) g.at[i] = draw(key, i) * size;
    return g;
}

static void guarded_free(guarded *g) { munmap(g->mapping, g->mapping_bytes); }

/* ---- a case's numbers ---- */

typedef struct {
    float *got;
    size_t n, room;
    bool judge; /* compare with what is expected */
    double worst;
} sink;

/* The next number, and the double it should be near: |got - want| <= bound. */
static void put(sink *s, float got, double want, double bound) {
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->got = realloc(s->got, s->room * sizeof *s->got);
        SP_CHECK(s->got != NULL);
    }
    s->got[s->n++] = got;
    if (!s->judge || got == (float)want || (isnan(got) && isnan(want))) return;
    double share = fabs((double)got - want) / bound;
    if (!(share <= s->worst)) s->worst = share;
}

/* A number that only has to be the same everywhere. */
static void put_free(sink *s, float got) { put(s, got, (double)got, 1.0); }

/* ---- devices: one of each ISA, products replaced by rows as they are ---- */

static void plain_pack_row(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t,
                           size_t n_tokens, void *packed) {
    (void)n_tokens;
    float *to = (float *)packed + t * k + k0;
    for (size_t i = 0; i < n_cols; i++)
        to[i] = mode == SP_MODE_BF16 ? sp_bf16_to_f32(sp_bf16_from_f32(row[i])) : row[i];
}
static const sp_linear_isa plain_rows = {.isa = "plain", .pack_row = plain_pack_row};

static sp_device *device_new(sp_pool *pool, sp_mode mode, const char *isa) {
    sp_error err = {0};
    sp_device *device = sp_device_open_cpu(pool, mode, NULL, &err);
    SP_CHECK(device != NULL);
    device->linear = &plain_rows;
    device->vector = sp_vector_isa_find(isa);
    SP_CHECK(device->vector != NULL);
    return device;
}

static double rounded(const sp_device *device, double x) {
    return device->mode == SP_MODE_BF16 ? (double)sp_bf16_to_f32(sp_bf16_from_f32((float)x)) : x;
}

/* Relative bound of a result that is packed: bf16's half ulp on top of the computation's own. */
static double pack_bound(const sp_device *device, double want, double relative) {
    return fabs(want) * (device->mode == SP_MODE_BF16 ? 0x1p-8 : relative) + 1e-37;
}

/* ---- rows ---- */

static const size_t widths[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 127, 576, 897, 2048};

static void case_norm(sp_device *device, sink *s) {
    for (size_t w = 0; w < COUNT(widths); w++) {
        size_t d = widths[w], n_tokens = w % 3 + 1;
        guarded x = guarded_draw(10 + w, n_tokens * d, 3.0f), weight = guarded_draw(90 + w, d, 1.0f);
        guarded out = guarded_new(n_tokens * d), packed = guarded_new(n_tokens * d);
        sp_norm norm = {weight.at, 1e-5f, w % 2 == 1};
        sp_op_norm(device, &norm, x.at, d, n_tokens, d, out.at, d);
        sp_op_norm_pack(device, &norm, x.at, d, n_tokens, d, packed.at);
        for (size_t t = 0; t < n_tokens; t++) {
            double sum = 0;
            for (size_t i = 0; i < d; i++) sum += (double)x.at[t * d + i] * (double)x.at[t * d + i];
            double factor = 1.0 / sqrt(sum / (double)d + (double)norm.eps);
            for (size_t i = 0; i < d; i++) {
                double want = (double)x.at[t * d + i] * factor * ((double)weight.at[i] + (norm.plus_one ? 1.0 : 0.0));
                put(s, out.at[t * d + i], want, fabs(want) * 4e-7);
                put(s, packed.at[t * d + i], want, pack_bound(device, want, 4e-7));
            }
        }
        sp_op_norm(device, &norm, x.at, d, n_tokens, d, x.at, d);
        for (size_t i = 0; i < n_tokens * d; i++) put(s, x.at[i], (double)out.at[i], 0);
        guarded_free(&x), guarded_free(&weight), guarded_free(&out), guarded_free(&packed);
    }
}

static void case_wild(sp_device *device, sink *s) { /* numbers at the edges: the same bytes, whatever they are */
    for (size_t w = 0; w < COUNT(widths); w++) {
        size_t d = widths[w];
        guarded x = guarded_new(d), y = guarded_new(d), out = guarded_new(d);
        for (size_t i = 0; i < d; i++) x.at[i] = draw_wild(200 + w, i, 90.0f), y.at[i] = draw_wild(300 + w, i, 2.0f);
        for (int act = SP_ACT_SILU; act <= SP_ACT_GELU_TANH; act++) {
            sp_glu glu = {(sp_act)act, x.at, y.at, d, 1, 0, d, d};
            sp_op_glu_pack(device, &glu, out.at);
            for (size_t i = 0; i < d; i++) put_free(s, out.at[i]);
        }
        put_free(s, (float)sp_argmax(device, x.at, d));
        put_free(s, sp_softmax_weights(device, y.at, d, -1.0f, out.at)); /* exponents upwards, to infinity */
        for (size_t i = 0; i < d; i++) put_free(s, out.at[i]);
        sp_op_softcap(device, 1.0f, x.at, d);
        for (size_t i = 0; i < d; i++) put_free(s, x.at[i]);
        sp_norm norm = {y.at, 1e-6f, false};
        sp_op_norm(device, &norm, y.at, d, 1, d, out.at, d);
        for (size_t i = 0; i < d; i++) put_free(s, out.at[i]);
        guarded_free(&x), guarded_free(&y), guarded_free(&out);
    }
}

static void case_glu(sp_device *device, sink *s) {
    for (size_t w = 0; w < COUNT(widths); w++) {
        for (int act = SP_ACT_SILU; act <= SP_ACT_GELU_TANH; act++) {
            size_t f0 = w % 4 * SP_PACK_COLS, n_cols = widths[w], f = f0 + n_cols, n_tokens = 3;
            guarded gate = guarded_draw(400 + w, n_tokens * n_cols, 12.0f);
            guarded up = guarded_draw(500 + w, n_tokens * n_cols, 2.0f), packed = guarded_new(n_tokens * f);
            sp_glu glu = {(sp_act)act, gate.at, up.at, n_cols, n_tokens, f0, n_cols, f};
            sp_op_glu_pack(device, &glu, packed.at);
            for (size_t i = 0; i < n_tokens * n_cols; i++) {
                double g = (double)gate.at[i];
                double u = act == SP_ACT_SILU ? g : 2 * 0.7978845608028654 * (g + 0.044715 * g * g * g);
                double want = g / (1 + exp(-u)) * (double)up.at[i];
                /* exp(-u) has the error of u: half an ulp of up to 96 */
                double bound = pack_bound(device, want, 3e-7 + fabs(u) * 2.5e-7);
                put(s, packed.at[i / n_cols * f + f0 + i % n_cols], want, bound);
            }
            guarded_free(&gate), guarded_free(&up), guarded_free(&packed);
        }
    }
}

static void case_softcap(sp_device *device, sink *s) {
    for (size_t w = 0; w < COUNT(widths); w++) {
        guarded x = guarded_draw(600 + w, widths[w], 200.0f);
        sp_op_softcap(device, 30.0f, x.at, widths[w]);
        for (size_t i = 0; i < widths[w]; i++) {
            double want = 30.0 * tanh((double)draw(600 + w, i) * 200.0 / 30.0);
            put(s, x.at[i], want, fabs(want) * 4e-7);
        }
        guarded_free(&x);
    }
}

static void case_logits(sp_device *device, sink *s) {
    static const size_t vocabularies[] = {1, 5, 16, 63, 64, 65, 1000, 49152, 151936};
    for (size_t v = 0; v < COUNT(vocabularies); v++) {
        size_t n = vocabularies[v], best = 0;
        guarded x = guarded_draw(700 + v, n, 15.0f), p = guarded_new(n);
        x.at[n / 2] = x.at[n / 3] = 14.9f + (v % 2 ? 10.0f : 0.0f); /* a tie, and a winner */
        for (size_t i = 1; i < n; i++) best = x.at[i] > x.at[best] ? i : best;
        double sum = 0, sum_cold = 0, max = (double)x.at[best];
        for (size_t i = 0; i < n; i++)
            sum += exp((double)x.at[i] - max), sum_cold += exp(((double)x.at[i] - max) * 1.5);
        sp_fpenv env = sp_fpenv_enter();
        bool is_finite = false;
        put(s, (float)sp_argmax(device, x.at, n), (double)best, 0);
        put(s, sp_logsumexp(device, x.at, n, &is_finite), max + log(sum), 3e-6);
        put(s, is_finite, 1, 0);
        put(s, sp_softmax_weights(device, x.at, n, 1.5f, p.at), sum_cold, sum_cold * 1e-6);
        for (size_t i = 0; i < n; i += n / 1000 + 1) {
            double want = exp(((double)x.at[i] - max) * 1.5);
            put(s, p.at[i], want, want * 6e-6);
        }
        const float bad[] = {NAN, INFINITY, -INFINITY};
        for (size_t i = 0; i < COUNT(bad); i++) {
            x.at[n - 1] = bad[i];
            sp_logsumexp(device, x.at, n, &is_finite);
            put(s, is_finite, bad[i] == -INFINITY && n > 1, 0);
        }
        sp_fpenv_leave(env);
        guarded_free(&x), guarded_free(&p);
    }
}

static void case_embed(sp_device *device, sink *s) {
    static const sp_format_id formats[] = {SP_FMT_F32, SP_FMT_F16, SP_FMT_BF16, SP_FMT_Q8_0, SP_FMT_Q4_1};
    for (size_t f = 0; f < COUNT(formats); f++) {
        enum { N_TOKENS = 3, K = 96 };
        const sp_format *format = sp_format_get(formats[f]);
        size_t row_bytes = K / format->block_elems * format->block_bytes;
        guarded table = guarded_new(sp_div_up(N_TOKENS * row_bytes, sizeof(float))), out = guarded_new(N_TOKENS * K);
        for (size_t i = 0; i < N_TOKENS * row_bytes; i++) /* any bytes, but small exponents */
            ((uint8_t *)table.at)[i] = (uint8_t)(mix(800 + f + i) & 0x3f);
        const void *rows[N_TOKENS];
        for (size_t t = 0; t < N_TOKENS; t++) rows[t] = (const char *)table.at + (N_TOKENS - 1 - t) * row_bytes;
        sp_op_embed(device, format, rows, N_TOKENS, K, 1.5f, out.at, K);
        float want[K];
        for (size_t t = 0; t < N_TOKENS; t++) {
            format->to_f32(rows[t], K, want);
            for (size_t i = 0; i < K; i++)
                put(s, out.at[t * K + i], (double)((float)rounded(device, want[i]) * 1.5f), 1e-37);
        }
        guarded_free(&table), guarded_free(&out);
    }
}

/* fp32 to halves: every half there and back, the middles between neighbours, numbers of every exponent. */
static void case_halves(sp_device *device, sink *s) {
    enum { N = 0x7c00 + 2048 };
    guarded x = guarded_new(N);
    uint16_t *out = calloc(N, sizeof *out);
    SP_CHECK(out != NULL);
    for (int sign = 0; sign <= 1; sign++) {
        for (int step = 0; step <= 1; step++) { /* 1: half a unit above, a tie */
            for (uint32_t h = 0; h < 0x7c00; h++) {
                float exact = sp_f16_to_f32((uint16_t)h), next = sp_f16_to_f32((uint16_t)(h + 1 < 0x7c00 ? h + 1 : h));
                x.at[h] = (sign ? -1.0f : 1.0f) * (step ? 0.5f * (exact + next) : exact);
            }
            for (size_t i = 0; i < 2048; i++) x.at[0x7c00 + i] = draw_wild(900 + (uint64_t)sign, i, 30.0f);
            device->vector->to_f16(x.at, N, out);
            for (uint32_t h = 0; h < 0x7c00; h++) {
                uint32_t even = h + 1 < 0x7c00 ? h + (h & 1) : h, want = (step ? even : h) | (sign ? 0x8000u : 0);
                put(s, out[h], (double)want, 1e-9);
            }
            for (size_t i = 0; i < 2048; i++) put_free(s, out[0x7c00 + i]);
        }
    }
    free(out);
    guarded_free(&x);
}

static void case_rope_fill(sp_device *device, sink *s) {
    (void)device;
    enum { N_PAIRS = 32, N_POSITIONS = 5 };
    static const size_t starts[] = {0, 900, 131067};
    for (size_t i = 0; i < COUNT(starts); i++) {
        float inv_freq[N_PAIRS], cosines[N_PAIRS * N_POSITIONS], sines[N_PAIRS * N_POSITIONS];
        for (size_t j = 0; j < N_PAIRS; j++) inv_freq[j] = (float)pow(1e6, -(double)j / N_PAIRS);
        sp_rope_fill(inv_freq, N_PAIRS, starts[i], N_POSITIONS, 1.25f, cosines, sines);
        for (size_t j = 0; j < N_PAIRS * N_POSITIONS; j++) {
            double angle = (double)((float)(starts[i] + j / N_PAIRS) * inv_freq[j % N_PAIRS]);
            put(s, cosines[j], 1.25 * cos(angle), 1.3e-7);
            put(s, sines[j], 1.25 * sin(angle), 1.3e-7);
        }
    }
}

static const float edges[] = {0.0f,     -0.0f,     1e-45f, -1e-39f, 87.33f,  -87.33f,  -87.34f, 88.72f,
                              88.73f,   1e30f,     -1e30f, 0.625f,  0.6249f, -0.6251f, 1.0f,    0x1.fffffep127f,
                              INFINITY, -INFINITY, NAN,    0.5f,    -104.0f, 2.5f,     -3e-5f,  12345.678f};

static void case_math(sp_device *device, sink *s) { /* one number and 16 lanes: the same bits */
    guarded x = guarded_new(40000), y = guarded_new(40000);
    size_t n = 40000;
    sp_fpenv env = sp_fpenv_enter();
    for (size_t i = 0; i < n; i++) x.at[i] = i < COUNT(edges) ? edges[i] : draw(900, i) * (i % 2 ? 100.0f : 1.5f);
    device->vector->softmax(x.at, n, 0.0f, 1.0f, y.at);
    for (size_t i = 0; i < n; i++) put(s, y.at[i], (double)sp_exp(x.at[i]), 0);
    device->vector->softcap(1.0f, n, x.at);
    for (size_t i = 0; i < n; i++) {
        float one = i < COUNT(edges) ? edges[i] : draw(900, i) * (i % 2 ? 100.0f : 1.5f);
        put(s, x.at[i], (double)sp_tanh(one), 0);
        float sine, cosine;
        sp_sincos(one * 1000.0f, &sine, &cosine);
        put_free(s, sp_log(fabsf(one)));
        put_free(s, sine);
        put_free(s, cosine);
    }
    sp_fpenv_leave(env);
    guarded_free(&x), guarded_free(&y);
}

/* ---- attention: texts through the cache in passes cut in several ways ---- */

typedef struct {
    const char *name;
    size_t n_heads, n_kv_heads, head_dim;
    size_t window;
    float cap;
    size_t n_rotating;
    bool interleaved, norms;
} attention_shape;

static const attention_shape shapes[] = {
    {"mha-18", 2, 2, 18, 0, 0.0f, 18, false, false},     {"gqa3-64", 9, 3, 64, 0, 0.0f, 64, true, false},
    {"gqa7-64", 14, 2, 64, 40, 0.0f, 64, false, true},   {"gqa8-22", 8, 1, 22, 1, 0.0f, 10, false, false},
    {"gqa5-80", 5, 1, 80, 33, 50.0f, 80, true, true},    {"gqa2-128", 4, 2, 128, 31, 0.0f, 96, false, true},
    {"gqa4-256", 4, 1, 256, 0, 30.0f, 256, false, true}, {"gqa3-33", 3, 1, 33, 0, 0.0f, 32, false, true},
    {"gqa6-96", 6, 1, 96, 64, 0.0f, 0, false, false},
};

enum { N_TEXTS = 3, MAX_PAGES = 8, N_WAYS = 4 };
static const size_t text_tokens[N_TEXTS] = {6, 131, 70};

/* All that a shape's run needs; q, k, v of text x, position p are drawn by (x, p), so that any pass can make them. */
typedef struct {
    const attention_shape *shape;
    sp_device *device;
    void *kv;
    uint32_t pages[N_TEXTS][MAX_PAGES];
    float *out[N_TEXTS]; /* [tokens, H*E], packed rows */
} texts;

static void draw_row(const attention_shape *shape, size_t text, size_t pos, int which, size_t width, float *row) {
    uint64_t key = 1000 + (uint64_t)which + 10 * text;
    for (size_t i = 0; i < width; i++)
        row[i] = draw(key + shape->head_dim * 100, pos * 4096 + i) * (which == 0 ? 3.0f : 1.0f);
}

static float norm_weight(size_t i) { return 1.0f + 0.25f * draw(77, i); }

static size_t text_of(const texts *all, const sp_kv_span *span) {
    return (size_t)(span->pages - all->pages[0]) / MAX_PAGES;
}

/* What goes into a pass: q [T, H*E], k and v [T, K*E], and the turns of their positions [T, n_pairs]. */
typedef struct {
    guarded q, k, v, cosines, sines;
    size_t wq, wk, n_pairs;
} pass_inputs;

static pass_inputs inputs_new(const texts *all, const sp_kv_span *spans, size_t n_spans, size_t n_tokens) {
    const attention_shape *shape = all->shape;
    size_t wq = shape->n_heads * shape->head_dim, wk = shape->n_kv_heads * shape->head_dim;
    size_t n_pairs = shape->n_rotating / 2;
    pass_inputs in = {guarded_new(n_tokens * wq),
                      guarded_new(n_tokens * wk),
                      guarded_new(n_tokens * wk),
                      guarded_new(n_tokens * n_pairs),
                      guarded_new(n_tokens * n_pairs),
                      wq,
                      wk,
                      n_pairs};
    float inv_freq[128];
    for (size_t i = 0; i < n_pairs; i++) inv_freq[i] = (float)pow(1e4, -(double)i / (double)n_pairs);
    for (size_t i = 0; i < n_spans; i++) {
        size_t text = text_of(all, &spans[i]), t0 = spans[i].first_token;
        sp_rope_fill(inv_freq, n_pairs, spans[i].first_pos, spans[i].n_tokens, 1.0f, in.cosines.at + t0 * n_pairs,
                     in.sines.at + t0 * n_pairs);
        for (size_t t = 0; t < spans[i].n_tokens; t++) {
            draw_row(shape, text, spans[i].first_pos + t, 0, wq, in.q.at + (t0 + t) * wq);
            draw_row(shape, text, spans[i].first_pos + t, 1, wk, in.k.at + (t0 + t) * wk);
            draw_row(shape, text, spans[i].first_pos + t, 2, wk, in.v.at + (t0 + t) * wk);
        }
    }
    return in;
}

static void inputs_free(pass_inputs *in) {
    guarded_free(&in->q), guarded_free(&in->k), guarded_free(&in->v);
    guarded_free(&in->cosines), guarded_free(&in->sines);
}

/* The span's outputs go to its text's, NaN where packed is not out, rounded. */
static void keep_outputs(texts *all, const sp_kv_span *span, size_t wq, const float *out, const float *packed) {
    float *to = all->out[text_of(all, span)] + span->first_pos * wq;
    const size_t from = span->first_token * wq;
    for (size_t j = 0; j < span->n_tokens * wq; j++)
        to[j] = (float)rounded(all->device, out[from + j]) == packed[from + j] ? packed[from + j] : NAN;
}

/* One pass of the given spans: n[text] tokens of each text from first[text] on, texts in falling order. */
static void run_pass(texts *all, const size_t *first, const size_t *n) {
    const attention_shape *shape = all->shape;
    size_t n_tokens = 0, n_spans = 0;
    sp_kv_span spans[N_TEXTS];
    for (size_t x = N_TEXTS; x-- > 0;) {
        if (n[x] == 0) continue;
        spans[n_spans++] = (sp_kv_span){n_tokens, n[x], first[x], all->pages[x]};
        n_tokens += n[x];
    }
    pass_inputs in = inputs_new(all, spans, n_spans, n_tokens);
    guarded out = guarded_new(n_tokens * in.wq), packed = guarded_new(n_tokens * in.wq);
    float weight[256];
    for (size_t i = 0; i < shape->head_dim; i++) weight[i] = norm_weight(i);
    sp_rope_table rope = {in.cosines.at, in.sines.at, shape->n_rotating, shape->interleaved};
    sp_rope_kv_args store = {.n_heads = shape->n_heads,
                             .n_kv_heads = shape->n_kv_heads,
                             .head_dim = shape->head_dim,
                             .q = in.q.at,
                             .k = in.k.at,
                             .v = in.v.at,
                             .ldq = in.wq,
                             .ldkv = in.wk,
                             .q_norm = shape->norms ? weight : NULL,
                             .k_norm = shape->norms ? weight : NULL,
                             .norm_eps = 1e-6f,
                             .rope = in.n_pairs ? &rope : NULL,
                             .spans = spans,
                             .n_spans = n_spans,
                             .kv = all->kv};
    sp_op_rope_kv(all->device, &store);
    sp_attention_args args = {.n_heads = shape->n_heads,
                              .n_kv_heads = shape->n_kv_heads,
                              .head_dim = shape->head_dim,
                              .q = in.q.at,
                              .ldq = in.wq,
                              .scale = 0.15f,
                              .cap = shape->cap,
                              .window = shape->window,
                              .spans = spans,
                              .n_spans = n_spans,
                              .kv = all->kv,
                              .out = out.at,
                              .ldo = in.wq,
                              .packed = packed.at,
                              .n_tokens = n_tokens};
    sp_op_attention(all->device, &args);
    for (size_t i = 0; i < n_spans; i++) keep_outputs(all, &spans[i], in.wq, out.at, packed.at);
    inputs_free(&in);
    guarded_free(&out), guarded_free(&packed);
}

/* way 0: whole texts in one pass; 1: token by token together; 2: chunks of odd sizes; 3: one text after the other. */
static void run_texts(texts *all, int way) {
    size_t done[N_TEXTS] = {0}, n_left = N_TEXTS;
    for (size_t pass = 0; n_left > 0; pass++) {
        size_t n[N_TEXTS] = {0};
        n_left = 0;
        for (size_t x = 0; x < N_TEXTS; x++) {
            size_t left = text_tokens[x] - done[x];
            if (way == 0) n[x] = left;
            if (way == 1) n[x] = sp_min_size(1, left);
            if (way == 2) n[x] = sp_min_size(mix(pass * 3 + x) % 45, left);
            if (way == 3) n[x] = n_left == 0 ? sp_min_size(64, left) : 0;
            n_left += left - (way == 3 ? 0 : n[x]);
        }
        run_pass(all, done, n);
        for (size_t x = 0; x < N_TEXTS; x++) done[x] += n[x];
    }
}

/* One head's row as plain double arithmetic turns it. */
static void turn_plain(const attention_shape *shape, size_t pos, bool norm, double *x) {
    size_t n_pairs = shape->n_rotating / 2, d = shape->head_dim;
    double copy[256], sum = 0;
    memcpy(copy, x, d * sizeof *x);
    for (size_t j = 0; shape->interleaved && j < n_pairs; j++) x[j] = copy[2 * j], x[j + n_pairs] = copy[2 * j + 1];
    for (size_t i = 0; i < d; i++) sum += x[i] * x[i];
    for (size_t i = 0; norm && i < d; i++) x[i] *= (double)norm_weight(i) / sqrt(sum / (double)d + 1e-6);
    for (size_t j = 0; j < n_pairs; j++) {
        double angle = (double)((float)pos * (float)pow(1e4, -(double)j / (double)n_pairs)), a = x[j],
               b = x[j + n_pairs];
        x[j] = a * cos(angle) - b * sin(angle);
        x[j + n_pairs] = b * cos(angle) + a * sin(angle);
    }
}

/* As the cache keeps a number. */
static double cached(const sp_device *device, double x) {
    return device->mode == SP_MODE_BF16 ? (double)sp_f16_to_f32(sp_f16_from_f32((float)x)) : x;
}

/* Attention of one text in double, as defined: want [tokens, H*E]. */
static void attend_plain(const sp_device *device, const attention_shape *shape, size_t text, double *want) {
    size_t e = shape->head_dim, group = shape->n_heads / shape->n_kv_heads, n = text_tokens[text];
    double(*k)[256] = calloc(n, sizeof *k), (*v)[256] = calloc(n, sizeof *v), *p = calloc(n, sizeof *p), q[256];
    float row[4096];
    SP_CHECK(k && v && p);
    for (size_t h = 0; h < shape->n_heads; h++) {
        for (size_t i = 0; i < n; i++) {
            for (int which = 1; which <= 2; which++) {
                draw_row(shape, text, i, which, shape->n_kv_heads * e, row);
                double *to = which == 1 ? k[i] : v[i];
                for (size_t j = 0; j < e; j++) to[j] = (double)row[h / group * e + j];
                if (which == 1) turn_plain(shape, i, shape->norms, to);
                for (size_t j = 0; j < e; j++) to[j] = cached(device, to[j]);
            }
        }
        for (size_t i = 0; i < n; i++) {
            draw_row(shape, text, i, 0, shape->n_heads * e, row);
            for (size_t j = 0; j < e; j++) q[j] = (double)row[h * e + j];
            turn_plain(shape, i, shape->norms, q);
            size_t first = shape->window == 0 || i < shape->window ? 0 : i - shape->window + 1;
            double max = -INFINITY, sum = 0;
            for (size_t j = first; j <= i; j++) {
                p[j] = 0;
                for (size_t c = 0; c < e; c++) p[j] += q[c] * k[j][c];
                p[j] *= (double)0.15f;
                if (shape->cap > 0) p[j] = (double)shape->cap * tanh(p[j] / (double)shape->cap);
                max = fmax(max, p[j]);
            }
            for (size_t j = first; j <= i; j++) sum += p[j] = exp(p[j] - max);
            double *out = want + i * shape->n_heads * e + h * e;
            for (size_t c = 0; c < e; c++) {
                out[c] = 0;
                for (size_t j = first; j <= i; j++) out[c] += p[j] / sum * v[j][c];
            }
        }
    }
    free(k), free(v), free(p);
}

static void attention_case(sp_device *device, sink *s, const attention_shape *shape) {
    texts all = {.shape = shape, .device = device};
    size_t page_bytes = sp_kv_page_bytes(device, shape->n_kv_heads, shape->head_dim), n_pages = N_TEXTS * MAX_PAGES;
    size_t width = shape->n_heads * shape->head_dim;
    guarded kv = guarded_new(n_pages * page_bytes / sizeof(float));
    all.kv = kv.at;
    for (size_t i = 0; i < n_pages; i++) all.pages[i / MAX_PAGES][i % MAX_PAGES] = (uint32_t)((i * 7 + 3) % n_pages);
    float *first[N_TEXTS] = {NULL};
    for (int way = 0; way < N_WAYS; way++) {
        memset(kv.at, 0xff, n_pages * page_bytes); /* NaN in every slot that is not written */
        for (size_t x = 0; x < N_TEXTS; x++) all.out[x] = calloc(text_tokens[x] * width, sizeof(float));
        run_texts(&all, way);
        for (size_t x = 0; x < N_TEXTS; x++) {
            bool same = !first[x] || memcmp(first[x], all.out[x], text_tokens[x] * width * sizeof(float)) == 0;
            put(s, same, 1, 0);
            if (first[x]) free(all.out[x]);
            if (!first[x]) first[x] = all.out[x];
        }
    }
    for (size_t x = 0; x < N_TEXTS; x++) {
        double *want = calloc(text_tokens[x] * width, sizeof *want);
        SP_CHECK(want != NULL);
        if (s->judge) attend_plain(device, shape, x, want);
        /* bf16: rounding of k, v and of the packed result may fall the other way where double and fp32 differ */
        double bound = device->mode == SP_MODE_BF16 ? 0x1p-7 : 2e-6;
        for (size_t i = 0; i < text_tokens[x] * width; i++) put(s, first[x][i], want[i], bound);
        free(want);
        free(first[x]);
    }
    guarded_free(&kv);
}

/* ---- running ---- */

typedef struct {
    const char *name;
    void (*run)(sp_device *device, sink *s);
    const attention_shape *shape; /* instead of run */
} test_case;

static const test_case plain_cases[] = {
    {"norm", case_norm, NULL},           {"edges", case_wild, NULL},    {"glu", case_glu, NULL},
    {"softcap", case_softcap, NULL},     {"logits", case_logits, NULL}, {"embed", case_embed, NULL},
    {"rope_fill", case_rope_fill, NULL}, {"math", case_math, NULL},     {"halves", case_halves, NULL},
};
enum { N_PLAIN = COUNT(plain_cases), N_CASES = N_PLAIN + COUNT(shapes) };

static test_case case_get(size_t i) {
    return i < N_PLAIN ? plain_cases[i] : (test_case){shapes[i - N_PLAIN].name, NULL, &shapes[i - N_PLAIN]};
}

static void run_case(const test_case *c, sp_device *device, bool judge, sink *s) {
    s->n = 0;
    s->judge = judge;
    s->worst = 0;
    if (c->run) c->run(device, s);
    if (!c->run) attention_case(device, s, c->shape);
    for (size_t i = 0; i < s->n; i++) /* which NaN it is may differ */
        if (isnan(s->got[i])) s->got[i] = float_from_bits(0x7fc00000);
}

static uint64_t hash_floats(const float *x, size_t n) { /* FNV-1a by byte */
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof *x; i++) hash = (hash ^ ((const uint8_t *)x)[i]) * 0x100000001b3u;
    return hash;
}

static void check_against(const test_case *c, sp_device *device, const sink *want, const char *what) {
    sink s = {0};
    char detail[MAX_DETAIL];
    run_case(c, device, false, &s);
    size_t i = 0;
    while (i < s.n && i < want->n && memcmp(&s.got[i], &want->got[i], sizeof(float)) == 0) i++;
    bool same = i == s.n && i == want->n;
    snprintf(detail, sizeof detail, "number %zu of %zu is %.9g, the scalar lanes' is %.9g (%zu threads)", i, s.n,
             (double)(same ? 0 : s.got[i]), (double)(same ? 0 : want->got[i]), device->n_threads);
    verdict(same, device->vector->isa, what, detail);
    free(s.got);
}

static void check_hash(FILE *file, const char *what, uint64_t got) {
    char want_what[40] = "";
    unsigned long long want = 0;
    bool known = file && fscanf(file, "%39s %llx", want_what, &want) == 2 && strcmp(what, want_what) == 0;
    verdict(known && want == got, "scalar", what, known ? "other bytes than " HASH_FILE : "not in " HASH_FILE);
}

static void skip_hash(FILE *file) {
    if (file && fscanf(file, "%*s %*s") == EOF) verdict(false, "scalar", "hashes", HASH_FILE " ends early");
}

/* Attention is slow on an emulator: one mode a shape. On x86 that is fp32: QEMU 7.2's conversion of halves takes
 * denormal ones for zero where DAZ is set, which no processor does. */
static bool beyond_quick(const test_case *c, size_t i_shape, sp_mode mode) {
#if defined(__x86_64__)
    (void)i_shape;
    return c->shape && mode == SP_MODE_BF16;
#else
    return c->shape && i_shape % 2 != (mode == SP_MODE_BF16);
#endif
}

/* hashes_out: write them there instead of checking anything. quick: three threads alone, no double arithmetic; a read
 * may pass the end, since QEMU 7.2 loads every lane of a masked load. */
static int check_all(const char *hashes_out, bool quick) {
    FILE *file = fopen(hashes_out ? hashes_out : HASH_FILE, hashes_out ? "w" : "r");
    if (quick) guard_protection = PROT_READ;
    sp_error err = {0};
    sp_pool *pools[2] = {sp_pool_new(1, &err), sp_pool_new(3, &err)};
    SP_CHECK(pools[0] && pools[1]);
    if (hashes_out && !file) return perror(hashes_out), EXIT_FAILURE;
    const char *const *isas = sp_device_isa_names();
    for (size_t j = 0; !hashes_out && isas[j]; j++)
        if (!sp_device_isa_usable(isas[j]) && sp_vector_isa_find(isas[j]))
            printf("skipped: %s (not on this machine)\n", isas[j]);
    for (size_t i = 0; i < N_CASES * 2; i++) {
        test_case c = case_get(i / 2);
        sp_mode mode = i % 2 ? SP_MODE_FP32 : SP_MODE_BF16;
        if (quick && beyond_quick(&c, i / 2, mode)) {
            skip_hash(file);
            continue;
        }
        char what[40], detail[MAX_DETAIL];
        snprintf(what, sizeof what, "%s/%s", c.name, mode == SP_MODE_BF16 ? "bf16" : "fp32");
        sp_device *scalar = device_new(pools[0], mode, "scalar");
        sink want = {0};
        run_case(&c, scalar, !hashes_out && !quick, &want);
        uint64_t hash = hash_floats(want.got, want.n);
        if (hashes_out) {
            fprintf(file, "%s %016llx\n", what, (unsigned long long)hash);
        } else {
            snprintf(detail, sizeof detail, "%.3g of the bound against double arithmetic", want.worst);
            verdict(want.worst <= 1.0, "scalar", what, detail);
            check_hash(file, what, hash);
            for (size_t j = 0; isas[j]; j++) {
                if (!sp_device_isa_usable(isas[j]) || !sp_vector_isa_find(isas[j])) continue;
                if (quick && strcmp(isas[j], "scalar") == 0) continue;
                for (size_t p = quick ? 1 : 0; p < COUNT(pools); p++) {
                    sp_device *device = device_new(pools[p], mode, isas[j]);
                    check_against(&c, device, &want, what);
                    sp_device_close(device);
                }
            }
        }
        sp_device_close(scalar);
        free(want.got);
    }
    for (size_t p = 0; p < COUNT(pools); p++) sp_pool_free(pools[p]);
    if (file) fclose(file);
    if (hashes_out) return EXIT_SUCCESS;
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- errors in ulp, over all floats ---- */

static void report(const char *name, double (*reference)(double), float (*ours)(float), float low, float high) {
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits++) {
        float x = float_from_bits((uint32_t)bits);
        if (!(x >= low && x <= high) || fabsf(x) < 0x1p-126f) continue;
        double want = reference((double)x);
        if (fabs(want) < 0x1p-126 || fabs(want) > 0x1.fffffep127) continue;
        double ulps = fabs((double)ours(x) - want) / ldexp(1.0, ilogb(want) - 23);
        if (ulps > worst) worst = ulps, at = x;
    }
    printf("%-5s at most %.4f ulp, at %.9g\n", name, worst, (double)at);
}

static int measure_all(void) {
    sp_fpenv env = sp_fpenv_enter();
    report("exp", exp, sp_exp, -88.0f, 89.0f);
    report("tanh", tanh, sp_tanh, -INFINITY, INFINITY);
    report("log", log, sp_log, 0x1p-126f, 0x1.fffffep127f);
    for (double reach = 1.0; reach <= 0x1p40; reach *= 32) {
        double worst = 0, absolute = 0;
        for (uint64_t i = 0; i < 20000000; i++) {
            float x = (float)((double)draw(1, i) * reach), sine, cosine;
            sp_sincos(x, &sine, &cosine);
            double want_sine = sin((double)x), want_cosine = cos((double)x);
            worst = fmax(worst, fabs((double)sine - want_sine) / ldexp(1.0, ilogb(want_sine) - 23));
            worst = fmax(worst, fabs((double)cosine - want_cosine) / ldexp(1.0, ilogb(want_cosine) - 23));
            absolute = fmax(absolute, fabs((double)sine - want_sine));
        }
        printf("sin, cos of 20 million |x| < %.8g: at most %.4f ulp, %.3g absolute\n", reach, worst, absolute);
    }
    sp_fpenv_leave(env);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write-hashes") == 0) return check_all(argv[2], false);
    if (argc == 2 && strcmp(argv[1], "--exhaustive") == 0) return measure_all();
    if (argc >= 2 && strcmp(argv[1], "--bench") == 0) return vector_bench(argc - 2, argv + 2);
    return check_all(NULL, argc == 2 && strcmp(argv[1], "--quick") == 0);
}
