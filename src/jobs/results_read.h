/* Reading a results file back: which rows have a line, and where the last whole line ends. */
#ifndef SPILL_JOBS_RESULTS_READ_H
#define SPILL_JOBS_RESULTS_READ_H

#include "jobs/resume.h"

/* After the journal is read: fills in done, n_done, n_errors and results_bytes from results_path. What a crash leaves
 * (half a line at the end, zeros to the end) ends the whole lines; a line that is anything else than a result of this
 * run, or has zeros in it, fails with SP_ERR_USAGE, as does a file that is missing. */
bool sp_results_read(sp_resume *resume, sp_error *err) SP_MUST_CHECK;

/* The answer of row i_line as its line has it, appended to *text. False where there is none: an error, or no line. The
 * first call reads through the results for where lines begin (8 bytes a line). */
bool sp_results_text(sp_resume *resume, size_t i_line, sp_buf *text);

/* The run that wrote the file's first line, into id[48]; false when that is no result line. */
bool sp_results_first_id(const char *path, char *id);

#endif
