/* Sampling against a plain sort of the whole vocabulary, and its edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sample.h"
#include "util/rng.h"
#include "util/size.h"

enum { MAX_VOCAB = 5000 };

typedef struct {
    sp_pool *pool;
    sp_device *device;
} context;

static int set_up(void **state) {
    static context c;
    sp_error err = {0};
    c.pool = sp_pool_new(1, &err);
    c.device = sp_device_open_cpu(c.pool, SP_MODE_BF16, NULL, &err);
    *state = &c;
    return c.device == NULL;
}

static int tear_down(void **state) {
    context *c = *state;
    sp_device_close(c->device);
    sp_pool_free(c->pool);
    return 0;
}

static void fill(float *logits, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) logits[i] = (float)(12 * sp_rng_uniform(seed, i) - 6);
}

static sp_sample sample(context *c, const sp_sample_options *options, const float *logits, size_t n,
                        uint64_t position) {
    sp_error err = {0};
    sp_sampler *s = sp_sampler_new(n);
    sp_sample out;
    bool ok = sp_sample_token(s, c->device, options, logits, position, &out, &err);
    sp_sampler_free(s);
    assert_true(ok);
    return out;
}

/* ---- the plain way ---- */

typedef struct {
    float logit;
    size_t id;
} entry;

static int by_logit(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* probabilities[id] of what may be drawn, in fp64. */
static void plain(const sp_sample_options *o, const float *logits, size_t n, double *probabilities) {
    static entry sorted[MAX_VOCAB];
    for (size_t i = 0; i < n; i++) sorted[i] = (entry){logits[i], i};
    qsort(sorted, n, sizeof *sorted, by_logit);
    size_t n_kept = n;
    if (o->top_k > 0 && o->top_k < n)
        for (n_kept = o->top_k; n_kept < n && sorted[n_kept].logit == sorted[o->top_k - 1].logit;) n_kept++;
    double total = 0, before = 0;
    memset(probabilities, 0, n * sizeof *probabilities);
    for (size_t i = 0; i < n_kept; i++)
        total += exp(((double)sorted[i].logit - (double)sorted[0].logit) / (double)o->temperature);
    for (size_t i = 0; i < n_kept; i++) {
        double p = exp(((double)sorted[i].logit - (double)sorted[0].logit) / (double)o->temperature) / total;
        if (o->top_p > 0 && o->top_p < 1 && before >= (double)o->top_p) break;
        probabilities[sorted[i].id] = p;
        before += p;
    }
    for (size_t i = 0; i < n; i++) probabilities[i] /= before;
}

static void draws_follow_the_plain_distribution(void **state) {
    static float logits[MAX_VOCAB];
    static double wanted[MAX_VOCAB], seen[MAX_VOCAB];
    const sp_sample_options table[] = {
        {.temperature = 1},
        {.temperature = 0.7f, .top_k = 5},
        {.temperature = 1.3f, .top_p = 0.8f},
        {.temperature = 0.9f, .top_k = 40, .top_p = 0.5f},
        {.temperature = 2, .top_k = 1},
        {.temperature = 1, .top_p = 1e-6f},
    };
    const size_t sizes[] = {1, 7, 300, 331};
    enum { DRAWS = 20000 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            size_t n = sizes[j];
            fill(logits, n, i * 10 + j);
            plain(&table[i], logits, n, wanted);
            memset(seen, 0, sizeof seen);
            sp_sampler *s = sp_sampler_new(n);
            for (uint64_t position = 0; position < DRAWS; position++) {
                sp_error err = {0};
                sp_sample out;
                assert_true(sp_sample_token(s, ((context *)*state)->device, &table[i], logits, position, &out, &err));
                seen[out.id] += 1.0 / DRAWS;
            }
            sp_sampler_free(s);
            for (size_t id = 0; id < n;
                 id++) { /* six standard deviations, some draws more where few are due; what was cut never comes */
                double deviation = sqrt(wanted[id] * (1 - wanted[id]) / DRAWS);
                assert_true(wanted[id] > 0 || seen[id] == 0);
                assert_true(fabs(seen[id] - wanted[id]) <= 6 * deviation + 8.0 / DRAWS);
            }
        }
}

static void cuts_are_those_of_a_sort(void **state) {
    static float logits[MAX_VOCAB];
    static double wanted[MAX_VOCAB];
    fill(logits, MAX_VOCAB, 5);
    for (size_t i = 0; i < 40; i++) logits[100 * i + 50] = 7; /* ties at the top */
    const sp_sample_options options = {.temperature = 1, .top_k = 20, .top_p = 0.5f};
    plain(&options, logits, MAX_VOCAB, wanted);
    size_t n_possible = 0;
    for (size_t i = 0; i < MAX_VOCAB; i++) n_possible += wanted[i] > 0;
    assert_int_equal(n_possible, 20); /* 40 tie for the first 20 places, half of the mass is 20 of them */
    for (uint64_t position = 0; position < 2000; position++) {
        sp_sample out = sample(*state, &options, logits, MAX_VOCAB, position);
        assert_true(wanted[out.id] > 0);
    }
}

static void the_draw_depends_on_seed_and_position_alone(void **state) {
    static float logits[MAX_VOCAB];
    fill(logits, MAX_VOCAB, 6);
    sp_sample_options options = {.temperature = 1, .seed = 17};
    int32_t first = sample(*state, &options, logits, MAX_VOCAB, 3).id;
    size_t n_same_position = 0, n_same_seed = 0;
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(sample(*state, &options, logits, MAX_VOCAB, 3).id, first);
        n_same_seed += sample(*state, &options, logits, MAX_VOCAB, 100 + i).id == first;
        sp_sample_options other = {.temperature = 1, .seed = 1000 + i};
        n_same_position += sample(*state, &other, logits, MAX_VOCAB, 3).id == first;
    }
    assert_true(n_same_seed < 25 && n_same_position < 25);
}

static void greedy_takes_the_lower_id_of_a_tie(void **state) {
    float logits[100];
    fill(logits, 100, 7);
    logits[30] = logits[80] = 9;
    assert_int_equal(sample(*state, &(sp_sample_options){.temperature = 0}, logits, 100, 0).id, 30);
    assert_int_equal(sample(*state, &(sp_sample_options){.temperature = 1e-42f}, logits, 100, 0).id, 30);
}

static void logprobs_are_of_raw_logits_and_sorted(void **state) {
    float logits[100];
    fill(logits, 100, 8);
    logits[30] = logits[80] = 9;
    const sp_logit_bias bias[] = {{30, -100}, {12, 100}};
    const sp_sample_options options = {
        .temperature = 0.5f, .bias = bias, .n_bias = 2, .logprobs = true, .n_top = SP_SAMPLE_TOP_MAX};
    sp_sample out = sample(*state, &options, logits, 100, 0);
    assert_int_equal(out.id, 12);
    assert_int_equal(out.n_top, SP_SAMPLE_TOP_MAX);
    assert_int_equal(out.top[0].id, 30);
    assert_int_equal(out.top[1].id, 80);
    double sum = 0;
    for (size_t i = 0; i < 100; i++) sum += exp((double)logits[i]);
    assert_true(fabs((double)out.logprob - ((double)logits[12] - log(sum))) < 1e-5);
    for (size_t i = 1; i < out.n_top; i++) assert_true(out.top[i - 1].logprob >= out.top[i].logprob);
    sp_sample few = sample(*state, &(sp_sample_options){.logprobs = true, .n_top = 20}, logits, 3, 0);
    assert_int_equal(few.n_top, 3);
}

/* Of the row's own tokens alone, in whichever order they came, to the last bit. */
static void penalties_follow_the_formula(void **state) {
    float logits[100], wanted[100];
    const int32_t generated[] = {7, 30, 7, 80, 7}, shuffled[] = {7, 7, 80, 7, 30};
    const sp_logit_bias bias[] = {{30, 0.3f}};
    sp_sample_options options = {.frequency_penalty = 1.1f,
                                 .presence_penalty = 0.7f,
                                 .generated = generated,
                                 .n_generated = 5,
                                 .bias = bias,
                                 .n_bias = 1};
    fill(logits, 100, 12);
    memcpy(wanted, logits, sizeof logits);
    wanted[7] -= 3 * 1.1f + 0.7f;
    wanted[30] -= 1.1f + 0.7f;
    wanted[80] -= 1.1f + 0.7f;
    wanted[30] += 0.3f;
    for (size_t i = 0; i < 3; i++) { /* each penalized token wins by one unit in the last place, or loses by one */
        const int32_t token = generated[i + 1], rival = 50;
        float edge = wanted[token];
        for (int above = 0; above < 2; above++) {
            float one[100];
            for (size_t k = 0; k < 100; k++) one[k] = -20;
            one[token] = logits[token];
            one[rival] = nextafterf(edge, above ? INFINITY : -INFINITY);
            sp_sample out = sample(*state, &options, one, 100, 0);
            assert_int_equal(out.id, above ? rival : token);
            options.generated = shuffled;
            assert_int_equal(sample(*state, &options, one, 100, 0).id, out.id);
            options.generated = generated;
        }
    }
    options.logprobs = true;
    sp_sample out = sample(*state, &options, logits, 100, 0), raw;
    raw = sample(*state, &(sp_sample_options){.logprobs = true, .bias = bias, .n_bias = 1}, logits, 100, 0);
    if (raw.id == out.id) assert_true(raw.logprob == out.logprob); /* log-probabilities stay raw */
    const sp_sample_options off = {.generated = generated, .n_generated = 5};
    assert_int_equal(sample(*state, &off, logits, 100, 0).id,
                     sample(*state, &(sp_sample_options){0}, logits, 100, 0).id);
}

/* A negative penalty draws what was there again; with a temperature too. */
static void penalties_change_draws(void **state) {
    float logits[130] = {0};
    const int32_t generated[] = {129, 129};
    const sp_sample_options keep = {
        .temperature = 0.05f, .frequency_penalty = -2, .generated = generated, .n_generated = 2};
    const sp_sample_options leave = {
        .temperature = 0.05f, .presence_penalty = 2, .generated = generated, .n_generated = 2};
    for (uint64_t position = 0; position < 200; position++) {
        assert_int_equal(sample(*state, &keep, logits, 130, position).id, 129);
        assert_true(sample(*state, &leave, logits, 130, position).id != 129);
    }
}

static void a_mask_bounds_the_choice(void **state) {
    float logits[130];
    fill(logits, 130, 9);
    const uint64_t mask[3] = {0, 1ull << 5, 2};
    for (uint64_t position = 0; position < 200; position++) {
        sp_sample out = sample(*state, &(sp_sample_options){.temperature = 5, .mask = mask}, logits, 130, position);
        assert_true(out.id == 69 || out.id == 129);
    }
}

static void what_cannot_be_sampled_is_an_error(void **state) {
    context *c = *state;
    float logits[64];
    sp_sampler *s = sp_sampler_new(64);
    const uint64_t nothing[1] = {0};
    const float bad[] = {NAN, INFINITY};
    sp_sample out;
    for (size_t i = 0; i < 2; i++) {
        sp_error err = {0};
        fill(logits, 64, 10);
        logits[33] = bad[i];
        assert_false(sp_sample_token(s, c->device, &(sp_sample_options){0}, logits, 0, &out, &err));
        assert_int_equal(err.code, SP_ERR_INPUT);
    }
    fill(logits, 64, 10);
    const sp_logit_bias outside[] = {{64, 1}};
    const sp_sample_options refused[] = {
        {.mask = nothing}, {.mask = nothing, .temperature = 1}, {.bias = outside, .n_bias = 1}};
    for (size_t i = 0; i < 3; i++) {
        sp_error err = {0};
        assert_false(sp_sample_token(s, c->device, &refused[i], logits, 0, &out, &err));
    }
    sp_sampler_free(s);
}

/* Known answers of Philox-4x32-10 (Random123's kat_vectors). */
static void philox_matches_its_paper(void **state) {
    (void)state;
    sp_rng_block zeros = sp_rng_philox(0, 0, 0), ones = sp_rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    const uint32_t wanted_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t wanted_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(zeros.v, wanted_zeros, sizeof wanted_zeros);
    assert_memory_equal(ones.v, wanted_ones, sizeof wanted_ones);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_plain_distribution),
        cmocka_unit_test(cuts_are_those_of_a_sort),
        cmocka_unit_test(the_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(greedy_takes_the_lower_id_of_a_tie),
        cmocka_unit_test(logprobs_are_of_raw_logits_and_sorted),
        cmocka_unit_test(penalties_follow_the_formula),
        cmocka_unit_test(penalties_change_draws),
        cmocka_unit_test(a_mask_bounds_the_choice),
        cmocka_unit_test(what_cannot_be_sampled_is_an_error),
        cmocka_unit_test(philox_matches_its_paper),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
