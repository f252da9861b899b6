/* A chained hash table over an array of blocks whose unused entries are a list. */
#include "jobs/prefixes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/ops.h"
#include "util/arena.h"
#include "util/size.h"

/* BLOCKS_MOST: of four million tokens that wait; some 10 MB. */
enum { BLOCKS_FIRST = 256, BLOCKS_MOST = 1 << 17 };

typedef struct {
    XXH128_hash_t hash;
    uint32_t next;   /* with the same head, or unused; 0: none */
    uint32_t n_rows; /* that go through it; 0: unused */
    uint32_t page;
    uint32_t shared; /* its number among the shared ones, 0: not there */
} entry;

struct sp_prefixes {
    sp_forest forest; /* [room] */
    entry *entries;   /* [room], beside the forest's blocks */
    uint32_t *heads;  /* [room] */
    size_t room;      /* a power of two */
    uint32_t unused;  /* the first unused entry */
    sp_forest shared; /* [room] */
    uint32_t *path;   /* [room] scratch */
};

/* ---- memory ---- */

static size_t head_of(const sp_prefixes *p, XXH128_hash_t hash) { return hash.low64 & (p->room - 1); }

static void *resize(void *array, size_t n, size_t n_bytes) {
    void *resized = realloc(array, n * n_bytes);
    SP_CHECK(resized != NULL);
    return resized;
}

static void grow(sp_prefixes *p) {
    size_t n_old = p->room, first = sp_max_size(1, n_old);
    p->room = p->room ? 2 * p->room : BLOCKS_FIRST;
    p->forest.blocks = resize(p->forest.blocks, p->room, sizeof *p->forest.blocks);
    p->shared.blocks = resize(p->shared.blocks, p->room, sizeof *p->shared.blocks);
    p->entries = resize(p->entries, p->room, sizeof *p->entries);
    p->heads = resize(p->heads, p->room, sizeof *p->heads);
    p->path = resize(p->path, p->room, sizeof *p->path);
    memset(p->heads, 0, p->room * sizeof *p->heads);
    for (size_t i = n_old; i < p->room; i++) {
        p->forest.blocks[i] = (sp_block){0};
        p->entries[i] = (entry){.next = i + 1 < p->room ? (uint32_t)i + 1 : 0};
    }
    p->forest.n_blocks = p->room;
    p->unused = (uint32_t)first;
    for (size_t i = 1; i < first; i++) {
        uint32_t *head = &p->heads[head_of(p, p->entries[i].hash)];
        p->entries[i].next = *head;
        *head = (uint32_t)i;
    }
}

sp_prefixes *sp_prefixes_new(void) {
    sp_prefixes *p = calloc(1, sizeof *p);
    SP_CHECK(p != NULL);
    grow(p);
    return p;
}

void sp_prefixes_free(sp_prefixes *p) {
    if (!p) return;
    free(p->forest.blocks);
    free(p->shared.blocks);
    free(p->entries);
    free(p->heads);
    free(p->path);
    free(p);
}

sp_forest *sp_prefixes_forest(sp_prefixes *p) { return &p->forest; }
uint32_t *sp_prefixes_page(sp_prefixes *p, uint32_t block) { return &p->entries[block].page; }

/* ---- rows come and go ---- */

/* Of a page's tokens and of all before them. */
static XXH128_hash_t hash_of(XXH128_hash_t parent, const int32_t *tokens) {
    struct {
        XXH128_hash_t parent;
        int32_t tokens[SP_KV_PAGE_TOKENS];
    } text = {.parent = parent};
    memcpy(text.tokens, tokens, sizeof text.tokens);
    return XXH3_128bits(&text, sizeof text);
}

static uint32_t find(const sp_prefixes *p, XXH128_hash_t hash) {
    uint32_t b = p->heads[head_of(p, hash)];
    while (b && !XXH128_isEqual(p->entries[b].hash, hash)) b = p->entries[b].next;
    return b;
}

/* 0: there is no room for more. */
static uint32_t add(sp_prefixes *p, XXH128_hash_t hash, uint32_t parent) {
    if (p->unused == 0 && p->room < BLOCKS_MOST) grow(p);
    uint32_t b = p->unused;
    if (b == 0) return 0;
    p->unused = p->entries[b].next;
    uint32_t *head = &p->heads[head_of(p, hash)];
    p->entries[b] = (entry){.hash = hash, .next = *head};
    *head = b;
    p->forest.blocks[b] = (sp_block){.parent = parent, .depth = parent ? p->forest.blocks[parent].depth + 1 : 1};
    return b;
}

uint32_t sp_prefixes_enter(sp_prefixes *p, const int32_t *prompt, size_t n_tokens) {
    XXH128_hash_t hash = {0};
    uint32_t last = 0;
    for (size_t at = 0; at + SP_KV_PAGE_TOKENS < n_tokens; at += SP_KV_PAGE_TOKENS) {
        hash = hash_of(hash, prompt + at);
        uint32_t b = find(p, hash);
        if (b == 0) b = add(p, hash, last);
        if (b == 0) break;
        p->entries[b].n_rows++;
        last = b;
    }
    return last;
}

void sp_prefixes_leave(sp_prefixes *p, uint32_t block) {
    for (uint32_t b = block, parent; b; b = parent) {
        parent = p->forest.blocks[b].parent;
        if (--p->entries[b].n_rows > 0) continue;
        uint32_t *link = &p->heads[head_of(p, p->entries[b].hash)];
        while (*link != b) link = &p->entries[*link].next;
        *link = p->entries[b].next;
        p->entries[b] = (entry){.next = p->unused};
        p->forest.blocks[b] = (sp_block){0};
        p->unused = b;
    }
}

/* ---- what is shared ---- */

void sp_prefixes_shared_begin(sp_prefixes *p) {
    for (size_t b = 0; b < p->room; b++) p->entries[b].shared = 0;
    p->shared.n_blocks = 1;
}

uint32_t sp_prefixes_shared_add(sp_prefixes *p, uint32_t block) {
    const sp_block *blocks = p->forest.blocks;
    while (block && p->entries[block].n_rows < 2) block = blocks[block].parent;
    size_t n = 0;
    for (uint32_t b = block; b && !p->entries[b].shared; b = blocks[b].parent) p->path[n++] = b;
    while (n > 0) {
        uint32_t b = p->path[--n], parent = blocks[b].parent;
        p->entries[b].shared = (uint32_t)p->shared.n_blocks;
        p->shared.blocks[p->shared.n_blocks++] =
            (sp_block){.parent = parent ? p->entries[parent].shared : 0, .depth = blocks[b].depth};
    }
    return block ? p->entries[block].shared : 0;
}

const sp_forest *sp_prefixes_shared(const sp_prefixes *p) { return &p->shared; }
