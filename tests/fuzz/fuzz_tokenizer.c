/* Any bytes as a tokenizer.json, or, when they do not begin with '{', as GGUF metadata: a line of settings, then a
 * token or a merge per line. What opens encodes a fixed text and the input itself; decoding whole and id by id must
 * agree, and the ids must be ids of the vocabulary. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MAX_TEXT_BYTES = 4096, MAX_LINES = 256 };

static void require(bool condition) {
    if (!condition) abort();
}

static void check_decode(const sp_tokenizer *t, const sp_ids *ids, bool skip_special) {
    sp_error err = {0};
    sp_buf whole = {0}, streamed = {0};
    require(sp_tokenizer_decode(t, ids->ids, ids->n, skip_special, &whole, &err));
    sp_detok *d = sp_detok_new(t, skip_special, &err);
    require(d != NULL);
    for (size_t i = 0; i < ids->n; i++) require(sp_detok_push(d, ids->ids[i], &streamed));
    require(sp_detok_finish(d, &streamed));
    require(whole.n_bytes == streamed.n_bytes);
    require(whole.n_bytes == 0 || memcmp(whole.data, streamed.data, whole.n_bytes) == 0);
    sp_detok_free(d);
    sp_buf_deinit(&whole);
    sp_buf_deinit(&streamed);
}

static void check_text(const sp_tokenizer *t, const char *text, size_t n_bytes) {
    sp_encode_options options = {.add_special = true, .plain_text = n_bytes & 1};
    sp_span_bytes ranges[2] = {{n_bytes / 4, n_bytes / 2}, {n_bytes / 2, n_bytes - n_bytes / 8}};
    sp_ids ids = {0};
    sp_error err = {0};
    if (sp_tokenizer_encode_ranges(t, text, n_bytes, &options, ranges, 2, &ids, &err) &&
        sp_tokenizer_encode(t, text, n_bytes, NULL, &ids, &err)) {
        const char *bytes;
        size_t n_token_bytes;
        for (size_t i = 0; i < ids.n; i++) {
            sp_tokenizer_is_special(t, ids.ids[i]);
            if (sp_tokenizer_token_bytes(t, ids.ids[i], &bytes, &n_token_bytes)) require(bytes != NULL);
        }
        check_decode(t, &ids, false);
        check_decode(t, &ids, true);
    } else {
        require(err.code != SP_OK && err.text[0] && !strchr(err.text, '\n'));
    }
    sp_ids_deinit(&ids);
}

static void check_tokenizer(const sp_tokenizer *t, const uint8_t *data, size_t n_bytes) {
    static const char fixed[] =
        "Hello, w\xc3\xb6rld! <s>  x</s>\n\n\t12345 I'm it's\r\n e\xcc\x81\xcc\xa3 \xe6\xbc\xa2\xe5\xad\x97 "
        "\xf0\x9f\x91\x8d\xe2\x96\x81 \xe1\xa0\x8e aaaaaaaaaaaaaaaa        ab abab";
    check_text(t, fixed, sizeof fixed - 1);
    if (n_bytes > MAX_TEXT_BYTES) n_bytes = MAX_TEXT_BYTES;
    char *text = malloc(n_bytes + 1); /* its own block, so that a sanitizer sees a read past the end */
    require(text != NULL);
    for (size_t i = 0; i < n_bytes; i++) text[i] = (char)(data[i] & 0x7f);
    check_text(t, text, n_bytes);
    memcpy(text, data, n_bytes);
    check_text(t, text, n_bytes);
    free(text);
}

static sp_tokenizer *open_gguf(const uint8_t *data, size_t n_bytes) {
    static const char *const pres[] = {NULL,     "llama-bpe",   "qwen2",   "smollm",
                                       "tekken", "deepseek-v3", "default", "gpt-4o"};
    sp_string tokens[MAX_LINES], merges[MAX_LINES];
    float scores[MAX_LINES];
    int32_t types[MAX_LINES];
    size_t n_tokens = 0, n_merges = 0;
    if (n_bytes < 3) return NULL;
    for (size_t at = 3; at < n_bytes && n_tokens < MAX_LINES && n_merges < MAX_LINES;) {
        const char *line = (const char *)data + at;
        const char *end = memchr(line, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - line) : n_bytes - at;
        if (n && line[0] == '+') {
            merges[n_merges++] = (sp_string){line + 1, n - 1};
        } else {
            types[n_tokens] = n ? line[0] & 7 : 1;
            scores[n_tokens] = n ? -(float)(line[0] >> 3) : 0;
            tokens[n_tokens++] = (sp_string){n ? line + 1 : line, n ? n - 1 : 0};
        }
        at += n + 1;
    }
    sp_tokenizer_gguf src = {.model = data[0] & 1 ? "llama" : "gpt2",
                             .pre = pres[data[0] >> 1 & 7],
                             .tokens = tokens,
                             .n_tokens = n_tokens,
                             .scores = scores,
                             .types = data[0] & 16 ? types : NULL,
                             .merges = merges,
                             .n_merges = n_merges,
                             .bos_id = data[1] % 8 - 1,
                             .eos_id = data[2] % 8 - 1,
                             .unk_id = data[1] / 8 % 8 - 1,
                             .add_bos = data[2] / 8 % 3 - 1,
                             .add_eos = data[2] / 32 % 3 - 1,
                             .add_space_prefix = data[1] / 64 % 3 - 1};
    sp_error err = {0};
    sp_tokenizer *t = sp_tokenizer_open_gguf(&src, &err);
    require(t || (err.code != SP_OK && err.text[0]));
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    sp_error err = {0};
    sp_tokenizer *t = NULL;
    if (n_bytes == 0 || data[0] != '{') {
        t = open_gguf(data, n_bytes);
    } else {
        /* A second object behind the first, on a line of its own, is the configuration. */
        const uint8_t *cut = n_bytes > 2 ? memmem(data, n_bytes, "\n{", 2) : NULL;
        size_t n_first = cut ? (size_t)(cut - data) : n_bytes;
        sp_string config = {(const char *)data + n_first, n_bytes - n_first};
        t = sp_tokenizer_open_json((sp_string){(const char *)data, n_first}, cut ? &config : NULL, "fuzz", &err);
        require(t || (err.code != SP_OK && err.text[0] && !strchr(err.text, '\n')));
    }
    if (t) check_tokenizer(t, data, n_bytes);
    sp_tokenizer_free(t);
    return 0;
}
