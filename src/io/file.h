/* A regular file opened for reading at known offsets. Thread-safe after open: reads carry their own offset. */
#ifndef SPILL_IO_FILE_H
#define SPILL_IO_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

typedef struct {
    int fd;           /* -1: not open */
    const char *path; /* borrowed from the caller of sp_file_open, for messages */
    uint64_t n_bytes;
    uint64_t inode;
    uint64_t mtime_ns; /* of the last change, since 1970 */
} sp_file;

/* False with SP_ERR_INPUT when there is no such file, it may not be read or is not a regular one, SP_ERR_IO when the
 * system has no room or the drive fails.
 * On failure *file is not open. */
bool sp_file_open(sp_file *file, const char *path, sp_error *err) SP_MUST_CHECK;
void sp_file_close(sp_file *file); /* a file that is not open is fine */

/* Exactly n_bytes from offset_bytes into data. A file that ends before is SP_ERR_INPUT, naming both sizes. */
bool sp_file_read_at(const sp_file *file, uint64_t offset_bytes, void *data, size_t n_bytes,
                     sp_error *err) SP_MUST_CHECK;

#endif
