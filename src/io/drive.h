/* What a path lies on: file system, device, and what follows from it for reading weights at a drive's rate. */
#ifndef SPILL_IO_DRIVE_H
#define SPILL_IO_DRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

typedef enum {
    SP_DRIVE_LOCAL,   /* a block device of this machine, virtual ones included */
    SP_DRIVE_MEMORY,  /* tmpfs, ramfs: files are memory already */
    SP_DRIVE_OVERLAY, /* layers over another file system, as in containers */
    SP_DRIVE_NETWORK,
    SP_DRIVE_FUSE, /* a program serves the files */
    SP_DRIVE_KIND_COUNT
} sp_drive_kind;

typedef struct {
    sp_drive_kind kind;
    char file_system[32]; /* "ext4", as the kernel's table of mounts names it */
    char mount[512];      /* where it is mounted */
    char device[64];      /* "nvme0n1", "" when there is none */
    bool rotational;
    bool is_virtual; /* a virtual machine's drive: caches below it are out of our sight */
} sp_drive;

/* path is a file or a directory that exists; else SP_ERR_INPUT. */
bool sp_drive_find(const char *path, sp_drive *drive, sp_error *err) SP_MUST_CHECK;

/* One line on what follows for streaming, or NULL: nothing special. */
const char *sp_drive_advice(const sp_drive *drive);
const char *sp_drive_kind_name(sp_drive_kind kind); /* "local", "memory", ... */

/* The share of a file's bytes in the page cache, from a sample of places; 0 where that cannot be told. */
double sp_drive_cached_share(const char *path);

/* Sectors of 512 bytes that the device has read since the system started; 0 when it has no counter. */
uint64_t sp_drive_sectors_read(const sp_drive *drive);

#endif
