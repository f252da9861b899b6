/* UTF-8 by the table of well-formed sequences (Unicode 15, table 3-7). */
#include "util/utf8.h"

#include <stdint.h>
#include <string.h>

size_t sp_utf8_step(const char *text, size_t n_bytes, bool *valid) {
    const unsigned char *s = (const unsigned char *)text;
    *valid = n_bytes > 0;
    if (n_bytes == 0) return 0;
    if (s[0] < 0x80) return 1;
    /* bounds of the second byte: they exclude overlong forms, surrogates and what lies past U+10FFFF */
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    size_t want = 0;
    if (s[0] >= 0xc2 && s[0] < 0xf5) want = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    *valid = false;
    if (want == 0) return 1;
    for (size_t i = 1; i < want; i++) {
        if (i == n_bytes) return 0;
        if (s[i] < low || s[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *valid = true;
    return want;
}

size_t sp_utf8_valid_bytes(const char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        uint64_t eight; /* text is mostly ASCII: eight bytes at a time */
        if (n_bytes - i >= sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        bool valid;
        size_t step = sp_utf8_step(text + i, n_bytes - i, &valid);
        if (!valid) return i;
        i += step;
    }
    return n_bytes;
}

bool sp_utf8_lossy(sp_buf *out, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        bool valid;
        size_t step = sp_utf8_step(bytes + i, n_bytes - i, &valid);
        bool fits = valid ? sp_buf_add(out, bytes + i, step) : sp_buf_text(out, "\xef\xbf\xbd");
        if (!fits) return false;
        i += step ? step : n_bytes - i;
    }
    return true;
}
