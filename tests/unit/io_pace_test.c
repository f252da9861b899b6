/* The pace against drives that are functions of time: no clock, no drive. */
#include "io/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { FEW = 2, MANY = 32, REQUEST_BYTES = 2 << 20 };

/* Bytes per second of a drive with few and with many requests in flight, at a time. */
typedef struct {
    double few, many;
    double few_every_other; /* of five seconds, in place of few; 0: none */
} drive;

static double rate_of(const drive *d, bool is_few, double at_s) {
    if (!is_few) return d->many;
    return d->few_every_other > 0 && (long)(at_s / 5) % 2 == 1 ? d->few_every_other : d->few;
}

typedef struct {
    double bytes, bytes_best; /* read, and by whoever knows the better pace at any time */
    double few_s;
} outcome;

static outcome read_for(sp_pace *pace, const drive *d, double seconds, bool starved) {
    outcome o = {0};
    for (double at_s = 1; at_s < 1 + seconds;) {
        double bps = rate_of(d, pace->is_few, at_s), few = rate_of(d, true, at_s), took_s = REQUEST_BYTES / bps;
        if (starved) sp_pace_starved(pace);
        if (pace->is_few) o.few_s += took_s;
        at_s += took_s;
        o.bytes += REQUEST_BYTES;
        o.bytes_best += took_s * (few > d->many ? few : d->many);
        size_t before = sp_pace_limit(pace);
        bool switched = sp_pace_landed(pace, REQUEST_BYTES, (uint64_t)(at_s * 1e9));
        assert_true(switched == (sp_pace_limit(pace) != before));
    }
    return o;
}

static void the_faster_one_is_found(void **state) {
    (void)state;
    const drive drives[] = {{3.4e9, 2.8e9, 0}, {1.8e9, 2.8e9, 0}, {2e9, 7e9, 0}, {0.5e9, 0.5e9, 0}, {0.1e9, 0.5e9, 0}};
    for (size_t i = 0; i < sizeof drives / sizeof *drives; i++) {
        sp_pace pace = {.few = FEW, .many = MANY};
        outcome o = read_for(&pace, &drives[i], 60, false);
        assert_true(o.bytes >= 0.95 * o.bytes_best);
        assert_true((drives[i].few > drives[i].many) == (o.few_s > 30));
    }
}

static void a_change_is_followed(void **state) {
    (void)state;
    const drive d = {3.3e9, 2.8e9, 1.8e9};
    sp_pace pace = {.few = FEW, .many = MANY};
    outcome o = read_for(&pace, &d, 60, false);
    assert_true(o.bytes >= 0.93 * o.bytes_best);
    assert_true(o.few_s > 10 && o.few_s < 40);
}

static void without_few_there_are_always_many(void **state) {
    (void)state;
    sp_pace pace = {.many = MANY};
    outcome o = read_for(&pace, &(drive){3.4e9, 2.8e9, 0}, 10, false);
    assert_true(o.few_s == 0 && sp_pace_limit(&pace) == MANY);
}

/* Products that are slower than the drive leave no request to be had: no rate is taken for the drive's. */
static void starved_trials_teach_nothing(void **state) {
    (void)state;
    const drive d = {3.4e9, 2.8e9, 0};
    sp_pace pace = {.few = FEW, .many = MANY};
    outcome o = read_for(&pace, &d, 10, true);
    assert_true(o.few_s == 0 && pace.bps[1] == 0);
    read_for(&pace, &d, 1, false);
    assert_true(pace.is_few);
    read_for(&pace, &(drive){0.1e9, 2.8e9, 0}, 10, true);
    assert_true(pace.is_few);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_is_found),
        cmocka_unit_test(a_change_is_followed),
        cmocka_unit_test(without_few_there_are_always_many),
        cmocka_unit_test(starved_trials_teach_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
