/* The fields of a request: how each is checked and taken, and the table of them. */
#include "jobs/request_fields.h"

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
    MAX_PENALTY = 2,
};

/* ---- single fields ---- */

bool sp_field_refuse(sp_error *err, const char *field, const json_t *value, const char *want) {
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
        if (!(real >= -9.2e18 && real <= 9.2e18) || real != floor(real))
            return sp_field_refuse(err, field, value, want);
        *out = (int64_t)real;
    } else if (json_is_integer(value)) {
        *out = json_integer_value(value);
    } else {
        return sp_field_refuse(err, field, value, want);
    }
    return (*out >= low && *out <= high) || sp_field_refuse(err, field, value, want);
}

static bool read_number(const json_t *value, const char *field, double low, double high, double *out, sp_error *err) {
    *out = json_is_number(value) ? json_number_value(value) : NAN;
    if (*out >= low && *out <= high) return true;
    char want[80];
    snprintf(want, sizeof want, "a number from %g to %g", low, high);
    return sp_field_refuse(err, field, value, want);
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
    return request->decoding.top_p > 0 || sp_field_refuse(err, field, value, "a number over 0, at most 1");
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
    if (!json_is_boolean(value)) return sp_field_refuse(err, field, value, "true or false");
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
    if (!single && (!json_is_array(value) || n > MAX_STOPS)) return sp_field_refuse(err, field, value, want);
    snprintf(want, sizeof want, "a string of 1 to %d bytes", MAX_STOP_BYTES);
    request->decoding.n_stop = n;
    request->decoding.stop = SP_ARENA_ARRAY(&request->arena, const char *, n);
    request->decoding.stop_bytes = SP_ARENA_ARRAY(&request->arena, size_t, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = single ? value : json_array_get(value, i);
        size_t n_bytes = json_string_length(item);
        if (!json_is_string(item) || n_bytes == 0 || n_bytes > MAX_STOP_BYTES)
            return sp_field_refuse(err, field, item, want);
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
    if (!json_is_object(value) || json_object_size(value) > MAX_BIASES) return sp_field_refuse(err, field, value, want);
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

/* One tool: a function, in OpenAI's form or in any other that the template knows. */
static bool check_tool(const json_t *tool, size_t i, sp_error *err) {
    const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
    const json_t *strict = json_object_get(function, "strict");
    char field[64];
    snprintf(field, sizeof field, "tools[%zu]", i);
    if (!json_is_object(tool)) return sp_field_refuse(err, field, tool, "an object");
    snprintf(field, sizeof field, "tools[%zu].type", i);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return sp_field_refuse(err, field, type, "\"function\"");
    snprintf(field, sizeof field, "tools[%zu].function", i);
    if (function && !json_is_string(json_object_get(function, "name")))
        return sp_field_refuse(err, field, function, "an object with a name");
    snprintf(field, sizeof field, "tools[%zu].function.strict", i);
    return !strict || json_is_null(strict) || json_is_false(strict) ||
           sp_field_refuse(err, field, strict, "false (arguments are not bound to their schema)");
}

static bool take_tools(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_array(value)) return sp_field_refuse(err, field, value, "a list of objects");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!check_tool(json_array_get(value, i), i, err)) return false;
    if (json_array_size(value)) request->tools = value; /* an empty list is no tools */
    return true;
}

static bool take_documents(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_array(value)) return sp_field_refuse(err, field, value, "a list of objects");
    request->documents = value;
    return true;
}

static bool take_kwargs(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_object(value)) return sp_field_refuse(err, field, value, "an object");
    request->template_kwargs = value;
    return true;
}

static bool take_tool_choice(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    const char *text = json_string_value(value);
    request->no_calls = text && strcmp(text, "none") == 0;
    return request->no_calls || (text && strcmp(text, "auto") == 0) ||
           sp_field_refuse(err, field, value, "\"none\" or \"auto\"");
}

static bool read_flag(const json_t *value, const char *field, bool *out, sp_error *err) {
    *out = json_is_true(value);
    return json_is_boolean(value) || sp_field_refuse(err, field, value, "true or false");
}

static bool take_parallel_calls(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    bool parallel;
    if (!read_flag(value, field, &parallel, err)) return false;
    request->one_call = !parallel;
    return true;
}

static bool take_parse_calls(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    bool parse;
    if (!read_flag(value, field, &parse, err)) return false;
    request->raw_calls = !parse;
    return true;
}

static bool take_reasoning_format(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    const char *text = json_string_value(value);
    request->raw_reasoning = text && strcmp(text, "none") == 0;
    return request->raw_reasoning || (text && (strcmp(text, "auto") == 0 || strcmp(text, "deepseek") == 0)) ||
           sp_field_refuse(err, field, value, "\"auto\", \"deepseek\" or \"none\"");
}

static bool take_effort(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    request->reasoning_effort = value;
    return json_is_string(value) || sp_field_refuse(err, field, value, "a string");
}

static bool take_verbosity(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    request->verbosity = value;
    return json_is_string(value) || sp_field_refuse(err, field, value, "a string");
}

static bool take_frequency_penalty(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    return read_number(value, field, -MAX_PENALTY, MAX_PENALTY, &request->decoding.frequency_penalty, err);
}

static bool take_presence_penalty(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    return read_number(value, field, -MAX_PENALTY, MAX_PENALTY, &request->decoding.presence_penalty, err);
}

static bool take_min_tokens(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    int64_t n = 0;
    if (!read_integer(value, field, 0, INT32_MAX, &n, err)) return false;
    request->decoding.min_tokens = (size_t)n;
    return true;
}

static bool take_one(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    int64_t n = 0;
    return read_integer(value, field, 1, 1, &n, err);
}

static bool take_false(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    return json_is_false(value) || sp_field_refuse(err, field, value, "false");
}

static bool take_response_format(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    const char *type = json_string_value(json_object_get(value, "type"));
    return (type && strcmp(type, "text") == 0 && json_object_size(value) == 1) ||
           sp_field_refuse(err, field, value, "{\"type\": \"text\"} (JSON modes are not supported yet)");
}

static bool take_modalities(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request;
    const char *only = json_string_value(json_array_get(value, 0));
    return (json_array_size(value) == 1 && only && strcmp(only, "text") == 0) ||
           sp_field_refuse(err, field, value, "[\"text\"]");
}

/* What changes no result may hold anything. */
static bool pass_over(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)request, (void)field, (void)value, (void)err;
    return true;
}

/* ---- the row itself ---- */

static bool take_messages(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    (void)field;
    request->messages = value;
    return sp_messages_check(value, err);
}

static bool take_prompt(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_string(value)) return sp_field_refuse(err, field, value, "a string");
    request->prompt = json_string_value(value);
    request->prompt_bytes = json_string_length(value);
    return true;
}

static bool take_system(sp_request *request, const char *field, const json_t *value, sp_error *err) {
    if (!json_is_string(value)) return sp_field_refuse(err, field, value, "a string");
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

enum { IN_LINES = SP_IN_PROMPT | SP_IN_CHAT, IN_ALL = IN_LINES | SP_IN_BODY };

static const sp_field fields[] = {
    {"prompt", SP_IN_PROMPT, take_prompt, NULL},
    {"system", SP_IN_PROMPT, take_system, NULL},
    {"messages", SP_IN_CHAT | SP_IN_BODY, take_messages, NULL},
    {"max_tokens", IN_ALL, take_max_tokens, NULL},
    {"max_completion_tokens", IN_ALL, take_max_tokens, NULL},
    {"min_tokens", IN_ALL, take_min_tokens, NULL},
    {"temperature", IN_ALL, take_temperature, NULL},
    {"top_p", IN_ALL, take_top_p, NULL},
    {"top_k", IN_ALL, take_top_k, NULL},
    {"seed", IN_ALL, take_seed, NULL},
    {"stop", IN_ALL, take_stop, NULL},
    {"logprobs", IN_ALL, take_logprobs, NULL},
    {"top_logprobs", IN_ALL, take_top_logprobs, NULL},
    {"logit_bias", IN_ALL, take_logit_bias, NULL},
    {"frequency_penalty", IN_ALL, take_frequency_penalty, NULL},
    {"presence_penalty", IN_ALL, take_presence_penalty, NULL},
    {"tools", IN_ALL, take_tools, NULL},
    {"tool_choice", IN_ALL, take_tool_choice, NULL},
    {"parallel_tool_calls", IN_ALL, take_parallel_calls, NULL},
    {"parse_tool_calls", IN_ALL, take_parse_calls, NULL},
    {"reasoning_format", IN_ALL, take_reasoning_format, NULL},
    {"reasoning_effort", IN_ALL, take_effort, NULL},
    {"verbosity", IN_ALL, take_verbosity, NULL},
    {"documents", IN_ALL, take_documents, NULL},
    {"chat_template_kwargs", IN_ALL, take_kwargs, NULL},
    {"response_format", IN_ALL, take_response_format, NULL},
    {"modalities", IN_ALL, take_modalities, NULL},
    {"n", IN_ALL, take_one, NULL},
    {"stream", IN_ALL, take_false, NULL},
    {"stream_options", IN_ALL, NULL, "remove it: a batch has no stream"},
    {"functions", IN_ALL, NULL, "write tools"},
    {"function_call", IN_ALL, NULL, "write tool_choice"},
    {"audio", IN_ALL, NULL, "remove it: answers are text"},
    {"web_search_options", IN_ALL, NULL, "remove it: nothing is searched"},
    {"model", IN_ALL, pass_over, NULL},
    {"user", IN_ALL, pass_over, NULL},
    {"safety_identifier", IN_ALL, pass_over, NULL},
    {"prompt_cache_key", IN_ALL, pass_over, NULL},
    {"prompt_cache_retention", IN_ALL, pass_over, NULL},
    {"service_tier", IN_ALL, pass_over, NULL},
    {"metadata", IN_ALL, pass_over, NULL},
    {"prediction", IN_ALL, pass_over, NULL}, /* a guess at the answer, for speed alone */
    {"store", IN_ALL, pass_over, NULL},
    {"custom_id", IN_LINES, pass_over, NULL},
    {"expected", IN_LINES, take_expected, NULL},
    {"answer", IN_LINES, pass_over, NULL},
};

const sp_field *sp_field_find(const char *name, unsigned where) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if ((fields[i].where & where) && strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}
