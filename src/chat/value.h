/* The values of a template: Python's, as far as a template can see them. Everything here lives in the arena of one
 * rendering (constants: of the template) and is never changed once it can be seen, but for namespaces, iterators,
 * cyclers, joiners and loops. Strings remember which of their bytes a user wrote.
 *
 * Functions that take an sp_render do not return on failure: see render.h. */
#ifndef SPILL_CHAT_VALUE_H
#define SPILL_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chat/template.h"
#include "util/arena.h"

typedef struct sp_render sp_render;
typedef struct sp_iter sp_iter;
typedef struct sp_text sp_text;
typedef struct sp_seq sp_seq;
typedef struct sp_dict sp_dict;
typedef struct sp_view sp_view;
typedef struct sp_range sp_range;
typedef struct sp_undefined sp_undefined;
typedef struct sp_method sp_method;
typedef struct sp_macro sp_macro;
typedef struct sp_loop sp_loop;
typedef struct sp_cycler sp_cycler;
typedef struct sp_joiner sp_joiner;
typedef struct sp_callable sp_callable;

typedef enum {
    SP_V_MISSING, /* an argument that was not given; never seen by a template */
    SP_V_UNDEFINED,
    SP_V_NONE,
    SP_V_BOOL,
    SP_V_INT,
    SP_V_REAL,
    SP_V_TEXT,
    SP_V_LIST,
    SP_V_TUPLE,
    SP_V_DICT,
    SP_V_VIEW, /* keys(), values(), items() of a dict */
    SP_V_RANGE,
    SP_V_ITER, /* a generator: consumed once, computed as it is consumed */
    SP_V_NAMESPACE,
    SP_V_LOOP,
    SP_V_MACRO,
    SP_V_METHOD,
    SP_V_FUNCTION,
    SP_V_CYCLER,
    SP_V_JOINER,
    SP_V_KINDS
} sp_value_kind;

typedef struct {
    sp_value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        const sp_text *text;
        const sp_seq *seq;
        sp_dict *dict; /* also a namespace's attributes */
        const sp_view *view;
        const sp_range *range;
        const sp_undefined *undefined;
        const sp_method *method;
        const sp_macro *macro;
        const sp_callable *function;
        sp_iter *iter;
        sp_loop *loop;
        sp_cycler *cycler;
        sp_joiner *joiner;
        const void *object;
    } as;
} sp_value;

struct sp_seq {
    sp_value *items; /* [n] */
    size_t n;
    bool group; /* a tuple of groupby: has .grouper and .list */
};

typedef struct {
    sp_value key;
    sp_value value;
    uint64_t hash;
} sp_pair;
struct sp_dict {
    sp_pair *pairs; /* in order of insertion */
    size_t n;
    size_t room;
    uint32_t *slots; /* [n_slots] 1 + index into pairs, 0: free; NULL while small */
    size_t n_slots;  /* power of two */
};

struct sp_view {
    sp_dict *dict;
    enum { SP_VIEW_KEYS, SP_VIEW_VALUES, SP_VIEW_ITEMS } part;
};

struct sp_range {
    int64_t start, stop, step;
    int64_t n;
};

/* What was asked for and not there. Without a hint the message is made of obj and name. */
struct sp_undefined {
    const char *hint;
    sp_value obj; /* SP_V_MISSING: a variable */
    sp_value name;
};

struct sp_method {
    sp_value self;
    const sp_callable *callable;
};

struct sp_cycler {
    const sp_seq *items;
    size_t at;
};

struct sp_joiner {
    sp_value separator;
    bool used;
};

static inline sp_value sp_value_missing(void) { return (sp_value){.kind = SP_V_MISSING}; }
static inline sp_value sp_value_none(void) { return (sp_value){.kind = SP_V_NONE}; }
static inline sp_value sp_value_bool(bool b) { return (sp_value){.kind = SP_V_BOOL, .as.truth = b}; }
static inline sp_value sp_value_int(int64_t i) { return (sp_value){.kind = SP_V_INT, .as.integer = i}; }
static inline sp_value sp_value_size(size_t n) { return sp_value_int((int64_t)n); }
static inline sp_value sp_value_real(double d) { return (sp_value){.kind = SP_V_REAL, .as.real = d}; }
static inline sp_value sp_value_text(const sp_text *t) { return (sp_value){.kind = SP_V_TEXT, .as.text = t}; }
static inline bool sp_value_given(sp_value v) { return v.kind != SP_V_MISSING; }
static inline bool sp_value_is_int(sp_value v) { return v.kind == SP_V_INT || v.kind == SP_V_BOOL; }
static inline bool sp_value_is_number(sp_value v) { return sp_value_is_int(v) || v.kind == SP_V_REAL; }
static inline bool sp_value_is_seq(sp_value v) { return v.kind == SP_V_LIST || v.kind == SP_V_TUPLE; }
/* Of an int or bool; of any number. */
static inline int64_t sp_value_as_int(sp_value v) { return v.kind == SP_V_BOOL ? v.as.truth : v.as.integer; }
static inline double sp_value_as_real(sp_value v) {
    return v.kind == SP_V_REAL ? v.as.real : (double)sp_value_as_int(v);
}

/* ---- collections and comparison: value.c ---- */
sp_value sp_value_from_json(sp_render *r, const json_t *json, bool user);
sp_value sp_value_list(sp_render *r, size_t n); /* n items, all None until filled through sp_value_items */
sp_value sp_value_tuple(sp_render *r, size_t n);
static inline sp_value *sp_value_items(sp_value v) { return v.as.seq->items; }
sp_dict *sp_dict_new(sp_render *r);
void sp_dict_set(sp_render *r, sp_dict *dict, sp_value key, sp_value value);
const sp_value *sp_dict_get(sp_render *r, const sp_dict *dict, sp_value key);
bool sp_value_hashable(sp_value v);
uint64_t sp_value_hash(sp_render *r, sp_value v); /* of a hashable one; fails on others */
bool sp_value_truth(sp_render *r, sp_value v);
bool sp_value_eq(sp_render *r, sp_value a, sp_value b);
/* -1, 0, 1; `op` ("<") is for the message when they have no order. */
int sp_value_compare(sp_render *r, sp_value a, sp_value b, const char *op);
bool sp_value_contains(sp_render *r, sp_value container, sp_value item);
bool sp_value_length(sp_render *r, sp_value v, size_t *n); /* false: has none */
const char *sp_value_type(sp_value v);                     /* Python's type name */

sp_value sp_undefined_variable(sp_render *r, const sp_text *name);
sp_value sp_undefined_hint(sp_render *r, const char *hint);
sp_value sp_undefined_attribute(sp_render *r, sp_value obj, sp_value name);
_Noreturn void sp_undefined_fail(sp_render *r, sp_value v);

/* ---- iteration: iter.c ---- */
struct sp_iter {
    bool (*next)(sp_render *r, sp_iter *iter, sp_value *item); /* false: exhausted */
    sp_value source;
    size_t at;
    sp_iter *inner;
    void *state;
};
/* Over any iterable; fails on others. An SP_V_ITER gives itself. */
sp_iter *sp_iter_open(sp_render *r, sp_value v);
bool sp_iter_next(sp_render *r, sp_iter *iter, sp_value *item);
bool sp_value_iterable(sp_value v);
/* All (remaining) items as a list. */
sp_value sp_iter_list(sp_render *r, sp_value v);
sp_value sp_iter_value(sp_render *r, sp_iter iter); /* a generator */
sp_value sp_range_at(const sp_range *range, int64_t i);

/* A list under construction. */
typedef struct {
    sp_value *items;
    size_t n;
    size_t room;
} sp_items;
void sp_items_add(sp_render *r, sp_items *list, sp_value v);
sp_value sp_items_list(sp_render *r, const sp_items *list);

#endif
