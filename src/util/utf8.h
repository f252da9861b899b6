/* UTF-8: finding the characters of any bytes, and making any bytes valid text. Pure, thread-safe. */
#ifndef SPILL_UTIL_UTF8_H
#define SPILL_UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#include "util/buf.h"

/* Whether byte c continues a character: it is neither the first byte of one nor a character by itself. */
static inline bool sp_utf8_continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* One step of lossy decoding. Returns the bytes of the character at text (*valid true), or of the invalid run there
 * that one U+FFFD stands for (*valid false; 1..3 bytes, Unicode 15 section 3.9, substitution of maximal subparts), or 0
 * when the text ends inside what may still become a character (*valid false), or is empty. */
size_t sp_utf8_step(const char *text, size_t n_bytes, bool *valid);

/* Offset of the first byte that is not part of a whole valid character, or n_bytes. */
size_t sp_utf8_valid_bytes(const char *text, size_t n_bytes);

/* Appends bytes as text, each invalid run as one U+FFFD, a character that is cut off at the end too. False when *out
 * does not take it. */
bool sp_utf8_lossy(sp_buf *out, const char *bytes, size_t n_bytes);

#endif
