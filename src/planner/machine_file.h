/* machine.json: what `spill probe` measured, kept for the runs after it, and read by `spill plan --machine`.
 *
 * One machine, its operations' rates, and each drive that was probed, known by its mount point. Plain data; values that
 * make no sense are refused when read, keys that are not known are passed over. Thread-safe on different values. */
#ifndef SPILL_PLANNER_MACHINE_FILE_H
#define SPILL_PLANNER_MACHINE_FILE_H

#include <jansson.h>

#include "io/drive.h"
#include "io/ring.h"
#include "planner/plan.h"
#include "util/error.h"

enum { SP_MACHINE_MAX_DRIVES = 16, SP_MACHINE_MAX_RATES = 24, SP_MACHINE_NOTE_BYTES = 300 };

typedef struct {
    char mount[512];
    char file_system[32];
    char device[64]; /* "" : none */
    sp_drive_kind kind;
    bool direct;              /* the page cache could be bypassed */
    double read_bps;          /* median of rounds at the best setting; 0: no rate was believed */
    double low_bps, high_bps; /* the slowest and the fastest of those rounds */
    double cached_bps;        /* the same reads out of the page cache, for comparison */
    sp_ring_backend backend;  /* these three are the best setting */
    size_t depth, request_bytes;
    int64_t measured_s;               /* wall clock */
    char note[SP_MACHINE_NOTE_BYTES]; /* why a rate was refused, or what to know about it; "" : nothing */
} sp_machine_drive;

typedef struct {
    sp_machine machine;                   /* disk_bps is that of drives[0] */
    sp_rates rates[SP_MACHINE_MAX_RATES]; /* one for each instruction set, mode, format and number of threads */
    size_t n_rates;
    sp_machine_drive drives[SP_MACHINE_MAX_DRIVES]; /* the latest first */
    size_t n_drives;
} sp_machine_file;

/* SP_ERR_INPUT for a file that is missing or wrong. */
bool sp_machine_file_load(const char *path, sp_machine_file *file, sp_error *err) SP_MUST_CHECK;
/* By an atomic rename; the directory must exist. */
bool sp_machine_file_save(const char *path, const sp_machine_file *file, sp_error *err) SP_MUST_CHECK;
json_t *sp_machine_file_json(const sp_machine_file *file); /* a new object of the caller's */

/* Puts the drive first, in place of an earlier probe of the same mount; the oldest falls off a full list. */
void sp_machine_file_put(sp_machine_file *file, const sp_machine_drive *drive);
/* The drive mounted there, or NULL. */
const sp_machine_drive *sp_machine_file_find(const sp_machine_file *file, const char *mount);

/* Puts rates in place of earlier ones of the same instruction set, mode, format and threads; the oldest makes room. */
void sp_machine_file_put_rates(sp_machine_file *file, const sp_rates *rates);
/* Those of exactly this kind, or NULL. n_threads 0: of any number. */
const sp_rates *sp_machine_file_rates(const sp_machine_file *file, const char *isa, sp_mode mode, const char *format,
                                      size_t n_threads);

const char *sp_machine_backend_name(sp_ring_backend backend); /* "auto", "io_uring", "threads" */

#endif
