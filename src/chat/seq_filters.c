/* Filters over sequences. map, select, batch and their like are generators, as in Jinja: they compute an item when it
 * is asked for. */
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

static bool given_true(sp_render *r, sp_value v) { return sp_value_given(v) && sp_value_truth(r, v); }

static sp_value ignore_case(sp_render *r, sp_value v) {
    return v.kind == SP_V_TEXT ? sp_value_text(sp_text_recase(r, v.as.text, SP_CASE_LOWER)) : v;
}

static sp_value key_of(sp_render *r, sp_value item, sp_value attribute, sp_value fallback, bool case_sensitive) {
    sp_value key = sp_get_path(r, item, attribute, fallback);
    return case_sensitive ? key : ignore_case(r, key);
}

/* ---- ends and lengths ---- */

SP_NATIVE(filter_first) {
    sp_value item;
    if (sp_iter_next(r, sp_iter_open(r, self), &item)) return item;
    return sp_undefined_hint(r, "No first item, sequence was empty.");
}

static void check_reversible(sp_render *r, sp_value v) {
    if (v.kind == SP_V_ITER || !sp_value_iterable(v))
        sp_render_fail(r, "'%s' object is not reversible", sp_value_type(v));
}

SP_NATIVE(filter_last) {
    check_reversible(r, self);
    if (self.kind == SP_V_TEXT && self.as.text->n_chars) return sp_get_item(r, self, sp_value_int(-1));
    sp_value list = sp_value_is_seq(self) ? self : sp_iter_list(r, self);
    if (!list.as.seq->n) return sp_undefined_hint(r, "No last item, sequence was empty.");
    return list.as.seq->items[list.as.seq->n - 1];
}

SP_NATIVE(filter_length) {
    size_t n;
    if (!sp_value_length(r, self, &n)) sp_render_fail(r, "object of type '%s' has no len()", sp_value_type(self));
    return sp_value_size(n);
}

SP_NATIVE(filter_list) { return sp_iter_list(r, self); }

static bool next_reversed(SP_UNUSED sp_render *r, sp_iter *iter, sp_value *item) {
    const sp_seq *seq = iter->source.as.seq;
    if (iter->at >= seq->n) return false;
    *item = seq->items[seq->n - ++iter->at];
    return true;
}

SP_NATIVE(filter_reverse) {
    if (self.kind == SP_V_TEXT) return sp_get_slice(r, self, sp_value_missing(), sp_value_missing(), sp_value_int(-1));
    if (!sp_value_iterable(self)) sp_render_fail(r, "argument must be iterable");
    sp_value list = sp_value_is_seq(self) ? self : sp_iter_list(r, self);
    sp_value reversed = sp_iter_value(r, (sp_iter){.next = next_reversed, .source = list});
    return self.kind == SP_V_ITER ? sp_iter_list(r, reversed) : reversed;
}

SP_NATIVE(filter_random) {
    sp_render_fail(r, "the filter 'random' is not supported: results must not depend on chance");
}

/* ---- joining ---- */

SP_NATIVE(filter_join) {
    const sp_text *separator = sp_value_given(a[0]) ? sp_value_str(r, a[0]) : NULL;
    sp_sink sink = {.r = r};
    sp_iter *iter = sp_iter_open(r, self);
    bool first = true;
    for (sp_value v; sp_iter_next(r, iter, &v); first = false) {
        if (!first && separator) sp_sink_text(&sink, separator);
        sp_sink_str(&sink, sp_get_path(r, v, a[1], sp_value_missing()));
    }
    return sp_sink_value(&sink);
}

/* ---- sorting ---- */

typedef struct {
    sp_value key;
    sp_value item;
} keyed;

/* Stable merge sort of n entries; scratch has room for n. `reverse` keeps the order of equal ones too. */
static void merge_sort(sp_render *r, keyed *entries, keyed *scratch, size_t n, bool reverse) {
    if (n < 2) return;
    size_t half = n / 2;
    merge_sort(r, entries, scratch, half, reverse);
    merge_sort(r, entries + half, scratch, n - half, reverse);
    memcpy(scratch, entries, half * sizeof *entries);
    for (size_t i = 0, j = half, k = 0; i < half; k++) {
        bool right = false;
        if (j < n) {
            sp_value x = reverse ? scratch[i].key : entries[j].key, y = reverse ? entries[j].key : scratch[i].key;
            right = sp_value_compare(r, x, y, "<") < 0;
        }
        entries[k] = right ? entries[j++] : scratch[i++];
    }
}

static sp_value sorted_items(sp_render *r, keyed *entries, size_t n, bool reverse) {
    keyed *scratch = sp_render_alloc(r, n / 2 + 1, sizeof *scratch);
    merge_sort(r, entries, scratch, n, reverse);
    sp_value out = sp_value_list(r, n);
    for (size_t i = 0; i < n; i++) sp_value_items(out)[i] = entries[i].item;
    return out;
}

/* The keys of a comma-separated list of paths, as a list. */
static sp_value multi_key(sp_render *r, sp_value item, sp_value attribute, bool case_sensitive) {
    sp_items keys = {0};
    const sp_text *text = attribute.kind == SP_V_TEXT ? attribute.as.text : NULL;
    if (!text) sp_items_add(r, &keys, key_of(r, item, attribute, sp_value_missing(), case_sensitive));
    for (size_t from = 0; text && from <= text->n_bytes;) {
        const char *comma = from < text->n_bytes ? memchr(text->data + from, ',', text->n_bytes - from) : NULL;
        size_t to = comma ? (size_t)(comma - text->data) : text->n_bytes;
        sp_value path = sp_value_text(sp_text_slice(r, text, from, to));
        sp_items_add(r, &keys, key_of(r, item, path, sp_value_missing(), case_sensitive));
        from = to + 1;
    }
    return sp_items_list(r, &keys);
}

SP_NATIVE(filter_sort) {
    sp_value list = sp_iter_list(r, self);
    size_t n = list.as.seq->n;
    keyed *entries = sp_render_alloc(r, n, sizeof *entries);
    for (size_t i = 0; i < n; i++)
        entries[i] = (keyed){multi_key(r, list.as.seq->items[i], a[2], given_true(r, a[1])), list.as.seq->items[i]};
    return sorted_items(r, entries, n, sp_value_given(a[0]) && sp_arg_int(r, a[0], "sort") != 0);
}

SP_NATIVE(filter_dictsort) {
    bool by_value = false;
    if (sp_value_given(a[1])) {
        bool text = a[1].kind == SP_V_TEXT;
        by_value = text && sp_text_is(a[1].as.text, "value");
        if (!by_value && !(text && sp_text_is(a[1].as.text, "key")))
            sp_render_fail(r, "You can only sort by either \"key\" or \"value\"");
    }
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    if (self.kind != SP_V_DICT) sp_render_fail(r, "dictsort needs a mapping, got %s", sp_value_type(self));
    const sp_dict *dict = self.as.dict;
    keyed *entries = sp_render_alloc(r, dict->n, sizeof *entries);
    for (size_t i = 0; i < dict->n; i++) {
        sp_value pair = sp_value_tuple(r, 2);
        sp_value_items(pair)[0] = dict->pairs[i].key;
        sp_value_items(pair)[1] = dict->pairs[i].value;
        sp_value key = by_value ? dict->pairs[i].value : dict->pairs[i].key;
        entries[i] = (keyed){given_true(r, a[0]) ? key : ignore_case(r, key), pair};
    }
    return sorted_items(r, entries, dict->n, sp_value_given(a[2]) && sp_arg_int(r, a[2], "dictsort") != 0);
}

SP_NATIVE(filter_groupby) {
    bool case_sensitive = given_true(r, a[2]);
    sp_value list = sp_iter_list(r, self);
    size_t n = list.as.seq->n;
    keyed *entries = sp_render_alloc(r, n, sizeof *entries);
    for (size_t i = 0; i < n; i++)
        entries[i] = (keyed){key_of(r, list.as.seq->items[i], a[0], a[1], case_sensitive), list.as.seq->items[i]};
    sorted_items(r, entries, n, false);
    sp_items groups = {0};
    for (size_t from = 0, to; from < n; from = to) {
        sp_items members = {0};
        for (to = from; to < n && sp_value_eq(r, entries[to].key, entries[from].key); to++)
            sp_items_add(r, &members, entries[to].item);
        if (to == from) sp_items_add(r, &members, entries[to++].item); /* NaN equals nothing */
        sp_seq *group = SP_RENDER_NEW(r, sp_seq);
        *group = (sp_seq){.items = sp_render_alloc(r, 2, sizeof(sp_value)), .n = 2, .group = true};
        group->items[0] = sp_get_path(r, entries[from].item, a[0], a[1]);
        group->items[1] = sp_items_list(r, &members);
        sp_items_add(r, &groups, (sp_value){.kind = SP_V_TUPLE, .as.seq = group});
    }
    return sp_items_list(r, &groups);
}

static sp_value extreme(sp_render *r, sp_value self, const sp_value *a, bool largest) {
    sp_iter *iter = sp_iter_open(r, self);
    sp_value best, best_key, item;
    bool case_sensitive = given_true(r, a[0]);
    if (!sp_iter_next(r, iter, &best)) return sp_undefined_hint(r, "No aggregated item, sequence was empty.");
    best_key = key_of(r, best, a[1], sp_value_missing(), case_sensitive);
    while (sp_iter_next(r, iter, &item)) {
        sp_value key = key_of(r, item, a[1], sp_value_missing(), case_sensitive);
        int order = sp_value_compare(r, key, best_key, largest ? ">" : "<");
        if (largest ? order <= 0 : order >= 0) continue;
        best = item;
        best_key = key;
    }
    return best;
}
SP_NATIVE(filter_min) { return extreme(r, self, a, false); }
SP_NATIVE(filter_max) { return extreme(r, self, a, true); }

SP_NATIVE(filter_sum) {
    sp_value total = sp_value_given(a[1]) ? a[1] : sp_value_int(0);
    if (total.kind == SP_V_TEXT) sp_render_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    bool by_attribute = sp_value_given(a[0]) && a[0].kind != SP_V_NONE;
    sp_iter *iter = sp_iter_open(r, self);
    for (sp_value v; sp_iter_next(r, iter, &v);)
        total = sp_operate(r, SP_OP_ADD, total, by_attribute ? sp_get_path(r, v, a[0], sp_value_missing()) : v);
    return total;
}

/* ---- generators ---- */

/* What a generator was called with, and what it has prepared of that. */
typedef struct {
    sp_value value;
    sp_args args;
    const sp_callable *callable;
    sp_value attribute;
    sp_value fallback;
    bool by_attribute;
    bool keep;      /* select keeps what passes, reject what does not */
    sp_dict *seen;  /* of unique */
    sp_value count; /* of batch and slice */
    sp_value fill;
} generator;

static sp_value make_generator(sp_render *r, bool (*next)(sp_render *, sp_iter *, sp_value *), const generator *g) {
    generator *state = SP_RENDER_NEW(r, generator);
    *state = *g;
    return sp_iter_value(r, (sp_iter){.next = next, .state = state});
}

/* The first item's call: opens the input; false when it is false and so has no items at all. */
static bool open_input(sp_render *r, sp_iter *iter, bool if_true) {
    generator *g = iter->state;
    if (iter->inner) return true;
    if (if_true && !sp_value_truth(r, g->value)) return false;
    iter->inner = sp_iter_open(r, g->value);
    return true;
}

static const sp_callable *named(sp_render *r, sp_value name, const sp_callable *(*find)(const sp_text *),
                                const char *what) {
    const sp_callable *callable = name.kind == SP_V_TEXT ? find(name.as.text) : NULL;
    if (callable) return callable;
    sp_sink repr = {.r = r};
    sp_sink_repr(&repr, name);
    sp_render_fail(r, "No %s named %.*s.", what, (int)sp_min_size(repr.n_bytes, 100), repr.data);
}

static void prepare_map(sp_render *r, generator *g) {
    if (!g->args.n_pos && g->args.n_kw) {
        for (size_t i = 0; i < g->args.n_kw; i++) {
            const sp_kwarg *kw = &g->args.kw[i];
            if (sp_text_is(kw->name, "attribute")) {
                g->by_attribute = true;
                g->attribute = kw->value;
            } else if (sp_text_is(kw->name, "default")) {
                g->fallback = kw->value;
            } else {
                sp_render_fail(r, "map: unexpected keyword argument");
            }
        }
    }
    if (g->by_attribute) return;
    if (!g->args.n_pos) sp_render_fail(r, "map requires a filter argument");
    g->callable = named(r, g->args.pos[0], sp_filter_find, "filter");
    g->args.pos++;
    g->args.n_pos--;
}

static bool next_mapped(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    bool first = !iter->inner;
    if (!open_input(r, iter, true)) return false;
    if (first) prepare_map(r, g);
    sp_value v;
    if (!sp_iter_next(r, iter->inner, &v)) return false;
    *item =
        g->by_attribute ? sp_get_path(r, v, g->attribute, g->fallback) : sp_call_native(r, g->callable, v, &g->args);
    return true;
}

SP_NATIVE(filter_map) { return make_generator(r, next_mapped, &(generator){.value = self, .args = *raw}); }

static void prepare_select(sp_render *r, generator *g) {
    if (g->by_attribute) {
        if (!g->args.n_pos) sp_render_fail(r, "Missing parameter for attribute name");
        g->attribute = *g->args.pos++;
        g->args.n_pos--;
    }
    if (!g->args.n_pos) return;
    g->callable = named(r, g->args.pos[0], sp_test_find, "test");
    g->args.pos++;
    g->args.n_pos--;
}

static bool next_selected(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    bool first = !iter->inner;
    if (!open_input(r, iter, true)) return false;
    if (first) prepare_select(r, g);
    while (sp_iter_next(r, iter->inner, item)) {
        sp_value v = g->by_attribute ? sp_get_path(r, *item, g->attribute, sp_value_missing()) : *item;
        if (g->callable) v = sp_call_native(r, g->callable, v, &g->args);
        if (sp_value_truth(r, v) == g->keep) return true;
    }
    return false;
}

static sp_value selected(sp_render *r, sp_value self, const sp_args *raw, bool keep, bool by_attribute) {
    return make_generator(r, next_selected,
                          &(generator){.value = self, .args = *raw, .keep = keep, .by_attribute = by_attribute});
}
SP_NATIVE(filter_select) { return selected(r, self, raw, true, false); }
SP_NATIVE(filter_reject) { return selected(r, self, raw, false, false); }
SP_NATIVE(filter_selectattr) { return selected(r, self, raw, true, true); }
SP_NATIVE(filter_rejectattr) { return selected(r, self, raw, false, true); }

static bool next_unique(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    open_input(r, iter, false);
    if (!g->seen) g->seen = sp_dict_new(r);
    while (sp_iter_next(r, iter->inner, item)) {
        sp_value key = key_of(r, *item, g->attribute, sp_value_missing(), g->keep);
        if (sp_dict_get(r, g->seen, key)) continue;
        sp_dict_set(r, g->seen, key, sp_value_none());
        return true;
    }
    return false;
}

SP_NATIVE(filter_unique) {
    return make_generator(r, next_unique, &(generator){.value = self, .keep = given_true(r, a[0]), .attribute = a[1]});
}

static bool next_item_pair(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    if (g->value.kind == SP_V_UNDEFINED) return false;
    if (g->value.kind != SP_V_DICT) sp_render_fail(r, "Can only get item pairs from a mapping.");
    const sp_dict *dict = g->value.as.dict;
    if (iter->at >= dict->n) return false;
    const sp_pair *pair = &dict->pairs[iter->at++];
    *item = sp_value_tuple(r, 2);
    sp_value_items(*item)[0] = pair->key;
    sp_value_items(*item)[1] = pair->value;
    return true;
}

SP_NATIVE(filter_items) { return make_generator(r, next_item_pair, &(generator){.value = self}); }

static bool fills(sp_value v) { return sp_value_given(v) && v.kind != SP_V_NONE; }

static bool next_batch(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    open_input(r, iter, false);
    sp_items batch = {0};
    sp_value v;
    while (!sp_value_eq(r, sp_value_size(batch.n), g->count) || batch.n == 0) {
        if (!sp_iter_next(r, iter->inner, &v)) break;
        sp_items_add(r, &batch, v);
    }
    if (!batch.n) return false;
    bool full = sp_value_eq(r, sp_value_size(batch.n), g->count);
    if (!full && fills(g->fill)) {
        int64_t n = sp_arg_int(r, g->count, "batch");
        while ((int64_t)batch.n < n) sp_items_add(r, &batch, g->fill);
    }
    *item = sp_items_list(r, &batch);
    return true;
}

SP_NATIVE(filter_batch) {
    return make_generator(r, next_batch, &(generator){.value = self, .count = a[0], .fill = a[1]});
}

static bool next_slice(sp_render *r, sp_iter *iter, sp_value *item) {
    generator *g = iter->state;
    int64_t slices = sp_arg_int(r, g->count, "slice");
    if (slices == 0) sp_render_fail(r, "division by zero");
    if (!sp_value_is_seq(g->value)) g->value = sp_iter_list(r, g->value);
    if (slices < 0 || (int64_t)iter->at >= slices) return false;
    const sp_seq *seq = g->value.as.seq;
    size_t per_slice = seq->n / (size_t)slices, extra = seq->n % (size_t)slices, i = iter->at++;
    size_t from = i * per_slice + sp_min_size(i, extra), n = per_slice + (i < extra);
    sp_items slice = {0};
    for (size_t k = 0; k < n; k++) sp_items_add(r, &slice, seq->items[from + k]);
    if (fills(g->fill) && i >= extra) sp_items_add(r, &slice, g->fill);
    *item = sp_items_list(r, &slice);
    return true;
}

SP_NATIVE(filter_slice) {
    return make_generator(r, next_slice, &(generator){.value = self, .count = a[0], .fill = a[1]});
}

const sp_callable sp_seq_filters[] = {
    {"batch", filter_batch, 1, 2, {"linecount", "fill_with"}},
    {"count", filter_length, 0, 0, {0}},
    {"dictsort", filter_dictsort, 0, 3, {"case_sensitive", "by", "reverse"}},
    {"first", filter_first, 0, 0, {0}},
    {"groupby", filter_groupby, 1, 3, {"attribute", "default", "case_sensitive"}},
    {"items", filter_items, 0, 0, {0}},
    {"join", filter_join, 0, 2, {"d", "attribute"}},
    {"last", filter_last, 0, 0, {0}},
    {"length", filter_length, 0, 0, {0}},
    {"list", filter_list, 0, 0, {0}},
    {"map", filter_map, 0, SP_VARIADIC, {0}},
    {"max", filter_max, 0, 2, {"case_sensitive", "attribute"}},
    {"min", filter_min, 0, 2, {"case_sensitive", "attribute"}},
    {"random", filter_random, 0, 0, {0}},
    {"reject", filter_reject, 0, SP_VARIADIC, {0}},
    {"rejectattr", filter_rejectattr, 0, SP_VARIADIC, {0}},
    {"reverse", filter_reverse, 0, 0, {0}},
    {"select", filter_select, 0, SP_VARIADIC, {0}},
    {"selectattr", filter_selectattr, 0, SP_VARIADIC, {0}},
    {"slice", filter_slice, 1, 2, {"slices", "fill_with"}},
    {"sort", filter_sort, 0, 3, {"reverse", "case_sensitive", "attribute"}},
    {"sum", filter_sum, 0, 2, {"attribute", "start"}},
    {"unique", filter_unique, 0, 2, {"case_sensitive", "attribute"}},
};
const size_t sp_n_seq_filters = sizeof sp_seq_filters / sizeof *sp_seq_filters;
