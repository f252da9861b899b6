/* Statements. Output goes to r->out, variables to r->scope; a statement that captures text or opens a scope puts both
 * back when it is done (after a failure nobody looks at them again). */
#include <stdio.h>

#include "chat/render.h"

struct sp_loop {
    const sp_node *node;
    sp_scope *scope; /* where the loop stands */
    sp_scope *test_scope;
    sp_iter *iter;
    sp_value iterable;
    size_t n; /* length, once known */
    bool has_n;
    bool filtered;  /* what is left in iter has passed the loop's test */
    int64_t index0; /* -1 before the first item */
    int64_t depth0;
    sp_value previous, current;
    sp_value after; /* the next item if somebody looked at it already, else SP_V_MISSING */
    sp_value changed;
};

/* The next item that passes the loop's test. */
static bool pull(sp_render *r, sp_loop *loop, sp_value *item) {
    while (sp_iter_next(r, loop->iter, item)) {
        if (!loop->node->c || loop->filtered) return true;
        sp_scope *outer = r->scope;
        r->scope = loop->test_scope = sp_scope_renew(r, loop->test_scope, loop->scope);
        sp_eval_assign(r, loop->node->a, *item);
        bool passes = sp_value_truth(r, sp_eval(r, loop->node->c));
        r->scope = outer;
        if (passes) return true;
    }
    return false;
}

static bool peek(sp_render *r, sp_loop *loop) { return sp_value_given(loop->after) || pull(r, loop, &loop->after); }

static bool advance(sp_render *r, sp_loop *loop) {
    sp_value item = loop->after;
    if (!sp_value_given(item) && !pull(r, loop, &item)) return false;
    loop->after = sp_value_missing();
    loop->previous = loop->current;
    loop->current = item;
    loop->index0++;
    return true;
}

size_t sp_loop_length(sp_render *r, sp_loop *loop) {
    if (loop->has_n) return loop->n;
    if (loop->node->c || !sp_value_length(r, loop->iterable, &loop->n)) {
        sp_items rest = {0};
        for (sp_value item; pull(r, loop, &item);) sp_items_add(r, &rest, item);
        loop->iter = sp_iter_open(r, sp_items_list(r, &rest));
        loop->filtered = true;
        loop->n = rest.n + (size_t)(loop->index0 + 1) + sp_value_given(loop->after);
    }
    loop->has_n = true;
    return loop->n;
}

static sp_value loop_index(SP_UNUSED sp_render *r, sp_loop *loop) { return sp_value_int(loop->index0 + 1); }
static sp_value loop_index0(SP_UNUSED sp_render *r, sp_loop *loop) { return sp_value_int(loop->index0); }
static sp_value loop_first(SP_UNUSED sp_render *r, sp_loop *loop) { return sp_value_bool(loop->index0 == 0); }
static sp_value loop_last(sp_render *r, sp_loop *loop) { return sp_value_bool(!peek(r, loop)); }
static sp_value loop_length(sp_render *r, sp_loop *loop) { return sp_value_size(sp_loop_length(r, loop)); }
static sp_value loop_depth(SP_UNUSED sp_render *r, sp_loop *loop) { return sp_value_int(loop->depth0 + 1); }
static sp_value loop_depth0(SP_UNUSED sp_render *r, sp_loop *loop) { return sp_value_int(loop->depth0); }
static sp_value loop_revindex(sp_render *r, sp_loop *loop) {
    return sp_value_int((int64_t)sp_loop_length(r, loop) - loop->index0);
}
static sp_value loop_revindex0(sp_render *r, sp_loop *loop) {
    return sp_value_int((int64_t)sp_loop_length(r, loop) - loop->index0 - 1);
}
static sp_value loop_previtem(sp_render *r, sp_loop *loop) {
    return loop->index0 == 0 ? sp_undefined_hint(r, "there is no previous item") : loop->previous;
}
static sp_value loop_nextitem(sp_render *r, sp_loop *loop) {
    return peek(r, loop) ? loop->after : sp_undefined_hint(r, "there is no next item");
}

sp_value sp_loop_attribute(sp_render *r, sp_loop *loop, const sp_text *name) {
    static const struct {
        const char *name;
        sp_value (*get)(sp_render *, sp_loop *);
    } attributes[] = {
        {"index", loop_index},       {"index0", loop_index0},     {"first", loop_first},
        {"last", loop_last},         {"length", loop_length},     {"revindex", loop_revindex},
        {"depth", loop_depth},       {"depth0", loop_depth0},     {"revindex0", loop_revindex0},
        {"previtem", loop_previtem}, {"nextitem", loop_nextitem},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (sp_text_is(name, attributes[i].name)) return attributes[i].get(r, loop);
    return sp_value_missing();
}

sp_value sp_loop_cycle(sp_render *r, sp_value self, SP_UNUSED const sp_value *a, const sp_args *raw) {
    if (!raw->n_pos) sp_render_fail(r, "no items for cycling given");
    return raw->pos[(size_t)self.as.loop->index0 % raw->n_pos];
}

sp_value sp_loop_changed(sp_render *r, sp_value self, SP_UNUSED const sp_value *a, const sp_args *raw) {
    sp_loop *loop = self.as.loop;
    sp_value now = sp_value_tuple(r, raw->n_pos);
    for (size_t i = 0; i < raw->n_pos; i++) sp_value_items(now)[i] = raw->pos[i];
    if (sp_value_eq(r, loop->changed, now)) return sp_value_bool(false);
    loop->changed = now;
    return sp_value_bool(true);
}

void sp_sink_loop(sp_sink *sink, sp_loop *loop) {
    char text[64];
    snprintf(text, sizeof text, "<LoopContext %lld/%zu>", (long long)loop->index0 + 1, sp_loop_length(sink->r, loop));
    sp_sink_cstr(sink, text);
}

static sp_flow run_loop(sp_render *r, const sp_node *node, sp_scope *scope, sp_value iterable, int64_t depth0) {
    sp_loop *loop = SP_RENDER_NEW(r, sp_loop);
    *loop = (sp_loop){.node = node, .scope = scope, .iterable = iterable, .index0 = -1, .depth0 = depth0};
    loop->iter = sp_iter_open(r, iterable);
    sp_scope *outer = r->scope, *inner = NULL;
    sp_flow flow = SP_FLOW_NEXT;
    bool completed = false; /* as in Jinja, the else is for loops none of whose rounds reached its end */
    while (flow != SP_FLOW_BREAK && advance(r, loop)) {
        r->scope = inner = sp_scope_renew(r, inner, scope);
        sp_scope_set(r, r->scope, r->tpl->i_loop, (sp_value){.kind = SP_V_LOOP, .as.loop = loop});
        sp_eval_assign(r, node->a, loop->current);
        flow = sp_exec(r, node->items, node->n_items);
        completed |= flow == SP_FLOW_NEXT;
    }
    flow = SP_FLOW_NEXT;
    if (!completed && node->n_others) {
        r->scope = sp_scope_new(r, scope);
        flow = sp_exec(r, node->others, node->n_others);
    }
    r->scope = outer;
    return flow;
}

sp_value sp_loop_recurse(sp_render *r, sp_loop *loop, sp_value iterable) {
    if (!loop->node->flag) sp_render_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    sp_sink sink = {.r = r};
    sp_sink *out = r->out;
    r->out = &sink;
    sp_render_enter(r);
    run_loop(r, loop->node, loop->scope, iterable, loop->depth0 + 1);
    sp_render_leave(r);
    r->out = out;
    return sp_sink_value(&sink);
}

static sp_flow exec_for(sp_render *r, const sp_node *node) {
    return run_loop(r, node, r->scope, sp_eval(r, node->b), 0);
}

static sp_flow exec_data(sp_render *r, const sp_node *node) {
    sp_sink_text(r->out, node->text);
    return SP_FLOW_NEXT;
}

static sp_flow exec_print(sp_render *r, const sp_node *node) {
    sp_sink_str(r->out, sp_eval(r, node->a));
    return SP_FLOW_NEXT;
}

static sp_flow exec_if(sp_render *r, const sp_node *node) {
    for (size_t i = 0; i < node->n_items; i++) {
        const sp_node *branch = node->items[i];
        if (sp_value_truth(r, sp_eval(r, branch->a))) return sp_exec(r, branch->items, branch->n_items);
    }
    return sp_exec(r, node->others, node->n_others);
}

static sp_flow exec_set(sp_render *r, const sp_node *node) {
    sp_eval_assign(r, node->a, sp_eval(r, node->b));
    return SP_FLOW_NEXT;
}

sp_flow sp_exec_text(sp_render *r, sp_node *const *body, size_t n, sp_scope *scope, const sp_text **text) {
    sp_sink sink = {.r = r};
    sp_sink *out = r->out;
    sp_scope *outer = r->scope;
    r->out = &sink;
    r->scope = scope;
    sp_flow flow = sp_exec(r, body, n);
    r->out = out;
    r->scope = outer;
    if (flow == SP_FLOW_NEXT) *text = sp_sink_finish(&sink);
    return flow;
}

/* The text of a block with its filter, if any, applied. */
static sp_flow capture(sp_render *r, const sp_node *node, sp_value *v) {
    const sp_text *text = NULL;
    sp_flow flow = sp_exec_text(r, node->items, node->n_items, sp_scope_new(r, r->scope), &text);
    if (flow != SP_FLOW_NEXT) return flow;
    *v = sp_value_text(text);
    if (!node->b) return flow;
    r->block_input = *v;
    *v = sp_eval(r, node->b);
    return flow;
}

static sp_flow exec_set_block(sp_render *r, const sp_node *node) {
    sp_value v;
    sp_flow flow = capture(r, node, &v);
    if (flow == SP_FLOW_NEXT) sp_eval_assign(r, node->a, v);
    return flow;
}

static sp_flow exec_filter_block(sp_render *r, const sp_node *node) {
    sp_value v;
    sp_flow flow = capture(r, node, &v);
    if (flow != SP_FLOW_NEXT) return flow;
    if (v.kind != SP_V_TEXT) sp_render_fail(r, "a filter block's filter gives %s, not text", sp_value_type(v));
    sp_sink_text(r->out, v.as.text);
    return flow;
}

static sp_value make_macro(sp_render *r, const sp_node *node) {
    sp_macro *macro = SP_RENDER_NEW(r, sp_macro);
    *macro = (sp_macro){node, r->scope};
    sp_scope_keep(r->scope);
    return (sp_value){.kind = SP_V_MACRO, .as.macro = macro};
}

static sp_flow exec_macro(sp_render *r, const sp_node *node) {
    sp_scope_set(r, r->scope, node->i_name, make_macro(r, node));
    return SP_FLOW_NEXT;
}

static sp_flow exec_call_block(sp_render *r, const sp_node *node) {
    sp_value callee = sp_eval(r, node->a->a);
    sp_kwarg caller = {r->tpl->names[r->tpl->i_caller], make_macro(r, node)};
    sp_args args;
    sp_eval_args(r, node->a->call, &caller, &args);
    r->line = node->line;
    sp_sink_str(r->out, sp_call_value(r, callee, &args));
    return SP_FLOW_NEXT;
}

static sp_flow exec_scope(sp_render *r, const sp_node *node) {
    sp_scope *outer = r->scope;
    r->scope = sp_scope_new(r, outer);
    sp_flow flow = sp_exec(r, node->items, node->n_items);
    r->scope = outer;
    return flow;
}

static sp_flow exec_with(sp_render *r, const sp_node *node) {
    sp_scope *outer = r->scope, *inner = sp_scope_new(r, outer);
    for (size_t i = 0; i < node->call->n_args; i++) {
        r->scope = outer;
        sp_value v = sp_eval(r, node->call->values[i]);
        r->scope = inner;
        sp_eval_assign(r, node->call->args[i], v);
    }
    r->scope = inner;
    sp_flow flow = sp_exec(r, node->items, node->n_items);
    r->scope = outer;
    return flow;
}

static sp_flow exec_break(SP_UNUSED sp_render *r, SP_UNUSED const sp_node *node) { return SP_FLOW_BREAK; }
static sp_flow exec_continue(SP_UNUSED sp_render *r, SP_UNUSED const sp_node *node) { return SP_FLOW_CONTINUE; }

static sp_flow (*const executors[])(sp_render *, const sp_node *) = {
    [SP_N_DATA] = exec_data,
    [SP_N_PRINT] = exec_print,
    [SP_N_FOR] = exec_for,
    [SP_N_IF] = exec_if,
    [SP_N_SET] = exec_set,
    [SP_N_SET_BLOCK] = exec_set_block,
    [SP_N_MACRO] = exec_macro,
    [SP_N_CALL_BLOCK] = exec_call_block,
    [SP_N_FILTER_BLOCK] = exec_filter_block,
    [SP_N_WITH] = exec_with,
    [SP_N_SCOPE] = exec_scope,
    [SP_N_BREAK] = exec_break,
    [SP_N_CONTINUE] = exec_continue,
};

sp_flow sp_exec(sp_render *r, sp_node *const *body, size_t n) {
    sp_flow flow = SP_FLOW_NEXT;
    sp_render_enter(r);
    for (size_t i = 0; i < n && flow == SP_FLOW_NEXT; i++) {
        sp_render_charge(r, 1);
        r->line = body[i]->line;
        flow = executors[body[i]->kind](r, body[i]);
    }
    sp_render_leave(r);
    return flow;
}
