/* Rows of an input, read ahead: each line is parsed, checked and made into a row, or into an error.
 *
 *   input lines -> intake -> rows that wait (a bounded queue) -> whoever runs them
 *                     \_ bad rows, held until their lines can be written
 *
 * Memory holds the queue, the held errors and at most 55 bytes a row for duplicates. Not thread-safe. */
#ifndef SPILL_JOBS_INTAKE_H
#define SPILL_JOBS_INTAKE_H

#include "jobs/frontend.h"
#include "jobs/idset.h"
#include "jobs/input.h"
#include "jobs/prefixes.h"
#include "jobs/resume.h"
#include "jobs/row.h"

enum { SP_LOOK_AHEAD_ROWS = 256 };

/* A row that is an error: what its result line says. */
typedef struct {
    const char *custom_id;
    size_t i_line; /* from 1 */
    sp_row_code code;
    const char *message;
} sp_bad_row;

/* All borrowed. */
typedef struct {
    const char *path; /* "-": stdin, "sample": the built-in set */
    const sp_frontend *frontend;
    const sp_arch *arch;
    const sp_decoding *decoding; /* for rows without their own */
    const sp_prompt_options *prompt;
    const sp_resume *resume; /* rows that it has are passed over, tokens that it has are given back; or NULL */
    int64_t seed;            /* for rows without their own */
    size_t limit;            /* first N rows; 0: all */
    void *ctx;
    /* A good row that resume has; or NULL. */
    void (*earlier_row)(void *ctx, const sp_request *request);
    bool (*bad_row)(void *ctx, const sp_bad_row *row, sp_error *err);
    bool (*should_stop)(void *ctx);
} sp_intake_setup;

typedef struct sp_held_row sp_held_row;

typedef struct {
    sp_intake_setup setup;
    sp_input *input;
    sp_shape shape;
    sp_idset ids;
    size_t n_lines;        /* rows read, good and bad */
    bool is_dry;           /* to the end */
    sp_prefixes *prefixes; /* of the rows that wait and of those that were taken, until they leave it */
    sp_row **queue;        /* [queue_room] ring of good rows not started yet */
    size_t queue_room, queue_head, n_queued;
    size_t queued_bytes; /* of their lines */
    sp_held_row *held;   /* bad rows until sp_intake_release, NULL afterwards */
    size_t n_held, held_room;
    size_t queued_prompt_tokens, queued_new_tokens, longest_row_tokens; /* of all rows ever queued */
} sp_intake;

bool sp_intake_open(sp_intake *intake, const sp_intake_setup *setup, sp_error *err) SP_MUST_CHECK;
void sp_intake_close(sp_intake *intake); /* zero-initialised is closed */

enum { SP_INTAKE_WAITS = -1 };
/* Reads until what is resumed is known to have the same input, and then until n_wanted rows wait, the look-ahead is
 * full, the input ends, or a pipe has nothing after patience_ms (0: what is there; SP_INTAKE_WAITS: it is waited for).
 * False with SP_ERR_CANCEL when should_stop said so. */
bool sp_intake_fill(sp_intake *intake, size_t n_wanted, int patience_ms, sp_error *err) SP_MUST_CHECK;
/* The line of the first bad row that is held; 0: none is. */
size_t sp_intake_first_bad(const sp_intake *intake);
/* Gives held bad rows to bad_row, and every later one at once. */
bool sp_intake_release(sp_intake *intake, sp_error *err) SP_MUST_CHECK;
/* Row i of those that wait, the oldest first; i < n_queued. A job that goes on may begin with more than the look-ahead.
 */
const sp_row *sp_intake_at(const sp_intake *intake, size_t i);
/* Row i of those that wait, the caller's from now on; those after it move up. */
sp_row *sp_intake_take(sp_intake *intake, size_t i);

#endif
