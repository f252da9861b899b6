/* The journal of a job: tokens of the rows in flight, and how far the input was read, so that a job goes on after any
 * end where it was.
 *
 *   journal: [header][record][record]...      record: {check, n_bytes, kind} payload
 *
 * Records are appended in one write at a time; each has a checksum, and what follows the first that does not match is
 * a torn tail. It only ever holds what results do not: it is written anew (atomic rename, after the results are on the
 * drive) when most of it is of rows that are finished. Not thread-safe. */
#ifndef SPILL_JOBS_JOURNAL_H
#define SPILL_JOBS_JOURNAL_H

#include "jobs/input.h"
#include "jobs/row.h"
#include "jobs/rundir.h"
#include "jobs/writer.h"

typedef struct sp_journal sp_journal;

/* What a journal holds. */
typedef struct sp_journal_state sp_journal_state;

/* Reads what there is; a journal that is missing holds nothing. Touches nothing. NULL when it cannot be read or belongs
 * to another run. */
sp_journal_state *sp_journal_read(const sp_rundir *rundir, sp_error *err) SP_MUST_CHECK;
const sp_input_mark *sp_journal_mark(const sp_journal_state *state); /* n_bytes 0: none */
bool sp_journal_has_tokens(const sp_journal_state *state);           /* of any row */
/* Gives a new row the tokens that it had, all but the last: so whatever ends it happens again, in the pass to come. */
bool sp_journal_restore(const sp_journal_state *state, sp_row *row, const sp_stop_ids *stops,
                        sp_error *err) SP_MUST_CHECK;
/* The row's tokens are of no use any more: it has its result. */
void sp_journal_forget(sp_journal_state *state, uint64_t i_line);
void sp_journal_state_free(sp_journal_state *state);

/* For appending: a new one, or behind what `state` (may be NULL) found good; what that has of rows that do not come
 * into flight is kept. Nothing is touched before the first write. state and results are borrowed. Never NULL. */
sp_journal *sp_journal_open(const sp_rundir *rundir, sp_journal_state *state, sp_writer *results);
void sp_journal_enter(sp_journal *journal, const sp_row *row); /* a row is in flight (borrowed), its tokens restored */
void sp_journal_leave(sp_journal *journal, const sp_row *row); /* and no more: its result is written */
/* Rows in flight, and of their tokens those that are noted. */
void sp_journal_kept(const sp_journal *journal, size_t *n_rows, size_t *n_tokens);
void sp_journal_land(sp_journal *journal); /* no row is in flight any more */
/* Notes how far the input is read; to be called before anything is written that depends on it. */
bool sp_journal_input(sp_journal *journal, const sp_input_mark *mark, sp_error *err) SP_MUST_CHECK;
/* Notes the new tokens of the rows in flight if some time has passed since the last time, or now when force. */
bool sp_journal_tokens(sp_journal *journal, bool force, sp_error *err) SP_MUST_CHECK;
/* Puts results, then the journal on the drive: in the background when a second has passed since the last time, or at
 * once when force. A failure in the background is told by a later call. */
bool sp_journal_sync(sp_journal *journal, bool force, sp_error *err) SP_MUST_CHECK;
/* The job is done: what is left is how far the input was read, for whoever asks for the same again. */
bool sp_journal_finish(sp_journal *journal, sp_error *err) SP_MUST_CHECK;
void sp_journal_close(sp_journal *journal); /* NULL is fine */

#endif
