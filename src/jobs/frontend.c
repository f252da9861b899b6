/* A model's text side. A prompt is [system if given, user] through the template; without a template it is raw text. */
#include "jobs/frontend.h"

#include <stdlib.h>
#include <string.h>

#include "jobs/gguf_text.h"

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
    return true;
}

void sp_frontend_deinit(sp_frontend *frontend) {
    sp_tokenizer_free(frontend->tokenizer);
    sp_chat_close(frontend->chat);
    free(frontend->stops.ids);
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

static bool refuse_without_template(const sp_request *request, sp_error *err) {
    const char *field = request->messages ? "messages" : request->system ? "system" : request->tools ? "tools" : NULL;
    if (!field) return true;
    return sp_fail(err, SP_ERR_INPUT, "%s: the model has no chat_template to render it with; give raw text as prompt",
                   field);
}

static sp_row_code raw_prompt(const sp_frontend *frontend, const sp_request *request, const sp_prompt_options *options,
                              sp_ids *ids, sp_buf *rendered, sp_error *err) {
    sp_encode_options encode = {.add_special = true, .plain_text = options->plain_text};
    if (!refuse_without_template(request, err)) return SP_ROW_INVALID_REQUEST;
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

static sp_row_code chat_prompt(const sp_frontend *frontend, const sp_request *request, const json_t *messages,
                               const sp_prompt_options *options, sp_ids *ids, sp_buf *text, sp_error *err) {
    sp_chat_spans user_text = {0};
    sp_chat_request chat = {
        .messages = messages,
        .tools = request->tools,
        .documents = request->documents,
        .kwargs = request->template_kwargs,
        .add_generation_prompt = !options->no_generation_prompt,
        .now_s = options->now_s,
    };
    if (!sp_chat_render(frontend->chat, &chat, text, options->plain_text ? &user_text : NULL, err)) {
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
    sp_row_code code;
    if (!sp_chat_has_template(frontend->chat)) {
        code = raw_prompt(frontend, request, options, ids, rendered, err);
    } else if (request->tools && !options->any_tools && !sp_chat_reads(frontend->chat, true, "tools")) {
        sp_fail(err, SP_ERR_SUPPORT,
                "tools: the model's chat template never reads them; remove them or take a model that does");
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
