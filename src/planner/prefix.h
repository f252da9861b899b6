/* Prompts that begin alike, as plain numbers: a forest of blocks. A block stands for one page of prompt tokens and all
 * pages before it, so rows whose prompts go through a block can share its page of keys and values. The policy decides
 * with it who fills a page and who waits for it; jobs/prefixes.h makes one of token ids, jobs and simulator run on it.
 */
#ifndef SPILL_PLANNER_PREFIX_H
#define SPILL_PLANNER_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Block 0 is none. parent and depth are given, all else is the policy's. */
typedef struct {
    uint32_t parent, depth; /* the page before it; pages up to it, itself included */
    uint32_t n_waiting;     /* rows that wait and go through it */
    uint32_t n_users;       /* rows in flight that do */
    uint32_t n_children;    /* filled blocks whose parent it is */
    bool is_filled;         /* its page holds its tokens, at the end of the pass at hand at the latest */
    bool has_filler;        /* a row in flight will fill it */
} sp_block;

typedef struct {
    sp_block *blocks; /* [n_blocks], blocks[0] unused */
    size_t n_blocks;  /* 0 or 1: no prompts begin alike */
} sp_forest;

#endif
