/* Strings and their construction. A string made by appending to the last one of a tail grows in place, so that the
 * loops that templates write ("text = text + piece") take linear time and memory. */
#include <string.h>
#include <utf8proc.h>

#include "chat/render.h"
#include "util/size.h"

size_t sp_text_count(const char *data, size_t n_bytes) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += !sp_utf8_continues(data[i]);
    return n;
}

sp_text *sp_text_borrow(sp_arena *arena, const char *data, size_t n_bytes) {
    sp_text *text = SP_ARENA_NEW(arena, sp_text);
    *text = (sp_text){.data = data, .n_bytes = n_bytes, .n_chars = sp_text_count(data, n_bytes)};
    return text;
}

static sp_text *text_over(sp_render *r, const char *data, size_t n_bytes) {
    sp_text *text = SP_RENDER_NEW(r, sp_text);
    sp_render_charge(r, n_bytes / 64);
    *text = (sp_text){.data = data, .n_bytes = n_bytes, .n_chars = sp_text_count(data, n_bytes)};
    return text;
}

sp_text *sp_text_copy(sp_render *r, const char *data, size_t n_bytes) {
    char *copy = sp_render_alloc(r, n_bytes, 1);
    if (n_bytes) memcpy(copy, data, n_bytes);
    return text_over(r, copy, n_bytes);
}

sp_value sp_text_value(sp_render *r, const char *text) { return sp_value_text(sp_text_copy(r, text, strlen(text))); }

const sp_text *sp_text_slice(sp_render *r, const sp_text *text, size_t from, size_t to) {
    if (from == 0 && to == text->n_bytes) return text;
    sp_text *slice = text_over(r, text->data + from, to - from);
    slice->markup = text->markup;
    if (!text->n_user) return slice;
    sp_sink sink = {.r = r};
    sp_sink_slice(&sink, text, from, to);
    slice->user = sink.user;
    slice->n_user = sink.n_user;
    return slice;
}

const sp_text *sp_text_concat(sp_render *r, const sp_text *a, const sp_text *b) {
    if (!a->n_bytes && !a->markup) return b;
    if (!b->n_bytes && !b->markup) return a;
    sp_tail *tail = a->tail;
    size_t n_bytes = a->n_bytes + b->n_bytes;
    bool at_end = tail && a->data + a->n_bytes == tail->data + tail->used_bytes;
    if (!at_end || tail->room_bytes - tail->used_bytes < b->n_bytes) {
        size_t room = sp_max_size(32, n_bytes + n_bytes / 2);
        tail = sp_render_alloc(r, sizeof *tail + room, 1);
        tail->room_bytes = room;
        memcpy(tail->data, a->data, a->n_bytes);
        tail->used_bytes = a->n_bytes;
    }
    memcpy(tail->data + tail->used_bytes, b->data, b->n_bytes);
    tail->used_bytes += b->n_bytes;
    sp_render_charge(r, n_bytes / 256);
    sp_text *text = SP_RENDER_NEW(r, sp_text);
    *text = (sp_text){.data = tail->data + tail->used_bytes - n_bytes,
                      .n_bytes = n_bytes,
                      .n_chars = a->n_chars + b->n_chars,
                      .tail = tail,
                      .user = a->user,
                      .n_user = a->n_user,
                      .markup = a->markup || b->markup};
    if (!b->n_user) return text;
    sp_text_span *user = sp_render_alloc(r, a->n_user + b->n_user, sizeof *user);
    if (a->n_user) memcpy(user, a->user, a->n_user * sizeof *user);
    for (size_t i = 0; i < b->n_user; i++)
        user[a->n_user + i] = (sp_text_span){b->user[i].from_bytes + a->n_bytes, b->user[i].to_bytes + a->n_bytes};
    text->user = user;
    text->n_user = a->n_user + b->n_user;
    return text;
}

size_t sp_text_offset(const sp_text *text, size_t i_char) {
    if (text->n_chars == text->n_bytes) return i_char;
    if (i_char >= text->n_chars) return text->n_bytes;
    size_t at = 0;
    for (size_t left = i_char + 1; at < text->n_bytes; at++)
        if (!sp_utf8_continues(text->data[at]) && --left == 0) break;
    return at;
}

bool sp_text_eq(const sp_text *a, const sp_text *b) {
    return a->n_bytes == b->n_bytes && (a->n_bytes == 0 || memcmp(a->data, b->data, a->n_bytes) == 0);
}

bool sp_text_is(const sp_text *text, const char *other) {
    return strlen(other) == text->n_bytes && memcmp(text->data, other, text->n_bytes) == 0;
}

int sp_text_compare(const sp_text *a, const sp_text *b) {
    size_t n = sp_min_size(a->n_bytes, b->n_bytes);
    int order = n ? memcmp(a->data, b->data, n) : 0;
    if (order) return order < 0 ? -1 : 1;
    return a->n_bytes < b->n_bytes ? -1 : a->n_bytes > b->n_bytes;
}

size_t sp_text_find(sp_render *r, const sp_text *text, const sp_text *needle, size_t from, size_t to) {
    if (from > to || to - from < needle->n_bytes) return SIZE_MAX;
    if (!needle->n_bytes) return from;
    const char *hit = memmem(text->data + from, to - from, needle->data, needle->n_bytes);
    size_t end = hit ? (size_t)(hit - text->data) : to;
    sp_render_charge(r, (end - from) / 64 + 1);
    return hit ? end : SIZE_MAX;
}

size_t sp_text_rfind(sp_render *r, const sp_text *text, const sp_text *needle, size_t from, size_t to) {
    if (from > to || to - from < needle->n_bytes) return SIZE_MAX;
    for (size_t at = to - needle->n_bytes;; at--) {
        if (at % 64 == 0) sp_render_charge(r, 1 + needle->n_bytes / 64);
        if (!needle->n_bytes || memcmp(text->data + at, needle->data, needle->n_bytes) == 0) return at;
        if (at == from) return SIZE_MAX;
    }
}

int32_t sp_text_char(const char *data, size_t n_bytes, size_t i, size_t *width) {
    unsigned char c = (unsigned char)data[i];
    if (c < 0x80) {
        *width = 1;
        return c;
    }
    utf8proc_int32_t code = -1;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)data + i, (utf8proc_ssize_t)(n_bytes - i), &code);
    *width = n > 0 ? (size_t)n : 1;
    return n > 0 ? code : -1;
}

size_t sp_text_encode(int32_t c, char out[4]) { return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out); }

bool sp_python_is_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool sp_python_is_word(int32_t c) {
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    utf8proc_category_t category = utf8proc_category(c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool sp_python_is_printable(int32_t c) {
    if (c < 0x80) return c >= ' ' && c != 0x7F;
    utf8proc_category_t category = utf8proc_category(c);
    return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

static bool stripped(const sp_text *chars, const char *data, size_t width, int32_t c) {
    if (!chars) return sp_python_is_space(c);
    for (size_t i = 0; i + width <= chars->n_bytes; i++)
        if (memcmp(chars->data + i, data, width) == 0) return true;
    return false;
}

void sp_text_strip_range(const sp_text *text, const sp_text *chars, bool left, bool right, size_t *from, size_t *to) {
    size_t start = 0, end = text->n_bytes, width;
    while (left && start < end) {
        int32_t c = sp_text_char(text->data, end, start, &width);
        if (!stripped(chars, text->data + start, width, c)) break;
        start += width;
    }
    while (right && end > start) {
        size_t last = end - 1;
        while (last > start && sp_utf8_continues(text->data[last])) last--;
        int32_t c = sp_text_char(text->data, end, last, &width);
        if (!stripped(chars, text->data + last, end - last, c)) break;
        end = last;
    }
    *from = start;
    *to = end;
}

/* ---- construction ---- */

static void mark_user(sp_sink *sink, size_t from, size_t to) {
    if (from == to) return;
    if (sink->n_user && sink->user[sink->n_user - 1].to_bytes >= from) {
        sink->user[sink->n_user - 1].to_bytes = to;
        return;
    }
    if (sink->n_user == sink->room_user) {
        sink->room_user = sp_max_size(4, sink->room_user * 2);
        sp_text_span *user = sp_render_alloc(sink->r, sink->room_user, sizeof *user);
        if (sink->n_user) memcpy(user, sink->user, sink->n_user * sizeof *user);
        sink->user = user;
    }
    sink->user[sink->n_user++] = (sp_text_span){from, to};
}

static char *make_room(sp_sink *sink, size_t n_bytes) {
    sp_render_charge(sink->r, 1 + n_bytes / 256);
    if (sink->heap) {
        sp_render_claim(sink->r, n_bytes);
        char *end = sp_buf_reserve(sink->heap, n_bytes);
        if (!end) sp_render_fail(sink->r, "the output needs more memory than it may have");
        sink->heap->n_bytes += n_bytes;
        sink->heap->data[sink->heap->n_bytes] = '\0';
        sink->n_bytes += n_bytes;
        return end;
    }
    if (sink->room_bytes - sink->n_bytes < n_bytes) {
        size_t room = sp_max_size(64, sp_max_size(sink->room_bytes * 2, sink->n_bytes + n_bytes));
        char *data = sp_render_alloc(sink->r, room, 1);
        if (sink->n_bytes) memcpy(data, sink->data, sink->n_bytes);
        sink->data = data;
        sink->room_bytes = room;
    }
    sink->n_bytes += n_bytes;
    return sink->data + sink->n_bytes - n_bytes;
}

void sp_sink_bytes(sp_sink *sink, const char *data, size_t n_bytes, bool user) {
    if (!n_bytes) return;
    memcpy(make_room(sink, n_bytes), data, n_bytes);
    if (user) mark_user(sink, sink->n_bytes - n_bytes, sink->n_bytes);
}

void sp_sink_cstr(sp_sink *sink, const char *text) { sp_sink_bytes(sink, text, strlen(text), false); }

void sp_sink_char(sp_sink *sink, char c) { sp_sink_bytes(sink, &c, 1, false); }

void sp_sink_repeat(sp_sink *sink, const char *unit, size_t n_bytes, size_t times) {
    size_t total = 0;
    if (!sp_mul_size(n_bytes, times, &total)) sp_render_fail(sink->r, "a string of more bytes than memory may hold");
    if (!total) return;
    sp_render_claim(sink->r, total);
    char *out = make_room(sink, total);
    for (size_t i = 0; i < times; i++, out += n_bytes) memcpy(out, unit, n_bytes);
}

void sp_sink_code(sp_sink *sink, int32_t c, bool user) {
    char out[4];
    sp_sink_bytes(sink, out, sp_text_encode(c, out), user);
}

void sp_sink_slice(sp_sink *sink, const sp_text *text, size_t from, size_t to) {
    size_t base = sink->n_bytes;
    sp_sink_bytes(sink, text->data + from, to - from, false);
    for (size_t i = 0; i < text->n_user; i++) {
        size_t start = sp_max_size(text->user[i].from_bytes, from);
        size_t end = sp_min_size(text->user[i].to_bytes, to);
        if (start < end) mark_user(sink, base + start - from, base + end - from);
    }
}

void sp_sink_text(sp_sink *sink, const sp_text *text) { sp_sink_slice(sink, text, 0, text->n_bytes); }

const sp_text *sp_sink_finish(sp_sink *sink) {
    sp_text *text = text_over(sink->r, sink->data ? sink->data : "", sink->n_bytes);
    text->user = sink->user;
    text->n_user = sink->n_user;
    return text;
}

sp_value sp_sink_value(sp_sink *sink) { return sp_value_text(sp_sink_finish(sink)); }
