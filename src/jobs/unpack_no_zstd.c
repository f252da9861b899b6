/* The place of unpack_zstd.c in a build without libzstd. */
#include "jobs/unpack.h"

const sp_unpack_format sp_unpack_zstd = {.suffix = ".zst", .name = "Zstandard", .missing = "libzstd"};
