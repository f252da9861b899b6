/* Readers that are io_uring: per drive one ring of the kernel's and one thread, which only moves requests in and
 * completions out and sleeps in between.
 *
 *     submit() --queue--> thread --SQ--> kernel --CQ--> thread --settle--> landed
 *         \--eventfd, if the thread sleeps with room for more--^
 *
 * A read of the eventfd is always in flight beside the requests, so that one wait serves completions and new work.
 * Memory and files are registered where the system allows it; where not, the same requests go unregistered. */
#include "io/internal.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/size.h"

/* A registered buffer is at most 1 GiB; a request that lies across two is sent unregistered. */
enum { REGION_BYTES = 1 << 30, MAX_REGIONS = 1024 };

typedef struct {
    struct io_uring uring;
    pthread_t thread;
    int wake_fd;
    uint64_t wake_count;       /* where the eventfd's read lands */
    bool wants_wake;           /* under the lock: it sleeps, with room for more requests */
    bool files_registered;     /* all sources, by their index */
    size_t n_regions;          /* of ring->memory that are registered */
    sp_ring_request *requests; /* [depth] */
    uint32_t *free;            /* [depth] indexes of requests not in flight: a stack */
    size_t n_free;
} uring_readers;

/* ---- submission ---- */

static struct io_uring_sqe *get_sqe(uring_readers *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    SP_CHECK(sqe != NULL); /* the queue has a place for every request and the eventfd */
    return sqe;
}

static void send_wake_read(uring_readers *r) {
    struct io_uring_sqe *sqe = get_sqe(r);
    io_uring_prep_read(sqe, r->wake_fd, &r->wake_count, sizeof r->wake_count, 0);
    io_uring_sqe_set_data(sqe, r);
}

/* The registered region that holds the request's memory whole, or -1. */
static int region_of(const sp_ring *ring, const uring_readers *r, const sp_ring_request *request) {
    if (request->to < ring->memory || request->to >= ring->memory + ring->memory_bytes) return -1;
    size_t at_bytes = (size_t)(request->to - ring->memory), i = at_bytes / REGION_BYTES;
    bool whole = i == (at_bytes + request->n_bytes - 1) / REGION_BYTES;
    bool inside = at_bytes + request->n_bytes <= ring->memory_bytes;
    return i < r->n_regions && whole && inside ? (int)i : -1;
}

static void send_request(sp_ring *ring, uring_readers *r, sp_ring_request *request) {
    struct io_uring_sqe *sqe = get_sqe(r);
    int fd = r->files_registered ? (int)request->i_file : ring->sources[request->i_file].fd;
    int region = region_of(ring, r, request);
    if (region >= 0)
        io_uring_prep_read_fixed(sqe, fd, request->to, (unsigned)request->n_bytes, request->offset_bytes, region);
    else
        io_uring_prep_read(sqe, fd, request->to, (unsigned)request->n_bytes, request->offset_bytes);
    if (r->files_registered) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, request);
}

/* Fills the drive's depth. False: stopped, and nothing is in flight. */
static bool send_more(sp_ring_drive *drive, uring_readers *r) {
    sp_ring *ring = drive->ring;
    pthread_mutex_lock(&ring->lock);
    while (r->n_free > 0) {
        sp_ring_request *request = &r->requests[r->free[r->n_free - 1]];
        if (!sp_ring_next(drive, request)) break;
        r->n_free--;
        send_request(ring, r, request);
    }
    r->wants_wake = r->n_free > 0 && sp_ring_has_room(drive);
    bool go_on = !ring->stop || r->n_free < ring->options.depth;
    pthread_mutex_unlock(&ring->lock);
    return go_on;
}

/* ---- completion ---- */

static void complete(sp_ring *ring, uring_readers *r, void *data, int result) {
    if (data == r) {
        send_wake_read(r);
        return;
    }
    sp_ring_request *request = data;
    if (sp_ring_settle(ring, request, result))
        send_request(ring, r, request);
    else
        r->free[r->n_free++] = (uint32_t)(request - r->requests);
}

static void *reader_main(void *argument) {
    sp_ring_drive *drive = argument;
    uring_readers *r = drive->readers;
    send_wake_read(r);
    while (send_more(drive, r)) {
        io_uring_submit_and_wait(&r->uring, 1); /* interrupted, or out of room for a moment: the loop comes again */
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&r->uring, &cqe) == 0) {
            void *data = io_uring_cqe_get_data(cqe);
            int result = cqe->res;
            io_uring_cqe_seen(&r->uring, cqe);
            complete(drive->ring, r, data, result);
        }
    }
    return NULL;
}

static void wake(sp_ring_drive *drive) {
    uring_readers *r = drive->readers;
    if (!r->wants_wake && !drive->ring->stop) return;
    r->wants_wake = false;
    uint64_t one = 1;
    ssize_t written = write(r->wake_fd, &one, sizeof one);
    SP_CHECK(written == sizeof one); /* only a counter near 2^64 could refuse */
}

/* ---- start, join ---- */

static void register_memory(sp_ring *ring, uring_readers *r) {
    struct iovec regions[MAX_REGIONS];
    size_t n = 0;
    for (size_t at = 0; at < ring->memory_bytes && n < MAX_REGIONS; at += REGION_BYTES)
        regions[n++] = (struct iovec){ring->memory + at, sp_min_size(REGION_BYTES, ring->memory_bytes - at)};
    if (n > 0 && io_uring_register_buffers(&r->uring, regions, (unsigned)n) == 0) r->n_regions = n;
}

static void register_files(sp_ring *ring, uring_readers *r) {
    int *fds = SP_ARENA_ARRAY(&ring->arena, int, ring->n_sources);
    for (size_t i = 0; i < ring->n_sources; i++) fds[i] = ring->sources[i].fd;
    r->files_registered = io_uring_register_files(&r->uring, fds, (unsigned)ring->n_sources) == 0;
}

/* The kernel knows the one operation that is used. */
static bool has_read(struct io_uring *uring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    bool has = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return has;
}

static bool start_thread(sp_ring_drive *drive, uring_readers *r, sp_error *err) {
    if (!has_read(&r->uring)) return sp_fail(err, SP_ERR_SUPPORT, "io_uring: this kernel's has no plain reads");
    r->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (r->wake_fd < 0) return sp_fail_errno(err, "eventfd");
    register_memory(drive->ring, r);
    register_files(drive->ring, r);
    int failed = pthread_create(&r->thread, NULL, reader_main, drive);
    if (failed == 0) return true;
    close(r->wake_fd);
    errno = failed;
    return sp_fail_errno(err, "a thread to read weights cannot be started");
}

static bool start(sp_ring_drive *drive, sp_error *err) {
    sp_ring *ring = drive->ring;
    uring_readers *r = SP_ARENA_NEW(&ring->arena, uring_readers);
    size_t depth = ring->options.depth;
    r->requests = SP_ARENA_ARRAY(&ring->arena, sp_ring_request, depth);
    r->free = SP_ARENA_ARRAY(&ring->arena, uint32_t, depth);
    for (; r->n_free < depth; r->n_free++) r->free[r->n_free] = (uint32_t)r->n_free;
    drive->readers = r;
    int failed = io_uring_queue_init((unsigned)depth + 1, &r->uring, 0);
    if (failed < 0) {
        errno = -failed;
        return sp_fail_errno(err, "io_uring cannot be had (kernel.io_uring_disabled, or a seccomp filter)");
    }
    if (start_thread(drive, r, err)) return true;
    io_uring_queue_exit(&r->uring);
    return false;
}

static void join(sp_ring_drive *drive) {
    uring_readers *r = drive->readers;
    pthread_join(r->thread, NULL);
    io_uring_queue_exit(&r->uring);
    close(r->wake_fd);
}

const sp_ring_kind sp_ring_kind_uring = {"io_uring", start, wake, join};
