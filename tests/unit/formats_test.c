/* Number formats: blocks from the reference's dequantizer, bit for bit, in plain C and in every ISA's vectors that this
 * machine has; the table's look-ups; rounding to bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "kernels/internal.h"
#include "util/fpenv.h"
#include "util/json.h"

enum { MAX_ELEMS = 256, MAX_FILE_BYTES = 64 << 20 };

static uint32_t hex_digits(const char *text, int n_digits) {
    char digits[9] = {0};
    memcpy(digits, text, (size_t)n_digits);
    return (uint32_t)strtoul(digits, NULL, 16);
}

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Equal bits, or both NaN. */
static void assert_same(float value, uint32_t want, const char *what, size_t i) {
    float wanted;
    memcpy(&wanted, &want, sizeof wanted);
    if (isnan(value) && isnan(wanted)) return;
    if (bits_of(value) != want) fail_msg("%s element %zu: %08x, want %08x", what, i, bits_of(value), want);
}

/* The formats that a table lacks fall through to plain C. */
static void check_block(const sp_quant_isa *isa, const char *what, sp_format_id id, const uint8_t *block,
                        const char *values, size_t n_elems) {
    float f32[MAX_ELEMS];
    sp_bf16 bf16[MAX_ELEMS];
    const sp_fpenv env = sp_fpenv_enter();
    sp_dequantize_f32(isa, id, block, n_elems, f32);
    sp_dequantize_bf16(isa, id, block, n_elems, bf16);
    sp_fpenv_leave(env);
    for (size_t i = 0; i < n_elems; i++) {
        assert_same(f32[i], hex_digits(values + 8 * i, 8), what, i);
        assert_same(sp_bf16_to_f32(bf16[i]), bits_of(sp_bf16_to_f32(sp_bf16_from_f32(f32[i]))), what, i);
    }
}

static void check_everywhere(sp_format_id id, const uint8_t *block, const char *values, size_t n_elems) {
    check_block(&sp_quant_scalar, "plain C", id, block, values, n_elems);
#if defined(__x86_64__)
    if (sp_device_isa_usable("avx2")) check_block(&sp_quant_avx2, "avx2", id, block, values, n_elems);
    if (sp_device_isa_usable("avx512")) check_block(&sp_quant_avx512, "avx512", id, block, values, n_elems);
#endif
}

static void test_reference_blocks(void **state) {
    (void)state;
    sp_error err = {0};
    json_t *root = sp_json_load("tests/golden/families/quant_blocks.json", MAX_FILE_BYTES, &err);
    if (!root) fail_msg("%s", err.text);
    const char *name;
    json_t *section, *pair;
    size_t n_blocks = 0;
    json_object_foreach(root, name, section) {
        const sp_format *format = sp_format_find(name);
        if (!format) continue; /* "about" */
        assert_int_equal(json_integer_value(json_object_get(section, "block_elems")), format->block_elems);
        assert_int_equal(json_integer_value(json_object_get(section, "block_bytes")), format->block_bytes);
        size_t i;
        json_array_foreach(json_object_get(section, "blocks"), i, pair) {
            const char *bytes = json_string_value(json_array_get(pair, 0));
            const char *values = json_string_value(json_array_get(pair, 1));
            const size_t n_elems = strlen(values) / 8, n_bytes = strlen(bytes) / 2;
            uint8_t block[4 * MAX_ELEMS];
            assert_true(n_elems <= MAX_ELEMS && n_bytes == n_elems / format->block_elems * format->block_bytes);
            for (size_t j = 0; j < n_bytes; j++) block[j] = (uint8_t)hex_digits(bytes + 2 * j, 2);
            check_everywhere(format->id, block, values, n_elems);
            n_blocks++;
        }
    }
    assert_true(n_blocks >= 7);
    json_decref(root);
}

static void test_every_half(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits += 16) {
        uint16_t halves[16];
        char values[16 * 8 + 1];
        for (uint32_t i = 0; i < 16; i++) { /* ldexp on the parts: no code in common */
            const uint32_t half = bits + i, exponent = half >> 10 & 31, mantissa = half & 1023;
            double value = exponent == 31
                               ? (mantissa ? NAN : INFINITY)
                               : ldexp(exponent ? 1024 + mantissa : mantissa, (exponent ? (int)exponent : 1) - 25);
            halves[i] = (uint16_t)half;
            snprintf(values + 8 * i, 9, "%08x", bits_of((float)(half & 0x8000 ? -value : value)));
        }
        check_everywhere(SP_FMT_F16, (const uint8_t *)halves, values, 16);
    }
}

static void test_table(void **state) {
    (void)state;
    for (int id = 0; id < SP_FMT_COUNT; id++) {
        const sp_format *format = sp_format_get((sp_format_id)id);
        assert_ptr_equal(sp_format_find(format->name), format);
        assert_ptr_equal(sp_format_from_ggml(format->ggml_type), format);
    }
    assert_null(sp_format_find("Q9_9"));
    assert_null(sp_format_from_ggml(-1));
}

static void test_bf16_rounding(void **state) {
    (void)state;
    static const struct {
        uint32_t from;
        sp_bf16 to;
    } cases[] = {
        {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, {0x7fffffff, 0x7fff}, {0x80000000, 0x8000}, {0x00000001, 0x0000}, {0x007fffff, 0x0080},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float value;
        memcpy(&value, &cases[i].from, sizeof value);
        assert_int_equal(sp_bf16_from_f32(value), cases[i].to);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_blocks),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_bf16_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
