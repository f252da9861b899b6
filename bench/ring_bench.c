/* spill_ring_bench: a model's weights read in the order of a pass, through the ring and nothing behind it.
 *
 *     spill_ring_bench MODEL [--seconds S] [--backend auto|io_uring|threads] [--depth N] [--request BYTES]
 *                      [--chunk BYTES] [--ring BYTES] [--cached] [--look]
 *
 * --look reads what has landed, as products do. One line of JSON: bytes of weights per second; bytes that the block
 * device counted in the same time, which shows that they came from the drive; time that the drive had nothing to do.
 * bench/stream_fio.sh runs it in turn with fio. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine/schedule.h"
#include "io/drive.h"
#include "io/ring.h"
#include "model/model.h"
#include "util/clock.h"
#include "util/size.h"

enum { FFN_BLOCK = 4096, MAX_SLOTS = 4096, HUGE_PAGE = 2 << 20, CACHE_LINE = 64 };

typedef struct {
    const char *model_path;
    double seconds;
    size_t chunk_bytes, ring_bytes;
    bool look;
    sp_ring_options ring;
} settings;

typedef struct {
    sp_model *model;
    sp_arena arena;
    sp_schedule schedule;
    sp_ring *ring;
    char *memory;
    size_t n_slots;
    uint64_t n_bytes; /* weights that have landed */
} bench;

static sp_ring_ticket submit(bench *b, uint64_t number) {
    const sp_extent *extent = &b->schedule.extents[number % b->schedule.n_extents];
    sp_ring_extent asked = {
        .i_file = extent->matrix->i_file, .offset_bytes = sp_extent_offset(extent), .n_bytes = sp_extent_bytes(extent)};
    return sp_ring_submit(b->ring, &asked);
}

static bool set_up(bench *b, const settings *s, sp_error *err) {
    b->model = sp_model_open(s->model_path, err);
    if (!b->model) return false;
    sp_schedule_build(b->model, s->chunk_bytes, FFN_BLOCK, &b->arena, &b->schedule);
    const char **paths = SP_ARENA_ARRAY(&b->arena, const char *, b->model->n_files);
    for (size_t i = 0; i < b->model->n_files; i++) paths[i] = b->model->files[i].path;
    sp_ring_options options = s->ring;
    b->n_slots = sp_min_size(MAX_SLOTS, sp_max_size(1, s->ring_bytes / b->schedule.max_bytes));
    options.n_extents = options.n_slots = b->n_slots;
    options.slot_extent_bytes = b->schedule.max_bytes;
    b->ring = sp_ring_open(paths, b->model->n_files, &options, err);
    if (!b->ring) return false;
    size_t memory_bytes = sp_round_up(sp_ring_slots_bytes(b->ring), HUGE_PAGE);
    b->memory = aligned_alloc(HUGE_PAGE, memory_bytes);
    if (!b->memory) return sp_fail(err, SP_ERR_MEMORY, "%zu bytes of memory cannot be had", memory_bytes);
    madvise(b->memory, memory_bytes, MADV_HUGEPAGE);
    memset(b->memory, 1, memory_bytes); /* page faults are not what is measured */
    return sp_ring_start(b->ring, b->memory, memory_bytes, err);
}

static void look_at(const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += CACHE_LINE) (void)*(const volatile char *)(bytes + i);
}

/* Keeps every slot busy until the time is over, then takes what is under way. */
static bool read_for(bench *b, double seconds, bool look, sp_error *err) {
    sp_ring_ticket tickets[MAX_SLOTS];
    uint64_t end_ns = sp_clock_ns() + (uint64_t)(seconds * 1e9), n_submitted = 0;
    for (uint64_t i = 0;; i++) {
        while (n_submitted < i + b->n_slots && sp_clock_ns() < end_ns) {
            tickets[n_submitted % b->n_slots] = submit(b, n_submitted);
            n_submitted++;
        }
        if (i == n_submitted) return true;
        sp_ring_ticket ticket = tickets[i % b->n_slots];
        if (!sp_ring_wait(b->ring, ticket, err)) return false;
        size_t n_bytes = sp_extent_bytes(&b->schedule.extents[i % b->schedule.n_extents]);
        if (look) look_at(sp_ring_place(b->ring, ticket), n_bytes);
        sp_ring_release(b->ring, ticket);
        b->n_bytes += n_bytes;
    }
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static bool measure(bench *b, const settings *s, sp_error *err) {
    sp_drive drive;
    if (!set_up(b, s, err) || !sp_drive_find(s->model_path, &drive, err)) return false;
    uint64_t sectors = sp_drive_sectors_read(&drive), start_ns = sp_clock_ns();
    double start_cpu = cpu_seconds();
    if (!read_for(b, s->seconds, s->look, err)) return false;
    double seconds = (double)(sp_clock_ns() - start_ns) * 1e-9;
    double cpu = cpu_seconds() - start_cpu;
    sectors = sp_drive_sectors_read(&drive) - sectors;
    sp_ring_stats stats;
    sp_ring_get_stats(b->ring, &stats);
    printf(
        "{\"read_bps\":%.0f,\"bytes\":%llu,\"seconds\":%.3f,\"device\":\"%s\",\"device_bytes\":%llu,"
        "\"idle_seconds\":%.3f,\"cpu_seconds\":%.3f,\"slots\":%zu,\"reader\":\"%s\"}\n",
        (double)b->n_bytes / seconds, (unsigned long long)b->n_bytes, seconds, drive.device,
        (unsigned long long)sectors * 512, seconds - (double)stats.busy_ns * 1e-9, cpu, b->n_slots,
        sp_ring_describe(b->ring));
    return true;
}

static void tear_down(bench *b) {
    sp_ring_close(b->ring);
    free(b->memory);
    sp_arena_deinit(&b->arena);
    sp_model_close(b->model);
}

static const char usage[] =
    "usage: spill_ring_bench MODEL [--seconds S] [--backend auto|io_uring|threads] [--depth N] [--request BYTES]\n"
    "         [--chunk BYTES] [--ring BYTES] [--cached] [--look]\n";

static sp_ring_backend backend_of(const char *name) {
    static const char *const names[SP_RING_BACKEND_COUNT] = {"auto", "io_uring", "threads"};
    for (size_t i = 0; i < SP_RING_BACKEND_COUNT; i++)
        if (strcmp(names[i], name) == 0) return (sp_ring_backend)i;
    fputs(usage, stderr);
    exit(2);
}

static size_t number_of(const char *text) {
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (end != text && *end == '\0') return n;
    fputs(usage, stderr);
    exit(2);
}

static settings parse(int argc, char **argv) {
    static const struct option options[] = {{"seconds", 1, 0, 's'}, {"backend", 1, 0, 'b'}, {"depth", 1, 0, 'd'},
                                            {"request", 1, 0, 'r'}, {"chunk", 1, 0, 'c'},   {"ring", 1, 0, 'm'},
                                            {"cached", 0, 0, 'p'},  {"look", 0, 0, 'l'},    {0}};
    settings s = {.seconds = 10, .chunk_bytes = 1 << 20, .ring_bytes = 128 << 20};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's') s.seconds = strtod(optarg, NULL);
        if (c == 'b') s.ring.backend = backend_of(optarg);
        if (c == 'd') s.ring.depth = number_of(optarg);
        if (c == 'r') s.ring.request_bytes = number_of(optarg);
        if (c == 'c') s.chunk_bytes = number_of(optarg);
        if (c == 'm') s.ring_bytes = number_of(optarg);
        if (c == 'p') s.ring.cached = true;
        if (c == 'l') s.look = true;
        if (c == '?') optind = argc;
    }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        exit(2);
    }
    s.model_path = argv[optind];
    return s;
}

int main(int argc, char **argv) {
    settings s = parse(argc, argv);
    bench b = {0};
    sp_error err = {0};
    bool good = measure(&b, &s, &err);
    tear_down(&b);
    if (!good) fprintf(stderr, "spill_ring_bench: %s\n", err.text);
    return good ? 0 : 1;
}
