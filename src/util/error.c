/* Errors: formatting, wrapping, and making hostile text printable. */
#include "util/error.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 8192 }; /* of a message before it is cut: a path of PATH_MAX and what is said of it */

/* Bytes of the UTF-8 sequence that starts at text, or 0 if it is not a valid one of printable kind. */
static size_t printable_bytes(const unsigned char *text, size_t n_bytes) {
    unsigned char lead = text[0];
    if (lead >= 0x20 && lead < 0x7f) return 1;
    size_t want = lead >= 0xc2 && lead < 0xe0   ? 2
                  : lead >= 0xe0 && lead < 0xf0 ? 3
                  : lead >= 0xf0 && lead < 0xf5 ? 4
                                                : 0;
    if (want == 0 || want > n_bytes) return 0;
    for (size_t i = 1; i < want; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    uint32_t second = text[1];
    bool bad = (lead == 0xc2 && second < 0xa0)      /* C1 controls */
               || (lead == 0xe0 && second < 0xa0)   /* overlong */
               || (lead == 0xed && second >= 0xa0)  /* surrogates */
               || (lead == 0xf0 && second < 0x90)   /* overlong */
               || (lead == 0xf4 && second >= 0x90); /* past U+10FFFF */
    return bad ? 0 : want;
}

const char *sp_printable(const char *text, size_t n_bytes, char *out, size_t out_bytes) {
    size_t used = 0;
    for (size_t i = 0; i < n_bytes;) {
        size_t run = printable_bytes((const unsigned char *)text + i, n_bytes - i);
        size_t need = run ? run : 4;
        if (used + need + 4 > out_bytes) { /* room for "..." and NUL */
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (run) {
            memcpy(out + used, text + i, run);
        } else {
            static const char digits[] = "0123456789abcdef";
            unsigned char byte = (unsigned char)text[i];
            out[used] = '\\';
            out[used + 1] = 'x';
            out[used + 2] = digits[byte >> 4];
            out[used + 3] = digits[byte & 15];
            run = 1;
        }
        used += need;
        i += run;
    }
    out[used] = '\0';
    return out;
}

/* A long text is cut in its middle: its head names the thing, its end says what is wrong and what to do. */
static void set_text(sp_error *err, const char *text) {
    enum { HEAD_BYTES = SP_ERROR_TEXT_BYTES * 5 / 8, TAIL_BYTES = SP_ERROR_TEXT_BYTES - HEAD_BYTES };
    char printable[4 * MESSAGE_BYTES + 8] = ""; /* four bytes for each at worst */
    sp_printable(text, strlen(text), printable, sizeof printable);
    size_t n_bytes = strlen(printable);
    if (n_bytes < sizeof err->text) {
        memcpy(err->text, printable, n_bytes + 1);
        return;
    }
    size_t head = HEAD_BYTES - 3, tail = n_bytes - (TAIL_BYTES - 1);
    while ((printable[head] & 0xc0) == 0x80) head--;
    while ((printable[tail] & 0xc0) == 0x80) tail++;
    snprintf(err->text, sizeof err->text, "%.*s...%s", (int)head, printable, printable + tail);
}

bool sp_fail(sp_error *err, sp_error_code code, const char *format, ...) {
    if (err->code != SP_OK) return false;
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err->code = code;
    set_text(err, text);
    return false;
}

bool sp_fail_errno(sp_error *err, const char *format, ...) {
    int saved = errno;
    if (err->code != SP_OK) return false;
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used < 0) used = 0;
    if ((size_t)used < sizeof text)
        snprintf(text + used, sizeof text - (size_t)used, ": %s", strerror(saved)); /* glibc: thread-safe text */
    err->code = SP_ERR_IO;
    set_text(err, text);
    return false;
}

bool sp_fail_open(sp_error *err, const char *path) {
    bool is_system = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO;
    if (err->code != SP_OK) return false;
    sp_fail_errno(err, "%s", path);
    if (!is_system) err->code = SP_ERR_INPUT;
    return false;
}

bool sp_error_wrap(sp_error *err, const char *format, ...) {
    if (err->code == SP_OK) return false;
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (used < 0) used = 0;
    if ((size_t)used < sizeof text) snprintf(text + used, sizeof text - (size_t)used, ": %s", err->text);
    set_text(err, text);
    return false;
}

void sp_error_clear(sp_error *err) {
    err->code = SP_OK;
    err->text[0] = '\0';
}

void sp_abort(const char *file, int line, const char *condition) {
    fprintf(stderr, "spill: internal error at %s:%d: %s\n", file, line, condition);
    abort();
}
