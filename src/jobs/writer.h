/* The results file: append-only, one write a line, synced within a second, never a torn line left behind by us. Not
 * thread-safe. */
#ifndef SPILL_JOBS_WRITER_H
#define SPILL_JOBS_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

typedef struct {
    int fd;                   /* -1: closed */
    char *path;               /* for messages; heap */
    bool is_regular;          /* a file that can be synced and cut; else a pipe or a device */
    bool is_closed_by_reader; /* a write found the reader gone (EPIPE) */
    bool is_own;              /* opened and locked here: nobody else may write to it, as to a stdout that is shared */
    uint64_t end_bytes;       /* where the last whole line ends */
    uint64_t n_unsynced;
} sp_writer;

/* Opens path for appending, creating it, and locks it. A regular file that holds anything already or that another run
 * writes to is refused. */
bool sp_writer_open(sp_writer *writer, const char *path, sp_error *err) SP_MUST_CHECK;
/* Opens and locks an earlier run's results of which the first end_bytes are whole lines; nothing is cut yet. Without a
 * line the file may be missing: it is made anew. */
bool sp_writer_reopen(sp_writer *writer, const char *path, uint64_t end_bytes, sp_error *err) SP_MUST_CHECK;
/* Cuts what lies behind the last whole line. */
bool sp_writer_cut(sp_writer *writer, sp_error *err) SP_MUST_CHECK;
/* Writes to a descriptor that stays the caller's (stdout); one that cannot be written is refused. */
bool sp_writer_open_fd(sp_writer *writer, int fd, const char *name, sp_error *err) SP_MUST_CHECK;
/* One line with its LF. On failure a regular file is cut back to whole lines. */
bool sp_writer_line(sp_writer *writer, const char *line, size_t n_bytes, sp_error *err) SP_MUST_CHECK;
/* Puts on the drive what is not there yet. */
bool sp_writer_sync(sp_writer *writer, sp_error *err) SP_MUST_CHECK;
/* Whether a regular file still has what was written to it, and one of its own nothing else: somebody may have deleted
 * it, cut it or written to it. */
bool sp_writer_check(const sp_writer *writer, sp_error *err) SP_MUST_CHECK;
/* For a caller who syncs: the descriptor if something is to be synced, which counts as synced from now on; else -1. */
int sp_writer_take_unsynced(sp_writer *writer);
void sp_writer_close(sp_writer *writer);

#endif
