/* Input lines: ends, marks, blanks, lengths; and the set of ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#if SP_TEST_PACKED
#include <zlib.h>
#include <zstd.h>
#endif

#include "jobs/idset.h"
#include "jobs/input.h"

static sp_input *open_text(const char *text, size_t n_bytes) {
    char path[] = "/tmp/spill-input-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n_bytes), (ssize_t)n_bytes);
    close(fd);
    sp_error err = {0};
    sp_input *input = sp_input_open(path, &err);
    assert_non_null(input);
    unlink(path);
    return input;
}

static void expect_line(sp_input *input, const char *text, size_t i_line) {
    sp_line line;
    sp_error err = {0};
    assert_int_equal(sp_input_next(input, &line, &err), 1);
    assert_int_equal(line.n_bytes, strlen(text));
    assert_memory_equal(line.text, text, line.n_bytes);
    assert_int_equal(line.i_line, i_line);
}

static void expect_end(sp_input *input) {
    sp_line line;
    sp_error err = {0};
    assert_int_equal(sp_input_next(input, &line, &err), 0);
    assert_int_equal(sp_input_next(input, &line, &err), 0); /* and again */
    sp_input_close(input);
}

static void test_line_ends(void **state) {
    (void)state;
    static const char text[] = "\xef\xbb\xbf{a}\r\n\n  \t\r\n{b}\nlast";
    sp_input *input = open_text(text, sizeof text - 1);
    expect_line(input, "{a}", 1);
    expect_line(input, "{b}", 4); /* blank lines count */
    expect_line(input, "last", 5);
    expect_end(input);
}

static void test_nothing(void **state) {
    (void)state;
    expect_end(open_text("", 0));
    expect_end(open_text("\n \n\r\n", 5));
    static const char mark_alone[] = "\xef\xbb\xbf";
    expect_end(open_text(mark_alone, 3));
}

static void test_long_lines(void **state) {
    (void)state;
    size_t n_bytes = 3 << 20; /* far over one read */
    char *text = malloc(n_bytes + 3);
    memset(text, 'x', n_bytes);
    memcpy(text + n_bytes, "\ny\n", 3);
    sp_input *input = open_text(text, n_bytes + 3);
    sp_line line;
    sp_error err = {0};
    assert_int_equal(sp_input_next(input, &line, &err), 1);
    assert_true(line.n_bytes == n_bytes && !line.too_long);
    expect_line(input, "y", 2);
    expect_end(input);
    free(text);
}

/* A line past the bound is given out as such whatever its head looks like, and the next one is whole. */
static void test_endless_line(void **state) {
    (void)state;
    size_t n_bytes = (size_t)SP_INPUT_LINE_BYTES + 1000;
    char *text = malloc(n_bytes + 3);
    memset(text, ' ', n_bytes);
    memcpy(text + n_bytes, "\ny\n", 3);
    sp_input *input = open_text(text, n_bytes + 3);
    sp_line line;
    sp_error err = {0};
    assert_int_equal(sp_input_next(input, &line, &err), 1);
    assert_true(line.too_long && line.i_line == 1);
    expect_line(input, "y", 2);
    expect_end(input);
    free(text);
}

static bool always(void *ctx) {
    (void)ctx;
    return true;
}

static void test_waiting_can_be_stopped(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    sp_error err = {0};
    sp_input *input = sp_input_open(path, &err);
    assert_non_null(input);
    sp_input_stop_when(input, always, NULL);
    sp_line line;
    assert_int_equal(sp_input_next(input, &line, &err), -1);
    assert_int_equal(err.code, SP_ERR_CANCEL);
    sp_input_close(input);
    close(ends[0]);
    close(ends[1]);
}

static void test_refusals(void **state) {
    (void)state;
    sp_error err = {0};
    assert_null(sp_input_open("/nonexistent/rows.jsonl", &err));
    assert_int_equal(err.code, SP_ERR_INPUT);
    sp_error_clear(&err);
    assert_null(sp_input_open("/tmp", &err));
    assert_non_null(strstr(err.text, "directory"));
}

static void test_sample(void **state) {
    (void)state;
    sp_error err = {0};
    sp_input *input = sp_input_open("sample", &err);
    sp_line line;
    size_t n = 0;
    while (sp_input_next(input, &line, &err) > 0) n++;
    assert_true(n == sp_n_sample_lines && n > 5);
    sp_input_close(input);
}

static void test_idset(void **state) {
    (void)state;
    sp_idset set = {0};
    char id[32];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20000; i++) {
            snprintf(id, sizeof id, "row-%d", i);
            assert_true(sp_idset_add(&set, id) == (round == 0));
        }
    }
    assert_int_equal(set.n, 20000);
    assert_true(set.room * sizeof *set.slots <= 64 * 20000); /* the promise: at most 64 bytes a row */
    sp_idset_deinit(&set);
}

/* ---- packed inputs ---- */

#if SP_TEST_PACKED
enum { PACKED_LINES = 40000, PACKED_BYTES = 1 << 20 };

/* Lines that pack a thousand times, so that much output is pending when the packed bytes have ended. */
static char *many_lines(size_t *n_bytes) {
    char *text = malloc((size_t)PACKED_LINES * 16 + 1);
    *n_bytes = 0;
    for (int i = 0; i < PACKED_LINES; i++) *n_bytes += (size_t)sprintf(text + *n_bytes, "{\"prompt\":\"x\"}\n");
    return text;
}

static size_t pack(bool as_gzip, const char *text, size_t n_bytes, char *packed) {
    if (!as_gzip) return ZSTD_compress(packed, PACKED_BYTES, text, n_bytes, 3);
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)text, .avail_in = (unsigned)n_bytes};
    stream.next_out = (unsigned char *)packed;
    stream.avail_out = PACKED_BYTES;
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return stream.total_out;
}

/* Reads it all; the number of lines, or -1 with a message that names what is wrong. */
static int count_lines(const char *suffix, const char *packed, size_t n_bytes, sp_error *err) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/spill-input-XXXXXX%s", suffix);
    int fd = mkstemps(path, (int)strlen(suffix)), n = 0, got;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, packed, n_bytes), (ssize_t)n_bytes);
    close(fd);
    *err = (sp_error){0};
    sp_input *input = sp_input_open(path, err);
    assert_non_null(input);
    unlink(path);
    sp_line line;
    for (; (got = sp_input_next(input, &line, err)) > 0; n++) assert_int_equal(line.n_bytes, 14);
    sp_input_close(input);
    return got < 0 ? -1 : n;
}

static void test_packed(void **state) {
    (void)state;
    size_t n_text;
    char *text = many_lines(&n_text), *packed = malloc(2 * PACKED_BYTES);
    for (int as_gzip = 0; as_gzip < 2; as_gzip++) {
        const char *suffix = as_gzip ? ".gz" : ".zst";
        sp_error err;
        size_t n = pack(as_gzip, text, n_text, packed);
        assert_int_equal(count_lines(suffix, packed, n, &err), PACKED_LINES);
        size_t both = n + pack(as_gzip, text, n_text, packed + n); /* two, one behind the other */
        assert_int_equal(count_lines(suffix, packed, both, &err), 2 * PACKED_LINES);
        for (size_t cut = 0; cut < n; cut += n / 7) {
            assert_int_equal(count_lines(suffix, packed, cut, &err), -1);
            assert_non_null(strstr(err.text, "was cut off"));
        }
        assert_int_equal(count_lines(suffix, text, n_text, &err), -1);
        assert_non_null(strstr(err.text, "is something else"));
    }
    free(text);
    free(packed);
}
#endif

/* ---- an input that was read before ---- */

static void test_expected(void **state) {
    (void)state;
    static const char text[] = "one\ntwo\nthree\n";
    sp_input_mark mark;
    sp_input *input = open_text(text, sizeof text - 1);
    expect_line(input, "one", 1);
    sp_input_mark_get(input, &mark);
    expect_line(input, "two", 2);
    expect_line(input, "three", 3);
    expect_end(input);
    static const struct {
        const char *text;
        bool at_end, is_good;
    } cases[] = {
        {"one\ntwo\nthree\n", false, true},
        {"one\ntwo\nthree\n", true, true},
        {"one\ntwo\nthree\nfour\n", false, true},
        {"one\ntwo\nthree\nfour\n", true, false},
        {"one\nTwo\nthree\n", false, false},
        {"one\ntwo\nthree", false, false},
        {"", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sp_line line;
        sp_error err = {0};
        int got;
        mark.at_end = cases[i].at_end;
        input = open_text(cases[i].text, strlen(cases[i].text));
        sp_input_expect(input, &mark, "mend it");
        assert_true(sp_input_is_expecting(input));
        while ((got = sp_input_next(input, &line, &err)) > 0) {
        }
        assert_true(got < 0 || !sp_input_is_expecting(input));
        assert_int_equal(got, cases[i].is_good ? 0 : -1);
        if (got < 0) assert_int_equal(err.code, SP_ERR_INPUT);
        sp_input_close(input);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#if SP_TEST_PACKED
        cmocka_unit_test(test_packed),
#endif
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_waiting_can_be_stopped),
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_idset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
