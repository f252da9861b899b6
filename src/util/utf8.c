/* UTF-8 by the table of well-formed sequences (Unicode, table 3-7). */
#include "util/utf8.h"

#include <stdint.h>

/* Sequence length by lead byte, and the range of the second byte. */
static size_t lead_info(uint8_t lead, uint8_t *low, uint8_t *high) {
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead < 0xe0) return 2;
    if (lead >= 0xe0 && lead < 0xf0) return 3;
    return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

size_t sp_utf8_length(const char *bytes, size_t n_bytes, size_t *n_bad) {
    uint8_t low, high;
    size_t want = lead_info((uint8_t)bytes[0], &low, &high);
    *n_bad = 1;
    if (want <= 1) return want;
    for (size_t i = 1; i < want; i++, *n_bad = i) {
        if (i >= n_bytes || (uint8_t)bytes[i] < low || (uint8_t)bytes[i] > high) return 0;
        low = 0x80;
        high = 0xbf;
    }
    return want;
}

bool sp_utf8_lossy(sp_buf *out, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        size_t n_bad = 0;
        size_t n = sp_utf8_length(bytes + i, n_bytes - i, &n_bad);
        if (!(n ? sp_buf_add(out, bytes + i, n) : sp_buf_text(out, "\xef\xbf\xbd"))) return false;
        i += n ? n : n_bad;
    }
    return true;
}
