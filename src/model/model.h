/* A model on disk: its architecture and where every weight lies. Opened from headers alone; no weight is read.
 *
 * MODEL is a directory in Hugging Face layout (config.json, *.safetensors, tokenizer.json) or a GGUF file. Headers are
 * hostile input: every offset, shape and dtype is checked against the file and the config before this returns.
 * Immutable after open; shared by threads. */
#ifndef SPILL_MODEL_MODEL_H
#define SPILL_MODEL_MODEL_H

#include "model/arch.h"
#include "model/gguf.h"
#include "util/error.h"

/* Where a matrix lies: rows of `format`, row-major [n_rows, n_cols], row_bytes apart, from offset_bytes of file i_file.
 * Parts of a fused tensor (qkv, gate_up) are matrices of their own, over row ranges of it. */
typedef struct {
    const char *name; /* tensor name in the file, for messages */
    uint32_t i_file;
    uint64_t offset_bytes;
    const sp_format *format;
    size_t n_rows, n_cols;
    size_t row_bytes;
    bool rope_interleaved; /* rows of q and k in GGUF's order: pairs (2j, 2j+1) */
} sp_matrix;

/* A small tensor that stays resident: norm weights and biases. The engine reads it once as fp32. */
typedef struct {
    const char *name; /* NULL: this model has none */
    uint32_t i_file;
    uint64_t offset_bytes;
    const sp_format *format;
    size_t n_elems;
    bool rope_interleaved;
} sp_vector;

typedef struct {
    sp_matrix q, k, v, o;                    /* [H*E, D] [K*E, D] [K*E, D] [D, H*E] */
    sp_matrix gate, up, down;                /* [F, D] [F, D] [D, F] */
    sp_vector attn_norm, ffn_norm;           /* [D] */
    sp_vector attn_post_norm, ffn_post_norm; /* [D], Gemma; with arch.post_norms */
    sp_vector q_norm, k_norm;                /* [E] */
    sp_vector q_bias, k_bias, v_bias, o_bias;
    sp_vector gate_bias, up_bias, down_bias;
} sp_layer;

/* A file of weights as it was when its header was read: a change under a running job shows in these. */
typedef struct {
    const char *path;
    uint64_t n_bytes;
    uint64_t inode;
    uint64_t mtime_ns;
} sp_model_file;

typedef struct {
    const char *path; /* as given */
    const char *name; /* last path component */
    bool is_gguf;
    sp_arch arch;
    const sp_model_file *files; /* shards in order */
    size_t n_files;
    sp_matrix embed;        /* [V, D] */
    sp_matrix head;         /* [V, D]; the embedding again when tied */
    sp_vector final_norm;   /* [D] */
    const sp_layer *layers; /* [L] */
    uint64_t weight_bytes;  /* of all tensors in use, a tied one once */
    uint64_t n_params;
    const char *dominant_format; /* format of most bytes, for the plan line */
    const sp_gguf *gguf;         /* metadata, tokenizer and templates of a GGUF file; NULL for a directory */
} sp_model;

/* NULL on failure: SP_ERR_INPUT for a broken file, SP_ERR_SUPPORT for an architecture or feature that is not supported,
 * by name. */
sp_model *sp_model_open(const char *path, sp_error *err) SP_MUST_CHECK;
void sp_model_close(sp_model *model); /* NULL is fine */

#endif
