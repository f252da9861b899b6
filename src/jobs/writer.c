/* The results file. */
#include "jobs/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool adopt(sp_writer *writer, int fd, const char *path, sp_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return sp_fail_errno(err, "%s", path);
    *writer = (sp_writer){.fd = fd, .is_regular = S_ISREG(st.st_mode)};
    off_t at = writer->is_regular ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
    writer->end_bytes = at > 0 ? (uint64_t)at : 0;
    writer->path = strdup(path);
    SP_CHECK(writer->path != NULL);
    return true;
}

/* Opened for appending and locked. The lock goes when the descriptor does, also when the process is killed; where a
 * file system has none, go on. */
static bool open_locked(sp_writer *writer, const char *path, int flags, sp_error *err) {
    *writer = (sp_writer){.fd = -1};
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
    if (fd < 0) {
        bool is_drive = errno == ENOSPC || errno == EDQUOT || errno == EIO;
        if (errno == EISDIR)
            return sp_fail(err, SP_ERR_USAGE, "%s: a directory found, a file wanted; name one in it with -o", path);
        sp_fail_errno(err, "%s: cannot be %s", path, flags & O_CREAT ? "created" : "opened");
        if (!is_drive) err->code = SP_ERR_USAGE;
        return false;
    }
    if (!adopt(writer, fd, path, err)) {
        close(fd);
        return false;
    }
    writer->is_own = true;
    if (writer->is_regular && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        sp_fail(err, SP_ERR_USAGE, "%s: another run writes its results there; name another file with -o", path);
        sp_writer_close(writer);
        return false;
    }
    return true;
}

bool sp_writer_open(sp_writer *writer, const char *path, sp_error *err) {
    if (!open_locked(writer, path, O_CREAT, err)) return false;
    struct stat st;
    if (fstat(writer->fd, &st) == 0 && writer->is_regular) writer->end_bytes = (uint64_t)st.st_size;
    if (writer->end_bytes == 0) return true;
    sp_fail(err, SP_ERR_USAGE, "%s: holds %llu bytes that are not this job's results; name another file with -o", path,
            (unsigned long long)writer->end_bytes);
    sp_writer_close(writer);
    return false;
}

bool sp_writer_reopen(sp_writer *writer, const char *path, uint64_t end_bytes, sp_error *err) {
    if (!open_locked(writer, path, end_bytes ? 0 : O_CREAT, err)) return false;
    writer->end_bytes = end_bytes;
    return true;
}

bool sp_writer_cut(sp_writer *writer, sp_error *err) {
    return ftruncate(writer->fd, (off_t)writer->end_bytes) == 0 ||
           sp_fail_errno(err, "%s: cutting half a line off", writer->path);
}

bool sp_writer_open_fd(sp_writer *writer, int fd, const char *name, sp_error *err) {
    *writer = (sp_writer){.fd = -1};
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), flags = fcntl(fd, F_GETFL);
    if (copy < 0 || flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
        if (copy >= 0) close(copy);
        return sp_fail(err, SP_ERR_USAGE, "%s: closed, or not open for writing; name a file with -o", name);
    }
    if (adopt(writer, copy, name, err)) return true;
    close(copy);
    return false;
}

/* Cuts off a line of which n_bytes were written, unless somebody else has written behind it. */
static void cut_back(const sp_writer *writer, size_t n_bytes, sp_error *err) {
    struct stat st;
    if (n_bytes == 0 || !writer->is_regular) return;
    bool is_ours = fstat(writer->fd, &st) == 0 && (uint64_t)st.st_size == writer->end_bytes + n_bytes;
    if (!is_ours || ftruncate(writer->fd, (off_t)writer->end_bytes) != 0)
        sp_error_wrap(err, "half a line is left at byte %llu", (unsigned long long)writer->end_bytes);
    else
        lseek(writer->fd, (off_t)writer->end_bytes, SEEK_SET);
}

bool sp_writer_line(sp_writer *writer, const char *line, size_t n_bytes, sp_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t put = write(writer->fd, line + done, n_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            writer->is_closed_by_reader = errno == EPIPE;
            sp_fail_errno(err, "%s: writing a result", writer->path);
            cut_back(writer, done, err);
            return false;
        }
        done += (size_t)put;
    }
    writer->end_bytes += n_bytes;
    writer->n_unsynced += n_bytes;
    return true;
}

int sp_writer_take_unsynced(sp_writer *writer) {
    if (writer->fd < 0 || !writer->is_regular || writer->n_unsynced == 0) return -1;
    writer->n_unsynced = 0;
    return writer->fd;
}

bool sp_writer_sync(sp_writer *writer, sp_error *err) {
    int fd = sp_writer_take_unsynced(writer);
    return fd < 0 || fdatasync(fd) == 0 || sp_fail_errno(err, "%s: syncing results", writer->path);
}

bool sp_writer_check(const sp_writer *writer, sp_error *err) {
    struct stat st;
    if (writer->fd < 0 || !writer->is_regular || fstat(writer->fd, &st) != 0) return true;
    if (st.st_nlink == 0 && access(writer->path, F_OK) != 0)
        return sp_fail(err, SP_ERR_IO, "%s: deleted while the run wrote results to it; run the rows again",
                       writer->path);
    if ((uint64_t)st.st_size < writer->end_bytes)
        return sp_fail(err, SP_ERR_IO, "%s: has %lld bytes of the %llu that the run wrote to it; run the rows again",
                       writer->path, (long long)st.st_size, (unsigned long long)writer->end_bytes);
    return !writer->is_own || (uint64_t)st.st_size == writer->end_bytes ||
           sp_fail(err, SP_ERR_IO,
                   "%s: %llu bytes found that another program wrote to it, none wanted; take them out and give the "
                   "same command again",
                   writer->path, (unsigned long long)st.st_size - (unsigned long long)writer->end_bytes);
}

void sp_writer_close(sp_writer *writer) {
    if (writer->fd >= 0) close(writer->fd);
    free(writer->path);
    *writer = (sp_writer){.fd = -1};
}
