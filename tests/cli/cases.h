/* What the tests of others' bugs share: an input put together row by row, spill run over it, and looks into the result
 * lines. Every look fails the test when what it looks for is not there. */
#ifndef SPILL_TESTS_CLI_CASES_H
#define SPILL_TESTS_CLI_CASES_H

#include <jansson.h>
#include <stddef.h>

#include "program.h"

#define MODEL "models/fields"
/* Notes that the model answers with JSON; the answer to the second has a character of two tokens. */
#define NOTE "Ms Hanna Weiss ordered 3 lamps for 42.50 EUR, to be delivered to Bern on 2026-03-14."
#define ACCENTS "Please pay 351.79 SEK to Ms Katya Šimek by 6 November 2028. The invoice number is 2026-72573."

/* ---- rows in ---- */

void rows_begin(void); /* forgets the rows put so far */
void rows_put(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rows_put_string(const char *text, size_t n); /* as JSON writes it, quotes around it */
const char *rows_text(void);

/* `spill run OPTIONS MODEL` on the rows; its result lines, which the caller owns. */
json_t *run_on(const char *model, const char *options, int want_status);
json_t *run_rows(const char *options, int want_status); /* on the bundled model */

/* A model that differs from the bundled one in small files: a directory, named $V in the shell command that edits it;
 * valid until the next call. */
const char *make_variant(const char *edit);

/* ---- results out: of the row `id`, borrowed ---- */

const char *content_of(const json_t *lines, const char *id);
const char *finish_of(const json_t *lines, const char *id);
const json_t *ids_of(const json_t *lines, const char *id, const char *key); /* of its spill object */
size_t n_tokens_of(const json_t *lines, const char *id);                    /* generated */
size_t n_in_prompt(const json_t *lines, const char *id, json_int_t token);  /* how often the prompt holds it */
const json_t *logprobs_of(const json_t *lines, const char *id);             /* logprobs.content */

void expect_error(const json_t *lines, const char *id, const char *code, const char *message_part);
void expect_same_body(const json_t *a, const char *a_id, const json_t *b, const char *b_id);

#endif
