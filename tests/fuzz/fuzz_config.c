/* A config.json of any bytes: refused, or an architecture whose sizes multiply without overflow and whose frequencies
 * can be had for rows of any length. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/family.h"
#include "util/json.h"
#include "util/size.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { PAIRS_MAX = 1 << 13 };

static void check_arch(const sp_arch *a) {
    static float inv_freq[PAIRS_MAX];
    size_t product = 0;
    if (!sp_mul_size(a->n_heads * a->head_dim, a->d_model, &product) || !sp_mul_size(product, 8, &product)) abort();
    if (!sp_mul_size(a->n_vocab, a->d_model, &product) || !sp_mul_size(product, 8, &product)) abort();
    if (!sp_mul_size(a->d_ffn, a->d_model, &product) || !sp_mul_size(product, 8, &product)) abort();
    if (a->n_layers == 0 || a->n_heads % a->n_kv_heads || a->head_dim % 2) abort();
    const sp_rope *rope = a->ropes;
    if (rope->n_dims > a->head_dim || rope->n_dims % 2 || rope->n_dims / 2 > PAIRS_MAX) abort();
    const size_t lengths[] = {1, 48, 4097, a->n_positions};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        float scale = 0;
        sp_rope_inv_freq(rope, lengths[i], inv_freq, &scale);
        for (size_t j = 0; j < rope->n_dims / 2; j++)
            if (!isfinite(inv_freq[j])) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    sp_error err = {0};
    sp_arena arena = {0};
    sp_arch arch = {0};
    sp_draft draft = {.arch = &arch, .arena = &arena};
    json_t *object = sp_json_parse((const char *)data, n_bytes, "config.json", &err);
    if (json_is_object(object)) {
        sp_config config = {.object = object, .file = "config.json", .inside = ""};
        int32_t ids[4];
        size_t n_ids = 0;
        const sp_family *family = sp_family_from_config(&config, &err);
        bool good = family && sp_family_fill(family, &config, &draft, &err);
        if (good) check_arch(&arch);
        if (good) good = sp_config_ids_if(&config, "eos_token_id", arch.n_vocab, ids, 4, &n_ids, &err);
        if (!good && err.code == SP_OK) abort();
    }
    json_decref(object);
    sp_arena_deinit(&arena);
    return 0;
}
