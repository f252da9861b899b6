/* Which prompts begin with the same tokens: the rows that wait and those in flight as a forest of blocks
 * (planner/prefix.h), found by a chain of 128-bit hashes over their pages' tokens.
 *
 * A block lives as long as a row goes through it. Memory follows the prompts looked ahead at, and is bounded: what is
 * beyond the bound shares nothing. Not thread-safe. */
#ifndef SPILL_JOBS_PREFIXES_H
#define SPILL_JOBS_PREFIXES_H

#include "planner/prefix.h"

typedef struct sp_prefixes sp_prefixes;

sp_prefixes *sp_prefixes_new(void);           /* never NULL */
void sp_prefixes_free(sp_prefixes *prefixes); /* NULL is fine */

/* A row with this prompt has come: the last block of its own, which ends before the prompt does (a row computes the
 * logits of its last token itself); 0: none. */
uint32_t sp_prefixes_enter(sp_prefixes *prefixes, const int32_t *prompt, size_t n_tokens);
void sp_prefixes_leave(sp_prefixes *prefixes, uint32_t block); /* and has gone */

/* All blocks; it grows in place. */
sp_forest *sp_prefixes_forest(sp_prefixes *prefixes);
/* The page of the engine's that holds a block; one number for whoever fills them, kept for him. */
uint32_t *sp_prefixes_page(sp_prefixes *prefixes, uint32_t block);

/* For estimates: the forest of those blocks alone that two rows or more go through, parents before children. begin
 * empties it, add puts a block's in and returns the last of them there (0: none). It is valid until the next begin. */
void sp_prefixes_shared_begin(sp_prefixes *prefixes);
uint32_t sp_prefixes_shared_add(sp_prefixes *prefixes, uint32_t block);
const sp_forest *sp_prefixes_shared(const sp_prefixes *prefixes);

#endif
