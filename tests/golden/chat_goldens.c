/* Chat templates against the reference: every conversation through every real template (skipped where those are not
 * beside the checkout), and our cases of the template language. tools/ref/golden_chat.py writes both goldens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/messages.h"
#include "util/json.h"

static const char templates_path[] = "../shared/cases/chat_templates.json";
static int n_passed, n_failed;

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
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}
