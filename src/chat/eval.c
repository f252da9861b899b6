/* Expressions to values: one function per node kind, found through a table. Operands are evaluated from left to right;
 * and, or, comparisons and conditions only as far as they decide. */
#include <string.h>

#include "chat/render.h"

static sp_value eval_const(SP_UNUSED sp_render *r, const sp_node *node) { return node->constant; }

static sp_value eval_seq(sp_render *r, const sp_node *node) {
    bool list = node->kind == SP_N_LIST;
    sp_value seq = list ? sp_value_list(r, node->n_items) : sp_value_tuple(r, node->n_items);
    for (size_t i = 0; i < node->n_items; i++) sp_value_items(seq)[i] = sp_eval(r, node->items[i]);
    return seq;
}

static sp_value eval_dict(sp_render *r, const sp_node *node) {
    sp_dict *dict = sp_dict_new(r);
    for (size_t i = 0; i < node->n_items; i++) {
        sp_value key = sp_eval(r, node->items[i]);
        sp_dict_set(r, dict, key, sp_eval(r, node->others[i]));
    }
    return (sp_value){.kind = SP_V_DICT, .as.dict = dict};
}

static sp_value eval_cond(sp_render *r, const sp_node *node) {
    if (sp_value_truth(r, sp_eval(r, node->a))) return sp_eval(r, node->b);
    if (node->c) return sp_eval(r, node->c);
    return sp_undefined_hint(r, "the inline if-expression evaluated to false and no else section was defined.");
}

static sp_value eval_or(sp_render *r, const sp_node *node) {
    sp_value a = sp_eval(r, node->a);
    return sp_value_truth(r, a) ? a : sp_eval(r, node->b);
}

static sp_value eval_and(sp_render *r, const sp_node *node) {
    sp_value a = sp_eval(r, node->a);
    return sp_value_truth(r, a) ? sp_eval(r, node->b) : a;
}

static sp_value eval_not(sp_render *r, const sp_node *node) {
    return sp_value_bool(!sp_value_truth(r, sp_eval(r, node->a)));
}

static sp_value eval_compare(sp_render *r, const sp_node *node) {
    sp_value left = sp_eval(r, node->a), result = sp_value_none();
    for (size_t i = 0; i < node->n_items; i++) {
        sp_value right = sp_eval(r, node->items[i]->a);
        result = sp_operate(r, (sp_operator)node->items[i]->op, left, right);
        if (!sp_value_truth(r, result)) break;
        left = right;
    }
    return result;
}

static sp_value eval_concat(sp_render *r, const sp_node *node) {
    sp_value first = sp_eval(r, node->items[0]);
    const sp_text *text = sp_value_str(r, first);
    if (text->markup) { /* the result is a plain string */
        sp_text *plain = SP_RENDER_NEW(r, sp_text);
        *plain = *text;
        plain->markup = false;
        text = plain;
    }
    for (size_t i = 1; i < node->n_items; i++) {
        sp_sink piece = {.r = r};
        sp_sink_str(&piece, sp_eval(r, node->items[i]));
        text = sp_text_concat(r, text, sp_sink_finish(&piece));
    }
    return sp_value_text(text);
}

static sp_value eval_binary(sp_render *r, const sp_node *node) {
    sp_value a = sp_eval(r, node->a);
    return sp_operate(r, (sp_operator)node->op, a, sp_eval(r, node->b));
}

static sp_value eval_sign(sp_render *r, const sp_node *node) {
    return sp_negate(r, sp_eval(r, node->a), node->kind == SP_N_NEGATE);
}

static sp_value eval_attribute(sp_render *r, const sp_node *node) {
    return sp_get_attribute(r, sp_eval(r, node->a), node->text);
}

static sp_value eval_optional(sp_render *r, const sp_node *node) {
    return node ? sp_eval(r, node) : sp_value_missing();
}

static sp_value eval_item(sp_render *r, const sp_node *node) {
    sp_value obj = sp_eval(r, node->a);
    if (node->b->kind != SP_N_SLICE) return sp_get_item(r, obj, sp_eval(r, node->b));
    sp_value start = eval_optional(r, node->b->a);
    sp_value stop = eval_optional(r, node->b->b);
    return sp_get_slice(r, obj, start, stop, eval_optional(r, node->b->c));
}

static void add_kwarg(sp_render *r, sp_args *args, sp_kwarg *kw, const sp_text *name, sp_value value) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (sp_text_eq(kw[i].name, name)) sp_render_fail(r, "a keyword argument is given twice");
    kw[args->n_kw++] = (sp_kwarg){name, value};
}

static void eval_keywords(sp_render *r, const sp_call *call, sp_args *args, const sp_kwarg *extra) {
    size_t n = call->n_values + (extra != NULL);
    sp_kwarg *kw = sp_render_alloc(r, n, sizeof *kw);
    args->kw = kw;
    for (size_t i = 0; i < call->n_values; i++) add_kwarg(r, args, kw, call->names[i], sp_eval(r, call->values[i]));
    if (extra) add_kwarg(r, args, kw, extra->name, extra->value);
    if (!call->star_star) return;
    sp_value more = sp_eval(r, call->star_star);
    if (more.kind != SP_V_DICT) sp_render_fail(r, "argument after ** must be a mapping, not %s", sp_value_type(more));
    kw = sp_render_alloc(r, n + more.as.dict->n, sizeof *kw);
    if (n) memcpy(kw, args->kw, n * sizeof *kw);
    args->kw = kw;
    for (size_t i = 0; i < more.as.dict->n; i++) {
        const sp_pair *pair = &more.as.dict->pairs[i];
        if (pair->key.kind != SP_V_TEXT) sp_render_fail(r, "keywords must be strings");
        add_kwarg(r, args, kw, pair->key.as.text, pair->value);
    }
}

void sp_eval_args(sp_render *r, const sp_call *call, const sp_kwarg *extra, sp_args *args) {
    *args = (sp_args){0};
    if (!call) return;
    sp_items pos = {0};
    for (size_t i = 0; i < call->n_args; i++) sp_items_add(r, &pos, sp_eval(r, call->args[i]));
    if (call->star) {
        sp_iter *iter = sp_iter_open(r, sp_eval(r, call->star));
        for (sp_value v; sp_iter_next(r, iter, &v);) sp_items_add(r, &pos, v);
    }
    args->pos = pos.items;
    args->n_pos = pos.n;
    if (call->n_values || call->star_star || extra) eval_keywords(r, call, args, extra);
}

static sp_value eval_call(sp_render *r, const sp_node *node) {
    sp_value callee = sp_eval(r, node->a);
    sp_args args;
    sp_eval_args(r, node->call, NULL, &args);
    r->line = node->line;
    return sp_call_value(r, callee, &args);
}

static sp_value eval_filter(sp_render *r, const sp_node *node) {
    bool filter = node->kind == SP_N_FILTER;
    if (!node->callable)
        sp_render_fail(r, "no %s named '%.*s'", filter ? "filter" : "test",
                       (int)(node->text->n_bytes < 60 ? node->text->n_bytes : 60), node->text->data);
    sp_value input = node->a ? sp_eval(r, node->a) : r->block_input;
    sp_args args;
    sp_eval_args(r, node->call, NULL, &args);
    r->line = node->line;
    return sp_call_native(r, node->callable, input, &args);
}

static sp_value (*const evaluators[])(sp_render *, const sp_node *) = {
    [SP_N_CONST] = eval_const,     [SP_N_NAME] = sp_scope_get,  [SP_N_TUPLE] = eval_seq,
    [SP_N_LIST] = eval_seq,        [SP_N_DICT] = eval_dict,     [SP_N_COND] = eval_cond,
    [SP_N_OR] = eval_or,           [SP_N_AND] = eval_and,       [SP_N_NOT] = eval_not,
    [SP_N_COMPARE] = eval_compare, [SP_N_CONCAT] = eval_concat, [SP_N_BINARY] = eval_binary,
    [SP_N_NEGATE] = eval_sign,     [SP_N_POSITIVE] = eval_sign, [SP_N_ATTRIBUTE] = eval_attribute,
    [SP_N_ITEM] = eval_item,       [SP_N_CALL] = eval_call,     [SP_N_FILTER] = eval_filter,
    [SP_N_TEST] = eval_filter,
};

sp_value sp_eval(sp_render *r, const sp_node *node) {
    sp_render_charge(r, 1);
    sp_render_enter(r);
    r->line = node->line;
    sp_value v = evaluators[node->kind](r, node);
    sp_render_leave(r);
    return v;
}

static void assign_attribute(sp_render *r, const sp_node *target, sp_value v) {
    sp_node name = {.kind = SP_N_NAME, .i_name = target->i_name, .text = r->tpl->names[target->i_name]};
    sp_value object = sp_scope_get(r, &name);
    if (object.kind != SP_V_NAMESPACE) sp_render_fail(r, "cannot assign attribute on non-namespace object");
    if (target->text->n_bytes && target->text->data[0] == '_')
        sp_render_fail(r, "a namespace cannot have attributes that begin with an underscore");
    sp_dict_set(r, object.as.dict, sp_value_text(target->text), v);
}

static void assign_tuple(sp_render *r, const sp_node *target, sp_value v) {
    if (!sp_value_iterable(v)) sp_render_fail(r, "cannot unpack non-iterable %s object", sp_value_type(v));
    sp_value list = sp_value_is_seq(v) ? v : sp_iter_list(r, v);
    size_t n = list.as.seq->n;
    if (n != target->n_items)
        sp_render_fail(r, "%s values to unpack (expected %zu, got %zu)",
                       n < target->n_items ? "not enough" : "too many", target->n_items, n);
    for (size_t i = 0; i < n; i++) sp_eval_assign(r, target->items[i], list.as.seq->items[i]);
}

void sp_eval_assign(sp_render *r, const sp_node *target, sp_value v) {
    if (target->kind == SP_N_NAME)
        sp_scope_set(r, r->scope, target->i_name, v);
    else if (target->kind == SP_N_NS_REF)
        assign_attribute(r, target, v);
    else
        assign_tuple(r, target, v);
}
