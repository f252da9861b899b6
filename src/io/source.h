/* A file of weights opened for reading past the page cache (O_DIRECT).
 *
 * Direct reads want their offset, length and memory to be multiples of a number that only the file system knows.
 * statx(STATX_DIOALIGN) tells it on new kernels; whatever it says is proved by a real read of that very file before
 * anybody relies on it. A file system without direct reads gets ordinary ones, and `direct` says so: whoever reads then
 * gives the pages back (sp_source_forget). Thread-safe after open: reads carry their own offset. */
#ifndef SPILL_IO_SOURCE_H
#define SPILL_IO_SOURCE_H

#include <stdint.h>
#include <sys/stat.h>

#include "util/error.h"

typedef struct {
    int fd;             /* -1: not open */
    const char *path;   /* borrowed from the caller of sp_source_open */
    uint64_t n_bytes;   /* at open */
    bool direct;        /* the page cache is bypassed */
    size_t align_bytes; /* of offset, length and memory of a read, a power of two; 1 when not direct */
    struct stat as_opened;
} sp_source;

/* cached: ordinary reads are wanted. On failure *source is not open: SP_ERR_INPUT when it is no regular file,
 * SP_ERR_IO when the system refuses. */
bool sp_source_open(sp_source *source, const char *path, bool cached, sp_error *err) SP_MUST_CHECK;
void sp_source_close(sp_source *source); /* one that is not open is fine */

/* The file is still there under its name and nobody has written to it since it was opened; else SP_ERR_IO. */
bool sp_source_check(const sp_source *source, sp_error *err) SP_MUST_CHECK;

/* Drops the bytes from the page cache, for reads that went through it. */
void sp_source_forget(const sp_source *source, uint64_t offset_bytes, size_t n_bytes);

#endif
