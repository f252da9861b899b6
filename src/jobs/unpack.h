/* A packed input, unpacked as it is read: gzip (.gz) and Zstandard (.zst), known by the file's name. Members or frames
 * that follow one another are one input, as their own tools have it; one that is cut off or damaged is an error. Memory
 * is bounded: a gzip window of 32 KB, or the window that a Zstandard file asks for, 128 MB at most. Not thread-safe. */
#ifndef SPILL_JOBS_UNPACK_H
#define SPILL_JOBS_UNPACK_H

#include <sys/types.h>

#include "util/error.h"

/* Bytes of the packed file: more than 0, 0 at its end, -1 with err filled. */
typedef ssize_t sp_unpack_source(void *ctx, void *to, size_t n_bytes, sp_error *err);

typedef struct sp_unpack sp_unpack;

/* By the end of its name; the file is not looked at. */
bool sp_unpack_is_packed(const char *path);
/* Unpacks the file at path, which must be packed by its name. Its bytes come from source(ctx, ...). NULL with
 * SP_ERR_SUPPORT when this build has no library for it. */
sp_unpack *sp_unpack_new(const char *path, sp_unpack_source *source, void *ctx, sp_error *err) SP_MUST_CHECK;
/* As a source: unpacked bytes. */
ssize_t sp_unpack_read(sp_unpack *unpack, void *to, size_t n_bytes, sp_error *err) SP_MUST_CHECK;
size_t sp_unpack_left(const sp_unpack *unpack); /* packed bytes that were got and not unpacked yet */
size_t sp_unpack_held(const sp_unpack *unpack); /* bytes that were unpacked and not handed out yet, about */
void sp_unpack_free(sp_unpack *unpack);         /* NULL is fine */

/* ---- one format (unpack_<format>.c) ---- */

typedef struct {
    const char *in; /* packed bytes that are left; moved on by a step */
    size_t n_in;
    char *out; /* room that is left; moved on by a step */
    size_t n_out;
} sp_unpack_window;

typedef enum { SP_UNPACK_MORE, SP_UNPACK_AT_END, SP_UNPACK_DAMAGED } sp_unpack_step;

typedef struct {
    const char *suffix, *name;
    void *(*start)(sp_error *err);
    /* Unpacks what it can. AT_END: a member or frame is whole, the next may follow. */
    sp_unpack_step (*step)(void *state, sp_unpack_window *window);
    void (*stop)(void *state);
    size_t held_bytes;   /* unpacked ones that the library may keep to itself when there is no more room for them */
    const char *missing; /* the library that this build lacks for it: then there are no functions; else NULL */
} sp_unpack_format;
extern const sp_unpack_format sp_unpack_gzip, sp_unpack_zstd;

#endif
