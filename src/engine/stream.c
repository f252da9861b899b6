/* Readers and memory behind engine/stream.h.
 *
 * Work is given out in pieces of at most PIECE_BYTES, strictly in schedule order, under one lock; the reads themselves
 * run outside of it. `turn` counts the trips through the schedule. A pinned chunk is read in turn 0 only, into its
 * place of one mapping; any other chunk goes to slot (number of unpinned chunks before it, over all turns) mod n_slots,
 * once that slot's earlier chunk was released. A chunk has landed when none of its pieces is missing, so the engine
 * starts on the first matrices while the last are still on the drive, and readers run on into the next turn without a
 * stop. */
#include "engine/stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/schedule.h"
#include "util/arena.h"
#include "util/clock.h"
#include "util/size.h"

/* PIECE_BYTES: large enough that a lock and a system call are nothing beside it, small enough that two readers share
 * even a small model's first matrices. N_READERS: two keep a page-cached file ahead of the products, a drive wants
 * more. */
enum { ALIGN = 64, PIECE_BYTES = 1 << 20, N_READERS = 4, HUGE_PAGE = 2 << 20 };

typedef struct {
    bool pinned;      /* else it goes through the ring */
    size_t at_bytes;  /* pinned: its place, from base */
    size_t n_missing; /* pinned: bytes not read yet */
} item;

typedef struct {
    size_t at_bytes;  /* its place, from base */
    size_t n_missing; /* bytes of its chunk that are not read yet */
    uint64_t number;  /* which unpinned chunk that is, counted over all turns */
} slot;

typedef struct {
    size_t i_item;
    uint64_t turn, n_unpinned; /* trips completed; unpinned chunks passed, over all turns */
} cursor;

typedef struct {
    const sp_matrix *matrix;
    uint64_t offset_bytes;
    size_t n_bytes;
    char *to;
    size_t *n_missing;
} piece;

struct sp_stream {
    const sp_model *model;
    sp_arena arena;
    sp_schedule schedule;
    int *fds; /* [n_files], n_fds open */
    size_t n_fds;

    item *items; /* [n_extents] */
    slot *slots; /* [n_slots] */
    size_t n_slots;
    void *mapping;
    char *base; /* in the mapping, at a huge page: pinned matrices, the embedding, slots */
    size_t mapped_bytes, memory_bytes;

    bool embed_kept; /* the embedding is in memory; a tied one is the head */
    size_t embed_at_bytes, embed_missing, embed_next;
    bool embed_landed;
    char *embed_staging; /* [n_embed_max, row_bytes] */
    size_t n_embed_max;

    pthread_mutex_t lock;
    pthread_cond_t landed, space;
    cursor reading; /* next piece: that chunk's byte read_bytes */
    size_t read_bytes;
    bool reading_done;   /* nothing is left to read, ever */
    cursor taking;       /* next chunk to take */
    uint64_t n_released; /* unpinned chunks released, over all turns */
    sp_error error;      /* the first failure; stays */
    bool stop;

    bool settled; /* every chunk is pinned and has landed, and the files were unchanged then: nothing can change any
                     more */
    _Atomic uint64_t bytes_read;
    uint64_t wait_ns;
    pthread_t *readers;
    size_t n_readers;
};

/* ---- files ---- */

static bool is_as_read(const sp_model_file *file, const struct stat *now) {
    uint64_t mtime_ns = (uint64_t)now->st_mtim.tv_sec * 1000000000u + (uint64_t)now->st_mtim.tv_nsec;
    return now->st_ino == file->inode && (uint64_t)now->st_size == file->n_bytes && mtime_ns == file->mtime_ns;
}

static bool open_files(sp_stream *s, sp_error *err) {
    for (size_t i = 0; i < s->model->n_files; i++) {
        const sp_model_file *file = &s->model->files[i];
        int fd = open(file->path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return sp_fail_errno(err, "%s cannot be opened", file->path);
        s->fds[s->n_fds++] = fd;
    }
    return true;
}

/* The files are what they were when their headers were read: those that are open, and those under their names. */
static bool check_files(const sp_stream *s, sp_error *err) {
    for (size_t i = 0; i < s->model->n_files; i++) {
        const sp_model_file *file = &s->model->files[i];
        struct stat held, named;
        if (fstat(s->fds[i], &held) != 0) return sp_fail_errno(err, "%s: fstat", file->path);
        if (stat(file->path, &named) != 0) return sp_fail_errno(err, "%s: the model's file is gone", file->path);
        if (!is_as_read(file, &held) || !is_as_read(file, &named))
            return sp_fail(err, SP_ERR_IO, "%s has changed since its header was read: start again", file->path);
    }
    return true;
}

static bool read_all(sp_stream *s, const sp_matrix *matrix, uint64_t offset_bytes, size_t n_bytes, char *to,
                     sp_error *err) {
    const char *path = s->model->files[matrix->i_file].path;
    size_t n_done = 0;
    while (n_done < n_bytes) {
        ssize_t n = pread(s->fds[matrix->i_file], to + n_done, n_bytes - n_done, (off_t)(offset_bytes + n_done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return sp_fail_errno(err, "%s: reading '%s' at byte %llu", path, matrix->name,
                                 (unsigned long long)(offset_bytes + n_done));
        if (n == 0)
            return sp_fail(err, SP_ERR_IO, "%s ends inside '%s', at byte %llu: the file has shrunk", path, matrix->name,
                           (unsigned long long)(offset_bytes + n_done));
        n_done += (size_t)n;
    }
    atomic_fetch_add_explicit(&s->bytes_read, n_bytes, memory_order_relaxed);
    return true;
}

/* ---- readers ---- */

static void advance(const sp_stream *s, cursor *c) {
    if (!s->items[c->i_item].pinned) c->n_unpinned++;
    if (++c->i_item < s->schedule.n_extents) return;
    c->i_item = 0;
    c->turn++;
}

/* Moves `reading` to the next chunk that has to be read; false when its slot is still in use. */
static bool find_chunk(sp_stream *s) {
    while (s->reading.turn > 0 && s->items[s->reading.i_item].pinned) advance(s, &s->reading);
    if (s->items[s->reading.i_item].pinned || s->read_bytes > 0) return true;
    uint64_t number = s->reading.n_unpinned;
    if (number >= s->n_released + s->n_slots) return false;
    slot *to = &s->slots[number % s->n_slots];
    to->number = number;
    to->n_missing = sp_extent_bytes(&s->schedule.extents[s->reading.i_item]);
    return true;
}

/* Cuts the next piece off the schedule, then off an embedding that is kept beside the head. */
static bool next_piece(sp_stream *s, piece *p) {
    if (!s->reading_done && find_chunk(s)) {
        const sp_extent *extent = &s->schedule.extents[s->reading.i_item];
        item *it = &s->items[s->reading.i_item];
        slot *ring = it->pinned ? NULL : &s->slots[s->reading.n_unpinned % s->n_slots];
        size_t n_bytes = sp_min_size(PIECE_BYTES, sp_extent_bytes(extent) - s->read_bytes);
        *p = (piece){extent->matrix, sp_extent_offset(extent) + s->read_bytes, n_bytes,
                     s->base + (ring ? ring->at_bytes : it->at_bytes) + s->read_bytes,
                     ring ? &ring->n_missing : &it->n_missing};
        s->read_bytes += n_bytes;
        if (s->read_bytes < sp_extent_bytes(extent)) return true;
        s->read_bytes = 0;
        advance(s, &s->reading);
        s->reading_done = s->n_slots == 0 && s->reading.turn > 0;
        return true;
    }
    const sp_matrix *embed = &s->model->embed;
    if (!s->embed_kept || s->model->arch.tied_head) return false;
    size_t n_bytes = sp_min_size(PIECE_BYTES, embed->n_rows * embed->row_bytes - s->embed_next);
    if (n_bytes == 0) return false;
    *p = (piece){embed, embed->offset_bytes + s->embed_next, n_bytes, s->base + s->embed_at_bytes + s->embed_next,
                 &s->embed_missing};
    s->embed_next += n_bytes;
    return true;
}

static void *reader_main(void *argument) {
    sp_stream *s = argument;
    pthread_mutex_lock(&s->lock);
    while (!s->stop && s->error.code == SP_OK) {
        piece p;
        if (!next_piece(s, &p)) {
            if (s->reading_done) break;
            pthread_cond_wait(&s->space, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        sp_error err = {0};
        bool ok = read_all(s, p.matrix, p.offset_bytes, p.n_bytes, p.to, &err);
        pthread_mutex_lock(&s->lock);
        if (!ok && s->error.code == SP_OK) s->error = err;
        if (ok) *p.n_missing -= p.n_bytes;
        if (!ok || *p.n_missing == 0) pthread_cond_broadcast(&s->landed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- taking ---- */

static bool has_landed(const sp_stream *s, const cursor *c) {
    const item *it = &s->items[c->i_item];
    if (it->pinned) return it->n_missing == 0;
    const slot *ring = &s->slots[c->n_unpinned % s->n_slots];
    return ring->number == c->n_unpinned && ring->n_missing == 0;
}

/* Waits for the chunk under `taking`; the lock is held. */
static bool wait_landed(sp_stream *s, sp_error *err) {
    if (!has_landed(s, &s->taking) && s->error.code == SP_OK) {
        uint64_t start_ns = sp_clock_ns();
        while (!has_landed(s, &s->taking) && s->error.code == SP_OK) pthread_cond_wait(&s->landed, &s->lock);
        s->wait_ns += sp_clock_ns() - start_ns;
    }
    if (s->error.code != SP_OK) *err = s->error;
    return s->error.code == SP_OK;
}

static sp_chunk chunk_at(const sp_stream *s, const cursor *c) {
    const sp_extent *extent = &s->schedule.extents[c->i_item];
    const item *it = &s->items[c->i_item];
    size_t at_bytes = it->pinned ? it->at_bytes : s->slots[c->n_unpinned % s->n_slots].at_bytes;
    return (sp_chunk){s->base + at_bytes, extent->matrix, extent->weight,
                      extent->i_layer,    extent->row0,   extent->n_rows};
}

static size_t take_run(sp_stream *s, sp_chunk *chunks) {
    uint32_t group = s->schedule.extents[s->taking.i_item].group;
    size_t n = 0;
    do {
        chunks[n++] = chunk_at(s, &s->taking);
        advance(s, &s->taking);
    } while (n < SP_STREAM_TAKE && s->taking.i_item != 0 && s->schedule.extents[s->taking.i_item].group == group &&
             (s->settled || has_landed(s, &s->taking)));
    return n;
}

size_t sp_stream_take(sp_stream *s, sp_chunk chunks[SP_STREAM_TAKE], sp_error *err) {
    if (s->settled) return take_run(s, chunks);
    pthread_mutex_lock(&s->lock);
    size_t n = wait_landed(s, err) ? take_run(s, chunks) : 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void sp_stream_release(sp_stream *s) {
    if (s->n_released == s->taking.n_unpinned) return;
    pthread_mutex_lock(&s->lock);
    s->n_released = s->taking.n_unpinned;
    pthread_cond_broadcast(&s->space);
    pthread_mutex_unlock(&s->lock);
}

/* Takes and releases what is left of the ring's turn. */
static bool pass_over(sp_stream *s, sp_error *err) {
    while (s->taking.i_item != 0) {
        sp_chunk chunks[SP_STREAM_TAKE];
        if (sp_stream_take(s, chunks, err) == 0) return false;
        sp_stream_release(s);
    }
    return true;
}

/* Everything is pinned: whether all of it is there. */
static bool all_landed(sp_stream *s, bool *landed, sp_error *err) {
    pthread_mutex_lock(&s->lock);
    *landed = s->reading_done;
    for (size_t i = 0; *landed && i < s->schedule.n_extents; i++) *landed = s->items[i].n_missing == 0;
    bool ok = s->error.code == SP_OK;
    if (!ok) *err = s->error;
    pthread_mutex_unlock(&s->lock);
    return ok;
}

bool sp_stream_end_pass(sp_stream *s, sp_error *err) {
    if (s->n_slots > 0) return pass_over(s, err) && check_files(s, err);
    s->taking = (cursor){.turn = s->taking.turn + 1};
    if (s->settled) return true;
    bool landed = false;
    if (!all_landed(s, &landed, err) || !check_files(s, err)) return false;
    s->settled = landed;
    return true;
}

/* ---- embedding ---- */

static bool is_embed_landed(sp_stream *s) {
    if (!s->embed_kept || s->embed_landed) return s->embed_kept;
    pthread_mutex_lock(&s->lock);
    bool landed = s->embed_missing == 0;
    for (size_t i = s->schedule.n_extents; landed && s->model->arch.tied_head && i-- > 0;) {
        if (s->schedule.extents[i].weight != SP_WEIGHT_HEAD) break;
        landed = s->items[i].n_missing == 0;
    }
    pthread_mutex_unlock(&s->lock);
    s->embed_landed = landed;
    return landed;
}

bool sp_stream_embed(sp_stream *s, const int32_t *ids, size_t n_ids, const void **rows, sp_error *err) {
    assert(n_ids <= s->n_embed_max);
    const sp_matrix *embed = &s->model->embed;
    bool in_memory = is_embed_landed(s);
    for (size_t i = 0; i < n_ids; i++) {
        size_t row_offset = (size_t)ids[i] * embed->row_bytes;
        char *staged = s->embed_staging + i * embed->row_bytes;
        rows[i] = in_memory ? s->base + s->embed_at_bytes + row_offset : staged;
        if (!in_memory && !read_all(s, embed, embed->offset_bytes + row_offset, embed->row_bytes, staged, err))
            return false;
    }
    return true;
}

/* ---- open, close ---- */

/* Places pinned matrices one after the other in schedule order; returns the bytes they take. */
static size_t place_pinned(sp_stream *s) {
    size_t at_bytes = 0, places[SP_WEIGHT_COUNT] = {0};
    const sp_matrix *placed[SP_WEIGHT_COUNT] = {0};
    for (size_t i = 0; i < s->schedule.n_extents; i++) {
        const sp_extent *extent = &s->schedule.extents[i];
        const sp_matrix *matrix = extent->matrix;
        if (placed[extent->weight] != matrix) {
            placed[extent->weight] = matrix;
            places[extent->weight] = at_bytes;
            at_bytes += sp_round_up(matrix->n_rows * matrix->row_bytes, ALIGN);
        }
        s->items[i] = (item){true, places[extent->weight] + extent->row0 * matrix->row_bytes, sp_extent_bytes(extent)};
    }
    s->embed_at_bytes = places[SP_WEIGHT_HEAD];
    return at_bytes;
}

/* Gives every pinned matrix, the embedding and every slot its place; returns the bytes they take. */
static size_t lay_out(sp_stream *s, bool keep_embed) {
    size_t at_bytes = s->n_slots == 0 ? place_pinned(s) : 0;
    bool tied = s->model->arch.tied_head;
    s->embed_kept = tied ? s->n_slots == 0 : keep_embed;
    if (s->embed_kept && !tied) {
        s->embed_at_bytes = at_bytes;
        s->embed_missing = s->model->embed.n_rows * s->model->embed.row_bytes;
        at_bytes += sp_round_up(s->embed_missing, ALIGN);
    }
    for (size_t i = 0; i < s->n_slots; i++) {
        s->slots[i] = (slot){at_bytes, 0, UINT64_MAX};
        at_bytes += sp_round_up(s->schedule.max_bytes, ALIGN);
    }
    return at_bytes;
}

static bool map_memory(sp_stream *s, bool keep_embed, sp_error *err) {
    s->memory_bytes = lay_out(s, keep_embed);
    s->mapped_bytes = s->memory_bytes + HUGE_PAGE;
    void *mapping =
        mmap(NULL, s->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return sp_fail(err, SP_ERR_MEMORY, "weights: %zu bytes of memory cannot be had", s->memory_bytes);
    s->mapping = mapping;
    s->base = (char *)mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    madvise(s->base, s->memory_bytes, MADV_HUGEPAGE);
    return true;
}

static bool start_readers(sp_stream *s, size_t n_readers, sp_error *err) {
    s->readers = SP_ARENA_ARRAY(&s->arena, pthread_t, n_readers);
    for (size_t i = 0; i < n_readers; i++) {
        int failed = pthread_create(&s->readers[i], NULL, reader_main, s);
        if (failed) {
            errno = failed;
            return sp_fail_errno(err, "reader thread %zu of %zu cannot be started", i + 1, n_readers);
        }
        s->n_readers++;
    }
    return true;
}

sp_stream *sp_stream_open(const sp_model *model, const sp_stream_options *options, sp_error *err) {
    sp_arena arena = {0};
    sp_stream *s = SP_ARENA_NEW(&arena, sp_stream);
    s->model = model;
    sp_schedule_build(model, options->chunk_bytes, options->ffn_block, &arena, &s->schedule);
    s->fds = SP_ARENA_ARRAY(&arena, int, model->n_files);
    s->items = SP_ARENA_ARRAY(&arena, item, s->schedule.n_extents);
    s->slots = SP_ARENA_ARRAY(&arena, slot, sp_max_size(1, options->n_slots));
    s->n_slots = options->n_slots;
    s->n_embed_max = options->n_embed_max;
    s->embed_staging = SP_ARENA_ARRAY(&arena, char, options->n_embed_max * model->embed.row_bytes);
    s->arena = arena;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->landed, NULL);
    pthread_cond_init(&s->space, NULL);
    if (open_files(s, err) && check_files(s, err) && map_memory(s, options->keep_embed, err) &&
        start_readers(s, options->n_readers ? options->n_readers : N_READERS, err))
        return s;
    sp_stream_close(s);
    return NULL;
}

void sp_stream_close(sp_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->space);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->n_readers; i++) pthread_join(s->readers[i], NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->landed);
    pthread_cond_destroy(&s->space);
    if (s->mapping) munmap(s->mapping, s->mapped_bytes);
    for (size_t i = 0; i < s->n_fds; i++) close(s->fds[i]);
    sp_arena arena = s->arena;
    sp_arena_deinit(&arena);
}

uint64_t sp_stream_bytes_read(const sp_stream *s) { return atomic_load_explicit(&s->bytes_read, memory_order_relaxed); }
uint64_t sp_stream_wait_ns(const sp_stream *s) { return s->wait_ns; }
size_t sp_stream_memory_bytes(const sp_stream *s) { return s->memory_bytes; }
