/* Ids to text: a pipe of stages, each of which takes pieces of text and hands on what can no longer change.
 *
 * One implementation serves decode and streaming: decode is all pushes and a finish. A stage either sees tokens one by
 * one, or, behind a Fuse (or a stage that joins bytes anyway), one long string that arrives in pieces (`fused`); then
 * it holds back what a later piece could still change. Byte tokens are held until the run of them ends, because
 * whether the whole run is UTF-8 decides what each byte of it becomes. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/internal.h"
#include "util/size.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

typedef struct {
    sp_buf held;
    bool started;       /* a piece has come by */
    size_t n_stripped;  /* STRIP, fused: characters taken off the front */
    bool front_is_over; /* STRIP, fused: something else stood there */
} stage;
struct sp_detok {
    const sp_tokenizer *t;
    bool skip_special, ok;
    sp_buf *out;
    stage stages[SP_TOK_MAX_PARTS];
};

static void push_piece(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes);

static void pass(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    push_piece(d, i_dec + 1, text, n_bytes);
}

static void hold(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    if (!sp_buf_add(&d->stages[i_dec].held, text, n_bytes)) d->ok = false;
}

/* ---- stages ---- */

/* Hands on the complete characters of what is held, invalid runs as U+FFFD; at the end what is left of one, too. */
static void pass_characters(sp_detok *d, size_t i_dec, bool at_end) {
    sp_buf *held = &d->stages[i_dec].held;
    sp_buf text = {0};
    size_t done = 0;
    while (done < held->n_bytes) {
        bool valid;
        size_t step = sp_utf8_step(held->data + done, held->n_bytes - done, &valid);
        if (step == 0 && !at_end) break;
        bool fits = valid ? sp_buf_add(&text, held->data + done, step) : sp_buf_text(&text, replacement);
        if (!fits) d->ok = false;
        done += step ? step : held->n_bytes - done;
    }
    if (text.n_bytes) pass(d, i_dec, text.data, text.n_bytes);
    sp_buf_deinit(&text);
    if (done == 0) return;
    memmove(held->data, held->data + done, held->n_bytes - done);
    held->n_bytes -= done;
}

static void byte_level(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    sp_buf *held = &d->stages[i_dec].held;
    if (!sp_bytes_of_text(text, n_bytes, held)) hold(d, i_dec, text, n_bytes);
    pass_characters(d, i_dec, false);
}

/* The byte that a token like <0x0A> names, or -1. Rust's number parser also takes a plus sign. */
static int byte_token(const char *text, size_t n_bytes) {
    if (n_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0 && !(i == 3 && c == '+')) return -1;
        value = value * 16 + (digit < 0 ? 0 : digit);
    }
    return value;
}

static void pass_byte_run(sp_detok *d, size_t i_dec) {
    sp_buf *held = &d->stages[i_dec].held;
    size_t n = held->n_bytes;
    if (n == 0) return;
    if (sp_utf8_valid_bytes(held->data, n) == n)
        pass(d, i_dec, held->data, n);
    else
        for (size_t i = 0; i < n; i++) pass(d, i_dec, replacement, sizeof replacement - 1);
    sp_buf_clear(held);
}

static void byte_fallback(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    int byte = byte_token(text, n_bytes);
    if (byte >= 0) {
        char c = (char)byte;
        hold(d, i_dec, &c, 1);
        return;
    }
    pass_byte_run(d, i_dec);
    pass(d, i_dec, text, n_bytes);
}

/* Appends text to *out with the pattern replaced. Returns the bytes used: unless at_end, the tail that may begin an
 * occurrence stays. */
static size_t replace_in(const sp_dec *dec, const char *text, size_t n_bytes, bool at_end, sp_buf *out) {
    size_t done = 0;
    while (done < n_bytes) {
        const char *hit = memmem(text + done, n_bytes - done, dec->pattern, dec->pattern_bytes);
        if (!hit) break;
        sp_buf_add(out, text + done, (size_t)(hit - text) - done);
        sp_buf_add(out, dec->content, dec->content_bytes);
        done = (size_t)(hit - text) + dec->pattern_bytes;
    }
    size_t keep = at_end ? 0 : sp_min_size(dec->pattern_bytes - 1, n_bytes - done);
    while (keep && memcmp(text + n_bytes - keep, dec->pattern, keep) != 0) keep--;
    sp_buf_add(out, text + done, n_bytes - keep - done);
    return n_bytes - keep;
}

static void replace(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    const sp_dec *dec = &d->t->decs[i_dec];
    sp_buf *held = &d->stages[i_dec].held;
    sp_buf out = {0};
    if (dec->fused) {
        hold(d, i_dec, text, n_bytes);
        size_t used = replace_in(dec, held->data, held->n_bytes, false, &out);
        memmove(held->data, held->data + used, held->n_bytes - used);
        held->n_bytes -= used;
    } else {
        replace_in(dec, text, n_bytes, true, &out);
    }
    if (out.failed) d->ok = false;
    if (out.n_bytes || !dec->fused) pass(d, i_dec, out.data ? out.data : "", out.n_bytes);
    sp_buf_deinit(&out);
}

/* Bytes of up to `limit` occurrences of the stripped character at the end of text. */
static size_t tail_bytes(const sp_dec *dec, const char *text, size_t n_bytes, size_t limit) {
    size_t n = 0, w = dec->pattern_bytes;
    while (n < limit && n_bytes >= (n + 1) * w && memcmp(text + n_bytes - (n + 1) * w, dec->pattern, w) == 0) n++;
    return n * w;
}

static void strip(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    const sp_dec *dec = &d->t->decs[i_dec];
    stage *s = &d->stages[i_dec];
    if (!dec->fused) {
        s->n_stripped = 0;
        s->front_is_over = false;
    }
    while (!s->front_is_over && s->n_stripped < dec->n_start && n_bytes >= dec->pattern_bytes &&
           memcmp(text, dec->pattern, dec->pattern_bytes) == 0) {
        text += dec->pattern_bytes;
        n_bytes -= dec->pattern_bytes;
        s->n_stripped++;
    }
    if (n_bytes) s->front_is_over = true;
    if (!dec->fused) {
        pass(d, i_dec, text, n_bytes - tail_bytes(dec, text, n_bytes, dec->n_stop));
        return;
    }
    if (dec->n_stop == 0) {
        if (n_bytes) pass(d, i_dec, text, n_bytes);
        return;
    }
    hold(d, i_dec, text, n_bytes);
    size_t keep = tail_bytes(dec, s->held.data, s->held.n_bytes, dec->n_stop);
    size_t n = s->held.n_bytes - keep;
    if (n) pass(d, i_dec, s->held.data, n);
    memmove(s->held.data, s->held.data + n, keep);
    s->held.n_bytes = keep;
}

static void metaspace(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    const sp_dec *dec = &d->t->decs[i_dec];
    bool drop = dec->drop_first && (dec->fused || !d->stages[i_dec].started);
    sp_dec rule = *dec;
    rule.content = " ";
    rule.content_bytes = drop ? 0 : 1;
    sp_buf out = {0};
    replace_in(&rule, text, n_bytes, true, &out); /* the marker is one character: no piece splits it */
    if (out.failed) d->ok = false;
    pass(d, i_dec, out.data ? out.data : "", out.n_bytes);
    sp_buf_deinit(&out);
}

static void fuse(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    if (n_bytes) pass(d, i_dec, text, n_bytes);
}

static void join(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    if (d->stages[i_dec].started) pass(d, i_dec, " ", 1);
    pass(d, i_dec, text, n_bytes);
}

/* ---- what is held at the end ---- */

static void finish_characters(sp_detok *d, size_t i_dec) { pass_characters(d, i_dec, true); }

static void finish_held(sp_detok *d, size_t i_dec) {
    const sp_buf *held = &d->stages[i_dec].held;
    if (held->n_bytes) pass(d, i_dec, held->data, held->n_bytes);
}

/* ---- one token by itself ---- */

static void byte_level_one(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes) {
    (void)dec;
    *is_bytes = true;
    if (!sp_bytes_of_text(in->data, in->n_bytes, out)) sp_buf_add(out, in->data, in->n_bytes);
}

static void byte_fallback_one(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes) {
    (void)dec;
    int byte = byte_token(in->data, in->n_bytes);
    *is_bytes = byte >= 0;
    if (byte >= 0)
        sp_buf_char(out, (char)byte);
    else
        sp_buf_add(out, in->data, in->n_bytes);
}

static void replace_one(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes) {
    (void)is_bytes;
    replace_in(dec, in->data, in->n_bytes, true, out);
}

static void metaspace_one(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes) {
    (void)is_bytes;
    sp_dec rule = *dec;
    rule.content = " ";
    rule.content_bytes = 1;
    replace_in(&rule, in->data, in->n_bytes, true, out);
}

/* The kinds of stage. finish hands on what is held when the text is over (NULL: nothing is held, or it falls away).
 * one appends what the stage makes of a single token and sets *is_bytes when that is bytes and no longer text
 * (NULL: the token as it is). */
static const struct {
    void (*push)(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes);
    void (*finish)(sp_detok *d, size_t i_dec);
    void (*one)(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes);
} kinds[] = {
    [SP_DEC_BYTE_LEVEL] = {byte_level, finish_characters, byte_level_one},
    [SP_DEC_BYTE_FALLBACK] = {byte_fallback, pass_byte_run, byte_fallback_one},
    [SP_DEC_REPLACE] = {replace, finish_held, replace_one},
    [SP_DEC_FUSE] = {fuse, NULL, NULL},
    [SP_DEC_STRIP] = {strip, NULL, NULL},
    [SP_DEC_METASPACE] = {metaspace, NULL, metaspace_one},
    [SP_DEC_JOIN] = {join, NULL, NULL},
};

static void push_piece(sp_detok *d, size_t i_dec, const char *text, size_t n_bytes) {
    if (i_dec == d->t->n_decs) {
        if (d->out && !sp_buf_add(d->out, text, n_bytes)) d->ok = false;
        return;
    }
    kinds[d->t->decs[i_dec].kind].push(d, i_dec, text, n_bytes);
    d->stages[i_dec].started = true;
}

/* Stage by stage, what is held goes on to the later ones. */
static void flush(sp_detok *d) {
    for (size_t i = 0; i < d->t->n_decs; i++) {
        void (*finish)(sp_detok *, size_t) = kinds[d->t->decs[i].kind].finish;
        if (finish) finish(d, i);
        sp_buf *held = &d->stages[i].held;
        sp_buf_clear(held);
        d->stages[i] = (stage){.held = *held};
    }
}

static void detok_deinit(sp_detok *d) {
    for (size_t i = 0; i < SP_TOK_MAX_PARTS; i++) sp_buf_deinit(&d->stages[i].held);
}

/* ---- the public calls ---- */

bool sp_tokenizer_is_skipped(const sp_tokenizer *t, int32_t id) {
    const sp_vocab *v = &t->vocab;
    return id >= 0 && (size_t)id < v->n_ids && (v->flags[id] & (SP_TOK_SPECIAL | SP_TOK_RENAMED)) == SP_TOK_SPECIAL;
}

static void push_id(sp_detok *d, int32_t id) {
    const sp_vocab *v = &d->t->vocab;
    if (id < 0 || (size_t)id >= v->n_ids || !v->flags[id]) return;
    if (d->skip_special && sp_tokenizer_is_skipped(d->t, id)) return;
    sp_slice shown = sp_vocab_shown(v, (size_t)id);
    push_piece(d, 0, v->text.data + shown.offset, shown.n_bytes);
}

bool sp_tokenizer_decode(const sp_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, sp_buf *out,
                         sp_error *err) {
    sp_detok d = {.t = t, .skip_special = skip_special, .ok = true, .out = out};
    for (size_t i = 0; i < n && d.ok; i++) push_id(&d, ids[i]);
    flush(&d);
    detok_deinit(&d);
    return d.ok || sp_fail(err, SP_ERR_MEMORY, "no memory for the text of %zu tokens", n);
}

sp_detok *sp_detok_new(const sp_tokenizer *t, bool skip_special, sp_error *err) {
    sp_detok *d = calloc(1, sizeof *d);
    if (!d) {
        sp_fail(err, SP_ERR_MEMORY, "no memory for a detokenizer");
        return NULL;
    }
    d->t = t;
    d->skip_special = skip_special;
    return d;
}

bool sp_detok_push(sp_detok *d, int32_t id, sp_buf *out) {
    d->ok = true;
    d->out = out;
    push_id(d, id);
    return d->ok;
}

bool sp_detok_finish(sp_detok *d, sp_buf *out) {
    d->ok = true;
    d->out = out;
    flush(d);
    return d->ok;
}

void sp_detok_free(sp_detok *d) {
    if (!d) return;
    detok_deinit(d);
    free(d);
}

/* ---- the bytes of single tokens ---- */

static void stage_on_token(const sp_dec *dec, const sp_buf *in, sp_buf *out, bool *is_bytes) {
    if (kinds[dec->kind].one)
        kinds[dec->kind].one(dec, in, out, is_bytes);
    else
        sp_buf_add(out, in->data, in->n_bytes);
}

/* Appends what one token contributes: the stages that look at single tokens. now and next are scratch. */
static bool token_bytes(const sp_tokenizer *t, const char *text, size_t n_bytes, sp_buf *now, sp_buf *next,
                        sp_buf *out) {
    bool is_bytes = false;
    sp_buf_clear(now);
    bool ok = sp_buf_add(now, text, n_bytes);
    for (size_t i = 0; ok && !is_bytes && i < t->n_decs && !t->decs[i].fused; i++) {
        sp_buf_clear(next);
        stage_on_token(&t->decs[i], now, next, &is_bytes);
        ok = !next->failed && sp_buf_reserve(next, 0);
        sp_buf swap = *now;
        *now = *next;
        *next = swap;
    }
    return ok && sp_buf_add(out, now->data, now->n_bytes);
}

bool sp_decode_prepare(sp_tokenizer *t, sp_error *err) {
    sp_vocab *v = &t->vocab;
    sp_buf scratch = {0}, now = {0}, next = {0};
    bool ok = true;
    v->raw = calloc(v->n_ids + 1, sizeof *v->raw);
    if (!v->raw) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu tokens", v->n_ids);
    for (size_t id = 0; ok && id < v->n_ids; id++) {
        if (!v->flags[id]) continue;
        const char *text = sp_vocab_text(v, id);
        size_t n_bytes = v->literal[id].n_bytes, at = v->bytes.n_bytes;
        sp_buf_clear(&scratch);
        bool special = v->flags[id] & SP_TOK_SPECIAL;
        /* The model looks words up by raw bytes: they must be those of the alphabet, not a special token's text. */
        if (t->bpe.byte_level && sp_bytes_of_text(text, n_bytes, &scratch) &&
            (!special || (scratch.n_bytes == n_bytes && (n_bytes == 0 || memcmp(scratch.data, text, n_bytes) == 0))))
            v->flags[id] |= SP_TOK_BYTES;
        ok = special ? sp_buf_add(&v->bytes, text, n_bytes) : token_bytes(t, text, n_bytes, &now, &next, &v->bytes);
        ok = ok && v->bytes.n_bytes < UINT32_MAX;
        v->raw[id] = (sp_slice){(uint32_t)at, (uint32_t)(v->bytes.n_bytes - at)};
    }
    sp_buf_deinit(&now);
    sp_buf_deinit(&next);
    sp_buf_deinit(&scratch);
    return ok || sp_fail(err, SP_ERR_MEMORY, "no memory for the bytes of %zu tokens", v->n_ids);
}

bool sp_tokenizer_token_bytes(const sp_tokenizer *t, int32_t id, const char **bytes, size_t *n_bytes) {
    const sp_vocab *v = &t->vocab;
    if (id < 0 || (size_t)id >= v->n_ids || !v->flags[id]) return false;
    *bytes = v->bytes.data ? v->bytes.data + v->raw[id].offset : "";
    *n_bytes = v->raw[id].n_bytes;
    return true;
}

bool sp_tokenizer_token_text(const sp_tokenizer *t, int32_t id, const char **text, size_t *n_bytes) {
    const sp_vocab *v = &t->vocab;
    if (id < 0 || (size_t)id >= v->n_ids || !v->flags[id]) return false;
    *text = sp_vocab_text(v, (size_t)id);
    *n_bytes = v->literal[id].n_bytes;
    return true;
}
