/* What a path lies on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "io/drive.h"

static void root_has_a_mount(void **state) {
    (void)state;
    sp_error err = {0};
    sp_drive drive;
    assert_true(sp_drive_find("/", &drive, &err));
    assert_string_equal(drive.mount, "/");
    assert_true(strlen(drive.file_system) > 0);
    if (drive.kind == SP_DRIVE_LOCAL && drive.device[0]) assert_true(sp_drive_sectors_read(&drive) > 0);
}

static void memory_is_told(void **state) {
    (void)state;
    sp_error err = {0};
    sp_drive drive;
    if (access("/dev/shm", F_OK) != 0 || !sp_drive_find("/dev/shm", &drive, &err)) skip();
    if (strcmp(drive.file_system, "tmpfs") != 0) skip();
    assert_int_equal(drive.kind, SP_DRIVE_MEMORY);
    assert_string_equal(sp_drive_kind_name(drive.kind), "memory");
    assert_non_null(sp_drive_advice(&drive));
    assert_string_equal(drive.mount, "/dev/shm");
}

static void special_file_systems(void **state) {
    (void)state;
    sp_error err = {0};
    sp_drive drive;
    assert_true(sp_drive_find("/proc", &drive, &err));
    assert_string_equal(drive.file_system, "proc");
    assert_string_equal(drive.device, "");
    assert_int_equal(sp_drive_sectors_read(&drive), 0);
}

static void a_missing_path(void **state) {
    (void)state;
    sp_error err = {0};
    sp_drive drive;
    assert_false(sp_drive_find("/no/such/path", &drive, &err));
    assert_int_equal(err.code, SP_ERR_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_has_a_mount),
        cmocka_unit_test(memory_is_told),
        cmocka_unit_test(special_file_systems),
        cmocka_unit_test(a_missing_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
