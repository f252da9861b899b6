/* Chat templates against the reference: every conversation through every real template (skipped where those are not
 * beside the checkout), tool calls written by them and read back, and our cases of the template language.
 * tools/ref/golden_chat.py writes both goldens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/calls.h"
#include "util/json.h"

static const char templates_path[] = "../shared/cases/chat_templates.json";
static int n_passed, n_failed, n_round_trips;

static json_t *load(const char *path) {
    sp_error err = {0};
    json_t *json = sp_json_load(path, 16 << 20, &err);
    if (json) return json;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static void hash_text(const sp_buf *text, char out[17]) {
    uint64_t value = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < text->n_bytes; i++) value = (value ^ (unsigned char)text->data[i]) * UINT64_C(0x100000001B3);
    snprintf(out, 17, "%016" PRIx64, value);
}

static void report(bool good, const char *what, const char *which, const sp_buf *got, const sp_error *err) {
    if (good) {
        n_passed++;
        return;
    }
    n_failed++;
    printf("FAILED %s / %s: %s\n%s\n", what, which, err->code ? err->text : "rendered", got->data ? got->data : "");
}

/* Whether an error is the expected one: any, or the template's own message. */
static bool error_matches(const sp_error *err, const json_t *message) {
    if (err->code != SP_ERR_INPUT) return false;
    if (!json_is_string(message)) return true;
    char want[SP_ERROR_TEXT_BYTES];
    sp_error escaped = {0};
    sp_fail(&escaped, SP_ERR_INPUT, "%s", json_string_value(message));
    snprintf(want, sizeof want, "%s", escaped.text);
    return strcmp(err->text, want) == 0;
}

static void check_rendering(const char *name, const sp_chat *chat, const json_t *c, const json_t *want, int64_t now_s) {
    sp_chat_request request = {.messages = json_object_get(c, "messages"),
                               .tools = json_object_get(c, "tools"),
                               .documents = json_object_get(c, "documents"),
                               .kwargs = json_object_get(c, "kwargs"),
                               .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt")),
                               .now_s = now_s};
    sp_buf plain = {0}, marked = {0};
    sp_error err = {0}, again = {0};
    sp_chat_spans spans = {0};
    char hash[17];
    bool ok = sp_chat_render(chat, &request, &plain, NULL, &err);
    bool same = sp_chat_render(chat, &request, &marked, &spans, &again) == ok && plain.n_bytes == marked.n_bytes &&
                (!plain.n_bytes || memcmp(plain.data, marked.data, plain.n_bytes) == 0);
    hash_text(&plain, hash);
    bool good = json_is_string(want) ? ok && strcmp(hash, json_string_value(want)) == 0
                                     : !ok && error_matches(&err, json_array_get(want, 0));
    report(good && same, name, json_string_value(json_object_get(c, "name")), &plain, &err);
    sp_chat_spans_deinit(&spans);
    sp_buf_deinit(&plain);
    sp_buf_deinit(&marked);
}

/* ---- calls ---- */

/* The mark before calls that each template is found to write; "" for calls without one. */
static const struct {
    const char *name, *open, *reasoning;
} styles[] = {
    {"library/qwen2.5:0.5b", "<tool_call>", NULL},
    {"library/qwen3-next:80b", "<tool_call>", "<think>"},
    {"library/qwq:32b", "<tool_call>", "<think>"},
    {"library/granite4:350m", "<tool_call>", NULL},
    {"library/cogito:14b", "<tool_call>", NULL},
    {"library/cogito:3b", "", NULL},
    {"library/llama3.1:8b", "", NULL},
    {"library/llama3.2-vision:latest", "", NULL},
    {"library/nemotron:70b", "", NULL},
    {"library/deepseek-r1:8b", "<｜tool▁calls▁begin｜>", "<think>"},
    {"library/deepseek-r1:latest", "<｜tool▁calls▁begin｜>", "<think>"},
    {"library/deepseek-v3:671b", "<｜tool▁calls▁begin｜>", NULL},
    {"library/granite3-dense:2b", "<|tool_call|>", NULL},
    {"library/firefunction-v2:70b", "functools", NULL},
    {"library/phi4-reasoning:14b", "none", "<think>"},
    {"library/llama2:7b", "none", NULL},
};

static void check_style(const char *name, const sp_chat_style *style) {
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        if (strcmp(styles[i].name, name) != 0) continue;
        const char *open = !style->calls ? "none" : style->calls->open ? style->calls->open : "";
        const char *reasoning = style->reasoning ? style->reasoning->open : NULL;
        bool good = strcmp(open, styles[i].open) == 0 && (reasoning != NULL) == (styles[i].reasoning != NULL);
        sp_buf got = {0};
        sp_buf_printf(&got, "calls %s, reasoning %s", open, reasoning ? reasoning : "none");
        report(good, name, "style", &got, &(sp_error){0});
        sp_buf_deinit(&got);
    }
}

/* The messages with the arguments of every call as text, as OpenAI's clients have them. */
static json_t *with_text_arguments(const json_t *messages) {
    json_t *out = json_deep_copy(messages);
    for (size_t i = 0; i < json_array_size(out); i++) {
        const json_t *calls = json_object_get(json_array_get(out, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *function = json_object_get(json_array_get(calls, k), "function");
            char *text = json_dumps(json_object_get(function, "arguments"), JSON_COMPACT);
            json_object_set_new(function, "arguments", json_string(text));
            free(text);
        }
    }
    return out;
}

/* Arguments as text give what the reference makes of the same as an object. */
static void check_text_arguments(const char *name, const sp_chat *chat, const json_t *c, const json_t *want,
                                 int64_t now_s) {
    json_t *messages = with_text_arguments(json_object_get(c, "messages"));
    sp_chat_request request = {.messages = messages,
                               .tools = json_object_get(c, "tools"),
                               .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt")),
                               .object_arguments = true,
                               .now_s = now_s};
    sp_buf text = {0};
    sp_error err = {0};
    char hash[17];
    bool ok = sp_chat_render(chat, &request, &text, NULL, &err);
    hash_text(&text, hash);
    report(ok == json_is_string(want) && (!ok || strcmp(hash, json_string_value(want)) == 0), name, "text arguments",
           &text, &err);
    sp_buf_deinit(&text);
    json_decref(messages);
}

/* What the template writes for a call of an earlier turn is read back as that call. */
static void check_round_trip(const char *name, const sp_chat *chat, const sp_chat_style *style) {
    static const char arguments[] = "{\"city\": \"Zürich \\\"x\\\" }\", \"n\": [1, 2.5, null, {\"a\": {}}]}";
    json_t *user = json_pack("[{s:s,s:s}]", "role", "user", "content", "u"), *both = json_deep_copy(user);
    json_t *tools = json_pack("[{s:s,s:{s:s,s:s,s:{}}}]", "type", "function", "function", "name", "get_weather",
                              "description", "d", "parameters");
    json_array_append_new(
        both, json_pack("{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:s}}]}", "role", "assistant", "content", "", "tool_calls", "id",
                        "abcdefghi", "type", "function", "function", "name", "get_weather", "arguments", arguments));
    sp_chat_request request = {.messages = user,
                               .tools = tools,
                               .add_generation_prompt = true,
                               .now_s = 1,
                               .object_arguments = style->object_arguments};
    sp_buf prompt = {0}, text = {0};
    sp_error err = {0};
    bool ok = sp_chat_render(chat, &request, &prompt, NULL, &err);
    request.messages = both;
    request.add_generation_prompt = false;
    ok = ok && sp_chat_render(chat, &request, &text, NULL, &err);
    size_t end = text.n_bytes, from = 0;
    while (ok && from < prompt.n_bytes && from < end && text.data[from] == prompt.data[from]) from++;
    while (from < prompt.n_bytes && from > 0 && text.data[from - 1] != '\n' && text.data[from - 1] != '>') from--;
    bool is_written = ok && strstr(text.data + from, "get_weather"); /* some templates write no call of earlier turns */
    while (!style->calls->open && end > from && text.data[end - 1] != '}' && text.data[end - 1] != ']') end--;
    sp_answer answer = {0};
    if (is_written)
        sp_answer_read(style, &(sp_answer_options){.read_calls = true}, text.data + from, end - from, &answer);
    json_error_t where;
    json_t *want = json_loads(arguments, 0, &where), *got = NULL;
    if (answer.n_calls == 1)
        got = json_loadb(answer.calls[0].arguments.text, answer.calls[0].arguments.n_bytes, 0, &where);
    report(!is_written || (got && json_equal(got, want)), name, "round trip", &text, &err);
    n_round_trips += is_written;
    json_decref(want);
    json_decref(got);
    sp_answer_deinit(&answer);
    sp_buf_deinit(&prompt);
    sp_buf_deinit(&text);
    json_decref(user);
    json_decref(both);
    json_decref(tools);
}

static void check_calls(const char *name, const sp_chat *chat, const json_t *conversations, const json_t *wants,
                        int64_t now_s) {
    sp_chat_style style = sp_chat_style_of(chat, NULL);
    check_style(name, &style);
    if (!style.calls) return;
    for (size_t i = 0; style.object_arguments && i < json_array_size(conversations); i++) {
        const json_t *c = json_array_get(conversations, i);
        if (strcmp(json_string_value(json_object_get(c, "name")), "call with dict") == 0)
            check_text_arguments(name, chat, c, json_array_get(wants, i), now_s);
    }
    check_round_trip(name, chat, &style);
}

/* ---- all of them ---- */

static void check_templates(const json_t *templates) {
    json_t *golden = load("tests/golden/chat_renderings.json");
    const json_t *conversations = json_object_get(golden, "conversations");
    int64_t now_s = json_integer_value(json_object_get(golden, "now_s"));
    for (size_t t = 0; t < json_array_size(templates); t++) {
        const json_t *entry = json_array_get(templates, t), *text = json_object_get(entry, "template");
        const char *name = json_string_value(json_object_get(entry, "name"));
        char key[200];
        snprintf(key, sizeof key, "%zu %s", t, name);
        const json_t *wants = json_object_get(json_object_get(golden, "results"), key);
        sp_error err = {0};
        sp_chat *chat = sp_chat_open_text(json_string_value(text), json_string_length(text),
                                          json_object_get(golden, "special"), &err);
        if (!chat) report(false, name, "parse", &(sp_buf){0}, &err);
        for (size_t i = 0; chat && i < json_array_size(conversations); i++)
            check_rendering(name, chat, json_array_get(conversations, i), json_array_get(wants, i), now_s);
        if (chat) check_calls(name, chat, conversations, wants, now_s);
        sp_chat_close(chat);
    }
    json_decref(golden);
}

static void check_case(const json_t *c, int64_t now_s) {
    const json_t *text = json_object_get(c, "template"), *want = json_object_get(c, "expected");
    sp_error err = {0};
    sp_buf out = {0};
    sp_template *tpl = sp_template_parse(json_string_value(text), json_string_length(text), "template", &err);
    sp_render_options options = {.globals = json_object_get(c, "globals"), .now_s = now_s};
    bool ok = tpl && sp_template_render(tpl, &options, &out, &err), good;
    if (want)
        good = ok && out.n_bytes == json_string_length(want) &&
               (!out.n_bytes || memcmp(out.data, json_string_value(want), out.n_bytes) == 0);
    else
        good = !ok && error_matches(&err, json_object_get(c, "error"));
    report(good, json_string_value(text), want ? json_string_value(want) : "an error", &out, &err);
    sp_template_free(tpl);
    sp_buf_deinit(&out);
}

static void check_language(void) {
    json_t *golden = load("tests/golden/chat_language.json");
    const json_t *cases = json_object_get(golden, "cases");
    int64_t now_s = json_integer_value(json_object_get(golden, "now_s"));
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i), now_s);
    json_decref(golden);
}

int main(int argc, char **argv) {
    bool language = argc > 1 && strcmp(argv[1], "language") == 0;
    if (language) {
        check_language();
    } else {
        FILE *file = fopen(templates_path, "rb");
        if (!file) {
            printf("skipped: no %s\n", templates_path);
            return 77;
        }
        fclose(file);
        json_t *templates = load(templates_path);
        check_templates(templates);
        json_decref(templates);
    }
    if (!language) printf("%d round trips of calls\n", n_round_trips);
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
