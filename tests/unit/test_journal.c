/* The journal: what comes back after it was closed, cut anywhere or damaged anywhere; its size. And results read back.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "jobs/frontend.h"
#include "jobs/journal.h"

enum { N_ROWS = 3, N_TOKENS = 40 };

static char home[] = "/tmp/spill-journal-XXXXXX";
static sp_frontend frontend;
static sp_rundir rundir;
static char path[4200];

static int setup(void **state) {
    (void)state;
    sp_error err = {0};
    assert_non_null(mkdtemp(home));
    assert_true(sp_frontend_open_dir(&frontend, "models/fields", &err));
    assert_true(sp_rundir_create(&rundir, home, &err));
    snprintf(path, sizeof path, "%s/journal", rundir.path);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    sp_rundir_discard(&rundir);
    sp_frontend_deinit(&frontend);
    char runs[64];
    snprintf(runs, sizeof runs, "%s/runs", home);
    return rmdir(runs) || rmdir(home);
}

/* Row i of the test: row 1 has log-probabilities. */
static sp_row *new_row(size_t i) {
    sp_error err = {0};
    sp_request request = {.i_line = i + 1, .custom_id = "r", .decoding = sp_decoding_default()};
    request.decoding.logprobs = i == 1;
    request.decoding.top_logprobs = i == 1 ? 2 : 0;
    sp_ids prompt = {0};
    sp_row *row = sp_row_new(&request, &prompt, 1000, frontend.tokenizer, NULL, 0, &err);
    assert_non_null(row);
    return row;
}

static sp_sample sample_of(size_t i_row, size_t i_token) {
    sp_sample sample = {.id = (int32_t)(10 + i_row * 7 + i_token * 3 % 50), .logprob = -0.5f * (float)i_token};
    if (i_row != 1) return sample;
    sample.n_top = 2;
    sample.top[0] = (sp_token_logprob){.id = (int32_t)i_token, .logprob = -1};
    sample.top[1] = (sp_token_logprob){.id = 5, .logprob = -(float)i_token};
    return sample;
}

static void push(sp_row *row, size_t i_row, size_t n) {
    sp_error err = {0};
    sp_stop_ids none = {0};
    for (size_t k = 0; k < n; k++) {
        sp_sample sample = sample_of(i_row, row->n_new);
        assert_true(sp_row_push(row, &sample, &none, &err));
    }
}

/* The tokens that a new row gets back, which must be the first of the row's. */
static size_t restored(const sp_journal_state *state, size_t i_row) {
    sp_error err = {0};
    sp_stop_ids none = {0};
    sp_row *row = new_row(i_row);
    assert_true(sp_journal_restore(state, row, &none, &err));
    for (size_t k = 0; k < row->n_new; k++) {
        sp_sample want = sample_of(i_row, k);
        assert_int_equal(row->tokens[row->n_prompt + k], want.id);
        if (!row->samples) continue;
        assert_int_equal(row->samples[k].n_top, want.n_top);
        assert_memory_equal(&row->samples[k].logprob, &want.logprob, sizeof want.logprob);
        assert_memory_equal(row->samples[k].top, want.top, want.n_top * sizeof *want.top);
    }
    size_t n = row->n_new;
    sp_row_free(row);
    return n;
}

static void write_journal(void) {
    sp_error err = {0};
    sp_writer results = {.fd = -1};
    sp_row *rows[N_ROWS];
    unlink(path);
    sp_journal *journal = sp_journal_open(&rundir, NULL, &results);
    sp_input_mark mark = {.n_bytes = 123, .hash = "0123456789abcdef0123456789abcdef"};
    assert_true(sp_journal_input(journal, &mark, &err));
    for (size_t i = 0; i < N_ROWS; i++) sp_journal_enter(journal, rows[i] = new_row(i));
    for (size_t k = 0; k < N_TOKENS / 8; k++) {
        for (size_t i = 0; i < N_ROWS; i++) push(rows[i], i, 8);
        assert_true(sp_journal_tokens(journal, true, &err));
    }
    assert_true(sp_journal_sync(journal, true, &err));
    sp_journal_close(journal);
    for (size_t i = 0; i < N_ROWS; i++) sp_row_free(rows[i]);
}

static void test_all_comes_back(void **state) {
    (void)state;
    sp_error err = {0};
    write_journal();
    sp_journal_state *found = sp_journal_read(&rundir, &err);
    assert_non_null(found);
    assert_int_equal(sp_journal_mark(found)->n_bytes, 123);
    assert_string_equal(sp_journal_mark(found)->hash, "0123456789abcdef0123456789abcdef");
    for (size_t i = 0; i < N_ROWS; i++)
        assert_int_equal(restored(found, i), N_TOKENS - 1); /* the last is chosen anew */
    assert_int_equal(restored(found, N_ROWS), 0);

    /* A run that goes on appends, from the token before the last. */
    sp_writer results = {.fd = -1};
    sp_journal *journal = sp_journal_open(&rundir, found, &results);
    sp_row *row = new_row(1);
    push(row, 1, N_TOKENS - 1);
    sp_journal_enter(journal, row);
    push(row, 1, 5);
    assert_true(sp_journal_tokens(journal, true, &err));
    sp_journal_close(journal);
    sp_journal_state_free(found);
    sp_row_free(row);
    found = sp_journal_read(&rundir, &err);
    assert_int_equal(restored(found, 1), N_TOKENS - 1 + 5 - 1);
    assert_int_equal(restored(found, 0), N_TOKENS - 1);
    sp_journal_state_free(found);
}

static size_t file_bytes(void) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* Cut or damaged at any byte, what comes back is the beginning of what was written. */
static void test_torn_and_damaged(void **state) {
    (void)state;
    write_journal();
    size_t n_bytes = file_bytes();
    char *whole = malloc(n_bytes), *damaged = malloc(n_bytes);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, whole, n_bytes, 0), (ssize_t)n_bytes);
    for (size_t at = 0; at < 2 * n_bytes; at++) {
        bool is_cut = at < n_bytes;
        size_t n = is_cut ? at : n_bytes;
        memcpy(damaged, whole, n_bytes);
        if (!is_cut) damaged[at - n_bytes] = (char)~damaged[at - n_bytes];
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, damaged, n, 0), (ssize_t)n);
        sp_error err = {0};
        sp_journal_state *found = sp_journal_read(&rundir, &err);
        assert_non_null(found);
        for (size_t i = 0; i < N_ROWS; i++) assert_true(restored(found, i) < N_TOKENS);
        sp_journal_state_free(found);
    }
    close(fd);
    free(whole);
    free(damaged);
}

static void test_another_run(void **state) {
    (void)state;
    sp_error err = {0};
    write_journal();
    sp_rundir other = rundir;
    other.id[0] = '3';
    assert_null(sp_journal_read(&other, &err));
    assert_non_null(strstr(err.text, "not the journal of this run"));
}

/* 300,000 rows come and go: the file holds those in flight, not all that ever were. */
static void test_size_is_bounded(void **state) {
    (void)state;
    sp_error err = {0};
    sp_writer results = {.fd = -1};
    unlink(path);
    sp_journal *journal = sp_journal_open(&rundir, NULL, &results);
    sp_row *stays = new_row(1), *row = new_row(0);
    push(stays, 1, N_TOKENS);
    sp_journal_enter(journal, stays);
    size_t most = 0;
    row->request.i_line = 1000;
    for (size_t i = 0; i < 300000; i++) {
        row->n_new = 0;
        sp_journal_enter(journal, row);
        row->n_new = 1;
        row->tokens = row->tokens ? row->tokens : calloc(1, sizeof *row->tokens);
        assert_true(sp_journal_tokens(journal, true, &err));
        sp_journal_leave(journal, row);
        if (i % 1000 == 0 && file_bytes() > most) most = file_bytes();
    }
    sp_journal_close(journal);
    assert_true(most > 1000000 && most < 5000000);
    sp_journal_state *found = sp_journal_read(&rundir, &err);
    assert_non_null(found);
    assert_true(restored(found, 1) <= N_TOKENS - 1);
    sp_journal_state_free(found);
    sp_row_free(stays);
    sp_row_free(row);
}

/* A run that goes on writes the journal anew while rows of the earlier one still wait: what it had of them stays, and
 * goes when their results are there. */
static void test_rows_that_wait_are_kept(void **state) {
    (void)state;
    enum { MANY = 120000 }; /* 40 bytes each: past the 4 MB */
    sp_error err = {0};
    sp_writer results = {.fd = -1};
    write_journal();
    sp_journal_state *earlier = sp_journal_read(&rundir, &err);
    assert_non_null(earlier);
    sp_journal_forget(earlier, 3);
    sp_journal *journal = sp_journal_open(&rundir, earlier, &results);
    sp_row *first = new_row(0), *row = new_row(0);
    push(first, 0, 1);
    sp_journal_enter(journal, first);
    sp_journal_leave(journal, first);
    row->request.i_line = 1000;
    row->tokens = calloc(1, sizeof *row->tokens);
    for (size_t i = 0; i < MANY; i++) {
        row->n_new = 0;
        sp_journal_enter(journal, row);
        row->n_new = 1;
        assert_true(sp_journal_tokens(journal, true, &err));
        sp_journal_leave(journal, row);
    }
    sp_journal_close(journal);
    assert_true(file_bytes() < 4000000);
    sp_journal_state *found = sp_journal_read(&rundir, &err);
    assert_non_null(found);
    assert_int_equal(restored(found, 0), 0);
    assert_int_equal(restored(found, 1), N_TOKENS - 1);
    assert_int_equal(restored(found, 2), 0);
    sp_journal_state_free(found);
    sp_journal_state_free(earlier);
    sp_row_free(first);
    sp_row_free(row);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_comes_back),
        cmocka_unit_test(test_torn_and_damaged),
        cmocka_unit_test(test_another_run),
        cmocka_unit_test(test_size_is_bounded),
        cmocka_unit_test(test_rows_that_wait_are_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
