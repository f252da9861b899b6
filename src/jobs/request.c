/* A row's request: the line, its shape, its name, and what its fields (request_fields.h) say of one another. */
#include "jobs/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobs/request_fields.h"
#include "util/json.h"

enum { MAX_ID_BYTES = 512 };

static const char *const code_names[] = {
    [SP_ROW_OK] = "ok",
    [SP_ROW_INVALID_JSON] = "invalid_json",
    [SP_ROW_INVALID_REQUEST] = "invalid_request",
    [SP_ROW_DUPLICATE_ID] = "duplicate_custom_id",
    [SP_ROW_TEMPLATE] = "template_error",
    [SP_ROW_TOO_LONG] = "context_length_exceeded",
    [SP_ROW_NUMERIC] = "numeric_error",
};
_Static_assert(sizeof code_names / sizeof *code_names == SP_ROW_CODE_COUNT, "a name for each code");

const char *sp_row_code_name(sp_row_code code) { return code_names[code]; }

sp_decoding sp_decoding_default(void) { return (sp_decoding){.max_tokens = 256, .top_p = 1.0}; }

/* ---- the line ---- */

static const struct {
    const char *key;
    sp_shape shape;
    unsigned where;
} shapes[] = {
    {"body", SP_SHAPE_BATCH, SP_IN_BODY},
    {"messages", SP_SHAPE_CHAT, SP_IN_CHAT},
    {"prompt", SP_SHAPE_PROMPT, SP_IN_PROMPT},
};

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

/* Fields that speak of one another. */
static bool check_together(sp_request *request, const json_t *object, sp_error *err) {
    const json_t *one = json_object_get(object, "max_tokens"),
                 *other = json_object_get(object, "max_completion_tokens");
    if (!is_absent(one) && !is_absent(other) && json_number_value(one) != json_number_value(other))
        return sp_fail(err, SP_ERR_INPUT, "max_tokens, max_completion_tokens: two different values, one wanted");
    if (request->decoding.top_logprobs && !request->decoding.logprobs)
        return sp_fail(err, SP_ERR_INPUT, "top_logprobs: needs logprobs to be true");
    if (request->decoding.min_tokens > request->decoding.max_tokens)
        return sp_fail(err, SP_ERR_INPUT, "min_tokens: %zu found, at most max_tokens (%zu) wanted",
                       request->decoding.min_tokens, request->decoding.max_tokens);
    if (request->no_calls) request->tools = NULL; /* what is not shown is not called */
    request->has_tools = request->tools != NULL;
    return true;
}

static bool read_object(sp_request *request, const json_t *object, unsigned where, sp_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_null(value)) continue;
        const sp_field *field = sp_field_find(key, where);
        if (!field) {
            char name[80];
            return sp_fail(err, SP_ERR_INPUT, "%s: unknown field, remove it (spill honours a field or refuses it)",
                           sp_printable(key, strlen(key), name, sizeof name));
        }
        if (!field->take) return sp_fail(err, SP_ERR_INPUT, "%s: not supported, %s", field->name, field->instead);
        if (!field->take(request, field->name, value, err)) return false;
    }
    return check_together(request, object, err);
}

/* The wrapper of an OpenAI batch line. */
static bool read_batch(sp_request *request, sp_error *err) {
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    const char *key;
    json_t *value;
    json_object_foreach(request->line, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strcmp(key, known[i]) == 0;
        if (!found && !json_is_null(value)) {
            char name[80];
            return sp_fail(err, SP_ERR_INPUT, "%s: unknown field beside body, remove it",
                           sp_printable(key, strlen(key), name, sizeof name));
        }
    }
    const json_t *method = json_object_get(request->line, "method"), *url = json_object_get(request->line, "url");
    const json_t *body = json_object_get(request->line, "body");
    if (!is_absent(method) && (!json_is_string(method) || strcmp(json_string_value(method), "POST") != 0))
        return sp_field_refuse(err, "method", method, "\"POST\"");
    if (!is_absent(url) && (!json_is_string(url) || strcmp(json_string_value(url), "/v1/chat/completions") != 0))
        return sp_field_refuse(err, "url", url, "\"/v1/chat/completions\"");
    if (!json_is_object(body)) return sp_field_refuse(err, "body", body, "an object");
    if (!read_object(request, body, SP_IN_BODY, err)) return false;
    return request->messages || sp_fail(err, SP_ERR_INPUT, "body.messages: missing, a list of messages wanted");
}

static bool read_line(sp_request *request, sp_shape *shape, sp_error *err) {
    size_t i_shape = 0;
    const size_t n_shapes = sizeof shapes / sizeof *shapes;
    while (i_shape < n_shapes && is_absent(json_object_get(request->line, shapes[i_shape].key))) i_shape++;
    if (i_shape == n_shapes)
        return sp_fail(err, SP_ERR_INPUT, "prompt, messages, body: none of them found, one wanted");
    if (*shape != SP_SHAPE_UNKNOWN && *shape != shapes[i_shape].shape) {
        size_t i_first = 0;
        while (shapes[i_first].shape != *shape) i_first++;
        return sp_fail(err, SP_ERR_INPUT, "%s: found, but this file's first row has %s: one shape per file",
                       shapes[i_shape].key, shapes[i_first].key);
    }
    bool good = shapes[i_shape].shape == SP_SHAPE_BATCH
                    ? read_batch(request, err)
                    : read_object(request, request->line, shapes[i_shape].where, err);
    if (good) *shape = shapes[i_shape].shape;
    return good;
}

/* The row's own id if it has a usable one, else its number. */
static bool name_row(sp_request *request, sp_error *err) {
    char name[32];
    int n = snprintf(name, sizeof name, "row-%06zu", request->i_line);
    request->custom_id = sp_arena_text(&request->arena, name, (size_t)n);
    const json_t *id = json_object_get(request->line, "custom_id");
    if (is_absent(id)) return true;
    if (!json_is_string(id) || json_string_length(id) == 0 || json_string_length(id) > MAX_ID_BYTES ||
        strlen(json_string_value(id)) != json_string_length(id)) {
        char want[80];
        snprintf(want, sizeof want, "a string of 1 to %d bytes without NUL", MAX_ID_BYTES);
        return sp_field_refuse(err, "custom_id", id, want);
    }
    request->custom_id = json_string_value(id);
    return true;
}

/* A row with an integer past 64 bits: read for its name and for the field that does not take it. Such a number that
 * would reach nothing but the template is refused too, since it could not be written out as it came. */
static bool read_wide_line(sp_request *request, sp_shape shape, const char *what, sp_error *err) {
    return read_line(request, &shape, err) &&
           sp_fail(err, SP_ERR_INPUT, "%s: an integer past 64 bits found; write it as a string", what);
}

/* A line's own number is told already, and JSON over several lines is no mistake anywhere else. */
static void tell_column(const sp_line *line, sp_error *err) {
    static const char in_line[] = " at line 1 column";
    char *at = strstr(err->text, in_line);
    if (at) memmove(at + strlen(" at "), at + strlen(" at line 1 "), strlen(at + strlen(" at line 1 ")) + 1);
    bool is_opening = line->n_bytes == 1 && (line->text[0] == '{' || line->text[0] == '[');
    if (!is_opening) return;
    sp_error first = *err;
    sp_error_clear(err);
    sp_fail(err, first.code, "%s; an object a line wanted, this one goes on in the next", first.text);
}

sp_row_code sp_request_parse(sp_request *request, const sp_line *line, const sp_decoding *defaults, sp_shape *shape,
                             sp_error *err) {
    *request = (sp_request){.i_line = line->i_line, .line_bytes = line->n_bytes, .decoding = *defaults};
    char what[32];
    bool is_wide = false;
    snprintf(what, sizeof what, "line %zu", line->i_line);
    if (line->too_long)
        sp_fail(err, SP_ERR_INPUT, "%s: longer than %d MB; split the row", what, SP_INPUT_LINE_BYTES >> 20);
    else
        request->line = sp_json_parse_wide(line->text, line->n_bytes, what, &is_wide, err);
    if (!request->line && !line->too_long) tell_column(line, err);
    bool named = name_row(request, err);
    if (!request->line) return SP_ROW_INVALID_JSON;
    if (!json_is_object(request->line)) {
        sp_field_refuse(err, what, request->line, "an object");
        return SP_ROW_INVALID_JSON;
    }
    bool good = named && (is_wide ? read_wide_line(request, *shape, what, err) : read_line(request, shape, err));
    return good ? SP_ROW_OK : SP_ROW_INVALID_REQUEST;
}

void sp_request_drop_prompt(sp_request *request) {
    json_t *kept = json_array();
    json_t *body = json_object_get(request->line, "body");
    json_t *id = json_object_get(request->line, "custom_id");
    json_t *stop = json_object_get(json_is_object(body) ? body : request->line, "stop");
    SP_CHECK(kept != NULL);
    if (id) SP_CHECK(json_array_append(kept, id) == 0);
    if (stop) SP_CHECK(json_array_append(kept, stop) == 0);
    if (request->expected) SP_CHECK(json_array_append(kept, (json_t *)request->expected) == 0);
    json_decref(request->line);
    request->line = kept;
    request->prompt = request->system = NULL;
    request->messages = request->tools = request->documents = request->template_kwargs = NULL;
    request->reasoning_effort = request->verbosity = NULL;
}

void sp_request_deinit(sp_request *request) {
    json_decref(request->line);
    sp_arena_deinit(&request->arena);
    *request = (sp_request){0};
}
