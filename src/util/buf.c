/* Growable byte buffer: doubles, keeps a NUL behind its bytes. */
#include "util/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/size.h"

bool sp_is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

sp_string sp_string_trimmed(sp_string text) {
    while (text.n_bytes && sp_is_space(*text.text)) text.text++, text.n_bytes--;
    while (text.n_bytes && sp_is_space(text.text[text.n_bytes - 1])) text.n_bytes--;
    return text;
}

char *sp_buf_reserve(sp_buf *buf, size_t n_bytes) {
    size_t need = 0;
    if (!sp_add_size(buf->n_bytes, n_bytes, &need) || (buf->limit_bytes && need > buf->limit_bytes) ||
        need > SIZE_MAX / 4) {
        buf->failed = true;
        return NULL;
    }
    if (need + 1 > buf->room_bytes) {
        size_t room = sp_max_size(need + 1, buf->room_bytes * 2);
        char *data = realloc(buf->data, sp_max_size(room, 64));
        if (!data) {
            buf->failed = true;
            return NULL;
        }
        buf->data = data;
        buf->room_bytes = sp_max_size(room, 64);
        buf->data[buf->n_bytes] = '\0';
    }
    return buf->data + buf->n_bytes;
}

bool sp_buf_add(sp_buf *buf, const void *data, size_t n_bytes) {
    char *end = sp_buf_reserve(buf, n_bytes);
    if (!end) return false;
    if (n_bytes) memcpy(end, data, n_bytes);
    buf->n_bytes += n_bytes;
    buf->data[buf->n_bytes] = '\0';
    return true;
}

bool sp_buf_text(sp_buf *buf, const char *text) { return sp_buf_add(buf, text, strlen(text)); }

bool sp_buf_char(sp_buf *buf, char c) { return sp_buf_add(buf, &c, 1); }

bool sp_buf_printf(sp_buf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *end = n >= 0 ? sp_buf_reserve(buf, (size_t)n) : NULL;
    if (end) {
        vsnprintf(end, (size_t)n + 1, format, again);
        buf->n_bytes += (size_t)n;
    }
    va_end(again);
    return end != NULL;
}

void sp_buf_clear(sp_buf *buf) {
    buf->n_bytes = 0;
    buf->failed = false;
    if (buf->data) buf->data[0] = '\0';
}

void sp_buf_deinit(sp_buf *buf) {
    free(buf->data);
    *buf = (sp_buf){0};
}
