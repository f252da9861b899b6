/* The results file. */
#include "jobs/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"

enum { SYNC_NS = 900000000 };

static bool adopt(sp_writer *writer, int fd, const char *path, sp_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return sp_fail_errno(err, "%s", path);
    *writer = (sp_writer){.fd = fd, .is_regular = S_ISREG(st.st_mode), .synced_ns = sp_clock_ns()};
    writer->end_bytes = writer->is_regular ? (uint64_t)st.st_size : 0;
    writer->path = strdup(path);
    SP_CHECK(writer->path != NULL);
    return true;
}

bool sp_writer_open(sp_writer *writer, const char *path, sp_error *err) {
    *writer = (sp_writer){.fd = -1};
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        sp_fail_errno(err, "%s: cannot be created", path);
        err->code = SP_ERR_USAGE;
        return false;
    }
    if (!adopt(writer, fd, path, err)) {
        close(fd);
        return false;
    }
    if (writer->end_bytes == 0) return true;
    sp_fail(err, SP_ERR_USAGE, "%s: holds %llu bytes that are not this job's results; name another file with -o", path,
            (unsigned long long)writer->end_bytes);
    sp_writer_close(writer);
    return false;
}

bool sp_writer_open_fd(sp_writer *writer, int fd, const char *name, sp_error *err) {
    *writer = (sp_writer){.fd = -1};
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return sp_fail_errno(err, "%s", name);
    if (adopt(writer, copy, name, err)) return true;
    close(copy);
    return false;
}

bool sp_writer_line(sp_writer *writer, const char *line, size_t n_bytes, sp_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t put = write(writer->fd, line + done, n_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            writer->is_closed_by_reader = errno == EPIPE;
            sp_fail_errno(err, "%s: writing a result", writer->path);
            if (done > 0 && writer->is_regular && ftruncate(writer->fd, (off_t)writer->end_bytes) != 0)
                sp_error_wrap(err, "half a line is left at byte %llu", (unsigned long long)writer->end_bytes);
            return false;
        }
        done += (size_t)put;
    }
    writer->end_bytes += n_bytes;
    writer->n_unsynced += n_bytes;
    return true;
}

bool sp_writer_sync(sp_writer *writer, bool force, sp_error *err) {
    if (writer->fd < 0 || !writer->is_regular || writer->n_unsynced == 0) return true;
    uint64_t now = sp_clock_ns();
    if (!force && now - writer->synced_ns < SYNC_NS) return true;
    writer->synced_ns = now;
    writer->n_unsynced = 0;
    return fdatasync(writer->fd) == 0 || sp_fail_errno(err, "%s: syncing results", writer->path);
}

void sp_writer_close(sp_writer *writer) {
    if (writer->fd >= 0) close(writer->fd);
    free(writer->path);
    *writer = (sp_writer){.fd = -1};
}
