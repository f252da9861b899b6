/* Tokenizers made from the metadata of GGUF fixtures against llama.cpp's: tests/golden/families/gguf_tokens.json, one
 * file for each tokenizer.ggml.pre and for the SentencePiece kind, control tokens parsed and none added. */
#include <stdio.h>
#include <string.h>

#include "jobs/gguf_text.h"
#include "model/model.h"
#include "util/json.h"

static bool same_ids(const sp_ids *ids, const json_t *want) {
    bool same = ids->n == json_array_size(want);
    for (size_t i = 0; same && i < ids->n; i++) same = ids->ids[i] == json_integer_value(json_array_get(want, i));
    return same;
}

/* Qwen2's own tokenizer normalizes (NFC), as we do; llama.cpp does not, so it says nothing of texts with loose accents.
 */
static bool is_normalized(const json_t *file, const json_t *text) {
    return strcmp(json_string_value(json_object_get(file, "pre")), "qwen2") == 0 &&
           strstr(json_string_value(text), "\xcc\x81"); /* U+0301 */
}

/* Failures of one file. */
static size_t check_file(const char *name, const json_t *file, size_t *n_passed) {
    const json_t *texts = json_object_get(file, "texts");
    char path[300];
    snprintf(path, sizeof path, "tests/fixtures/gguf/%s.gguf", name);
    sp_error err = {0};
    sp_ids ids = {0};
    sp_model *model = sp_model_open(path, &err);
    sp_tokenizer *tokenizer = model ? sp_gguf_text_tokenizer(model->gguf, &err) : NULL;
    size_t n_failed = tokenizer ? 0 : 1;
    if (!tokenizer) printf("%s: %s\n", path, err.text);
    for (size_t i = 0; tokenizer && i < json_array_size(texts); i++) {
        const json_t *row = json_array_get(texts, i), *text = json_array_get(row, 0);
        if (is_normalized(file, text)) continue;
        ids.n = 0;
        bool good =
            sp_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), NULL, &ids, &err) &&
            same_ids(&ids, json_array_get(row, 1));
        n_failed += !good;
        *n_passed += good;
        if (good) continue;
        char shown[200];
        printf("%s: text %zu %s:", name, i, sp_json_shown(text, shown, sizeof shown));
        for (size_t k = 0; k < ids.n; k++) printf(" %d", (int)ids.ids[k]);
        printf("\n");
    }
    sp_ids_deinit(&ids);
    sp_tokenizer_free(tokenizer);
    sp_model_close(model);
    return n_failed;
}

int main(void) {
    sp_error err = {0};
    json_t *golden = sp_json_load("tests/golden/families/gguf_tokens.json", 1 << 20, &err);
    if (!golden) {
        printf("%s\n", err.text);
        return 1;
    }
    size_t n_passed = 0, n_failed = 0;
    const char *name;
    json_t *file;
    json_object_foreach(golden, name, file) {
        if (json_object_get(file, "pre")) n_failed += check_file(name, file, &n_passed);
    }
    json_decref(golden);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0 || n_passed == 0;
}
