/* What the ring's core (ring.c) and its readers (ring_uring.c, ring_threads.c) share.
 *
 * The core owns extents, queues and errors behind one lock; a kind of reader is three functions that move requests
 * through the system: take one (sp_ring_next), read, hand over the result (sp_ring_settle), and again. */
#ifndef SPILL_IO_INTERNAL_H
#define SPILL_IO_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "io/pace.h"
#include "io/ring.h"
#include "util/arena.h"

/* One read of the system: a piece of an extent, and what is left of it after a short read. */
typedef struct {
    uint32_t i_extent;
    uint32_t i_file;
    uint64_t offset_bytes; /* these three are what to read now */
    size_t n_bytes;
    char *to;
    size_t want_bytes; /* fewer than n_bytes where the file ends in the last block */
    size_t done_bytes; /* of it, by reads that came short */
    size_t n_tries;
} sp_ring_request;

typedef struct {
    uint32_t head, tail; /* extents, linked by their `next`; head == SP_RING_NONE: empty */
} sp_ring_queue;

typedef struct {
    sp_ring_extent asked;        /* to: NULL until a slot is given */
    uint32_t next;               /* in its queue, or in the list of free ones */
    uint32_t slot;               /* SP_RING_NONE: the caller's memory, or not begun */
    uint64_t cut_bytes;          /* file offset up to which requests have been cut */
    size_t n_in_flight;          /* requests */
    _Atomic uint32_t generation; /* counts landings: a ticket of an earlier one has landed */
} sp_ring_entry;

enum { SP_RING_NONE = UINT32_MAX, SP_RING_URGENT = 0, SP_RING_NORMAL = 1, SP_RING_N_QUEUES = 2 };

typedef struct sp_ring_drive sp_ring_drive;

/* A kind of reader. */
typedef struct {
    const char *name;
    bool (*start)(sp_ring_drive *drive, sp_error *err); /* false: nothing of it is left running */
    void (*wake)(sp_ring_drive *drive);                 /* work was queued, or `stop` set; the lock is held */
    void (*join)(sp_ring_drive *drive);                 /* after stop; returns when nothing is in flight */
} sp_ring_kind;
extern const sp_ring_kind sp_ring_kind_threads, sp_ring_kind_uring;

struct sp_ring_drive {
    sp_ring *ring;
    dev_t device;
    bool direct; /* all its files */
    const sp_ring_kind *kind;
    sp_ring_queue queues[SP_RING_N_QUEUES];
    sp_pace pace;
    size_t n_in_flight; /* requests */
    void *readers;      /* the kind's own, in the ring's arena */
};

struct sp_ring {
    sp_arena arena;
    sp_ring_options options;
    sp_source *sources; /* [n_sources] */
    size_t *drive_of;   /* [n_sources] */
    size_t n_sources;
    size_t align_bytes;
    sp_ring_drive *drives; /* [n_drives] */
    size_t n_drives, n_started;
    char *memory; /* to register, may be NULL; slots come first */
    size_t memory_bytes;
    char description[120];

    pthread_mutex_t lock;
    pthread_cond_t landed;
    sp_ring_entry *entries; /* [options.n_extents] */
    uint32_t free_head;
    uint32_t *free_slots; /* [n_slots], a stack: the last one is the last that was released */
    size_t n_free_slots, slot_bytes;
    size_t n_in_flight; /* requests of all drives */
    uint64_t busy_since_ns;
    sp_ring_stats stats;
    sp_error error; /* the first failure; stays */
    bool stop;
};

/* Cuts the next request off the drive's queues; false when there is none or none may be in flight now, after a failure
 * or a stop. The lock is held. */
bool sp_ring_next(sp_ring_drive *drive, sp_ring_request *request);
/* Anything that is queued from now on may go out at once. The lock is held. */
bool sp_ring_has_room(const sp_ring_drive *drive);
/* Takes what the system returned for it, bytes or -errno. True: read again what the request now says. The lock is not
 * held. */
bool sp_ring_settle(sp_ring *ring, sp_ring_request *request, ssize_t result);

#endif
