/* Messages of a request. What a message is made of is checked; which roles there are is the template's affair. */
#include <stdio.h>
#include <string.h>

#include "jobs/request_fields.h"

static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

/* Text parts are what every template can render; anything else (images, audio) is refused by its type. */
static bool check_parts(const json_t *parts, size_t i_message, sp_error *err) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type");
        char field[64];
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", i_message, i);
        if (!json_is_object(part) || !json_is_string(type))
            return sp_field_refuse(err, field, part, "an object with a type");
        if (strcmp(json_string_value(type), "text") != 0)
            return sp_field_refuse(err, field, type, "type \"text\" (spill reads text only)");
        if (!json_is_string(json_object_get(part, "text"))) return sp_field_refuse(err, field, part, "a text string");
    }
    return true;
}

/* {"id", "type": "function", "function": {"name", "arguments"}}; arguments as text, or as the object that it is. */
static bool check_call(const json_t *call, const char *field, sp_error *err) {
    const json_t *id = json_object_get(call, "id"), *type = json_object_get(call, "type");
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    const char *part = NULL, *want = NULL;
    const json_t *value = call;
    if (!json_is_object(call))
        part = "", want = "an object";
    else if (!is_absent(id) && !json_is_string(id))
        part = ".id", want = "a string", value = id;
    else if (!is_absent(type) && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        part = ".type", want = "\"function\"", value = type;
    else if (!json_is_object(function))
        part = ".function", want = "an object", value = function;
    else if (!json_is_string(json_object_get(function, "name")))
        part = ".function.name", want = "a string", value = json_object_get(function, "name");
    else if (!is_absent(arguments) && !json_is_string(arguments) && !json_is_object(arguments))
        part = ".function.arguments", want = "a string or an object", value = arguments;
    if (!part) return true;
    char name[128];
    snprintf(name, sizeof name, "%s%s", field, part);
    return sp_field_refuse(err, name, value, want);
}

static bool check_calls(const json_t *message, size_t i_message, sp_error *err) {
    const json_t *calls = json_object_get(message, "tool_calls");
    char field[96];
    snprintf(field, sizeof field, "messages[%zu].tool_calls", i_message);
    if (is_absent(calls)) return true;
    if (!json_is_array(calls)) return sp_field_refuse(err, field, calls, "a list of calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        snprintf(field, sizeof field, "messages[%zu].tool_calls[%zu]", i_message, i);
        if (!check_call(json_array_get(calls, i), field, err)) return false;
    }
    return true;
}

/* What no template reads, so that it would be lost without a word. */
static bool check_unread(const json_t *message, size_t i, sp_error *err) {
    static const struct {
        const char *key, *instead;
    } unread[] = {{"function_call", "tool_calls in its place"}, {"audio", "text"}};
    for (size_t k = 0; k < sizeof unread / sizeof *unread; k++) {
        const json_t *value = json_object_get(message, unread[k].key);
        char field[64];
        snprintf(field, sizeof field, "messages[%zu].%s", i, unread[k].key);
        if (!is_absent(value)) return sp_field_refuse(err, field, value, unread[k].instead);
    }
    return true;
}

static bool check_content(const json_t *message, size_t i, sp_error *err) {
    char field[64];
    snprintf(field, sizeof field, "messages[%zu]", i);
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (json_is_string(content)) return true;
    if (json_is_array(content)) return check_parts(content, i, err);
    if (is_absent(content) && strcmp(json_string_value(role), "assistant") == 0)
        return true; /* tool calls or reasoning alone */
    if (is_absent(content))
        return sp_fail(err, SP_ERR_INPUT, "%s.content: missing, a string or a list of text parts wanted", field);
    sp_field_refuse(err, "content", content, "a string or a list of text parts");
    return sp_error_wrap(err, "%s", field);
}

bool sp_messages_check(const json_t *messages, sp_error *err) {
    if (!json_is_array(messages)) return sp_field_refuse(err, "messages", messages, "a list of messages");
    if (json_array_size(messages) == 0)
        return sp_fail(err, SP_ERR_INPUT, "messages: an empty list, at least one message wanted");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        char field[64];
        snprintf(field, sizeof field, "messages[%zu]", i);
        if (!json_is_object(message)) return sp_field_refuse(err, field, message, "an object");
        if (!json_is_string(json_object_get(message, "role")))
            return sp_fail(err, SP_ERR_INPUT, "%s.role: a string wanted", field);
        if (!check_content(message, i, err) || !check_calls(message, i, err) || !check_unread(message, i, err))
            return false;
    }
    return true;
}
