/* RoPE frequencies against tests/unit/model_rope.json (written by model_rope.py beside it), and how they depend on the
 * row's length. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"
#include "model/realmath.h"
#include "util/json.h"

/* Powers here are rounded correctly; the reference's vectorized ones are off by one unit in the last place for about
 * one in a hundred, and two such errors meet where a length stretches theta. */
enum { ULPS_MAX = 2, PAIRS_MAX = 1024 };

static int32_t bits_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void check_length(const char *name, const sp_rope *rope, const json_t *want) {
    float inv_freq[PAIRS_MAX], scale = 0;
    const json_t *list = json_object_get(want, "inv_freq");
    size_t n_total = (size_t)json_integer_value(json_object_get(want, "n_total"));
    size_t n = json_array_size(list), n_off = 0;
    assert_int_equal(rope->n_dims, 2 * n);
    assert_true(n <= PAIRS_MAX);
    sp_rope_inv_freq(rope, n_total, inv_freq, &scale);
    for (size_t j = 0; j < n; j++) {
        int64_t off = (int64_t)bits_of(inv_freq[j]) - json_integer_value(json_array_get(list, j));
        n_off += off != 0;
        if (llabs(off) > ULPS_MAX)
            fail_msg("%s, length %zu: pair %zu is %lld units off", name, n_total, j, (long long)off);
    }
    if (!rope->dynamic && 10 * n_off > n + 9)
        fail_msg("%s, length %zu: %zu of %zu pairs differ", name, n_total, n_off, n);
    assert_true(scale == (float)json_number_value(json_object_get(want, "scale")));
}

static void test_golden(void **state) {
    (void)state;
    sp_error err = {0};
    json_t *golden = sp_json_load("tests/unit/model_rope.json", 1 << 24, &err);
    assert_non_null(golden);
    size_t i, k;
    json_t *one, *length;
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        sp_config config = {.object = json_object_get(one, "config"), .file = name, .inside = ""};
        sp_arena arena = {0};
        sp_arch arch = {0};
        sp_draft draft = {.arch = &arch, .arena = &arena};
        const sp_family *family = sp_family_from_config(&config, &err);
        if (!family || !sp_family_fill(family, &config, &draft, &err)) fail_msg("%s", err.text);
        json_array_foreach(json_object_get(one, "lengths"), k, length) check_length(name, arch.ropes, length);
        sp_arena_deinit(&arena);
    }
    assert_true(i >= 15);
    json_decref(golden);
}

static void test_lengths(void **state) {
    (void)state;
    float short_freq = 1, long_freq = 0.5f;
    sp_rope longrope = {.n_dims = 2, .inv_freq = &short_freq, .inv_freq_long = &long_freq, .switch_pos = 64};
    float out = 0, scale = 0;
    sp_rope_inv_freq(&longrope, 64, &out, &scale);
    assert_true(out == short_freq);
    sp_rope_inv_freq(&longrope, 65, &out, &scale);
    assert_true(out == long_freq);
}

/* Against the C library, which is within a unit of the last place. */
static void test_realmath(void **state) {
    (void)state;
    double worst_log = 0, worst_exp = 0;
    for (int i = 0; i < 3000; i++) {
        double x = 1e-6 * pow(1.0163, i); /* to 1e15 */
        if (fabs(log(x)) > 1e-3) worst_log = fmax(worst_log, fabs(sp_real_log(x) / log(x) - 1));
        double y = (i - 1500) / 15.0;
        worst_exp = fmax(worst_exp, fabs(sp_real_exp(y) / exp(y) - 1));
    }
    assert_true(worst_log < 4e-16);
    assert_true(worst_exp < 2e-14); /* an argument of 100 has lost 7 bits */
    assert_true(sp_real_log(1) == 0);
    assert_true(sp_real_exp(0) == 1);
    assert_true(sp_real_powf(10000, 0.5f) == 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_realmath),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
