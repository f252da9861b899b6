/* The custom_ids seen so far, 16 bytes each at a load of at most 7/8: a set of XXH3-128 hashes (two ids in 10^12 rows
 * collide with probability below 10^-14). Not thread-safe. */
#ifndef SPILL_JOBS_IDSET_H
#define SPILL_JOBS_IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <xxhash.h>

typedef struct {
    XXH128_hash_t *slots; /* [room], a power of two; zero is empty */
    size_t n, room;
} sp_idset; /* zero-initialised is empty */

/* True when id was not in the set; it is now. */
bool sp_idset_add(sp_idset *set, const char *id);
void sp_idset_deinit(sp_idset *set);

#endif
