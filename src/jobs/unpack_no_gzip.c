/* The place of unpack_gzip.c in a build without zlib. */
#include "jobs/unpack.h"

const sp_unpack_format sp_unpack_gzip = {.suffix = ".gz", .name = "gzip", .missing = "zlib"};
