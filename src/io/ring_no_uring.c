/* The place of ring_uring.c in a build without liburing: never to be had. */
#include "io/internal.h"

static bool start(sp_ring_drive *drive, sp_error *err) {
    (void)drive;
    return sp_fail(err, SP_ERR_SUPPORT, "io_uring cannot be had: built without liburing");
}
static void unused(sp_ring_drive *drive) { (void)drive; }

const sp_ring_kind sp_ring_kind_uring = {"io_uring", start, unused, unused};
