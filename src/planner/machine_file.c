/* machine.json, read and written by one table of fields per struct. */
#include "planner/machine_file.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/json.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_PATH_BYTES = 4096 };

typedef enum {
    FIELD_U64,
    FIELD_TIME, /* int64_t seconds */
    FIELD_SIZE,
    FIELD_REAL,
    FIELD_POINTS, /* double[SP_RATE_POINTS] */
    FIELD_BOOL,
    FIELD_TEXT,
    FIELD_BACKEND,
    FIELD_KIND,
    FIELD_MODE
} field_type;

typedef struct {
    const char *key;
    field_type type;
    size_t at, room_bytes;
} field;

#define FIELD(type, key, struct_type, member) \
    { key, type, offsetof(struct_type, member), sizeof(((struct_type *)NULL)->member) }

static const field machine_fields[] = {
    FIELD(FIELD_U64, "ram_bytes", sp_machine, ram_bytes), FIELD(FIELD_U64, "limit_bytes", sp_machine, limit_bytes),
    FIELD(FIELD_SIZE, "cpus", sp_machine, n_cpus),        FIELD(FIELD_TEXT, "isa", sp_machine, isa),
    FIELD(FIELD_REAL, "disk_bps", sp_machine, disk_bps),  FIELD(FIELD_REAL, "memory_bps", sp_machine, memory_bps),
};
static const field rate_fields[] = {
    FIELD(FIELD_TEXT, "isa", sp_rates, isa),
    FIELD(FIELD_MODE, "mode", sp_rates, mode),
    FIELD(FIELD_TEXT, "format", sp_rates, format),
    FIELD(FIELD_SIZE, "threads", sp_rates, n_threads),
    FIELD(FIELD_POINTS, "product_flops", sp_rates, linear_flops),
    FIELD(FIELD_POINTS, "panel_flops", sp_rates, panel_flops),
    FIELD(FIELD_REAL, "decode_attention_flops", sp_rates, decode_flops),
    FIELD(FIELD_REAL, "prefill_attention_flops", sp_rates, prefill_flops),
    FIELD(FIELD_REAL, "vector_bps", sp_rates, vector_bps),
    FIELD(FIELD_REAL, "call_seconds", sp_rates, call_s),
    FIELD(FIELD_TIME, "measured", sp_rates, measured_s),
};
static const field drive_fields[] = {
    FIELD(FIELD_TEXT, "mount", sp_machine_drive, mount),
    FIELD(FIELD_TEXT, "file_system", sp_machine_drive, file_system),
    FIELD(FIELD_TEXT, "device", sp_machine_drive, device),
    FIELD(FIELD_KIND, "kind", sp_machine_drive, kind),
    FIELD(FIELD_BOOL, "direct", sp_machine_drive, direct),
    FIELD(FIELD_REAL, "read_bps", sp_machine_drive, read_bps),
    FIELD(FIELD_REAL, "low_bps", sp_machine_drive, low_bps),
    FIELD(FIELD_REAL, "high_bps", sp_machine_drive, high_bps),
    FIELD(FIELD_REAL, "cached_bps", sp_machine_drive, cached_bps),
    FIELD(FIELD_BACKEND, "reader", sp_machine_drive, backend),
    FIELD(FIELD_SIZE, "depth", sp_machine_drive, depth),
    FIELD(FIELD_SIZE, "request_bytes", sp_machine_drive, request_bytes),
    FIELD(FIELD_TIME, "measured", sp_machine_drive, measured_s),
    FIELD(FIELD_TEXT, "note", sp_machine_drive, note),
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

const char *sp_machine_backend_name(sp_ring_backend backend) {
    static const char *const names[SP_RING_BACKEND_COUNT] = {"auto", "io_uring", "threads"};
    return names[backend];
}

static const char *const mode_names[] = {[SP_MODE_BF16] = "bf16", [SP_MODE_FP32] = "fp32"};

/* ---- writing ---- */

static json_t *points_value(const double *at) {
    if (at[0] <= 0) return json_null(); /* not measured */
    json_t *array = json_array();
    for (size_t i = 0; i < SP_RATE_POINTS; i++) json_array_append_new(array, json_real(at[i]));
    return array;
}

static json_t *value_of(const field *f, const char *at) {
    switch (f->type) {
        case FIELD_U64:
            return json_integer((json_int_t) * (const uint64_t *)at);
        case FIELD_SIZE:
            return json_integer((json_int_t) * (const size_t *)at);
        case FIELD_TIME:
            return json_integer((json_int_t) * (const int64_t *)at);
        case FIELD_REAL:
            return json_real(*(const double *)at);
        case FIELD_POINTS:
            return points_value((const double *)at);
        case FIELD_BOOL:
            return json_boolean(*(const bool *)at);
        case FIELD_TEXT:
            return json_string(at);
        case FIELD_BACKEND:
            return json_string(sp_machine_backend_name(*(const sp_ring_backend *)at));
        case FIELD_KIND:
            return json_string(sp_drive_kind_name(*(const sp_drive_kind *)at));
        case FIELD_MODE:
            return json_string(mode_names[*(const sp_mode *)at]);
    }
    return NULL;
}

static json_t *write_fields(json_t *object, const field *fields, size_t n_fields, const void *from) {
    for (size_t i = 0; i < n_fields; i++)
        json_object_set_new(object, fields[i].key, value_of(&fields[i], (const char *)from + fields[i].at));
    return object;
}

json_t *sp_machine_file_json(const sp_machine_file *file) {
    json_t *object = write_fields(json_object(), machine_fields, COUNT(machine_fields), &file->machine);
    json_t *rates = json_array(), *drives = json_array();
    for (size_t i = 0; i < file->n_rates; i++)
        json_array_append_new(rates, write_fields(json_object(), rate_fields, COUNT(rate_fields), &file->rates[i]));
    for (size_t i = 0; i < file->n_drives; i++)
        json_array_append_new(drives, write_fields(json_object(), drive_fields, COUNT(drive_fields), &file->drives[i]));
    json_object_set_new(object, "rates", rates);
    json_object_set_new(object, "drives", drives);
    return object;
}

bool sp_machine_file_save(const char *path, const sp_machine_file *file, sp_error *err) {
    char temporary[MAX_PATH_BYTES];
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    json_t *object = sp_machine_file_json(file);
    bool good =
        json_dump_file(object, temporary, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 && rename(temporary, path) == 0;
    if (!good) {
        sp_fail_errno(err, "%s: cannot be written", path);
        unlink(temporary);
    }
    json_decref(object);
    return good;
}

/* ---- reading ---- */

/* The index of a text among names, or n. */
static size_t index_of(const char *text, size_t n, const char *(*name_of)(size_t)) {
    size_t i = 0;
    while (i < n && strcmp(text, name_of(i)) != 0) i++;
    return i;
}
static const char *backend_name(size_t i) { return sp_machine_backend_name((sp_ring_backend)i); }
static const char *kind_name(size_t i) { return sp_drive_kind_name((sp_drive_kind)i); }

static bool read_number(const field *f, const json_t *value, char *to) {
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0 && number <= 1e18)) return false;
    if (f->type == FIELD_REAL)
        *(double *)to = number;
    else if (f->type == FIELD_U64)
        *(uint64_t *)to = (uint64_t)number;
    else if (f->type == FIELD_TIME)
        *(int64_t *)to = (int64_t)number;
    else
        *(size_t *)to = (size_t)number;
    return true;
}

static bool read_text(const field *f, const json_t *value, char *to) {
    const char *text = json_string_value(value);
    if (!text || json_string_length(value) >= f->room_bytes) return false;
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool read_backend(const json_t *value, char *to) {
    const char *text = json_string_value(value);
    size_t i = text ? index_of(text, SP_RING_BACKEND_COUNT, backend_name) : SP_RING_BACKEND_COUNT;
    *(sp_ring_backend *)to = (sp_ring_backend)(i % SP_RING_BACKEND_COUNT);
    return i < SP_RING_BACKEND_COUNT;
}

static bool read_kind(const json_t *value, char *to) {
    const char *text = json_string_value(value);
    size_t i = text ? index_of(text, SP_DRIVE_KIND_COUNT, kind_name) : SP_DRIVE_KIND_COUNT;
    *(sp_drive_kind *)to = (sp_drive_kind)(i % SP_DRIVE_KIND_COUNT);
    return i < SP_DRIVE_KIND_COUNT;
}

/* Rates that a time is made of: none is 0. */
static bool read_points(const json_t *value, char *to) {
    if (json_array_size(value) != SP_RATE_POINTS) return false;
    for (size_t i = 0; i < SP_RATE_POINTS; i++) {
        double number = json_number_value(json_array_get(value, i));
        if (!(number >= 1 && number <= 1e18)) return false;
        ((double *)to)[i] = number;
    }
    return true;
}

static bool read_mode(const json_t *value, char *to) {
    const char *text = json_string_value(value);
    bool is_fp32 = text && strcmp(text, mode_names[SP_MODE_FP32]) == 0;
    *(sp_mode *)to = is_fp32 ? SP_MODE_FP32 : SP_MODE_BF16;
    return is_fp32 || (text && strcmp(text, mode_names[SP_MODE_BF16]) == 0);
}

static bool read_value(const field *f, const json_t *value, char *to) {
    switch (f->type) {
        case FIELD_U64:
        case FIELD_TIME:
        case FIELD_SIZE:
        case FIELD_REAL:
            return read_number(f, value, to);
        case FIELD_POINTS:
            return read_points(value, to);
        case FIELD_BOOL:
            *(bool *)to = json_is_true(value);
            return json_is_boolean(value);
        case FIELD_TEXT:
            return read_text(f, value, to);
        case FIELD_BACKEND:
            return read_backend(value, to);
        case FIELD_KIND:
            return read_kind(value, to);
        case FIELD_MODE:
            return read_mode(value, to);
    }
    return false;
}

/* Absent and null fields stay zero. */
static bool read_fields(const char *path, const json_t *object, const field *fields, size_t n_fields, void *to,
                        sp_error *err) {
    if (!json_is_object(object)) return sp_fail(err, SP_ERR_INPUT, "%s: an object is wanted for each entry", path);
    for (size_t i = 0; i < n_fields; i++) {
        const json_t *value = json_object_get(object, fields[i].key);
        if (!value || json_is_null(value)) continue;
        if (!read_value(&fields[i], value, (char *)to + fields[i].at))
            return sp_fail(err, SP_ERR_INPUT, "%s: %s has a value it cannot have; spill probe writes this file anew",
                           path, fields[i].key);
    }
    return true;
}

static bool read_rates(const char *path, const json_t *json, sp_rates *rates, sp_error *err) {
    if (!read_fields(path, json, rate_fields, COUNT(rate_fields), rates, err)) return false;
    bool whole =
        rates->linear_flops[0] > 0 && rates->decode_flops >= 1 && rates->prefill_flops >= 1 && rates->vector_bps >= 1;
    return whole || sp_fail(err, SP_ERR_INPUT, "%s: rates of %s lack a number; spill probe writes this file anew", path,
                            rates->isa[0] ? rates->isa : "no name");
}

static bool read_file(const char *path, const json_t *json, sp_machine_file *file, sp_error *err) {
    *file = (sp_machine_file){0};
    if (!read_fields(path, json, machine_fields, COUNT(machine_fields), &file->machine, err)) return false;
    if (file->machine.n_cpus == 0 || file->machine.limit_bytes == 0)
        return sp_fail(err, SP_ERR_INPUT, "%s: no cpus or limit_bytes; a file that spill probe --json wrote is wanted",
                       path);
    const json_t *rates = json_object_get(json, "rates"), *drives = json_object_get(json, "drives");
    for (size_t i = 0; i < json_array_size(rates) && i < SP_MACHINE_MAX_RATES; i++, file->n_rates++)
        if (!read_rates(path, json_array_get(rates, i), &file->rates[i], err)) return false;
    for (size_t i = 0; i < json_array_size(drives) && i < SP_MACHINE_MAX_DRIVES; i++, file->n_drives++)
        if (!read_fields(path, json_array_get(drives, i), drive_fields, COUNT(drive_fields), &file->drives[i], err))
            return false;
    return true;
}

bool sp_machine_file_load(const char *path, sp_machine_file *file, sp_error *err) {
    json_t *json = sp_json_load(path, MAX_FILE_BYTES, err);
    if (!json) {
        err->code = SP_ERR_INPUT; /* a file that was named and cannot be read is the user's to mend */
        return false;
    }
    bool good = read_file(path, json, file, err);
    json_decref(json);
    return good;
}

/* ---- drives ---- */

const sp_machine_drive *sp_machine_file_find(const sp_machine_file *file, const char *mount) {
    for (size_t i = 0; i < file->n_drives; i++)
        if (strcmp(file->drives[i].mount, mount) == 0) return &file->drives[i];
    return NULL;
}

void sp_machine_file_put(sp_machine_file *file, const sp_machine_drive *drive) {
    const sp_machine_drive *old = sp_machine_file_find(file, drive->mount);
    size_t i_last = old ? (size_t)(old - file->drives) : file->n_drives;
    if (i_last == SP_MACHINE_MAX_DRIVES) i_last--;
    if (i_last == file->n_drives) file->n_drives++;
    memmove(&file->drives[1], &file->drives[0], i_last * sizeof *file->drives);
    file->drives[0] = *drive;
    file->machine.disk_bps = drive->read_bps;
}

/* ---- rates ---- */

static bool is_same_kind(const sp_rates *a, const char *isa, sp_mode mode, const char *format, size_t n_threads) {
    return strcmp(a->isa, isa) == 0 && a->mode == mode && strcmp(a->format, format) == 0 &&
           (n_threads == 0 || a->n_threads == n_threads);
}

const sp_rates *sp_machine_file_rates(const sp_machine_file *file, const char *isa, sp_mode mode, const char *format,
                                      size_t n_threads) {
    for (size_t i = 0; i < file->n_rates; i++)
        if (is_same_kind(&file->rates[i], isa, mode, format, n_threads)) return &file->rates[i];
    return NULL;
}

void sp_machine_file_put_rates(sp_machine_file *file, const sp_rates *rates) {
    size_t i = 0, oldest = 0;
    for (; i < file->n_rates; i++) {
        if (is_same_kind(&file->rates[i], rates->isa, rates->mode, rates->format, rates->n_threads)) break;
        if (file->rates[i].measured_s < file->rates[oldest].measured_s) oldest = i;
    }
    if (i == SP_MACHINE_MAX_RATES) i = oldest;
    if (i == file->n_rates) file->n_rates++;
    file->rates[i] = *rates;
}
