/* Phi-3, 3.5 and 4: Llama's block with q, k, v in one tensor and gate, up in another, partial rotation, longrope, a
 * sliding window on every layer if there is one. */
#include "model/family.h"

enum { WINDOW_MAX = 1 << 30, ORIGINAL_POSITIONS_DEFAULT = 4096 };

static bool fill(const sp_config *config, sp_draft *draft, sp_error *err) {
    size_t window = 0;
    if (!sp_config_size_if(config, "sliding_window", 1, WINDOW_MAX, &window, err)) return false;
    sp_draft_set_window(draft, window, 0);
    return true;
}

const sp_family sp_family_phi3 = {
    .name = "phi3",
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .gguf_arch = "phi3",
    .config_rules = sp_rules_fused,
    .gguf_rules = sp_rules_gguf_fused,
    .rope = {.partial = true, .legacy_longrope = true, .original_positions = ORIGINAL_POSITIONS_DEFAULT},
    .fill = fill,
};
