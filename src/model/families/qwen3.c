/* Qwen3: Llama's block with RMS norms of q and k per head, before RoPE, and a head_dim apart from hidden / heads.
 * attention_bias, off in all released models, includes o. */
#include "model/family.h"

enum { N_KV_HEADS_DEFAULT = 32, HEAD_DIM_DEFAULT = 128 };

static bool fill_norms(const sp_config *config, sp_draft *draft, sp_error *err) {
    (void)config, (void)err;
    draft->needs[SP_NEED_QK_NORM] = true;
    return true;
}

static bool fill(const sp_config *config, sp_draft *draft, sp_error *err) {
    bool attention = false;
    if (!sp_config_bool_if(config, "attention_bias", &attention, err)) return false;
    draft->needs[SP_NEED_QKV_BIAS] = draft->needs[SP_NEED_O_BIAS] = attention;
    return fill_norms(config, draft, err) && sp_draft_fill_qwen_windows(config, draft, err);
}

const sp_family sp_family_qwen3 = {
    .name = "qwen3",
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .gguf_arch = "qwen3",
    .n_kv_heads = N_KV_HEADS_DEFAULT,
    .head_dim = HEAD_DIM_DEFAULT,
    .config_rules = sp_rules_plain,
    .gguf_rules = sp_rules_gguf_plain,
    .fill = fill,
    .fill_gguf = fill_norms,
};
