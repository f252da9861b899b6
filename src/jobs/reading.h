/* Reading a finished row's answer: the text of its tokens, taken apart as its model's template has it written. */
#ifndef SPILL_JOBS_READING_H
#define SPILL_JOBS_READING_H

#include "jobs/frontend.h"
#include "jobs/row.h"

/* Fills *answer, which borrows from the row and from *text (both the caller's to deinit). Only what a row ended with
 * decides: a row that is done again has the same answer. A row that ended with tool calls finishes with
 * SP_FINISH_CALLS. False when memory ends. */
bool sp_row_read_answer(sp_row *row, const sp_frontend *frontend, sp_buf *text, sp_answer *answer,
                        sp_error *err) SP_MUST_CHECK;

#endif
