/* Collections, and what Python's operators mean by equal, ordered, true and hashed. Recursion over data is counted
 * against the depth of the rendering. */
#include <math.h>
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

enum { SMALL_DICT = 8 /* below, a scan is faster than a table */ };

static const char *const type_names[SP_V_KINDS] = {
    [SP_V_MISSING] = "object", [SP_V_UNDEFINED] = "Undefined", [SP_V_NONE] = "NoneType",    [SP_V_BOOL] = "bool",
    [SP_V_INT] = "int",        [SP_V_REAL] = "float",          [SP_V_TEXT] = "str",         [SP_V_LIST] = "list",
    [SP_V_TUPLE] = "tuple",    [SP_V_DICT] = "dict",           [SP_V_VIEW] = "dict_view",   [SP_V_RANGE] = "range",
    [SP_V_ITER] = "generator", [SP_V_NAMESPACE] = "Namespace", [SP_V_LOOP] = "LoopContext", [SP_V_MACRO] = "Macro",
    [SP_V_METHOD] = "method",  [SP_V_FUNCTION] = "function",   [SP_V_CYCLER] = "Cycler",    [SP_V_JOINER] = "Joiner",
};

const char *sp_value_type(sp_value v) {
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v.kind == SP_V_VIEW) return views[v.as.view->part];
    if (v.kind == SP_V_TEXT && v.as.text->markup) return "Markup";
    return type_names[v.kind];
}

static sp_value make_seq(sp_render *r, size_t n, sp_value_kind kind) {
    sp_seq *seq = SP_RENDER_NEW(r, sp_seq);
    seq->n = n;
    seq->items = sp_render_alloc(r, n, sizeof *seq->items);
    for (size_t i = 0; i < n; i++) seq->items[i] = sp_value_none();
    return (sp_value){.kind = kind, .as.seq = seq};
}

sp_value sp_value_list(sp_render *r, size_t n) { return make_seq(r, n, SP_V_LIST); }
sp_value sp_value_tuple(sp_render *r, size_t n) { return make_seq(r, n, SP_V_TUPLE); }

static sp_value json_items(sp_render *r, const json_t *json, bool user) {
    sp_value list = sp_value_list(r, json_array_size(json));
    for (size_t i = 0; i < list.as.seq->n; i++)
        sp_value_items(list)[i] = sp_value_from_json(r, json_array_get(json, i), user);
    return list;
}

static sp_value json_text(sp_render *r, const char *data, size_t n_bytes, bool user) {
    sp_text *text = sp_text_borrow(&r->arena, data, n_bytes);
    sp_render_claim(r, 0);
    if (user && r->mark_user && n_bytes) {
        sp_text_span *span = SP_RENDER_NEW(r, sp_text_span);
        *span = (sp_text_span){0, n_bytes};
        text->user = span;
        text->n_user = 1;
    }
    return sp_value_text(text);
}

static sp_value json_members(sp_render *r, const json_t *json, bool user) {
    sp_dict *dict = sp_dict_new(r);
    json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators take no const; nothing is written */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        sp_dict_set(r, dict, json_text(r, key, strlen(key), user),
                    sp_value_from_json(r, json_object_iter_value(it), user));
    }
    return (sp_value){.kind = SP_V_DICT, .as.dict = dict};
}

sp_value sp_value_from_json(sp_render *r, const json_t *json, bool user) {
    sp_value v = sp_value_none();
    sp_render_enter(r);
    switch (json_typeof(json)) {
        case JSON_OBJECT:
            v = json_members(r, json, user);
            break;
        case JSON_ARRAY:
            v = json_items(r, json, user);
            break;
        case JSON_STRING:
            v = json_text(r, json_string_value(json), json_string_length(json), user);
            break;
        case JSON_INTEGER:
            v = sp_value_int(json_integer_value(json));
            break;
        case JSON_REAL:
            v = sp_value_real(json_real_value(json));
            break;
        case JSON_TRUE:
        case JSON_FALSE:
            v = sp_value_bool(json_is_true(json));
            break;
        case JSON_NULL:
            break;
    }
    sp_render_leave(r);
    return v;
}

/* ---- dicts ---- */

sp_dict *sp_dict_new(sp_render *r) { return SP_RENDER_NEW(r, sp_dict); }

/* The slot of a key in the table: of the pair that has it, or a free one. */
static size_t find_slot(sp_render *r, const sp_dict *dict, sp_value key, uint64_t hash) {
    size_t mask = dict->n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t at = dict->slots[i];
        if (!at) return i;
        sp_render_charge(r, 1);
        if (dict->pairs[at - 1].hash == hash && sp_value_eq(r, dict->pairs[at - 1].key, key)) return i;
    }
}

/* Index + 1 of the pair, or 0. */
static size_t find_pair(sp_render *r, const sp_dict *dict, sp_value key, uint64_t hash) {
    if (dict->slots) return dict->slots[find_slot(r, dict, key, hash)];
    for (size_t i = 0; i < dict->n; i++)
        if (dict->pairs[i].hash == hash && sp_value_eq(r, dict->pairs[i].key, key)) return i + 1;
    return 0;
}

static void grow_dict(sp_render *r, sp_dict *dict) {
    dict->room = sp_max_size(SMALL_DICT, dict->room * 2);
    sp_pair *pairs = sp_render_alloc(r, dict->room, sizeof *pairs);
    if (dict->n) memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    dict->pairs = pairs;
    if (dict->room <= SMALL_DICT) return;
    dict->n_slots = dict->room * 2;
    dict->slots = sp_render_alloc(r, dict->n_slots, sizeof *dict->slots);
    for (size_t i = 0; i < dict->n; i++)
        dict->slots[find_slot(r, dict, pairs[i].key, pairs[i].hash)] = (uint32_t)(i + 1);
}

void sp_dict_set(sp_render *r, sp_dict *dict, sp_value key, sp_value value) {
    uint64_t hash = sp_value_hash(r, key);
    size_t found = find_pair(r, dict, key, hash);
    if (found) {
        dict->pairs[found - 1].value = value;
        return;
    }
    if (dict->n == dict->room) grow_dict(r, dict);
    dict->pairs[dict->n++] = (sp_pair){key, value, hash};
    if (dict->slots) dict->slots[find_slot(r, dict, key, hash)] = (uint32_t)dict->n;
}

const sp_value *sp_dict_get(sp_render *r, const sp_dict *dict, sp_value key) {
    size_t found = find_pair(r, dict, key, sp_value_hash(r, key));
    return found ? &dict->pairs[found - 1].value : NULL;
}

/* ---- hashing, equality, order ---- */

bool sp_value_hashable(sp_value v) {
    if (v.kind == SP_V_TUPLE) {
        for (size_t i = 0; i < v.as.seq->n; i++)
            if (!sp_value_hashable(v.as.seq->items[i])) return false;
    }
    return v.kind != SP_V_LIST && v.kind != SP_V_DICT && v.kind != SP_V_VIEW;
}

static uint64_t mix(uint64_t hash, uint64_t x) {
    hash = (hash ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t hash_text(sp_render *r, const sp_text *text) {
    uint64_t hash = text->n_bytes;
    sp_render_charge(r, text->n_bytes / 64);
    size_t i = 0;
    for (; i + 8 <= text->n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, text->data + i, 8);
        hash = mix(hash, word);
    }
    for (; i < text->n_bytes; i++) hash = mix(hash, (unsigned char)text->data[i]);
    return hash;
}

uint64_t sp_value_hash(sp_render *r, sp_value v) {
    uint64_t hash = 77;
    switch (v.kind) {
        case SP_V_TEXT:
            return hash_text(r, v.as.text);
        case SP_V_BOOL:
        case SP_V_INT:
        case SP_V_REAL: { /* 1 == 1.0 == true */
            double real = sp_value_as_real(v) + 0.0;
            uint64_t bits;
            memcpy(&bits, &real, sizeof bits);
            return mix(hash, bits);
        }
        case SP_V_NONE:
        case SP_V_UNDEFINED:
            return mix(hash, (uint64_t)v.kind);
        case SP_V_TUPLE:
            sp_render_enter(r);
            for (size_t i = 0; i < v.as.seq->n; i++) hash = mix(hash, sp_value_hash(r, v.as.seq->items[i]));
            sp_render_leave(r);
            return hash;
        case SP_V_LIST:
        case SP_V_DICT:
        case SP_V_VIEW:
            sp_render_fail(r, "unhashable type: '%s'", sp_value_type(v));
        default:
            return mix(hash, (uint64_t)(uintptr_t)v.as.object);
    }
}

bool sp_value_truth(sp_render *r, sp_value v) {
    size_t n;
    switch (v.kind) {
        case SP_V_MISSING:
        case SP_V_UNDEFINED:
        case SP_V_NONE:
            return false;
        case SP_V_BOOL:
            return v.as.truth;
        case SP_V_INT:
            return v.as.integer != 0;
        case SP_V_REAL:
            return v.as.real != 0;
        default:
            return sp_value_length(r, v, &n) ? n > 0 : true;
    }
}

static bool seq_eq(sp_render *r, const sp_seq *a, const sp_seq *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!sp_value_eq(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool dict_eq(sp_render *r, const sp_dict *a, const sp_dict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const sp_value *other = sp_dict_get(r, b, a->pairs[i].key);
        if (!other || !sp_value_eq(r, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool range_eq(const sp_range *a, const sp_range *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

static bool same_kind_eq(sp_render *r, sp_value a, sp_value b) {
    switch (a.kind) {
        case SP_V_NONE:
        case SP_V_UNDEFINED:
            return true;
        case SP_V_TEXT:
            sp_render_charge(r, a.as.text->n_bytes / 256);
            return sp_text_eq(a.as.text, b.as.text);
        case SP_V_LIST:
        case SP_V_TUPLE:
            return seq_eq(r, a.as.seq, b.as.seq);
        case SP_V_DICT:
            return dict_eq(r, a.as.dict, b.as.dict);
        case SP_V_RANGE:
            return range_eq(a.as.range, b.as.range);
        case SP_V_METHOD:
            return a.as.method->callable == b.as.method->callable &&
                   a.as.method->self.as.object == b.as.method->self.as.object;
        default:
            return a.as.object == b.as.object;
    }
}

bool sp_value_eq(sp_render *r, sp_value a, sp_value b) {
    sp_render_charge(r, 1);
    if (sp_value_is_number(a) && sp_value_is_number(b)) {
        if (a.kind == SP_V_REAL || b.kind == SP_V_REAL) return sp_value_as_real(a) == sp_value_as_real(b);
        return sp_value_as_int(a) == sp_value_as_int(b);
    }
    if (a.kind != b.kind) return false;
    sp_render_enter(r);
    bool equal = same_kind_eq(r, a, b);
    sp_render_leave(r);
    return equal;
}

static int seq_compare(sp_render *r, const sp_seq *a, const sp_seq *b, const char *op) {
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!sp_value_eq(r, a->items[i], b->items[i])) return sp_value_compare(r, a->items[i], b->items[i], op);
    return a->n < b->n ? -1 : a->n > b->n;
}

int sp_value_compare(sp_render *r, sp_value a, sp_value b, const char *op) {
    int order;
    sp_render_charge(r, 1);
    if (sp_value_is_number(a) && sp_value_is_number(b)) {
        if (a.kind == SP_V_REAL || b.kind == SP_V_REAL) {
            double x = sp_value_as_real(a), y = sp_value_as_real(b);
            if (isnan(x) || isnan(y)) return op[0] == '<' ? 1 : -1; /* neither less nor greater */
            return x < y ? -1 : x > y;
        }
        int64_t i = sp_value_as_int(a), j = sp_value_as_int(b);
        return i < j ? -1 : i > j;
    }
    if (a.kind == SP_V_UNDEFINED) sp_undefined_fail(r, a);
    if (b.kind == SP_V_UNDEFINED) sp_undefined_fail(r, b);
    if (a.kind == SP_V_TEXT && b.kind == SP_V_TEXT) {
        sp_render_charge(r, a.as.text->n_bytes / 256);
        return sp_text_compare(a.as.text, b.as.text);
    }
    if (a.kind != b.kind || !sp_value_is_seq(a))
        sp_render_fail(r, "'%s' not supported between instances of '%s' and '%s'", op, sp_value_type(a),
                       sp_value_type(b));
    sp_render_enter(r);
    order = seq_compare(r, a.as.seq, b.as.seq, op);
    sp_render_leave(r);
    return order;
}

bool sp_value_contains(sp_render *r, sp_value container, sp_value item) {
    if (container.kind == SP_V_TEXT) {
        const sp_text *text = container.as.text;
        if (item.kind == SP_V_UNDEFINED) sp_undefined_fail(r, item);
        if (item.kind != SP_V_TEXT)
            sp_render_fail(r, "'in <string>' requires string as left operand, not %s", sp_value_type(item));
        return sp_text_find(r, text, item.as.text, 0, text->n_bytes) != SIZE_MAX;
    }
    bool keys = container.kind == SP_V_VIEW && container.as.view->part == SP_VIEW_KEYS;
    if (container.kind == SP_V_DICT) return sp_dict_get(r, container.as.dict, item) != NULL;
    if (keys) return sp_dict_get(r, container.as.view->dict, item) != NULL;
    if (!sp_value_iterable(container))
        sp_render_fail(r, "argument of type '%s' is not iterable", sp_value_type(container));
    sp_iter *iter = sp_iter_open(r, container);
    for (sp_value v; sp_iter_next(r, iter, &v);)
        if (sp_value_eq(r, v, item)) return true;
    return false;
}

bool sp_value_length(sp_render *r, sp_value v, size_t *n) {
    switch (v.kind) {
        case SP_V_UNDEFINED:
            *n = 0;
            return true;
        case SP_V_TEXT:
            *n = v.as.text->n_chars;
            return true;
        case SP_V_LIST:
        case SP_V_TUPLE:
            *n = v.as.seq->n;
            return true;
        case SP_V_DICT:
            *n = v.as.dict->n;
            return true;
        case SP_V_VIEW:
            *n = v.as.view->dict->n;
            return true;
        case SP_V_RANGE:
            *n = (size_t)v.as.range->n;
            return true;
        case SP_V_LOOP:
            *n = sp_loop_length(r, v.as.loop);
            return true;
        default:
            return false;
    }
}

/* ---- undefined ---- */

static sp_value make_undefined(sp_render *r, const char *hint, sp_value obj, sp_value name) {
    sp_undefined *undefined = SP_RENDER_NEW(r, sp_undefined);
    *undefined = (sp_undefined){hint, obj, name};
    return (sp_value){.kind = SP_V_UNDEFINED, .as.undefined = undefined};
}

sp_value sp_undefined_variable(sp_render *r, const sp_text *name) {
    return make_undefined(r, NULL, sp_value_missing(), sp_value_text(name));
}

sp_value sp_undefined_hint(sp_render *r, const char *hint) {
    return make_undefined(r, hint, sp_value_missing(), sp_value_none());
}

sp_value sp_undefined_attribute(sp_render *r, sp_value obj, sp_value name) {
    return make_undefined(r, NULL, obj, name);
}

/* How Jinja names an object in the message: "dict object", "None". */
static const char *describe_type(sp_value v) {
    static const char *const modules[SP_V_KINDS] = {
        [SP_V_NONE] = "None",
        [SP_V_NAMESPACE] = "jinja2.utils.Namespace object",
        [SP_V_LOOP] = "jinja2.runtime.LoopContext object",
        [SP_V_MACRO] = "jinja2.runtime.Macro object",
        [SP_V_CYCLER] = "jinja2.utils.Cycler object",
        [SP_V_JOINER] = "jinja2.utils.Joiner object",
    };
    return modules[v.kind];
}

void sp_undefined_fail(sp_render *r, sp_value v) {
    const sp_undefined *undefined = v.as.undefined;
    if (undefined->hint) sp_render_fail(r, "%s", undefined->hint);
    sp_sink name = {.r = r};
    sp_sink_repr(&name, undefined->name);
    int n = (int)sp_min_size(name.n_bytes, 200);
    if (undefined->obj.kind == SP_V_MISSING) sp_render_fail(r, "%.*s is undefined", n, name.data);
    char object[80];
    const char *known = describe_type(undefined->obj);
    if (!known) snprintf(object, sizeof object, "%s object", sp_value_type(undefined->obj));
    bool attribute = undefined->name.kind == SP_V_TEXT;
    sp_render_fail(r, attribute ? "'%s' has no attribute %.*s" : "%s has no element %.*s", known ? known : object, n,
                   name.data);
}
