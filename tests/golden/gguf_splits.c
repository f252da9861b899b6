/* How GGUF files of some names split text, against the `tokenizers` library with the models' own pre-tokenizers
 * (tools/ref/golden_splits.py). The merges reach over every kind of character, so that each split shows in the ids. */
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/tokenizer.h"
#include "util/json.h"

static sp_string *strings_of(const json_t *list) {
    sp_string *strings = calloc(json_array_size(list), sizeof *strings);
    SP_CHECK(strings != NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        strings[i] = (sp_string){json_string_value(text), json_string_length(text)};
    }
    return strings;
}

static bool is_same(const sp_tokenizer *tokenizer, const json_t *text, const json_t *want) {
    sp_error err = {0};
    sp_ids ids = {0};
    bool same = sp_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), NULL, &ids, &err) &&
                ids.n == json_array_size(want);
    for (size_t i = 0; same && i < ids.n; i++) same = ids.ids[i] == json_integer_value(json_array_get(want, i));
    char shown[300];
    if (!same) printf("%s\n", sp_json_shown(text, shown, sizeof shown));
    sp_ids_deinit(&ids);
    return same;
}

int main(void) {
    static const char *const names[] = {"falcon", "deepseek-llm"};
    sp_error err = {0};
    json_t *golden = sp_json_load("tests/golden/tokenizer/splits.json", 1 << 20, &err);
    if (!golden) {
        printf("%s\n", err.text);
        return 1;
    }
    const json_t *tokens = json_object_get(golden, "tokens"), *merges = json_object_get(golden, "merges");
    sp_tokenizer_gguf src = {.model = "gpt2",
                             .tokens = strings_of(tokens),
                             .n_tokens = json_array_size(tokens),
                             .merges = strings_of(merges),
                             .n_merges = json_array_size(merges),
                             .bos_id = -1,
                             .eos_id = -1,
                             .unk_id = -1,
                             .add_bos = -1,
                             .add_eos = -1,
                             .add_space_prefix = -1};
    size_t n_passed = 0, n_failed = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        src.pre = names[i];
        sp_tokenizer *tokenizer = sp_tokenizer_open_gguf(&src, &err);
        if (!tokenizer) printf("%s\n", err.text);
        size_t k;
        const json_t *row;
        json_array_foreach(json_object_get(golden, names[i]), k, row) {
            bool good = tokenizer && is_same(tokenizer, json_array_get(row, 0), json_array_get(row, 1));
            n_passed += good;
            n_failed += !good;
        }
        sp_tokenizer_free(tokenizer);
    }
    free((void *)src.tokens);
    free((void *)src.merges);
    json_decref(golden);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed != 0 || n_passed == 0;
}
