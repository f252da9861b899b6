/* Mistral: Llama's block without biases, with a sliding window on every layer unless it is null. */
#include "model/family.h"

enum { WINDOW_DEFAULT = 4096, N_KV_HEADS_DEFAULT = 8, WINDOW_MAX = 1 << 30 };

static bool fill(const sp_config *config, sp_draft *draft, sp_error *err) {
    bool is_absent = !json_object_get(config->object, "sliding_window"); /* null is none, absent is the default */
    size_t window = is_absent ? WINDOW_DEFAULT : 0;
    if (!sp_config_size_if(config, "sliding_window", 1, WINDOW_MAX, &window, err)) return false;
    if (sp_config_get(config, "layer_types"))
        return sp_config_unsupported(config, "layer_types", "this family has one kind of layer", err);
    sp_draft_set_window(draft, window, 0);
    return true;
}

const sp_family sp_family_mistral = {
    .name = "mistral",
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .n_kv_heads = N_KV_HEADS_DEFAULT,
    .config_rules = sp_rules_plain,
    .fill = fill,
};
