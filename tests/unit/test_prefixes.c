/* Prompts that begin alike: blocks are found, counted and forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/prefixes.h"
#include "kernels/ops.h"
#include "util/rng.h"

enum { PAGE = SP_KV_PAGE_TOKENS };

static void fill(int32_t *tokens, size_t n, int32_t from) {
    for (size_t i = 0; i < n; i++) tokens[i] = from + (int32_t)i;
}

static void whole_pages_are_shared(void **state) {
    (void)state;
    sp_prefixes *p = sp_prefixes_new();
    const sp_forest *forest = sp_prefixes_forest(p);
    int32_t a[4 * PAGE], b[4 * PAGE];
    fill(a, 4 * PAGE, 0);
    fill(b, 4 * PAGE, 0);
    b[2 * PAGE + 5] = -1;
    uint32_t of_a = sp_prefixes_enter(p, a, 4 * PAGE), of_b = sp_prefixes_enter(p, b, 4 * PAGE);
    assert_int_equal(forest->blocks[of_a].depth, 3); /* the last token is nobody else's */
    assert_int_equal(forest->blocks[of_b].depth, 3);
    assert_int_not_equal(of_a, of_b);
    assert_int_equal(forest->blocks[of_a].parent, forest->blocks[of_b].parent);
    assert_int_equal(sp_prefixes_enter(p, a, 4 * PAGE + 0), of_a);
    assert_int_equal(sp_prefixes_enter(p, a, PAGE), 0);
    assert_int_equal(forest->blocks[sp_prefixes_enter(p, a, PAGE + 1)].depth, 1);
    uint32_t other = sp_prefixes_enter(p, a + PAGE, 2 * PAGE); /* the same tokens behind nothing */
    assert_int_equal(forest->blocks[other].depth, 1);
    sp_prefixes_shared_begin(p);
    uint32_t shared_a = sp_prefixes_shared_add(p, of_a), shared_b = sp_prefixes_shared_add(p, of_b);
    const sp_forest *shared = sp_prefixes_shared(p);
    assert_int_equal(shared->n_blocks, 4);
    assert_int_equal(shared->blocks[shared_a].depth, 3); /* two rows */
    assert_int_equal(shared->blocks[shared_b].depth, 2);
    assert_int_equal(shared->blocks[shared_a].parent, shared_b);
    assert_int_equal(sp_prefixes_shared_add(p, other), 0);
    sp_prefixes_free(p);
}

/* Rows come and go; the forest is always that of those that are there, and its memory is used again. */
static void blocks_go_with_their_last_row(void **state) {
    (void)state;
    enum { N_KINDS = 40, N_TOKENS = 12 * PAGE, N_LIVE = 64 };
    sp_prefixes *p = sp_prefixes_new();
    uint32_t live[N_LIVE] = {0}, first = 0;
    int32_t tokens[N_TOKENS];
    for (uint64_t step = 0; step < 20000; step++) {
        size_t i = (size_t)(sp_rng_uniform(1, 3 * step) * N_LIVE);
        sp_prefixes_leave(p, live[i]);
        int32_t kind = (int32_t)(sp_rng_uniform(1, 3 * step + 1) * N_KINDS);
        size_t n = 1 + (size_t)(sp_rng_uniform(1, 3 * step + 2) * (N_TOKENS - 1));
        fill(tokens, N_TOKENS, 0);
        for (size_t t = (size_t)(kind % 6) * PAGE; t < N_TOKENS; t++) tokens[t] += 1000 * kind;
        live[i] = sp_prefixes_enter(p, tokens, n);
        assert_int_equal(live[i] ? sp_prefixes_forest(p)->blocks[live[i]].depth : 0, (n - 1) / PAGE);
    }
    assert_true(sp_prefixes_forest(p)->n_blocks <= 2048); /* 64 rows of 11 blocks at most */
    for (size_t i = 0; i < N_LIVE; i++) sp_prefixes_leave(p, live[i]);
    for (size_t b = 0; b < sp_prefixes_forest(p)->n_blocks; b++)
        assert_int_equal(sp_prefixes_forest(p)->blocks[b].depth, 0);
    fill(tokens, N_TOKENS, 7);
    first = sp_prefixes_enter(p, tokens, N_TOKENS);
    sp_prefixes_shared_begin(p);
    assert_int_equal(sp_prefixes_shared_add(p, first), 0);
    sp_prefixes_free(p);
}

/* Beyond the bound nothing more is found, and nothing breaks. */
static void memory_is_bounded(void **state) {
    (void)state;
    sp_prefixes *p = sp_prefixes_new();
    enum { N_TOKENS = 1000 * PAGE, N_ROWS = 200 };
    int32_t *tokens = malloc(N_TOKENS * sizeof *tokens);
    uint32_t blocks[N_ROWS];
    for (size_t i = 0; i < N_ROWS; i++) {
        fill(tokens, N_TOKENS, (int32_t)i * 100000);
        blocks[i] = sp_prefixes_enter(p, tokens, N_TOKENS);
    }
    assert_int_equal(sp_prefixes_forest(p)->n_blocks, 1 << 17);
    assert_true(blocks[0] != 0 && blocks[N_ROWS - 1] == 0);
    for (size_t i = 0; i < N_ROWS; i++) sp_prefixes_leave(p, blocks[i]);
    assert_int_not_equal(sp_prefixes_enter(p, tokens, N_TOKENS), 0);
    free(tokens);
    sp_prefixes_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_pages_are_shared),
        cmocka_unit_test(blocks_go_with_their_last_row),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
