/* obj.name, obj[key] and slices. As in Jinja, a dot looks for an attribute first and then for an item, a subscript the
 * other way round; what is not there is undefined, not an error, unless obj is undefined itself. Methods that change a
 * list or dict are there but unsafe: an error when called. */
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

static bool mutates(sp_value obj, const sp_text *name) {
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = obj.kind == SP_V_LIST ? of_list : obj.kind == SP_V_DICT ? of_dict : NULL;
    for (; names && *names; names++)
        if (sp_text_is(name, *names)) return true;
    return false;
}

static sp_value unsafe(sp_render *r, sp_value obj, const sp_text *name) {
    sp_sink hint = {.r = r};
    sp_sink_cstr(&hint, "access to attribute ");
    sp_sink_repr(&hint, sp_value_text(name));
    sp_sink_cstr(&hint, " of '");
    sp_sink_cstr(&hint, sp_value_type(obj));
    sp_sink_cstr(&hint, "' object is unsafe.");
    sp_sink_bytes(&hint, "", 1, false);
    return sp_undefined_hint(r, hint.data);
}

static sp_value range_attribute(const sp_range *range, const sp_text *name) {
    if (sp_text_is(name, "start")) return sp_value_int(range->start);
    if (sp_text_is(name, "stop")) return sp_value_int(range->stop);
    if (sp_text_is(name, "step")) return sp_value_int(range->step);
    return sp_value_missing();
}

static sp_value number_attribute(sp_value v, const sp_text *name) {
    bool real = v.kind == SP_V_REAL;
    if (sp_text_is(name, "real")) return real ? v : sp_value_int(sp_value_as_int(v));
    if (sp_text_is(name, "imag")) return real ? sp_value_real(0) : sp_value_int(0);
    if (!real && sp_text_is(name, "numerator")) return sp_value_int(sp_value_as_int(v));
    if (!real && sp_text_is(name, "denominator")) return sp_value_int(1);
    return sp_value_missing();
}

static sp_value cycler_attribute(const sp_cycler *cycler, const sp_text *name) {
    if (sp_text_is(name, "current")) return cycler->items->items[cycler->at];
    if (sp_text_is(name, "pos")) return sp_value_size(cycler->at);
    if (sp_text_is(name, "items")) return (sp_value){.kind = SP_V_TUPLE, .as.seq = cycler->items};
    return sp_value_missing();
}

static sp_value group_attribute(const sp_seq *seq, const sp_text *name) {
    if (seq->group && sp_text_is(name, "grouper")) return seq->items[0];
    if (seq->group && sp_text_is(name, "list")) return seq->items[1];
    return sp_value_missing();
}

/* What getattr finds, or SP_V_MISSING. */
static sp_value find_attribute(sp_render *r, sp_value obj, const sp_text *name) {
    sp_value v = sp_value_missing();
    const sp_value *attribute = NULL;
    switch (obj.kind) {
        case SP_V_NAMESPACE:
            attribute = sp_dict_get(r, obj.as.dict, sp_value_text(name));
            return attribute ? *attribute : v;
        case SP_V_LOOP:
            v = sp_loop_attribute(r, obj.as.loop, name);
            break;
        case SP_V_MACRO:
            v = sp_macro_attribute(r, obj.as.macro, name);
            break;
        case SP_V_RANGE:
            v = range_attribute(obj.as.range, name);
            break;
        case SP_V_BOOL:
        case SP_V_INT:
        case SP_V_REAL:
            v = number_attribute(obj, name);
            break;
        case SP_V_CYCLER:
            v = cycler_attribute(obj.as.cycler, name);
            break;
        case SP_V_TUPLE:
            v = group_attribute(obj.as.seq, name);
            break;
        default:
            break;
    }
    if (sp_value_given(v)) return v;
    if (mutates(obj, name)) return unsafe(r, obj, name);
    const sp_callable *callable = sp_method_find(obj, name);
    if (!callable) return v;
    sp_method *method = SP_RENDER_NEW(r, sp_method);
    *method = (sp_method){obj, callable};
    return (sp_value){.kind = SP_V_METHOD, .as.method = method};
}

/* What obj[key] gives, or SP_V_MISSING where Python raises. */
static sp_value find_item(sp_render *r, sp_value obj, sp_value key) {
    if (obj.kind == SP_V_DICT) {
        const sp_value *item = sp_value_hashable(key) ? sp_dict_get(r, obj.as.dict, key) : NULL;
        return item ? *item : sp_value_missing();
    }
    bool indexed = obj.kind == SP_V_TEXT || obj.kind == SP_V_RANGE || sp_value_is_seq(obj);
    size_t n = 0;
    if (!indexed || !sp_value_is_int(key) || !sp_value_length(r, obj, &n)) return sp_value_missing();
    int64_t i = sp_value_as_int(key);
    if (i < 0) i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n) return sp_value_missing();
    if (obj.kind == SP_V_RANGE) return sp_range_at(obj.as.range, i);
    if (obj.kind != SP_V_TEXT) return obj.as.seq->items[i];
    const sp_text *text = obj.as.text;
    sp_render_charge(r, text->n_bytes / 64);
    size_t from = sp_text_offset(text, (size_t)i), width;
    sp_text_char(text->data, text->n_bytes, from, &width);
    return sp_value_text(sp_text_slice(r, text, from, from + width));
}

sp_value sp_get_attribute(sp_render *r, sp_value obj, const sp_text *name) {
    if (obj.kind == SP_V_UNDEFINED) sp_undefined_fail(r, obj);
    sp_value key = sp_value_text(name);
    sp_value v = find_attribute(r, obj, name);
    if (!sp_value_given(v) && obj.kind == SP_V_DICT) v = find_item(r, obj, key);
    if (sp_value_given(v)) return v;
    if (name->n_bytes > 1 && memcmp(name->data, "__", 2) == 0) return unsafe(r, obj, name);
    return sp_undefined_attribute(r, obj, key);
}

sp_value sp_get_item(sp_render *r, sp_value obj, sp_value key) {
    if (obj.kind == SP_V_UNDEFINED) sp_undefined_fail(r, obj);
    sp_value v = find_item(r, obj, key);
    if (!sp_value_given(v) && key.kind == SP_V_TEXT) v = find_attribute(r, obj, key.as.text);
    return sp_value_given(v) ? v : sp_undefined_attribute(r, obj, key);
}

/* A bound of a slice over n elements, clamped as Python does; `absent` when it is not given. */
static int64_t slice_bound(sp_render *r, sp_value v, int64_t n, int64_t absent, bool backwards) {
    if (!sp_value_given(v) || v.kind == SP_V_NONE) return absent;
    if (!sp_value_is_int(v)) sp_render_fail(r, "slice indices must be integers or None");
    int64_t i = sp_value_as_int(v);
    int64_t lowest = backwards ? -1 : 0, highest = backwards ? n - 1 : n;
    if (i < 0) i += n;
    return i < lowest ? lowest : i > highest ? highest : i;
}

static sp_value slice_text(sp_render *r, const sp_text *text, int64_t start, int64_t step, int64_t count) {
    sp_render_charge(r, text->n_bytes / 64);
    if (step == 1) {
        size_t from = sp_text_offset(text, (size_t)start);
        return sp_value_text(sp_text_slice(r, text, from, sp_text_offset(text, (size_t)(start + count))));
    }
    size_t *offsets = NULL;
    if (text->n_chars != text->n_bytes) {
        offsets = sp_render_alloc(r, text->n_chars + 1, sizeof *offsets);
        for (size_t i = 0, n = 0; i < text->n_bytes; i++)
            if (!sp_utf8_continues(text->data[i])) offsets[n++] = i;
        offsets[text->n_chars] = text->n_bytes;
    }
    sp_sink sink = {.r = r};
    for (int64_t i = 0; i < count; i++) {
        size_t at = (size_t)(start + i * step);
        sp_sink_slice(&sink, text, offsets ? offsets[at] : at, offsets ? offsets[at + 1] : at + 1);
    }
    return sp_sink_value(&sink);
}

static sp_value slice_range(sp_render *r, const sp_range *range, int64_t start, int64_t stop, int64_t step,
                            int64_t count) {
    sp_range *out = SP_RENDER_NEW(r, sp_range);
    /* these wrap only where no element depends on them */
    *out = (sp_range){.start = (int64_t)((uint64_t)range->start + (uint64_t)start * (uint64_t)range->step), .n = count};
    out->step = (int64_t)((uint64_t)range->step * (uint64_t)step);
    out->stop = (int64_t)((uint64_t)range->start + (uint64_t)stop * (uint64_t)range->step);
    return (sp_value){.kind = SP_V_RANGE, .as.range = out};
}

sp_value sp_get_slice(sp_render *r, sp_value obj, sp_value start, sp_value stop, sp_value step) {
    size_t length = 0;
    if (obj.kind == SP_V_UNDEFINED) sp_undefined_fail(r, obj);
    if (obj.kind != SP_V_TEXT && obj.kind != SP_V_RANGE && !sp_value_is_seq(obj))
        sp_render_fail(r, "'%s' object is not subscriptable", sp_value_type(obj));
    bool has_step = sp_value_given(step) && step.kind != SP_V_NONE;
    if (has_step && !sp_value_is_int(step)) sp_render_fail(r, "slice indices must be integers or None");
    int64_t by = has_step ? sp_value_as_int(step) : 1;
    if (by == 0) sp_render_fail(r, "slice step cannot be zero");
    sp_value_length(r, obj, &length);
    int64_t n = (int64_t)length;
    int64_t from = slice_bound(r, start, n, by < 0 ? n - 1 : 0, by < 0);
    int64_t to = slice_bound(r, stop, n, by < 0 ? -1 : n, by < 0);
    if (by > n + 1) by = n + 1; /* no step leads further */
    if (by < -n - 1) by = -n - 1;
    int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);
    if (obj.kind == SP_V_TEXT) return slice_text(r, obj.as.text, count ? from : 0, by, count);
    if (obj.kind == SP_V_RANGE) return slice_range(r, obj.as.range, from, to, by, count);
    sp_value out = obj.kind == SP_V_LIST ? sp_value_list(r, (size_t)count) : sp_value_tuple(r, (size_t)count);
    sp_render_charge(r, (size_t)count);
    for (int64_t i = 0; i < count; i++) sp_value_items(out)[i] = obj.as.seq->items[from + i * by];
    return out;
}

/* One part of a path: digits are an index. */
static sp_value path_part(sp_render *r, const sp_text *path, size_t from, size_t to) {
    int64_t index = 0;
    bool digits = to > from && to - from < 18;
    for (size_t i = from; i < to && digits; i++) {
        digits = path->data[i] >= '0' && path->data[i] <= '9';
        index = index * 10 + (path->data[i] - '0');
    }
    return digits ? sp_value_int(index) : sp_value_text(sp_text_slice(r, path, from, to));
}

static sp_value path_step(sp_render *r, sp_value obj, sp_value part, sp_value fallback) {
    sp_value v = sp_get_item(r, obj, part);
    bool replace = v.kind == SP_V_UNDEFINED && sp_value_given(fallback) && fallback.kind != SP_V_NONE;
    return replace ? fallback : v;
}

sp_value sp_get_path(sp_render *r, sp_value obj, sp_value path, sp_value fallback) {
    if (!sp_value_given(path) || path.kind == SP_V_NONE) return obj;
    if (path.kind != SP_V_TEXT) return path_step(r, obj, path, fallback);
    const sp_text *text = path.as.text;
    for (size_t from = 0; from <= text->n_bytes;) {
        const char *dot = from < text->n_bytes ? memchr(text->data + from, '.', text->n_bytes - from) : NULL;
        size_t to = dot ? (size_t)(dot - text->data) : text->n_bytes;
        obj = path_step(r, obj, path_part(r, text, from, to), fallback);
        from = to + 1;
    }
    return obj;
}
