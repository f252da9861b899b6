/* Conversations around templates; the files that hold both. */
#include "chat/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/file.h"
#include "util/json.h"

enum {
    MAX_CONFIG_BYTES = 64 << 20,
    MAX_TEMPLATE_FILE_BYTES = 4 << 20,
    MAX_PATH_BYTES = 4096,
};

struct sp_chat {
    sp_template *main;     /* taken without tools, and with tools if there is no other; may be NULL */
    sp_template *tool_use; /* may be NULL */
    bool several;          /* there are named templates but none called default, which is why main is NULL */
    json_t *special;       /* {"bos_token": "<s>", ...} */
};

static bool join_path(char path[MAX_PATH_BYTES], const char *dir, const char *name, sp_error *err) {
    return snprintf(path, MAX_PATH_BYTES, "%s/%s", dir, name) < MAX_PATH_BYTES ||
           sp_fail(err, SP_ERR_INPUT, "%s: a path of more than %d bytes", dir, MAX_PATH_BYTES);
}

/* Parses DIR/NAME into *tpl if it is there; false on failure. */
static bool load_template(const char *dir, const char *name, sp_template **tpl, sp_error *err) {
    char path[MAX_PATH_BYTES];
    sp_buf text = {0};
    if (!join_path(path, dir, name, err)) return false;
    if (sp_file_is_absent(path)) return true;
    if (sp_file_read(path, MAX_TEMPLATE_FILE_BYTES, &text, err))
        *tpl = sp_template_parse(text.data, text.n_bytes, name, err);
    sp_buf_deinit(&text);
    return *tpl != NULL;
}

static bool parse_named(const json_t *entry, sp_chat *chat, sp_error *err) {
    const json_t *name = json_object_get(entry, "name"), *text = json_object_get(entry, "template");
    if (!json_is_string(name) || !json_is_string(text))
        return sp_fail(err, SP_ERR_INPUT, "tokenizer_config.json: chat_template's entries need a name and a template");
    bool is_default = strcmp(json_string_value(name), "default") == 0;
    if (!is_default && strcmp(json_string_value(name), "tool_use") != 0) return true; /* never chosen */
    sp_template **slot = is_default ? &chat->main : &chat->tool_use;
    if (*slot) return sp_fail(err, SP_ERR_INPUT, "tokenizer_config.json: two chat templates of one name");
    *slot = sp_template_parse(json_string_value(text), json_string_length(text), "chat template", err);
    return *slot != NULL;
}

static bool parse_config_template(const json_t *config, sp_chat *chat, sp_error *err) {
    const json_t *value = json_object_get(config, "chat_template");
    if (!value || json_is_null(value)) return true;
    if (json_is_string(value)) {
        chat->main = sp_template_parse(json_string_value(value), json_string_length(value), "chat template", err);
        return chat->main != NULL;
    }
    if (!json_is_array(value))
        return sp_fail(err, SP_ERR_INPUT, "tokenizer_config.json: chat_template is neither a string nor a list");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!parse_named(json_array_get(value, i), chat, err)) return false;
    chat->several = !chat->main && json_array_size(value) > 0;
    return true;
}

/* Adds the texts of an object's keys with that ending: strings, or objects with content. */
static void add_special(json_t *special, const json_t *from, const char *ending) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value) { /* only read */
        size_t n = strlen(key), n_ending = strlen(ending);
        if (n < n_ending || strcmp(key + n - n_ending, ending) != 0) continue;
        json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (json_is_string(text))
            json_object_set_new(special, key, json_stringn(json_string_value(text), json_string_length(text)));
    }
}

static bool load_special(const char *dir, const json_t *config, sp_chat *chat, sp_error *err) {
    char path[MAX_PATH_BYTES];
    if (!join_path(path, dir, "special_tokens_map.json", err)) return false;
    add_special(chat->special, config, "_token");
    add_special(chat->special, json_object_get(config, "extra_special_tokens"), "");
    /* the older of the two files counts only where the newer does not list its added tokens */
    if (json_object_get(config, "added_tokens_decoder") || sp_file_is_absent(path)) return true;
    json_t *map = sp_json_load(path, MAX_CONFIG_BYTES, err);
    if (!map) return false;
    add_special(chat->special, map, "_token");
    json_decref(map);
    return true;
}

/* Template files; *any when there is one: then tokenizer_config.json's template does not count. */
static bool load_files(const char *dir, sp_chat *chat, bool *any, sp_error *err) {
    sp_template *extra_default = NULL;
    if (!load_template(dir, "chat_template.jinja", &chat->main, err) ||
        !load_template(dir, "additional_chat_templates/tool_use.jinja", &chat->tool_use, err) ||
        !load_template(dir, "additional_chat_templates/default.jinja", &extra_default, err))
        return false;
    if (extra_default) {
        sp_template_free(chat->main);
        chat->main = extra_default;
    }
    *any = chat->main || chat->tool_use;
    chat->several = !chat->main && chat->tool_use;
    return true;
}

static sp_chat *chat_new(sp_error *err) {
    sp_chat *chat = calloc(1, sizeof *chat);
    if (chat) chat->special = json_object();
    if (chat && chat->special) return chat;
    sp_chat_close(chat);
    sp_fail(err, SP_ERR_MEMORY, "no memory for a chat template");
    return NULL;
}

sp_chat *sp_chat_open_hf(const char *dir, sp_error *err) {
    char path[MAX_PATH_BYTES];
    json_t *config = NULL;
    bool any = false;
    sp_chat *chat = chat_new(err);
    if (!chat) return NULL;
    if (!join_path(path, dir, "tokenizer_config.json", err)) goto fail;
    if (!sp_file_is_absent(path)) {
        config = sp_json_load(path, MAX_CONFIG_BYTES, err);
        if (!config) goto fail;
        if (!json_is_object(config)) {
            sp_fail(err, SP_ERR_INPUT, "%s: not a JSON object", path);
            goto fail;
        }
    }
    if (!load_special(dir, config, chat, err) || !load_files(dir, chat, &any, err)) goto fail;
    if (!any && config && !parse_config_template(config, chat, err)) goto fail;
    json_decref(config);
    return chat;
fail:
    sp_error_wrap(err, "%s", dir);
    json_decref(config);
    sp_chat_close(chat);
    return NULL;
}

sp_chat *sp_chat_open_text(const char *text, size_t n_bytes, const json_t *special_tokens, sp_error *err) {
    sp_chat *chat = chat_new(err);
    if (!chat) return NULL;
    if (special_tokens) add_special(chat->special, special_tokens, "");
    if (text) chat->main = sp_template_parse(text, n_bytes, "chat template", err);
    if (chat->main || !text) return chat;
    sp_chat_close(chat);
    return NULL;
}

void sp_chat_close(sp_chat *chat) {
    if (!chat) return;
    sp_template_free(chat->main);
    sp_template_free(chat->tool_use);
    json_decref(chat->special);
    free(chat);
}

bool sp_chat_has_template(const sp_chat *chat) { return chat->main || chat->tool_use || chat->several; }

static const sp_template *chosen(const sp_chat *chat, bool with_tools) {
    return with_tools && chat->tool_use ? chat->tool_use : chat->main;
}

bool sp_chat_reads(const sp_chat *chat, bool with_tools, const char *name) {
    const sp_template *tpl = chosen(chat, with_tools);
    return tpl && sp_template_reads(tpl, name);
}

bool sp_chat_mentions(const sp_chat *chat, const char *text) {
    return (chat->main && sp_template_mentions(chat->main, text)) ||
           (chat->tool_use && sp_template_mentions(chat->tool_use, text));
}

/* ---- a request ---- */

static json_t *shared(const json_t *value) { return json_incref((json_t *)(uintptr_t)value); }

/* A call whose arguments are the text of an object, with that object; any other call as it is. */
static json_t *call_with_object(const json_t *call) {
    const json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
    sp_error ignored = {0};
    json_t *arguments = json_is_string(text)
                            ? sp_json_parse(json_string_value(text), json_string_length(text), "arguments", &ignored)
                            : NULL;
    if (!json_is_object(arguments)) {
        json_decref(arguments);
        return shared(call);
    }
    json_t *out = json_copy((json_t *)(uintptr_t)call), *new_function = json_copy((json_t *)(uintptr_t)function);
    json_object_set_new(new_function, "arguments", arguments);
    json_object_set_new(out, "function", new_function);
    return out;
}

/* The values of `message`, a new object, as they are for models that know less than OpenAI's. */
static void adapt_message(json_t *message, const sp_chat_request *request) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (request->developer_is_system && role && strcmp(role, "developer") == 0)
        json_object_set_new(message, "role", json_string("system"));
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!request->object_arguments || !json_is_array(calls)) return;
    json_t *adapted = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++)
        json_array_append_new(adapted, call_with_object(json_array_get(calls, i)));
    json_object_set_new(message, "tool_calls", adapted);
}

/* The message as templates see it: a new object whose values are shared. */
static json_t *normalize_message(const json_t *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const json_t *reasoning = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !reasoning; i++) {
        reasoning = json_object_get(message, names[i]);
        if (json_is_null(reasoning)) reasoning = NULL;
    }
    json_t *out = json_object();
    const char *key;
    json_t *value;
    if (reasoning) json_object_set_new(out, "thinking", shared(reasoning));
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        if (!json_is_null(value)) json_object_set_new(out, key, shared(value));
    }
    if (reasoning) json_object_set_new(out, "reasoning_content", shared(reasoning));
    return out;
}

static bool check_objects(const json_t *list, const char *name, sp_error *err) {
    if (!list) return true;
    if (!json_is_array(list)) return sp_fail(err, SP_ERR_INPUT, "%s: not a list", name);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return sp_fail(err, SP_ERR_INPUT, "%s[%zu]: not an object", name, i);
    return true;
}

static bool check_request(const sp_chat_request *request, sp_error *err) {
    static const char *const reserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!request->messages || (json_is_array(request->messages) && !json_array_size(request->messages)))
        return sp_fail(err, SP_ERR_INPUT, "messages: empty; a conversation has at least one");
    if (!check_objects(request->messages, "messages", err) || !check_objects(request->tools, "tools", err) ||
        !check_objects(request->documents, "documents", err))
        return false;
    if (!request->kwargs) return true;
    if (!json_is_object(request->kwargs)) return sp_fail(err, SP_ERR_INPUT, "chat_template_kwargs: not an object");
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (json_object_get(request->kwargs, reserved[i]))
            return sp_fail(err, SP_ERR_INPUT, "chat_template_kwargs: '%s' has a field of its own", reserved[i]);
    return true;
}

static json_t *request_globals(const sp_chat_request *request) {
    json_t *globals = json_object(), *messages = json_array();
    const char *key;
    json_t *value;
    if (request->kwargs) {
        json_object_foreach((json_t *)(uintptr_t)request->kwargs, key, value) {
            json_object_set_new(globals, key, shared(value));
        }
    }
    for (size_t i = 0; i < json_array_size(request->messages); i++) {
        json_t *message = normalize_message(json_array_get(request->messages, i));
        adapt_message(message, request);
        json_array_append_new(messages, message);
    }
    json_object_set_new(globals, "messages", messages);
    json_object_set_new(globals, "tools", request->tools ? shared(request->tools) : json_null());
    json_object_set_new(globals, "documents", request->documents ? shared(request->documents) : json_null());
    json_object_set_new(globals, "add_generation_prompt", json_boolean(request->add_generation_prompt));
    return globals;
}

bool sp_chat_render(const sp_chat *chat, const sp_chat_request *request, sp_buf *out, sp_chat_spans *user_text,
                    sp_error *err) {
    const sp_template *tpl = chosen(chat, request->tools != NULL);
    if (!sp_chat_has_template(chat)) return sp_fail(err, SP_ERR_INPUT, "the model has no chat template");
    if (!tpl) return sp_fail(err, SP_ERR_INPUT, "the model has several chat templates, and none is named 'default'");
    if (!check_request(request, err)) return false;
    json_t *globals = request_globals(request);
    sp_render_options options = {
        .globals = chat->special, .user_globals = globals, .now_s = request->now_s, .user_text = user_text};
    bool ok = sp_template_render(tpl, &options, out, err);
    json_decref(globals);
    return ok;
}

/* ---- the end of a turn ---- */

static const char sentinel[] = "spillturnsentinel";

/* A conversation that ends with the assistant saying the sentinel. */
static json_t *probe_messages(bool system, bool user, bool parts) {
    json_t *messages = json_array();
    const struct {
        bool wanted;
        const char *role, *text;
    } turns[] = {{system, "system", "s"}, {user, "user", "u"}, {true, "assistant", sentinel}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        if (!turns[i].wanted) continue;
        json_t *content =
            parts ? json_pack("[{s:s,s:s}]", "type", "text", "text", turns[i].text) : json_string(turns[i].text);
        json_array_append_new(messages, json_pack("{s:s,s:o}", "role", turns[i].role, "content", content));
    }
    return messages;
}

bool sp_chat_end_of_turn(const sp_chat *chat, sp_buf *out, sp_error *err) {
    bool rendered = false, ok = true;
    sp_buf text = {0};
    sp_error first = {0};
    for (unsigned i = 0; i < 8;
         i++) { /* plain first: system turns, parts and no user turn are what few templates need */
        bool parts = i & 1, system = i & 2, user = !(i & 4);
        json_t *messages = probe_messages(system, user, parts);
        sp_chat_request request = {.messages = messages, .now_s = 1};
        sp_buf_clear(&text);
        sp_error attempt = {0};
        bool good = sp_chat_render(chat, &request, &text, NULL, &attempt);
        json_decref(messages);
        rendered |= good;
        if (!good && first.code == SP_OK) first = attempt;
        const char *hit = good && text.data ? strstr(text.data, sentinel) : NULL;
        if (!hit) continue;
        ok = sp_buf_text(out, hit + strlen(sentinel));
        break;
    }
    sp_buf_deinit(&text);
    if (!ok) return sp_fail(err, SP_ERR_MEMORY, "no memory for a chat template's text");
    return rendered || sp_fail(err, first.code, "%s", first.text);
}
