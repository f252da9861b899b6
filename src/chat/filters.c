/* Filters over numbers and over any value, and the look-up of all filters. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "chat/render.h"
#include "util/size.h"

enum { MAX_NUMBER_BYTES = 4000 };

SP_NATIVE(filter_default) {
    bool falsy = sp_value_given(a[1]) && sp_value_truth(r, a[1]) && !sp_value_truth(r, self);
    if (self.kind != SP_V_UNDEFINED && !falsy) return self;
    return sp_value_given(a[0]) ? a[0] : sp_text_value(r, "");
}

SP_NATIVE(filter_attr) {
    const sp_text *name = sp_arg_text(r, a[0], "attr");
    if (self.kind == SP_V_DICT && !sp_method_find(self, name)) return sp_undefined_attribute(r, self, a[0]);
    return sp_get_attribute(r, self, name);
}

SP_NATIVE(filter_abs) {
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    if (!sp_value_is_number(self)) sp_render_fail(r, "bad operand type for abs(): '%s'", sp_value_type(self));
    bool negative = sp_value_as_real(self) < 0 || (self.kind == SP_V_REAL && signbit(self.as.real));
    return sp_negate(r, self, negative);
}

/* ---- numbers out of text ---- */

/* Python's syntax of a number literal in a string: white space around, single underscores between digits. The
 * characters that count go to out; false when it cannot be a number. */
static bool clean_number(const sp_text *text, char out[MAX_NUMBER_BYTES + 1]) {
    size_t from, to, n = 0;
    sp_text_strip_range(text, NULL, true, true, &from, &to);
    if (from == to || to - from > MAX_NUMBER_BYTES) return false;
    for (size_t i = from; i < to; i++) {
        char c = text->data[i];
        if (c <= ' ') return false;
        bool between = i > from && i + 1 < to && sp_python_is_word((unsigned char)text->data[i - 1]) &&
                       text->data[i - 1] != '_' && sp_python_is_word((unsigned char)text->data[i + 1]);
        if (c == '_' && !between) return false;
        if (c != '_') out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_real(const sp_text *text, double *out) {
    char digits[MAX_NUMBER_BYTES + 1];
    if (!clean_number(text, digits)) return false;
    const char *body = digits + (digits[0] == '-' || digits[0] == '+');
    bool named = !strcasecmp(body, "inf") || !strcasecmp(body, "infinity") || !strcasecmp(body, "nan");
    if (!named && strspn(body, "0123456789.eE+-") != strlen(body)) return false;
    char *end;
    *out = strtod(digits, &end);
    return end != digits && !*end;
}

/* As int(text, base): false when it is no integer. */
static bool parse_int(sp_render *r, const sp_text *text, int64_t base, int64_t *out) {
    char digits[MAX_NUMBER_BYTES + 1];
    if (base != 0 && (base < 2 || base > 36)) return false;
    if (!clean_number(text, digits)) return false;
    bool negative = digits[0] == '-';
    char *body = digits + (negative || digits[0] == '+');
    char kind = body[0] == '0' ? (char)(body[1] | 32) : 0;
    int prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefixed && (base == 0 || base == prefixed)) {
        body += 2;
        base = prefixed;
    } else if (base == 0) {
        if (body[0] == '0' && strspn(body, "0") != strlen(body)) return false;
        base = 10;
    }
    if (body[0] == '-' || body[0] == '+' || body[0] == '\0') return false;
    char *end;
    errno = 0;
    unsigned long long size = strtoull(body, &end, (int)base);
    if (*end) return false;
    if (errno || size > (unsigned long long)INT64_MAX) sp_render_fail(r, "an integer beyond 64 bits");
    *out = negative ? -(int64_t)size : (int64_t)size;
    return true;
}

static bool real_to_int(sp_render *r, double real, sp_value *out) {
    if (!isfinite(real)) return false;
    if (fabs(real) >= 9.2e18) sp_render_fail(r, "an integer beyond 64 bits");
    *out = sp_value_int((int64_t)real);
    return true;
}

SP_NATIVE(filter_int) {
    sp_value fallback = sp_value_given(a[0]) ? a[0] : sp_value_int(0), out = fallback;
    int64_t base = !sp_value_given(a[1]) ? 10 : sp_value_is_int(a[1]) ? sp_value_as_int(a[1]) : -1, value;
    double real;
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    if (sp_value_is_int(self)) return sp_value_int(sp_value_as_int(self));
    if (self.kind == SP_V_REAL) {
        if (isinf(self.as.real)) sp_render_fail(r, "cannot convert float infinity to integer");
        return real_to_int(r, self.as.real, &out) ? out : fallback;
    }
    if (self.kind != SP_V_TEXT) return fallback;
    if (parse_int(r, self.as.text, base, &value)) return sp_value_int(value);
    return parse_real(self.as.text, &real) && real_to_int(r, real, &out) ? out : fallback;
}

SP_NATIVE(filter_float) {
    double real;
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    if (sp_value_is_number(self)) return sp_value_real(sp_value_as_real(self));
    if (self.kind == SP_V_TEXT && parse_real(self.as.text, &real)) return sp_value_real(real);
    return sp_value_given(a[0]) ? a[0] : sp_value_real(0);
}

/* ---- rounding ---- */

static double round_real(double value, int64_t precision) {
    char digits[800];
    if (!isfinite(value) || precision > 330) return value;
    if (precision >= 0) {
        snprintf(digits, sizeof digits, "%.*f", (int)precision, value);
        return strtod(digits, NULL);
    }
    if (precision < -310) return copysign(0, value);
    double unit = pow(10, (double)-precision);
    return nearbyint(value / unit) * unit;
}

static sp_value round_int(sp_render *r, int64_t value, int64_t precision) {
    if (precision >= 0) return sp_value_int(value);
    if (precision < -18) return sp_value_int(0);
    int64_t unit = 1;
    while (precision++ < 0) unit *= 10;
    int64_t rest = value % unit, down = value - rest;
    if (rest < 0) {
        rest += unit;
        if (__builtin_sub_overflow(down, unit, &down)) sp_render_fail(r, "an integer beyond 64 bits");
    }
    bool up = rest * 2 > unit || (rest * 2 == unit && down / unit % 2 != 0);
    return up ? sp_operate(r, SP_OP_ADD, sp_value_int(down), sp_value_int(unit)) : sp_value_int(down);
}

SP_NATIVE(filter_round) {
    int64_t precision = sp_value_given(a[0]) ? sp_arg_int(r, a[0], "round") : 0;
    const sp_text *method = sp_value_given(a[1]) ? sp_arg_text(r, a[1], "round") : NULL;
    bool common = !method || sp_text_is(method, "common");
    bool up = method && sp_text_is(method, "ceil");
    if (!common && !up && !sp_text_is(method, "floor")) sp_render_fail(r, "method must be common, ceil or floor");
    if (self.kind == SP_V_UNDEFINED) sp_undefined_fail(r, self);
    if (!sp_value_is_number(self)) sp_render_fail(r, "type %s doesn't define __round__ method", sp_value_type(self));
    if (common && sp_value_is_int(self)) return round_int(r, sp_value_as_int(self), precision);
    if (common) return sp_value_real(round_real(self.as.real, precision));
    sp_value unit = sp_operate(r, SP_OP_POW, sp_value_int(10), sp_value_int(precision));
    double scaled = sp_value_as_real(sp_operate(r, SP_OP_MUL, self, unit));
    if (!isfinite(scaled)) sp_render_fail(r, "cannot convert float %s to integer", isnan(scaled) ? "NaN" : "infinity");
    return sp_value_real((up ? ceil(scaled) : floor(scaled)) / sp_value_as_real(unit));
}

SP_NATIVE(filter_filesizeformat) {
    static const char letters[] = "kMGTPEZY";
    bool binary = sp_value_given(a[0]) && sp_value_truth(r, a[0]);
    double n_bytes, base = binary ? 1024 : 1000;
    if (sp_value_is_number(self))
        n_bytes = sp_value_as_real(self);
    else if (self.kind != SP_V_TEXT || !parse_real(self.as.text, &n_bytes))
        sp_render_fail(r, "filesizeformat needs a number, got %s", sp_value_type(self));
    char text[400];
    if (n_bytes == 1) return sp_text_value(r, "1 Byte");
    if (n_bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(n_bytes));
        return sp_text_value(r, text);
    }
    double unit = base;
    size_t i = 0;
    while (n_bytes >= unit * base && i + 1 < strlen(letters)) {
        unit *= base;
        i++;
    }
    char letter = binary && i == 0 ? 'K' : letters[i];
    snprintf(text, sizeof text, "%.1f %c%sB", n_bytes / unit, letter, binary ? "i" : "");
    return sp_text_value(r, text);
}

/* ---- writing ---- */

SP_NATIVE(filter_tojson) {
    sp_tojson_style style = {.ascii = sp_value_given(a[0]) && sp_value_truth(r, a[0]),
                             .sort_keys = sp_value_given(a[3]) && sp_value_truth(r, a[3])};
    if (a[1].kind == SP_V_TEXT) {
        style.indent = a[1].as.text;
    } else if (sp_value_given(a[1]) && a[1].kind != SP_V_NONE) {
        int64_t width = sp_arg_int(r, a[1], "tojson");
        sp_sink unit = {.r = r};
        sp_sink_repeat(&unit, " ", 1, width > 0 ? (size_t)width : 0);
        style.indent = sp_sink_finish(&unit);
    }
    if (sp_value_given(a[2]) && a[2].kind != SP_V_NONE) {
        sp_value pair = sp_iter_list(r, a[2]);
        if (pair.as.seq->n != 2) sp_render_fail(r, "tojson needs two separators, got %zu", pair.as.seq->n);
        style.item_separator = sp_arg_text(r, pair.as.seq->items[0], "tojson");
        style.key_separator = sp_arg_text(r, pair.as.seq->items[1], "tojson");
    } else {
        style.item_separator = sp_text_copy(r, ", ", style.indent ? 1 : 2);
        style.key_separator = sp_text_copy(r, ": ", 2);
    }
    sp_sink sink = {.r = r};
    sp_sink_json(&sink, self, &style);
    return sp_sink_value(&sink);
}

SP_NATIVE(filter_pprint) {
    sp_sink sink = {.r = r};
    sp_sink_repr(&sink, self);
    const sp_text *text = sp_sink_finish(&sink);
    if (text->n_chars > 80) sp_render_fail(r, "the filter 'pprint' is supported up to one line of 80 characters");
    return sp_value_text(text);
}

static const sp_callable filters[] = {
    {"abs", filter_abs, 0, 0, {0}},
    {"attr", filter_attr, 1, 1, {"name"}},
    {"d", filter_default, 0, 2, {"default_value", "boolean"}},
    {"default", filter_default, 0, 2, {"default_value", "boolean"}},
    {"filesizeformat", filter_filesizeformat, 0, 1, {"binary"}},
    {"float", filter_float, 0, 1, {"default"}},
    {"int", filter_int, 0, 2, {"default", "base"}},
    {"pprint", filter_pprint, 0, 0, {0}},
    {"round", filter_round, 0, 2, {"precision", "method"}},
    {"tojson", filter_tojson, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}},
};

const sp_callable *sp_filter_find(const sp_text *name) {
    const sp_callable *found = sp_callable_find(filters, sizeof filters / sizeof *filters, name);
    if (!found) found = sp_callable_find(sp_text_filters, sp_n_text_filters, name);
    return found ? found : sp_callable_find(sp_seq_filters, sp_n_seq_filters, name);
}
