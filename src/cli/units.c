/* Numbers for people. */
#include "cli/units.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 32 };

const char *sp_units_bytes(uint64_t n_bytes, char *text) {
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)n_bytes;
    size_t i = 0;
    while (value >= 999.95 && i < 4) value /= 1000, i++;
    snprintf(text, TEXT_BYTES, i ? "%.1f %s" : "%.0f %s", value, names[i]);
    return text;
}

const char *sp_units_time(double seconds, char *text) {
    if (seconds < 60)
        snprintf(text, TEXT_BYTES, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, TEXT_BYTES, "%d:%02d min", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, TEXT_BYTES, "%lld h %02d m", (long long)seconds / 3600, (int)((long long)seconds / 60 % 60));
    return text;
}

const char *sp_units_count(uint64_t n, char *text) {
    char digits[24];
    int n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *out = text;
    for (int i = 0; i < n_digits; i++) {
        if (i && (n_digits - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}
