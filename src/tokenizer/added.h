/* Added tokens: the set of them, and the walk of a text that finds them. A set is immutable once it is filled, shared
 * by threads; a walk belongs to one call. Private to the tokenizer. */
#ifndef SPILL_TOKENIZER_ADDED_H
#define SPILL_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

enum { SP_TOK_MAX_ADDED_BYTES = 512 }; /* bounds the matcher at texts that almost hold a token everywhere */

enum { SP_ADDED_LSTRIP = 1, SP_ADDED_RSTRIP = 2, SP_ADDED_SINGLE_WORD = 4, SP_ADDED_NORMALIZED = 8 };
typedef struct {
    int32_t id;
    uint8_t rules; /* SP_ADDED_* */
} sp_added_token;
typedef struct {
    uint64_t key; /* node << 8 | byte, + 1; 0: free */
    uint32_t child;
} sp_trie_edge;
typedef struct {
    sp_added_token *tokens; /* by rank of insertion */
    size_t n_tokens, room_tokens;
    sp_trie_edge *edges;
    size_t n_edges, n_slots;
    uint32_t *ends; /* [n_nodes] token + 1 that ends at the node, 0: none */
    size_t n_nodes, room_nodes;
    bool first[256]; /* bytes that start a token */
    bool has_special;
} sp_added_set;
/* The first of two tokens with one text wins. */
bool sp_added_set_add(sp_added_set *set, const char *text, size_t n_bytes, sp_added_token token,
                      sp_error *err) SP_MUST_CHECK;
void sp_added_set_deinit(sp_added_set *set);

/* Walks a text: pieces of text and added tokens in turn. */
typedef struct {
    const sp_added_set *set;
    const uint8_t *flags; /* the vocabulary's, by id */
    const char *text;
    size_t n_bytes;
    const sp_span_bytes *ranges; /* where special tokens are text */
    size_t n_ranges, i_range;
    bool plain_text;
    size_t at;    /* where the search goes on */
    size_t begin; /* end of the last piece or token */
    int32_t held; /* token found behind the piece just given, or -1 */
    size_t held_begin, held_end;
} sp_added_walk;
/* The next part; *id is -1 for text. False at the end. */
bool sp_added_next(sp_added_walk *walk, size_t *begin, size_t *end, int32_t *id);

#endif
