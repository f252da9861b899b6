/* RoPE frequencies. Every fp32 step below is one rounding of the reference's tensor arithmetic: its order matters. */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "model/realmath.h"
#include "util/size.h"

static const double pi = 0x1.921fb54442d18p+1;

static size_t n_pairs(const sp_rope_params *p) { return sp_div_up(p->n_exponent_dims, 2); }

/* theta^(2j / dims) */
static float wave(float theta, size_t j, size_t n_exponent_dims) {
    return sp_real_powf(theta, (float)(2 * j) / (float)n_exponent_dims);
}

static void fill_default(const sp_rope_params *p, float *out) {
    for (size_t j = 0; j < n_pairs(p); j++) out[j] = 1.0f / wave((float)p->theta, j, p->n_exponent_dims);
}

static void fill_linear(const sp_rope_params *p, float *out) {
    fill_default(p, out);
    for (size_t j = 0; j < n_pairs(p); j++) out[j] /= (float)p->factor;
}

static void fill_divisors(const sp_rope_params *p, float *out) {
    fill_default(p, out);
    for (size_t j = 0; j < n_pairs(p); j++) out[j] /= p->short_factors[j];
}

/* Three bands by wavelength: short ones stay, long ones are divided by factor, those between are interpolated. */
static void fill_llama3(const sp_rope_params *p, float *out) {
    fill_default(p, out);
    double context = (double)p->original_positions;
    float low = (float)(context / p->low_freq_factor), high = (float)(context / p->high_freq_factor);
    float factor = (float)p->factor;
    for (size_t j = 0; j < n_pairs(p); j++) {
        float wavelength = (1.0f / out[j]) * (float)(2 * pi);
        if (wavelength > low) {
            out[j] /= factor;
        } else if (!(wavelength < high)) {
            float smooth = ((1.0f / wavelength) * (float)context - (float)p->low_freq_factor) /
                           (float)(p->high_freq_factor - p->low_freq_factor);
            out[j] = (1.0f - smooth) * out[j] / factor + smooth * out[j];
        }
    }
}

/* The pair that turns n_rotations times over the original context. */
static double yarn_pair(const sp_rope_params *p, double n_rotations) {
    double turns = (double)p->original_positions / (n_rotations * 2 * pi);
    return (double)p->n_exponent_dims * sp_real_log(turns) / (2 * sp_real_log(p->theta));
}

/* Below `low` frequencies stay, above `high` they are divided by factor, with a ramp between. */
static void fill_yarn(const sp_rope_params *p, float *out) {
    double low = yarn_pair(p, p->beta_fast), high = yarn_pair(p, p->beta_slow);
    if (p->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)p->n_exponent_dims - 1);
    if (low == high) high += 0.001;
    for (size_t j = 0; j < n_pairs(p); j++) {
        float w = wave((float)p->theta, j, p->n_exponent_dims);
        float ramp = ((float)j - (float)low) / (float)(high - low);
        float keep = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f);
        out[j] = (1.0f / ((float)p->factor * w)) * (1.0f - keep) + (1.0f / w) * keep;
    }
}

static void fill_longrope(const sp_rope_params *p, const float *factors, float *out) {
    for (size_t j = 0; j < n_pairs(p); j++) out[j] = 1.0f / (factors[j] * wave((float)p->theta, j, p->n_exponent_dims));
}

static void fill_short(const sp_rope_params *p, float *out) { fill_longrope(p, p->short_factors, out); }

/* 0.1 mscale ln(factor) + 1 */
static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1.0 : 0.1 * mscale * sp_real_log(factor) + 1.0;
}

static double scale_one(const sp_rope_params *p) {
    (void)p;
    return 1.0;
}

static double scale_yarn(const sp_rope_params *p) {
    if (p->attention_factor >= 0) return p->attention_factor;
    if (p->mscale != 0 && p->mscale_all_dim != 0)
        return yarn_mscale(p->factor, p->mscale) / yarn_mscale(p->factor, p->mscale_all_dim);
    return yarn_mscale(p->factor, 1);
}

static double scale_longrope(const sp_rope_params *p) {
    if (p->attention_factor >= 0) return p->attention_factor;
    if (p->factor <= 1) return 1.0;
    return sqrt(1 + sp_real_log(p->factor) / sp_real_log((double)p->original_positions));
}

static const struct {
    void (*fill)(const sp_rope_params *p, float *out);
    double (*scale)(const sp_rope_params *p);
} kinds[] = {
    [SP_ROPE_DEFAULT] = {fill_default, scale_one},   [SP_ROPE_LINEAR] = {fill_linear, scale_one},
    [SP_ROPE_DYNAMIC] = {fill_default, scale_one},   [SP_ROPE_LLAMA3] = {fill_llama3, scale_one},
    [SP_ROPE_YARN] = {fill_yarn, scale_yarn},        [SP_ROPE_LONGROPE] = {fill_short, scale_longrope},
    [SP_ROPE_DIVISORS] = {fill_divisors, scale_one},
};

void sp_rope_build(const sp_rope_params *p, sp_arena *arena, sp_rope *rope) {
    *rope = (sp_rope){.n_dims = 2 * n_pairs(p),
                      .inv_freq = SP_ARENA_ARRAY(arena, float, n_pairs(p)),
                      .scale = (float)kinds[p->type].scale(p),
                      .theta = p->theta,
                      .factor = p->factor,
                      .n_exponent_dims = p->n_exponent_dims};
    kinds[p->type].fill(p, rope->inv_freq);
    if (p->type == SP_ROPE_LONGROPE && p->original_positions < p->n_positions) {
        rope->switch_pos = p->original_positions;
        rope->scale_long = rope->scale;
        rope->inv_freq_long = SP_ARENA_ARRAY(arena, float, n_pairs(p));
        fill_longrope(p, p->long_factors, rope->inv_freq_long);
    }
    if (p->type == SP_ROPE_DYNAMIC) {
        rope->dynamic = true;
        rope->dynamic_base_pos = p->n_positions;
    }
}

size_t sp_rope_n_positions(const sp_rope_params *p) {
    double reach = 0;
    if (p->type == SP_ROPE_DYNAMIC) reach = (double)p->n_positions * p->factor;
    if (p->type == SP_ROPE_YARN) reach = (double)p->original_positions * p->factor;
    double limit = (double)(1u << 30);
    return sp_max_size(p->n_positions, (size_t)fmin(reach, limit));
}

/* theta grows with the length: theta * (factor * n / base - (factor - 1))^(dims / (dims - 2)), in fp32 steps. */
static void fill_dynamic(const sp_rope *rope, size_t n_total, float *out) {
    double dims = (double)rope->n_exponent_dims;
    float stretch = (float)rope->factor * (float)n_total / (float)rope->dynamic_base_pos - (float)(rope->factor - 1);
    float theta = (float)rope->theta * sp_real_powf(stretch, (float)(dims / (dims - 2)));
    for (size_t j = 0; j < rope->n_dims / 2; j++) out[j] = 1.0f / wave(theta, j, rope->n_exponent_dims);
}

size_t sp_rope_total(const sp_rope *rope, size_t n_prompt, size_t n_length, size_t pos) {
    return rope->dynamic ? sp_max_size(n_prompt, pos + 1) : n_length;
}

size_t sp_rope_run(const sp_rope *rope, size_t n_prompt, size_t pos, size_t n_left) {
    if (!rope->dynamic) return n_left;
    return pos < n_prompt ? sp_min_size(n_left, n_prompt - pos) : 1;
}

bool sp_rope_is_fixed(const sp_rope *rope, size_t n_prompt, size_t n_most) {
    if (rope->dynamic) return n_prompt <= rope->dynamic_base_pos;
    return rope->switch_pos == 0 || n_most <= rope->switch_pos;
}

void sp_rope_inv_freq(const sp_rope *rope, size_t n_total, float *inv_freq_out, float *scale_out) {
    bool is_long = rope->switch_pos && n_total > rope->switch_pos;
    *scale_out = is_long ? rope->scale_long : rope->scale;
    if (rope->dynamic && n_total > rope->dynamic_base_pos)
        fill_dynamic(rope, n_total, inv_freq_out);
    else if (rope->n_dims)
        memcpy(inv_freq_out, is_long ? rope->inv_freq_long : rope->inv_freq, rope->n_dims / 2 * sizeof *inv_freq_out);
}
