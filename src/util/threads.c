/* A pool of compute threads for fork-join loops.
 *
 * One 64-bit word, `ticket`, holds the run's number (high half) and the next task (low half), so that a late thread can
 * never claim a task of a run that is over: its compare-and-swap fails on the run's number.
 *
 *   caller:  fill job -> ticket = (run, 0) -> wake sleepers -> claim tasks -> wait until n_done == n_tasks
 *   worker:  wait until the run's number moves -> claim tasks -> ...
 *
 * Waiting spins for SPIN_NS (a barrier between two kernels comes within microseconds), then sleeps on a futex. */
#include "util/threads.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/fpenv.h"

enum { SPIN_NS = 20000, SPINS_PER_LOOK = 64, CACHE_LINE = 64, MAX_THREADS = 1024 };

typedef struct {
    sp_pool *pool;
    size_t i_thread;
    pthread_t handle;
} worker;

struct sp_pool {
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket; /* run number << 32 | next task */
    _Alignas(CACHE_LINE) _Atomic uint32_t run;    /* futex of the workers: run number, moves when a run starts */
    _Atomic uint32_t n_sleeping;
    _Atomic uint32_t n_active;                    /* threads that runs use; futex of the workers that they do not */
    _Alignas(CACHE_LINE) _Atomic uint32_t n_done; /* tasks finished in this run; futex of the caller */
    _Atomic uint32_t caller_sleeps;
    _Atomic(sp_task_fn *) fn; /* atomic only because a late worker may look while the next run is being set up */
    _Atomic(void *) ctx;
    _Atomic uint32_t n_tasks;
    _Atomic bool stop;
    size_t n_threads;
    worker *workers; /* [n_threads - 1] */
};

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Spins until *word != old or the spin budget is gone; true if it moved. */
static bool spin_while_equal(_Atomic uint32_t *word, uint32_t old) {
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
            cpu_relax();
        }
        uint64_t now = sp_clock_ns();
        if (start == 0) start = now;
        if (now - start > SPIN_NS) return false;
    }
}

/* Claims and runs tasks of this run until there are none; the last one to finish wakes the caller. */
static void work(sp_pool *pool, uint32_t run, size_t i_thread) {
    uint64_t ticket = atomic_load(&pool->ticket);
    for (;;) {
        uint32_t task = (uint32_t)ticket;
        uint32_t n_tasks = atomic_load_explicit(&pool->n_tasks, memory_order_relaxed);
        sp_task_fn *fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *ctx = atomic_load_explicit(&pool->ctx, memory_order_relaxed);
        if ((uint32_t)(ticket >> 32) != run || task >= n_tasks) return;
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        fn(ctx, task, i_thread); /* the swap succeeded, so fn, ctx and n_tasks were this run's */
        uint32_t n_done = atomic_fetch_add(&pool->n_done, 1) + 1;
        if (n_done == n_tasks && i_thread != 0 && atomic_load(&pool->caller_sleeps)) futex_wake(&pool->n_done, 1);
        ticket = atomic_load(&pool->ticket);
    }
}

static void *worker_main(void *argument) {
    worker *self = argument;
    sp_pool *pool = self->pool;
    sp_fpenv_enter();
    uint32_t seen = 0;
    for (;;) {
        for (uint32_t n; self->i_thread >= (n = atomic_load(&pool->n_active));) futex_wait(&pool->n_active, n);
        while (!spin_while_equal(&pool->run, seen)) {
            atomic_fetch_add(&pool->n_sleeping, 1);
            if (atomic_load(&pool->run) == seen) futex_wait(&pool->run, seen);
            atomic_fetch_sub(&pool->n_sleeping, 1);
        }
        seen = atomic_load(&pool->run);
        if (atomic_load(&pool->stop)) return NULL;
        if (self->i_thread < atomic_load(&pool->n_active)) work(pool, seen, self->i_thread);
    }
}

static void start_run(sp_pool *pool, uint32_t run) {
    atomic_store(&pool->run, run);
    if (atomic_load(&pool->n_sleeping)) futex_wake(&pool->run, MAX_THREADS);
}

void sp_pool_run(sp_pool *pool, size_t n_tasks, sp_task_fn *fn, void *ctx) {
    if (n_tasks == 0) return;
    SP_CHECK(n_tasks < UINT32_MAX);
    sp_fpenv env = sp_fpenv_enter();
    if (atomic_load_explicit(&pool->n_active, memory_order_relaxed) == 1 || n_tasks == 1) {
        for (size_t i = 0; i < n_tasks; i++) fn(ctx, i, 0);
        sp_fpenv_leave(env);
        return;
    }
    uint32_t run = atomic_load_explicit(&pool->run, memory_order_relaxed) + 1;
    atomic_store(&pool->ticket, (uint64_t)run << 32 | UINT32_MAX); /* nothing to claim while the job is written */
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&pool->n_tasks, (uint32_t)n_tasks, memory_order_relaxed);
    atomic_store(&pool->ticket, (uint64_t)run << 32);
    start_run(pool, run);
    work(pool, run, 0);
    for (;;) {
        uint32_t n_done = atomic_load(&pool->n_done);
        if (n_done == n_tasks) break;
        if (spin_while_equal(&pool->n_done, n_done)) continue;
        atomic_store(&pool->caller_sleeps, 1);
        n_done = atomic_load(&pool->n_done);
        if (n_done != n_tasks) futex_wait(&pool->n_done, n_done);
        atomic_store(&pool->caller_sleeps, 0);
    }
    sp_fpenv_leave(env);
}

static size_t n_usable_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (size_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (size_t)n : 1;
}

sp_pool *sp_pool_new(size_t n_threads, sp_error *err) {
    if (n_threads == 0) n_threads = n_usable_cpus();
    if (n_threads > MAX_THREADS) {
        sp_fail(err, SP_ERR_USAGE, "threads: %zu asked for, at most %d are possible", n_threads, MAX_THREADS);
        return NULL;
    }
    sp_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool); /* whose size its alignment makes a multiple */
    SP_CHECK(pool != NULL);
    memset(pool, 0, sizeof *pool);
    pool->n_threads = 1;
    atomic_store(&pool->n_active, (uint32_t)n_threads); /* before there is anybody to look */
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    SP_CHECK(pool->workers != NULL);
    for (size_t i = 1; i < n_threads; i++) {
        worker *self = &pool->workers[i - 1];
        self->pool = pool;
        self->i_thread = i;
        int failed = pthread_create(&self->handle, NULL, worker_main, self);
        if (failed) {
            errno = failed;
            sp_fail_errno(err, "thread %zu of %zu cannot be started", i + 1, n_threads);
            sp_pool_free(pool);
            return NULL;
        }
        pool->n_threads = i + 1;
    }
    return pool;
}

void sp_pool_free(sp_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    sp_pool_set_active(pool, 0);
    start_run(pool, atomic_load(&pool->run) + 1);
    for (size_t i = 1; i < pool->n_threads; i++) pthread_join(pool->workers[i - 1].handle, NULL);
    free(pool->workers);
    free(pool);
}

void sp_pool_set_active(sp_pool *pool, size_t n_threads) {
    if (n_threads == 0 || n_threads > pool->n_threads) n_threads = pool->n_threads;
    if (atomic_exchange(&pool->n_active, (uint32_t)n_threads) != n_threads) futex_wake(&pool->n_active, MAX_THREADS);
}

size_t sp_pool_n_threads(const sp_pool *pool) { return pool->n_threads; }
