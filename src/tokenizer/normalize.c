/* Normalizers: Prepend, Replace, NFC.
 *
 * NFC goes segment by segment, from a character that cannot be composed with anything before it to the next such one,
 * so memory follows the longest run of marks, not the text; a run's marks are ordered by a counting sort, since an
 * insertion sort on a hostile run of marks would be quadratic. utf8proc knows decompositions and compositions. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tokenizer/internal.h"
#include "util/size.h"

enum { MAX_SEGMENT_CHARS = 4 << 20 }; /* with the copy for sorting, 32 MB */

typedef struct {
    int32_t *chars; /* [room], then as many again for sorting */
    size_t n, room;
    sp_buf *out;
    sp_error *err;
} segment;

/* The buffers have a limit: a rule that makes much out of little must not fill the machine. */
static bool no_room(sp_error *err) {
    return sp_fail(err, SP_ERR_MEMORY, "the normalized text is too big for its bound or for memory");
}

static bool put_char(segment *s, uint32_t c) {
    char bytes[4];
    if (sp_buf_add(s->out, bytes, sp_char_put(c, bytes))) return true;
    return no_room(s->err);
}

static unsigned combining_class(int32_t c) { return utf8proc_get_property(c)->combining_class; }

/* Orders each run of marks by class, keeping the order within a class. */
static void order_marks(segment *s) {
    int32_t *sorted = s->chars + s->room;
    for (size_t i = 0; i < s->n;) {
        size_t begin = i;
        uint32_t counts[257] = {0};
        unsigned class_of = 0;
        while (i < s->n && (class_of = combining_class(s->chars[i])) != 0) {
            counts[class_of + 1]++;
            i++;
        }
        if (i - begin > 1) {
            for (int k = 1; k < 257; k++) counts[k] += counts[k - 1];
            for (size_t k = begin; k < i; k++) sorted[counts[combining_class(s->chars[k])]++] = s->chars[k];
            memcpy(s->chars + begin, sorted, (i - begin) * sizeof *sorted);
        }
        if (i == begin) i++;
    }
}

static bool flush(segment *s) {
    SP_CHECK(s->n == 0 || s->chars != NULL);
    if (s->n > 1) {
        order_marks(s);
        s->n = (size_t)utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)s->n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    }
    for (size_t i = 0; i < s->n; i++)
        if (!put_char(s, (uint32_t)s->chars[i])) return false;
    s->n = 0;
    return true;
}

static bool segment_grow(segment *s) {
    size_t room = sp_max_size(64, s->room * 2);
    if (room > MAX_SEGMENT_CHARS)
        return sp_fail(s->err, SP_ERR_INPUT, "more than %d combining characters in a row", MAX_SEGMENT_CHARS / 2);
    int32_t *chars = realloc(s->chars, 2 * room * sizeof *chars);
    if (!chars) return no_room(s->err);
    s->chars = chars;
    s->room = room;
    return true;
}

/* Whether no composition reaches from before c into c: all second halves are marks or conjoining jamo. */
static bool starts_segment(uint32_t c) {
    if (c < 0x300) return true;
    if (c >= 0x1160 && c < 0x1200) return false;
    const utf8proc_property_t *p = utf8proc_get_property((int32_t)c);
    return p->combining_class == 0 && p->category != UTF8PROC_CATEGORY_MN && p->category != UTF8PROC_CATEGORY_MC;
}

static bool nfc(const char *text, size_t n_bytes, sp_buf *out, sp_error *err) {
    segment s = {.out = out, .err = err};
    bool ok = true;
    for (size_t i = 0; ok && i < n_bytes;) {
        uint32_t c;
        i += sp_char_next(text + i, &c);
        if (sp_char_is_nfc_young(c)) {
            ok = flush(&s) && put_char(&s, c);
            continue;
        }
        if (starts_segment(c)) ok = flush(&s);
        if (ok && s.n + 8 > s.room) ok = segment_grow(&s); /* a canonical decomposition has at most 4 characters */
        if (!ok) break;
        SP_CHECK(s.chars != NULL);
        int boundary = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)c, s.chars + s.n, 8, UTF8PROC_DECOMPOSE, &boundary);
        if (n > 0 && n <= 8)
            s.n += (size_t)n;
        else
            s.chars[s.n++] = (int32_t)c;
    }
    ok = ok && flush(&s);
    free(s.chars);
    return ok;
}

/* All characters below U+0300 are as NFC wants them, and nothing there combines. */
static bool is_trivially_nfc(const char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        if ((unsigned char)text[i] >= 0xcc) return false;
    return true;
}

static bool replace(const sp_norm *norm, const char *text, size_t n_bytes, sp_matcher *matcher, sp_buf *out,
                    sp_error *err) {
    sp_buf shadow = {0};
    const char *seen = text;
    if (norm->pattern.kind == SP_PATTERN_REGEX && sp_text_has_standins(text, n_bytes)) {
        if (!sp_buf_add(&shadow, text, n_bytes)) return sp_fail(err, SP_ERR_MEMORY, "no memory for the text");
        sp_text_put_standins(shadow.data, n_bytes);
        seen = shadow.data;
    }
    sp_matches it = {&norm->pattern, matcher, 0, SIZE_MAX};
    size_t done = 0, begin, end;
    bool fits = true;
    while (fits && sp_matches_next(&it, text, seen, n_bytes, &begin, &end, err) == 1) {
        fits = sp_buf_add(out, text + done, begin - done) && sp_buf_add(out, norm->content, norm->n_bytes);
        done = end;
    }
    fits = fits && sp_buf_add(out, text + done, n_bytes - done);
    sp_buf_deinit(&shadow);
    if (!fits) return no_room(err);
    return err->code == SP_OK;
}

static bool apply(const sp_norm *norm, const char *text, size_t n_bytes, bool skip_prepend, sp_matcher *matcher,
                  sp_buf *out, sp_error *err) {
    bool fits = true;
    switch (norm->kind) {
        case SP_NORM_PREPEND:
            if (n_bytes && !skip_prepend) fits = sp_buf_add(out, norm->content, norm->n_bytes);
            break;
        case SP_NORM_REPLACE:
            return replace(norm, text, n_bytes, matcher, out, err);
        case SP_NORM_NFC:
            if (!is_trivially_nfc(text, n_bytes)) return nfc(text, n_bytes, out, err);
            break;
    }
    if (fits && sp_buf_add(out, text, n_bytes)) return true;
    return no_room(err);
}

bool sp_normalize(const sp_norm *norms, size_t n_norms, const char *text, size_t n_bytes, bool skip_prepend,
                  sp_matcher *matcher, sp_buf *out, sp_error *err) {
    sp_buf stages[2] = {{.limit_bytes = out->limit_bytes}, {.limit_bytes = out->limit_bytes}};
    bool ok = true;
    for (size_t i = 0; ok && i < n_norms; i++) {
        sp_buf *to = i + 1 == n_norms ? out : &stages[i % 2];
        if (to != out) sp_buf_clear(to);
        ok = apply(&norms[i], text, n_bytes, skip_prepend, matcher, to, err);
        text = to->data ? to->data : "";
        n_bytes = to->n_bytes;
    }
    if (n_norms == 0 && !sp_buf_add(out, text, n_bytes)) ok = no_room(err);
    sp_buf_deinit(&stages[0]);
    sp_buf_deinit(&stages[1]);
    return ok;
}
