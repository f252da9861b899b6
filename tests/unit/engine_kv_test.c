/* Pages of the KV cache: last in, first out; shared pages; zeroed when reused; resident size follows use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/kv.h"

enum { LAYERS = 3, PAGE_BYTES = 8192, PAGES = 64 };

static sp_kv *open_kv(void) {
    sp_error err = {0};
    sp_kv *kv = sp_kv_open(LAYERS, PAGE_BYTES, PAGES, &err);
    assert_non_null(kv);
    return kv;
}

static void takes_every_page_once(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    bool seen[PAGES] = {false};
    for (size_t i = 0; i < PAGES; i++) {
        assert_int_equal(sp_kv_pages_free(kv), PAGES - i);
        uint32_t page = sp_kv_take(kv);
        assert_true(page < PAGES);
        assert_false(seen[page % PAGES]);
        seen[page % PAGES] = true;
    }
    assert_int_equal(sp_kv_pages_free(kv), 0);
    sp_kv_close(kv);
}

static void reuses_the_last_page_first(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    uint32_t a = sp_kv_take(kv), b = sp_kv_take(kv), c = sp_kv_take(kv);
    sp_kv_drop(kv, a);
    sp_kv_drop(kv, c);
    assert_int_equal(sp_kv_take(kv), c);
    assert_int_equal(sp_kv_take(kv), a);
    sp_kv_drop(kv, b);
    sp_kv_close(kv);
}

static void a_shared_page_outlives_its_first_owner(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    uint32_t page = sp_kv_take(kv);
    sp_kv_share(kv, page);
    sp_kv_drop(kv, page);
    assert_int_equal(sp_kv_pages_free(kv), PAGES - 1);
    sp_kv_drop(kv, page);
    assert_int_equal(sp_kv_pages_free(kv), PAGES);
    sp_kv_close(kv);
}

static void a_reused_page_is_zero_in_every_layer(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    uint32_t page = sp_kv_take(kv);
    for (size_t l = 0; l < LAYERS; l++) memset((char *)sp_kv_layer(kv, l) + page * PAGE_BYTES, 0xff, PAGE_BYTES);
    sp_kv_drop(kv, page);
    assert_int_equal(sp_kv_take(kv), page);
    static const char zeros[PAGE_BYTES];
    for (size_t l = 0; l < LAYERS; l++)
        assert_memory_equal((char *)sp_kv_layer(kv, l) + page * PAGE_BYTES, zeros, PAGE_BYTES);
    sp_kv_close(kv);
}

static size_t n_resident_pages(const sp_kv *kv, size_t i_layer) {
    size_t system_page = (size_t)sysconf(_SC_PAGESIZE), n_bytes = (size_t)PAGE_BYTES * PAGES;
    unsigned char resident[PAGES * PAGE_BYTES / 4096];
    assert_true(n_bytes / system_page <= sizeof resident);
    assert_int_equal(mincore(sp_kv_layer(kv, i_layer), n_bytes, resident), 0);
    size_t n_resident = 0;
    for (size_t i = 0; i < n_bytes / system_page; i++) n_resident += resident[i] & 1;
    return n_resident;
}

static void untouched_pages_take_no_memory(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    uint32_t page = sp_kv_take(kv);
    ((char *)sp_kv_layer(kv, 0))[page * PAGE_BYTES] = 1;
    assert_int_equal(n_resident_pages(kv, 0), 1);
    sp_kv_close(kv);
}

/* The limit falls below what was used once: pages in use keep their content, the rest of the memory is gone. */
static void a_lower_limit_gives_memory_back(void **state) {
    (void)state;
    sp_kv *kv = open_kv();
    size_t system_page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t pages[40];
    for (size_t i = 0; i < 40; i++) {
        pages[i] = sp_kv_take(kv);
        for (size_t l = 0; l < LAYERS; l++)
            memset((char *)sp_kv_layer(kv, l) + pages[i] * PAGE_BYTES, (int)i + 1, PAGE_BYTES);
    }
    for (size_t i = 0; i < 40; i++)
        if (i % 5) sp_kv_drop(kv, pages[i]); /* 8 stay */
    assert_int_equal(sp_kv_bytes_above(kv, 50), (PAGES - 50) * PAGE_BYTES * LAYERS);
    assert_int_equal(sp_kv_set_limit(kv, 50), (PAGES - 50) * PAGE_BYTES * LAYERS); /* never touched ones alone */
    assert_int_equal(n_resident_pages(kv, 1), 40 * PAGE_BYTES / system_page);
    assert_int_equal(sp_kv_set_limit(kv, 10), 40 * PAGE_BYTES * LAYERS);
    assert_int_equal(sp_kv_pages_free(kv), 2);
    for (size_t l = 0; l < LAYERS; l++) assert_int_equal(n_resident_pages(kv, l), 10 * PAGE_BYTES / system_page);
    for (size_t i = 0; i < 40; i += 5)
        for (size_t l = 0; l < LAYERS; l++)
            assert_int_equal(((char *)sp_kv_layer(kv, l))[(pages[i] + 1) * PAGE_BYTES - 1], (int)i + 1);
    sp_kv_take(kv), sp_kv_take(kv);
    assert_int_equal(sp_kv_pages_free(kv), 0);
    sp_kv_close(kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_page_once),
        cmocka_unit_test(reuses_the_last_page_first),
        cmocka_unit_test(a_shared_page_outlives_its_first_owner),
        cmocka_unit_test(a_reused_page_is_zero_in_every_layer),
        cmocka_unit_test(untouched_pages_take_no_memory),
        cmocka_unit_test(a_lower_limit_gives_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
