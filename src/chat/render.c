/* One rendering: its state, its limits and its end. */
#include "chat/render.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

enum {
    MAX_DEPTH = 1200, /* Python's own limit of 1,000 frames ends templates earlier */
    STEPS_PER_LOOK = 2000,
    DEFAULT_MEMORY_BYTES = 64 << 20,
};
static const uint64_t DEFAULT_TIME_NS = UINT64_C(1000000000);

void sp_render_fail(sp_render *r, const char *format, ...) {
    char text[SP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_fail(r->err, SP_ERR_INPUT, "%s line %d: %s", r->tpl->name, r->line, text);
    longjmp(r->escape, 1);
}

void sp_render_raise(sp_render *r, const sp_text *message) {
    sp_fail(r->err, SP_ERR_INPUT, "%.*s", (int)(message->n_bytes < 4096 ? message->n_bytes : 4096), message->data);
    longjmp(r->escape, 1);
}

void sp_render_charge(sp_render *r, size_t n_elems) {
    if (n_elems < STEPS_PER_LOOK - r->n_steps) {
        r->n_steps += (uint32_t)n_elems;
        return;
    }
    r->n_steps = 0;
    if (sp_clock_cpu_ns() > r->limit_cpu_ns) sp_render_fail(r, "takes more time than a rendering may");
}

void sp_render_enter(sp_render *r) {
    if (++r->depth > MAX_DEPTH) sp_render_fail(r, "nested too deeply: more than %d levels", (int)MAX_DEPTH);
}

void sp_render_leave(sp_render *r) { r->depth--; }

void sp_render_claim(sp_render *r, size_t n_bytes) {
    size_t used = r->arena.total_bytes + (r->heap ? r->heap->n_bytes - r->heap_before : 0);
    if (used > r->limit_bytes || n_bytes > r->limit_bytes - used)
        sp_render_fail(r, "needs more than the %zu bytes of memory that a rendering may use", r->limit_bytes);
}

void *sp_render_alloc(sp_render *r, size_t n, size_t elem_bytes) {
    size_t n_bytes;
    if (__builtin_mul_overflow(n, elem_bytes, &n_bytes)) n_bytes = SIZE_MAX;
    sp_render_claim(r, n_bytes);
    return sp_arena_alloc(&r->arena, n_bytes);
}

void sp_chat_spans_deinit(sp_chat_spans *spans) {
    free(spans->items);
    *spans = (sp_chat_spans){0};
}

static sp_value global_value(sp_render *r, const sp_render_options *options, const sp_text *name) {
    char *key = sp_arena_text(&r->arena, name->data, name->n_bytes);
    const json_t *json = options->user_globals ? json_object_get(options->user_globals, key) : NULL;
    if (json) return sp_value_from_json(r, json, true);
    json = options->globals ? json_object_get(options->globals, key) : NULL;
    if (json) return sp_value_from_json(r, json, false);
    const sp_callable *function = sp_function_find(name);
    return function ? (sp_value){.kind = SP_V_FUNCTION, .as.function = function} : sp_value_missing();
}

/* The user's ranges, shifted by what out held before. */
static bool keep_spans(const sp_sink *sink, size_t before, sp_chat_spans *spans, sp_error *err) {
    sp_chat_spans_deinit(spans);
    if (!sink->n_user) return true;
    spans->items = malloc(sink->n_user * sizeof *spans->items);
    if (!spans->items) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu ranges", sink->n_user);
    spans->n = sink->n_user;
    for (size_t i = 0; i < sink->n_user; i++)
        spans->items[i] = (sp_text_span){sink->user[i].from_bytes + before, sink->user[i].to_bytes + before};
    return true;
}

/* The part that may leave by longjmp; false when it did. */
static bool run(sp_render *r, const sp_render_options *options, sp_sink *sink) {
    const sp_template *tpl = r->tpl;
    if (setjmp(r->escape)) return false;
    r->globals = sp_render_alloc(r, tpl->n_names, sizeof *r->globals);
    for (size_t i = 0; i < tpl->n_names; i++)
        if (tpl->loaded[i]) r->globals[i] = global_value(r, options, tpl->names[i]);
    r->scope = sp_scope_new(r, NULL);
    r->out = sink;
    sp_exec(r, tpl->body, tpl->n_body);
    return true;
}

bool sp_template_render(const sp_template *tpl, const sp_render_options *options, sp_buf *out, sp_error *err) {
    size_t before = out->n_bytes;
    sp_render *r = calloc(1, sizeof *r);
    if (!r) return sp_fail(err, SP_ERR_MEMORY, "%s: no memory", tpl->name);
    r->tpl = tpl;
    r->err = err;
    r->heap = out;
    r->heap_before = before;
    r->now_s = options->now_s;
    r->limit_bytes = options->memory_bytes ? options->memory_bytes : DEFAULT_MEMORY_BYTES;
    r->limit_cpu_ns = sp_clock_cpu_ns() + (options->time_ns ? options->time_ns : DEFAULT_TIME_NS);
    r->mark_user = options->user_text != NULL;
    sp_sink sink = {.r = r, .heap = out};
    bool ok = run(r, options, &sink);
    if (ok && options->user_text) ok = keep_spans(&sink, before, options->user_text, err);
    if (!ok && out->n_bytes > before) {
        out->n_bytes = before;
        out->data[before] = '\0';
    }
    sp_arena_deinit(&r->arena);
    free(r);
    return ok;
}
