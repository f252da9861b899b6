/* The tables of tensor names, in Hugging Face's and in GGUF's spelling. */
#include <stddef.h>

#include "model/family.h"

#define TOP(field) .offset = offsetof(sp_model, field)
#define LAYER(field) .offset = offsetof(sp_layer, field)
#define SHAPE(rows, cols) .n_rows = SP_DIM_##rows, .n_cols = SP_DIM_##cols
#define VECTOR(elems) .n_rows = SP_DIM_##elems, .n_cols = SP_DIM_NONE
#define PART(before, total) .first_row = SP_DIM_##before, .total_rows = SP_DIM_##total
#define NEED(when) .need = SP_NEED_##when
#define ROTARY .is_rotary = true

/* What every Hugging Face layout of these families has around attention and feed-forward. */
/* clang-format off */
#define HF_FRAME \
    {"model.embed_tokens.weight", TOP(embed), SHAPE(V, D)}, \
    {"model.norm.weight", TOP(final_norm), VECTOR(D)}, \
    {"lm_head.weight", TOP(head), SHAPE(V, D), NEED(HEAD)}, \
    {"model.layers.#.input_layernorm.weight", LAYER(attn_norm), VECTOR(D)}, \
    {"model.layers.#.post_attention_layernorm.weight", LAYER(ffn_norm), VECTOR(D)}, \
    {"model.layers.#.self_attn.o_proj.weight", LAYER(o), SHAPE(D, Q)}, \
    {"model.layers.#.mlp.down_proj.weight", LAYER(down), SHAPE(D, F)}, \
    {"model.layers.#.self_attn.rotary_emb.inv_freq", NEED(PASS_OVER)}, \
    {"model.rotary_emb.inv_freq", NEED(PASS_OVER)}

/* The same of GGUF's. The three rope tensors were read when the RoPE was built. */
#define GGUF_FRAME \
    {"token_embd.weight", TOP(embed), SHAPE(V, D)}, \
    {"output_norm.weight", TOP(final_norm), VECTOR(D)}, \
    {"output.weight", TOP(head), SHAPE(V, D), NEED(HEAD)}, \
    {"blk.#.attn_norm.weight", LAYER(attn_norm), VECTOR(D)}, \
    {"blk.#.ffn_norm.weight", LAYER(ffn_norm), VECTOR(D)}, \
    {"blk.#.attn_output.weight", LAYER(o), SHAPE(D, Q)}, \
    {"blk.#.ffn_down.weight", LAYER(down), SHAPE(D, F)}, \
    {"rope_freqs.weight", NEED(PASS_OVER)}, \
    {"rope_factors_long.weight", NEED(PASS_OVER)}, \
    {"rope_factors_short.weight", NEED(PASS_OVER)}, \
    {"blk.#.attn_rot_embd.weight", NEED(PASS_OVER)}
/* clang-format on */

const sp_tensor_rule sp_rules_plain[] = {
    HF_FRAME,
    {"model.layers.#.self_attn.q_proj.weight", LAYER(q), SHAPE(Q, D), ROTARY},
    {"model.layers.#.self_attn.k_proj.weight", LAYER(k), SHAPE(KV, D), ROTARY},
    {"model.layers.#.self_attn.v_proj.weight", LAYER(v), SHAPE(KV, D)},
    {"model.layers.#.self_attn.q_proj.bias", LAYER(q_bias), VECTOR(Q), NEED(QKV_BIAS), ROTARY},
    {"model.layers.#.self_attn.k_proj.bias", LAYER(k_bias), VECTOR(KV), NEED(QKV_BIAS), ROTARY},
    {"model.layers.#.self_attn.v_proj.bias", LAYER(v_bias), VECTOR(KV), NEED(QKV_BIAS)},
    {"model.layers.#.self_attn.o_proj.bias", LAYER(o_bias), VECTOR(D), NEED(O_BIAS)},
    {"model.layers.#.self_attn.q_norm.weight", LAYER(q_norm), VECTOR(E), NEED(QK_NORM)},
    {"model.layers.#.self_attn.k_norm.weight", LAYER(k_norm), VECTOR(E), NEED(QK_NORM)},
    {"model.layers.#.mlp.gate_proj.weight", LAYER(gate), SHAPE(F, D)},
    {"model.layers.#.mlp.up_proj.weight", LAYER(up), SHAPE(F, D)},
    {"model.layers.#.mlp.gate_proj.bias", LAYER(gate_bias), VECTOR(F), NEED(FFN_BIAS)},
    {"model.layers.#.mlp.up_proj.bias", LAYER(up_bias), VECTOR(F), NEED(FFN_BIAS)},
    {"model.layers.#.mlp.down_proj.bias", LAYER(down_bias), VECTOR(D), NEED(FFN_BIAS)},
    {.pattern = NULL},
};

const sp_tensor_rule sp_rules_fused[] = {
    HF_FRAME,
    {"model.layers.#.self_attn.qkv_proj.weight", LAYER(q), SHAPE(Q, D), PART(NONE, QKV), ROTARY},
    {"model.layers.#.self_attn.qkv_proj.weight", LAYER(k), SHAPE(KV, D), PART(Q, QKV), ROTARY},
    {"model.layers.#.self_attn.qkv_proj.weight", LAYER(v), SHAPE(KV, D), PART(QK, QKV)},
    {"model.layers.#.mlp.gate_up_proj.weight", LAYER(gate), SHAPE(F, D), PART(NONE, FF)},
    {"model.layers.#.mlp.gate_up_proj.weight", LAYER(up), SHAPE(F, D), PART(F, FF)},
    {.pattern = NULL},
};

/* GGUF says nothing about optional biases but by having them. */
const sp_tensor_rule sp_rules_gguf_plain[] = {
    GGUF_FRAME,
    {"blk.#.attn_q.weight", LAYER(q), SHAPE(Q, D), ROTARY},
    {"blk.#.attn_k.weight", LAYER(k), SHAPE(KV, D), ROTARY},
    {"blk.#.attn_v.weight", LAYER(v), SHAPE(KV, D)},
    {"blk.#.attn_q.bias", LAYER(q_bias), VECTOR(Q), NEED(QKV_BIAS), ROTARY},
    {"blk.#.attn_k.bias", LAYER(k_bias), VECTOR(KV), NEED(QKV_BIAS), ROTARY},
    {"blk.#.attn_v.bias", LAYER(v_bias), VECTOR(KV), NEED(QKV_BIAS)},
    {"blk.#.attn_output.bias", LAYER(o_bias), VECTOR(D), NEED(O_BIAS)},
    {"blk.#.attn_q_norm.weight", LAYER(q_norm), VECTOR(E), NEED(QK_NORM)},
    {"blk.#.attn_k_norm.weight", LAYER(k_norm), VECTOR(E), NEED(QK_NORM)},
    {"blk.#.ffn_gate.weight", LAYER(gate), SHAPE(F, D)},
    {"blk.#.ffn_up.weight", LAYER(up), SHAPE(F, D)},
    {"blk.#.ffn_gate.bias", LAYER(gate_bias), VECTOR(F), NEED(FFN_BIAS)},
    {"blk.#.ffn_up.bias", LAYER(up_bias), VECTOR(F), NEED(FFN_BIAS)},
    {"blk.#.ffn_down.bias", LAYER(down_bias), VECTOR(D), NEED(FFN_BIAS)},
    {.pattern = NULL},
};

const sp_tensor_rule sp_rules_gguf_fused[] = {
    GGUF_FRAME,
    {"blk.#.attn_qkv.weight", LAYER(q), SHAPE(Q, D), PART(NONE, QKV), ROTARY},
    {"blk.#.attn_qkv.weight", LAYER(k), SHAPE(KV, D), PART(Q, QKV), ROTARY},
    {"blk.#.attn_qkv.weight", LAYER(v), SHAPE(KV, D), PART(QK, QKV)},
    {"blk.#.ffn_up.weight", LAYER(gate), SHAPE(F, D), PART(NONE, FF)},
    {"blk.#.ffn_up.weight", LAYER(up), SHAPE(F, D), PART(F, FF)},
    {.pattern = NULL},
};
