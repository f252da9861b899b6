/* Job directories. */
#include "jobs/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "model/identity.h"
#include "util/file.h"
#include "util/json.h"

enum { MANIFEST_BYTES_MAX = 16 << 20 };

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

bool sp_rundir_create(sp_rundir *rundir, const char *home, sp_error *err) {
    char top[3900], base[3910];
    if (!sp_home_path(home, top, sizeof top, err)) return false;
    snprintf(base, sizeof base, "%s/runs", top);
    if (!sp_file_make_dirs(base, err)) return false;
    for (int i_try = 0; i_try < 100; i_try++) {
        struct timespec now;
        struct tm utc;
        unsigned char noise = 0;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        if (getrandom(&noise, sizeof noise, 0) != sizeof noise) return sp_fail_errno(err, "getrandom");
        size_t n = strftime(rundir->id, sizeof rundir->id, "%Y%m%d-%H%M%S", &utc);
        /* microseconds and a random digit: ids sort by time */
        snprintf(rundir->id + n, sizeof rundir->id - n, "-%05lx%x", (unsigned long)now.tv_nsec / 1000, noise & 15);
        snprintf(rundir->path, sizeof rundir->path, "%s/%s", base, rundir->id);
        if (mkdir(rundir->path, 0777) == 0) return true;
        if (errno != EEXIST) break;
    }
    return sp_fail_create(err, rundir->path);
}

/* The hash of all that a manifest says, however its file is laid out. False: no memory. */
static bool seal_of(const json_t *manifest, char seal[SP_HASH_HEX_BYTES]) {
    char *text = json_dumps(manifest, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!text) return false;
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    sp_hash whole = sp_hash_of(hash.high64, hash.low64);
    sp_hash_hex(&whole, seal);
    free(text);
    return true;
}

bool sp_rundir_manifest(const sp_rundir *rundir, json_t *manifest, sp_error *err) {
    char path[4200], part[4210], seal[SP_HASH_HEX_BYTES];
    snprintf(path, sizeof path, "%s/manifest.json", rundir->path);
    snprintf(part, sizeof part, "%s.part", path);
    bool is_sealed = seal_of(manifest, seal) && json_object_set_new(manifest, "seal", json_string(seal)) == 0;
    char *text = !is_sealed ? NULL : json_dumps(manifest, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) return sp_fail(err, SP_ERR_MEMORY, "%s: no memory to write the manifest", path);
    size_t n_bytes = strlen(text);
    text[n_bytes] = '\n'; /* over the NUL: what is written has its length beside it */
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && sp_file_write_all(fd, text, n_bytes + 1) && fdatasync(fd) == 0 && rename(part, path) == 0;
    if (!good) {
        sp_fail_errno(err, "%s: writing the manifest", path);
        unlink(part);
    }
    if (fd >= 0) close(fd);
    free(text);
    return good;
}

void sp_rundir_discard(const sp_rundir *rundir) {
    static const char *const names[] = {"manifest.json", "journal", "lock", "results.jsonl"};
    char path[4200];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", rundir->path, names[i]);
        unlink(path);
    }
    rmdir(rundir->path);
}

/* ---- existing ones ---- */

bool sp_rundir_open(sp_rundir *rundir, const char *home, const char *id, sp_error *err) {
    char top[3900];
    struct stat st;
    if (!sp_home_path(home, top, sizeof top, err)) return false;
    bool is_name = *id && *id != '.' && strlen(id) < sizeof rundir->id && !strchr(id, '/');
    snprintf(rundir->id, sizeof rundir->id, "%.47s", is_name ? id : "");
    snprintf(rundir->path, sizeof rundir->path, "%s/runs/%s", top, rundir->id);
    return (is_name && stat(rundir->path, &st) == 0 && S_ISDIR(st.st_mode)) ||
           sp_fail(err, SP_ERR_USAGE, "%s: no such job in %s/runs; spill runs lists them", id, top);
}

static int newest_first(const void *a, const void *b) { return strcmp(*(char *const *)b, *(char *const *)a); }

bool sp_rundir_list(const char *home, char ***ids, size_t *n, sp_error *err) {
    char top[3900], base[3910];
    *ids = NULL;
    *n = 0;
    if (!sp_home_path(home, top, sizeof top, err)) return false;
    snprintf(base, sizeof base, "%s/runs", top);
    DIR *dir = opendir(base);
    if (!dir) return errno == ENOENT || sp_fail_errno(err, "%s", base);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        *ids = realloc(*ids, (*n + 1) * sizeof **ids);
        SP_CHECK(*ids != NULL);
        (*ids)[*n] = strdup(entry->d_name);
        SP_CHECK((*ids)[*n] != NULL);
        *n += 1;
    }
    closedir(dir);
    if (*n) qsort(*ids, *n, sizeof **ids, newest_first);
    return true;
}

void sp_rundir_list_free(char **ids, size_t n) {
    for (size_t i = 0; i < n; i++) free(ids[i]);
    free(ids);
}

json_t *sp_rundir_load_manifest(const sp_rundir *rundir, sp_error *err) {
    char path[4200];
    snprintf(path, sizeof path, "%s/manifest.json", rundir->path);
    json_t *manifest = sp_json_load(path, MANIFEST_BYTES_MAX, err);
    if (!manifest) return NULL;
    char seal[SP_HASH_HEX_BYTES] = "", wanted[SP_HASH_HEX_BYTES] = "";
    const char *found = json_string_value(json_object_get(manifest, "seal"));
    snprintf(seal, sizeof seal, "%s", found ? found : "");
    bool good = json_is_object(manifest) || sp_fail(err, SP_ERR_INPUT, "%s: not an object", path);
    /* A manifest that never had a seal is one of an earlier spill. */
    bool is_sealed = good && json_object_del(manifest, "seal") == 0;
    if (is_sealed && !seal_of(manifest, wanted)) good = sp_fail(err, SP_ERR_MEMORY, "%s: no memory to read it", path);
    if (good && is_sealed && strcmp(seal, wanted) != 0)
        good = sp_fail(err, SP_ERR_INPUT,
                       "%s: altered since spill wrote it (seal %s found, its content wants %s); put it back as it was, "
                       "or run the rows as a new job",
                       path, *seal ? seal : "of no text", wanted);
    if (good) return manifest;
    json_decref(manifest);
    return NULL;
}

/* ---- who works on it ---- */

/* An OFD lock: it can be asked about without being taken, and dies with its process. */
static struct flock whole_file(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

static int open_lock(const sp_rundir *rundir, int flags) {
    char path[4200];
    snprintf(path, sizeof path, "%s/lock", rundir->path);
    return open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666); /* a FIFO there is not waited on */
}

bool sp_rundir_is_running(const sp_rundir *rundir) {
    int fd = open_lock(rundir, O_RDONLY);
    if (fd < 0) return false;
    struct flock lock = whole_file();
    bool is_locked = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return is_locked;
}

bool sp_rundir_lock(const sp_rundir *rundir, int *fd, sp_error *err) {
    *fd = open_lock(rundir, O_RDWR | O_CREAT);
    if (*fd < 0) return sp_fail_errno(err, "%s: its lock", rundir->path);
    struct flock lock = whole_file();
    /* A file system without locks lets it pass. */
    if (fcntl(*fd, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES)) return true;
    close(*fd);
    *fd = -1;
    return sp_fail(err, SP_ERR_USAGE, "%s: another process is running this job; follow it with spill tail %s",
                   rundir->id, rundir->id);
}
