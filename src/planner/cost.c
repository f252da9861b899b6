/* The shape of a model as the few numbers that passes cost by, and their sum. */
#include "planner/cost.h"

#include <math.h>

/* UNHIDDEN: the part of the shorter one of compute and disk that shows, since they share processors and memory: 0.2 to
 * 0.27 where it was measured (bench/RESULTS.md, estimates). CALLS_LAYER: operations of a layer that fork and join. */
static const double unhidden = 0.2;
enum { CALLS_LAYER = 9 };
/* FADE_PASSES: what was seen counts as that many passes of a bucket at most. KNOWN_PASSES: of a bucket that weigh as
 * much as what else is known of it; also of all buckets, against the rates. */
static const double fade_passes = 100, known_passes = 2, enough_passes = 8;

static double weights_of(const sp_matrix *matrix) { return (double)matrix->n_rows * (double)matrix->n_cols; }

static double ffn_weights(const sp_layer *layer) {
    return weights_of(&layer->gate) + weights_of(&layer->up) + weights_of(&layer->down);
}

void sp_cost_init(sp_cost *cost, const sp_model *model, const sp_rates *rates) {
    const sp_arch *arch = &model->arch;
    double n_layers = (double)arch->n_layers, width_q = (double)(arch->n_heads * arch->head_dim),
           width_kv = (double)(arch->n_kv_heads * arch->head_dim);
    *cost = (sp_cost){.rates = *rates, .head_weights = weights_of(&model->head)};
    for (size_t l = 0; l < arch->n_layers; l++) {
        const sp_layer *layer = &model->layers[l];
        cost->narrow_weights = weights_of(&layer->o) + ffn_weights(layer); /* the last one's stays */
        cost->layer_weights +=
            cost->narrow_weights + weights_of(&layer->q) + weights_of(&layer->k) + weights_of(&layer->v);
    }
    cost->key_flops = 4.0 * width_q * n_layers;
    cost->vector_bytes =
        4.0 * n_layers * (2.0 * (double)arch->d_model + 2.0 * (double)arch->d_ffn + width_q + 2.0 * width_kv);
    cost->logit_bytes = 4.0 * (double)arch->n_vocab;
    cost->n_calls = CALLS_LAYER * n_layers;
    for (size_t i = 0; i < SP_COST_BUCKETS; i++) cost->scale[i] = 1;
}

size_t sp_cost_bucket(size_t n_tokens) {
    size_t bucket = 0;
    while (bucket + 1 < SP_COST_BUCKETS && n_tokens >= (size_t)2 << bucket) bucket++;
    return bucket;
}

double sp_cost_plain_seconds(const sp_cost *cost, const sp_pass_load *load) {
    const sp_rates *r = &cost->rates;
    double n_tokens = (double)load->n_tokens, n_logits = (double)load->n_logits;
    double weight_s = sp_rates_weight_seconds(r, n_tokens, load->panel_share), seconds = cost->n_calls * r->call_s;
    seconds += (cost->layer_weights - cost->narrow_weights) * weight_s;
    if (n_logits > 0)
        seconds += cost->narrow_weights *
                       sp_rates_weight_seconds(r, n_logits < n_tokens ? n_logits : n_tokens, load->panel_share) +
                   cost->head_weights * sp_rates_weight_seconds(r, n_logits, load->panel_share) +
                   n_logits * cost->logit_bytes / r->vector_bps;
    seconds += cost->key_flops * (load->decode_keys / r->decode_flops + load->prefill_keys / r->prefill_flops);
    return seconds + n_tokens * cost->vector_bytes / r->vector_bps;
}

double sp_cost_compute_seconds(const sp_cost *cost, const sp_pass_load *load) {
    return sp_cost_plain_seconds(cost, load) * cost->scale[sp_cost_bucket(load->n_tokens)];
}

double sp_cost_pass_seconds(const sp_cost *cost, const sp_pass_load *load, double read_seconds) {
    double compute_s = sp_cost_compute_seconds(cost, load);
    return read_seconds > compute_s ? read_seconds + unhidden * compute_s : compute_s + unhidden * read_seconds;
}

/* What went on beside the products: what was read, but for what they waited for. */
double sp_cost_alone_seconds(double pass_s, double wait_s, double read_s) {
    double busy_s = pass_s - wait_s, beside_s = fmin(fmax(read_s - wait_s, 0), busy_s);
    return fmax(busy_s - unhidden * beside_s, 1e-9);
}

double sp_cost_read_seconds(double pass_s, double wait_s) {
    double busy_s = pass_s - wait_s; /* the products' own time and as much again as UNHIDDEN says */
    return pass_s - busy_s * unhidden / (1 + unhidden);
}

/* ---- corrections ---- */

void sp_cost_see(sp_cost_seen *seen, const sp_cost *cost, const sp_pass_load *load, double actual_s) {
    size_t b = sp_cost_bucket(load->n_tokens);
    if (seen->n_passes[b] >= fade_passes) {
        double keep = (fade_passes - 1) / seen->n_passes[b];
        seen->n_passes[b] *= keep, seen->plain_s[b] *= keep, seen->actual_s[b] *= keep;
    }
    seen->n_passes[b]++;
    seen->plain_s[b] += sp_cost_plain_seconds(cost, load);
    seen->actual_s[b] += actual_s;
}

double sp_cost_trust(const sp_cost_seen *seen, size_t n_tokens) {
    double n = seen->n_passes[sp_cost_bucket(n_tokens)];
    return n / (n + known_passes);
}

/* Logarithms, so that half and double weigh alike. What holds for all of them goes by passes, not by their length: the
 * first few, which are prompts, say less of the others than the rates do. */
void sp_cost_correct(sp_cost *cost, const sp_cost_seen *seen) {
    double own[SP_COST_BUCKETS] = {0}, all = 0, n_all = known_passes;
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) {
        if (seen->plain_s[b] <= 0 || seen->actual_s[b] <= 0) continue;
        own[b] = log(seen->actual_s[b] / seen->plain_s[b]);
        all += seen->n_passes[b] * own[b];
        n_all += seen->n_passes[b];
    }
    all /= n_all;
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) {
        double trust = sp_cost_trust(seen, (size_t)1 << b);
        cost->scale[b] = exp(trust * own[b] + (1 - trust) * all);
    }
}

bool sp_cost_is_seen(const sp_cost_seen *seen) {
    double n = 0;
    for (size_t b = 0; b < SP_COST_BUCKETS; b++) n += seen->n_passes[b];
    return n >= enough_passes;
}
