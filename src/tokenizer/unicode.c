/* Characters: taking them from valid UTF-8, and the few properties the pipeline asks for.
 *
 * Unicode's version matters to the bit, and each reference component has its own: regular expressions follow Unicode
 * 16, numbers 17, NFC 9, while PCRE2 and utf8proc bring whatever the system has (14 to 17). Two tables make the result
 * independent of that. A text that a regular expression looks at has its characters of changed category replaced by a
 * stand-in: one of the same number of bytes whose category all versions agree on. NFC treats characters that were not
 * there in Unicode 9 as inert. */
#include "tokenizer/unicode.h"

#include <utf8proc.h>

typedef struct {
    uint32_t first, last;
} range;

#include "tokenizer/unicode_tables.inc"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static bool in_ranges(const range *ranges, size_t n, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (ranges[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && ranges[low].first <= c;
}

/* The stand-in of c, or c itself. */
static uint32_t stand_in_of(uint32_t c) {
    if (!(stand_in_pages[c >> 14] >> (c >> 8 & 63) & 1)) return c;
    size_t low = 0, high = COUNT(stand_ins);
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (stand_ins[mid].last < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < COUNT(stand_ins) && stand_ins[low].first <= c ? stand_ins[low].stand_in : c;
}

size_t sp_char_next(const char *text, uint32_t *c) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *c = s[0];
        return 1;
    }
    if (s[0] < 0xe0) {
        *c = (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
        return 2;
    }
    if (s[0] < 0xf0) {
        *c = (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        return 3;
    }
    *c = (s[0] & 0x07u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
    return 4;
}

size_t sp_char_put(uint32_t c, char out[4]) { return (size_t)utf8proc_encode_char((int32_t)c, (uint8_t *)out); }

bool sp_char_is_numeric(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    return in_ranges(numerics, COUNT(numerics), c);
}

bool sp_char_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool sp_char_is_word(uint32_t c) {
    /* Alphabetic (the letters, letter numbers and the circled letters), marks, decimal digits, connectors, joiners. */
    if (c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
        return true;
    switch (utf8proc_category((int32_t)stand_in_of(c))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return false;
    }
}

bool sp_char_is_nfc_young(uint32_t c) { return c >= nfc_young[0].first && in_ranges(nfc_young, COUNT(nfc_young), c); }

bool sp_text_has_standins(const char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        if ((unsigned char)text[i] < 0xca) { /* the first character with a stand-in is U+0295 */
            i++;
            continue;
        }
        uint32_t c;
        size_t step = sp_char_next(text + i, &c);
        if (stand_in_of(c) != c) return true;
        i += step;
    }
    return false;
}

void sp_text_put_standins(char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        size_t step = sp_char_next(text + i, &c);
        uint32_t other = stand_in_of(c);
        if (other != c) sp_char_put(other, text + i);
        i += step;
    }
}
