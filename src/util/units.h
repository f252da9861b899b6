/* Numbers for people. Each writes into text and returns it. Pure, thread-safe. */
#ifndef SPILL_UTIL_UNITS_H
#define SPILL_UTIL_UNITS_H

#include <stdint.h>

enum { SP_UNITS_BYTES = 32 };

const char *sp_units_bytes(uint64_t n_bytes,
                           char text[SP_UNITS_BYTES]); /* "141.1 GB": powers of 1000, as drives are counted */
const char *sp_units_time(double seconds,
                          char text[SP_UNITS_BYTES]); /* "12 ms", "4.2 s", "59 s", "3 m 10 s", "11 h 20 m" */
const char *sp_units_count(uint64_t n, char text[SP_UNITS_BYTES]); /* "1,234,567" */
const char *sp_units_s(uint64_t n);                                /* what n rows have and 1 row has not: "s", "" */

#endif
