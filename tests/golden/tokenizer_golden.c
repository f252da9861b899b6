/* Real tokenizers against the reference, over the strings of tests/golden/tokenizer/strings.jsonl.
 *
 *   tokenizer_golden NAME          unpacks ../shared/tokenizers/NAME.tar.xz and compares with NAME.hashes
 *   tokenizer_golden --dump DIR    prints full ids and texts, in the form of tools/ref/golden_tokenizer.py dump
 *   tokenizer_golden --speed DIR FILE   bytes a second of encoding FILE, and the time to open
 *
 * Where a GGUF file of the model would carry the same vocabulary, such metadata is made of tokenizer.json, and the
 * tokenizer opened from it must give the same.
 *
 * NAME.hashes holds three XXH64 per string, little-endian: of the ids (int32, without special tokens, then -1, then
 * with them), of the decoded text, and of the text without special tokens. The texts are also decoded id by id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tokenizer/tokenizer.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/json.h"
#include "util/utf8.h"

typedef struct {
    sp_ids ids; /* plain, -1, full */
    size_t n_plain;
    sp_buf text, text_plain;
} answer;

static void fatal(const char *what, const sp_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

/* The text of one line: {"text": t}, or {"parts": [[t, times], ...]}. */
static void read_line(const json_t *line, sp_buf *text) {
    const json_t *whole = json_object_get(line, "text"), *parts = json_object_get(line, "parts");
    sp_buf_clear(text);
    sp_buf_reserve(text, 0);
    if (whole) sp_buf_add(text, json_string_value(whole), json_string_length(whole));
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(json_array_get(parts, i), 0);
        json_int_t times = json_integer_value(json_array_get(json_array_get(parts, i), 1));
        for (json_int_t k = 0; k < times; k++) sp_buf_add(text, json_string_value(part), json_string_length(part));
    }
}

/* Decodes id by id; true if the pieces are whole characters and add up to the same text. */
static bool streams_alike(const sp_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, const sp_buf *want) {
    sp_error err = {0};
    sp_buf got = {0}, piece = {0};
    sp_detok *d = sp_detok_new(t, skip_special, &err);
    if (!d) fatal("detok", &err);
    bool ok = true;
    for (size_t i = 0; i <= n; i++) {
        sp_buf_clear(&piece);
        ok = ok && (i < n ? sp_detok_push(d, ids[i], &piece) : sp_detok_finish(d, &piece));
        if (piece.n_bytes && sp_utf8_continues(piece.data[0])) ok = false;
        sp_buf_add(&got, piece.data, piece.n_bytes);
    }
    ok = ok && got.n_bytes == want->n_bytes && (got.n_bytes == 0 || memcmp(got.data, want->data, got.n_bytes) == 0);
    sp_detok_free(d);
    sp_buf_deinit(&got);
    sp_buf_deinit(&piece);
    return ok;
}

static void compute(const sp_tokenizer *t, const sp_buf *text, answer *a) {
    static const int32_t separator = -1;
    sp_error err = {0};
    sp_encode_options special = {.add_special = true};
    sp_ids full = {0};
    a->ids.n = 0;
    sp_buf_clear(&a->text);
    sp_buf_clear(&a->text_plain);
    if (!sp_tokenizer_encode(t, text->data, text->n_bytes, NULL, &a->ids, &err) ||
        !sp_tokenizer_encode(t, text->data, text->n_bytes, &special, &full, &err) ||
        !sp_tokenizer_decode(t, full.ids, full.n, false, &a->text, &err) ||
        !sp_tokenizer_decode(t, full.ids, full.n, true, &a->text_plain, &err))
        fatal("tokenizer", &err);
    a->n_plain = a->ids.n;
    size_t n = a->n_plain + 1 + full.n;
    if (a->ids.room < n) {
        a->ids.ids = realloc(a->ids.ids, n * sizeof *a->ids.ids);
        if (!a->ids.ids) exit(1);
        a->ids.room = n;
    }
    a->ids.ids[a->n_plain] = separator;
    if (full.n) memcpy(a->ids.ids + a->n_plain + 1, full.ids, full.n * sizeof *full.ids);
    a->ids.n = n;
    sp_ids_deinit(&full);
}

static void print_hex(const sp_buf *text) {
    for (size_t i = 0; i < text->n_bytes; i++) printf("%02x", (unsigned char)text->data[i]);
}

static void print_answer(size_t i_string, const answer *a) {
    printf("%zu:", i_string);
    for (size_t i = 0; i < a->ids.n; i++) {
        if (i == a->n_plain)
            printf(" |");
        else
            printf(" %d", a->ids.ids[i]);
    }
    printf(" | ");
    print_hex(&a->text);
    printf(" | ");
    print_hex(&a->text_plain);
    printf("\n");
}

/* Whether the answer's hashes are the three at `want`. */
static bool same(const answer *a, const unsigned char *want, const char **what) {
    static const char *const names[] = {"ids", "text", "text without special tokens"};
    const void *data[] = {a->ids.ids, a->text.data, a->text_plain.data};
    size_t n_bytes[] = {a->ids.n * sizeof *a->ids.ids, a->text.n_bytes, a->text_plain.n_bytes};
    for (int i = 0; i < 3; i++) {
        uint64_t hash = XXH64(n_bytes[i] ? data[i] : "", n_bytes[i], 0), wanted = 0;
        for (int k = 7; k >= 0; k--) wanted = wanted << 8 | want[8 * i + k];
        *what = names[i];
        if (hash != wanted) return false;
    }
    return true;
}

/* Goes through the strings; compares with hashes, or prints when there are none. Returns the failures. */
static size_t run(const sp_tokenizer *t, const sp_buf *hashes) {
    sp_error err = {0};
    sp_buf strings = {0}, text = {0};
    answer a = {0};
    if (!sp_file_read("tests/golden/tokenizer/strings.jsonl", 64 << 20, &strings, &err)) fatal("strings", &err);
    size_t n = 0, n_failed = 0;
    for (char *at = strings.data, *end; (end = strchr(at, '\n')); at = end + 1, n++) {
        json_t *line = sp_json_parse(at, (size_t)(end - at), "strings.jsonl", &err);
        if (!line) fatal("strings", &err);
        read_line(line, &text);
        json_decref(line);
        compute(t, &text, &a);
        if (!hashes) {
            print_answer(n, &a);
            continue;
        }
        const char *what = "number of hashes";
        bool ok = 24 * (n + 1) <= hashes->n_bytes && same(&a, (const unsigned char *)hashes->data + 24 * n, &what);
        const int32_t *full = a.ids.ids + a.n_plain + 1;
        if (ok && !(streams_alike(t, full, a.ids.n - a.n_plain - 1, false, &a.text) &&
                    streams_alike(t, full, a.ids.n - a.n_plain - 1, true, &a.text_plain))) {
            ok = false;
            what = "streamed text";
        }
        if (!ok) printf("string %zu: %s differ\n", n, what);
        n_failed += !ok;
    }
    if (hashes) printf("%zu passed, %zu failed\n", n - n_failed, n_failed);
    if (hashes && hashes->n_bytes != 24 * n) n_failed++;
    sp_ids_deinit(&a.ids);
    sp_buf_deinit(&a.text);
    sp_buf_deinit(&a.text_plain);
    sp_buf_deinit(&strings);
    sp_buf_deinit(&text);
    return n_failed;
}

/* ---- the same vocabulary as GGUF metadata ---- */

static const struct gguf_form {
    const char *name, *model, *pre, *bos;
    int add_bos;
} gguf_forms[] = {
    {"llama2", "llama", NULL, "<s>", -1},
    {"llama3_1", "gpt2", "llama-bpe", "<|begin_of_text|>", -1},
    {"qwen2_5", "gpt2", "qwen2", NULL, 0},
    {"mistral_nemo", "gpt2", "tekken", "<s>", 1},
    {"deepseek_v3", "gpt2", "deepseek-v3", NULL, 0},
};

static void *checked_calloc(size_t n, size_t bytes) {
    void *memory = calloc(n + 1, bytes);
    if (!memory) exit(1);
    return memory;
}

/* Opens `root`, a tokenizer.json, by way of arrays as a GGUF reader fills them. A token's score is the
 * place of its first merge, from the top. */
static sp_tokenizer *open_as_gguf(const json_t *root, const struct gguf_form *form) {
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *value;
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    const json_t *added = json_object_get(root, "added_tokens");
    size_t n_max = json_object_size(vocab) + json_array_size(added), n_merges = json_array_size(merges);
    sp_string *tokens = checked_calloc(n_max, sizeof *tokens), *pairs = checked_calloc(n_merges, sizeof *pairs);
    int32_t *types = checked_calloc(n_max, sizeof *types);
    float *scores = checked_calloc(n_max, sizeof *scores);
    sp_tokenizer_gguf src = {.model = form->model,
                             .pre = form->pre,
                             .tokens = tokens,
                             .types = types,
                             .scores = scores,
                             .merges = pairs,
                             .n_merges = n_merges,
                             .bos_id = -1,
                             .eos_id = -1,
                             .unk_id = -1,
                             .add_bos = form->add_bos,
                             .add_eos = -1,
                             .add_space_prefix = -1};
    const char *key;
    json_object_foreach((json_t *)vocab, key, value) {
        size_t id = (size_t)json_integer_value(value), n = strlen(key);
        tokens[id] = (sp_string){key, n};
        types[id] = n == 6 && memcmp(key, "<0x", 3) == 0 ? 6 : 1;
        scores[id] = -1e9f;
        if (id >= src.n_tokens) src.n_tokens = id + 1;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content");
        size_t id = (size_t)json_integer_value(json_object_get(token, "id"));
        tokens[id] = (sp_string){json_string_value(content), json_string_length(content)};
        types[id] = json_is_true(json_object_get(token, "special")) ? 3 : 4;
        if (id >= src.n_tokens) src.n_tokens = id + 1;
        if (form->bos && strcmp(json_string_value(content), form->bos) == 0) src.bos_id = (int64_t)id;
    }
    for (size_t i = n_merges; i-- > 0;) {
        const json_t *merge = json_array_get(merges, i);
        char joined[256] = "";
        pairs[i] = (sp_string){json_string_value(merge), json_string_length(merge)};
        const char *space = strchr(pairs[i].text, ' ');
        if (!space || pairs[i].n_bytes >= sizeof joined) continue;
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - pairs[i].text), pairs[i].text, space + 1);
        scores[json_integer_value(json_object_get(vocab, joined))] = -(float)i;
    }
    sp_error err = {0};
    sp_tokenizer *t = sp_tokenizer_open_gguf(&src, &err);
    if (!t) fatal("open as GGUF", &err);
    free(tokens);
    free(pairs);
    free(types);
    free(scores);
    return t;
}

static size_t run_as_gguf(const char *name, const char *dir, const sp_buf *hashes) {
    size_t n_failed = 0;
    for (size_t i = 0; i < sizeof gguf_forms / sizeof gguf_forms[0]; i++) {
        char path[700];
        sp_error err = {0};
        if (strcmp(gguf_forms[i].name, name) != 0) continue;
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        json_t *root = sp_json_load(path, 64 << 20, &err);
        if (!root) fatal("tokenizer.json", &err);
        sp_tokenizer *t = open_as_gguf(root, &gguf_forms[i]);
        json_decref(root);
        n_failed += run(t, hashes);
        sp_tokenizer_free(t);
    }
    return n_failed;
}

static size_t run_dir(const char *dir, const sp_buf *hashes) {
    sp_error err = {0};
    sp_tokenizer *t = sp_tokenizer_open_hf(dir, &err);
    if (!t) fatal("open", &err);
    size_t n_failed = run(t, hashes);
    sp_tokenizer_free(t);
    return n_failed;
}

static int compare_archive(const char *name) {
    char archive[512], command[4096], dir[600], path[512], root[] = "/tmp/spill-tokenizer-XXXXXX";
    sp_buf hashes = {0};
    sp_error err = {0};
    snprintf(archive, sizeof archive, "../shared/tokenizers/%s.tar.xz", name);
    snprintf(path, sizeof path, "tests/golden/tokenizer/%s.hashes", name);
    if (access(archive, R_OK) != 0) {
        printf("skipped: %s is not there\n", archive);
        return 77;
    }
    if (!sp_file_read(path, 1 << 20, &hashes, &err)) fatal("hashes", &err);
    if (!mkdtemp(root)) return 1;
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    snprintf(command, sizeof command, "tar -xJf '%s' -C '%s'", archive, root);
    size_t n_failed = system(command) == 0 ? run_dir(dir, &hashes) + run_as_gguf(name, dir, &hashes) : 1;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0) n_failed++;
    sp_buf_deinit(&hashes);
    return n_failed != 0;
}

static int measure(const char *dir, const char *path) {
    sp_error err = {0};
    sp_buf text = {0};
    sp_ids ids = {0};
    uint64_t begin_ns = sp_clock_ns();
    sp_tokenizer *t = sp_tokenizer_open_hf(dir, &err);
    if (!t || !sp_file_read(path, 1 << 30, &text, &err)) fatal("speed", &err);
    uint64_t open_ns = sp_clock_ns();
    if (!sp_tokenizer_encode(t, text.data, text.n_bytes, NULL, &ids, &err)) fatal("speed", &err);
    uint64_t end_ns = sp_clock_ns();
    printf("open %.3f s, %zu bytes, %zu ids, %.1f MB/s\n", (double)(open_ns - begin_ns) * 1e-9, text.n_bytes, ids.n,
           (double)text.n_bytes * 1e3 / (double)(end_ns - open_ns));
    sp_ids_deinit(&ids);
    sp_buf_deinit(&text);
    sp_tokenizer_free(t);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--dump") == 0) return run_dir(argv[2], NULL) != 0;
    if (argc == 4 && strcmp(argv[1], "--speed") == 0) return measure(argv[2], argv[3]);
    if (argc == 2) return compare_archive(argv[1]);
    fprintf(stderr, "usage: tokenizer_golden NAME | --dump DIR | --speed DIR FILE\n");
    return 2;
}
