/* Byte pair encoding of one word.
 *
 * Symbols stand in an array, each over the slots of what it was merged from; candidate merges wait in a binary heap
 * ordered by (rank, position). A merge kills at most two waiting candidates, which are recognised when they surface:
 * the pair that now stands there merges into something else. So a word of n symbols costs O(n log n), also when it is a
 * megabyte of one letter. The test for staleness compares the result alone, as the reference does: a candidate whose
 * pair was replaced by another pair with the same result is carried out at its old rank, and ids depend on that.
 *
 * A very long word's first candidates, one for each pair, would make a heap that no cache holds. They are known at the
 * start, so they are put in order by counting, and only what merges bring up later goes through the heap.
 *
 * Words repeat, so a call keeps a small direct-mapped cache from word to the ids it has already written: an entry names
 * a place in the text and a place in the output, and costs no copy. It lives and dies with the call.
 *
 * A vocabulary with space markers usually comes without a pre-tokenizer, and a whole text is one word. It is cut before
 * each marker that no token can have in its middle behind the character there: no merge crosses that place. */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/internal.h"
#include "util/size.h"

#define NONE UINT32_MAX /* no rank, no merge */

/* A word's symbols take four bytes each, with no links between them. A symbol that was merged covers the slots of what
 * it came from: the first holds its id and WIDE, the second and the last (maybe the same) hold how many they are, so
 * that both neighbours can step over it.
 *
 *   [ id | WIDE ] [ DEAD | 4 ] [ DEAD ] [ DEAD | 4 ] [ id of the next ] */
#define DEAD 0x80000000u                     /* covered by a symbol to the left */
#define WIDE 0x40000000u                     /* covers more than its own slot */
#define UNKNOWN 0x3fffffffu                  /* by_score: text that is no token */
static const char marker[] = "\xe2\x96\x81"; /* U+2581 */
enum {
    MARKER_BYTES = 3,
    MAX_CACHED_BYTES = 256,
    MAX_CACHED_IDS = 64,
    COUNTING_SYMBOLS = 1 << 16, /* a heap of as many candidates still fits a second-level cache */
};

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
    bpe->results = calloc(n_merges_max + 1, sizeof *bpe->results);
    if (!bpe->results) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu merges", n_merges_max);
    return true;
}

void sp_bpe_merge_add(sp_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
    sp_merge *slot = &bpe->slots[merge_slot(bpe, left, right)];
    if (slot->left == NONE) bpe->n_merges++;
    *slot = (sp_merge){left, right, rank, merged}; /* the later one of two wins */
    bpe->results[rank] = merged;
    if (rank >= bpe->n_ranks) bpe->n_ranks = (size_t)rank + 1;
}

void sp_bpe_deinit(sp_bpe *bpe) {
    free(bpe->slots);
    free(bpe->ranks);
    free(bpe->results);
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

static bool heap_push(sp_encoder *e, uint64_t key) {
    if (e->n_heap == e->room_heap) {
        size_t room = sp_max_size(64, e->room_heap + e->room_heap / 2);
        uint64_t *heap = realloc(e->heap, room * sizeof *heap);
        if (!heap) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu merges of one word", room);
        e->heap = heap;
        e->room_heap = room;
    }
    size_t i = e->n_heap++;
    while (i > 0 && key < e->heap[(i - 1) / 2]) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = key;
    return true;
}

static uint64_t heap_pop(sp_encoder *e) {
    uint64_t top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= e->n_heap) break;
        if (child + 1 < e->n_heap && e->heap[child + 1] < e->heap[child]) child++;
        if (e->heap[child] >= last) break;
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
    size_t n_bytes, n_symbols;
    uint32_t *sorted; /* positions of the first candidates by (rank, position), or NULL: they are in the heap */
    uint32_t *ends;   /* [n_ranks] where each rank's positions end in sorted */
    size_t i_sorted, i_rank;
} word;

/* Room for n symbols. A long word asks for all it can need at once: pages that stay untouched cost nothing, growing
 * in steps would hold two copies. */
static bool reserve_symbols(word *w, size_t n) {
    sp_encoder *e = w->e;
    if (n > e->room_symbols) {
        size_t room = sp_max_size(sp_max_size(64, n), e->room_symbols * 2);
        uint32_t *symbols = realloc(e->symbols, room * sizeof *symbols);
        if (!symbols) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu symbols of one word", room);
        e->symbols = symbols;
        e->room_symbols = room;
    }
    if (w->bpe->by_score && n > e->room_begins) {
        uint32_t *begins = realloc(e->begins, e->room_symbols * sizeof *begins);
        if (!begins) return sp_fail(e->err, SP_ERR_MEMORY, "no memory for %zu symbols of one word", e->room_symbols);
        e->begins = begins;
        e->room_begins = e->room_symbols;
    }
    return true;
}

static void add_symbol(word *w, uint32_t id, size_t begin) {
    uint32_t n = (uint32_t)w->n_symbols++;
    w->e->symbols[n] = id;
    if (w->bpe->by_score) w->e->begins[n] = (uint32_t)begin;
}

static uint32_t symbol_id(const word *w, uint32_t n) { return w->e->symbols[n] & ~WIDE; }

static uint32_t symbol_after(const word *w, uint32_t n) {
    const uint32_t *symbols = w->e->symbols;
    return n + (symbols[n] & WIDE ? symbols[n + 1] & ~DEAD : 1);
}

/* n > 0. */
static uint32_t symbol_before(const word *w, uint32_t n) {
    uint32_t last = w->e->symbols[n - 1];
    return n - (last & DEAD ? last & ~DEAD : 1);
}

/* Symbol n takes in the one after it. */
static void join_symbols(word *w, uint32_t n, uint32_t merged) {
    uint32_t *symbols = w->e->symbols, right = symbol_after(w, n), end = symbol_after(w, right);
    symbols[right] = DEAD;
    symbols[n] = merged | WIDE;
    symbols[n + 1] = symbols[end - 1] = DEAD | (end - n);
}

/* by_score: where the text of symbol n ends. */
static size_t symbol_end(const word *w, uint32_t n) {
    uint32_t next = symbol_after(w, n);
    return next < w->n_symbols ? w->e->begins[next] : w->n_bytes;
}

/* When symbols a and b merge, and into what; NONE if they do not. */
static uint32_t find_merge(const word *w, uint32_t a, uint32_t b, uint32_t *merged) {
    if (!w->bpe->by_score) {
        const sp_merge *m = &w->bpe->slots[merge_slot(w->bpe, symbol_id(w, a), symbol_id(w, b))];
        *merged = m->merged;
        return m->left == NONE ? NONE : m->rank;
    }
    size_t begin = w->e->begins[a];
    int32_t id = sp_vocab_find_model(&w->e->t->vocab, false, w->text + begin, symbol_end(w, b) - begin);
    *merged = (uint32_t)id;
    return id < 0 ? NONE : w->bpe->ranks[id];
}

static bool propose(word *w, uint32_t a, uint32_t b) {
    uint32_t merged, rank = find_merge(w, a, b, &merged);
    return rank == NONE || heap_push(w->e, (uint64_t)rank << 32 | a);
}

/* Fills sorted and ends: a counting sort, stable, so positions ascend within a rank. */
static bool sort_candidates(word *w) {
    uint32_t n = (uint32_t)w->n_symbols, merged, rank;
    w->ends = calloc(w->bpe->n_ranks + 1, sizeof *w->ends);
    w->sorted = malloc(n * sizeof *w->sorted);
    if (!w->ends || !w->sorted) return sp_fail(w->e->err, SP_ERR_MEMORY, "no memory for %u symbols of one word", n);
    uint32_t *starts = w->ends; /* counts, then starts, which the filling turns into ends */
    for (uint32_t i = 0; i + 1 < n; i++)
        if ((rank = find_merge(w, i, i + 1, &merged)) != NONE) starts[rank]++;
    uint32_t sum = 0;
    for (size_t r = 0; r < w->bpe->n_ranks; r++) {
        uint32_t count = starts[r];
        starts[r] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        if ((rank = find_merge(w, i, i + 1, &merged)) != NONE) w->sorted[starts[rank]++] = i;
    return true;
}

/* The next candidate, in the order of (rank, position). */
static bool next_candidate(word *w, uint64_t *key) {
    sp_encoder *e = w->e;
    while (w->sorted && w->i_rank < w->bpe->n_ranks && w->i_sorted >= w->ends[w->i_rank]) w->i_rank++;
    bool more = w->sorted && w->i_rank < w->bpe->n_ranks;
    uint64_t first = more ? (uint64_t)w->i_rank << 32 | w->sorted[w->i_sorted] : UINT64_MAX;
    if (e->n_heap && (!more || e->heap[0] < first)) {
        *key = heap_pop(e);
        return true;
    }
    w->i_sorted++;
    *key = first;
    return more;
}

/* Whether the candidate still stands: its symbols are there, and merge into what they did. Of two results that share a
 * score's rank, either one's turn is now. */
static bool still_merges(const word *w, uint32_t pos, uint32_t rank, uint32_t *merged) {
    if (w->e->symbols[pos] & DEAD) return false;
    uint32_t next = symbol_after(w, pos);
    if (next >= w->n_symbols) return false;
    uint32_t now = find_merge(w, pos, next, merged);
    if (now == NONE) return false;
    return w->bpe->by_score ? now == rank : *merged == w->bpe->results[rank];
}

static bool merge_all(word *w) {
    sp_encoder *e = w->e;
    uint32_t n = (uint32_t)w->n_symbols;
    e->n_heap = 0;
    if (n >= COUNTING_SYMBOLS) {
        if (!sort_candidates(w)) return false;
    } else {
        for (uint32_t i = 0; i + 1 < n; i++)
            if (!propose(w, i, i + 1)) return false;
    }
    for (uint64_t key; next_candidate(w, &key);) {
        uint32_t pos = (uint32_t)key, merged;
        if (!still_merges(w, pos, (uint32_t)(key >> 32), &merged)) continue;
        join_symbols(w, pos, merged);
        uint32_t next = symbol_after(w, pos);
        if (pos > 0 && !propose(w, symbol_before(w, pos), pos)) return false;
        if (next < n && !propose(w, pos, next)) return false;
    }
    return true;
}

/* First symbols of a character that is not in the vocabulary: its bytes' tokens. False unless all are there. */
static bool add_fallback(word *w, size_t begin, size_t n_bytes) {
    const unsigned char *s = (const unsigned char *)w->text + begin;
    if (!w->bpe->byte_fallback || w->bpe->byte_level) return false;
    for (size_t i = 0; i < n_bytes; i++)
        if (w->bpe->byte_ids[s[i]] < 0) return false;
    for (size_t i = 0; i < n_bytes; i++) add_symbol(w, (uint32_t)w->bpe->byte_ids[s[i]], begin + i);
    return true;
}

static int32_t first_id(const word *w, size_t at, size_t step) {
    if (w->bpe->byte_level) return w->bpe->byte_ids[(unsigned char)w->text[at]];
    return sp_vocab_find_model(&w->e->t->vocab, false, w->text + at, step);
}

/* Fills the symbols, at most one a byte. Unknown characters wait in `unknown` until a known one comes, so that fuse_unk
 * can join them; the library lets byte tokens pass a waiting one, and so do we. */
static bool add_symbols(word *w) {
    const sp_bpe *bpe = w->bpe;
    bool unknown = false;
    size_t unknown_at = 0;
    if (!reserve_symbols(w, w->n_bytes)) return false;
    for (size_t i = 0, step; i < w->n_bytes; i += step) {
        uint32_t c;
        step = bpe->byte_level ? 1 : sp_char_next(w->text + i, &c);
        int32_t id = first_id(w, i, step);
        if (id >= 0) {
            if (unknown) add_symbol(w, (uint32_t)bpe->unk_id, unknown_at);
            unknown = false;
            add_symbol(w, (uint32_t)id, i);
        } else if (bpe->by_score) {
            add_symbol(w, UNKNOWN, i);
        } else if (!add_fallback(w, i, step)) {
            if (bpe->unk_id == SP_UNK_ABSENT)
                return sp_fail(w->e->err, SP_ERR_INPUT,
                               "an unknown character, and the unknown token is not in the vocabulary");
            if (bpe->unk_id < 0) continue;
            if (unknown && !bpe->fuse_unk) add_symbol(w, (uint32_t)bpe->unk_id, unknown_at);
            if (!unknown || !bpe->fuse_unk) unknown_at = i;
            unknown = true;
        }
    }
    if (unknown) add_symbol(w, (uint32_t)bpe->unk_id, unknown_at);
    return true;
}

/* A symbol that no merge made a token (by_score): its bytes, or the unknown token. */
static bool push_leftover(const word *w, uint32_t n) {
    sp_encoder *e = w->e;
    const unsigned char *s = (const unsigned char *)w->text;
    size_t begin = e->begins[n], end = symbol_end(w, n);
    bool all = w->bpe->byte_fallback;
    for (size_t i = begin; i < end; i++) all = all && w->bpe->byte_ids[s[i]] >= 0;
    for (size_t i = begin; all && i < end; i++)
        if (!sp_encoder_push(e, &w->bpe->byte_ids[s[i]], 1)) return false;
    return all || w->bpe->unk_id < 0 || sp_encoder_push(e, &w->bpe->unk_id, 1);
}

static bool encode_word(sp_encoder *e, const char *text, size_t n_bytes) {
    word w = {.e = e, .bpe = &e->t->bpe, .text = text, .n_bytes = n_bytes};
    if (w.bpe->ignore_merges) {
        int32_t id = sp_vocab_find_model(&e->t->vocab, w.bpe->byte_level, text, n_bytes);
        if (id >= 0) return sp_encoder_push(e, &id, 1);
    }
    bool ok = add_symbols(&w) && merge_all(&w);
    for (uint32_t i = 0; ok && i < w.n_symbols; i = symbol_after(&w, i)) {
        int32_t id = (int32_t)symbol_id(&w, i);
        ok = symbol_id(&w, i) == UNKNOWN ? push_leftover(&w, i) : sp_encoder_push(e, &id, 1);
    }
    free(w.sorted);
    free(w.ends);
    return ok;
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
        while (sp_utf8_continues(text[before]));
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
