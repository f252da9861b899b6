/* The main of a fuzz harness in a plain build: feeds every file of the corpus directories named on the command
 * line to LLVMFuzzerTestOneInput, and each file's prefixes too, so that truncation is always exercised. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MAX_PREFIXES = 64 };

static size_t replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    fseek(file, 0, SEEK_END);
    long end = ftell(file);
    rewind(file);
    size_t n_bytes = end > 0 ? (size_t)end : 0;
    uint8_t *data = malloc(n_bytes ? n_bytes : 1);
    if (!data || fread(data, 1, n_bytes, file) != n_bytes) {
        fprintf(stderr, "%s: cannot read\n", path);
        exit(1);
    }
    fclose(file);
    size_t n_runs = 0;
    size_t step = n_bytes / MAX_PREFIXES + 1;
    for (size_t cut = 0; cut < n_bytes; cut += step, n_runs++) {
        uint8_t *copy = malloc(cut ? cut : 1); /* its own block, so that a sanitizer sees a read past the cut */
        if (!copy) exit(1);
        memcpy(copy, data, cut);
        LLVMFuzzerTestOneInput(copy, cut);
        free(copy);
    }
    LLVMFuzzerTestOneInput(data, n_bytes);
    free(data);
    return n_runs + 1;
}

int main(int argc, char **argv) {
    size_t n_runs = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "%s: no such corpus directory\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
            if (entry->d_name[0] == '.') continue;
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            n_runs += replay_file(path);
        }
        closedir(dir);
    }
    printf("%zu passed, 0 failed\n", n_runs);
    return n_runs ? 0 : 1;
}
