/* spill probe: measures the drive under DIR, memory and products, says what was found and keeps it in machine.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/opts.h"
#include "jobs/rundir.h"
#include "planner/machine.h"
#include "planner/probe.h"
#include "util/file.h"
#include "util/units.h"

enum { PATH_BYTES = 4096 };

/* On a terminal, one line that is written over. */
static void show_progress(void *ctx, const char *what) {
    (void)ctx;
    fprintf(stderr, "\r\033[K%s ...", what);
}

/* Adds the drive to those known; a file that cannot be read is replaced. */
static bool save(const sp_machine_file *measured, char *path, sp_error *err) {
    char home[PATH_BYTES - 16];
    if (!sp_home_path(NULL, home, sizeof home, err) || !sp_file_make_dirs(home, err)) return false;
    snprintf(path, PATH_BYTES, "%s/machine.json", home);
    sp_machine_file *file = malloc(sizeof *file);
    SP_CHECK(file != NULL);
    sp_error unreadable = {0};
    if (!sp_machine_file_load(path, file, &unreadable)) *file = (sp_machine_file){0};
    file->machine = measured->machine;
    for (size_t i = 0; i < measured->n_rates; i++) sp_machine_file_put_rates(file, &measured->rates[i]);
    sp_machine_file_put(file, &measured->drives[0]);
    bool good = sp_machine_file_save(path, file, err);
    free(file);
    return good;
}

static void show_drive(const sp_machine_drive *drive) {
    printf("%-10s %s: %s%s%s, %s\n", "drive", drive->mount, drive->file_system, drive->device[0] ? " on " : "",
           drive->device, drive->direct ? "page cache bypassed" : "no direct reads");
    char best[SP_UNITS_BYTES], low[SP_UNITS_BYTES], high[SP_UNITS_BYTES], request[SP_UNITS_BYTES];
    if (drive->read_bps > 0)
        printf("%-10s %s/s (%s to %s in five rounds) with %s, %zu requests of %s\n", "reading",
               sp_units_bytes((uint64_t)drive->read_bps, best), sp_units_bytes((uint64_t)drive->low_bps, low),
               sp_units_bytes((uint64_t)drive->high_bps, high), sp_machine_backend_name(drive->backend), drive->depth,
               sp_units_bytes(drive->request_bytes, request));
    if (drive->note[0]) printf("%-10s %s\n", drive->read_bps > 0 ? "note" : "PROBLEM", drive->note);
}

static void show_rates(const sp_rates *rates, bool is_first) {
    if (is_first) printf("%-10s GFLOP/s at 1, 8, 32, 128 and 512 tokens, %zu threads\n", "products", rates->n_threads);
    printf("%-10s", "");
    for (size_t i = 0; i < SP_RATE_POINTS; i++) printf(" %5.0f", rates->linear_flops[i] * 1e-9);
    printf("  with %s%s\n", rates->isa, rates->mode == SP_MODE_FP32 ? ", fp32 mode" : "");
}

static void show(const sp_machine_file *file, const char *path) {
    show_drive(&file->drives[0]);
    sp_drive found;
    sp_error err = {0};
    const char *advice = sp_drive_find(path, &found, &err) ? sp_drive_advice(&found) : NULL;
    if (advice) printf("%-10s %s\n", "note", advice);
    char rate[SP_UNITS_BYTES];
    printf("%-10s %s/s\n", "memory", sp_units_bytes((uint64_t)file->machine.memory_bps, rate));
    for (size_t i = 0; i < file->n_rates; i++) show_rates(&file->rates[i], i == 0);
}

static bool measure(const char *path, sp_machine_file *file, sp_error *err) {
    bool live = isatty(STDERR_FILENO);
    sp_probe_options options = {.progress = live ? show_progress : NULL};
    sp_machine_drive drive;
    if (!sp_machine_read(&file->machine, err)) return false;
    sp_pool *pool = sp_pool_new(0, err);
    if (!pool) return false;
    bool good = sp_probe_drive(path, &options, &drive, err) && sp_probe_compute(pool, &options, file, err);
    if (good) sp_machine_file_put(file, &drive);
    sp_pool_free(pool);
    if (live) fputs("\r\033[K", stderr);
    return good;
}

int sp_cmd_probe(const sp_invocation *invocation) {
    const char *path = invocation->n_args ? invocation->args[0] : ".";
    char saved_in[PATH_BYTES];
    sp_error err = {0};
    sp_machine_file *file = calloc(1, sizeof *file);
    SP_CHECK(file != NULL);
    bool good = measure(path, file, &err) && save(file, saved_in, &err);
    if (good && invocation->options[SP_OPT_JSON].given) {
        json_t *json = sp_machine_file_json(file);
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(json);
    } else if (good) {
        show(file, path);
        printf("%-10s %s\n", "kept in", saved_in);
    }
    bool believed = good && file->drives[0].read_bps > 0;
    free(file);
    if (!good) return sp_cli_fail(&err);
    return believed ? SP_EXIT_DONE : SP_EXIT_FAILED;
}
