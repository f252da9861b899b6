/* The numerics contract (docs/DESIGN.md section 1) on the engine: the logits of every step of every row are the same
 * bytes whatever the batch, the order of rows, the size of passes, the threads, the ISA, and the way weights are cut,
 * kept and read, and whether rows share pages, as is the hash of their content. And no allocation inside of a pass:
 * malloc and its kin are wrapped by the linker.
 *
 * Rows generate greedily, so a single bit that differs soon shows in many. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/ops.h"
#include "model/rope.h"
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

static uint64_t pass_bytes_read;

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
    sp_pass_stats stats = {0};
    bool ok = sp_engine_pass(r->engine, spans, n_spans, &stats, err);
    atomic_store(&in_pass, false);
    pass_bytes_read = stats.bytes_read;
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
    {"streamed, 1 row", 1, false, {.n_threads = 2, .ring_slots = 3, .chunk_bytes = 9000, .pass_tokens = 40}},
    {"streamed, 32 rows, threads",
     32,
     true,
     {.n_threads = 2, .ring_slots = 8, .chunk_bytes = 6000, .backend = SP_RING_THREADS, .read_depth = 3}},
    {"1 layer pinned, 1 row", 1, false, {.n_threads = 2, .ring_slots = 2, .chunk_bytes = 9000, .n_pinned_layers = 1}},
    {"1 layer and the head pinned, 32 rows",
     32,
     false,
     {.n_threads = 2, .ring_slots = 4, .n_pinned_layers = 1, .pin_head = true, .read_request_bytes = 4096}},
    {"head pinned, threads",
     7,
     true,
     {.n_threads = 2, .ring_slots = 1, .pin_head = true, .keep_embed = true, .backend = SP_RING_THREADS}},
    {"all layers pinned, the head is not, short passes",
     7,
     false,
     {.n_threads = 2, .ring_slots = 2, .n_pinned_layers = 99, .keep_embed = true, .pass_tokens = 24}},
    {"all pinned beside a ring", 7, true, {.n_threads = 2, .ring_slots = 2, .n_pinned_layers = 99, .pin_head = true}},
    {"grows at once", 7, true, {.n_threads = 2, .ring_slots = 2, .chunk_bytes = 9000, .grow_from = 1}},
    {"grows after a pass",
     7,
     false,
     {.n_threads = 2, .ring_slots = 9, .chunk_bytes = 5000, .pass_tokens = 24, .grow_from = 2}},
    {"grows later, 1 layer pinned",
     7,
     false,
     {.n_threads = 2, .ring_slots = 3, .n_pinned_layers = 1, .grow_from = 3, .backend = SP_RING_THREADS}},
    {"grows late", 7, true, {.n_threads = 2, .ring_slots = 40, .chunk_bytes = 3000, .grow_from = 4}},
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

/* Half a model's bytes of KV memory a pass, as far as rows can do without. */
static void grow(const rig *r, size_t n_rows, size_t *n_pages) {
    size_t needed = n_rows * sp_div_up(MAX_PROMPT + N_NEW, SP_KV_PAGE_TOKENS);
    size_t step = (size_t)(r->model->weight_bytes / 2 / (r->plan.kv_token_bytes * SP_KV_PAGE_TOKENS)) + 1;
    *n_pages = *n_pages > needed + step ? *n_pages - step : needed;
    sp_engine_set_kv_limit(r->engine, *n_pages);
}

static bool keeps_its_memory(const rig *r, size_t memory_bytes, size_t n_pages, sp_error *err) {
    size_t grown = sp_engine_memory_bytes(r->engine) - memory_bytes;
    uint64_t given = (r->plan.kv_pages - n_pages) * SP_KV_PAGE_TOKENS * r->plan.kv_token_bytes;
    if (grown > given) return sp_fail(err, SP_ERR_MEMORY, "grown by %zu bytes, KV gave %zu", grown, (size_t)given);
    if (pass_bytes_read <= r->plan.pass_tokens * r->model->embed.row_bytes) return true;
    return sp_fail(err, SP_ERR_MEMORY, "%zu bytes are still read, all should be pinned", (size_t)pass_bytes_read);
}

static bool same_content(const rig *r, sp_hash *content, sp_error *err) {
    static const sp_hash none = {{0}};
    sp_hash hash = none;
    if (!sp_engine_content_hash(r->engine, &hash)) return sp_fail(err, SP_ERR_INPUT, "no content hash");
    if (memcmp(content, &none, sizeof none) == 0) *content = hash;
    return memcmp(content, &hash, sizeof hash) == 0 || sp_fail(err, SP_ERR_INPUT, "another content hash");
}

/* Runs all rows to their end under a configuration. n_mismatches NULL: writes logits, else compares with them. */
static bool run(const char *path, const config *c, sp_mode mode, float **logits, size_t *n_mismatches, sp_hash *content,
                sp_error *err) {
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
        size_t n_passes = 0, n_pages = r.plan.kv_pages, memory_bytes = sp_engine_memory_bytes(r.engine);
        for (bool busy = true; ok && busy;) {
            if (c->options.grow_from && ++n_passes >= c->options.grow_from) grow(&r, c->n_rows, &n_pages);
            ok = pass(&r, rows + i0, c->n_rows, r.plan.pass_tokens, *logits, n_mismatches, err);
            busy = false;
            for (size_t i = i0; i < i0 + c->n_rows; i++) busy |= rows[i].n_steps < N_NEW;
        }
        if (ok && c->options.grow_from) ok = keeps_its_memory(&r, memory_bytes, n_pages, err);
        for (size_t i = i0; ok && i < i0 + c->n_rows; i++) sp_engine_seq_close(r.engine, rows[i].seq);
    }
    ok = ok && same_content(&r, content, err);
    rig_close(&r);
    return ok;
}

/* ---- shared pages ---- */

enum { N_SHARED_PAGES = 2, N_SHARED = N_SHARED_PAGES * SP_KV_PAGE_TOKENS, N_SHARERS = 4, MAX_TAIL = 40 };
static const size_t tail_tokens[N_SHARERS] = {33, 1, 40, 5};

/* Rows that begin with the same tokens, each with a tail of its own. */
static void make_sharer(size_t i, size_t n_vocab, int32_t *ids) {
    for (size_t t = 0; t < N_SHARED; t++) ids[t] = (int32_t)((t * t * 13 + t * 5 + 3) % n_vocab);
    for (size_t t = 0; t < tail_tokens[i]; t++) ids[N_SHARED + t] = (int32_t)((t * 17 + i * 29 + 1) % n_vocab);
}

static bool may_share(const sp_arch *arch) {
    for (size_t i = 0; i < arch->n_ropes; i++)
        if (!sp_rope_is_fixed(&arch->ropes[i], N_SHARED + MAX_TAIL, N_SHARED + MAX_TAIL)) return false;
    return true;
}

static bool open_sharer(const rig *r, size_t i, uint32_t *seq, sp_error *err) {
    if (!sp_engine_seq_open(r->engine, N_SHARED + tail_tokens[i], N_SHARED + MAX_TAIL, seq, err)) return false;
    return sp_engine_seq_set_length(r->engine, *seq, N_SHARED + tail_tokens[i]) == 0;
}

static bool same_as_alone(const rig *r, size_t i, const float *alone, const float *now, sp_error *err) {
    size_t n_vocab = r->model->arch.n_vocab;
    return (now && memcmp(alone + i * n_vocab, now, n_vocab * sizeof *now) == 0) || err->code != SP_OK ||
           sp_fail(err, SP_ERR_INPUT, "row %zu differs from the row alone", i);
}

/* The first row fills the pages, the second begins behind them in the same pass, the third later, and the fourth, cut
 * in two passes, when no other row is there any more: the logits are those of the rows alone. */
static bool share(const rig *r, int32_t ids[N_SHARERS][N_SHARED + MAX_TAIL], const float *alone, sp_error *err) {
    uint32_t seqs[N_SHARERS], pages[N_SHARED_PAGES];
    if (!open_sharer(r, 0, &seqs[0], err) || !open_sharer(r, 1, &seqs[1], err)) return false;
    sp_engine_seq_reserve(r->engine, seqs[0], N_SHARED + tail_tokens[0]);
    for (size_t i = 0; i < N_SHARED_PAGES; i++) {
        pages[i] = sp_engine_seq_page(r->engine, seqs[0], i);
        sp_engine_page_keep(r->engine, pages[i]);
    }
    sp_engine_seq_adopt(r->engine, seqs[1], pages, N_SHARED_PAGES);
    const sp_span spans[] = {{seqs[0], ids[0], N_SHARED + tail_tokens[0], true},
                             {seqs[1], ids[1] + N_SHARED, tail_tokens[1], true}};
    if (!sp_engine_pass(r->engine, spans, 2, NULL, err)) return false;
    for (size_t i = 0; i < 2; i++)
        if (!same_as_alone(r, i, alone, sp_engine_logits(r->engine, i), err)) return false;
    for (size_t i = 2; i < N_SHARERS; i++) {
        if (!open_sharer(r, i, &seqs[i], err)) return false;
        sp_engine_seq_adopt(r->engine, seqs[i], pages, N_SHARED_PAGES);
        if (i == 3)
            for (size_t j = 0; j < i; j++) sp_engine_seq_close(r->engine, seqs[j]);
        const float *now = rig_feed(r, seqs[i], ids[i], N_SHARED + tail_tokens[i], 3, err);
        if (err->code != SP_OK || !same_as_alone(r, i, alone, now, err)) return false;
    }
    sp_engine_seq_close(r->engine, seqs[3]);
    for (size_t i = 0; i < N_SHARED_PAGES; i++) sp_engine_page_drop(r->engine, pages[i]);
    return sp_engine_pages_free(r->engine) == r->plan.kv_pages || sp_fail(err, SP_ERR_MEMORY, "pages are lost");
}

static bool shares_pages(const char *path, sp_mode mode, sp_error *err) {
    static const rig_options options = {.n_threads = 2, .rows = N_SHARERS, .pass_tokens = 256};
    rig_options with_mode = options;
    with_mode.mode = mode;
    rig r;
    int32_t ids[N_SHARERS][N_SHARED + MAX_TAIL];
    bool ok = rig_open(&r, path, &with_mode, err), is_shared = ok && may_share(&r.model->arch);
    size_t n_vocab = ok ? r.model->arch.n_vocab : 0;
    float *alone = malloc(sp_max_size(1, N_SHARERS * n_vocab) * sizeof *alone);
    for (size_t i = 0; ok && is_shared && i < N_SHARERS; i++) {
        uint32_t seq;
        make_sharer(i, n_vocab, ids[i]);
        ok = open_sharer(&r, i, &seq, err);
        const float *logits = ok ? rig_feed(&r, seq, ids[i], N_SHARED + tail_tokens[i], 256, err) : NULL;
        ok = logits != NULL;
        if (ok) memcpy(alone + i * n_vocab, logits, n_vocab * sizeof *alone);
        if (ok) sp_engine_seq_close(r.engine, seq);
    }
    ok = ok && (!is_shared || share(&r, ids, alone, err));
    free(alone);
    rig_close(&r);
    return ok;
}

static size_t n_passed, n_failed;

static void report(bool ok, const char *path, sp_mode mode, const char *what, const char *why) {
    *(ok ? &n_passed : &n_failed) += 1;
    if (!ok) printf("FAILED %s, %s, %s: %s\n", path, mode == SP_MODE_BF16 ? "bf16" : "fp32", what, why);
}

static void check_model(const char *path, sp_mode mode, sp_hash *content) {
    static const config base = {"1 row at a time, 1 thread", 1, false, {.n_threads = 1}};
    float *logits = NULL;
    sp_error err = {0};
    if (!run(path, &base, mode, &logits, NULL, content, &err)) {
        report(false, path, mode, base.name, err.text);
        return;
    }
    for (size_t i = 0; i < N_CONFIGS; i++) {
        size_t n_mismatches = 0;
        if (mode == SP_MODE_FP32 && configs[i].options.ring_slots) continue; /* the way of bytes is below the mode */
        sp_error_clear(&err);
        bool ok = run(path, &configs[i], mode, &logits, &n_mismatches, content, &err);
        char why[64];
        snprintf(why, sizeof why, "%zu steps differ", n_mismatches);
        report(ok && n_mismatches == 0, path, mode, configs[i].name, ok ? why : err.text);
    }
    free(logits);
}

static void check_both_modes(const char *path) {
    sp_hash content = {{0}};
    for (int mode = SP_MODE_BF16; mode <= SP_MODE_FP32; mode++) {
        check_model(path, (sp_mode)mode, &content);
        sp_error err = {0};
        report(shares_pages(path, (sp_mode)mode, &err), path, (sp_mode)mode, "shared pages", err.text);
    }
}

/* Every model of a directory of fixtures. */
static void check_directory(const char *directory) {
    struct dirent **entries;
    int n = scandir(directory, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && strcmp(entries[i]->d_name, "README.md") != 0) check_both_modes(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* A sharded model with a shard on another drive, where there is one. */
static void check_two_drives(void) {
    char command[800], directory[] = "/tmp/spill-drives-XXXXXX", other[] = "/dev/shm/spill-drives-XXXXXX";
    struct stat a, b;
    if (!mkdtemp(directory)) return;
    bool has_other = mkdtemp(other) != NULL;
    if (!has_other || stat(directory, &a) != 0 || stat(other, &b) != 0 || a.st_dev == b.st_dev) {
        printf("skipped: shards on two drives, /tmp and /dev/shm are not two\n");
    } else {
        snprintf(command, sizeof command,
                 "cp tests/fixtures/families/sharded-llama3/* %s && mv %s/model-00002* %s && ln -s %s/model-00002* %s",
                 directory, directory, other, other, directory);
        if (system(command) == 0) check_both_modes(directory);
    }
    snprintf(command, sizeof command, "rm -r %s %s", directory, has_other ? other : "");
    if (system(command) != 0) printf("%s is left behind\n", directory);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) check_both_modes(argv[i]);
    if (argc == 1) {
        check_directory("tests/fixtures/families");
        check_directory("tests/fixtures/gguf");
        check_two_drives();
    }
    report(atomic_load(&n_allocations) == 0, "all models", SP_MODE_BF16, "no allocation in a pass",
           "allocations were made");
    for (const char *const *isa = sp_device_isa_names(); *isa; isa++)
        if (!sp_device_isa_usable(*isa)) printf("skipped: %s, not on this machine\n", *isa);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed > 0 || n_passed < 2;
}
