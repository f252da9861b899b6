/* Runs the spill program for a test and keeps what it said. */
#ifndef SPILL_TESTS_CLI_PROGRAM_H
#define SPILL_TESTS_CLI_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int status;      /* exit status; 128 + signal when it was killed */
    char *out, *err; /* NUL-terminated, heap */
    size_t out_bytes;
} program_run;

/* Runs `spill ARGS` through a shell, with $SPILL naming the program and $SPILL_HOME a fresh directory of this test.
 * `input` (or NULL) is its standard input. */
program_run run_spill(const char *args, const char *input);
/* Any shell command, with the same environment. */
program_run run_shell(const char *command, const char *input);
void program_run_free(program_run *run);

/* A directory that is removed when the test ends. */
const char *scratch_dir(void);
/* Writes a file in it and returns its path (valid until the test ends). */
const char *scratch_file(const char *name, const char *text);

/* The result lines of `text`, as custom_id -> line object; fails the process on a line that is not JSON or a doubled
 * id. */
json_t *result_lines(const char *text);
/* response.body of a line without id and created, as one text; heap. NULL for an error line. */
char *result_body(const json_t *line);

#endif
