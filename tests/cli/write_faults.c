/* Preloaded into spill: the drive that results, journal and manifest are written to.
 *
 * SPILL_WRITE_FAULT=KIND:N makes the Nth operation that changes a file fail (open with O_CREAT, mkdir, write to a
 * regular file, fdatasync, rename; counted from 1), and with the first two kinds every later one:
 *
 * - full: ENOSPC, of a write after half its bytes
 * - error: EIO
 * - kill: half a write, then SIGKILL
 * - short: no error, but from the Nth on a write takes half its bytes
 * - late: all syncs but the first two fail with EIO, nothing else does
 *
 * SPILL_CLOCK=jump: wall time goes by leaps of days, forward and back. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static unsigned long n_operations;

/* The fault of the next operation: 'f', 'e', 'k', 's', or 0. */
static int next_fault(void) {
    const char *fault = getenv("SPILL_WRITE_FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
    unsigned long at = colon ? strtoul(colon + 1, NULL, 10) : 0, now = ++n_operations;
    if (!at || now < at || *fault == 'l' || (now > at && *fault == 'k')) return 0;
    return *fault;
}

/* True when the operation fails, errno set. */
static int fails(void) {
    int fault = next_fault();
    if (fault == 'k') kill(getpid(), SIGKILL);
    if (fault == 'f') errno = ENOSPC;
    if (fault == 'e') errno = EIO;
    return fault == 'f' || fault == 'e';
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if ((flags & O_CREAT) && fails()) return -1;
    return REAL(open)(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) { return fails() ? -1 : REAL(mkdir)(path, mode); }
int fdatasync(int fd) {
    static unsigned long n_syncs;
    const char *fault = getenv("SPILL_WRITE_FAULT");
    if (fault && *fault == 'l' && ++n_syncs > 2) return errno = EIO, -1;
    return fails() ? -1 : REAL(fdatasync)(fd);
}
int rename(const char *from, const char *to) { return fails() ? -1 : REAL(rename)(from, to); }

ssize_t write(int fd, const void *data, size_t n_bytes) {
    struct stat st;
    int fault = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? next_fault() : 0;
    size_t half = n_bytes / 2;
    if (fault == 'e') return errno = EIO, -1;
    if (!fault || (fault == 's' && n_bytes < 2)) return REAL(write)(fd, data, n_bytes);
    /* The first write to a full drive takes what there was room for; the rest of it is refused. */
    static int was_full;
    if (fault == 'f' && was_full++) return errno = ENOSPC, -1;
    ssize_t put = half ? REAL(write)(fd, data, half) : 0;
    if (fault == 'k') kill(getpid(), SIGKILL);
    if (fault == 'f' && !half) return errno = ENOSPC, -1;
    return put;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static unsigned long n_calls;
    int status = REAL(clock_gettime)(id, now);
    if (id == CLOCK_REALTIME && getenv("SPILL_CLOCK")) now->tv_sec += (time_t)(n_calls++ % 7) * 86400 - 3 * 86400;
    return status;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
