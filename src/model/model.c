/* Opening a model: a directory in Hugging Face layout or a GGUF file, told apart by what the path is. */
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/checkpoint.h"
#include "model/family.h"
#include "model/gguf_file.h"
#include "util/json.h"
#include "util/utf8.h"

enum { CONFIG_MAX_BYTES = 4 << 20, STOP_IDS_MAX = 64 };

/* sp_model is the first member, so that a pointer to it is a pointer to its owner. */
typedef struct {
    sp_model model;
    sp_arena arena;
    sp_gguf *gguf; /* NULL for a directory */
} owner;

/* The last component of a path; of "." and ".." that of the directory they stand for. */
static const char *name_of(sp_arena *arena, const char *path) {
    char *real = NULL;
    size_t n_bytes = strlen(path);
    while (n_bytes > 1 && path[n_bytes - 1] == '/') n_bytes--;
    size_t start = n_bytes;
    while (start > 0 && path[start - 1] != '/') start--;
    const char *last = path + start;
    bool is_dots = n_bytes - start <= 2 && strspn(last, ".") >= n_bytes - start;
    if (is_dots && (real = realpath(path, NULL)) != NULL) {
        const char *slash = strrchr(real, '/');
        last = slash ? slash + 1 : real;
        n_bytes = start + strlen(last);
    }
    sp_buf utf8 = {0}; /* results are JSON, whatever bytes the path has */
    SP_CHECK(sp_utf8_lossy(&utf8, last, n_bytes - start));
    const char *name = sp_arena_text(arena, utf8.data ? utf8.data : "", utf8.n_bytes);
    sp_buf_deinit(&utf8);
    free(real);
    return name;
}

static json_t *load_object(const char *path, sp_error *err) {
    json_t *object = sp_json_load(path, CONFIG_MAX_BYTES, err);
    if (!object || json_is_object(object)) return object;
    sp_fail(err, SP_ERR_INPUT, "%s: want a JSON object", path);
    json_decref(object);
    return NULL;
}

/* eos ids of config.json and, if it is there, generation_config.json. */
static bool fill_stops(owner *o, const sp_config *config, sp_error *err) {
    int32_t *ids = SP_ARENA_ARRAY(&o->arena, int32_t, STOP_IDS_MAX);
    sp_arch *arch = &o->model.arch;
    arch->stop_ids = ids;
    if (!sp_config_ids_if(config, "eos_token_id", arch->n_vocab, ids, STOP_IDS_MAX, &arch->n_stop_ids, err))
        return false;
    sp_config generation = {.file = sp_arena_printf(&o->arena, "%s/generation_config.json", o->model.path),
                            .inside = ""};
    struct stat st;
    if (stat(generation.file, &st) != 0 && errno == ENOENT) return true;
    json_t *object = load_object(generation.file, err);
    generation.object = object;
    bool good = object &&
                sp_config_ids_if(&generation, "eos_token_id", arch->n_vocab, ids, STOP_IDS_MAX, &arch->n_stop_ids, err);
    json_decref(object);
    return good;
}

static bool open_directory(owner *o, sp_error *err) {
    sp_model *model = &o->model;
    sp_draft draft = {.arch = &model->arch, .arena = &o->arena};
    sp_tensor_set set = {0};
    sp_config config = {.file = sp_arena_printf(&o->arena, "%s/config.json", model->path), .inside = ""};
    struct stat st;
    bool good = false;
    if (stat(config.file, &st) != 0 && errno == ENOENT) {
        bool is_adapter = stat(sp_arena_printf(&o->arena, "%s/adapter_config.json", model->path), &st) == 0;
        return is_adapter ? sp_fail(err, SP_ERR_SUPPORT, "%s: an adapter, not a model; give MODEL+ADAPTER", model->path)
                          : sp_fail(err, SP_ERR_INPUT, "%s: no config.json: not a model directory", model->path);
    }
    json_t *object = load_object(config.file, err);
    config.object = object;
    const sp_family *family = object ? sp_family_from_config(&config, err) : NULL;
    if (family && sp_family_fill(family, &config, &draft, err) && fill_stops(o, &config, err) &&
        sp_checkpoint_read(model->path, &o->arena, &set, &model->files, &model->n_files, err))
        good = sp_family_bind(family, &draft, &set, "config.json", model, err);
    json_decref(object);
    sp_tensor_set_deinit(&set);
    return good;
}

/* The ids of the tokens that end a text, a turn or a message. */
static bool fill_gguf_stops(owner *o, sp_error *err) {
    static const char *const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    sp_config fields = {.file = o->model.path, .inside = "tokenizer.ggml."};
    int32_t *ids = SP_ARENA_ARRAY(&o->arena, int32_t, STOP_IDS_MAX);
    sp_arch *arch = &o->model.arch;
    json_t *object = sp_gguf_fields(o->gguf, fields.inside, err);
    fields.object = object;
    arch->stop_ids = ids;
    bool good = object || sp_error_wrap(err, "%s", o->model.path);
    for (size_t i = 0; good && i < sizeof keys / sizeof keys[0]; i++)
        good = sp_config_ids_if(&fields, keys[i], arch->n_vocab, ids, STOP_IDS_MAX, &arch->n_stop_ids, err);
    json_decref(object);
    return good;
}

static const sp_family *find_gguf_family(const owner *o, sp_error *err) {
    const sp_gguf *gguf = o->gguf;
    sp_string architecture, kind;
    bool found = false, has_kind = false;
    int64_t n_splits = 0;
    if (!sp_gguf_get_text(gguf, "general.architecture", &architecture, &found, err) ||
        !sp_gguf_get_text(gguf, "general.type", &kind, &has_kind, err) ||
        !sp_gguf_get_int(gguf, "split.count", 0, &n_splits, err)) {
        sp_error_wrap(err, "%s", o->model.path);
        return NULL;
    }
    if (!found) {
        sp_fail(err, SP_ERR_INPUT, "%s: general.architecture is absent", o->model.path);
        return NULL;
    }
    if (has_kind && (kind.n_bytes != 5 || memcmp(kind.text, "model", 5) != 0)) {
        char shown[40];
        sp_fail(err, SP_ERR_SUPPORT, "%s: general.type is '%s', want 'model'", o->model.path,
                sp_printable(kind.text, kind.n_bytes, shown, sizeof shown));
        return NULL;
    }
    if (n_splits > 1) {
        sp_fail(err, SP_ERR_SUPPORT, "%s: one of %lld split GGUF files, which are not supported; join them first",
                o->model.path, (long long)n_splits);
        return NULL;
    }
    char name[64];
    return sp_family_from_gguf(o->model.path, sp_printable(architecture.text, architecture.n_bytes, name, sizeof name),
                               err);
}

static bool open_gguf(owner *o, const sp_file *file, sp_error *err) {
    sp_model *model = &o->model;
    sp_tensor_set set = {0};
    sp_draft draft = {.arch = &model->arch, .arena = &o->arena, .tensors = &set, .file = file};
    sp_model_file *files = SP_ARENA_NEW(&o->arena, sp_model_file);
    *files = (sp_model_file){
        .path = model->path, .n_bytes = file->n_bytes, .inode = file->inode, .mtime_ns = file->mtime_ns};
    model->is_gguf = true;
    model->files = files;
    model->n_files = 1;
    json_t *object = NULL;
    bool good = false;
    o->gguf = sp_gguf_open(file, 0, &set, err);
    model->gguf = o->gguf;
    const sp_family *family = o->gguf ? find_gguf_family(o, err) : NULL;
    if (family) {
        sp_config fields = {.file = model->path};
        const char *prefix = sp_arena_printf(&o->arena, "%s.", family->gguf_arch);
        object = sp_gguf_fields(o->gguf, prefix, err);
        fields.object = object;
        fields.inside = prefix;
        good = object ? sp_family_fill_gguf(family, &fields, &draft, err) && fill_gguf_stops(o, err) &&
                            sp_family_bind(family, &draft, &set, "its metadata", model, err)
                      : sp_error_wrap(err, "%s", model->path);
    }
    json_decref(object);
    sp_tensor_set_deinit(&set);
    return good;
}

/* A file that is no directory: GGUF, or nothing that is known. */
static bool open_file(owner *o, sp_error *err) {
    sp_file file;
    unsigned char first[4] = {0};
    if (!sp_file_open(&file, o->model.path, err)) return false;
    bool good = file.n_bytes < sizeof first || sp_file_read_at(&file, 0, first, sizeof first, err);
    if (good && !sp_gguf_is_magic(first))
        good = sp_fail(err, SP_ERR_INPUT, "%s: not a GGUF file; want one, or a model's directory", o->model.path);
    good = good && open_gguf(o, &file, err);
    sp_file_close(&file);
    return good;
}

sp_model *sp_model_open(const char *path, sp_error *err) {
    struct stat st;
    owner *o = calloc(1, sizeof *o);
    if (!o) {
        sp_fail(err, SP_ERR_MEMORY, "%s: no memory", path);
        return NULL;
    }
    o->model.path = sp_arena_text(&o->arena, path, strlen(path));
    o->model.name = name_of(&o->arena, path);
    bool good = false;
    if (stat(path, &st) != 0)
        sp_fail(err, SP_ERR_INPUT, "%s: no such model (%s); want a model's directory or a GGUF file", path,
                strerror(errno));
    else
        good = S_ISDIR(st.st_mode) ? open_directory(o, err) : open_file(o, err);
    if (good) return &o->model;
    sp_model_close(&o->model);
    return NULL;
}

void sp_model_close(sp_model *model) {
    if (!model) return;
    owner *o = (owner *)model;
    sp_gguf_close(o->gguf);
    sp_arena_deinit(&o->arena);
    free(o);
}
