/* A model's way of turning a conversation into text: its chat templates, its special tokens, and what transformers
 * does around rendering. A template is chosen by name (tool_use when tools are given and there is one, else default),
 * null keys of messages are dropped, and reasoning is passed under the names that templates read.
 *
 * A chat is immutable once open and may be used by several threads; the JSON of one request by one thread at a time
 * (its reference counts change). */
#ifndef SPILL_CHAT_MESSAGES_H
#define SPILL_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/template.h"

typedef struct sp_chat sp_chat;

/* From a model's directory: chat_template.jinja and additional_chat_templates/NAME.jinja, else chat_template of
 * tokenizer_config.json (a string, or a list of {name, template}). A directory without any is a chat without template.
 * NULL with SP_ERR_INPUT or SP_ERR_IO when a file is not what it should be. */
sp_chat *sp_chat_open_hf(const char *dir, sp_error *err) SP_MUST_CHECK;

/* From a template's text (NULL: none) and an object of special token texts ({"bos_token": "<s>"}; may be NULL). Both
 * are copied. */
sp_chat *sp_chat_open_text(const char *text, size_t n_bytes, const json_t *special_tokens, sp_error *err) SP_MUST_CHECK;
void sp_chat_close(sp_chat *chat); /* NULL is fine */

bool sp_chat_has_template(const sp_chat *chat);
/* Whether the template that is taken when tools are given (else the other) reads the variable `name`. */
bool sp_chat_reads(const sp_chat *chat, bool with_tools, const char *name);
/* Whether the source of any of its templates has this text. */
bool sp_chat_mentions(const sp_chat *chat, const char *text);

typedef struct {
    const json_t *messages;  /* array of objects, not empty */
    const json_t *tools;     /* array of objects; NULL: none */
    const json_t *documents; /* array of objects; NULL: none */
    const json_t *kwargs;    /* object of further variables; NULL: none */
    bool add_generation_prompt;
    /* Beyond what transformers does, for messages as OpenAI's clients write them: */
    bool object_arguments;    /* arguments of tool calls that are the text of an object become that object */
    bool developer_is_system; /* the role developer becomes system */
    int64_t now_s;            /* as in sp_render_options */
} sp_chat_request;

/* Appends the rendered conversation to out. user_text, if not NULL, is replaced by the ranges of out that come from
 * the request's strings rather than from the template: what cannot be a control token in plain text. Fails as
 * sp_template_render does, with out as it was. */
bool sp_chat_render(const sp_chat *chat, const sp_chat_request *request, sp_buf *out, sp_chat_spans *user_text,
                    sp_error *err) SP_MUST_CHECK;

/* Appends what the template writes right after an assistant's message: the special token at its beginning ends a
 * turn. Appends nothing when the template writes nothing there. Fails when the template refuses every conversation
 * that is tried. */
bool sp_chat_end_of_turn(const sp_chat *chat, sp_buf *out, sp_error *err) SP_MUST_CHECK;

#endif
