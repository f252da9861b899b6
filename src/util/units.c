/* Numbers for people. */
#include "util/units.h"

#include <stdio.h>

const char *sp_units_bytes(uint64_t n_bytes, char text[SP_UNITS_BYTES]) {
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)n_bytes;
    size_t i = 0;
    for (; value >= 999.95 && i < 4; i++) value /= 1000; /* 999.95 would be printed as 1000.0 */
    snprintf(text, SP_UNITS_BYTES, i ? "%.1f %s" : "%.0f %s", value, names[i]);
    return text;
}

const char *sp_units_time(double seconds, char text[SP_UNITS_BYTES]) {
    unsigned long long s = (unsigned long long)(seconds + 0.5);
    if (seconds > 0 && seconds < 0.0995) /* what is not printed as 100 */
        snprintf(text, SP_UNITS_BYTES, seconds < 0.00095 ? "%.1f ms" : "%.0f ms", seconds * 1e3);
    else if (seconds < 9.95) /* what is printed as 9.9 */
        snprintf(text, SP_UNITS_BYTES, "%.1f s", seconds);
    else if (s < 60)
        snprintf(text, SP_UNITS_BYTES, "%llu s", s);
    else if (s < 3600)
        snprintf(text, SP_UNITS_BYTES, "%llu m %02llu s", s / 60, s % 60);
    else
        snprintf(text, SP_UNITS_BYTES, "%llu h %02llu m", s / 3600, s % 3600 / 60);
    return text;
}

const char *sp_units_count(uint64_t n, char text[SP_UNITS_BYTES]) {
    char digits[24]; /* 20 at most, 26 with commas */
    int n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *out = text;
    for (int i = 0; i < n_digits; i++) {
        if (i && (n_digits - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

const char *sp_units_s(uint64_t n) { return n == 1 ? "" : "s"; }
