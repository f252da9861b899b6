/* File formats: safetensors headers and GGUF files, good ones read right, broken ones refused with their message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/gguf_file.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "model_files.h"

/* ---- safetensors ---- */

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static bool read_header(const scratch *s, sp_tensor_set *set, sp_arena *arena, sp_error *err) {
    sp_file file;
    if (!sp_file_open(&file, scratch_path(s, "x.safetensors"), err)) return false;
    bool good = sp_safetensors_read(&file, 3, arena, set, err);
    sp_file_close(&file);
    return good;
}

static void test_safetensors_good(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"x\\\"y\":\"\\u00e9\"}, " T("b", "F32", "[2, 3]", "4", "28") ",\n" T(
            "a\\u00e9", "BF16", "[2]", "0", "4") "," T("empty", "I64", "[0,7]", "28", "28") "," T("scalar", "U8", "[]",
                                                                                                  "28", "29") "}   ";
    scratch s;
    sp_buf image = {0};
    sp_error err = {0};
    sp_tensor_set set = {0};
    sp_arena arena = {0};
    scratch_new(&s);
    safetensors_image(&image, header, 29);
    scratch_write(&s, "x.safetensors", image.data, image.n_bytes);
    if (!read_header(&s, &set, &arena, &err)) fail_msg("%s", err.text);
    assert_int_equal(set.n, 4);
    const sp_tensor *b = sp_tensor_set_find(&set, "b");
    assert_non_null(b);
    assert_int_equal(b->offset_bytes, 8 + strlen(header) + 4);
    assert_int_equal(b->n_bytes, 24);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->format->id, SP_FMT_F32);
    assert_int_equal(b->i_file, 3);
    assert_non_null(sp_tensor_set_find(&set, "a\xc3\xa9"));
    assert_null(sp_tensor_set_find(&set, "empty")->format);
    assert_null(sp_tensor_set_find(&set, "c"));
    sp_tensor_set_deinit(&set);
    sp_arena_deinit(&arena);
    sp_buf_deinit(&image);
    scratch_remove(&s);
}

static const struct {
    const char *header;
    size_t n_data;
    const char *want;
} safetensors_cases[] = {
    {"", 0, "header ends at byte 0, want '{'"},
    {" {}", 0, "header byte 0: found ' ', want '{'"},
    {"{", 0, "header ends at byte 1, want a string"},
    {"{}x", 0, "want nothing but white space"},
    {"{}", 1, "1 bytes of data, want 0: the file is longer than its header says"},
    {"{\"a\"}", 0, "want ':'"},
    {"{\"a\":3}", 0, "want '{'"},
    {"{\"a\":{}}", 0, "want a string"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "want dtype, shape and two data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "key 'dtype' twice"},
    {"{\"a\":{\"type\":\"F32\"}}", 0, "key 'type' is unknown"},
    {"{" T("a", "F33", "[1]", "0", "4") "}", 4, "tensor 'a' has unknown dtype 'F33'"},
    {"{" T("a", "F32", "[-1]", "0", "4") "}", 4, "found '-', want a whole number"},
    {"{" T("a", "F32", "[1.0]", "0", "4") "}", 4, "found '.', want ',' or ']'"},
    {"{" T("a", "F32", "[01]", "0", "4") "}", 4, "found '0', want a whole number"},
    {"{" T("a", "F32", "[99999999999999999999]", "0", "4") "}", 4, "a number past 64 bits"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "0", "4") "}", 4, "shape [4294967296, 4294967296]: too big"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "more than 8 numbers"},
    {"{" T("a", "F32", "[1]", "0", "8") "}", 8, "tensor 'a' [1] of F32: data_offsets [0, 8], want 4 bytes"},
    {"{" T("a", "F32", "[1]", "4", "0") "}", 4, "data_offsets [4, 0], want 4 bytes"},
    {"{" T("a", "F4", "[1]", "0", "0") "}", 0, "of F4"},
    {"{" T("a", "F32", "[1]", "4", "8") "}", 8, "tensor 'a' starts at byte 4 of the data, want 0 (a hole)"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12,
     "tensor 'b' starts at byte 8 of the data, want 4 (a hole)"},
    {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8,
     "tensor 'b' starts at byte 4 of the data, want 8 (an overlap)"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8, "tensor 'a' is there twice"},
    {"{" T("a", "F32", "[1]", "0", "4") "}", 3, "3 bytes of data, want 4: the file is cut short"},
    {"{" T("a", "F32", "[1]", "0", "4") ",}", 4, "want a string"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ holds strings by name"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "want a string: __metadata__ holds nothing else"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "__metadata__: not JSON"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice"},
    {"{\"\xff\":{}}", 0, "want a valid UTF-8 string"},
    {"{\"a\\", 0, "want the end of a string"},
    {"{\"a\nb\":{}}", 0, "want no control byte in a string"},
};

static void test_safetensors_refused(void **state) {
    (void)state;
    scratch s;
    sp_buf image = {0};
    scratch_new(&s);
    for (size_t i = 0; i < sizeof safetensors_cases / sizeof safetensors_cases[0]; i++) {
        sp_error err = {0};
        sp_tensor_set set = {0};
        sp_arena arena = {0};
        safetensors_image(&image, safetensors_cases[i].header, safetensors_cases[i].n_data);
        scratch_write(&s, "x.safetensors", image.data, image.n_bytes);
        bool good = read_header(&s, &set, &arena, &err);
        if (good || !strstr(err.text, safetensors_cases[i].want) || !strstr(err.text, "x.safetensors"))
            fail_msg("case %zu: '%s', want '%s'", i, err.text, safetensors_cases[i].want);
        sp_tensor_set_deinit(&set);
        sp_arena_deinit(&arena);
    }
    sp_buf_deinit(&image);
    scratch_remove(&s);
}

static void test_safetensors_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, (uint64_t)1 << 63};
    scratch s;
    scratch_new(&s);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        sp_error err = {0};
        sp_tensor_set set = {0};
        sp_arena arena = {0};
        char image[10] = {0};
        memcpy(image, &lengths[i], sizeof lengths[i]);
        image[8] = '{';
        image[9] = '}';
        scratch_write(&s, "x.safetensors", image, sizeof image);
        assert_false(read_header(&s, &set, &arena, &err));
        assert_non_null(strstr(err.text, "at most 2 are possible"));
        sp_tensor_set_deinit(&set);
        sp_arena_deinit(&arena);
    }
    scratch_remove(&s);
}

/* ---- GGUF ---- */

static const struct {
    const char *name;
    const char *family, *format;
    bool interleaved;
    size_t window;
} gguf_fixtures[] = {
    {"llama-bf16-odd", "llama", "BF16", true, 0}, {"llama-bias-f16", "llama", "F16", true, 0},
    {"llama-f32", "llama", "F32", true, 0},       {"llama-q8_0", "llama", "Q8_0", true, 0},
    {"llama-q4_0", "llama", "Q4_0", true, 0},     {"mistral-q4_1", "llama", "Q4_1", true, 0},
    {"qwen2-q5_0", "qwen2", "Q5_0", false, 0},    {"qwen3-q5_1", "qwen3", "Q5_1", false, 0},
    {"phi3-bf16", "phi3", "BF16", false, 24},     {"phi3-q8_0", "phi3", "Q8_0", false, 0},
};

static void test_gguf_fixtures(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof gguf_fixtures / sizeof gguf_fixtures[0]; i++) {
        sp_error err = {0};
        char path[256];
        snprintf(path, sizeof path, "tests/fixtures/gguf/%s.gguf", gguf_fixtures[i].name);
        sp_model *m = sp_model_open(path, &err);
        if (!m) fail_msg("%s", err.text);
        assert_true(m->is_gguf);
        assert_string_equal(m->arch.family, gguf_fixtures[i].family);
        assert_string_equal(m->dominant_format, gguf_fixtures[i].format);
        assert_int_equal(m->layers[0].q.rope_interleaved, gguf_fixtures[i].interleaved);
        assert_int_equal(m->layers[0].k.rope_interleaved, gguf_fixtures[i].interleaved);
        assert_false(m->layers[0].v.rope_interleaved);
        assert_int_equal(m->arch.layers[0].window, gguf_fixtures[i].window);
        assert_int_equal(m->arch.n_layers, 2);
        assert_true(m->arch.n_stop_ids >= 1);
        const sp_string *tokens = NULL;
        size_t n_tokens = 0;
        assert_true(sp_gguf_get_texts(m->gguf, "tokenizer.ggml.tokens", &tokens, &n_tokens, &err));
        assert_true(n_tokens > 0 && n_tokens <= m->arch.n_vocab);
        sp_string chat;
        bool found = false;
        assert_true(sp_gguf_get_template(m->gguf, NULL, &chat, &found, &err));
        assert_true(found && chat.n_bytes > 0);
        sp_model_close(m);
    }
}

/* The same variant in both formats gives the same architecture and frequencies. */
static void test_gguf_equals_directory(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"llama-f16.gguf", "llama3"},           {"llama-bf16-odd.gguf", "odd-llama"},
        {"llama-yarn-q4_0.gguf", "llama-yarn"}, {"phi3-q8_0.gguf", "phi3-longrope"},
        {"qwen3-q5_1.gguf", "qwen3"},           {"qwen2-q5_0.gguf", "qwen2"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        sp_error err = {0};
        char path[256];
        snprintf(path, sizeof path, "tests/fixtures/gguf/%s", pairs[i][0]);
        sp_model *g = sp_model_open(path, &err);
        snprintf(path, sizeof path, "tests/fixtures/families/%s", pairs[i][1]);
        sp_model *h = sp_model_open(path, &err);
        if (!g || !h) fail_msg("%s", err.text);
        const sp_arch *a = &g->arch, *b = &h->arch;
        assert_int_equal(a->n_heads, b->n_heads);
        assert_int_equal(a->n_kv_heads, b->n_kv_heads);
        assert_int_equal(a->head_dim, b->head_dim);
        assert_int_equal(a->n_vocab, b->n_vocab);
        assert_int_equal(a->n_positions, b->n_positions);
        assert_int_equal(a->tied_head, b->tied_head);
        assert_true(a->norm_eps == b->norm_eps);
        assert_int_equal(g->n_params, h->n_params);
        assert_int_equal(a->ropes->n_dims, b->ropes->n_dims);
        assert_int_equal(a->ropes->switch_pos, b->ropes->switch_pos);
        assert_true(a->ropes->scale == b->ropes->scale);
        for (size_t j = 0; j < a->ropes->n_dims / 2; j++) {
            float x = a->ropes->inv_freq[j], y = b->ropes->inv_freq[j];
            assert_true(x > y ? x - y <= 2e-7f * y : y - x <= 2e-7f * y); /* llama3's bands were rounded once more */
        }
        sp_model_close(g);
        sp_model_close(h);
    }
}

static void put_head(sp_buf *buf, uint32_t version, uint64_t n_tensors, uint64_t n_values) {
    sp_buf_clear(buf);
    sp_buf_text(buf, "GGUF");
    put_u32(buf, version);
    put_u64(buf, n_tensors);
    put_u64(buf, n_values);
}

static void put_tensor(sp_buf *buf, const char *name, const uint64_t *dims, uint32_t n_dims, uint32_t type,
                       uint64_t offset) {
    put_text(buf, name);
    put_u32(buf, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) put_u64(buf, dims[i]);
    put_u32(buf, type);
    put_u64(buf, offset);
}

static void put_zeros(sp_buf *buf, size_t n_bytes) {
    while (n_bytes--) sp_buf_char(buf, 0);
}

static void expect_gguf(const scratch *s, const sp_buf *image, sp_error_code code, const char *want) {
    scratch_write(s, "x.gguf", image->data, image->n_bytes);
    expect_refused(scratch_path(s, "x.gguf"), code, want);
}

static void test_gguf_heads(void **state) {
    (void)state;
    scratch s;
    sp_buf b = {0};
    scratch_new(&s);
    sp_buf_text(&b, "GGUF");
    expect_gguf(&s, &b, SP_ERR_INPUT, "byte 4: the file ends inside the metadata");
    put_head(&b, 1, 0, 0);
    expect_gguf(&s, &b, SP_ERR_SUPPORT, "GGUF version 1, want 2 or 3");
    put_head(&b, 0x03000000, 0, 0);
    expect_gguf(&s, &b, SP_ERR_SUPPORT, "big-endian");
    put_head(&b, 3, UINT64_MAX, 0);
    expect_gguf(&s, &b, SP_ERR_INPUT, "18446744073709551615 tensors do not fit a file of 24 bytes");
    put_head(&b, 3, 0, UINT64_MAX);
    expect_gguf(&s, &b, SP_ERR_INPUT, "18446744073709551615 metadata entries, at most 65536");
    put_head(&b, 3, 0, 60000);
    expect_gguf(&s, &b, SP_ERR_INPUT, "60000 metadata entries do not fit");
    put_head(&b, 3, 0, 0);
    expect_gguf(&s, &b, SP_ERR_INPUT, "general.architecture is absent");
    sp_buf_deinit(&b);
    scratch_remove(&s);
}

static void test_gguf_values(void **state) {
    (void)state;
    scratch s;
    sp_buf b = {0};
    scratch_new(&s);
    put_head(&b, 3, 0, 1);
    put_key_text(&b, "general.architecture", "gemma2");
    expect_gguf(&s, &b, SP_ERR_SUPPORT, "general.architecture 'gemma2' is not supported");
    put_head(&b, 3, 0, 1);
    put_key_u32(&b, "general.architecture", 4);
    expect_gguf(&s, &b, SP_ERR_INPUT, "general.architecture is a value of type uint32, want a string");
    put_head(&b, 3, 0, 2);
    put_key_u32(&b, "a", 4);
    put_key_u32(&b, "a", 4);
    expect_gguf(&s, &b, SP_ERR_INPUT, "key a is there twice");
    put_head(&b, 3, 0, 1);
    put_key_u32(&b, "general.alignment", 48);
    expect_gguf(&s, &b, SP_ERR_INPUT, "general.alignment is 48 (uint32), want a power of two");
    put_head(&b, 3, 0, 2);
    put_key_text(&b, "general.architecture", "llama");
    put_key_u32(&b, "split.count", 3);
    expect_gguf(&s, &b, SP_ERR_SUPPORT, "one of 3 split GGUF files");
    put_head(&b, 3, 0, 2);
    put_key_text(&b, "general.architecture", "llama");
    put_key_text(&b, "general.type", "adapter");
    expect_gguf(&s, &b, SP_ERR_SUPPORT, "general.type is 'adapter', want 'model'");
    put_head(&b, 3, 0, 1);
    put_text(&b, "key");
    put_u32(&b, 13);
    put_u64(&b, 0);
    expect_gguf(&s, &b, SP_ERR_INPUT, "key has type 13, want one of 0 to 12");
    put_head(&b, 3, 0, 1);
    put_text(&b, "key");
    put_u32(&b, SP_GGUF_ARRAY);
    put_u32(&b, SP_GGUF_ARRAY);
    put_u64(&b, 1);
    expect_gguf(&s, &b, SP_ERR_INPUT, "key has type 9 in an array");
    put_head(&b, 3, 0, 1);
    put_text(&b, "key");
    put_u32(&b, SP_GGUF_ARRAY);
    put_u32(&b, SP_GGUF_U32);
    put_u64(&b, (uint64_t)1 << 62);
    expect_gguf(&s, &b, SP_ERR_INPUT, "4611686018427387904 elements do not fit");
    put_head(&b, 3, 0, 1);
    put_text(&b, "key");
    put_u32(&b, SP_GGUF_TEXT);
    put_u64(&b, UINT64_MAX);
    expect_gguf(&s, &b, SP_ERR_INPUT, "a string of 18446744073709551615 bytes");
    put_head(&b, 3, 0, 1);
    put_text(&b, "");
    put_zeros(&b, 20);
    expect_gguf(&s, &b, SP_ERR_INPUT, "a key of 0 bytes");
    put_head(&b, 3, 0, 1);
    put_text(&b, "flag");
    put_u32(&b, SP_GGUF_BOOL);
    sp_buf_char(&b, 2);
    expect_gguf(&s, &b, SP_ERR_INPUT, "flag holds byte 2, want 0 or 1");
    sp_buf_deinit(&b);
    scratch_remove(&s);
}

static void test_gguf_tensors(void **state) {
    (void)state;
    static const uint64_t row[2] = {32, 2}, uneven[1] = {33}, huge[2] = {(uint64_t)1 << 40, (uint64_t)1 << 40};
    static const struct {
        const uint64_t *dims;
        uint32_t n_dims, type;
        uint64_t offset;
        sp_error_code code;
        const char *want;
    } cases[] = {
        {row, 2, 12, 0, SP_ERR_SUPPORT, "tensor 't' is Q4_K, which is not supported; supported: F32 F16"},
        {row, 2, 99, 0, SP_ERR_SUPPORT, "tensor 't' has unknown type number 99"},
        {row, 2, UINT32_MAX, 0, SP_ERR_SUPPORT, "unknown type number 4294967295"},
        {row, 0, 0, 0, SP_ERR_INPUT, "tensor 't' has 0 dimensions, want 1 to 4"},
        {row, 5, 0, 0, SP_ERR_INPUT, "tensor 't' has 5 dimensions"},
        {uneven, 1, 8, 0, SP_ERR_INPUT, "tensor 't' has shape [33] of Q8_0: empty, uneven or bigger"},
        {huge, 2, 0, 0, SP_ERR_INPUT, "bigger than the file"},
        {row, 2, 0, 16, SP_ERR_INPUT, "tensor 't' at byte 16 of 256 bytes of data is not aligned"},
        {row, 2, 0, 32, SP_ERR_INPUT, "ends past the end of the file"},
        {row, 2, 0, 1024, SP_ERR_INPUT, "starts past the end of the file"},
    };
    scratch s;
    sp_buf b = {0};
    scratch_new(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const uint64_t five[5] = {1, 1, 1, 1, 1};
        put_head(&b, 3, 1, 0);
        put_tensor(&b, "t", cases[i].n_dims > 2 ? five : cases[i].dims, cases[i].n_dims, cases[i].type,
                   cases[i].offset);
        put_zeros(&b, (32 - b.n_bytes % 32) % 32 + 256);
        expect_gguf(&s, &b, cases[i].code, cases[i].want);
    }
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "t", row, 2, 0, 0);
    put_tensor(&b, "u", row, 2, 0, 32);
    put_zeros(&b, 2048);
    expect_gguf(&s, &b, SP_ERR_INPUT, "overlaps the one before");
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "t", row, 2, 0, 0);
    put_tensor(&b, "t", row, 2, 0, 256);
    put_zeros(&b, 2048);
    expect_gguf(&s, &b, SP_ERR_INPUT, "tensor 't' is there twice");
    sp_buf_deinit(&b);
    scratch_remove(&s);
}

/* A fixture cut anywhere is refused, whatever the cut. */
static void test_gguf_cut(void **state) {
    (void)state;
    scratch s;
    scratch_new(&s);
    FILE *file = fopen("tests/fixtures/gguf/llama-q4_0.gguf", "rb");
    assert_non_null(file);
    static char image[1 << 20];
    size_t n_bytes = fread(image, 1, sizeof image, file);
    fclose(file);
    assert_true(n_bytes > 1000 && n_bytes < sizeof image);
    for (size_t cut = 0; cut < n_bytes; cut += cut < 2000 ? 7 : 997) {
        sp_error err = {0};
        scratch_write(&s, "x.gguf", image, cut);
        assert_null(sp_model_open(scratch_path(&s, "x.gguf"), &err));
        assert_true(err.code == SP_ERR_INPUT);
    }
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_good),
        cmocka_unit_test(test_safetensors_refused),
        cmocka_unit_test(test_safetensors_lengths),
        cmocka_unit_test(test_gguf_fixtures),
        cmocka_unit_test(test_gguf_equals_directory),
        cmocka_unit_test(test_gguf_heads),
        cmocka_unit_test(test_gguf_values),
        cmocka_unit_test(test_gguf_tensors),
        cmocka_unit_test(test_gguf_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
