/* Open addressing with linear probing. Tables are mapped, so that one that was outgrown goes back to the system. */
#include "jobs/idset.h"

#include <string.h>
#include <sys/mman.h>

#include "util/error.h"

static bool is_empty(XXH128_hash_t slot) { return slot.low64 == 0 && slot.high64 == 0; }

/* The slot that holds hash, or the empty one where it belongs. */
static XXH128_hash_t *find(XXH128_hash_t *slots, size_t room, XXH128_hash_t hash) {
    size_t i = hash.low64 & (room - 1);
    while (!is_empty(slots[i]) && !XXH128_isEqual(slots[i], hash)) i = (i + 1) & (room - 1);
    return &slots[i];
}

static void unmap(const sp_idset *set) {
    if (set->room) munmap(set->slots, set->room * sizeof *set->slots);
}

static void grow(sp_idset *set) {
    size_t room = set->room ? set->room * 2 : 1024;
    XXH128_hash_t *slots = mmap(NULL, room * sizeof *slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SP_CHECK(slots != MAP_FAILED);
    for (size_t i = 0; i < set->room; i++)
        if (!is_empty(set->slots[i])) *find(slots, room, set->slots[i]) = set->slots[i];
    unmap(set);
    set->slots = slots;
    set->room = room;
}

bool sp_idset_add(sp_idset *set, const char *id) {
    if (set->n * 8 >= set->room * 7) grow(set); /* old and new table together: 55 bytes an id at worst */
    XXH128_hash_t hash = XXH3_128bits(id, strlen(id));
    if (is_empty(hash)) hash.low64 = 1;
    XXH128_hash_t *slot = find(set->slots, set->room, hash);
    if (!is_empty(*slot)) return false;
    *slot = hash;
    set->n++;
    return true;
}

void sp_idset_deinit(sp_idset *set) {
    unmap(set);
    *set = (sp_idset){0};
}
