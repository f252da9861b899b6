/* Memory's read bandwidth, and the products' rate on each instruction set that this processor has.
 *
 * Products are measured as a streamed pass uses them: a chunk of weights that no cache holds, N_TOKENS tokens, bf16
 * mode, sp_op_linear with all threads. Best of N_ROUNDS: others on the machine can only slow it down. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/ops.h"
#include "planner/probe.h"
#include "util/buf.h"
#include "util/clock.h"
#include "util/rng.h"
#include "util/size.h"

/* SWEEP_BYTES: many times a last-level cache. The product's matrix is a 70B model's gate, cut to a chunk of 32 MiB. */
enum {
    SWEEP_BYTES = 256 << 20,
    SWEEP_TASK_BYTES = 4 << 20,
    N_ROUNDS = 3,
    N_ROWS = 2048,
    N_COLS = 8192,
    N_TOKENS = 128,
    ALIGN = 64,
};

static void tell(const sp_probe_options *options, const char *what) {
    if (options->progress) options->progress(options->progress_ctx, what);
}

/* ---- memory ---- */

typedef struct {
    const uint64_t *data; /* [SWEEP_BYTES / 8] */
    uint64_t *sums;       /* [tasks], so that nothing is optimized away */
} sweep;

static void sweep_task(void *ctx, size_t i_task, size_t i_thread) {
    (void)i_thread;
    const sweep *s = ctx;
    enum { N = SWEEP_TASK_BYTES / sizeof(uint64_t), LANES = 16 };
    const uint64_t *data = s->data + i_task * N;
    uint64_t lanes[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < N; i += LANES)
        for (size_t j = 0; j < LANES; j++) lanes[j] += data[i + j];
    for (size_t j = 0; j < LANES; j++) sum += lanes[j];
    s->sums[i_task] = sum;
}

static bool probe_memory(sp_pool *pool, double *bps, sp_error *err) {
    enum { N_TASKS = SWEEP_BYTES / SWEEP_TASK_BYTES };
    void *data = mmap(NULL, SWEEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return sp_fail(err, SP_ERR_MEMORY, "%d bytes to probe with cannot be had", SWEEP_BYTES);
    madvise(data, SWEEP_BYTES, MADV_HUGEPAGE);
    memset(data, 1, SWEEP_BYTES); /* untouched pages would all be one page of zeros */
    uint64_t sums[N_TASKS], best_ns = UINT64_MAX;
    sweep s = {data, sums};
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t start_ns = sp_clock_ns();
        sp_pool_run(pool, N_TASKS, sweep_task, &s);
        uint64_t ns = sp_clock_ns() - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    munmap(data, SWEEP_BYTES);
    *bps = SWEEP_BYTES / ((double)best_ns * 1e-9);
    return true;
}

/* ---- products ---- */

typedef struct {
    sp_bf16 *w; /* [N_ROWS, N_COLS] */
    float *x;   /* [N_TOKENS, N_COLS] */
    float *y;   /* [N_TOKENS, N_ROWS] */
} operands;

static bool make_operands(operands *o, sp_error *err) {
    o->w = aligned_alloc(ALIGN, (size_t)N_ROWS * N_COLS * sizeof *o->w);
    o->x = aligned_alloc(ALIGN, (size_t)N_TOKENS * N_COLS * sizeof *o->x);
    o->y = aligned_alloc(ALIGN, (size_t)N_TOKENS * N_ROWS * sizeof *o->y);
    if (!o->w || !o->x || !o->y) return sp_fail(err, SP_ERR_MEMORY, "no memory to probe products with");
    for (size_t i = 0; i < (size_t)N_ROWS * N_COLS; i++) o->w[i] = sp_bf16_from_f32((float)sp_rng_uniform(1, i) - 0.5f);
    for (size_t i = 0; i < (size_t)N_TOKENS * N_COLS; i++) o->x[i] = (float)sp_rng_uniform(2, i) - 0.5f;
    return true;
}

static void free_operands(operands *o) {
    free(o->w);
    free(o->x);
    free(o->y);
}

static double measure_product(sp_device *device, const operands *o, void *packed) {
    sp_linear job = {.format = sp_format_get(SP_FMT_BF16),
                     .w = o->w,
                     .row_bytes = N_COLS * sizeof *o->w,
                     .n_rows = N_ROWS,
                     .k = N_COLS,
                     .y = o->y,
                     .ldy = N_ROWS};
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t start_ns = sp_clock_ns();
        sp_op_linear(device, &job, 1, packed, N_TOKENS);
        uint64_t ns = sp_clock_ns() - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    return 2.0 * N_ROWS * N_COLS * N_TOKENS / ((double)best_ns * 1e-9);
}

/* With `disabled` left out, the device uses the next best instruction set. */
static bool probe_isa(sp_pool *pool, const char *disabled, const operands *o, sp_machine_isa *isa, sp_error *err) {
    sp_device *device = sp_device_open_cpu(pool, SP_MODE_BF16, disabled, err);
    if (!device) return false;
    snprintf(isa->isa, sizeof isa->isa, "%s", sp_device_isa(device));
    void *packed = aligned_alloc(ALIGN, sp_round_up(sp_packed_bytes(device, N_TOKENS, N_COLS), ALIGN));
    if (packed) {
        sp_op_pack(device, o->x, N_COLS, N_TOKENS, N_COLS, packed);
        isa->gemm_flops = measure_product(device, o, packed);
    }
    free(packed);
    sp_device_close(device);
    return packed || sp_fail(err, SP_ERR_MEMORY, "no memory to probe products with");
}

static bool is_known(const sp_machine_file *file, const char *isa) {
    for (size_t i = 0; i < file->n_isas; i++)
        if (strcmp(file->isas[i].isa, isa) == 0) return true;
    return false;
}

/* Best first; each is disabled in turn. An instruction set without products in bf16 mode shows as the next one. Scalar
 * code is the specification, not an instruction set to run with: left out unless it is all there is. */
static bool probe_isas(sp_pool *pool, const operands *o, sp_machine_file *file, sp_error *err) {
    sp_buf disabled = {0};
    bool good = true;
    file->n_isas = 0;
    for (const char *const *name = sp_device_isa_names(); good && *name; name++) {
        if (!sp_device_isa_usable(*name) || file->n_isas == SP_MACHINE_MAX_ISAS) continue;
        if (strcmp(*name, "scalar") == 0 && file->n_isas > 0) continue;
        sp_machine_isa isa = {0};
        good = probe_isa(pool, disabled.data, o, &isa, err);
        if (good && !is_known(file, isa.isa) && (strcmp(isa.isa, "scalar") != 0 || file->n_isas == 0))
            file->isas[file->n_isas++] = isa;
        sp_buf_printf(&disabled, "%s%s", disabled.n_bytes ? "," : "", *name);
    }
    sp_buf_deinit(&disabled);
    return good;
}

bool sp_probe_compute(sp_pool *pool, const sp_probe_options *options, sp_machine_file *file, sp_error *err) {
    tell(options, "reading memory");
    if (!probe_memory(pool, &file->machine.memory_bps, err)) return false;
    tell(options, "multiplying matrices");
    operands o = {0};
    bool good = make_operands(&o, err) && probe_isas(pool, &o, file, err);
    free_operands(&o);
    if (good && file->n_isas > 0) file->machine.gemm_flops = file->isas[0].gemm_flops;
    return good;
}
