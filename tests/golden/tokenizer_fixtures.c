/* Small tokenizers that use every component, with the reference's full ids and texts: tests/fixtures/tokenizer/NAME
 * holds tokenizer.json, perhaps tokenizer_config.json, and golden.jsonl. Every text is also decoded id by id. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "util/file.h"
#include "util/json.h"
#include "util/utf8.h"

static const char root[] = "tests/fixtures/tokenizer";

static bool same_ids(const sp_ids *ids, const json_t *want) {
    if (ids->n != json_array_size(want)) return false;
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] != json_integer_value(json_array_get(want, i))) return false;
    return true;
}

static bool same_text(const sp_buf *text, const json_t *want) {
    return text->n_bytes == json_string_length(want) &&
           (text->n_bytes == 0 || memcmp(text->data, json_string_value(want), text->n_bytes) == 0);
}

static void print_ids(const sp_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) printf(" %d", ids->ids[i]);
    printf("\n");
}

static bool stream(const sp_tokenizer *t, const sp_ids *ids, bool skip_special, sp_buf *text) {
    sp_error err = {0};
    sp_detok *d = sp_detok_new(t, skip_special, &err);
    bool ok = d != NULL;
    sp_buf_clear(text);
    for (size_t i = 0; ok && i < ids->n; i++) {
        size_t n_before = text->n_bytes;
        ok = sp_detok_push(d, ids->ids[i], text);
        if (text->n_bytes > n_before && sp_utf8_continues(text->data[n_before])) ok = false;
    }
    ok = ok && sp_detok_finish(d, text);
    sp_detok_free(d);
    return ok;
}

/* What differs in one line, or NULL. */
static const char *check_line(const sp_tokenizer *t, const json_t *line, sp_ids *ids, sp_buf *text) {
    sp_error err = {0};
    sp_encode_options special = {.add_special = true};
    const json_t *in = json_object_get(line, "text"), *plain_ids = json_object_get(line, "ids");
    const json_t *full_ids = json_object_get(line, "full");
    ids->n = 0;
    if (!sp_tokenizer_encode(t, json_string_value(in), json_string_length(in), NULL, ids, &err)) return "error";
    if (!same_ids(ids, plain_ids)) return "ids";
    ids->n = 0;
    if (!sp_tokenizer_encode(t, json_string_value(in), json_string_length(in), &special, ids, &err)) return "error";
    if (!same_ids(ids, full_ids ? full_ids : plain_ids)) return "ids with special tokens";
    for (int skip = 0; skip < 2; skip++) {
        const json_t *want = json_object_get(line, skip ? "plain" : "decoded");
        sp_buf_clear(text);
        if (!sp_tokenizer_decode(t, ids->ids, ids->n, skip, text, &err)) return "error";
        if (!same_text(text, want)) return skip ? "text without special tokens" : "text";
        if (!stream(t, ids, skip, text) || !same_text(text, want)) return "streamed text";
    }
    return NULL;
}

static size_t check_dir(const char *name, size_t *n_passed) {
    char dir[600], path[700];
    sp_error err = {0};
    sp_buf golden = {0}, text = {0};
    sp_ids ids = {0};
    size_t n_failed = 0, n = 0;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    snprintf(path, sizeof path, "%s/golden.jsonl", dir);
    sp_tokenizer *t = sp_tokenizer_open_hf(dir, &err);
    if (!t || !sp_file_read(path, 4 << 20, &golden, &err)) {
        printf("%s: %s\n", name, err.text);
        sp_tokenizer_free(t);
        return 1;
    }
    for (char *at = golden.data, *end; at && (end = strchr(at, '\n')); at = end + 1, n++) {
        json_t *line = sp_json_parse(at, (size_t)(end - at), path, &err);
        const char *what = line ? check_line(t, line, &ids, &text) : err.text;
        if (what) {
            n_failed++;
            printf("%s, line %zu: %s differ; ids:", name, n + 1, what);
            print_ids(&ids);
        }
        json_decref(line);
    }
    *n_passed += n - n_failed;
    sp_buf_deinit(&golden);
    sp_buf_deinit(&text);
    sp_ids_deinit(&ids);
    sp_tokenizer_free(t);
    return n ? n_failed : 1;
}

int main(void) {
    size_t n_passed = 0, n_failed = 0;
    DIR *dir = opendir(root);
    if (!dir) {
        fprintf(stderr, "%s: not there\n", root);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') n_failed += check_dir(entry->d_name, &n_passed);
    closedir(dir);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0 || n_passed == 0;
}
