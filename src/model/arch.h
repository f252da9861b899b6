/* The architecture description: everything the engine must know about a model apart from its weights. A family file
 * fills it from a config (config.json or GGUF metadata); the engine reads nothing else, so a new family is a new way to
 * fill this struct.
 *
 * Families to come have their place here. What no family sets yet is one of two kinds: [tested], the engine does it,
 * as a made-up architecture shows (tests/unit/engine_arch_test.c); [refused], sp_engine_open fails with SP_ERR_SUPPORT
 * and its name, before a weight is read.
 *
 * Sources of the facts: docs/families.md. Plain data, immutable after sp_model_open, shared by threads. */
#ifndef SPILL_MODEL_ARCH_H
#define SPILL_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"

/* Rotary embedding of one kind of layer. Frequencies are final: scaling of every type is already in them, except that
 * two types depend on how long the row is. model/rope.h says how (sp_rope_inv_freq). */
typedef struct {
    size_t n_dims;     /* rotating dims of a head, even; 0: no rotation */
    float *inv_freq;   /* [n_dims/2] for rows of at most switch_pos positions in all, or for all when switch_pos is 0 */
    float scale;       /* attention factor, multiplies cos and sin */
    size_t switch_pos; /* longrope: rows longer than this use the _long set, for all their positions; 0: never */
    float *inv_freq_long; /* [n_dims/2] or NULL */
    float scale_long;
    bool dynamic;            /* NTK-by-length: frequencies follow the row's length past dynamic_base_pos */
    double theta, factor;    /* for dynamic */
    size_t n_exponent_dims;  /* for dynamic: the divisor of exponents, int(E * partial_rotary_factor) */
    size_t dynamic_base_pos; /* max_position_embeddings */
} sp_rope;

typedef enum { SP_FFN_GLU, SP_FFN_MOE /* [refused] */ } sp_ffn_kind;

typedef struct {
    size_t window;   /* sliding window, 0: full attention */
    uint32_t i_rope; /* index into sp_arch.ropes */
    sp_ffn_kind ffn;
    bool attn_cap_on; /* [tested] scores of this layer are capped by attn_cap */
} sp_layer_arch;

typedef struct {
    const char *family;                   /* name of the row of families.def */
    size_t n_layers;                      /* L */
    size_t d_model;                       /* D */
    size_t n_heads, n_kv_heads, head_dim; /* H, K, E */
    size_t d_ffn;                         /* F */
    size_t n_vocab;                       /* V: rows of embedding and head, the tokenizer may know fewer */
    size_t n_positions; /* positions a row may have: max_position_embeddings, or what scaling makes of it */
    float norm_eps;
    bool norm_plus_one; /* [tested] Gemma: times (1 + w) */
    bool post_norms;    /* [refused] Gemma 2: norms after attention and feed-forward too */
    sp_act act;
    float embed_scale;         /* 1; [tested] sqrt(D) for Gemma */
    float attn_scale;          /* E^-0.5 unless the family says otherwise */
    float attn_cap, logit_cap; /* 0: none; [tested] cap * tanh(x / cap) */
    bool tied_head;
    const sp_layer_arch *layers; /* [L] */
    const sp_rope *ropes;
    size_t n_ropes;
    const int32_t *stop_ids; /* union of the ids declared by config and generation_config; the tokenizer's and
                                template's are added by the job */
    size_t n_stop_ids;
} sp_arch;

#endif
