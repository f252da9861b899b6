/* Hashes the content of weights as they are first streamed, so that identity means content (docs/DESIGN.md section 2).
 *
 *     row of a matrix -> XXH3(bytes) -> with the row's number -> sum over the rows, mod 2^128
 *     model           -> XXH3(shape and sum of every matrix in schedule order, then the small tensors)
 *
 * A sum does not mind where chunks are cut, in which order they come or on how many threads they are hashed: the same
 * weights have the same hash however they are kept. Weights that no result depends on are not in it. One caller's
 * thread; the work is spread over the device's. Nothing is allocated after new. */
#ifndef SPILL_ENGINE_CONTENT_H
#define SPILL_ENGINE_CONTENT_H

#include "engine/stream.h"
#include "kernels/device.h"
#include "model/identity.h"
#include "util/arena.h"

typedef struct sp_content sp_content;

/* In the arena. n_extents: of the stream. */
sp_content *sp_content_new(const sp_model *model, size_t n_extents, const sp_device *device, sp_arena *arena);
/* A small tensor as it lies in the file; all of them, in an order that only the model decides, before the first end. */
void sp_content_add_vector(sp_content *content, const void *raw, size_t n_bytes);
/* Hashes chunks that were not seen before. */
void sp_content_see(sp_content *content, const sp_chunk *chunks, size_t n_chunks);
bool sp_content_is_whole(const sp_content *content); /* every extent was seen */
/* False while it is not whole. */
bool sp_content_hash(const sp_content *content, sp_hash *out);

#endif
