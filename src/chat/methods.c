/* Methods of everything but strings, and the table of which type has which. */
#include <math.h>

#include "chat/render.h"

static sp_value make_view(sp_render *r, sp_value self, int part) {
    sp_view *view = SP_RENDER_NEW(r, sp_view);
    view->dict = self.as.dict;
    view->part = part;
    return (sp_value){.kind = SP_V_VIEW, .as.view = view};
}
SP_NATIVE(dict_keys) { return make_view(r, self, SP_VIEW_KEYS); }
SP_NATIVE(dict_values) { return make_view(r, self, SP_VIEW_VALUES); }
SP_NATIVE(dict_items) { return make_view(r, self, SP_VIEW_ITEMS); }

SP_NATIVE(dict_get) {
    const sp_value *v = sp_dict_get(r, self.as.dict, a[0]);
    if (v) return *v;
    return sp_value_given(a[1]) ? a[1] : sp_value_none();
}

SP_NATIVE(dict_copy) {
    sp_dict *dict = sp_dict_new(r);
    for (size_t i = 0; i < self.as.dict->n; i++)
        sp_dict_set(r, dict, self.as.dict->pairs[i].key, self.as.dict->pairs[i].value);
    return (sp_value){.kind = SP_V_DICT, .as.dict = dict};
}

SP_NATIVE(seq_copy) { return sp_iter_list(r, self); }

SP_NATIVE(seq_count) {
    int64_t n = 0;
    sp_iter *iter = sp_iter_open(r, self);
    for (sp_value v; sp_iter_next(r, iter, &v);) n += sp_value_eq(r, v, a[0]);
    return sp_value_int(n);
}

SP_NATIVE(seq_index) {
    size_t length = 0;
    sp_value_length(r, self, &length);
    int64_t n = (int64_t)length, at = 0;
    int64_t from = sp_value_given(a[1]) ? sp_arg_int(r, a[1], "index()") : 0;
    int64_t to = sp_value_given(a[2]) ? sp_arg_int(r, a[2], "index()") : n;
    if (from < 0) from += n;
    if (to < 0) to += n;
    sp_iter *iter = sp_iter_open(r, self);
    for (sp_value v; sp_iter_next(r, iter, &v); at++)
        if (at >= from && at < to && sp_value_eq(r, v, a[0])) return sp_value_int(at);
    sp_render_fail(r, "the value of index() is not in the %s", sp_value_type(self));
}

SP_NATIVE(cycler_next) {
    sp_cycler *cycler = self.as.cycler;
    sp_value v = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->n;
    return v;
}

SP_NATIVE(cycler_reset) {
    self.as.cycler->at = 0;
    return sp_value_none();
}

SP_NATIVE(int_bit_length) {
    int64_t i = sp_value_as_int(self);
    uint64_t size = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return sp_value_int(size ? 64 - __builtin_clzll(size) : 0);
}

SP_NATIVE(real_is_integer) { return sp_value_bool(isfinite(self.as.real) && floor(self.as.real) == self.as.real); }

static const sp_callable dict_methods[] = {
    {"items", dict_items, 0, 0, {0}},  {"keys", dict_keys, 0, 0, {0}}, {"values", dict_values, 0, 0, {0}},
    {"get", dict_get, 1, 2, {"", ""}}, {"copy", dict_copy, 0, 0, {0}},
};
static const sp_callable list_methods[] = {
    {"index", seq_index, 1, 3, {"", "", ""}},
    {"count", seq_count, 1, 1, {""}},
    {"copy", seq_copy, 0, 0, {0}},
};
static const sp_callable loop_methods[] = {
    {"cycle", sp_loop_cycle, 0, SP_VARIADIC, {0}},
    {"changed", sp_loop_changed, 0, SP_VARIADIC, {0}},
};
static const sp_callable cycler_methods[] = {{"next", cycler_next, 0, 0, {0}}, {"reset", cycler_reset, 0, 0, {0}}};
static const sp_callable int_methods[] = {{"bit_length", int_bit_length, 0, 0, {0}}};
static const sp_callable real_methods[] = {{"is_integer", real_is_integer, 0, 0, {0}}};

#define ROWS(table) table, sizeof table / sizeof *table
static const struct {
    const sp_callable *rows;
    size_t n;
} by_kind[SP_V_KINDS] = {
    [SP_V_LIST] = {ROWS(list_methods)}, [SP_V_TUPLE] = {list_methods, 2},   [SP_V_RANGE] = {list_methods, 2},
    [SP_V_DICT] = {ROWS(dict_methods)}, [SP_V_LOOP] = {ROWS(loop_methods)}, [SP_V_CYCLER] = {ROWS(cycler_methods)},
    [SP_V_INT] = {ROWS(int_methods)},   [SP_V_REAL] = {ROWS(real_methods)},
};

const sp_callable *sp_method_find(sp_value self, const sp_text *name) {
    if (self.kind == SP_V_TEXT) return sp_callable_find(sp_text_methods, sp_n_text_methods, name);
    return sp_callable_find(by_kind[self.kind].rows, by_kind[self.kind].n, name);
}
