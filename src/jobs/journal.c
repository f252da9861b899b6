/* The journal: writing it. Numbers are as x86-64 and AArch64 have them, little-endian. */
#include "jobs/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobs/journal_format.h"
#include "jobs/syncer.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/size.h"

/* WRITE_NS: rows of a small model have a pass a millisecond; what a kill may cost is as little as a pass of a big one.
 * COMPACT_BYTES: below it a journal is not worth writing anew. */
enum { WRITE_NS = 20000000, SYNC_NS = 900000000, COMPACT_BYTES = 4 << 20, COMPACT_FACTOR = 4 };

typedef struct {
    const sp_row *row;
    size_t n_noted; /* of its new tokens */
} flight;

struct sp_journal {
    int fd;
    char path[4200];
    char run_id[48];
    sp_writer *results;
    flight *flights; /* [n_flights] */
    size_t n_flights, room_flights;
    sp_journal_state *earlier; /* tokens of rows that were not in flight again yet; or NULL */
    sp_input_mark mark;
    sp_buf pending; /* records not written yet */
    uint64_t n_bytes, compact_at_bytes;
    uint64_t written_ns, synced_ns;
    bool is_unsynced;
    sp_syncer *syncer; /* NULL until a second has passed */
};

/* ---- records ---- */

static void add_record(sp_buf *out, uint32_t kind, const void *payload, size_t n_bytes) {
    sp_journal_head head = {.n_bytes = (uint32_t)n_bytes, .kind = kind};
    head.check = sp_journal_check(&head, payload);
    bool good = sp_buf_add(out, &head, sizeof head) && sp_buf_add(out, payload, n_bytes);
    SP_CHECK(good);
}

static void add_header(sp_journal *journal) {
    char payload[sizeof SP_JOURNAL_MAGIC + sizeof journal->run_id] = SP_JOURNAL_MAGIC;
    memcpy(payload + sizeof SP_JOURNAL_MAGIC, journal->run_id, sizeof journal->run_id);
    add_record(&journal->pending, SP_JOURNAL_HEADER, payload, sizeof payload);
}

static void add_mark(sp_journal *journal) {
    sp_journal_input_record record = {.n_bytes = journal->mark.n_bytes, .at_end = journal->mark.at_end};
    memcpy(record.hash, journal->mark.hash, sizeof record.hash);
    add_record(&journal->pending, SP_JOURNAL_INPUT, &record, sizeof record);
}

/* New tokens [from, n_new) of a row, with their log-probabilities if it has them. */
static void add_tokens(sp_journal *journal, const sp_row *row, size_t from) {
    size_t n = row->n_new - from, n_top = row->samples ? row->sampling.n_top : 0;
    sp_journal_tokens_record record = {
        .i_line = row->request.i_line,
        .from = (uint32_t)from,
        .n = (uint32_t)n,
        .has_logprobs = row->samples != NULL,
        .n_top = (uint32_t)n_top,
    };
    sp_buf payload = {0};
    sp_buf_add(&payload, &record, sizeof record);
    sp_buf_add(&payload, row->tokens + row->n_prompt + from, n * sizeof *row->tokens);
    for (size_t i = from; row->samples && i < row->n_new; i++) {
        const sp_sample *sample = &row->samples[i];
        sp_buf_add(&payload, &sample->logprob, sizeof sample->logprob);
        uint32_t n_here = (uint32_t)sample->n_top;
        sp_buf_add(&payload, &n_here, sizeof n_here);
        sp_buf_add(&payload, sample->top, sample->n_top * sizeof *sample->top);
    }
    SP_CHECK(!payload.failed);
    add_record(&journal->pending, SP_JOURNAL_TOKENS, payload.data, payload.n_bytes);
    sp_buf_deinit(&payload);
}

/* What an earlier run noted of rows that wait. */
static void add_earlier(sp_journal *journal) {
    const void *payload;
    size_t n_bytes;
    for (size_t i = 0; journal->earlier && sp_journal_next(journal->earlier, &i, &payload, &n_bytes);)
        add_record(&journal->pending, SP_JOURNAL_TOKENS, payload, n_bytes);
}

/* ---- writing ---- */

/* Opens the file with the first write to it; what is torn of an earlier run's goes. */
static bool open_file(sp_journal *journal) {
    if (journal->fd >= 0) return true;
    journal->fd = open(journal->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return journal->fd >= 0 && ftruncate(journal->fd, (off_t)journal->n_bytes) == 0;
}

/* Writes what is pending; what was written of it is cut off again when the drive is full. */
static bool flush(sp_journal *journal, sp_error *err) {
    if (journal->pending.n_bytes == 0) return true;
    bool good = open_file(journal) && sp_file_write_all(journal->fd, journal->pending.data, journal->pending.n_bytes);
    if (!good) {
        sp_fail_errno(err, "%s: writing the rows in flight", journal->path);
        if (journal->fd >= 0 && ftruncate(journal->fd, (off_t)journal->n_bytes) != 0)
            sp_error_wrap(err, "its end is torn");
    } else {
        journal->n_bytes += journal->pending.n_bytes;
        journal->is_unsynced = true;
    }
    sp_buf_clear(&journal->pending);
    return good;
}

/* Whether all that was synced in the background is on the drive. */
static bool check_syncer(const sp_journal *journal, sp_error *err) {
    return sp_syncer_check(journal->syncer, err) || sp_error_wrap(err, "%s", journal->results->path);
}

/* Results before the journal. */
static bool sync_now(sp_journal *journal, sp_error *err) {
    if (journal->syncer) {
        sp_syncer_wait(journal->syncer);
        if (!check_syncer(journal, err)) return false;
    }
    if (!sp_writer_sync(journal->results, err)) return false;
    bool is_unsynced = journal->is_unsynced;
    journal->is_unsynced = false;
    return !is_unsynced || fdatasync(journal->fd) == 0 || sp_fail_errno(err, "%s: syncing", journal->path);
}

/* Writes the journal anew with what is still needed. Results come first: a row leaves the journal only when its line
 * is on the drive. */
static bool compact(sp_journal *journal, sp_error *err) {
    char part[4210];
    if (!sync_now(journal, err)) return false;
    snprintf(part, sizeof part, "%s.part", journal->path);
    add_header(journal);
    if (journal->mark.n_bytes) add_mark(journal);
    for (size_t i = 0; i < journal->n_flights; i++)
        if (journal->flights[i].n_noted > 0) add_tokens(journal, journal->flights[i].row, 0);
    add_earlier(journal);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    bool good = fd >= 0 && sp_file_write_all(fd, journal->pending.data, journal->pending.n_bytes) &&
                fdatasync(fd) == 0 && rename(part, journal->path) == 0;
    if (!good) {
        sp_fail_errno(err, "%s: writing it anew", journal->path);
        unlink(part);
        if (fd >= 0) close(fd);
    } else {
        if (journal->fd >= 0) close(journal->fd);
        journal->fd = fd;
        journal->n_bytes = journal->pending.n_bytes;
        journal->compact_at_bytes = sp_max_size(COMPACT_BYTES, COMPACT_FACTOR * journal->n_bytes);
    }
    sp_buf_clear(&journal->pending);
    return good;
}

/* ---- the job's side ---- */

sp_journal *sp_journal_open(const sp_rundir *rundir, sp_journal_state *state, sp_writer *results) {
    sp_journal *journal = calloc(1, sizeof *journal);
    SP_CHECK(journal != NULL);
    journal->fd = -1;
    journal->results = results;
    snprintf(journal->path, sizeof journal->path, "%s/%s", rundir->path, SP_JOURNAL_NAME);
    memcpy(journal->run_id, rundir->id, sizeof journal->run_id);
    journal->written_ns = journal->synced_ns = sp_clock_ns();
    journal->earlier = state;
    if (state) {
        journal->mark = *sp_journal_mark(state);
        journal->n_bytes = sp_journal_good_bytes(state);
    }
    journal->compact_at_bytes = sp_max_size(COMPACT_BYTES, COMPACT_FACTOR * journal->n_bytes);
    if (journal->n_bytes == 0) add_header(journal);
    return journal;
}

void sp_journal_enter(sp_journal *journal, const sp_row *row) {
    if (journal->n_flights == journal->room_flights) {
        journal->room_flights = journal->room_flights ? 2 * journal->room_flights : 64;
        journal->flights = realloc(journal->flights, journal->room_flights * sizeof *journal->flights);
        SP_CHECK(journal->flights != NULL);
    }
    journal->flights[journal->n_flights++] = (flight){row, row->n_new}; /* a restored row's tokens are there already */
    if (journal->earlier) sp_journal_forget(journal->earlier, row->request.i_line);
}

void sp_journal_kept(const sp_journal *journal, size_t *n_rows, size_t *n_tokens) {
    *n_rows = journal->n_flights;
    *n_tokens = 0;
    for (size_t i = 0; i < journal->n_flights; i++) *n_tokens += journal->flights[i].n_noted;
}

void sp_journal_land(sp_journal *journal) { journal->n_flights = 0; }

void sp_journal_leave(sp_journal *journal, const sp_row *row) {
    for (size_t i = journal->n_flights; i-- > 0;) {
        if (journal->flights[i].row != row) continue;
        journal->flights[i] = journal->flights[--journal->n_flights];
        return;
    }
}

bool sp_journal_input(sp_journal *journal, const sp_input_mark *mark, sp_error *err) {
    if (mark->n_bytes == journal->mark.n_bytes && mark->at_end == journal->mark.at_end) return true;
    journal->mark = *mark;
    add_mark(journal);
    return flush(journal, err);
}

bool sp_journal_tokens(sp_journal *journal, bool force, sp_error *err) {
    uint64_t now = sp_clock_ns();
    if (!force && now - journal->written_ns < WRITE_NS) return true;
    journal->written_ns = now;
    for (size_t i = 0; i < journal->n_flights; i++) {
        flight *f = &journal->flights[i];
        if (f->n_noted == f->row->n_new) continue;
        add_tokens(journal, f->row, f->n_noted);
        f->n_noted = f->row->n_new;
    }
    return flush(journal, err) && (journal->n_bytes < journal->compact_at_bytes || compact(journal, err));
}

bool sp_journal_sync(sp_journal *journal, bool force, sp_error *err) {
    uint64_t now = sp_clock_ns();
    if (force) return sync_now(journal, err);
    if (now - journal->synced_ns < SYNC_NS) return true;
    if (!journal->syncer && !(journal->syncer = sp_syncer_new(err))) return false;
    if (sp_syncer_is_busy(journal->syncer)) return true;
    int fd = journal->is_unsynced ? journal->fd : -1;
    journal->is_unsynced = false;
    journal->synced_ns = now;
    sp_syncer_begin(journal->syncer, sp_writer_take_unsynced(journal->results), fd);
    return check_syncer(journal, err);
}

bool sp_journal_finish(sp_journal *journal, sp_error *err) {
    sp_journal_land(journal);
    journal->earlier = NULL;
    return compact(journal, err);
}

void sp_journal_close(sp_journal *journal) {
    if (!journal) return;
    sp_syncer_free(journal->syncer);
    if (journal->fd >= 0) close(journal->fd);
    free(journal->flights);
    sp_buf_deinit(&journal->pending);
    free(journal);
}
