/* Direct reads: what the file system says, then proof.
 *
 * The ladder: statx's alignment, at least MIN_ALIGN; doubled up to MAX_ALIGN as long as the system answers EINVAL; then
 * ordinary reads. Starting at 4096 although many drives would take 512 costs a few over-read bytes in requests of a
 * megabyte, and makes every request whole pages of memory and whole physical sectors of the drive. */
#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/size.h"

enum { MIN_ALIGN = 4096, MAX_ALIGN = 65536 };

/* What the kernel says about direct reads of the file; 0: nothing, or that there are none. */
static size_t stated_align(int fd) {
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && info.stx_mask & STATX_DIOALIGN)
        return sp_max_size(info.stx_dio_mem_align, info.stx_dio_offset_align);
#else
    (void)fd;
#endif
    return 0;
}

/* Reads one block at offset 0, and where the file has more than one at the second, into memory aligned to no more than
 * align_bytes. */
static bool is_proved(int fd, uint64_t file_bytes, char *memory, size_t align_bytes) {
    char *to = memory + align_bytes;
    for (uint64_t offset = 0; offset <= align_bytes && offset < file_bytes; offset += align_bytes) {
        ssize_t want = (ssize_t)sp_min_size(align_bytes, (size_t)(file_bytes - offset)), got;
        do got = pread(fd, to, align_bytes, (off_t)offset);
        while (got < 0 && errno == EINTR);
        if (got < want) return false;
    }
    return true;
}

/* The smallest alignment that works, or 0. */
static size_t proved_align(int fd, uint64_t file_bytes) {
    size_t align_bytes = sp_max_size(stated_align(fd), MIN_ALIGN);
    if (align_bytes > MAX_ALIGN || (align_bytes & (align_bytes - 1)) != 0) return 0;
    char *memory = aligned_alloc(2 * MAX_ALIGN, 2 * MAX_ALIGN);
    if (!memory) return 0;
    while (align_bytes <= MAX_ALIGN && !is_proved(fd, file_bytes, memory, align_bytes)) align_bytes *= 2;
    free(memory);
    return align_bytes <= MAX_ALIGN ? align_bytes : 0;
}

static bool open_direct(sp_source *source) {
    source->fd = open(source->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (source->fd < 0) return false;
    source->align_bytes = proved_align(source->fd, source->n_bytes);
    source->direct = source->align_bytes != 0;
    if (source->direct) return true;
    close(source->fd);
    return false;
}

bool sp_source_open(sp_source *source, const char *path, bool cached, sp_error *err) {
    *source = (sp_source){.fd = -1, .path = path};
    if (stat(path, &source->as_opened) != 0) return sp_fail_errno(err, "%s cannot be opened", path);
    if (!S_ISREG(source->as_opened.st_mode)) return sp_fail(err, SP_ERR_INPUT, "%s: not a regular file", path);
    source->n_bytes = (uint64_t)source->as_opened.st_size;
    if (!cached && open_direct(source)) return sp_source_check(source, err);
    source->align_bytes = 1;
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return sp_fail_errno(err, "%s cannot be opened", path);
    return sp_source_check(source, err);
}

void sp_source_close(sp_source *source) {
    if (source->fd >= 0) close(source->fd);
    source->fd = -1;
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool sp_source_check(const sp_source *source, sp_error *err) {
    struct stat held, named;
    if (fstat(source->fd, &held) != 0) return sp_fail_errno(err, "%s: fstat", source->path);
    if (stat(source->path, &named) != 0) return sp_fail_errno(err, "%s: the model's file is gone", source->path);
    if (!is_same(&held, &source->as_opened) || !is_same(&named, &held))
        return sp_fail(err, SP_ERR_IO, "%s has changed while it was being read", source->path);
    return true;
}

void sp_source_forget(const sp_source *source, uint64_t offset_bytes, size_t n_bytes) {
    posix_fadvise(source->fd, (off_t)offset_bytes, (off_t)n_bytes, POSIX_FADV_DONTNEED);
}
