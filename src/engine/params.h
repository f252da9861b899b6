/* Small tensors of a model as fp32: norm weights and biases. Read once at open, kept for good. */
#ifndef SPILL_ENGINE_PARAMS_H
#define SPILL_ENGINE_PARAMS_H

#include "engine/content.h"
#include "model/model.h"
#include "util/arena.h"
#include "util/error.h"

typedef struct {
    const float *attn_norm, *ffn_norm; /* [D] */
    const float *q_norm, *k_norm;      /* [E] or NULL */
    const float *q_bias;               /* [H*E], rows in the order of the matrix's, or NULL */
    const float *k_bias, *v_bias;      /* [K*E] or NULL */
    const float *o_bias;               /* [D] or NULL */
    const float *gate_bias, *up_bias;  /* [F] or NULL */
    const float *down_bias;            /* [D] or NULL */
} sp_layer_params;

typedef struct {
    const sp_layer_params *layers; /* [L] */
    const float *final_norm;       /* [D] */
} sp_params;

/* Fills *params with memory of the arena; what is read is added to the content hash. */
bool sp_params_read(const sp_model *model, sp_arena *arena, sp_content *content, sp_params *params,
                    sp_error *err) SP_MUST_CHECK;

#endif
