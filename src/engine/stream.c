/* Places and order behind engine/stream.h; the reading itself is io/ring.h's.
 *
 * Chunks are submitted strictly in schedule order by the engine's own thread: at open, when a pass begins, and whenever
 * a release frees slots. `turn` counts the trips through the schedule. A pinned chunk is read once, into its place; any
 * other chunk goes to a slot of the ring's choice, as many chunks ahead as there are slots. So the drives run on across
 * pinned layers and into the next turn without a stop, and the engine starts on the first matrices while the last are
 * still on their way.
 *
 * Whether a turn needs the chunks from i_logits on is known when its pass begins; the submitting cursor waits there for
 * that. The pass begins a ring's length later at the latest, so this costs nothing, and no byte is read on a guess.
 *
 * A chunk that becomes pinned later does so from a turn on in which it has not been submitted yet: both cursors see the
 * same chunks go through the ring.
 *
 * Streamed models are read past the page cache, straight into the slots. A model that stays in memory is read once, so
 * it may as well come out of the page cache, where an earlier run has left it. */
#include "engine/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/schedule.h"
#include "planner/pin.h"
#include "util/arena.h"
#include "util/clock.h"
#include "util/size.h"

/* CACHED_DEPTH: two threads keep copies out of the page cache ahead of the products, a drive below it wants more.
 * CACHED_REQUEST_BYTES: small enough that they share even a small model's first matrices. */
enum { ALIGN = 64, CACHED_DEPTH = 4, CACHED_REQUEST_BYTES = 1 << 20, HUGE_PAGE = 2 << 20 };

#define NEVER UINT64_MAX

typedef struct {
    uint64_t pinned_turn; /* stays in memory from this turn on; NEVER: goes through the ring */
    char *at;             /* its place, when pinned */
    bool is_asked;        /* pinned, and submitted */
    bool has_panels;      /* pinned, and put in panel form */
    sp_ring_ticket ticket;
} item;

typedef struct {
    size_t i_item;
    uint64_t turn, n_unpinned; /* turns completed; chunks that went through the ring, over all turns */
} cursor;

/* Memory of its own: chunks pinned together, slots, staged rows. Begins at a huge page. */
typedef struct {
    void *mapping;
    size_t mapped_bytes;
} region;

struct sp_stream {
    const sp_model *model;
    sp_arena arena;
    sp_schedule schedule;
    sp_ring *ring;
    size_t align_bytes; /* of the ring's reads */

    item *items;             /* [n_extents] */
    sp_ring_ticket *tickets; /* [n_slots] of the ring's chunks that are not released: number mod n_slots */
    size_t n_slots;
    char *slots_base;
    size_t slots_bytes;
    size_t n_unpinned, n_unasked; /* items that go through the ring; pinned ones that were not submitted yet */

    region *regions; /* [L + 2] */
    size_t n_regions, memory_bytes;
    size_t n_pinned_layers; /* of the order */
    bool head_pinned;
    size_t spare_bytes; /* granted, too few for the next to be pinned */

    bool embed_landed;       /* the whole embedding is in memory */
    char *staging_base;      /* rows of an embedding that is not there: */
    size_t staged_row_bytes; /* [n_embed_max] rows, so far apart */
    sp_ring_ticket *staged;  /* [n_embed_max] */
    size_t n_embed_max;
    void (*panel_row)(void *ctx, const sp_chunk *chunk, size_t i_row, void *out);
    void *panel_ctx;

    cursor submitting;   /* the next chunk to be read */
    cursor taking;       /* the next chunk to be taken */
    uint64_t n_released; /* of the ring's chunks, over all turns */
    uint64_t n_begun;    /* passes */
    size_t end_item;     /* of the last pass begun */
    bool settled; /* every chunk is pinned and has landed, and the files were unchanged then: nothing can change any
                     more */
    uint64_t wait_ns, boundary_wait_ns;
};

/* ---- submitting ---- */

static bool is_pinned(const item *it, uint64_t turn) { return turn >= it->pinned_turn; }

static void wrap(const sp_stream *s, cursor *c) {
    if (c->i_item < s->schedule.n_extents) return;
    c->i_item = 0;
    c->turn++;
}

static sp_ring_ticket read_part(sp_stream *s, const sp_matrix *matrix, uint64_t offset_bytes, size_t n_bytes, char *to,
                                bool urgent) {
    sp_ring_extent extent = {matrix->i_file, offset_bytes, n_bytes, to, urgent};
    return sp_ring_submit(s->ring, &extent);
}

static sp_ring_ticket read_chunk(sp_stream *s, size_t i_item, char *to) {
    const sp_extent *extent = &s->schedule.extents[i_item];
    return read_part(s, extent->matrix, sp_extent_offset(extent), sp_extent_bytes(extent), to, false);
}

/* Of the ring's chunk with this number; without slots there is none. */
static sp_ring_ticket *ticket_of(const sp_stream *s, uint64_t number) {
    return &s->tickets[number % sp_max_size(1, s->n_slots)];
}

/* Submits the chunk at the cursor if it has a place. */
static bool submit_unpinned(sp_stream *s) {
    cursor *next = &s->submitting;
    bool is_certain = next->i_item < s->schedule.i_logits;
    if (!is_certain && next->turn >= s->n_begun) return false;
    if (is_certain || next->i_item < s->end_item) {
        if (next->n_unpinned >= s->n_released + s->n_slots) return false;
        *ticket_of(s, next->n_unpinned++) = read_chunk(s, next->i_item, NULL);
    }
    next->i_item++;
    return true;
}

static void submit_pinned(sp_stream *s) {
    item *it = &s->items[s->submitting.i_item];
    if (!it->is_asked) {
        it->ticket = read_chunk(s, s->submitting.i_item, it->at);
        it->is_asked = true;
        s->n_unasked--;
    }
    s->submitting.i_item++;
}

/* Submits all chunks that have a place now. */
static void submit_chunks(sp_stream *s) {
    while (s->n_unpinned + s->n_unasked > 0) {
        if (is_pinned(&s->items[s->submitting.i_item], s->submitting.turn))
            submit_pinned(s);
        else if (!submit_unpinned(s))
            return;
        wrap(s, &s->submitting);
    }
}

/* ---- taking ---- */

static bool is_submitted(const sp_stream *s, const cursor *c) {
    const cursor *next = &s->submitting;
    const item *it = &s->items[c->i_item];
    if (is_pinned(it, c->turn)) return it->is_asked;
    return c->turn < next->turn || (c->turn == next->turn && c->i_item < next->i_item);
}

static sp_ring_ticket ticket_at(const sp_stream *s, const cursor *c) {
    const item *it = &s->items[c->i_item];
    return is_pinned(it, c->turn) ? it->ticket : *ticket_of(s, c->n_unpinned);
}

static bool has_landed(const sp_stream *s, const cursor *c) {
    return is_submitted(s, c) && sp_ring_landed(s->ring, ticket_at(s, c));
}

static bool wait_for(sp_stream *s, sp_ring_ticket ticket, bool at_boundary, sp_error *err) {
    if (sp_ring_landed(s->ring, ticket)) return true;
    uint64_t start_ns = sp_clock_ns();
    bool landed = sp_ring_wait(s->ring, ticket, err);
    uint64_t wait_ns = sp_clock_ns() - start_ns;
    s->wait_ns += wait_ns;
    if (at_boundary) s->boundary_wait_ns += wait_ns;
    return landed;
}

static sp_chunk chunk_of(const sp_stream *s, size_t i_item, const char *w, bool pinned) {
    const sp_extent *extent = &s->schedule.extents[i_item];
    return (sp_chunk){.w = w,
                      .matrix = extent->matrix,
                      .weight = extent->weight,
                      .i_layer = extent->i_layer,
                      .row0 = extent->row0,
                      .n_rows = extent->n_rows,
                      .i_extent = i_item,
                      .is_pinned = pinned,
                      .has_panels = s->items[i_item].has_panels};
}

/* The chunk at the taking cursor, which moves on. */
static sp_chunk next_chunk(sp_stream *s) {
    cursor *c = &s->taking;
    const item *it = &s->items[c->i_item];
    bool pinned = is_pinned(it, c->turn);
    const char *w = pinned ? it->at : sp_ring_place(s->ring, *ticket_of(s, c->n_unpinned));
    c->n_unpinned += !pinned;
    return chunk_of(s, c->i_item++, w, pinned);
}

/* The chunk at the taking cursor is there, or is worth a wait: half of the slots go on being filled meanwhile. */
static bool joins(sp_stream *s, bool is_wanted, size_t n_taken, bool *failed, sp_error *err) {
    if (s->settled || has_landed(s, &s->taking)) return true;
    if (!is_wanted || n_taken >= s->n_slots / 2 || !is_submitted(s, &s->taking)) return false;
    *failed = !wait_for(s, ticket_at(s, &s->taking), false, err);
    return !*failed;
}

static size_t take_run(sp_stream *s, size_t rows_wanted, sp_chunk *chunks, sp_error *err) {
    uint32_t group = s->schedule.extents[s->taking.i_item].group;
    size_t n = 0, n_rows = 0;
    bool failed = false;
    do {
        chunks[n] = next_chunk(s);
        n_rows += chunks[n++].n_rows;
    } while (n < SP_STREAM_TAKE && s->taking.i_item < s->end_item &&
             s->schedule.extents[s->taking.i_item].group == group && joins(s, n_rows < rows_wanted, n, &failed, err));
    return failed ? 0 : n;
}

size_t sp_stream_n_extents(const sp_stream *s) { return s->schedule.n_extents; }

void sp_stream_begin_pass(sp_stream *s, sp_stream_part part) {
    const size_t ends[] = {[SP_STREAM_NO_LOGITS] = s->schedule.i_logits,
                           [SP_STREAM_LOGITS] = s->schedule.n_products,
                           [SP_STREAM_ALL] = s->schedule.n_extents};
    s->end_item = ends[part];
    s->n_begun = s->taking.turn + 1;
    submit_chunks(s);
}

size_t sp_stream_take(sp_stream *s, size_t rows_wanted, sp_chunk chunks[SP_STREAM_TAKE], sp_error *err) {
    assert(s->taking.i_item < s->end_item && is_submitted(s, &s->taking));
    if (!s->settled && !wait_for(s, ticket_at(s, &s->taking), s->taking.i_item == 0, err)) return 0;
    return take_run(s, rows_wanted, chunks, err);
}

void sp_stream_release(sp_stream *s) {
    if (s->n_released == s->taking.n_unpinned) return;
    for (; s->n_released < s->taking.n_unpinned; s->n_released++)
        sp_ring_release(s->ring, *ticket_of(s, s->n_released));
    submit_chunks(s);
}

/* A chunk's place begins at a multiple of ALIGN, less than an alignment of the ring before its bytes. */
void *sp_stream_to_panels(sp_stream *s, sp_chunk *chunk) {
    item *it = &s->items[chunk->i_extent];
    assert(chunk->is_pinned && !it->has_panels);
    char *to = it->at - (uintptr_t)it->at % ALIGN;
    if (to != it->at) memmove(to, it->at, sp_extent_bytes(&s->schedule.extents[chunk->i_extent]));
    it->at = to;
    it->has_panels = chunk->has_panels = true;
    chunk->w = to;
    return to;
}

static bool pass_over(sp_stream *s, sp_error *err) {
    while (s->taking.i_item < s->end_item) {
        sp_chunk chunks[SP_STREAM_TAKE];
        if (sp_stream_take(s, 1, chunks, err) == 0) return false;
        sp_stream_release(s);
    }
    return true;
}

static bool all_landed(const sp_stream *s) {
    if (s->n_unpinned + s->n_unasked > 0) return false;
    for (size_t i = 0; i < s->schedule.n_extents; i++)
        if (!sp_ring_landed(s->ring, s->items[i].ticket)) return false;
    return true;
}

bool sp_stream_end_pass(sp_stream *s, sp_error *err) {
    if (!pass_over(s, err)) return false;
    submit_chunks(s); /* past what this pass did not need, while its part is still known */
    s->taking.i_item = 0;
    s->taking.turn++;
    if (s->settled) return true;
    bool landed = all_landed(s); /* before the files are looked at: what has landed came out of these */
    if (!sp_ring_check_files(s->ring, err)) return false;
    s->settled = landed;
    return true;
}

/* ---- embedding ---- */

/* One past the last item with rows of the embedding. */
static size_t embed_end(const sp_stream *s) {
    return s->model->arch.tied_head ? s->schedule.n_products : s->schedule.n_extents;
}

static bool is_embed_landed(sp_stream *s) {
    if (s->embed_landed) return true;
    for (size_t i = embed_end(s); i-- > s->schedule.i_embed;)
        if (!s->items[i].is_asked || !sp_ring_landed(s->ring, s->items[i].ticket)) return false;
    s->embed_landed = true;
    return true;
}

/* Row i_row of an embedding in memory: where it lies, or, out of a panel, a copy in its staged row. */
static const char *row_in_memory(const sp_stream *s, size_t i_row, char *staged) {
    size_t i_first = s->schedule.i_embed, step = s->schedule.extents[i_first].n_rows;
    const item *it = &s->items[i_first + i_row / step];
    if (!it->has_panels) return it->at + i_row % step * s->model->embed.row_bytes;
    sp_chunk chunk = chunk_of(s, i_first + i_row / step, it->at, true);
    s->panel_row(s->panel_ctx, &chunk, i_row % step, staged);
    return staged;
}

/* Rows that are not in memory are read ahead of all chunks: the whole pass waits for them. */
bool sp_stream_embed(sp_stream *s, const int32_t *ids, size_t n_ids, const void **rows, sp_error *err) {
    assert(n_ids <= s->n_embed_max);
    const sp_matrix *embed = &s->model->embed;
    bool in_memory = is_embed_landed(s);
    for (size_t i = 0; i < n_ids; i++) {
        char *staged = s->staging_base + i * s->staged_row_bytes;
        if (in_memory) {
            rows[i] = row_in_memory(s, (size_t)ids[i], staged);
            continue;
        }
        uint64_t offset = embed->offset_bytes + (size_t)ids[i] * embed->row_bytes;
        char *to = staged + sp_ring_lead_bytes(s->align_bytes, offset);
        s->staged[i] = read_part(s, embed, offset, embed->row_bytes, to, true);
        rows[i] = to;
    }
    for (size_t i = 0; i < n_ids && !in_memory; i++)
        if (!wait_for(s, s->staged[i], true, err)) return false;
    return true;
}

/* ---- places ---- */

static size_t place_unit(const sp_stream *s) { return sp_max_size(ALIGN, s->align_bytes); }

/* Gives the chunks [first, end) places of their own (their reads are widened: two chunks must not share a block) from
 * base + at_bytes on and returns where they end; base NULL only measures. */
static size_t place_items(const sp_stream *s, size_t first, size_t end, char *base, size_t at_bytes) {
    size_t unit_bytes = place_unit(s);
    for (size_t i = first; i < end; i++) {
        const sp_extent *extent = &s->schedule.extents[i];
        at_bytes += sp_ring_lead_bytes(s->align_bytes, sp_extent_offset(extent));
        if (base) s->items[i].at = base + at_bytes;
        at_bytes = sp_round_up(at_bytes + sp_extent_bytes(extent), unit_bytes);
    }
    return at_bytes;
}

static bool map_region(sp_stream *s, size_t n_bytes, char **base) {
    size_t mapped_bytes = n_bytes + HUGE_PAGE;
    void *mapping =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return false;
    s->regions[s->n_regions++] = (region){mapping, mapped_bytes};
    s->memory_bytes += n_bytes;
    *base = (char *)mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    madvise(*base, n_bytes, MADV_HUGEPAGE);
    return true;
}

/* ---- growth ---- */

/* The items of the next layer to be pinned, or of the head; false when all are. */
static bool next_to_pin(const sp_stream *s, size_t *first, size_t *end) {
    uint32_t n_layers = (uint32_t)s->model->arch.n_layers;
    if (s->n_pinned_layers < n_layers) {
        size_t l = sp_pin_order(n_layers, (uint32_t)s->n_pinned_layers);
        *first = s->schedule.layer_first[l];
        *end = s->schedule.layer_first[l + 1];
        return true;
    }
    *first = s->schedule.layer_first[n_layers];
    *end = s->schedule.n_products;
    return !s->head_pinned;
}

size_t sp_stream_growth_bytes(const sp_stream *s) {
    size_t first, end;
    if (!next_to_pin(s, &first, &end)) return SIZE_MAX;
    size_t n_bytes = place_items(s, first, end, NULL, 0);
    return n_bytes > s->spare_bytes ? n_bytes - s->spare_bytes : 0;
}

void sp_stream_grow(sp_stream *s, size_t n_bytes) {
    s->spare_bytes += n_bytes;
    size_t first, end;
    while (next_to_pin(s, &first, &end)) {
        char *base;
        size_t wanted_bytes = place_items(s, first, end, NULL, 0);
        if (wanted_bytes > s->spare_bytes || !map_region(s, wanted_bytes, &base)) return;
        place_items(s, first, end, base, 0);
        for (size_t i = first; i < end; i++) s->items[i].pinned_turn = s->submitting.turn + (i < s->submitting.i_item);
        s->n_unpinned -= end - first;
        s->n_unasked += end - first;
        s->spare_bytes -= wanted_bytes;
        if (s->n_pinned_layers < s->model->arch.n_layers)
            s->n_pinned_layers++;
        else
            s->head_pinned = true;
    }
}

/* ---- open, close ---- */

/* Marks what is pinned from the beginning. */
static void mark_pinned(sp_stream *s, const sp_stream_options *options) {
    uint32_t n_layers = (uint32_t)s->model->arch.n_layers;
    bool all = options->n_slots == 0;
    s->n_pinned_layers = all ? n_layers : sp_min_size(options->n_pinned_layers, n_layers);
    s->head_pinned = all || options->pin_head;
    for (size_t i = 0; i < s->schedule.n_extents; i++) s->items[i].pinned_turn = NEVER;
    for (size_t n = 0; n < s->n_pinned_layers; n++) {
        size_t l = sp_pin_order(n_layers, (uint32_t)n);
        for (size_t i = s->schedule.layer_first[l]; i < s->schedule.layer_first[l + 1]; i++)
            s->items[i].pinned_turn = 0;
    }
    for (size_t i = s->schedule.layer_first[n_layers]; i < s->schedule.n_extents; i++)
        if (i < s->schedule.n_products ? s->head_pinned : options->keep_embed || all) s->items[i].pinned_turn = 0;
}

static size_t place_pinned(sp_stream *s, char *base) {
    size_t at_bytes = 0;
    for (size_t i = 0; i < s->schedule.n_extents; i++)
        if (is_pinned(&s->items[i], 0)) at_bytes = place_items(s, i, i + 1, base, at_bytes);
    return at_bytes;
}

/* One region for what is pinned from the beginning, the slots and staged rows. */
static bool map_memory(sp_stream *s, const sp_stream_options *options, sp_error *err) {
    mark_pinned(s, options);
    for (size_t i = 0; i < s->schedule.n_extents; i++)
        *(is_pinned(&s->items[i], 0) ? &s->n_unasked : &s->n_unpinned) += 1;
    size_t pinned_bytes = place_pinned(s, NULL);
    s->slots_bytes = sp_ring_slots_bytes(s->ring);
    s->staged_row_bytes = sp_round_up(sp_ring_room_bytes(s->align_bytes, s->model->embed.row_bytes), ALIGN);
    size_t staging_bytes = s->n_embed_max * s->staged_row_bytes;
    char *base;
    if (!map_region(s, pinned_bytes + s->slots_bytes + staging_bytes, &base))
        return sp_fail(err, SP_ERR_MEMORY,
                       "weights: %zu bytes of memory cannot be had (%zu pinned, %zu for the ring); a smaller --memory, "
                       "or a greater limit of the process (ulimit -v)",
                       pinned_bytes + s->slots_bytes + staging_bytes, pinned_bytes, s->slots_bytes);
    place_pinned(s, base);
    s->slots_base = base + pinned_bytes;
    s->staging_base = s->slots_base + s->slots_bytes;
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
                            .few = s->n_slots ? SP_RING_FEW : 0,
                            .n_slots = s->n_slots,
                            .slot_extent_bytes = s->n_slots ? s->schedule.max_bytes : 0,
                            .n_extents = s->schedule.n_extents + s->n_slots + s->n_embed_max + 1};
    if (ring.cached && ring.depth == 0) ring.depth = CACHED_DEPTH;
    if (ring.cached && ring.request_bytes == 0) ring.request_bytes = CACHED_REQUEST_BYTES;
    s->ring = sp_ring_open(paths, s->model->n_files, &ring, err);
    if (!s->ring) return false;
    s->align_bytes = sp_ring_align_bytes(s->ring);
    return check_identity(s, err);
}

sp_stream *sp_stream_open(const sp_model *model, const sp_stream_options *options, sp_error *err) {
    sp_arena arena = {0};
    sp_stream *s = SP_ARENA_NEW(&arena, sp_stream);
    s->model = model;
    sp_schedule_build(model, options->chunk_bytes, options->ffn_block, &arena, &s->schedule);
    s->items = SP_ARENA_ARRAY(&arena, item, s->schedule.n_extents);
    s->tickets = SP_ARENA_ARRAY(&arena, sp_ring_ticket, sp_max_size(1, options->n_slots));
    s->regions = SP_ARENA_ARRAY(&arena, region, model->arch.n_layers + 2);
    s->n_slots = options->n_slots;
    s->n_embed_max = options->n_embed_max;
    s->panel_row = options->panel_row;
    s->panel_ctx = options->panel_ctx;
    s->staged = SP_ARENA_ARRAY(&arena, sp_ring_ticket, sp_max_size(1, options->n_embed_max));
    s->arena = arena;
    bool started = open_ring(s, options, err) && map_memory(s, options, err) &&
                   sp_ring_start(s->ring, s->slots_bytes > 0 ? s->slots_base : NULL, s->slots_bytes, err);
    if (started) {
        submit_chunks(s);
        return s;
    }
    sp_stream_close(s);
    return NULL;
}

void sp_stream_close(sp_stream *s) {
    if (!s) return;
    sp_ring_close(s->ring); /* first: it writes into the regions */
    for (size_t i = 0; i < s->n_regions; i++) munmap(s->regions[i].mapping, s->regions[i].mapped_bytes);
    sp_arena arena = s->arena;
    sp_arena_deinit(&arena);
}

uint64_t sp_stream_bytes_read(const sp_stream *s) {
    sp_ring_stats stats;
    sp_ring_get_stats(s->ring, &stats);
    return stats.bytes_wanted;
}

uint64_t sp_stream_wait_ns(const sp_stream *s) { return s->wait_ns; }
uint64_t sp_stream_boundary_wait_ns(const sp_stream *s) { return s->boundary_wait_ns; }
size_t sp_stream_memory_bytes(const sp_stream *s) { return s->memory_bytes; }
