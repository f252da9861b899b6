/* A chat template: Jinja2 as transformers sets it up (sandboxed and immutable, trim_blocks, lstrip_blocks, loop
 * controls, the generation tag, tojson without HTML escapes, raise_exception, strftime_now), rendered to UTF-8 text.
 *
 * A parsed template is immutable and may be rendered by several threads at once. Rendering is bounded in time, memory
 * and depth, reaches no file, and its result depends on the template, the globals and the date alone. */
#ifndef SPILL_CHAT_TEMPLATE_H
#define SPILL_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/error.h"

typedef struct sp_template sp_template;

/* Byte ranges of a rendered text, ascending, not touching one another. Zero-initialised is empty. */
typedef struct {
    size_t from_bytes;
    size_t to_bytes; /* exclusive */
} sp_text_span;
typedef struct {
    sp_text_span *items; /* heap */
    size_t n;
} sp_chat_spans;
void sp_chat_spans_deinit(sp_chat_spans *spans);

/* Parses n_bytes of UTF-8. `name` ("chat template") begins every message about it and is copied. NULL with
 * SP_ERR_INPUT when it is no valid template, or uses what one file cannot have (extends, include, import, block). */
sp_template *sp_template_parse(const char *text, size_t n_bytes, const char *name, sp_error *err) SP_MUST_CHECK;
void sp_template_free(sp_template *tpl);

/* Whether the template mentions the variable `name` (tools, documents, enable_thinking) anywhere. */
bool sp_template_reads(const sp_template *tpl, const char *name);
/* Whether its source has this text anywhere. */
bool sp_template_mentions(const sp_template *tpl, const char *text);

typedef struct {
    const json_t *globals; /* object of the variables that are the model's own (bos_token); borrowed, may be NULL */
    const json_t *user_globals; /* the same of those a user wrote (messages, tools); these win over globals */
    int64_t now_s;              /* what strftime_now sees: civil seconds since 1970; 0: the local time of the machine */
    uint64_t time_ns;           /* of processor, so that a busy machine changes no result; 0: one second */
    size_t memory_bytes;        /* 0: 64 MiB; everything the rendering allocates, its output included */
    sp_chat_spans *user_text;   /* if not NULL: replaced by the ranges of the output that come from user_globals */
} sp_render_options;

/* Appends the rendering to out. On failure out is as it was and err says why: with SP_ERR_INPUT, the message of the
 * template's own raise_exception as it stands, else "<name> line N: ...". */
bool sp_template_render(const sp_template *tpl, const sp_render_options *options, sp_buf *out,
                        sp_error *err) SP_MUST_CHECK;

#endif
