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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endless_line), cmocka_unit_test(test_waiting_can_be_stopped),
        cmocka_unit_test(test_line_ends),    cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_long_lines),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sample),       cmocka_unit_test(test_idset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
