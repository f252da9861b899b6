/* The place of unpack_gzip.c in a build without zlib: never to be had. */
#include "jobs/unpack.h"

static void *start(sp_error *err) {
    sp_fail(err, SP_ERR_SUPPORT, "gzip cannot be read: built without zlib; unpack it first");
    return NULL;
}

static sp_unpack_step step(void *state, sp_unpack_window *window) {
    (void)state, (void)window;
    return SP_UNPACK_DAMAGED;
}

static void stop(void *state) { (void)state; }

const sp_unpack_format sp_unpack_gzip = {".gz", "gzip", start, step, stop};
