/* JSON over jansson. Memory is bounded before jansson sees a text, numbers are written as Python writes them. */
#include "util/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/file.h"
#include "util/size.h"
#include "util/utf8.h"

/* Upper bounds of what jansson takes for an object, a list, and a member of either, with the allocator's share
 * (measured on lists of {}, of [], of numbers and of short strings): a text of two bytes a value would else take a
 * hundred times its size. */
enum { OBJECT_BYTES = 240, LIST_BYTES = 140, MEMBER_BYTES = 100, TREE_MAX_BYTES = 128 << 20 };

/* Counts what would become values, without looking whether the text is JSON at all. */
static bool check_tree_bytes(const char *text, size_t n_bytes, const char *what, sp_error *err) {
    size_t tree_bytes = 0;
    bool in_string = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            tree_bytes += c == '{' ? OBJECT_BYTES : c == '[' ? LIST_BYTES : c == ',' || c == ':' ? MEMBER_BYTES : 0;
    }
    return tree_bytes <= TREE_MAX_BYTES ||
           sp_fail(err, SP_ERR_INPUT,
                   "%s: so many values that they would take %zu MB of memory, at most %d MB are allowed", what,
                   tree_bytes >> 20, TREE_MAX_BYTES >> 20);
}

json_t *sp_json_parse_wide(const char *text, size_t n_bytes, const char *what, bool *is_wide, sp_error *err) {
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY };
    json_error_t where;
    if (is_wide) *is_wide = false;
    if (!check_tree_bytes(text, n_bytes, what, err)) return NULL;
    json_t *value = json_loadb(text, n_bytes, FLAGS, &where);
    if (!value && is_wide && json_error_code(&where) == json_error_numeric_overflow) {
        value = json_loadb(text, n_bytes, FLAGS | JSON_DECODE_INT_AS_REAL, &where);
        *is_wide = value != NULL;
    }
    if (!value)
        sp_fail(err, SP_ERR_INPUT, "%s: not JSON at line %d column %d: %s", what, where.line, where.column, where.text);
    return value;
}

json_t *sp_json_parse(const char *text, size_t n_bytes, const char *what, sp_error *err) {
    return sp_json_parse_wide(text, n_bytes, what, NULL, err);
}

json_t *sp_json_text(const char *text) {
    sp_buf utf8 = {0};
    SP_CHECK(sp_utf8_lossy(&utf8, text, strlen(text)));
    json_t *value = json_stringn(utf8.data ? utf8.data : "", utf8.n_bytes);
    sp_buf_deinit(&utf8);
    return value;
}

void sp_json_set_path(json_t *object, const char *key, const char *path) {
    size_t n_bytes = strlen(path);
    char escaped_key[64];
    snprintf(escaped_key, sizeof escaped_key, "%s_escaped", key);
    json_object_set_new(object, key, sp_json_text(path));
    json_object_del(object, escaped_key);
    if (sp_utf8_valid_bytes(path, n_bytes) == n_bytes) return;
    sp_buf escaped = {0};
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)path[i];
        sp_buf_printf(&escaped, c < 0x20 || c >= 0x7f || c == '%' ? "%%%02X" : "%c", c);
    }
    SP_CHECK(!escaped.failed);
    json_object_set_new(object, escaped_key, json_stringn(escaped.data, escaped.n_bytes));
    sp_buf_deinit(&escaped);
}

static int hex_digit(char c) {
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

const char *sp_json_get_path(const json_t *object, const char *key, char *path, size_t room_bytes) {
    char escaped_key[64];
    snprintf(escaped_key, sizeof escaped_key, "%s_escaped", key);
    const char *escaped = json_string_value(json_object_get(object, escaped_key));
    const char *plain = json_string_value(json_object_get(object, key)), *at = escaped ? escaped : plain;
    size_t n = 0;
    for (; at && *at && n + 1 < room_bytes; n++) {
        int high = escaped && *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
        path[n] = (char)(low >= 0 ? high << 4 | low : *at);
        at += low >= 0 ? 3 : 1;
    }
    path[at && *at ? 0 : n] = '\0';
    return path;
}

json_t *sp_json_load(const char *path, size_t max_bytes, sp_error *err) {
    json_t *value = NULL;
    sp_buf text = {0};
    bool is_wide;
    if (sp_file_read(path, max_bytes, &text, err))
        value = sp_json_parse_wide(text.data, text.n_bytes, path, &is_wide, err);
    sp_buf_deinit(&text);
    return value;
}

typedef struct {
    char *bytes;
    size_t n_bytes, room_bytes;
} window;

/* Takes what fits and ends the dump there, so that a value of megabytes costs no more than what is shown of it. */
static int fill_window(const char *text, size_t n_bytes, void *ctx) {
    window *w = ctx;
    size_t n = sp_min_size(n_bytes, w->room_bytes - w->n_bytes);
    memcpy(w->bytes + w->n_bytes, text, n);
    w->n_bytes += n;
    return n == n_bytes ? 0 : -1;
}

const char *sp_json_shown(const json_t *value, char *out, size_t out_bytes) {
    char bytes[512];
    window w = {bytes, 0, sp_min_size(sizeof bytes, out_bytes)}; /* full: too long for out, which then ends in "..." */
    if (!value) return sp_printable("absent", 6, out, out_bytes);
    json_dump_callback(value, fill_window, &w, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    return sp_printable(bytes, w.n_bytes, out, out_bytes);
}

bool sp_json_quote(sp_buf *buf, const char *text, size_t n_bytes) {
    static const char short_escapes[] = "\b\t\n\f\r";
    static const char short_letters[] = "btnfr";
    sp_buf_char(buf, '"');
    size_t plain = 0;
    for (size_t i = 0; i <= n_bytes; i++) {
        unsigned char c = i < n_bytes ? (unsigned char)text[i] : '"';
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        sp_buf_add(buf, text + plain, i - plain);
        plain = i + 1;
        if (i == n_bytes) break;
        const char *hit = c ? strchr(short_escapes, c) : NULL;
        if (c == '"' || c == '\\')
            sp_buf_printf(buf, "\\%c", c);
        else if (hit)
            sp_buf_printf(buf, "\\%c", short_letters[hit - short_escapes]);
        else
            sp_buf_printf(buf, "\\u%04x", c);
    }
    return sp_buf_char(buf, '"') && !buf->failed;
}

bool sp_json_int32s(sp_buf *buf, const int32_t *values, size_t n) {
    sp_buf_char(buf, '[');
    for (size_t i = 0; i < n; i++) sp_buf_printf(buf, i ? ",%d" : "%d", (int)values[i]);
    return sp_buf_char(buf, ']') && !buf->failed;
}

bool sp_json_real(sp_buf *buf, double value) {
    if (isnan(value)) return sp_buf_text(buf, "nan");
    if (isinf(value)) return sp_buf_text(buf, value < 0 ? "-inf" : "inf");
    char digits[40];
    int precision = 1;
    do snprintf(digits, sizeof digits, "%.*e", precision - 1, value);
    while (strtod(digits, NULL) != value && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    /* Python: 1e-05, 1.5e+16: no ".0", two exponent digits at least */
    if (exponent < -4 || exponent >= 16) return sp_buf_text(buf, digits);
    int decimals = precision - 1 - exponent;
    return sp_buf_printf(buf, "%.*f", decimals > 1 ? decimals : 1, value);
}
