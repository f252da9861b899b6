/* Sampling without sorting the vocabulary.
 *
 * top_k needs one number, the k-th greatest logit: a radix selection over the floats' bits, three passes. top_p needs
 * the point where the mass of the greatest tokens reaches p: masses are summed by the leading bits of the probability,
 * and only the one bin in which p is reached is sorted. The draw walks the probabilities in order of id. Probabilities
 * come from the canonical softmax of kernels/ops.h and are summed in fp64 in a fixed order, so the token is the same
 * everywhere. */
#include "engine/sample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "util/fpenv.h"
#include "util/rng.h"
#include "util/size.h"

enum { BIN_BITS = 12, N_BINS = 1 << BIN_BITS, BLOCK = 256, LANES = 8 };

typedef struct {
    float p;
    int32_t id;
} candidate;

struct sp_sampler {
    size_t n_vocab;
    float *logits;         /* [V] with penalties, bias and mask */
    float *p;              /* [V] unnormalized probabilities, 0: cut */
    candidate *candidates; /* [V] one bin of top_p */
    double *mass;          /* [N_BINS] */
    uint32_t *counts;      /* [N_BINS] */
};

sp_sampler *sp_sampler_new(size_t n_vocab) {
    sp_sampler *s = calloc(1, sizeof *s);
    SP_CHECK(s != NULL);
    s->n_vocab = n_vocab;
    size_t row_bytes = sp_round_up(n_vocab * sizeof(float), 64);
    s->logits = aligned_alloc(64, row_bytes);
    s->p = aligned_alloc(64, row_bytes);
    s->candidates = malloc(n_vocab * sizeof *s->candidates);
    s->mass = malloc(N_BINS * sizeof *s->mass);
    s->counts = malloc(N_BINS * sizeof *s->counts);
    SP_CHECK(s->logits && s->p && s->candidates && s->mass && s->counts);
    return s;
}

void sp_sampler_free(sp_sampler *s) {
    if (!s) return;
    free(s->logits);
    free(s->p);
    free(s->candidates);
    free(s->mass);
    free(s->counts);
    free(s);
}

/* ---- log-probabilities ---- */

/* Keeps top[0..n) sorted: greatest first, ties in order of arrival, which is that of ids. */
static void insert_top(sp_token_logprob *top, size_t *n, size_t n_max, int32_t token, float logit) {
    size_t i = *n < n_max ? (*n)++ : n_max - 1;
    for (; i > 0 && top[i - 1].logprob < logit; i--) top[i] = top[i - 1];
    top[i] = (sp_token_logprob){token, logit};
}

static void find_top(const float *logits, size_t n_vocab, size_t n_max, sp_sample *out) {
    size_t n = 0;
    for (size_t i = 0; n_max > 0 && i < n_vocab; i++)
        if (n < n_max || logits[i] > out->top[n - 1].logprob) insert_top(out->top, &n, n_max, (int32_t)i, logits[i]);
    out->n_top = n;
}

static void fill_logprobs(const sp_sampler *s, const float *logits, float logsumexp, size_t n_top, sp_sample *out) {
    out->logprob = logits[out->id] - logsumexp;
    find_top(logits, s->n_vocab, sp_min_size(n_top, SP_SAMPLE_TOP_MAX), out);
    for (size_t i = 0; i < out->n_top; i++) out->top[i].logprob -= logsumexp;
}

/* ---- penalties, bias and mask ---- */

/* s->p counts; it is not in use yet. */
static void penalize(sp_sampler *s, const sp_sample_options *options) {
    for (size_t i = 0; i < options->n_generated; i++) s->p[options->generated[i]] = 0;
    for (size_t i = 0; i < options->n_generated; i++) s->p[options->generated[i]] += 1;
    for (size_t i = 0; i < options->n_generated; i++) {
        int32_t token = options->generated[i];
        float n = s->p[token];
        s->p[token] = 0; /* once for each token */
        if (n > 0) s->logits[token] -= n * options->frequency_penalty + options->presence_penalty;
    }
}

static bool adjust(sp_sampler *s, const sp_sample_options *options, const float *logits, const float **adjusted,
                   sp_error *err) {
    bool penalizes = options->n_generated && (options->frequency_penalty != 0 || options->presence_penalty != 0);
    *adjusted = logits;
    if (options->n_bias == 0 && !options->mask && !penalizes) return true;
    memcpy(s->logits, logits, s->n_vocab * sizeof *logits);
    if (penalizes) penalize(s, options);
    for (size_t i = 0; i < options->n_bias; i++) {
        int32_t token = options->bias[i].id;
        if (token < 0 || (size_t)token >= s->n_vocab)
            return sp_fail(err, SP_ERR_INPUT, "logit_bias: token %d, the model's vocabulary has %zu", token,
                           s->n_vocab);
        s->logits[token] += options->bias[i].bias;
    }
    for (size_t i = 0; options->mask && i < s->n_vocab; i++)
        if (!(options->mask[i / 64] >> (i % 64) & 1)) s->logits[i] = -INFINITY;
    *adjusted = s->logits;
    return true;
}

/* ---- top_k ---- */

/* Unsigned integers in the order of the floats. */
static uint32_t ordered_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* ordered_bits of the k-th greatest of x[n], 1 <= k <= n. */
static uint32_t kth_greatest(sp_sampler *s, const float *x, size_t n, size_t k) {
    static const struct { int shift, n_bits; } digits[] = {{20, 12}, {8, 12}, {0, 8}};
    uint32_t prefix = 0, mask = 0;
    for (size_t d = 0; d < sizeof digits / sizeof *digits; d++) {
        memset(s->counts, 0, N_BINS * sizeof *s->counts);
        uint32_t digit_mask = (1u << digits[d].n_bits) - 1;
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = ordered_bits(x[i]);
            if ((bits & mask) == prefix) s->counts[bits >> digits[d].shift & digit_mask]++;
        }
        uint32_t digit = digit_mask;
        while (s->counts[digit] < k) k -= s->counts[digit--];
        prefix |= digit << digits[d].shift;
        mask |= digit_mask << digits[d].shift;
    }
    return prefix;
}

static void cut_top_k(sp_sampler *s, const float *logits, size_t top_k) {
    if (top_k == 0 || top_k >= s->n_vocab) return;
    uint32_t least = kth_greatest(s, logits, s->n_vocab, top_k);
    for (size_t i = 0; i < s->n_vocab; i++)
        if (ordered_bits(logits[i]) < least) s->p[i] = 0;
}

/* ---- top_p ---- */

/* Bins of probabilities p in (0, 1], greatest last: exponent and 4 bits of mantissa. */
static uint32_t bin_of(float p) {
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    return bits >> (31 - BIN_BITS);
}

static int by_p_then_id(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Walks the bin in which the mass reaches `wanted`, greatest first, and cuts what comes after that point. */
static void cut_bin(sp_sampler *s, uint32_t bin, double before, double wanted) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        uint32_t b = bin_of(s->p[i]);
        if (b < bin)
            s->p[i] = 0;
        else if (b == bin)
            s->candidates[n++] = (candidate){s->p[i], (int32_t)i};
    }
    qsort(s->candidates, n, sizeof *s->candidates, by_p_then_id);
    for (size_t i = 0; i < n; i++) {
        if (before >= wanted) s->p[s->candidates[i].id] = 0;
        before += (double)s->candidates[i].p;
    }
}

static void cut_top_p(sp_sampler *s, float top_p) {
    if (!(top_p > 0) || top_p >= 1) return;
    memset(s->mass, 0, N_BINS * sizeof *s->mass);
    for (size_t i = 0; i < s->n_vocab; i++) s->mass[bin_of(s->p[i])] += (double)s->p[i];
    double total = 0;
    for (size_t b = 0; b < N_BINS; b++) total += s->mass[b];
    double wanted = (double)top_p * total, before = 0;
    uint32_t bin = N_BINS - 1;
    while (bin > 0 && before + s->mass[bin] < wanted) before += s->mass[bin--];
    cut_bin(s, bin, before, wanted);
}

/* ---- the draw ---- */

/* Sum of a block: eight chains, then a fixed tree. */
static double block_sum(const float *p, size_t n) {
    double sums[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++) sums[j] += (double)p[i + j];
    for (size_t j = 0; i + j < n; j++) sums[j] += (double)p[i + j];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

/* The token of [i0, i0 + n) at which the running mass passes `left`; rounding may leave none, then the last with mass.
 */
static int32_t token_within(const sp_sampler *s, size_t i0, size_t n, double left) {
    size_t last = i0;
    double mass = 0;
    for (size_t i = i0; i < i0 + n && !(mass > left); i++) {
        if (s->p[i] == 0) continue;
        mass += (double)s->p[i];
        last = i;
    }
    return (int32_t)last;
}

/* The token at which the running mass passes u times the total: its block first, then the token. */
static int32_t draw(const sp_sampler *s, double u) {
    double total = 0;
    for (size_t i = 0; i < s->n_vocab; i += BLOCK) total += block_sum(s->p + i, sp_min_size(BLOCK, s->n_vocab - i));
    double left = u * total, left_within = 0;
    size_t i_block = 0;
    for (size_t i = 0; i < s->n_vocab; i += BLOCK) {
        double mass = block_sum(s->p + i, sp_min_size(BLOCK, s->n_vocab - i));
        if (mass == 0) continue;
        i_block = i;
        left_within = left;
        if (mass > left) break;
        left -= mass;
    }
    return token_within(s, i_block, sp_min_size(BLOCK, s->n_vocab - i_block), left_within);
}

static int32_t choose(sp_sampler *s, const sp_device *device, const sp_sample_options *options, const float *logits,
                      uint64_t position) {
    float inv_temperature = 1.0f / options->temperature; /* a temperature too small to invert is greedy too */
    if (!(options->temperature > 0) || !isfinite(inv_temperature))
        return (int32_t)sp_argmax(device, logits, s->n_vocab);
    sp_softmax_weights(device, logits, s->n_vocab, inv_temperature, s->p);
    cut_top_k(s, logits, options->top_k);
    cut_top_p(s, options->top_p);
    return draw(s, sp_rng_uniform(options->seed, position));
}

static bool sample(sp_sampler *s, const sp_device *device, const sp_sample_options *options, const float *logits,
                   uint64_t position, sp_sample *out, sp_error *err) {
    bool is_finite = true;
    float logsumexp = sp_logsumexp(device, logits, s->n_vocab, &is_finite);
    if (!is_finite) return sp_fail(err, SP_ERR_INPUT, "the model's logits are not finite (NaN or infinity)");
    const float *adjusted;
    if (!adjust(s, options, logits, &adjusted, err)) return false;
    *out = (sp_sample){.id = choose(s, device, options, adjusted, position)};
    if (!isfinite(adjusted[out->id]))
        return sp_fail(err, SP_ERR_INPUT, "no token is allowed: logit_bias and mask leave none");
    if (options->logprobs) fill_logprobs(s, logits, logsumexp, options->n_top, out);
    return true;
}

bool sp_sample_token(sp_sampler *s, const sp_device *device, const sp_sample_options *options, const float *logits,
                     uint64_t position, sp_sample *out, sp_error *err) {
    sp_fpenv env = sp_fpenv_enter();
    bool ok = sample(s, device, options, logits, position, out, err);
    sp_fpenv_leave(env);
    return ok;
}
