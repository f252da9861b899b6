/* Input lines: a growing window over a descriptor.
 *
 *   window [ ....consumed | line ........ \n | next ... | free ]
 *                         ^begin          ^end of line     ^filled
 */
#include "jobs/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

#include "jobs/unpack.h"
#include "util/size.h"

enum { READ_BYTES = 128 * 1024, KEPT_BYTES = 64, POLL_MS = 100 };

struct sp_input {
    int fd;     /* -1: the built-in set */
    char *path; /* what messages call it */
    char *window;
    size_t begin, filled, room;
    size_t i_line;
    uint64_t n_read, n_file_read; /* unpacked, and as it lies there */
    bool at_end;
    bool is_regular;   /* never waits */
    struct stat seen;  /* how a regular file was when it was last looked at */
    sp_unpack *unpack; /* NULL: it is as it lies there */
    bool (*should_stop)(void *ctx);
    void *ctx;
    XXH3_state_t *hash;
    sp_input_mark expected; /* n_bytes 0: nothing */
    const char *remedy;     /* where it is something else */
};

/* /dev/zero and its like give bytes for ever; of devices only a terminal and /dev/null make an input. */
static bool check_kind(const char *path, int fd, const struct stat *st, sp_error *err) {
    const char *found = S_ISDIR(st->st_mode) ? "a directory" : NULL;
    if (S_ISBLK(st->st_mode)) found = "a device";
    if (S_ISCHR(st->st_mode) && !isatty(fd) && st->st_rdev != makedev(1, 3)) found = "a device";
    return !found || sp_fail(err, SP_ERR_INPUT, "%s: %s found, a file of JSON lines wanted", path, found);
}

/* Returns when a read would not wait: there are bytes, or the other side is gone. False when told to stop. */
static bool wait_readable(const sp_input *input, sp_error *err) {
    if (input->is_regular) return true;
    struct pollfd wait = {.fd = input->fd, .events = POLLIN};
    for (;;) {
        if (input->should_stop && input->should_stop(input->ctx))
            return sp_fail(err, SP_ERR_CANCEL, "%s: stopped while waiting for line %zu", input->path,
                           input->i_line + 1);
        if (poll(&wait, 1, POLL_MS) > 0) return true;
    }
}

/* Whether a file still is the one that was opened: rows of another must not mix with it, nor those behind a cut be
 * missing in silence. Rows may be appended. Files of /proc have no size, and times of their own. */
static bool check_same(sp_input *input, sp_error *err) {
    const struct stat *was = &input->seen;
    struct stat is;
    if (!input->is_regular || was->st_size == 0 || fstat(input->fd, &is) != 0) return true;
    bool same_time = is.st_mtim.tv_sec == was->st_mtim.tv_sec && is.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
    if (is.st_size == was->st_size && !same_time)
        return sp_fail(err, SP_ERR_IO, "%s: changed while it was read (written to); put it back as it was",
                       input->path);
    if (is.st_size < was->st_size)
        return sp_fail(err, SP_ERR_IO, "%s: changed while it was read (%lld bytes found, %lld before); put it back",
                       input->path, (long long)is.st_size, (long long)was->st_size);
    input->seen = is;
    return true;
}

/* Bytes as they lie there; a packed input's source. */
static ssize_t read_raw(void *ctx, void *to, size_t n_bytes, sp_error *err) {
    sp_input *input = ctx;
    for (;;) {
        if (!wait_readable(input, err)) return -1;
        ssize_t got = read(input->fd, to, n_bytes);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) sp_fail_errno(err, "%s: reading line %zu", input->path, input->i_line + 1);
        if (got > 0) input->n_file_read += (uint64_t)got;
        return got >= 0 && !check_same(input, err) ? -1 : got;
    }
}

sp_input *sp_input_open(const char *path, sp_error *err) {
    bool is_sample = strcmp(path, "sample") == 0;
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_sample ? -1 : is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st = {0};
    if (!is_sample && (fd < 0 || fstat(fd, &st) != 0)) {
        sp_fail_open(err, path);
        if (fd >= 0) close(fd);
        return NULL;
    }
    if (!is_sample && !check_kind(path, fd, &st, err)) {
        close(fd);
        return NULL;
    }
    sp_input *input = calloc(1, sizeof *input);
    SP_CHECK(input != NULL);
    input->fd = fd;
    input->is_regular = S_ISREG(st.st_mode);
    input->seen = st;
    input->path = strdup(is_stdin ? "standard input" : path);
    input->hash = XXH3_createState();
    input->window = malloc(READ_BYTES);
    input->room = READ_BYTES;
    SP_CHECK(input->path && input->hash && input->window);
    XXH3_128bits_reset(input->hash);
    if (is_sample || is_stdin || !sp_unpack_is_packed(path)) return input;
    input->unpack = sp_unpack_new(path, read_raw, input, err);
    if (input->unpack) return input;
    sp_input_close(input);
    return NULL;
}

void sp_input_stop_when(sp_input *input, bool (*should_stop)(void *ctx), void *ctx) {
    input->should_stop = should_stop;
    input->ctx = ctx;
}

static void digest(const sp_input *input, char text[SP_HASH_HEX_BYTES]) {
    XXH128_hash_t hash = XXH3_128bits_digest(input->hash);
    sp_hash whole = sp_hash_of(hash.high64, hash.low64);
    sp_hash_hex(&whole, text);
}

static bool is_other(const sp_input *input, sp_error *err) {
    return sp_fail(err, SP_ERR_INPUT, "%s: changed, it %s the %llu bytes that the job has read; %s", input->path,
                   input->expected.at_end ? "is not" : "does not begin with",
                   (unsigned long long)input->expected.n_bytes, input->remedy);
}

/* Counts and hashes bytes as they are read; at the end of what is expected they must have been that. */
static bool absorb(sp_input *input, const char *bytes, size_t n_bytes, sp_error *err) {
    if (sp_input_is_expecting(input) && n_bytes >= input->expected.n_bytes - input->n_read) {
        size_t left = (size_t)(input->expected.n_bytes - input->n_read);
        char hash[SP_HASH_HEX_BYTES];
        XXH3_128bits_update(input->hash, bytes, left);
        digest(input, hash);
        if (strcmp(hash, input->expected.hash) != 0) return is_other(input, err);
        input->n_read += left;
        bytes += left;
        n_bytes -= left;
    }
    bool is_past = input->expected.at_end && input->n_read == input->expected.n_bytes;
    if (is_past && n_bytes > 0) return is_other(input, err);
    XXH3_128bits_update(input->hash, bytes, n_bytes);
    input->n_read += n_bytes;
    return true;
}

/* Makes room behind `filled` and reads once. 1: got bytes, 0: end, -1: error. */
static int fill(sp_input *input, sp_error *err) {
    if (input->begin > 0) {
        memmove(input->window, input->window + input->begin, input->filled - input->begin);
        input->filled -= input->begin;
        input->begin = 0;
    }
    if (input->room - input->filled < READ_BYTES) {
        size_t room = sp_max_size(input->room * 2, input->filled + READ_BYTES);
        char *window = realloc(input->window, room);
        if (!window) {
            sp_fail(err, SP_ERR_MEMORY, "%s: no memory for a line of %zu bytes", input->path, input->filled);
            return -1;
        }
        input->window = window;
        input->room = room;
    }
    char *to = input->window + input->filled;
    size_t n_bytes = input->room - input->filled;
    ssize_t got = input->unpack ? sp_unpack_read(input->unpack, to, n_bytes, err) : read_raw(input, to, n_bytes, err);
    if (got < 0) return -1;
    bool is_short = got == 0 && sp_input_is_expecting(input);
    if (is_short && !is_other(input, err)) return -1;
    if (!absorb(input, to, (size_t)got, err)) return -1;
    input->filled += (size_t)got;
    return got > 0;
}

static bool is_blank(const char *text, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

/* The next raw line, blank or not, without LF. 1, 0 or -1 as sp_input_next. */
static int next_raw(sp_input *input, sp_line *line, sp_error *err) {
    size_t scanned = 0;
    bool too_long = false;
    for (;;) {
        char *start = input->window + input->begin;
        size_t here = input->filled - input->begin;
        char *lf = here > scanned ? memchr(start + scanned, '\n', here - scanned) : NULL;
        if (lf || input->at_end) {
            if (!lf && here == 0 && !too_long) return 0;
            size_t n_bytes = lf ? (size_t)(lf - start) : here;
            input->begin += n_bytes + (lf ? 1 : 0);
            too_long |= n_bytes > SP_INPUT_LINE_BYTES;
            *line = (sp_line){start, too_long ? KEPT_BYTES : n_bytes, ++input->i_line, too_long};
            return 1;
        }
        if (here > SP_INPUT_LINE_BYTES) { /* drop the rest of it, keep its head for the message */
            too_long = true;
            input->filled = input->begin + KEPT_BYTES;
            here = KEPT_BYTES;
        }
        scanned = here;
        int got = fill(input, err);
        if (got < 0) return -1;
        input->at_end = got == 0;
    }
}

static int next_sample(sp_input *input, sp_line *line, sp_error *err) {
    input->at_end = input->i_line >= sp_n_sample_lines;
    if (input->at_end) return 0;
    const char *text = sp_sample_lines[input->i_line++];
    size_t n_bytes = strlen(text);
    if (!absorb(input, text, n_bytes, err)) return -1;
    *line = (sp_line){text, n_bytes, input->i_line, false};
    return 1;
}

/* Packed bytes under another name, or from a pipe. */
static bool check_unpacked(const sp_input *input, const sp_line *line, sp_error *err) {
    static const struct {
        const char *magic, *name, *suffix, *tool;
    } packed[] = {{"\x1f\x8b", "gzip", ".gz", "zcat"}, {"\x28\xb5\x2f\xfd", "zstd", ".zst", "zstdcat"}};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t n = strlen(packed[i].magic);
        if (line->n_bytes < n || memcmp(line->text, packed[i].magic, n) != 0) continue;
        return sp_fail(err, SP_ERR_INPUT,
                       "%s: %s data found, JSON lines wanted; name the file *%s or unpack it with %s", input->path,
                       packed[i].name, packed[i].suffix, packed[i].tool);
    }
    return true;
}

int sp_input_next(sp_input *input, sp_line *line, sp_error *err) {
    if (input->fd < 0) return next_sample(input, line, err);
    for (;;) {
        int got = next_raw(input, line, err);
        if (got <= 0) return got;
        if (line->i_line == 1 && !check_unpacked(input, line, err)) return -1;
        if (line->i_line == 1 && line->n_bytes >= 3 && memcmp(line->text, "\xef\xbb\xbf", 3) == 0) {
            line->text += 3;
            line->n_bytes -= 3;
        }
        if (line->n_bytes && line->text[line->n_bytes - 1] == '\r') line->n_bytes--;
        if (line->too_long || !is_blank(line->text, line->n_bytes)) return 1;
    }
}

bool sp_input_is_ready(const sp_input *input, int wait_ms) {
    if (input->is_regular || input->fd < 0 || input->at_end) return true;
    if (memchr(input->window + input->begin, '\n', input->filled - input->begin)) return true;
    struct pollfd now = {.fd = input->fd, .events = POLLIN};
    return poll(&now, 1, wait_ms) > 0;
}

uint64_t sp_input_bytes_read(const sp_input *input) { return input->n_read; }

uint64_t sp_input_file_bytes_taken(const sp_input *input) {
    uint64_t n_ahead = input->filled - input->begin;
    if (!input->unpack) return input->n_file_read - n_ahead;
    uint64_t n_unpacked = input->n_read + sp_unpack_held(input->unpack);
    if (n_unpacked == 0) return 0;
    double taken = (double)(input->n_read - n_ahead) / (double)n_unpacked;
    return (uint64_t)((double)(input->n_file_read - sp_unpack_left(input->unpack)) * taken);
}

void sp_input_mark_get(const sp_input *input, sp_input_mark *mark) {
    *mark = (sp_input_mark){.n_bytes = input->n_read, .at_end = input->at_end};
    digest(input, mark->hash);
}

void sp_input_expect(sp_input *input, const sp_input_mark *mark, const char *remedy) {
    input->expected = *mark;
    input->remedy = remedy;
}

bool sp_input_is_expecting(const sp_input *input) { return input->n_read < input->expected.n_bytes; }

void sp_input_close(sp_input *input) {
    if (!input) return;
    if (input->fd >= 0) close(input->fd);
    XXH3_freeState(input->hash);
    sp_unpack_free(input->unpack);
    free(input->window);
    free(input->path);
    free(input);
}
