/* Attention of a block of tokens and the query heads of one kv head, over 16 lanes; part of vector.inc.c.
 *
 * A row is one (token, head). For each page of 32 keys, from the first one that any row sees:
 *
 *   scores  s = q . k            lanes are keys, summed over dims       K panel [E][32]
 *   softmax m, p, l online          a row's 32 scores are two v16
 *   values  o = o * rescale + p . v   lanes are dims, summed over keys  V panel [32][E16]
 *
 * Pages lie scattered, and decoding is bound by fetching them: reading a panel fetches the next page's, line by line (a
 * burst of fetches, or none, takes twice as long on Zen 4).
 *
 * Both products are one function: C[row][lane] from A[row][k] and a panel B[k][lane], in the canonical order (blocks of
 * 32 k; e a chain of FMA from 0 over even k, o over odd k; C + (e + o)). The panel's row stays in registers for up to
 * TILE_ROWS rows, the page in L1 for all rows of the block. A row's result depends on its own q, position and visible
 * keys: pages that it sees nothing of are left out, keys before its window get p = 0, keys past its position are not in
 * the sums at all, so what lies in unwritten slots does not matter. */

/* chain[r][lane] += A[r] B[k + is_odd][lane], a pointing at A[0][k + is_odd]; k is even. What lies `ahead` bytes behind
 * the panel is fetched into L2, line by line as the panel is read. */
LANES void add_terms(bool is_f16, bool is_odd, int n_rows, int n_lanes, const float *restrict a, size_t lda,
                     const char *restrict b, size_t n_b, size_t k, ptrdiff_t ahead, v16 chain[TILE_ROWS][TILE_LANES]) {
    v16 term[TILE_LANES];
#pragma GCC unroll 2
    for (int l = 0; l < n_lanes; l++) {
        if (is_f16) { /* 32 of its lanes are a line */
            const uint16_t *row = (const uint16_t *)b + (k + is_odd) * n_b + 16 * l;
            if (l % 2 == 0) __builtin_prefetch((const char *)row + ahead, 0, 2);
            term[l] = v16_load_f16(row);
        } else {
            const float *row = (const float *)b + (k + is_odd) * n_b + 16 * l;
            __builtin_prefetch((const char *)row + ahead, 0, 2);
            term[l] = v16_load(row);
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
LANES void product_tile(bool is_f16, int n_rows, int n_lanes, const float *restrict a, size_t lda,
                        const char *restrict b, size_t n_b, size_t n_k, ptrdiff_t ahead, const float *restrict rescale,
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
            add_terms(is_f16, false, n_rows, n_lanes, a + k, lda, b, n_b, k, ahead, e);
            add_terms(is_f16, true, n_rows, n_lanes, a + k + 1, lda, b, n_b, k, ahead, o);
        }
        if (k < k1)
            add_terms(is_f16, false, n_rows, n_lanes, a + k, lda, b, n_b, k, ahead, e); /* without an odd partner */
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
    ptrdiff_t ahead; /* bytes from this panel to the one to fetch meanwhile */
    const float *rescale;
    float *c;
    size_t ldc;
} product_args;

/* One strip of n_lanes v16 from lane0 on, for rows [r0, r1) of at most TILE_ROWS. */
LANES void product_strip(bool is_f16, int n_lanes, const product_args *p, size_t r0, size_t r1, size_t lane0) {
    const float *a = p->a + r0 * p->lda, *rescale = p->rescale ? p->rescale + r0 : NULL;
    const char *b = p->b + lane0 * (is_f16 ? sizeof(uint16_t) : sizeof(float));
    float *c = p->c + r0 * p->ldc + lane0;
#define TILE(n)                                                                                       \
    case n:                                                                                           \
        product_tile(is_f16, n, n_lanes, a, p->lda, b, p->n_b, p->n_k, p->ahead, rescale, c, p->ldc); \
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

/* All rows x all lanes, rows in tiles of about equal height. */
LANES void product(bool is_f16, const product_args *p, size_t n_rows) {
    size_t height = sp_div_up(n_rows, sp_div_up(n_rows, TILE_ROWS));
    for (size_t r = 0; r < n_rows; r += height) {
        size_t end = sp_min_size(r + height, n_rows), lane = 0;
        for (; lane + 16 * TILE_LANES <= p->n_b; lane += 16 * TILE_LANES)
            product_strip(is_f16, TILE_LANES, p, r, end, lane);
        if (lane < p->n_b) product_strip(is_f16, 1, p, r, end, lane);
    }
}

static void product_f16(const product_args *p, size_t n_rows) { product(true, p, n_rows); }
static void product_fp32(const product_args *p, size_t n_rows) { product(false, p, n_rows); }
static void product_in(sp_mode mode, const product_args *p, size_t n_rows) {
    (mode == SP_MODE_BF16 ? product_f16 : product_fp32)(p, n_rows);
}

/* Rows of the block, r = token * group + head, in the task's scratch. */
typedef struct {
    size_t n;       /* R */
    size_t width;   /* E16 */
    float *q;       /* [R, E16], fp32 in both modes, as the weights below: only the cache is of 16 bits */
    float *s;       /* [2, R, 32] scores, then weights, of an even and an odd page */
    float *o;       /* [R, E16] */
    float *l;       /* [R, 16] sums of weights by lane */
    float *m;       /* [R] greatest score so far, in units of log 2 */
    float *new_m;   /* [R] this page included */
    float *rescale; /* [R] 2^(m - new_m) */
    float to_log2;  /* score to units of log 2: log2(e) * scale, or log2(e) where a cap has applied the scale already */
} attention_rows;

static attention_rows rows_start(const sp_attention_task *task) {
    size_t n_rows = task->n_tokens * task->group, n_padded = sp_round_up(n_rows, 16);
    attention_rows rows = {.n = n_rows, .width = sp_kv_value_lanes(task->head_dim), .q = task->scratch};
    rows.s = rows.q + n_rows * rows.width;
    rows.o = rows.s + 2 * n_rows * SP_KV_PAGE_TOKENS;
    rows.l = rows.o + n_rows * rows.width;
    rows.m = rows.l + n_rows * 16;
    rows.new_m = rows.m + n_padded;
    rows.rescale = rows.new_m + n_padded;
    rows.to_log2 = task->cap > 0 ? SP_LOG2_E : task->scale * SP_LOG2_E;
    for (size_t r = 0; r < n_rows; r++) {
        const float *q = task->q + r / task->group * task->ldq + r % task->group * task->head_dim;
        for (size_t i = 0; i < task->head_dim; i += 16) {
            v16 a = v16_load_n(q + i, sp_min_size(16, task->head_dim - i));
            v16_store(rows.q + r * rows.width + i, a);
        }
        for (size_t i = 0; i < rows.width; i += 16) v16_store(rows.o + r * rows.width + i, v16_set1(0.0f));
        v16_store(rows.l + r * 16, v16_set1(0.0f));
        rows.m[r] = -INFINITY;
    }
    return rows;
}

/* A page and the tokens [t0, t1) of the block that see some of it. */
typedef struct {
    size_t start;  /* position of its first key */
    const char *k; /* this kv head's part */
    size_t t0, t1;
    float *s;        /* [R, 32] */
    ptrdiff_t ahead; /* bytes from k to the next page's */
} page_view;

static page_view page_at(const sp_attention_task *task, const attention_rows *rows, size_t page, size_t last_page) {
    page_view view = {.start = page * SP_KV_PAGE_TOKENS, .k = task->kv + task->pages[page] * task->page_bytes};
    view.t0 = view.start > task->first_pos ? view.start - task->first_pos : 0;
    view.t1 = task->n_tokens;
    if (task->window > 0)
        view.t1 = sp_min_size(view.t1, view.start + SP_KV_PAGE_TOKENS - 1 + task->window - task->first_pos);
    view.s = rows->s + page % 2 * rows->n * SP_KV_PAGE_TOKENS;
    const char *next = task->kv + task->pages[sp_min_size(page + 1, last_page)] * task->page_bytes;
    view.ahead = next - view.k;
    return view;
}

static void scores_page(const sp_attention_task *task, const attention_rows *rows, const page_view *page) {
    size_t r = page->t0 * task->group;
    product_args p = {.a = rows->q + r * rows->width,
                      .lda = rows->width,
                      .b = page->k,
                      .n_b = SP_KV_PAGE_TOKENS,
                      .n_k = task->head_dim,
                      .ahead = page->ahead,
                      .c = page->s + r * SP_KV_PAGE_TOKENS,
                      .ldc = SP_KV_PAGE_TOKENS};
    product_in(task->mode, &p, page->t1 * task->group - r);
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

/* new_m = max(m, the page's greatest visible score). Scores of keys that are not visible become -inf. Returns whether
 * any row's has grown. */
static bool greatest_scores(const sp_attention_task *task, const attention_rows *rows, const page_view *page) {
    v16 scale_by = v16_set1(task->scale), cap = v16_set1(task->cap);
    bool grown = false;
    for (size_t t = page->t0; t < page->t1; t++) {
        size_t lo, hi;
        visible_keys(task, page->start, t, &lo, &hi);
        bool is_partial = lo > 0 || hi < SP_KV_PAGE_TOKENS;
        for (size_t r = t * task->group; r < (t + 1) * task->group; r++) {
            float *s = page->s + r * SP_KV_PAGE_TOKENS;
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
            float greatest = v16_greatest(v16_max(a, b)) * rows->to_log2, m = rows->m[r];
            grown |= greatest > m;
            rows->new_m[r] = greatest > m ? greatest : m;
            rows->rescale[r] = 1.0f;
        }
    }
    return grown;
}

/* Scores to weights. With u = to_log2: m = max(m, s u); p = 2^(s u - m);
 * l = l * 2^(old m - m) + (p of keys 0-15 + p of keys 16-31), lane by lane. */
static void softmax_page(const sp_attention_task *task, const attention_rows *rows, const page_view *page) {
    size_t r0 = page->t0 * task->group, r1 = page->t1 * task->group;
    if (greatest_scores(task, rows, page)) { /* else 2^0 = 1 stands; past a row's first pages it mostly does */
        for (size_t r = r0; r < r1; r += 16) {
            size_t n_lanes = sp_min_size(16, r1 - r);
            v16 new_m = v16_load_n(rows->new_m + r, n_lanes);
            v16_store_n(rows->rescale + r, n_lanes, v16_exp2_weight(v16_sub(v16_load_n(rows->m + r, n_lanes), new_m)));
            v16_store_n(rows->m + r, n_lanes, new_m);
        }
    }
    v16 unit = v16_set1(rows->to_log2);
    for (size_t r = r0; r < r1; r++) {
        float *s = page->s + r * SP_KV_PAGE_TOKENS, *l = rows->l + r * 16;
        v16 minus_m = v16_set1(-rows->m[r]);
        v16 a = v16_exp2_weight(v16_fma(v16_load(s), unit, minus_m));
        v16 b = v16_exp2_weight(v16_fma(v16_load(s + 16), unit, minus_m));
        v16_store(s, a);
        v16_store(s + 16, b);
        v16_store(l, v16_add(v16_mul(v16_load(l), v16_set1(rows->rescale[r])), v16_add(a, b)));
    }
}

/* o = o * rescale + p . v: token by token while one does not see the page's end, then all the others together. */
static void values_page(const sp_attention_task *task, const attention_rows *rows, const page_view *page) {
    for (size_t t = page->t0; t < page->t1;) {
        size_t lo, hi, r = t * task->group;
        visible_keys(task, page->start, t, &lo, &hi);
        size_t n_tokens = hi == SP_KV_PAGE_TOKENS ? page->t1 - t : 1;
        product_args p = {.a = page->s + r * SP_KV_PAGE_TOKENS,
                          .lda = SP_KV_PAGE_TOKENS,
                          .b = page->k + sp_kv_value_offset(task->mode, task->head_dim),
                          .n_b = rows->width,
                          .n_k = hi,
                          .ahead = page->ahead,
                          .rescale = rows->rescale + r,
                          .c = rows->o + r * rows->width,
                          .ldc = rows->width};
        product_in(task->mode, &p, n_tokens * task->group);
        t += n_tokens;
    }
}

/* The next page's scores come between a page's softmax and its values: they need nothing of it, so the processor works
 * on them while the softmax, one long chain where rows are few, drains. */
static void attention(const sp_attention_task *task) {
    attention_rows rows = rows_start(task);
    size_t first_key = task->window == 0 || task->first_pos < task->window ? 0 : task->first_pos - task->window + 1;
    size_t page = first_key / SP_KV_PAGE_TOKENS;
    size_t last_page = (task->first_pos + task->n_tokens - 1) / SP_KV_PAGE_TOKENS;
    page_view view = page_at(task, &rows, page, last_page), next = view;
    scores_page(task, &rows, &view);
    for (; page <= last_page; page++, view = next) {
        softmax_page(task, &rows, &view);
        if (page < last_page) {
            next = page_at(task, &rows, page + 1, last_page);
            scores_page(task, &rows, &next);
        }
        values_page(task, &rows, &view);
    }
    for (size_t r = 0; r < rows.n; r++) {
        float *out = task->out + r / task->group * task->ldo + r % task->group * task->head_dim;
        v16 sum = v16_set1(v16_sum(v16_load(rows.l + r * 16)));
        for (size_t i = 0; i < task->head_dim; i += 16) {
            size_t n_lanes = sp_min_size(16, task->head_dim - i);
            v16_store_n(out + i, n_lanes, v16_div(v16_load(rows.o + r * rows.width + i), sum));
        }
    }
}
