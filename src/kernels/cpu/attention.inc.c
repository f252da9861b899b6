/* Attention of a block of tokens and the query heads of one kv head, over 16 lanes; part of vector.inc.c.
 *
 * A row is one (token, head). For each page of 32 keys, from the first one that any row sees:
 *
 *   scores  s = q . k            lanes are keys, summed over dims       K panel [E][32]
 *   softmax m, p, l online          a row's 32 scores are two v16
 *   values  o = o * rescale + p . v   lanes are dims, summed over keys  V panel [32][E16]
 *
 * Both products are one function: C[row][lane] from A[row][k] and a panel B[k][lane], in the canonical order (blocks of
 * 32 k; e a chain of FMA from 0 over even k, o over odd k; C + (e + o)). The panel's row stays in registers for up to
 * TILE_ROWS rows, the page in L1 for all rows of the block. A row's result depends on its own q, position and visible
 * keys: pages that it sees nothing of are left out, keys before its window get p = 0, keys past its position are not in
 * the sums at all, so what lies in unwritten slots does not matter. */

/* chain[r][lane] += A[r] B[k + is_odd][lane], a pointing at A[0][k + is_odd]; k is even. */
LANES void add_terms(bool is_bf16, bool is_odd, int n_rows, int n_lanes, const float *restrict a, size_t lda,
                     const char *restrict b, size_t n_b, size_t k, v16 chain[TILE_ROWS][TILE_LANES]) {
    v16 term[TILE_LANES];
#pragma GCC unroll 2
    for (int l = 0; l < n_lanes; l++) {
        if (is_bf16) {
            const sp_bf16 *pairs = (const sp_bf16 *)b + k * n_b + 32 * l;
            term[l] = is_odd ? v16_load_odd(pairs) : v16_load_even(pairs);
        } else {
            term[l] = v16_load((const float *)b + (k + is_odd) * n_b + 16 * l);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++) {
        v16 factor = v16_set1(a[r * lda]);
#pragma GCC unroll 2
        for (int l = 0; l < n_lanes; l++) chain[r][l] = v16_fma(factor, term[l], chain[r][l]);
    }
}

/* C[r][lane] (+)= A[r][0 .. n_k) . B[0 .. n_k)[lane] for n_rows x n_lanes v16, both constants after inlining. n_b is
 * the panel's width in lanes. rescale NULL: C starts at 0, else at C * rescale[r]. */
LANES void product_tile(bool is_bf16, int n_rows, int n_lanes, const float *restrict a, size_t lda,
                        const char *restrict b, size_t n_b, size_t n_k, const float *restrict rescale,
                        float *restrict c, size_t ldc) {
    for (size_t k0 = 0; k0 < n_k; k0 += 32) {
        v16 e[TILE_ROWS][TILE_LANES], o[TILE_ROWS][TILE_LANES];
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
#pragma GCC unroll 2
            for (int l = 0; l < n_lanes; l++) e[r][l] = o[r][l] = v16_set1(0.0f);
        }
        size_t k = k0, k1 = sp_min_size(k0 + 32, n_k);
        for (; k + 2 <= k1; k += 2) {
            add_terms(is_bf16, false, n_rows, n_lanes, a + k, lda, b, n_b, k, e);
            add_terms(is_bf16, true, n_rows, n_lanes, a + k + 1, lda, b, n_b, k, o);
        }
        if (k < k1) add_terms(is_bf16, false, n_rows, n_lanes, a + k, lda, b, n_b, k, e); /* without an odd partner */
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
#pragma GCC unroll 2
            for (int l = 0; l < n_lanes; l++) {
                float *to = c + r * ldc + 16 * l;
                v16 old = v16_set1(0.0f);
                if (k0 > 0) {
                    old = v16_load(to);
                } else if (rescale) {
                    old = v16_mul(v16_load(to), v16_set1(rescale[r]));
                }
                v16_store(to, v16_add(old, v16_add(e[r][l], o[r][l])));
            }
        }
    }
}

typedef struct {
    const float *a;
    size_t lda;
    const char *b;
    size_t n_b; /* lanes of the panel, a multiple of 16 */
    size_t n_k;
    const float *rescale;
    float *c;
    size_t ldc;
} product_args;

/* One strip of n_lanes v16 from lane0 on, for rows [r0, r1) of at most TILE_ROWS. */
LANES void product_strip(bool is_bf16, int n_lanes, const product_args *p, size_t r0, size_t r1, size_t lane0) {
    const float *a = p->a + r0 * p->lda, *rescale = p->rescale ? p->rescale + r0 : NULL;
    const char *b = p->b + lane0 * (is_bf16 ? 2 * sizeof(sp_bf16) : sizeof(float));
    float *c = p->c + r0 * p->ldc + lane0;
#define TILE(n)                                                                              \
    case n:                                                                                  \
        product_tile(is_bf16, n, n_lanes, a, p->lda, b, p->n_b, p->n_k, rescale, c, p->ldc); \
        break
    switch (r1 - r0) {
        TILE(1);
#if TILE_ROWS >= 2
        TILE(2);
#endif
#if TILE_ROWS >= 3
        TILE(3);
#endif
#if TILE_ROWS >= 4
        TILE(4);
        TILE(5);
        TILE(6);
#endif
    }
#undef TILE
}

/* All rows x all lanes, rows in tiles of equal height. */
LANES void product(bool is_bf16, const product_args *p, size_t n_rows) {
    size_t n_tiles = sp_div_up(n_rows, TILE_ROWS);
    for (size_t i = 0; i < n_tiles; i++) {
        size_t r0 = n_rows * i / n_tiles, r1 = n_rows * (i + 1) / n_tiles, lane = 0;
        for (; lane + 16 * TILE_LANES <= p->n_b; lane += 16 * TILE_LANES)
            product_strip(is_bf16, TILE_LANES, p, r0, r1, lane);
        if (lane < p->n_b) product_strip(is_bf16, 1, p, r0, r1, lane);
    }
}

static void product_bf16(const product_args *p, size_t n_rows) { product(true, p, n_rows); }
static void product_fp32(const product_args *p, size_t n_rows) { product(false, p, n_rows); }

/* Rows of the block, r = token * group + head, in the task's scratch. */
typedef struct {
    float *q;       /* [R, E16], rounded to bf16 in bf16 mode */
    float *s;       /* [R, 32] scores, then weights */
    float *o;       /* [R, E16] */
    float *l;       /* [R, 16] sums of weights by lane */
    float *m;       /* [R] greatest score so far */
    float *new_m;   /* [R] this page included */
    float *rescale; /* [R] exp(m - new_m) */
    size_t width;   /* E16 */
} attention_rows;

static attention_rows rows_start(const sp_attention_task *task) {
    size_t n_rows = task->n_tokens * task->group, n_padded = sp_round_up(n_rows, 16);
    attention_rows rows = {.width = sp_kv_value_lanes(task->head_dim), .q = task->scratch};
    rows.s = rows.q + n_rows * rows.width;
    rows.o = rows.s + n_rows * SP_KV_PAGE_TOKENS;
    rows.l = rows.o + n_rows * rows.width;
    rows.m = rows.l + n_rows * 16;
    rows.new_m = rows.m + n_padded;
    rows.rescale = rows.new_m + n_padded;
    for (size_t r = 0; r < n_rows; r++) {
        const float *q = task->q + r / task->group * task->ldq + r % task->group * task->head_dim;
        for (size_t i = 0; i < task->head_dim; i += 16) {
            v16 a = v16_load_n(q + i, sp_min_size(16, task->head_dim - i));
            v16_store(rows.q + r * rows.width + i, task->mode == SP_MODE_BF16 ? v16_round_bf16(a) : a);
        }
        for (size_t i = 0; i < rows.width; i += 16) v16_store(rows.o + r * rows.width + i, v16_set1(0.0f));
        v16_store(rows.l + r * 16, v16_set1(0.0f));
        rows.m[r] = -INFINITY;
    }
    return rows;
}

/* Keys [lo, hi) of the page that starts at position `start`, as token t sees it. */
static void visible_keys(const sp_attention_task *task, size_t start, size_t t, size_t *lo, size_t *hi) {
    size_t pos = task->first_pos + t;
    size_t first = task->window == 0 || pos < task->window ? 0 : pos - task->window + 1;
    *lo = first > start ? first - start : 0;
    *hi = sp_min_size(SP_KV_PAGE_TOKENS, pos + 1 - start);
}

/* 2^z for z <= 0 (a rounding error above it does no harm), 0 from SP_EXP2_ZERO down, NaN stays NaN. */
LANES v16 v16_exp2_weight(v16 z) {
    v16 t = v16_add(z, v16_set1(SP_ROUND_MAGIC));
    v16 f = v16_sub(z, v16_sub(t, v16_set1(SP_ROUND_MAGIC)));
    v16 q = v16_fma(v16_set1(SP_EXP2_C_4), f, v16_set1(SP_EXP2_C_3));
    q = v16_fma(q, f, v16_set1(SP_EXP2_C_2));
    q = v16_fma(q, f, v16_set1(SP_EXP2_C_1));
    q = v16_fma(q, f, v16_set1(SP_EXP2_C_0));
    v16 p = v16_scale_exp(v16_fma(q, f, v16_set1(1.0f)), t);
    return v16_if_lt(v16_set1(SP_EXP2_ZERO), z, p, v16_max(v16_set1(0.0f), z));
}

/* To 8 significant bits, a bf16: p c - (p c - p) with c = 2^16 + 1 rounds p to nearest (Veltkamp's splitting). */
LANES v16 v16_split_bf16(v16 p) {
    v16 scaled = v16_mul(p, v16_set1(65537.0f));
    return v16_sub(scaled, v16_sub(scaled, p));
}

/* The page's greatest visible score of each row of tokens [t0, t1), times to_log2, into new_m, or m where that is
 * greater. Scores of keys that are not visible become -inf. */
static void greatest_scores(const sp_attention_task *task, const attention_rows *rows, float to_log2, size_t start,
                            size_t t0, size_t t1) {
    v16 scale_by = v16_set1(task->scale), cap = v16_set1(task->cap);
    for (size_t t = t0; t < t1; t++) {
        size_t lo, hi;
        visible_keys(task, start, t, &lo, &hi);
        bool is_partial = lo > 0 || hi < SP_KV_PAGE_TOKENS;
        for (size_t r = t * task->group; r < (t + 1) * task->group; r++) {
            float *s = rows->s + r * SP_KV_PAGE_TOKENS;
            v16 a = v16_load(s), b = v16_load(s + 16);
            if (task->cap > 0) {
                a = v16_mul(cap, v16_tanh(v16_div(v16_mul(a, scale_by), cap)));
                b = v16_mul(cap, v16_tanh(v16_div(v16_mul(b, scale_by), cap)));
            }
            if (is_partial) {
                a = v16_keep(a, sp_min_size(lo, 16), sp_min_size(hi, 16), -INFINITY);
                b = v16_keep(b, lo < 16 ? 0 : lo - 16, hi < 16 ? 0 : hi - 16, -INFINITY);
            }
            if (is_partial || task->cap > 0) {
                v16_store(s, a);
                v16_store(s + 16, b);
            }
            float greatest = v16_greatest(v16_max(a, b)) * to_log2;
            rows->new_m[r] = greatest > rows->m[r] ? greatest : rows->m[r];
        }
    }
}

/* Scores to weights for tokens [t0, t1). Exponents are in units of log 2: u = log2(e) * scale, or log2(e) where a cap
 * has applied the scale already; m = max(m, s u); p = 2^(s u - m), rounded to bf16 in bf16 mode;
 * l = l * 2^(old m - m) + (p of keys 0-15 + p of keys 16-31), lane by lane. */
static void softmax_page(const sp_attention_task *task, const attention_rows *rows, size_t start, size_t t0,
                         size_t t1) {
    size_t r0 = t0 * task->group, r1 = t1 * task->group;
    float to_log2 = task->cap > 0 ? SP_LOG2_E : task->scale * SP_LOG2_E;
    greatest_scores(task, rows, to_log2, start, t0, t1);
    for (size_t r = r0; r < r1; r += 16) {
        size_t n_lanes = sp_min_size(16, r1 - r);
        v16 new_m = v16_load_n(rows->new_m + r, n_lanes);
        v16_store_n(rows->rescale + r, n_lanes, v16_exp2_weight(v16_sub(v16_load_n(rows->m + r, n_lanes), new_m)));
        v16_store_n(rows->m + r, n_lanes, new_m);
    }
    v16 unit = v16_set1(to_log2);
    for (size_t r = r0; r < r1; r++) {
        float *s = rows->s + r * SP_KV_PAGE_TOKENS, *l = rows->l + r * 16;
        v16 minus_m = v16_set1(-rows->m[r]);
        v16 a = v16_exp2_weight(v16_fma(v16_load(s), unit, minus_m));
        v16 b = v16_exp2_weight(v16_fma(v16_load(s + 16), unit, minus_m));
        if (task->mode == SP_MODE_BF16) {
            a = v16_split_bf16(a);
            b = v16_split_bf16(b);
        }
        v16_store(s, a);
        v16_store(s + 16, b);
        v16_store(l, v16_add(v16_mul(v16_load(l), v16_set1(rows->rescale[r])), v16_add(a, b)));
    }
}

/* o = o * rescale + p . v for tokens [t0, t1): one by one while a token does not see the page's end, then together. */
static void values_page(const sp_attention_task *task, const attention_rows *rows, const char *v, size_t start,
                        size_t t0, size_t t1) {
    while (t0 < t1) {
        size_t lo, hi, r = t0 * task->group;
        visible_keys(task, start, t0, &lo, &hi);
        size_t n_tokens = hi == SP_KV_PAGE_TOKENS ? t1 - t0 : 1;
        product_args p = {rows->s + r * SP_KV_PAGE_TOKENS, SP_KV_PAGE_TOKENS, v, rows->width, hi, rows->rescale + r,
                          rows->o + r * rows->width,       rows->width};
        (task->mode == SP_MODE_BF16 ? product_bf16 : product_fp32)(&p, n_tokens * task->group);
        t0 += n_tokens;
    }
}

static void prefetch(const char *p, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(p + i);
}

static void attention(const sp_attention_task *task) {
    attention_rows rows = rows_start(task);
    size_t last_pos = task->first_pos + task->n_tokens - 1, group = task->group;
    size_t first_key = task->window == 0 || task->first_pos < task->window ? 0 : task->first_pos - task->window + 1;
    size_t head_bytes = sp_kv_head_bytes(task->mode, task->head_dim);
    size_t v_offset = sp_kv_value_offset(task->mode, task->head_dim);
    for (size_t page = first_key / SP_KV_PAGE_TOKENS; page <= last_pos / SP_KV_PAGE_TOKENS; page++) {
        const char *k = task->kv + task->pages[page] * task->page_bytes;
        if (page < last_pos / SP_KV_PAGE_TOKENS)
            prefetch(task->kv + task->pages[page + 1] * task->page_bytes, head_bytes);
        size_t start = page * SP_KV_PAGE_TOKENS; /* tokens [t0, t1) see some of the page */
        size_t t0 = start > task->first_pos ? start - task->first_pos : 0, t1 = task->n_tokens;
        if (task->window > 0) t1 = sp_min_size(t1, start + SP_KV_PAGE_TOKENS - 1 + task->window - task->first_pos);
        product_args p = {
            rows.q + t0 * group * rows.width,        rows.width,       k, SP_KV_PAGE_TOKENS, task->head_dim, NULL,
            rows.s + t0 * group * SP_KV_PAGE_TOKENS, SP_KV_PAGE_TOKENS};
        (task->mode == SP_MODE_BF16 ? product_bf16 : product_fp32)(&p, (t1 - t0) * group);
        softmax_page(task, &rows, start, t0, t1);
        values_page(task, &rows, k + v_offset, start, t0, t1);
    }
    for (size_t r = 0; r < task->n_tokens * group; r++) {
        float *out = task->out + r / group * task->ldo + r % group * task->head_dim;
        v16 sum = v16_set1(v16_sum(v16_load(rows.l + r * 16)));
        for (size_t i = 0; i < task->head_dim; i += 16) {
            size_t n_lanes = sp_min_size(16, task->head_dim - i);
            v16_store_n(out + i, n_lanes, v16_div(v16_load(rows.o + r * rows.width + i), sum));
        }
    }
}
