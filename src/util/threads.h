/* A pool of compute threads for fork-join loops.
 *
 * sp_pool_run(pool, n, fn, ctx) calls fn(ctx, i, thread) once for every i < n, on the pool's threads and the caller's,
 * and returns when all are done. Tasks are claimed one by one from a shared counter, so a thread that is held up (a
 * busy machine) does not hold up the others' share. No result may depend on which thread ran a task: a task owns its
 * outputs.
 *
 * Idle threads spin for a few tens of microseconds, then sleep, so a machine shared with other work stays usable.
 * All tasks run in the compute floating-point environment (util/fpenv.h). One run at a time per pool; not reentrant. */
#ifndef SPILL_UTIL_THREADS_H
#define SPILL_UTIL_THREADS_H

#include <stddef.h>

#include "util/error.h"

typedef struct sp_pool sp_pool;
typedef void sp_task_fn(void *ctx, size_t i_task, size_t i_thread); /* i_thread < sp_pool_n_threads */

/* n_threads counts the caller; 0 means all processors this process may use (sched_getaffinity). NULL on failure:
 * SP_ERR_USAGE for more than 1,024, SP_ERR_IO when the system starts no more. */
sp_pool *sp_pool_new(size_t n_threads, sp_error *err) SP_MUST_CHECK;
void sp_pool_free(sp_pool *pool); /* NULL is fine */
size_t sp_pool_n_threads(const sp_pool *pool);
/* Between runs: the runs to come use so many threads, the caller's among them; 0, or more than there are: all. The
 * others sleep, and their processors are free for other work. */
void sp_pool_set_active(sp_pool *pool, size_t n_threads);
/* n_tasks < 2^32 - 1. */
void sp_pool_run(sp_pool *pool, size_t n_tasks, sp_task_fn *fn, void *ctx);

#endif
