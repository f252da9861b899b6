/* A row's request: shape, field table, checks.
 *
 * One table lists every field of a request body: what it is called, which JSON type it must have and which function
 * takes it. Whatever is not in the table is refused by name. */
#include "jobs/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/json.h"
#include "util/size.h"

enum {
    MAX_STOPS = 64,
    MAX_STOP_BYTES = 4096,
    MAX_TOP_LOGPROBS = 20,
    MAX_BIASES = 4096,
    MAX_BIAS = 100,
    MAX_ID_BYTES = 512
};

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

/* ---- single fields ---- */

/* "<field>: <value> found, <want> wanted". */
static bool refuse(sp_error *err, const char *field, const json_t *value, const char *want) {
    char found[80];
    return sp_fail(err, SP_ERR_INPUT, "%s: %s found, %s wanted", field, sp_json_shown(value, found, sizeof found),
                   want);
}

/* An integer in [low, high], also when it is written 5.0. */
static bool read_integer(const json_t *value, const char *field, int64_t low, int64_t high, int64_t *out,
                         sp_error *err) {
    char want[80];
    if (low == high)
        snprintf(want, sizeof want, "%lld", (long long)low);
    else
        snprintf(want, sizeof want, "an integer from %lld to %lld", (long long)low, (long long)high);
    if (json_is_real(value)) {
        double real = json_real_value(value);
        if (!(real >= -9.2e18 && real <= 9.2e18) || real != floor(real)) return refuse(err, field, value, want);
        *out = (int64_t)real;
    } else if (json_is_integer(value)) {
        *out = json_integer_value(value);
    } else {
        return refuse(err, field, value, want);
    }
    return (*out >= low && *out <= high) || refuse(err, field, value, want);
}

static bool read_number(const json_t *value, const char *field, double low, double high, double *out, sp_error *err) {
    *out = json_is_number(value) ? json_number_value(value) : NAN;
    if (*out >= low && *out <= high) return true;
    char want[80];
    snprintf(want, sizeof want, "a number from %g to %g", low, high);
    return refuse(err, field, value, want);
}

static bool take_max_tokens(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    int64_t n = 0;
    if (!read_integer(value, field, 1, INT32_MAX, &n, err)) return false;
    request->decoding.max_tokens = (size_t)n;
    return true;
}

static bool take_temperature(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    return read_number(value, field, 0, SP_TEMPERATURE_MAX, &request->decoding.temperature, err);
}

static bool take_top_p(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!read_number(value, field, 0, 1, &request->decoding.top_p, err)) return false;
    return request->decoding.top_p > 0 || refuse(err, field, value, "a number over 0, at most 1");
}

static bool take_top_k(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    int64_t n = 0;
    /* -1 is the ecosystem's other word for off */
    if (!read_integer(value, field, -1, INT32_MAX, &n, err)) return false;
    request->decoding.top_k = n > 0 ? (size_t)n : 0;
    return true;
}

static bool take_seed(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    request->decoding.has_seed = true;
    return read_integer(value, field, INT64_MIN, INT64_MAX, &request->decoding.seed, err);
}

static bool take_logprobs(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_boolean(value)) return refuse(err, field, value, "true or false");
    request->decoding.logprobs = json_is_true(value);
    return true;
}

static bool take_top_logprobs(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    int64_t n = 0;
    if (!read_integer(value, field, 0, MAX_TOP_LOGPROBS, &n, err)) return false;
    request->decoding.top_logprobs = (size_t)n;
    return true;
}

static bool take_stop(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    bool single = json_is_string(value);
    size_t n = single ? 1 : json_array_size(value);
    char want[80];
    snprintf(want, sizeof want, "a string or a list of at most %d", MAX_STOPS);
    if (!single && (!json_is_array(value) || n > MAX_STOPS)) return refuse(err, field, value, want);
    snprintf(want, sizeof want, "a string of 1 to %d bytes", MAX_STOP_BYTES);
    request->decoding.n_stop = n;
    request->decoding.stop = SP_ARENA_ARRAY(&request->arena, const char *, n);
    request->decoding.stop_bytes = SP_ARENA_ARRAY(&request->arena, size_t, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = single ? value : json_array_get(value, i);
        size_t n_bytes = json_string_length(item);
        if (!json_is_string(item) || n_bytes == 0 || n_bytes > MAX_STOP_BYTES) return refuse(err, field, item, want);
        request->decoding.stop[i] = json_string_value(item);
        request->decoding.stop_bytes[i] = n_bytes;
    }
    return true;
}

static int compare_bias(const void *a, const void *b) {
    int32_t x = ((const sp_logit_bias *)a)->id, y = ((const sp_logit_bias *)b)->id;
    return (x > y) - (x < y);
}

static bool take_logit_bias(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    char want[80];
    snprintf(want, sizeof want, "an object of at most %d token ids", MAX_BIASES);
    if (!json_is_object(value) || json_object_size(value) > MAX_BIASES) return refuse(err, field, value, want);
    sp_decoding *decoding = &request->decoding;
    decoding->bias = SP_ARENA_ARRAY(&request->arena, sp_logit_bias, json_object_size(value));
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item) {
        char *end = NULL;
        long id = strtol(key, &end, 10);
        double bias = 0;
        if (*key < '0' || *key > '9' || *end || id > INT32_MAX)
            return sp_fail(err, SP_ERR_INPUT, "%s: key '%s' found, a token id wanted", field,
                           sp_printable(key, strlen(key), want, sizeof want));
        if (!read_number(item, field, -MAX_BIAS, MAX_BIAS, &bias, err)) return false;
        decoding->bias[decoding->n_bias++] = (sp_logit_bias){(int32_t)id, (float)bias};
    }
    qsort(decoding->bias, decoding->n_bias, sizeof *decoding->bias, compare_bias);
    for (size_t i = 1; i < decoding->n_bias; i++)
        if (decoding->bias[i].id == decoding->bias[i - 1].id)
            return sp_fail(err, SP_ERR_INPUT, "%s: id %d found twice, once wanted", field, (int)decoding->bias[i].id);
    return true;
}

static bool take_tools(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_array(value)) return refuse(err, field, value, "a list of objects");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_object(json_array_get(value, i))) return refuse(err, field, json_array_get(value, i), "an object");
    if (json_array_size(value)) request->tools = value; /* an empty list is no tools */
    return true;
}

static bool take_documents(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_array(value)) return refuse(err, field, value, "a list of objects");
    request->documents = value;
    return true;
}

static bool take_kwargs(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_object(value)) return refuse(err, field, value, "an object");
    request->template_kwargs = value;
    return true;
}

static bool take_tool_choice(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    const char *text = json_string_value(value);
    return (text && (strcmp(text, "none") == 0 || strcmp(text, "auto") == 0)) ||
           refuse(err, field, value, "\"none\" or \"auto\"");
}

static bool take_one(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    int64_t n = 0;
    return read_integer(value, field, 1, 1, &n, err);
}

static bool take_zero(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    double number = 0;
    return read_number(value, field, 0, 0, &number, err);
}

static bool take_false(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    return json_is_false(value) || refuse(err, field, value, "false");
}

static bool pass_over(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request, (void)field, (void)value, (void)err;
    return true;
}

/* Text parts are what every template can render; anything else (images, audio) is refused by its type. */
static bool check_parts(const json_t *parts, size_t i_message, sp_error *err) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type");
        char field[64];
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", i_message, i);
        if (!json_is_object(part) || !json_is_string(type)) return refuse(err, field, part, "an object with a type");
        if (strcmp(json_string_value(type), "text") != 0)
            return refuse(err, field, type, "type \"text\" (spill reads text only)");
        if (!json_is_string(json_object_get(part, "text"))) return refuse(err, field, part, "a text string");
    }
    return true;
}

static bool check_message(const json_t *message, size_t i, sp_error *err) {
    char field[64];
    snprintf(field, sizeof field, "messages[%zu]", i);
    if (!json_is_object(message)) return refuse(err, field, message, "an object");
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(role)) return sp_fail(err, SP_ERR_INPUT, "%s.role: a string wanted", field);
    if (json_is_string(content)) return true;
    if (json_is_array(content)) return check_parts(content, i, err);
    bool absent = !content || json_is_null(content);
    if (absent && strcmp(json_string_value(role), "assistant") == 0) return true; /* tool calls or reasoning alone */
    if (absent)
        return sp_fail(err, SP_ERR_INPUT, "%s.content: missing, a string or a list of text parts wanted", field);
    refuse(err, "content", content, "a string or a list of text parts");
    return sp_error_wrap(err, "%s", field);
}

static bool take_messages(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_array(value)) return refuse(err, field, value, "a list of messages");
    if (json_array_size(value) == 0)
        return sp_fail(err, SP_ERR_INPUT, "messages: an empty list, at least one message wanted");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!check_message(json_array_get(value, i), i, err)) return false;
    request->messages = value;
    return true;
}

static bool take_prompt(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_string(value)) return refuse(err, field, value, "a string");
    request->prompt = json_string_value(value);
    request->prompt_bytes = json_string_length(value);
    return true;
}

static bool take_system(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_string(value)) return refuse(err, field, value, "a string");
    request->system = json_string_value(value);
    request->system_bytes = json_string_length(value);
    return true;
}

static bool take_expected(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)field, (void)err;
    request->expected = value;
    return true;
}

/* ---- the table ---- */

enum { IN_PROMPT = 1, IN_CHAT = 2, IN_BODY = 4, IN_LINES = IN_PROMPT | IN_CHAT, IN_ALL = IN_LINES | IN_BODY };

typedef struct {
    const char *name;
    unsigned where; /* shapes whose object may hold it */
    bool (*take)(sp_request *request, const char *field, const json_t *value, sp_error *err);
} field_row;

static const field_row fields[] = {
    {"prompt", IN_PROMPT, take_prompt},
    {"system", IN_PROMPT, take_system},
    {"messages", IN_CHAT | IN_BODY, take_messages},
    {"max_tokens", IN_ALL, take_max_tokens},
    {"max_completion_tokens", IN_ALL, take_max_tokens},
    {"temperature", IN_ALL, take_temperature},
    {"top_p", IN_ALL, take_top_p},
    {"top_k", IN_ALL, take_top_k},
    {"seed", IN_ALL, take_seed},
    {"stop", IN_ALL, take_stop},
    {"logprobs", IN_ALL, take_logprobs},
    {"top_logprobs", IN_ALL, take_top_logprobs},
    {"logit_bias", IN_ALL, take_logit_bias},
    {"tools", IN_ALL, take_tools},
    {"tool_choice", IN_ALL, take_tool_choice},
    {"documents", IN_ALL, take_documents},
    {"chat_template_kwargs", IN_ALL, take_kwargs},
    {"n", IN_ALL, take_one},
    {"frequency_penalty", IN_ALL, take_zero},
    {"presence_penalty", IN_ALL, take_zero},
    {"stream", IN_ALL, take_false},
    {"model", IN_ALL, pass_over},
    {"user", IN_ALL, pass_over},
    {"metadata", IN_ALL, pass_over},
    {"store", IN_ALL, pass_over},
    {"service_tier", IN_ALL, pass_over},
    {"custom_id", IN_LINES, pass_over},
    {"expected", IN_LINES, take_expected},
    {"answer", IN_LINES, pass_over},
};

static const field_row *find_field(const char *name, unsigned where) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

/* ---- the line ---- */

static const struct {
    const char *key;
    sp_shape shape;
    unsigned where;
} shapes[] = {
    {"body", SP_SHAPE_BATCH, IN_BODY},
    {"messages", SP_SHAPE_CHAT, IN_CHAT},
    {"prompt", SP_SHAPE_PROMPT, IN_PROMPT},
};

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

/* Fields that speak of one another. */
static bool check_together(const sp_request *request, const json_t *object, sp_error *err) {
    const json_t *one = json_object_get(object, "max_tokens"),
                 *other = json_object_get(object, "max_completion_tokens");
    if (!is_absent(one) && !is_absent(other) && json_number_value(one) != json_number_value(other))
        return sp_fail(err, SP_ERR_INPUT, "max_tokens, max_completion_tokens: two different values, one wanted");
    if (request->decoding.top_logprobs && !request->decoding.logprobs)
        return sp_fail(err, SP_ERR_INPUT, "top_logprobs: needs logprobs to be true");
    return true;
}

static bool read_object(sp_request *request, const json_t *object, unsigned where, sp_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        if (json_is_null(value)) continue;
        const field_row *field = find_field(key, where);
        if (!field) {
            char name[80];
            return sp_fail(err, SP_ERR_INPUT, "%s: unknown field, remove it (spill honours a field or refuses it)",
                           sp_printable(key, strlen(key), name, sizeof name));
        }
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
        return refuse(err, "method", method, "\"POST\"");
    if (!is_absent(url) && (!json_is_string(url) || strcmp(json_string_value(url), "/v1/chat/completions") != 0))
        return refuse(err, "url", url, "\"/v1/chat/completions\"");
    if (!json_is_object(body)) return refuse(err, "body", body, "an object");
    if (!read_object(request, body, IN_BODY, err)) return false;
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
        return refuse(err, "custom_id", id, want);
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
        refuse(err, what, request->line, "an object");
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
}

void sp_request_deinit(sp_request *request) {
    json_decref(request->line);
    sp_arena_deinit(&request->arena);
    *request = (sp_request){0};
}
