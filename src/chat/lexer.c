/* Text to tokens. Outside of tags text is data, cut as trim_blocks, lstrip_blocks and the signs of the tags say
 * ("{%-", "+%}"); inside a tag the longest operator wins, and the tag's end counts only when brackets are balanced.
 * The order of the rules decides what odd texts mean; it is Jinja's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/parse.h"
#include "chat/text.h"
#include "util/size.h"

enum { MAX_BRACKETS = 400 };

typedef struct {
    sp_parse *p;
    const char *s; /* [n] newlines are \n */
    size_t n;
    size_t at;
    int line;
    char brackets[MAX_BRACKETS]; /* what closes each open one */
    size_t n_brackets;
} lexer;

static const struct {
    const char *text;
    sp_token_kind kind;
} operators[] = {
    /* two letters first */
    {"//", SP_T_FLOORDIV}, {"**", SP_T_POW},   {"==", SP_T_EQ},      {"!=", SP_T_NE},      {">=", SP_T_GE},
    {"<=", SP_T_LE},       {"+", SP_T_ADD},    {"-", SP_T_SUB},      {"/", SP_T_DIV},      {"*", SP_T_MUL},
    {"%", SP_T_MOD},       {"~", SP_T_TILDE},  {"[", SP_T_LBRACKET}, {"]", SP_T_RBRACKET}, {"(", SP_T_LPAREN},
    {")", SP_T_RPAREN},    {"{", SP_T_LBRACE}, {"}", SP_T_RBRACE},   {">", SP_T_GT},       {"<", SP_T_LT},
    {"=", SP_T_ASSIGN},    {".", SP_T_DOT},    {":", SP_T_COLON},    {"|", SP_T_PIPE},     {",", SP_T_COMMA},
    {";", SP_T_SEMICOLON},
};

static bool looking_at(const lexer *lx, size_t at, const char *text) {
    size_t n = strlen(text);
    return lx->n - at >= n && memcmp(lx->s + at, text, n) == 0;
}

static size_t skip_space(const lexer *lx, size_t at) {
    while (at < lx->n) {
        size_t width;
        if (!sp_python_is_space(sp_text_char(lx->s, lx->n, at, &width))) break;
        at += width;
    }
    return at;
}

/* Moves to `to`, counting lines. */
static void advance(lexer *lx, size_t to) {
    for (; lx->at < to; lx->at++) lx->line += lx->s[lx->at] == '\n';
}

static sp_token *add_token(lexer *lx, sp_token_kind kind) {
    sp_parse *p = lx->p;
    if (p->n_tokens == p->room_tokens) {
        size_t room = sp_max_size(64, p->room_tokens * 2);
        sp_token *tokens = sp_parse_alloc(p, room, sizeof *tokens);
        if (p->n_tokens) memcpy(tokens, p->tokens, p->n_tokens * sizeof *tokens);
        p->tokens = tokens;
        p->room_tokens = room;
    }
    sp_token *token = &p->tokens[p->n_tokens++];
    *token = (sp_token){.kind = kind, .line = lx->line};
    return token;
}

static const sp_text *make_text(lexer *lx, const char *data, size_t n_bytes) {
    return sp_text_borrow(&lx->p->tpl->arena, data, n_bytes);
}

/* Data [at, end) before a tag with this sign; `lstrip`: white space alone on the tag's line goes. */
static void add_data(lexer *lx, size_t end, char sign, bool lstrip) {
    size_t from = lx->at, to = end;
    if (sign == '-') {
        size_t left = 0;
        sp_text text = {.data = lx->s + from, .n_bytes = to - from};
        sp_text_strip_range(&text, NULL, false, true, &left, &to);
        to += from;
    } else if (sign != '+' && lstrip) {
        size_t line = to;
        while (line > from && lx->s[line - 1] != '\n') line--;
        bool at_start = line > from || from == 0 || lx->s[from - 1] == '\n';
        if (at_start && skip_space(&(lexer){.s = lx->s, .n = end}, line) == end) to = line;
    }
    if (to > from) add_token(lx, SP_T_DATA)->text = make_text(lx, lx->s + from, to - from);
    advance(lx, end);
}

/* The end of a tag at `at`, as "%}": where the text goes on, or 0 when there is none. */
static size_t tag_end(const lexer *lx, size_t at, const char *end, bool plus, bool trim) {
    if (plus && at < lx->n && lx->s[at] == '+' && looking_at(lx, at + 1, end)) return at + 3;
    if (at < lx->n && lx->s[at] == '-' && looking_at(lx, at + 1, end)) return skip_space(lx, at + 3);
    if (!looking_at(lx, at, end)) return 0;
    return at + 2 < lx->n && trim && lx->s[at + 2] == '\n' ? at + 3 : at + 2;
}

static char sign_at(const lexer *lx, size_t at) {
    return at < lx->n && (lx->s[at] == '-' || lx->s[at] == '+') ? lx->s[at] : 0;
}

/* "{%" at `at` begins a raw block: where its text begins, or 0. */
static size_t raw_begin(const lexer *lx, size_t at) {
    at += 2;
    if (sign_at(lx, at)) at++;
    at = skip_space(lx, at);
    if (!looking_at(lx, at, "raw")) return 0;
    return tag_end(lx, skip_space(lx, at + 3), "%}", false, false);
}

static void lex_raw(lexer *lx, size_t begin) {
    int line = lx->line;
    advance(lx, begin);
    for (size_t at = lx->at; at < lx->n; at++) {
        if (!looking_at(lx, at, "{%")) continue;
        char sign = sign_at(lx, at + 2);
        size_t name = skip_space(lx, at + 2 + (sign != 0));
        if (!looking_at(lx, name, "endraw")) continue;
        size_t end = tag_end(lx, skip_space(lx, name + 6), "%}", true, true);
        if (!end) continue;
        add_data(lx, at, sign, true);
        advance(lx, end);
        return;
    }
    sp_parse_fail(lx->p, line, "missing end of raw directive");
}

static void lex_comment(lexer *lx) {
    int line = lx->line;
    size_t at = lx->at + 2 + (sign_at(lx, lx->at + 2) != 0);
    for (; at < lx->n; at++) {
        size_t end = tag_end(lx, at, "#}", true, true);
        if (!end) continue;
        advance(lx, end);
        return;
    }
    sp_parse_fail(lx->p, line, "missing end of comment tag");
}

static bool is_digit(char c, int base) {
    if (base == 16) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* Digits of the base with single underscores between them; `lead`: one may come first. Returns their end. */
static size_t skip_digits(const lexer *lx, size_t at, int base, bool lead) {
    size_t end = at;
    while (at < lx->n) {
        if (lx->s[at] == '_' && (lead || end > 0) && at + 1 < lx->n && is_digit(lx->s[at + 1], base)) at++;
        if (!is_digit(lx->s[at], base)) break;
        lead = true;
        end = ++at;
    }
    return at;
}

/* A number without its underscores, NUL-terminated. */
static char *number_text(lexer *lx, size_t from, size_t to) {
    char *text = sp_parse_alloc(lx->p, to - from + 1, 1);
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        if (lx->s[i] != '_') text[n++] = lx->s[i];
    return text;
}

static bool lex_real(lexer *lx) {
    size_t at = lx->at;
    if (at > 0 && lx->s[at - 1] == '.') return false;
    size_t end = skip_digits(lx, at, 10, false);
    if (end == at) return false;
    bool real = false;
    if (end + 1 < lx->n && lx->s[end] == '.' && is_digit(lx->s[end + 1], 10)) {
        end = skip_digits(lx, end + 1, 10, false);
        real = true;
    }
    if (end < lx->n && (lx->s[end] | 32) == 'e') {
        size_t digits = end + 1;
        if (digits < lx->n && (lx->s[digits] == '+' || lx->s[digits] == '-')) digits++;
        size_t exponent = skip_digits(lx, digits, 10, false);
        if (exponent > digits) {
            end = exponent;
            real = true;
        }
    }
    if (!real) return false;
    double value = strtod(number_text(lx, at, end), NULL);
    add_token(lx, SP_T_REAL)->number = sp_value_real(value);
    advance(lx, end);
    return true;
}

static bool lex_integer(lexer *lx) {
    size_t at = lx->at, end;
    char c = lx->s[at];
    if (!is_digit(c, 10)) return false;
    char kind = at + 1 < lx->n ? (char)(lx->s[at + 1] | 32) : 0;
    int base = c != '0' ? 10 : kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    size_t digits = at + (base == 10 ? 0 : 2);
    end = skip_digits(lx, digits, c == '0' && base == 10 ? 1 : base, base != 10);
    if (end == digits) { /* "0x" without digits: a zero, then a name */
        base = 10;
        digits = at;
        end = at + 1;
    }
    errno = 0;
    long long value = strtoll(number_text(lx, digits, end), NULL, base);
    if (errno) sp_parse_fail(lx->p, lx->line, "integer beyond 64 bits");
    add_token(lx, SP_T_INTEGER)->number = sp_value_int(value);
    advance(lx, end);
    return true;
}

static bool lex_name(lexer *lx) {
    size_t end = lx->at;
    while (end < lx->n) {
        size_t width;
        if (!sp_python_is_word(sp_text_char(lx->s, lx->n, end, &width))) break;
        end += width;
    }
    if (end == lx->at) return false;
    if (is_digit(lx->s[lx->at], 10)) sp_parse_fail(lx->p, lx->line, "invalid character in identifier");
    add_token(lx, SP_T_NAME)->text = make_text(lx, lx->s + lx->at, end - lx->at);
    advance(lx, end);
    return true;
}

/* n hexadecimal digits behind the escape letter at *at, which is moved past them. */
static int32_t hex_escape(lexer *lx, size_t *at, size_t end, int n_digits) {
    uint32_t c = 0;
    for (int i = 1; i <= n_digits; i++) {
        char digit = *at + (size_t)i < end ? lx->s[*at + (size_t)i] : 0;
        if (!is_digit(digit, 16)) sp_parse_fail(lx->p, lx->line, "truncated \\%c escape in a string", lx->s[*at]);
        c = c * 16 + (uint32_t)(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        sp_parse_fail(lx->p, lx->line, "escape of U+%04X in a string is no character", c);
    *at += (size_t)n_digits + 1;
    return (int32_t)c;
}

/* The escape whose letter is at *at, written to out (at most 11 bytes); returns how many. */
static size_t lex_escape(lexer *lx, size_t *at, size_t end, char out[12]) {
    static const char letters[] = "\\'\"abfnrtv";
    static const char meanings[] = "\\'\"\a\b\f\n\r\t\v";
    char c = lx->s[*at];
    const char *hit = c ? strchr(letters, c) : NULL;
    if (hit) {
        out[0] = meanings[hit - letters];
        ++*at;
        return 1;
    }
    if (c == '\n') {
        ++*at;
        return 0;
    }
    if (is_digit(c, 8)) {
        int32_t value = 0;
        for (int i = 0; i < 3 && *at < end && is_digit(lx->s[*at], 8); i++) value = value * 8 + (lx->s[(*at)++] - '0');
        return sp_text_encode(value, out);
    }
    if (c == 'x') return sp_text_encode(hex_escape(lx, at, end, 2), out);
    if (c == 'u') return sp_text_encode(hex_escape(lx, at, end, 4), out);
    if (c == 'U') return sp_text_encode(hex_escape(lx, at, end, 8), out);
    if (c == 'N') sp_parse_fail(lx->p, lx->line, "\\N escapes in strings are not supported");
    out[0] = '\\';
    if (!((unsigned char)c & 0x80)) return 1;
    /* Jinja escapes what is not ASCII before it reads the escapes, so that here two backslashes become one. */
    size_t width;
    unsigned code = (unsigned)sp_text_char(lx->s, end, *at, &width);
    *at += width;
    return 1 + (size_t)snprintf(out + 1, 11, code < 0x100 ? "x%02x" : code < 0x10000 ? "u%04x" : "U%08x", code);
}

static bool lex_string(lexer *lx) {
    char quote = lx->s[lx->at];
    if (quote != '\'' && quote != '"') return false;
    size_t from = lx->at + 1, end = from;
    while (end < lx->n && lx->s[end] != quote) end += lx->s[end] == '\\' ? 2 : 1;
    if (end >= lx->n) return false;
    size_t room = 0; /* an escape never grows beyond 11 bytes for 3 */
    if (!sp_mul_size(end - from, 4, &room)) return false;
    char *data = sp_parse_alloc(lx->p, memchr(lx->s + from, '\\', end - from) ? room + 12 : end - from + 1, 1);
    size_t n = 0;
    for (size_t at = from; at < end;) {
        if (lx->s[at] != '\\') {
            data[n++] = lx->s[at++];
            continue;
        }
        at++;
        char out[12];
        size_t n_out = lex_escape(lx, &at, end, out);
        memcpy(data + n, out, n_out);
        n += n_out;
    }
    add_token(lx, SP_T_STRING)->text = make_text(lx, data, n);
    advance(lx, end + 1);
    return true;
}

static void lex_operator(lexer *lx) {
    static const char openers[] = "{([";
    static const char closers[] = "})]";
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!looking_at(lx, lx->at, operators[i].text)) continue;
        char c = operators[i].text[0];
        const char *open = strchr(openers, c);
        if (open) {
            if (lx->n_brackets == MAX_BRACKETS) sp_parse_fail(lx->p, lx->line, "brackets nested too deeply");
            lx->brackets[lx->n_brackets++] = closers[open - openers];
        } else if (strchr(closers, c)) {
            if (lx->n_brackets == 0) sp_parse_fail(lx->p, lx->line, "unexpected '%c'", c);
            char want = lx->brackets[--lx->n_brackets];
            if (want != c) sp_parse_fail(lx->p, lx->line, "unexpected '%c', expected '%c'", c, want);
        }
        add_token(lx, operators[i].kind);
        advance(lx, lx->at + strlen(operators[i].text));
        return;
    }
    char quoted[16];
    size_t width;
    sp_text_char(lx->s, lx->n, lx->at, &width);
    sp_parse_fail(lx->p, lx->line, "unexpected character '%s'",
                  sp_printable(lx->s + lx->at, width, quoted, sizeof quoted));
}

/* The inside of a block (or variable) tag, its end included. */
static void lex_tag(lexer *lx, bool block) {
    lx->n_brackets = 0;
    while (lx->at < lx->n) {
        size_t end = lx->n_brackets ? 0 : tag_end(lx, lx->at, block ? "%}" : "}}", block, block);
        if (end) {
            add_token(lx, block ? SP_T_BLOCK_END : SP_T_VARIABLE_END);
            advance(lx, end);
            return;
        }
        size_t next = skip_space(lx, lx->at);
        if (next > lx->at) {
            advance(lx, next);
            continue;
        }
        if (!lex_real(lx) && !lex_integer(lx) && !lex_name(lx) && !lex_string(lx)) lex_operator(lx);
    }
}

/* Where the next tag begins, or n. */
static size_t find_tag(const lexer *lx) {
    size_t at = lx->at;
    for (; at + 1 < lx->n; at++) {
        char c = lx->s[at + 1];
        if (lx->s[at] == '{' && (c == '{' || c == '%' || c == '#')) return at;
    }
    return lx->n;
}

static void lex_root(lexer *lx) {
    while (lx->at < lx->n) {
        size_t tag = find_tag(lx);
        if (tag == lx->n) {
            add_data(lx, tag, '+', false);
            return;
        }
        char kind = lx->s[tag + 1];
        char sign = sign_at(lx, tag + 2);
        add_data(lx, tag, sign, kind != '{');
        size_t raw = kind == '%' ? raw_begin(lx, tag) : 0;
        if (raw) {
            lex_raw(lx, raw);
        } else if (kind == '#') {
            lex_comment(lx);
        } else {
            add_token(lx, kind == '%' ? SP_T_BLOCK_BEGIN : SP_T_VARIABLE_BEGIN);
            advance(lx, tag + 2 + (sign != 0));
            lex_tag(lx, kind == '%');
        }
    }
}

/* A copy with \r\n and \r as \n, and without one newline at the end. */
static const char *normalize(sp_parse *p, const char *text, size_t n_bytes, size_t *n_out) {
    char *copy = sp_parse_alloc(p, n_bytes + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n') continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    *n_out = n;
    return copy;
}

void sp_lexer_run(sp_parse *p, const char *text, size_t n_bytes) {
    lexer lx = {.p = p, .line = 1};
    lx.s = normalize(p, text, n_bytes, &lx.n);
    lex_root(&lx);
    add_token(&lx, SP_T_END);
}
