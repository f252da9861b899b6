/* Model families: how a config becomes an sp_arch, and which tensors a model has. Private to the model module.
 *
 * A family is one file in families/ and one row in families.def. It reads its config keys into a draft and names its
 * tensors by tables of rules; binding, checking and everything after is shared. */
#ifndef SPILL_MODEL_FAMILY_H
#define SPILL_MODEL_FAMILY_H

#include "model/arch.h"
#include "model/config.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/tensors.h"

/* Sizes that shapes are made of. */
typedef enum {
    SP_DIM_NONE, /* 0 rows before; as n_cols: a vector */
    SP_DIM_D,
    SP_DIM_V,
    SP_DIM_Q,  /* H*E */
    SP_DIM_KV, /* K*E */
    SP_DIM_QK, /* H*E + K*E */
    SP_DIM_QKV,
    SP_DIM_E,
    SP_DIM_F,
    SP_DIM_FF, /* 2*F */
    SP_DIM_COUNT
} sp_dim;

/* When a tensor has to be there. */
typedef enum {
    SP_NEED_ALWAYS,
    SP_NEED_HEAD, /* embeddings not tied */
    SP_NEED_QKV_BIAS,
    SP_NEED_O_BIAS,
    SP_NEED_FFN_BIAS,
    SP_NEED_QK_NORM,
    SP_NEED_PASS_OVER, /* known, and not used */
    SP_NEED_COUNT
} sp_need;

/* One matrix or vector of the model. Several rules may name one tensor: they are row ranges of it. */
typedef struct {
    const char *pattern; /* '#' stands for the layer number; NULL ends a table */
    size_t offset;       /* of the sp_matrix or sp_vector in sp_layer, or in sp_model without '#' */
    sp_dim n_rows;       /* of this part; of a vector its elements */
    sp_dim n_cols;       /* SP_DIM_NONE: a vector */
    sp_dim first_row;    /* rows of the tensor before this part */
    sp_dim total_rows;   /* of the tensor; SP_DIM_NONE: n_rows */
    sp_need need;
    bool is_rotary; /* q or k: in GGUF files of some families its rows are in another order */
} sp_tensor_rule;

/* An architecture in the making. */
typedef struct {
    sp_arch *arch;
    sp_arena *arena;
    bool needs[SP_NEED_COUNT];    /* which groups of tensors this model has; ALWAYS is set, and HEAD from tied_head */
    size_t window;                /* of sliding layers; 0: none */
    const sp_tensor_set *tensors; /* of a GGUF file, else NULL */
    const sp_file *file;          /* the same */
} sp_draft;

typedef struct {
    const char *name;
    const char *model_type;   /* of config.json */
    const char *architecture; /* the only entry of `architectures` that is understood */
    const char *gguf_arch;    /* general.architecture, NULL: GGUF files of this family go by another's name */
    bool gguf_interleaved;    /* GGUF's q and k rows are in pairs (2j, 2j+1) */
    size_t n_kv_heads;        /* when the config does not say; 0: n_heads */
    size_t head_dim;          /* the same; 0: d_model / n_heads */
    const sp_tensor_rule *config_rules;
    const sp_tensor_rule *gguf_rules;
    sp_rope_rules rope;
    /* What is the family's own, after the common keys: biases, norms, windows. Either may be NULL. */
    bool (*fill)(const sp_config *config, sp_draft *draft, sp_error *err);
    bool (*fill_gguf)(const sp_config *fields, sp_draft *draft, sp_error *err);
} sp_family;

#define SP_FAMILY(name) extern const sp_family sp_family_##name;
#include "model/families.def"
#undef SP_FAMILY

/* Rules that families of the plain block share: separate q, k, v, gate, up in both layouts, fused ones, GGUF names. */
extern const sp_tensor_rule sp_rules_plain[], sp_rules_fused[], sp_rules_gguf_plain[], sp_rules_gguf_fused[];

/* The family of a config.json or of GGUF metadata, or NULL with SP_ERR_SUPPORT: encoders, vision, quantized or
 * adapter directories, unknown model types, all by name. */
const sp_family *sp_family_from_config(const sp_config *config, sp_error *err) SP_MUST_CHECK;
const sp_family *sp_family_from_gguf(const char *path, const char *architecture, sp_error *err) SP_MUST_CHECK;

/* Fills draft->arch (all but stop_ids) from a config.json, or from GGUF fields under "<arch>.". */
bool sp_family_fill(const sp_family *family, const sp_config *config, sp_draft *draft, sp_error *err) SP_MUST_CHECK;
bool sp_family_fill_gguf(const sp_family *family, const sp_config *fields, sp_draft *draft,
                         sp_error *err) SP_MUST_CHECK;

/* For the families' fill functions: windows by layer. Layers from i_first on slide with `window`. */
void sp_draft_set_window(sp_draft *draft, size_t window, size_t i_first);
/* use_sliding_window, sliding_window, max_window_layers and layer_types, as Qwen has them. */
bool sp_draft_fill_qwen_windows(const sp_config *config, sp_draft *draft, sp_error *err) SP_MUST_CHECK;

/* Binds every rule to its tensor: fills embed, head, final_norm, layers and the sums of *model, whose arch is complete.
 * `source` is the file that says how shapes must be, for messages. Tensors that no rule names are refused. */
bool sp_family_bind(const sp_family *family, const sp_draft *draft, sp_tensor_set *set, const char *source,
                    sp_model *model, sp_error *err) SP_MUST_CHECK;

#endif
