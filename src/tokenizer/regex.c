/* Regular expressions: Oniguruma's default syntax on PCRE2, with bounds.
 *
 * Patterns of tokenizer files are written for Oniguruma. What both engines read alike goes through; what they read
 * differently is translated, or refused by name, so that a pattern never silently means something else. Character
 * properties of different Unicode versions are evened out by the caller's shadow text (unicode.c).
 *
 * A hostile pattern or text must not hold a row up: backtracking is bounded by PCRE2's match limit, memory by its heap
 * limit, and scanning by searching in windows of start positions, with the call's processor time looked at in between
 * (a search that fails at every start is quadratic, and no limit of PCRE2 counts that). */
#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"
#include "util/buf.h"
#include "util/clock.h"
#include "util/size.h"

enum {
    MAX_PATTERN_BYTES = 16384,
    JIT_STACK_BYTES = 64 << 20,
    HEAP_LIMIT_KB = 64 << 10,
    CHECK_EVERY = 16,         /* matches between two looks at the clock */
    WINDOW_WORK = 64 << 20,   /* starts x bytes left in one search: about 0.1 s for a pattern that fails slowly */
    MAX_WINDOW_BYTES = 65536, /* starts in one search */
    NS_PER_BYTE = 250,        /* allowed time of a call: 1 s + this */
};

struct sp_regex {
    pcre2_code *code;
    bool jit;
};
struct sp_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* made when a match outgrows the default one */
    uint64_t limit_ns;      /* processor time of this thread at which the call has taken too long */
    unsigned n_unchecked;
};

/* ---- translation ---- */

typedef struct {
    const char *at, *end;
    sp_buf *out;
    sp_error *err;
    bool in_class;
} translation;

static bool refuse(translation *tr, const char *from, size_t n_bytes, const char *why) {
    char shown[40];
    size_t left = (size_t)(tr->end - from);
    return sp_fail(tr->err, SP_ERR_SUPPORT, "regular expression: '%s' %s",
                   sp_printable(from, n_bytes < left ? n_bytes : left, shown, sizeof shown), why);
}

/* \p{Name}, \P{Name}, \p{^Name}: general categories are alike; scripts need PCRE2's name for "this script only". */
static bool translate_property(translation *tr) {
    const char *begin = tr->at; /* at the backslash */
    bool negated = begin[1] == 'P';
    const char *name = begin + 3;
    if (tr->end - begin < 4 || begin[2] != '{') return refuse(tr, begin, 3, "is not supported");
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    const char *close = memchr(name, '}', (size_t)(tr->end - name));
    if (!close || close == name || close - name > 40) return refuse(tr, begin, 8, "is not a property");
    for (const char *s = name; s < close; s++)
        if (!((*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z') || *s == '_' || *s == '&'))
            return refuse(tr, begin, (size_t)(close + 1 - begin), "is not supported");
    tr->at = close + 1;
    const char *kind = close - name <= 2 ? "" : "sc:";
    return sp_buf_printf(tr->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', kind, (int)(close - name), name);
}

static bool translate_escape(translation *tr) {
    const char *begin = tr->at;
    if (tr->end - begin < 2) return refuse(tr, begin, 1, "at the end");
    char letter = begin[1];
    if (letter == 'p' || letter == 'P') return translate_property(tr);
    if (letter == 'u') { /* \uHHHH */
        for (int i = 2; i < 6; i++)
            if (tr->end - begin < 6 || !strchr("0123456789abcdefABCDEF", begin[i]) || !begin[i])
                return refuse(tr, begin, 6, "is not \\uHHHH");
        tr->at += 6;
        return sp_buf_printf(tr->out, "\\x{%.4s}", begin + 2);
    }
    bool alphanumeric = (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
                        (letter >= 'a' && letter <= 'z') || (unsigned char)letter >= 0x80 || letter == '\0';
    bool alike = strchr(tr->in_class ? "sSdDnrtfae" : "sSdDnrtfaeAzZ", letter) != NULL && letter;
    if (letter == 'x' && tr->end - begin > 2 && begin[2] == '{') alike = true; /* \x{H..} */
    if (alphanumeric && !alike) return refuse(tr, begin, 2, "is not supported");
    tr->at += 2;
    return sp_buf_add(tr->out, begin, 2);
}

/* An opening parenthesis outside a class. */
static bool translate_group(translation *tr, bool at_start) {
    static const char *const alike[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    const char *begin = tr->at;
    size_t left = (size_t)(tr->end - begin);
    size_t n_bytes = 1;
    if (left >= 2 && begin[1] == '*') return refuse(tr, begin, 2, "is not supported");
    if (left >= 2 && begin[1] == '?') {
        n_bytes = 0;
        for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++)
            if (left >= strlen(alike[i]) && memcmp(begin, alike[i], strlen(alike[i])) == 0) n_bytes = strlen(alike[i]);
        /* An option that holds from here on covers the rest of the group, alternatives included, only at the start. */
        if (at_start && left >= 4 && memcmp(begin, "(?i)", 4) == 0) n_bytes = 4;
        if (n_bytes == 0) return refuse(tr, begin, 4, "is not supported");
    }
    tr->at += n_bytes;
    return sp_buf_add(tr->out, begin, n_bytes);
}

/* {n}, {n,}, {n,m}: alike, but what follows is not: "+" would be possessive, "?" lazy, only in PCRE2. Any other brace
 * is a plain character, except Oniguruma's {,m}. */
static bool translate_brace(translation *tr) {
    const char *s = tr->at + 1;
    while (s < tr->end && *s >= '0' && *s <= '9') s++;
    bool number = s > tr->at + 1;
    bool comma = s < tr->end && *s == ',';
    if (comma) s++;
    while (comma && s < tr->end && *s >= '0' && *s <= '9') s++;
    bool closed = s < tr->end && *s == '}';
    if (closed && !number && comma) return refuse(tr, tr->at, 4, "is not supported");
    if (!closed || !number) {
        tr->at++;
        return sp_buf_text(tr->out, "\\{");
    }
    s++;
    if (s < tr->end && (*s == '+' || (*s == '?' && !comma)))
        return refuse(tr, tr->at, (size_t)(s + 1 - tr->at), "is not supported");
    bool added = sp_buf_add(tr->out, tr->at, (size_t)(s - tr->at));
    tr->at = s;
    return added;
}

static bool translate_in_class(translation *tr, bool first) {
    char c = *tr->at;
    if (c == '\\') return translate_escape(tr);
    if (c == '[') return refuse(tr, tr->at, 8, "in a class is not supported");
    if (c == '&' && tr->end - tr->at > 1 && tr->at[1] == '&')
        return refuse(tr, tr->at, 2, "in a class is not supported");
    if (c == ']') {
        if (first) return refuse(tr, tr->at, 1, "at the start of a class is not supported");
        tr->in_class = false;
    }
    tr->at++;
    return sp_buf_char(tr->out, c);
}

static bool translate(const char *pattern, size_t n_bytes, sp_buf *out, sp_error *err) {
    translation tr = {pattern, pattern + n_bytes, out, err, false};
    bool class_start = false;
    while (tr.at < tr.end) {
        bool ok;
        if (tr.in_class) {
            ok = translate_in_class(&tr, class_start);
            class_start = false;
        } else if (*tr.at == '\\') {
            ok = translate_escape(&tr);
        } else if (*tr.at == '(') {
            ok = translate_group(&tr, tr.at == pattern);
        } else if (*tr.at == '{') {
            ok = translate_brace(&tr);
        } else if (*tr.at == '[') {
            size_t head = tr.end - tr.at > 1 && tr.at[1] == '^' ? 2 : 1;
            ok = sp_buf_add(out, tr.at, head);
            tr.at += head;
            tr.in_class = class_start = true;
        } else {
            ok = sp_buf_char(out, *tr.at++);
        }
        if (!ok) return sp_fail(err, SP_ERR_MEMORY, "no memory for a regular expression");
    }
    return true;
}

sp_regex *sp_regex_new(const char *pattern, size_t n_bytes, sp_error *err) {
    char shown[96];
    sp_printable(pattern, n_bytes, shown, sizeof shown);
    sp_buf text = {0};
    sp_regex *r = calloc(1, sizeof *r);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    size_t at = 0;
    if (!r || !context) {
        sp_fail(err, SP_ERR_MEMORY, "no memory for a regular expression");
        goto out;
    }
    if (n_bytes > MAX_PATTERN_BYTES) {
        sp_fail(err, SP_ERR_INPUT, "regular expression '%s' has %zu bytes, want at most %d", shown, n_bytes,
                MAX_PATTERN_BYTES);
        goto out;
    }
    if (!translate(pattern, n_bytes, &text, err)) goto out;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.n_bytes,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, context);
    if (!r->code) {
        char why[160] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        sp_fail(err, SP_ERR_INPUT, "regular expression '%s': %s", shown, why);
        goto out;
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0; /* absent on some systems: the interpreter serves */
out:
    if (err->code != SP_OK) {
        sp_regex_free(r);
        r = NULL;
    }
    pcre2_compile_context_free(context);
    sp_buf_deinit(&text);
    return r;
}

void sp_regex_free(sp_regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    free(r);
}

/* ---- matching ---- */

sp_matcher *sp_matcher_new(size_t n_bytes, sp_error *err) {
    sp_matcher *m = calloc(1, sizeof *m);
    if (m) m->data = pcre2_match_data_create(1, NULL);
    if (m) m->context = pcre2_match_context_create(NULL);
    if (!m || !m->data || !m->context) {
        sp_matcher_free(m);
        sp_fail(err, SP_ERR_MEMORY, "no memory for matching");
        return NULL;
    }
    /* The interpreter counts each step back of a run against the limit, so it grows with the text. */
    pcre2_set_match_limit(m->context, (uint32_t)sp_min_size(10000000 + 8 * n_bytes, UINT32_MAX));
    pcre2_set_heap_limit(m->context, HEAP_LIMIT_KB);
    m->limit_ns = sp_clock_cpu_ns() + 1000000000u + (uint64_t)n_bytes * NS_PER_BYTE;
    return m;
}

void sp_matcher_free(sp_matcher *m) {
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

static bool in_time(sp_matcher *m, sp_error *err) {
    m->n_unchecked = 0;
    if (sp_clock_cpu_ns() <= m->limit_ns) return true;
    return sp_fail(err, SP_ERR_INPUT, "a regular expression of the tokenizer takes too long on this text");
}

static int match_once(const sp_regex *r, sp_matcher *m, const char *text, size_t n_bytes, size_t from) {
    if (r->jit) return pcre2_jit_match(r->code, (PCRE2_SPTR)text, n_bytes, from, 0, m->data, m->context);
    return pcre2_match(r->code, (PCRE2_SPTR)text, n_bytes, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
}

/* The first match at or after `from`: 1, 0 or -1. */
static int regex_find(const sp_regex *r, sp_matcher *m, const char *text, size_t n_bytes, size_t from, size_t *begin,
                      size_t *end, sp_error *err) {
    if (++m->n_unchecked >= CHECK_EVERY && !in_time(m, err)) return -1;
    for (;;) {
        size_t left = n_bytes - from;
        size_t window = sp_min_size(WINDOW_WORK / (left + 1) + 1, MAX_WINDOW_BYTES);
        pcre2_set_offset_limit(m->context, left > window ? from + window : PCRE2_UNSET);
        int rc = match_once(r, m, text, n_bytes, from);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
            m->stack = pcre2_jit_stack_create(JIT_STACK_BYTES / 64, JIT_STACK_BYTES, NULL);
            pcre2_jit_stack_assign(m->context, NULL, m->stack);
            if (m->stack) continue;
        }
        if (rc >= 0) {
            PCRE2_SIZE *where = pcre2_get_ovector_pointer(m->data);
            *begin = where[0];
            *end = where[1];
            return 1;
        }
        if (rc != PCRE2_ERROR_NOMATCH) {
            char why[120] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
            sp_fail(err, SP_ERR_INPUT, "a regular expression of the tokenizer fails on this text: %s", why);
            return -1;
        }
        if (left <= window) return 0;
        from += window + 1;
        while (from < n_bytes && sp_utf8_continues(text[from])) from++;
        if (!in_time(m, err)) return -1;
    }
}

static int literal_find(const sp_pattern *p, const char *text, size_t n_bytes, size_t from, size_t *begin,
                        size_t *end) {
    const char *hit = memmem(text + from, n_bytes - from, p->literal, p->n_bytes);
    if (!hit) return 0;
    *begin = (size_t)(hit - text);
    *end = *begin + p->n_bytes;
    return 1;
}

static int numeric_find(const char *text, size_t n_bytes, size_t from, size_t *begin, size_t *end) {
    while (from < n_bytes) {
        uint32_t c;
        size_t step = sp_char_next(text + from, &c);
        if (sp_char_is_numeric(c)) {
            *begin = from;
            *end = from + step;
            return 1;
        }
        from += step;
    }
    return 0;
}

int sp_matches_next(sp_matches *it, const char *text, const char *shadow, size_t n_bytes, size_t *begin, size_t *end,
                    sp_error *err) {
    for (;;) {
        if (it->at > n_bytes) return 0;
        const sp_pattern *p = it->pattern;
        int rc = p->kind == SP_PATTERN_REGEX
                     ? regex_find(p->regex, it->matcher, shadow, n_bytes, it->at, begin, end, err)
                 : p->kind == SP_PATTERN_LITERAL ? literal_find(p, text, n_bytes, it->at, begin, end)
                                                 : numeric_find(text, n_bytes, it->at, begin, end);
        if (rc <= 0) return rc;
        if (*begin != *end || *end != it->last_match_end) {
            it->at = it->last_match_end = *end;
            return 1;
        }
        uint32_t c; /* an empty match where the last one ended: look one character further */
        it->at += it->at < n_bytes ? sp_char_next(text + it->at, &c) : 1;
    }
}
