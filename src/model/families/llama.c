/* Llama 2 and 3, and models of their shape (SmolLM2): RMS norms before attention and feed-forward, SwiGLU, grouped
 * heads. Biases come with config keys; GGUF files of Mistral are of this architecture too, with their window. */
#include "model/family.h"

static bool fill(const sp_config *config, sp_draft *draft, sp_error *err) {
    bool attention = false, ffn = false;
    if (!sp_config_bool_if(config, "attention_bias", &attention, err) ||
        !sp_config_bool_if(config, "mlp_bias", &ffn, err))
        return false;
    draft->needs[SP_NEED_QKV_BIAS] = draft->needs[SP_NEED_O_BIAS] = attention;
    draft->needs[SP_NEED_FFN_BIAS] = ffn;
    return true;
}

const sp_family sp_family_llama = {
    .name = "llama",
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .gguf_arch = "llama",
    .gguf_interleaved = true,
    .config_rules = sp_rules_plain,
    .gguf_rules = sp_rules_gguf_plain,
    .fill = fill,
};
