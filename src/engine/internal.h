/* What the files of src/engine share: the engine's inside and the state of one pass. Shape letters as in
 * docs/DESIGN.md; T tokens of the pass, N of them with logits wanted. */
#ifndef SPILL_ENGINE_INTERNAL_H
#define SPILL_ENGINE_INTERNAL_H

#include "engine/content.h"
#include "engine/engine.h"
#include "engine/kv.h"
#include "engine/params.h"
#include "engine/stream.h"
#include "kernels/ops.h"
#include "util/arena.h"

/* What the last pass took, to judge the next one by. All 0: there was none. */
typedef struct {
    size_t n_tokens;
    double seconds, spared_compute_s; /* of them not waiting for weights, with all threads but one */
} sp_last_pass;

/* A row in flight. */
typedef struct {
    bool open;
    size_t n_tokens;     /* in the cache */
    size_t n_prompt;     /* tokens of its prompt */
    size_t n_tokens_max; /* bound */
    size_t n_length;     /* tokens of the row when its next logits are due: decides rotary frequencies */
    size_t rope_length;  /* rope_length() of the cache's content */
    uint32_t *pages;     /* [n_pages_max] */
    size_t n_pages, n_pages_max;
} sp_seq;

/* Buffers of one pass, for at most plan->pass_tokens tokens. All fp32 but the packed ones; widths are leading
 * dimensions. */
typedef struct {
    float *x;                                   /* [T, D] residual stream */
    float *q;                                   /* [T, H*E] */
    float *k, *v;                               /* [T, K*E] */
    float *attn;                                /* [T, H*E] */
    float *gate, *up;                           /* [T, ffn_block] */
    void *packed_d;                             /* [T, D] packed: input of q, k, v, gate, up and the head */
    void *packed_wide;                          /* [T, max(H*E, F)] packed: input of o and down */
    float *logits;                              /* [N, V] */
    size_t ld_d, ld_q, ld_kv, ld_ffn, ld_vocab; /* leading dimensions, multiples of 16 elements */
    float **rope_cos, **rope_sin;               /* [n_ropes] of [T, n_dims/2] */
    float *inv_freq;                            /* scratch, one set of frequencies */
} sp_acts;

/* The pass at hand. */
typedef struct {
    size_t n_tokens;   /* T */
    size_t n_logits;   /* N */
    int32_t *tokens;   /* [T] */
    const void **rows; /* [T] embedding rows */
    sp_kv_span *spans; /* [n_spans] all tokens */
    size_t n_spans;
    sp_kv_span *last_spans; /* [N] the tokens whose logits are wanted */
    size_t *row_of_span;    /* [n_spans] row in logits, SIZE_MAX: none */
} sp_pass;

struct sp_engine {
    const sp_model *model;
    const sp_plan *plan;
    sp_last_pass last;
    sp_device *device;
    sp_arena arena;
    sp_params params;
    sp_stream *stream;
    sp_content *content;
    sp_kv *kv;
    sp_seq *seqs; /* [plan->rows] */
    sp_acts acts;
    sp_pass pass;
    void *memory; /* of acts */
    size_t memory_bytes;
};

/* One transformer layer over the pass's tokens (engine/block.c): x <- x + attention(norm(x)), then x + ffn(norm(x)).
 * The last layer leaves only the N rows whose logits are wanted, in x[0..N). */
bool sp_block_forward(sp_engine *engine, size_t i_layer, sp_error *err) SP_MUST_CHECK;

/* logits [N, V] <- head(final_norm(x[0..N))). */
bool sp_head_forward(sp_engine *engine, sp_error *err) SP_MUST_CHECK;

#endif
