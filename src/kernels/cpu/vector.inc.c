/* Everything that is not a product, over 16 lanes: included by each vector_<isa>.c after its lanes_<isa>.h.
 *
 * Rows of any width: whole groups of 16, then one group of the rest, loaded and stored by lane. Sums go as vector.h
 * says. Polynomials and their constants are math.h's. */
#include <math.h>

#include "kernels/math.h"
#include "kernels/vector.h"

/* math.h: 2^n exp(r); +inf from SP_EXP_INF on, 0 below SP_EXP_ZERO, NaN stays NaN. */
LANES v16 v16_exp(v16 x) {
    v16 t = v16_fma(x, v16_set1(SP_LOG2_E), v16_set1(SP_ROUND_MAGIC));
    v16 n = v16_sub(t, v16_set1(SP_ROUND_MAGIC));
    v16 r = v16_nfma(n, v16_set1(SP_LN2_LO), v16_nfma(n, v16_set1(SP_LN2_HI), x));
    v16 q = v16_fma(v16_set1(SP_EXP_C_4), r, v16_set1(SP_EXP_C_3));
    q = v16_fma(q, r, v16_set1(SP_EXP_C_2));
    q = v16_fma(q, r, v16_set1(SP_EXP_C_1));
    q = v16_fma(q, r, v16_set1(SP_EXP_C_0));
    v16 p = v16_add(v16_set1(1.0f), v16_fma(v16_mul(r, r), q, r));
    p = v16_if_lt(x, v16_set1(SP_EXP_INF), v16_scale_exp(p, t), v16_add(x, v16_set1(INFINITY)));
    return v16_if_lt(x, v16_set1(SP_EXP_ZERO), v16_set1(0.0f), p);
}

LANES v16 v16_tanh(v16 x) {
    v16 a = v16_abs(x), x2 = v16_mul(x, x);
    v16 q = v16_fma(v16_set1(SP_TANH_C_4), x2, v16_set1(SP_TANH_C_3));
    q = v16_fma(q, x2, v16_set1(SP_TANH_C_2));
    q = v16_fma(q, x2, v16_set1(SP_TANH_C_1));
    q = v16_fma(q, x2, v16_set1(SP_TANH_C_0));
    v16 small = v16_fma(v16_mul(x, x2), q, x);
    v16 one = v16_set1(1.0f);
    v16 large = v16_sub(one, v16_div(v16_set1(2.0f), v16_add(v16_exp(v16_add(a, a)), one)));
    return v16_if_lt(a, v16_set1(SP_TANH_SPLIT), small, v16_copysign(large, x));
}

LANES float sum_of_4(const v16 sum[4]) { return v16_sum(v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3]))); }

static void scale(sp_mode mode, float factor, size_t n, float *x) {
    for (size_t i = 0; i < n; i += 16) {
        size_t n_lanes = sp_min_size(16, n - i);
        v16 a = v16_load_n(x + i, n_lanes);
        if (mode == SP_MODE_BF16) a = v16_round_bf16(a);
        v16_store_n(x + i, n_lanes, v16_mul(a, v16_set1(factor)));
    }
}

static void to_f16(const float *x, size_t n, uint16_t *out) {
    for (size_t i = 0; i < n; i += 16) v16_store_f16(out + i, v16_load_n(x + i, sp_min_size(16, n - i)));
}

static void norm(const sp_norm *norm, const float *x, size_t d, float *out) {
    v16 zero = v16_set1(0.0f), sum[4] = {zero, zero, zero, zero};
    size_t i = 0;
    for (; i + 64 <= d; i += 64) {
        for (size_t j = 0; j < 4; j++) {
            v16 a = v16_load(x + i + 16 * j);
            sum[j] = v16_fma(a, a, sum[j]);
        }
    }
    for (size_t j = 0; i < d; i += 16, j++) {
        v16 a = v16_load_n(x + i, sp_min_size(16, d - i));
        sum[j] = v16_fma(a, a, sum[j]);
    }
    v16 factor = v16_set1(1.0f / sqrtf(sum_of_4(sum) / (float)d + norm->eps));
    v16 offset = v16_set1(norm->plus_one ? 1.0f : 0.0f);
    for (i = 0; i < d; i += 16) {
        size_t n_lanes = sp_min_size(16, d - i);
        v16 a = v16_mul(v16_load_n(x + i, n_lanes), factor);
        v16_store_n(out + i, n_lanes, v16_mul(a, v16_add(offset, v16_load_n(norm->w + i, n_lanes))));
    }
}

/* silu(g) = g / (1 + exp(-g)); gelu_tanh(g) = g / (1 + exp(g (c0 + c1 g^2))), math.h */
static void glu(sp_act act, const float *gate, const float *up, size_t n, float *out) {
    v16 one = v16_set1(1.0f);
    v16 c0 = v16_set1(act == SP_ACT_SILU ? -1.0f : SP_GELU_C_0), c1 = v16_set1(act == SP_ACT_SILU ? 0.0f : SP_GELU_C_1);
    for (size_t i = 0; i < n; i += 16) {
        size_t n_lanes = sp_min_size(16, n - i);
        v16 g = v16_load_n(gate + i, n_lanes);
        v16 exponent = v16_mul(g, act == SP_ACT_SILU ? c0 : v16_fma(c1, v16_mul(g, g), c0));
        v16 activation = v16_div(g, v16_add(one, v16_exp(exponent)));
        v16_store_n(out + i, n_lanes, v16_mul(activation, v16_load_n(up + i, n_lanes)));
    }
}

static void softcap(float cap, size_t n, float *x) {
    v16 c = v16_set1(cap);
    for (size_t i = 0; i < n; i += 16) {
        size_t n_lanes = sp_min_size(16, n - i);
        v16 a = v16_load_n(x + i, n_lanes);
        v16_store_n(x + i, n_lanes, v16_mul(c, v16_tanh(v16_div(a, c))));
    }
}

static void rope(const float *cos, const float *sin, size_t n_pairs, float *x) {
    float *y = x + n_pairs;
    for (size_t j = 0; j < n_pairs; j += 16) {
        size_t n_lanes = sp_min_size(16, n_pairs - j);
        v16 a = v16_load_n(x + j, n_lanes), b = v16_load_n(y + j, n_lanes);
        v16 c = v16_load_n(cos + j, n_lanes), s = v16_load_n(sin + j, n_lanes);
        v16_store_n(x + j, n_lanes, v16_nfma(b, s, v16_mul(a, c)));
        v16_store_n(y + j, n_lanes, v16_fma(a, s, v16_mul(b, c)));
    }
}

static float max_of(const float *x, size_t n) {
    v16 lowest = v16_set1(-INFINITY), max[4] = {lowest, lowest, lowest, lowest};
    size_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (size_t j = 0; j < 4; j++) max[j] = v16_max(v16_load(x + i + 16 * j), max[j]);
    for (; i < n; i += 16) {
        size_t n_lanes = sp_min_size(16, n - i);
        max[0] = v16_max(v16_keep(v16_load_n(x + i, n_lanes), 0, n_lanes, -INFINITY), max[0]);
    }
    return v16_greatest(v16_max(v16_max(max[0], max[1]), v16_max(max[2], max[3])));
}

static size_t find(const float *x, size_t n, float value) {
    size_t i = 0;
    v16 wanted = v16_set1(value);
    while (i + 16 <= n && !v16_any_equal(v16_load(x + i), wanted)) i += 16;
    while (i < n && x[i] != value) i++;
    return i < n ? i : 0;
}

LANES v16 weights_of(v16 x, v16 max, v16 factor) { return v16_exp(v16_mul(v16_sub(x, max), factor)); }

static float softmax(const float *x, size_t n, float max, float inv_temperature, float *p) {
    v16 m = v16_set1(max), factor = v16_set1(inv_temperature);
    v16 zero = v16_set1(0.0f), sum[4] = {zero, zero, zero, zero};
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (size_t j = 0; j < 4; j++) {
            v16 weight = weights_of(v16_load(x + i + 16 * j), m, factor);
            if (p) v16_store(p + i + 16 * j, weight);
            sum[j] = v16_add(sum[j], weight);
        }
    }
    for (size_t j = 0; i < n; i += 16, j++) {
        size_t n_lanes = sp_min_size(16, n - i);
        v16 weight = v16_keep(weights_of(v16_load_n(x + i, n_lanes), m, factor), 0, n_lanes, 0.0f);
        if (p) v16_store_n(p + i, n_lanes, weight);
        sum[j] = v16_add(sum[j], weight);
    }
    return sum_of_4(sum);
}

#include "kernels/cpu/attention.inc.c"

const sp_vector_isa VECTOR_ISA = {
    .isa = VECTOR_ISA_NAME,
    .scale = scale,
    .to_f16 = to_f16,
    .norm = norm,
    .glu = glu,
    .softcap = softcap,
    .rope = rope,
    .attention = attention,
    .max = max_of,
    .find = find,
    .softmax = softmax,
};
