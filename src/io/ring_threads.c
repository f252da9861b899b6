/* Readers that are threads: as many per drive as requests may be in flight, each in a pread. Works everywhere. */
#include <errno.h>
#include <unistd.h>

#include "io/internal.h"

typedef struct {
    pthread_cond_t work;
    pthread_t *threads;
    size_t n_threads;
} thread_readers;

static void *reader_main(void *argument) {
    sp_ring_drive *drive = argument;
    sp_ring *ring = drive->ring;
    thread_readers *readers = drive->readers;
    pthread_mutex_lock(&ring->lock);
    while (!ring->stop) {
        sp_ring_request request;
        if (!sp_ring_next(drive, &request)) {
            pthread_cond_wait(&readers->work, &ring->lock);
            continue;
        }
        pthread_mutex_unlock(&ring->lock);
        ssize_t got;
        do {
            int fd = ring->sources[request.i_file].fd;
            got = pread(fd, request.to, request.n_bytes, (off_t)request.offset_bytes);
        } while (sp_ring_settle(ring, &request, got < 0 ? -errno : got));
        pthread_mutex_lock(&ring->lock);
    }
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

/* An extent is many requests: all readers are needed at once. */
static void wake(sp_ring_drive *drive) { pthread_cond_broadcast(&((thread_readers *)drive->readers)->work); }

static void join(sp_ring_drive *drive) {
    thread_readers *readers = drive->readers;
    for (size_t i = 0; i < readers->n_threads; i++) pthread_join(readers->threads[i], NULL);
    pthread_cond_destroy(&readers->work);
}

/* Whoever has some readers has enough: the system may allow fewer threads than asked for. */
static bool start(sp_ring_drive *drive, sp_error *err) {
    sp_ring *ring = drive->ring;
    thread_readers *readers = SP_ARENA_NEW(&ring->arena, thread_readers);
    readers->threads = SP_ARENA_ARRAY(&ring->arena, pthread_t, ring->options.depth);
    pthread_cond_init(&readers->work, NULL);
    drive->readers = readers;
    for (; readers->n_threads < ring->options.depth; readers->n_threads++) {
        int failed = pthread_create(&readers->threads[readers->n_threads], NULL, reader_main, drive);
        if (failed == 0) continue;
        if (readers->n_threads > 0) break;
        pthread_cond_destroy(&readers->work);
        errno = failed;
        return sp_fail_errno(err, "a thread to read weights cannot be started");
    }
    return true;
}

const sp_ring_kind sp_ring_kind_threads = {"threads", start, wake, join};
