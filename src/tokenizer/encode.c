/* Text to ids: one call walks the pipeline of internal.h and owns all state that the walk needs. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/internal.h"
#include "util/size.h"

enum {
    REWRITE_BYTES = 64 << 20, /* rewriting may add this much to eight times the text: Metaspace triples spaces twice */
    CACHE_MIN_BYTES = 256,    /* shorter texts repeat nothing */
    CACHE_MAX_WORDS = 16384,  /* 640 kB; more would leave the second-level cache */
};

bool sp_encoder_push(sp_encoder *e, const int32_t *ids, size_t n) {
    sp_ids *out = e->out;
    if (out->room - out->n < n) {
        size_t room = sp_max_size(sp_max_size(64, out->n + n), out->room + out->room / 2);
        int32_t *grown = realloc(out->ids, room * sizeof *grown);
        if (!grown) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu token ids", room);
        out->ids = grown;
        out->room = room;
    }
    if (n) memcpy(out->ids + out->n, ids, n * sizeof *ids);
    out->n += n;
    return true;
}

void sp_ids_deinit(sp_ids *ids) {
    free(ids->ids);
    *ids = (sp_ids){0};
}

/* Looks for characters with stand-ins in text[from, n_bytes) and keeps the shadow in step. */
static bool follow_shadow(sp_encoder *e, size_t from, size_t n_bytes) {
    if (!e->shadowed && !sp_text_has_standins(e->text + from, n_bytes - from)) {
        e->shadow = e->text;
        return true;
    }
    size_t have = e->shadow_text.n_bytes;
    if (!sp_buf_add(&e->shadow_text, e->text + have, n_bytes - have))
        return sp_fail(e->err, SP_ERR_MEMORY, "no memory for the text");
    sp_text_put_standins(e->shadow_text.data + have, n_bytes - have);
    e->shadowed = true;
    e->shadow = e->shadow_text.data;
    return true;
}

bool sp_encoder_appended(sp_encoder *e, size_t from) {
    e->text = e->work.data ? e->work.data : "";
    return follow_shadow(e, from, e->work.n_bytes);
}

static bool encoder_init(sp_encoder *e, const char *text, size_t n_bytes) {
    e->text = text;
    e->work.limit_bytes = REWRITE_BYTES + 8 * n_bytes;
    e->matcher = sp_matcher_new(n_bytes, e->err);
    if (!e->matcher) return false;
    if (n_bytes >= CACHE_MIN_BYTES) {
        size_t n_cache = 64;
        while (n_cache < CACHE_MAX_WORDS && n_cache < n_bytes / 16) n_cache *= 2;
        e->cache = calloc(n_cache, sizeof *e->cache);
        e->n_cache = e->cache ? n_cache : 0; /* without it the call is only slower */
    }
    return e->t->rewrites || follow_shadow(e, 0, n_bytes);
}

static void encoder_deinit(sp_encoder *e) {
    sp_buf_deinit(&e->work);
    sp_buf_deinit(&e->shadow_text);
    sp_matcher_free(e->matcher);
    free(e->symbols);
    free(e->heap);
    free(e->begins);
    free(e->cache);
}

/* Where the ranges that lie in source[at, at + n_bytes) are in its normalized form: the sum of the normalized lengths
 * of the parts between their ends. Appends to *mapped, whose memory is the caller's. */
static bool map_ranges(sp_encoder *e, const sp_added_walk *raw, size_t at, size_t n_bytes, size_t shift,
                       sp_buf *mapped) {
    const sp_tokenizer *t = e->t;
    sp_buf part = {0};
    size_t from = at, to_from = shift;
    bool ok = true;
    for (size_t i = 0; ok && i < raw->n_ranges; i++) {
        size_t ends[2] = {sp_max_size(raw->ranges[i].begin, at), sp_min_size(raw->ranges[i].end, at + n_bytes)};
        if (ends[0] >= ends[1]) continue;
        size_t mapped_ends[2];
        for (int k = 0; ok && k < 2; k++) {
            sp_buf_clear(&part);
            ok = sp_normalize(t->norms, t->n_norms, raw->text + from, ends[k] - from, true, e->matcher, &part, e->err);
            to_from += part.n_bytes;
            from = ends[k];
            mapped_ends[k] = to_from;
        }
        sp_span_bytes span = {mapped_ends[0], mapped_ends[1]};
        if (ok && !sp_buf_add(mapped, &span, sizeof span)) ok = sp_fail(e->err, SP_ERR_MEMORY, "no memory for ranges");
    }
    sp_buf_deinit(&part);
    return ok;
}

/* How many bytes the normalizers put in front of every piece. */
static size_t prepended_bytes(const sp_tokenizer *t) {
    size_t sum = 0;
    for (size_t i = 0; i < t->n_norms; i++)
        if (t->norms[i].kind == SP_NORM_PREPEND) sum += t->norms[i].n_bytes;
    return sum;
}

/* The part of the walk behind the raw added tokens: one piece of source. */
static bool encode_piece(sp_encoder *e, const sp_added_walk *raw, size_t at, size_t n_bytes) {
    const sp_tokenizer *t = e->t;
    size_t base = at, source_bytes = n_bytes;
    bool first = at == 0;
    sp_buf mapped = {0};
    bool ok = true;
    if (t->rewrites) {
        base = e->work.n_bytes;
        ok = sp_normalize(t->norms, t->n_norms, raw->text + at, n_bytes, false, e->matcher, &e->work, e->err) &&
             sp_encoder_appended(e, base);
        n_bytes = e->work.n_bytes - base;
    }
    sp_added_walk walk = {.set = &t->added_normalized,
                          .flags = t->vocab.flags,
                          .n_bytes = n_bytes,
                          .held = -1,
                          .plain_text = raw->plain_text};
    if (ok && raw->n_ranges && t->added_normalized.has_special) {
        ok = map_ranges(e, raw, at, source_bytes, prepended_bytes(t), &mapped);
        walk.ranges = (const sp_span_bytes *)(const void *)mapped.data;
        walk.n_ranges = mapped.n_bytes / sizeof *walk.ranges;
    }
    size_t begin, end;
    int32_t id;
    walk.text = e->text + base;
    while (ok && sp_added_next(&walk, &begin, &end, &id)) {
        ok =
            id >= 0 ? sp_encoder_push(e, &id, 1) : sp_pretokenize(e, 0, base + begin, end - begin, first && begin == 0);
        walk.text = e->text + base; /* a rewriting pre-tokenizer moves it */
    }
    sp_buf_deinit(&mapped);
    return ok;
}

static bool encode_text(sp_encoder *e, sp_added_walk *walk) {
    size_t begin, end;
    int32_t id;
    while (sp_added_next(walk, &begin, &end, &id))
        if (!(id >= 0 ? sp_encoder_push(e, &id, 1) : encode_piece(e, walk, begin, end - begin))) return false;
    return true;
}

static bool check_ranges(const sp_span_bytes *ranges, size_t n_ranges, size_t n_bytes, sp_error *err) {
    for (size_t i = 0, at = 0; i < n_ranges; at = ranges[i++].end)
        if (ranges[i].begin < at || ranges[i].end < ranges[i].begin || ranges[i].end > n_bytes)
            return sp_fail(err, SP_ERR_INPUT, "range %zu of the text, bytes %zu to %zu of %zu, is out of order", i,
                           ranges[i].begin, ranges[i].end, n_bytes);
    return true;
}

bool sp_tokenizer_encode_ranges(const sp_tokenizer *t, const char *text, size_t n_bytes,
                                const sp_encode_options *options, const sp_span_bytes *ranges, size_t n_ranges,
                                sp_ids *out, sp_error *err) {
    sp_encode_options how = options ? *options : (sp_encode_options){0};
    size_t n_before = out->n;
    if (n_bytes >= (size_t)1 << 31)
        return sp_fail(err, SP_ERR_INPUT, "a text of %zu bytes, want less than 2 GB", n_bytes);
    size_t n_valid = sp_utf8_valid_bytes(text, n_bytes);
    if (n_valid != n_bytes) return sp_fail(err, SP_ERR_INPUT, "text: byte %zu is not UTF-8", n_valid);
    if (!check_ranges(ranges, n_ranges, n_bytes, err)) return false;
    sp_encoder e = {.t = t, .out = out, .err = err};
    sp_added_walk walk = {.set = &t->added_raw,
                          .flags = t->vocab.flags,
                          .text = text ? text : "",
                          .n_bytes = n_bytes,
                          .ranges = ranges,
                          .n_ranges = n_ranges,
                          .plain_text = how.plain_text,
                          .held = -1};
    bool ok = encoder_init(&e, walk.text, n_bytes) &&
              sp_encoder_push(&e, t->prefix, how.add_special ? t->n_prefix : 0) && encode_text(&e, &walk) &&
              sp_encoder_push(&e, t->suffix, how.add_special ? t->n_suffix : 0);
    encoder_deinit(&e);
    if (!ok) out->n = n_before;
    return ok;
}

bool sp_tokenizer_encode(const sp_tokenizer *t, const char *text, size_t n_bytes, const sp_encode_options *options,
                         sp_ids *out, sp_error *err) {
    return sp_tokenizer_encode_ranges(t, text, n_bytes, options, NULL, 0, out, err);
}
