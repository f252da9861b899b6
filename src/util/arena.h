/* Arena: small metadata that lives and dies with one owner. Not for weights, KV, activations or anything whose amount
 * a file decides without a bound. Growth failure aborts (SP_CHECK): the machine is gone. Not thread-safe. */
#ifndef SPILL_UTIL_ARENA_H
#define SPILL_UTIL_ARENA_H

#include <stddef.h>

#include "util/error.h"

typedef struct sp_arena_block sp_arena_block;
typedef struct {
    sp_arena_block *head; /* zero-initialised is an empty arena */
    size_t total_bytes;   /* handed out so far, alignment included */
} sp_arena;

/* Zeroed memory aligned to 16, never NULL, valid until sp_arena_deinit. */
void *sp_arena_alloc(sp_arena *arena, size_t n_bytes);
/* The same for n elements; a product past SIZE_MAX aborts as missing memory does. */
void *sp_arena_calloc(sp_arena *arena, size_t n, size_t elem_bytes);
/* A NUL-terminated copy of n_bytes of text. */
char *sp_arena_text(sp_arena *arena, const char *text, size_t n_bytes);
/* A formatted text. */
char *sp_arena_printf(sp_arena *arena, const char *format, ...) SP_PRINTF(2, 3);
/* Frees everything; the arena is empty and usable again. */
void sp_arena_deinit(sp_arena *arena);

#define SP_ARENA_NEW(arena, type) ((type *)sp_arena_alloc((arena), sizeof(type)))
#define SP_ARENA_ARRAY(arena, type, n) ((type *)sp_arena_calloc((arena), (n), sizeof(type)))

#endif
