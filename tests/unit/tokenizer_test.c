/* The tokenizer's contracts that no reference states: plain text, ranges, streaming, single tokens, bounds, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/tokenizer.h"
#include "util/clock.h"

#define FIXTURE(name) "tests/fixtures/tokenizer/" name
#define MINIMAL_MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static sp_tokenizer *open_dir(const char *dir) {
    sp_error err = {0};
    sp_tokenizer *t = sp_tokenizer_open_hf(dir, &err);
    if (!t) fail_msg("%s", err.text);
    return t;
}

static sp_tokenizer *open_text(const char *json, sp_error *err) {
    return sp_tokenizer_open_json((sp_string){json, strlen(json)}, NULL, "test", err);
}

static sp_ids encode(const sp_tokenizer *t, const char *text, const sp_encode_options *options) {
    sp_error err = {0};
    sp_ids ids = {0};
    if (!sp_tokenizer_encode(t, text, strlen(text), options, &ids, &err)) fail_msg("%s", err.text);
    return ids;
}

static size_t count_of(const sp_ids *ids, int32_t id) {
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += ids->ids[i] == id;
    return n;
}

static int32_t find(const sp_tokenizer *t, const char *text) { return sp_tokenizer_find(t, text, strlen(text)); }

/* The text without special tokens is that of the ids that are not skipped, in every fixture. */
static void skipped_ids_are_those_without_text(void **state) {
    (void)state;
    static const char *const dirs[] = {FIXTURE("llama"),       FIXTURE("gpt2"),   FIXTURE("gemma"),
                                       FIXTURE("same-result"), FIXTURE("digits"), "models/fields"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        sp_tokenizer *t = open_dir(dirs[i]);
        sp_error err = {0};
        int32_t n_ids = (int32_t)sp_tokenizer_n_vocab(t);
        for (int32_t id = -1; id <= n_ids; id++) {
            sp_buf with = {0}, without = {0};
            assert_true(sp_tokenizer_decode(t, &id, 1, false, &with, &err));
            assert_true(sp_tokenizer_decode(t, &id, 1, true, &without, &err));
            bool is_skipped = sp_tokenizer_is_skipped(t, id);
            if (without.n_bytes != (is_skipped ? 0 : with.n_bytes)) fail_msg("%s: id %d", dirs[i], (int)id);
            assert_true(!is_skipped || sp_tokenizer_is_special(t, id));
            sp_buf_deinit(&with);
            sp_buf_deinit(&without);
        }
        sp_tokenizer_free(t);
    }
}

static void plain_text_leaves_special_tokens_as_text(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("llama"));
    int32_t user = find(t, "<|user|>");
    sp_ids with = encode(t, "x<|user|>  y", NULL);
    sp_ids without = encode(t, "x<|user|>  y", &(sp_encode_options){.plain_text = true});
    sp_buf text = {0};
    sp_error err = {0};
    assert_int_equal(count_of(&with, user), 1);
    assert_int_equal(count_of(&without, user), 0);
    assert_true(sp_tokenizer_decode(t, without.ids, without.n, true, &text, &err));
    assert_string_equal(text.data, "x<|user|>  y");
    sp_ids_deinit(&with);
    sp_ids_deinit(&without);
    sp_buf_deinit(&text);
    sp_tokenizer_free(t);
}

static void plain_text_still_takes_tokens_that_are_not_special(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("llama"));
    sp_ids ids = encode(t, "x <norm>", &(sp_encode_options){.plain_text = true});
    assert_int_equal(count_of(&ids, find(t, "<norm>")), 1);
    sp_ids_deinit(&ids);
    sp_tokenizer_free(t);
}

/* Counts a special token in text whose bytes [begin, end) a user wrote. */
static size_t count_with_range(const sp_tokenizer *t, const char *text, size_t begin, size_t end, const char *token) {
    sp_error err = {0};
    sp_ids ids = {0};
    sp_span_bytes range = {begin, end};
    assert_true(sp_tokenizer_encode_ranges(t, text, strlen(text), NULL, &range, 1, &ids, &err));
    size_t n = count_of(&ids, find(t, token));
    sp_ids_deinit(&ids);
    return n;
}

static void ranges_are_plain_text_and_their_surroundings_are_not(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("llama"));
    const char *text = "<|user|>a<|user|>b<|user|>"; /* at 0, 9, 18 */
    assert_int_equal(count_with_range(t, text, 8, 18, "<|user|>"), 2);
    assert_int_equal(count_with_range(t, text, 0, 26, "<|user|>"), 0);
    assert_int_equal(count_with_range(t, text, 25, 26, "<|user|>"), 2); /* touched by one byte */
    assert_int_equal(count_with_range(t, text, 12, 12, "<|user|>"), 3); /* empty */
    assert_int_equal(count_with_range(t, "<|user|<|user|>", 0, 7, "<|user|>"), 1);
    sp_tokenizer_free(t);
}

static void ranges_hold_for_special_tokens_found_in_normalized_text(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("llama"));
    const char *text = "x <a b> y z <a b> w"; /* at 2 and 12; normalizing makes every space three bytes */
    assert_int_equal(count_with_range(t, text, 0, 0, "<a b>"), 2);
    assert_int_equal(count_with_range(t, text, 0, 9, "<a b>"), 1);
    assert_int_equal(count_with_range(t, text, 8, 19, "<a b>"), 1);
    assert_int_equal(count_with_range(t, text, 8, 11, "<a b>"), 2);
    sp_tokenizer_free(t);
}

static void ranges_out_of_order_are_refused(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("llama"));
    sp_span_bytes ranges[] = {{2, 3}, {1, 2}};
    sp_ids ids = {0};
    sp_error err = {0};
    assert_false(sp_tokenizer_encode_ranges(t, "abcd", 4, NULL, ranges, 2, &ids, &err));
    assert_int_equal(ids.n, 0);
    sp_error_clear(&err);
    ranges[0].end = 5;
    assert_false(sp_tokenizer_encode_ranges(t, "abcd", 4, NULL, ranges, 1, &ids, &err));
    sp_tokenizer_free(t);
}

static void invalid_utf8_is_refused_and_ids_stay(void **state) {
    (void)state;
    static const char *const bad[] = {"a\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x96", "\x80"};
    sp_tokenizer *t = open_dir(FIXTURE("digits"));
    sp_ids ids = encode(t, "hello", NULL);
    size_t n = ids.n;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sp_error err = {0};
        assert_false(sp_tokenizer_encode(t, bad[i], strlen(bad[i]), NULL, &ids, &err));
        assert_non_null(strstr(err.text, "not UTF-8"));
        assert_int_equal(ids.n, n);
    }
    sp_ids_deinit(&ids);
    sp_tokenizer_free(t);
}

static void streaming_holds_a_character_until_it_is_whole(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("split-removed"));
    sp_ids ids = encode(t, "\xf0\x9f\xab\xa8", NULL); /* an emoji that no merge makes */
    sp_error err = {0};
    sp_buf out = {0};
    sp_detok *d = sp_detok_new(t, false, &err);
    assert_true(ids.n > 1);
    for (size_t i = 0; i + 1 < ids.n; i++) {
        assert_true(sp_detok_push(d, ids.ids[i], &out));
        assert_int_equal(out.n_bytes, 0);
    }
    assert_true(sp_detok_push(d, ids.ids[ids.n - 1], &out));
    assert_string_equal(out.data, "\xf0\x9f\xab\xa8");
    assert_true(sp_detok_push(d, ids.ids[0], &out)); /* half a character at the end */
    assert_true(sp_detok_finish(d, &out));
    assert_string_equal(out.data, "\xf0\x9f\xab\xa8\xef\xbf\xbd");
    sp_buf_clear(&out);
    for (size_t i = 0; i < ids.n; i++) assert_true(sp_detok_push(d, ids.ids[i], &out)); /* as new after finish */
    assert_string_equal(out.data, "\xf0\x9f\xab\xa8");
    sp_detok_free(d);
    sp_ids_deinit(&ids);
    sp_buf_deinit(&out);
    sp_tokenizer_free(t);
}

/* Random ids: streamed and whole decoding must agree on any sequence, not only on what encoding gives. */
static void streaming_equals_decode_on_random_ids(void **state) {
    (void)state;
    static const char *const dirs[] = {FIXTURE("gpt2"),       FIXTURE("llama"),           FIXTURE("fused-decoders"),
                                       FIXTURE("no-decoder"), FIXTURE("metaspace-first"), FIXTURE("token-decoders"),
                                       FIXTURE("fuse-unk")};
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        sp_tokenizer *t = open_dir(dirs[i]);
        for (int round = 0; round < 200; round++) {
            int32_t ids[40];
            sp_buf whole = {0}, streamed = {0};
            sp_error err = {0};
            for (int k = 0; k < 40; k++) {
                seed = seed * 1664525u + 1013904223u;
                ids[k] = (int32_t)((seed >> 8) % (sp_tokenizer_n_vocab(t) + 3)) - 1;
            }
            sp_detok *d = sp_detok_new(t, round & 1, &err);
            assert_true(sp_tokenizer_decode(t, ids, 40, round & 1, &whole, &err));
            for (int k = 0; k < 40; k++) assert_true(sp_detok_push(d, ids[k], &streamed));
            assert_true(sp_detok_finish(d, &streamed));
            assert_int_equal(whole.n_bytes, streamed.n_bytes);
            if (whole.n_bytes) assert_memory_equal(whole.data, streamed.data, whole.n_bytes);
            sp_detok_free(d);
            sp_buf_deinit(&whole);
            sp_buf_deinit(&streamed);
        }
        sp_tokenizer_free(t);
    }
}

static void check_bytes(const sp_tokenizer *t, const char *token, const char *want) {
    const char *bytes = NULL;
    size_t n_bytes = 0;
    int32_t id = find(t, token);
    if (id < 0) fail_msg("no token %s", token);
    assert_true(sp_tokenizer_token_bytes(t, id, &bytes, &n_bytes));
    assert_int_equal(n_bytes, strlen(want));
    assert_memory_equal(bytes, want, n_bytes);
    assert_true(sp_tokenizer_token_text(t, id, &bytes, &n_bytes));
    assert_int_equal(n_bytes, strlen(token));
    assert_memory_equal(bytes, token, n_bytes);
}

static void single_tokens_have_raw_bytes(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("gpt2"));
    check_bytes(t, "\xc4\xa0", " ");    /* U+0120 stands for a space */
    check_bytes(t, "\xc3\x83", "\xc3"); /* half a character */
    check_bytes(t, "<s>", "<s>");
    sp_tokenizer_free(t);
    t = open_dir(FIXTURE("llama"));
    check_bytes(t, "\xe2\x96\x81", " ");
    check_bytes(t, "<0xE2>", "\xe2");
    check_bytes(t, "<|user|>", "<|user|>");
    assert_true(sp_tokenizer_is_special(t, find(t, "<|user|>")));
    assert_false(sp_tokenizer_is_special(t, find(t, "<norm>")));
    const char *bytes;
    size_t n_bytes;
    assert_false(sp_tokenizer_token_bytes(t, -1, &bytes, &n_bytes));
    assert_false(sp_tokenizer_token_bytes(t, (int32_t)sp_tokenizer_n_vocab(t), &bytes, &n_bytes));
    assert_false(sp_tokenizer_is_special(t, INT32_MAX));
    sp_tokenizer_free(t);
}

static void configuration_names_special_tokens(void **state) {
    (void)state;
    sp_tokenizer *t = open_dir(FIXTURE("cl100k-config"));
    assert_string_equal(sp_tokenizer_special_text(t, "bos_token"), "<s>");
    assert_string_equal(sp_tokenizer_special_text(t, "eos_token"), "</s>");
    assert_null(sp_tokenizer_special_text(t, "pad_token"));
    assert_int_equal(sp_tokenizer_bos_id(t), find(t, "<s>"));
    assert_int_equal(sp_tokenizer_eos_id(t), find(t, "</s>"));
    assert_true(sp_tokenizer_is_special(t, find(t, "</tool>")));
    sp_tokenizer_free(t);
    t = open_dir(FIXTURE("digits"));
    assert_int_equal(sp_tokenizer_eos_id(t), -1);
    sp_tokenizer_free(t);
}

/* ---- bounds: a quadratic step here would take hours ---- */

static void long_runs_are_encoded(void **state) {
    (void)state;
    static const char *const dirs[] = {
        FIXTURE("cl100k-config"),    FIXTURE("llama"),           FIXTURE("gemma"), FIXTURE("gpt2"),
        FIXTURE("split-contiguous"), FIXTURE("metaspace-always")};
    static const char *const units[] = {"a",  " ",         "\n", "ab", "e\xcc\x81", "\xcc\x81\xcc\xa3",
                                        "<s", "<|user|> ", "1",  "'"};
    enum { N_BYTES = 1 << 20 };
    sp_buf text = {0};
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        sp_tokenizer *t = open_dir(dirs[i]);
        for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
            sp_ids ids = {0};
            sp_error err = {0};
            sp_buf_clear(&text);
            while (text.n_bytes < N_BYTES) sp_buf_text(&text, units[k]);
            if (!sp_tokenizer_encode(t, text.data, text.n_bytes, NULL, &ids, &err)) fail_msg("%s", err.text);
            assert_true(ids.n > 0);
            sp_ids_deinit(&ids);
        }
        sp_tokenizer_free(t);
    }
    sp_buf_deinit(&text);
}

static void expensive_regular_expressions_are_stopped(void **state) {
    (void)state;
    static const char *const patterns[] = {"(?:a+)+$", "(?:a|a)*b", " +$", "(?:a?){30}a{30}b", "(?:(?:a*)*)*b", "a+b"};
    size_t n_stopped = 0;
    sp_buf text = {0}, json = {0};
    while (text.n_bytes < 1 << 20) sp_buf_text(&text, text.n_bytes & 1 << 18 ? "a" : " ");
    sp_buf_text(&text, "x");
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        sp_error err = {0};
        sp_ids ids = {0};
        sp_buf_clear(&json);
        sp_buf_printf(
            &json,
            "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":\"Isolated\"},%s}",
            patterns[i], MINIMAL_MODEL);
        sp_tokenizer *t = open_text(json.data, &err);
        if (!t) fail_msg("%s", err.text);
        uint64_t begin_ns = sp_clock_cpu_ns();
        bool ok = sp_tokenizer_encode(t, text.data, text.n_bytes, NULL, &ids, &err);
        double seconds = (double)(sp_clock_cpu_ns() - begin_ns) * 1e-9;
        if (!ok) assert_non_null(strstr(err.text, "regular expression"));
        if (seconds > 10) fail_msg("%s: %.2f s of processor time, the bound is 1.3 s", patterns[i], seconds);
        n_stopped += !ok;
        sp_ids_deinit(&ids);
        sp_tokenizer_free(t);
    }
    assert_true(n_stopped > 2); /* how far the others come depends on the library's version */
    sp_buf_deinit(&text);
    sp_buf_deinit(&json);
}

static void a_rule_that_makes_much_out_of_little_is_stopped(void **state) {
    (void)state;
    sp_buf json = {0}, text = {0};
    sp_error err = {0};
    sp_ids ids = {0};
    sp_buf_text(&json, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    for (int i = 0; i < 100000; i++) sp_buf_char(&json, 'b');
    sp_buf_printf(&json, "\"},%s}", MINIMAL_MODEL);
    for (int i = 0; i < 100000; i++) sp_buf_char(&text, 'a');
    sp_tokenizer *t = open_text(json.data, &err);
    assert_non_null(t);
    assert_false(sp_tokenizer_encode(t, text.data, text.n_bytes, NULL, &ids, &err));
    assert_int_equal(err.code, SP_ERR_MEMORY);
    sp_tokenizer_free(t);
    sp_buf_deinit(&json);
    sp_buf_deinit(&text);
    sp_ids_deinit(&ids);
}

/* A template's ids go into every encoding: 64 at an end are taken, 65 are not. */
static void template_ids_are_bounded(void **state) {
    (void)state;
    for (int n = 64; n <= 65; n++) {
        sp_buf json = {0};
        sp_error err = {0};
        sp_buf_text(&json,
                    "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                    "{\"id\":\"s\"}},{\"Sequence\":{}}],\"special_tokens\":{\"s\":{\"ids\":[0");
        for (int i = 1; i < n; i++) sp_buf_text(&json, ",0");
        sp_buf_printf(&json, "]}}},%s}", MINIMAL_MODEL);
        sp_tokenizer *t = open_text(json.data, &err);
        if (n == 64) {
            if (!t) fail_msg("%s", err.text);
        } else {
            assert_null(t);
            assert_non_null(strstr(err.text, "more than 64 ids"));
        }
        sp_tokenizer_free(t);
        sp_buf_deinit(&json);
    }
}

/* ---- errors ---- */

static const struct {
    const char *json, *message;
} bad_files[] = {
    {"", "not JSON"},
    {"[]", "not a JSON object"},
    {"{}", "no object 'model'"},
    {"{\"model\":{\"type\":\"Unigram\"}}", "model type 'Unigram' is not supported"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "no array 'merges'"},
    {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "no object 'vocab'"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "tokens 'a' and 'b' both have id 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967296},\"merges\":[]}}", "token 'a' has id 4294967296"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647},\"merges\":[]}}", "token 'a' has id 2147483647"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999999999999999},\"merges\":[]}}", "a non-negative integer"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "a non-negative integer"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "a non-negative integer"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":1},\"merges\":[]}}", "a bad escape"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",
     "merge 0: 'b' is not in the vocabulary"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "exactly one space"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", "exactly one space"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "a pair of strings"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", "a string was expected"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a", "not JSON"},
    {"{\"model\":{\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}", "dropout"},
    {"{\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]}}", "end_of_word_suffix"},
    {"{\"normalizer\":{\"type\":\"Lowercase\"}," MINIMAL_MODEL "}", "normalizer 'Lowercase' is not supported"},
    {"{\"normalizer\":{}," MINIMAL_MODEL "}", "a normalizer has no type"},
    {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MINIMAL_MODEL "}", "pre-tokenizer 'Whitespace' is not supported"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MINIMAL_MODEL "}", "post-processor 'BertProcessing'"},
    {"{\"decoder\":{\"type\":\"WordPiece\"}," MINIMAL_MODEL "}", "decoder 'WordPiece' is not supported"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\"}"
     "," MINIMAL_MODEL "}",
     "regular expression: '\\w' is not supported"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a{1,2}+\"},\"behavior\":\"Isolated\"}"
     "," MINIMAL_MODEL "}",
     "regular expression: '{1,2}+' is not supported"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}"
     "," MINIMAL_MODEL "}",
     "'&&' in a class"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}"
     "," MINIMAL_MODEL "}",
     "regular expression '(a'"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Odd\"}," MINIMAL_MODEL "}",
     "behavior 'Odd' is not supported"},
    {"{\"added_tokens\":[{\"id\":0}]," MINIMAL_MODEL "}", "added_tokens[0]: an added token has no content"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\",\"invert\":1}"
     "," MINIMAL_MODEL "}",
     "'invert' is 1, want true or false"},
    {"{\"normalizer\":{\"type\":[7]}," MINIMAL_MODEL "}", "'type' is [7], want a string"},
    {"{\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}," MINIMAL_MODEL "}",
     "prepend_scheme 'last' is not supported, only never, first and always"},
    {"{\"added_tokens\":7," MINIMAL_MODEL "}", "'added_tokens' is not an array"},
};

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        sp_error err = {0};
        sp_tokenizer *t = open_text(bad_files[i].json, &err);
        assert_null(t);
        if (!strstr(err.text, bad_files[i].message)) fail_msg("'%s' is not in '%s'", bad_files[i].message, err.text);
        assert_null(strchr(err.text, '\n'));
    }
}

static void deep_and_missing_files_are_refused(void **state) {
    (void)state;
    sp_buf json = {0};
    sp_error err = {0};
    for (int i = 0; i < 100000; i++) sp_buf_text(&json, "{\"model\":[");
    assert_null(open_text(json.data, &err));
    sp_buf_clear(&json);
    sp_error_clear(&err);
    for (int i = 0; i < 1500; i++) sp_buf_text(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    assert_null(open_text(json.data, &err));
    sp_error_clear(&err);
    assert_null(sp_tokenizer_open_hf("tests/fixtures/tokenizer", &err));
    assert_non_null(strstr(err.text, "tests/fixtures/tokenizer/tokenizer.json"));
    sp_buf_deinit(&json);
}

static void gguf_metadata_is_checked(void **state) {
    (void)state;
    const sp_string tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"<e>", 3}, {"\xff\xfe", 2}, {"", 0}};
    const sp_string merges[] = {{"a b", 3}, {"a absent", 8}};
    const int32_t types[] = {1, 1, 1, 3, 1, 77};
    sp_tokenizer_gguf src = {.model = "gpt2",
                             .pre = "smollm",
                             .tokens = tokens,
                             .n_tokens = 6,
                             .types = types,
                             .merges = merges,
                             .n_merges = 2,
                             .bos_id = -1,
                             .eos_id = 3,
                             .unk_id = -1,
                             .add_bos = -1,
                             .add_eos = 1,
                             .add_space_prefix = -1};
    sp_error err = {0};
    sp_tokenizer *t = sp_tokenizer_open_gguf(&src, &err);
    if (!t) fail_msg("%s", err.text);
    sp_ids ids = encode(t, "ab<e>b", &(sp_encode_options){.add_special = true});
    const int32_t want[] = {2, 3, 1, 3};
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.ids, want, sizeof want);
    sp_ids_deinit(&ids);
    sp_tokenizer_free(t);
    src.pre = "no-such";
    assert_null(sp_tokenizer_open_gguf(&src, &err));
    assert_non_null(strstr(err.text, "'no-such'"));
    sp_error_clear(&err);
    src.pre = NULL;
    src.eos_id = 6;
    assert_null(sp_tokenizer_open_gguf(&src, &err));
    assert_non_null(strstr(err.text, "eos_token has id 6"));
    sp_error_clear(&err);
    src.model = "llama";
    assert_null(sp_tokenizer_open_gguf(&src, &err));
    assert_non_null(strstr(err.text, "scores"));
    sp_error_clear(&err);
    src.model = "t5";
    assert_null(sp_tokenizer_open_gguf(&src, &err));
    assert_non_null(strstr(err.text, "'t5'"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_leaves_special_tokens_as_text),
        cmocka_unit_test(plain_text_still_takes_tokens_that_are_not_special),
        cmocka_unit_test(ranges_are_plain_text_and_their_surroundings_are_not),
        cmocka_unit_test(ranges_hold_for_special_tokens_found_in_normalized_text),
        cmocka_unit_test(ranges_out_of_order_are_refused),
        cmocka_unit_test(invalid_utf8_is_refused_and_ids_stay),
        cmocka_unit_test(streaming_holds_a_character_until_it_is_whole),
        cmocka_unit_test(streaming_equals_decode_on_random_ids),
        cmocka_unit_test(single_tokens_have_raw_bytes),
        cmocka_unit_test(configuration_names_special_tokens),
        cmocka_unit_test(long_runs_are_encoded),
        cmocka_unit_test(expensive_regular_expressions_are_stopped),
        cmocka_unit_test(a_rule_that_makes_much_out_of_little_is_stopped),
        cmocka_unit_test(template_ids_are_bounded),
        cmocka_unit_test(skipped_ids_are_those_without_text),
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(deep_and_missing_files_are_refused),
        cmocka_unit_test(gguf_metadata_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
