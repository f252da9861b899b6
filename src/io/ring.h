/* Reads extents of files into memory, many at a time: the way from the drives to the weights' slots.
 *
 *     caller : submit(extent) ... submit ... wait(ticket) ... submit
 *     drives :   cut into requests -> `depth` of them in flight -> landed, in any order
 *
 * Every drive (st_dev) has a queue and readers of its own, so a slow drive holds up nobody else's extents. Within one
 * drive requests are issued in the order of submission. Readers are io_uring, or threads that pread where the system
 * does not allow it; what arrives is the same.
 *
 * Extents begin and end at any byte. Reads past the page cache do not: the ring widens each to multiples of
 * sp_ring_align_bytes and overwrites as much memory around the extent. So an extent's memory must lie in memory the
 * way its bytes lie in the file: to = offset_bytes modulo the alignment (sp_ring_lead_bytes), with sp_ring_room_bytes
 * for the widened whole. Neighbours in a file may be neighbours in memory: what overlaps is overwritten with the bytes
 * that are there already.
 *
 * Where an extent lands may be left to the ring: it has slots of equal size, and gives one to an extent when it begins
 * to read it, the slot that was released last. So as long as extents are taken as fast as they come, few slots are in
 * use and stay in the processor's caches, and all of them when they are not (docs/decisions/005-warm-slots.md).
 *
 * Interrupted, short and failed reads are continued and tried again; what fails for good names file and offset, ends
 * all reading and stays: every later wait reports it. Nothing is allocated after start. One thread submits and waits;
 * readers are the ring's own. */
#ifndef SPILL_IO_RING_H
#define SPILL_IO_RING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "io/source.h"
#include "util/error.h"

typedef struct sp_ring sp_ring;

typedef enum {
    SP_RING_AUTO,  /* io_uring, where it is allowed and the file can be read directly; else threads */
    SP_RING_URING, /* fails where it cannot be had */
    SP_RING_THREADS,
    SP_RING_BACKEND_COUNT
} sp_ring_backend;

/* Requests in flight on a drive, and a request at most, where nothing else is asked for
 * (docs/decisions/002-direct-reads.md). */
enum { SP_RING_DEPTH = 32, SP_RING_REQUEST_BYTES = 2 << 20, SP_RING_FEW = 2 };

/* The length of extents that suits requests of this length: a request each, but no shorter than a megabyte, which is
 * what a product should have to do at least. 0: the default's. */
enum { SP_RING_CHUNK_BYTES = 1 << 20 };
static inline size_t sp_ring_chunk_bytes(size_t request_bytes) {
    if (request_bytes == 0) request_bytes = SP_RING_REQUEST_BYTES;
    return request_bytes > SP_RING_CHUNK_BYTES ? request_bytes : SP_RING_CHUNK_BYTES;
}

/* For tests: what one read of the system returned (bytes, or -errno) becomes what the ring sees. Called by readers. */
typedef ssize_t sp_ring_tamper(void *ctx, size_t i_file, uint64_t offset_bytes, ssize_t result);

/* Zero means default. */
typedef struct {
    sp_ring_backend backend;
    bool cached;          /* through the page cache, whose pages stay: for files that are read once and fit memory */
    size_t depth;         /* requests in flight on a drive (that many threads), at most 1024 */
    size_t few;           /* as few are tried from time to time, and kept while faster (io/pace.h); 0: always depth */
    size_t request_bytes; /* a request at most, rounded up to the alignment */
    size_t n_extents;     /* extents under way, or landed in a slot and not released, at most; default 256 */
    size_t n_slots;       /* that the memory of sp_ring_start begins with; default none */
    size_t slot_extent_bytes; /* of the longest extent that lands in one */
    size_t n_retries;         /* of one request that failed; default 4 */
    sp_ring_tamper *tamper;
    void *tamper_ctx;
} sp_ring_options;

/* Opens the files; nothing is read yet but proofs of alignment. paths are borrowed until close. NULL on failure. */
sp_ring *sp_ring_open(const char *const *paths, size_t n_paths, const sp_ring_options *options,
                      sp_error *err) SP_MUST_CHECK;
/* Waits for requests in flight, then frees. NULL is fine. */
void sp_ring_close(sp_ring *ring);

/* Starts the readers. `memory`, where most extents will land, is registered with the kernel if that is allowed, which
 * spares it looking up pages at every request; NULL: none. It must stay mapped until close. Huge pages make the larger
 * requests worth while: a drive takes so many pieces of memory at a time. */
bool sp_ring_start(sp_ring *ring, void *memory, size_t memory_bytes, sp_error *err) SP_MUST_CHECK;

size_t sp_ring_align_bytes(const sp_ring *ring); /* a power of two, the same for all files; 1: no widening */
size_t sp_ring_slots_bytes(const sp_ring *ring); /* memory that the slots take, from an aligned address */
/* Bytes from an aligned address to where a file's byte offset_bytes may land. */
static inline size_t sp_ring_lead_bytes(size_t align_bytes, uint64_t offset_bytes) {
    return (size_t)(offset_bytes & (align_bytes - 1));
}
/* Room, from an aligned address, that any extent of n_bytes can need. */
static inline size_t sp_ring_room_bytes(size_t align_bytes, size_t n_bytes) {
    return (n_bytes + 2 * align_bytes - 2) & ~(align_bytes - 1);
}

typedef struct {
    size_t i_file;
    uint64_t offset_bytes;
    size_t n_bytes; /* over 0, inside the file */
    void *to;       /* congruent to offset_bytes modulo the alignment; NULL: a slot of the ring's choice */
    bool urgent;    /* before all that is queued: single rows that somebody waits for */
} sp_ring_extent;

typedef uint64_t sp_ring_ticket;

/* Queues a read; no more than n_extents may be under way, and n_slots not released. Never waits. */
sp_ring_ticket sp_ring_submit(sp_ring *ring, const sp_ring_extent *extent);
/* Is it there? Stays true. Any thread. */
bool sp_ring_landed(const sp_ring *ring, sp_ring_ticket ticket);
/* Returns when it is there (true) or reading has failed for good. */
bool sp_ring_wait(sp_ring *ring, sp_ring_ticket ticket, sp_error *err) SP_MUST_CHECK;

/* Of an extent that has landed in a slot: its first byte, there until it is released, once. The submitter's thread. */
char *sp_ring_place(const sp_ring *ring, sp_ring_ticket ticket);
void sp_ring_release(sp_ring *ring, sp_ring_ticket ticket);

/* No file has changed, shrunk or gone since open. */
bool sp_ring_check_files(const sp_ring *ring, sp_error *err) SP_MUST_CHECK;

typedef struct {
    uint64_t bytes_wanted; /* of extents that have landed */
    uint64_t bytes_read;   /* from the files, widening included */
    uint64_t busy_ns;      /* time with a request in flight */
    uint64_t n_requests;   /* landed */
    uint64_t n_retries;    /* after failures and short reads */
} sp_ring_stats;
void sp_ring_get_stats(sp_ring *ring, sp_ring_stats *stats); /* totals since start; any thread */

/* How it reads, for people: "io_uring, 8 x 8388608 bytes, page cache bypassed". After start. */
const char *sp_ring_describe(const sp_ring *ring);
const sp_source *sp_ring_source(const sp_ring *ring, size_t i_file); /* as it was at open */
bool sp_ring_is_direct(const sp_ring *ring);                         /* every file bypasses the page cache */

#endif
