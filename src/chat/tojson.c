/* The tojson filter: Python's json.dumps. Keys that are no strings are written as strings, numbers as repr does, NaN
 * and infinities by name; what JSON has no form for is an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/render.h"

static void json_text(sp_sink *sink, const sp_text *text, bool ascii) {
    static const char shorts[] = "\b\t\n\f\r\"\\";
    static const char letters[] = "btnfr\"\\";
    bool user = text->n_user > 0;
    sp_sink_char(sink, '"');
    size_t plain = 0;
    for (size_t i = 0, width; i < text->n_bytes; i += width) {
        int32_t c = sp_text_char(text->data, text->n_bytes, i, &width);
        const char *hit = c && c < 0x80 ? strchr(shorts, c) : NULL;
        if (!hit && c >= 0x20 && (c < 0x7F || !ascii || c == 0x7F)) continue;
        char escape[16];
        int n;
        if (hit)
            n = snprintf(escape, sizeof escape, "\\%c", letters[hit - shorts]);
        else if (c < 0x10000)
            n = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        else
            n = snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + (unsigned)((c - 0x10000) >> 10),
                         0xDC00 + (unsigned)((c - 0x10000) & 0x3FF));
        sp_sink_bytes(sink, text->data + plain, i - plain, user);
        sp_sink_bytes(sink, escape, (size_t)n, user);
        plain = i + width;
    }
    sp_sink_bytes(sink, text->data + plain, text->n_bytes - plain, user);
    sp_sink_char(sink, '"');
}

static void json_scalar(sp_sink *sink, sp_value v) {
    if (v.kind == SP_V_NONE)
        sp_sink_cstr(sink, "null");
    else if (v.kind == SP_V_BOOL)
        sp_sink_cstr(sink, v.as.truth ? "true" : "false");
    else if (v.kind == SP_V_REAL && !isfinite(v.as.real))
        sp_sink_cstr(sink, isnan(v.as.real) ? "NaN" : v.as.real > 0 ? "Infinity" : "-Infinity");
    else if (v.kind == SP_V_INT || v.kind == SP_V_REAL)
        sp_sink_repr(sink, v);
    else
        sp_render_fail(sink->r, "Object of type %s is not JSON serializable", sp_value_type(v));
}

static void json_key(sp_sink *sink, sp_value key, const sp_tojson_style *style) {
    if (key.kind == SP_V_TEXT) {
        json_text(sink, key.as.text, style->ascii);
        return;
    }
    if (key.kind != SP_V_NONE && !sp_value_is_number(key))
        sp_render_fail(sink->r, "keys must be str, int, float, bool or None, not %s", sp_value_type(key));
    sp_sink_char(sink, '"');
    json_scalar(sink, key);
    sp_sink_char(sink, '"');
}

static void new_line(sp_sink *sink, const sp_tojson_style *style, size_t level) {
    if (!style->indent) return;
    sp_sink_char(sink, '\n');
    sp_sink_repeat(sink, style->indent->data, style->indent->n_bytes, level);
}

/* Keys in order; the comparison of sorted() is the one of the render state. */
static const sp_pair *sorted_pairs(sp_render *r, const sp_dict *dict) {
    sp_pair *pairs = sp_render_alloc(r, dict->n, sizeof *pairs);
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = i;
        for (; at > 0 && sp_value_compare(r, dict->pairs[i].key, pairs[at - 1].key, "<") < 0; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = dict->pairs[i];
    }
    return pairs;
}

static void json_any(sp_sink *sink, sp_value v, const sp_tojson_style *style, size_t level);

static void json_dict(sp_sink *sink, const sp_dict *dict, const sp_tojson_style *style, size_t level) {
    const sp_pair *pairs = style->sort_keys ? sorted_pairs(sink->r, dict) : dict->pairs;
    sp_sink_char(sink, '{');
    for (size_t i = 0; i < dict->n; i++) {
        if (i) sp_sink_text(sink, style->item_separator);
        new_line(sink, style, level + 1);
        json_key(sink, pairs[i].key, style);
        sp_sink_text(sink, style->key_separator);
        json_any(sink, pairs[i].value, style, level + 1);
    }
    if (dict->n) new_line(sink, style, level);
    sp_sink_char(sink, '}');
}

static void json_list(sp_sink *sink, const sp_seq *seq, const sp_tojson_style *style, size_t level) {
    sp_sink_char(sink, '[');
    for (size_t i = 0; i < seq->n; i++) {
        if (i) sp_sink_text(sink, style->item_separator);
        new_line(sink, style, level + 1);
        json_any(sink, seq->items[i], style, level + 1);
    }
    if (seq->n) new_line(sink, style, level);
    sp_sink_char(sink, ']');
}

static void json_any(sp_sink *sink, sp_value v, const sp_tojson_style *style, size_t level) {
    sp_render_enter(sink->r);
    if (v.kind == SP_V_TEXT)
        json_text(sink, v.as.text, style->ascii);
    else if (v.kind == SP_V_DICT)
        json_dict(sink, v.as.dict, style, level);
    else if (sp_value_is_seq(v))
        json_list(sink, v.as.seq, style, level);
    else
        json_scalar(sink, v);
    sp_render_leave(sink->r);
}

void sp_sink_json(sp_sink *sink, sp_value v, const sp_tojson_style *style) { json_any(sink, v, style, 0); }
