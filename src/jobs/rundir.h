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
/* Replaces manifest.json by an atomic rename. */
bool sp_rundir_manifest(const sp_rundir *rundir, const json_t *manifest, sp_error *err) SP_MUST_CHECK;
/* Removes an empty job directory again (a job refused before work). */
void sp_rundir_discard(const sp_rundir *rundir);

#endif
