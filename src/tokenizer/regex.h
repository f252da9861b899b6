/* Regular expressions, and the matches of one pattern in one text. An sp_regex is shared by threads, a matcher belongs
 * to one call. Private to the tokenizer. */
#ifndef SPILL_TOKENIZER_REGEX_H
#define SPILL_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

typedef struct sp_regex sp_regex;     /* compiled, shared by threads */
typedef struct sp_matcher sp_matcher; /* one call's match data, stack and time */

/* `pattern` is in the syntax of Oniguruma's default; what means something else in PCRE2 is translated or
 * refused. NULL with SP_ERR_INPUT for a wrong pattern, SP_ERR_SUPPORT for a refused one. */
sp_regex *sp_regex_new(const char *pattern, size_t n_bytes, sp_error *err) SP_MUST_CHECK;
void sp_regex_free(sp_regex *r);

/* n_bytes: of the text that this matcher will see in all. Its clock starts now: 1 s of this thread's processor time and
 * 250 ns a byte, after which a search fails. */
sp_matcher *sp_matcher_new(size_t n_bytes, sp_error *err) SP_MUST_CHECK;
void sp_matcher_free(sp_matcher *m);

/* A thing to look for in a text. */
typedef enum { SP_PATTERN_LITERAL, SP_PATTERN_REGEX, SP_PATTERN_NUMERIC } sp_pattern_kind;
typedef struct {
    sp_pattern_kind kind;
    const char *literal; /* SP_PATTERN_LITERAL; never empty */
    size_t n_bytes;
    sp_regex *regex; /* owned by the tokenizer */
} sp_pattern;

/* Successive matches of a pattern in one text, in the way of the library's find_iter: an empty match right behind the
 * last one is passed over. */
typedef struct {
    const sp_pattern *pattern;
    sp_matcher *matcher;
    size_t at, last_match_end; /* SIZE_MAX: no match yet */
} sp_matches;
/* 1 with *begin and *end set, 0 at the end, -1 with err filled. `shadow` is text with stand-ins for characters whose
 * properties depend on the Unicode version (unicode.c); it may be text itself. */
int sp_matches_next(sp_matches *it, const char *text, const char *shadow, size_t n_bytes, size_t *begin, size_t *end,
                    sp_error *err) SP_MUST_CHECK;

#endif
