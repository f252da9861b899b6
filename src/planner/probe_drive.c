/* A drive's cold read rate, through the same ring that runs read with, and like them: a place is read in chunks, into
 * slots, and what has landed is looked at before its slot is used again.
 *
 * The files are cut into places, read in random order, each once until all have been: no read-ahead and no cache
 * below helps the first pass. Every setting gets N_SCREEN short rounds; the N_FINALISTS best, N_ROUNDS more, in turn
 * with each other, so that a drive whose rate drifts drifts for all. The best median wins, the default by a margin. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "planner/probe.h"
#include "util/clock.h"
#include "util/rng.h"
#include "util/size.h"

enum {
    PLACE_BYTES = 16 << 20,
    MEMORY_BYTES = 144 << 20,
    MAX_SLOTS = 256,
    SLOTS_IN_USE = 4,
    N_SCREEN = 2,
    N_FINALISTS = 3,
    N_ROUNDS = 5,
    MAX_ROUNDS = N_SCREEN + N_ROUNDS,
    MAX_FILES = 256,
    PATH_ROOM_BYTES = 4096,
    WRITE_BYTES = 4 << 20,
    ALIGN_BYTES = 4096,
    HUGE_PAGE = 2 << 20,
    CACHE_LINE = 64,
    REPEAT_PLACES = 8, /* 128 MiB for the comparisons with caches */
};
static const uint64_t min_file_bytes = 128u << 20, default_file_bytes = 2ull << 30;

typedef struct {
    sp_ring_backend backend;
    size_t depth, request_bytes;
} setting;

/* How many "many" are (io/pace.h): all of them more memory than a processor's cache takes with what products need. Few
 * are tried by every ring. The cheaper of two equals comes first. */
static const setting settings[] = {
    {SP_RING_URING, 64, 1 << 20},   {SP_RING_URING, SP_RING_DEPTH, SP_RING_REQUEST_BYTES},
    {SP_RING_URING, 16, 4 << 20},   {SP_RING_URING, 12, 8 << 20},
    {SP_RING_THREADS, 16, 2 << 20}, {SP_RING_THREADS, SP_RING_DEPTH, SP_RING_REQUEST_BYTES},
    {SP_RING_THREADS, 8, 4 << 20},  {SP_RING_THREADS, 12, 8 << 20},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };
/* These a quick probe tries: the usual one, whose rate it is there for, and what is left where io_uring cannot be had.
 */
static const setting quick_settings[] = {{SP_RING_URING, SP_RING_DEPTH, SP_RING_REQUEST_BYTES},
                                         {SP_RING_THREADS, SP_RING_DEPTH, SP_RING_REQUEST_BYTES}};

/* A quick probe: one round each, then the better one until the time is up. */
enum { QUICK_REPEAT_PLACES = 2, N_QUICK_FINALISTS = 1 };
static const double round_s = 0.4, quick_s = 1.4; /* long enough for a ring to find its pace */

typedef struct {
    size_t i_file;
    uint64_t offset_bytes;
} place;

typedef struct {
    const sp_probe_options *options;
    char *paths[MAX_FILES];
    size_t n_paths;
    int own_fd;    /* of the test file; -1: none was written */
    place *places; /* of extents, in the order of reading */
    size_t n_places, next_place;
    char *memory;
    double rates[N_SETTINGS][MAX_ROUNDS];
    size_t n_rates[N_SETTINGS];
    bool usable[N_SETTINGS];
    uint64_t bytes_read;
    uint64_t end_ns; /* quick: no further round begins after this */
} probe;

static void tell(const probe *p, const char *what) {
    if (p->options->progress) p->options->progress(p->options->progress_ctx, what);
}

/* ---- files to read ---- */

static bool is_weights(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".gguf") == 0);
}

static void add_path(probe *p, const char *path) {
    struct stat st;
    bool fits = p->n_paths < MAX_FILES && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= PLACE_BYTES;
    if (!fits) return;
    p->paths[p->n_paths] = strdup(path);
    SP_CHECK(p->paths[p->n_paths] != NULL);
    p->n_paths++;
}

static void add_weights_of(probe *p, const char *directory) {
    DIR *dir = opendir(directory);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[PATH_ROOM_BYTES + 256];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (is_weights(entry->d_name)) add_path(p, path);
    }
    closedir(dir);
}

static uint64_t bytes_of_paths(const probe *p) {
    uint64_t n_bytes = 0;
    struct stat st;
    for (size_t i = 0; i < p->n_paths; i++)
        if (stat(p->paths[i], &st) == 0) n_bytes += (uint64_t)st.st_size;
    return n_bytes;
}

/* Fresh, incompressible bytes, different every time, past the page cache where that can be had. */
static bool fill_own_file(probe *p, uint64_t n_bytes, sp_error *err) {
    char *chunk = aligned_alloc(ALIGN_BYTES, WRITE_BYTES);
    if (!chunk) return sp_fail(err, SP_ERR_MEMORY, "no memory to probe with");
    uint64_t key = sp_clock_ns();
    bool good = true;
    for (uint64_t at = 0; good && at < n_bytes; at += WRITE_BYTES) {
        sp_rng_block *blocks = (sp_rng_block *)chunk;
        for (size_t i = 0; i < WRITE_BYTES / sizeof *blocks; i++) blocks[i] = sp_rng_philox(key, i, at);
        for (size_t done = 0; good && done < WRITE_BYTES;) {
            ssize_t n = pwrite(p->own_fd, chunk + done, WRITE_BYTES - done, (off_t)(at + done));
            if (n > 0) done += (size_t)n;
            if (n <= 0 && errno != EINTR) good = sp_fail_errno(err, "writing a test file");
        }
    }
    free(chunk);
    if (good && fsync(p->own_fd) != 0) good = sp_fail_errno(err, "writing a test file");
    posix_fadvise(p->own_fd, 0, 0, POSIX_FADV_DONTNEED);
    return good;
}

static bool write_own_file(probe *p, const char *directory, sp_error *err) {
    struct statvfs fs;
    if (statvfs(directory, &fs) != 0) return sp_fail_errno(err, "%s", directory);
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t n_bytes = p->options->file_bytes ? p->options->file_bytes : default_file_bytes;
    if (n_bytes > free_bytes / 4) n_bytes = free_bytes / 4;
    n_bytes -= n_bytes % PLACE_BYTES;
    if (n_bytes < min_file_bytes)
        return sp_fail(err, SP_ERR_INPUT,
                       "%s: %llu MB free, at least %llu wanted for a test file; name a model there instead", directory,
                       (unsigned long long)(free_bytes >> 20), (unsigned long long)(4 * min_file_bytes >> 20));
    char path[PATH_ROOM_BYTES];
    snprintf(path, sizeof path, "%s/.spill-probe-XXXXXX", directory);
    p->own_fd = mkostemp(path, O_CLOEXEC);
    if (p->own_fd < 0) return sp_fail_errno(err, "%s: no test file can be written here", directory);
    unlink(path);
    int flags = fcntl(p->own_fd, F_GETFL);
    fcntl(p->own_fd, F_SETFL, flags | O_DIRECT); /* refused where there is none: fsync and DONTNEED do then */
    tell(p, "writing a test file");
    if (!fill_own_file(p, n_bytes, err)) return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", p->own_fd); /* its only name now */
    add_path(p, path);
    return p->n_paths == 1 || sp_fail(err, SP_ERR_IO, "%s: the test file cannot be read again", path);
}

static bool choose_files(probe *p, const char *path, sp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0) return sp_fail(err, SP_ERR_INPUT, "%s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode)) {
        add_path(p, path);
        if (bytes_of_paths(p) >= min_file_bytes) return true;
        return sp_fail(err, SP_ERR_INPUT, "%s: %lld bytes are too few to measure a drive with, at least %llu wanted",
                       path, (long long)st.st_size, (unsigned long long)min_file_bytes);
    }
    if (!S_ISDIR(st.st_mode)) return sp_fail(err, SP_ERR_INPUT, "%s: neither a file nor a directory", path);
    add_weights_of(p, path);
    if (bytes_of_paths(p) >= min_file_bytes) return true;
    if (p->options->quick)
        return sp_fail(err, SP_ERR_INPUT, "%s: weights of less than %llu bytes are too few to measure a drive with",
                       path, (unsigned long long)min_file_bytes);
    for (; p->n_paths > 0; p->n_paths--) free(p->paths[p->n_paths - 1]);
    return write_own_file(p, path, err);
}

/* All whole extents of the files, shuffled. */
static bool choose_places(probe *p, sp_error *err) {
    p->places = calloc(sp_max_size(1, (size_t)(bytes_of_paths(p) / PLACE_BYTES)), sizeof *p->places);
    if (!p->places) return sp_fail(err, SP_ERR_MEMORY, "no memory to probe with");
    for (size_t i = 0; i < p->n_paths; i++) {
        struct stat st;
        if (stat(p->paths[i], &st) != 0) return sp_fail_errno(err, "%s", p->paths[i]);
        for (uint64_t at = 0; at + PLACE_BYTES <= (uint64_t)st.st_size; at += PLACE_BYTES)
            p->places[p->n_places++] = (place){i, at};
    }
    uint64_t key = sp_clock_ns();
    for (size_t i = p->n_places; i > 1; i--) {
        size_t j = (size_t)(sp_rng_uniform(key, i) * (double)i);
        place other = p->places[j];
        p->places[j] = p->places[i - 1];
        p->places[i - 1] = other;
    }
    return true;
}

/* Huge pages, as the runs have: a drive takes so many pieces of memory at a time, and larger ones make larger requests.
 */
static bool get_memory(probe *p, sp_error *err) {
    p->memory = aligned_alloc(HUGE_PAGE, MEMORY_BYTES);
    if (!p->memory) return sp_fail(err, SP_ERR_MEMORY, "%d bytes to probe with cannot be had", MEMORY_BYTES);
    madvise(p->memory, MEMORY_BYTES, MADV_HUGEPAGE);
    memset(p->memory, 1, MEMORY_BYTES); /* page faults are not what is measured */
    return true;
}

/* ---- measuring ---- */

static bool is_same(const setting *a, const setting *b) {
    return a->backend == b->backend && a->depth == b->depth && a->request_bytes == b->request_bytes;
}

static bool is_tried(const probe *p, const setting *s) {
    for (size_t i = 0; p->options->quick && i < sizeof quick_settings / sizeof *quick_settings; i++)
        if (is_same(s, &quick_settings[i])) return true;
    return !p->options->quick;
}

/* Chunks as layout.c cuts them, and as many slots as its ring has for what is in flight. */
static size_t chunk_bytes(const setting *s) { return sp_ring_chunk_bytes(s->request_bytes); }
static size_t n_slots(const setting *s) {
    size_t n = s->depth * s->request_bytes / chunk_bytes(s) + SLOTS_IN_USE;
    return sp_min_size(sp_min_size(n, MAX_SLOTS), MEMORY_BYTES / sp_ring_room_bytes(1 << 16, chunk_bytes(s)));
}

/* Products look at every byte once; so does this, a line at a time. */
static void look_at(const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += CACHE_LINE) (void)*(const volatile char *)(bytes + i);
}

/* Reads places from first on for so many seconds, or n_max of them; bytes per second. They wrap around. */
static bool read_places(probe *p, sp_ring *ring, const setting *s, size_t first, size_t n_max, double seconds,
                        double *bps, sp_error *err) {
    sp_ring_ticket tickets[MAX_SLOTS];
    size_t n_bytes = chunk_bytes(s), per_place = PLACE_BYTES / n_bytes, n_ahead = n_slots(s), n_submitted = 0;
    uint64_t start_ns = sp_clock_ns(), limit_ns = (uint64_t)(seconds * 1e9);
    for (size_t i = 0;; i++) {
        while (n_submitted / per_place < n_max && n_submitted < i + n_ahead && sp_clock_ns() - start_ns < limit_ns) {
            const place *at = &p->places[(first + n_submitted / per_place) % p->n_places];
            uint64_t offset_bytes = at->offset_bytes + n_submitted % per_place * n_bytes;
            sp_ring_extent extent = {.i_file = at->i_file, .offset_bytes = offset_bytes, .n_bytes = n_bytes};
            tickets[n_submitted++ % n_ahead] = sp_ring_submit(ring, &extent);
        }
        if (i == n_submitted) break;
        if (!sp_ring_wait(ring, tickets[i % n_ahead], err)) return false;
        look_at(sp_ring_place(ring, tickets[i % n_ahead]), n_bytes);
        sp_ring_release(ring, tickets[i % n_ahead]);
    }
    p->bytes_read += (uint64_t)n_submitted * n_bytes;
    *bps = (double)n_submitted * (double)n_bytes / ((double)(sp_clock_ns() - start_ns) * 1e-9);
    p->next_place = first + sp_div_up(n_submitted, per_place);
    return true;
}

static sp_ring *open_ring(probe *p, const setting *s, bool cached, sp_error *err) {
    sp_ring_options options = {.backend = s->backend,
                               .depth = s->depth,
                               .request_bytes = s->request_bytes,
                               .few = SP_RING_FEW,
                               .cached = cached,
                               .n_slots = n_slots(s),
                               .slot_extent_bytes = chunk_bytes(s)};
    sp_ring *ring = sp_ring_open((const char *const *)p->paths, p->n_paths, &options, err);
    if (ring && sp_ring_start(ring, p->memory, MEMORY_BYTES, err)) return ring;
    sp_ring_close(ring);
    return NULL;
}

static bool measure_round(probe *p, size_t i, sp_error *err) {
    sp_ring *ring = open_ring(p, &settings[i], false, err);
    if (!ring) return false;
    double seconds = p->options->round_seconds > 0 ? p->options->round_seconds : round_s, bps;
    bool good = read_places(p, ring, &settings[i], p->next_place, SIZE_MAX, seconds, &bps, err);
    if (good) p->rates[i][p->n_rates[i]++] = bps;
    sp_ring_close(ring);
    return good;
}

static int compare_reals(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(probe *p, size_t i) {
    qsort(p->rates[i], p->n_rates[i], sizeof *p->rates[i], compare_reals);
    return p->n_rates[i] ? p->rates[i][p->n_rates[i] / 2] : 0;
}

/* io_uring that cannot be had leaves its settings out; any other failure is one. */
static bool screen(probe *p, sp_error *err) {
    tell(p, "reading with each setting");
    for (size_t i_round = 0; i_round < (p->options->quick ? 1 : N_SCREEN); i_round++) {
        for (size_t i = 0; i < N_SETTINGS; i++) {
            if (!is_tried(p, &settings[i]) || (i_round > 0 && !p->usable[i])) continue;
            sp_error failure = {0};
            p->usable[i] = measure_round(p, i, &failure);
            if (p->usable[i]) continue;
            if (settings[i].backend == SP_RING_URING && i_round == 0) continue;
            *err = failure;
            return false;
        }
    }
    return true;
}

/* What settings are chosen by: the default stays unless another is better by more than rounds differ from each other,
 * and that takes more than a few. */
static double merit_of(probe *p, size_t i) {
    const double margin = p->options->quick ? 2 : 1.06;
    const setting usual = {SP_RING_URING, SP_RING_DEPTH, SP_RING_REQUEST_BYTES};
    return median_of(p, i) * (is_same(&settings[i], &usual) ? margin : 1);
}

static size_t best_of(probe *p, const bool *excluded) {
    size_t best = N_SETTINGS;
    for (size_t i = 0; i < N_SETTINGS; i++)
        if (p->usable[i] && !excluded[i] && (best == N_SETTINGS || merit_of(p, i) > merit_of(p, best))) best = i;
    return best;
}

static bool is_over(const probe *p) { return p->end_ns > 0 && sp_clock_ns() >= p->end_ns; }

/* The index of the winning setting. */
static bool run_finals(probe *p, size_t *winner, sp_error *err) {
    bool excluded[N_SETTINGS] = {false};
    size_t finalists[N_FINALISTS] = {0}, n_finalists = 0, n_most = p->options->quick ? N_QUICK_FINALISTS : N_FINALISTS;
    for (size_t i; n_finalists < n_most && (i = best_of(p, excluded)) < N_SETTINGS;) {
        excluded[i] = true;
        finalists[n_finalists++] = i;
    }
    tell(p, "reading with the best settings");
    for (size_t i = 0; i < n_finalists && !p->options->quick; i++)
        p->n_rates[finalists[i]] = 0; /* the screening chose by luck too */
    for (size_t i_round = 0; i_round < N_ROUNDS && !is_over(p); i_round++)
        for (size_t i = 0; i < n_finalists; i++)
            if (!measure_round(p, finalists[i], err)) return false;
    *winner = finalists[0];
    for (size_t i = 1; i < n_finalists; i++)
        if (merit_of(p, finalists[i]) > merit_of(p, *winner)) *winner = finalists[i];
    return true;
}

/* The same few places over and over: the second time, whoever keeps copies has them. */
static bool read_again(probe *p, const setting *s, bool cached, double *bps, sp_error *err) {
    sp_ring *ring = open_ring(p, s, cached, err);
    if (!ring) return false;
    size_t n = sp_min_size(p->options->quick ? QUICK_REPEAT_PLACES : REPEAT_PLACES, p->n_places);
    bool good = read_places(p, ring, s, 0, n, 1e9, bps, err) && read_places(p, ring, s, 0, n, 1e9, bps, err);
    sp_ring_close(ring);
    return good;
}

static void drop_cached(const probe *p) {
    for (size_t i = 0; i < p->n_paths; i++) {
        int fd = open(p->paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static bool is_direct(probe *p, sp_error *err) {
    sp_ring *ring = open_ring(p, &settings[N_SETTINGS - 1], false, err);
    bool direct = ring && sp_ring_is_direct(ring);
    sp_ring_close(ring);
    return direct;
}

/* ---- judgement ---- */

bool sp_probe_is_believed(const sp_probe_evidence *e, char *note) {
    enum { N = SP_MACHINE_NOTE_BYTES };
    note[0] = '\0';
    if (e->kind == SP_DRIVE_MEMORY) {
        snprintf(note, N, "these files are in memory: no drive was measured");
        return false;
    }
    /* what the device saw is proof; a tenth may be metadata and rounding */
    if (e->device_bytes > 0 && (double)e->device_bytes < 0.9 * (double)e->bytes_read) {
        snprintf(note, N, "the device read only %.1f of %.1f GB: the rest came out of memory, so no rate is believed",
                 (double)e->device_bytes * 1e-9, (double)e->bytes_read * 1e-9);
        return false;
    }
    if (e->device_bytes == 0 && e->read_bps > 0.5 * e->cached_bps) {
        snprintf(note, N,
                 "%.1f GB/s is more than half the rate of the page cache (%.1f GB/s), and no device counts "
                 "the reads: memory may have given it, so it is not believed",
                 e->read_bps * 1e-9, e->cached_bps * 1e-9);
        return false;
    }
    if (!e->direct)
        snprintf(note, N, "no direct reads here: measured and run through the page cache, which is told to forget");
    else if (e->is_virtual && e->again_bps > 1.5 * e->read_bps)
        snprintf(note, N,
                 "a cache below this virtual drive gives %.1f GB/s for bytes read before; the rate is that of "
                 "first reads",
                 e->again_bps * 1e-9);
    else if (e->is_virtual && e->own_file)
        snprintf(note, N,
                 "a virtual drive, and its host may have kept the test file in memory: probe a model's "
                 "directory to be certain");
    return true;
}

static bool judge(probe *p, const sp_drive *found, sp_probe_evidence *evidence, sp_machine_drive *drive,
                  sp_error *err) {
    tell(p, "comparing with caches");
    setting best = {drive->backend, drive->depth, drive->request_bytes};
    if (!read_again(p, &best, false, &evidence->again_bps, err) ||
        !read_again(p, &settings[N_SETTINGS - 1], true, &evidence->cached_bps, err))
        return false;
    drop_cached(p);
    evidence->kind = found->kind;
    evidence->is_virtual = found->is_virtual;
    evidence->own_file = p->own_fd >= 0;
    evidence->direct = drive->direct;
    evidence->read_bps = drive->read_bps;
    drive->cached_bps = evidence->cached_bps;
    if (!sp_probe_is_believed(evidence, drive->note)) drive->read_bps = drive->low_bps = drive->high_bps = 0;
    return true;
}

static bool measure(probe *p, const sp_drive *found, sp_machine_drive *drive, sp_error *err) {
    drive->direct = is_direct(p, err);
    if (err->code != SP_OK) return false;
    p->bytes_read = 0;
    uint64_t sectors = sp_drive_sectors_read(found);
    size_t i;
    if (!screen(p, err) || !run_finals(p, &i, err)) return false;
    sp_probe_evidence evidence = {.bytes_read = p->bytes_read};
    if (sectors > 0) evidence.device_bytes = sp_max_size(1, (sp_drive_sectors_read(found) - sectors) * 512);
    drive->backend = settings[i].backend;
    drive->depth = settings[i].depth;
    drive->request_bytes = settings[i].request_bytes;
    drive->read_bps = median_of(p, i); /* sorted now */
    drive->low_bps = p->rates[i][0];
    drive->high_bps = p->rates[i][p->n_rates[i] - 1];
    return judge(p, found, &evidence, drive, err);
}

static void clean_up(probe *p) {
    free(p->memory);
    if (p->own_fd >= 0) close(p->own_fd);
    for (size_t i = 0; i < p->n_paths; i++) free(p->paths[i]);
    free(p->places);
}

bool sp_probe_drive(const char *path, const sp_probe_options *options, sp_machine_drive *drive, sp_error *err) {
    sp_drive found;
    if (!sp_drive_find(path, &found, err)) return false;
    sp_machine_drive result = {.kind = found.kind, .measured_s = sp_clock_wall_s()};
    snprintf(result.mount, sizeof result.mount, "%s", found.mount);
    snprintf(result.file_system, sizeof result.file_system, "%s", found.file_system);
    snprintf(result.device, sizeof result.device, "%s", found.device);
    if (found.kind == SP_DRIVE_MEMORY) { /* nothing to measure, and a test file would only take memory */
        sp_probe_is_believed(&(sp_probe_evidence){.kind = found.kind}, result.note);
        *drive = result;
        return true;
    }
    probe *p = calloc(1, sizeof *p);
    SP_CHECK(p != NULL);
    p->options = options;
    p->own_fd = -1;
    if (options->quick) p->end_ns = sp_clock_ns() + (uint64_t)(quick_s * 1e9);
    bool good =
        choose_files(p, path, err) && choose_places(p, err) && get_memory(p, err) && measure(p, &found, &result, err);
    clean_up(p);
    free(p);
    if (good) *drive = result;
    return good;
}
