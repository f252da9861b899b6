/* Places and order behind engine/stream.h; the reading itself is io/ring.h's.
 *
 * Chunks are submitted strictly in schedule order by the engine's own thread: at open, and whenever a release frees
 * slots. `turn` counts the trips through the schedule. A pinned chunk is read in turn 0 only, into its place of one
 * mapping; any other chunk goes to slot (number of unpinned chunks before it, over all turns) mod n_slots, once that
 * slot's earlier chunk was released. So the drives run on into the next turn without a stop, and the engine starts on
 * the first matrices while the last are still on their way.
 *
 * Streamed models are read past the page cache, straight into the slots. A model that stays in memory is read once, so
 * it may as well come out of the page cache, where an earlier run has left it. */
#include "engine/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/schedule.h"
#include "util/arena.h"
#include "util/clock.h"
#include "util/size.h"

/* CACHED_DEPTH: two threads keep copies out of the page cache ahead of the products, a drive below it wants more.
 * CACHED_REQUEST_BYTES: small enough that they share even a small model's first matrices. */
enum { ALIGN = 64, CACHED_DEPTH = 4, CACHED_REQUEST_BYTES = 1 << 20, HUGE_PAGE = 2 << 20 };

typedef struct {
    bool pinned;     /* else it goes through the ring */
    size_t at_bytes; /* pinned: its place, from base */
    sp_ring_ticket ticket;
} item;

typedef struct {
    size_t at_bytes; /* its place, from base */
    sp_ring_ticket ticket;
} slot;

typedef struct {
    size_t i_item;
    uint64_t turn, n_unpinned; /* trips completed; unpinned chunks passed, over all turns */
} cursor;

struct sp_stream {
    const sp_model *model;
    sp_arena arena;
    sp_schedule schedule;
    sp_ring *ring;
    size_t align_bytes; /* of the ring's reads */

    item *items; /* [n_extents] */
    slot *slots; /* [n_slots] */
    size_t n_slots;
    size_t n_unpinned; /* items that go through the ring */
    void *mapping;
    char *base; /* in the mapping, at a huge page: pinned matrices, the embedding, slots, staged rows */
    size_t mapped_bytes, memory_bytes, slots_at_bytes, slots_bytes;

    bool embed_kept; /* the embedding is in memory; a tied one is the head */
    size_t embed_at_bytes;
    sp_ring_ticket embed_ticket;
    bool embed_landed;
    size_t staging_at_bytes, staged_row_bytes; /* rows of an embedding that is not there: [n_embed_max] */
    sp_ring_ticket *staged;                    /* [n_embed_max] */
    size_t n_embed_max;

    cursor submitting;   /* the next chunk to be read */
    cursor taking;       /* the next chunk to be taken */
    uint64_t n_released; /* unpinned chunks released, over all turns */
    bool settled; /* every chunk is pinned and has landed, and the files were unchanged then: nothing can change any
                     more */
    uint64_t wait_ns;
};

/* ---- submitting ---- */

static void advance(const sp_stream *s, cursor *c) {
    if (!s->items[c->i_item].pinned) c->n_unpinned++;
    if (++c->i_item < s->schedule.n_extents) return;
    c->i_item = 0;
    c->turn++;
}

static sp_ring_ticket read_part(sp_stream *s, const sp_matrix *matrix, uint64_t offset_bytes, size_t n_bytes,
                                size_t at_bytes, bool urgent) {
    sp_ring_extent extent = {matrix->i_file, offset_bytes, n_bytes, s->base + at_bytes, urgent};
    return sp_ring_submit(s->ring, &extent);
}

/* The slot of the unpinned chunk with this number; without slots there is none. */
static size_t slot_of(const sp_stream *s, uint64_t number) { return (size_t)(number % sp_max_size(1, s->n_slots)); }

/* Where a chunk's first byte lands in a slot. */
static size_t place_in_slot(const sp_stream *s, const slot *to, const sp_extent *extent) {
    return to->at_bytes + sp_ring_lead_bytes(s->align_bytes, sp_extent_offset(extent));
}

/* Submits all chunks that have a place now. */
static void submit_chunks(sp_stream *s) {
    for (;;) {
        cursor *next = &s->submitting;
        if (next->turn > 0 && s->n_unpinned == 0) return;
        while (next->turn > 0 && s->items[next->i_item].pinned) advance(s, next);
        item *it = &s->items[next->i_item];
        const sp_extent *extent = &s->schedule.extents[next->i_item];
        if (!it->pinned && next->n_unpinned >= s->n_released + s->n_slots) return;
        slot *to = it->pinned ? NULL : &s->slots[slot_of(s, next->n_unpinned)];
        size_t at_bytes = to ? place_in_slot(s, to, extent) : it->at_bytes;
        *(to ? &to->ticket : &it->ticket) =
            read_part(s, extent->matrix, sp_extent_offset(extent), sp_extent_bytes(extent), at_bytes, false);
        advance(s, next);
    }
}

/* ---- taking ---- */

static bool is_submitted(const sp_stream *s, const cursor *c) {
    const cursor *next = &s->submitting;
    return c->turn < next->turn || (c->turn == next->turn && c->i_item < next->i_item);
}

static sp_ring_ticket ticket_at(const sp_stream *s, const cursor *c) {
    const item *it = &s->items[c->i_item];
    return it->pinned ? it->ticket : s->slots[slot_of(s, c->n_unpinned)].ticket;
}

static bool has_landed(const sp_stream *s, const cursor *c) {
    return is_submitted(s, c) && sp_ring_landed(s->ring, ticket_at(s, c));
}

static bool wait_for(sp_stream *s, sp_ring_ticket ticket, sp_error *err) {
    if (sp_ring_landed(s->ring, ticket)) return true;
    uint64_t start_ns = sp_clock_ns();
    bool landed = sp_ring_wait(s->ring, ticket, err);
    s->wait_ns += sp_clock_ns() - start_ns;
    return landed;
}

static sp_chunk chunk_at(const sp_stream *s, const cursor *c) {
    const sp_extent *extent = &s->schedule.extents[c->i_item];
    const item *it = &s->items[c->i_item];
    size_t at_bytes = it->pinned ? it->at_bytes : place_in_slot(s, &s->slots[slot_of(s, c->n_unpinned)], extent);
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
    assert(is_submitted(s, &s->taking) || s->settled);
    if (!s->settled && !wait_for(s, ticket_at(s, &s->taking), err)) return 0;
    return take_run(s, chunks);
}

void sp_stream_release(sp_stream *s) {
    if (s->n_released == s->taking.n_unpinned) return;
    s->n_released = s->taking.n_unpinned;
    submit_chunks(s);
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

static bool all_landed(const sp_stream *s) {
    for (size_t i = 0; i < s->schedule.n_extents; i++)
        if (!sp_ring_landed(s->ring, s->items[i].ticket)) return false;
    return true;
}

bool sp_stream_end_pass(sp_stream *s, sp_error *err) {
    if (s->n_unpinned > 0) return pass_over(s, err) && sp_ring_check_files(s->ring, err);
    s->taking = (cursor){0};
    if (s->settled) return true;
    bool landed = all_landed(s); /* before the files are looked at: what has landed came out of these */
    if (!sp_ring_check_files(s->ring, err)) return false;
    s->settled = landed;
    return true;
}

/* ---- embedding ---- */

static bool is_embed_landed(sp_stream *s) {
    if (!s->embed_kept || s->embed_landed) return s->embed_kept;
    bool landed = true;
    if (!s->model->arch.tied_head) landed = sp_ring_landed(s->ring, s->embed_ticket);
    for (size_t i = s->schedule.n_extents; landed && s->model->arch.tied_head && i-- > 0;) {
        if (s->schedule.extents[i].weight != SP_WEIGHT_HEAD) break;
        landed = sp_ring_landed(s->ring, s->items[i].ticket);
    }
    s->embed_landed = landed;
    return landed;
}

/* Rows that are not in memory are read ahead of all chunks: the whole pass waits for them. */
bool sp_stream_embed(sp_stream *s, const int32_t *ids, size_t n_ids, const void **rows, sp_error *err) {
    assert(n_ids <= s->n_embed_max);
    const sp_matrix *embed = &s->model->embed;
    bool in_memory = is_embed_landed(s);
    for (size_t i = 0; i < n_ids; i++) {
        size_t row_offset = (size_t)ids[i] * embed->row_bytes;
        uint64_t offset = embed->offset_bytes + row_offset;
        size_t at_bytes =
            in_memory ? s->embed_at_bytes + row_offset
                      : s->staging_at_bytes + i * s->staged_row_bytes + sp_ring_lead_bytes(s->align_bytes, offset);
        rows[i] = s->base + at_bytes;
        if (!in_memory) s->staged[i] = read_part(s, embed, offset, embed->row_bytes, at_bytes, true);
    }
    for (size_t i = 0; i < n_ids && !in_memory; i++)
        if (!wait_for(s, s->staged[i], err)) return false;
    return true;
}

/* ---- open, close ---- */

/* A place for n_bytes of the file from offset_bytes on, behind *end_bytes, which moves on. */
static size_t place(const sp_stream *s, size_t *end_bytes, uint64_t offset_bytes, size_t n_bytes) {
    size_t unit_bytes = sp_max_size(ALIGN, s->align_bytes);
    size_t at_bytes = sp_round_up(*end_bytes, unit_bytes) + sp_ring_lead_bytes(s->align_bytes, offset_bytes);
    *end_bytes = sp_round_up(at_bytes + n_bytes, unit_bytes);
    return at_bytes;
}

/* Places pinned matrices one after the other in schedule order; returns the bytes they take. */
static size_t place_pinned(sp_stream *s) {
    size_t end_bytes = 0, places[SP_WEIGHT_COUNT] = {0};
    const sp_matrix *placed[SP_WEIGHT_COUNT] = {0};
    for (size_t i = 0; i < s->schedule.n_extents; i++) {
        const sp_extent *extent = &s->schedule.extents[i];
        const sp_matrix *matrix = extent->matrix;
        if (placed[extent->weight] != matrix) {
            placed[extent->weight] = matrix;
            places[extent->weight] = place(s, &end_bytes, matrix->offset_bytes, matrix->n_rows * matrix->row_bytes);
        }
        s->items[i] = (item){.pinned = true, .at_bytes = places[extent->weight] + extent->row0 * matrix->row_bytes};
    }
    s->embed_at_bytes = places[SP_WEIGHT_HEAD];
    return end_bytes;
}

/* Gives every pinned matrix, the embedding, every slot and staged row its place; returns the bytes they take. */
static size_t lay_out(sp_stream *s, bool keep_embed) {
    size_t end_bytes = s->n_slots == 0 ? place_pinned(s) : 0;
    const sp_matrix *embed = &s->model->embed;
    bool tied = s->model->arch.tied_head;
    s->n_unpinned = s->n_slots == 0 ? 0 : s->schedule.n_extents;
    s->embed_kept = tied ? s->n_slots == 0 : keep_embed;
    if (s->embed_kept && !tied)
        s->embed_at_bytes = place(s, &end_bytes, embed->offset_bytes, embed->n_rows * embed->row_bytes);
    size_t slot_bytes = sp_round_up(sp_ring_room_bytes(s->align_bytes, s->schedule.max_bytes), ALIGN);
    s->slots_at_bytes = end_bytes;
    s->slots_bytes = s->n_slots * slot_bytes;
    for (size_t i = 0; i < s->n_slots; i++) s->slots[i].at_bytes = s->slots_at_bytes + i * slot_bytes;
    s->staging_at_bytes = s->slots_at_bytes + s->slots_bytes;
    s->staged_row_bytes = sp_round_up(sp_ring_room_bytes(s->align_bytes, embed->row_bytes), ALIGN);
    return s->staging_at_bytes + s->n_embed_max * s->staged_row_bytes;
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

/* The files are those whose headers were read. */
static bool check_identity(const sp_stream *s, sp_error *err) {
    for (size_t i = 0; i < s->model->n_files; i++) {
        const sp_model_file *file = &s->model->files[i];
        const struct stat *now = &sp_ring_source(s->ring, i)->as_opened;
        uint64_t mtime_ns = (uint64_t)now->st_mtim.tv_sec * 1000000000u + (uint64_t)now->st_mtim.tv_nsec;
        if ((uint64_t)now->st_size != file->n_bytes || now->st_ino != file->inode || mtime_ns != file->mtime_ns)
            return sp_fail(err, SP_ERR_IO, "%s (%lld bytes) has changed since its header was read (%llu bytes)",
                           file->path, (long long)now->st_size, (unsigned long long)file->n_bytes);
    }
    return true;
}

static bool open_ring(sp_stream *s, const sp_stream_options *options, sp_error *err) {
    const char **paths = SP_ARENA_ARRAY(&s->arena, const char *, s->model->n_files);
    for (size_t i = 0; i < s->model->n_files; i++) paths[i] = s->model->files[i].path;
    sp_ring_options ring = {.backend = options->backend,
                            .cached = s->n_slots == 0,
                            .depth = options->depth,
                            .request_bytes = options->request_bytes,
                            .n_extents = s->schedule.n_extents + s->n_slots + s->n_embed_max + 1};
    if (ring.cached && ring.depth == 0) ring.depth = CACHED_DEPTH;
    if (ring.cached && ring.request_bytes == 0) ring.request_bytes = CACHED_REQUEST_BYTES;
    s->ring = sp_ring_open(paths, s->model->n_files, &ring, err);
    if (!s->ring) return false;
    s->align_bytes = sp_ring_align_bytes(s->ring);
    return check_identity(s, err);
}

static bool start(sp_stream *s, sp_error *err) {
    void *slots = s->n_slots > 0 ? s->base + s->slots_at_bytes : NULL;
    if (!sp_ring_start(s->ring, slots, s->slots_bytes, err)) return false;
    submit_chunks(s);
    const sp_matrix *embed = &s->model->embed;
    if (s->embed_kept && !s->model->arch.tied_head)
        s->embed_ticket =
            read_part(s, embed, embed->offset_bytes, embed->n_rows * embed->row_bytes, s->embed_at_bytes, false);
    return true;
}

sp_stream *sp_stream_open(const sp_model *model, const sp_stream_options *options, sp_error *err) {
    sp_arena arena = {0};
    sp_stream *s = SP_ARENA_NEW(&arena, sp_stream);
    s->model = model;
    sp_schedule_build(model, options->chunk_bytes, options->ffn_block, &arena, &s->schedule);
    s->items = SP_ARENA_ARRAY(&arena, item, s->schedule.n_extents);
    s->slots = SP_ARENA_ARRAY(&arena, slot, sp_max_size(1, options->n_slots));
    s->n_slots = options->n_slots;
    s->n_embed_max = options->n_embed_max;
    s->staged = SP_ARENA_ARRAY(&arena, sp_ring_ticket, sp_max_size(1, options->n_embed_max));
    s->arena = arena;
    if (open_ring(s, options, err) && map_memory(s, options->keep_embed, err) && start(s, err)) return s;
    sp_stream_close(s);
    return NULL;
}

void sp_stream_close(sp_stream *s) {
    if (!s) return;
    sp_ring_close(s->ring); /* first: it writes into the mapping */
    if (s->mapping) munmap(s->mapping, s->mapped_bytes);
    sp_arena arena = s->arena;
    sp_arena_deinit(&arena);
}

uint64_t sp_stream_bytes_read(const sp_stream *s) {
    sp_ring_stats stats;
    sp_ring_get_stats(s->ring, &stats);
    return stats.bytes_wanted;
}

uint64_t sp_stream_wait_ns(const sp_stream *s) { return s->wait_ns; }
size_t sp_stream_memory_bytes(const sp_stream *s) { return s->memory_bytes; }
