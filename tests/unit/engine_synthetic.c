#include "engine_synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "util/arena.h"
#include "util/error.h"

typedef struct {
    sp_model model; /* first, so that the model is the owner */
    sp_arena arena;
    sp_layer_arch *layer_archs;
    sp_layer *layers;
    sp_rope rope;
    sp_model_file file;
    uint64_t n_bytes;
} synthetic;

/* Mostly small BF16 values: odd bytes (the high half) stay below 0x40. */
unsigned char synthetic_byte(uint64_t i) {
    uint64_t x = (i / 2 + 1) * 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    unsigned char low = (unsigned char)(x >> 8), high = (unsigned char)(0x3C | (x >> 16 & 0x81));
    return i % 2 ? high : low;
}

static sp_matrix matrix(synthetic *s, const char *name, size_t n_rows, size_t n_cols) {
    sp_matrix m = {name, 0, s->n_bytes, sp_format_get(SP_FMT_BF16), n_rows, n_cols, n_cols * sizeof(sp_bf16), false};
    s->n_bytes += n_rows * m.row_bytes;
    return m;
}

static sp_vector vector(synthetic *s, const char *name, size_t n_elems) {
    sp_vector v = {name, 0, s->n_bytes, sp_format_get(SP_FMT_BF16), n_elems, false};
    s->n_bytes += n_elems * sizeof(sp_bf16);
    return v;
}

static void add_layer(synthetic *s, const synthetic_shape *shape, sp_layer *layer) {
    size_t q = shape->n_heads * shape->head_dim, kv = shape->n_kv_heads * shape->head_dim;
    layer->down = matrix(s, "down", shape->d_model, shape->d_ffn);
    layer->gate = matrix(s, "gate", shape->d_ffn, shape->d_model);
    layer->attn_norm = vector(s, "attn_norm", shape->d_model);
    layer->ffn_norm = vector(s, "ffn_norm", shape->d_model);
    layer->up = matrix(s, "up", shape->d_ffn, shape->d_model);
    layer->q = matrix(s, "q", q, shape->d_model);
    layer->k = matrix(s, "k", kv, shape->d_model);
    layer->v = matrix(s, "v", kv, shape->d_model);
    layer->o = matrix(s, "o", shape->d_model, q);
}

static void fill_arch(synthetic *s, const synthetic_shape *shape) {
    s->rope = (sp_rope){.n_dims = shape->head_dim / 2 * 2, .scale = 1};
    s->rope.inv_freq = SP_ARENA_ARRAY(&s->arena, float, s->rope.n_dims / 2);
    for (size_t j = 0; j < s->rope.n_dims / 2; j++) s->rope.inv_freq[j] = 1.0f / (float)(1 + 3 * j);
    s->model.arch = (sp_arch){.family = "synthetic",
                              .n_layers = shape->n_layers,
                              .d_model = shape->d_model,
                              .n_heads = shape->n_heads,
                              .n_kv_heads = shape->n_kv_heads,
                              .head_dim = shape->head_dim,
                              .d_ffn = shape->d_ffn,
                              .n_vocab = shape->n_vocab,
                              .n_positions = 1 << 20,
                              .norm_eps = 1e-5f,
                              .act = SP_ACT_SILU,
                              .embed_scale = 1,
                              .attn_scale = 0.25f,
                              .tied_head = shape->tied_head,
                              .layers = s->layer_archs,
                              .ropes = &s->rope,
                              .n_ropes = 1};
}

static void write_file(synthetic *s, const char *path) {
    FILE *file = fopen(path, "wb");
    SP_CHECK(file != NULL);
    for (uint64_t i = 0; i < s->n_bytes; i++) fputc(synthetic_byte(i), file);
    SP_CHECK(fclose(file) == 0);
    struct stat st;
    SP_CHECK(stat(path, &st) == 0);
    s->file.inode = st.st_ino;
    s->file.mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
}

sp_model *synthetic_new(const synthetic_shape *shape, const char *file_path) {
    synthetic *s = calloc(1, sizeof *s);
    SP_CHECK(s != NULL);
    s->layer_archs = SP_ARENA_ARRAY(&s->arena, sp_layer_arch, shape->n_layers);
    s->layers = SP_ARENA_ARRAY(&s->arena, sp_layer, shape->n_layers);
    fill_arch(s, shape);
    s->model.path = s->model.name = "synthetic";
    s->model.dominant_format = "BF16";
    s->model.final_norm = vector(s, "final_norm", shape->d_model);
    s->model.embed = matrix(s, "embed", shape->n_vocab, shape->d_model);
    for (size_t l = shape->n_layers; l-- > 0;) add_layer(s, shape, &s->layers[l]);
    s->model.head = shape->tied_head ? s->model.embed : matrix(s, "head", shape->n_vocab, shape->d_model);
    s->model.layers = s->layers;
    s->model.weight_bytes = s->n_bytes;
    s->model.n_params = s->n_bytes / sizeof(sp_bf16);
    s->file = (sp_model_file){.path = file_path, .n_bytes = s->n_bytes};
    s->model.files = &s->file;
    s->model.n_files = 1;
    if (file_path) write_file(s, file_path);
    return &s->model;
}

void synthetic_free(sp_model *model) {
    synthetic *s = (synthetic *)model;
    sp_arena_deinit(&s->arena);
    free(s);
}
