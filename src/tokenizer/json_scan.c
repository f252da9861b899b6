/* The two big parts of a tokenizer.json, read in place.
 *
 * model.vocab and model.merges are nearly the whole file (up to 600,000 strings). As JSON values they would take ten
 * times their text, so they are cut out and read by a cursor; the rest goes to the JSON library, which judges it. The
 * cut only follows strings and brackets: whatever it accepts wrongly, the library or the cursor refuses. */
#include "tokenizer/json_scan.h"

#include <string.h>

#include "tokenizer/unicode.h"

enum { MAX_DEPTH = 2000 };

static void skip_space(sp_scan *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t')) c->at++;
}

bool sp_scan_take(sp_scan *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

/* Moves past a string whose opening quote is next. */
static bool skip_string(sp_scan *c) {
    for (c->at++; c->at < c->end; c->at++) {
        if (*c->at == '\\') {
            c->at++;
        } else if (*c->at == '"') {
            c->at++;
            return true;
        }
    }
    c->at = c->end;
    return false;
}

/* Moves past a value: to the comma or bracket behind it. */
static bool skip_value(sp_scan *c) {
    size_t depth = 0;
    skip_space(c);
    while (c->at < c->end) {
        char ch = *c->at;
        if (ch == '"') {
            if (!skip_string(c)) return false;
            if (depth == 0) return true;
            continue;
        }
        if (ch == '{' || ch == '[') {
            if (++depth > MAX_DEPTH) return false;
        } else if (ch == '}' || ch == ']') {
            if (depth == 0) return true;
            if (--depth == 0) {
                c->at++;
                return true;
            }
        } else if (ch == ',' && depth == 0) {
            return true;
        }
        c->at++;
    }
    return false;
}

/* Enters the value of the next key: *key is its raw text. False at the object's end or when it is not one. */
static bool next_key(sp_scan *c, const char **key, size_t *key_bytes) {
    skip_space(c);
    if (c->at == c->end || *c->at != '"') return false;
    *key = c->at + 1;
    if (!skip_string(c)) return false;
    *key_bytes = (size_t)(c->at - *key) - 1;
    return sp_scan_take(c, ':');
}

static bool is_key(const char *key, size_t key_bytes, const char *name) {
    return key_bytes == strlen(name) && memcmp(key, name, key_bytes) == 0;
}

/* Walks the members of the model object, noting where the two big ones lie. */
static void find_parts(sp_scan *c, sp_scan_cut *cut) {
    const char *key;
    size_t key_bytes;
    if (!sp_scan_take(c, '{')) return;
    while (next_key(c, &key, &key_bytes)) {
        skip_space(c);
        const char *begin = c->at;
        if (!skip_value(c)) return;
        if (is_key(key, key_bytes, "vocab") && !cut->vocab && *begin == '{') {
            cut->vocab = begin;
            cut->vocab_bytes = (size_t)(c->at - begin);
        } else if (is_key(key, key_bytes, "merges") && !cut->merges && *begin == '[') {
            cut->merges = begin;
            cut->merges_bytes = (size_t)(c->at - begin);
        }
        if (!sp_scan_take(c, ',')) return;
    }
}

bool sp_scan_cut_model(const char *text, size_t n_bytes, sp_scan_cut *cut, sp_buf *rest, sp_error *err) {
    sp_scan c = {text, text + n_bytes};
    const char *key;
    size_t key_bytes;
    *cut = (sp_scan_cut){0};
    if (sp_scan_take(&c, '{')) {
        while (next_key(&c, &key, &key_bytes)) {
            if (is_key(key, key_bytes, "model")) {
                find_parts(&c, cut);
                break;
            }
            if (!skip_value(&c) || !sp_scan_take(&c, ',')) break;
        }
    }
    bool vocab_first = cut->vocab < cut->merges;
    const char *begins[2] = {vocab_first ? cut->vocab : cut->merges, vocab_first ? cut->merges : cut->vocab};
    const char *at = text;
    for (int i = 0; i < 2; i++) {
        if (!begins[i]) continue;
        sp_buf_add(rest, at, (size_t)(begins[i] - at));
        sp_buf_text(rest, "null");
        at = begins[i] + (begins[i] == cut->vocab ? cut->vocab_bytes : cut->merges_bytes);
    }
    sp_buf_add(rest, at, (size_t)(text + n_bytes - at));
    if (rest->failed)
        return sp_fail(err, SP_ERR_INPUT, "more than %zu bytes beside model.vocab and model.merges", rest->limit_bytes);
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hex digits of a \u escape, or -1. */
static int32_t take_unit(sp_scan *c) {
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = c->at < c->end ? hex_digit(*c->at) : -1;
        if (digit < 0) return -1;
        unit = unit * 16 + digit;
        c->at++;
    }
    return unit;
}

/* What follows a backslash; appended to *out. */
static bool take_escape(sp_scan *c, sp_buf *out) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    if (c->at == c->end) return false;
    char letter = *c->at++;
    if (letter != 'u') {
        const char *hit = letter ? strchr(letters, letter) : NULL;
        return hit && sp_buf_char(out, meanings[hit - letters]);
    }
    int32_t unit = take_unit(c);
    if (unit >= 0xd800 && unit < 0xdc00) {
        if (c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u') return false;
        c->at += 2;
        int32_t low = take_unit(c);
        if (low < 0xdc00 || low >= 0xe000) return false;
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    } else if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000)) {
        return false;
    }
    char bytes[4];
    return sp_buf_add(out, bytes, sp_char_put((uint32_t)unit, bytes));
}

bool sp_scan_take_string(sp_scan *c, sp_buf *out, sp_error *err) {
    size_t before = out->n_bytes;
    if (!sp_scan_take(c, '"')) return sp_fail(err, SP_ERR_INPUT, "a string was expected");
    for (;;) {
        const char *plain = c->at;
        while (c->at < c->end && *c->at != '"' && *c->at != '\\' && (unsigned char)*c->at >= 0x20) c->at++;
        if (!sp_buf_add(out, plain, (size_t)(c->at - plain)))
            return sp_fail(err, SP_ERR_MEMORY, "no memory for a string");
        if (c->at == c->end) return sp_fail(err, SP_ERR_INPUT, "a string without an end");
        if (*c->at == '"') break;
        if (*c->at++ != '\\') return sp_fail(err, SP_ERR_INPUT, "a control character in a string");
        if (!take_escape(c, out)) return sp_fail(err, SP_ERR_INPUT, "a bad escape in a string");
    }
    c->at++;
    if (sp_utf8_valid_bytes(out->data + before, out->n_bytes - before) != out->n_bytes - before)
        return sp_fail(err, SP_ERR_INPUT, "a string that is not UTF-8");
    return true;
}

bool sp_scan_take_integer(sp_scan *c, int64_t *value, sp_error *err) {
    skip_space(c);
    const char *begin = c->at;
    int64_t sum = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - begin < 18) sum = sum * 10 + (*c->at++ - '0');
    bool more = c->at < c->end && ((*c->at >= '0' && *c->at <= '9') || *c->at == '.' || *c->at == 'e' || *c->at == 'E');
    if (c->at == begin || more || (*begin == '0' && c->at - begin > 1)) {
        char shown[32];
        size_t left = (size_t)(c->end - begin);
        return sp_fail(err, SP_ERR_INPUT, "'%s' where a non-negative integer was expected",
                       sp_printable(begin, left < 20 ? left : 20, shown, sizeof shown));
    }
    *value = sum;
    return true;
}
