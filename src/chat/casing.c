/* Upper, lower, title case and the like, as Python's string methods: full case mappings, so that one character may
 * become several. What a user wrote stays a user's as a whole. */
#include <string.h>
#include <utf8proc.h>

#include "chat/render.h"

static const struct {
    int32_t code;
    const char *upper;
    const char *title;
} specials[] = {
#define SP_CASING(code, upper, title) {code, upper, title},
#include "chat/casing.def"
#undef SP_CASING
};

static void add_special(sp_sink *sink, int32_t c, bool title, bool user) {
    size_t low = 0, high = sizeof specials / sizeof *specials;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (specials[middle].code < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < sizeof specials / sizeof *specials && specials[low].code == c) {
        const char *text = title ? specials[low].title : specials[low].upper;
        sp_sink_bytes(sink, text, strlen(text), user);
    } else {
        sp_sink_code(sink, title ? utf8proc_totitle(c) : utf8proc_toupper(c), user);
    }
}

static bool is_cased(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT ||
           utf8proc_toupper(c) != c || utf8proc_tolower(c) != c;
}

static bool is_case_ignorable(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019 ||
           category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK;
}

/* A capital sigma at byte i ends a word: the nearest letter before it is cased, the nearest behind it is not. Both look
 * past what is case-ignorable. */
static bool is_final_sigma(const sp_text *text, size_t i, size_t width) {
    int32_t c = 0;
    size_t w, at = i;
    do {
        if (at == 0) return false;
        do at--;
        while (at > 0 && sp_utf8_continues(text->data[at]));
        c = sp_text_char(text->data, text->n_bytes, at, &w);
    } while (is_case_ignorable(c));
    if (!is_cased(c)) return false;
    for (at = i + width; at < text->n_bytes; at += w) {
        c = sp_text_char(text->data, text->n_bytes, at, &w);
        if (!is_case_ignorable(c)) return !is_cased(c);
    }
    return true;
}

static void add_lower(sp_sink *sink, const sp_text *text, size_t i, size_t width, int32_t c, bool user) {
    if (c == 0x130)
        sp_sink_bytes(sink, "i\xCC\x87", 3, user);
    else if (c == 0x3A3)
        sp_sink_code(sink, is_final_sigma(text, i, width) ? 0x3C2 : 0x3C3, user);
    else
        sp_sink_code(sink, utf8proc_tolower(c), user);
}

static void add_folded(sp_sink *sink, int32_t c, bool user) {
    utf8proc_int32_t out[8];
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, out, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t k = 0; k < n && k < 8; k++) sp_sink_code(sink, out[k], user);
}

const sp_text *sp_text_recase(sp_render *r, const sp_text *text, sp_casing casing) {
    sp_sink sink = {.r = r};
    bool user = text->n_user > 0, in_word = false;
    for (size_t i = 0, width; i < text->n_bytes; i += width) {
        int32_t c = sp_text_char(text->data, text->n_bytes, i, &width);
        bool upper = casing == SP_CASE_UPPER;
        bool title = (casing == SP_CASE_TITLE && !in_word) || (casing == SP_CASE_CAPITAL && i == 0);
        if (casing == SP_CASE_SWAP) upper = utf8proc_toupper(c) != c && utf8proc_tolower(c) == c;
        if (casing == SP_CASE_FOLD)
            add_folded(&sink, c, user);
        else if (upper || title)
            add_special(&sink, c, title, user);
        else
            add_lower(&sink, text, i, width, c, user);
        in_word = is_cased(c);
    }
    return sp_sink_finish(&sink);
}
