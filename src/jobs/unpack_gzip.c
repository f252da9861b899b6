/* gzip, by zlib. */
#define ZLIB_CONST /* input is not written */
#include <stdlib.h>
#include <zlib.h>

#include "jobs/unpack.h"

enum { GZIP_ONLY = 15 + 16 }; /* greatest window, gzip's header and no other */

static void *start(sp_error *err) {
    z_stream *stream = calloc(1, sizeof *stream);
    SP_CHECK(stream != NULL);
    if (inflateInit2(stream, GZIP_ONLY) == Z_OK) return stream;
    sp_fail(err, SP_ERR_MEMORY, "zlib: no memory");
    free(stream);
    return NULL;
}

static sp_unpack_step step(void *state, sp_unpack_window *window) {
    z_stream *stream = state;
    stream->next_in = (const unsigned char *)window->in;
    stream->avail_in = (unsigned)window->n_in;
    stream->next_out = (unsigned char *)window->out;
    stream->avail_out = (unsigned)window->n_out;
    int status = inflate(stream, Z_NO_FLUSH);
    window->in = (const char *)stream->next_in;
    window->n_in = stream->avail_in;
    window->out = (char *)stream->next_out;
    window->n_out = stream->avail_out;
    if (status == Z_STREAM_END) return inflateReset(stream) == Z_OK ? SP_UNPACK_AT_END : SP_UNPACK_DAMAGED;
    return status == Z_OK || status == Z_BUF_ERROR ? SP_UNPACK_MORE : SP_UNPACK_DAMAGED;
}

static void stop(void *state) {
    inflateEnd(state);
    free(state);
}

const sp_unpack_format sp_unpack_gzip = {".gz", "gzip", start, step, stop, 0, NULL};
