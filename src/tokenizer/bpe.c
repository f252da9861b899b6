/* Byte pair encoding of one word.
 *
 * Symbols form a linked list over an array; candidate merges wait in a binary heap ordered by (rank, position). A
 * merge kills at most two waiting candidates, which are recognised when they surface: the pair that now stands there
 * merges into something else. So a word of n symbols costs O(n log n), also when it is a megabyte of one letter. The
 * test for staleness compares the result alone, as the reference does: a candidate whose pair was replaced by another
 * pair with the same result is carried out at its old rank, and ids depend on that.
 *
 * Words repeat, so a call keeps a small direct-mapped cache from word to the ids it has already written: an entry names
 * a place in the text and a place in the output, and costs no copy. It lives and dies with the call.
 *
 * A vocabulary with space markers usually comes without a pre-tokenizer, and a whole text is one word. It is cut before
 * each marker that no token can have in its middle behind the character there: no merge crosses that place. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/internal.h"
#include "util/size.h"

#define NONE UINT32_MAX
static const char marker[] = "\xe2\x96\x81"; /* U+2581 */
enum { MARKER_BYTES = 3, MAX_CACHED_BYTES = 256, MAX_CACHED_IDS = 64 };

/* ---- the table of merges ---- */

static size_t merge_slot(const sp_bpe *bpe, uint32_t left, uint32_t right) {
    size_t mask = bpe->n_slots - 1;
    uint64_t key = (uint64_t)left << 32 | right;
    size_t i = (size_t)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 24) & mask; /* Fibonacci hashing */
    while (bpe->slots[i].left != NONE && (bpe->slots[i].left != left || bpe->slots[i].right != right))
        i = (i + 1) & mask;
    return i;
}

bool sp_bpe_reserve(sp_bpe *bpe, size_t n_merges_max, sp_error *err) {
    size_t n_slots = 64;
    while (n_slots < n_merges_max * 2) n_slots *= 2;
    bpe->slots = malloc(n_slots * sizeof *bpe->slots);
    if (!bpe->slots) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu merges", n_merges_max);
    memset(bpe->slots, 0xff, n_slots * sizeof *bpe->slots);
    bpe->n_slots = n_slots;
    return true;
}

void sp_bpe_merge_add(sp_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
    sp_merge *slot = &bpe->slots[merge_slot(bpe, left, right)];
    if (slot->left == NONE) bpe->n_merges++;
    *slot = (sp_merge){left, right, rank, merged}; /* the later one of two wins */
}

void sp_bpe_deinit(sp_bpe *bpe) {
    free(bpe->slots);
    free(bpe->ranks);
    free(bpe->joins);
    *bpe = (sp_bpe){0};
}

/* ---- preparation ---- */

static int compare_uint32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Notes the characters that stand in front of a marker within a token. */
static bool note_joins(sp_bpe *bpe, const sp_vocab *v, sp_error *err) {
    size_t room = 0;
    for (size_t id = 0; id < v->n_ids; id++) {
        if (!(v->flags[id] & SP_TOK_MODEL)) continue;
        const char *text = sp_vocab_text(v, id), *end = text + v->literal[id].n_bytes;
        uint32_t before = NONE, c;
        for (const char *s = text; s < end; before = c) {
            s += sp_char_next(s, &c);
            if (c != 0x2581 || before == NONE || (bpe->n_joins && bpe->joins[bpe->n_joins - 1] == before)) continue;
            if (bpe->n_joins == room) {
                room = sp_max_size(64, room * 2);
                uint32_t *joins = realloc(bpe->joins, room * sizeof *joins);
                if (!joins) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu characters", room);
                bpe->joins = joins;
            }
            bpe->joins[bpe->n_joins++] = before;
        }
    }
    if (bpe->n_joins == 0) return true;
    qsort(bpe->joins, bpe->n_joins, sizeof *bpe->joins, compare_uint32);
    size_t n = 1;
    for (size_t i = 1; i < bpe->n_joins; i++)
        if (bpe->joins[i] != bpe->joins[n - 1]) bpe->joins[n++] = bpe->joins[i];
    bpe->n_joins = n;
    return true;
}

/* Cutting needs every symbol to stay with its own characters: no unknown token that swallows neighbours, and no merge
 * of byte tokens, whose bytes may be of two characters. */
static bool may_cut(const sp_bpe *bpe, const sp_vocab *v, const bool *is_byte) {
    if (bpe->byte_level || bpe->ignore_merges || !bpe->byte_fallback) return false;
    for (int b = 0; b < 256; b++)
        if (bpe->byte_ids[b] < 0) return false;
    for (size_t i = 0; i < bpe->n_slots; i++) {
        const sp_merge *m = &bpe->slots[i];
        if (m->left != NONE && (is_byte[m->left] || is_byte[m->right])) return false;
    }
    return sp_vocab_find_model(v, false, marker, MARKER_BYTES) >= 0;
}

bool sp_bpe_prepare(sp_bpe *bpe, const sp_vocab *v, sp_error *err) {
    bool *is_byte = calloc(v->n_ids + 1, sizeof *is_byte);
    if (!is_byte) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu tokens", v->n_ids);
    for (int b = 0; b < 256; b++) {
        static const char digits[] = "0123456789ABCDEF";
        char name[7] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>', '\0'};
        char byte = (char)b;
        int32_t id = bpe->byte_level ? sp_vocab_find_model(v, true, &byte, 1) : sp_vocab_find_literal(v, name, 6);
        if (id >= 0 && !bpe->byte_level) {
            if (!(v->flags[id] & SP_TOK_MODEL) && !bpe->by_score) id = -1;
            if (id >= 0) is_byte[id] = true;
        }
        bpe->byte_ids[b] = id;
    }
    bpe->cut_at_marker = may_cut(bpe, v, is_byte);
    free(is_byte);
    return !bpe->cut_at_marker || note_joins(bpe, v, err);
}

/* ---- the heap ---- */

static bool is_before(sp_candidate a, sp_candidate b) { return a.rank < b.rank || (a.rank == b.rank && a.pos < b.pos); }

static bool heap_push(sp_encoder *e, sp_candidate c) {
    if (e->n_heap == e->room_heap) {
        size_t room = sp_max_size(64, e->room_heap * 2);
        sp_candidate *heap = realloc(e->heap, room * sizeof *heap);
        if (!heap) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu merges of one word", room);
        e->heap = heap;
        e->room_heap = room;
    }
    size_t i = e->n_heap++;
    while (i > 0 && is_before(c, e->heap[(i - 1) / 2])) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = c;
    return true;
}

static sp_candidate heap_pop(sp_encoder *e) {
    sp_candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= e->n_heap) break;
        if (child + 1 < e->n_heap && is_before(e->heap[child + 1], e->heap[child])) child++;
        if (!is_before(e->heap[child], last)) break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
    return top;
}

/* ---- one word ---- */

typedef struct {
    sp_encoder *e;
    const sp_bpe *bpe;
    const char *text;
    size_t n_symbols;
} word;

static bool add_symbol(word *w, uint32_t id, size_t begin, size_t n_bytes) {
    sp_encoder *e = w->e;
    uint32_t n = (uint32_t)w->n_symbols++;
    if (w->n_symbols > e->room_symbols) {
        size_t room = sp_max_size(64, e->room_symbols * 2);
        sp_symbol *symbols = realloc(e->symbols, room * sizeof *symbols);
        if (!symbols) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu symbols of one word", room);
        e->symbols = symbols;
        e->room_symbols = room;
    }
    e->symbols[n] = (sp_symbol){.id = id, .prev = n - 1, .next = n + 1, .n_bytes = (uint32_t)n_bytes};
    if (!w->bpe->by_score) return true;
    if (w->n_symbols > e->room_begins) {
        uint32_t *begins = realloc(e->begins, e->room_symbols * sizeof *begins);
        if (!begins) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu symbols of one word", e->room_symbols);
        e->begins = begins;
        e->room_begins = e->room_symbols;
    }
    e->begins[n] = (uint32_t)begin;
    return true;
}

/* What symbols a and b merge into, and when; false if they do not. */
static bool find_merge(const word *w, uint32_t a, uint32_t b, uint32_t *rank, uint32_t *merged) {
    const sp_symbol *symbols = w->e->symbols;
    if (!w->bpe->by_score) {
        const sp_merge *m = &w->bpe->slots[merge_slot(w->bpe, symbols[a].id, symbols[b].id)];
        *rank = m->rank;
        *merged = m->merged;
        return m->left != NONE;
    }
    int32_t id = sp_vocab_find_model(&w->e->t->vocab, false, w->text + w->e->begins[a],
                                     (size_t)symbols[a].n_bytes + symbols[b].n_bytes);
    if (id < 0 || w->bpe->ranks[id] == NONE) return false;
    *rank = w->bpe->ranks[id];
    *merged = (uint32_t)id;
    return true;
}

static bool propose(word *w, uint32_t a, uint32_t b) {
    uint32_t rank, merged;
    if (!find_merge(w, a, b, &rank, &merged)) return true;
    return heap_push(w->e, (sp_candidate){rank, a, merged});
}

static bool merge_all(word *w) {
    sp_encoder *e = w->e;
    uint32_t n = (uint32_t)w->n_symbols;
    e->n_heap = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        if (!propose(w, i, i + 1)) return false;
    while (e->n_heap) {
        sp_candidate top = heap_pop(e);
        sp_symbol *left = &e->symbols[top.pos];
        if (left->n_bytes == 0 || left->next >= n) continue;
        sp_symbol *right = &e->symbols[left->next];
        uint32_t rank, merged;
        if (!find_merge(w, top.pos, left->next, &rank, &merged) || merged != top.merged) continue;
        left->id = top.merged;
        left->n_bytes += right->n_bytes;
        left->next = right->next;
        right->n_bytes = 0;
        if (left->next < n) e->symbols[left->next].prev = top.pos;
        if (left->prev < n && !propose(w, left->prev, top.pos)) return false;
        if (left->next < n && !propose(w, top.pos, left->next)) return false;
    }
    return true;
}

/* First symbols of a character (or byte) that is not in the vocabulary: its bytes' tokens, if all are there. */
static bool add_fallback(word *w, size_t begin, size_t n_bytes, bool *done) {
    const unsigned char *s = (const unsigned char *)w->text + begin;
    *done = false;
    if (!w->bpe->byte_fallback || w->bpe->byte_level) return true;
    for (size_t i = 0; i < n_bytes; i++)
        if (w->bpe->byte_ids[s[i]] < 0) return true;
    *done = true;
    for (size_t i = 0; i < n_bytes; i++)
        if (!add_symbol(w, (uint32_t)w->bpe->byte_ids[s[i]], begin + i, 1)) return false;
    return true;
}

static int32_t first_id(const word *w, size_t at, size_t step) {
    if (w->bpe->byte_level) return w->bpe->byte_ids[(unsigned char)w->text[at]];
    return sp_vocab_find_model(&w->e->t->vocab, false, w->text + at, step);
}

/* Fills the symbols. Unknown characters wait in `unknown` until a known one comes, so that fuse_unk can join them; the
 * library lets byte tokens pass a waiting one, and so do we. */
static bool add_symbols(word *w, size_t n_bytes) {
    const sp_bpe *bpe = w->bpe;
    size_t unknown = 0, unknown_at = 0;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        size_t step = bpe->byte_level ? 1 : sp_char_next(w->text + i, &c);
        int32_t id = first_id(w, i, step);
        bool done = false;
        if (id >= 0) {
            if (unknown && !add_symbol(w, (uint32_t)bpe->unk_id, unknown_at, unknown)) return false;
            unknown = 0;
            if (!add_symbol(w, (uint32_t)id, i, step)) return false;
        } else if (bpe->by_score) {
            if (!add_symbol(w, NONE, i, step)) return false;
        } else if (!add_fallback(w, i, step, &done)) {
            return false;
        } else if (!done && bpe->unk_id == -2) {
            return sp_fail(w->e->err, SP_ERR_INPUT,
                           "an unknown character, and the unknown token is not in the vocabulary");
        } else if (!done && bpe->unk_id >= 0) {
            if (unknown && !bpe->fuse_unk) {
                if (!add_symbol(w, (uint32_t)bpe->unk_id, unknown_at, unknown)) return false;
                unknown = 0;
            }
            if (unknown == 0) unknown_at = i;
            unknown += step;
        }
        i += step;
    }
    return unknown == 0 || add_symbol(w, (uint32_t)bpe->unk_id, unknown_at, unknown);
}

/* A symbol that no merge made a token (by_score): its bytes, or the unknown token. */
static bool push_leftover(const word *w, uint32_t n) {
    sp_encoder *e = w->e;
    const unsigned char *s = (const unsigned char *)w->text + e->begins[n];
    bool all = w->bpe->byte_fallback;
    for (size_t i = 0; i < e->symbols[n].n_bytes; i++) all = all && w->bpe->byte_ids[s[i]] >= 0;
    for (size_t i = 0; all && i < e->symbols[n].n_bytes; i++)
        if (!sp_encoder_push(e, &w->bpe->byte_ids[s[i]], 1)) return false;
    return all || w->bpe->unk_id < 0 || sp_encoder_push(e, &w->bpe->unk_id, 1);
}

static bool encode_word(sp_encoder *e, const char *text, size_t n_bytes) {
    word w = {.e = e, .bpe = &e->t->bpe, .text = text};
    if (w.bpe->ignore_merges) {
        int32_t id = sp_vocab_find_model(&e->t->vocab, w.bpe->byte_level, text, n_bytes);
        if (id >= 0) return sp_encoder_push(e, &id, 1);
    }
    if (!add_symbols(&w, n_bytes) || !merge_all(&w)) return false;
    for (uint32_t i = 0; i < w.n_symbols; i++) {
        if (e->symbols[i].n_bytes == 0) continue;
        int32_t id = (int32_t)e->symbols[i].id;
        if (!(e->symbols[i].id == NONE ? push_leftover(&w, i) : sp_encoder_push(e, &id, 1))) return false;
    }
    return true;
}

static bool cached_word(sp_encoder *e, size_t at, size_t n_bytes) {
    const char *text = e->text + at;
    if (e->n_cache == 0 || n_bytes > MAX_CACHED_BYTES) return encode_word(e, text, n_bytes);
    uint32_t hash = (uint32_t)XXH3_64bits(text, n_bytes);
    sp_cached_word *entry = &e->cache[hash & (e->n_cache - 1)];
    if (entry->n_ids && entry->hash == hash && entry->n_bytes == n_bytes &&
        memcmp(e->text + entry->at, text, n_bytes) == 0) {
        int32_t ids[MAX_CACHED_IDS]; /* the output may move while it grows */
        memcpy(ids, e->out->ids + entry->first_id, entry->n_ids * sizeof *ids);
        return sp_encoder_push(e, ids, entry->n_ids);
    }
    size_t first_id = e->out->n;
    if (!encode_word(e, text, n_bytes)) return false;
    size_t n_ids = e->out->n - first_id;
    if (n_ids <= MAX_CACHED_IDS) *entry = (sp_cached_word){hash, (uint32_t)n_bytes, at, first_id, (uint32_t)n_ids};
    return true;
}

/* Offset of the next place at or after `from` where the word may be cut, or n_bytes. */
static size_t next_cut(const sp_bpe *bpe, const char *text, size_t n_bytes, size_t from) {
    for (;;) {
        const char *hit = memmem(text + from, n_bytes - from, marker, MARKER_BYTES);
        if (!hit) return n_bytes;
        size_t at = (size_t)(hit - text), before = at;
        do before--;
        while (((unsigned char)text[before] & 0xc0) == 0x80);
        uint32_t c;
        sp_char_next(text + before, &c);
        if (!bpe->n_joins || !bsearch(&c, bpe->joins, bpe->n_joins, sizeof c, compare_uint32)) return at;
        from = at + MARKER_BYTES;
    }
}

bool sp_bpe_word(sp_encoder *e, size_t at, size_t n_bytes) {
    const sp_bpe *bpe = &e->t->bpe;
    if (!bpe->cut_at_marker) return cached_word(e, at, n_bytes);
    for (size_t begin = 0; begin < n_bytes;) {
        size_t end = next_cut(bpe, e->text + at, n_bytes, begin + 1);
        if (!cached_word(e, at + begin, end - begin)) return false;
        begin = end;
    }
    return true;
}
