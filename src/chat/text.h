/* Strings of a template, and building them. A string is immutable UTF-8 that knows its characters and which of its
 * bytes a user wrote; one under construction is an sp_sink. Memory and failure as value.h says. */
#ifndef SPILL_CHAT_TEXT_H
#define SPILL_CHAT_TEXT_H

#include "chat/value.h"
#include "util/utf8.h"

/* Bytes behind strings that grow by appending: the last string in it may be extended in place. */
typedef struct {
    size_t used_bytes;
    size_t room_bytes;
    char data[];
} sp_tail;

struct sp_text {
    const char *data; /* UTF-8, not NUL-terminated */
    size_t n_bytes;
    size_t n_chars;
    sp_tail *tail;            /* where data lies if it may be extended; else NULL */
    const sp_text_span *user; /* [n_user] byte ranges that a user wrote, ascending */
    size_t n_user;
    bool markup; /* a safe string: + and % escape what is joined to it */
};

/* A string over bytes that outlive it; a copy. */
sp_text *sp_text_borrow(sp_arena *arena, const char *data, size_t n_bytes);
sp_text *sp_text_copy(sp_render *r, const char *data, size_t n_bytes);
sp_value sp_text_value(sp_render *r, const char *text); /* a copy of a C string */
/* Bytes [from, to) of a text; both lie on character borders. */
const sp_text *sp_text_slice(sp_render *r, const sp_text *text, size_t from, size_t to);
const sp_text *sp_text_concat(sp_render *r, const sp_text *a, const sp_text *b);
size_t sp_text_count(const char *data, size_t n_bytes); /* characters */
/* Where character i_char begins; i_char <= n_chars. */
size_t sp_text_offset(const sp_text *text, size_t i_char);
bool sp_text_eq(const sp_text *a, const sp_text *b);
bool sp_text_is(const sp_text *text, const char *other);
int sp_text_compare(const sp_text *a, const sp_text *b); /* by code point, as memcmp */
/* First (last) place of needle in bytes [from, to), or SIZE_MAX. */
size_t sp_text_find(sp_render *r, const sp_text *text, const sp_text *needle, size_t from, size_t to);
size_t sp_text_rfind(sp_render *r, const sp_text *text, const sp_text *needle, size_t from, size_t to);
/* The character at byte i (< n_bytes) and how many bytes it takes; -1 and 1 for bytes that are not UTF-8. */
int32_t sp_text_char(const char *data, size_t n_bytes, size_t i, size_t *width);
size_t sp_text_encode(int32_t c, char out[4]); /* returns the bytes of the character */
bool sp_python_is_space(int32_t c);            /* Python's str.isspace of one character */
bool sp_python_is_word(int32_t c);             /* \w of a Python regular expression */
bool sp_python_is_printable(int32_t c);        /* Python's str.isprintable of one character */
/* The borders that strip leaves: chars NULL means white space. */
void sp_text_strip_range(const sp_text *text, const sp_text *chars, bool left, bool right, size_t *from, size_t *to);

/* ---- building strings: text.c ---- */
/* A string under construction; `heap` set: the bytes go there instead of into the arena. */
typedef struct {
    sp_render *r;
    sp_buf *heap;
    char *data;
    size_t n_bytes;
    size_t room_bytes;
    sp_text_span *user;
    size_t n_user;
    size_t room_user;
} sp_sink;
/* Each appends. `user`: a user wrote it. */
void sp_sink_bytes(sp_sink *sink, const char *data, size_t n_bytes, bool user);
void sp_sink_cstr(sp_sink *sink, const char *text);
void sp_sink_char(sp_sink *sink, char c);
void sp_sink_repeat(sp_sink *sink, const char *unit, size_t n_bytes, size_t times);
void sp_sink_code(sp_sink *sink, int32_t c, bool user); /* one character */
void sp_sink_text(sp_sink *sink, const sp_text *text);
void sp_sink_slice(sp_sink *sink, const sp_text *text, size_t from, size_t to);
/* What was built. The sink is not used again. */
const sp_text *sp_sink_finish(sp_sink *sink);
sp_value sp_sink_value(sp_sink *sink);

/* ---- writing values: repr.c, tojson.c ---- */
void sp_sink_str(sp_sink *sink, sp_value v);  /* Python's str() */
void sp_sink_repr(sp_sink *sink, sp_value v); /* Python's repr() */
const sp_text *sp_value_str(sp_render *r, sp_value v);
void sp_sink_escape(sp_sink *sink, sp_value v); /* & < > " ' as HTML entities, unless it is markup */
typedef struct {
    bool ascii;
    bool sort_keys;
    const sp_text *indent; /* NULL: one line */
    const sp_text *item_separator;
    const sp_text *key_separator;
} sp_tojson_style;
void sp_sink_json(sp_sink *sink, sp_value v, const sp_tojson_style *style);

#endif
