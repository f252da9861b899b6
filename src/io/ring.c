/* The ring's core: extents, their cutting into requests, landing, failure. Readers are behind sp_ring_kind.
 *
 * An extent is in exactly one place: the list of free entries, or a drive's queue until its last request is cut, or
 * nowhere (all cut, some in flight). It lands when all is cut and nothing of it is in flight; then its entry counts one
 * generation more and is free again, in a slot after its release, so a ticket (entry, generation) needs no clearing up.
 */
#include "io/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "util/clock.h"
#include "util/size.h"

/* MAX_PAUSE_SHIFT: the pause before a retry doubles from 1 ms
 * to 64 ms; a drive's driver has waited for seconds before it says EIO. */
enum { MAX_DEPTH = 1024, N_EXTENTS = 256, N_RETRIES = 4, MAX_PAUSE_SHIFT = 6, SLOT_ALIGN = 64 };

/* Failures that may pass. */
static const int transient[] = {EIO, EAGAIN, ENOMEM, ETIMEDOUT, EBUSY};

static uint64_t align_down(uint64_t n, size_t align_bytes) { return n & ~(uint64_t)(align_bytes - 1); }
static uint64_t align_up(uint64_t n, size_t align_bytes) { return align_down(n + align_bytes - 1, align_bytes); }

/* ---- queues; the lock is held ---- */

static void push(sp_ring *ring, sp_ring_queue *queue, uint32_t i) {
    ring->entries[i].next = SP_RING_NONE;
    if (queue->head == SP_RING_NONE)
        queue->head = i;
    else
        ring->entries[queue->tail].next = i;
    queue->tail = i;
}

static void free_entry(sp_ring *ring, uint32_t i) {
    ring->entries[i].next = ring->free_head;
    ring->free_head = i;
}

static void land(sp_ring *ring, uint32_t i) {
    sp_ring_entry *entry = &ring->entries[i];
    if (entry->slot == SP_RING_NONE) free_entry(ring, i);
    ring->stats.bytes_wanted += entry->asked.n_bytes;
    atomic_fetch_add_explicit(&entry->generation, 1, memory_order_release);
    pthread_cond_broadcast(&ring->landed);
}

static void take_slot(sp_ring *ring, sp_ring_entry *entry) {
    SP_CHECK(ring->n_free_slots > 0); /* more than n_slots not released */
    entry->slot = ring->free_slots[--ring->n_free_slots];
    entry->asked.to = ring->memory + entry->slot * ring->slot_bytes +
                      sp_ring_lead_bytes(ring->align_bytes, entry->asked.offset_bytes);
}

static uint64_t end_of(const sp_ring_extent *extent) { return extent->offset_bytes + extent->n_bytes; }

bool sp_ring_has_room(const sp_ring_drive *drive) { return drive->n_in_flight < sp_pace_limit(&drive->pace); }

bool sp_ring_next(sp_ring_drive *drive, sp_ring_request *request) {
    sp_ring *ring = drive->ring;
    if (ring->stop || ring->error.code != SP_OK || !sp_ring_has_room(drive)) return false;
    sp_ring_queue *queue = &drive->queues[SP_RING_URGENT];
    if (queue->head == SP_RING_NONE) queue = &drive->queues[SP_RING_NORMAL];
    if (queue->head == SP_RING_NONE) {
        sp_pace_starved(&drive->pace);
        return false;
    }

    uint32_t i = queue->head;
    sp_ring_entry *entry = &ring->entries[i];
    if (!entry->asked.to) take_slot(ring, entry);
    uint64_t end = align_up(end_of(&entry->asked), ring->align_bytes), at = entry->cut_bytes;
    size_t n_bytes = sp_min_size(ring->options.request_bytes, (size_t)(end - at));
    *request = (sp_ring_request){
        .i_extent = i,
        .i_file = (uint32_t)entry->asked.i_file,
        .offset_bytes = at,
        .n_bytes = n_bytes,
        .to = (char *)entry->asked.to + (ptrdiff_t)(at - entry->asked.offset_bytes),
        .want_bytes = sp_min_size(n_bytes, (size_t)(end_of(&entry->asked) - at)),
    };
    entry->cut_bytes += n_bytes;
    entry->n_in_flight++;
    drive->n_in_flight++;
    if (entry->cut_bytes == end) queue->head = entry->next;
    if (ring->n_in_flight++ == 0) ring->busy_since_ns = sp_clock_ns();
    return true;
}

/* ---- results of reads ---- */

static bool is_transient(int error_number) {
    for (size_t i = 0; i < sizeof transient / sizeof *transient; i++)
        if (transient[i] == error_number) return true;
    return false;
}

static void pause_before(size_t i_try) {
    uint64_t pause_ns = 1000000ull << sp_min_size(i_try, MAX_PAUSE_SHIFT);
    nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
}

/* True: another try is due. */
static bool may_retry(sp_ring *ring, sp_ring_request *request) {
    if (request->n_tries >= ring->options.n_retries) return false;
    pthread_mutex_lock(&ring->lock);
    ring->stats.n_retries++;
    pthread_mutex_unlock(&ring->lock);
    pause_before(request->n_tries++);
    return true;
}

/* A read that returned less than what is wanted. True: continue behind what came, which counts whole blocks only. */
static bool continue_short(sp_ring *ring, sp_ring_request *request, size_t got_bytes, sp_error *err) {
    size_t done_bytes = (size_t)align_down(got_bytes, ring->align_bytes);
    unsigned long long at = request->offset_bytes;
    if (done_bytes == 0 && !may_retry(ring, request))
        return sp_fail(err, SP_ERR_IO, "%s ends at byte %llu, wanted up to %llu: the file has shrunk",
                       ring->sources[request->i_file].path, at + got_bytes, at + request->want_bytes);
    request->done_bytes += done_bytes;
    request->offset_bytes += done_bytes;
    request->to += done_bytes;
    request->n_bytes -= done_bytes;
    request->want_bytes -= done_bytes;
    return true;
}

/* True: try again. */
static bool retry_failed(sp_ring *ring, sp_ring_request *request, int error_number, sp_error *err) {
    if (error_number == EINTR) return true;
    if (is_transient(error_number) && may_retry(ring, request)) return true;
    errno = error_number;
    return sp_fail_errno(err, "%s: reading %zu bytes at byte %llu, tried %zu times",
                         ring->sources[request->i_file].path, request->want_bytes,
                         (unsigned long long)request->offset_bytes, request->n_tries + 1);
}

static void finish(sp_ring *ring, const sp_ring_request *request, const sp_error *err, size_t got_bytes) {
    pthread_mutex_lock(&ring->lock);
    if (--ring->n_in_flight == 0) ring->stats.busy_ns += sp_clock_ns() - ring->busy_since_ns;
    sp_ring_entry *entry = &ring->entries[request->i_extent];
    sp_ring_drive *drive = &ring->drives[ring->drive_of[request->i_file]];
    entry->n_in_flight--;
    drive->n_in_flight--;
    if (err->code != SP_OK) {
        if (ring->error.code == SP_OK) ring->error = *err;
        pthread_cond_broadcast(&ring->landed);
    } else {
        ring->stats.bytes_read += request->done_bytes + got_bytes;
        ring->stats.n_requests++;
        if (sp_pace_landed(&drive->pace, request->done_bytes + got_bytes, sp_clock_ns())) drive->kind->wake(drive);
        bool all_cut = entry->cut_bytes >= end_of(&entry->asked);
        if (all_cut && entry->n_in_flight == 0) land(ring, request->i_extent);
    }
    pthread_mutex_unlock(&ring->lock);
}

bool sp_ring_settle(sp_ring *ring, sp_ring_request *request, ssize_t result) {
    if (ring->options.tamper)
        result = ring->options.tamper(ring->options.tamper_ctx, request->i_file, request->offset_bytes, result);
    sp_error err = {0};
    size_t got_bytes = result > 0 ? (size_t)result : 0;
    bool again = false;
    if (result < 0)
        again = retry_failed(ring, request, (int)-result, &err);
    else if (got_bytes < request->want_bytes)
        again = continue_short(ring, request, got_bytes, &err);
    if (again) return true;
    const sp_source *source = &ring->sources[request->i_file];
    if (!source->direct && !ring->options.cached) sp_source_forget(source, request->offset_bytes, request->n_bytes);
    finish(ring, request, &err, got_bytes);
    return false;
}

/* ---- the caller's side ---- */

sp_ring_ticket sp_ring_submit(sp_ring *ring, const sp_ring_extent *extent) {
    assert(extent->i_file < ring->n_sources && extent->n_bytes > 0);
    assert(end_of(extent) <= ring->sources[extent->i_file].n_bytes);
    assert(!extent->to || ((uintptr_t)extent->to & (ring->align_bytes - 1)) ==
                              sp_ring_lead_bytes(ring->align_bytes, extent->offset_bytes));
    pthread_mutex_lock(&ring->lock);
    sp_ring_ticket ticket = SP_RING_NONE; /* after a failure: lands never */
    if (ring->error.code == SP_OK) {
        uint32_t i = ring->free_head;
        SP_CHECK(i != SP_RING_NONE); /* more than n_extents under way */
        sp_ring_entry *entry = &ring->entries[i];
        ring->free_head = entry->next;
        entry->asked = *extent;
        entry->slot = SP_RING_NONE;
        entry->cut_bytes = align_down(extent->offset_bytes, ring->align_bytes);
        ticket = (uint64_t)atomic_load_explicit(&entry->generation, memory_order_relaxed) << 32 | i;
        sp_ring_drive *drive = &ring->drives[ring->drive_of[extent->i_file]];
        push(ring, &drive->queues[extent->urgent ? SP_RING_URGENT : SP_RING_NORMAL], i);
        drive->kind->wake(drive);
    }
    pthread_mutex_unlock(&ring->lock);
    return ticket;
}

bool sp_ring_landed(const sp_ring *ring, sp_ring_ticket ticket) {
    uint32_t i = (uint32_t)ticket;
    return i != SP_RING_NONE &&
           atomic_load_explicit(&ring->entries[i].generation, memory_order_acquire) != (uint32_t)(ticket >> 32);
}

bool sp_ring_wait(sp_ring *ring, sp_ring_ticket ticket, sp_error *err) {
    if (sp_ring_landed(ring, ticket)) return true;
    pthread_mutex_lock(&ring->lock);
    while (!sp_ring_landed(ring, ticket) && ring->error.code == SP_OK) pthread_cond_wait(&ring->landed, &ring->lock);
    bool landed = sp_ring_landed(ring, ticket);
    if (!landed) *err = ring->error;
    pthread_mutex_unlock(&ring->lock);
    return landed;
}

char *sp_ring_place(const sp_ring *ring, sp_ring_ticket ticket) {
    assert(sp_ring_landed(ring, ticket));
    return ring->entries[(uint32_t)ticket].asked.to;
}

void sp_ring_release(sp_ring *ring, sp_ring_ticket ticket) {
    uint32_t i = (uint32_t)ticket;
    assert(sp_ring_landed(ring, ticket) && ring->entries[i].slot != SP_RING_NONE);
    pthread_mutex_lock(&ring->lock);
    ring->free_slots[ring->n_free_slots++] = ring->entries[i].slot;
    free_entry(ring, i);
    pthread_mutex_unlock(&ring->lock);
}

bool sp_ring_check_files(const sp_ring *ring, sp_error *err) {
    for (size_t i = 0; i < ring->n_sources; i++)
        if (!sp_source_check(&ring->sources[i], err)) return false;
    return true;
}

void sp_ring_get_stats(sp_ring *ring, sp_ring_stats *stats) {
    pthread_mutex_lock(&ring->lock);
    *stats = ring->stats;
    if (ring->n_in_flight > 0) stats->busy_ns += sp_clock_ns() - ring->busy_since_ns;
    pthread_mutex_unlock(&ring->lock);
}

size_t sp_ring_align_bytes(const sp_ring *ring) { return ring->align_bytes; }
size_t sp_ring_slots_bytes(const sp_ring *ring) { return ring->options.n_slots * ring->slot_bytes; }
const char *sp_ring_describe(const sp_ring *ring) { return ring->description; }
const sp_source *sp_ring_source(const sp_ring *ring, size_t i_file) { return &ring->sources[i_file]; }

bool sp_ring_is_direct(const sp_ring *ring) {
    for (size_t i = 0; i < ring->n_sources; i++)
        if (!ring->sources[i].direct) return false;
    return true;
}

/* ---- open, start, close ---- */

static void set_defaults(sp_ring_options *options) {
    options->depth = sp_min_size(options->depth ? options->depth : SP_RING_DEPTH, MAX_DEPTH);
    if (options->request_bytes == 0) options->request_bytes = SP_RING_REQUEST_BYTES;
    if (options->n_extents == 0) options->n_extents = N_EXTENTS;
    if (options->n_retries == 0) options->n_retries = N_RETRIES;
}

static sp_ring_drive *drive_of_source(sp_ring *ring, const sp_source *source) {
    for (size_t i = 0; i < ring->n_drives; i++)
        if (ring->drives[i].device == source->as_opened.st_dev) return &ring->drives[i];
    sp_ring_drive *drive = &ring->drives[ring->n_drives++];
    *drive = (sp_ring_drive){.ring = ring, .device = source->as_opened.st_dev, .direct = true};
    for (size_t i = 0; i < SP_RING_N_QUEUES; i++) drive->queues[i].head = SP_RING_NONE;
    return drive;
}

static bool open_sources(sp_ring *ring, const char *const *paths, size_t n_paths, sp_error *err) {
    for (size_t i = 0; i < n_paths; i++) {
        sp_source *source = &ring->sources[i];
        if (!sp_source_open(source, paths[i], ring->options.cached, err)) return false;
        ring->n_sources++;
        sp_ring_drive *drive = drive_of_source(ring, source);
        drive->direct = drive->direct && source->direct;
        ring->drive_of[i] = (size_t)(drive - ring->drives);
        ring->align_bytes = sp_max_size(ring->align_bytes, source->align_bytes);
    }
    ring->options.request_bytes = sp_round_up(ring->options.request_bytes, ring->align_bytes);
    ring->slot_bytes = sp_round_up(sp_ring_room_bytes(ring->align_bytes, ring->options.slot_extent_bytes), SLOT_ALIGN);
    return true;
}

sp_ring *sp_ring_open(const char *const *paths, size_t n_paths, const sp_ring_options *options, sp_error *err) {
    sp_arena arena = {0};
    sp_ring *ring = SP_ARENA_NEW(&arena, sp_ring);
    ring->options = *options;
    set_defaults(&ring->options);
    ring->align_bytes = 1;
    ring->sources = SP_ARENA_ARRAY(&arena, sp_source, n_paths);
    ring->drive_of = SP_ARENA_ARRAY(&arena, size_t, n_paths);
    ring->drives = SP_ARENA_ARRAY(&arena, sp_ring_drive, n_paths);
    ring->entries = SP_ARENA_ARRAY(&arena, sp_ring_entry, ring->options.n_extents);
    ring->free_head = SP_RING_NONE;
    for (uint32_t i = 0; i < ring->options.n_extents; i++) free_entry(ring, i);
    ring->free_slots = SP_ARENA_ARRAY(&arena, uint32_t, sp_max_size(1, ring->options.n_slots));
    while (ring->n_free_slots < ring->options.n_slots) {
        ring->free_slots[ring->n_free_slots] = (uint32_t)ring->n_free_slots;
        ring->n_free_slots++;
    }
    ring->arena = arena;
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->landed, NULL);
    if (open_sources(ring, paths, n_paths, err)) return ring;
    sp_ring_close(ring);
    return NULL;
}

/* Ordinary reads are copies out of the page cache, which need a thread each; io_uring would give them its own. */
static const sp_ring_kind *first_choice(const sp_ring_drive *drive) {
    static const sp_ring_kind *const kinds[SP_RING_BACKEND_COUNT] = {
        [SP_RING_URING] = &sp_ring_kind_uring,
        [SP_RING_THREADS] = &sp_ring_kind_threads,
    };
    const sp_ring_kind *asked = kinds[drive->ring->options.backend];
    if (asked) return asked;
    return drive->direct ? &sp_ring_kind_uring : &sp_ring_kind_threads;
}

static bool start_drive(sp_ring_drive *drive, sp_error *err) {
    const sp_ring_options *options = &drive->ring->options;
    drive->pace = (sp_pace){.few = options->few, .many = options->depth};
    drive->kind = first_choice(drive);
    if (drive->kind->start(drive, err)) return true;
    if (drive->kind == &sp_ring_kind_threads || options->backend != SP_RING_AUTO) return false;
    sp_error_clear(err);
    drive->kind = &sp_ring_kind_threads;
    return drive->kind->start(drive, err);
}

bool sp_ring_start(sp_ring *ring, void *memory, size_t memory_bytes, sp_error *err) {
    ring->memory = memory;
    ring->memory_bytes = memory ? memory_bytes : 0;
    assert(sp_ring_slots_bytes(ring) <= ring->memory_bytes);
    for (; ring->n_started < ring->n_drives; ring->n_started++)
        if (!start_drive(&ring->drives[ring->n_started], err)) return false;
    snprintf(ring->description, sizeof ring->description, "%s, %zu x %zu bytes, %s",
             ring->n_drives ? ring->drives[0].kind->name : "no files", ring->options.depth, ring->options.request_bytes,
             sp_ring_is_direct(ring) ? "page cache bypassed"
             : ring->options.cached  ? "through the page cache"
                                     : "through the page cache, which is told to forget: no direct reads here");
    return true;
}

void sp_ring_close(sp_ring *ring) {
    if (!ring) return;
    pthread_mutex_lock(&ring->lock);
    ring->stop = true;
    for (size_t i = 0; i < ring->n_started; i++) ring->drives[i].kind->wake(&ring->drives[i]);
    pthread_mutex_unlock(&ring->lock);
    for (size_t i = 0; i < ring->n_started; i++) ring->drives[i].kind->join(&ring->drives[i]);
    pthread_mutex_destroy(&ring->lock);
    pthread_cond_destroy(&ring->landed);
    for (size_t i = 0; i < ring->n_sources; i++) sp_source_close(&ring->sources[i]);
    sp_arena arena = ring->arena;
    sp_arena_deinit(&arena);
}
