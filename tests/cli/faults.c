/* A drive that fails, for tests: preloaded into spill, it stands between the program and pread. Reads of the file
 * $SPILL_FAULT_FILE (the end of its path) are counted; from byte $SPILL_FAULT_AFTER on they go wrong the way that
 * $SPILL_FAULT says. io_uring is refused, so that every weight comes through here. */
#include <dirent.h>
#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { N_PASSING = 3, SLOW_FACTOR = 9, BLOCK = 4096 };

static _Atomic uint64_t n_bytes_read;
static atomic_int n_faults;

static ssize_t read_really(int fd, void *to, size_t n_bytes, off_t at) {
    return syscall(SYS_pread64, fd, to, n_bytes, at);
}

static ssize_t fail_with(int error_number) {
    errno = error_number;
    return -1;
}

/* ---- kinds of faults: each does the read in its own way ---- */

static ssize_t eio(int fd, void *to, size_t n_bytes, off_t at) {
    (void)fd, (void)to, (void)n_bytes, (void)at;
    return fail_with(EIO);
}

static ssize_t eio_that_passes(int fd, void *to, size_t n_bytes, off_t at) {
    return atomic_fetch_add(&n_faults, 1) < N_PASSING ? fail_with(EIO) : read_really(fd, to, n_bytes, at);
}

static ssize_t eintr(int fd, void *to, size_t n_bytes, off_t at) {
    return atomic_fetch_add(&n_faults, 1) % 2 ? fail_with(EINTR) : read_really(fd, to, n_bytes, at);
}

static ssize_t shorter(int fd, void *to, size_t n_bytes, off_t at) {
    size_t part = n_bytes / 3 / BLOCK * BLOCK;
    return read_really(fd, to, part > 0 ? part : n_bytes, at);
}

static ssize_t slow(int fd, void *to, size_t n_bytes, off_t at) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    ssize_t got = read_really(fd, to, n_bytes, at);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long ns = (end.tv_sec - start.tv_sec) * 1000000000ll + (end.tv_nsec - start.tv_nsec);
    nanosleep(&(struct timespec){ns * SLOW_FACTOR / 1000000000, ns * SLOW_FACTOR % 1000000000}, NULL);
    return got;
}

static void path_of(int fd, char path[512]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 511);
    path[n > 0 ? n : 0] = '\0';
}

static ssize_t truncated(int fd, void *to, size_t n_bytes, off_t at) {
    char path[512];
    path_of(fd, path);
    if (atomic_fetch_add(&n_faults, 1) == 0 && truncate(path, 100000) != 0) abort();
    return read_really(fd, to, n_bytes, at);
}

/* By a copy that lies beside it. */
static ssize_t replaced(int fd, void *to, size_t n_bytes, off_t at) {
    char path[512], copy[520];
    path_of(fd, path);
    snprintf(copy, sizeof copy, "%s.copy", path);
    if (atomic_fetch_add(&n_faults, 1) == 0 && rename(copy, path) != 0) abort();
    return read_really(fd, to, n_bytes, at);
}

static ssize_t deleted(int fd, void *to, size_t n_bytes, off_t at) {
    char path[512];
    path_of(fd, path);
    if (atomic_fetch_add(&n_faults, 1) == 0 && unlink(path) != 0) abort();
    return read_really(fd, to, n_bytes, at);
}

static const struct {
    const char *name;
    ssize_t (*read)(int fd, void *to, size_t n_bytes, off_t at);
} kinds[] = {
    {"eio", eio},           {"eio-that-passes", eio_that_passes},
    {"eintr", eintr},       {"short", shorter},
    {"slow", slow},         {"truncated", truncated},
    {"replaced", replaced}, {"deleted", deleted},
};

/* ---- in place of the system's ---- */

static int is_meant(int fd) {
    char path[512];
    const char *name = getenv("SPILL_FAULT_FILE");
    path_of(fd, path);
    size_t n_path = strlen(path), n_name = name ? strlen(name) : 0;
    return name && n_path >= n_name && strcmp(path + n_path - n_name, name) == 0;
}

ssize_t pread(int fd, void *to, size_t n_bytes, off_t at) {
    const char *kind = getenv("SPILL_FAULT"), *after = getenv("SPILL_FAULT_AFTER");
    if (!kind || !after || !is_meant(fd) || atomic_fetch_add(&n_bytes_read, n_bytes) < strtoull(after, NULL, 10))
        return read_really(fd, to, n_bytes, at);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i].name) == 0) return kinds[i].read(fd, to, n_bytes, at);
    abort();
}

ssize_t pread64(int fd, void *to, size_t n_bytes, off_t at) { return pread(fd, to, n_bytes, at); }

int io_uring_queue_init(unsigned n_entries, struct io_uring *ring, unsigned flags) {
    (void)n_entries, (void)ring, (void)flags;
    return -EPERM;
}
