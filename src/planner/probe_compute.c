/* Memory's read bandwidth, and the rates of every instruction set that this processor has in bf16 mode, of the best in
 * fp32 mode (planner/rates.h). Best of N_ROUNDS: others on the machine can only slow it down. */
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

/* SWEEP_BYTES: many times a last-level cache. */
enum { SWEEP_BYTES = 256 << 20, SWEEP_TASK_BYTES = 4 << 20, N_ROUNDS = 3 };
static const double isa_seconds = 0.5;

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

/* With `disabled` left out, the device uses the next best instruction set. */
static bool probe_isa(sp_pool *pool, sp_mode mode, const char *disabled, sp_machine_file *file, sp_error *err) {
    sp_device *device = sp_device_open_cpu(pool, mode, disabled, err);
    if (!device) return false;
    sp_rates rates;
    const sp_format *format = sp_format_get(SP_FMT_BF16);
    bool is_known = sp_machine_file_rates(file, sp_device_isa(device), mode, format->name, 0) != NULL;
    /* scalar code is the specification, not an instruction set to run with: left out unless it is all there is */
    bool is_wanted = !is_known && (file->n_rates == 0 || strcmp(sp_device_isa(device), "scalar") != 0);
    bool good = !is_wanted || sp_rates_measure(device, format, sp_pool_n_threads(pool), isa_seconds, &rates, err);
    if (good && is_wanted) sp_machine_file_put_rates(file, &rates);
    sp_device_close(device);
    return good;
}

/* Best first; each is disabled in turn. An instruction set without products in this mode shows as the next one. */
static bool probe_isas(sp_pool *pool, sp_mode mode, sp_machine_file *file, sp_error *err) {
    sp_buf disabled = {0};
    bool good = true;
    for (const char *const *name = sp_device_isa_names(); good && *name; name++) {
        if (!sp_device_isa_usable(*name)) continue;
        good = probe_isa(pool, mode, disabled.data, file, err);
        sp_buf_printf(&disabled, "%s%s", disabled.n_bytes ? "," : "", *name);
    }
    sp_buf_deinit(&disabled);
    return good;
}

bool sp_probe_compute(sp_pool *pool, const sp_probe_options *options, sp_machine_file *file, sp_error *err) {
    tell(options, "reading memory");
    if (!probe_memory(pool, &file->machine.memory_bps, err)) return false;
    tell(options, "multiplying matrices");
    file->n_rates = 0;
    return probe_isas(pool, SP_MODE_BF16, file, err) && probe_isa(pool, SP_MODE_FP32, NULL, file, err);
}
