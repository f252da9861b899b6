/* A model's text side. A prompt is [system if given, user] through the template; without a template it is raw text. */
#include "jobs/frontend.h"

#include <stdlib.h>
#include <string.h>

#include "jobs/gguf_text.h"
#include "util/size.h"

/* The special token that the template writes right after an assistant message, if it writes one. */
static bool add_turn_end(sp_frontend *frontend, sp_error *err) {
    if (!sp_chat_has_template(frontend->chat)) return true;
    sp_buf after = {0};
    sp_ids ids = {0};
    sp_error probe_err = {0}; /* a template that refuses the probe declares nothing */
    bool good = true;
    if (sp_chat_end_of_turn(frontend->chat, &after, &probe_err) && after.n_bytes) {
        good = sp_tokenizer_encode(frontend->tokenizer, after.data, after.n_bytes, &(sp_encode_options){0}, &ids, err);
        if (good && ids.n && sp_tokenizer_is_special(frontend->tokenizer, ids.ids[0]))
            sp_stop_ids_add(&frontend->stops, ids.ids[0]);
    }
    sp_buf_deinit(&after);
    sp_ids_deinit(&ids);
    return good;
}

static bool finish_open(sp_frontend *frontend, sp_error *err) {
    if (frontend->tokenizer && frontend->chat) {
        sp_stop_ids_add(&frontend->stops, sp_tokenizer_eos_id(frontend->tokenizer));
        frontend->style = sp_chat_style_of(frontend->chat, frontend->tokenizer);
        if (add_turn_end(frontend, err)) return true;
    }
    sp_frontend_deinit(frontend);
    return false;
}

bool sp_frontend_open_dir(sp_frontend *frontend, const char *dir, sp_error *err) {
    *frontend = (sp_frontend){0};
    frontend->tokenizer = sp_tokenizer_open_hf(dir, err);
    if (frontend->tokenizer) frontend->chat = sp_chat_open_hf(dir, err);
    return finish_open(frontend, err);
}

static void mask_stops(sp_frontend *frontend, size_t n_vocab) {
    size_t n_words = sp_div_up(n_vocab, 64);
    frontend->goes_on = malloc(n_words * sizeof *frontend->goes_on);
    SP_CHECK(frontend->goes_on != NULL);
    memset(frontend->goes_on, 0xff, n_words * sizeof *frontend->goes_on);
    for (size_t i = 0; i < frontend->stops.n; i++) {
        size_t id = (size_t)frontend->stops.ids[i];
        if (id < n_vocab) frontend->goes_on[id / 64] &= ~(UINT64_C(1) << id % 64);
    }
}

bool sp_frontend_open_model(sp_frontend *frontend, const sp_model *model, sp_error *err) {
    if (model->is_gguf) {
        *frontend = (sp_frontend){0};
        frontend->tokenizer = sp_gguf_text_tokenizer(model->gguf, err);
        if (frontend->tokenizer) frontend->chat = sp_gguf_text_chat(model->gguf, frontend->tokenizer, err);
        if (!finish_open(frontend, err)) return false;
    } else if (!sp_frontend_open_dir(frontend, model->path, err)) {
        return false;
    }
    if (sp_tokenizer_n_vocab(frontend->tokenizer) > model->arch.n_vocab) {
        sp_fail(err, SP_ERR_INPUT, "%s: tokenizer has %zu ids, the model's vocabulary %zu: they do not belong together",
                model->path, sp_tokenizer_n_vocab(frontend->tokenizer), model->arch.n_vocab);
        sp_frontend_deinit(frontend);
        return false;
    }
    for (size_t i = 0; i < model->arch.n_stop_ids; i++) sp_stop_ids_add(&frontend->stops, model->arch.stop_ids[i]);
    mask_stops(frontend, model->arch.n_vocab);
    return true;
}

void sp_frontend_deinit(sp_frontend *frontend) {
    sp_tokenizer_free(frontend->tokenizer);
    sp_chat_close(frontend->chat);
    free(frontend->stops.ids);
    free(frontend->goes_on);
    *frontend = (sp_frontend){0};
}

/* The prompt as messages; the caller owns the list. */
static json_t *prompt_messages(const sp_request *request) {
    json_t *messages = json_array();
    if (request->system)
        json_array_append_new(
            messages, json_pack("{s:s,s:s%}", "role", "system", "content", request->system, request->system_bytes));
    json_array_append_new(messages,
                          json_pack("{s:s,s:s%}", "role", "user", "content", request->prompt, request->prompt_bytes));
    return messages;
}

/* Fields that a template must read if they are not to be lost without a word. */
static const char *first_unread(const sp_frontend *frontend, const sp_request *request) {
    const struct {
        const char *name;
        const json_t *value;
    } fields[] = {{"tools", request->tools},
                  {"documents", json_array_size(request->documents) ? request->documents : NULL},
                  {"reasoning_effort", request->reasoning_effort},
                  {"verbosity", request->verbosity}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value && !sp_chat_reads(frontend->chat, request->tools != NULL, fields[i].name))
            return fields[i].name;
    return NULL;
}

static bool refuse_without_template(const sp_frontend *frontend, const sp_request *request, sp_error *err) {
    const char *field = request->messages                            ? "messages"
                        : request->system                            ? "system"
                        : json_object_size(request->template_kwargs) ? "chat_template_kwargs"
                                                                     : first_unread(frontend, request);
    if (!field) return true;
    return sp_fail(err, SP_ERR_INPUT, "%s: the model has no chat_template to render it with; give raw text as prompt",
                   field);
}

static sp_row_code raw_prompt(const sp_frontend *frontend, const sp_request *request, const sp_prompt_options *options,
                              sp_ids *ids, sp_buf *rendered, sp_error *err) {
    sp_encode_options encode = {.add_special = true, .plain_text = options->plain_text};
    if (!refuse_without_template(frontend, request, err)) return SP_ROW_INVALID_REQUEST;
    if (rendered && !sp_buf_add(rendered, request->prompt, request->prompt_bytes)) {
        sp_fail(err, SP_ERR_MEMORY, "prompt: no memory for its %zu bytes", request->prompt_bytes);
        return SP_ROW_INVALID_REQUEST;
    }
    return sp_tokenizer_encode(frontend->tokenizer, request->prompt, request->prompt_bytes, &encode, ids, err)
               ? SP_ROW_OK
               : SP_ROW_INVALID_REQUEST;
}

/* The template's ranges as the tokenizer wants them; heap. */
static sp_span_bytes *copy_ranges(const sp_chat_spans *spans) {
    sp_span_bytes *ranges = calloc(spans->n + 1, sizeof *ranges);
    SP_CHECK(ranges != NULL);
    for (size_t i = 0; i < spans->n; i++)
        ranges[i] = (sp_span_bytes){spans->items[i].from_bytes, spans->items[i].to_bytes};
    return ranges;
}

/* A template that joins strings only fails on text parts. */
static void tell_parts(const json_t *messages, sp_error *err) {
    size_t i;
    const json_t *message;
    bool has_parts = false;
    json_array_foreach(messages, i, message) has_parts |= json_is_array(json_object_get(message, "content"));
    if (!has_parts) return;
    sp_error first = *err;
    sp_error_clear(err);
    sp_fail(err, first.code, "%s; the template may not read lists of parts, write content as a string", first.text);
}

/* Variables of the template that have fields of their own join those of chat_template_kwargs; the caller owns them.
 * NULL with err filled when a variable is given in both. */
static json_t *template_variables(const sp_request *request, sp_error *err) {
    const struct {
        const char *name;
        const json_t *value;
    } fields[] = {{"reasoning_effort", request->reasoning_effort}, {"verbosity", request->verbosity}};
    json_t *variables = request->template_kwargs ? json_copy((json_t *)request->template_kwargs) : json_object();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].value) continue;
        if (json_object_get(variables, fields[i].name)) {
            sp_fail(err, SP_ERR_INPUT, "%s: given beside chat_template_kwargs and in it, one of them wanted",
                    fields[i].name);
            json_decref(variables);
            return NULL;
        }
        json_object_set(variables, fields[i].name, (json_t *)fields[i].value);
    }
    return variables;
}

static sp_row_code chat_prompt(const sp_frontend *frontend, const sp_request *request, const json_t *messages,
                               const sp_prompt_options *options, sp_ids *ids, sp_buf *text, sp_error *err) {
    sp_chat_spans user_text = {0};
    json_t *variables = template_variables(request, err);
    if (!variables) return SP_ROW_INVALID_REQUEST;
    sp_chat_request chat = {
        .messages = messages,
        .tools = request->tools,
        .documents = request->documents,
        .kwargs = variables,
        .add_generation_prompt = !options->no_generation_prompt,
        .now_s = options->now_s,
        .object_arguments = !options->as_transformers && frontend->style.object_arguments,
        .developer_is_system = !options->as_transformers && frontend->style.no_developer,
    };
    bool is_rendered = sp_chat_render(frontend->chat, &chat, text, options->plain_text ? &user_text : NULL, err);
    json_decref(variables);
    if (!is_rendered) {
        sp_chat_spans_deinit(&user_text);
        tell_parts(messages, err);
        return SP_ROW_TEMPLATE;
    }
    sp_span_bytes *ranges = copy_ranges(&user_text);
    bool good = sp_tokenizer_encode_ranges(frontend->tokenizer, text->data ? text->data : "", text->n_bytes,
                                           &(sp_encode_options){0}, ranges, user_text.n, ids, err);
    free(ranges);
    sp_chat_spans_deinit(&user_text);
    return good ? SP_ROW_OK : SP_ROW_INVALID_REQUEST;
}

sp_row_code sp_frontend_prompt(const sp_frontend *frontend, const sp_request *request, const sp_prompt_options *options,
                               sp_ids *ids, sp_buf *rendered, sp_error *err) {
    const char *unread = first_unread(frontend, request);
    sp_row_code code;
    if (!sp_chat_has_template(frontend->chat)) {
        code = raw_prompt(frontend, request, options, ids, rendered, err);
    } else if (unread && !options->as_transformers) {
        sp_fail(err, SP_ERR_SUPPORT,
                "%s: the model's chat template never reads it; remove it or take a model that does", unread);
        code = SP_ROW_INVALID_REQUEST;
    } else {
        json_t *own = request->messages ? NULL : prompt_messages(request);
        sp_buf text = {0};
        code = chat_prompt(frontend, request, own ? own : request->messages, options, ids, rendered ? rendered : &text,
                           err);
        sp_buf_deinit(&text);
        json_decref(own);
    }
    if (code == SP_ROW_OK && ids->n == 0) {
        sp_fail(err, SP_ERR_INPUT, "prompt: no token at all, at least one wanted");
        code = SP_ROW_INVALID_REQUEST;
    }
    return code;
}

sp_row_code sp_frontend_fits(const sp_arch *arch, const sp_request *request, size_t n_prompt, sp_error *err) {
    if (n_prompt >= arch->n_positions) {
        sp_fail(err, SP_ERR_INPUT, "prompt: %zu tokens found, the model has %zu positions; shorten it", n_prompt,
                arch->n_positions);
        return SP_ROW_TOO_LONG;
    }
    const sp_decoding *decoding = &request->decoding; /* its ids ascend */
    if (decoding->n_bias == 0 || (size_t)decoding->bias[decoding->n_bias - 1].id < arch->n_vocab) return SP_ROW_OK;
    sp_fail(err, SP_ERR_INPUT, "logit_bias: id %d found, below %zu wanted",
            (int)decoding->bias[decoding->n_bias - 1].id, arch->n_vocab);
    return SP_ROW_INVALID_REQUEST;
}
