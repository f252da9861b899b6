/* Products for AMX: TDPBF16PS is the canonical dot product itself, C = C + (e + o) over a block of 32 columns for 16
 * lines of A by 16 of B, so a tile that accumulates over the blocks in turn needs nothing else (docs/DESIGN.md,
 * Numerics). A has lines of 32 columns, B of 16 pairs; which operand is which is ours to choose, for a product of two
 * numbers is the same both ways. Two tiles of each are multiplied at once, so that four products (64 cycles) pay for
 * four tile loads: 32 cycles from L1, 50 when two of them come from L2.
 *
 *     up to 32 tokens: A = weights as they lie on disk           more: A = tokens
 *                      B = tokens, in pairs of columns                 B = weights in panel form
 *
 *         tokens                                                     32 rows
 *         +----+                                                     +-------+
 *         | B  | 16 pairs                                            | panel | a chunk is 32 KB: L1
 *     +---+----+                                             +-------+-------+
 *  32 | A | C    each row once, end to end            tokens | chunk |   C     to and from this thread's scratch
 * rows+---+                                                  +-------+   a chunk of all tokens: L2
 *
 * In panel form (kernels/ops.h) 32 rows are tiles of B one after another. Weights that stay in memory are brought into
 * it once, and are read in place. Others are interleaved into a chunk of it in scratch, in every pass: many tokens
 * share what that costs, few leave no work to pay for it with. So few tokens are packed both ways: for weights in panel
 * form they are A too, and C keeps to its tiles from the first column to the last.
 *
 * What comes out of many tokens has a token in each line, as y has; for them the order is
 *
 *     for each visit to columns                  512 KB of tokens stay in L2: 512 columns, of few hundred tokens more
 *         for each 32 rows                       their C stays in L1 for a visit of several chunks
 *             for each chunk of 512              interleaved into scratch, if not in panel form
 *                 for each 32 tokens: 4 tiles of C
 *
 * while the weights that come next, and the next visit's tokens, are fetched into L2. Rows that are interleaved are
 * visited a chunk at a time. Tokens are read past L1 (TILELOADDT1), where they would push out the panel; fetching them
 * into L1 ahead of their loads costs more than it saves.
 *
 * On shared machines a core is at times slow at tiles and at nothing else, by all signs while its other hyperthread is
 * at work and it has but ten registers left for the eight tiles: with two loads (46 cycles from L1) or products (52) in
 * flight the next one waits, where four products could be. A tile that is zeroed needs no register. So each tile of A
 * and B is zeroed behind its last product, the second of A is loaded only then, and there are six registers to work
 * with: a product takes two thirds of the time. NOPs keep tile instructions from being held up in groups. Neither costs
 * anything while the core is ours alone (bench/RESULTS.md, AMX). */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/linear_unroll.h"
#include "kernels/internal.h"
#include "util/size.h"

typedef __m512i words;
#include "kernels/cpu/lanes_512.inc.c"

enum {
    BLOCK = 32,
    SIDE = 16,       /* of a tile of C; lines of every tile */
    PAIR = 2 * SIDE, /* rows, or tokens, of two tiles */
    LINE_BYTES = 64, /* a block of bf16, or SIDE dwords */
    TILE_BYTES = SIDE * LINE_BYTES,
    PANEL_BLOCK_BYTES = 2 * TILE_BYTES, /* a block of 32 rows in panel form */
    CHUNK = 512,                        /* 32 rows of it are 32 KB of a 48 KB L1 */
    STRIP_ROWS = 256,                   /* rows that share a chunk of the tokens in L2 */
    SPAN_TOKENS = 512,                  /* and tokens: their C is 512 KB of a 2 MB L2, their chunk as much */
    FAR_BYTES = 2048,                   /* prefetch distance along a row, into L2, as in linear_rows.inc.c */
    PANEL_FAR_BYTES = PAIR * FAR_BYTES, /* the same along 32 rows */
    C_STRIDE = PAIR * sizeof(float),
};

static bool few(size_t n_tokens) { return n_tokens <= PAIR; }

/* ---- activations ---- */

/* Tokens in lines, operand A: [chunk][group of 16 tokens][block of the chunk][tokens of the group][32] bf16, few in one
 * chunk; and few again in pairs, operand B: [group of 16 tokens][block][16 pairs][tokens of the group] dwords.
 * The last group is as wide as it has tokens. Tiles of many tokens are read with 16 lines all the same: those past a
 * narrow group's are of no token, and what becomes of them is dropped. */
static size_t packed_bytes(sp_mode mode, size_t n_tokens, size_t k) {
    (void)mode;
    const size_t n_blocks = sp_div_up(k, BLOCK), lines = n_tokens * n_blocks;
    if (few(n_tokens)) return 2 * lines * LINE_BYTES;
    return sp_max_size(lines + SIDE - 1, 2 * PAIR * n_blocks) * LINE_BYTES; /* room for any fewer */
}

typedef struct {
    uint8_t *first;
    size_t step; /* bytes to the next block of the chunk */
    size_t stride;
} place;

static size_t group_tokens(size_t t, size_t n_tokens) { return sp_min_size(SIDE, n_tokens - t / SIDE * SIDE); }

static place place_in_lines(void *packed, size_t t, size_t k0, size_t k, size_t n_tokens) {
    const size_t chunk = few(n_tokens) ? k : CHUNK, first = k0 / chunk * chunk;
    const size_t n_blocks = sp_div_up(sp_min_size(chunk, k - first), BLOCK);
    const size_t step = group_tokens(t, n_tokens) * LINE_BYTES, group = t / SIDE * SIDE * n_blocks;
    uint8_t *lines = (uint8_t *)packed + (first / BLOCK * n_tokens + group + t % SIDE) * LINE_BYTES;
    return (place){lines + (k0 - first) / BLOCK * step, step, LINE_BYTES};
}

static place place_in_pairs(void *packed, size_t t, size_t k0, size_t k, size_t n_tokens) {
    const size_t n_blocks = sp_div_up(k, BLOCK), stride = group_tokens(t, n_tokens) * sizeof(uint32_t);
    const size_t group = (n_tokens + t / SIDE * SIDE) * n_blocks * LINE_BYTES;
    uint8_t *pairs = (uint8_t *)packed + group + t % SIDE * sizeof(uint32_t);
    return (place){pairs + k0 / BLOCK * SIDE * stride, SIDE * stride, stride};
}

/* A token's block to its line, and a dword to each of 16 lines where pairs are wanted. */
static inline void pack_block(const float *restrict x, uint8_t *restrict line_bytes, uint8_t *restrict pairs,
                              size_t stride) {
    sp_bf16 *line = (sp_bf16 *)(void *)line_bytes;
    for (size_t i = 0; i < BLOCK; i++) line[i] = sp_bf16_from_f32(x[i]);
    if (!pairs) return;
    for (size_t i = 0; i < SIDE; i++) memcpy(pairs + i * stride, line + 2 * i, sizeof(uint32_t));
}

static void pack_row(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t, size_t n_tokens,
                     void *packed) {
    (void)mode;
    for (size_t at = k0, next; at < k0 + n_cols; at = next) {
        next = sp_min_size(k0 + n_cols, (at / CHUNK + 1) * CHUNK);
        place lines = place_in_lines(packed, t, at, k, n_tokens), pairs = {0};
        if (few(n_tokens)) pairs = place_in_pairs(packed, t, at, k, n_tokens);
        for (; at + BLOCK <= next; at += BLOCK, lines.first += lines.step) {
            pack_block(row + (at - k0), lines.first, pairs.first, pairs.stride);
            if (pairs.first) pairs.first += pairs.step;
        }
        if (at == next) continue;
        float tail[BLOCK] = {0};
        memcpy(tail, row + (at - k0), (next - at) * sizeof *row);
        pack_block(tail, lines.first, pairs.first, pairs.stride);
    }
}

/* ---- tiles ---- */

typedef struct {
    _Alignas(64) uint8_t panel[CHUNK / BLOCK * PANEL_BLOCK_BYTES]; /* of rows that are not in panel form */
    _Alignas(64) sp_bf16 stage[PAIR * CHUNK];                      /* dequantized rows, or a padded tail */
    _Alignas(64) float sums[STRIP_ROWS * SPAN_TOKENS]; /* [rows / 32][tokens / 32][32][32], A's lines first */
} amx_scratch;

/* C is tiles 0..3 (A 0 B 0, A 0 B 1, A 1 ...), A 4 and 5, B 6 and 7; n_a lines of A, n_b of B. */
static void configure(size_t n_a, size_t n_b) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t line_bytes[16];
        uint8_t lines[16];
    } config = {.palette = 1};
    for (size_t i = 0; i < 2; i++) {
        const size_t a_left = n_a > i * SIDE ? n_a - i * SIDE : 1, b_left = n_b > i * SIDE ? n_b - i * SIDE : 1;
        const uint8_t lines = (uint8_t)sp_min_size(SIDE, a_left);
        const uint16_t width = (uint16_t)(sp_min_size(SIDE, b_left) * sizeof(float));
        config.lines[2 * i] = config.lines[2 * i + 1] = config.lines[4 + i] = lines;
        config.line_bytes[i] = config.line_bytes[2 + i] = config.line_bytes[6 + i] = width;
        config.line_bytes[4 + i] = LINE_BYTES;
        config.lines[6 + i] = SIDE;
    }
    /* GCC 12 believes that LDTILECFG reads 8 bytes, and would drop the stores to the other 56 */
    __asm__ volatile("" ::"r"(&config) : "memory");
    _tile_loadconfig(&config);
}

/* Two tiles of an operand. */
typedef struct {
    const uint8_t *first[2];
    size_t step[2], stride[2];
} operand;

/* Tiles of B that lie as in panel form. */
static operand panel_tiles(const uint8_t *tiles) {
    return (operand){{tiles, tiles + TILE_BYTES}, {PANEL_BLOCK_BYTES, PANEL_BLOCK_BYTES}, {LINE_BYTES, LINE_BYTES}};
}

/* To be read later, into L2: a block of each row of weights, and some lines of tokens, for each block of a product. */
typedef struct {
    const uint8_t *rows;
    size_t n_rows, stride_bytes, block_bytes;
    const uint8_t *tokens;
    size_t n_lines;
} ahead;

static inline void fetch_rows(const ahead *next, size_t b) {
    const uint8_t *row = next->rows + b * next->block_bytes;
    for (size_t i = 0; i < next->n_rows; i++, row += next->stride_bytes) __builtin_prefetch(row, 0, 2);
}

static inline void fetch_tokens(const ahead *next, size_t b) {
    const uint8_t *line = next->tokens + b * next->n_lines * LINE_BYTES;
    for (size_t i = 0; i < next->n_lines; i++, line += LINE_BYTES) __builtin_prefetch(line, 0, 2);
}

/* Between tile instructions; see above. 4 are too few, 16 do as well, 64 take time themselves. */
static inline void space(void) { __asm__ volatile(".rept 8\n\tnop\n\t.endr"); }

#define LOAD_A(tile, from, stride)                  \
    do {                                            \
        if (past_l1)                                \
            _tile_stream_loadd(tile, from, stride); \
        else                                        \
            _tile_loadd(tile, from, stride);        \
    } while (0)

/* sums[32][32] (+)= A B over n_blocks; second tiles only where they are there. past_l1: A comes from L2 and is
 * not to stay in L1.
 * NOLINTNEXTLINE(readability-function-size): a kernel body, of which the last three make six */
ALWAYS_INLINE void product(const operand *a, const operand *b, size_t n_blocks, bool first, const ahead *next,
                           float *sums, const bool two_a, const bool two_b, const bool past_l1) {
    float *sums_1 = sums + SIDE * PAIR;
    __asm__ volatile("" ::: "memory"); /* GCC 12 does not know what tile loads read */
    if (first) {
        _tile_zero(0);
        if (two_b) _tile_zero(1);
        if (two_a) _tile_zero(2);
        if (two_a && two_b) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, C_STRIDE);
        if (two_b) _tile_loadd(1, sums + SIDE, C_STRIDE);
        if (two_a) _tile_loadd(2, sums_1, C_STRIDE);
        if (two_a && two_b) _tile_loadd(3, sums_1 + SIDE, C_STRIDE);
    }
    const uint8_t *a0 = a->first[0], *a1 = a->first[1], *b0 = b->first[0], *b1 = b->first[1];
    for (size_t i = 0; i < n_blocks; i++) {
        LOAD_A(4, a0, a->stride[0]);
        space();
        _tile_loadd(6, b0, b->stride[0]);
        space();
        if (two_b) _tile_loadd(7, b1, b->stride[1]);
        space();
        _tile_dpbf16ps(0, 4, 6);
        fetch_rows(next, i);
        space();
        if (two_b) _tile_dpbf16ps(1, 4, 7);
        _tile_zero(4);
        space();
        if (two_a) LOAD_A(5, a1, a->stride[1]);
        space();
        if (two_a) _tile_dpbf16ps(2, 5, 6);
        _tile_zero(6);
        fetch_tokens(next, i);
        space();
        if (two_a && two_b) _tile_dpbf16ps(3, 5, 7);
        if (two_a) _tile_zero(5);
        if (two_b) _tile_zero(7);
        a0 += a->step[0];
        a1 += a->step[1];
        b0 += b->step[0];
        b1 += b->step[1];
    }
    _tile_stored(0, sums, C_STRIDE);
    if (two_b) _tile_stored(1, sums + SIDE, C_STRIDE);
    if (two_a) _tile_stored(2, sums_1, C_STRIDE);
    if (two_a && two_b) _tile_stored(3, sums_1 + SIDE, C_STRIDE);
}

/* ---- panel form: [block][row tile][16 pairs][16 rows] dwords, whole tiles of B ---- */

/* A tile of B: dword i of row r to line i, dword r. Its lanes of 16 bytes are put together by loads (lane l of
 * part[i][q] is quarter q of row 4l + i), which leaves two rounds of unpacking: half the shuffles of a transpose. */
static inline void interleave(const uint8_t *const *rows, size_t offset, uint8_t *tile) {
    __m512i part[4][4];
    UNROLL for (size_t i = 0; i < 4; i++) UNROLL for (size_t q = 0; q < 4; q++) {
        __m128i quarter[4];
        UNROLL for (size_t l = 0; l < 4; l++) quarter[l] =
            _mm_loadu_si128((const __m128i *)(const void *)(rows[4 * l + i] + offset + q * sizeof(__m128i)));
        part[i][q] = _mm512_castsi128_si512(quarter[0]);
        part[i][q] = _mm512_mask_broadcast_i32x4(part[i][q], 0x00f0, quarter[1]);
        part[i][q] = _mm512_mask_broadcast_i32x4(part[i][q], 0x0f00, quarter[2]);
        part[i][q] = _mm512_mask_broadcast_i32x4(part[i][q], 0xf000, quarter[3]);
    }
    UNROLL for (size_t q = 0; q < 4; q++) {
        const __m512i low01 = _mm512_unpacklo_epi32(part[0][q], part[1][q]);
        const __m512i high01 = _mm512_unpackhi_epi32(part[0][q], part[1][q]);
        const __m512i low23 = _mm512_unpacklo_epi32(part[2][q], part[3][q]);
        const __m512i high23 = _mm512_unpackhi_epi32(part[2][q], part[3][q]);
        uint8_t *lines = tile + 4 * q * LINE_BYTES;
        _mm512_store_si512(lines, _mm512_unpacklo_epi64(low01, low23));
        _mm512_store_si512(lines + LINE_BYTES, _mm512_unpackhi_epi64(low01, low23));
        _mm512_store_si512(lines + 2 * LINE_BYTES, _mm512_unpacklo_epi64(high01, high23));
        _mm512_store_si512(lines + 3 * LINE_BYTES, _mm512_unpackhi_epi64(high01, high23));
    }
}

/* By way of scratch [32][k] bf16, rows a cache line apart so that they do not share sets. */
static void panel_form(const sp_format *format, void *w, size_t k, void *scratch) {
    const size_t row_bytes = k / format->block_elems * format->block_bytes, stride = k * sizeof(sp_bf16) + LINE_BYTES;
    const uint8_t *rows[PAIR];
    for (size_t r = 0; r < PAIR; r++) {
        uint8_t *row = (uint8_t *)scratch + r * stride;
        const uint8_t *from = (const uint8_t *)w + r * row_bytes;
        if (format->id == SP_FMT_BF16)
            memcpy(row, from, row_bytes);
        else
            sp_dequantize_bf16(&sp_quant_avx512, format->id, from, k, (sp_bf16 *)(void *)row);
        rows[r] = row;
    }
    uint8_t *tiles = w;
    for (size_t b = 0; b < k / BLOCK; b++, tiles += PANEL_BLOCK_BYTES) {
        interleave(rows, b * LINE_BYTES, tiles);
        interleave(rows + SIDE, b * LINE_BYTES, tiles + TILE_BYTES);
    }
}

static void panel_row(const void *panel, size_t k, size_t r, sp_bf16 *out) {
    const uint8_t *dword = (const uint8_t *)panel + r / SIDE * TILE_BYTES + r % SIDE * sizeof(uint32_t);
    for (size_t b = 0; b < k / BLOCK; b++, dword += PANEL_BLOCK_BYTES, out += BLOCK)
        for (size_t i = 0; i < SIDE; i++) memcpy(out + 2 * i, dword + i * LINE_BYTES, sizeof(uint32_t));
}

/* ---- parts ---- */

typedef struct {
    const sp_linear *job;
    void *packed;
    size_t n_tokens;
    size_t token0, token1; /* of this span */
    size_t block_bytes;    /* of weights */
    size_t panel_end;      /* rows before it are in panel form */
    size_t visit_cols;     /* columns of 32 rows that are worked off before the next 32, whole chunks */
    amx_scratch *scratch;
} span_run;

/* y[token][row..] = c + bias, or y + that */
static inline void leave(const sp_linear *job, size_t token, size_t row, size_t n_rows, __m512 c) {
    const __mmask16 mask = (__mmask16)((1u << n_rows) - 1);
    float *y = job->y + token * job->ldy + row;
    if (job->bias) c = _mm512_add_ps(c, _mm512_maskz_loadu_ps(mask, job->bias + row));
    if (job->add) c = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), c);
    _mm512_mask_storeu_ps(y, mask, c);
}

static const uint8_t *row_at(const span_run *run, size_t row, size_t k0) {
    return (const uint8_t *)run->job->w + row * run->job->row_bytes + k0 / BLOCK * run->block_bytes;
}

static operand panel_at(const span_run *run, size_t row0, size_t k0) {
    const uint8_t *w = run->job->w, *tiles = w + row0 * run->job->k * sizeof(sp_bf16) + k0 / BLOCK * PANEL_BLOCK_BYTES;
    return panel_tiles(tiles);
}

/* To fetch columns from k0 on of the 32 rows at row, wherever and however they lie. */
static ahead ahead_of(const span_run *run, size_t row, size_t k0) {
    if (row < run->panel_end)
        return (ahead){.rows = panel_at(run, row, k0).first[0],
                       .n_rows = PANEL_BLOCK_BYTES / LINE_BYTES,
                       .stride_bytes = LINE_BYTES,
                       .block_bytes = PANEL_BLOCK_BYTES};
    return (ahead){.rows = row_at(run, row, k0),
                   .n_rows = PAIR,
                   .stride_bytes = run->job->row_bytes,
                   .block_bytes = run->block_bytes};
}

/* Where columns [k0, k1) of rows [row0, row0 + n_rows), n_rows <= PAIR, can be read as bf16, whole blocks: in place, or
 * in the stage. Returns the bytes from row to row. */
static size_t open_rows(const span_run *run, size_t row0, size_t n_rows, size_t k0, size_t k1, const uint8_t **first) {
    const sp_linear *job = run->job;
    const size_t n = k1 - k0, padded = sp_round_up(n, BLOCK);
    *first = row_at(run, row0, k0);
    if (job->format->id == SP_FMT_BF16 && n == padded) return job->row_bytes;
    for (size_t r = 0; r < n_rows; r++) {
        sp_bf16 *staged = run->scratch->stage + r * padded;
        sp_dequantize_bf16(&sp_quant_avx512, job->format->id, *first + r * job->row_bytes, n, staged);
        memset(staged + n, 0, (padded - n) * sizeof *staged);
    }
    *first = (const uint8_t *)run->scratch->stage;
    return padded * sizeof(sp_bf16);
}

/* ---- few tokens ---- */

static void few_product(const operand *a, const operand *b, size_t n_blocks, bool first, const ahead *next,
                        float *sums) {
    if (a->first[1] && b->first[1])
        product(a, b, n_blocks, first, next, sums, true, true, false);
    else if (a->first[1])
        product(a, b, n_blocks, first, next, sums, true, false, false);
    else if (b->first[1])
        product(a, b, n_blocks, first, next, sums, false, true, false);
    else
        product(a, b, n_blocks, first, next, sums, false, false, false);
}

/* All tokens from k0 on, in lines or in pairs. */
static operand few_tokens(const span_run *run, size_t k0, place (*place_of)(void *, size_t, size_t, size_t, size_t)) {
    operand tokens = {0};
    for (size_t i = 0; i * SIDE < run->n_tokens; i++) {
        const place p = place_of(run->packed, i * SIDE, k0, run->job->k, run->n_tokens);
        tokens.first[i] = p.first;
        tokens.step[i] = p.step;
        tokens.stride[i] = p.stride;
    }
    return tokens;
}

/* 32 rows in panel form: C has a token in each line and stays in its tiles to the end. Panels follow each other. */
static void few_panel(const span_run *run, size_t row0) {
    const sp_linear *job = run->job;
    const operand tokens = few_tokens(run, 0, place_in_lines), rows = panel_at(run, row0, 0);
    ahead next = ahead_of(run, row0, 0);
    next.rows += PANEL_FAR_BYTES;
    few_product(&tokens, &rows, job->k / BLOCK, true, &next, run->scratch->sums);
    const float *c = run->scratch->sums;
    for (size_t t = 0; t < run->n_tokens; t++, c += PAIR)
        for (size_t r = 0; r < PAIR; r += SIDE) leave(job, t, row0 + r, SIDE, _mm512_load_ps(c + r));
}

/* Columns [k0, k1) of up to 32 rows by all tokens. */
static void few_columns(const span_run *run, size_t row0, size_t n_rows, size_t k0, size_t k1, const ahead *next) {
    const uint8_t *first;
    const size_t stride = open_rows(run, row0, n_rows, k0, k1, &first);
    operand rows = {.first = {first}, .step = {LINE_BYTES, LINE_BYTES}, .stride = {stride, stride}};
    if (n_rows > SIDE) rows.first[1] = first + SIDE * stride;
    const operand tokens = few_tokens(run, k0, place_in_pairs);
    few_product(&rows, &tokens, sp_div_up(k1 - k0, BLOCK), k0 == 0, next, run->scratch->sums);
}

/* Up to 32 rows as on disk: in place along the row, FAR_BYTES ahead, then fetching the start of the rows after these;
 * what is not bf16 in whole blocks goes through the stage. */
static void few_strip(const span_run *run, size_t row0, size_t n_rows) {
    const sp_linear *job = run->job;
    const size_t whole = job->format->id == SP_FMT_BF16 ? job->k / BLOCK * BLOCK : 0;
    const size_t far = sp_min_size(FAR_BYTES / sizeof(sp_bf16), whole);
    const ahead none = {0}, along = {.rows = row_at(run, row0, far),
                                     .n_rows = n_rows,
                                     .stride_bytes = job->row_bytes,
                                     .block_bytes = run->block_bytes};
    ahead after = along;
    after.rows = row_at(run, row0 + n_rows, 0);
    if (far < whole) few_columns(run, row0, n_rows, 0, whole - far, &along);
    if (far > 0) few_columns(run, row0, n_rows, whole - far, whole, &after);
    for (size_t k0 = whole, k1; k0 < job->k; k0 = k1) {
        k1 = sp_min_size(k0 + CHUNK, job->k);
        few_columns(run, row0, n_rows, k0, k1, &none);
    }
    for (size_t r = 0; r < n_rows; r += SIDE)
        for (size_t t = 0; t < run->n_tokens; t += SIDE) {
            const uint8_t *lines[SIDE];
            words columns[SIDE];
            for (size_t i = 0; i < SIDE; i++) lines[i] = (const uint8_t *)(run->scratch->sums + (r + i) * PAIR + t);
            transpose(lines, 0, columns);
            for (size_t i = 0; i < group_tokens(t, run->n_tokens); i++)
                leave(job, t + i, row0 + r, sp_min_size(SIDE, n_rows - r), _mm512_castsi512_ps(columns[i]));
        }
}

/* ---- many tokens ---- */

/* The first n_rows of `rest` leave it. */
static ahead take_rows(ahead *rest, size_t n_rows) {
    ahead share = *rest;
    share.n_rows = sp_min_size(n_rows, rest->n_rows);
    rest->rows += share.n_rows * rest->stride_bytes;
    rest->n_rows -= share.n_rows;
    return share;
}

/* Columns [k0, k1) of up to 32 rows to the panel; a line past the last row repeats it, and what becomes of it is
 * dropped. */
static void fill_panel(const span_run *run, size_t row0, size_t n_rows, size_t k0, size_t k1, const ahead *next) {
    const uint8_t *first, *rows[PAIR];
    const size_t stride = open_rows(run, row0, n_rows, k0, k1, &first);
    for (size_t r = 0; r < PAIR; r++) rows[r] = first + sp_min_size(r, n_rows - 1) * stride;
    uint8_t *tiles = run->scratch->panel;
    for (size_t b = 0; b < sp_div_up(k1 - k0, BLOCK); b++, tiles += PANEL_BLOCK_BYTES) {
        fetch_rows(next, b);
        interleave(rows, b * LINE_BYTES, tiles);
        interleave(rows + SIDE, b * LINE_BYTES, tiles + TILE_BYTES);
    }
}

/* The same by the span's tokens. `next` is fetched in equal shares by the panel, where it is to be filled, and by each
 * 32 tokens, which fetch, for the chunk that takes this one's place, lines [i_line, i_line + n_lines) of each block of
 * their own too. */
static void many_chunk(const span_run *run, size_t row0, size_t n_rows, size_t k0, size_t i_line, size_t n_lines,
                       ahead next, float *sums) {
    const size_t k = run->job->k, k1 = sp_min_size(k0 + CHUNK, k), n_blocks = sp_div_up(k1 - k0, BLOCK);
    const size_t k_then = k0 + run->visit_cols;
    const bool filled = row0 < run->panel_end;
    const size_t share_rows = sp_div_up(next.n_rows, !filled + sp_div_up(run->token1 - run->token0, PAIR));
    const operand rows = filled ? panel_at(run, row0, k0) : panel_tiles(run->scratch->panel);
    if (!filled) {
        const ahead share = take_rows(&next, share_rows);
        fill_panel(run, row0, n_rows, k0, k1, &share);
    }
    for (size_t t = run->token0; t < run->token1; t += PAIR, sums += PAIR * PAIR) {
        operand tokens = {.stride = {LINE_BYTES, LINE_BYTES}};
        for (size_t i = 0; i < 2 && t + i * SIDE < run->token1; i++) {
            const place p = place_in_lines(run->packed, t + i * SIDE, k0, k, run->n_tokens);
            tokens.first[i] = p.first;
            tokens.step[i] = p.step;
        }
        ahead share = take_rows(&next, share_rows);
        if (k_then < k) {
            share.tokens =
                place_in_lines(run->packed, t, k_then, k, run->n_tokens).first + i_line * n_blocks * LINE_BYTES;
            share.n_lines = n_lines;
        }
        if (tokens.first[1])
            product(&tokens, &rows, n_blocks, k0 == 0, &share, sums, true, true, true);
        else
            product(&tokens, &rows, n_blocks, k0 == 0, &share, sums, false, true, true);
    }
}

/* Up to STRIP_ROWS rows by the span's tokens. */
static void many_strip(const span_run *run, size_t row0, size_t row1) {
    const sp_linear *job = run->job;
    const size_t n_pairs = sp_div_up(row1 - row0, PAIR), n_lines = sp_div_up(PAIR, n_pairs);
    const size_t sums_of_pair = sp_round_up(run->token1 - run->token0, PAIR) * PAIR;
    float *sums = run->scratch->sums;
    for (size_t visit0 = 0, visit1; visit0 < job->k; visit0 = visit1) {
        visit1 = sp_min_size(visit0 + run->visit_cols, job->k);
        for (size_t i = 0; i < n_pairs; i++) {
            const size_t row = row0 + i * PAIR, n_rows = sp_min_size(PAIR, row1 - row);
            const ahead next_rows = row + PAIR < row1 ? ahead_of(run, row + PAIR, visit0)
                                    : visit1 < job->k ? ahead_of(run, row0, visit1)
                                                      : ahead_of(run, row1, 0);
            for (size_t k0 = visit0; k0 < visit1; k0 += CHUNK) {
                const ahead next = k0 + CHUNK < visit1 ? ahead_of(run, row, k0 + CHUNK) : next_rows;
                many_chunk(run, row, n_rows, k0, i * n_lines, n_lines, next, sums + i * sums_of_pair);
            }
        }
    }
    /* a token's run of y at a time: tokens are pages apart */
    for (size_t t = run->token0; t < run->token1; t++) {
        const float *c = run->scratch->sums + (t - run->token0) * PAIR;
        for (size_t row = row0; row < row1; row += PAIR, c += sums_of_pair)
            for (size_t r = row; r < sp_min_size(row + PAIR, row1); r += SIDE)
                leave(job, t, r, sp_min_size(SIDE, row1 - r), _mm512_load_ps(c + (r - row)));
    }
}

static void run_few(const span_run *run, const sp_linear_part *part) {
    size_t row = part->row0, n_rows;
    if (row < run->panel_end) configure(run->n_tokens, PAIR);
    for (; row < sp_min_size(run->panel_end, part->row1); row += PAIR) few_panel(run, row);
    for (bool first = true; row < part->row1; row += n_rows, first = false) {
        n_rows = sp_min_size(PAIR, part->row1 - row);
        if (first || n_rows < PAIR) configure(n_rows, run->n_tokens);
        few_strip(run, row, n_rows);
    }
}

static void run_many(span_run *run, const sp_linear_part *part) {
    configure(PAIR, PAIR);
    for (size_t t = part->token0; t < part->token1; t += SPAN_TOKENS) {
        run->token0 = t;
        run->token1 = sp_min_size(t + SPAN_TOKENS, part->token1);
        run->visit_cols = run->panel_end > 0 ? SPAN_TOKENS / (run->token1 - t) * CHUNK : CHUNK;
        for (size_t row = part->row0; row < part->row1; row += STRIP_ROWS)
            many_strip(run, row, sp_min_size(row + STRIP_ROWS, part->row1));
    }
}

static void run(sp_mode mode, const sp_linear *job, const sp_linear_part *part, const void *packed, size_t n_tokens,
                void *scratch) {
    (void)mode;
    span_run span = {.job = job,
                     .packed = (void *)(uintptr_t)packed, /* only read */
                     .n_tokens = n_tokens,
                     .block_bytes = BLOCK * job->format->block_bytes / job->format->block_elems,
                     .scratch = scratch};
    if (job->panels) span.panel_end = job->n_rows / PAIR * PAIR;
    if (few(n_tokens)) /* they are all in this part */
        run_few(&span, part);
    else
        run_many(&span, part);
    _tile_release();
}

const sp_linear_isa sp_linear_amx = {
    .isa = "amx",
    .bf16_only = true,
    .row_tile = PAIR,
    .token_tile = PAIR,
    .square_parts = true,
    .scratch_bytes = sizeof(amx_scratch),
    .panel_form = panel_form,
    .panel_row = panel_row,
    .packed_bytes = packed_bytes,
    .pack_row = pack_row,
    .run = run,
};
