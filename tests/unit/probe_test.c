/* The probe's judgement, its file, and short measurements of what is here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "kernels/device.h"
#include "planner/machine_file.h"
#include "planner/probe.h"

/* ---- judgement ---- */

static const uint64_t gb = 1000000000;

typedef struct {
    const char *what;
    sp_probe_evidence evidence;
    bool believed;
    const char *note; /* a part of it; "": none at all */
} verdict;

static const verdict verdicts[] = {
    {"a drive whose counter agrees",
     {.direct = true,
      .read_bps = 3e9,
      .cached_bps = 6e9,
      .again_bps = 3e9,
      .bytes_read = 9 * gb,
      .device_bytes = 9 * gb},
     true,
     ""},
    {"faster than the page cache, but the device saw it all",
     {.direct = true,
      .read_bps = 2e10,
      .cached_bps = 9e9,
      .again_bps = 2e10,
      .bytes_read = 9 * gb,
      .device_bytes = 9 * gb},
     true,
     ""},
    {"tmpfs", {.kind = SP_DRIVE_MEMORY, .direct = true, .read_bps = 9e9, .cached_bps = 9e9}, false, "in memory"},
    {"O_DIRECT passed over: the device saw a third",
     {.direct = true, .read_bps = 4e9, .cached_bps = 9e9, .bytes_read = 9 * gb, .device_bytes = 3 * gb},
     false,
     "only 3.0 of 9.0 GB"},
    {"the device counts, and counted nothing",
     {.direct = true, .read_bps = 1e9, .cached_bps = 9e9, .bytes_read = 9 * gb, .device_bytes = 1},
     false,
     "only 0.0"},
    {"no counter, near the page cache's rate",
     {.kind = SP_DRIVE_FUSE, .direct = true, .read_bps = 5e9, .cached_bps = 9e9, .bytes_read = gb},
     false,
     "not believed"},
    {"no counter, far below", {.kind = SP_DRIVE_NETWORK, .direct = true, .read_bps = 1e9, .cached_bps = 9e9}, true, ""},
    {"no direct reads", {.read_bps = 1e9, .cached_bps = 9e9}, true, "no direct reads"},
    {"a host's cache below a virtual drive",
     {.direct = true, .is_virtual = true, .read_bps = 1e9, .again_bps = 4e9, .cached_bps = 9e9},
     true,
     "4.0 GB/s"},
    {"a file just written on a virtual drive",
     {.direct = true, .is_virtual = true, .own_file = true, .read_bps = 1e9, .again_bps = 1e9, .cached_bps = 9e9},
     true,
     "model's directory"},
};

static void what_memory_gave_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
        const verdict *v = &verdicts[i];
        char note[SP_MACHINE_NOTE_BYTES];
        if (sp_probe_is_believed(&v->evidence, note) != v->believed) fail_msg("%s: judged otherwise", v->what);
        bool good = v->note[0] ? strstr(note, v->note) != NULL : note[0] == '\0';
        if (!good) fail_msg("%s: note '%s'", v->what, note);
    }
}

/* ---- machine.json ---- */

static sp_machine_drive drive_named(const char *mount, double read_bps) {
    sp_machine_drive drive = {.file_system = "ext4",
                              .device = "nvme0n1",
                              .direct = true,
                              .read_bps = read_bps,
                              .low_bps = read_bps / 2,
                              .high_bps = read_bps * 2,
                              .backend = SP_RING_THREADS,
                              .depth = 16,
                              .request_bytes = 1 << 20,
                              .note = "a \"note\""};
    snprintf(drive.mount, sizeof drive.mount, "%s", mount);
    return drive;
}

static sp_rates rates_of(const char *isa, double flops) {
    sp_rates rates;
    memset(&rates, 0, sizeof rates);
    snprintf(rates.isa, sizeof rates.isa, "%s", isa);
    snprintf(rates.format, sizeof rates.format, "BF16");
    rates.n_threads = 2;
    for (size_t i = 0; i < SP_RATE_POINTS; i++) rates.linear_flops[i] = flops;
    rates.decode_flops = rates.prefill_flops = rates.vector_bps = flops;
    rates.measured_s = 1700000000;
    return rates;
}

static void rates_are_known_by_kind(void **state) {
    (void)state;
    sp_machine_file *file = calloc(1, sizeof *file);
    assert_non_null(file);
    for (int i = 0; i < SP_MACHINE_MAX_RATES + 2; i++) { /* the oldest make room */
        char isa[16];
        snprintf(isa, sizeof isa, "isa%d", i);
        sp_rates rates = rates_of(isa, 1e9 + i);
        rates.measured_s += i;
        sp_machine_file_put_rates(file, &rates);
    }
    assert_int_equal(file->n_rates, SP_MACHINE_MAX_RATES);
    assert_null(sp_machine_file_rates(file, "isa1", SP_MODE_BF16, "BF16", 0));
    assert_non_null(sp_machine_file_rates(file, "isa2", SP_MODE_BF16, "BF16", 2));
    assert_null(sp_machine_file_rates(file, "isa2", SP_MODE_BF16, "BF16", 4));
    assert_null(sp_machine_file_rates(file, "isa2", SP_MODE_FP32, "BF16", 0));
    sp_rates again = rates_of("isa5", 7e9);
    sp_machine_file_put_rates(file, &again);
    assert_int_equal(file->n_rates, SP_MACHINE_MAX_RATES);
    assert_true(sp_machine_file_rates(file, "isa5", SP_MODE_BF16, "BF16", 2)->linear_flops[0] == 7e9);
    free(file);
}

static void drives_are_known_by_mount(void **state) {
    (void)state;
    sp_machine_file *file = calloc(1, sizeof *file);
    assert_non_null(file);
    for (int i = 0; i < SP_MACHINE_MAX_DRIVES + 4; i++) {
        char mount[32];
        snprintf(mount, sizeof mount, "/m%d", i);
        sp_machine_drive drive = drive_named(mount, 1e9 + i);
        sp_machine_file_put(file, &drive);
        assert_true(file->machine.disk_bps == drive.read_bps);
    }
    assert_int_equal(file->n_drives, SP_MACHINE_MAX_DRIVES);
    assert_null(sp_machine_file_find(file, "/m3"));
    assert_non_null(sp_machine_file_find(file, "/m4"));
    sp_machine_drive again = drive_named("/m9", 5e9);
    sp_machine_file_put(file, &again);
    assert_int_equal(file->n_drives, SP_MACHINE_MAX_DRIVES);
    assert_string_equal(file->drives[0].mount, "/m9");
    assert_string_equal(file->drives[1].mount, "/m19");
    assert_true(sp_machine_file_find(file, "/m9")->read_bps == 5e9);
    assert_non_null(sp_machine_file_find(file, "/m4"));
    free(file);
}

static void a_file_round_trips(void **state) {
    (void)state;
    char path[] = "/tmp/spill-machine-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    sp_machine_file *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    assert_true(a && b);
    a->machine =
        (sp_machine){.ram_bytes = 24 * gb, .limit_bytes = 20 * gb, .n_cpus = 2, .isa = "avx2", .memory_bps = 1e10};
    sp_rates plain = rates_of("avx", 4e10), rates = rates_of("avx2", 5e10); /* plain: without panels */
    for (size_t i = 0; i < SP_RATE_POINTS; i++) rates.panel_flops[i] = 6e10;
    sp_machine_file_put_rates(a, &plain);
    sp_machine_file_put_rates(a, &rates);
    sp_machine_drive drive = drive_named("/data", 2e9);
    sp_machine_file_put(a, &drive);
    sp_error err = {0};
    assert_true(sp_machine_file_save(path, a, &err));
    assert_true(sp_machine_file_load(path, b, &err));
    assert_int_equal(b->machine.ram_bytes, a->machine.ram_bytes);
    assert_int_equal(b->machine.limit_bytes, a->machine.limit_bytes);
    assert_int_equal(b->machine.n_cpus, 2);
    assert_string_equal(b->machine.isa, "avx2");
    assert_true(b->machine.disk_bps == 2e9);
    assert_int_equal(b->n_rates, 2);
    assert_memory_equal(b->rates, a->rates, 2 * sizeof *b->rates);
    const sp_machine_drive *found = sp_machine_file_find(b, "/data");
    assert_non_null(found);
    assert_int_equal(found->backend, SP_RING_THREADS);
    assert_int_equal(found->depth, 16);
    assert_string_equal(found->note, "a \"note\"");
    unlink(path);
    free(a);
    free(b);
}

static void wrong_files_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"cpus\":2}",
        "{\"cpus\":-1,\"limit_bytes\":5}",
        "{\"cpus\":\"2\",\"limit_bytes\":5}",
        "{\"cpus\":2,\"limit_bytes\":1e300}",
        "{\"cpus\":2,\"limit_bytes\":5,\"isa\":\"a name that is much too long\"}",
        "{\"cpus\":2,\"limit_bytes\":5,\"drives\":[7]}",
        "{\"cpus\":2,\"limit_bytes\":5,\"drives\":[{\"reader\":\"magic\"}]}",
        "{\"cpus\":2,\"limit_bytes\":5,\"drives\":[{\"kind\":\"floppy\"}]}",
        "{\"cpus\":2,\"limit_bytes\":5,\"drives\":[{\"direct\":1}]}",
    };
    char path[] = "/tmp/spill-machine-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    sp_machine_file *file = calloc(1, sizeof *file);
    assert_non_null(file);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fputs(texts[i], out);
        fclose(out);
        sp_error err = {0};
        if (sp_machine_file_load(path, file, &err)) fail_msg("accepted: %s", texts[i]);
        assert_non_null(strstr(err.text, path));
    }
    unlink(path);
    sp_error err = {0};
    assert_false(sp_machine_file_load(path, file, &err));
    assert_int_equal(err.code, SP_ERR_INPUT);
    free(file);
}

/* ---- measuring ---- */

static const sp_probe_options quick = {.round_seconds = 0.01, .file_bytes = 128 << 20};

static void a_directory_is_measured(void **state) {
    (void)state;
    sp_machine_drive drive;
    sp_error err = {0};
    if (!sp_probe_drive("/tmp", &quick, &drive, &err)) {
        print_message("%s\n", err.text);
        skip();
    }
    assert_true(drive.mount[0] == '/');
    if (drive.read_bps == 0) { /* not believed: with a reason */
        assert_true(drive.note[0]);
        return;
    }
    assert_true(drive.low_bps <= drive.read_bps && drive.read_bps <= drive.high_bps && drive.low_bps > 0);
    assert_true(drive.depth > 0 && drive.request_bytes > 0 && drive.backend != SP_RING_AUTO);
}

static void memory_is_no_drive(void **state) {
    (void)state;
    sp_machine_drive drive;
    sp_error err = {0};
    if (access("/dev/shm", W_OK) != 0) skip();
    assert_true(sp_probe_drive("/dev/shm", &quick, &drive, &err));
    if (drive.kind != SP_DRIVE_MEMORY) skip();
    assert_true(drive.read_bps == 0);
    assert_non_null(strstr(drive.note, "memory"));
}

static void nothing_to_measure(void **state) {
    (void)state;
    sp_machine_drive drive;
    static const char *const paths[] = {"/no/such/place", "/dev/null", "/proc/version"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        sp_error err = {0};
        assert_false(sp_probe_drive(paths[i], &quick, &drive, &err));
        assert_int_equal(err.code, SP_ERR_INPUT);
    }
}

static void products_are_measured(void **state) {
    (void)state;
    sp_error err = {0};
    sp_pool *pool = sp_pool_new(0, &err);
    assert_non_null(pool);
    sp_machine_file *file = calloc(1, sizeof *file);
    assert_non_null(file);
    assert_true(sp_probe_compute(pool, &quick, file, &err));
    assert_true(file->machine.memory_bps > 1e8);
    assert_true(file->n_rates > 1);
    assert_true(file->rates[0].mode == SP_MODE_BF16 && file->rates[file->n_rates - 1].mode == SP_MODE_FP32);
    for (size_t i = 0; i < file->n_rates; i++)
        for (size_t j = 0; j < SP_RATE_POINTS; j++) {
            assert_true(file->rates[i].linear_flops[j] > 1e6);
            assert_true((file->rates[i].panel_flops[j] > 1e6) == (file->rates[i].panel_flops[0] > 0));
        }
    free(file);
    sp_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_memory_gave_is_refused), cmocka_unit_test(drives_are_known_by_mount),
        cmocka_unit_test(rates_are_known_by_kind),     cmocka_unit_test(a_file_round_trips),
        cmocka_unit_test(wrong_files_are_refused),     cmocka_unit_test(a_directory_is_measured),
        cmocka_unit_test(memory_is_no_drive),          cmocka_unit_test(nothing_to_measure),
        cmocka_unit_test(products_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
