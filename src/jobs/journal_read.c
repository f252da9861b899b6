/* The journal: reading it back. The whole file is kept, records are found in it by their row. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "jobs/journal_format.h"
#include "util/file.h"

enum { JOURNAL_BYTES_MAX = 1 << 30 }; /* it is written anew long before */

typedef struct {
    uint64_t i_line;
    size_t at; /* of the payload */
    size_t n_bytes;
    bool is_forgotten;
} tokens_ref;

struct sp_journal_state {
    sp_buf file;
    size_t good_bytes;
    sp_input_mark mark;
    tokens_ref *refs; /* [n_refs] by row, then as written */
    size_t n_refs, room_refs;
};

uint32_t sp_journal_check(const sp_journal_head *head, const void *payload) {
    uint64_t seed = (uint64_t)head->n_bytes << 32 | head->kind;
    return (uint32_t)XXH3_64bits_withSeed(payload, head->n_bytes, seed);
}

static void add_ref(sp_journal_state *state, const tokens_ref *ref) {
    if (state->n_refs == state->room_refs) {
        state->room_refs = state->room_refs ? 2 * state->room_refs : 256;
        state->refs = realloc(state->refs, state->room_refs * sizeof *state->refs);
        SP_CHECK(state->refs != NULL);
    }
    state->refs[state->n_refs++] = *ref;
}

static int by_row(const void *a, const void *b) {
    const tokens_ref *x = a, *y = b;
    if (x->i_line != y->i_line) return x->i_line < y->i_line ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Takes in one record; false for one that its kind does not allow. */
static bool take_record(sp_journal_state *state, const sp_journal_head *head, size_t at) {
    const char *payload = state->file.data + at;
    if (head->kind == SP_JOURNAL_INPUT && head->n_bytes == sizeof(sp_journal_input_record)) {
        sp_journal_input_record record;
        memcpy(&record, payload, sizeof record);
        state->mark = (sp_input_mark){.n_bytes = record.n_bytes, .at_end = record.at_end != 0};
        memcpy(state->mark.hash, record.hash, sizeof record.hash);
        return true;
    }
    if (head->kind != SP_JOURNAL_TOKENS || head->n_bytes < sizeof(sp_journal_tokens_record)) return false;
    sp_journal_tokens_record record;
    memcpy(&record, payload, sizeof record);
    add_ref(state, &(tokens_ref){.i_line = record.i_line, .at = at, .n_bytes = head->n_bytes});
    return true;
}

/* The header says whose journal it is. */
static bool check_header(const sp_journal_state *state, const sp_journal_head *head, size_t at,
                         const sp_rundir *rundir) {
    const char *payload = state->file.data + at;
    return head->kind == SP_JOURNAL_HEADER && head->n_bytes == sizeof SP_JOURNAL_MAGIC + sizeof rundir->id &&
           memcmp(payload, SP_JOURNAL_MAGIC, sizeof SP_JOURNAL_MAGIC) == 0 &&
           strncmp(payload + sizeof SP_JOURNAL_MAGIC, rundir->id, sizeof rundir->id) == 0;
}

static bool walk(sp_journal_state *state, const sp_rundir *rundir) {
    for (size_t at = 0; state->file.n_bytes - at >= sizeof(sp_journal_head);) {
        sp_journal_head head;
        memcpy(&head, state->file.data + at, sizeof head);
        size_t payload = at + sizeof head;
        if (head.n_bytes > state->file.n_bytes - payload) return true;
        if (sp_journal_check(&head, state->file.data + payload) != head.check) return true;
        if (at == 0 ? !check_header(state, &head, payload, rundir) : !take_record(state, &head, payload)) return false;
        at = payload + head.n_bytes;
        state->good_bytes = at;
    }
    return true;
}

sp_journal_state *sp_journal_read(const sp_rundir *rundir, sp_error *err) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", rundir->path, SP_JOURNAL_NAME);
    sp_journal_state *state = calloc(1, sizeof *state);
    SP_CHECK(state != NULL);
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT) return state;
    bool good = sp_file_read(path, JOURNAL_BYTES_MAX, &state->file, err);
    if (good && !walk(state, rundir)) good = sp_fail(err, SP_ERR_INPUT, "%s: not the journal of this run", path);
    if (good) {
        if (state->n_refs) qsort(state->refs, state->n_refs, sizeof *state->refs, by_row);
        return state;
    }
    sp_journal_state_free(state);
    return NULL;
}

const sp_input_mark *sp_journal_mark(const sp_journal_state *state) { return &state->mark; }
bool sp_journal_has_tokens(const sp_journal_state *state) { return state->n_refs > 0; }
uint64_t sp_journal_good_bytes(const sp_journal_state *state) { return state->good_bytes; }

void sp_journal_state_free(sp_journal_state *state) {
    if (!state) return;
    sp_buf_deinit(&state->file);
    free(state->refs);
    free(state);
}

/* ---- a row's tokens ---- */

/* The samples of one record into samples[from..], as far as they are whole. */
static size_t read_samples(const char *payload, size_t n_bytes, sp_sample *samples, size_t room) {
    sp_journal_tokens_record record;
    memcpy(&record, payload, sizeof record);
    size_t at = sizeof record, left = n_bytes - at, n = 0;
    if (record.n > left / sizeof(int32_t)) return 0;
    const char *ids = payload + at, *logprobs = ids + record.n * sizeof(int32_t), *end = payload + n_bytes;
    for (; n < record.n && n < room; n++) {
        sp_sample *sample = &samples[n];
        *sample = (sp_sample){0};
        memcpy(&sample->id, ids + n * sizeof(int32_t), sizeof sample->id);
        if (!record.has_logprobs) continue;
        uint32_t n_top;
        if ((size_t)(end - logprobs) < sizeof sample->logprob + sizeof n_top) return n;
        memcpy(&sample->logprob, logprobs, sizeof sample->logprob);
        memcpy(&n_top, logprobs + sizeof sample->logprob, sizeof n_top);
        logprobs += sizeof sample->logprob + sizeof n_top;
        if (n_top > SP_SAMPLE_TOP_MAX || n_top > (size_t)(end - logprobs) / sizeof *sample->top) return n;
        memcpy(sample->top, logprobs, n_top * sizeof *sample->top);
        sample->n_top = n_top;
        logprobs += n_top * sizeof *sample->top;
    }
    return n;
}

/* The number of the row's first record, or of where it would be. */
static size_t first_ref(const sp_journal_state *state, uint64_t i_line) {
    size_t low = 0, high = state->n_refs;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (state->refs[middle].i_line < i_line)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void sp_journal_forget(sp_journal_state *state, uint64_t i_line) {
    for (size_t i = first_ref(state, i_line); i < state->n_refs && state->refs[i].i_line == i_line; i++)
        state->refs[i].is_forgotten = true;
}

bool sp_journal_next(const sp_journal_state *state, size_t *i, const void **payload, size_t *n_bytes) {
    while (*i < state->n_refs && state->refs[*i].is_forgotten) *i += 1;
    if (*i == state->n_refs) return false;
    const tokens_ref *ref = &state->refs[(*i)++];
    *payload = state->file.data + ref->at;
    *n_bytes = ref->n_bytes;
    return true;
}

bool sp_journal_restore(const sp_journal_state *state, sp_row *row, const sp_stop_ids *stops, sp_error *err) {
    sp_sample *samples = NULL;
    size_t n = 0, room = 0;
    for (size_t i = first_ref(state, row->request.i_line); i < state->n_refs; i++) {
        const tokens_ref *ref = &state->refs[i];
        if (ref->i_line != row->request.i_line) break;
        sp_journal_tokens_record record;
        const char *payload = state->file.data + ref->at;
        memcpy(&record, payload, sizeof record);
        bool is_whole = record.n > 0 && record.n <= ref->n_bytes;
        if (record.from > n || !is_whole || (record.has_logprobs != 0) != row->sampling.logprobs) continue;
        if (record.from + (size_t)record.n > room) {
            room = 2 * (record.from + (size_t)record.n);
            samples = realloc(samples, room * sizeof *samples);
            SP_CHECK(samples != NULL);
        }
        n = record.from + read_samples(payload, ref->n_bytes, samples + record.from, record.n);
    }
    bool good = true;
    for (size_t i = 0; good && i + 1 < n && row->finish == SP_FINISH_NONE; i++)
        good = sp_row_push(row, &samples[i], stops, err);
    free(samples);
    return good;
}
