/* AMX tiles in software, to be included ahead of cpu/linear_amx.c, so that a machine without them can check everything
 * of that file but its speed. What the processor would refuse, and what no tile of ours should be, aborts: shapes of a
 * product that do not fit each other, a tile that the configuration left out.
 *
 * A tile is 16 lines of 64 bytes. TDPBF16PS: C[m][n] += e + o, e and o the chains of fused multiply-adds over the even
 * and the odd slots of the pairs A[m][p], B[p][n] in order of p (docs/DESIGN.md, Numerics). */
#ifndef SPILL_TESTS_TILES_EMULATED_H
#define SPILL_TESTS_TILES_EMULATED_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "util/error.h"

enum { EMULATED_TILES = 8, EMULATED_LINES = 16, EMULATED_LINE_BYTES = 64 };

typedef struct { /* as LDTILECFG reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16];
    uint8_t lines[16];
} emulated_config;

static _Thread_local emulated_config tile_config;
static _Thread_local uint8_t tile_bytes[EMULATED_TILES][EMULATED_LINES][EMULATED_LINE_BYTES];

static inline void emulated_loadconfig(const void *config) {
    memcpy(&tile_config, config, sizeof tile_config);
    SP_CHECK(tile_config.palette == 1 && tile_config.start_row == 0);
    for (int i = 0; i < EMULATED_TILES; i++)
        SP_CHECK(tile_config.lines[i] <= EMULATED_LINES && tile_config.line_bytes[i] <= EMULATED_LINE_BYTES);
    memset(tile_bytes, 0, sizeof tile_bytes);
}

static inline void emulated_release(void) { memset(&tile_config, 0, sizeof tile_config); }

static inline void emulated_zero(int tile) {
    SP_CHECK(tile_config.lines[tile] > 0 && tile_config.line_bytes[tile] > 0);
    memset(tile_bytes[tile], 0, sizeof tile_bytes[tile]);
}

static inline void emulated_load(int tile, const void *from, size_t stride_bytes) {
    emulated_zero(tile);
    for (size_t r = 0; r < tile_config.lines[tile]; r++)
        memcpy(tile_bytes[tile][r], (const uint8_t *)from + r * stride_bytes, tile_config.line_bytes[tile]);
}

static inline void emulated_store(int tile, void *to, size_t stride_bytes) {
    SP_CHECK(tile_config.lines[tile] > 0);
    for (size_t r = 0; r < tile_config.lines[tile]; r++)
        memcpy((uint8_t *)to + r * stride_bytes, tile_bytes[tile][r], tile_config.line_bytes[tile]);
}

static inline __m512 emulated_even(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
static inline __m512 emulated_odd(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}

static inline void emulated_dpbf16(int c, int a, int b) {
    const size_t n_pairs = tile_config.line_bytes[a] / sizeof(uint32_t);
    SP_CHECK(tile_config.lines[c] == tile_config.lines[a] && tile_config.line_bytes[c] == tile_config.line_bytes[b]);
    SP_CHECK(n_pairs == tile_config.lines[b] && n_pairs > 0);
    const __mmask16 mask = (__mmask16)((1u << tile_config.line_bytes[c] / sizeof(float)) - 1);
    for (size_t m = 0; m < tile_config.lines[c]; m++) {
        __m512 e = _mm512_setzero_ps(), o = e;
        for (size_t p = 0; p < n_pairs; p++) {
            int32_t pair;
            memcpy(&pair, tile_bytes[a][m] + p * sizeof pair, sizeof pair);
            const __m512i left = _mm512_set1_epi32(pair), right = _mm512_loadu_si512(tile_bytes[b][p]);
            e = _mm512_fmadd_ps(emulated_even(left), emulated_even(right), e);
            o = _mm512_fmadd_ps(emulated_odd(left), emulated_odd(right), o);
        }
        const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(tile_bytes[c][m]), _mm512_add_ps(e, o));
        _mm512_mask_storeu_ps(tile_bytes[c][m], mask, sum);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_load
#define _tile_stream_loadd emulated_load
#define _tile_stored emulated_store
#define _tile_dpbf16ps emulated_dpbf16

#endif
