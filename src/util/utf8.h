/* UTF-8: making any bytes valid text. Pure, thread-safe. */
#ifndef SPILL_UTIL_UTF8_H
#define SPILL_UTIL_UTF8_H

#include "util/buf.h"

/* Length of the valid UTF-8 sequence that begins at bytes (n_bytes > 0), or 0 with *n_bad set to the length of the
 * maximal invalid part (1..3; Unicode 15 section 3.9, the practice of substituting maximal subparts). */
size_t sp_utf8_length(const char *bytes, size_t n_bytes, size_t *n_bad);

/* Appends bytes as text, each maximal invalid part as U+FFFD. */
bool sp_utf8_lossy(sp_buf *out, const char *bytes, size_t n_bytes);

#endif
