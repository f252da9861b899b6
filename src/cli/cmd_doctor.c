/* spill doctor: what this machine is, and what stops it. One finding a line, problems marked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/opts.h"
#include "io/ring.h"
#include "jobs/rundir.h"
#include "kernels/device.h"
#include "planner/machine.h"
#include "planner/machine_file.h"
#include "util/json.h"
#include "util/units.h"
#include "util/version.h"

enum { PATH_BYTES = 4096, MIN_FREE_BYTES = 1000000000 /* results of a long job, and room to spare */ };

/* Findings go to a JSON object or, as lines, to stdout. */
typedef struct {
    json_t *json; /* NULL: lines */
    size_t n_problems;
} report;

static void say(const char *name, const char *text) {
    char shown[400];
    printf("%-10s %s\n", name, sp_printable(text, strlen(text), shown, sizeof shown));
}

static void problem(report *r, const char *text) {
    r->n_problems++;
    if (r->json)
        json_array_append_new(json_object_get(r->json, "problems"), sp_json_text(text));
    else
        say("PROBLEM", text);
}

static void find_processor(report *r, const sp_machine *machine) {
    char text[200] = "";
    size_t used = 0;
    json_t *usable = json_array();
    for (const char *const *name = sp_device_isa_names(); *name; name++) {
        if (!sp_device_isa_usable(*name)) continue;
        json_array_append_new(usable, json_string(*name));
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", *name);
    }
    const char *disabled = getenv("SPILL_DISABLE_ISA");
    if (r->json) {
        json_object_set_new(r->json, "cpus", json_integer((json_int_t)machine->n_cpus));
        json_object_set_new(r->json, "isa", usable);
        return;
    }
    json_decref(usable);
    char line[320];
    snprintf(line, sizeof line, "%zu, instruction sets %s%s%s", machine->n_cpus, text,
             disabled ? "; SPILL_DISABLE_ISA=" : "", disabled ? disabled : "");
    say("processors", line);
}

static void find_memory(report *r, const sp_machine *machine) {
    char ram[SP_UNITS_BYTES], limit[SP_UNITS_BYTES], budget[SP_UNITS_BYTES], line[200];
    uint64_t budget_bytes = sp_plan_budget_bytes(machine, 0);
    if (r->json) {
        json_object_set_new(r->json, "ram_bytes", json_integer((json_int_t)machine->ram_bytes));
        json_object_set_new(r->json, "limit_bytes", json_integer((json_int_t)machine->limit_bytes));
        json_object_set_new(r->json, "budget_bytes", json_integer((json_int_t)budget_bytes));
    } else {
        snprintf(line, sizeof line, "%s of RAM, limit %s, budget of a run %s", sp_units_bytes(machine->ram_bytes, ram),
                 sp_units_bytes(machine->limit_bytes, limit), sp_units_bytes(budget_bytes, budget));
        say("memory", line);
    }
    if (machine->limit_bytes < machine->ram_bytes) {
        snprintf(line, sizeof line, "a cgroup limits memory to %s of %s; raise it if the machine is yours",
                 sp_units_bytes(machine->limit_bytes, limit), sp_units_bytes(machine->ram_bytes, ram));
        problem(r, line);
    }
}

/* Cuts path to its nearest ancestor that is there, itself included. */
static void cut_to_existing(char path[PATH_BYTES]) {
    while (access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            memcpy(path, ".", 2);
            return;
        }
        slash[slash == path] = '\0'; /* "/" keeps its slash */
    }
}

static void find_home(report *r) {
    char home[PATH_BYTES], line[PATH_BYTES + 100], room[SP_UNITS_BYTES];
    sp_error err = {0};
    if (!sp_home_path(NULL, home, sizeof home, &err)) {
        problem(r, err.text);
        return;
    }
    char parent[PATH_BYTES]; /* what would hold it if it is not there yet */
    memcpy(parent, home, sizeof parent);
    cut_to_existing(parent);
    struct statvfs fs = {0};
    uint64_t free_bytes = statvfs(parent, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    if (r->json) {
        json_object_set_new(r->json, "home", sp_json_text(home));
        json_object_set_new(r->json, "home_free_bytes", json_integer((json_int_t)free_bytes));
    } else {
        snprintf(line, sizeof line, "%s (%s free)", home, sp_units_bytes(free_bytes, room));
        say("jobs in", line);
    }
    if (access(parent, W_OK) != 0) {
        snprintf(line, sizeof line, "%s cannot be written; set SPILL_HOME to a directory that can", parent);
        problem(r, line);
    }
    if (free_bytes < MIN_FREE_BYTES) {
        snprintf(line, sizeof line, "only %s free where jobs are kept; set SPILL_HOME to a bigger disk",
                 sp_units_bytes(free_bytes, room));
        problem(r, line);
    }
}

/* What a library that was not there leaves out. */
static void find_build(report *r) {
    static const struct {
        const char *name;
        bool built;
    } parts[] = {{"io_uring", SP_BUILT_URING}, {"gzip", SP_BUILT_GZIP}, {"zstd", SP_BUILT_ZSTD}};
    char line[100];
    size_t used = 0;
    json_t *build = json_object();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_object_set_new(build, parts[i].name, json_boolean(parts[i].built));
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s: %s", used ? ", " : "", parts[i].name,
                                 parts[i].built ? "yes" : "no");
    }
    if (r->json)
        json_object_set_new(r->json, "build", build);
    else {
        json_decref(build);
        say("built with", line);
    }
}

/* io_uring is the faster reader, threads do where a container forbids it. */
static void find_reader(report *r) {
    const char *const self = "/proc/self/exe";
    sp_error err = {0};
    sp_ring *ring = sp_ring_open(&self, 1, &(sp_ring_options){.backend = SP_RING_URING}, &err);
    bool has_uring = ring && sp_ring_start(ring, NULL, 0, &err);
    sp_ring_close(ring);
    if (r->json)
        json_object_set_new(r->json, "io_uring", json_boolean(has_uring));
    else
        say("reading", has_uring ? "io_uring" : "threads: io_uring is not allowed here");
}

static void find_drives(report *r, const sp_machine_file *known) {
    char line[600], rate[SP_UNITS_BYTES];
    json_t *drives = json_array();
    for (size_t i = 0; i < known->n_drives; i++) {
        const sp_machine_drive *drive = &known->drives[i];
        snprintf(line, sizeof line, "%s: %s/s", drive->mount, sp_units_bytes((uint64_t)drive->read_bps, rate));
        if (!r->json) say("drive", drive->read_bps > 0 ? line : drive->note);
        json_array_append_new(
            drives, json_pack("{s:o, s:f}", "mount", sp_json_text(drive->mount), "read_bps", drive->read_bps));
    }
    if (!r->json && known->n_drives == 0)
        say("drive", "not measured yet: spill probe DIR does, and so does the first run that streams from it");
    if (r->json)
        json_object_set_new(r->json, "drives", drives);
    else
        json_decref(drives);
}

/* What runs here, in terms of bf16 weights: the room that the program and rows want is taken off. */
static void find_models(report *r, const sp_machine *machine, const sp_machine_file *known) {
    static const double big_bytes = 141e9, room_bytes = 1e9; /* a model of 70 billion weights */
    double resident = ((double)sp_plan_budget_bytes(machine, 0) - room_bytes) / 2;
    double disk_bps = known->n_drives > 0 ? known->drives[0].read_bps : 0;
    if (resident < 0) resident = 0;
    if (r->json) {
        json_object_set_new(r->json, "resident_params_max", json_integer((json_int_t)resident));
        return;
    }
    char line[200], pass[SP_UNITS_BYTES];
    int n =
        snprintf(line, sizeof line, "up to about %.1f billion weights in bf16 stay in memory, larger ones are streamed",
                 resident / 1e9);
    if (disk_bps > 0)
        snprintf(line + n, sizeof line - (size_t)n, "; a pass over 70 billion takes %s",
                 sp_units_time(big_bytes / disk_bps, pass));
    say("models", line);
}

/* What spill probe or a run has measured here; nothing when there is no such file. */
static void find_measured(report *r, const sp_machine *machine) {
    char home[PATH_BYTES - 16], path[PATH_BYTES];
    sp_error err = {0};
    sp_machine_file *known = calloc(1, sizeof *known);
    SP_CHECK(known != NULL);
    if (sp_home_path(NULL, home, sizeof home, &err)) {
        snprintf(path, sizeof path, "%s/machine.json", home);
        if (access(path, F_OK) == 0 && !sp_machine_file_load(path, known, &err)) {
            problem(r, err.text);
            *known = (sp_machine_file){0};
        }
    }
    find_reader(r);
    find_drives(r, known);
    find_models(r, machine, known);
    free(known);
}

int sp_cmd_doctor(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_machine machine;
    if (!sp_machine_read(&machine, &err)) return sp_cli_fail(&err);
    report r = {.json = invocation->options[SP_OPT_JSON].given
                            ? json_pack("{s:s,s:[]}", "version", SP_VERSION, "problems")
                            : NULL};
    if (!r.json) say("spill", SP_VERSION);
    find_build(&r);
    find_processor(&r, &machine);
    find_memory(&r, &machine);
    find_home(&r);
    find_measured(&r, &machine);
    if (r.json) {
        json_dumpf(r.json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(r.json);
    } else if (r.n_problems == 0) {
        printf("nothing stops a run here\n");
    }
    return r.n_problems ? SP_EXIT_FAILED : SP_EXIT_DONE;
}
