/* RAM from sysinfo, limits from cgroup v2 (memory.max) and v1 (memory.limit_in_bytes), every level up to the root: a
 * limit anywhere above binds, and inside a container the path that /proc names may not exist below the mount at all. */
#include "planner/machine.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "kernels/device.h"

enum { PATH_BYTES = 4096, PROC_BYTES = 8192 };

/* The file's first bytes as text; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t room_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, room_bytes - 1);
    close(fd);
    if (n < 0) return false;
    text[n] = '\0';
    return true;
}

/* "max" and v1's huge default count as no limit. */
static uint64_t limit_of(const char *directory, const char *file_name) {
    char path[PATH_BYTES + 64], text[64];
    snprintf(path, sizeof path, "%s/%s", directory, file_name);
    if (!read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

static uint64_t limit_up_tree(const char *mount, const char *group, const char *file_name) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s", mount, group);
    if (n < 0 || (size_t)n >= sizeof path) return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (size_t mount_bytes = strlen(mount);;) {
        uint64_t limit_bytes = limit_of(path, file_name);
        if (limit_bytes < least) least = limit_bytes;
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < mount_bytes) return least;
        *slash = '\0';
    }
}

/* A line is "0::/group" for v2, "N:controllers,with,commas:/group" for v1. */
static uint64_t limit_of_line(char *line, const char *sys_root) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return UINT64_MAX;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0') return limit_up_tree(sys_root, group, "memory.max");
    for (char *next = controllers; next;) {
        char *name = strsep(&next, ",");
        if (strcmp(name, "memory") != 0) continue;
        char mount[PATH_BYTES];
        int n = snprintf(mount, sizeof mount, "%s/memory", sys_root);
        if (n > 0 && (size_t)n < sizeof mount) return limit_up_tree(mount, group, "memory.limit_in_bytes");
    }
    return UINT64_MAX;
}

uint64_t sp_machine_cgroup_limit(const char *proc_cgroup, const char *sys_root) {
    uint64_t least = UINT64_MAX;
    char *text = strdup(proc_cgroup);
    SP_CHECK(text != NULL);
    for (char *next = text; next;) {
        char *line = strsep(&next, "\n");
        uint64_t limit_bytes = limit_of_line(line, sys_root);
        if (limit_bytes < least) least = limit_bytes;
    }
    free(text);
    return least;
}

bool sp_machine_read(sp_machine *machine, sp_error *err) {
    sp_machine m = {.n_cpus = 1};
    struct sysinfo info;
    if (sysinfo(&info) != 0) return sp_fail_errno(err, "sysinfo");
    m.ram_bytes = (uint64_t)info.totalram * info.mem_unit;
    m.limit_bytes = m.ram_bytes;
    char text[PROC_BYTES];
    if (read_text("/proc/self/cgroup", text, sizeof text)) {
        uint64_t limit_bytes = sp_machine_cgroup_limit(text, "/sys/fs/cgroup");
        if (limit_bytes < m.limit_bytes) m.limit_bytes = limit_bytes;
    }
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) m.n_cpus = (size_t)CPU_COUNT(&cpus);
    for (const char *const *name = sp_device_isa_names(); *name; name++) {
        if (!sp_device_isa_usable(*name)) continue;
        snprintf(m.isa, sizeof m.isa, "%s", *name);
        break;
    }
    *machine = m;
    return true;
}
