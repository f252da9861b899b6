/* RoPE parameters from config.json and from GGUF metadata: which keys each scaling type has. */
#include <string.h>

#include "model/realmath.h"
#include "model/rope.h"
#include "util/size.h"

/* Bounds of what configs say; past them arithmetic in fp32 has no meaning. */
static const double theta_min = 1.5, theta_max = 1e15, factor_min = 1e-3, factor_max = 1e6;
static const double theta_default = 10000; /* of every family built here */
enum { ORIGINAL_MIN = 2, ORIGINAL_MAX = 1 << 30, DYNAMIC_MIN_DIMS = 4 };

typedef bool read_fn(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err);

static bool read_none(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    (void)c, (void)p, (void)arena, (void)err;
    return true;
}

static bool read_factor(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    (void)arena;
    return sp_config_real(c, "factor", factor_min, factor_max, &p->factor, err);
}

static bool read_dynamic(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    if (p->n_exponent_dims < DYNAMIC_MIN_DIMS)
        return sp_fail(err, SP_ERR_SUPPORT, "%s: dynamic RoPE over %zu dims, want at least %d", c->file,
                       p->n_exponent_dims, DYNAMIC_MIN_DIMS);
    return read_factor(c, p, arena, err);
}

static bool read_llama3(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    if (!read_factor(c, p, arena, err) ||
        !sp_config_real(c, "low_freq_factor", factor_min, factor_max, &p->low_freq_factor, err) ||
        !sp_config_real(c, "high_freq_factor", factor_min, factor_max, &p->high_freq_factor, err))
        return false;
    return p->high_freq_factor > p->low_freq_factor ||
           sp_config_fail(c, "high_freq_factor", "more than low_freq_factor", err);
}

static bool read_yarn(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    p->beta_fast = 32; /* the paper's, and the reference's */
    p->beta_slow = 1;
    p->truncate = true;
    if (!read_factor(c, p, arena, err) ||
        !sp_config_real_if(c, "attention_factor", 0, factor_max, &p->attention_factor, err) ||
        !sp_config_real_if(c, "beta_fast", factor_min, factor_max, &p->beta_fast, err) ||
        !sp_config_real_if(c, "beta_slow", factor_min, factor_max, &p->beta_slow, err) ||
        !sp_config_real_if(c, "mscale", 0, factor_max, &p->mscale, err) ||
        !sp_config_real_if(c, "mscale_all_dim", 0, factor_max, &p->mscale_all_dim, err) ||
        !sp_config_bool_if(c, "truncate", &p->truncate, err))
        return false;
    return p->beta_fast >= p->beta_slow || sp_config_fail(c, "beta_fast", "at least beta_slow", err);
}

static bool read_longrope(const sp_config *c, sp_rope_params *p, sp_arena *arena, sp_error *err) {
    size_t n = sp_div_up(p->n_exponent_dims, 2);
    float *short_factors = SP_ARENA_ARRAY(arena, float, n), *long_factors = SP_ARENA_ARRAY(arena, float, n);
    p->short_factors = short_factors;
    p->long_factors = long_factors;
    p->factor = (double)p->n_positions / (double)p->original_positions;
    return sp_config_real_if(c, "factor", factor_min, factor_max, &p->factor, err) &&
           sp_config_real_if(c, "attention_factor", 0, factor_max, &p->attention_factor, err) &&
           sp_config_reals(c, "short_factor", factor_min, factor_max, n, short_factors, err) &&
           sp_config_reals(c, "long_factor", factor_min, factor_max, n, long_factors, err);
}

static const sp_config_choice config_types[] = {
    {"default", SP_ROPE_DEFAULT}, {"linear", SP_ROPE_LINEAR}, {"dynamic", SP_ROPE_DYNAMIC},
    {"llama3", SP_ROPE_LLAMA3},   {"yarn", SP_ROPE_YARN},     {"longrope", SP_ROPE_LONGROPE},
};
/* The keys of each type in config.json. */
static read_fn *const config_readers[] = {
    [SP_ROPE_DEFAULT] = read_none,  [SP_ROPE_LINEAR] = read_factor, [SP_ROPE_DYNAMIC] = read_dynamic,
    [SP_ROPE_LLAMA3] = read_llama3, [SP_ROPE_YARN] = read_yarn,     [SP_ROPE_LONGROPE] = read_longrope,
};

/* rope_parameters and rope_scaling are two spellings of one object. *out is an empty object when neither is there. */
static bool find_object(const sp_config *config, sp_config *out, sp_error *err) {
    sp_config scaling = {0}, parameters = {0};
    bool has_scaling = false, has_parameters = false;
    if (!sp_config_object_if(config, "rope_scaling", "rope_scaling.", &scaling, &has_scaling, err) ||
        !sp_config_object_if(config, "rope_parameters", "rope_parameters.", &parameters, &has_parameters, err))
        return false;
    if (has_scaling && has_parameters && !json_equal(scaling.object, parameters.object))
        return sp_fail(err, SP_ERR_INPUT, "%s: rope_scaling and rope_parameters differ, want one of them",
                       config->file);
    *out = has_parameters ? parameters
           : has_scaling  ? scaling
                          : (sp_config){.file = config->file, .inside = "rope_parameters."};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)out->object, key, value) {
        if (json_is_object(value)) return sp_config_unsupported(out, key, "RoPE by layer type", err);
    }
    return true;
}

static bool read_type(const sp_config *scaling, const sp_rope_rules *rules, int *type, sp_error *err) {
    const char *key = sp_config_get(scaling, "rope_type") ? "rope_type" : "type";
    const char *word = "";
    *type = SP_ROPE_DEFAULT;
    if (!sp_config_text_if(scaling, key, &word, err)) return false;
    if (rules->legacy_longrope && (strcmp(word, "su") == 0 || strcmp(word, "yarn") == 0)) {
        *type = SP_ROPE_LONGROPE;
        return true;
    }
    return sp_config_choice_if(scaling, key, config_types, sizeof config_types / sizeof config_types[0], type, err);
}

/* original_max_position_embeddings beside the other keys, as Phi-3 has it, or inside rope_scaling. */
static bool read_original(const sp_config *config, const sp_config *scaling, const sp_rope_rules *rules,
                          sp_rope_params *p, sp_error *err) {
    static const char key[] = "original_max_position_embeddings";
    size_t outside = 0, inside = 0;
    if (!sp_config_size_if(config, key, ORIGINAL_MIN, ORIGINAL_MAX, &outside, err) ||
        !sp_config_size_if(scaling, key, ORIGINAL_MIN, ORIGINAL_MAX, &inside, err))
        return false;
    if (outside && inside && outside != inside)
        return sp_fail(err, SP_ERR_INPUT, "%s: %s is %zu, but %s%s is %zu", config->file, key, outside, scaling->inside,
                       key, inside);
    size_t fallback = rules->original_positions ? rules->original_positions : p->n_positions;
    p->original_positions = outside ? outside : inside ? inside : fallback;
    return true;
}

bool sp_rope_params_from_config(const sp_config *config, size_t head_dim, size_t n_positions,
                                const sp_rope_rules *rules, sp_arena *arena, sp_rope_params *params, sp_error *err) {
    sp_config scaling = {0};
    int type;
    double theta = theta_default, partial = 1;
    if (!find_object(config, &scaling, err) || !read_type(&scaling, rules, &type, err) ||
        !sp_config_real_if(config, "rope_theta", theta_min, theta_max, &theta, err) ||
        !sp_config_real_if(&scaling, "rope_theta", theta_min, theta_max, &theta, err))
        return false;
    const sp_config *where = sp_config_get(&scaling, "partial_rotary_factor") ? &scaling : config;
    if (!sp_config_real_if(where, "partial_rotary_factor", 0, 1, &partial, err)) return false;
    if (partial != 1 && !rules->partial)
        return sp_config_unsupported(where, "partial_rotary_factor", "this family rotates whole heads", err);
    *params = (sp_rope_params){.type = (sp_rope_type)type,
                               .n_exponent_dims = (size_t)((double)head_dim * partial),
                               .theta = theta,
                               .factor = 1,
                               .attention_factor = -1,
                               .n_positions = n_positions};
    if (params->n_exponent_dims == 0) return sp_config_fail(where, "partial_rotary_factor", "at least one pair", err);
    return read_original(config, &scaling, rules, params, err) && config_readers[type](&scaling, params, arena, err);
}

/* rope.scaling.attn_factor is the whole factor for longrope, and comes on top of the paper's for yarn. */
static bool read_gguf_attention(const sp_config *c, sp_rope_params *p, sp_error *err) {
    double attention = -1;
    if (!sp_config_real_if(c, "rope.scaling.attn_factor", 0, factor_max, &attention, err)) return false;
    bool times_paper = attention >= 0 && p->type == SP_ROPE_YARN && p->factor > 1;
    p->attention_factor = times_paper ? attention * (0.1 * sp_real_log(p->factor) + 1) : attention;
    return true;
}

bool sp_rope_params_from_gguf(const sp_config *c, size_t head_dim, size_t n_positions, const sp_rope_rules *rules,
                              sp_rope_params *p, sp_error *err) {
    static const sp_config_choice types[] = {
        {"none", SP_ROPE_DEFAULT},
        {"longrope", SP_ROPE_DEFAULT}, /* its factors are tensors, whose presence decides */
        {"linear", SP_ROPE_LINEAR},
        {"yarn", SP_ROPE_YARN},
    };
    int type = SP_ROPE_DEFAULT;
    *p = (sp_rope_params){.n_exponent_dims = head_dim,
                          .theta = theta_default,
                          .factor = 1,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .truncate = true,
                          .original_positions = n_positions,
                          .n_positions = n_positions};
    if (rules->original_positions) p->original_positions = rules->original_positions;
    if (!sp_config_size_if(c, "rope.dimension_count", 1, head_dim, &p->n_exponent_dims, err) ||
        !sp_config_real_if(c, "rope.freq_base", theta_min, theta_max, &p->theta, err) ||
        !sp_config_choice_if(c, "rope.scaling.type", types, sizeof types / sizeof types[0], &type, err) ||
        !sp_config_size_if(c, "rope.scaling.original_context_length", ORIGINAL_MIN, ORIGINAL_MAX,
                           &p->original_positions, err) ||
        !sp_config_real_if(c, "rope.scaling.yarn_beta_fast", factor_min, factor_max, &p->beta_fast, err) ||
        !sp_config_real_if(c, "rope.scaling.yarn_beta_slow", factor_min, factor_max, &p->beta_slow, err))
        return false;
    if (p->n_exponent_dims != head_dim && !rules->partial)
        return sp_config_unsupported(c, "rope.dimension_count", "this family rotates whole heads", err);
    p->type = (sp_rope_type)type;
    if (p->type != SP_ROPE_DEFAULT &&
        !sp_config_real(c, "rope.scaling.factor", factor_min, factor_max, &p->factor, err))
        return false;
    return read_gguf_attention(c, p, err);
}
