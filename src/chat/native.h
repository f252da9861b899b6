/* What templates can call: filters, tests, methods and functions. Each is a row of a table: a name, a C function, and
 * what parameters it has, to which sp_call_native brings the arguments as Python would. The tables are in filters.c,
 * seq_filters.c, text_filters.c, tests.c, methods.c, text_methods.c and call.c. */
#ifndef SPILL_CHAT_NATIVE_H
#define SPILL_CHAT_NATIVE_H

#include "chat/value.h"

typedef struct {
    const sp_text *name;
    sp_value value;
} sp_kwarg;

/* Arguments as written in a call. */
typedef struct {
    const sp_value *pos; /* [n_pos] */
    size_t n_pos;
    const sp_kwarg *kw; /* [n_kw] */
    size_t n_kw;
} sp_args;

enum { SP_MAX_PARAMS = 6, SP_VARIADIC = 255 };

/* A filter, test, method or function. `self` is what it is applied to; a[i] is parameter i, SP_V_MISSING when it was
 * not given; `raw` are the arguments as written, all that a variadic one (n_params SP_VARIADIC) has. */
typedef sp_value sp_native(sp_render *r, sp_value self, const sp_value *a, const sp_args *raw);
struct sp_callable {
    const char *name;
    sp_native *call;
    uint8_t n_required;
    uint8_t n_params;
    const char *params[SP_MAX_PARAMS]; /* "": by position only */
};

/* The head of a native function; few use all that they are given. */
#define SP_UNUSED __attribute__((unused))
#define SP_NATIVE(name)                                                                                \
    static sp_value name(SP_UNUSED sp_render *r, SP_UNUSED sp_value self, SP_UNUSED const sp_value *a, \
                         SP_UNUSED const sp_args *raw)

sp_value sp_call_native(sp_render *r, const sp_callable *callable, sp_value self, const sp_args *args);
/* The method `name` of the str() of self, with n_args arguments by position. */
sp_value sp_call_text_method(sp_render *r, sp_value self, const char *name, const sp_value *args, size_t n_args);

/* Arguments with Python's rules: an int (or bool), a string; fails naming `what`. */
int64_t sp_arg_int(sp_render *r, sp_value v, const char *what);
const sp_text *sp_arg_text(sp_render *r, sp_value v, const char *what);

/* The tables. NULL when there is none of that name. */
const sp_callable *sp_filter_find(const sp_text *name);
const sp_callable *sp_test_find(const sp_text *name);
const sp_callable *sp_function_find(const sp_text *name);
const sp_callable *sp_callable_find(const sp_callable *table, size_t n, const sp_text *name);
const sp_callable *sp_method_find(sp_value self, const sp_text *name);
extern const sp_callable sp_text_methods[];
extern const size_t sp_n_text_methods;
extern const sp_callable sp_text_filters[];
extern const size_t sp_n_text_filters;
extern const sp_callable sp_seq_filters[];
extern const size_t sp_n_seq_filters;

#endif
