/* Hashing of a model's small files. */
#include "model/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "io/file.h"
#include "model/gguf_file.h"
#include "util/file.h"

enum { CHUNK_BYTES = 1 << 16, PATH_BYTES = 4096 };

static const char *const described_by[] = {"config.json", "generation_config.json", "tokenizer.json",
                                           "tokenizer_config.json", "chat_template.jinja"};
enum { N_DESCRIBED_BY = sizeof described_by / sizeof described_by[0] };

static bool hash_content(XXH3_state_t *state, const char *path, sp_error *err) {
    unsigned char chunk[CHUNK_BYTES];
    sp_file file;
    if (!sp_file_open(&file, path, err)) return false;
    bool good = true;
    for (uint64_t at = 0; good && at < file.n_bytes;) {
        size_t n_bytes = file.n_bytes - at < CHUNK_BYTES ? (size_t)(file.n_bytes - at) : CHUNK_BYTES;
        good = sp_file_read_at(&file, at, chunk, n_bytes, err);
        if (good) XXH3_128bits_update(state, chunk, n_bytes);
        at += n_bytes;
    }
    sp_file_close(&file);
    return good;
}

/* Name with its NUL, then the length and the content, or -1 when there is no such file. */
static bool hash_file(XXH3_state_t *state, const char *directory, const char *name, sp_error *err) {
    char path[PATH_BYTES];
    int n_path = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n_path < 0 || (size_t)n_path >= sizeof path) return sp_fail(err, SP_ERR_INPUT, "%s: path too long", directory);
    struct stat st;
    int64_t n_bytes = stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
    if (n_bytes < 0 && !sp_file_is_absent(path)) return sp_fail_open(err, path);
    XXH3_128bits_update(state, name, strlen(name) + 1);
    XXH3_128bits_update(state, &n_bytes, sizeof n_bytes);
    return n_bytes < 0 || hash_content(state, path, err);
}

static bool hash_description(XXH3_state_t *state, const sp_model *model, sp_error *err) {
    if (model->gguf) {
        size_t n_bytes = 0;
        const void *header = sp_gguf_header(model->gguf, &n_bytes);
        XXH3_128bits_update(state, header, n_bytes);
        return true;
    }
    for (size_t i = 0; i < N_DESCRIBED_BY; i++)
        if (!hash_file(state, model->path, described_by[i], err)) return false;
    return true;
}

bool sp_model_identity_read(const sp_model *model, sp_model_identity *out, sp_error *err) {
    *out = (sp_model_identity){0};
    XXH3_state_t *state = XXH3_createState();
    sp_file_identity *files = calloc(model->n_files ? model->n_files : 1, sizeof *files);
    bool good = state && files;
    if (good) {
        XXH3_128bits_reset(state);
        good = hash_description(state, model, err);
    } else {
        sp_fail(err, SP_ERR_MEMORY, "%s: no memory", model->path);
    }
    if (good) {
        XXH128_hash_t description = XXH3_128bits_digest(state);
        out->description = sp_hash_of(description.high64, description.low64);
        for (size_t i = 0; i < model->n_files; i++)
            files[i] = (sp_file_identity){.path = model->files[i].path, .n_bytes = model->files[i].n_bytes};
        out->files = files;
        out->n_files = model->n_files;
    } else {
        free(files);
    }
    XXH3_freeState(state);
    return good;
}

void sp_model_identity_deinit(sp_model_identity *identity) {
    free(identity->files);
    *identity = (sp_model_identity){0};
}

sp_hash sp_hash_of(uint64_t high, uint64_t low) {
    sp_hash hash;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, (XXH128_hash_t){.low64 = low, .high64 = high});
    memcpy(hash.bytes, canonical.digest, sizeof hash.bytes);
    return hash;
}

const char *sp_hash_hex(const sp_hash *hash, char out[SP_HASH_HEX_BYTES]) {
    for (size_t i = 0; i < SP_HASH_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", hash->bytes[i]);
    return out;
}
