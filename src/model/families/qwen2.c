/* Qwen2 and 2.5: Llama's block with biases on q, k and v but not on o, whatever the config says, and sliding windows
 * that are off unless use_sliding_window. */
#include "model/family.h"

enum { N_KV_HEADS_DEFAULT = 32 };

static bool fill_biases(const sp_config *config, sp_draft *draft, sp_error *err) {
    (void)config, (void)err;
    draft->needs[SP_NEED_QKV_BIAS] = true;
    return true;
}

static bool fill(const sp_config *config, sp_draft *draft, sp_error *err) {
    return fill_biases(config, draft, err) && sp_draft_fill_qwen_windows(config, draft, err);
}

const sp_family sp_family_qwen2 = {
    .name = "qwen2",
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .gguf_arch = "qwen2",
    .n_kv_heads = N_KV_HEADS_DEFAULT,
    .config_rules = sp_rules_plain,
    .gguf_rules = sp_rules_gguf_plain,
    .fill = fill,
    .fill_gguf = fill_biases,
};
