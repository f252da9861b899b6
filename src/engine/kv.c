/* Pages of the KV cache: a last-in first-out list of free ones over one reserved mapping a layer. Last-in first-out
 * keeps the pages in use few and warm; never-used pages are taken in ascending order, and are zero because the system
 * made them. */
#include "engine/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/arena.h"
#include "util/size.h"

struct sp_kv {
    size_t n_layers, page_bytes;
    size_t n_pages; /* that may be in use */
    size_t n_end;   /* pages from here on are never touched */
    size_t layer_bytes;
    void **layers;    /* [n_layers] */
    uint32_t *free;   /* [n_pages] stack of used and returned pages */
    size_t n_free;    /* on that stack */
    size_t n_touched; /* pages below this have been used */
    uint32_t *owners; /* [n_pages] */
    sp_arena arena;
};

static bool map_layers(sp_kv *kv, sp_error *err) {
    for (size_t l = 0; l < kv->n_layers; l++) {
        void *extent =
            mmap(NULL, kv->layer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (extent == MAP_FAILED)
            return sp_fail(err, SP_ERR_MEMORY,
                           "KV cache: %zu layers of %zu bytes each cannot be reserved (layer %zu); fewer --rows, or a "
                           "greater limit of the process (ulimit -v)",
                           kv->n_layers, kv->layer_bytes, l);
        kv->layers[l] = extent;
    }
    return true;
}

sp_kv *sp_kv_open(size_t n_layers, size_t page_bytes, size_t n_pages, sp_error *err) {
    size_t layer_bytes;
    if (n_pages == 0 || n_pages > UINT32_MAX || !sp_mul_size(page_bytes, n_pages, &layer_bytes)) {
        sp_fail(err, SP_ERR_MEMORY,
                "KV cache: %zu pages of %zu bytes cannot be had; fewer --rows, or a greater limit of the process "
                "(ulimit -v)",
                n_pages, page_bytes);
        return NULL;
    }
    sp_arena arena = {0};
    sp_kv *kv = SP_ARENA_NEW(&arena, sp_kv);
    kv->n_layers = n_layers;
    kv->page_bytes = page_bytes;
    kv->n_pages = kv->n_end = n_pages;
    kv->layer_bytes = layer_bytes;
    kv->layers = SP_ARENA_ARRAY(&arena, void *, n_layers);
    kv->free = SP_ARENA_ARRAY(&arena, uint32_t, n_pages);
    kv->owners = SP_ARENA_ARRAY(&arena, uint32_t, n_pages);
    kv->arena = arena;
    if (map_layers(kv, err)) return kv;
    sp_kv_close(kv);
    return NULL;
}

void sp_kv_close(sp_kv *kv) {
    if (!kv) return;
    for (size_t l = 0; l < kv->n_layers; l++)
        if (kv->layers[l]) munmap(kv->layers[l], kv->layer_bytes);
    sp_arena arena = kv->arena;
    sp_arena_deinit(&arena);
}

void *sp_kv_layer(const sp_kv *kv, size_t i_layer) { return kv->layers[i_layer]; }

size_t sp_kv_pages_free(const sp_kv *kv) { return kv->n_free + (kv->n_end - kv->n_touched); }

uint32_t sp_kv_take(sp_kv *kv) {
    assert(sp_kv_pages_free(kv) > 0);
    uint32_t page;
    if (kv->n_free > 0) {
        page = kv->free[--kv->n_free];
        for (size_t l = 0; l < kv->n_layers; l++)
            memset((char *)kv->layers[l] + page * kv->page_bytes, 0, kv->page_bytes);
    } else {
        page = (uint32_t)kv->n_touched++;
    }
    kv->owners[page] = 1;
    return page;
}

size_t sp_kv_bytes_above(const sp_kv *kv, size_t n_pages) {
    return n_pages < kv->n_pages ? (kv->n_pages - n_pages) * kv->page_bytes * kv->n_layers : 0;
}

/* Gives the memory of pages [first, end) back, as far as whole pages of the system's lie in it; returns the bytes. */
static size_t give_back(sp_kv *kv, size_t first, size_t end) {
    size_t system_bytes = (size_t)sysconf(_SC_PAGESIZE), n_bytes = 0;
    size_t from = sp_round_up(first * kv->page_bytes, system_bytes);
    size_t to = end * kv->page_bytes / system_bytes * system_bytes;
    for (size_t l = 0; from < to && l < kv->n_layers; l++)
        if (madvise((char *)kv->layers[l] + from, to - from, MADV_DONTNEED) == 0) n_bytes += to - from;
    return n_bytes;
}

/* Pages that were never touched go first: they cost nothing, and the others are warm. */
size_t sp_kv_set_limit(sp_kv *kv, size_t n_pages) {
    assert(n_pages <= kv->n_pages && kv->n_pages - n_pages <= sp_kv_pages_free(kv));
    size_t n_left = kv->n_pages - n_pages, n_untouched = sp_min_size(n_left, kv->n_end - kv->n_touched);
    size_t n_bytes = give_back(kv, kv->n_end - n_untouched, kv->n_end);
    kv->n_end -= n_untouched;
    for (n_left -= n_untouched; n_left > 0; n_left--) {
        uint32_t page = kv->free[--kv->n_free];
        n_bytes += give_back(kv, page, page + 1);
    }
    kv->n_pages = n_pages;
    return n_bytes;
}

void sp_kv_share(sp_kv *kv, uint32_t page) {
    assert(page < kv->n_touched && kv->owners[page] > 0);
    kv->owners[page]++;
}

void sp_kv_drop(sp_kv *kv, uint32_t page) {
    assert(page < kv->n_touched && kv->owners[page] > 0);
    if (--kv->owners[page] == 0) kv->free[kv->n_free++] = page;
}
