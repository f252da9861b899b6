/* From a token's logits to the next token, and its log-probabilities.
 *
 * Order, as in transformers: penalties, logit_bias and mask, then temperature, top_k, top_p, then a draw. temperature 0
 * is the greatest logit, ties to the lower id. The draw is keyed by the row's seed and the token's position, nothing
 * else. Log-probabilities are those of the raw logits: before penalties, bias, mask and temperature.
 *
 * The mask is where whatever bounds a row's next token comes in (min_tokens today; a grammar would be another): it
 * belongs to the row, may be another one for every token, and is read during the call alone. */
#ifndef SPILL_ENGINE_SAMPLE_H
#define SPILL_ENGINE_SAMPLE_H

#include "kernels/device.h"
#include "util/error.h"

enum { SP_SAMPLE_TOP_MAX = 20 };

typedef struct {
    int32_t id;
    float bias;
} sp_logit_bias;

typedef struct {
    float temperature; /* 0: greedy */
    size_t top_k;      /* 0: all. Tokens that tie with the k-th stay, as in transformers */
    float top_p; /* 0 or >= 1: all. A token stays while the mass before it is less than top_p; the first always does */
    uint64_t seed;
    const sp_logit_bias *bias; /* [n_bias] each token once; ids outside the vocabulary are an error */
    size_t n_bias;
    /* A token that the row has generated n > 0 times has the logit l - (n * frequency_penalty + presence_penalty), in
     * fp32, before its bias is added. */
    float frequency_penalty, presence_penalty; /* 0: off */
    const int32_t *generated;                  /* [n_generated] what the row has generated so far, in any order */
    size_t n_generated;
    const uint64_t *mask; /* bit i of word i/64: token i is allowed; NULL: all are. [ceil(V/64)] */
    bool logprobs;        /* fill logprob and top */
    size_t n_top;         /* <= SP_SAMPLE_TOP_MAX */
} sp_sample_options;

typedef struct {
    int32_t id;
    float logprob;
} sp_token_logprob;

typedef struct {
    int32_t id;
    float logprob;                           /* of that token */
    size_t n_top;                            /* min(n_top asked for, V) */
    sp_token_logprob top[SP_SAMPLE_TOP_MAX]; /* greatest first, ties to the lower id */
} sp_sample;

/* Working memory for one caller at a time. */
typedef struct sp_sampler sp_sampler;
sp_sampler *sp_sampler_new(size_t n_vocab);
void sp_sampler_free(sp_sampler *sampler); /* NULL is fine */

/* logits [V] are not changed. position: of the token to be chosen, counted from the row's first. Fails when a logit is
 * NaN or +inf, or when no token is allowed: the row is in error. Allocates nothing; callable on any thread. */
bool sp_sample_token(sp_sampler *sampler, const sp_device *device, const sp_sample_options *options,
                     const float *logits, uint64_t position, sp_sample *out, sp_error *err) SP_MUST_CHECK;

#endif
