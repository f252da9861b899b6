#include "jobs/forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/drive.h"
#include "jobs/rundir.h"
#include "planner/eta.h"
#include "planner/history.h"
#include "planner/machine_file.h"
#include "planner/probe.h"
#include "util/clock.h"
#include "util/size.h"

/* WORTH: operations of a job that are worth measuring products for, a fifth of a second here; WORTH_AGAIN: seconds of
 * one that is worth it when they are known, but for OLD seconds. FASTER: what noise may look like. SELF_TAUGHT: bytes
 * that passes must have waited for before they say more about a drive than a probe. MEASURE: what measuring may take,
 * the program included. */
enum {
    PATH_BYTES = 4096,
    ROOM_BYTES = 300 << 20,
    PROBE_LEAST_BYTES = 128 << 20,
    MEASURE_BYTES = 240 << 20,
    OLD_S = 3600
};
static const double worth_flops = 5e10, worth_again_s = 3, faster = 1.25, rates_s = 0.15,
                    self_taught_bytes = 10.0 * (1 << 30);
static const uint64_t estimate_every_ns = 1000000000;

struct sp_forecast {
    sp_forecast_setup setup;
    sp_machine_file file;
    bool changed; /* the file is to be saved */
    char home[PATH_BYTES];
    sp_plan_row known[SP_LOOK_AHEAD_ROWS];
    sp_observed observed;
    sp_machine machine;
    sp_eta *eta;
    sp_eta_row *running, queued[SP_LOOK_AHEAD_ROWS]; /* running: [plan->rows] */
    uint64_t last_pass_ns, left_ns;
    sp_estimate left;
    sp_drive drive;            /* of all the model's files */
    bool has_drive;            /* there is one such, and its sectors are counted */
    uint64_t sectors, n_bytes; /* when the run began; read by its passes */
};

/* ---- the input's rows ---- */

/* Rows that wait, as many as are looked at one by one. */
static size_t n_looked_at(const sp_intake *intake) { return sp_min_size(intake->n_queued, SP_LOOK_AHEAD_ROWS); }

static bool is_file(const char *path, struct stat *st) { return stat(path, st) == 0 && S_ISREG(st->st_mode); }

/* Rows that nobody has read yet: of a file, as long, on average, as those before them; of a pipe, what the look-ahead
 * has room for. */
static size_t rows_unread(const sp_forecast *f, const sp_intake *intake) {
    struct stat st;
    if (intake->is_dry || intake->n_lines == 0) return 0;
    size_t n_lines = SP_LOOK_AHEAD_ROWS - n_looked_at(intake);
    if (is_file(f->setup.input_path, &st)) {
        double n_taken = (double)sp_input_file_bytes_taken(intake->input), n_left = (double)st.st_size - n_taken;
        n_lines = n_taken > 0 && n_left > 0 ? (size_t)((double)intake->n_lines * n_left / n_taken + 0.5) : 0;
    }
    if (f->setup.limit == 0) return n_lines;
    return sp_min_size(n_lines, f->setup.limit > intake->n_lines ? f->setup.limit - intake->n_lines : 0);
}

static void fill_request(sp_forecast *f, const sp_intake *intake, sp_plan_request *request) {
    sp_prefixes_shared_begin(intake->prefixes);
    request->forest = sp_prefixes_shared(intake->prefixes);
    for (size_t i = 0; i < n_looked_at(intake); i++) {
        const sp_row *row = sp_intake_at(intake, i);
        f->known[i] = (sp_plan_row){row->n_prompt + row->n_new, row->max_new - row->n_new,
                                    sp_prefixes_shared_add(intake->prefixes, row->block)};
        request->prompt_tokens += f->known[i].n_prompt;
        request->new_tokens += f->known[i].max_new;
    }
    request->known = f->known;
    request->n_known = n_looked_at(intake);
    request->n_rows = intake->n_queued + (intake->n_queued > 0 ? rows_unread(f, intake) : 0);
    if (request->n_known == 0) return;
    double times = (double)request->n_rows / (double)request->n_known;
    request->prompt_tokens = (size_t)((double)request->prompt_tokens * times);
    request->new_tokens = (size_t)((double)request->new_tokens * times);
}

/* ---- rates ---- */

static void machine_path(const sp_forecast *f, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.4000s/%s", f->home, name);
}

/* Of this machine, or none: a file that cannot be read, or that another machine wrote, is as none. */
static void load_file(sp_forecast *f, const sp_machine *machine) {
    char path[PATH_BYTES];
    sp_error unreadable = {0};
    machine_path(f, "machine.json", path);
    bool good = f->home[0] && sp_machine_file_load(path, &f->file, &unreadable);
    bool is_ours = good && strcmp(f->file.machine.isa, machine->isa) == 0;
    if (!is_ours) f->file = (sp_machine_file){.machine = *machine};
}

static const sp_rates *find_rates(const sp_forecast *f, const char *isa, size_t n_threads) {
    const sp_forecast_setup *s = &f->setup;
    sp_mode mode = sp_device_mode(s->device);
    const sp_rates *rates = sp_machine_file_rates(&f->file, isa, mode, s->model->dominant_format, n_threads);
    if (rates || n_threads > 0) return rates;
    return sp_machine_file_rates(&f->file, isa, mode, "BF16", 0); /* another machine's: the next best */
}

/* Whether the memory that measuring takes is inside the run's budget. */
static bool may_measure(const sp_machine *machine, const sp_plan_request *request) {
    return sp_plan_budget_bytes(machine, request->memory_bytes) >= MEASURE_BYTES;
}

/* Whether the job is worth measuring for. */
static bool is_worth(const sp_forecast *f, const sp_plan_request *request, const sp_rates *known) {
    double tokens = (double)(request->prompt_tokens + request->new_tokens);
    double flops = 2.0 * (double)f->setup.model->n_params * tokens;
    if (!known) return flops >= worth_flops;
    return flops >= worth_again_s * known->linear_flops[SP_RATE_POINTS - 1] &&
           sp_clock_wall_s() - known->measured_s > OLD_S;
}

/* Products of a moment when others used the machine are slower than it is, and would stay so for good. The other way
 * about, the moment is now: history sees to that. The mean over all that is measured, in memory and in panels. */
static bool is_better(const sp_rates *rates, const sp_rates *known) {
    if (!known) return true;
    double sum = 0;
    for (size_t i = 0; i < SP_RATE_POINTS; i++)
        for (int in_panels = 0; in_panels < 2; in_panels++)
            sum += log(sp_rates_weight_seconds(known, (double)sp_rate_tokens[i], in_panels) /
                       sp_rates_weight_seconds(rates, (double)sp_rate_tokens[i], in_panels));
    return sum > 2 * SP_RATE_POINTS * log(faster);
}

static void complete_rates(sp_forecast *f, const sp_plan_request *request, sp_machine *machine) {
    const sp_forecast_setup *s = &f->setup;
    const sp_rates *rates = find_rates(f, sp_device_isa(s->device), s->n_threads);
    const sp_format *format = sp_format_find(s->model->dominant_format);
    sp_error failed = {0}; /* without rates there is no estimate, but a run all the same */
    sp_rates measured;
    if (is_worth(f, request, rates) && format && may_measure(machine, request) &&
        sp_rates_measure(s->device, format, s->n_threads, rates_s, &measured, &failed) && is_better(&measured, rates)) {
        sp_machine_file_put_rates(&f->file, &measured);
        f->changed = true;
        rates = &measured;
    }
    if (rates) machine->rates = *rates;
}

/* ---- drives ---- */

typedef struct {
    sp_drive drive;
    uint64_t n_bytes; /* of the model */
} share;

static size_t find_shares(const sp_model *model, share *shares, size_t n_most) {
    size_t n = 0;
    for (size_t i = 0; i < model->n_files; i++) {
        sp_drive drive;
        sp_error unknown = {0};
        if (!sp_drive_find(model->files[i].path, &drive, &unknown)) continue;
        size_t j = 0;
        while (j < n && strcmp(shares[j].drive.mount, drive.mount) != 0) j++;
        if (j == n_most) continue;
        if (j == n) shares[n++] = (share){drive, 0};
        shares[j].n_bytes += model->files[i].n_bytes;
    }
    return n;
}

/* What was measured before, or is now: on the model's own files, in a second or two. */
static const sp_machine_drive *drive_rate(sp_forecast *f, const share *of, bool is_wanted, sp_machine *machine) {
    const sp_machine_drive *known = sp_machine_file_find(&f->file, of->drive.mount);
    if ((known && known->read_bps > 0) || !is_wanted || of->n_bytes < PROBE_LEAST_BYTES) return known;
    sp_machine_drive measured;
    sp_error failed = {0};
    const sp_probe_options quick = {.quick = true};
    if (!sp_probe_drive(f->setup.model->path, &quick, &measured, &failed)) return known;
    if (strcmp(measured.mount, of->drive.mount) != 0) return known;
    sp_machine_file_put(&f->file, &measured);
    f->changed = machine->disk_measured_now = true;
    return sp_machine_file_find(&f->file, of->drive.mount);
}

/* The drives work side by side, each at its own rate; the reader's settings are those of the one with the most. */
static void complete_drive(sp_forecast *f, bool is_wanted, sp_machine *machine) {
    share shares[SP_MACHINE_MAX_DRIVES];
    size_t n = find_shares(f->setup.model, shares, SP_MACHINE_MAX_DRIVES);
    uint64_t n_bytes = 0, most_bytes = 0;
    double seconds = 0;
    for (size_t i = 0; i < n; i++) {
        const sp_machine_drive *rate = drive_rate(f, &shares[i], is_wanted, machine);
        if (!rate || rate->read_bps <= 0) return; /* one unknown rate makes the whole unknown */
        n_bytes += shares[i].n_bytes;
        double own_s = (double)shares[i].n_bytes / rate->read_bps;
        if (own_s > seconds) seconds = own_s;
        if (shares[i].n_bytes <= most_bytes) continue;
        most_bytes = shares[i].n_bytes;
        machine->disk_measured_s = rate->measured_s;
        machine->read_backend = rate->backend;
        machine->read_depth = rate->depth;
        machine->read_request_bytes = rate->request_bytes;
        machine->cached_bps = rate->cached_bps;
    }
    if (seconds > 0) machine->disk_bps = (double)n_bytes / seconds;
    f->has_drive = n == 1 && sp_drive_sectors_read(&shares[0].drive) > 0;
    if (f->has_drive) f->drive = shares[0].drive;
}

/* ---- opening ---- */

/* Another machine as its file describes it: its first drive, its best instruction set. */
static bool use_other_machine(sp_forecast *f, sp_machine *machine, sp_error *err) {
    if (!sp_machine_file_load(f->setup.machine_path, &f->file, err)) return false;
    *machine = f->file.machine;
    const sp_rates *rates = find_rates(f, machine->isa, 0);
    if (!rates && f->file.n_rates > 0) rates = &f->file.rates[0];
    if (rates) machine->rates = *rates;
    if (f->file.n_drives == 0) return true;
    const sp_machine_drive *drive = &f->file.drives[0];
    machine->disk_bps = drive->read_bps;
    machine->disk_measured_s = drive->measured_s;
    machine->cached_bps = drive->cached_bps;
    machine->read_backend = drive->backend;
    machine->read_depth = drive->depth;
    machine->read_request_bytes = drive->request_bytes;
    return true;
}

static bool may_stream(const sp_forecast *f, const sp_machine *machine, const sp_plan_request *request) {
    uint64_t budget_bytes = sp_plan_budget_bytes(machine, request->memory_bytes);
    if (request->placement == SP_PLACE_RESIDENT) return false;
    return request->placement == SP_PLACE_STREAM || f->setup.model->weight_bytes + ROOM_BYTES > budget_bytes;
}

static double cached_share(const sp_model *model) {
    double cached_bytes = 0, n_bytes = 0;
    for (size_t i = 0; i < model->n_files; i++) {
        cached_bytes += sp_drive_cached_share(model->files[i].path) * (double)model->files[i].n_bytes;
        n_bytes += (double)model->files[i].n_bytes;
    }
    return n_bytes > 0 ? cached_bytes / n_bytes : 0;
}

static void use_this_machine(sp_forecast *f, sp_machine *machine, sp_plan_request *request) {
    sp_error homeless = {0};
    if (!sp_home_path(f->setup.home, f->home, sizeof f->home, &homeless)) f->home[0] = '\0';
    load_file(f, machine);
    complete_rates(f, request, machine);
    complete_drive(f, may_stream(f, machine, request) && may_measure(machine, request), machine);
    char path[PATH_BYTES];
    machine_path(f, "history.json", path);
    const sp_history_key key = {f->setup.model_hash, &machine->rates};
    sp_history_load(path, &key, &f->observed);
    request->observed = &f->observed;
    request->cached_share = cached_share(f->setup.model);
}

bool sp_forecast_open(const sp_forecast_setup *setup, const sp_intake *intake, double elapsed_s, sp_machine *machine,
                      sp_plan_request *request, sp_forecast **out, sp_error *err) {
    uint64_t start_ns = sp_clock_ns();
    sp_forecast *f = calloc(1, sizeof *f);
    SP_CHECK(f != NULL);
    f->setup = *setup;
    *out = f;
    fill_request(f, intake, request);
    if (setup->machine_path) {
        if (!use_other_machine(f, machine, err)) return false;
    } else {
        use_this_machine(f, machine, request);
    }
    request->elapsed_s = elapsed_s + (double)(sp_clock_ns() - start_ns) * 1e-9;
    return true;
}

/* ---- the run ---- */

void sp_forecast_begin(sp_forecast *f, const sp_machine *machine, const sp_plan *plan) {
    f->machine = *machine;
    f->eta = sp_eta_new(f->setup.model, machine, plan, &f->observed, sp_max_size(plan->rows, SP_LOOK_AHEAD_ROWS));
    f->running = calloc(plan->rows, sizeof *f->running);
    SP_CHECK(f->running != NULL);
    f->last_pass_ns = sp_clock_ns();
    if (plan->placement == SP_PLACE_RESIDENT) f->has_drive = false;
    if (f->has_drive) f->sectors = sp_drive_sectors_read(&f->drive);
}

void sp_forecast_pass(sp_forecast *f, const sp_batch_pass *pass) {
    uint64_t now_ns = sp_clock_ns();
    const sp_eta_pass seen = {.load = pass->load,
                              .seconds = (double)(now_ns - f->last_pass_ns) * 1e-9,
                              .wait_seconds = (double)pass->pass.wait_ns * 1e-9,
                              .bytes_read = (double)pass->pass.bytes_read,
                              .is_first = pass->i_pass == 1,
                              .was_spared = pass->pass.was_spared};
    f->last_pass_ns = now_ns;
    f->n_bytes += pass->pass.bytes_read;
    sp_eta_add_pass(f->eta, &seen);
}

void sp_forecast_row(sp_forecast *f, const sp_row *row) {
    if (f->eta) sp_eta_add_row(f->eta, row->n_new, row->max_new);
}

const sp_observed *sp_forecast_observed(const sp_forecast *f) { return sp_eta_observed(f->eta); }

static sp_eta_row eta_row(const sp_intake *intake, const sp_row *row) {
    return (sp_eta_row){row->n_prompt, row->n_new, row->max_new, row->is_running ? row->n_cached : 0,
                        sp_prefixes_shared_add(intake->prefixes, row->block)};
}

sp_estimate sp_forecast_left(sp_forecast *f, const sp_intake *intake, sp_row *const *running, size_t n_running) {
    uint64_t now_ns = sp_clock_ns();
    struct stat st;
    if (!intake->is_dry && !is_file(f->setup.input_path, &st)) return (sp_estimate){0}; /* a pipe has no known end */
    if (f->left_ns != 0 && now_ns - f->left_ns < estimate_every_ns) return f->left;
    f->left_ns = now_ns;
    sp_prefixes_shared_begin(intake->prefixes);
    for (size_t i = 0; i < n_running; i++) f->running[i] = eta_row(intake, running[i]);
    size_t n = n_looked_at(intake), n_more = intake->n_queued - n + rows_unread(f, intake);
    for (size_t i = 0; i < n; i++) f->queued[i] = eta_row(intake, sp_intake_at(intake, i));
    const sp_eta_rows left = {f->running, f->queued, n_running, n, n_more, sp_prefixes_shared(intake->prefixes)};
    f->left = sp_eta_left(f->eta, &left);
    return f->left;
}

/* ---- keeping ---- */

/* A run that has read enough, all of it from the drive, knows its rate better than a probe of seconds. */
static void refresh_drive(sp_forecast *f) {
    double waited_bytes;
    double bps = sp_eta_disk_bps(f->eta, &waited_bytes);
    if (!f->has_drive || waited_bytes < self_taught_bytes) return;
    double device_bytes = 512.0 * (double)(sp_drive_sectors_read(&f->drive) - f->sectors);
    const sp_machine_drive *known = sp_machine_file_find(&f->file, f->drive.mount);
    if (!known || !known->direct || device_bytes < 0.9 * (double)f->n_bytes) return;
    sp_machine_drive drive = *known;
    drive.read_bps = 0.5 * (drive.read_bps + bps);
    drive.measured_s = sp_clock_wall_s();
    sp_machine_file_put(&f->file, &drive);
    f->changed = true;
}

void sp_forecast_close(sp_forecast *f) {
    if (!f) return;
    char path[PATH_BYTES];
    sp_error unsaved = {0}; /* the next run measures again */
    bool has_home = f->home[0] && access(f->home, W_OK) == 0;
    if (f->eta) refresh_drive(f);
    machine_path(f, "machine.json", path);
    if (has_home && f->changed && !sp_machine_file_save(path, &f->file, &unsaved)) has_home = false;
    machine_path(f, "history.json", path);
    const sp_history_key key = {f->setup.model_hash, &f->machine.rates};
    if (has_home && f->eta && f->machine.rates.linear_flops[0] > 0)
        (void)!sp_history_save(path, &key, sp_eta_observed(f->eta), &unsaved);
    sp_eta_free(f->eta);
    free(f->running);
    free(f);
}
