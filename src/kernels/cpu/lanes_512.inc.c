/* 16 x 16 dwords, for the AVX-512 products. Four rows meet in one register on loading (masked broadcasts of 128 bits:
 * no shuffles), rows r, r + 4, r + 8, r + 12, so that two rounds of unpacking inside 128-bit quarters finish the job.
 */
static inline void transpose(const uint8_t *const *rows, size_t offset, words *out) {
#define QUARTER(r) _mm_loadu_si128((const __m128i *)(const void *)(rows[r] + offset + quarter * 16))
    for (size_t quarter = 0; quarter < 4; quarter++) { /* dwords 0..3, 4..7, ... */
        __m512i four[4];
        for (size_t r = 0; r < 4; r++) {
            four[r] = _mm512_castsi128_si512(QUARTER(r));
            four[r] = _mm512_mask_broadcast_i32x4(four[r], 0x00f0, QUARTER(r + 4));
            four[r] = _mm512_mask_broadcast_i32x4(four[r], 0x0f00, QUARTER(r + 8));
            four[r] = _mm512_mask_broadcast_i32x4(four[r], 0xf000, QUARTER(r + 12));
        }
        const __m512i low01 = _mm512_unpacklo_epi32(four[0], four[1]), high01 = _mm512_unpackhi_epi32(four[0], four[1]);
        const __m512i low23 = _mm512_unpacklo_epi32(four[2], four[3]), high23 = _mm512_unpackhi_epi32(four[2], four[3]);
        out[quarter * 4 + 0] = _mm512_unpacklo_epi64(low01, low23);
        out[quarter * 4 + 1] = _mm512_unpackhi_epi64(low01, low23);
        out[quarter * 4 + 2] = _mm512_unpacklo_epi64(high01, high23);
        out[quarter * 4 + 3] = _mm512_unpackhi_epi64(high01, high23);
    }
#undef QUARTER
}
