/* What a model wrote, taken apart; and what a template tells of how it is written. */
#include "chat/answer.h"

#include <string.h>

#include "chat/calls.h"
#include "util/json.h"

/* The template's own words decide which, if any. */
static const sp_reasoning_marks reasoning_marks[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

/* ---- what a template tells ---- */

#define PROBE_NAME "spill_probe"
#define PROBE_ARGUMENTS "{\"spill\": \"turn\"}"

static json_t *probe_tools(void) {
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}}}}}]", "type", "function", "function", "name", PROBE_NAME,
                     "description", "d", "parameters", "type", "object", "properties", "spill", "type", "string");
}

/* A user's turn, and, when wanted, the assistant's call that follows. Nine letters are an id that every template takes.
 */
static json_t *probe_messages(bool with_call, bool as_object) {
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "u");
    if (!with_call) return messages;
    json_t *arguments = as_object ? json_pack("{s:s}", "spill", "turn") : json_string(PROBE_ARGUMENTS);
    json_array_append_new(messages, json_pack("{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:o}}]}", "role", "assistant", "content", "",
                                              "tool_calls", "id", "spillcall", "type", "function", "function", "name",
                                              PROBE_NAME, "arguments", arguments));
    return messages;
}

static bool render_probe(const sp_chat *chat, bool with_call, bool as_object, sp_buf *out) {
    json_t *messages = probe_messages(with_call, as_object), *tools = probe_tools();
    sp_chat_request request = {.messages = messages, .tools = tools, .add_generation_prompt = !with_call, .now_s = 1};
    sp_error ignored = {0}; /* a template that refuses the probe tells nothing */
    bool good = sp_chat_render(chat, &request, out, NULL, &ignored) && out->n_bytes > 0;
    json_decref(messages);
    json_decref(tools);
    return good;
}

/* Whether the format gives back the probe's call, with its arguments as an object. */
static bool gives_back(const sp_call_format *format, const char *text, size_t n_bytes) {
    sp_answer answer = {0};
    sp_error ignored = {0};
    bool good = sp_calls_read(format, text, n_bytes, &answer) && answer.n_calls == 1 &&
                answer.calls[0].name.n_bytes == strlen(PROBE_NAME) &&
                memcmp(answer.calls[0].name.text, PROBE_NAME, strlen(PROBE_NAME)) == 0;
    json_t *got =
        good ? sp_json_parse(answer.calls[0].arguments.text, answer.calls[0].arguments.n_bytes, "probe", &ignored)
             : NULL;
    json_t *want = json_pack("{s:s}", "spill", "turn");
    good = good && json_equal(got, want);
    json_decref(got);
    json_decref(want);
    sp_answer_deinit(&answer);
    return good;
}

/* Where the answer begins in a conversation that begins like the prompt; where the two part within a mark ("<think>",
 * "<TOOLCALL>"), before it. */
static size_t answer_begin(const sp_buf *prompt, const sp_buf *with_call) {
    size_t from = 0;
    while (from < prompt->n_bytes && from < with_call->n_bytes && prompt->data[from] == with_call->data[from]) from++;
    if (from == prompt->n_bytes) return from;
    while (from > 0 && prompt->data[from - 1] != '\n' && prompt->data[from - 1] != '>') from--;
    return from;
}

/* The format of the call. What ends the turn is left out for formats that want the whole text. */
static const sp_call_format *find_format(const sp_buf *prompt, const sp_buf *with_call) {
    size_t from = answer_begin(prompt, with_call), to = with_call->n_bytes;
    while (to > from && with_call->data[to - 1] != '}' && with_call->data[to - 1] != ']') to--;
    for (size_t i = 0; i < sp_n_call_formats; i++) {
        const sp_call_format *format = &sp_call_formats[i];
        size_t end = format->open ? with_call->n_bytes : to;
        if (gives_back(format, with_call->data + from, end - from)) return format;
    }
    return NULL;
}

/* For templates that write no calls of earlier turns: the format of which they speak. */
static const sp_call_format *find_mentioned(const sp_chat *chat) {
    for (size_t i = 0; i < sp_n_call_formats; i++) {
        const sp_call_format *format = &sp_call_formats[i];
        if (format->open && sp_chat_mentions(chat, format->open) &&
            (!format->close || sp_chat_mentions(chat, format->close)))
            return format;
    }
    return NULL;
}

/* How the template writes calls, and in which form it wants their arguments. */
static void find_calls(const sp_chat *chat, sp_chat_style *style) {
    sp_buf prompt = {0}, objects = {0}, texts = {0};
    bool has_prompt = render_probe(chat, false, false, &prompt);
    bool has_objects = has_prompt && render_probe(chat, true, true, &objects);
    bool has_texts = has_prompt && render_probe(chat, true, false, &texts);
    if (has_objects) style->calls = find_format(&prompt, &objects);
    style->object_arguments = style->calls && !(has_texts && strstr(texts.data, PROBE_ARGUMENTS));
    if (!style->calls && has_texts) style->calls = find_format(&prompt, &texts);
    if (!style->calls) style->calls = find_mentioned(chat);
    sp_buf_deinit(&prompt);
    sp_buf_deinit(&objects);
    sp_buf_deinit(&texts);
}

static bool is_declared(const sp_reasoning_marks *marks, const sp_chat *chat, const sp_tokenizer *tokenizer) {
    return sp_chat_mentions(chat, marks->close) ||
           (tokenizer && sp_tokenizer_find(tokenizer, marks->close, strlen(marks->close)) >= 0);
}

sp_chat_style sp_chat_style_of(const sp_chat *chat, const sp_tokenizer *tokenizer) {
    sp_chat_style style = {0};
    if (!sp_chat_has_template(chat)) return style;
    find_calls(chat, &style);
    for (size_t i = 0; i < sizeof reasoning_marks / sizeof *reasoning_marks && !style.reasoning; i++)
        if (is_declared(&reasoning_marks[i], chat, tokenizer)) style.reasoning = &reasoning_marks[i];
    style.no_developer = !sp_chat_mentions(chat, "developer");
    return style;
}

static bool is_mark(const char *mark, const char *text, size_t n_bytes) {
    return mark && strlen(mark) == n_bytes && memcmp(mark, text, n_bytes) == 0;
}

bool sp_chat_style_has_mark(const sp_chat_style *style, const char *text, size_t n_bytes) {
    const sp_call_format *calls = style->calls;
    bool found = style->reasoning &&
                 (is_mark(style->reasoning->open, text, n_bytes) || is_mark(style->reasoning->close, text, n_bytes));
    if (!calls) return found;
    found |= is_mark(calls->open, text, n_bytes) || is_mark(calls->close, text, n_bytes);
    for (size_t i = 0; i < sizeof calls->marks / sizeof *calls->marks; i++)
        found |= is_mark(calls->marks[i], text, n_bytes);
    return found;
}

/* ---- an answer ---- */

bool sp_chat_style_opens_reasoning(const sp_chat_style *style, const char *prompt_end, size_t n_bytes) {
    if (!style->reasoning) return false;
    sp_string end = sp_string_trimmed((sp_string){prompt_end, n_bytes});
    size_t n = strlen(style->reasoning->open);
    return end.n_bytes >= n && memcmp(end.text + end.n_bytes - n, style->reasoning->open, n) == 0;
}

/* Takes the reasoning off the front of *text. Reasoning that never ends is all there is. */
static void take_reasoning(const sp_reasoning_marks *marks, bool is_inside, sp_string *text, sp_answer *answer) {
    sp_string rest = sp_string_trimmed(*text);
    size_t n_open = strlen(marks->open), n_close = strlen(marks->close);
    if (rest.n_bytes >= n_open && memcmp(rest.text, marks->open, n_open) == 0) {
        rest = (sp_string){rest.text + n_open, rest.n_bytes - n_open};
    } else if (!is_inside) {
        return;
    }
    const char *end = text->text + text->n_bytes, *close = memmem(rest.text, rest.n_bytes, marks->close, n_close);
    answer->reasoning = sp_string_trimmed((sp_string){rest.text, close ? (size_t)(close - rest.text) : rest.n_bytes});
    answer->has_reasoning = answer->reasoning.n_bytes > 0;
    answer->has_content = close != NULL;
    const char *content = close ? close + n_close : end;
    while (content < end && sp_is_space(*content)) content++;
    *text = (sp_string){content, (size_t)(end - content)};
}

void sp_answer_read(const sp_chat_style *style, const sp_answer_options *options, const char *text, size_t n_bytes,
                    sp_answer *answer) {
    *answer = (sp_answer){.has_content = true};
    sp_string rest = {text, n_bytes};
    if (style->reasoning && !options->keep_reasoning)
        take_reasoning(style->reasoning, options->in_reasoning, &rest, answer);
    if (style->calls && options->read_calls && sp_calls_read(style->calls, rest.text, rest.n_bytes, answer)) return;
    answer->content = rest;
}

void sp_answer_deinit(sp_answer *answer) {
    sp_arena_deinit(&answer->arena);
    *answer = (sp_answer){0};
}
