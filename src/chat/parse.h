/* What lexer and parser share: the state of one parsing, the token stream, nodes under construction. One thread.
 *
 * Failure leaves by longjmp to sp_template_parse: all memory is in the template's arena, so nothing is lost on the way.
 */
#ifndef SPILL_CHAT_PARSE_H
#define SPILL_CHAT_PARSE_H

#include <setjmp.h>

#include "chat/syntax.h"

typedef struct {
    sp_template *tpl;
    jmp_buf escape;
    sp_error *err;
    sp_token *tokens; /* [n_tokens], the last is SP_T_END */
    size_t n_tokens;
    size_t room_tokens;
    size_t at; /* of the next token */
    size_t room_names;
    int depth;              /* of nested parentheses and blocks */
    bool in_loop;           /* break and continue are allowed */
    bool soft;              /* in a branch: an unknown filter fails when it is reached, not now */
    const sp_node *unknown; /* a filter or test that does not exist and is in no branch, as far as is known */
    uint8_t catches;        /* of the macro being parsed */
} sp_parse;

_Noreturn void sp_parse_fail(sp_parse *p, int line, const char *format, ...) SP_PRINTF(3, 4);
/* Zeroed memory of the template's arena. */
void *sp_parse_alloc(sp_parse *p, size_t n, size_t elem_bytes);
/* Fills p->tokens from the text. */
void sp_lexer_run(sp_parse *p, const char *text, size_t n_bytes);

/* ---- expression.c ---- */
/* with_condition: "a if b else c" is one; where it is not, as in the iterable of a for, `if` ends the expression. */
sp_node *sp_parse_expression(sp_parse *p, bool with_condition);
/* As Jinja: one expression, or a tuple without parentheses. `until`: a name that ends it ("in"), or NULL;
 * parentheses: they stand around it, so that it may be empty. */
sp_node *sp_parse_tuple(sp_parse *p, bool with_condition, const char *until, bool parentheses);
/* What an assignment is made to: a name, a tuple of them, with_namespace: also ns.name. */
sp_node *sp_parse_target(sp_parse *p, const char *until, bool with_namespace);
sp_node *sp_parse_name_target(sp_parse *p); /* a name alone */
/* The filters of "input|a|b"; inline_start: the first has no bar before it ("{% filter a|b %}"). input may be NULL. */
sp_node *sp_parse_filter(sp_parse *p, sp_node *input, bool inline_start);

/* ---- parser.c: the token stream and nodes ---- */
/* A new node without children. */
sp_node *sp_parse_node(sp_parse *p, sp_node_kind kind, int line);
void sp_parse_measure(sp_parse *p, sp_node *node); /* sets depth from its children, fails when too deep */
/* The token `ahead` places on, and the next one, which is then behind; SP_T_END for ever at the end. */
const sp_token *sp_parse_peek(const sp_parse *p, size_t ahead);
const sp_token *sp_parse_next(sp_parse *p);
/* Whether the next token is of the kind, or is that name. _skip: and then takes it; _expect: or fails. */
bool sp_parse_is(const sp_parse *p, sp_token_kind kind);
bool sp_parse_is_name(const sp_parse *p, const char *name);
bool sp_parse_skip(sp_parse *p, sp_token_kind kind);
bool sp_parse_skip_name(sp_parse *p, const char *name);
const sp_token *sp_parse_expect(sp_parse *p, sp_token_kind kind);
/* Fails: "expected '<wanted>', got ...". */
_Noreturn void sp_parse_unexpected(sp_parse *p, const char *wanted);
/* The number of a variable's name; load: it is read, not only set. */
int sp_parse_intern(sp_parse *p, const sp_text *name, bool load);
/* Around what nests; fails when it is too deep. */
void sp_parse_enter(sp_parse *p);
void sp_parse_leave(sp_parse *p);

/* Nodes under construction. */
typedef struct {
    sp_node **items;
    size_t n;
    size_t room;
} sp_node_list;
void sp_node_list_add(sp_parse *p, sp_node_list *list, sp_node *node);

#endif
