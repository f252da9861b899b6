/* The weights' stream: hands every matrix of the model to the engine, in the order in which a pass needs them.
 *
 * That order is known for ever and cyclic: per layer q, k, v; o; gate and up by blocks of rows; down; then the head.
 * What is handed out are chunks, runs of whole rows of one matrix. Reads (io/ring.h) run ahead of the engine, into the
 * next pass too; where a chunk lies is this module's affair: pinned (read once, kept) or in a ring of slots (read again
 * every pass). The engine's results do not depend on where matrices are cut or kept.
 *
 *     drives :  file --sp_ring--> pinned memory | slot
 *     engine :  begin pass -> [ take (waits until landed) -> products -> release (the slot may be overwritten) ]...
 *               -> end pass
 *
 * Pinned are whole layers, a prefix of planner/pin.h's order, then the head; the prefix can grow between passes.
 *
 * One caller's thread; the readers are the ring's own. A failed read (I/O error, a file that shrank or changed) stays:
 * every later take reports it. */
#ifndef SPILL_ENGINE_STREAM_H
#define SPILL_ENGINE_STREAM_H

#include "io/ring.h"
#include "model/model.h"
#include "util/error.h"

typedef struct sp_stream sp_stream;

typedef enum {
    SP_WEIGHT_Q,
    SP_WEIGHT_K,
    SP_WEIGHT_V,
    SP_WEIGHT_O,
    SP_WEIGHT_GATE,
    SP_WEIGHT_UP,
    SP_WEIGHT_DOWN,
    SP_WEIGHT_HEAD,
    SP_WEIGHT_EMBED, /* untied; in no product */
    SP_WEIGHT_COUNT
} sp_weight;

/* Rows [row0, row0 + n_rows) of a matrix, row_bytes apart as in the file; or in panel form. */
typedef struct {
    const void *w;
    const sp_matrix *matrix;
    sp_weight weight;
    uint32_t i_layer; /* L for the head and the embedding */
    size_t row0, n_rows;
    size_t i_extent; /* its number in the schedule, below sp_stream_n_extents */
    bool is_pinned;
    bool has_panels; /* sp_stream_to_panels was called for it */
} sp_chunk;

typedef struct {
    size_t chunk_bytes;      /* a chunk is no longer than this, but for one row that is */
    size_t ffn_block;        /* gate and up alternate in blocks of this many rows */
    size_t n_slots;          /* ring slots; 0: everything is pinned, whatever the next three say */
    size_t n_pinned_layers;  /* the first so many of sp_pin_order */
    bool pin_head;           /* a tied embedding with it */
    bool keep_embed;         /* an untied embedding is kept in memory */
    size_t n_embed_max;      /* rows that one sp_stream_embed may ask for */
    sp_ring_backend backend; /* these three: io/ring.h, 0: a default */
    size_t depth;
    size_t request_bytes;
    /* Reads row i_row of a chunk in panel form as it was in the file; called by sp_stream_embed. NULL where no chunk of
     * the embedding is ever put in panel form. */
    void (*panel_row)(void *ctx, const sp_chunk *chunk, size_t i_row, void *out);
    void *panel_ctx;
} sp_stream_options;

/* Opens the model's files and starts reading; returns at once. The model is borrowed. */
sp_stream *sp_stream_open(const sp_model *model, const sp_stream_options *options, sp_error *err) SP_MUST_CHECK;
void sp_stream_close(sp_stream *stream); /* NULL is fine */

enum { SP_STREAM_TAKE = 32 };

/* What a pass takes. */
typedef enum {
    SP_STREAM_NO_LOGITS, /* nothing after the keys and values of the last layer */
    SP_STREAM_LOGITS,    /* every product */
    SP_STREAM_ALL        /* an untied embedding too */
} sp_stream_part;

size_t sp_stream_n_extents(const sp_stream *stream);

/* Begins a pass. What it does not take is not read for it. */
void sp_stream_begin_pass(sp_stream *stream, sp_stream_part part);

/* The next chunks in order, at least one; more only if they take the same input (q, k and v of a layer; gate and up of
 * a block), so that they can be one fork-join. Waits until they hold rows_wanted rows, as far as the ring has slots for
 * that; takes more than these if they have landed too. Returns their number, 0 on failure. They stay valid until
 * released. */
size_t sp_stream_take(sp_stream *stream, size_t rows_wanted, sp_chunk chunks[SP_STREAM_TAKE],
                      sp_error *err) SP_MUST_CHECK;
void sp_stream_release(sp_stream *stream); /* all that were taken */

/* Lets the caller put a pinned chunk that it has taken into panel form (kernels/ops.h), in place and once: sets
 * has_panels, moves what it holds to a multiple of 64 bytes and returns that address, which is the chunk's from now on.
 */
void *sp_stream_to_panels(sp_stream *stream, sp_chunk *chunk);

/* Ends a pass: passes over its chunks that were not taken, and the next pass begins with the first again. Fails when a
 * file has changed since it was opened. */
bool sp_stream_end_pass(sp_stream *stream, sp_error *err) SP_MUST_CHECK;

/* Between passes: n_bytes more may be taken for pinned weights. As many layers of the order, then the head, are pinned
 * as that is enough for, what is left over counts the next time; they move to their place as they are next read. */
void sp_stream_grow(sp_stream *stream, size_t n_bytes);
/* Bytes that the next of them still lacks; SIZE_MAX: there is none. */
size_t sp_stream_growth_bytes(const sp_stream *stream);

/* rows[i] = the embedding's row ids[i], in the matrix's own format; valid until the next call. ids are within V. */
bool sp_stream_embed(sp_stream *stream, const int32_t *ids, size_t n_ids, const void **rows,
                     sp_error *err) SP_MUST_CHECK;

/* Totals since open: bytes read from files; time that the engine spent waiting; of that, for the first chunk of a pass
 * and for rows of the embedding. */
uint64_t sp_stream_bytes_read(const sp_stream *stream);
uint64_t sp_stream_wait_ns(const sp_stream *stream);
uint64_t sp_stream_boundary_wait_ns(const sp_stream *stream);
/* Memory of pinned chunks and slots, in bytes. */
size_t sp_stream_memory_bytes(const sp_stream *stream);

#endif
