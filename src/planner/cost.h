/* What a pass costs: a pure function of the model's shape, the machine's rates and what is in the pass.
 *
 *     compute = calls + products(tokens) + attention(keys seen) + the rest(tokens) + head(logits)
 *     pass    = the longer of compute and disk, and a part of the shorter one (they overlap, but not wholly)
 *
 * Corrections scale compute by what passes of about as many tokens took before (planner/history.h, planner/eta.h).
 * Plain data, thread-safe. */
#ifndef SPILL_PLANNER_COST_H
#define SPILL_PLANNER_COST_H

#include "model/model.h"
#include "planner/rates.h"

/* Passes of n tokens are bucket log2(n): 1, 2-3, 4-7, ... */
enum { SP_COST_BUCKETS = 14 };

typedef struct {
    size_t n_tokens, n_logits;
    double decode_keys, prefill_keys; /* sum over the tokens of the positions each sees */
    double panel_share;               /* of the weights, that stay in memory and are in panel form */
} sp_pass_load;

typedef struct {
    sp_rates rates;
    double layer_weights, narrow_weights, head_weights; /* all layers; the last one's behind attention; the head's */
    double key_flops, vector_bytes, logit_bytes;        /* per key seen, token, logits row; all layers */
    double n_calls;
    double scale[SP_COST_BUCKETS]; /* 1: as the rates say */
} sp_cost;

/* Keys that n tokens see together, the first of which sees first + 1. */
static inline double sp_keys_seen(size_t first, size_t n) {
    return (double)n * ((double)first + 0.5 * ((double)n + 1));
}

void sp_cost_init(sp_cost *cost, const sp_model *model, const sp_rates *rates);

double sp_cost_compute_seconds(const sp_cost *cost, const sp_pass_load *load);
/* The same without the corrections. */
double sp_cost_plain_seconds(const sp_cost *cost, const sp_pass_load *load);
/* read_seconds: what the drive takes for the pass's bytes. */
double sp_cost_pass_seconds(const sp_cost *cost, const sp_pass_load *load, double read_seconds);

/* The compute seconds, as sp_cost_pass_seconds takes them, of a pass that took pass_s, wait_s of it waiting, while the
 * drive took read_s for its bytes. */
double sp_cost_alone_seconds(double pass_s, double wait_s, double read_s);

/* And what the drive takes for its bytes, where it was the limit: the products waited. */
double sp_cost_read_seconds(double pass_s, double wait_s);

/* What passes took against what was computed for them, by their number of tokens. */
typedef struct {
    double n_passes[SP_COST_BUCKETS], plain_s[SP_COST_BUCKETS], actual_s[SP_COST_BUCKETS];
} sp_cost_seen;

size_t sp_cost_bucket(size_t n_tokens);
/* Adds a pass; old ones fade. */
void sp_cost_see(sp_cost_seen *seen, const sp_cost *cost, const sp_pass_load *load, double actual_s);
/* Scales the cost by what was seen: each bucket by its own passes as far as there are some, else by all. */
void sp_cost_correct(sp_cost *cost, const sp_cost_seen *seen);
/* How far passes of so many tokens are known from their like: 0 never seen, towards 1. */
double sp_cost_trust(const sp_cost_seen *seen, size_t n_tokens);
bool sp_cost_is_seen(const sp_cost_seen *seen); /* enough passes to be believed more than the machine's rates */

#endif
