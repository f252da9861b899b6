/* The state of one rendering, and what evaluator, filters, tests and methods share.
 *
 * Failure leaves by longjmp to sp_template_render: all memory of a rendering is in its arena, so nothing is lost on
 * the way, and none of these functions has an error to hand back. Every function that loops over data calls
 * sp_render_charge, every one that recurses over data or syntax sp_render_enter and _leave: that is what bounds time
 * and depth. */
#ifndef SPILL_CHAT_RENDER_H
#define SPILL_CHAT_RENDER_H

#include <setjmp.h>

#include "chat/native.h"
#include "chat/syntax.h"
#include "chat/text.h"
#include "chat/value.h"

typedef struct {
    int i_name;
    sp_value value;
} sp_var;
typedef struct sp_scope sp_scope;
struct sp_scope {
    sp_scope *parent;
    sp_var *vars;
    size_t n;
    size_t room;
    bool kept; /* a macro was defined in it or below: it cannot be used for the next round of a loop */
};

struct sp_macro {
    const sp_node *node; /* SP_N_MACRO or SP_N_CALL_BLOCK */
    sp_scope *scope;     /* where it was defined */
};

struct sp_render {
    const sp_template *tpl;
    jmp_buf escape; /* of sp_template_render */
    sp_error *err;
    sp_arena arena; /* of all values of this rendering */
    size_t limit_bytes;
    sp_buf *heap; /* the output, and how many bytes it held before */
    size_t heap_before;
    uint64_t limit_cpu_ns; /* processor time of this thread at which the rendering has taken too long */
    uint32_t n_steps;      /* charged since the clock was last looked at */
    int depth;             /* of sp_render_enter */
    int line;              /* of the template, for messages */
    int64_t now_s;
    sp_value *globals; /* [tpl->n_names] what a name means outside every scope */
    sp_scope *scope;
    sp_sink *out;
    sp_value block_input; /* what the filter of a filter block or a set block is applied to */
    bool mark_user;
};

_Noreturn void sp_render_fail(sp_render *r, const char *format, ...) SP_PRINTF(2, 3);
/* With the text as it is: raise_exception. */
_Noreturn void sp_render_raise(sp_render *r, const sp_text *message);
void sp_render_charge(sp_render *r, size_t n_elems); /* work done; fails when the time is over */
void sp_render_enter(sp_render *r);
void sp_render_leave(sp_render *r);
/* Zeroed arena memory; fails over the limit. */
void *sp_render_alloc(sp_render *r, size_t n, size_t elem_bytes);
#define SP_RENDER_NEW(r, type) ((type *)sp_render_alloc((r), 1, sizeof(type)))
void sp_render_claim(sp_render *r, size_t n_bytes); /* fails when n_bytes more would pass the limit */

/* ---- eval.c: expressions ---- */
sp_value sp_eval(sp_render *r, const sp_node *node);
void sp_eval_assign(sp_render *r, const sp_node *target, sp_value v);
/* The arguments of a call, and one keyword argument more unless extra is NULL. */
void sp_eval_args(sp_render *r, const sp_call *call, const sp_kwarg *extra, sp_args *args);

/* ---- exec.c: statements ---- */
typedef enum { SP_FLOW_NEXT, SP_FLOW_BREAK, SP_FLOW_CONTINUE } sp_flow;
sp_flow sp_exec(sp_render *r, sp_node *const *body, size_t n);
/* The text that body writes when it runs in `scope`; *text is set only when it runs to its end. */
sp_flow sp_exec_text(sp_render *r, sp_node *const *body, size_t n, sp_scope *scope, const sp_text **text);
sp_value sp_loop_recurse(sp_render *r, sp_loop *loop, sp_value iterable);
sp_value sp_loop_attribute(sp_render *r, sp_loop *loop, const sp_text *name); /* SP_V_MISSING: has no such */
void sp_sink_loop(sp_sink *sink, sp_loop *loop);
sp_native sp_loop_cycle, sp_loop_changed; /* methods of the loop */
size_t sp_loop_length(sp_render *r, sp_loop *loop);

/* ---- scope.c ---- */
sp_scope *sp_scope_new(sp_render *r, sp_scope *parent);
/* An empty scope below parent: `used`, if there is one and it may be used again. */
sp_scope *sp_scope_renew(sp_render *r, sp_scope *used, sp_scope *parent);
void sp_scope_keep(sp_scope *scope); /* it and all around it */
void sp_scope_set(sp_render *r, sp_scope *scope, int i_name, sp_value v);
sp_value sp_scope_get(sp_render *r, const sp_node *name);

/* ---- call.c ---- */
sp_value sp_call_value(sp_render *r, sp_value callee, const sp_args *args);
sp_value sp_macro_attribute(sp_render *r, const sp_macro *macro, const sp_text *name);

/* ---- operators.c ---- */
sp_value sp_operate(sp_render *r, sp_operator op, sp_value a, sp_value b);
sp_value sp_negate(sp_render *r, sp_value v, bool minus);

/* ---- attribute.c ---- */
sp_value sp_get_attribute(sp_render *r, sp_value obj, const sp_text *name);
sp_value sp_get_item(sp_render *r, sp_value obj, sp_value key);
sp_value sp_get_slice(sp_render *r, sp_value obj, sp_value start, sp_value stop, sp_value step);
/* A path of a filter ("a.b.0"), applied with the rules of obj[part]; an absent fallback is SP_V_MISSING. */
sp_value sp_get_path(sp_render *r, sp_value obj, sp_value path, sp_value fallback);

/* ---- format.c, casing.c, strftime.c ---- */
const sp_text *sp_format_percent(sp_render *r, const sp_text *format, sp_value args);
const sp_text *sp_format_braces(sp_render *r, const sp_text *format, const sp_args *args);
typedef enum { SP_CASE_UPPER, SP_CASE_LOWER, SP_CASE_TITLE, SP_CASE_CAPITAL, SP_CASE_SWAP, SP_CASE_FOLD } sp_casing;
const sp_text *sp_text_recase(sp_render *r, const sp_text *text, sp_casing casing);
const sp_text *sp_strftime(sp_render *r, const sp_text *format);

#endif
