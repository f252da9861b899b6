/* Scratch files, JSON edits and GGUF pieces. A helper that fails ends the test program: nothing after it would mean
 * anything. */
#include "model_files.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/model.h"
#include "util/json.h"

static void require(bool good, const char *what) {
    if (good) return;
    perror(what);
    abort();
}

void scratch_new(scratch *s) {
    const char *base = getenv("TMPDIR");
    snprintf(s->path, sizeof s->path, "%s/spill-test-XXXXXX", base && *base ? base : "/tmp");
    require(mkdtemp(s->path) != NULL, s->path);
}

void scratch_clear(scratch *s) {
    DIR *dir = opendir(s->path);
    require(dir != NULL, s->path);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') unlink(scratch_path(s, entry->d_name));
    closedir(dir);
}

void scratch_remove(scratch *s) {
    scratch_clear(s);
    rmdir(s->path);
}

const char *scratch_path(const scratch *s, const char *name) {
    static char paths[4][2 * SCRATCH_PATH_BYTES];
    static size_t next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", s->path, name);
    return path;
}

void scratch_write(const scratch *s, const char *name, const void *data, size_t n_bytes) {
    scratch_unlink(s, name);
    FILE *file = fopen(scratch_path(s, name), "wb");
    require(file != NULL, name);
    require(n_bytes == 0 || fwrite(data, 1, n_bytes, file) == n_bytes, name);
    require(fclose(file) == 0, name);
}

void scratch_write_json(const scratch *s, const char *name, const json_t *value) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    require(text != NULL, name);
    scratch_write(s, name, text, strlen(text));
    free(text);
}

void scratch_link_all(const scratch *s, const char *fixture) {
    char from[PATH_MAX];
    DIR *dir = opendir(fixture);
    require(dir != NULL, fixture);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char relative[PATH_MAX];
        snprintf(relative, sizeof relative, "%s/%s", fixture, entry->d_name);
        require(realpath(relative, from) != NULL, relative);
        require(symlink(from, scratch_path(s, entry->d_name)) == 0, from);
    }
    closedir(dir);
}

void scratch_unlink(const scratch *s, const char *name) { unlink(scratch_path(s, name)); }

void json_edit(json_t *object, const char *key, const char *value) {
    const char *dot = strchr(key, '.');
    char outer[64];
    if (dot) {
        snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
        object = json_object_get(object, outer);
        key = dot + 1;
    }
    if (!value) {
        json_object_del(object, key);
        return;
    }
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    require(parsed != NULL && json_object_set_new(object, key, parsed) == 0, key);
}

void expect_refused(const char *path, sp_error_code code, const char *want) {
    sp_error err = {0};
    sp_model *model = sp_model_open(path, &err);
    if (model || err.code != code || !strstr(err.text, want)) {
        print_error("opened %s: code %d, '%s'\nwant code %d, '%s'\n", model ? "well" : "not", (int)err.code, err.text,
                    (int)code, want);
        sp_model_close(model);
        fail();
    }
}

void put_u32(sp_buf *buf, uint32_t value) { require(sp_buf_add(buf, &value, sizeof value), "memory"); }
void put_u64(sp_buf *buf, uint64_t value) { require(sp_buf_add(buf, &value, sizeof value), "memory"); }
void put_f32(sp_buf *buf, float value) { require(sp_buf_add(buf, &value, sizeof value), "memory"); }

void put_text(sp_buf *buf, const char *text) {
    put_u64(buf, strlen(text));
    require(sp_buf_text(buf, text), "memory");
}

void put_key_u32(sp_buf *buf, const char *key, uint32_t value) {
    put_text(buf, key);
    put_u32(buf, SP_GGUF_U32);
    put_u32(buf, value);
}

void put_key_text(sp_buf *buf, const char *key, const char *value) {
    put_text(buf, key);
    put_u32(buf, SP_GGUF_TEXT);
    put_text(buf, value);
}

void safetensors_image(sp_buf *buf, const char *header, size_t n_data) {
    sp_buf_clear(buf);
    put_u64(buf, strlen(header));
    require(sp_buf_text(buf, header), "memory");
    for (size_t i = 0; i < n_data; i++) require(sp_buf_char(buf, 0), "memory");
}
