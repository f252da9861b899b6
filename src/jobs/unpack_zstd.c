/* Zstandard, by libzstd. */
#include <zstd.h>

#include "jobs/unpack.h"

static void *start(sp_error *err) {
    ZSTD_DStream *stream = ZSTD_createDStream();
    if (!stream) sp_fail(err, SP_ERR_MEMORY, "libzstd: no memory");
    return stream;
}

static sp_unpack_step step(void *state, sp_unpack_window *window) {
    ZSTD_inBuffer in = {window->in, window->n_in, 0};
    ZSTD_outBuffer out = {window->out, window->n_out, 0};
    size_t left = ZSTD_decompressStream(state, &out, &in);
    window->in += in.pos;
    window->n_in -= in.pos;
    window->out += out.pos;
    window->n_out -= out.pos;
    if (ZSTD_isError(left)) return SP_UNPACK_DAMAGED;
    return left == 0 ? SP_UNPACK_AT_END : SP_UNPACK_MORE;
}

static void stop(void *state) { ZSTD_freeDStream(state); }

/* A block of 128 KiB at most is unpacked at once. */
const sp_unpack_format sp_unpack_zstd = {".zst", "Zstandard", start, step, stop, 128 << 10, NULL};
