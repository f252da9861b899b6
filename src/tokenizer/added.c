/* Added tokens: found in the text before anything else happens to it, leftmost first, longest among those.
 *
 * A trie, entered at each byte that starts a token. Edges are one hash table from (node, byte), so a step costs the
 * same however many tokens there are; a token's length is bounded, which bounds the steps per position. The rules of
 * a match (whole words, white space taken along, text that must stay text) are the library's, in its order. */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"
#include "util/size.h"

static size_t edge_slot(const sp_trie_edge *edges, size_t n_slots, uint64_t key) {
    size_t mask = n_slots - 1;
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & mask; /* Fibonacci hashing */
    while (edges[i].key && edges[i].key != key) i = (i + 1) & mask;
    return i;
}

static uint64_t edge_key(uint32_t node, char byte) { return ((uint64_t)node << 8 | (unsigned char)byte) + 1; }

/* The node behind (node, byte), 0 if there is none: the root is nobody's child. */
static uint32_t trie_step(const sp_added_set *set, uint32_t node, char byte) {
    if (set->n_slots == 0) return 0;
    return set->edges[edge_slot(set->edges, set->n_slots, edge_key(node, byte))].child;
}

static bool trie_grow(sp_added_set *set, size_t n_more) {
    size_t n_nodes = set->n_nodes + n_more + 1;
    if (n_nodes > set->room_nodes) {
        size_t room = sp_max_size(n_nodes, set->room_nodes * 2);
        uint32_t *ends = realloc(set->ends, room * sizeof *ends);
        if (!ends) return false;
        memset(ends + set->room_nodes, 0, (room - set->room_nodes) * sizeof *ends);
        set->ends = ends;
        set->room_nodes = room;
    }
    size_t n_slots = sp_max_size(set->n_slots, 64);
    while (n_slots < (set->n_edges + n_more) * 2) n_slots *= 2;
    if (n_slots == set->n_slots) return true;
    sp_trie_edge *edges = calloc(n_slots, sizeof *edges);
    if (!edges) return false;
    for (size_t i = 0; i < set->n_slots; i++)
        if (set->edges[i].key) edges[edge_slot(edges, n_slots, set->edges[i].key)] = set->edges[i];
    free(set->edges);
    set->edges = edges;
    set->n_slots = n_slots;
    return true;
}

bool sp_added_set_add(sp_added_set *set, const char *text, size_t n_bytes, sp_added_token token, sp_error *err) {
    if (n_bytes == 0) return true;
    if (n_bytes > SP_TOK_MAX_ADDED_BYTES) {
        char shown[48];
        return sp_fail(err, SP_ERR_SUPPORT, "added token '%s' has %zu bytes, at most %d are supported",
                       sp_printable(text, n_bytes, shown, sizeof shown), n_bytes, SP_TOK_MAX_ADDED_BYTES);
    }
    if (set->n_tokens == set->room_tokens) {
        size_t room = sp_max_size(16, set->room_tokens * 2);
        sp_added_token *tokens = realloc(set->tokens, room * sizeof *tokens);
        if (!tokens) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu added tokens", room);
        set->tokens = tokens;
        set->room_tokens = room;
    }
    if (!trie_grow(set, n_bytes)) return sp_fail(err, SP_ERR_MEMORY, "no memory for the added tokens");
    if (set->n_nodes == 0) set->n_nodes = 1;
    uint32_t node = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        uint64_t key = edge_key(node, text[i]);
        sp_trie_edge *edge = &set->edges[edge_slot(set->edges, set->n_slots, key)];
        if (!edge->key) {
            *edge = (sp_trie_edge){key, (uint32_t)set->n_nodes++};
            set->n_edges++;
        }
        node = edge->child;
    }
    set->first[(unsigned char)text[0]] = true;
    if (set->ends[node]) return true;
    set->tokens[set->n_tokens++] = token;
    set->ends[node] = (uint32_t)set->n_tokens;
    return true;
}

void sp_added_set_deinit(sp_added_set *set) {
    free(set->tokens);
    free(set->edges);
    free(set->ends);
    *set = (sp_added_set){0};
}

/* ---- walking a text ---- */

/* The longest token at text[at]; its number + 1 and *end, or 0. */
static uint32_t longest_at(const sp_added_walk *walk, size_t at, size_t *end) {
    uint32_t node = 0, best = 0;
    for (size_t i = at; i < walk->n_bytes; i++) {
        node = trie_step(walk->set, node, walk->text[i]);
        if (node == 0) break;
        if (walk->set->ends[node]) {
            best = walk->set->ends[node];
            *end = i + 1;
        }
    }
    return best;
}

/* The character that ends at text[at]. */
static uint32_t char_before(const char *text, size_t at) {
    do at--;
    while (sp_utf8_continues(text[at]) && at > 0);
    uint32_t c;
    sp_char_next(text + at, &c);
    return c;
}

static bool is_whole_word(const sp_added_walk *walk, size_t begin, size_t end) {
    uint32_t after;
    if (begin > 0 && sp_char_is_word(char_before(walk->text, begin))) return false;
    if (end == walk->n_bytes) return true;
    sp_char_next(walk->text + end, &after);
    return !sp_char_is_word(after);
}

/* Whether [begin, end) touches a range where special tokens are text. Searches come in ascending order. */
static bool touches_range(sp_added_walk *walk, size_t begin, size_t end, size_t *range_end) {
    const sp_span_bytes *range = walk->ranges + walk->i_range;
    const sp_span_bytes *last = walk->ranges + walk->n_ranges;
    while (range < last && (range->end <= begin || range->begin == range->end)) range++;
    walk->i_range = (size_t)(range - walk->ranges);
    if (range == last || range->begin >= end) return false;
    *range_end = range->end;
    return true;
}

/* Whether the match [begin, *at) counts; if not, *at is where the search goes on. */
static bool accept(sp_added_walk *walk, sp_added_token token, size_t begin, size_t *at) {
    if (walk->flags[token.id] & SP_TOK_SPECIAL) {
        size_t range_end = 0;
        if (walk->plain_text) return false;
        if (walk->n_ranges && touches_range(walk, begin, *at, &range_end)) {
            /* The text around a range may hold a token of its own that this match has swallowed. */
            if (range_end < *at) *at = begin + 1;
            return false;
        }
    }
    return !(token.rules & SP_ADDED_SINGLE_WORD) || is_whole_word(walk, begin, *at);
}

/* Takes white space on the sides along, as the token's rules say. Left of the last part nothing is taken. */
static void widen(const sp_added_walk *walk, sp_added_token token, size_t *begin, size_t *end) {
    while ((token.rules & SP_ADDED_LSTRIP) && *begin > walk->begin &&
           sp_char_is_space(char_before(walk->text, *begin))) {
        do (*begin)--;
        while (sp_utf8_continues(walk->text[*begin]));
    }
    while ((token.rules & SP_ADDED_RSTRIP) && *end < walk->n_bytes) {
        uint32_t c;
        size_t step = sp_char_next(walk->text + *end, &c);
        if (!sp_char_is_space(c)) break;
        *end += step;
    }
}

bool sp_added_next(sp_added_walk *walk, size_t *begin, size_t *end, int32_t *id) {
    if (walk->held >= 0) {
        *begin = walk->held_begin;
        *end = walk->held_end;
        *id = walk->held;
        walk->held = -1;
        return true;
    }
    while (walk->at < walk->n_bytes && walk->set->n_tokens) {
        size_t from = walk->at, match_end = 0;
        uint32_t found = walk->set->first[(unsigned char)walk->text[from]] ? longest_at(walk, from, &match_end) : 0;
        walk->at = from + 1;
        if (!found) continue;
        sp_added_token token = walk->set->tokens[found - 1];
        walk->at = match_end;
        if (!accept(walk, token, from, &walk->at)) continue;
        size_t to = match_end;
        widen(walk, token, &from, &to);
        *id = token.id;
        *begin = from;
        *end = to;
        if (walk->begin < from) { /* first the text before it */
            walk->held = token.id;
            walk->held_begin = from;
            walk->held_end = to;
            *begin = walk->begin;
            *end = from;
            *id = -1;
        }
        walk->begin = to;
        return true;
    }
    *begin = walk->begin;
    *end = walk->n_bytes;
    *id = -1;
    walk->begin = walk->n_bytes;
    return *begin < *end;
}
