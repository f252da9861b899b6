/* Weights of a directory: one file, or shards with an index. The index, the headers and the directory have to say the
 * same: a shard that is missing, that nobody names or that is of another version of the model is found here, by name.
 */
#include "model/checkpoint.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "model/safetensors.h"
#include "util/json.h"

/* An index of 6 MB is 60,000 tensors; as a JSON tree the worst text of that size takes under 500 MB. */
enum { FILES_MAX = 4096, INDEX_MAX_BYTES = 6 << 20 };

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

typedef struct {
    const char *directory;
    sp_arena *arena;
    const char *names[FILES_MAX]; /* *.safetensors in the directory, sorted */
    size_t n_names;
    bool has_index;
    bool has_pickle;  /* pytorch_model*.bin */
    bool has_adapter; /* adapter_config.json */
    sp_error *err;
} listing;

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static const char *join(sp_arena *arena, const char *directory, const char *name) {
    return sp_arena_printf(arena, "%s%s%s", directory, ends_with(directory, "/") ? "" : "/", name);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* consolidated*.safetensors are the same weights in another layout, which some publishers put beside the shards. */
static bool list_directory(listing *list) {
    DIR *dir = opendir(list->directory);
    if (!dir) return sp_fail_open(list->err, list->directory);
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        list->has_index |= strcmp(name, index_name) == 0;
        list->has_pickle |= starts_with(name, "pytorch_model") && ends_with(name, ".bin");
        list->has_adapter |= strcmp(name, "adapter_config.json") == 0;
        if (name[0] == '.' || !ends_with(name, ".safetensors") || starts_with(name, "consolidated")) continue;
        if (list->n_names == FILES_MAX)
            good = sp_fail(list->err, SP_ERR_INPUT, "%s: more than %d *.safetensors", list->directory, FILES_MAX);
        else
            list->names[list->n_names++] = sp_arena_text(list->arena, name, strlen(name));
    }
    closedir(dir);
    qsort(list->names, list->n_names, sizeof *list->names, by_name);
    return good;
}

/* Position of a name in the listing, or n_names. */
static size_t find_name(const listing *list, const char *name) {
    const char *const *hit = bsearch(&name, list->names, list->n_names, sizeof *list->names, by_name);
    return hit ? (size_t)(hit - list->names) : list->n_names;
}

/* Every file that the index names is there, and every file that is there is named. */
static bool check_names(const listing *list, const char *index_path, const json_t *map) {
    bool *named = calloc(list->n_names + 1, sizeof *named);
    if (!named) return sp_fail(list->err, SP_ERR_MEMORY, "%s: no memory", index_path);
    const char *tensor;
    json_t *value;
    bool good = true;
    json_object_foreach((json_t *)map, tensor, value) {
        const char *name = json_string_value(value);
        char shown[80];
        if (!name || !ends_with(name, ".safetensors") || strchr(name, '/')) {
            good = sp_fail(list->err, SP_ERR_INPUT,
                           "%s: weight_map of '%s' is '%s', want the name of a *.safetensors file", index_path, tensor,
                           name ? sp_printable(name, strlen(name), shown, sizeof shown) : "no string");
            break;
        }
        size_t i = find_name(list, name);
        if (i == list->n_names) {
            good = sp_fail(list->err, SP_ERR_INPUT, "%s: shard '%s' is missing (tensor '%s' is in it)", index_path,
                           sp_printable(name, strlen(name), shown, sizeof shown), tensor);
            break;
        }
        named[i] = true;
    }
    for (size_t i = 0; good && i < list->n_names; i++)
        if (!named[i])
            good = sp_fail(list->err, SP_ERR_INPUT,
                           "%s: '%s' lies beside the shards but is not named: remove it or mend the index", index_path,
                           list->names[i]);
    free(named);
    return good;
}

/* Every tensor of the index is in the shard that it says, and every tensor of a shard is in the index. */
static bool check_places(const listing *list, const char *index_path, const json_t *map, const sp_tensor_set *set) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value) {
        const sp_tensor *t = sp_tensor_set_find(set, name);
        if (!t)
            return sp_fail(list->err, SP_ERR_INPUT, "%s: tensor '%s' is not in '%s': the shard is stale", index_path,
                           name, json_string_value(value));
        if (strcmp(list->names[t->i_file], json_string_value(value)) != 0)
            return sp_fail(list->err, SP_ERR_INPUT, "%s: tensor '%s' is in '%s', want '%s'", index_path, name,
                           list->names[t->i_file], json_string_value(value));
    }
    for (size_t i = 0; i < set->n; i++)
        if (!json_object_get(map, set->items[i].name))
            return sp_fail(list->err, SP_ERR_INPUT, "%s: tensor '%s' of '%s' is not in the index: the shard is stale",
                           index_path, set->items[i].name, list->names[set->items[i].i_file]);
    return true;
}

static bool read_headers(const listing *list, sp_tensor_set *set, sp_model_file *files) {
    for (size_t i = 0; i < list->n_names; i++) {
        sp_file file;
        if (!sp_file_open(&file, join(list->arena, list->directory, list->names[i]), list->err)) return false;
        files[i] =
            (sp_model_file){.path = file.path, .n_bytes = file.n_bytes, .inode = file.inode, .mtime_ns = file.mtime_ns};
        bool good = sp_safetensors_read(&file, (uint32_t)i, list->arena, set, list->err);
        sp_file_close(&file);
        if (!good) return false;
    }
    return true;
}

/* Without an index there must be model.safetensors and nothing else. */
static bool check_single(const listing *list) {
    const char *dir = list->directory;
    if (list->n_names == 1 && strcmp(list->names[0], single_name) == 0) return true;
    if (list->n_names == 0 && list->has_adapter)
        return sp_fail(list->err, SP_ERR_SUPPORT, "%s: an adapter, not a model; give MODEL+ADAPTER", dir);
    if (list->n_names == 0 && list->has_pickle)
        return sp_fail(list->err, SP_ERR_SUPPORT,
                       "%s: only pytorch_model*.bin weights, which are not supported; want *.safetensors", dir);
    if (list->n_names == 0)
        return sp_fail(list->err, SP_ERR_INPUT, "%s: no %s and no %s", dir, single_name, index_name);
    if (find_name(list, single_name) == list->n_names)
        return sp_fail(list->err, SP_ERR_INPUT, "%s: '%s' without %s", dir, list->names[0], index_name);
    const char *stray = list->names[strcmp(list->names[0], single_name) == 0 ? 1 : 0];
    return sp_fail(list->err, SP_ERR_INPUT, "%s: '%s' lies beside %s: remove it", dir, stray, single_name);
}

/* The weight_map of the index, and the index that owns it; NULL with an error. */
static const json_t *read_index(const listing *list, const char *path, json_t **index) {
    *index = sp_json_load(path, INDEX_MAX_BYTES, list->err);
    const json_t *map = json_object_get(*index, "weight_map");
    if (!*index) return NULL;
    if (json_is_object(map) && json_object_size(map) > 0) return check_names(list, path, map) ? map : NULL;
    sp_fail(list->err, SP_ERR_INPUT, "%s: want an object weight_map of tensor names", path);
    return NULL;
}

bool sp_checkpoint_read(const char *directory, sp_arena *arena, sp_tensor_set *set, const sp_model_file **files,
                        size_t *n_files, sp_error *err) {
    listing *list = SP_ARENA_NEW(arena, listing);
    *list = (listing){.directory = directory, .arena = arena, .err = err};
    if (!list_directory(list)) return false;
    const char *index_path = join(arena, directory, index_name);
    json_t *index = NULL;
    const json_t *map = list->has_index ? read_index(list, index_path, &index) : NULL;
    bool good = list->has_index ? map != NULL : check_single(list);
    if (good) {
        sp_model_file *opened = SP_ARENA_ARRAY(arena, sp_model_file, list->n_names);
        *files = opened;
        *n_files = list->n_names;
        good = read_headers(list, set, opened) && (!map || check_places(list, index_path, map, set));
    }
    json_decref(index);
    return good;
}
