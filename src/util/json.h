/* What jansson leaves out: loading a file or a line with an error that has a position, and Python's way of writing
 * numbers. jansson's objects keep their keys' order. Thread-safe on different values. */
#ifndef SPILL_UTIL_JSON_H
#define SPILL_UTIL_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "util/buf.h"
#include "util/error.h"

/* Parses one JSON text. Duplicate keys are refused, depth is bounded by jansson (2,048), the tree's memory by 128 MB
 * beside its strings, NUL in strings is allowed. `what` names it in the message. The caller owns the value
 * (json_decref). NULL on failure. */
json_t *sp_json_parse(const char *text, size_t n_bytes, const char *what, sp_error *err) SP_MUST_CHECK;

/* The same for a text that may hold integers past 64 bits: then *is_wide is set, and every integer is a real. */
json_t *sp_json_parse_wide(const char *text, size_t n_bytes, const char *what, bool *is_wide,
                           sp_error *err) SP_MUST_CHECK;

/* A string value of any bytes: what is not UTF-8 becomes U+FFFD. For paths and command lines. */
json_t *sp_json_text(const char *text);

/* The same for a whole file of at most max_bytes. */
json_t *sp_json_load(const char *path, size_t max_bytes, sp_error *err) SP_MUST_CHECK;

/* Appends a quoted JSON string: only ", \ and control characters are escaped (as Python's ensure_ascii=False). */
bool sp_json_quote(sp_buf *buf, const char *text, size_t n_bytes);

/* Appends a real as Python's repr does: shortest digits that round-trip, "1.0", "1e-05", "1e+16", "inf", "nan". */
bool sp_json_real(sp_buf *buf, double value);

#endif
