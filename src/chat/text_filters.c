/* Filters over text. Most take any value and work on its str(). */
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "chat/render.h"
#include "util/size.h"

SP_NATIVE(filter_upper) { return sp_call_text_method(r, self, "upper", NULL, 0); }
SP_NATIVE(filter_lower) { return sp_call_text_method(r, self, "lower", NULL, 0); }
SP_NATIVE(filter_capitalize) { return sp_call_text_method(r, self, "capitalize", NULL, 0); }
SP_NATIVE(filter_trim) { return sp_call_text_method(r, self, "strip", a, sp_value_given(a[0])); }
SP_NATIVE(filter_string) { return sp_value_text(sp_value_str(r, self)); }

SP_NATIVE(filter_center) {
    sp_value width = sp_value_given(a[0]) ? a[0] : sp_value_int(80);
    return sp_call_text_method(r, self, "center", &width, 1);
}

SP_NATIVE(filter_replace) {
    bool all = !sp_value_given(a[2]) || a[2].kind == SP_V_NONE;
    sp_value args[3] = {sp_value_text(sp_value_str(r, a[0])), sp_value_text(sp_value_str(r, a[1])), a[2]};
    return sp_call_text_method(r, self, "replace", args, all ? 2 : 3);
}

static bool begins_word_after(int32_t c) { return sp_python_is_space(c) || (c < 0x80 && c && strchr("-({[<", c)); }

SP_NATIVE(filter_title) {
    const sp_text *text = sp_value_str(r, self);
    sp_sink sink = {.r = r};
    for (size_t from = 0, to = 0, width; from < text->n_bytes; from = to) {
        bool gap = begins_word_after(sp_text_char(text->data, text->n_bytes, from, &width));
        for (to = from + width; to < text->n_bytes; to += width)
            if (begins_word_after(sp_text_char(text->data, text->n_bytes, to, &width)) != gap) break;
        sp_text_char(text->data, text->n_bytes, from, &width);
        sp_sink_text(&sink, sp_text_recase(r, sp_text_slice(r, text, from, from + width), SP_CASE_UPPER));
        sp_sink_text(&sink, sp_text_recase(r, sp_text_slice(r, text, from + width, to), SP_CASE_LOWER));
    }
    return sp_sink_value(&sink);
}

SP_NATIVE(filter_indent) {
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    const sp_text *text = sp_arg_text(r, self, "indent");
    bool first = sp_value_given(a[1]) && sp_value_truth(r, a[1]);
    bool blank = sp_value_given(a[2]) && sp_value_truth(r, a[2]);
    sp_sink unit = {.r = r};
    if (a[0].kind == SP_V_TEXT) {
        sp_sink_text(&unit, a[0].as.text);
    } else {
        int64_t width = sp_value_given(a[0]) ? sp_arg_int(r, a[0], "indent") : 4;
        sp_sink_repeat(&unit, " ", 1, width > 0 ? (size_t)width : 0);
    }
    const sp_text *indent = sp_sink_finish(&unit);
    sp_text newline = {.data = "\n", .n_bytes = 1, .n_chars = 1};
    sp_value lines = sp_call_text_method(r, sp_value_text(sp_text_concat(r, text, &newline)), "splitlines", NULL, 0);
    sp_sink sink = {.r = r};
    for (size_t i = 0; i < lines.as.seq->n; i++) {
        const sp_text *line = lines.as.seq->items[i].as.text;
        if (i) sp_sink_char(&sink, '\n');
        if (i ? blank || line->n_bytes : first) sp_sink_text(&sink, indent);
        sp_sink_text(&sink, line);
    }
    return sp_sink_value(&sink);
}

SP_NATIVE(filter_truncate) {
    int64_t length = sp_value_given(a[0]) ? sp_arg_int(r, a[0], "truncate") : 255;
    bool kill_words = sp_value_given(a[1]) && sp_value_truth(r, a[1]);
    sp_value end = sp_value_given(a[2]) ? a[2] : sp_text_value(r, "...");
    int64_t n_end = (int64_t)sp_arg_text(r, end, "truncate")->n_chars;
    int64_t leeway = sp_value_given(a[3]) && a[3].kind != SP_V_NONE ? sp_arg_int(r, a[3], "truncate") : 5;
    if (length < n_end) sp_render_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) sp_render_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    size_t n;
    if (!sp_value_length(r, self, &n)) sp_render_fail(r, "object of type '%s' has no len()", sp_value_type(self));
    if ((int64_t)n <= length || (int64_t)n - length <= leeway) return self;
    const sp_text *text = sp_arg_text(r, self, "truncate");
    size_t to = sp_text_offset(text, (size_t)(length - n_end));
    sp_text space = {.data = " ", .n_bytes = 1, .n_chars = 1};
    size_t word = kill_words ? SIZE_MAX : sp_text_rfind(r, text, &space, 0, to);
    if (word != SIZE_MAX) to = word;
    return sp_value_text(sp_text_concat(r, sp_text_slice(r, text, 0, to), end.as.text));
}

SP_NATIVE(filter_wordcount) {
    const sp_text *text = sp_value_str(r, self);
    int64_t n = 0;
    bool inside = false;
    for (size_t i = 0, width; i < text->n_bytes; i += width) {
        bool word = sp_python_is_word(sp_text_char(text->data, text->n_bytes, i, &width));
        n += word && !inside;
        inside = word;
    }
    return sp_value_int(n);
}

/* ---- wordwrap: Python's textwrap with replace_whitespace and expand_tabs off ---- */

typedef struct {
    const sp_text *text;
    size_t *ends; /* of chunks: words, parts of hyphenated words, and white space between them */
    size_t n;
} chunks;

static bool ascii_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

/* A hyphen at i within a word that may be broken behind it: a letter before, a letter pair behind. */
static bool breaks_after(const sp_text *text, size_t i) {
    if (text->data[i] != '-' || i < 2 || i + 2 >= text->n_bytes) return false;
    const char *t = text->data;
    bool before = sp_python_is_word((unsigned char)t[i - 2]) && sp_python_is_word((unsigned char)t[i - 1]);
    return before && !(t[i - 1] >= '0' && t[i - 1] <= '9') && sp_python_is_word((unsigned char)t[i + 1]) &&
           sp_python_is_word((unsigned char)t[i + 2]) && !(t[i + 1] >= '0' && t[i + 1] <= '9');
}

static chunks split_chunks(sp_render *r, const sp_text *text, bool hyphens) {
    chunks c = {.text = text, .ends = sp_render_alloc(r, text->n_bytes + 1, sizeof(size_t))};
    for (size_t i = 0; i < text->n_bytes; i++) {
        bool last = i + 1 == text->n_bytes;
        bool border = last || ascii_space(text->data[i]) != ascii_space(text->data[i + 1]);
        if (border || (hyphens && breaks_after(text, i))) c.ends[c.n++] = i + 1;
    }
    return c;
}

/* Where the n_chars characters from byte `at` on end; there are as many. */
static size_t skip_chars(const sp_text *text, size_t at, size_t n_chars) {
    for (; n_chars; n_chars--) {
        at++;
        while (at < text->n_bytes && sp_utf8_continues(text->data[at])) at++;
    }
    return at;
}

/* One paragraph; lines are separated by wrap. */
static void wrap_line(sp_sink *sink, const sp_text *text, size_t width, bool break_long, bool hyphens,
                      const sp_text *wrap) {
    chunks c = split_chunks(sink->r, text, hyphens);
    size_t at = 0, i = 0;
    for (bool first = true; i < c.n; first = false) {
        if (!first && ascii_space(text->data[at])) at = c.ends[i++]; /* white space at a line's start goes */
        if (i == c.n) break;
        size_t from = at, n = 0;
        while (i < c.n && n + sp_text_count(text->data + at, c.ends[i] - at) <= width) {
            n += sp_text_count(text->data + at, c.ends[i] - at);
            at = c.ends[i++];
        }
        bool too_long = i < c.n && sp_text_count(text->data + at, c.ends[i] - at) > width; /* for any line */
        if (too_long && break_long)
            at = skip_chars(text, at, sp_max_size(width, 1) - n);
        else if (too_long && n == 0)
            at = c.ends[i++];
        size_t to = at;
        while (to > from && ascii_space(text->data[to - 1])) to--;
        if (to == from) continue;
        if (!first) sp_sink_text(sink, wrap);
        sp_sink_slice(sink, text, from, to);
    }
}

SP_NATIVE(filter_wordwrap) {
    int64_t width = sp_value_given(a[0]) ? sp_arg_int(r, a[0], "wordwrap") : 79;
    bool break_long = !sp_value_given(a[1]) || sp_value_truth(r, a[1]);
    bool hyphens = !sp_value_given(a[3]) || sp_value_truth(r, a[3]);
    sp_text newline = {.data = "\n", .n_bytes = 1, .n_chars = 1};
    const sp_text *wrap = sp_value_given(a[2]) && a[2].kind != SP_V_NONE ? sp_arg_text(r, a[2], "wordwrap") : &newline;
    if (width <= 0) sp_render_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    sp_value lines = sp_call_text_method(r, sp_value_text(sp_arg_text(r, self, "wordwrap")), "splitlines", NULL, 0);
    sp_sink sink = {.r = r};
    for (size_t i = 0; i < lines.as.seq->n; i++) {
        if (i) sp_sink_text(&sink, wrap);
        wrap_line(&sink, lines.as.seq->items[i].as.text, (size_t)width, break_long, hyphens, wrap);
    }
    return sp_sink_value(&sink);
}

/* ---- markup ---- */

static sp_value as_markup(sp_render *r, const sp_text *text, bool markup) {
    sp_text *copy = SP_RENDER_NEW(r, sp_text);
    *copy = *text;
    copy->markup = markup;
    return sp_value_text(copy);
}

SP_NATIVE(filter_safe) { return as_markup(r, sp_value_str(r, self), true); }

SP_NATIVE(filter_escape) {
    sp_sink sink = {.r = r};
    sp_sink_escape(&sink, self);
    return as_markup(r, sp_sink_finish(&sink), true);
}

SP_NATIVE(filter_forceescape) {
    sp_sink sink = {.r = r};
    sp_sink_escape(&sink, as_markup(r, sp_value_str(r, self), false));
    return as_markup(r, sp_sink_finish(&sink), true);
}

static void unescape(sp_sink *sink, const sp_text *text) {
    static const struct {
        const char *entity;
        const char *text;
    } entities[] = {{"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},   {"&quot;", "\""},
                    {"&#34;", "\""}, {"&#39;", "'"}, {"&apos;", "'"}, {"&nbsp;", "\xC2\xA0"}};
    for (size_t i = 0; i < text->n_bytes;) {
        size_t n = 0;
        for (size_t k = 0; k < sizeof entities / sizeof *entities && !n && text->data[i] == '&'; k++) {
            size_t n_entity = strlen(entities[k].entity);
            if (text->n_bytes - i < n_entity || memcmp(text->data + i, entities[k].entity, n_entity) != 0) continue;
            n = n_entity;
            sp_sink_bytes(sink, entities[k].text, strlen(entities[k].text), text->n_user > 0);
        }
        if (!n) sp_sink_slice(sink, text, i, i + 1);
        i += n ? n : 1;
    }
}

/* The text less everything between open and close, as often as both are there. */
static const sp_text *drop_between(sp_render *r, const sp_text *text, const char *open, const char *close) {
    sp_text begin = {.data = open, .n_bytes = strlen(open)}, end = {.data = close, .n_bytes = strlen(close)};
    sp_sink sink = {.r = r};
    size_t at = 0;
    for (;;) {
        size_t from = sp_text_find(r, text, &begin, at, text->n_bytes);
        size_t to = from == SIZE_MAX ? from : sp_text_find(r, text, &end, from, text->n_bytes);
        if (to == SIZE_MAX) break;
        sp_sink_slice(&sink, text, at, from);
        at = to + end.n_bytes;
    }
    sp_sink_slice(&sink, text, at, text->n_bytes);
    return sp_sink_finish(&sink);
}

SP_NATIVE(filter_striptags) {
    const sp_text *text = drop_between(r, sp_value_str(r, self), "<!--", "-->");
    text = drop_between(r, text, "<", ">");
    sp_value words = sp_call_text_method(r, as_markup(r, text, false), "split", NULL, 0);
    sp_text space = {.data = " ", .n_bytes = 1, .n_chars = 1};
    sp_value joined = sp_call_text_method(r, sp_value_text(&space), "join", &words, 1);
    sp_sink sink = {.r = r};
    unescape(&sink, joined.as.text);
    return sp_sink_value(&sink);
}

SP_NATIVE(filter_xmlattr) {
    if (self.kind != SP_V_DICT) sp_render_fail(r, "xmlattr needs a mapping, got %s", sp_value_type(self));
    bool space = !sp_value_given(a[0]) || sp_value_truth(r, a[0]), first = true;
    sp_sink sink = {.r = r};
    for (size_t i = 0; i < self.as.dict->n; i++) {
        const sp_pair *pair = &self.as.dict->pairs[i];
        if (pair->value.kind == SP_V_NONE || pair->value.kind == SP_V_UNDEFINED) continue;
        const sp_text *key = sp_arg_text(r, pair->key, "xmlattr");
        for (size_t k = 0; k < key->n_bytes; k++)
            if (ascii_space(key->data[k]) || (key->data[k] && strchr("/>=", key->data[k])))
                sp_render_fail(r, "Invalid character in attribute name");
        if (!first || space) sp_sink_char(&sink, ' ');
        first = false;
        sp_sink_escape(&sink, pair->key);
        sp_sink_cstr(&sink, "=\"");
        sp_sink_escape(&sink, pair->value);
        sp_sink_char(&sink, '"');
    }
    return sp_sink_value(&sink);
}

static void quote(sp_sink *sink, sp_value v, bool query) {
    const sp_text *text = sp_value_str(sink->r, v);
    for (size_t i = 0; i < text->n_bytes; i++) {
        unsigned char c = (unsigned char)text->data[i];
        char escape[4];
        bool plain = c < 0x80 && (sp_python_is_word(c) || (c && strchr("-.~", c)) || (!query && c == '/'));
        if (plain) {
            sp_sink_slice(sink, text, i, i + 1);
        } else if (query && c == ' ') {
            sp_sink_char(sink, '+');
        } else {
            snprintf(escape, sizeof escape, "%%%02X", c);
            sp_sink_bytes(sink, escape, 3, text->n_user > 0);
        }
    }
}

SP_NATIVE(filter_urlencode) {
    sp_sink sink = {.r = r};
    if (self.kind == SP_V_TEXT || !sp_value_iterable(self)) {
        quote(&sink, self, false);
        return sp_sink_value(&sink);
    }
    sp_value list = sp_iter_list(r, self);
    for (size_t i = 0; i < list.as.seq->n; i++) {
        sp_value key = list.as.seq->items[i], value;
        if (self.kind == SP_V_DICT) {
            value = *sp_dict_get(r, self.as.dict, key);
        } else {
            sp_value pair = sp_iter_list(r, key);
            if (pair.as.seq->n != 2) sp_render_fail(r, "urlencode needs pairs");
            key = pair.as.seq->items[0];
            value = pair.as.seq->items[1];
        }
        if (i) sp_sink_char(&sink, '&');
        quote(&sink, key, true);
        sp_sink_char(&sink, '=');
        quote(&sink, value, true);
    }
    return sp_sink_value(&sink);
}

SP_NATIVE(filter_urlize) { sp_render_fail(r, "the filter 'urlize' is not supported"); }

SP_NATIVE(filter_format) {
    if (raw->n_pos && raw->n_kw) sp_render_fail(r, "can't handle positional and keyword arguments at the same time");
    const sp_text *format = sp_value_str(r, self);
    if (raw->n_kw) {
        sp_dict *dict = sp_dict_new(r);
        for (size_t i = 0; i < raw->n_kw; i++) sp_dict_set(r, dict, sp_value_text(raw->kw[i].name), raw->kw[i].value);
        return sp_value_text(sp_format_percent(r, format, (sp_value){.kind = SP_V_DICT, .as.dict = dict}));
    }
    sp_value tuple = sp_value_tuple(r, raw->n_pos);
    for (size_t i = 0; i < raw->n_pos; i++) sp_value_items(tuple)[i] = raw->pos[i];
    return sp_value_text(sp_format_percent(r, format, tuple));
}

const sp_callable sp_text_filters[] = {
    {"capitalize", filter_capitalize, 0, 0, {0}},
    {"center", filter_center, 0, 1, {"width"}},
    {"e", filter_escape, 0, 0, {0}},
    {"escape", filter_escape, 0, 0, {0}},
    {"forceescape", filter_forceescape, 0, 0, {0}},
    {"format", filter_format, 0, SP_VARIADIC, {0}},
    {"indent", filter_indent, 0, 3, {"width", "first", "blank"}},
    {"lower", filter_lower, 0, 0, {0}},
    {"replace", filter_replace, 2, 3, {"old", "new", "count"}},
    {"safe", filter_safe, 0, 0, {0}},
    {"string", filter_string, 0, 0, {0}},
    {"striptags", filter_striptags, 0, 0, {0}},
    {"title", filter_title, 0, 0, {0}},
    {"trim", filter_trim, 0, 1, {"chars"}},
    {"truncate", filter_truncate, 0, 4, {"length", "killwords", "end", "leeway"}},
    {"upper", filter_upper, 0, 0, {0}},
    {"urlencode", filter_urlencode, 0, 0, {0}},
    {"urlize", filter_urlize, 0, SP_VARIADIC, {0}},
    {"wordcount", filter_wordcount, 0, 0, {0}},
    {"wordwrap", filter_wordwrap, 0, 4, {"width", "break_long_words", "wrapstring", "break_on_hyphens"}},
    {"xmlattr", filter_xmlattr, 0, 1, {"autospace"}},
};
const size_t sp_n_text_filters = sizeof sp_text_filters / sizeof *sp_text_filters;
