/* Python's string methods. Positions and counts are in characters; what is cut out of a user's text stays a user's. */
#include <string.h>
#include <utf8proc.h>

#include "chat/render.h"
#include "util/size.h"

enum { MAX_WIDTH = 64 << 20 };

int64_t sp_arg_int(sp_render *r, sp_value v, const char *what) {
    if (v.kind == SP_V_UNDEFINED) sp_undefined_fail(r, v);
    if (!sp_value_is_int(v)) sp_render_fail(r, "%s needs an integer, got %s", what, sp_value_type(v));
    return sp_value_as_int(v);
}

const sp_text *sp_arg_text(sp_render *r, sp_value v, const char *what) {
    if (v.kind != SP_V_TEXT) sp_render_fail(r, "%s needs a string, got %s", what, sp_value_type(v));
    return v.as.text;
}

static const sp_text *optional_text(sp_render *r, sp_value v, const char *what) {
    return sp_value_given(v) && v.kind != SP_V_NONE ? sp_arg_text(r, v, what) : NULL;
}

static int64_t optional_int(sp_render *r, sp_value v, const char *what, int64_t absent) {
    return sp_value_given(v) && v.kind != SP_V_NONE ? sp_arg_int(r, v, what) : absent;
}

static sp_value strip(sp_render *r, sp_value self, sp_value chars, bool left, bool right) {
    const sp_text *text = self.as.text;
    size_t from, to;
    sp_render_charge(r, text->n_bytes / 256);
    sp_text_strip_range(text, optional_text(r, chars, "strip()"), left, right, &from, &to);
    return sp_value_text(sp_text_slice(r, text, from, to));
}
SP_NATIVE(text_strip) { return strip(r, self, a[0], true, true); }
SP_NATIVE(text_lstrip) { return strip(r, self, a[0], true, false); }
SP_NATIVE(text_rstrip) { return strip(r, self, a[0], false, true); }

SP_NATIVE(text_upper) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_UPPER)); }
SP_NATIVE(text_lower) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_LOWER)); }
SP_NATIVE(text_title) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_TITLE)); }
SP_NATIVE(text_capitalize) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_CAPITAL)); }
SP_NATIVE(text_swapcase) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_SWAP)); }
SP_NATIVE(text_casefold) { return sp_value_text(sp_text_recase(r, self.as.text, SP_CASE_FOLD)); }

/* ---- splitting ---- */

static void add_piece(sp_render *r, sp_items *list, const sp_text *text, size_t from, size_t to) {
    sp_items_add(r, list, sp_value_text(sp_text_slice(r, text, from, to)));
}

static size_t skip_white(const sp_text *text, size_t at, bool white) {
    while (at < text->n_bytes) {
        size_t width;
        if (sp_python_is_space(sp_text_char(text->data, text->n_bytes, at, &width)) != white) break;
        at += width;
    }
    return at;
}

static void split_white(sp_render *r, sp_items *list, const sp_text *text, int64_t most) {
    size_t at = skip_white(text, 0, true);
    while (at < text->n_bytes) {
        size_t end = skip_white(text, at, false);
        if (most >= 0 && (int64_t)list->n == most) end = text->n_bytes;
        add_piece(r, list, text, at, end);
        at = skip_white(text, end, true);
    }
}

/* Where the white space or word that ends at `to` begins. */
static size_t skip_white_back(const sp_text *text, size_t to, bool white) {
    while (to > 0) {
        size_t at = to - 1, width;
        while (at > 0 && sp_utf8_continues(text->data[at])) at--;
        if (sp_python_is_space(sp_text_char(text->data, text->n_bytes, at, &width)) != white) break;
        to = at;
    }
    return to;
}

static void rsplit_white(sp_render *r, sp_items *list, const sp_text *text, int64_t most) {
    size_t to = skip_white_back(text, text->n_bytes, true);
    while (to > 0) {
        size_t from = skip_white_back(text, to, false);
        if (most >= 0 && (int64_t)list->n == most) from = 0;
        add_piece(r, list, text, from, to);
        if (most >= 0 && (int64_t)list->n > most) return;
        to = skip_white_back(text, from, true);
    }
}

static void reverse(sp_items *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        sp_value v = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = v;
    }
}

SP_NATIVE(text_split) {
    const sp_text *text = self.as.text, *separator = optional_text(r, a[0], "split()");
    int64_t most = optional_int(r, a[1], "split()", -1);
    sp_items list = {0};
    if (!separator) {
        split_white(r, &list, text, most);
        return sp_items_list(r, &list);
    }
    if (!separator->n_bytes) sp_render_fail(r, "empty separator");
    size_t at = 0;
    while (most < 0 || (int64_t)list.n < most) {
        size_t hit = sp_text_find(r, text, separator, at, text->n_bytes);
        if (hit == SIZE_MAX) break;
        add_piece(r, &list, text, at, hit);
        at = hit + separator->n_bytes;
    }
    add_piece(r, &list, text, at, text->n_bytes);
    return sp_items_list(r, &list);
}

SP_NATIVE(text_rsplit) {
    const sp_text *text = self.as.text, *separator = optional_text(r, a[0], "rsplit()");
    int64_t most = optional_int(r, a[1], "rsplit()", -1);
    sp_items list = {0};
    if (!separator) {
        rsplit_white(r, &list, text, most);
    } else {
        if (!separator->n_bytes) sp_render_fail(r, "empty separator");
        size_t to = text->n_bytes;
        while (most < 0 || (int64_t)list.n < most) {
            size_t hit = sp_text_rfind(r, text, separator, 0, to);
            if (hit == SIZE_MAX) break;
            add_piece(r, &list, text, hit + separator->n_bytes, to);
            to = hit;
        }
        add_piece(r, &list, text, 0, to);
    }
    reverse(&list);
    return sp_items_list(r, &list);
}

static bool is_line_end(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

SP_NATIVE(text_splitlines) {
    const sp_text *text = self.as.text;
    bool keep = sp_value_given(a[0]) && sp_arg_int(r, a[0], "splitlines()") != 0;
    sp_items list = {0};
    for (size_t from = 0, at = 0; from < text->n_bytes; from = at) {
        size_t width = 0, end = from;
        while (end < text->n_bytes && !is_line_end(sp_text_char(text->data, text->n_bytes, end, &width))) end += width;
        at = end;
        if (at < text->n_bytes)
            at += text->data[at] == '\r' && at + 1 < text->n_bytes && text->data[at + 1] == '\n' ? 2 : width;
        add_piece(r, &list, text, from, keep ? at : end);
    }
    return sp_items_list(r, &list);
}

static sp_value partition(sp_render *r, sp_value self, sp_value separator_arg, bool last) {
    const sp_text *text = self.as.text, *separator = sp_arg_text(r, separator_arg, "partition()");
    if (!separator->n_bytes) sp_render_fail(r, "empty separator");
    size_t hit =
        last ? sp_text_rfind(r, text, separator, 0, text->n_bytes) : sp_text_find(r, text, separator, 0, text->n_bytes);
    sp_value tuple = sp_value_tuple(r, 3), *items = sp_value_items(tuple);
    size_t from = hit, to = hit + separator->n_bytes;
    if (hit == SIZE_MAX) from = to = last ? 0 : text->n_bytes;
    items[0] = sp_value_text(sp_text_slice(r, text, 0, from));
    items[1] = sp_value_text(sp_text_slice(r, text, from, to));
    items[2] = sp_value_text(sp_text_slice(r, text, to, text->n_bytes));
    return tuple;
}
SP_NATIVE(text_partition) { return partition(r, self, a[0], false); }
SP_NATIVE(text_rpartition) { return partition(r, self, a[0], true); }

/* ---- searching ---- */

/* The bytes that optional character positions a[0], a[1] delimit, as a slice does; false when they are out of order. */
static bool window(sp_render *r, const sp_text *text, const sp_value *a, size_t *from, size_t *to) {
    int64_t n = (int64_t)text->n_chars;
    int64_t start = optional_int(r, a[0], "a position", 0), end = optional_int(r, a[1], "a position", n);
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (end > n) end = n;
    if (start > end) return false;
    *from = sp_text_offset(text, (size_t)start);
    *to = sp_text_offset(text, (size_t)end);
    return true;
}

/* Character position of the first (last) hit, or -1. */
static int64_t find(sp_render *r, sp_value self, const sp_value *a, bool last) {
    const sp_text *text = self.as.text, *needle = sp_arg_text(r, a[0], "find()");
    size_t from, to;
    if (!window(r, text, a + 1, &from, &to)) return -1;
    size_t hit = last ? sp_text_rfind(r, text, needle, from, to) : sp_text_find(r, text, needle, from, to);
    if (hit == SIZE_MAX) return -1;
    return (int64_t)sp_text_count(text->data, hit);
}

static sp_value found(sp_render *r, int64_t at) {
    if (at < 0) sp_render_fail(r, "substring not found");
    return sp_value_int(at);
}
SP_NATIVE(text_find) { return sp_value_int(find(r, self, a, false)); }
SP_NATIVE(text_rfind) { return sp_value_int(find(r, self, a, true)); }
SP_NATIVE(text_index) { return found(r, find(r, self, a, false)); }
SP_NATIVE(text_rindex) { return found(r, find(r, self, a, true)); }

SP_NATIVE(text_count) {
    const sp_text *text = self.as.text, *needle = sp_arg_text(r, a[0], "count()");
    size_t from, to;
    int64_t n = 0;
    if (!window(r, text, a + 1, &from, &to)) return sp_value_int(0);
    if (!needle->n_bytes) return sp_value_size(sp_text_count(text->data + from, to - from) + 1);
    for (;; n++) {
        size_t hit = sp_text_find(r, text, needle, from, to);
        if (hit == SIZE_MAX) return sp_value_int(n);
        from = hit + needle->n_bytes;
    }
}

static bool affix_matches(sp_render *r, const sp_text *text, sp_value affix, size_t from, size_t to, bool end) {
    const sp_text *t = sp_arg_text(r, affix, end ? "endswith()" : "startswith()");
    if (t->n_bytes > to - from) return false;
    return memcmp(text->data + (end ? to - t->n_bytes : from), t->data, t->n_bytes) == 0;
}

static sp_value has_affix(sp_render *r, sp_value self, const sp_value *a, bool end) {
    const sp_text *text = self.as.text;
    size_t from, to;
    if (a[0].kind != SP_V_TUPLE) sp_arg_text(r, a[0], end ? "endswith()" : "startswith()");
    if (!window(r, text, a + 1, &from, &to)) return sp_value_bool(false);
    if (a[0].kind != SP_V_TUPLE) return sp_value_bool(affix_matches(r, text, a[0], from, to, end));
    for (size_t i = 0; i < a[0].as.seq->n; i++)
        if (affix_matches(r, text, a[0].as.seq->items[i], from, to, end)) return sp_value_bool(true);
    return sp_value_bool(false);
}
SP_NATIVE(text_startswith) { return has_affix(r, self, a, false); }
SP_NATIVE(text_endswith) { return has_affix(r, self, a, true); }

SP_NATIVE(text_removeprefix) {
    const sp_text *text = self.as.text, *affix = sp_arg_text(r, a[0], "removeprefix()");
    bool has = affix_matches(r, text, a[0], 0, text->n_bytes, false);
    return sp_value_text(sp_text_slice(r, text, has ? affix->n_bytes : 0, text->n_bytes));
}

SP_NATIVE(text_removesuffix) {
    const sp_text *text = self.as.text, *affix = sp_arg_text(r, a[0], "removesuffix()");
    bool has = affix_matches(r, text, a[0], 0, text->n_bytes, true);
    return sp_value_text(sp_text_slice(r, text, 0, text->n_bytes - (has ? affix->n_bytes : 0)));
}

/* ---- replacing, joining, formatting ---- */

/* Between all characters. */
static void replace_empty(sp_sink *sink, const sp_text *text, const sp_text *new, int64_t most) {
    size_t width;
    for (size_t i = 0; i < text->n_bytes; i += width) {
        if (most-- > 0) sp_sink_text(sink, new);
        sp_text_char(text->data, text->n_bytes, i, &width);
        sp_sink_slice(sink, text, i, i + width);
    }
    if (most > 0) sp_sink_text(sink, new);
}

SP_NATIVE(text_replace) {
    const sp_text *text = self.as.text;
    const sp_text *old = sp_arg_text(r, a[0], "replace()"), *new = sp_arg_text(r, a[1], "replace()");
    int64_t most = sp_value_given(a[2]) ? sp_arg_int(r, a[2], "replace()") : -1;
    if (most < 0) most = INT64_MAX;
    sp_sink sink = {.r = r};
    if (!old->n_bytes) {
        replace_empty(&sink, text, new, most);
        return sp_sink_value(&sink);
    }
    size_t at = 0;
    for (; most > 0; most--) {
        size_t hit = sp_text_find(r, text, old, at, text->n_bytes);
        if (hit == SIZE_MAX) break;
        sp_sink_slice(&sink, text, at, hit);
        sp_sink_text(&sink, new);
        at = hit + old->n_bytes;
    }
    if (at == 0) return self;
    sp_sink_slice(&sink, text, at, text->n_bytes);
    return sp_sink_value(&sink);
}

SP_NATIVE(text_join) {
    sp_sink sink = {.r = r};
    sp_iter *iter = sp_iter_open(r, a[0]);
    size_t n = 0;
    for (sp_value v; sp_iter_next(r, iter, &v); n++) {
        if (v.kind != SP_V_TEXT)
            sp_render_fail(r, "sequence item %zu: expected str instance, %s found", n, sp_value_type(v));
        if (n) sp_sink_text(&sink, self.as.text);
        sp_sink_text(&sink, v.as.text);
    }
    return sp_sink_value(&sink);
}

SP_NATIVE(text_format) { return sp_value_text(sp_format_braces(r, self.as.text, raw)); }

SP_NATIVE(text_format_map) {
    const sp_dict *dict = a[0].kind == SP_V_DICT ? a[0].as.dict : sp_dict_new(r);
    sp_kwarg *kw = sp_render_alloc(r, dict->n, sizeof *kw);
    sp_args args = {.kw = kw};
    for (size_t i = 0; i < dict->n; i++)
        if (dict->pairs[i].key.kind == SP_V_TEXT)
            kw[args.n_kw++] = (sp_kwarg){dict->pairs[i].key.as.text, dict->pairs[i].value};
    return sp_value_text(sp_format_braces(r, self.as.text, &args));
}

/* `left` and `right` fill characters around text. */
static sp_value padded(sp_render *r, const sp_text *text, const sp_text *fill, size_t left, size_t right) {
    sp_sink sink = {.r = r};
    const char *unit = fill ? fill->data : " ";
    size_t n_unit = fill ? fill->n_bytes : 1;
    sp_sink_repeat(&sink, unit, n_unit, left);
    sp_sink_text(&sink, text);
    sp_sink_repeat(&sink, unit, n_unit, right);
    return sp_sink_value(&sink);
}

static size_t missing_chars(sp_render *r, sp_value self, const sp_value *a, const sp_text **fill) {
    int64_t width = sp_arg_int(r, a[0], "a width");
    *fill = optional_text(r, a[1], "a fill character");
    if (*fill && (*fill)->n_chars != 1) sp_render_fail(r, "The fill character must be exactly one character long");
    if (width > MAX_WIDTH) sp_render_claim(r, r->limit_bytes);
    return width > (int64_t)self.as.text->n_chars ? (size_t)width - self.as.text->n_chars : 0;
}
SP_NATIVE(text_center) {
    const sp_text *fill;
    size_t n = missing_chars(r, self, a, &fill);
    size_t left = n / 2 + (n & (n + self.as.text->n_chars) & 1);
    return padded(r, self.as.text, fill, left, n - left);
}
SP_NATIVE(text_ljust) {
    const sp_text *fill;
    size_t n = missing_chars(r, self, a, &fill);
    return padded(r, self.as.text, fill, 0, n);
}
SP_NATIVE(text_rjust) {
    const sp_text *fill;
    size_t n = missing_chars(r, self, a, &fill);
    return padded(r, self.as.text, fill, n, 0);
}

SP_NATIVE(text_zfill) {
    const sp_text *text = self.as.text, *fill;
    const sp_value width[2] = {a[0], sp_value_missing()};
    size_t n = missing_chars(r, self, width, &fill);
    size_t sign = text->n_bytes && (text->data[0] == '-' || text->data[0] == '+');
    sp_sink sink = {.r = r};
    sp_sink_slice(&sink, text, 0, sign);
    sp_sink_repeat(&sink, "0", 1, n);
    sp_sink_slice(&sink, text, sign, text->n_bytes);
    return sp_sink_value(&sink);
}

SP_NATIVE(text_expandtabs) {
    const sp_text *text = self.as.text;
    int64_t tab = optional_int(r, a[0], "expandtabs()", 8), column = 0;
    if (tab > MAX_WIDTH) sp_render_claim(r, r->limit_bytes);
    sp_sink sink = {.r = r};
    for (size_t i = 0, width; i < text->n_bytes; i += width) {
        sp_text_char(text->data, text->n_bytes, i, &width);
        if (text->data[i] == '\t') {
            int64_t n = tab > 0 ? tab - column % tab : 0;
            sp_sink_repeat(&sink, " ", 1, (size_t)n);
            column += n;
        } else {
            sp_sink_slice(&sink, text, i, i + width);
            column = text->data[i] == '\n' || text->data[i] == '\r' ? 0 : column + 1;
        }
    }
    return sp_sink_value(&sink);
}

/* ---- kinds of characters ---- */

static bool is_alpha(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
static bool is_decimal(int32_t c) { return utf8proc_category(c) == UTF8PROC_CATEGORY_ND; }
static bool is_digit(int32_t c) {
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}
static bool is_numeric(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
static bool is_alnum(int32_t c) { return is_alpha(c) || is_numeric(c); }
static bool is_ascii(int32_t c) { return c < 0x80; }

static sp_value all(sp_render *r, const sp_text *text, bool (*is)(int32_t), bool when_empty) {
    sp_render_charge(r, text->n_bytes / 64);
    for (size_t i = 0, width; i < text->n_bytes; i += width)
        if (!is(sp_text_char(text->data, text->n_bytes, i, &width))) return sp_value_bool(false);
    return sp_value_bool(when_empty || text->n_bytes > 0);
}
SP_NATIVE(text_isalpha) { return all(r, self.as.text, is_alpha, false); }
SP_NATIVE(text_isdecimal) { return all(r, self.as.text, is_decimal, false); }
SP_NATIVE(text_isdigit) { return all(r, self.as.text, is_digit, false); }
SP_NATIVE(text_isnumeric) { return all(r, self.as.text, is_numeric, false); }
SP_NATIVE(text_isalnum) { return all(r, self.as.text, is_alnum, false); }
SP_NATIVE(text_isspace) { return all(r, self.as.text, sp_python_is_space, false); }
SP_NATIVE(text_isprintable) { return all(r, self.as.text, sp_python_is_printable, true); }
SP_NATIVE(text_isascii) { return all(r, self.as.text, is_ascii, true); }

SP_NATIVE(text_isidentifier) {
    const sp_text *text = self.as.text;
    size_t width;
    int32_t first = text->n_bytes ? sp_text_char(text->data, text->n_bytes, 0, &width) : '0';
    return sp_value_bool(!is_numeric(first) && sp_value_truth(r, all(r, text, sp_python_is_word, false)));
}

/* All cased characters have the case that recasing gives, and there is one. */
static sp_value in_case(sp_render *r, const sp_text *text, sp_casing casing, sp_casing other) {
    const sp_text *same = sp_text_recase(r, text, casing), *changed = sp_text_recase(r, text, other);
    return sp_value_bool(sp_text_eq(text, same) && !sp_text_eq(text, changed));
}
SP_NATIVE(text_islower) { return in_case(r, self.as.text, SP_CASE_LOWER, SP_CASE_UPPER); }
SP_NATIVE(text_isupper) { return in_case(r, self.as.text, SP_CASE_UPPER, SP_CASE_LOWER); }
SP_NATIVE(text_istitle) {
    const sp_text *text = self.as.text;
    bool cased = !sp_text_eq(sp_text_recase(r, text, SP_CASE_UPPER), sp_text_recase(r, text, SP_CASE_LOWER));
    return sp_value_bool(cased && sp_text_eq(text, sp_text_recase(r, text, SP_CASE_TITLE)));
}

const sp_callable sp_text_methods[] = {
    {"strip", text_strip, 0, 1, {""}},
    {"lstrip", text_lstrip, 0, 1, {""}},
    {"rstrip", text_rstrip, 0, 1, {""}},
    {"split", text_split, 0, 2, {"sep", "maxsplit"}},
    {"rsplit", text_rsplit, 0, 2, {"sep", "maxsplit"}},
    {"splitlines", text_splitlines, 0, 1, {"keepends"}},
    {"partition", text_partition, 1, 1, {""}},
    {"rpartition", text_rpartition, 1, 1, {""}},
    {"startswith", text_startswith, 1, 3, {"", "", ""}},
    {"endswith", text_endswith, 1, 3, {"", "", ""}},
    {"replace", text_replace, 2, 3, {"", "", ""}},
    {"join", text_join, 1, 1, {""}},
    {"format", text_format, 0, SP_VARIADIC, {0}},
    {"format_map", text_format_map, 1, 1, {""}},
    {"upper", text_upper, 0, 0, {0}},
    {"lower", text_lower, 0, 0, {0}},
    {"title", text_title, 0, 0, {0}},
    {"capitalize", text_capitalize, 0, 0, {0}},
    {"swapcase", text_swapcase, 0, 0, {0}},
    {"casefold", text_casefold, 0, 0, {0}},
    {"find", text_find, 1, 3, {"", "", ""}},
    {"rfind", text_rfind, 1, 3, {"", "", ""}},
    {"index", text_index, 1, 3, {"", "", ""}},
    {"rindex", text_rindex, 1, 3, {"", "", ""}},
    {"count", text_count, 1, 3, {"", "", ""}},
    {"removeprefix", text_removeprefix, 1, 1, {""}},
    {"removesuffix", text_removesuffix, 1, 1, {""}},
    {"center", text_center, 1, 2, {"", ""}},
    {"ljust", text_ljust, 1, 2, {"", ""}},
    {"rjust", text_rjust, 1, 2, {"", ""}},
    {"zfill", text_zfill, 1, 1, {""}},
    {"expandtabs", text_expandtabs, 0, 1, {"tabsize"}},
    {"isalpha", text_isalpha, 0, 0, {0}},
    {"isalnum", text_isalnum, 0, 0, {0}},
    {"isascii", text_isascii, 0, 0, {0}},
    {"isdecimal", text_isdecimal, 0, 0, {0}},
    {"isdigit", text_isdigit, 0, 0, {0}},
    {"isidentifier", text_isidentifier, 0, 0, {0}},
    {"islower", text_islower, 0, 0, {0}},
    {"isnumeric", text_isnumeric, 0, 0, {0}},
    {"isprintable", text_isprintable, 0, 0, {0}},
    {"isspace", text_isspace, 0, 0, {0}},
    {"istitle", text_istitle, 0, 0, {0}},
    {"isupper", text_isupper, 0, 0, {0}},
};
const size_t sp_n_text_methods = sizeof sp_text_methods / sizeof *sp_text_methods;
