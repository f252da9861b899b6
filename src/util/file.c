/* Whole files. O_NONBLOCK keeps the open from waiting on a FIFO that lies where a file should. */
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_into(int fd, const char *path, size_t n_bytes, sp_buf *out, sp_error *err) {
    char *to = sp_buf_reserve(out, n_bytes);
    if (!to) return sp_fail(err, SP_ERR_MEMORY, "%s: no memory for %zu bytes", path, n_bytes);
    for (size_t done = 0; done < n_bytes;) {
        ssize_t got = read(fd, to + done, n_bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sp_fail_errno(err, "%s", path);
        if (got == 0) return sp_fail(err, SP_ERR_IO, "%s: it became shorter while it was read", path);
        done += (size_t)got;
    }
    out->n_bytes += n_bytes;
    out->data[out->n_bytes] = '\0';
    return true;
}

bool sp_file_read(const char *path, size_t max_bytes, sp_buf *out, sp_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    bool ok = false;
    if (fd < 0 || fstat(fd, &st) != 0)
        sp_fail_open(err, path);
    else if (!S_ISREG(st.st_mode))
        sp_fail(err, SP_ERR_INPUT, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > max_bytes)
        sp_fail(err, SP_ERR_INPUT, "%s: %lld bytes, at most %zu are read", path, (long long)st.st_size, max_bytes);
    else
        ok = read_into(fd, path, (size_t)st.st_size, out, err);
    if (fd >= 0) close(fd);
    return ok;
}

bool sp_file_is_absent(const char *path) {
    struct stat st;
    return stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool sp_file_write_all(int fd, const char *data, size_t n_bytes) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t put = write(fd, data + done, n_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        done += (size_t)put;
    }
    return true;
}

bool sp_file_make_dirs(const char *path, sp_error *err) {
    char part[PATH_MAX];
    for (size_t n = 1; path[n - 1]; n++) {
        if (path[n] != '/' && path[n] != '\0') continue;
        if (n >= sizeof part) return sp_fail(err, SP_ERR_USAGE, "%s: over %zu bytes", path, sizeof part - 1);
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return sp_fail_create(err, part);
    }
    return true;
}
