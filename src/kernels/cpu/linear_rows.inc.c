/* Products with a vector lane per row of the matrix: the same source for every ISA without tiles.
 *
 * The canonical dot product (docs/DESIGN.md, Numerics) of one row and one token, k in blocks of 32:
 *
 *     e = fma(w0, x0, 0), fma(w2, x2, e), ... fma(w30, x30, e)      o likewise over 1, 3, ... 31      C = C + (e + o)
 *
 * is a chain, so it cannot be spread over lanes; but rows are independent, so each lane computes another row's chain
 * and every ISA arrives at the same bytes. A *word* is what a lane multiplies in one instruction: an fp32 number, or,
 * for VDPBF16PS, a pair of bf16 two places apart (docs/decisions/001-vdpbf16ps.md). A chain has CHAIN words a block.
 *
 *     packed activations   [token][block][e, o][CHAIN] words, a cache line between tokens: they do not share sets
 *     a tile of weights    wide:  [block][e, o][CHAIN][TILE_ROWS] words
 *                          tight: [block][16][TILE_ROWS] dwords of two bf16: the words themselves where a word is a
 *                                 pair, else columns 2i and 2i + 1, which become words on the way to a product
 *
 *         rows, as on disk              tile                     products, in registers
 *         row r     w0 w1 w2 w3 ..      w0(r) w0(r+1) ..  x0(t) ->   e[t][r], e[t][r+1], ..   TILE_TOKENS tokens at
 * once, row r+1   w0 w1 w2 w3 ..      w2(r) w2(r+1) ..  x2(t) ->                            each word of weights read
 *         ..                            ..                                                    once for all of them
 *
 * Rows as on disk, many tokens: PANEL_TILES tiles of CHUNK columns are transposed (dequantized on the way) into this
 * thread's scratch, where they stay in cache while all tokens pass over them; partial sums C live beside them.
 * Rows as on disk, up to DIRECT_TOKENS tokens: the transposed registers are multiplied at once, and nothing is stored.
 * Panel form (kernels/ops.h): tight tiles over all k, one after the other, lie where the rows did. Products read them
 * as they are; what many tokens need next is fetched while they are at work.
 *
 * The including file defines LANES, CHAIN, TILE_VECTORS, TILE_TOKENS, DIRECT_TOKENS, PANEL_TILES, ISA_NAME, ISA_TABLE,
 * ISA_QUANT, ISA_BF16_ONLY; for tight tiles
 *     FLOW_TOKENS       up to so many read a tile from end to end, more go over it chunk by chunk
 *     MEMORY_TOKENS     up to so many, memory sets the pace, not arithmetic
 *     BOTH_TOKENS       up to so many have registers for both chains at once
 * the types vec (LANES fp32), words (LANES words), word, and
 *     vec_zero, vec_load, vec_store, vec_add
 *     words_load, words_store
 *     mac(acc, words w, const word *x)      acc + w * *x in every lane, one chain step (two for a pair)
 *     transpose(rows, offset, words out[LANES])   LANES dwords at byte `offset` of each of LANES rows
 *     split(const words *dwords, &e, &o)    from the next 16 / CHAIN transposed dwords of bf16 pairs
 *     pack_block(mode, x[32], word *out)    one block of activations. */
#include <string.h>

#include "util/size.h"

enum {
    BLOCK = 32,
    BLOCK_WORDS = 2 * CHAIN,
    BLOCK_DWORDS = BLOCK / 2, /* of bf16 weights */
    TILE_ROWS = TILE_VECTORS * LANES,
    PANEL_ROWS = PANEL_TILES * TILE_ROWS,
    CHUNK = 256, /* columns of a panel: a tile's share stays in L1, and is a whole number of any format's blocks */
    SPAN_TOKENS = 256, /* tokens whose partial sums are kept at a time */
    LINE_BYTES = 64,
    LINE_WORDS = LINE_BYTES / sizeof(word),

    PAIRED = CHAIN < BLOCK / 2,                        /* a word is two numbers */
    TIGHT_BYTES = TILE_ROWS * BLOCK * sizeof(sp_bf16), /* a block of a tile in panel form */
    TIGHT_WORDS = TIGHT_BYTES / sizeof(word),
    /* Prefetch distance along a row, and into L2: with 16 rows read side by side (their lines share an L1 set, so L1
     * could not hold what is fetched ahead) 2048 gives what reading in sequence does, 512 and 4096 a tenth less. */
    AHEAD_BYTES = 2048,
    /* Through a tight tile: two pages, since the processor's own prefetcher ends at a page. */
    FLOW_AHEAD_BYTES = 8192,
    IN_ORDER_TOKENS = 2, /* so few leave registers free, which a compiler fills with loads out of their order */
};

typedef struct {
    _Alignas(64) word panel[PANEL_ROWS * CHUNK / BLOCK * BLOCK_WORDS];
    _Alignas(64) uint8_t stage[TILE_ROWS * CHUNK * sizeof(float)]; /* dequantized rows, or a padded tail */
    _Alignas(64) float sums[SPAN_TOKENS * PANEL_ROWS];             /* C: [token][row] */
} rows_scratch;

static size_t token_words(size_t k) { return sp_div_up(k, BLOCK) * BLOCK_WORDS + LINE_WORDS; }

static size_t packed_bytes(sp_mode mode, size_t n_tokens, size_t k) {
    (void)mode;
    return n_tokens * token_words(k) * sizeof(word);
}

static void pack_row(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t, size_t n_tokens,
                     void *packed) {
    (void)n_tokens;
    word *out = (word *)packed + t * token_words(k) + k0 / BLOCK * BLOCK_WORDS;
    size_t i = 0;
    for (; i + BLOCK <= n_cols; i += BLOCK, out += BLOCK_WORDS) pack_block(mode, row + i, out);
    if (i == n_cols) return;
    float tail[BLOCK] = {0};
    memcpy(tail, row + i, (n_cols - i) * sizeof *row);
    pack_block(mode, tail, out);
}

/* ---- where weights come from ---- */

typedef struct {
    const uint8_t *rows[TILE_ROWS]; /* those past the matrix's end repeat its last row: their sums are dropped */
    bool f32;                       /* numbers are fp32, else bf16 */
    size_t n_blocks;
    size_t next_bytes; /* from a row to the one in its place in the tile after this: a prefetch hint */
} source;

/* Columns [k0, k1) of n_rows (<= TILE_ROWS) rows from row0: in place where that is possible, else through the stage. */
static void source_open(source *src, sp_mode mode, const sp_linear *job, size_t row0, size_t n_rows, size_t k0,
                        size_t k1, uint8_t *stage) {
    const sp_format *format = job->format;
    const uint8_t *first =
        (const uint8_t *)job->w + row0 * job->row_bytes + k0 / format->block_elems * format->block_bytes;
    const size_t n = k1 - k0, padded = sp_round_up(n, BLOCK);
    const bool in_place = format->id == SP_FMT_BF16 && n == padded;
    src->f32 = mode == SP_MODE_FP32 && format->id != SP_FMT_BF16;
    src->n_blocks = padded / BLOCK;
    src->next_bytes = in_place ? n_rows * job->row_bytes : 0;
    const size_t elem_bytes = src->f32 ? sizeof(float) : sizeof(sp_bf16), stage_row_bytes = padded * elem_bytes;
    for (size_t r = 0; r < n_rows; r++) {
        const uint8_t *row = first + r * job->row_bytes;
        src->rows[r] = row;
        if (in_place) continue;
        uint8_t *staged = stage + r * stage_row_bytes;
        if (src->f32)
            sp_dequantize_f32(&ISA_QUANT, format->id, row, n, (float *)(void *)staged);
        else
            sp_dequantize_bf16(&ISA_QUANT, format->id, row, n, (sp_bf16 *)(void *)staged);
        if (n < padded) memset(staged + n * elem_bytes, 0, (padded - n) * elem_bytes);
        src->rows[r] = staged;
    }
    for (size_t r = n_rows; r < TILE_ROWS; r++) src->rows[r] = src->rows[n_rows - 1];
}

/* ---- many tokens: a panel ---- */

/* panel[block][e, o][CHAIN][TILE_ROWS] <- LANES of the source's rows, as vector v of the tile */
static void panel_pack(const source *src, size_t v, word *restrict panel) {
    const uint8_t *const *rows = src->rows + v * LANES;
    words dwords[LANES];
    enum { STEPS = LANES * CHAIN / BLOCK_DWORDS }; /* words from one transposition of bf16 pairs */
    for (size_t b = 0; b < src->n_blocks; b++) {
        word *e = panel + b * BLOCK_WORDS * TILE_ROWS + v * LANES, *o = e + CHAIN * TILE_ROWS;
        for (size_t part = 0; part < BLOCK_DWORDS / LANES; part++) {
            transpose(rows, b * BLOCK * sizeof(sp_bf16) + part * LANES * sizeof(uint32_t), dwords);
            UNROLL for (size_t i = 0; i < STEPS; i++) {
                words even, odd;
                split(dwords + i * (BLOCK_DWORDS / CHAIN), &even, &odd);
                words_store(e + (part * STEPS + i) * TILE_ROWS, even);
                words_store(o + (part * STEPS + i) * TILE_ROWS, odd);
            }
        }
    }
}

/* tight tile <- LANES of the source's bf16 rows, as vector v of the tile */
static void panel_tighten(const source *src, size_t v, word *restrict panel) {
    if (PAIRED) {
        panel_pack(src, v, panel);
        return;
    }
    words dwords[LANES];
    for (size_t b = 0; b < src->n_blocks; b++) {
        word *out = panel + b * TIGHT_WORDS + v * LANES;
        for (size_t part = 0; part < BLOCK_DWORDS / LANES; part++) {
            transpose(src->rows + v * LANES, (b * BLOCK_DWORDS + part * LANES) * sizeof(uint32_t), dwords);
            UNROLL for (size_t i = 0; i < LANES; i++) words_store(out + (part * LANES + i) * TILE_ROWS, dwords[i]);
        }
    }
}

/* The same from fp32 rows. */
static void panel_pack_f32(const source *src, size_t v, word *restrict panel) {
    const uint8_t *const *rows = src->rows + v * LANES;
    words dwords[LANES];
    for (size_t b = 0; b < src->n_blocks; b++) {
        word *out = panel + b * BLOCK_WORDS * TILE_ROWS + v * LANES;
        for (size_t part = 0; part < BLOCK / LANES; part++) {
            transpose(rows, (b * BLOCK + part * LANES) * sizeof(float), dwords);
            UNROLL for (size_t i = 0; i < LANES; i++) {
                size_t k = part * LANES + i;
                words_store(out + (k % 2 * CHAIN + k / 2) * TILE_ROWS, dwords[i]);
            }
        }
    }
}

/* What the next chunk's panel will be made of, fetched into L2 while this one is multiplied: a burst of fetches between
 * two chunks would leave memory idle the rest of the time. */
typedef struct {
    const uint8_t *first; /* of n_rows rows, stride_bytes apart; block_bytes of each belong to a block of columns */
    size_t n_rows, stride_bytes, block_bytes;
} ahead;

typedef enum { wide, tight } tile_form;

/* Products of one block: acc[half][t][v] <- the chains of n_tokens x TILE_ROWS outputs. */
ALWAYS_INLINE void block_chains(const word *restrict w, const word *const *xt, const size_t n_tokens,
                                const tile_form form, vec acc[2][FLOW_TOKENS][TILE_VECTORS]) {
    UNROLL for (size_t half = 0; half < 2; half++) {
        UNROLL for (size_t i = 0; i < CHAIN; i++) {
            words wv[TILE_VECTORS];
            UNROLL for (size_t v = 0; v < TILE_VECTORS; v++) wv[v] =
                words_load(w + (half * CHAIN + i) * TILE_ROWS + v * LANES);
            UNROLL for (size_t t = 0; t < n_tokens; t++) UNROLL for (size_t v = 0; v < TILE_VECTORS; v++)
                acc[half][t][v] = mac(acc[half][t][v], wv[v], xt[t] + half * CHAIN + i);
            if (form == tight && n_tokens <= IN_ORDER_TOKENS) IN_ORDER;
        }
    }
}

/* The same from a tight block whose dwords are columns 2i and 2i + 1. */
ALWAYS_INLINE void tight_chains(const word *restrict w, const word *const *xt, const size_t n_tokens,
                                vec acc[2][FLOW_TOKENS][TILE_VECTORS]) {
    const size_t n_sweeps = n_tokens <= BOTH_TOKENS ? 1 : 2; /* both chains at once if the registers suffice */
    UNROLL for (size_t sweep = 0; sweep < n_sweeps; sweep++) {
        UNROLL for (size_t i = 0; i < CHAIN; i++) {
            words wv[2][TILE_VECTORS];
            UNROLL for (size_t v = 0; v < TILE_VECTORS; v++) {
                words dword = words_load(w + i * TILE_ROWS + v * LANES);
                split(&dword, &wv[0][v], &wv[1][v]);
            }
            UNROLL for (size_t half = sweep; half < sweep + 3 - n_sweeps; half++)
                UNROLL for (size_t t = 0; t < n_tokens; t++) UNROLL for (size_t v = 0; v < TILE_VECTORS; v++)
                    acc[half][t][v] = mac(acc[half][t][v], wv[half][v], xt[t] + half * CHAIN + i);
            if (n_tokens <= IN_ORDER_TOKENS) IN_ORDER;
        }
    }
}

/* sums[t][r] += sum over blocks of (e + o), for n_tokens x TILE_ROWS outputs; n_tokens and form are constants where
 * this is inlined. With every block, n_next cache lines from next on are fetched into L2. */
ALWAYS_INLINE void tile_product(const word *restrict w, const word *restrict x, size_t ldx, size_t n_blocks,
                                const uint8_t *next, size_t n_next, float *restrict sums, const size_t n_tokens,
                                const tile_form form) {
    const word *xt[FLOW_TOKENS];
    vec c[FLOW_TOKENS][TILE_VECTORS];
    UNROLL for (size_t t = 0; t < n_tokens; t++) {
        xt[t] = x + t * ldx;
        UNROLL for (size_t v = 0; v < TILE_VECTORS; v++) c[t][v] = vec_load(sums + t * PANEL_ROWS + v * LANES);
    }
    for (size_t b = 0; b < n_blocks; b++) {
        vec acc[2][FLOW_TOKENS][TILE_VECTORS];
        if (form == tight) {
            for (size_t i = 0; i < n_next; i++) __builtin_prefetch(next + i * LINE_BYTES, 0, 2);
            next += TIGHT_BYTES;
        }
        UNROLL for (size_t half = 0; half < 2; half++) UNROLL for (size_t t = 0; t < n_tokens; t++)
            UNROLL for (size_t v = 0; v < TILE_VECTORS; v++) acc[half][t][v] = vec_zero();
        if (form == tight && !PAIRED)
            tight_chains(w, xt, n_tokens, acc);
        else
            block_chains(w, xt, n_tokens, form, acc);
        UNROLL for (size_t t = 0; t < n_tokens; t++) UNROLL for (size_t v = 0; v < TILE_VECTORS; v++) c[t][v] =
            vec_add(c[t][v], vec_add(acc[0][t][v], acc[1][t][v]));
        w += form == tight ? TIGHT_WORDS : BLOCK_WORDS * TILE_ROWS;
        UNROLL for (size_t t = 0; t < n_tokens; t++) {
            xt[t] += BLOCK_WORDS;
            KEEP(xt[t]);
        }
    }
    UNROLL for (size_t t = 0; t < n_tokens; t++) UNROLL for (size_t v = 0; v < TILE_VECTORS; v++)
        vec_store(sums + t * PANEL_ROWS + v * LANES, c[t][v]);
}

typedef void tile_fn(const word *restrict w, const word *restrict x, size_t ldx, size_t n_blocks, const uint8_t *next,
                     size_t n_next, float *restrict sums);
#define TILE(form, n)                                                                                   \
    static void form##_##n(const word *restrict w, const word *restrict x, size_t ldx, size_t n_blocks, \
                           const uint8_t *next, size_t n_next, float *restrict sums) {                  \
        tile_product(w, x, ldx, n_blocks, next, n_next, sums, n, form);                                 \
    }
TILE(wide, 1)
TILE(wide, 2)
TILE(wide, 3)
TILE(wide, 4)
TILE(wide, 5)
TILE(wide, 6)
TILE(tight, 1)
TILE(tight, 2)
TILE(tight, 3)
TILE(tight, 4)
TILE(tight, 5)
TILE(tight, 6)
#if FLOW_TOKENS > 6
TILE(tight, 7)
TILE(tight, 8)
#endif
static tile_fn *const wide_tiles[] = {NULL, wide_1, wide_2, wide_3, wide_4, wide_5, wide_6};
static tile_fn *const tight_tiles[] = {
    NULL,    tight_1, tight_2, tight_3, tight_4, tight_5, tight_6,
#if FLOW_TOKENS > 6
    tight_7, tight_8,
#endif
};
_Static_assert(TILE_TOKENS == 6 && (FLOW_TOKENS == 6 || FLOW_TOKENS == 8), "a function for each number of tokens");

/* All tokens over one chunk of the panel; n_tokens is cut evenly, so that no tile is much smaller than the others. Each
 * tile fetches its share of `next`. */
static void panel_product(const word *panel, size_t n_tiles, const word *x, size_t ldx, size_t n_blocks,
                          size_t n_tokens, const ahead *next, float *sums) {
    const size_t n_cuts = sp_div_up(n_tokens, TILE_TOKENS);
    ahead share = *next;
    share.n_rows = sp_div_up(next->n_rows, n_cuts * n_tiles);
    size_t n_left = next->n_rows;
    for (size_t i = 0; i < n_cuts; i++) {
        const size_t t0 = n_tokens * i / n_cuts, t1 = n_tokens * (i + 1) / n_cuts;
        for (size_t tile = 0; tile < n_tiles; tile++) {
            share.n_rows = sp_min_size(share.n_rows, n_left);
            for (size_t r = 0; r < share.n_rows; r++)
                for (size_t b = 0; b < n_blocks; b++)
                    __builtin_prefetch(share.first + r * share.stride_bytes + b * share.block_bytes, 0, 2);
            wide_tiles[t1 - t0](panel + tile * TILE_ROWS * CHUNK / BLOCK * BLOCK_WORDS, x + t0 * ldx, ldx, n_blocks,
                                NULL, 0, sums + t0 * PANEL_ROWS + tile * TILE_ROWS);
            share.first += share.n_rows * share.stride_bytes;
            n_left -= share.n_rows;
        }
    }
}

/* ---- few tokens: no panel ---- */

/* sums[t][lane] += the same, straight from LANES rows. */
ALWAYS_INLINE void direct_product(const source *src, size_t v, const word *restrict x, size_t ldx, float *restrict sums,
                                  const size_t n_tokens) {
    enum { STEPS = LANES * CHAIN / BLOCK_DWORDS };
    const uint8_t *const *rows = src->rows + v * LANES;
    const size_t row_bytes = src->n_blocks * BLOCK * sizeof(sp_bf16);
    const size_t distance = sp_min_size(AHEAD_BYTES, row_bytes);
    vec c[DIRECT_TOKENS];
    UNROLL for (size_t t = 0; t < n_tokens; t++) c[t] = vec_load(sums + t * PANEL_ROWS + v * LANES);
    for (size_t b = 0; b < src->n_blocks; b++) {
        const size_t at = b * BLOCK * sizeof(sp_bf16);
        const size_t far = at + distance < row_bytes ? at + distance : at + distance - row_bytes + src->next_bytes;
        vec acc[2][DIRECT_TOKENS];
        UNROLL for (size_t t = 0; t < n_tokens; t++) acc[0][t] = acc[1][t] = vec_zero();
        UNROLL for (size_t r = 0; r < LANES; r++) __builtin_prefetch(rows[r] + far, 0, 2);
        UNROLL for (size_t part = 0; part < BLOCK_DWORDS / LANES; part++) {
            words dwords[LANES];
            transpose(rows, at + part * LANES * sizeof(uint32_t), dwords);
            UNROLL for (size_t i = 0; i < STEPS; i++) {
                words even, odd;
                split(dwords + i * (BLOCK_DWORDS / CHAIN), &even, &odd);
                UNROLL for (size_t t = 0; t < n_tokens; t++) {
                    const word *xt = x + t * ldx + b * BLOCK_WORDS + part * STEPS + i;
                    acc[0][t] = mac(acc[0][t], even, xt);
                    acc[1][t] = mac(acc[1][t], odd, xt + CHAIN);
                }
            }
        }
        UNROLL for (size_t t = 0; t < n_tokens; t++) c[t] = vec_add(c[t], vec_add(acc[0][t], acc[1][t]));
    }
    UNROLL for (size_t t = 0; t < n_tokens; t++) vec_store(sums + t * PANEL_ROWS + v * LANES, c[t]);
}

typedef void direct_fn(const source *src, size_t v, const word *restrict x, size_t ldx, float *restrict sums);
#define DIRECT(n)                                                                                                   \
    static void direct_##n(const source *src, size_t v, const word *restrict x, size_t ldx, float *restrict sums) { \
        direct_product(src, v, x, ldx, sums, n);                                                                    \
    }
DIRECT(1)
#if DIRECT_TOKENS > 1
DIRECT(2)
DIRECT(3)
DIRECT(4)
DIRECT(5)
DIRECT(6)
DIRECT(7)
DIRECT(8)
#endif
static direct_fn *const directs[] = {
    NULL,     direct_1,
#if DIRECT_TOKENS > 1
    direct_2, direct_3, direct_4, direct_5, direct_6, direct_7, direct_8,
#endif
};
_Static_assert(DIRECT_TOKENS == 1 || DIRECT_TOKENS == 8, "one function for each number of tokens");

/* ---- panel form ---- */

/* One tile, rows as on disk to tight, in place: by way of scratch [TILE_ROWS][k] bf16, rows a cache line apart so that
 * they do not share sets. */
static void panel_form(const sp_format *format, void *w, size_t k, void *scratch) {
    const size_t row_bytes = k / format->block_elems * format->block_bytes, stride = k * sizeof(sp_bf16) + LINE_BYTES;
    source src = {.n_blocks = k / BLOCK};
    for (size_t r = 0; r < TILE_ROWS; r++) {
        uint8_t *row = (uint8_t *)scratch + r * stride;
        const uint8_t *from = (const uint8_t *)w + r * row_bytes;
        if (format->id == SP_FMT_BF16)
            memcpy(row, from, row_bytes);
        else
            sp_dequantize_bf16(&ISA_QUANT, format->id, from, k, (sp_bf16 *)(void *)row);
        src.rows[r] = row;
    }
    for (size_t v = 0; v < TILE_VECTORS; v++) panel_tighten(&src, v, w);
}

/* Row r of a tight tile, as bf16. */
static void panel_row(const void *tile, size_t k, size_t r, sp_bf16 *out) {
    const uint32_t *dwords = (const uint32_t *)tile + r;
    for (size_t b = 0; b < k / BLOCK; b++, dwords += BLOCK_DWORDS * TILE_ROWS, out += BLOCK)
        for (size_t i = 0; i < BLOCK_DWORDS; i++) {
            const uint32_t dword = dwords[i * TILE_ROWS];
            if (PAIRED) { /* the pair (k, k + 2), k high; odd columns behind the even ones */
                sp_bf16 *pair = out + i % CHAIN * 4 + i / CHAIN;
                pair[0] = (sp_bf16)(dword >> 16);
                pair[2] = (sp_bf16)dword;
            } else {
                out[2 * i] = (sp_bf16)dword;
                out[2 * i + 1] = (sp_bf16)(dword >> 16);
            }
        }
}

/* Few tokens: each tile once, end to end. Where memory sets the pace it does best when a fetch or two a block tell the
 * processor's own prefetcher of the page after the next, else every line is fetched. */
static void tight_flow(const uint8_t *w, size_t n_tiles, size_t k, const word *x, size_t n_tokens, float *sums) {
    const size_t n_blocks = k / BLOCK, n_next = n_tokens <= MEMORY_TOKENS ? 2 : TIGHT_BYTES / LINE_BYTES;
    for (size_t tile = 0; tile < n_tiles; tile++) {
        const uint8_t *from = w + tile * n_blocks * TIGHT_BYTES;
        tight_tiles[n_tokens]((const word *)(const void *)from, x, token_words(k), n_blocks, from + FLOW_AHEAD_BYTES,
                              n_next, sums + tile * TILE_ROWS);
    }
}

/* Many tokens: chunk by chunk, whose tiles stay in L1 or L2 for all of them. With each block a share of the same block
 * of the next chunk is fetched, so that memory is never idle. */
static void tight_chunks(const uint8_t *w, size_t n_tiles, size_t k, const word *x, size_t n_tokens, float *sums) {
    const size_t ldx = token_words(k), n_cuts = sp_div_up(n_tokens, TILE_TOKENS);
    const size_t n_lines = TIGHT_BYTES / LINE_BYTES, n_share = sp_div_up(n_lines, n_cuts);
    for (size_t k0 = 0; k0 < k; k0 += CHUNK, x += CHUNK / BLOCK * BLOCK_WORDS, w += CHUNK / BLOCK * TIGHT_BYTES) {
        const size_t n_blocks = sp_min_size(CHUNK, k - k0) / BLOCK;
        for (size_t i = 0; i < n_cuts; i++) {
            const size_t t0 = n_tokens * i / n_cuts, t1 = n_tokens * (i + 1) / n_cuts;
            const size_t line0 = sp_min_size(i * n_share, n_lines), line1 = sp_min_size(line0 + n_share, n_lines);
            for (size_t tile = 0; tile < n_tiles; tile++) {
                const uint8_t *from = w + tile * (k / BLOCK) * TIGHT_BYTES;
                tight_tiles[t1 - t0]((const word *)(const void *)from, x + t0 * ldx, ldx, n_blocks,
                                     from + n_blocks * TIGHT_BYTES + line0 * LINE_BYTES, line1 - line0,
                                     sums + t0 * PANEL_ROWS + tile * TILE_ROWS);
            }
        }
    }
}

/* ---- parts ---- */

/* y[t][row0 + r] = sums[t][r] + bias, or y + that */
static void finish(const sp_linear *job, size_t row0, size_t n_rows, size_t token0, size_t n_tokens,
                   const float *restrict sums) {
    for (size_t t = 0; t < n_tokens; t++) {
        float *restrict y = job->y + (token0 + t) * job->ldy + row0;
        const float *restrict s = sums + t * PANEL_ROWS;
        const float *restrict bias = job->bias ? job->bias + row0 : NULL;
        if (bias && job->add)
            for (size_t r = 0; r < n_rows; r++) y[r] += s[r] + bias[r];
        else if (bias)
            for (size_t r = 0; r < n_rows; r++) y[r] = s[r] + bias[r];
        else if (job->add)
            for (size_t r = 0; r < n_rows; r++) y[r] += s[r];
        else
            memcpy(y, s, n_rows * sizeof *y);
    }
}

/* One tile's rows over all k for few tokens. */
static void direct_tile(sp_mode mode, const sp_linear *job, size_t row0, size_t n_rows, const word *x, size_t n_tokens,
                        rows_scratch *scratch, float *sums) {
    const size_t ldx = token_words(job->k), whole = job->k / BLOCK * BLOCK;
    size_t k0 = 0;
    while (k0 < job->k) {
        size_t k1 = sp_min_size(k0 + CHUNK, job->k);
        if (job->format->id == SP_FMT_BF16 && k0 < whole) k1 = whole; /* in place: no chunks */
        source src;
        source_open(&src, mode, job, row0, n_rows, k0, k1, scratch->stage);
        for (size_t v = 0; v < TILE_VECTORS && v * LANES < n_rows; v++)
            directs[n_tokens](&src, v, x + k0 / BLOCK * BLOCK_WORDS, ldx, sums);
        k0 = k1;
    }
}

/* Up to PANEL_ROWS rows over all k. */
static void panel_strip(sp_mode mode, const sp_linear *job, size_t row0, size_t n_rows, const word *x, size_t n_tokens,
                        rows_scratch *scratch, float *sums) {
    const sp_format *format = job->format;
    const size_t ldx = token_words(job->k), n_tiles = sp_div_up(n_rows, TILE_ROWS);
    const uint8_t *strip = (const uint8_t *)job->w + row0 * job->row_bytes;
    ahead next = {.n_rows = n_rows,
                  .stride_bytes = job->row_bytes,
                  .block_bytes = BLOCK * format->block_bytes / format->block_elems};
    for (size_t k0 = 0; k0 < job->k; k0 += CHUNK) {
        const size_t k1 = sp_min_size(k0 + CHUNK, job->k);
        source src;
        for (size_t tile = 0; tile < n_tiles; tile++) {
            const size_t r0 = tile * TILE_ROWS;
            source_open(&src, mode, job, row0 + r0, sp_min_size(TILE_ROWS, n_rows - r0), k0, k1, scratch->stage);
            word *panel = scratch->panel + tile * TILE_ROWS * CHUNK / BLOCK * BLOCK_WORDS;
            for (size_t v = 0; v < TILE_VECTORS; v++) {
                if (src.f32)
                    panel_pack_f32(&src, v, panel);
                else
                    panel_pack(&src, v, panel);
            }
        }
        next.first = k1 < job->k ? strip + k1 / BLOCK * next.block_bytes : strip + n_rows * job->row_bytes;
        panel_product(scratch->panel, n_tiles, x + k0 / BLOCK * BLOCK_WORDS, ldx, sp_div_up(k1 - k0, BLOCK), n_tokens,
                      &next, sums);
    }
}

/* Up to PANEL_ROWS rows as on disk. */
static void raw_strip(sp_mode mode, const sp_linear *job, size_t row0, size_t n_rows, const word *x, size_t n_tokens,
                      rows_scratch *scratch, float *sums) {
    const bool numbers_f32 = mode == SP_MODE_FP32 && job->format->id != SP_FMT_BF16;
    if (n_tokens > DIRECT_TOKENS || numbers_f32) {
        panel_strip(mode, job, row0, n_rows, x, n_tokens, scratch, sums);
        return;
    }
    for (size_t r = 0; r < n_rows; r += TILE_ROWS)
        direct_tile(mode, job, row0 + r, sp_min_size(TILE_ROWS, n_rows - r), x, n_tokens, scratch, sums + r);
}

static void run(sp_mode mode, const sp_linear *job, const sp_linear_part *part, const void *packed, size_t n_tokens,
                void *scratch_bytes) {
    (void)n_tokens;
    rows_scratch *scratch = scratch_bytes;
    const size_t ldx = token_words(job->k);
    const size_t tight_end = job->panels ? job->n_rows / TILE_ROWS * TILE_ROWS : 0;
    for (size_t t = part->token0; t < part->token1; t += SPAN_TOKENS) {
        const size_t span = sp_min_size(SPAN_TOKENS, part->token1 - t);
        const word *x = (const word *)packed + t * ldx;
        for (size_t row = part->row0; row < part->row1; row += PANEL_ROWS) {
            const size_t n_rows = sp_min_size(PANEL_ROWS, part->row1 - row);
            memset(scratch->sums, 0, span * PANEL_ROWS * sizeof(float));
            const size_t n_tight = row < tight_end ? sp_min_size(n_rows, tight_end - row) : 0;
            if (n_tight > 0)
                (span <= FLOW_TOKENS ? tight_flow : tight_chunks)((const uint8_t *)job->w + row * job->row_bytes,
                                                                  n_tight / TILE_ROWS, job->k, x, span, scratch->sums);
            if (n_tight < n_rows)
                raw_strip(mode, job, row + n_tight, n_rows - n_tight, x, span, scratch, scratch->sums + n_tight);
            finish(job, row, n_rows, t, span, scratch->sums);
        }
    }
}

const sp_linear_isa ISA_TABLE = {
    .isa = ISA_NAME,
    .bf16_only = ISA_BF16_ONLY,
    .row_tile = TILE_ROWS,
    .token_tile = TILE_TOKENS,
    .scratch_bytes = sizeof(rows_scratch),
    .panel_form = panel_form,
    .panel_row = panel_row,
    .packed_bytes = packed_bytes,
    .pack_row = pack_row,
    .run = run,
};
