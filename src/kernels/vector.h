/* The table of everything that is not a product: rows of numbers, one call a row or a block of rows.
 *
 * Each ISA compiles the same source (cpu/vector.inc.c, cpu/attention.inc.c) over its own 16 lanes of fp32
 * (cpu/lanes_<isa>.h), so the bytes agree by construction; the scalar lanes are the specification. Functions run in the
 * compute fp environment (util/fpenv.h), on any thread; pointers need no alignment, ranges no multiple.
 *
 * Sums over a row: element i goes to accumulator (i / 16) % 4, lane i % 16, in order; then (a0 + a1) + (a2 + a3), then
 * lane j + lane j + 8, + 4, + 2, + 1. */
#ifndef SPILL_KERNELS_VECTOR_H
#define SPILL_KERNELS_VECTOR_H

#include "kernels/internal.h"
#include "util/size.h"

/* Attention of n_tokens consecutive tokens and the `group` query heads that share one kv head. */
typedef struct {
    sp_mode mode;
    size_t n_tokens, group, head_dim;
    size_t first_pos; /* position of the first token */
    size_t window;    /* 0: none */
    float scale, cap;
    const float *q; /* row (t, g) at q + t * ldq + g * head_dim */
    size_t ldq;
    const char *kv; /* this kv head's part of page 0 */
    size_t page_bytes;
    const uint32_t *pages; /* of the row of text, by position */
    float *out;            /* as q */
    size_t ldo;
    float *scratch; /* sp_attention_scratch_elems, 64-byte aligned */
} sp_attention_task;

struct sp_vector_isa {
    const char *isa;
    /* x[i] = (x[i], rounded to bf16 in bf16 mode) * scale */
    void (*scale)(sp_mode mode, float scale, size_t n, float *x);
    /* out[i] = x[i] as a half, beyond +-65504 that; zeros from n up to the next multiple of 16 */
    void (*to_f16)(const float *x, size_t n, uint16_t *out);
    /* out = (x * (1 / sqrt(mean(x^2) + eps))) * w, or * (1 + w); out may be x */
    void (*norm)(const sp_norm *norm, const float *x, size_t d, float *out);
    /* out = act(gate) * up */
    void (*glu)(sp_act act, const float *gate, const float *up, size_t n, float *out);
    /* x = cap * tanh(x / cap) */
    void (*softcap)(float cap, size_t n, float *x);
    /* (x[j], x[j + n_pairs]) <- (x[j] cos - x[j + n_pairs] sin, x[j + n_pairs] cos + x[j] sin) */
    void (*rope)(const float *cos, const float *sin, size_t n_pairs, float *x);
    void (*attention)(const sp_attention_task *task);
    /* Greatest element, NaN passed over; -inf if there is none. */
    float (*max)(const float *x, size_t n);
    /* First i with x[i] == value; 0 if there is none. */
    size_t (*find)(const float *x, size_t n, float value);
    /* p[i] = exp((x[i] - max) * inv_temperature) unless p is NULL; returns their sum. */
    float (*softmax)(const float *x, size_t n, float max, float inv_temperature, float *p);
};

extern const sp_vector_isa sp_vector_scalar;
#if defined(__x86_64__)
extern const sp_vector_isa sp_vector_avx2, sp_vector_avx512; /* need avx2 + fma; avx512 f, bw, dq, vl */
#elif defined(__aarch64__)
extern const sp_vector_isa sp_vector_neon;
#endif

/* A page's part of one kv head: K [E][32], a lane for each of the 32 tokens, then V [32][E16], a lane for each dim,
 * padded to E16 = E rounded up to 16. Elements are halves (fp16) in bf16 mode, so that a line is 32 lanes, else fp32.
 */
static inline size_t sp_kv_elem_bytes(sp_mode mode) { return mode == SP_MODE_BF16 ? sizeof(uint16_t) : sizeof(float); }
static inline size_t sp_kv_value_lanes(size_t head_dim) { return sp_round_up(head_dim, 16); }
static inline size_t sp_kv_value_offset(sp_mode mode, size_t head_dim) {
    return head_dim * SP_KV_PAGE_TOKENS * sp_kv_elem_bytes(mode);
}
static inline size_t sp_kv_head_bytes(sp_mode mode, size_t head_dim) {
    return sp_kv_value_offset(mode, head_dim) +
           SP_KV_PAGE_TOKENS * sp_kv_value_lanes(head_dim) * sp_kv_elem_bytes(mode);
}

/* fp32 elements of scratch that attention wants for n_rows = tokens * group rows: q and out [E16], scores [2][32] and
 * sums [16] of each row, and three numbers a row. */
static inline size_t sp_attention_scratch_elems(size_t n_rows, size_t head_dim) {
    return n_rows * (2 * sp_kv_value_lanes(head_dim) + 2 * SP_KV_PAGE_TOKENS + 16) + 3 * sp_round_up(n_rows, 16);
}

#endif
