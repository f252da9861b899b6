/* Arena: a list of blocks of 32 KB, or of what is asked for when that is more. Only the newest block is filled; what is
 * left of the others is given up. A block is cleared as it is handed out (a template's rendering takes few KB of one),
 * what is larger comes cleared from the system and is touched as it is used. */
#include "util/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/size.h"

enum { BLOCK_BYTES = 32 * 1024, ALIGN_BYTES = 16 };

struct sp_arena_block {
    sp_arena_block *next;
    size_t used_bytes;
    size_t total_bytes;
    _Alignas(ALIGN_BYTES) unsigned char data[];
};

void *sp_arena_alloc(sp_arena *arena, size_t n_bytes) {
    SP_CHECK(n_bytes <= SIZE_MAX / 2);
    n_bytes = sp_round_up(n_bytes ? n_bytes : 1, ALIGN_BYTES);
    sp_arena_block *block = arena->head;
    if (!block || block->total_bytes - block->used_bytes < n_bytes) {
        size_t total = sp_max_size(BLOCK_BYTES, n_bytes);
        block = total == BLOCK_BYTES ? malloc(sizeof *block + total) : calloc(1, sizeof *block + total);
        SP_CHECK(block != NULL);
        block->used_bytes = 0;
        block->total_bytes = total;
        block->next = arena->head;
        arena->head = block;
    }
    void *memory = block->data + block->used_bytes;
    if (block->total_bytes == BLOCK_BYTES) memset(memory, 0, n_bytes);
    block->used_bytes += n_bytes;
    arena->total_bytes += n_bytes;
    return memory;
}

void *sp_arena_calloc(sp_arena *arena, size_t n, size_t elem_bytes) {
    size_t total = 0;
    SP_CHECK(sp_mul_size(n, elem_bytes, &total));
    return sp_arena_alloc(arena, total);
}

char *sp_arena_text(sp_arena *arena, const char *text, size_t n_bytes) {
    char *copy = sp_arena_alloc(arena, n_bytes + 1);
    if (n_bytes) memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    return copy;
}

char *sp_arena_printf(sp_arena *arena, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n_bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    SP_CHECK(n_bytes >= 0);
    char *text = sp_arena_alloc(arena, (size_t)n_bytes + 1);
    vsnprintf(text, (size_t)n_bytes + 1, format, again);
    va_end(again);
    return text;
}

void sp_arena_deinit(sp_arena *arena) {
    for (sp_arena_block *block = arena->head; block;) {
        sp_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (sp_arena){0};
}
