/* Binding an architecture to a checkpoint: every rule finds its tensor, every tensor a rule. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"
#include "util/size.h"

enum { NAME_BYTES = 256 };

typedef struct {
    const sp_family *family;
    const sp_draft *draft;
    sp_tensor_set *set;
    const char *source;
    sp_model *model;
    uint64_t format_bytes[SP_FMT_COUNT];
    sp_error *err;
} binder;

static size_t dim_of(const sp_arch *a, sp_dim dim) {
    size_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim; /* bounded when the arch was filled */
    const size_t dims[SP_DIM_COUNT] = {
        [SP_DIM_NONE] = 0,     [SP_DIM_D] = a->d_model,    [SP_DIM_V] = a->n_vocab,   [SP_DIM_Q] = q,
        [SP_DIM_KV] = kv,      [SP_DIM_QK] = q + kv,       [SP_DIM_QKV] = q + 2 * kv, [SP_DIM_E] = a->head_dim,
        [SP_DIM_F] = a->d_ffn, [SP_DIM_FF] = 2 * a->d_ffn,
    };
    return dims[dim];
}

/* The pattern with its '#' replaced by the layer's number. */
static void expand(const char *pattern, size_t l, char out[NAME_BYTES]) {
    const char *hash = strchr(pattern, '#');
    if (hash)
        snprintf(out, NAME_BYTES, "%.*s%zu%s", (int)(hash - pattern), pattern, l, hash + 1);
    else
        snprintf(out, NAME_BYTES, "%s", pattern);
}

/* Whether name is the pattern with some layer number below n_layers, written without leading zeros. */
static bool matches(const char *pattern, const char *name, size_t n_layers) {
    const char *hash = strchr(pattern, '#');
    if (!hash) return strcmp(pattern, name) == 0;
    size_t n_before = (size_t)(hash - pattern), l = 0;
    if (strncmp(pattern, name, n_before) != 0) return false;
    const char *digit = name + n_before;
    if (digit[0] == '0' && digit[1] >= '0' && digit[1] <= '9') return false;
    const char *end = digit;
    for (; *end >= '0' && *end <= '9' && l < n_layers; end++) l = 10 * l + (size_t)(*end - '0');
    return end > digit && l < n_layers && strcmp(end, hash + 1) == 0;
}

/* The tensor of a rule, checked; NULL with an error set. Counts it when it is the first use. */
static sp_tensor *take_tensor(binder *b, const sp_tensor_rule *rule, const char *name) {
    const sp_arch *a = &b->model->arch;
    sp_tensor *t = sp_tensor_set_find(b->set, name);
    if (!t) {
        sp_fail(b->err, SP_ERR_INPUT, "%s: tensor '%s' is missing%s", b->model->path, name,
                rule->need == SP_NEED_HEAD ? " (tie_word_embeddings is not true)" : "");
        return NULL;
    }
    const char *path = b->model->files[t->i_file].path;
    size_t want[2] = {dim_of(a, rule->total_rows ? rule->total_rows : rule->n_rows), dim_of(a, rule->n_cols)};
    uint32_t n_want = rule->n_cols ? 2 : 1;
    if (!t->format) {
        sp_fail(b->err, SP_ERR_SUPPORT, "%s: tensor '%s' has dtype %s, want BF16, F16 or F32", path, name,
                t->type_name);
        return NULL;
    }
    if (t->n_dims != n_want || t->dims[0] != want[0] || (n_want == 2 && t->dims[1] != want[1])) {
        char found[100], wanted[100];
        sp_fail(b->err, SP_ERR_INPUT, "%s: tensor '%s' has shape %s, want %s by %s", path, name,
                sp_tensor_shape_text(t->dims, t->n_dims, found, sizeof found),
                sp_tensor_shape_text(want, n_want, wanted, sizeof wanted), b->source);
        return NULL;
    }
    if (!t->used) {
        t->used = true;
        b->model->weight_bytes += t->n_bytes;
        b->model->n_params += (uint64_t)want[0] * (n_want == 2 ? want[1] : 1);
        b->format_bytes[t->format->id] += t->n_bytes;
    }
    return t;
}

static bool bind_rule(binder *b, const sp_tensor_rule *rule, size_t l, void *base) {
    char name[NAME_BYTES];
    expand(rule->pattern, l, name);
    sp_tensor *t = take_tensor(b, rule, name);
    if (!t) return false;
    const sp_arch *a = &b->model->arch;
    bool interleaved = rule->is_rotary && b->model->is_gguf && b->family->gguf_interleaved;
    size_t n_rows = dim_of(a, rule->n_rows);
    void *slot = (char *)base + rule->offset;
    if (!rule->n_cols) {
        *(sp_vector *)slot = (sp_vector){.name = t->name,
                                         .i_file = t->i_file,
                                         .offset_bytes = t->offset_bytes,
                                         .format = t->format,
                                         .n_elems = n_rows,
                                         .rope_interleaved = interleaved};
        return true;
    }
    size_t n_cols = dim_of(a, rule->n_cols); /* whole blocks: the reader of the format has seen to it */
    size_t row_bytes = n_cols / t->format->block_elems * t->format->block_bytes;
    *(sp_matrix *)slot = (sp_matrix){.name = t->name,
                                     .i_file = t->i_file,
                                     .offset_bytes = t->offset_bytes + (uint64_t)dim_of(a, rule->first_row) * row_bytes,
                                     .format = t->format,
                                     .n_rows = n_rows,
                                     .n_cols = n_cols,
                                     .row_bytes = row_bytes,
                                     .rope_interleaved = interleaved};
    return true;
}

/* What nobody asked for: passed over if a rule says so, else refused. A head beside tied embeddings is passed over. */
static bool check_extras(const binder *b, const sp_tensor_rule *rules) {
    const sp_tensor *first = NULL;
    size_t n_extra = 0;
    for (size_t i = 0; i < b->set->n; i++) {
        const sp_tensor *t = &b->set->items[i];
        bool known = t->used;
        for (const sp_tensor_rule *r = rules; !known && r->pattern; r++)
            known = (r->need == SP_NEED_PASS_OVER || r->need == SP_NEED_HEAD) &&
                    matches(r->pattern, t->name, b->model->arch.n_layers);
        if (known) continue;
        if (n_extra++ == 0) first = t;
    }
    if (!n_extra) return true;
    char more[40] = "";
    if (n_extra > 1) snprintf(more, sizeof more, " (and %zu more)", n_extra - 1);
    return sp_fail(b->err, SP_ERR_INPUT, "%s: tensor '%s'%s has no place in the %s architecture that %s describes",
                   b->model->files[first->i_file].path, first->name, more, b->family->name, b->source);
}

bool sp_family_bind(const sp_family *family, const sp_draft *draft, sp_tensor_set *set, const char *source,
                    sp_model *model, sp_error *err) {
    binder b = {.family = family, .draft = draft, .set = set, .source = source, .model = model, .err = err};
    const sp_tensor_rule *rules = model->is_gguf ? family->gguf_rules : family->config_rules;
    sp_layer *layers = SP_ARENA_ARRAY(draft->arena, sp_layer, model->arch.n_layers);
    model->layers = layers;
    for (const sp_tensor_rule *r = rules; r->pattern; r++)
        if (!strchr(r->pattern, '#') && draft->needs[r->need] && !bind_rule(&b, r, 0, model)) return false;
    for (size_t l = 0; l < model->arch.n_layers; l++)
        for (const sp_tensor_rule *r = rules; r->pattern; r++)
            if (strchr(r->pattern, '#') && draft->needs[r->need] && !bind_rule(&b, r, l, &layers[l])) return false;
    if (model->arch.tied_head) model->head = model->embed;
    size_t i_most = 0;
    for (size_t i = 1; i < SP_FMT_COUNT; i++)
        if (b.format_bytes[i] > b.format_bytes[i_most]) i_most = i;
    model->dominant_format = sp_format_get((sp_format_id)i_most)->name;
    return check_extras(&b, rules);
}
