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
