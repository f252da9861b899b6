/* Growable byte buffer, heap. Zero-initialised is empty. With a limit set, growth past it fails the append, which is
 * how bounded work (a template's output, a result line) stays bounded. Not thread-safe. */
#ifndef SPILL_UTIL_BUF_H
#define SPILL_UTIL_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* Bytes of somebody else's: borrowed, any bytes, no NUL behind them unless the lender says so. */
typedef struct {
    const char *text;
    size_t n_bytes;
} sp_string;

bool sp_is_space(char c);                    /* a space, a tab, LF or CR */
sp_string sp_string_trimmed(sp_string text); /* without such around it */

typedef struct {
    char *data;         /* NUL-terminated once anything was appended; NULL before */
    size_t n_bytes;     /* without the NUL */
    size_t room_bytes;  /* allocated, with the NUL */
    size_t limit_bytes; /* 0: none */
    bool failed;        /* an append did not fit the limit, or memory ended; sticky until cleared */
} sp_buf;

/* Each returns false (and sets failed) when it does not fit; the buffer is as it was. */
bool sp_buf_add(sp_buf *buf, const void *data, size_t n_bytes);
bool sp_buf_text(sp_buf *buf, const char *text);
bool sp_buf_char(sp_buf *buf, char c);
bool sp_buf_printf(sp_buf *buf, const char *format, ...) SP_PRINTF(2, 3);
/* Makes room for n_bytes more (and a NUL) and returns where they go, or NULL. The caller writes them and adds what it
 * wrote to buf->n_bytes. */
char *sp_buf_reserve(sp_buf *buf, size_t n_bytes);
void sp_buf_clear(sp_buf *buf); /* empty and not failed; memory and limit kept */
void sp_buf_deinit(sp_buf *buf);

#endif
