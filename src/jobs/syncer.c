/* The thread: waits for descriptors, syncs them one after the other. */
#include "jobs/syncer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct sp_syncer {
    pthread_t thread;
    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    int fds[2];
    bool is_busy, is_closing;
    int failed_errno; /* 0: none */
};

static void *work(void *ctx) {
    sp_syncer *syncer = ctx;
    pthread_mutex_lock(&syncer->mutex);
    for (;;) {
        while (!syncer->is_busy && !syncer->is_closing) pthread_cond_wait(&syncer->changed, &syncer->mutex);
        if (!syncer->is_busy) break;
        int fds[2] = {syncer->fds[0], syncer->fds[1]}, failed = 0;
        pthread_mutex_unlock(&syncer->mutex);
        for (int i = 0; i < 2; i++)
            if (fds[i] >= 0 && fdatasync(fds[i]) != 0 && !failed) failed = errno;
        pthread_mutex_lock(&syncer->mutex);
        if (failed) syncer->failed_errno = failed;
        syncer->is_busy = false;
        pthread_cond_broadcast(&syncer->changed);
    }
    pthread_mutex_unlock(&syncer->mutex);
    return NULL;
}

sp_syncer *sp_syncer_new(sp_error *err) {
    sp_syncer *syncer = calloc(1, sizeof *syncer);
    SP_CHECK(syncer != NULL);
    pthread_mutex_init(&syncer->mutex, NULL);
    pthread_cond_init(&syncer->changed, NULL);
    sigset_t all, old; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int failed = pthread_create(&syncer->thread, NULL, work, syncer);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed) return syncer;
    errno = failed;
    sp_fail_errno(err, "a thread that syncs results");
    free(syncer);
    return NULL;
}

void sp_syncer_free(sp_syncer *syncer) {
    if (!syncer) return;
    pthread_mutex_lock(&syncer->mutex);
    syncer->is_closing = true;
    pthread_cond_broadcast(&syncer->changed);
    pthread_mutex_unlock(&syncer->mutex);
    pthread_join(syncer->thread, NULL);
    pthread_cond_destroy(&syncer->changed);
    pthread_mutex_destroy(&syncer->mutex);
    free(syncer);
}

bool sp_syncer_is_busy(sp_syncer *syncer) {
    pthread_mutex_lock(&syncer->mutex);
    bool is_busy = syncer->is_busy;
    pthread_mutex_unlock(&syncer->mutex);
    return is_busy;
}

void sp_syncer_begin(sp_syncer *syncer, int first, int second) {
    pthread_mutex_lock(&syncer->mutex);
    assert(!syncer->is_busy);
    syncer->fds[0] = first;
    syncer->fds[1] = second;
    syncer->is_busy = true;
    pthread_cond_broadcast(&syncer->changed);
    pthread_mutex_unlock(&syncer->mutex);
}

void sp_syncer_wait(sp_syncer *syncer) {
    pthread_mutex_lock(&syncer->mutex);
    while (syncer->is_busy) pthread_cond_wait(&syncer->changed, &syncer->mutex);
    pthread_mutex_unlock(&syncer->mutex);
}

bool sp_syncer_check(sp_syncer *syncer, sp_error *err) {
    pthread_mutex_lock(&syncer->mutex);
    int failed = syncer->failed_errno;
    pthread_mutex_unlock(&syncer->mutex);
    errno = failed;
    return !failed || sp_fail_errno(err, "syncing results");
}
