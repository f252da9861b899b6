/* Reading the two big parts of a tokenizer.json in place. Private to the tokenizer; not thread-safe on one cursor. */
#ifndef SPILL_TOKENIZER_JSON_SCAN_H
#define SPILL_TOKENIZER_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/error.h"

/* Where model.vocab and model.merges lie in a tokenizer.json; borrowed from its text. */
typedef struct {
    const char *vocab, *merges; /* NULL when absent */
    size_t vocab_bytes, merges_bytes;
} sp_scan_cut;
/* Finds both; *rest becomes the text with null in their places. Fails only when *rest exceeds its limit. */
bool sp_scan_cut_model(const char *text, size_t n_bytes, sp_scan_cut *cut, sp_buf *rest, sp_error *err) SP_MUST_CHECK;

/* A cursor over JSON text that was cut out. */
typedef struct {
    const char *at, *end;
} sp_scan;
bool sp_scan_take(sp_scan *c, char wanted); /* passes white space, then the character if it is there */
/* A string, appended to *out decoded. */
bool sp_scan_take_string(sp_scan *c, sp_buf *out, sp_error *err) SP_MUST_CHECK;
/* A non-negative integer of at most 18 digits. */
bool sp_scan_take_integer(sp_scan *c, int64_t *value, sp_error *err) SP_MUST_CHECK;

#endif
