/* Rotary position embedding: the frequencies of every scaling type, and how two of them depend on the row's length.
 *
 * Pair j of a head's n_dims rotating dims turns by angle position * inv_freq[j]; cos and sin are multiplied by `scale`.
 * Frequencies are computed in fp32 in the order of operations of the reference implementation, powers from
 * model/realmath.h. Pure, thread-safe.
 *
 * Length: for `dynamic` and `longrope` the frequencies depend on the number of positions. What a row computes must be a
 * function of the row alone, however its tokens are spread over passes, and what the reference generates:
 *
 *   dynamic:   a token at position p has the frequencies of length max(prompt, p + 1), whenever it is computed
 *   longrope:  all tokens have the frequencies of the row's length; when a row outgrows switch_pos, once, the keys in
 * its cache are void and it is prefilled again others:    length does not matter */
#ifndef SPILL_MODEL_ROPE_H
#define SPILL_MODEL_ROPE_H

#include "model/arch.h"
#include "model/config.h"
#include "util/arena.h"

/* The length whose frequencies the token at position pos has: of a row whose prompt has n_prompt tokens and which is
 * n_length tokens long in this pass. For sp_rope_inv_freq. */
size_t sp_rope_total(const sp_rope *rope, size_t n_prompt, size_t n_length, size_t pos);
/* How many of the n_left tokens from position pos on have the frequencies of the first of them; all, but for dynamic.
 */
size_t sp_rope_run(const sp_rope *rope, size_t n_prompt, size_t pos, size_t n_left);

/* Whether the first n_prompt positions of a row that comes to n_most tokens have the same frequencies as those of any
 * other row of which this holds. */
bool sp_rope_is_fixed(const sp_rope *rope, size_t n_prompt, size_t n_most);

/* inv_freq_out [n_dims/2] and the factor of cos and sin, for a row of n_total tokens. */
void sp_rope_inv_freq(const sp_rope *rope, size_t n_total, float *inv_freq_out, float *scale_out);

/* ---- building, for the model module ---- */

typedef enum {
    SP_ROPE_DEFAULT,
    SP_ROPE_LINEAR,
    SP_ROPE_DYNAMIC,
    SP_ROPE_LLAMA3,
    SP_ROPE_YARN,
    SP_ROPE_LONGROPE,
    SP_ROPE_DIVISORS, /* GGUF's rope_freqs: frequency j divided by short_factors[j] */
} sp_rope_type;

typedef struct {
    sp_rope_type type;
    size_t n_exponent_dims; /* int(head_dim * partial_rotary_factor) */
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool truncate;
    double mscale, mscale_all_dim;             /* 0: not given */
    double attention_factor;                   /* negative: derived */
    size_t original_positions;                 /* llama3, yarn, longrope */
    size_t n_positions;                        /* max_position_embeddings */
    const float *short_factors, *long_factors; /* [ceil(n_exponent_dims/2)] */
} sp_rope_params;

/* Fills *rope; its arrays come from the arena. */
void sp_rope_build(const sp_rope_params *params, sp_arena *arena, sp_rope *rope);

/* Positions that a row may have with this scaling, at least params->n_positions. */
size_t sp_rope_n_positions(const sp_rope_params *params);

/* What a family may have. */
typedef struct {
    bool partial;              /* partial_rotary_factor other than 1 */
    bool legacy_longrope;      /* types "su" and "yarn" mean longrope */
    size_t original_positions; /* when no key gives original_max_position_embeddings; 0: max_position_embeddings */
} sp_rope_rules;

/* rope_parameters or rope_scaling, rope_theta, partial_rotary_factor of a config.json. */
bool sp_rope_params_from_config(const sp_config *config, size_t head_dim, size_t n_positions,
                                const sp_rope_rules *rules, sp_arena *arena, sp_rope_params *params,
                                sp_error *err) SP_MUST_CHECK;

/* rope.* keys of a GGUF file, except the tensors of frequencies. config->inside is "llama." or the like. */
bool sp_rope_params_from_gguf(const sp_config *config, size_t head_dim, size_t n_positions, const sp_rope_rules *rules,
                              sp_rope_params *params, sp_error *err) SP_MUST_CHECK;

#endif
