/* Byte pair encoding: the merges of a tokenizer. Immutable once prepared, shared by threads. Private to the tokenizer.
 */
#ifndef SPILL_TOKENIZER_BPE_H
#define SPILL_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/vocab.h"

typedef struct {
    uint32_t left, right; /* ids; left UINT32_MAX: free slot */
    uint32_t rank, merged;
} sp_merge;

enum { SP_UNK_NONE = -1, SP_UNK_ABSENT = -2 }; /* values of unk_id */

typedef struct {
    sp_merge *slots; /* [n_slots] open addressing by (left, right) */
    size_t n_slots, n_merges;
    bool byte_level;   /* symbols start as bytes, else as characters */
    bool by_score;     /* merges are not listed: any two symbols whose text is a token, best score first */
    uint32_t *ranks;   /* [n_ids] by_score: place of the token's score, UINT32_MAX: never a merge's result */
    uint32_t *results; /* [n_ranks] listed merges: the id that the merge of a rank makes */
    size_t n_ranks;
    bool ignore_merges; /* a whole word in the vocabulary is that token */
    bool byte_fallback;
    bool fuse_unk;
    int32_t unk_id;        /* NONE: unknown characters are dropped; ABSENT: named, but not in the vocabulary */
    int32_t byte_ids[256]; /* first symbol of a byte: of the alphabet if byte_level, else <0xNN>; -1: none */
    bool cut_at_marker;    /* a word may be cut before U+2581, except behind the characters of joins */
    uint32_t *joins;       /* [n_joins] ascending: characters in front of U+2581 within some token */
    size_t n_joins;
} sp_bpe;

/* Room for n_merges_max merges, whose ranks are below that; false when memory ends. */
bool sp_bpe_reserve(sp_bpe *bpe, size_t n_merges_max, sp_error *err) SP_MUST_CHECK;
/* left and right give merged, in the order of rising ranks. Of two merges of one pair the later counts. */
void sp_bpe_merge_add(sp_bpe *bpe, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);
/* Fills byte_ids and what the cutting of words needs, once vocabulary and merges are complete. */
bool sp_bpe_prepare(sp_bpe *bpe, const sp_vocab *v, sp_error *err) SP_MUST_CHECK;
void sp_bpe_deinit(sp_bpe *bpe);

#endif
