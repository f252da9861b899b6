/* Tensor sets: an array with a hash table of names over it. */
#include "model/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIRST_ROOM = 256 };

/* The slot that holds `name`, or the free one where it would go. */
static size_t find_slot(const sp_tensor_set *set, const char *name) {
    size_t slot = (size_t)XXH3_64bits(name, strlen(name)) & (set->n_slots - 1);
    while (set->slots[slot] && strcmp(set->items[set->slots[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (set->n_slots - 1);
    return slot;
}

/* Doubles the room; the table keeps twice as many slots as there is room, so that probes stay short. */
static bool grow(sp_tensor_set *set) {
    size_t room = set->room ? 2 * set->room : FIRST_ROOM;
    uint32_t *slots = calloc(2 * room, sizeof *slots);
    sp_tensor *items = slots ? realloc(set->items, room * sizeof *items) : NULL;
    if (!items) {
        free(slots);
        return false;
    }
    free(set->slots);
    set->items = items;
    set->room = room;
    set->slots = slots;
    set->n_slots = 2 * room;
    for (size_t i = 0; i < set->n; i++) set->slots[find_slot(set, set->items[i].name)] = (uint32_t)(i + 1);
    return true;
}

bool sp_tensor_set_add(sp_tensor_set *set, const sp_tensor *tensor, const char *path, sp_error *err) {
    if (set->n >= SP_TENSOR_MAX_COUNT)
        return sp_fail(err, SP_ERR_INPUT, "%s: more than %d tensors", path, SP_TENSOR_MAX_COUNT);
    if (set->n == set->room && !grow(set))
        return sp_fail(err, SP_ERR_MEMORY, "%s: no memory for %zu tensor names", path, set->n);
    size_t slot = find_slot(set, tensor->name);
    if (set->slots[slot]) return sp_fail(err, SP_ERR_INPUT, "%s: tensor '%s' is there twice", path, tensor->name);
    set->items[set->n++] = *tensor;
    set->slots[slot] = (uint32_t)set->n;
    return true;
}

sp_tensor *sp_tensor_set_find(const sp_tensor_set *set, const char *name) {
    if (!set->n) return NULL;
    uint32_t at = set->slots[find_slot(set, name)];
    return at ? &set->items[at - 1] : NULL;
}

typedef struct {
    uint64_t offset_bytes, n_bytes;
    uint32_t i_tensor;
} place;

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->offset_bytes != y->offset_bytes) return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

uint32_t *sp_tensor_set_order(const sp_tensor_set *set, size_t first) {
    size_t n = set->n - first;
    place *places = calloc(n ? n : 1, sizeof *places);
    uint32_t *order = calloc(n ? n : 1, sizeof *order);
    if (places && order) {
        for (size_t i = 0; i < n; i++) {
            const sp_tensor *t = &set->items[first + i];
            places[i] = (place){t->offset_bytes, t->n_bytes, (uint32_t)(first + i)};
        }
        qsort(places, n, sizeof *places, by_place);
        for (size_t i = 0; i < n; i++) order[i] = places[i].i_tensor;
    } else {
        free(order);
        order = NULL;
    }
    free(places);
    return order;
}

void sp_tensor_set_deinit(sp_tensor_set *set) {
    free(set->items);
    free(set->slots);
    *set = (sp_tensor_set){0};
}

const char *sp_tensor_shape_text(const size_t *dims, uint32_t n_dims, char *out, size_t out_bytes) {
    size_t used = (size_t)snprintf(out, out_bytes, "[");
    for (uint32_t i = 0; i < n_dims && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%zu", i ? ", " : "", dims[i]);
    if (used < out_bytes) snprintf(out + used, out_bytes - used, "]");
    return out;
}
