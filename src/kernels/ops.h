/* Operations of the engine: whole steps of a pass over all its tokens, spread over the device's threads.
 *
 * Numerics are docs/DESIGN.md section 1: every output element has one owner and one order of summation, the same for
 * any number of tokens, threads, chunks of rows and on every ISA. T tokens of this pass, D model width, H query heads,
 * K kv heads, E head dim, F ffn width, N rows and k columns of a matrix. All fp32 buffers are row-major [T, width] with
 * a leading dimension in elements, 64-byte aligned; "packed" buffers are opaque and hold activations as the products
 * want them.
 *
 * No function here allocates, fails or blocks on anything but the pool. Arguments are checked by assert. */
#ifndef SPILL_KERNELS_OPS_H
#define SPILL_KERNELS_OPS_H

#include "kernels/device.h"

/* ---- linear layers (kernels/linear.c) ---- */

/* Bytes of a packed buffer for n_tokens x k activations, and for any fewer; 64-byte aligned memory. */
size_t sp_packed_bytes(const sp_device *device, size_t n_tokens, size_t k);

/* packed <- x [n_tokens, k]; in bf16 mode each value rounded to bf16. */
void sp_op_pack(sp_device *device, const float *x, size_t ldx, size_t n_tokens, size_t k, void *packed);

/* Weights that stay in memory need not lie as in the file. In panel form every whole panel of sp_panel_rows rows holds
 * its weights as bf16 in the order in which products read them, in the memory that its rows took; rows past the last
 * whole panel stay as they are. Results are the same bytes, sooner: nothing is transposed in a pass. What the form is
 * belongs to the device's ISA. */

/* Rows of a panel of such a matrix; 0: it has no panel form (quantized, fp32 mode, k not whole blocks, the ISA). */
size_t sp_panel_rows(const sp_device *device, const sp_format *format, size_t k);
/* w [n_rows, k], row after row and 64-byte aligned, into panel form, in place. */
void sp_op_panels(sp_device *device, const sp_format *format, void *w, size_t n_rows, size_t k);
/* Takes the memory that sp_op_panels needs for rows of up to k, which does so itself otherwise. */
void sp_panel_reserve(sp_device *device, size_t k);
/* out [k] <- row i_row of w [n_rows, k] in panel form, which was bf16 before. Any thread. */
void sp_panel_row(const sp_device *device, const void *w, size_t n_rows, size_t k, size_t i_row, sp_bf16 *out);

typedef struct {
    const sp_format *format;
    const void *w;    /* [n_rows, k] as it lies in the file, any alignment; or in panel form */
    size_t row_bytes; /* bytes from row to row, of the file's form; in panel form no gaps */
    size_t n_rows, k;
    const float *bias; /* [n_rows] or NULL */
    bool add;          /* y += instead of y = */
    float *y;          /* y[t * ldy + row] = dot(w[row], x[t]) + bias[row] */
    size_t ldy;
    bool panels; /* w is in panel form */
} sp_linear;

/* Runs n_jobs products, SP_LINEAR_JOBS at most, over the same packed activations [n_tokens, k] in one fork-join (q, k
 * and v; gate and up; chunks of them). */
enum { SP_LINEAR_JOBS = 32 };
void sp_op_linear(sp_device *device, const sp_linear *jobs, size_t n_jobs, const void *packed, size_t n_tokens);

/* ---- everything else (kernels/vector.c) ---- */

/* out[t] = table row of token t, times scale: rows[t] points to that token's row of k elements in `format` (rounded to
 * bf16 in bf16 mode, as every weight is). */
void sp_op_embed(sp_device *device, const sp_format *format, const void *const *rows, size_t n_tokens, size_t k,
                 float scale, float *out, size_t ldo);

/* RMS norm of each row: x * rsqrt(mean(x^2) + eps) * w. plus_one: times (1 + w) (Gemma). out may be x. */
typedef struct {
    const float *w; /* [D] */
    float eps;
    bool plus_one;
} sp_norm;
void sp_op_norm(sp_device *device, const sp_norm *norm, const float *x, size_t ldx, size_t n_tokens, size_t d,
                float *out, size_t ldo);
/* The same, straight into a packed buffer [n_tokens, d]. */
void sp_op_norm_pack(sp_device *device, const sp_norm *norm, const float *x, size_t ldx, size_t n_tokens, size_t d,
                     void *packed);

typedef enum { SP_ACT_SILU, SP_ACT_GELU_TANH } sp_act;
/* Columns [f0, f0 + n_cols) of packed [n_tokens, f] <- act(gate) * up. The feed-forward's width is worked off in such
 * blocks, so that gate and up never exist in full, however wide the model and long the pass. f0 is a multiple of
 * SP_PACK_COLS, n_cols too unless the block is the last. */
enum { SP_PACK_COLS = 64 };
typedef struct {
    sp_act act;
    const float *gate, *up; /* [n_tokens, n_cols] */
    size_t ld;
    size_t n_tokens;
    size_t f0, n_cols, f;
} sp_glu;
void sp_op_glu_pack(sp_device *device, const sp_glu *glu, void *packed);

/* KV cache of one layer: pages of SP_KV_PAGE_TOKENS tokens, all kv heads of a page together, 64-byte aligned. What lies
 * in a page is the kernels' own (kernels/vector.h): elements are fp16 in bf16 mode, else fp32, in the order attention
 * reads them. Slots that no token has been written to may hold anything. Scattered pages are read a fifth faster where
 * the array lies in huge pages (madvise). */
enum { SP_KV_PAGE_TOKENS = 32 };
size_t sp_kv_page_bytes(const sp_device *device, size_t n_kv_heads,
                        size_t head_dim); /* of one layer, a multiple of 64 */

/* A run of consecutive tokens of one row: tokens [first_token, first_token + n_tokens) of the pass are positions
 * [first_pos, ...) of the row whose KV pages, in order of position, are `pages` (indices into the layer's page array).
 */
typedef struct {
    size_t first_token, n_tokens;
    size_t first_pos;
    const uint32_t *pages; /* [ceil((first_pos + n_tokens) / SP_KV_PAGE_TOKENS)] */
} sp_kv_span;

/* Rotary table: cos and sin for each token of the pass, [T][n_dims/2], attention factor included: row t belongs to
 * token t, so rows of text whose frequencies differ (longrope, dynamic) may share a pass. Built once a pass by the
 * engine from sp_rope (model/arch.h) with sp_rope_fill. */
typedef struct {
    const float *cos, *sin;
    size_t n_dims;    /* even, <= E; dims past it pass through */
    bool interleaved; /* q and k rows come as pairs (2j, 2j+1) (GGUF's order); they leave as (j, j + n_dims/2) */
} sp_rope_table;

/* angle of position p and pair j is (float)p * inv_freq[j], in fp32 as transformers; cos and sin by our own
 * polynomials, times scale. */
void sp_rope_fill(const float *inv_freq, size_t n_pairs, size_t first_pos, size_t n_positions, float scale, float *cos,
                  float *sin);

typedef struct {
    size_t n_heads, n_kv_heads, head_dim; /* H, K, E */
    float *q;                             /* [T, H*E] in place: q norm, then rope */
    const float *k, *v;                   /* [T, K*E]: k norm and rope on the way into the cache */
    size_t ldq, ldkv;
    const float *q_norm, *k_norm; /* [E] or NULL; RMS per head before rope */
    float norm_eps;
    bool norm_plus_one;
    const sp_rope_table *rope; /* NULL: no rotation */
    const sp_kv_span *spans;
    size_t n_spans;
    void *kv; /* this layer's page array */
} sp_rope_kv_args;
void sp_op_rope_kv(sp_device *device, const sp_rope_kv_args *args);

/* out[t, h] = sum over visible keys of softmax(scale * q.k) v; key p is visible to position i iff p <= i and (window ==
 * 0 or p > i - window). cap > 0: scores become cap * tanh(score / cap) before the mask. Keys in blocks of 32 anchored
 * at position 0, online softmax in that order; same code for prefill and decode. The rows of one pass may be anywhere
 * in their text. Tokens outside the spans are neither read nor written (the last layer asks for few). */
typedef struct {
    size_t n_heads, n_kv_heads, head_dim;
    const float *q; /* [T, H*E] */
    size_t ldq;
    float scale, cap;
    size_t window;
    const sp_kv_span *spans;
    size_t n_spans;
    const void *kv;
    float *out; /* [T, H*E] */
    size_t ldo;
    void *packed;    /* not NULL: the result goes here, packed [T, H*E], and `out` is scratch */
    size_t n_tokens; /* T */
} sp_attention_args;
void sp_op_attention(sp_device *device, const sp_attention_args *args);

/* x = cap * tanh(x / cap) */
void sp_op_softcap(sp_device *device, float cap, float *x, size_t n);

/* ---- logits to log-probabilities; per row, callable from any thread inside sp_fpenv_enter ---- */

/* log(sum(exp(x))): maximum first, then a fixed tree. *is_finite false when any x is NaN or +inf (all -inf counts too).
 */
float sp_logsumexp(const sp_device *device, const float *x, size_t n, bool *is_finite);
/* p[i] = exp((x[i] - max) * inv_temperature), returns their sum by a fixed tree. */
float sp_softmax_weights(const sp_device *device, const float *x, size_t n, float inv_temperature, float *p);
/* Index of the greatest, ties to the lower index. */
size_t sp_argmax(const sp_device *device, const float *x, size_t n);

/* Our own exp, log, tanh, sin, cos on one number: bit-equal to what the vector code computes (kernels/math.c). */
float sp_exp(float x);
float sp_log(float x);
float sp_tanh(float x);
void sp_sincos(float x, float *sin_x, float *cos_x);

#endif
