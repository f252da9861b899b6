/* 16 x 16 dwords, for the AVX-512 products. Whole cache lines are loaded, each once: rows of a matrix are often a
 * multiple of 4 KB apart, so that all 16 lines compete for the 8 ways of one L1 set, and a second look at a line would
 * find it gone. Two rounds of unpacking inside 128-bit quarters, then two that move quarters. */
static inline void transpose(const uint8_t *const *rows, size_t offset, words *out) {
    __m512i row[16], four[16];
    UNROLL for (size_t r = 0; r < 16; r++) row[r] = _mm512_loadu_si512(rows[r] + offset);
    UNROLL for (size_t r = 0; r < 16; r += 4) { /* four[r + i]: dword 4q + i of rows r..r+3 in quarter q */
        const __m512i low01 = _mm512_unpacklo_epi32(row[r], row[r + 1]);
        const __m512i high01 = _mm512_unpackhi_epi32(row[r], row[r + 1]);
        const __m512i low23 = _mm512_unpacklo_epi32(row[r + 2], row[r + 3]);
        const __m512i high23 = _mm512_unpackhi_epi32(row[r + 2], row[r + 3]);
        four[r + 0] = _mm512_unpacklo_epi64(low01, low23);
        four[r + 1] = _mm512_unpackhi_epi64(low01, low23);
        four[r + 2] = _mm512_unpacklo_epi64(high01, high23);
        four[r + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
    UNROLL for (size_t i = 0; i < 4; i++) {
        const __m512i q02_low = _mm512_shuffle_i32x4(four[i], four[4 + i], 0x88); /* quarters 0, 2 of each */
        const __m512i q13_low = _mm512_shuffle_i32x4(four[i], four[4 + i], 0xdd);
        const __m512i q02_high = _mm512_shuffle_i32x4(four[8 + i], four[12 + i], 0x88);
        const __m512i q13_high = _mm512_shuffle_i32x4(four[8 + i], four[12 + i], 0xdd);
        out[i] = _mm512_shuffle_i32x4(q02_low, q02_high, 0x88);
        out[4 + i] = _mm512_shuffle_i32x4(q13_low, q13_high, 0x88);
        out[8 + i] = _mm512_shuffle_i32x4(q02_low, q02_high, 0xdd);
        out[12 + i] = _mm512_shuffle_i32x4(q13_low, q13_high, 0xdd);
    }
}
