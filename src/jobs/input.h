/* Input lines: a JSONL file (packed if its name ends in .gz or .zst), standard input ("-") or the built-in set
 * ("sample"), one line at a time, in constant memory.
 *
 * Lines end in LF or CRLF, a byte-order mark at the start is passed over, blank lines count as lines but are not given
 * out. Not thread-safe. */
#ifndef SPILL_JOBS_INPUT_H
#define SPILL_JOBS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/identity.h"
#include "util/error.h"

enum { SP_INPUT_LINE_BYTES = 32 << 20 }; /* of a longer line only the head is given out, with too_long set */

typedef struct {
    const char *text; /* valid until the next call; without its line end */
    size_t n_bytes;
    size_t i_line; /* from 1, blank lines counted */
    bool too_long;
} sp_line;

/* An input as far as it was read: its first n_bytes have this XXH3-128, as 32 hex digits. */
typedef struct {
    uint64_t n_bytes;
    char hash[SP_HASH_HEX_BYTES];
    bool at_end; /* and there are no more */
} sp_input_mark;

typedef struct sp_input sp_input;

/* A device that never ends is refused. NULL with err: SP_ERR_INPUT for what the user can mend, SP_ERR_IO for what is
 * the system's fault. A FIFO is not waited for here but in the first sp_input_next. */
sp_input *sp_input_open(const char *path, sp_error *err) SP_MUST_CHECK;
/* Whether to give up waiting for bytes that do not come (a terminal, a slow pipe); asked several times a second then.
 */
void sp_input_stop_when(sp_input *input, bool (*should_stop)(void *ctx), void *ctx);
/* 1: a line; 0: the end; -1: a failure, in err: SP_ERR_CANCEL when should_stop ended the wait, else a read error. */
int sp_input_next(sp_input *input, sp_line *line, sp_error *err) SP_MUST_CHECK;
/* Whether there are bytes, or the end, within so many milliseconds: then the next line is not waited for long. */
bool sp_input_is_ready(const sp_input *input, int wait_ms);
uint64_t sp_input_bytes_read(const sp_input *input); /* with a part of what follows the last line */
/* Of the file as it lies there, what the lines given out take of it; of a packed one about that. */
uint64_t sp_input_file_bytes_taken(const sp_input *input);
/* Where reading is now. */
void sp_input_mark_get(const sp_input *input, sp_input_mark *mark);
/* Before the first line: the input must begin with (or be, at_end) what the mark says; reading fails with
 * SP_ERR_INPUT where that turns out to be false, and a message that ends in the remedy (borrowed). */
void sp_input_expect(sp_input *input, const sp_input_mark *mark, const char *remedy);
bool sp_input_is_expecting(const sp_input *input); /* not known yet */
void sp_input_close(sp_input *input);

/* The lines of the built-in set. */
extern const char *const sp_sample_lines[];
extern const size_t sp_n_sample_lines;

#endif
