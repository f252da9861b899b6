/* Dequantizers in vectors, for AVX2 and AVX-512: the same numbers as the plain C of quant/<format>.h, bit for bit.
 *
 * A block of 32 becomes 32 signed bytes (integers_<ID>, one idea a format), then fp32 d * q (+ m), where d * q is
 * exact, then, where asked, bf16 by integer arithmetic. The including file defines the lanes: LANES, fvec, and
 * from_int8 (its low LANES bytes), fvec_set1, fvec_mul, fvec_add, load_f32, load_f16, load_bf16, store_f32, store_bf16,
 * and SP_QUANT_TABLE. */
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/f32.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/q8_0.h"

static inline float half(uint16_t bits) { return _cvtsh_ss(bits); }

/* ---- blocks to 32 signed bytes, in order ---- */

static inline __m256i nibbles(const uint8_t q[16]) { /* elements 0..15 are the low ones */
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes), _mm256_set1_epi8(15));
}

static inline __m256i fifth_bits(const uint8_t h[4]) { /* 16 where bit i of h is set */
    uint32_t bits;
    memcpy(&bits, h, sizeof bits);
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of), bit_of);
    return _mm256_and_si256(_mm256_cmpeq_epi8(spread, bit_of), _mm256_set1_epi8(16));
}

static inline __m256i integers_Q8_0(const block_q8_0 *b) {
    return _mm256_loadu_si256((const __m256i *)(const void *)b->q);
}
static inline __m256i integers_Q4_0(const block_q4_0 *b) { return _mm256_sub_epi8(nibbles(b->q), _mm256_set1_epi8(8)); }
static inline __m256i integers_Q4_1(const block_q4_1 *b) { return nibbles(b->q); }
static inline __m256i integers_Q5_0(const block_q5_0 *b) {
    return _mm256_sub_epi8(_mm256_or_si256(nibbles(b->q), fifth_bits(b->h)), _mm256_set1_epi8(16));
}
static inline __m256i integers_Q5_1(const block_q5_1 *b) { return _mm256_or_si256(nibbles(b->q), fifth_bits(b->h)); }

/* ---- bytes to numbers ---- */

/* Part i of the block's numbers, LANES of them. */
ALWAYS_INLINE fvec numbers(__m256i q, size_t i, float d, const float *m) {
    __m128i bytes = i * LANES < 16 ? _mm256_castsi256_si128(q) : _mm256_extracti128_si256(q, 1);
    if (i * LANES % 16 != 0) bytes = _mm_srli_si128(bytes, 8);
    const fvec product = fvec_mul(fvec_set1(d), from_int8(bytes));
    return m ? fvec_add(product, fvec_set1(*m)) : product;
}

/* min: the pointer to the block's minimum, or NULL where the format has none (adding 0 would lose the sign of -0) */
#define BLOCKS(id, block_type, min)                                                                                    \
    static void to_f32_##id(const void *src, size_t n_elems, float *dst) {                                             \
        const block_type *b = src;                                                                                     \
        for (size_t n = n_elems / 32; n-- > 0; b++, dst += 32) {                                                       \
            const __m256i q = integers_##id(b);                                                                        \
            UNROLL for (size_t i = 0; i < 32 / LANES; i++) store_f32(dst + i * LANES, numbers(q, i, half(b->d), min)); \
        }                                                                                                              \
    }                                                                                                                  \
    static void to_bf16_##id(const void *src, size_t n_elems, sp_bf16 *dst) {                                          \
        const block_type *b = src;                                                                                     \
        for (size_t n = n_elems / 32; n-- > 0; b++, dst += 32) {                                                       \
            const __m256i q = integers_##id(b);                                                                        \
            UNROLL for (size_t i = 0; i < 32 / LANES; i++)                                                             \
                store_bf16(dst + i * LANES, numbers(q, i, half(b->d), min));                                           \
        }                                                                                                              \
    }
BLOCKS(Q8_0, block_q8_0, NULL)
BLOCKS(Q4_0, block_q4_0, NULL)
BLOCKS(Q4_1, block_q4_1, &(float){half(b->m)})
BLOCKS(Q5_0, block_q5_0, NULL)
BLOCKS(Q5_1, block_q5_1, &(float){half(b->m)})

/* Formats of single numbers: vectors, then what is left by plain C. */
#define NUMBERS(id, load, elem_bytes)                                                              \
    static void to_f32_##id(const void *src, size_t n_elems, float *dst) {                         \
        const uint8_t *in = src;                                                                   \
        size_t i = 0;                                                                              \
        for (; i + LANES <= n_elems; i += LANES) store_f32(dst + i, load(in + i * (elem_bytes)));  \
        for (; i < n_elems; i++) decode_##id(in + i * (elem_bytes), dst + i);                      \
    }                                                                                              \
    static void to_bf16_##id(const void *src, size_t n_elems, sp_bf16 *dst) {                      \
        const uint8_t *in = src;                                                                   \
        size_t i = 0;                                                                              \
        for (; i + LANES <= n_elems; i += LANES) store_bf16(dst + i, load(in + i * (elem_bytes))); \
        for (; i < n_elems; i++) {                                                                 \
            float value;                                                                           \
            decode_##id(in + i * (elem_bytes), &value);                                            \
            dst[i] = sp_bf16_from_f32(value);                                                      \
        }                                                                                          \
    }
NUMBERS(F32, load_f32, 4)
NUMBERS(F16, load_f16, 2)
NUMBERS(BF16, load_bf16, 2)

#define ROW(kind, id) [SP_FMT_##id] = kind##_##id
#define ROWS(kind)                                                                                          \
    {                                                                                                       \
        ROW(kind, F32), ROW(kind, F16), ROW(kind, BF16), ROW(kind, Q8_0), ROW(kind, Q4_0), ROW(kind, Q4_1), \
            ROW(kind, Q5_0), ROW(kind, Q5_1)                                                                \
    }
const sp_quant_isa SP_QUANT_TABLE = {.to_f32 = ROWS(to_f32), .to_bf16 = ROWS(to_bf16)};
