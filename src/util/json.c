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

#include "util/utf8.h"

/* Upper bounds of what jansson takes for an object, a list, and a member of either, with the allocator's share
 * (measured on lists of {}, of [], of numbers and of short strings): a text of two bytes a value would else take a
 * hundred times its size. */
enum { OBJECT_BYTES = 240, LIST_BYTES = 140, MEMBER_BYTES = 100, TREE_MAX_BYTES = 128 << 20 };

static bool check_tree(const char *text, size_t n_bytes, const char *what, sp_error *err) {
    size_t tree_bytes = 0;
    bool in_string = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            tree_bytes += c == '{' ? OBJECT_BYTES : c == '[' ? LIST_BYTES : c == ',' || c == ':' ? MEMBER_BYTES : 0;
    }
    return tree_bytes <= TREE_MAX_BYTES ||
           sp_fail(err, SP_ERR_INPUT, "%s: so many values that they would take %zu MB of memory, at most %d are given",
                   what, tree_bytes >> 20, TREE_MAX_BYTES >> 20);
}

json_t *sp_json_parse_wide(const char *text, size_t n_bytes, const char *what, bool *is_wide, sp_error *err) {
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY };
    json_error_t where;
    if (is_wide) *is_wide = false;
    if (!check_tree(text, n_bytes, what, err)) return NULL;
    json_t *value = json_loadb(text, n_bytes, FLAGS, &where);
    if (!value && is_wide && json_error_code(&where) == json_error_numeric_overflow) {
        value = json_loadb(text, n_bytes, FLAGS | JSON_DECODE_INT_AS_REAL, &where);
        *is_wide = value != NULL;
    }
    if (!value)
        sp_fail(err, SP_ERR_INPUT, "%s: not JSON at line %d column %d: %s", what, where.line, where.column, where.text);
    return value;
}

json_t *sp_json_parse(const char *text, size_t n_bytes, const char *what, sp_error *err) {
    return sp_json_parse_wide(text, n_bytes, what, NULL, err);
}

json_t *sp_json_text(const char *text) {
    sp_buf utf8 = {0};
    SP_CHECK(sp_utf8_lossy(&utf8, text, strlen(text)));
    json_t *value = json_stringn(utf8.data ? utf8.data : "", utf8.n_bytes);
    sp_buf_deinit(&utf8);
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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused below, not waited for */
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        sp_fail_open(err, path);
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
    bool is_wide; /* model_max_length of 10^30 is usual */
    value = sp_json_parse_wide(data, n_bytes, path, &is_wide, err);
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
