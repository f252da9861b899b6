/* Errors: formatting, wrapping, and making hostile text printable. */
#include "util/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/utf8.h"

enum { MESSAGE_BYTES = 8192 }; /* of a message before it is cut: a path of PATH_MAX and what is said of it */

/* Bytes of the character at text when it may be printed as it is; 0 for control characters and for what is not UTF-8.
 */
static size_t printable_bytes(const char *text, size_t n_bytes) {
    bool valid;
    size_t step = sp_utf8_step(text, n_bytes, &valid);
    unsigned char lead = (unsigned char)text[0];
    bool is_c0 = lead < 0x20 || lead == 0x7f;
    bool is_c1 = valid && lead == 0xc2 && (unsigned char)text[1] < 0xa0;
    return valid && !is_c0 && !is_c1 ? step : 0;
}

const char *sp_printable(const char *text, size_t n_bytes, char *out, size_t out_bytes) {
    size_t used = 0;
    for (size_t i = 0; i < n_bytes;) {
        size_t run = printable_bytes(text + i, n_bytes - i);
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
    while (sp_utf8_continues(printable[head])) head--;
    while (sp_utf8_continues(printable[tail])) tail++;
    snprintf(err->text, sizeof err->text, "%.*s...%s", (int)head, printable, printable + tail);
}

/* The formatted text, and ": <tail>" unless tail is NULL. */
static void SP_PRINTF(3, 0) set_format(sp_error *err, const char *tail, const char *format, va_list args) {
    char text[MESSAGE_BYTES];
    int used = vsnprintf(text, sizeof text, format, args);
    if (used < 0) used = 0;
    if (tail && (size_t)used < sizeof text) snprintf(text + used, sizeof text - (size_t)used, ": %s", tail);
    set_text(err, text);
}

bool sp_fail(sp_error *err, sp_error_code code, const char *format, ...) {
    if (err->code != SP_OK) return false;
    va_list args;
    va_start(args, format);
    set_format(err, NULL, format, args);
    va_end(args);
    err->code = code;
    return false;
}

bool sp_fail_errno(sp_error *err, const char *format, ...) {
    const char *reason = strerror(errno); /* glibc: a text of this thread */
    if (err->code != SP_OK) return false;
    va_list args;
    va_start(args, format);
    set_format(err, reason, format, args);
    va_end(args);
    err->code = SP_ERR_IO;
    return false;
}

bool sp_fail_open(sp_error *err, const char *path) {
    bool is_system = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO;
    if (err->code != SP_OK) return false;
    sp_fail_errno(err, "%s", path);
    if (!is_system) err->code = SP_ERR_INPUT;
    return false;
}

bool sp_fail_create(sp_error *err, const char *path) {
    bool is_drive = errno == ENOSPC || errno == EDQUOT || errno == EIO;
    if (err->code != SP_OK) return false;
    sp_fail_errno(err, "%s: cannot be created", path);
    if (!is_drive) err->code = SP_ERR_USAGE;
    return false;
}

bool sp_error_wrap(sp_error *err, const char *format, ...) {
    if (err->code == SP_OK) return false;
    va_list args;
    va_start(args, format);
    set_format(err, err->text, format, args);
    va_end(args);
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
