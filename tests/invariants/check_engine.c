/* The numerics contract (docs/DESIGN.md section 1) on the engine: the logits of every step of every row are the same
 * bytes whatever the batch, the order of rows, the size of passes, the threads, the ISA, and the way weights are cut
 * and kept. And no allocation inside of a pass: malloc and its kin are wrapped by the linker.
 *
 * Rows generate greedily, so a single bit that differs soon shows in many. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "rig.h"
#include "util/size.h"

enum { N_PROMPTS = 7, N_NEW = 10, MAX_PROMPT = 100, MAX_ROWS = 32 };

/* ---- allocations in a pass ---- */

static atomic_bool in_pass;
static atomic_size_t n_allocations;

void *__real_malloc(size_t n_bytes);
void *__real_calloc(size_t n, size_t n_bytes);
void *__real_realloc(void *old, size_t n_bytes);
void *__real_aligned_alloc(size_t alignment, size_t n_bytes);
void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *old, size_t n_bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes);

static void count(void) {
    if (atomic_load(&in_pass)) atomic_fetch_add(&n_allocations, 1);
}
void *__wrap_malloc(size_t n_bytes) {
    count();
    return __real_malloc(n_bytes);
}
void *__wrap_calloc(size_t n, size_t n_bytes) {
    count();
    return __real_calloc(n, n_bytes);
}
void *__wrap_realloc(void *old, size_t n_bytes) {
    count();
    return __real_realloc(old, n_bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t n_bytes) {
    count();
    return __real_aligned_alloc(alignment, n_bytes);
}

/* ---- rows ---- */

static const size_t prompt_tokens[N_PROMPTS] = {1, 2, 31, 32, 33, 70, 97};

typedef struct {
    size_t i_prompt;
    int32_t ids[MAX_PROMPT + N_NEW];
    size_t n_length, n_done; /* tokens known, tokens in the cache */
    uint32_t seq;
    size_t n_steps;
} row;

static row make_row(size_t i_prompt, size_t n_vocab) {
    row r = {.i_prompt = i_prompt, .n_length = prompt_tokens[i_prompt]};
    for (size_t i = 0; i < r.n_length; i++) r.ids[i] = (int32_t)((i * i * 31 + i * 7 + i_prompt * 101 + 1) % n_vocab);
    return r;
}

/* A pass over the rows that are not done, in order, with at most `budget` tokens. */
static bool pass(rig *r, row *rows, size_t n_rows, size_t budget, float *logits, size_t *n_mismatches, sp_error *err) {
    sp_span spans[MAX_ROWS];
    row *owners[MAX_ROWS];
    size_t n_spans = 0, n_vocab = r->model->arch.n_vocab;
    for (size_t i = 0; i < n_rows && budget > 0; i++) {
        row *w = &rows[i];
        if (w->n_steps == N_NEW) continue;
        w->n_done = sp_engine_seq_set_length(r->engine, w->seq, w->n_length);
        size_t n = sp_min_size(budget, w->n_length - w->n_done);
        owners[n_spans] = w;
        spans[n_spans++] = (sp_span){w->seq, w->ids + w->n_done, n, w->n_done + n == w->n_length};
        w->n_done += n;
        budget -= n;
    }
    atomic_store(&in_pass, true);
    bool ok = sp_engine_pass(r->engine, spans, n_spans, NULL, err);
    atomic_store(&in_pass, false);
    for (size_t i = 0; ok && i < n_spans; i++) {
        row *w = owners[i];
        if (!spans[i].want_logits) continue;
        const float *now = sp_engine_logits(r->engine, i);
        float *wanted = logits + (w->i_prompt * N_NEW + w->n_steps) * n_vocab;
        if (n_mismatches)
            *n_mismatches += memcmp(wanted, now, n_vocab * sizeof *now) != 0;
        else
            memcpy(wanted, now, n_vocab * sizeof *now);
        w->n_steps++;
        w->ids[w->n_length++] = (int32_t)sp_argmax(r->device, wanted, n_vocab);
    }
    return ok;
}

/* ---- configurations ---- */

typedef struct {
    const char *name;
    size_t n_rows; /* in flight together */
    bool reversed;
    rig_options options;
} config;

static const config configs[] = {
    {"7 rows, 2 threads", 7, false, {.n_threads = 2}},
    {"32 rows, 3 threads, other way round", 32, true, {.n_threads = 3}},
    {"1 row, passes of 5", 1, false, {.n_threads = 2, .pass_tokens = 5}},
    {"7 rows, passes of 16", 7, true, {.n_threads = 1, .pass_tokens = 16}},
    {"7 rows, passes of 33", 7, false, {.n_threads = 2, .pass_tokens = 33}},
    {"chunks of 1000 bytes, blocks of 64", 7, false, {.n_threads = 2, .chunk_bytes = 1000, .ffn_block = 64}},
    {"streamed, 2 slots", 7, false, {.n_threads = 2, .ring_slots = 2}},
    {"streamed, 5 slots of 700 bytes",
     7,
     true,
     {.n_threads = 2, .ring_slots = 5, .chunk_bytes = 700, .pass_tokens = 40}},
    {"without amx", 7, false, {.n_threads = 2, .disable_isa = "amx"}},
    {"without amx, avx512bf16", 7, false, {.n_threads = 2, .disable_isa = "amx,avx512bf16"}},
    {"without avx512", 7, false, {.n_threads = 2, .disable_isa = "amx,avx512bf16,avx512"}},
    {"scalar", 7, false, {.n_threads = 2, .disable_isa = "amx,avx512bf16,avx512,avx2,neon"}},
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

static bool keeps_its_plan(const rig *r, sp_error *err) {
    uint64_t planned_bytes = r->plan.pinned_bytes + r->plan.ring_bytes + r->plan.activation_bytes;
    if (sp_engine_memory_bytes(r->engine) <= planned_bytes) return true;
    return sp_fail(err, SP_ERR_MEMORY, "the engine has %zu bytes, %llu are planned", sp_engine_memory_bytes(r->engine),
                   (unsigned long long)planned_bytes);
}

/* Runs all rows to their end under a configuration. n_mismatches NULL: writes logits, else compares with them. */
static bool run(const char *path, const config *c, sp_mode mode, float **logits, size_t *n_mismatches, sp_error *err) {
    rig_options options = c->options;
    options.mode = mode;
    options.rows = c->n_rows;
    rig r;
    bool ok = rig_open(&r, path, &options, err) && keeps_its_plan(&r, err);
    row rows[MAX_ROWS];
    size_t n_total = sp_max_size(c->n_rows, N_PROMPTS), n_vocab = ok ? r.model->arch.n_vocab : 0;
    if (ok && !*logits) *logits = malloc((size_t)N_PROMPTS * N_NEW * n_vocab * sizeof **logits);
    for (size_t i = 0; ok && i < n_total; i++)
        rows[i] = make_row((c->reversed ? n_total - 1 - i : i) % N_PROMPTS, n_vocab);
    for (size_t i0 = 0; ok && i0 < n_total; i0 += c->n_rows) {
        for (size_t i = i0; ok && i < i0 + c->n_rows; i++)
            ok = sp_engine_seq_open(r.engine, rows[i].n_length, MAX_PROMPT + N_NEW, &rows[i].seq, err);
        for (bool busy = true; ok && busy;) {
            ok = pass(&r, rows + i0, c->n_rows, r.plan.pass_tokens, *logits, n_mismatches, err);
            busy = false;
            for (size_t i = i0; i < i0 + c->n_rows; i++) busy |= rows[i].n_steps < N_NEW;
        }
        for (size_t i = i0; ok && i < i0 + c->n_rows; i++) sp_engine_seq_close(r.engine, rows[i].seq);
    }
    rig_close(&r);
    return ok;
}

static size_t n_passed, n_failed;

static void report(bool ok, const char *path, sp_mode mode, const char *what, const char *why) {
    *(ok ? &n_passed : &n_failed) += 1;
    if (!ok) printf("FAILED %s, %s, %s: %s\n", path, mode == SP_MODE_BF16 ? "bf16" : "fp32", what, why);
}

static void check_model(const char *path, sp_mode mode) {
    static const config base = {"1 row at a time, 1 thread", 1, false, {.n_threads = 1}};
    float *logits = NULL;
    sp_error err = {0};
    if (!run(path, &base, mode, &logits, NULL, &err)) {
        report(false, path, mode, base.name, err.text);
        return;
    }
    for (size_t i = 0; i < N_CONFIGS; i++) {
        size_t n_mismatches = 0;
        sp_error_clear(&err);
        bool ok = run(path, &configs[i], mode, &logits, &n_mismatches, &err);
        char why[64];
        snprintf(why, sizeof why, "%zu steps differ", n_mismatches);
        report(ok && n_mismatches == 0, path, mode, configs[i].name, ok ? why : err.text);
    }
    free(logits);
}

int main(int argc, char **argv) {
    static const char *const models[] = {
        "tests/fixtures/families/llama3",        "tests/fixtures/families/llama-dynamic",
        "tests/fixtures/families/phi3-longrope", "tests/fixtures/families/qwen2-window",
        "tests/fixtures/families/qwen3-bias",    "tests/fixtures/families/odd-llama",
        "tests/fixtures/families/odd-phi3",      "tests/fixtures/families/mix-llama",
        "tests/fixtures/gguf/llama-q4_0.gguf",   "tests/fixtures/gguf/mistral-q4_1.gguf",
        "tests/fixtures/gguf/qwen2-q5_0.gguf",   "tests/fixtures/gguf/qwen3-q5_1.gguf",
        "tests/fixtures/gguf/phi3-q8_0.gguf",
    };
    for (int i = 1; i < argc; i++)
        for (int mode = SP_MODE_BF16; mode <= SP_MODE_FP32; mode++) check_model(argv[i], (sp_mode)mode);
    for (size_t i = 0; argc == 1 && i < sizeof models / sizeof *models; i++)
        for (int mode = SP_MODE_BF16; mode <= SP_MODE_FP32; mode++) check_model(models[i], (sp_mode)mode);
    report(atomic_load(&n_allocations) == 0, "all models", SP_MODE_BF16, "no allocation in a pass",
           "allocations were made");
    for (const char *const *isa = sp_device_isa_names(); *isa; isa++)
        if (!sp_device_isa_usable(*isa)) printf("skipped: %s, not on this machine\n", *isa);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed > 0;
}
