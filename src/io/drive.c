/* The table of mounts gives the file system, sysfs the device. The mount is found by device number, and among several
 * by the longest mount point that the path begins with. */
#include "io/drive.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, SAMPLES = 32 };

typedef struct {
    const char *file_system; /* a trailing '*' stands for anything */
    sp_drive_kind kind;
} kind_row;

static const kind_row kind_rows[] = {
    {"tmpfs", SP_DRIVE_MEMORY},      {"ramfs", SP_DRIVE_MEMORY},       {"hugetlbfs", SP_DRIVE_MEMORY},
    {"overlay", SP_DRIVE_OVERLAY},   {"aufs", SP_DRIVE_OVERLAY},       {"nfs*", SP_DRIVE_NETWORK},
    {"cifs", SP_DRIVE_NETWORK},      {"smb*", SP_DRIVE_NETWORK},       {"ceph", SP_DRIVE_NETWORK},
    {"lustre", SP_DRIVE_NETWORK},    {"gpfs", SP_DRIVE_NETWORK},       {"beegfs", SP_DRIVE_NETWORK},
    {"glusterfs", SP_DRIVE_NETWORK}, {"afs", SP_DRIVE_NETWORK},        {"9p", SP_DRIVE_NETWORK},
    {"virtiofs", SP_DRIVE_NETWORK},  {"fuse.sshfs", SP_DRIVE_NETWORK}, {"fuse*", SP_DRIVE_FUSE},
};

static const struct {
    const char *name, *advice;
} kinds[SP_DRIVE_KIND_COUNT] = {
    [SP_DRIVE_LOCAL] = {"local", NULL},
    [SP_DRIVE_MEMORY] = {"memory",
                         "files here take memory already: streaming from here saves none; put the model on a drive"},
    [SP_DRIVE_OVERLAY] = {"overlay",
                          "a container's layered file system: mount the model's drive into the container as a volume"},
    [SP_DRIVE_NETWORK] =
        {"network",
         "a network file system: its rate is the network's and others share it; copy the model to a local drive"},
    [SP_DRIVE_FUSE] =
        {"fuse", "a program serves these files, and it may keep copies in memory; put the model on a local drive"},
};

static sp_drive_kind kind_of(const char *file_system) {
    for (size_t i = 0; i < sizeof kind_rows / sizeof *kind_rows; i++) {
        const char *name = kind_rows[i].file_system;
        size_t n_bytes = strlen(name);
        bool open_ended = name[n_bytes - 1] == '*';
        if (open_ended ? strncmp(name, file_system, n_bytes - 1) == 0 : strcmp(name, file_system) == 0)
            return kind_rows[i].kind;
    }
    return SP_DRIVE_LOCAL;
}

/* Undoes the octal escapes of mountinfo, in place. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from;) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
                     from[3] >= '0' && from[3] <= '7';
        if (octal) {
            *to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static bool begins_with_directory(const char *path, const char *directory) {
    size_t n_bytes = strlen(directory);
    if (n_bytes == 1) return true; /* "/" */
    return strncmp(path, directory, n_bytes) == 0 && (path[n_bytes] == '/' || path[n_bytes] == '\0');
}

/* A line of mountinfo: id, parent, major:minor, root, mount point, options, fields..., "-", type, source, options. */
static bool parse_mount(char *line, unsigned *major_number, unsigned *minor_number, char **mount, char **type) {
    char *fields[5], *next = line;
    for (size_t i = 0; i < 5; i++) fields[i] = strsep(&next, " ");
    char *dash = next ? strstr(next, " - ") : NULL;
    if (!dash || sscanf(fields[2], "%u:%u", major_number, minor_number) != 2) return false;
    *mount = fields[4];
    unescape(*mount);
    *type = dash + 3;
    (*type)[strcspn(*type, " ")] = '\0';
    return true;
}

/* The mount that holds the path: the longest mount point before it, the later of equals. A device number that fits
 * beats one that does not (btrfs gives its files numbers that no mount has). */
static void find_mount(const char *path, dev_t device, sp_drive *drive) {
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts) return;
    char line[LINE_BYTES], *mount, *type;
    unsigned major_number, minor_number;
    size_t best_score = 0;
    while (fgets(line, sizeof line, mounts)) {
        if (!parse_mount(line, &major_number, &minor_number, &mount, &type)) continue;
        if (!begins_with_directory(path, mount)) continue;
        size_t score = strlen(mount) + (makedev(major_number, minor_number) == device ? LINE_BYTES : 0);
        if (score < best_score) continue;
        best_score = score;
        snprintf(drive->mount, sizeof drive->mount, "%s", mount);
        snprintf(drive->file_system, sizeof drive->file_system, "%s", type);
    }
    fclose(mounts);
}

static bool read_first_line(const char *path, char *text, int room_bytes) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool good = fgets(text, room_bytes, file) != NULL;
    fclose(file);
    if (good) text[strcspn(text, "\n")] = '\0';
    return good;
}

/* /sys/dev/block/M:m is the device or one of its partitions; a partition's queue is its parent's. A loop device says
 * nothing about itself: what its file lies on counts. */
static void find_device(dev_t device, sp_drive *drive) {
    char path[64], real[PATH_MAX], file[PATH_MAX + 32], text[64];
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(device), minor(device));
    if (!realpath(path, real)) return;
    snprintf(file, sizeof file, "%s/partition", real);
    char *slash = strrchr(real, '/');
    if (access(file, F_OK) == 0) {
        *slash = '\0';
        slash = strrchr(real, '/');
    }
    snprintf(drive->device, sizeof drive->device, "%s", slash + 1);
    struct stat backing;
    snprintf(file, sizeof file, "%s/loop/backing_file", real);
    if (read_first_line(file, real, sizeof real) && stat(real, &backing) == 0) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u", major(backing.st_dev), minor(backing.st_dev));
        if (!realpath(path, real)) return;
    }
    snprintf(file, sizeof file, "%s/queue/rotational", real);
    drive->rotational = read_first_line(file, text, sizeof text) && text[0] == '1';
    /* virtio marks itself rotational by default: believed only of others */
    drive->is_virtual = strstr(real, "/virtio") || strstr(real, "/xvd") || strstr(real, "/vbd-");
    if (drive->is_virtual) drive->rotational = false;
}

bool sp_drive_find(const char *path, sp_drive *drive, sp_error *err) {
    *drive = (sp_drive){.file_system = "unknown", .mount = "/"};
    char real[PATH_MAX];
    struct stat st;
    if (!realpath(path, real) || stat(real, &st) != 0) {
        sp_fail_errno(err, "%s", path);
        err->code = SP_ERR_INPUT;
        return false;
    }
    find_mount(real, st.st_dev, drive);
    drive->kind = kind_of(drive->file_system);
    find_device(st.st_dev, drive);
    return true;
}

const char *sp_drive_advice(const sp_drive *drive) {
    if (drive->kind == SP_DRIVE_LOCAL && drive->rotational)
        return "a rotating disk: streaming works at its rate, a hundred MB/s or two; an SSD is ten times as fast";
    return kinds[drive->kind].advice;
}

const char *sp_drive_kind_name(sp_drive_kind kind) { return kinds[kind].name; }

/* A read that may not wait is refused where it would have to go to the drive. */
double sp_drive_cached_share(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    int n_cached = 0;
    for (int i = 0; i < SAMPLES && fstat(fd, &st) == 0 && st.st_size > 0; i++) {
        char byte;
        struct iovec to = {&byte, 1};
        n_cached += preadv2(fd, &to, 1, st.st_size / SAMPLES * i, RWF_NOWAIT) == 1;
    }
    close(fd);
    return (double)n_cached / SAMPLES;
}

uint64_t sp_drive_sectors_read(const sp_drive *drive) {
    char path[128], text[256];
    unsigned long long n_sectors = 0;
    snprintf(path, sizeof path, "/sys/class/block/%s/stat", drive->device);
    if (!drive->device[0] || !read_first_line(path, text, sizeof text)) return 0;
    return sscanf(text, "%*u %*u %llu", &n_sectors) == 1 ? n_sectors : 0;
}
