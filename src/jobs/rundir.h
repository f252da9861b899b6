/* Job directories: where they are, making one, its manifest. */
#ifndef SPILL_JOBS_RUNDIR_H
#define SPILL_JOBS_RUNDIR_H

#include <jansson.h>

#include "util/error.h"

typedef struct {
    char id[48];     /* YYYYMMDD-HHMMSS-xxxxxx, UTC */
    char path[4096]; /* .../runs/ID */
} sp_rundir;

/* $SPILL_HOME, else $XDG_DATA_HOME/spill, else ~/.local/share/spill. home overrides all when not NULL. */
bool sp_home_path(const char *home, char *path, size_t path_bytes, sp_error *err) SP_MUST_CHECK;
/* Makes a new directory with a new id, parents included. */
bool sp_rundir_create(sp_rundir *rundir, const char *home, sp_error *err) SP_MUST_CHECK;
/* Replaces manifest.json by an atomic rename. The manifest gets its last member, "seal": a hash of all others, by which
 * reading it notices that something in it was altered. */
bool sp_rundir_manifest(const sp_rundir *rundir, json_t *manifest, sp_error *err) SP_MUST_CHECK;
/* Removes a job directory again (a job refused before work), with what a job that never ran has in it. */
void sp_rundir_discard(const sp_rundir *rundir);

/* An existing one, by its id. False with SP_ERR_USAGE when there is none. */
bool sp_rundir_open(sp_rundir *rundir, const char *home, const char *id, sp_error *err) SP_MUST_CHECK;
/* The newest first: ids is a heap array of n heap strings, to be given to sp_rundir_list_free. No directory: none. */
bool sp_rundir_list(const char *home, char ***ids, size_t *n, sp_error *err) SP_MUST_CHECK;
void sp_rundir_list_free(char **ids, size_t n);
/* The caller's, without its seal; NULL when it is missing, broken, or not what its seal says. */
json_t *sp_rundir_load_manifest(const sp_rundir *rundir, sp_error *err) SP_MUST_CHECK;
/* Whether a process works on the job. */
bool sp_rundir_is_running(const sp_rundir *rundir);
/* Takes the job for this process: the lock goes when the descriptor is closed or the process ends in any way. False
 * with SP_ERR_USAGE when another has it. */
bool sp_rundir_lock(const sp_rundir *rundir, int *fd, sp_error *err) SP_MUST_CHECK;

#endif
