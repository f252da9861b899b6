/* The pool: every task once, whatever the number of threads and the length of the runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/fpenv.h"
#include "util/threads.h"

enum { MAX_TASKS = 300 };

typedef struct {
    unsigned char n_runs[MAX_TASKS]; /* a task owns its byte */
    size_t n_threads;
    bool bad_thread;
    bool denormal_seen;
} work;

static volatile float tiny = 1e-39f; /* a denormal: zero in the compute environment */

static void task(void *ctx, size_t i_task, size_t i_thread) {
    work *w = ctx;
    w->n_runs[i_task]++;
    if (i_thread >= w->n_threads) w->bad_thread = true;
    if (tiny * 1.0f != 0.0f) w->denormal_seen = true;
}

static void test_every_task_once(void **state) {
    (void)state;
    for (size_t n_threads = 1; n_threads <= 5; n_threads++) {
        sp_error err = {0};
        sp_pool *pool = sp_pool_new(n_threads, &err);
        assert_non_null(pool);
        assert_int_equal(sp_pool_n_threads(pool), n_threads);
        for (size_t round = 0; round < 4000; round++) {
            size_t n_tasks = round % MAX_TASKS;
            work w = {.n_threads = n_threads};
            if (round % 500 == 499) usleep(200); /* workers fall asleep */
            sp_pool_run(pool, n_tasks, task, &w);
            for (size_t i = 0; i < MAX_TASKS; i++) assert_int_equal(w.n_runs[i], i < n_tasks);
            assert_false(w.bad_thread);
            assert_false(w.denormal_seen);
        }
        sp_pool_free(pool);
    }
}

/* Threads that stand back take no task, and do again when they are called. */
static void test_threads_stand_back(void **state) {
    (void)state;
    sp_error err = {0};
    sp_pool *pool = sp_pool_new(4, &err);
    assert_non_null(pool);
    for (size_t round = 0; round < 2000; round++) {
        size_t n_active = round % 6;
        sp_pool_set_active(pool, n_active);
        if (round % 100 == 99) usleep(200);
        work w = {.n_threads = n_active == 0 || n_active > 4 ? 4 : n_active};
        sp_pool_run(pool, MAX_TASKS, task, &w);
        for (size_t i = 0; i < MAX_TASKS; i++) assert_int_equal(w.n_runs[i], 1);
        assert_false(w.bad_thread);
    }
    sp_pool_set_active(pool, 1);
    sp_pool_free(pool);
}

static void test_environment_is_the_callers_again(void **state) {
    (void)state;
    sp_error err = {0};
    sp_pool *pool = sp_pool_new(2, &err);
    work w = {.n_threads = 2};
    sp_pool_run(pool, 10, task, &w);
    assert_true(tiny * 1.0f != 0.0f);
    sp_pool_free(pool);
}

static void test_refusal(void **state) {
    (void)state;
    sp_error err = {0};
    assert_null(sp_pool_new(1000000, &err));
    assert_int_equal(err.code, SP_ERR_USAGE);
    sp_pool_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_threads_stand_back),
        cmocka_unit_test(test_environment_is_the_callers_again),
        cmocka_unit_test(test_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
