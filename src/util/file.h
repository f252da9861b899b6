/* Whole small files into memory, with a bound; directories. Thread-safe. */
#ifndef SPILL_UTIL_FILE_H
#define SPILL_UTIL_FILE_H

#include "util/buf.h"
#include "util/error.h"

/* Appends the file's bytes to *out. Fails, naming the path, for what is no regular file, for more than max_bytes, and
 * for a file that shrinks while it is read. */
bool sp_file_read(const char *path, size_t max_bytes, sp_buf *out, sp_error *err) SP_MUST_CHECK;

/* Whether there is nothing at path: no entry, or a link to none. What cannot be looked at counts as there, so that
 * reading it tells why. */
bool sp_file_is_absent(const char *path);

/* Writes all bytes to an open file, where it stands. False with errno. */
bool sp_file_write_all(int fd, const char *data, size_t n_bytes);

/* Makes the directory at path and all above it that are not there. */
bool sp_file_make_dirs(const char *path, sp_error *err) SP_MUST_CHECK;

#endif
