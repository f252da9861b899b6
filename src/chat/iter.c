/* Iteration. An iterator computes its items as they are asked for, as Python's generators do: an error in an item that
 * nobody reads is no error. */
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

static bool next_seq(SP_UNUSED sp_render *r, sp_iter *iter, sp_value *item) {
    const sp_seq *seq = iter->source.as.seq;
    if (iter->at >= seq->n) return false;
    *item = seq->items[iter->at++];
    return true;
}

static bool next_char(sp_render *r, sp_iter *iter, sp_value *item) {
    const sp_text *text = iter->source.as.text;
    if (iter->at >= text->n_bytes) return false;
    size_t width;
    sp_text_char(text->data, text->n_bytes, iter->at, &width);
    const sp_text *character = sp_text_slice(r, text, iter->at, iter->at + width);
    if (character->markup) { /* indexing a safe string gives a safe one, iterating does not */
        sp_text *plain = SP_RENDER_NEW(r, sp_text);
        *plain = *character;
        plain->markup = false;
        character = plain;
    }
    *item = sp_value_text(character);
    iter->at += width;
    return true;
}

static sp_value pair_part(sp_render *r, const sp_pair *pair, int part) {
    if (part == SP_VIEW_KEYS) return pair->key;
    if (part == SP_VIEW_VALUES) return pair->value;
    sp_value tuple = sp_value_tuple(r, 2);
    sp_value_items(tuple)[0] = pair->key;
    sp_value_items(tuple)[1] = pair->value;
    return tuple;
}

static bool next_key(SP_UNUSED sp_render *r, sp_iter *iter, sp_value *item) {
    const sp_dict *dict = iter->source.as.dict;
    if (iter->at >= dict->n) return false;
    *item = dict->pairs[iter->at++].key;
    return true;
}

static bool next_view(sp_render *r, sp_iter *iter, sp_value *item) {
    const sp_view *view = iter->source.as.view;
    if (iter->at >= view->dict->n) return false;
    *item = pair_part(r, &view->dict->pairs[iter->at++], view->part);
    return true;
}

sp_value sp_range_at(const sp_range *range, int64_t i) { return sp_value_int(range->start + i * range->step); }

static bool next_range(SP_UNUSED sp_render *r, sp_iter *iter, sp_value *item) {
    if (iter->at >= (size_t)iter->source.as.range->n) return false;
    *item = sp_range_at(iter->source.as.range, (int64_t)iter->at++);
    return true;
}

static bool next_none(SP_UNUSED sp_render *r, SP_UNUSED sp_iter *iter, SP_UNUSED sp_value *item) { return false; }

static bool (*const openers[SP_V_KINDS])(sp_render *, sp_iter *, sp_value *) = {
    [SP_V_UNDEFINED] = next_none, [SP_V_TEXT] = next_char, [SP_V_LIST] = next_seq,    [SP_V_TUPLE] = next_seq,
    [SP_V_DICT] = next_key,       [SP_V_VIEW] = next_view, [SP_V_RANGE] = next_range,
};

bool sp_value_iterable(sp_value v) { return v.kind == SP_V_ITER || openers[v.kind] != NULL; }

sp_iter *sp_iter_open(sp_render *r, sp_value v) {
    if (v.kind == SP_V_ITER) return v.as.iter;
    if (!openers[v.kind]) sp_render_fail(r, "'%s' object is not iterable", sp_value_type(v));
    sp_iter *iter = SP_RENDER_NEW(r, sp_iter);
    *iter = (sp_iter){.next = openers[v.kind], .source = v};
    return iter;
}

bool sp_iter_next(sp_render *r, sp_iter *iter, sp_value *item) {
    sp_render_charge(r, 1);
    sp_render_enter(r); /* generators nest */
    bool more = iter->next(r, iter, item);
    sp_render_leave(r);
    return more;
}

sp_value sp_iter_value(sp_render *r, sp_iter iter) {
    sp_iter *copy = SP_RENDER_NEW(r, sp_iter);
    *copy = iter;
    return (sp_value){.kind = SP_V_ITER, .as.iter = copy};
}

void sp_items_add(sp_render *r, sp_items *list, sp_value v) {
    if (list->n == list->room) {
        list->room = sp_max_size(4, list->room * 2);
        sp_value *items = sp_render_alloc(r, list->room, sizeof *items);
        if (list->n) memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
    }
    list->items[list->n++] = v;
}

sp_value sp_items_list(sp_render *r, const sp_items *list) {
    sp_seq *seq = SP_RENDER_NEW(r, sp_seq);
    *seq = (sp_seq){.items = list->items, .n = list->n};
    return (sp_value){.kind = SP_V_LIST, .as.seq = seq};
}

sp_value sp_iter_list(sp_render *r, sp_value v) {
    sp_items list = {0};
    sp_iter *iter = sp_iter_open(r, v);
    for (sp_value item; sp_iter_next(r, iter, &item);) sp_items_add(r, &list, item);
    return sp_items_list(r, &list);
}
