/* Finding a model's family, and filling an architecture from the keys that all families share. */
#include "model/family.h"

#include <math.h>
#include <string.h>

#include "util/buf.h"
#include "util/size.h"

/* Bounds on what a config may say: an order of magnitude past any model, small enough that products of two fit. */
enum {
    LAYERS_MAX = 4096,
    WIDTH_MAX = 1 << 20, /* d_model, H*E */
    HEADS_MAX = 1 << 14,
    HEAD_DIM_MAX = 1 << 14,
    FFN_MAX = 1 << 22,
    VOCAB_MAX = 1 << 24,
    POSITIONS_MAX = 1 << 30,
};
static const double eps_min = 1e-20, eps_max = 1; /* 0 divides by zero on a row of zeros */

static const sp_family *const families[] = {
#define SP_FAMILY(name) &sp_family_##name,
#include "model/families.def"
#undef SP_FAMILY
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

/* Keys that mean a kind of model which is not this program's, whatever their value (but false, 0, null and {}). */
static const struct {
    const char *key, *what_is;
} refused_keys[] = {
    {"quantization_config", "quantized checkpoints; use the original, or a GGUF file"},
    {"quantization", "quantized checkpoints; use the original, or a GGUF file"},
    {"compression_config", "quantized checkpoints; use the original, or a GGUF file"},
    {"vision_config", "vision models"},
    {"audio_config", "audio models"},
    {"text_config", "models of several parts"},
    {"is_encoder_decoder", "encoder-decoder models"},
    {"num_experts", "mixture of experts"},
    {"num_local_experts", "mixture of experts"},
    {"n_routed_experts", "mixture of experts"},
};
enum { N_REFUSED_KEYS = sizeof refused_keys / sizeof refused_keys[0] };

static bool is_nothing(const json_t *value) {
    return !value || json_is_false(value) || (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static const sp_family *fail_unknown(const char *file, const char *key, const char *found, sp_error *err) {
    char shown[64];
    sp_buf known = {0};
    for (size_t i = 0; i < N_FAMILIES; i++) sp_buf_printf(&known, " %s", families[i]->name);
    sp_fail(err, SP_ERR_SUPPORT, "%s: %s '%s' is not supported; supported:%s", file, key,
            sp_printable(found, strlen(found), shown, sizeof shown), known.data ? known.data : "");
    sp_buf_deinit(&known);
    return NULL;
}

const sp_family *sp_family_from_config(const sp_config *config, sp_error *err) {
    const char *type = NULL;
    for (size_t i = 0; i < N_REFUSED_KEYS; i++)
        if (!is_nothing(sp_config_get(config, refused_keys[i].key))) {
            sp_config_unsupported(config, refused_keys[i].key, refused_keys[i].what_is, err);
            return NULL;
        }
    if (!sp_config_text_if(config, "model_type", &type, err)) return NULL;
    if (!type) {
        sp_config_fail(config, "model_type", "the name of an architecture", err);
        return NULL;
    }
    const sp_family *family = NULL;
    for (size_t i = 0; i < N_FAMILIES && !family; i++)
        if (strcmp(families[i]->model_type, type) == 0) family = families[i];
    if (!family) return fail_unknown(config->file, "model_type", type, err);
    const json_t *names = sp_config_get(config, "architectures");
    if (!names) return family;
    const char *name = json_string_value(json_array_get(names, 0));
    if (!name || json_array_size(names) != 1) {
        sp_config_fail(config, "architectures", "a list of one name", err);
        return NULL;
    }
    return strcmp(name, family->architecture) == 0 ? family : fail_unknown(config->file, "architecture", name, err);
}

const sp_family *sp_family_from_gguf(const char *path, const char *architecture, sp_error *err) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (families[i]->gguf_arch && strcmp(families[i]->gguf_arch, architecture) == 0) return families[i];
    return fail_unknown(path, "general.architecture", architecture, err);
}

void sp_draft_set_window(sp_draft *draft, size_t window, size_t i_first) {
    sp_layer_arch *layers = (sp_layer_arch *)draft->arch->layers;
    for (size_t l = i_first; window && l < draft->arch->n_layers; l++) layers[l].window = window;
}

/* One name a layer: which of them slide. */
static bool fill_layer_types(const sp_config *config, sp_draft *draft, size_t window, sp_error *err) {
    const json_t *types = sp_config_get(config, "layer_types");
    sp_layer_arch *layers = (sp_layer_arch *)draft->arch->layers;
    if (!json_is_array(types) || json_array_size(types) != draft->arch->n_layers)
        return sp_config_fail(config, "layer_types", "a list with one name a layer", err);
    for (size_t l = 0; l < draft->arch->n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        bool slides = type && strcmp(type, "sliding_attention") == 0;
        if (!slides && (!type || strcmp(type, "full_attention") != 0))
            return sp_config_unsupported(config, "layer_types", "known: full_attention, sliding_attention", err);
        if (slides && !window) return sp_config_fail(config, "layer_types", "no sliding layer without a window", err);
        layers[l].window = slides ? window : 0;
    }
    return true;
}

bool sp_draft_fill_qwen_windows(const sp_config *config, sp_draft *draft, sp_error *err) {
    enum { WINDOW_DEFAULT = 4096, FIRST_DEFAULT = 28 };
    bool slides = false;
    size_t window = json_object_get(config->object, "sliding_window") ? 0 : WINDOW_DEFAULT;
    size_t i_first = FIRST_DEFAULT;
    if (!sp_config_bool_if(config, "use_sliding_window", &slides, err) ||
        !sp_config_size_if(config, "sliding_window", 1, POSITIONS_MAX, &window, err) ||
        !sp_config_size_if(config, "max_window_layers", 0, POSITIONS_MAX, &i_first, err))
        return false;
    if (!slides) window = 0;
    if (sp_config_get(config, "layer_types")) return fill_layer_types(config, draft, window, err);
    sp_draft_set_window(draft, window, i_first);
    return true;
}

/* What follows from the dimensions: one kind of RoPE for all layers, scales, the layers' array. */
static bool finish(const sp_family *family, const sp_rope_params *params, sp_draft *draft, sp_error *err) {
    sp_arch *arch = draft->arch;
    arch->family = family->name;
    arch->embed_scale = 1;
    arch->attn_scale = 1 / sqrtf((float)arch->head_dim);
    arch->n_positions = sp_rope_n_positions(params);
    sp_rope *rope = SP_ARENA_NEW(draft->arena, sp_rope);
    sp_rope_build(params, draft->arena, rope);
    for (size_t j = 0; j < rope->n_dims / 2; j++)
        if (!isfinite(rope->inv_freq[j]) || (rope->inv_freq_long && !isfinite(rope->inv_freq_long[j])))
            return sp_fail(err, SP_ERR_INPUT, "RoPE frequency %zu is not finite, want other rope_theta or factors", j);
    arch->ropes = rope;
    arch->n_ropes = 1;
    draft->needs[SP_NEED_ALWAYS] = true;
    draft->needs[SP_NEED_HEAD] = !arch->tied_head;
    return true;
}

/* The checks that hold for both sources once the numbers are read. */
static bool check_dims(const sp_config *c, sp_draft *draft, const char *kv_key, const char *head_dim_key,
                       sp_error *err) {
    sp_arch *a = draft->arch;
    if (a->n_heads % a->n_kv_heads) return sp_config_fail(c, kv_key, "a divisor of the number of heads", err);
    if (a->head_dim == 0 || a->head_dim % 2 || a->head_dim > HEAD_DIM_MAX)
        return sp_fail(err, SP_ERR_INPUT, "%s: %s%s: heads of %zu dims, want an even number up to %d", c->file,
                       c->inside, head_dim_key, a->head_dim, HEAD_DIM_MAX);
    if (a->n_heads * a->head_dim > WIDTH_MAX)
        return sp_fail(err, SP_ERR_INPUT, "%s: %zu heads of %zu dims, want at most %d in all", c->file, a->n_heads,
                       a->head_dim, WIDTH_MAX);
    a->layers = SP_ARENA_ARRAY(draft->arena, sp_layer_arch, a->n_layers);
    return true;
}

static bool fill_head_dim(const sp_config *c, const sp_family *family, sp_arch *a, sp_error *err) {
    a->head_dim = family->head_dim;
    if (!sp_config_size_if(c, "head_dim", 1, HEAD_DIM_MAX, &a->head_dim, err)) return false;
    if (a->head_dim) return true;
    if (a->d_model % a->n_heads) return sp_config_fail(c, "num_attention_heads", "a divisor of hidden_size", err);
    a->head_dim = a->d_model / a->n_heads;
    return true;
}

static bool fill_act(const sp_config *c, sp_arch *a, sp_error *err) {
    static const sp_config_choice acts[] = {
        {"silu", SP_ACT_SILU}, {"swish", SP_ACT_SILU}, {"gelu_pytorch_tanh", SP_ACT_GELU_TANH}};
    int act = SP_ACT_SILU;
    if (!sp_config_choice_if(c, "hidden_act", acts, sizeof acts / sizeof acts[0], &act, err)) return false;
    a->act = (sp_act)act;
    return true;
}

bool sp_family_fill(const sp_family *family, const sp_config *c, sp_draft *draft, sp_error *err) {
    sp_arch *a = draft->arch;
    double eps = 0;
    sp_rope_params params;
    if (!sp_config_size(c, "vocab_size", 1, VOCAB_MAX, &a->n_vocab, err) ||
        !sp_config_size(c, "hidden_size", 1, WIDTH_MAX, &a->d_model, err) ||
        !sp_config_size(c, "intermediate_size", 1, FFN_MAX, &a->d_ffn, err) ||
        !sp_config_size(c, "num_hidden_layers", 1, LAYERS_MAX, &a->n_layers, err) ||
        !sp_config_size(c, "num_attention_heads", 1, HEADS_MAX, &a->n_heads, err) ||
        !sp_config_size(c, "max_position_embeddings", 1, POSITIONS_MAX, &a->n_positions, err) ||
        !sp_config_real(c, "rms_norm_eps", eps_min, eps_max, &eps, err))
        return false;
    a->norm_eps = (float)eps;
    bool is_absent = !json_object_get(c->object, "num_key_value_heads"); /* null is n_heads in every family */
    a->n_kv_heads = is_absent && family->n_kv_heads ? family->n_kv_heads : a->n_heads;
    return sp_config_size_if(c, "num_key_value_heads", 1, HEADS_MAX, &a->n_kv_heads, err) &&
           sp_config_bool_if(c, "tie_word_embeddings", &a->tied_head, err) && fill_act(c, a, err) &&
           fill_head_dim(c, family, a, err) && check_dims(c, draft, "num_key_value_heads", "head_dim", err) &&
           sp_rope_params_from_config(c, a->head_dim, a->n_positions, &family->rope, draft->arena, &params, err) &&
           finish(family, &params, draft, err) && (!family->fill || family->fill(c, draft, err));
}

/* A vector of n_elems fp32 numbers of a GGUF file, positive and finite; *out NULL when there is no such tensor. */
static bool read_factors(sp_draft *draft, const char *name, size_t n_elems, const float **out, sp_error *err) {
    const sp_tensor *t = sp_tensor_set_find(draft->tensors, name);
    *out = NULL;
    if (!t) return true;
    if (t->n_dims != 1 || t->dims[0] != n_elems || t->format->id != SP_FMT_F32) {
        char shown[100];
        return sp_fail(err, SP_ERR_INPUT, "%s: tensor '%s' has shape %s of %s, want [%zu] of F32", draft->file->path,
                       name, sp_tensor_shape_text(t->dims, t->n_dims, shown, sizeof shown), t->type_name, n_elems);
    }
    float *factors = SP_ARENA_ARRAY(draft->arena, float, n_elems);
    if (!sp_file_read_at(draft->file, t->offset_bytes, factors, n_elems * sizeof *factors, err)) return false;
    for (size_t i = 0; i < n_elems; i++)
        if (!(factors[i] > 0 && isfinite(factors[i])))
            return sp_fail(err, SP_ERR_INPUT, "%s: tensor '%s': element %zu is %g, want a positive number",
                           draft->file->path, name, i, (double)factors[i]);
    *out = factors;
    return true;
}

/* GGUF keeps the frequencies of llama3 and longrope scaling as tensors. */
static bool apply_factor_tensors(sp_draft *draft, sp_rope_params *p, sp_error *err) {
    size_t n = sp_div_up(p->n_exponent_dims, 2);
    const float *divisors = NULL, *longs = NULL, *shorts = NULL;
    if (!read_factors(draft, "rope_freqs.weight", n, &divisors, err) ||
        !read_factors(draft, "rope_factors_long.weight", n, &longs, err) ||
        !read_factors(draft, "rope_factors_short.weight", n, &shorts, err))
        return false;
    if (!divisors && !longs && !shorts) return true;
    bool one_kind = divisors ? !longs && !shorts : longs && shorts;
    if (!one_kind || p->type != SP_ROPE_DEFAULT)
        return sp_fail(err, SP_ERR_INPUT,
                       "%s: want one RoPE scaling: rope_freqs, or both of rope_factors_long and _short, or keys",
                       draft->file->path);
    p->type = divisors ? SP_ROPE_DIVISORS : SP_ROPE_LONGROPE;
    p->short_factors = divisors ? divisors : shorts;
    p->long_factors = longs;
    p->factor = (double)p->n_positions / (double)p->original_positions;
    return true;
}

/* Biases are told by their being there: the first layer's decide for all. */
static void find_biases(sp_draft *draft) {
    draft->needs[SP_NEED_QKV_BIAS] = sp_tensor_set_find(draft->tensors, "blk.0.attn_q.bias") != NULL;
    draft->needs[SP_NEED_O_BIAS] = sp_tensor_set_find(draft->tensors, "blk.0.attn_output.bias") != NULL;
    draft->needs[SP_NEED_FFN_BIAS] = sp_tensor_set_find(draft->tensors, "blk.0.ffn_gate.bias") != NULL;
}

/* The embedding's rows are the vocabulary; a key, if there is one, must agree. */
static bool fill_gguf_vocab(const sp_config *c, sp_draft *draft, sp_error *err) {
    const sp_tensor *embed = sp_tensor_set_find(draft->tensors, "token_embd.weight");
    if (!embed) return sp_fail(err, SP_ERR_INPUT, "%s: tensor 'token_embd.weight' is missing", c->file);
    size_t n_vocab = embed->dims[0];
    if (embed->n_dims != 2 || n_vocab > VOCAB_MAX)
        return sp_fail(err, SP_ERR_INPUT, "%s: tensor 'token_embd.weight' has %u dimensions and %zu rows", c->file,
                       embed->n_dims, n_vocab);
    draft->arch->n_vocab = n_vocab;
    return sp_config_size_if(c, "vocab_size", n_vocab, n_vocab, &n_vocab, err);
}

bool sp_family_fill_gguf(const sp_family *family, const sp_config *c, sp_draft *draft, sp_error *err) {
    sp_arch *a = draft->arch;
    double eps = 0;
    size_t value_dim = 0, window = 0;
    sp_rope_params params;
    if (!is_nothing(sp_config_get(c, "expert_count")))
        return sp_config_unsupported(c, "expert_count", "mixture of experts", err);
    if (!fill_gguf_vocab(c, draft, err) || !sp_config_size(c, "embedding_length", 1, WIDTH_MAX, &a->d_model, err) ||
        !sp_config_size(c, "feed_forward_length", 1, FFN_MAX, &a->d_ffn, err) ||
        !sp_config_size(c, "block_count", 1, LAYERS_MAX, &a->n_layers, err) ||
        !sp_config_size(c, "attention.head_count", 1, HEADS_MAX, &a->n_heads, err) ||
        !sp_config_size(c, "context_length", 1, POSITIONS_MAX, &a->n_positions, err) ||
        !sp_config_real(c, "attention.layer_norm_rms_epsilon", eps_min, eps_max, &eps, err))
        return false;
    a->norm_eps = (float)eps;
    a->n_kv_heads = a->n_heads;
    a->head_dim = a->d_model / a->n_heads;
    a->tied_head = !sp_tensor_set_find(draft->tensors, "output.weight");
    if (!sp_config_size_if(c, "attention.head_count_kv", 1, HEADS_MAX, &a->n_kv_heads, err) ||
        !sp_config_size_if(c, "attention.key_length", 1, HEAD_DIM_MAX, &a->head_dim, err) ||
        !sp_config_size_if(c, "attention.value_length", a->head_dim, a->head_dim, &value_dim, err) ||
        !sp_config_size_if(c, "attention.sliding_window", 0, POSITIONS_MAX, &window, err) ||
        !check_dims(c, draft, "attention.head_count_kv", "attention.key_length", err) ||
        !sp_rope_params_from_gguf(c, a->head_dim, a->n_positions, &family->rope, &params, err) ||
        !apply_factor_tensors(draft, &params, err) || !finish(family, &params, draft, err))
        return false;
    sp_draft_set_window(draft, window, 0);
    find_biases(draft);
    return !family->fill_gguf || family->fill_gguf(c, draft, err);
}
