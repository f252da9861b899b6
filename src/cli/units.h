/* Numbers for people. Each writes into text[32] and returns it. */
#ifndef SPILL_CLI_UNITS_H
#define SPILL_CLI_UNITS_H

#include <stdint.h>

const char *sp_units_bytes(uint64_t n_bytes, char *text); /* "1.2 GB": powers of ten */
const char *sp_units_time(double seconds, char *text);    /* "3.2 s", "04:10", "11 h 20 m" */
const char *sp_units_count(uint64_t n, char *text);       /* "1,234,567" */

#endif
