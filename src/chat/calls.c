/* Tool calls in text. One table holds the formats; most are JSON between marks:
 *
 *   what was said  OPEN {"name": ..., "arguments": {...}} CLOSE  OPEN ... CLOSE
 *
 * Arguments are handed out as the very bytes that the model wrote (their numbers and spaces too), once they are known
 * to be one JSON object. */
#include "chat/calls.h"

#include <string.h>

#include "util/json.h"
#include "util/size.h"

/* ---- texts ---- */

static void skip_space(sp_call_reader *r) {
    while (r->at < r->end && sp_is_space(*r->at)) r->at++;
}

static sp_string between(const char *from, const char *to) { return (sp_string){from, (size_t)(to - from)}; }

static const char *find(const char *from, const char *end, const char *mark) {
    return from < end ? memmem(from, (size_t)(end - from), mark, strlen(mark)) : NULL;
}

/* Passes a mark if it is there. */
static bool take(sp_call_reader *r, const char *mark) {
    size_t n = strlen(mark);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, mark, n) != 0) return false;
    r->at += n;
    return true;
}

static sp_string kept(sp_call_reader *r, const char *text, size_t n_bytes) {
    return (sp_string){sp_arena_text(&r->answer->arena, text, n_bytes), n_bytes};
}

/* ---- JSON ---- */

static const char *string_end(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end) at++;
    return at < end ? at + 1 : end;
}

/* Behind the value that begins at `at`, if it is one; what it is made of is looked at by a parser. */
static const char *value_end(const char *at, const char *end) {
    size_t depth = 0;
    while (at < end) {
        char c = *at;
        if (c == '"') {
            at = string_end(at, end);
            if (depth == 0) return at;
            continue;
        }
        if (depth == 0 && (sp_is_space(c) || c == ',')) return at;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') {
            if (depth == 0) return at;
            if (--depth == 0) return at + 1;
        }
        at++;
    }
    return end;
}

/* Integers of any length are fine: nobody looks at a number. */
static json_t *parse_object(sp_string text) {
    sp_error ignored = {0};
    bool is_wide;
    json_t *value = sp_json_parse_wide(text.text, text.n_bytes, "tool call", &is_wide, &ignored);
    if (json_is_object(value)) return value;
    json_decref(value);
    return NULL;
}

static bool is_object(sp_string text) {
    json_t *value = parse_object(text);
    json_decref(value);
    return value != NULL;
}

/* The text of a member's value in an object that is known to be well-formed; n_bytes 0 when there is none. Keys are
 * looked for as they are written, without escapes. */
static sp_string member(sp_string object, const char *key) {
    const char *at = object.text + 1, *end = object.text + object.n_bytes;
    size_t key_bytes = strlen(key);
    for (;;) {
        while (at < end && (sp_is_space(*at) || *at == ',')) at++;
        if (at >= end || *at != '"') return (sp_string){object.text, 0};
        const char *name = at + 1;
        at = string_end(at, end);
        bool is_key = (size_t)(at - 1 - name) == key_bytes && memcmp(name, key, key_bytes) == 0;
        while (at < end && (sp_is_space(*at) || *at == ':')) at++;
        const char *value = at;
        at = value_end(at, end);
        if (is_key) return between(value, at);
    }
}

/* ---- calls ---- */

static void add_call(sp_call_reader *r, sp_string name, sp_string arguments) {
    sp_answer *answer = r->answer;
    if (answer->n_calls == r->room) {
        r->room = r->room ? 2 * r->room : 4;
        sp_tool_call *calls = SP_ARENA_ARRAY(&answer->arena, sp_tool_call, r->room);
        if (answer->n_calls) memcpy(calls, answer->calls, answer->n_calls * sizeof *calls);
        answer->calls = calls;
    }
    answer->calls[answer->n_calls++] = (sp_tool_call){name, arguments};
}

/* Arguments: an object, an object written as a string, or, unless they must be there, nothing. */
static bool find_arguments(sp_call_reader *r, const json_t *call, sp_string text, bool must, sp_string *arguments) {
    const char *key = json_object_get(call, "arguments") ? "arguments" : "parameters";
    const json_t *value = json_object_get(call, key);
    *arguments = (sp_string){"{}", 2};
    if (!value || json_is_null(value)) return !must;
    if (json_is_string(value)) {
        *arguments = kept(r, json_string_value(value), json_string_length(value));
        return is_object(*arguments);
    }
    *arguments = member(text, key);
    return json_is_object(value) && arguments->n_bytes > 0;
}

/* {"name": ..., "arguments" or "parameters": {...}}; other members are passed over. */
static bool read_object(sp_call_reader *r, bool must_have_arguments) {
    sp_string text = between(r->at, value_end(r->at, r->end)), arguments;
    json_t *call = parse_object(text);
    const json_t *name = json_object_get(call, "name");
    bool good = json_string_length(name) > 0 && find_arguments(r, call, text, must_have_arguments, &arguments);
    if (good) add_call(r, kept(r, json_string_value(name), json_string_length(name)), arguments);
    json_decref(call);
    r->at = text.text + text.n_bytes;
    return good;
}

/* One object, or a list of them. */
static bool read_values(sp_call_reader *r, bool must_have_arguments) {
    skip_space(r);
    if (!take(r, "[")) return r->at < r->end && *r->at == '{' && read_object(r, must_have_arguments);
    do {
        skip_space(r);
        if (r->at == r->end || *r->at != '{' || !read_object(r, must_have_arguments)) return false;
        skip_space(r);
    } while (take(r, ","));
    return take(r, "]");
}

static bool read_json(sp_call_reader *r) { return read_values(r, false); }

/* Calls that are the whole answer, one after another, perhaps with ; between them. */
static bool read_bare(sp_call_reader *r) {
    do {
        if (!read_values(r, true)) return false;
        skip_space(r);
        if (take(r, ";")) skip_space(r);
    } while (r->at < r->end);
    return true;
}

/* Of a name that stands without quotes: one word, which holds no mark. */
static bool is_name(sp_string text) {
    for (size_t i = 0; i < text.n_bytes; i++)
        if (sp_is_space(text.text[i]) || text.text[i] == '[' || text.text[i] == '<') return false;
    return text.n_bytes > 0;
}

/* A list as above, or NAME [CALL_ID] ID [ARGS] {...}, with or without each of the two marks. */
static bool read_mistral(sp_call_reader *r) {
    skip_space(r);
    if (r->at < r->end && (*r->at == '[' || *r->at == '{')) return read_json(r);
    const char *brace = find(r->at, r->end, "{");
    if (!brace) return false;
    const char *args = find(r->at, brace, "[ARGS]"), *id = find(r->at, brace, "[CALL_ID]");
    sp_string name = sp_string_trimmed(between(r->at, id ? id : args ? args : brace));
    sp_string arguments = between(brace, value_end(brace, r->end));
    if (!is_name(name) || !is_object(arguments)) return false;
    if (args && sp_string_trimmed(between(args + strlen("[ARGS]"), brace)).n_bytes) return false;
    add_call(r, name, arguments);
    r->at = arguments.text + arguments.n_bytes;
    return true;
}

#define DEEPSEEK_CALL "<｜tool▁call▁begin｜>"
#define DEEPSEEK_CALL_END "<｜tool▁call▁end｜>"
#define DEEPSEEK_SEPARATOR "<｜tool▁sep｜>"

/* begin, then TYPE sep NAME and arguments in a fence, or NAME sep arguments, then end; as often as there are calls. */
static bool read_deepseek(sp_call_reader *r) {
    static const char fence[] = "```json\n", fence_end[] = "\n```";
    size_t n_calls = 0;
    for (skip_space(r); take(r, DEEPSEEK_CALL); skip_space(r), n_calls++) {
        const char *end = find(r->at, r->end, DEEPSEEK_CALL_END);
        const char *separator = end ? find(r->at, end, DEEPSEEK_SEPARATOR) : NULL;
        if (!separator) return false;
        const char *body = separator + strlen(DEEPSEEK_SEPARATOR), *fenced = find(body, end, fence);
        sp_string name = sp_string_trimmed(fenced ? between(body, fenced) : between(r->at, separator));
        sp_string arguments = sp_string_trimmed(between(fenced ? fenced + strlen(fence) : body, end));
        if (fenced) {
            size_t n = strlen(fence_end);
            if (arguments.n_bytes < n || memcmp(arguments.text + arguments.n_bytes - n, fence_end, n) != 0)
                return false;
            arguments.n_bytes -= n;
        }
        if (!is_name(name) || !is_object(arguments)) return false;
        add_call(r, name, arguments);
        r->at = end + strlen(DEEPSEEK_CALL_END);
    }
    return n_calls > 0;
}

const sp_call_format sp_call_formats[] = {
    {"<tool_call>", "</tool_call>", {NULL}, read_json},
    {"<TOOLCALL>", "</TOOLCALL>", {NULL}, read_json},
    {"[TOOL_CALLS]", NULL, {"[ARGS]", "[CALL_ID]"}, read_mistral},
    {"<|tool_call|>", "<|/tool_call|>", {NULL}, read_json},
    {"<|tool_call|>", NULL, {NULL}, read_json},
    {"<｜tool▁calls▁begin｜>",
     "<｜tool▁calls▁end｜>",
     {DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_SEPARATOR},
     read_deepseek},
    {"functools", NULL, {NULL}, read_json},
    {NULL, NULL, {"<|python_tag|>"}, read_bare},
};
const size_t sp_n_call_formats = sizeof sp_call_formats / sizeof *sp_call_formats;

/* ---- a whole text ---- */

/* What stands around calls, put together: the white space next to calls goes, pieces are lines of their own. */
static void add_piece(sp_buf *content, const char *from, const char *to, bool is_first, bool is_last) {
    while (!is_first && from < to && sp_is_space(*from)) from++;
    while (!is_last && from < to && sp_is_space(to[-1])) to--;
    if (from == to) return;
    if (content->n_bytes) sp_buf_char(content, '\n');
    sp_buf_add(content, from, (size_t)(to - from));
}

/* Calls between marks. */
static bool read_marked(const sp_call_format *format, sp_call_reader *r, sp_buf *content) {
    const char *from = r->at, *hit;
    bool is_first = true;
    for (; (hit = find(from, r->end, format->open)); from = r->at, is_first = false) {
        add_piece(content, from, hit, is_first, false);
        r->at = hit + strlen(format->open);
        if (!format->read(r)) return false;
        if (!format->close) continue;
        skip_space(r);
        if (r->at < r->end && !take(r, format->close)) return false;
    }
    if (!is_first) add_piece(content, from, r->end, false, true);
    return !is_first;
}

/* Calls without marks, but for one that may stand before them, behind what was said. */
static bool read_unmarked(const sp_call_format *format, sp_call_reader *r, sp_buf *content) {
    const char *hit = format->marks[0] ? find(r->at, r->end, format->marks[0]) : NULL;
    if (hit) {
        add_piece(content, r->at, hit, true, false);
        r->at = hit + strlen(format->marks[0]);
    }
    return format->read(r);
}

bool sp_calls_read(const sp_call_format *format, const char *text, size_t n_bytes, sp_answer *answer) {
    sp_call_reader r = {.at = text, .end = text + n_bytes, .answer = answer};
    sp_buf content = {0};
    bool good = format->open ? read_marked(format, &r, &content) : read_unmarked(format, &r, &content);
    SP_CHECK(!content.failed);
    if (good) {
        answer->has_content = content.n_bytes > 0;
        if (answer->has_content) answer->content = kept(&r, content.data, content.n_bytes);
    } else {
        answer->n_calls = 0;
    }
    sp_buf_deinit(&content);
    return good;
}
