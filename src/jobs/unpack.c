/* A packed input. */
#include "jobs/unpack.h"

#include <stdlib.h>
#include <string.h>

enum { PACKED_BYTES = 128 * 1024 };

struct sp_unpack {
    const sp_unpack_format *format;
    void *state;
    char *path;
    sp_unpack_source *source;
    void *ctx;
    char *packed; /* [PACKED_BYTES] */
    const char *at;
    size_t n_left;
    bool is_whole; /* the last member or frame; false at the start: an empty file is none */
    bool is_full;  /* the last step had no more room: it may have more without more packed bytes */
};

static const sp_unpack_format *find_format(const char *path) {
    static const sp_unpack_format *const formats[] = {&sp_unpack_gzip, &sp_unpack_zstd};
    size_t n_path = strlen(path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        size_t n = strlen(formats[i]->suffix);
        if (n_path > n && strcmp(path + n_path - n, formats[i]->suffix) == 0) return formats[i];
    }
    return NULL;
}

bool sp_unpack_is_packed(const char *path) { return find_format(path) != NULL; }

sp_unpack *sp_unpack_new(const char *path, sp_unpack_source *source, void *ctx, sp_error *err) {
    const sp_unpack_format *format = find_format(path);
    if (format->missing) {
        sp_fail(err, SP_ERR_SUPPORT, "%s: %s cannot be read: built without %s; unpack it first", path, format->name,
                format->missing);
        return NULL;
    }
    void *state = format->start(err);
    if (!state) {
        sp_error_wrap(err, "%s", path);
        return NULL;
    }
    sp_unpack *unpack = calloc(1, sizeof *unpack);
    SP_CHECK(unpack != NULL);
    *unpack = (sp_unpack){.format = format, .state = state, .source = source, .ctx = ctx};
    unpack->path = strdup(path);
    unpack->packed = malloc(PACKED_BYTES);
    SP_CHECK(unpack->path && unpack->packed);
    return unpack;
}

/* More packed bytes. 1, 0 at a good end, -1. */
static int refill(sp_unpack *unpack, sp_error *err) {
    ssize_t got = unpack->source(unpack->ctx, unpack->packed, PACKED_BYTES, err);
    if (got < 0) return -1;
    unpack->at = unpack->packed;
    unpack->n_left = (size_t)got;
    if (got > 0) return 1;
    if (unpack->is_whole) return 0;
    sp_fail(err, SP_ERR_IO, "%s: ends in the middle of its %s data, it was cut off; get the whole file", unpack->path,
            unpack->format->name);
    return -1;
}

ssize_t sp_unpack_read(sp_unpack *unpack, void *to, size_t n_bytes, sp_error *err) {
    sp_unpack_window window = {.out = to, .n_out = n_bytes};
    while (window.n_out == n_bytes) {
        int more = unpack->n_left || unpack->is_full ? 1 : refill(unpack, err);
        if (more <= 0) return more;
        window.in = unpack->at;
        window.n_in = unpack->n_left;
        sp_unpack_step step = unpack->format->step(unpack->state, &window);
        unpack->is_whole = step == SP_UNPACK_AT_END;
        unpack->is_full = window.n_out == 0 && step == SP_UNPACK_MORE;
        unpack->at = window.in;
        unpack->n_left = window.n_in;
        if (step == SP_UNPACK_DAMAGED) {
            sp_fail(err, SP_ERR_IO, "%s: its %s data is damaged, or is something else; pack it again", unpack->path,
                    unpack->format->name);
            return -1;
        }
    }
    return (ssize_t)(n_bytes - window.n_out);
}

size_t sp_unpack_left(const sp_unpack *unpack) { return unpack->n_left; }
size_t sp_unpack_held(const sp_unpack *unpack) { return unpack->is_full ? unpack->format->held_bytes : 0; }

void sp_unpack_free(sp_unpack *unpack) {
    if (!unpack) return;
    unpack->format->stop(unpack->state);
    free(unpack->path);
    free(unpack->packed);
    free(unpack);
}
