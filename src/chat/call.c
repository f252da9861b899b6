/* Calls: arguments to parameters, macros, and the global functions of the environment. */
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

enum { MAX_RANGE = 100000 }; /* that of Jinja's sandbox */

static size_t param_index(const sp_callable *callable, const sp_text *name) {
    for (size_t i = 0; i < callable->n_params; i++)
        if (callable->params[i][0] && sp_text_is(name, callable->params[i])) return i;
    return SP_MAX_PARAMS;
}

/* The methods of a safe string give safe strings. */
static sp_value keep_markup(sp_render *r, const sp_callable *callable, sp_value self, sp_value result) {
    bool method = callable >= sp_text_methods && callable < sp_text_methods + sp_n_text_methods;
    if (!method || !self.as.text->markup || result.kind != SP_V_TEXT || result.as.text->markup) return result;
    sp_text *text = SP_RENDER_NEW(r, sp_text);
    *text = *result.as.text;
    text->markup = true;
    return sp_value_text(text);
}

sp_value sp_call_native(sp_render *r, const sp_callable *callable, sp_value self, const sp_args *args) {
    sp_value a[SP_MAX_PARAMS] = {0};
    if (callable->n_params == SP_VARIADIC) return keep_markup(r, callable, self, callable->call(r, self, a, args));
    if (args->n_pos > callable->n_params)
        sp_render_fail(r, "%s takes at most %d arguments (%zu given)", callable->name, callable->n_params, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) a[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        size_t at = param_index(callable, args->kw[i].name);
        int n = (int)sp_min_size(args->kw[i].name->n_bytes, 60);
        if (at == SP_MAX_PARAMS)
            sp_render_fail(r, "%s takes no keyword argument '%.*s'", callable->name, n, args->kw[i].name->data);
        if (sp_value_given(a[at]))
            sp_render_fail(r, "%s got two values for '%.*s'", callable->name, n, args->kw[i].name->data);
        a[at] = args->kw[i].value;
    }
    for (size_t i = 0; i < callable->n_required; i++)
        if (!sp_value_given(a[i])) sp_render_fail(r, "%s misses its argument %zu", callable->name, i + 1);
    return keep_markup(r, callable, self, callable->call(r, self, a, args));
}

sp_value sp_call_text_method(sp_render *r, sp_value self, const char *name, const sp_value *args, size_t n_args) {
    sp_value text = sp_value_text(sp_value_str(r, self));
    sp_text key = {.data = name, .n_bytes = strlen(name)};
    return sp_call_native(r, sp_method_find(text, &key), text, &(sp_args){.pos = args, .n_pos = n_args});
}

/* ---- macros ---- */

static const char *macro_name(const sp_macro *macro, int *n) {
    *n = macro->node->text ? (int)sp_min_size(macro->node->text->n_bytes, 60) : 6;
    return macro->node->text ? macro->node->text->data : "caller";
}

static const sp_kwarg *find_kwarg(const sp_args *args, const sp_text *name) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (sp_text_eq(args->kw[i].name, name)) return &args->kw[i];
    return NULL;
}

static bool is_param(const sp_call *signature, const sp_text *name) {
    for (size_t i = 0; i < signature->n_args; i++)
        if (sp_text_eq(signature->args[i]->text, name)) return true;
    return false;
}

static sp_value missing_param(sp_render *r, const sp_text *name) {
    sp_sink hint = {.r = r};
    sp_sink_cstr(&hint, "parameter ");
    sp_sink_repr(&hint, sp_value_text(name));
    sp_sink_cstr(&hint, " was not provided");
    sp_sink_bytes(&hint, "", 1, false);
    return sp_undefined_hint(r, hint.data);
}

/* Parameters, in the macro's scope: a default may use the ones before it, and sees none of the same name outside. */
static void bind_params(sp_render *r, const sp_call *signature, const sp_args *args) {
    for (size_t i = 0; i < signature->n_args; i++) {
        const sp_node *param = signature->args[i];
        const sp_kwarg *kw = i >= args->n_pos ? find_kwarg(args, param->text) : NULL;
        sp_value v = i < args->n_pos ? args->pos[i] : kw ? kw->value : missing_param(r, param->text);
        sp_scope_set(r, r->scope, param->i_name, v);
    }
    for (size_t i = args->n_pos; i < signature->n_args; i++) {
        const sp_node *param = signature->args[i];
        if (!signature->values[i] || find_kwarg(args, param->text)) continue;
        sp_scope_set(r, r->scope, param->i_name, sp_eval(r, signature->values[i]));
    }
}

/* caller, kwargs and varargs, and the refusal of what the macro has no use for. */
static void bind_special(sp_render *r, const sp_macro *macro, const sp_args *args) {
    const sp_node *node = macro->node;
    const sp_call *signature = node->call;
    const sp_text *caller = r->tpl->names[r->tpl->i_caller];
    int n;
    const char *name = macro_name(macro, &n);
    bool catches_caller = node->catches & SP_CATCH_CALLER && !is_param(signature, caller);
    sp_dict *rest = sp_dict_new(r);
    if (catches_caller) {
        const sp_kwarg *kw = find_kwarg(args, caller);
        sp_scope_set(r, r->scope, r->tpl->i_caller, kw ? kw->value : sp_undefined_hint(r, "No caller defined"));
    }
    for (size_t i = 0; i < args->n_kw; i++) {
        const sp_text *key = args->kw[i].name;
        if (catches_caller && sp_text_eq(key, caller)) continue;
        bool positional = false; /* given by position too */
        for (size_t k = 0; k < signature->n_args && k < args->n_pos; k++)
            positional |= sp_text_eq(signature->args[k]->text, key);
        if (is_param(signature, key) && !positional) continue;
        if (!(node->catches & SP_CATCH_KWARGS))
            sp_render_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", n, name,
                           (int)sp_min_size(key->n_bytes, 60), key->data);
        sp_dict_set(r, rest, sp_value_text(key), args->kw[i].value);
    }
    if (node->catches & SP_CATCH_KWARGS)
        sp_scope_set(r, r->scope, r->tpl->i_kwargs, (sp_value){.kind = SP_V_DICT, .as.dict = rest});
    size_t n_more = args->n_pos > signature->n_args ? args->n_pos - signature->n_args : 0;
    if (n_more && !(node->catches & SP_CATCH_VARARGS))
        sp_render_fail(r, "macro '%.*s' takes not more than %zu argument(s)", n, name, signature->n_args);
    if (!(node->catches & SP_CATCH_VARARGS)) return;
    sp_value more = sp_value_tuple(r, n_more);
    for (size_t i = 0; i < n_more; i++) sp_value_items(more)[i] = args->pos[signature->n_args + i];
    sp_scope_set(r, r->scope, r->tpl->i_varargs, more);
}

static sp_value call_macro(sp_render *r, const sp_macro *macro, const sp_args *args) {
    sp_scope *outer = r->scope;
    r->scope = sp_scope_new(r, macro->scope);
    sp_render_enter(r);
    bind_special(r, macro, args);
    bind_params(r, macro->node->call, args);
    const sp_text *text = NULL;
    sp_exec_text(r, macro->node->items, macro->node->n_items, r->scope, &text);
    sp_render_leave(r);
    r->scope = outer;
    return sp_value_text(text);
}

sp_value sp_macro_attribute(sp_render *r, const sp_macro *macro, const sp_text *name) {
    const sp_node *node = macro->node;
    if (sp_text_is(name, "name")) return node->text ? sp_value_text(node->text) : sp_text_value(r, "caller");
    if (sp_text_is(name, "catch_kwargs")) return sp_value_bool(node->catches & SP_CATCH_KWARGS);
    if (sp_text_is(name, "catch_varargs")) return sp_value_bool(node->catches & SP_CATCH_VARARGS);
    if (sp_text_is(name, "caller")) return sp_value_bool(node->catches & SP_CATCH_CALLER);
    if (!sp_text_is(name, "arguments")) return sp_value_missing();
    sp_value names = sp_value_tuple(r, node->call->n_args);
    for (size_t i = 0; i < node->call->n_args; i++) sp_value_items(names)[i] = sp_value_text(node->call->args[i]->text);
    return names;
}

static sp_value call_joiner(sp_joiner *joiner, sp_render *r) {
    bool first = !joiner->used;
    joiner->used = true;
    return first ? sp_text_value(r, "") : joiner->separator;
}

sp_value sp_call_value(sp_render *r, sp_value callee, const sp_args *args) {
    switch (callee.kind) {
        case SP_V_UNDEFINED:
            sp_undefined_fail(r, callee);
        case SP_V_FUNCTION:
            return sp_call_native(r, callee.as.function, sp_value_missing(), args);
        case SP_V_METHOD:
            return sp_call_native(r, callee.as.method->callable, callee.as.method->self, args);
        case SP_V_MACRO:
            return call_macro(r, callee.as.macro, args);
        case SP_V_JOINER:
            if (args->n_pos || args->n_kw) sp_render_fail(r, "a joiner takes no arguments");
            return call_joiner(callee.as.joiner, r);
        case SP_V_LOOP:
            if (args->n_pos != 1 || args->n_kw) sp_render_fail(r, "a loop takes one argument");
            return sp_loop_recurse(r, callee.as.loop, args->pos[0]);
        default:
            sp_render_fail(r, "'%s' object is not callable", sp_value_type(callee));
    }
}

/* ---- global functions ---- */

SP_NATIVE(call_range) {
    bool one = raw->n_pos == 1;
    int64_t start = one ? 0 : sp_arg_int(r, a[0], "range()");
    int64_t stop = sp_arg_int(r, one ? a[0] : a[1], "range()");
    int64_t step = sp_value_given(a[2]) ? sp_arg_int(r, a[2], "range()") : 1;
    if (step == 0) sp_render_fail(r, "range() arg 3 must not be zero");
    bool any = step > 0 ? start < stop : start > stop;
    uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = any ? (distance - 1) / stride + 1 : 0;
    if (n > MAX_RANGE)
        sp_render_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", (int)MAX_RANGE);
    sp_range *range = SP_RENDER_NEW(r, sp_range);
    *range = (sp_range){start, stop, step, (int64_t)n};
    return (sp_value){.kind = SP_V_RANGE, .as.range = range};
}

/* dict(mapping or pairs, key=value...). */
static sp_dict *build_dict(sp_render *r, const sp_args *raw) {
    sp_dict *dict = sp_dict_new(r);
    if (raw->n_pos > 1) sp_render_fail(r, "dict expected at most 1 argument, got %zu", raw->n_pos);
    if (raw->n_pos && raw->pos[0].kind == SP_V_UNDEFINED) sp_undefined_fail(r, raw->pos[0]);
    if (raw->n_pos && raw->pos[0].kind == SP_V_DICT) {
        const sp_dict *from = raw->pos[0].as.dict;
        for (size_t i = 0; i < from->n; i++) sp_dict_set(r, dict, from->pairs[i].key, from->pairs[i].value);
    } else if (raw->n_pos) {
        sp_iter *iter = sp_iter_open(r, raw->pos[0]);
        for (sp_value v; sp_iter_next(r, iter, &v);) {
            sp_value pair = sp_iter_list(r, v);
            if (pair.as.seq->n != 2) sp_render_fail(r, "dict() needs pairs, got %zu elements", pair.as.seq->n);
            sp_dict_set(r, dict, pair.as.seq->items[0], pair.as.seq->items[1]);
        }
    }
    for (size_t i = 0; i < raw->n_kw; i++) sp_dict_set(r, dict, sp_value_text(raw->kw[i].name), raw->kw[i].value);
    return dict;
}

SP_NATIVE(call_dict) { return (sp_value){.kind = SP_V_DICT, .as.dict = build_dict(r, raw)}; }

SP_NATIVE(call_namespace) {
    sp_dict *dict = build_dict(r, raw);
    for (size_t i = 0; i < dict->n; i++) {
        sp_value key = dict->pairs[i].key;
        if (key.kind == SP_V_TEXT && key.as.text->n_bytes && key.as.text->data[0] == '_')
            sp_render_fail(r, "a namespace cannot have attributes that begin with an underscore");
    }
    return (sp_value){.kind = SP_V_NAMESPACE, .as.dict = dict};
}

SP_NATIVE(call_cycler) {
    if (!raw->n_pos || raw->n_kw) sp_render_fail(r, "at least one item has to be provided");
    sp_value items = sp_value_tuple(r, raw->n_pos);
    memcpy(sp_value_items(items), raw->pos, raw->n_pos * sizeof *raw->pos);
    sp_cycler *cycler = SP_RENDER_NEW(r, sp_cycler);
    cycler->items = items.as.seq;
    return (sp_value){.kind = SP_V_CYCLER, .as.cycler = cycler};
}

SP_NATIVE(call_joiner_new) {
    sp_joiner *joiner = SP_RENDER_NEW(r, sp_joiner);
    joiner->separator = sp_value_given(a[0]) ? a[0] : sp_text_value(r, ", ");
    return (sp_value){.kind = SP_V_JOINER, .as.joiner = joiner};
}

SP_NATIVE(call_raise) { sp_render_raise(r, sp_value_str(r, a[0])); }

SP_NATIVE(call_strftime_now) { return sp_value_text(sp_strftime(r, sp_arg_text(r, a[0], "strftime_now()"))); }

SP_NATIVE(call_lipsum) { sp_render_fail(r, "lipsum is not supported: its text is random"); }

static const sp_callable functions[] = {
    {"range", call_range, 1, 3, {"", "", ""}},
    {"dict", call_dict, 0, SP_VARIADIC, {0}},
    {"namespace", call_namespace, 0, SP_VARIADIC, {0}},
    {"cycler", call_cycler, 0, SP_VARIADIC, {0}},
    {"joiner", call_joiner_new, 0, 1, {"sep"}},
    {"raise_exception", call_raise, 1, 1, {"message"}},
    {"strftime_now", call_strftime_now, 1, 1, {"format"}},
    {"lipsum", call_lipsum, 0, SP_VARIADIC, {0}},
};

const sp_callable *sp_callable_find(const sp_callable *table, size_t n, const sp_text *name) {
    for (size_t i = 0; i < n; i++)
        if (sp_text_is(name, table[i].name)) return &table[i];
    return NULL;
}

const sp_callable *sp_function_find(const sp_text *name) {
    return sp_callable_find(functions, sizeof functions / sizeof *functions, name);
}
