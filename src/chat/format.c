/* The two ways Python formats into a string: "%s" % args and "{}".format(args). Both end in one number formatter. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 1000 };

/* What stands between the % (or the colon) and the type. */
typedef struct {
    const sp_text *text; /* fill comes from here */
    size_t fill_from, fill_to;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' ' ' '-' or 0 */
    bool alternate;
    char group; /* ',' '_' or 0 */
    int width;
    int precision; /* -1: none */
    char type;     /* 0: none */
} spec;

static void pad(sp_sink *sink, const spec *s, size_t times) {
    if (s->fill_to > s->fill_from)
        for (size_t i = 0; i < times; i++) sp_sink_slice(sink, s->text, s->fill_from, s->fill_to);
    else
        sp_sink_repeat(sink, " ", 1, times);
}

/* body, whose sign and base take n_prefix bytes, padded to the width. */
static void add_padded(sp_sink *sink, const spec *s, const sp_text *body, size_t n_prefix, char align) {
    size_t width = s->width > 0 ? (size_t)s->width : 0;
    size_t missing = width > body->n_chars ? width - body->n_chars : 0;
    size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    pad(sink, s, left);
    sp_sink_slice(sink, body, 0, n_prefix);
    if (align == '=') pad(sink, s, missing);
    sp_sink_slice(sink, body, n_prefix, body->n_bytes);
    if (align != '=') pad(sink, s, missing - left);
}

static void add_text(sp_sink *sink, const spec *s, const sp_text *text) {
    if (s->precision >= 0 && (size_t)s->precision < text->n_chars)
        text = sp_text_slice(sink->r, text, 0, sp_text_offset(text, (size_t)s->precision));
    add_padded(sink, s, text, 0, s->align ? s->align : '<');
}

/* Digits with separators every three (or four, of a base but ten) from the right, up to the end of the digits. */
static void add_grouped(sp_sink *out, const char *digits, char group, int every) {
    size_t n = strspn(digits, "0123456789abcdefABCDEF");
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % (size_t)every == 0) sp_sink_char(out, group);
        sp_sink_char(out, digits[i]);
    }
    sp_sink_cstr(out, digits + n);
}

static void add_number(sp_sink *sink, const spec *s, bool negative, const char *prefix, const char *digits) {
    sp_sink body = {.r = sink->r};
    if (negative)
        sp_sink_char(&body, '-');
    else if (s->sign == '+' || s->sign == ' ')
        sp_sink_char(&body, s->sign);
    sp_sink_cstr(&body, prefix);
    size_t n_prefix = body.n_bytes;
    if (s->group)
        add_grouped(&body, digits, s->group, prefix[0] || strchr("xXob", s->type ? s->type : 'd') ? 4 : 3);
    else
        sp_sink_cstr(&body, digits);
    add_padded(sink, s, sp_sink_finish(&body), n_prefix, s->align ? s->align : '>');
}

/* The digits of size in base two. */
static void binary_digits(uint64_t size, char *digits) {
    int n = size ? 64 - __builtin_clzll(size) : 1;
    for (int i = 0; i < n; i++) digits[i] = (char)('0' + (size >> (n - 1 - i) & 1));
    digits[n] = '\0';
}

static void add_integer(sp_sink *sink, const spec *s, int64_t value) {
    static const struct {
        char type;
        const char *format, *prefix;
    } bases[] = {{'x', "%.*llx", "0x"}, {'X', "%.*llX", "0X"}, {'o', "%.*llo", "0o"}, {'b', NULL, "0b"}};
    enum { N_BASES = sizeof bases / sizeof *bases };
    char digits[MAX_PRECISION + 80];
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t i = 0;
    while (i < N_BASES && bases[i].type != s->type) i++;
    const char *format = i < N_BASES ? bases[i].format : "%.*llu";
    if (format)
        snprintf(digits, sizeof digits, format, s->precision > 0 ? s->precision : 1, (unsigned long long)size);
    else
        binary_digits(size, digits);
    add_number(sink, s, value < 0, s->alternate && i < N_BASES ? bases[i].prefix : "", digits);
}

static void add_real(sp_sink *sink, const spec *s, double value) {
    char digits[MAX_PRECISION + 400];
    bool upper = s->type >= 'A' && s->type <= 'Z';
    bool negative = signbit(value) && !isnan(value);
    double size = negative ? -value : value;
    int precision = s->precision < 0 ? 6 : s->precision;
    char kind = s->type == '%' ? 'f' : s->type ? s->type : 'g';
    if (s->type == '%') size *= 100;
    if (!s->type && s->precision < 0) {
        sp_sink plain = {.r = sink->r};
        sp_sink_repr(&plain, sp_value_real(size));
        snprintf(digits, sizeof digits, "%.*s", (int)plain.n_bytes, plain.data);
    } else if (isinf(size) || isnan(size)) {
        snprintf(digits, sizeof digits, "%s", isnan(size) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    } else {
        char format[8];
        snprintf(format, sizeof format, s->alternate ? "%%#.*%c" : "%%.*%c", kind);
        if (kind == 'g' && precision == 0) precision = 1;
        snprintf(digits, sizeof digits, format, precision, size);
    }
    if (s->type == '%') strncat(digits, "%", sizeof digits - strlen(digits) - 1);
    add_number(sink, s, negative, "", digits);
}

/* ---- percent ---- */

typedef struct {
    const sp_text *format;
    size_t at;
    sp_value args;
    size_t i_arg;
} percent;

static sp_value next_arg(sp_render *r, percent *p) {
    if (p->args.kind != SP_V_TUPLE) {
        if (p->i_arg++) sp_render_fail(r, "not enough arguments for format string");
        return p->args;
    }
    if (p->i_arg >= p->args.as.seq->n) sp_render_fail(r, "not enough arguments for format string");
    return p->args.as.seq->items[p->i_arg++];
}

static char peek(const percent *p) { return p->at < p->format->n_bytes ? p->format->data[p->at] : '\0'; }

/* Digits or a star. */
static int parse_count(sp_render *r, percent *p, int most) {
    if (peek(p) == '*') {
        p->at++;
        int64_t n = sp_arg_int(r, next_arg(r, p), "* of a format");
        if (n > most || n < -most) sp_render_fail(r, "a width or precision beyond %d", most);
        return (int)n;
    }
    int n = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        n = n * 10 + (peek(p) - '0');
        if (n > most) sp_render_fail(r, "a width or precision beyond %d", most);
    }
    return n;
}

static sp_value mapped_arg(sp_render *r, percent *p) {
    size_t from = ++p->at;
    for (int depth = 1; depth; p->at++) {
        if (p->at >= p->format->n_bytes) sp_render_fail(r, "incomplete format key");
        depth += (peek(p) == '(') - (peek(p) == ')');
    }
    if (p->args.kind != SP_V_DICT) sp_render_fail(r, "format requires a mapping");
    const sp_text *key = sp_text_slice(r, p->format, from, p->at - 1);
    const sp_value *v = sp_dict_get(r, p->args.as.dict, sp_value_text(key));
    if (!v)
        sp_render_fail(r, "the mapping of a format has no key '%.*s'", (int)sp_min_size(key->n_bytes, 60), key->data);
    return *v;
}

static void add_character(sp_sink *sink, const spec *s, sp_value v) {
    if (v.kind == SP_V_TEXT && v.as.text->n_chars == 1) {
        add_text(sink, s, v.as.text);
        return;
    }
    sp_sink one = {.r = sink->r};
    int64_t code = sp_arg_int(sink->r, v, "%c");
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        sp_render_fail(sink->r, "%%c needs a character");
    sp_sink_code(&one, (int32_t)code, false);
    add_text(sink, s, sp_sink_finish(&one));
}

static void convert(sp_sink *sink, const spec *s, sp_value v, bool escape) {
    sp_render *r = sink->r;
    sp_sink text = {.r = r};
    switch (s->type) {
        case 's':
            if (escape)
                sp_sink_escape(&text, v);
            else
                sp_sink_str(&text, v);
            add_text(sink, s, sp_sink_finish(&text));
            return;
        case 'r':
        case 'a':
            sp_sink_repr(&text, v);
            add_text(sink, s, sp_sink_finish(&text));
            return;
        case 'c':
            add_character(sink, s, v);
            return;
        default:
            break;
    }
    if (v.kind == SP_V_UNDEFINED) sp_undefined_fail(r, v);
    if (!sp_value_is_number(v))
        sp_render_fail(r, "%%%c format: a number is required, not %s", s->type, sp_value_type(v));
    if (strchr("eEfFgG", s->type)) {
        add_real(sink, s, sp_value_as_real(v));
        return;
    }
    if (v.kind == SP_V_REAL && strchr("xXo", s->type))
        sp_render_fail(r, "%%%c format: an integer is required, not float", s->type);
    if (v.kind == SP_V_REAL && !(fabs(v.as.real) < 9.2e18)) sp_render_fail(r, "an integer beyond 64 bits");
    add_integer(sink, s, v.kind == SP_V_REAL ? (int64_t)v.as.real : sp_value_as_int(v));
}

static void percent_one(sp_sink *sink, percent *p) {
    sp_render *r = sink->r;
    static const sp_text zero = {.data = "0", .n_bytes = 1, .n_chars = 1};
    spec s = {.precision = -1, .text = &zero, .align = '>'};
    bool left = false;
    sp_value v = peek(p) == '(' ? mapped_arg(r, p) : sp_value_missing();
    for (; peek(p) && strchr("-+ #0", peek(p)); p->at++) {
        char c = peek(p);
        if (c == '-') left = true;
        if (c == '+' || (c == ' ' && !s.sign)) s.sign = c;
        if (c == '#') s.alternate = true;
        if (c == '0') s.fill_to = 1;
    }
    s.width = parse_count(r, p, MAX_WIDTH);
    if (s.width < 0) { /* "*" with a negative width */
        left = true;
        s.width = -s.width;
    }
    if (peek(p) == '.') {
        p->at++;
        s.precision = parse_count(r, p, MAX_PRECISION);
        if (s.precision < 0) s.precision = 0;
    }
    while (peek(p) && strchr("hlL", peek(p))) p->at++;
    s.type = peek(p);
    if (!s.type) sp_render_fail(r, "incomplete format");
    p->at++;
    if (s.type == '%') {
        sp_sink_char(sink, '%');
        return;
    }
    if (!strchr("sracdiuxXoeEfFgG", s.type)) sp_render_fail(r, "unsupported format character in a string");
    if (strchr("srac", s.type)) s.fill_to = 0;
    if (left) s.fill_to = 0;
    s.align = left ? '<' : s.fill_to ? '=' : '>';
    convert(sink, &s, sp_value_given(v) ? v : next_arg(r, p), p->format->markup);
}

const sp_text *sp_format_percent(sp_render *r, const sp_text *format, sp_value args) {
    sp_sink sink = {.r = r};
    percent p = {.format = format, .args = args};
    while (p.at < format->n_bytes) {
        const char *hit = memchr(format->data + p.at, '%', format->n_bytes - p.at);
        size_t to = hit ? (size_t)(hit - format->data) : format->n_bytes;
        sp_sink_slice(&sink, format, p.at, to);
        p.at = to;
        if (!hit) break;
        p.at++;
        percent_one(&sink, &p);
    }
    bool indexable = args.kind == SP_V_DICT || args.kind == SP_V_LIST || args.kind == SP_V_RANGE ||
                     args.kind == SP_V_UNDEFINED; /* Python takes it for a mapping, which may be unused */
    bool unused = args.kind == SP_V_TUPLE ? p.i_arg < args.as.seq->n : p.i_arg == 0 && !indexable;
    if (unused) sp_render_fail(r, "not all arguments converted during string formatting");
    sp_text *text = SP_RENDER_NEW(r, sp_text);
    *text = *sp_sink_finish(&sink);
    text->markup = format->markup;
    return text;
}

/* ---- braces ---- */

typedef struct {
    const sp_text *format;
    const sp_args *args;
    int64_t i_auto; /* next automatic index; -1: indexes are given by hand */
    bool by_hand;
    int depth;
} braces;

static void expand(sp_sink *sink, braces *b, size_t from, size_t to);

static int parse_number(sp_render *r, const sp_text *text, size_t *at, int most) {
    int n = 0;
    for (; *at < text->n_bytes && text->data[*at] >= '0' && text->data[*at] <= '9'; ++*at) {
        n = n * 10 + (text->data[*at] - '0');
        if (n > most) sp_render_fail(r, "a width or precision beyond %d", most);
    }
    return n;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static spec parse_spec(sp_render *r, const sp_text *text) {
    static const sp_text zero = {.data = "0", .n_bytes = 1, .n_chars = 1};
    spec s = {.precision = -1, .text = text};
    const char *t = text->data;
    size_t at = 0, n = text->n_bytes, width = 0;
    if (n) sp_text_char(t, n, 0, &width);
    if (n > width && strchr("<>=^", t[width])) {
        s.fill_to = width;
        s.align = t[width];
        at = width + 1;
    } else if (n && strchr("<>=^", t[0])) {
        s.align = t[0];
        at = 1;
    }
    if (at < n && t[at] && strchr("+- ", t[at])) s.sign = t[at++];
    s.alternate = at < n && t[at] == '#';
    at += s.alternate;
    if (at < n && t[at] == '0') {
        if (!s.fill_to) {
            s.text = &zero;
            s.fill_to = 1;
        }
        if (!s.align) s.align = '=';
        at++;
    }
    s.width = parse_number(r, text, &at, MAX_WIDTH);
    if (at < n && (t[at] == ',' || t[at] == '_')) s.group = t[at++];
    if (at + 1 < n && t[at] == '.') {
        at++;
        s.precision = parse_number(r, text, &at, MAX_PRECISION);
    }
    if (at < n) s.type = t[at++];
    if (at != n) sp_render_fail(r, "invalid format specifier");
    return s;
}

static void format_value(sp_sink *sink, sp_value v, const sp_text *text) {
    sp_render *r = sink->r;
    if (!text->n_bytes) {
        sp_sink_str(sink, v);
        return;
    }
    spec s = parse_spec(r, text);
    bool integer = v.kind == SP_V_INT || (v.kind == SP_V_BOOL && s.type && s.type != 's');
    if (v.kind == SP_V_TEXT || (v.kind == SP_V_BOOL && !integer)) {
        if ((s.type && s.type != 's') || s.align == '=') sp_render_fail(r, "invalid format for a string");
        add_text(sink, &s, sp_value_str(r, v));
    } else if (integer && (!s.type || strchr("dxXobn", s.type))) {
        add_integer(sink, &s, sp_value_as_int(v));
    } else if (integer && s.type == 'c') {
        add_character(sink, &s, v);
    } else if (sp_value_is_number(v) && (!s.type || strchr("eEfFgGn%", s.type))) {
        add_real(sink, &s, sp_value_as_real(v));
    } else {
        sp_render_fail(r, "unsupported format for a value of type %s", sp_value_type(v));
    }
}

static sp_value first_field(sp_render *r, braces *b, const sp_text *name) {
    bool digits = name->n_bytes < 9;
    int64_t index = 0;
    for (size_t i = 0; i < name->n_bytes && digits; i++) {
        digits = name->data[i] >= '0' && name->data[i] <= '9';
        index = index * 10 + (name->data[i] - '0');
    }
    if (digits) {
        bool by_hand = name->n_bytes > 0;
        if ((by_hand && b->i_auto > 0) || (!by_hand && b->by_hand))
            sp_render_fail(r, "cannot switch between automatic and manual field numbering");
        b->by_hand |= by_hand;
        if (!by_hand) index = b->i_auto++;
        if (index >= (int64_t)b->args->n_pos)
            sp_render_fail(r, "Replacement index %lld out of range", (long long)index);
        return b->args->pos[index];
    }
    for (size_t i = 0; i < b->args->n_kw; i++)
        if (sp_text_eq(b->args->kw[i].name, name)) return b->args->kw[i].value;
    sp_render_fail(r, "format() has no argument '%.*s'", (int)sp_min_size(name->n_bytes, 60), name->data);
}

/* "name.attribute[key]". */
static sp_value field_value(sp_render *r, braces *b, const sp_text *field) {
    size_t at = 0;
    while (at < field->n_bytes && field->data[at] != '.' && field->data[at] != '[') at++;
    sp_value v = first_field(r, b, sp_text_slice(r, field, 0, at));
    while (at < field->n_bytes) {
        bool dot = field->data[at++] == '.';
        size_t from = at;
        while (at < field->n_bytes && (dot ? field->data[at] != '.' && field->data[at] != '[' : field->data[at] != ']'))
            at++;
        sp_value part = sp_value_text(sp_text_slice(r, field, from, at));
        if (dot) {
            v = sp_get_attribute(r, v, part.as.text);
            continue;
        }
        if (at++ >= field->n_bytes) sp_render_fail(r, "expected ']' before end of string");
        char *end = NULL;
        char *digits = sp_render_alloc(r, part.as.text->n_bytes + 1, 1);
        memcpy(digits, part.as.text->data, part.as.text->n_bytes);
        long index = strtol(digits, &end, 10);
        v = sp_get_item(r, v, digits[0] >= '0' && digits[0] <= '9' && !*end ? sp_value_int(index) : part);
    }
    return v;
}

/* One replacement field [from, to): "field!r:spec". */
static void replace_field(sp_sink *sink, braces *b, size_t from, size_t to) {
    sp_render *r = sink->r;
    const char *t = b->format->data;
    size_t end = from;
    while (end < to && t[end] != '!' && t[end] != ':') end++;
    sp_value v = field_value(r, b, sp_text_slice(r, b->format, from, end));
    if (end < to && t[end] == '!') {
        char kind = end + 1 < to ? t[end + 1] : 0;
        if (kind != 'r' && kind != 's' && kind != 'a') sp_render_fail(r, "unknown conversion in a format");
        sp_sink text = {.r = r};
        if (kind == 's')
            sp_sink_str(&text, v);
        else
            sp_sink_repr(&text, v);
        v = sp_sink_value(&text);
        end += 2;
    }
    if (end < to && t[end] != ':') sp_render_fail(r, "expected ':' after conversion specifier");
    sp_sink spec_text = {.r = r};
    if (end < to) expand(&spec_text, b, end + 1, to);
    format_value(sink, v, sp_sink_finish(&spec_text));
}

static void expand(sp_sink *sink, braces *b, size_t from, size_t to) {
    const char *t = b->format->data;
    if (++b->depth > 2) sp_render_fail(sink->r, "Max string recursion exceeded");
    for (size_t at = from; at < to; at++) {
        if (t[at] != '{' && t[at] != '}') {
            size_t plain = at;
            while (at + 1 < to && t[at + 1] != '{' && t[at + 1] != '}') at++;
            sp_sink_slice(sink, b->format, plain, at + 1);
        } else if (at + 1 < to && t[at + 1] == t[at]) {
            sp_sink_slice(sink, b->format, at, at + 1);
            at++;
        } else if (t[at] == '}') {
            sp_render_fail(sink->r, "Single '}' encountered in format string");
        } else {
            size_t begin = at + 1;
            int depth = 1;
            while (depth && ++at < to) depth += (t[at] == '{') - (t[at] == '}');
            if (depth) sp_render_fail(sink->r, "expected '}' before end of string");
            replace_field(sink, b, begin, at);
        }
    }
    b->depth--;
}

const sp_text *sp_format_braces(sp_render *r, const sp_text *format, const sp_args *args) {
    sp_sink sink = {.r = r};
    braces b = {.format = format, .args = args};
    expand(&sink, &b, 0, format->n_bytes);
    return sp_sink_finish(&sink);
}
