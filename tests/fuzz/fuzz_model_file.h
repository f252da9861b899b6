/* Bytes of a fuzzer as a file that can be opened by path: one anonymous file in memory, rewritten for every input. */
#ifndef SPILL_TESTS_FUZZ_MODEL_FILE_H
#define SPILL_TESTS_FUZZ_MODEL_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline const char *fuzz_model_file(const uint8_t *data, size_t n_bytes) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, n_bytes, 0) != (ssize_t)n_bytes) abort();
    return path;
}

#endif
