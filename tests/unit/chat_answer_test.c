/* Answers taken apart: the format that a template tells, and what generations in each format become, whole ones and
 * broken ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chat/calls.h"

#define EACH_CALL(before, between)                                                              \
    "{% if m.tool_calls %}" before "{% for c in m.tool_calls %}{% if not loop.first %}" between \
    "{% endif %}"                                                                               \
    "{% set f = c.function %}{% set a = f.arguments if f.arguments is string else f.arguments | tojson %}"
#define END_CALLS(after) "{% endfor %}" after "{% endif %}"
#define TURNS(calls)                                                                         \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|{{ m.role }}|>\n" \
    "{{ m.content or '' }}" calls "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"

/* Templates of our own that write calls as those of the families do. */
static const char hermes[] = TURNS(EACH_CALL(
    "", "\n") "<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": "
              "{{ a }}}\n</tool_call>" END_CALLS(""));
static const char quoting[] = TURNS(EACH_CALL(
    "", "\n") "<tool_call>{\"name\": \"{{ f.name }}\", \"arguments\": "
              "{{ f.arguments | tojson }}}</tool_call>" END_CALLS("")) "{# </think> developer #}";
static const char nemotron[] = TURNS(EACH_CALL(
    "<TOOLCALL>[", ", ") "{\"name\": \"{{ f.name }}\", \"arguments\": "
                         "{{ a }}}" END_CALLS("]</TOOLCALL>"));
static const char llama[] =
    TURNS(EACH_CALL("", "; ") "{\"name\": \"{{ f.name }}\", \"parameters\": {{ a }}}" END_CALLS(""));
static const char mistral[] = TURNS(EACH_CALL(
    "[TOOL_CALLS][", ", ") "{\"name\": \"{{ f.name }}\", \"arguments\": {{ a "
                           "}}, \"id\": \"{{ c.id }}\"}" END_CALLS("]"));
static const char mistral_args[] =
    TURNS(EACH_CALL("", "") "[TOOL_CALLS]{{ f.name }}[ARGS]{{ a }}" END_CALLS("")) "{# [THINK]..[/THINK] #}";
static const char deepseek[] = TURNS(EACH_CALL(
    "<｜tool▁calls▁begin｜>", "\n") "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
                                    "{{ f.name }}\n```json\n{{ f.arguments + '' }}\n```"
                                    "<｜tool▁call▁end｜>" END_CALLS("<｜tool▁calls▁end｜>")) "{# <think> </think> #}";
static const char granite[] = TURNS("") "{# calls stand behind <|tool_call|> #}";
static const char phi[] = TURNS("") "{# calls stand in <|tool_call|>[...]<|/tool_call|> #}";
static const char none[] = TURNS("");

static sp_chat_style style_of(const char *template) {
    sp_error err = {0};
    sp_chat *chat = sp_chat_open_text(template, strlen(template), NULL, &err);
    if (!chat) fail_msg("%s", err.text);
    sp_chat_style style = sp_chat_style_of(chat, NULL);
    sp_chat_close(chat);
    return style;
}

static void test_templates_tell_their_format(void **state) {
    (void)state;
    static const struct {
        const char *template, *open, *close, *reasoning;
        bool object_arguments, no_developer;
    } wanted[] = {
        {hermes, "<tool_call>", "</tool_call>", NULL, false, true},
        {quoting, "<tool_call>", "</tool_call>", "<think>", true, false},
        {nemotron, "<TOOLCALL>", "</TOOLCALL>", NULL, false, true},
        {mistral, "[TOOL_CALLS]", NULL, NULL, false, true},
        {mistral_args, "[TOOL_CALLS]", NULL, "[THINK]", false, true},
        {deepseek, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<think>", false, true},
        {granite, "<|tool_call|>", NULL, NULL, false, true},
        {phi, "<|tool_call|>", "<|/tool_call|>", NULL, false, true},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        sp_chat_style style = style_of(wanted[i].template);
        if (!style.calls) {
            fail_msg("%s: no format", wanted[i].open);
            return;
        }
        assert_string_equal(style.calls->open, wanted[i].open);
        assert_true((style.calls->close == NULL) == (wanted[i].close == NULL));
        if (wanted[i].close) assert_string_equal(style.calls->close, wanted[i].close);
        const char *reasoning = style.reasoning ? style.reasoning->open : "none";
        assert_string_equal(reasoning, wanted[i].reasoning ? wanted[i].reasoning : "none");
        assert_int_equal(style.object_arguments, wanted[i].object_arguments);
        assert_int_equal(style.no_developer, wanted[i].no_developer);
    }
    assert_non_null(style_of(llama).calls);
    assert_null(style_of(llama).calls->open);
    assert_null(style_of(none).calls);
    assert_null(style_of("{{ raise_exception('no') }}").calls);
}

/* "content / reasoning / name(arguments) ...", with - for what is not there; heap. */
static char *shown(const sp_answer *answer) {
    sp_buf out = {0};
    if (answer->has_content)
        sp_buf_add(&out, answer->content.text, answer->content.n_bytes);
    else
        sp_buf_text(&out, "-");
    sp_buf_text(&out, " / ");
    if (answer->has_reasoning)
        sp_buf_add(&out, answer->reasoning.text, answer->reasoning.n_bytes);
    else
        sp_buf_text(&out, "-");
    sp_buf_text(&out, " /");
    for (size_t i = 0; i < answer->n_calls; i++) {
        const sp_tool_call *call = &answer->calls[i];
        sp_buf_printf(&out, " %.*s(%.*s)", (int)call->name.n_bytes, call->name.text, (int)call->arguments.n_bytes,
                      call->arguments.text);
    }
    return out.data;
}

typedef struct {
    const char *template, *text, *want; /* NULL: the text as it is, and nothing else */
} answer_case;

static void check_answers(const answer_case *cases, size_t n, sp_answer_options options) {
    for (size_t i = 0; i < n; i++) {
        sp_chat_style style = style_of(cases[i].template);
        sp_answer answer;
        char whole[1000];
        snprintf(whole, sizeof whole, "%s / - /", cases[i].text);
        sp_answer_read(&style, &options, cases[i].text, strlen(cases[i].text), &answer);
        char *got = shown(&answer);
        const char *want = cases[i].want ? cases[i].want : whole;
        if (strcmp(got, want) != 0) fail_msg("%s\nbecame '%s', wanted '%s'", cases[i].text, got, want);
        free(got);
        sp_answer_deinit(&answer);
    }
}

#define CHECK(cases, ...) check_answers(cases, sizeof(cases) / sizeof *(cases), (sp_answer_options){__VA_ARGS__})

static void test_calls(void **state) {
    (void)state;
    static const answer_case cases[] = {
        {hermes,
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": "
         "1.50}}\n</tool_call>",
         "- / - / get_weather({\"city\": \"Zürich\", \"days\": 1.50})"},
        {hermes,
         "I'll look it up.\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
         "{\"arguments\": {\"x\": {\"name\": \"}\\\"]\"}}, \"name\": \"b\"}\n</tool_call>\n",
         "I'll look it up. / - / a({}) b({\"x\": {\"name\": \"}\\\"]\"}})"},
        {hermes, "One.\n<tool_call>{\"name\":\"a\"}</tool_call>\nTwo.", "One.\nTwo. / - / a({})"},
        {hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": \"{\\\"x\\\": 1}\"}", "- / - / a({\"x\": 1})"},
        {hermes, "<tool_call>[{\"name\":\"a\"},{\"name\":\"b\",\"parameters\":{\"y\":12345678901234567}}]</tool_call>",
         "- / - / a({}) b({\"y\":12345678901234567})"},
        {hermes, "<tool_call>{\"name\":\"a\",\"arguments\":{\"y\":123456789012345678901234567890}}</tool_call>",
         "- / - / a({\"y\":123456789012345678901234567890})"},
        {nemotron, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}]</TOOLCALL>",
         "- / - / f({\"a\": [1, 2]})"},
        {llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}",
         "- / - / get_weather({\"city\": \"Oslo\"})"},
        {llama, "<|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}",
         "- / - / a({}) b({})"},
        {llama, "So: <|python_tag|>{\"type\": \"function\", \"name\": \"a\", \"parameters\": {\"k\": null}}",
         "So: / - / a({\"k\": null})"},
        {llama, "[{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": {}}]", "- / - / a({}) b({})"},
        {mistral, "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", \"arguments\": {}}]",
         "- / - / a({\"x\": 1}) b({})"},
        {mistral, "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {}, \"id\": \"VvvODy9mT\"}]", "- / - / a({})"},
        {mistral_args, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[ARGS]{}",
         "- / - / get_weather({\"city\": \"Paris\"}) now({})"},
        {mistral_args, "Well.[TOOL_CALLS]a[CALL_ID]VvvODy9mT[ARGS]{\"x\": 1}", "Well. / - / a({\"x\": 1})"},
        {mistral_args, "[TOOL_CALLS]a{\"x\": 1}", "- / - / a({\"x\": 1})"},
        {deepseek,
         "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
         "\"Bern\"}\n```"
         "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "Hm. / - / get_weather({\"city\": \"Bern\"}) now({})"},
        {granite, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}]", "- / - / f({\"a\": \"b\"})"},
        {phi, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "- / - / f({})"},
    };
    CHECK(cases, .read_calls = true);
}

/* What is not well-formed from its first call to its last stays text, to the byte. */
static void test_broken_calls_stay_text(void **state) {
    (void)state;
    static const answer_case cases[] = {
        {hermes, "No call at all. ", NULL},
        {hermes, "", NULL},
        {hermes, "<tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": 1", NULL},
        {hermes, "<tool_call>\n{'name': 'a', 'arguments': {}}\n</tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": \"\", \"arguments\": {}}\n</tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": 5}\n</tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": [1]}\n</tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": \"x\"}\n</tool_call>", NULL},
        {hermes, "<tool_call>\n{\"name\": \"a\"}, or so\n</tool_call>", NULL},
        {hermes, "<tool_call>{\"name\": \"a\"}</tool_call> <tool_call>{\"name\": </tool_call>", NULL},
        {hermes, "<tool_call>[]</tool_call>", NULL},
        {hermes, "<tool_call>{\"name\": \"a\", \"name\": \"b\"}</tool_call>", NULL},
        {hermes, "<tool_call>{\"a\\", NULL},
        {hermes, "<tool_call>]}</tool_call>", NULL},
        {llama, "{\"name\": \"Ada\", \"age\": 36}", NULL},
        {llama, "{\"name\": \"a\", \"parameters\": {}} is what I would call", NULL},
        {llama, "Sure: {\"name\": \"a\", \"parameters\": {}}", NULL},
        {llama, "<|python_tag|>print(1)", NULL},
        {mistral, "[TOOL_CALLS]", NULL},
        {mistral, "[TOOL_CALLS]a", NULL},
        {mistral, "[TOOL_CALLS][ARGS]{}", NULL},
        {mistral, "[TOOL_CALLS]a[ARGS]b{}", NULL},
        {mistral, "[TOOL_CALLS]a[ARGS]{\"x\": }", NULL},
        {mistral, "[TOOL_CALLS] I would call {\"x\": 1}", NULL},
        {mistral, "[TOOL_CALLS]a[TOOL_CALLS]b[ARGS]{}", NULL},
        {deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{}<｜tool▁call▁end｜>",
         NULL},
        {deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{}\n```", NULL},
        {deepseek, "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", NULL},
        {deepseek,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁call▁end｜><｜tool▁call▁begin｜>b<｜tool▁sep｜>{}"
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         NULL},
        {none, "<tool_call>{\"name\": \"a\"}</tool_call>", NULL},
    };
    CHECK(cases, .read_calls = true);
    static const answer_case unread[] = {{hermes, "<tool_call>{\"name\": \"a\"}</tool_call>", NULL}};
    CHECK(unread, .read_calls = false);
}

static void test_reasoning(void **state) {
    (void)state;
    static const answer_case outside[] = {
        {quoting, "<think>\nTwo and two.\n</think>\n\nFour.\n", "Four.\n / Two and two. /"},
        {quoting, "\n<think></think>\nFour.", "Four. / - /"},
        {quoting, "<think>\nTwo and", "- / Two and /"},
        {quoting, "Four.", NULL},
        {quoting, "The mark </think> and <think> in a text.", NULL},
        {quoting, "<think>Which?</think>\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>",
         "- / Which? / a({})"},
        {quoting, "<think><tool_call>{\"name\": \"a\"}</tool_call></think>No.",
         "No. / <tool_call>{\"name\": \"a\"}</tool_call> /"},
        {mistral_args, "[THINK]Hm.[/THINK]Yes.", "Yes. / Hm. /"},
        {hermes, "<think>Hm.</think>Yes.", NULL},
    };
    CHECK(outside, .read_calls = true);
    static const answer_case inside[] = {
        {quoting, "Two and two.\n</think>\n\nFour.", "Four. / Two and two. /"},
        {quoting, "<think>\nTwo.</think>Four.", "Four. / Two. /"},
        {quoting, "Two and", "- / Two and /"},
        {quoting, "\n</think>\n\nFour.", "Four. / - /"},
    };
    CHECK(inside, .in_reasoning = true);
    static const answer_case kept[] = {
        {quoting, "<think>\nTwo.\n</think>\n\nFour.", NULL},
        {quoting, "Two.\n</think>\n\nFour.", NULL},
    };
    CHECK(kept, .in_reasoning = true, .keep_reasoning = true);
}

static void test_marks(void **state) {
    (void)state;
    sp_chat_style style = style_of(mistral_args);
    const char *const marks[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        assert_true(sp_chat_style_has_mark(&style, marks[i], strlen(marks[i])));
    assert_false(sp_chat_style_has_mark(&style, "</s>", 4));
    sp_chat_style bare = style_of(llama), no_style = {0};
    assert_true(sp_chat_style_has_mark(&bare, "<|python_tag|>", 14));
    assert_false(sp_chat_style_has_mark(&no_style, "<think>", 7));
    sp_chat_style thinks = style_of(quoting);
    assert_true(sp_chat_style_opens_reasoning(&thinks, "<|assistant|>\n<think>\n", 22));
    assert_false(sp_chat_style_opens_reasoning(&thinks, "<think>\n\n</think>\n\n", 19));
    assert_false(sp_chat_style_opens_reasoning(&no_style, "<think>", 7));
}

static char *rendered(const char *template, const char *messages, sp_chat_request request) {
    sp_error err = {0};
    sp_buf out = {0};
    json_error_t where;
    sp_chat *chat = sp_chat_open_text(template, strlen(template), NULL, &err);
    json_t *list = json_loads(messages, 0, &where);
    assert_non_null(list);
    request.messages = list;
    if (!sp_chat_render(chat, &request, &out, NULL, &err)) fail_msg("%s", err.text);
    json_decref(list);
    sp_chat_close(chat);
    return out.data;
}

/* OpenAI's clients give arguments as text, which a template that writes JSON would quote once more. */
static void test_messages_are_adapted(void **state) {
    (void)state;
    static const char messages[] =
        "[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\","
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": [1, \\\"é\\\"]}\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":\"no JSON\"}}]}]";
    char *as_is = rendered(quoting, messages, (sp_chat_request){0});
    assert_non_null(strstr(as_is, "\"arguments\": \"{\\\"x\\\": [1, \\\"é\\\"]}\""));
    assert_non_null(strstr(as_is, "<|developer|>\nd"));
    char *adapted =
        rendered(quoting, messages, (sp_chat_request){.object_arguments = true, .developer_is_system = true});
    assert_non_null(strstr(adapted, "\"arguments\": {\"x\": [1, \"é\"]}}"));
    assert_non_null(strstr(adapted, "\"arguments\": \"no JSON\"}"));
    assert_non_null(strstr(adapted, "<|system|>\nd"));
    free(as_is);
    free(adapted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_tell_their_format),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_broken_calls_stay_text),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_messages_are_adapted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
