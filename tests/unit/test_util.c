/* util: errors, buffers, arena, sizes, UTF-8, JSON, numbers for people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/arena.h"
#include "util/buf.h"
#include "util/error.h"
#include "util/file.h"
#include "util/json.h"
#include "util/size.h"
#include "util/units.h"
#include "util/utf8.h"

static void test_error_is_one_printable_line(void **state) {
    (void)state;
    sp_error err = {0};
    assert_false(sp_fail(&err, SP_ERR_INPUT, "a\nb\033[2J %s", "\xff\xc3\xa9"));
    assert_string_equal(err.text, "a\\x0ab\\x1b[2J \\xff\xc3\xa9");
    sp_fail(&err, SP_ERR_IO, "second"); /* the first failure wins */
    assert_int_equal(err.code, SP_ERR_INPUT);
    sp_error_wrap(&err, "layer %d", 3);
    assert_true(strncmp(err.text, "layer 3: a", 10) == 0);
}

static void test_long_error_is_cut(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sp_error err = {0};
    sp_fail(&err, SP_ERR_INPUT, "head %s: the reason", text);
    assert_true(strlen(err.text) + strlen("spill: \n") < 500);
    assert_true(strncmp(err.text, "head x", 6) == 0);
    assert_non_null(strstr(err.text, "x...x"));
    assert_string_equal(err.text + strlen(err.text) - 12, ": the reason");
}

static void test_buffer_limit(void **state) {
    (void)state;
    sp_buf buf = {.limit_bytes = 10};
    assert_true(sp_buf_text(&buf, "12345"));
    assert_false(sp_buf_text(&buf, "678901"));
    assert_true(buf.failed && buf.n_bytes == 5);
    assert_string_equal(buf.data, "12345");
    sp_buf_clear(&buf);
    assert_true(sp_buf_printf(&buf, "%d-%s", 7, "x"));
    assert_string_equal(buf.data, "7-x");
    sp_buf_deinit(&buf);
}

static void test_arena(void **state) {
    (void)state;
    sp_arena arena = {0};
    char *small = sp_arena_text(&arena, "abc", 3);
    char *big = sp_arena_alloc(&arena, 1 << 20);
    char long_text[100000];
    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(strlen(sp_arena_printf(&arena, "%s/%d", long_text, 42)), sizeof long_text + 2);
    assert_string_equal(small, "abc");
    assert_true((uintptr_t)big % 16 == 0 && big[0] == 0 && big[(1 << 20) - 1] == 0);
    sp_arena_deinit(&arena);
    assert_null(arena.head);
}

static void test_sizes(void **state) {
    (void)state;
    size_t out = 7;
    assert_false(sp_mul_size(SIZE_MAX / 2, 3, &out));
    assert_false(sp_add_size(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(sp_mul_size(6, 7, &out) && out == 42);
    assert_int_equal(sp_round_up(33, 32), 64);
    assert_int_equal(sp_div_up(33, 32), 2);
}

static void test_utf8_lossy(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"plain", "plain"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},                             /* a cut character is one part */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},     /* a surrogate is three */
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                     /* overlong */
        {"\xf0\x9f\x98\x80\xe2\x82", "\xf0\x9f\x98\x80\xef\xbf\xbd"}, /* whole, then cut */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sp_buf out = {0};
        assert_true(sp_utf8_lossy(&out, cases[i].bytes, strlen(cases[i].bytes)));
        assert_string_equal(out.data, cases[i].text);
        sp_buf_deinit(&out);
    }
}

static void test_utf8_steps(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n_bytes, step;
        bool valid;
    } cases[] = {
        {"", 0, 0, false},
        {"a", 1, 1, true},
        {"\xc3\xa9z", 3, 2, true},
        {"\xf0\x9f\x98\x80", 4, 4, true},
        {"\xe2\x82", 2, 0, false},         /* may still become a character */
        {"\xe2\x82z", 3, 2, false},        /* cannot: two bytes are one bad run */
        {"\x80", 1, 1, false},             /* continues nothing */
        {"\xf4\x90\x80\x80", 4, 1, false}, /* past U+10FFFF */
        {"\xed\xa0\x80", 3, 1, false},     /* a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool valid = !cases[i].valid;
        assert_int_equal(sp_utf8_step(cases[i].bytes, cases[i].n_bytes, &valid), cases[i].step);
        assert_int_equal(valid, cases[i].valid);
    }
    assert_int_equal(sp_utf8_valid_bytes("0123456789\xc3\xa9\xe2\x82", 14), 12);
    assert_int_equal(sp_utf8_valid_bytes("0123456\xff", 8), 7);
    assert_int_equal(sp_utf8_valid_bytes("01234567\xc3\xa9", 10), 10);
}

static void test_json_in_messages(void **state) {
    (void)state;
    char shown[24];
    assert_string_equal(sp_json_shown(NULL, shown, sizeof shown), "absent");
    json_t *value = json_pack("[i,s,{s:n}]", 5, "\xc3\xa9\x1b", "k");
    assert_string_equal(sp_json_shown(value, shown, sizeof shown), "[5, \"\xc3\xa9\\u001B\", {\"k\"...");
    json_decref(value);
    char text[300];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    value = json_string(text);
    assert_string_equal(sp_json_shown(value, shown, sizeof shown), "\"xxxxxxxxxxxxxxxxxxx...");
    json_decref(value);
}

static void test_json_lists(void **state) {
    (void)state;
    sp_buf out = {0};
    assert_true(sp_json_int32s(&out, NULL, 0));
    assert_true(sp_json_int32s(&out, (const int32_t[]){7, -1, INT32_MAX}, 3));
    assert_string_equal(out.data, "[][7,-1,2147483647]");
    sp_buf_deinit(&out);
}

static void test_json_numbers(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {1, "1.0"},      {0.1, "0.1"},
        {1e16, "1e+16"}, {1e15, "1000000000000000.0"},
        {1e-5, "1e-05"}, {0.0001, "0.0001"},
        {-2.5, "-2.5"},  {1.5e300, "1.5e+300"},
        {0, "0.0"},      {123456.789, "123456.789"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sp_buf out = {0};
        assert_true(sp_json_real(&out, cases[i].value));
        assert_string_equal(out.data, cases[i].text);
        sp_buf_deinit(&out);
    }
}

static void test_json_quote(void **state) {
    (void)state;
    sp_buf out = {0};
    assert_true(sp_json_quote(&out, "a\"b\\\n\x01\xc3\xa9\0z", 10));
    assert_string_equal(out.data, "\"a\\\"b\\\\\\n\\u0001\xc3\xa9\\u0000z\"");
    sp_buf_deinit(&out);
}

static void test_json_tree_is_bounded(void **state) {
    (void)state;
    const size_t n_values = 1000000;
    char *text = malloc(3 * n_values + 2);
    text[0] = '[';
    for (size_t i = 0; i < n_values; i++) memcpy(text + 1 + 3 * i, i + 1 < n_values ? "[]," : "[]]", 3);
    sp_error err = {0};
    assert_null(sp_json_parse(text, 3 * n_values + 1, "list", &err));
    assert_non_null(strstr(err.text, "list: so many values"));
    memset(text + 1, ',', 3 * n_values - 1); /* in a string they are text */
    text[0] = text[3 * n_values] = '"';
    sp_error_clear(&err);
    json_t *value = sp_json_parse(text, 3 * n_values + 1, "text", &err);
    assert_int_equal(json_string_length(value), 3 * n_values - 1);
    json_decref(value);
    free(text);
}

static void test_json_text_of_any_bytes(void **state) {
    (void)state;
    json_t *value = sp_json_text("a\xff/\xc3\xa9");
    assert_string_equal(json_string_value(value), "a\xef\xbf\xbd/\xc3\xa9");
    json_decref(value);
}

static void test_directories_are_made(void **state) {
    (void)state;
    sp_error err = {0};
    char top[] = "/tmp/spill-util-XXXXXX", path[100];
    struct stat st;
    assert_non_null(mkdtemp(top));
    snprintf(path, sizeof path, "%s/a//b/", top);
    assert_true(sp_file_make_dirs(path, &err) && sp_file_make_dirs(path, &err));
    assert_true(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    assert_false(sp_file_make_dirs("/dev/null/a", &err));
    assert_int_equal(err.code, SP_ERR_USAGE);
    assert_string_equal(err.text, "/dev/null/a: cannot be created: Not a directory");
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", top);
    rmdir(path);
    rmdir(top);
}

static void test_numbers_for_people(void **state) {
    (void)state;
    char text[SP_UNITS_BYTES];
    static const struct {
        double seconds;
        const char *text;
    } times[] = {{0.0004, "0.4 ms"}, {0.0994, "99 ms"},  {0.0996, "0.1 s"}, {4.24, "4.2 s"},     {9.96, "10 s"},
                 {59.4, "59 s"},     {59.6, "1 m 00 s"}, {190, "3 m 10 s"}, {40800, "11 h 20 m"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        assert_string_equal(sp_units_time(times[i].seconds, text), times[i].text);
    assert_string_equal(sp_units_bytes(999, text), "999 B");
    assert_string_equal(sp_units_bytes(999999999, text), "1.0 GB");
    assert_string_equal(sp_units_bytes(141107412992, text), "141.1 GB");
    assert_string_equal(sp_units_count(1234567, text), "1,234,567");
    assert_string_equal(sp_units_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_one_printable_line),
        cmocka_unit_test(test_long_error_is_cut),
        cmocka_unit_test(test_json_tree_is_bounded),
        cmocka_unit_test(test_json_text_of_any_bytes),
        cmocka_unit_test(test_buffer_limit),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_utf8_lossy),
        cmocka_unit_test(test_utf8_steps),
        cmocka_unit_test(test_json_in_messages),
        cmocka_unit_test(test_json_lists),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_json_quote),
        cmocka_unit_test(test_numbers_for_people),
        cmocka_unit_test(test_directories_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
