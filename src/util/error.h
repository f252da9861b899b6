/* Errors: one line that names the thing, the value found, the value wanted, and the remedy if there is one.
 *
 * A fallible function takes an `sp_error *err` last (never NULL) and returns false or NULL on failure. The first
 * failure wins: a second sp_fail on a filled error is ignored. Codes exist only where a caller branches. */
#ifndef SPILL_UTIL_ERROR_H
#define SPILL_UTIL_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SP_OK = 0,
    SP_ERR_USAGE,   /* the command line: exit 2 */
    SP_ERR_INPUT,   /* a file or a value in it: exit 2 before work */
    SP_ERR_IO,      /* the system refused: exit 1 */
    SP_ERR_MEMORY,  /* over the budget, or the system has none: exit 1 */
    SP_ERR_SUPPORT, /* known, but not supported: exit 2 */
    SP_ERR_CANCEL,  /* stopped from outside: exit 75 */
} sp_error_code;

enum { SP_ERROR_TEXT_BYTES = 480 }; /* with "spill: " and a line end under 500 */

typedef struct {
    sp_error_code code;
    char text[SP_ERROR_TEXT_BYTES]; /* UTF-8, one line, control bytes escaped, a long middle cut; NUL-terminated */
} sp_error;

#define SP_MUST_CHECK __attribute__((warn_unused_result))
#define SP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Fills *err unless it holds an error already. Always returns false, so that `return sp_fail(...)` reads well. */
bool sp_fail(sp_error *err, sp_error_code code, const char *format, ...) SP_PRINTF(3, 4);

/* The same with code SP_ERR_IO and ": <strerror(errno)>" appended. */
bool sp_fail_errno(sp_error *err, const char *format, ...) SP_PRINTF(2, 3);

/* The same for a file that the user named and that cannot be opened: SP_ERR_INPUT, unless the system is at fault (no
 * descriptors, no memory, a bad disk). */
bool sp_fail_open(sp_error *err, const char *path);

/* The same for a path that the user named and that cannot be made: SP_ERR_USAGE, unless the drive is full or bad. */
bool sp_fail_create(sp_error *err, const char *path);

/* Puts "<context>: " before the text of a filled error. Always returns false. */
bool sp_error_wrap(sp_error *err, const char *format, ...) SP_PRINTF(2, 3);

/* Makes *err empty again, for a caller that has dealt with the failure. */
void sp_error_clear(sp_error *err);

/* Writes a printable form of `text` (n_bytes of any bytes) into out: control bytes and invalid UTF-8 as \xNN, cut with
 * "..." when it would not fit. out_bytes >= 8. Returns out. For quoting hostile input in a message. */
const char *sp_printable(const char *text, size_t n_bytes, char *out, size_t out_bytes);

/* The only sanctioned abort: an invariant whose breach would corrupt memory, or metadata memory is gone. */
#define SP_CHECK(condition)                                                              \
    do {                                                                                 \
        if (__builtin_expect(!(condition), 0)) sp_abort(__FILE__, __LINE__, #condition); \
    } while (0)
_Noreturn void sp_abort(const char *file, int line, const char *condition);

#endif
