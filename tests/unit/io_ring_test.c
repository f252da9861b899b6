/* The ring: every byte of every extent by both kinds of readers, whatever the offsets, and what faults come to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/ring.h"
#include "util/rng.h"

enum { FILE_BYTES = 3 * 1000 * 1000 + 777, MEMORY_BYTES = 16 << 20, N_EXTENTS = 64, REQUEST_BYTES = 65536 };
enum { SLOT_EXTENT_BYTES = 200000 };

static unsigned char byte_at(size_t i_file, uint64_t offset) {
    return (unsigned char)(offset ^ offset >> 8 ^ offset >> 16 ^ (37 * i_file));
}

typedef struct {
    char paths[2][64];
    const char *names[2];
    char *memory;
    sp_ring_options options;
    size_t n_slots; /* of rings from now on */
    /* for tampering */
    _Atomic int n_calls;
    int n_faults; /* the first so many reads fail */
    ssize_t fault;
} rig;

static void write_file(rig *r, size_t i_file, const char *directory) {
    snprintf(r->paths[i_file], sizeof r->paths[i_file], "%s/spill-ring-XXXXXX", directory);
    int fd = mkstemp(r->paths[i_file]);
    assert_true(fd >= 0);
    unsigned char *data = malloc(FILE_BYTES);
    assert_non_null(data);
    for (size_t i = 0; i < FILE_BYTES; i++) data[i] = byte_at(i_file, i);
    assert_int_equal(write(fd, data, FILE_BYTES), FILE_BYTES);
    free(data);
    close(fd);
    r->names[i_file] = r->paths[i_file];
}

/* Files on two drives, where there are two. */
static int set_up(void **state) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    write_file(r, 0, "/tmp");
    write_file(r, 1, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    r->memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(r->memory != MAP_FAILED);
    *state = r;
    return 0;
}

static int tear_down(void **state) {
    rig *r = *state;
    for (size_t i = 0; i < 2; i++) unlink(r->paths[i]);
    munmap(r->memory, MEMORY_BYTES);
    free(r);
    return 0;
}

static const sp_ring_backend backends[] = {SP_RING_THREADS, SP_RING_URING};

static bool has_uring(rig *r) {
    sp_error err = {0};
    sp_ring *ring = sp_ring_open(r->names, 1, &(sp_ring_options){.backend = SP_RING_URING}, &err);
    assert_non_null(ring);
    bool has = sp_ring_start(ring, NULL, 0, &err);
    sp_ring_close(ring);
    return has;
}

static size_t n_backends(rig *r) {
    if (has_uring(r)) return 2;
    print_message("io_uring cannot be had here: threads only\n");
    return 1;
}

static sp_ring *open_ring(rig *r, sp_ring_backend backend) {
    sp_error err = {0};
    sp_ring_options options = r->options;
    options.backend = backend;
    options.n_extents = N_EXTENTS;
    options.request_bytes = REQUEST_BYTES;
    options.tamper_ctx = r;
    if (r->n_slots > 0) {
        options.n_slots = r->n_slots;
        options.slot_extent_bytes = SLOT_EXTENT_BYTES;
    }
    sp_ring *ring = sp_ring_open(r->names, 2, &options, &err);
    if (!ring) fail_msg("%s", err.text);
    if (!sp_ring_start(ring, r->memory, MEMORY_BYTES, &err)) fail_msg("%s", err.text);
    return ring;
}

static sp_ring_ticket submit(rig *r, sp_ring *ring, size_t i_file, uint64_t offset, size_t n_bytes, size_t at) {
    char *to = r->memory + at + sp_ring_lead_bytes(sp_ring_align_bytes(ring), offset);
    return sp_ring_submit(ring, &(sp_ring_extent){i_file, offset, n_bytes, to, false});
}

static void check_content(const char *content, size_t i_file, uint64_t offset, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        if ((unsigned char)content[i] != byte_at(i_file, offset + i))
            fail_msg("file %zu byte %zu differs", i_file, (size_t)offset + i);
}

static void check_bytes(rig *r, sp_ring *ring, size_t i_file, uint64_t offset, size_t n_bytes, size_t at) {
    check_content(r->memory + at + sp_ring_lead_bytes(sp_ring_align_bytes(ring), offset), i_file, offset, n_bytes);
}

static void wait_good(sp_ring *ring, sp_ring_ticket ticket) {
    sp_error err = {0};
    if (!sp_ring_wait(ring, ticket, &err)) fail_msg("%s", err.text);
    assert_true(sp_ring_landed(ring, ticket));
}

/* ---- content ---- */

typedef struct {
    size_t i_file;
    uint64_t offset;
    size_t n_bytes;
} extent;

static const extent odd_extents[] = {
    {0, 0, FILE_BYTES},
    {0, 0, 1},
    {1, 1, 1},
    {0, 4095, 2},
    {1, 4096, 4096},
    {0, 511, 70000},
    {0, 65536, 65536},
    {1, 12345, 131072},
    {0, FILE_BYTES - 1, 1},
    {1, FILE_BYTES - 5000, 5000},
    {0, FILE_BYTES - 777, 777},
};

static void check_odd_extents(rig *r, sp_ring_backend backend) {
    sp_ring *ring = open_ring(r, backend);
    for (size_t i = 0; i < sizeof odd_extents / sizeof *odd_extents; i++) {
        const extent *e = &odd_extents[i];
        memset(r->memory, 0xee, MEMORY_BYTES);
        wait_good(ring, submit(r, ring, e->i_file, e->offset, e->n_bytes, 0));
        check_bytes(r, ring, e->i_file, e->offset, e->n_bytes, 0);
        size_t room = sp_ring_room_bytes(sp_ring_align_bytes(ring), e->n_bytes);
        assert_int_equal((unsigned char)r->memory[room], 0xee); /* nothing past the room */
    }
    sp_error err = {0};
    assert_true(sp_ring_check_files(ring, &err));
    sp_ring_close(ring);
}

static void odd_offsets(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) check_odd_extents(r, backends[b]);
    r->options.cached = true;
    for (size_t b = 0; b < n_backends(r); b++) check_odd_extents(r, backends[b]);
}

/* Thousands of random extents over both files through few places, many under way at a time. */
static void check_flow(rig *r, sp_ring_backend backend, size_t depth) {
    enum { N = 2000, N_PLACES = 32, PLACE_BYTES = MEMORY_BYTES / N_PLACES, MAX_BYTES = 200000 };
    r->options.depth = depth;
    sp_ring *ring = open_ring(r, backend);
    sp_ring_ticket tickets[N_PLACES];
    extent extents[N_PLACES];
    uint64_t bytes_wanted = 0;
    for (size_t i = 0; i < N + N_PLACES; i++) {
        size_t place = i % N_PLACES;
        if (i >= N_PLACES) {
            wait_good(ring, tickets[place]);
            check_bytes(r, ring, extents[place].i_file, extents[place].offset, extents[place].n_bytes,
                        place * PLACE_BYTES);
        }
        if (i >= N) continue;
        sp_rng_block random = sp_rng_philox(1, i, 0);
        extent e = {random.v[0] % 2, random.v[1] % FILE_BYTES, 1 + random.v[2] % MAX_BYTES};
        if (e.offset + e.n_bytes > FILE_BYTES) e.n_bytes = (size_t)(FILE_BYTES - e.offset);
        extents[place] = e;
        bytes_wanted += e.n_bytes;
        tickets[place] = submit(r, ring, e.i_file, e.offset, e.n_bytes, place * PLACE_BYTES);
    }
    sp_ring_stats stats;
    sp_ring_get_stats(ring, &stats);
    assert_int_equal(stats.bytes_wanted, bytes_wanted);
    assert_true(stats.bytes_read >= bytes_wanted);
    assert_true(stats.busy_ns > 0);
    sp_ring_close(ring);
}

static void random_flow(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) {
        check_flow(r, backends[b], 1);
        check_flow(r, backends[b], 16);
        r->options.few = 2; /* 200 MB: both paces are tried */
        check_flow(r, backends[b], 16);
        r->options.few = 0;
    }
}

static sp_ring_ticket submit_to_slot(sp_ring *ring, const extent *e) {
    return sp_ring_submit(ring,
                          &(sp_ring_extent){.i_file = e->i_file, .offset_bytes = e->offset, .n_bytes = e->n_bytes});
}

/* Random extents through slots, as many ahead as there are: each keeps its bytes until it is released. */
static void check_slots(rig *r, sp_ring_backend backend) {
    enum { N = 1000, N_SLOTS = 12 };
    r->n_slots = N_SLOTS;
    r->options.depth = 4;
    sp_ring *ring = open_ring(r, backend);
    assert_true(sp_ring_slots_bytes(ring) <= MEMORY_BYTES);
    sp_ring_ticket tickets[N_SLOTS];
    extent extents[N_SLOTS];
    for (size_t i = 0; i < N + N_SLOTS; i++) {
        size_t at = i % N_SLOTS;
        if (i >= N_SLOTS) {
            wait_good(ring, tickets[at]);
            const char *place = sp_ring_place(ring, tickets[at]);
            assert_true(place >= r->memory && place < r->memory + sp_ring_slots_bytes(ring));
            check_content(place, extents[at].i_file, extents[at].offset, extents[at].n_bytes);
            sp_ring_release(ring, tickets[at]);
        }
        if (i >= N) continue;
        sp_rng_block random = sp_rng_philox(2, i, 0);
        extent e = {random.v[0] % 2, random.v[1] % (FILE_BYTES - SLOT_EXTENT_BYTES),
                    1 + random.v[2] % SLOT_EXTENT_BYTES};
        extents[at] = e;
        tickets[at] = submit_to_slot(ring, &e);
    }
    sp_ring_close(ring);
}

/* A slot is given when reading begins, and the last that was released first: extents taken one by one use one slot. */
static void check_warm_slot(rig *r, sp_ring_backend backend) {
    r->n_slots = 8;
    sp_ring *ring = open_ring(r, backend);
    const char *first = NULL;
    for (size_t i = 0; i < 20; i++) {
        sp_ring_ticket ticket = submit_to_slot(ring, &(extent){i % 2, 4096 * i, 100000});
        wait_good(ring, ticket);
        const char *place = sp_ring_place(ring, ticket);
        if (!first) first = place;
        assert_ptr_equal(place, first);
        sp_ring_release(ring, ticket);
    }
    sp_ring_close(ring);
}

static void slots(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) {
        check_slots(r, backends[b]);
        check_warm_slot(r, backends[b]);
    }
}

/* Extents under way at close are abandoned, not waited for by the caller. */
static void close_under_way(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) {
        sp_ring *ring = open_ring(r, backends[b]);
        for (size_t i = 0; i < 4; i++) submit(r, ring, i % 2, i, FILE_BYTES - 10, i * (MEMORY_BYTES / 4));
        sp_ring_close(ring);
        ring = open_ring(r, backends[b]); /* one that never read anything */
        sp_ring_close(ring);
    }
}

/* ---- faults ---- */

static ssize_t first_reads_fail(void *ctx, size_t i_file, uint64_t offset_bytes, ssize_t result) {
    (void)i_file, (void)offset_bytes;
    rig *r = ctx;
    return atomic_fetch_add(&r->n_calls, 1) < r->n_faults ? r->fault : result;
}

static void check_passing_fault(rig *r, sp_ring_backend backend, int n_faults, ssize_t fault) {
    r->n_calls = 0;
    r->n_faults = n_faults;
    r->fault = fault;
    r->options.tamper = first_reads_fail;
    r->options.depth = 1; /* so that all faults meet one request */
    sp_ring *ring = open_ring(r, backend);
    memset(r->memory, 0, MEMORY_BYTES);
    wait_good(ring, submit(r, ring, 0, 5, FILE_BYTES - 5, 0));
    check_bytes(r, ring, 0, 5, FILE_BYTES - 5, 0);
    sp_ring_close(ring);
}

static void faults_that_pass(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) {
        check_passing_fault(r, backends[b], 4, -EIO);
        check_passing_fault(r, backends[b], 3, -EAGAIN);
        check_passing_fault(r, backends[b], 50, -EINTR);
        check_passing_fault(r, backends[b], 4, 0);
        check_passing_fault(r, backends[b], 4, 100);
    }
}

/* Each read brings a part, of odd length, of what was asked for. */
static ssize_t short_reads(void *ctx, size_t i_file, uint64_t offset_bytes, ssize_t result) {
    (void)ctx, (void)i_file;
    return result > 8192 ? result * 2 / 3 - (ssize_t)(offset_bytes / 4096 % 7) : result;
}

static void short_reads_are_continued(void **state) {
    rig *r = *state;
    r->options.tamper = short_reads;
    for (size_t b = 0; b < n_backends(r); b++) {
        check_odd_extents(r, backends[b]);
        check_flow(r, backends[b], 4);
    }
}

static ssize_t always_eio(void *ctx, size_t i_file, uint64_t offset_bytes, ssize_t result) {
    rig *r = ctx;
    atomic_fetch_add(&r->n_calls, 1);
    return i_file == 1 && offset_bytes >= 1 << 20 ? -EIO : result;
}

static void lasting_fault_is_named_and_stays(void **state) {
    rig *r = *state;
    r->options.tamper = always_eio;
    r->options.depth = 1; /* else whichever of many gives up first */
    r->options.n_retries = 2;
    for (size_t b = 0; b < n_backends(r); b++) {
        sp_ring *ring = open_ring(r, backends[b]);
        sp_ring_ticket good = submit(r, ring, 0, 0, 1000, 0);
        wait_good(ring, good);
        sp_ring_ticket bad = submit(r, ring, 1, 0, FILE_BYTES, MEMORY_BYTES / 2);
        sp_error err = {0};
        assert_false(sp_ring_wait(ring, bad, &err));
        assert_int_equal(err.code, SP_ERR_IO);
        assert_non_null(strstr(err.text, r->paths[1]));
        assert_non_null(strstr(err.text, "at byte 1048576"));
        assert_non_null(strstr(err.text, "tried 3 times"));
        assert_non_null(strstr(err.text, strerror(EIO)));
        assert_true(sp_ring_landed(ring, good));
        for (size_t i = 0; i < 3 * N_EXTENTS; i++) { /* reading has ended: the same answer, never a hang */
            sp_error again = {0};
            assert_false(sp_ring_wait(ring, submit(r, ring, 0, i, 10, 0), &again));
            assert_string_equal(again.text, err.text);
        }
        sp_ring_close(ring);
    }
}

static void shrunk_file(void **state) {
    rig *r = *state;
    for (size_t b = 0; b < n_backends(r); b++) {
        sp_ring *ring = open_ring(r, backends[b]);
        assert_int_equal(truncate(r->paths[0], 1000000), 0);
        sp_error err = {0};
        assert_false(sp_ring_wait(ring, submit(r, ring, 0, 999000, 5000, 0), &err));
        assert_int_equal(err.code, SP_ERR_IO);
        assert_non_null(strstr(err.text, "ends at byte 1000000"));
        assert_non_null(strstr(err.text, "shrunk"));
        sp_error changed = {0};
        assert_false(sp_ring_check_files(ring, &changed));
        assert_non_null(strstr(changed.text, "has changed"));
        sp_ring_close(ring);
        unlink(r->paths[0]);
        write_file(r, 0, "/tmp");
    }
}

static void replaced_and_missing_files(void **state) {
    rig *r = *state;
    sp_ring *ring = open_ring(r, SP_RING_AUTO);
    unlink(r->paths[0]);
    sp_error err = {0};
    assert_false(sp_ring_check_files(ring, &err));
    assert_non_null(strstr(err.text, "gone"));
    wait_good(ring, submit(r, ring, 0, 3, 100000, 0)); /* what is open can still be read */
    sp_ring_close(ring);
    sp_error missing = {0};
    assert_null(sp_ring_open(r->names, 2, &(sp_ring_options){0}, &missing));
    assert_non_null(strstr(missing.text, r->paths[0]));
    const char *directory = "/tmp";
    sp_error wrong = {0};
    assert_null(sp_ring_open(&directory, 1, &(sp_ring_options){0}, &wrong));
    assert_int_equal(wrong.code, SP_ERR_INPUT);
}

/* ---- order and independence ---- */

static ssize_t file_1_is_slow(void *ctx, size_t i_file, uint64_t offset_bytes, ssize_t result) {
    (void)ctx, (void)offset_bytes;
    if (i_file == 1) usleep(20000);
    return result;
}

static void slow_drive_does_not_block_another(void **state) {
    rig *r = *state;
    struct stat a, b;
    assert_int_equal(stat(r->paths[0], &a) | stat(r->paths[1], &b), 0);
    if (a.st_dev == b.st_dev) skip();
    r->options.tamper = file_1_is_slow;
    r->options.depth = 1;
    for (size_t i = 0; i < n_backends(r); i++) {
        sp_ring *ring = open_ring(r, backends[i]);
        sp_ring_ticket slow = submit(r, ring, 1, 0, FILE_BYTES, 0); /* 46 requests: a second */
        wait_good(ring, submit(r, ring, 0, 0, FILE_BYTES, MEMORY_BYTES / 2));
        assert_false(sp_ring_landed(ring, slow));
        sp_ring_close(ring);
    }
}

static void urgent_goes_first(void **state) {
    rig *r = *state;
    r->options.tamper = file_1_is_slow;
    r->options.depth = 1;
    for (size_t b = 0; b < n_backends(r); b++) {
        sp_ring *ring = open_ring(r, backends[b]);
        sp_ring_ticket queued = submit(r, ring, 1, 0, FILE_BYTES, 0);
        size_t lead = sp_ring_lead_bytes(sp_ring_align_bytes(ring), 70001);
        sp_ring_extent row = {1, 70001, 5000, r->memory + MEMORY_BYTES / 2 + lead, true};
        wait_good(ring, sp_ring_submit(ring, &row));
        check_bytes(r, ring, 1, 70001, 5000, MEMORY_BYTES / 2);
        assert_false(sp_ring_landed(ring, queued));
        wait_good(ring, queued);
        sp_ring_close(ring);
    }
}

/* ---- io_uring forbidden ---- */

/* Run in a child whose io_uring_setup answers EPERM: 0 when threads took over and said so. */
static int check_without_uring(rig *r) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    sp_error err = {0};
    sp_ring *ring = sp_ring_open(r->names, 1, &(sp_ring_options){0}, &err);
    if (!ring || !sp_ring_start(ring, NULL, 0, &err)) return 1;
    if (strncmp(sp_ring_describe(ring), "threads", 7) != 0) return 2;
    if (!sp_ring_wait(ring, submit(r, ring, 0, 9, 1000, 0), &err)) return 3;
    sp_ring_close(ring);
    ring = sp_ring_open(r->names, 1, &(sp_ring_options){.backend = SP_RING_URING}, &err);
    if (!ring || sp_ring_start(ring, NULL, 0, &err) || !strstr(err.text, "io_uring")) return 4;
    sp_ring_close(ring);
    return 0;
}

static void forbidden_uring_falls_back(void **state) {
    rig *r = *state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(check_without_uring(r));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define RING_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RING_TEST(odd_offsets),
        RING_TEST(random_flow),
        RING_TEST(slots),
        RING_TEST(close_under_way),
        RING_TEST(faults_that_pass),
        RING_TEST(short_reads_are_continued),
        RING_TEST(lasting_fault_is_named_and_stays),
        RING_TEST(shrunk_file),
        RING_TEST(replaced_and_missing_files),
        RING_TEST(slow_drive_does_not_block_another),
        RING_TEST(urgent_goes_first),
        RING_TEST(forbidden_uring_falls_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
