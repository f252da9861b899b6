/* Values as Python prints them: str() and repr(). */
#include <stdio.h>
#include <string.h>

#include "chat/render.h"
#include "util/json.h"

static void repr_text(sp_sink *sink, const sp_text *text) {
    static const char escaped[] = "\n\r\t\\";
    static const char letters[] = "nrt\\";
    bool single = text->n_bytes && memchr(text->data, '\'', text->n_bytes);
    bool both = single && memchr(text->data, '"', text->n_bytes);
    char quote = single && !both ? '"' : '\'';
    bool user = text->n_user > 0;
    if (text->markup) sp_sink_cstr(sink, "Markup(");
    sp_sink_char(sink, quote);
    for (size_t i = 0, width; i < text->n_bytes; i += width) {
        int32_t c = sp_text_char(text->data, text->n_bytes, i, &width);
        const char *hit = c && c < 0x80 ? strchr(escaped, c) : NULL;
        char escape[16];
        if (hit || c == quote) {
            escape[0] = '\\';
            escape[1] = hit ? letters[hit - escaped] : quote;
            sp_sink_bytes(sink, escape, 2, user);
        } else if (sp_python_is_printable(c)) {
            sp_sink_bytes(sink, text->data + i, width, user);
        } else {
            const char *format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
            int n = snprintf(escape, sizeof escape, format, (unsigned)c);
            sp_sink_bytes(sink, escape, (size_t)n, user);
        }
    }
    sp_sink_char(sink, quote);
    if (text->markup) sp_sink_char(sink, ')');
}

static void repr_items(sp_sink *sink, const sp_value *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (i) sp_sink_cstr(sink, ", ");
        sp_sink_repr(sink, items[i]);
    }
}

static void repr_dict(sp_sink *sink, const sp_dict *dict) {
    sp_sink_char(sink, '{');
    for (size_t i = 0; i < dict->n; i++) {
        if (i) sp_sink_cstr(sink, ", ");
        sp_sink_repr(sink, dict->pairs[i].key);
        sp_sink_cstr(sink, ": ");
        sp_sink_repr(sink, dict->pairs[i].value);
    }
    sp_sink_char(sink, '}');
}

static void repr_view(sp_sink *sink, sp_value v) {
    sp_value list = sp_iter_list(sink->r, v);
    sp_sink_cstr(sink, sp_value_type(v));
    sp_sink_cstr(sink, "([");
    repr_items(sink, list.as.seq->items, list.as.seq->n);
    sp_sink_cstr(sink, "])");
}

static void repr_range(sp_sink *sink, const sp_range *range) {
    char text[100];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start, (long long)range->stop);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start, (long long)range->stop,
                 (long long)range->step);
    sp_sink_cstr(sink, text);
}

static void repr_real(sp_sink *sink, double value) {
    sp_buf digits = {0};
    char text[400];
    sp_json_real(&digits, value);
    snprintf(text, sizeof text, "%s", digits.data ? digits.data : "");
    sp_buf_deinit(&digits);
    sp_sink_cstr(sink, text);
}

static void repr_int(sp_sink *sink, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    sp_sink_cstr(sink, text);
}

static void repr_macro(sp_sink *sink, const sp_macro *macro) {
    const sp_text *name = macro->node->text;
    sp_sink_cstr(sink, "<Macro ");
    if (name)
        repr_text(sink, name);
    else
        sp_sink_cstr(sink, "'caller'");
    sp_sink_char(sink, '>');
}

static void repr_any(sp_sink *sink, sp_value v) {
    switch (v.kind) {
        case SP_V_UNDEFINED:
            sp_sink_cstr(sink, "Undefined");
            break;
        case SP_V_NONE:
            sp_sink_cstr(sink, "None");
            break;
        case SP_V_BOOL:
            sp_sink_cstr(sink, v.as.truth ? "True" : "False");
            break;
        case SP_V_INT:
            repr_int(sink, v.as.integer);
            break;
        case SP_V_REAL:
            repr_real(sink, v.as.real);
            break;
        case SP_V_TEXT:
            repr_text(sink, v.as.text);
            break;
        case SP_V_LIST:
        case SP_V_TUPLE:
            sp_sink_char(sink, v.kind == SP_V_LIST ? '[' : '(');
            repr_items(sink, v.as.seq->items, v.as.seq->n);
            if (v.kind == SP_V_TUPLE && v.as.seq->n == 1) sp_sink_char(sink, ',');
            sp_sink_char(sink, v.kind == SP_V_LIST ? ']' : ')');
            break;
        case SP_V_DICT:
            repr_dict(sink, v.as.dict);
            break;
        case SP_V_VIEW:
            repr_view(sink, v);
            break;
        case SP_V_RANGE:
            repr_range(sink, v.as.range);
            break;
        case SP_V_NAMESPACE:
            sp_sink_cstr(sink, "<Namespace ");
            repr_dict(sink, v.as.dict);
            sp_sink_char(sink, '>');
            break;
        case SP_V_LOOP:
            sp_sink_loop(sink, v.as.loop);
            break;
        case SP_V_MACRO:
            repr_macro(sink, v.as.macro);
            break;
        default: /* Python prints an address, which no template can mean */
            sp_sink_char(sink, '<');
            sp_sink_cstr(sink, sp_value_type(v));
            sp_sink_cstr(sink, " object>");
    }
}

void sp_sink_repr(sp_sink *sink, sp_value v) {
    sp_render_enter(sink->r);
    repr_any(sink, v);
    sp_render_leave(sink->r);
}

void sp_sink_str(sp_sink *sink, sp_value v) {
    if (v.kind == SP_V_TEXT)
        sp_sink_text(sink, v.as.text);
    else if (v.kind != SP_V_UNDEFINED)
        sp_sink_repr(sink, v);
}

const sp_text *sp_value_str(sp_render *r, sp_value v) {
    if (v.kind == SP_V_TEXT) return v.as.text;
    sp_sink sink = {.r = r};
    sp_sink_str(&sink, v);
    return sp_sink_finish(&sink);
}

void sp_sink_escape(sp_sink *sink, sp_value v) {
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    const sp_text *text = sp_value_str(sink->r, v);
    size_t plain = 0;
    for (size_t i = 0; i < text->n_bytes && !text->markup; i++) {
        for (size_t k = 0; k < sizeof entities / sizeof *entities; k++) {
            if (text->data[i] != entities[k].c) continue;
            sp_sink_slice(sink, text, plain, i);
            sp_sink_bytes(sink, entities[k].entity, strlen(entities[k].entity), text->n_user > 0);
            plain = i + 1;
        }
    }
    sp_sink_slice(sink, text, plain, text->n_bytes);
}
