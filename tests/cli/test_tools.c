/* Rows with tools and reasoning through the whole program, on a model whose every token decides the next: what it
 * "says" is written in a table. Each row picks where it begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "program.h"

/* models/fields has 1,024 tokens */
enum { FIRST_ID = 1024, TURN_END = 2, WIDTH = 64, N_SAYINGS = 16, N_ROWS = 4000 };

/* Token FIRST_ID + i, and what follows it. */
static const struct {
    const char *text;
    int special, next;
} sayings[N_SAYINGS] = {
    [0] = {"<c0>", 1, FIRST_ID + 1},
    [1] = {"Looking.\n", 0, FIRST_ID + 2},
    [2] = {"<tool_call>", 1, FIRST_ID + 3},
    [3] = {"\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\",  \"n\": 1.50}}\n", 0, FIRST_ID + 4},
    [4] = {"</tool_call>", 1, FIRST_ID + 5},
    [5] = {"\n<tool_call>{\"name\": \"now\"}", 0, TURN_END}, /* its end is missing, as the turn's is not */
    [6] = {"<c1>", 1, FIRST_ID + 7},
    [7] = {"<think>", 0, FIRST_ID + 8},
    [8] = {"\nTwo and two.\n", 0, FIRST_ID + 9},
    [9] = {"</think>", 0, FIRST_ID + 10},
    [10] = {"\n\nFour, I say.", 0, TURN_END},
    [11] = {"<c2>", 1, FIRST_ID + 12},
    [12] = {"<tool_call>{\"name\": broken", 0, TURN_END},
    [13] = {"<c3>", 1, FIRST_ID + 14},
    [14] = {"<tool_call>{\"name\": \"stop_here\"}</tool_call>", 0, FIRST_ID + 15},
    [15] = {" END and more", 0, TURN_END},
};

static const char template[] =
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ reasoning_effort }}{% for m in messages %}<|im_start|>{{ m.role "
    "}}\n"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ begin }}{% endif %}{# </think> #}";

/* ---- the model ---- */

static char model_dir[300];

static json_t *load(const char *path) {
    json_error_t where;
    json_t *value = json_load_file(path, 0, &where);
    if (!value) fail_msg("%s: %s", path, where.text);
    return value;
}

static void save(json_t *value, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", model_dir, name);
    assert_int_equal(json_dump_file(value, path, 0), 0);
    json_decref(value);
}

static void write_tokenizer(void) {
    json_t *tokenizer = load("models/fields/tokenizer.json"), *config = load("models/fields/tokenizer_config.json");
    json_t *added = json_object_get(tokenizer, "added_tokens");
    for (int i = 0; i < N_SAYINGS; i++)
        json_array_append_new(added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", FIRST_ID + i, "content",
                                               sayings[i].text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                               "normalized", 0, "special", sayings[i].special));
    json_object_set_new(config, "chat_template", json_string(template));
    save(tokenizer, "tokenizer.json");
    save(config, "tokenizer_config.json");
}

static void write_config(void) {
    json_t *config = load("models/fields/config.json");
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"vocab_size", FIRST_ID + N_SAYINGS}, {"hidden_size", WIDTH},
                 {"intermediate_size", WIDTH},         {"num_hidden_layers", 1},
                 {"num_attention_heads", 2},           {"num_key_value_heads", 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_object_set_new(config, sizes[i].key, json_integer(sizes[i].value));
    json_object_set_new(config, "tie_word_embeddings", json_false());
    save(config, "config.json");
}

enum { ONE = 0x3f80 }; /* in bf16 */

/* A block that adds nothing; each saying is a dimension of its own, which the head turns into what follows. */
static void fill_tensor(const char *name, uint16_t *values, size_t n) {
    if (strstr(name, "norm"))
        for (size_t i = 0; i < n; i++) values[i] = ONE;
    for (size_t i = 0; i < N_SAYINGS; i++) {
        if (strstr(name, "embed_tokens")) values[(FIRST_ID + i) * WIDTH + i] = ONE;
        if (strstr(name, "lm_head")) values[(size_t)sayings[i].next * WIDTH + i] = ONE;
    }
}

static void write_weights(void) {
    enum { V = FIRST_ID + N_SAYINGS };
    static const struct {
        const char *name;
        int rows, columns; /* columns 0: a vector */
    } tensors[] = {
        {"model.embed_tokens.weight", V, WIDTH},
        {"lm_head.weight", V, WIDTH},
        {"model.norm.weight", WIDTH, 0},
        {"model.layers.0.input_layernorm.weight", WIDTH, 0},
        {"model.layers.0.post_attention_layernorm.weight", WIDTH, 0},
        {"model.layers.0.self_attn.q_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.self_attn.k_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.self_attn.v_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.self_attn.o_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.mlp.gate_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.mlp.up_proj.weight", WIDTH, WIDTH},
        {"model.layers.0.mlp.down_proj.weight", WIDTH, WIDTH},
    };
    char path[400];
    json_t *header = json_object();
    size_t n_values = 0;
    uint16_t *values = calloc(4 * V * WIDTH, sizeof *values);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        size_t n = (size_t)tensors[i].rows * (size_t)(tensors[i].columns ? tensors[i].columns : 1);
        json_t *shape = tensors[i].columns ? json_pack("[i,i]", tensors[i].rows, tensors[i].columns)
                                           : json_pack("[i]", tensors[i].rows);
        json_object_set_new(header, tensors[i].name,
                            json_pack("{s:s,s:o,s:[i,i]}", "dtype", "BF16", "shape", shape, "data_offsets",
                                      2 * (int)n_values, 2 * (int)(n_values + n)));
        fill_tensor(tensors[i].name, values + n_values, n);
        n_values += n;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t header_bytes = strlen(text);
    snprintf(path, sizeof path, "%s/model.safetensors", model_dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&header_bytes, sizeof header_bytes, 1, file), 1);
    assert_int_equal(fwrite(text, 1, header_bytes, file), header_bytes);
    assert_int_equal(fwrite(values, sizeof *values, n_values, file), n_values);
    assert_int_equal(fclose(file), 0);
    free(text);
    free(values);
    json_decref(header);
}

static int setup(void **state) {
    (void)state;
    snprintf(model_dir, sizeof model_dir, "%s/sayings", scratch_dir());
    if (mkdir(model_dir, 0700) != 0) return 1;
    write_tokenizer();
    write_config();
    write_weights();
    return 0;
}

/* ---- rows ---- */

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{}}}],"
#define ROW(id, begin, fields)                                               \
    "{\"custom_id\":\"" id "\"," fields                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],\"max_tokens\":9," \
    "\"chat_template_kwargs\":{\"begin\":\"" begin "\"}}\n"

/* The result lines of rows, by custom_id. */
static json_t *run_rows(const char *options, const char *rows, int want_status) {
    char args[600];
    snprintf(args, sizeof args, "run --quiet %s %s -", options, model_dir);
    program_run run = run_spill(args, rows);
    if (run.status != want_status) fail_msg("status %d: %.600s", run.status, run.err);
    json_t *lines = result_lines(run.out);
    program_run_free(&run);
    return lines;
}

static const json_t *choice_of(const json_t *lines, const char *id) {
    const json_t *body = json_object_get(json_object_get(json_object_get(lines, id), "response"), "body");
    return json_array_get(json_object_get(body, "choices"), 0);
}

/* The message without its ids, and how the row finished; ids are nine letters and digits. */
static void expect_message(const json_t *lines, const char *id, const char *want, const char *want_finish) {
    const json_t *choice = choice_of(lines, id);
    json_t *message = json_deep_copy(json_object_get(choice, "message"));
    json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *call_id = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        assert_true(call_id && strlen(call_id) == 9 &&
                    strspn(call_id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == 9);
        json_object_del(json_array_get(calls, i), "id");
    }
    char *got = json_dumps(message, JSON_COMPACT);
    if (!got || strcmp(got, want) != 0) fail_msg("%s: %s\nwanted %s", id, got, want);
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), want_finish);
    free(got);
    json_decref(message);
}

#define CALL(name, arguments) \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define WEATHER CALL("get_weather", "{\\\"city\\\": \\\"Zürich\\\",  \\\"n\\\": 1.50}")

static void test_calls_and_reasoning(void **state) {
    (void)state;
    json_t *lines =
        run_rows("",
                 ROW("calls", "<c0>", TOOLS) ROW("one", "<c0>", TOOLS "\"parallel_tool_calls\":false,")
                     ROW("no tools", "<c0>", "") ROW("none", "<c0>", TOOLS "\"tool_choice\":\"none\",")
                         ROW("raw", "<c0>", TOOLS "\"parse_tool_calls\":false,") ROW("broken", "<c2>", TOOLS)
                             ROW("cut", "<c3>", TOOLS "\"stop\":[\" END\"],")
                                 ROW("thinks", "<c1>", "\"expected\":\"Four, I say.\",") ROW("inside", "<think>", "")
                                     ROW("kept", "<c1>", "\"reasoning_format\":\"none\",")
                                         ROW("stops", "<c1>", "\"stop\":\" and\","),
                 0);
    expect_message(lines, "calls",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\",\"tool_calls\":[" WEATHER
                   "," CALL("now", "{}") "],\"refusal\":null}",
                   "tool_calls");
    expect_message(lines, "one",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\",\"tool_calls\":[" WEATHER "],\"refusal\":null}",
                   "tool_calls");
    static const char hidden[] =
        "{\"role\":\"assistant\",\"content\":\"Looking.\\n\\n{\\\"name\\\": \\\"get_weather\\\", "
        "\\\"arguments\\\": {\\\"city\\\": \\\"Zürich\\\",  \\\"n\\\": "
        "1.50}}\\n\\n<tool_call>{\\\"name\\\": \\\"now\\\"}\",\"refusal\":null}";
    expect_message(lines, "no tools", hidden, "stop"); /* special tokens are no text */
    expect_message(lines, "none", hidden, "stop");
    expect_message(lines, "raw",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\\n<tool_call>\\n{\\\"name\\\": \\\"get_weather\\\", "
                   "\\\"arguments\\\": {\\\"city\\\": \\\"Zürich\\\",  \\\"n\\\": "
                   "1.50}}\\n</tool_call>\\n<tool_call>{\\\"name\\\": \\\"now\\\"}\",\"refusal\":null}",
                   "stop");
    expect_message(lines, "broken",
                   "{\"role\":\"assistant\",\"content\":\"<tool_call>{\\\"name\\\": broken\",\"refusal\":null}",
                   "stop");
    expect_message(
        lines, "cut",
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL("stop_here", "{}") "],\"refusal\":null}",
        "tool_calls");
    static const char thought[] =
        "{\"role\":\"assistant\",\"content\":\"Four, I say.\",\"reasoning_content\":\"Two and two.\",\"refusal\":null}";
    expect_message(lines, "thinks", thought, "stop");
    expect_message(lines, "inside", thought, "stop");
    expect_message(lines, "kept",
                   "{\"role\":\"assistant\",\"content\":\"<think>\\nTwo and two.\\n</think>\\n\\nFour, I "
                   "say.\",\"refusal\":null}",
                   "stop");
    expect_message(lines, "stops",
                   "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"Two\",\"refusal\":null}", "stop");
    json_decref(lines);
}

/* A mark that is a stop string ends the row in its place, unless it comes too early. */
static void test_stop_at_a_mark(void **state) {
    (void)state;
    json_t *lines = run_rows("",
                             ROW("first", "<c0>", TOOLS "\"stop\":\"</tool_call>\",")
                                 ROW("later", "<c0>", TOOLS "\"stop\":\"</tool_call>\",\"min_tokens\":4,"),
                             0);
    expect_message(lines, "first",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\",\"tool_calls\":[" WEATHER "],\"refusal\":null}",
                   "tool_calls");
    expect_message(lines, "later",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\",\"tool_calls\":[" WEATHER
                   "," CALL("now", "{}") "],\"refusal\":null}",
                   "tool_calls");
    json_decref(lines);
}

/* What was answered goes back in as it came out: the template shows the call as the model wrote it. */
static void test_round_trip(void **state) {
    (void)state;
    json_t *lines = run_rows("", ROW("calls", "<c0>", TOOLS), 0);
    json_t *message = json_deep_copy(json_object_get(choice_of(lines, "calls"), "message"));
    json_t *call = json_array_get(json_object_get(message, "tool_calls"), 0);
    json_t *answer = json_pack("{s:s,s:O,s:s}", "role", "tool", "tool_call_id", json_object_get(call, "id"), "content",
                               "21 degrees");
    json_t *row = json_pack("{s:s,s:[{s:s,s:s},o,o],s:[{s:{s:s}}],s:{s:s},s:i}", "custom_id", "back", "messages",
                            "role", "user", "content", "u", message, answer, "tools", "function", "name", "get_weather",
                            "chat_template_kwargs", "begin", "<c0>", "max_tokens", 9);
    char *text = json_dumps(row, JSON_COMPACT);
    json_t *again = run_rows("--echo-tokens", text, 0);
    const json_t *spill = json_object_get(json_object_get(again, "back"), "spill");
    /* <tool_call> and what stands in it are single tokens, so the prompt has them as the model wrote them, but for the
     * template's spacing of JSON */
    const json_t *prompt = json_object_get(spill, "prompt_tokens_ids");
    size_t n_opened = 0;
    for (size_t i = 0; i < json_array_size(prompt); i++)
        n_opened += json_integer_value(json_array_get(prompt, i)) == FIRST_ID + 2;
    assert_int_equal(n_opened, 2);
    expect_message(again, "back",
                   "{\"role\":\"assistant\",\"content\":\"Looking.\",\"tool_calls\":[" WEATHER
                   "," CALL("now", "{}") "],\"refusal\":null}",
                   "tool_calls");
    const json_t *calls = json_object_get(json_object_get(choice_of(again, "back"), "message"), "tool_calls");
    const json_t *new_id = json_object_get(json_array_get(calls, 0), "id");
    assert_false(json_equal(new_id, json_object_get(call, "id"))); /* another prompt, another id */
    assert_false(json_equal(new_id, json_object_get(json_array_get(calls, 1), "id")));
    free(text);
    json_decref(row);
    json_decref(again);
    json_decref(lines);
}

/* Who follows a job sees calls too. */
static void test_tail_shows_calls(void **state) {
    (void)state;
    char command[1000];
    const char *path =
        scratch_file("tail.jsonl", ROW("calls", "<c0>", TOOLS) ROW("cut", "<c3>", TOOLS "\"stop\":\" END\","));
    snprintf(command, sizeof command, "\"$SPILL\" run --quiet %s %s -o $SPILL_HOME/tail && \"$SPILL\" tail", model_dir,
             path);
    program_run run = run_shell(command, NULL);
    assert_int_equal(run.status, 0);
    assert_non_null(
        strstr(run.out, "calls (tool_calls): Looking. get_weather({\"city\": \"Zürich\",  \"n\": 1.50}) now({})\n"));
    assert_non_null(strstr(run.out, "cut (tool_calls): stop_here({})\n"));
    program_run_free(&run);
}

/* Once more, in other company and stopped on the way: the same bytes, ids among them. */
static void test_same_bytes(void **state) {
    (void)state;
    char *rows = calloc(1, 2 << 20), command[2000];
    size_t used = 0;
    static const char *const begins[] = {"<c0>", "<c1>", "<c2>", "<c3>", "<think>"};
    for (int i = 0; i < N_ROWS; i++)
        used += (size_t)sprintf(rows + used,
                                "{\"custom_id\":\"r%d\"," TOOLS
                                "\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}],"
                                "\"chat_template_kwargs\":{\"begin\":\"%s\"}}\n",
                                i, i, begins[i % 5]);
    const char *path = scratch_file("tools.jsonl", rows);
    snprintf(command, sizeof command,
             "D=$SPILL_HOME; : >$D/got; \"$SPILL\" run --quiet %s %s >$D/want || exit; "
             "\"$SPILL\" run --quiet --rows 3 %s %s -o $D/got & p=$!; "
             "while kill -0 $p && [ $(wc -l <$D/got) -le 20 ]; do sleep 0.01; done 2>/dev/null; kill $p; wait $p; "
             "[ $? = 75 ] && \"$SPILL\" resume --quiet && cat $D/want && echo && cat $D/got",
             model_dir, path, model_dir, path);
    program_run run = run_shell(command, NULL);
    if (run.status != 0) fail_msg("status %d: %.600s", run.status, run.err);
    char *half = strstr(run.out, "\n\n");
    assert_non_null(half);
    half[1] = '\0';
    json_t *want = result_lines(run.out), *got = result_lines(half + 2), *line;
    const char *id;
    assert_int_equal(json_object_size(want), N_ROWS);
    json_object_foreach(want, id, line) {
        char *one = result_body(line), *other = result_body(json_object_get(got, id));
        assert_string_equal(one, other);
        free(one);
        free(other);
    }
    json_decref(want);
    json_decref(got);
    program_run_free(&run);
    free(rows);
}

static void expect_error(const json_t *lines, const char *id, const char *want) {
    const json_t *error = json_object_get(json_object_get(lines, id), "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!message || !strstr(message, want)) fail_msg("%s: '%s', wanted '%s'", id, message, want);
}

/* What the template never reads, and what is given twice. */
static void test_refused(void **state) {
    (void)state;
    json_t *lines = run_rows("", ROW("effort", "<c1>", "\"reasoning_effort\":\"low\",")
                                     ROW("verbose", "<c1>", "\"verbosity\":\"low\",")
                                 "{\"custom_id\":\"twice\",\"messages\":[{\"role\":\"user\",\"content\":\"u\"}],"
                                 "\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"reasoning_effort\":\"high\"}}\n",
                             3);
    assert_non_null(choice_of(lines, "effort"));
    expect_error(lines, "verbose", "verbosity: the model's chat template never reads it");
    expect_error(lines, "twice", "reasoning_effort: given beside chat_template_kwargs and in it");
    json_decref(lines);
}

/* min_tokens bans the ends of turns and passes over stop strings, and no longer than it says. */
static void test_min_tokens(void **state) {
    (void)state;
#define NOTE "\"prompt\":\"Ms Hanna Weiss ordered 3 lamps for 42.50 EUR.\""
    program_run run = run_spill("run --quiet models/fields -", "{\"custom_id\":\"plain\"," NOTE
                                                               "}\n"
                                                               "{\"custom_id\":\"more\"," NOTE
                                                               ",\"min_tokens\":60,\"max_tokens\":64}\n"
                                                               "{\"custom_id\":\"stop\"," NOTE
                                                               ",\"stop\":\"\\\"\",\"min_tokens\":5}\n"
                                                               "{\"custom_id\":\"less\"," NOTE ",\"min_tokens\":3}\n");
    assert_int_equal(run.status, 0);
    json_t *lines = result_lines(run.out);
    const json_t *plain = json_object_get(json_object_get(json_object_get(lines, "plain"), "spill"), "tokens");
    const json_t *more = json_object_get(json_object_get(json_object_get(lines, "more"), "spill"), "tokens");
    const json_t *stop = json_object_get(json_object_get(json_object_get(lines, "stop"), "spill"), "tokens");
    size_t n = json_array_size(plain);
    assert_true(n < 60 && json_array_size(more) >= 60);
    for (size_t i = 0; i + 1 < n; i++) assert_true(json_equal(json_array_get(plain, i), json_array_get(more, i)));
    for (size_t i = 0; i < 60; i++) assert_int_not_equal(json_integer_value(json_array_get(more, i)), TURN_END);
    assert_true(json_array_size(stop) > 5 && json_array_size(stop) < n);
    char *one = result_body(json_object_get(lines, "plain")), *other = result_body(json_object_get(lines, "less"));
    assert_string_equal(one, other);
    free(one);
    free(other);
    json_decref(lines);
    program_run_free(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_and_reasoning), cmocka_unit_test(test_stop_at_a_mark),
        cmocka_unit_test(test_round_trip),          cmocka_unit_test(test_tail_shows_calls),
        cmocka_unit_test(test_same_bytes),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_min_tokens),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
