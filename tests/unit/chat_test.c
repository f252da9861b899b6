/* What the goldens do not show: limits, the ranges of the user's text, ends of turns, files, and what is around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "chat/messages.h"
#include "util/clock.h"
#include "util/json.h"

typedef struct {
    sp_buf out;
    sp_error err;
    sp_chat_spans spans;
    bool ok;
} result;

static json_t *json(const char *text) {
    sp_error err = {0};
    json_t *value = sp_json_parse(text, strlen(text), "test", &err);
    assert_non_null(value);
    return value;
}

/* Renders with `user` (JSON of the user's globals, or NULL); to be freed with done(). */
static result render(const char *text, const char *user, size_t memory_bytes) {
    result res = {0};
    json_t *globals = user ? json(user) : NULL;
    sp_template *tpl = sp_template_parse(text, strlen(text), "template", &res.err);
    if (tpl) {
        sp_render_options options = {
            .user_globals = globals, .memory_bytes = memory_bytes, .now_s = 86400, .user_text = &res.spans};
        res.ok = sp_template_render(tpl, &options, &res.out, &res.err);
    }
    sp_template_free(tpl);
    json_decref(globals);
    return res;
}

static void done(result *res) {
    sp_buf_deinit(&res->out);
    sp_chat_spans_deinit(&res->spans);
}

static void assert_renders(const char *text, const char *user, const char *want) {
    result res = render(text, user, 0);
    if (!res.ok) fail_msg("%s: %s", text, res.err.text);
    assert_string_equal(res.out.data ? res.out.data : "", want);
    done(&res);
}

/* The rendering with the user's ranges in brackets. */
static void assert_marks(const char *text, const char *user, const char *want) {
    result res = render(text, user, 0);
    if (!res.ok) fail_msg("%s: %s", text, res.err.text);
    sp_buf marked = {0};
    size_t at = 0;
    for (size_t i = 0; i < res.spans.n; i++) {
        sp_text_span span = res.spans.items[i];
        assert_true(span.from_bytes >= at && span.to_bytes > span.from_bytes && span.to_bytes <= res.out.n_bytes);
        sp_buf_add(&marked, res.out.data + at, span.from_bytes - at);
        sp_buf_char(&marked, '[');
        sp_buf_add(&marked, res.out.data + span.from_bytes, span.to_bytes - span.from_bytes);
        sp_buf_char(&marked, ']');
        at = span.to_bytes;
    }
    if (res.out.n_bytes) sp_buf_add(&marked, res.out.data + at, res.out.n_bytes - at);
    assert_string_equal(marked.data, want);
    sp_buf_deinit(&marked);
    done(&res);
}

static void assert_refused(const char *text, size_t memory_bytes, const char *part) {
    uint64_t start_ns = sp_clock_cpu_ns();
    result res = render(text, NULL, memory_bytes);
    assert_false(res.ok);
    assert_int_equal(res.err.code, SP_ERR_INPUT);
    if (!strstr(res.err.text, part)) fail_msg("%s: %s", text, res.err.text);
    assert_int_equal(res.out.n_bytes, 0);
    assert_true(sp_clock_cpu_ns() - start_ns < UINT64_C(5000000000)); /* the bound is 1 s */
    done(&res);
}

static void test_time_is_bounded(void **state) {
    (void)state;
    assert_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 0, "time");
    assert_refused("{% set l = range(99999)|list %}{% for a in l %}{% if l == l|list %}{% endif %}{% endfor %}", 0, "");
    assert_refused("{% set s = 'ab' * 9999999 %}{% for i in range(9999) %}{{ s.count('ba') }}{% endfor %}", 0, "time");
    assert_refused("{% set s = 'a' * 9999999 %}{% for i in range(9999) %}{{ s.rfind('b') }}{% endfor %}", 0, "time");
    assert_refused("{% set s = 'é' * 9999999 %}{% for i in range(9999) %}{% set x = s[-1] %}{% endfor %}", 0, "time");
}

static void test_memory_is_bounded(void **state) {
    (void)state;
    static const char *const hostile[] = {
        "{{ 'x' * 1000000000 }}",
        "{{ 'x' * 1000000000 * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ [] * 9223372036854775807 ~ [1, 2] * 9223372036854775807 }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x'|center(9000000000000000000) }}",
        "{{ 'x'.ljust(1000000000, '\\u00e9') }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{{ 'a\\nb'|indent(1000000000) }}",
        "{{ [1]|tojson(indent=1000000000) }}",
        "{{ [1]|batch(1000000000, 'x')|list }}",
        "{{ '\\t'.expandtabs(1000000000) }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=['a']) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        assert_refused(hostile[i], 0, " rendering may"); /* of memory; of time where the machine is slow */
    assert_refused("{{ 'x' * 100000 }}", 65536, "memory");
    assert_refused("{{ '%1000000000d' % 1 }}", 0, "beyond");
    assert_refused("{{ '{:1000000000}'.format(1) }}", 0, "beyond");
    assert_refused("{{ range(10000000) }}", 0, "MAX_RANGE");
}

/* n times a, then middle, then n times b; for free(). */
static char *nested(const char *a, const char *middle, const char *b, size_t n) {
    sp_buf text = {0};
    for (size_t i = 0; i < n; i++) sp_buf_text(&text, a);
    sp_buf_text(&text, middle);
    for (size_t i = 0; i < n; i++) sp_buf_text(&text, b);
    return text.data;
}

static void test_depth_is_bounded(void **state) {
    (void)state;
    static const char *const shapes[][3] = {
        {"{{ ", "1", ""},
        {"(", "", ""},
        {"{% if 1 %}", "x", "{% endif %}"},
        {"{{ '' ", "}}", ""},
        {"{% for i in [1] %}", "x", "{% endfor %}"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char *text = nested(shapes[i][0], shapes[i][1], shapes[i][2], 5000);
        result res = render(text, NULL, 0);
        assert_true(res.ok || res.err.code == SP_ERR_INPUT);
        done(&res);
        free(text);
    }
    static const char *const chains[][3] = {
        {"(", "1", ")"},       {"[", "", "]"},     {"-", "1", ""},    {"not ", "1", ""},
        {"1 + ", "1", ""},     {"1 ** ", "1", ""}, {"{1:", "1", "}"}, {"1 if 1 else ", "1", ""},
        {"", "a", ".b"},       {"", "a", "()"},    {"", "a", "|e"},   {"", "a", "[0]"},
        {"x is not ", "x", ""}};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        char *inner = nested(chains[i][0], chains[i][1], chains[i][2], 20000);
        char *text = nested("{{ ", inner, " }}", 1);
        result res = render(text, NULL, 0);
        assert_false(res.ok);
        assert_int_equal(res.err.code, SP_ERR_INPUT);
        done(&res);
        free(inner);
        free(text);
    }
    assert_refused("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", 0, "deep");
    assert_refused("{% macro f(x) %}{{ caller }}{% call f(x) %}{% endcall %}{% endmacro %}{{ f(1) }}", 0, "deep");
    assert_refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", 0, "deep");
    assert_refused(
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}", 0,
        "deep");
    assert_refused(
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}"
        "{{ ns.s|tojson }}",
        0, "deep");
    assert_refused(
        "{% set ns = namespace(s=()) %}{% for i in range(9999) %}{% set ns.s = (ns.s,) %}{% endfor %}"
        "{{ {ns.s: 1} }}",
        0, "deep");
    assert_refused(
        "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = ns.s|map('string') %}{% endfor %}"
        "{{ ns.s|list }}",
        0, "deep");
}

/* Appending piece by piece is linear: quadratic copying would not fit the limit. */
static void test_appending_is_linear(void **state) {
    (void)state;
    result res = render(
        "{% set ns = namespace(s='') %}{% for i in range(50000) %}{% set ns.s = ns.s + 'abcdefgh' %}"
        "{% endfor %}{{ ns.s|length }}",
        NULL, 0);
    if (!res.ok) fail_msg("%s", res.err.text);
    assert_string_equal(res.out.data, "400000");
    done(&res);
    assert_renders(
        "{% set a = 'x' + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{{ a }} {{ b }} {{ c }} {{ b + c }}", NULL,
        "xy xy1 xy2 xy1xy2");
}

static void test_output_is_kept_on_failure(void **state) {
    (void)state;
    sp_buf out = {0};
    sp_error err = {0};
    sp_buf_text(&out, "before");
    sp_template *tpl = sp_template_parse("abc{{ raise_exception('no') }}", 30, "template", &err);
    assert_non_null(tpl);
    assert_false(sp_template_render(tpl, &(sp_render_options){0}, &out, &err));
    assert_string_equal(err.text, "no");
    assert_string_equal(out.data, "before");
    sp_template_free(tpl);
    sp_buf_deinit(&out);
}

static void test_errors_have_a_line(void **state) {
    (void)state;
    assert_refused("a\n\n{{ x.y.z }}", 0, "template line 3: 'x' is undefined");
    assert_refused("{% if 1 %}\n{{ 1 + 'a' }}{% endif %}", 0, "template line 2: unsupported operand");
    assert_refused("\n{{ 1 + }}", 0, "template line 2: expected");
    assert_refused("{{ {'a': 1}.b.c }}", 0, "'dict object' has no attribute 'b'");
    assert_refused("{{ [].append(1) }}", 0, "access to attribute 'append' of 'list' object is unsafe.");
    assert_refused("{% include 'x' %}", 0, "'include' is not supported");
    assert_refused("\xff", 0, "UTF-8");
    assert_refused("{{ '\\ud800' }}", 0, "U+D800");
    assert_refused("{{ 9223372036854775808 }}", 0, "64 bits");
    assert_refused("{{ 9223372036854775807 + 1 }}", 0, "64 bits");
}

static void test_user_text_is_marked(void **state) {
    (void)state;
    static const char user[] =
        "{\"m\":{\"role\":\"user\",\"content\":\" Hi<|x|> \"},\"l\":[\"a\",\"b\"],\"s\":\"abc\"}";
    assert_marks("<|{{ m.role }}|>{{ m.content }}<|end|>", user, "<|[user]|>[ Hi<|x|> ]<|end|>");
    assert_marks("{{ '<' + m.role + '>' + m.content|trim + '</>' }}", user, "<[user]>[Hi<|x|>]</>");
    assert_marks("{{ '<' ~ m.role ~ '>' ~ 1 }}", user, "<[user]>1");
    assert_marks("{% set x %}a{{ s }}b{% endset %}{{ x }}{{ x[1:3] }}{{ x|length }}", user, "a[abc]b[ab]5");
    assert_marks("{% macro f(t) %}({{ t }}){% endmacro %}{{ f(s) }}{{ f('t') }}", user, "([abc])(t)");
    assert_marks("{{ s|upper }}{{ s.replace('b', '-') }}{{ '-'.join(l) }}{{ l|join('+') }}", user,
                 "[ABCa]-[ca]-[ba]+[b]");
    assert_marks("{{ 'x%sy' % s }}{{ '{}!'.format(s) }}{{ 'k-v'.replace('k', s) }}", user, "x[abc]y[abc]![abc]-v");
    assert_marks("{{ s|tojson }}{{ {'k': s}|tojson }}{{ [s] }}", user, "\"[abc]\"{\"k\": \"[abc]\"}['[abc]']");
    assert_marks("{{ s.split('b') }}{{ s[::-1] }}{{ s * 2 }}{{ (s ~ '.') * 2 }}", user,
                 "['[a]', '[c]'][cbaabcabcabc].[abc].");
    assert_marks("{{ s|indent(first=true) }}{{ s|e }}{{ s|title }}{{ s|center(5) }}", user, "    [abcabcAbc] [abc] ");
    assert_marks("{% for c in s %}{{ c }}-{% endfor %}{% for k, v in m.items() %}{{ v }}{% endfor %}", user,
                 "[a]-[b]-[c]-[user Hi<|x|> ]");
    assert_marks("plain {{ 1 }}", user, "plain 1");
}

static void test_date(void **state) {
    (void)state;
    assert_renders("{{ strftime_now('%Y-%m-%d') }}", NULL, "1970-01-02");
}

static void test_reads(void **state) {
    (void)state;
    static const char text[] = "{% set a = tools %}{% for b in c %}{{ d.documents }}{% endfor %}{% set unread = 1 %}";
    sp_error err = {0};
    sp_template *tpl = sp_template_parse(text, sizeof text - 1, "template", &err);
    assert_non_null(tpl);
    assert_true(sp_template_reads(tpl, "tools"));
    assert_true(sp_template_reads(tpl, "c"));
    assert_false(sp_template_reads(tpl, "documents"));
    assert_false(sp_template_reads(tpl, "unread"));
    assert_false(sp_template_reads(tpl, "messages"));
    sp_template_free(tpl);
}

/* ---- chats ---- */

static sp_chat *chat_of(const char *text, const char *special) {
    sp_error err = {0};
    json_t *tokens = special ? json(special) : NULL;
    sp_chat *chat = sp_chat_open_text(text, text ? strlen(text) : 0, tokens, &err);
    if (!chat) fail_msg("%s", err.text);
    json_decref(tokens);
    return chat;
}

static void assert_chat(const sp_chat *chat, const char *messages, const char *tools, const char *kwargs,
                        const char *want) {
    sp_buf out = {0};
    sp_error err = {0};
    json_t *m = json(messages), *t = tools ? json(tools) : NULL, *k = kwargs ? json(kwargs) : NULL;
    sp_chat_request request = {.messages = m, .tools = t, .kwargs = k};
    bool ok = sp_chat_render(chat, &request, &out, NULL, &err);
    assert_string_equal(ok ? out.data ? out.data : "" : err.text, want);
    json_decref(m);
    json_decref(t);
    json_decref(k);
    sp_buf_deinit(&out);
}

static void test_messages_are_normalized(void **state) {
    (void)state;
    sp_chat *chat = chat_of("{{ messages|tojson }}", NULL);
    assert_chat(chat, "[{\"role\":\"a\",\"x\":null,\"y\":{\"z\":null}}]", NULL, NULL,
                "[{\"role\": \"a\", \"y\": {\"z\": null}}]");
    assert_chat(chat, "[{\"role\":\"a\",\"reasoning\":\"R\"}]", NULL, NULL,
                "[{\"thinking\": \"R\", \"role\": \"a\", \"reasoning\": \"R\", \"reasoning_content\": \"R\"}]");
    assert_chat(chat, "[{\"reasoning_content\":null,\"thinking\":\"T\",\"c\":1}]", NULL, NULL,
                "[{\"thinking\": \"T\", \"c\": 1, \"reasoning_content\": \"T\"}]");
    assert_chat(chat, "[]", NULL, NULL, "messages: empty; a conversation has at least one");
    assert_chat(chat, "[1]", NULL, NULL, "messages[0]: not an object");
    assert_chat(chat, "[{}]", "[\"x\"]", NULL, "tools[0]: not an object");
    assert_chat(chat, "[{}]", NULL, "{\"tools\":1}", "chat_template_kwargs: 'tools' has a field of its own");
    sp_chat_close(chat);
}

static void test_globals(void **state) {
    (void)state;
    sp_chat *chat =
        chat_of("{{ bos_token }}{{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ k }}",
                "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}");
    assert_chat(chat, "[{}]", NULL, "{\"k\":1}", "<s></s>NoneNoneFalse1");
    assert_chat(chat, "[{}]", "[]", "{\"bos_token\":\"B\"}", "B</s>[]NoneFalse");
    assert_true(sp_chat_reads(chat, true, "tools"));
    sp_chat_close(chat);
    chat = chat_of(NULL, NULL);
    assert_false(sp_chat_has_template(chat));
    assert_false(sp_chat_reads(chat, true, "tools"));
    assert_chat(chat, "[{}]", NULL, NULL, "the model has no chat template");
    sp_chat_close(chat);
}

static void assert_turn_ends(const char *text, const char *want) {
    sp_chat *chat = chat_of(text, NULL);
    sp_buf out = {0};
    sp_error err = {0};
    bool ok = sp_chat_end_of_turn(chat, &out, &err);
    assert_string_equal(ok ? out.data ? out.data : "" : err.text, want);
    sp_buf_deinit(&out);
    sp_chat_close(chat);
}

static void test_end_of_turn(void **state) {
    (void)state;
    assert_turn_ends("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}", "<|end|>\n");
    assert_turn_ends("{% for m in messages %}{{ m.content|trim }}{% endfor %}", "");
    assert_turn_ends("{% for m in messages %}{{ m.content[0].text }}</s>{% endfor %}", "</s>");
    assert_turn_ends(
        "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
        "{% for m in messages %}{{ m.content }}<e>{% endfor %}",
        "<e>");
    assert_turn_ends("{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}{{ messages[0].content }}<e>",
                     "<e>");
    assert_turn_ends("{{ raise_exception('never') }}", "never");
}

/* ---- files ---- */

static char dir[] = "/tmp/spill-chat-XXXXXX";

static void put(const char *name, const char *text) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_dir(const char *tools, const char *want) {
    sp_error err = {0};
    sp_chat *chat = sp_chat_open_hf(dir, &err);
    if (chat)
        assert_chat(chat, "[{}]", tools, NULL, want);
    else
        assert_non_null(strstr(err.text, want));
    sp_chat_close(chat);
}

static void test_files(void **state) {
    (void)state;
    assert_non_null(mkdtemp(dir));
    char sub[200];
    snprintf(sub, sizeof sub, "%s/additional_chat_templates", dir);
    assert_dir(NULL, "the model has no chat template");
    put("tokenizer_config.json",
        "{\"chat_template\":\"config{{ bos_token }}{{ image_token }}{{ e_token }}\",\"bos_token\":"
        "{\"content\":\"<b>\"},\"image_token\":\"<i>\",\"add_bos_token\":true,"
        "\"extra_special_tokens\":{\"e_token\":\"<e>\"}}");
    assert_dir(NULL, "config<b><i><e>");
    put("special_tokens_map.json", "{\"bos_token\":\"<old>\"}");
    assert_dir(NULL, "config<old><i><e>");
    put("special_tokens_map.json", NULL);
    put("chat_template.jinja", "file");
    assert_dir(NULL, "file");
    assert_int_equal(mkdir(sub, 0700), 0);
    put("additional_chat_templates/tool_use.jinja", "use{{ tools }}");
    assert_dir(NULL, "file");
    assert_dir("[]", "use[]");
    put("chat_template.jinja", NULL);
    assert_dir(NULL, "the model has several chat templates, and none is named 'default'");
    put("additional_chat_templates/tool_use.jinja", NULL);
    assert_int_equal(rmdir(sub), 0);
    put("tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"tool_use\","
        "\"template\":\"T\"},{\"name\":\"rag\",\"template\":\"{{\"}]}");
    assert_dir(NULL, "D");
    assert_dir("[]", "T");
    put("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"x\"}]}");
    assert_dir(NULL, "the model has several chat templates, and none is named 'default'");
    put("tokenizer_config.json", "{\"chat_template\":5}");
    assert_dir(NULL, "neither a string nor a list");
    put("tokenizer_config.json", "{\"chat_template\":\"{% if %}\"}");
    assert_dir(NULL, "chat template line 1");
    put("tokenizer_config.json", "[]");
    assert_dir(NULL, "not a JSON object");
    put("tokenizer_config.json", NULL);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_is_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_appending_is_linear),
        cmocka_unit_test(test_output_is_kept_on_failure),
        cmocka_unit_test(test_errors_have_a_line),
        cmocka_unit_test(test_user_text_is_marked),
        cmocka_unit_test(test_date),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_messages_are_normalized),
        cmocka_unit_test(test_globals),
        cmocka_unit_test(test_end_of_turn),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
