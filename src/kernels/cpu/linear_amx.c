/* Products for AMX: TDPBF16PS is the canonical dot product itself, C = C + (e + o) over a block of 32 columns for 16
 * rows by 16 tokens, so a tile that accumulates over the blocks in turn needs nothing else (docs/DESIGN.md, Numerics).
 *
 *     A = 16 rows of weights x 32 columns, as they lie on disk      B = 16 pairs of columns x up to 16 tokens
 *
 *     packed activations   [group of 16 tokens][block][16 pairs][tokens of the group] dwords of two bf16; the last
 * group is as wide as it has tokens, so that one token costs one token's bytes
 *
 * Two row tiles times two groups are computed at once, so that a step's four products (64 cycles) pay for its four tile
 * loads. That asks for 32 bytes a cycle from each operand, which only L1 and L2 together can give:
 *
 *     for each CHUNK of columns                    B of the chunk, 32 KB for each 32 tokens, comes to L2
 *         for each 32 rows                         A of the chunk, 32 KB, goes to L1
 *             for each 32 tokens: 4 tiles of C     from and to this thread's scratch
 *
 * While the first 32 tokens take A from the matrix (whose rows would share an L1 set) it is stored tile by tile into a
 * panel that the other tokens use. With no more than 32 tokens there is no panel, and a chunk is the whole row.
 *
 * C has a row of the matrix in each line, y a token: it is transposed on leaving. */
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
    TILE_BYTES = 1024,
    TILE_FLOATS = TILE_BYTES / sizeof(float),
    CHUNK = 512,        /* 32 rows of it are 32 KB of a 48 KB L1 */
    STRIP_ROWS = 256,   /* rows that share a chunk of B in L2 */
    SPAN_TOKENS = 512,  /* and tokens: their C is 512 KB of a 2 MB L2, their B as much */
    AHEAD_BYTES = 2048, /* prefetch distance along a row, into L2, as in linear_rows.inc.c */
};

/* ---- activations ---- */

static size_t group_tokens(size_t group, size_t n_tokens) { return sp_min_size(SIDE, n_tokens - group * SIDE); }

/* Offset of a group in dwords: all before it are full. */
static size_t group_offset(size_t group, size_t k) { return group * SIDE * sp_div_up(k, BLOCK) * SIDE; }

static size_t packed_bytes(sp_mode mode, size_t n_tokens, size_t k) {
    (void)mode;
    return n_tokens * sp_round_up(k, BLOCK) * sizeof(sp_bf16);
}

static void pack_row(sp_mode mode, const float *row, size_t k0, size_t n_cols, size_t k, size_t t, size_t n_tokens,
                     void *packed) {
    (void)mode;
    const size_t group = t / SIDE, width = group_tokens(group, n_tokens);
    uint32_t *out = (uint32_t *)packed + group_offset(group, k) + k0 / 2 * width + t % SIDE;
    size_t i = 0;
    for (; i + 2 <= n_cols; i += 2, out += width)
        *out = sp_bf16_from_f32(row[i]) | (uint32_t)sp_bf16_from_f32(row[i + 1]) << 16;
    if (i < n_cols) {
        *out = sp_bf16_from_f32(row[i]);
        i += 2;
        out += width;
    }
    if (k0 + n_cols < k) return;
    for (; (k0 + i) % BLOCK != 0; i += 2, out += width) *out = 0;
}

/* ---- tiles ---- */

/* C is tiles 0..3 (rows 0 tokens 0, rows 0 tokens 1, rows 1 ...), A 4 and 5, B 6 and 7. */
typedef struct {
    size_t rows[2], tokens[2]; /* of each tile of a pair; 0: there is no second */
} tile_shape;

typedef struct {
    _Alignas(64) uint8_t panel[CHUNK / BLOCK * 2 * TILE_BYTES]; /* [block][row tile][16][32] */
    _Alignas(64) sp_bf16 stage[PAIR * CHUNK];                   /* dequantized rows, or a padded tail */
    _Alignas(64) float sums[(STRIP_ROWS / PAIR) * (SPAN_TOKENS / PAIR) * 4 * TILE_FLOATS]; /* [rows][tokens][tile] */
    tile_shape configured;
} amx_scratch;

/* Loads the shape into the tiles' configuration, unless it is there. */
static void configure(const tile_shape *shape, tile_shape *configured) {
    if (memcmp(shape, configured, sizeof *shape) == 0) return;
    *configured = *shape;
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t line_bytes[16];
        uint8_t lines[16];
    } config = {.palette = 1};
    for (size_t i = 0; i < 2; i++) {
        const uint8_t lines = (uint8_t)sp_max_size(1, shape->rows[i]);
        const uint16_t width = (uint16_t)(sp_max_size(1, shape->tokens[i]) * sizeof(float));
        config.lines[2 * i] = config.lines[2 * i + 1] = config.lines[4 + i] = lines;
        config.line_bytes[i] = config.line_bytes[2 + i] = config.line_bytes[6 + i] = width;
        config.line_bytes[4 + i] = BLOCK * sizeof(sp_bf16);
        config.lines[6 + i] = SIDE;
    }
    _tile_loadconfig(&config);
}

/* Where A's tiles are: tile i of block b at first[i] + b * step, lines `stride` apart. */
typedef struct {
    const uint8_t *first[2];
    size_t step, stride;
    size_t next_bytes; /* from a row's end to what is read after it: a prefetch hint; 0 none */
    size_t row_bytes;  /* of this chunk */
    uint8_t *panel;    /* not NULL: store the tiles there */
} a_tiles;

typedef struct {
    const uint8_t *first[2];
    size_t step[2], stride[2];
} b_tiles;

static inline void prefetch_rows(const a_tiles *a, size_t b, size_t n_tiles) {
    const size_t distance = sp_min_size(AHEAD_BYTES, a->row_bytes), at = b * a->step + distance;
    const size_t ahead = at < a->row_bytes ? at : at - a->row_bytes + a->next_bytes;
    for (size_t i = 0; i < n_tiles; i++)
        for (size_t r = 0; r < SIDE; r++) __builtin_prefetch(a->first[i] + r * a->stride + ahead, 0, 2);
}

/* sums[2][2] (+)= A B over n_blocks; the second rows or tokens only where they are there. */
ALWAYS_INLINE void product(const a_tiles *a, const b_tiles *x, size_t n_blocks, bool first, float *sums,
                           const bool two_rows, const bool two_groups) {
    if (first) {
        _tile_zero(0);
        if (two_groups) _tile_zero(1);
        if (two_rows) _tile_zero(2);
        if (two_rows && two_groups) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, SIDE * sizeof(float));
        if (two_groups) _tile_loadd(1, sums + TILE_FLOATS, SIDE * sizeof(float));
        if (two_rows) _tile_loadd(2, sums + 2 * TILE_FLOATS, SIDE * sizeof(float));
        if (two_rows && two_groups) _tile_loadd(3, sums + 3 * TILE_FLOATS, SIDE * sizeof(float));
    }
    for (size_t b = 0; b < n_blocks; b++) {
        if (a->next_bytes) prefetch_rows(a, b, two_rows ? 2 : 1);
        _tile_loadd(4, a->first[0] + b * a->step, a->stride);
        _tile_loadd(6, x->first[0] + b * x->step[0], x->stride[0]);
        _tile_dpbf16ps(0, 4, 6);
        if (two_groups) {
            _tile_loadd(7, x->first[1] + b * x->step[1], x->stride[1]);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, a->first[1] + b * a->step, a->stride);
            _tile_dpbf16ps(2, 5, 6);
            if (two_groups) _tile_dpbf16ps(3, 5, 7);
        }
        if (a->panel) {
            _tile_stored(4, a->panel + b * 2 * TILE_BYTES, BLOCK * sizeof(sp_bf16));
            if (two_rows) _tile_stored(5, a->panel + b * 2 * TILE_BYTES + TILE_BYTES, BLOCK * sizeof(sp_bf16));
        }
    }
    _tile_stored(0, sums, SIDE * sizeof(float));
    if (two_groups) _tile_stored(1, sums + TILE_FLOATS, SIDE * sizeof(float));
    if (two_rows) _tile_stored(2, sums + 2 * TILE_FLOATS, SIDE * sizeof(float));
    if (two_rows && two_groups) _tile_stored(3, sums + 3 * TILE_FLOATS, SIDE * sizeof(float));
}

static void product_of(const tile_shape *shape, const a_tiles *a, const b_tiles *x, size_t n_blocks, bool first,
                       float *sums) {
    if (shape->rows[1] && shape->tokens[1])
        product(a, x, n_blocks, first, sums, true, true);
    else if (shape->rows[1])
        product(a, x, n_blocks, first, sums, true, false);
    else if (shape->tokens[1])
        product(a, x, n_blocks, first, sums, false, true);
    else
        product(a, x, n_blocks, first, sums, false, false);
}

/* ---- parts ---- */

/* y[token0 + t][row0 + r] from one tile sums[r][t] */
static void finish_tile(const sp_linear *job, size_t row0, size_t n_rows, size_t token0, size_t n_tokens,
                        const float *sums) {
    const uint8_t *lines[SIDE];
    words columns[SIDE];
    for (size_t r = 0; r < SIDE; r++) lines[r] = (const uint8_t *)(sums + r * SIDE);
    transpose(lines, 0, columns);
    const __mmask16 mask = (__mmask16)((1u << n_rows) - 1);
    for (size_t t = 0; t < n_tokens; t++) {
        float *y = job->y + (token0 + t) * job->ldy + row0;
        __m512 c = _mm512_castsi512_ps(columns[t]);
        if (job->bias) c = _mm512_add_ps(c, _mm512_maskz_loadu_ps(mask, job->bias + row0));
        if (job->add) c = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), c);
        _mm512_mask_storeu_ps(y, mask, c);
    }
}

/* A of rows [row0, row0 + n_rows), n_rows <= PAIR, columns [k0, k1): in place or through the stage. */
static void open_rows(a_tiles *a, const sp_linear *job, size_t row0, size_t n_rows, size_t k0, size_t k1,
                      amx_scratch *scratch) {
    const sp_format *format = job->format;
    const uint8_t *first =
        (const uint8_t *)job->w + row0 * job->row_bytes + k0 / format->block_elems * format->block_bytes;
    const size_t n = k1 - k0, padded = sp_round_up(n, BLOCK);
    *a = (a_tiles){.first = {first, first + SIDE * job->row_bytes},
                   .step = BLOCK * sizeof(sp_bf16),
                   .stride = job->row_bytes,
                   .row_bytes = padded * sizeof(sp_bf16)};
    if (format->id == SP_FMT_BF16 && n == padded) {
        /* after this chunk the thread reads these columns of the next rows, or the next columns of the first */
        a->next_bytes = PAIR * job->row_bytes;
        return;
    }
    for (size_t r = 0; r < n_rows; r++) {
        sp_bf16 *staged = scratch->stage + r * padded;
        sp_dequantize_bf16(&sp_quant_avx512, format->id, first + r * job->row_bytes, n, staged);
        memset(staged + n, 0, (padded - n) * sizeof *staged);
    }
    a->stride = padded * sizeof(sp_bf16);
    a->first[0] = (const uint8_t *)scratch->stage;
    a->first[1] = a->first[0] + SIDE * a->stride;
}

static b_tiles open_tokens(const void *packed, size_t token0, size_t n_tokens, size_t k, size_t k0) {
    b_tiles x = {0};
    for (size_t i = 0; i < 2 && token0 + i * SIDE < n_tokens; i++) {
        const size_t group = token0 / SIDE + i;
        x.stride[i] = group_tokens(group, n_tokens) * sizeof(uint32_t);
        x.step[i] = SIDE * x.stride[i];
        x.first[i] = (const uint8_t *)((const uint32_t *)packed + group_offset(group, k)) + k0 / BLOCK * x.step[i];
    }
    return x;
}

static void split_pair(size_t n, size_t out[2]) {
    out[0] = sp_min_size(SIDE, n);
    out[1] = sp_min_size(SIDE, n - out[0]);
}

/* 32 rows over one chunk and all tokens of the span. */
static void strip_pair(const sp_linear *job, const sp_linear_part *span, size_t k0, size_t k1, const void *packed,
                       size_t n_tokens, amx_scratch *scratch, float *sums) {
    const size_t n_pairs = sp_div_up(span->token1 - span->token0, PAIR), n_blocks = sp_div_up(k1 - k0, BLOCK);
    a_tiles a;
    tile_shape shape;
    open_rows(&a, job, span->row0, span->row1 - span->row0, k0, k1, scratch);
    if (n_pairs > 1) a.panel = scratch->panel;
    split_pair(span->row1 - span->row0, shape.rows);
    for (size_t i = 0; i < n_pairs; i++) {
        const size_t token0 = span->token0 + i * PAIR;
        split_pair(sp_min_size(PAIR, span->token1 - token0), shape.tokens);
        configure(&shape, &scratch->configured);
        const b_tiles x = open_tokens(packed, token0, n_tokens, job->k, k0);
        product_of(&shape, &a, &x, n_blocks, k0 == 0, sums + i * 4 * TILE_FLOATS);
        if (i == 0 && n_pairs > 1)
            a = (a_tiles){.first = {scratch->panel, scratch->panel + TILE_BYTES},
                          .step = 2 * TILE_BYTES,
                          .stride = BLOCK * sizeof(sp_bf16)};
    }
}

static void finish_pair(const sp_linear *job, const sp_linear_part *span, const float *sums) {
    for (size_t t = span->token0; t < span->token1; t += PAIR, sums += 4 * TILE_FLOATS)
        for (size_t i = 0; i < 4; i++) {
            const size_t row = span->row0 + i / 2 * SIDE, token = t + i % 2 * SIDE;
            if (row >= span->row1 || token >= span->token1) continue;
            finish_tile(job, row, sp_min_size(SIDE, span->row1 - row), token, sp_min_size(SIDE, span->token1 - token),
                        sums + i * TILE_FLOATS);
        }
}

static void run(sp_mode mode, const sp_linear *job, const sp_linear_part *part, const void *packed, size_t n_tokens,
                void *scratch_bytes) {
    (void)mode;
    amx_scratch *scratch = scratch_bytes;
    memset(&scratch->configured, 0, sizeof scratch->configured);
    const size_t sums_of_pair = SPAN_TOKENS / PAIR * 4 * TILE_FLOATS, whole = job->k / BLOCK * BLOCK;
    for (size_t t = part->token0; t < part->token1; t += SPAN_TOKENS)
        for (size_t row = part->row0; row < part->row1; row += STRIP_ROWS) {
            const sp_linear_part strip = {row, sp_min_size(row + STRIP_ROWS, part->row1), t,
                                          sp_min_size(t + SPAN_TOKENS, part->token1)};
            const bool one_look = strip.token1 - t <= PAIR && job->format->id == SP_FMT_BF16;
            for (size_t k0 = 0, k1; k0 < job->k; k0 = k1) {
                k1 = one_look && k0 < whole ? whole : sp_min_size(k0 + CHUNK, job->k);
                for (size_t r = strip.row0; r < strip.row1; r += PAIR) {
                    const sp_linear_part pair = {r, sp_min_size(r + PAIR, strip.row1), strip.token0, strip.token1};
                    strip_pair(job, &pair, k0, k1, packed, n_tokens, scratch,
                               scratch->sums + (r - row) / PAIR * sums_of_pair);
                }
            }
            for (size_t r = strip.row0; r < strip.row1; r += PAIR) {
                const sp_linear_part pair = {r, sp_min_size(r + PAIR, strip.row1), strip.token0, strip.token1};
                finish_pair(job, &pair, scratch->sums + (r - row) / PAIR * sums_of_pair);
            }
        }
    _tile_release();
}

const sp_linear_isa sp_linear_amx = {
    .isa = "amx",
    .bf16_only = true,
    .row_tile = PAIR,
    .token_tile = PAIR,
    .scratch_bytes = sizeof(amx_scratch),
    .packed_bytes = packed_bytes,
    .pack_row = pack_row,
    .run = run,
};
