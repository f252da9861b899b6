/* JSON helpers over jansson. */
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

json_t *sp_json_parse(const char *text, size_t n_bytes, const char *what, sp_error *err) {
    json_error_t where;
    json_t *value = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
    if (!value)
        sp_fail(err, SP_ERR_INPUT, "%s: not JSON at line %d column %d: %s", what, where.line, where.column, where.text);
    return value;
}

/* Reads exactly n_bytes of fd into data. */
static bool read_all(int fd, char *data, size_t n_bytes) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t got = read(fd, data + done, n_bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO; /* it shrank under us */
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

json_t *sp_json_load(const char *path, size_t max_bytes, sp_error *err) {
    json_t *value = NULL;
    char *data = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        sp_fail_errno(err, "%s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        sp_fail(err, SP_ERR_INPUT, "%s: not a regular file", path);
        goto out;
    }
    size_t n_bytes = (size_t)st.st_size;
    if (n_bytes > max_bytes) {
        sp_fail(err, SP_ERR_INPUT, "%s: %zu bytes, at most %zu are read", path, n_bytes, max_bytes);
        goto out;
    }
    data = malloc(n_bytes + 1);
    if (!data) {
        sp_fail(err, SP_ERR_MEMORY, "%s: no memory for %zu bytes", path, n_bytes);
        goto out;
    }
    if (!read_all(fd, data, n_bytes)) {
        sp_fail_errno(err, "%s", path);
        goto out;
    }
    value = sp_json_parse(data, n_bytes, path, err);
out:
    free(data);
    if (fd >= 0) close(fd);
    return value;
}

bool sp_json_quote(sp_buf *buf, const char *text, size_t n_bytes) {
    static const char short_escapes[] = "\b\t\n\f\r";
    static const char short_letters[] = "btnfr";
    sp_buf_char(buf, '"');
    size_t plain = 0;
    for (size_t i = 0; i <= n_bytes; i++) {
        unsigned char c = i < n_bytes ? (unsigned char)text[i] : '"';
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        sp_buf_add(buf, text + plain, i - plain);
        plain = i + 1;
        if (i == n_bytes) break;
        const char *hit = c ? strchr(short_escapes, c) : NULL;
        if (c == '"' || c == '\\')
            sp_buf_printf(buf, "\\%c", c);
        else if (hit)
            sp_buf_printf(buf, "\\%c", short_letters[hit - short_escapes]);
        else
            sp_buf_printf(buf, "\\u%04x", c);
    }
    return sp_buf_char(buf, '"') && !buf->failed;
}

bool sp_json_real(sp_buf *buf, double value) {
    if (isnan(value)) return sp_buf_text(buf, "nan");
    if (isinf(value)) return sp_buf_text(buf, value < 0 ? "-inf" : "inf");
    char digits[40];
    int precision = 1;
    do snprintf(digits, sizeof digits, "%.*e", precision - 1, value);
    while (strtod(digits, NULL) != value && precision++ < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) { /* Python: 1e-05, 1.5e+16: no ".0", two exponent digits at least */
        return sp_buf_text(buf, digits);
    }
    int decimals = precision - 1 - exponent;
    return sp_buf_printf(buf, "%.*f", decimals > 1 ? decimals : 1, value);
}
