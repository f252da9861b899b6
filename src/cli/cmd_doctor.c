/* spill doctor: what this machine is, and what stops it. One finding a line, problems marked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/opts.h"
#include "jobs/rundir.h"
#include "kernels/device.h"
#include "planner/machine.h"
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
    uint64_t budget_bytes = machine->limit_bytes / 4 * 3;
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
            strcpy(path, ".");
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

int sp_cmd_doctor(const sp_invocation *invocation) {
    sp_error err = {0};
    sp_machine machine;
    if (!sp_machine_read(&machine, &err)) return sp_cli_fail(&err);
    report r = {.json = invocation->options[SP_OPT_JSON].given
                            ? json_pack("{s:s,s:[]}", "version", SP_VERSION, "problems")
                            : NULL};
    if (!r.json) say("spill", SP_VERSION);
    find_processor(&r, &machine);
    find_memory(&r, &machine);
    find_home(&r);
    if (r.json) {
        json_dumpf(r.json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(r.json);
    } else if (r.n_problems == 0) {
        printf("nothing stops a run here\n");
    }
    return r.n_problems ? 1 : 0;
}
