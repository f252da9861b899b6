/* Operations on whole passes that are not products: embedding, norms, feed-forward activation, logits.
 *
 * Each is rows of the same work, handed to the threads in chunks of neighbouring tokens; what happens in a row is the
 * ISA's (vector.h). A chunk holds enough work to be worth a thread's waking, so that small passes run in the caller. */
#include "kernels/vector.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const sp_vector_isa *sp_vector_isa_find(const char *isa_name) {
    static const sp_vector_isa *const tables[] = {
#if defined(__x86_64__)
        &sp_vector_avx512,
        &sp_vector_avx2,
#elif defined(__aarch64__)
        &sp_vector_neon,
#endif
        &sp_vector_scalar,
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i]->isa, isa_name) == 0) return tables[i];
    return NULL;
}

enum { CHUNK_ELEMS = 8192, CHUNKS_PER_THREAD = 4 };

static size_t n_chunks(const sp_device *device, size_t n_rows, size_t row_elems) {
    size_t by_work = n_rows * row_elems / CHUNK_ELEMS + 1;
    return sp_min_size(n_rows, sp_min_size(by_work, CHUNKS_PER_THREAD * device->n_threads));
}

typedef struct {
    sp_device *device;
    size_t n_tokens, n_chunks;
    const void *op;
} row_job; /* rows [n_tokens * i / n_chunks, n_tokens * (i + 1) / n_chunks) are chunk i's */

static void run_rows(sp_device *device, size_t n_tokens, size_t row_elems, sp_task_fn *fn, const void *op) {
    row_job job = {device, n_tokens, n_chunks(device, n_tokens, row_elems), op};
    sp_pool_run(device->pool, job.n_chunks, fn, &job);
}
static size_t chunk_begin(const row_job *job, size_t i) { return job->n_tokens * i / job->n_chunks; }

/* ---- embedding ---- */

typedef struct {
    const sp_format *format;
    const void *const *rows;
    size_t k;
    float scale;
    float *out;
    size_t ldo;
} embed_op;

static void embed_chunk(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const row_job *job = ctx;
    const embed_op *op = job->op;
    for (size_t t = chunk_begin(job, i_task); t < chunk_begin(job, i_task + 1); t++) {
        float *out = op->out + t * op->ldo;
        op->format->to_f32(op->rows[t], op->k, out);
        job->device->vector->scale(job->device->mode, op->scale, op->k, out);
    }
}

void sp_op_embed(sp_device *device, const sp_format *format, const void *const *rows, size_t n_tokens, size_t k,
                 float scale, float *out, size_t ldo) {
    assert(k % format->block_elems == 0 && ldo >= k);
    embed_op op = {format, rows, k, scale, out, ldo};
    run_rows(device, n_tokens, k, embed_chunk, &op);
}

/* ---- norm ---- */

typedef struct {
    const sp_norm *norm;
    const float *x;
    size_t ldx, d;
    float *out; /* or packed */
    size_t ldo;
    void *packed;
} norm_op;

static void norm_chunk(void *ctx, size_t i_task, size_t i_thread) {
    const row_job *job = ctx;
    const norm_op *op = job->op;
    const sp_device *device = job->device;
    for (size_t t = chunk_begin(job, i_task); t < chunk_begin(job, i_task + 1); t++) {
        float *out = op->packed ? device->scratch[i_thread] : op->out + t * op->ldo;
        device->vector->norm(op->norm, op->x + t * op->ldx, op->d, out);
        if (op->packed) device->linear->pack_row(device->mode, out, 0, op->d, op->d, t, job->n_tokens, op->packed);
    }
}

void sp_op_norm(sp_device *device, const sp_norm *norm, const float *x, size_t ldx, size_t n_tokens, size_t d,
                float *out, size_t ldo) {
    assert(ldx >= d && ldo >= d);
    norm_op op = {norm, x, ldx, d, out, ldo, NULL};
    run_rows(device, n_tokens, d, norm_chunk, &op);
}

void sp_op_norm_pack(sp_device *device, const sp_norm *norm, const float *x, size_t ldx, size_t n_tokens, size_t d,
                     void *packed) {
    assert(ldx >= d);
    norm_op op = {norm, x, ldx, d, NULL, 0, packed};
    sp_device_scratch(device, d * sizeof(float));
    run_rows(device, n_tokens, d, norm_chunk, &op);
}

/* ---- feed-forward ---- */

typedef struct {
    const sp_glu *glu;
    void *packed;
} glu_op;

static void glu_chunk(void *ctx, size_t i_task, size_t i_thread) {
    const row_job *job = ctx;
    const glu_op *op = job->op;
    const sp_glu *glu = op->glu;
    const sp_device *device = job->device;
    float *row = device->scratch[i_thread];
    for (size_t t = chunk_begin(job, i_task); t < chunk_begin(job, i_task + 1); t++) {
        device->vector->glu(glu->act, glu->gate + t * glu->ld, glu->up + t * glu->ld, glu->n_cols, row);
        device->linear->pack_row(device->mode, row, glu->f0, glu->n_cols, glu->f, t, job->n_tokens, op->packed);
    }
}

void sp_op_glu_pack(sp_device *device, const sp_glu *glu, void *packed) {
    assert(glu->f0 % SP_PACK_COLS == 0 && glu->ld >= glu->n_cols && glu->f0 + glu->n_cols <= glu->f);
    assert(glu->n_cols % SP_PACK_COLS == 0 || glu->f0 + glu->n_cols == glu->f);
    glu_op op = {glu, packed};
    sp_device_scratch(device, glu->n_cols * sizeof(float));
    run_rows(device, glu->n_tokens, glu->n_cols, glu_chunk, &op);
}

/* ---- logits ---- */

typedef struct {
    float cap;
    size_t n;
    float *x;
} softcap_op; /* rows are runs of SP_PACK_COLS elements */

static void softcap_chunk(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const row_job *job = ctx;
    const softcap_op *op = job->op;
    size_t begin = chunk_begin(job, i_task) * SP_PACK_COLS, end = chunk_begin(job, i_task + 1) * SP_PACK_COLS;
    job->device->vector->softcap(op->cap, sp_min_size(end, op->n) - begin, op->x + begin);
}

void sp_op_softcap(sp_device *device, float cap, float *x, size_t n) {
    softcap_op op = {cap, n, x};
    run_rows(device, sp_div_up(n, SP_PACK_COLS), SP_PACK_COLS, softcap_chunk, &op);
}

float sp_logsumexp(const sp_device *device, const float *x, size_t n, bool *is_finite) {
    float max = device->vector->max(x, n);
    float sum = device->vector->softmax(x, n, max, 1.0f, NULL); /* NaN if any x is NaN or max is infinite */
    *is_finite = isfinite(sum);
    return max + sp_log(sum);
}

float sp_softmax_weights(const sp_device *device, const float *x, size_t n, float inv_temperature, float *p) {
    return device->vector->softmax(x, n, device->vector->max(x, n), inv_temperature, p);
}

size_t sp_argmax(const sp_device *device, const float *x, size_t n) {
    return device->vector->find(x, n, device->vector->max(x, n));
}
