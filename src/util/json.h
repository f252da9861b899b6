/* What jansson leaves out: bounded parsing with errors that have a position, values in messages, and writing into a
 * buffer as Python does. jansson's objects keep their keys' order. Thread-safe on different values. */
#ifndef SPILL_UTIL_JSON_H
#define SPILL_UTIL_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "util/buf.h"
#include "util/error.h"

/* Parses one JSON text. Duplicate keys are refused, depth is bounded by jansson (2,048), the tree's memory by 128 MB
 * beside its strings, NUL in strings is allowed. `what` names the text in messages. The caller owns the value
 * (json_decref). NULL on failure, with SP_ERR_INPUT. */
json_t *sp_json_parse(const char *text, size_t n_bytes, const char *what, sp_error *err) SP_MUST_CHECK;

/* The same for a text that may hold integers past 64 bits: then *is_wide is set, and every integer is a real. */
json_t *sp_json_parse_wide(const char *text, size_t n_bytes, const char *what, bool *is_wide,
                           sp_error *err) SP_MUST_CHECK;

/* The same for a whole file of at most max_bytes. Integers past 64 bits are allowed (a model_max_length of 10^30 is
 * usual): then every integer of the file is a real. */
json_t *sp_json_load(const char *path, size_t max_bytes, sp_error *err) SP_MUST_CHECK;

/* A new string value of any bytes: what is not UTF-8 becomes U+FFFD. For paths and command lines. */
json_t *sp_json_text(const char *text);

/* A path as a member: as text for people under key, and where that is not all of it (bytes that are not UTF-8) with
 * every byte under KEY_escaped: control characters, % and bytes from 0x80 on as %XX. */
void sp_json_set_path(json_t *object, const char *key, const char *path);
/* The path that sp_json_set_path put there; empty when there is none or it does not fit. Returns path. */
const char *sp_json_get_path(const json_t *object, const char *key, char *path, size_t room_bytes);

/* A value as it is quoted in a message: JSON on one line, printable, cut with "..."; "absent" for NULL. 8 <= out_bytes
 * <= 512. Returns out. */
const char *sp_json_shown(const json_t *value, char *out, size_t out_bytes);

/* Appends a quoted JSON string: only ", \ and control characters are escaped (as Python's ensure_ascii=False). */
bool sp_json_quote(sp_buf *buf, const char *text, size_t n_bytes);

/* Appends a list of integers without spaces. */
bool sp_json_int32s(sp_buf *buf, const int32_t *values, size_t n);

/* Appends a real as Python's repr does: shortest digits that round-trip, "1.0", "1e-05", "1e+16", "inf", "nan". */
bool sp_json_real(sp_buf *buf, double value);

#endif
