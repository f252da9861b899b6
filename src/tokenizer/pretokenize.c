/* Pre-tokenizers: cut a piece of text into words.
 *
 * The stages are applied depth first: each piece that a stage cuts off goes through the later ones before the next is
 * cut, so nothing is stored and ids come out in order. A piece is named by its offset in the call's text, because a
 * stage that rewrites (Metaspace, a prefix space) appends its result to that text, which may move. */
#include <string.h>

#include "tokenizer/internal.h"

/* What one Split holds back: with most behaviours a piece is known to be whole only when the next one comes. */
typedef struct {
    sp_encoder *e;
    const sp_pre *pre;
    size_t i_pre, base; /* number of this stage; offset of the piece that is being cut */
    bool first;         /* the piece begins the input */
    bool pending, pending_match;
    size_t begin, end; /* of what is pending, within the piece */
} splitter;

static bool emit(splitter *s, size_t begin, size_t end) {
    return begin == end || sp_pretokenize(s->e, s->i_pre + 1, s->base + begin, end - begin, s->first && begin == 0);
}

static bool emit_pending(splitter *s) {
    if (!s->pending) return true;
    s->pending = false;
    return emit(s, s->begin, s->end);
}

/* The next item, a match or what lies between two. Adjacent matches stay apart except with Contiguous. */
static bool add_item(splitter *s, size_t begin, size_t end, bool match) {
    match = match != s->pre->invert;
    bool join = false;
    switch (s->pre->behavior) {
        case SP_SPLIT_REMOVED:
            return match || emit(s, begin, end);
        case SP_SPLIT_ISOLATED:
            return emit(s, begin, end);
        case SP_SPLIT_PREVIOUS:
            join = s->pending && match && !s->pending_match;
            break;
        case SP_SPLIT_NEXT:
            join = s->pending && !match && s->pending_match;
            break;
        case SP_SPLIT_CONTIGUOUS:
            join = s->pending && match == s->pending_match;
            break;
    }
    if (join) {
        s->end = end;
    } else {
        if (!emit_pending(s)) return false;
        s->pending = true;
        s->begin = begin;
        s->end = end;
    }
    s->pending_match = match;
    return true;
}

static bool split(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first) {
    const sp_pre *pre = &e->t->pres[i_pre];
    splitter s = {.e = e, .pre = pre, .i_pre = i_pre, .base = at, .first = first};
    sp_matches it = {&pre->pattern, e->matcher, 0, SIZE_MAX};
    size_t done = 0, begin = 0, end = 0;
    int rc;
    while ((rc = sp_matches_next(&it, e->text + at, e->shadow + at, n_bytes, &begin, &end, e->err)) == 1) {
        if (done < begin && !add_item(&s, done, begin, false)) return false;
        if (!add_item(&s, begin, end, true)) return false;
        done = end;
    }
    if (rc < 0) return false;
    if (done < n_bytes && !add_item(&s, done, n_bytes, false)) return false;
    return emit_pending(&s);
}

/* Appends to the call's text: prefix, then text[at, at + n_bytes) with each space replaced if `marker`. */
static bool rewrite(sp_encoder *e, const char *prefix, const char *marker, size_t at, size_t n_bytes) {
    size_t from = e->work.n_bytes;
    bool fits = sp_buf_text(&e->work, prefix);
    size_t marker_bytes = marker ? strlen(marker) : 0;
    for (size_t i = 0; fits && i < n_bytes;) {
        /* The buffer moves as it grows, so its source is found anew each time. */
        const char *source = e->work.data + at + i;
        const char *space = marker ? memchr(source, ' ', n_bytes - i) : NULL;
        size_t run = space ? (size_t)(space - source) : n_bytes - i;
        char *to = sp_buf_reserve(&e->work, run + marker_bytes);
        if (!(fits = to != NULL)) break;
        memcpy(to, e->work.data + at + i, run);
        e->work.n_bytes += run;
        i += run;
        if (i < n_bytes) {
            fits = sp_buf_add(&e->work, marker, marker_bytes);
            i++;
        }
    }
    if (!fits) return sp_fail(e->err, SP_ERR_MEMORY, "the rewritten text is too big for its bound or for memory");
    return sp_encoder_appended(e, from);
}

static bool starts_with(const sp_encoder *e, size_t at, size_t n_bytes, const char *text) {
    size_t want = strlen(text);
    return n_bytes >= want && memcmp(e->text + at, text, want) == 0;
}

static bool prefix_space(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first) {
    if (starts_with(e, at, n_bytes, " ")) return sp_pretokenize(e, i_pre + 1, at, n_bytes, first);
    size_t from = e->work.n_bytes;
    if (!rewrite(e, " ", NULL, at, n_bytes)) return false;
    return sp_pretokenize(e, i_pre + 1, from, e->work.n_bytes - from, first);
}

/* Metaspace's own splitting, if it has any, is a Split stage behind it. */
static bool metaspace(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first) {
    const sp_pre *pre = &e->t->pres[i_pre];
    bool prepend = pre->prepend == SP_PREPEND_ALWAYS || (pre->prepend == SP_PREPEND_FIRST && first);
    if (starts_with(e, at, n_bytes, " ") || starts_with(e, at, n_bytes, pre->replacement)) prepend = false;
    size_t from = e->work.n_bytes;
    if (!rewrite(e, prepend ? pre->replacement : "", pre->replacement, at, n_bytes)) return false;
    return sp_pretokenize(e, i_pre + 1, from, e->work.n_bytes - from, first);
}

bool sp_pretokenize(sp_encoder *e, size_t i_pre, size_t at, size_t n_bytes, bool first) {
    if (n_bytes == 0) return true;
    if (i_pre == e->t->n_pres) return sp_bpe_word(e, at, n_bytes);
    switch (e->t->pres[i_pre].kind) {
        case SP_PRE_PREFIX_SPACE:
            return prefix_space(e, i_pre, at, n_bytes, first);
        case SP_PRE_METASPACE:
            return metaspace(e, i_pre, at, n_bytes, first);
        case SP_PRE_SPLIT:
            break;
    }
    return split(e, i_pre, at, n_bytes, first);
}
