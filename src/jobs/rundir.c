/* Job directories. */
#include "jobs/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool sp_home_path(const char *home, char *path, size_t path_bytes, sp_error *err) {
    const char *spill_home = home ? home : getenv("SPILL_HOME");
    const char *xdg = getenv("XDG_DATA_HOME"), *user = getenv("HOME");
    int n;
    if (spill_home && *spill_home)
        n = snprintf(path, path_bytes, "%s", spill_home);
    else if (xdg && *xdg == '/')
        n = snprintf(path, path_bytes, "%s/spill", xdg);
    else if (user && *user)
        n = snprintf(path, path_bytes, "%s/.local/share/spill", user);
    else
        return sp_fail(err, SP_ERR_USAGE, "no place for jobs: neither SPILL_HOME, XDG_DATA_HOME nor HOME is set");
    return (n > 0 && (size_t)n < path_bytes) ||
           sp_fail(err, SP_ERR_USAGE, "SPILL_HOME: longer than %zu bytes", path_bytes);
}

static bool make_dirs(const char *path, sp_error *err) {
    char part[4096];
    for (size_t i = 1; path[i - 1]; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            sp_fail_errno(err, "%s: cannot be created", part);
            err->code = SP_ERR_USAGE;
            return false;
        }
    }
    return true;
}

bool sp_rundir_create(sp_rundir *rundir, const char *home, sp_error *err) {
    char top[3900], base[3910];
    if (!sp_home_path(home, top, sizeof top, err)) return false;
    snprintf(base, sizeof base, "%s/runs", top);
    if (!make_dirs(base, err)) return false;
    for (int i_try = 0; i_try < 100; i_try++) {
        time_t now = time(NULL);
        struct tm utc;
        gmtime_r(&now, &utc);
        unsigned char noise[3] = {0};
        if (getrandom(noise, sizeof noise, 0) != sizeof noise) return sp_fail_errno(err, "getrandom");
        size_t n = strftime(rundir->id, sizeof rundir->id, "%Y%m%d-%H%M%S", &utc);
        snprintf(rundir->id + n, sizeof rundir->id - n, "-%02x%02x%02x", noise[0], noise[1], noise[2]);
        snprintf(rundir->path, sizeof rundir->path, "%s/%s", base, rundir->id);
        if (mkdir(rundir->path, 0777) == 0) return true;
        if (errno != EEXIST) break;
    }
    sp_fail_errno(err, "%s: cannot be created", rundir->path);
    err->code = SP_ERR_USAGE;
    return false;
}

static bool write_all(int fd, const char *text, size_t n_bytes) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t put = write(fd, text + done, n_bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        done += (size_t)put;
    }
    return fdatasync(fd) == 0;
}

bool sp_rundir_manifest(const sp_rundir *rundir, const json_t *manifest, sp_error *err) {
    char path[4200], part[4210];
    snprintf(path, sizeof path, "%s/manifest.json", rundir->path);
    snprintf(part, sizeof part, "%s.part", path);
    char *text = json_dumps(manifest, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    SP_CHECK(text != NULL);
    size_t n_bytes = strlen(text);
    text[n_bytes] = '\n'; /* over the NUL: what is written has its length beside it */
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, text, n_bytes + 1) && rename(part, path) == 0;
    if (!good) {
        sp_fail_errno(err, "%s: writing the manifest", path);
        unlink(part);
    }
    if (fd >= 0) close(fd);
    free(text);
    return good;
}

void sp_rundir_discard(const sp_rundir *rundir) { rmdir(rundir->path); }
