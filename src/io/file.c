/* Checked reads of a regular file: short reads and EINTR continued, an early end named. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_MAX_BYTES = 1 << 30 }; /* one pread moves at most 2 GiB on Linux */

bool sp_file_open(sp_file *file, const char *path, sp_error *err) {
    *file = (sp_file){.fd = -1, .path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused below, not waited for */
    if (fd < 0) return sp_fail_open(err, path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        sp_fail_errno(err, "%s", path);
        close(fd);
        return false;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return sp_fail(err, SP_ERR_INPUT, "%s: not a regular file", path);
    }
    file->fd = fd;
    file->n_bytes = (uint64_t)st.st_size;
    file->inode = (uint64_t)st.st_ino;
    file->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    return true;
}

void sp_file_close(sp_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

bool sp_file_read_at(const sp_file *file, uint64_t offset_bytes, void *data, size_t n_bytes, sp_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        size_t want = n_bytes - done < READ_MAX_BYTES ? n_bytes - done : READ_MAX_BYTES;
        uint64_t at = offset_bytes + done;
        ssize_t got = pread(file->fd, (char *)data + done, want, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sp_fail_errno(err, "%s: reading at byte %llu", file->path, (unsigned long long)at);
        if (got == 0)
            return sp_fail(err, SP_ERR_INPUT, "%s: ends at byte %llu, want %zu more", file->path,
                           (unsigned long long)at, n_bytes - done);
        done += (size_t)got;
    }
    return true;
}
