/* Tokens and syntax tree of a template. Both live in the template's arena and are read-only once it is parsed. */
#ifndef SPILL_CHAT_SYNTAX_H
#define SPILL_CHAT_SYNTAX_H

#include "chat/value.h"

typedef enum {
    SP_T_END,
    SP_T_DATA,
    SP_T_VARIABLE_BEGIN,
    SP_T_VARIABLE_END,
    SP_T_BLOCK_BEGIN,
    SP_T_BLOCK_END,
    SP_T_NAME,
    SP_T_STRING,
    SP_T_INTEGER,
    SP_T_REAL,
    SP_T_ADD,
    SP_T_SUB,
    SP_T_DIV,
    SP_T_FLOORDIV,
    SP_T_MUL,
    SP_T_MOD,
    SP_T_POW,
    SP_T_TILDE,
    SP_T_LBRACKET,
    SP_T_RBRACKET,
    SP_T_LPAREN,
    SP_T_RPAREN,
    SP_T_LBRACE,
    SP_T_RBRACE,
    SP_T_EQ,
    SP_T_NE,
    SP_T_GT,
    SP_T_GE,
    SP_T_LT,
    SP_T_LE,
    SP_T_ASSIGN,
    SP_T_DOT,
    SP_T_COLON,
    SP_T_PIPE,
    SP_T_COMMA,
    SP_T_SEMICOLON,
} sp_token_kind;

typedef struct {
    sp_token_kind kind;
    int line;
    const sp_text *text; /* data, name, string */
    sp_value number;     /* integer, real */
} sp_token;

typedef enum {
    SP_OP_ADD,
    SP_OP_SUB,
    SP_OP_MUL,
    SP_OP_DIV,
    SP_OP_FLOORDIV,
    SP_OP_MOD,
    SP_OP_POW,
    SP_OP_EQ,
    SP_OP_NE,
    SP_OP_GT,
    SP_OP_GE,
    SP_OP_LT,
    SP_OP_LE,
    SP_OP_IN,
    SP_OP_NOT_IN,
} sp_operator;

typedef enum {
    /* expressions */
    SP_N_CONST,     /* constant */
    SP_N_NAME,      /* text, i_name */
    SP_N_NS_REF,    /* namespace i_name, attribute text: a target of set */
    SP_N_TUPLE,     /* items */
    SP_N_LIST,      /* items */
    SP_N_DICT,      /* items: keys, others: values */
    SP_N_COND,      /* b if a else c (or NULL) */
    SP_N_OR,        /* a, b */
    SP_N_AND,       /* a, b */
    SP_N_NOT,       /* a */
    SP_N_COMPARE,   /* a, items: operands with op */
    SP_N_OPERAND,   /* op, a */
    SP_N_CONCAT,    /* items */
    SP_N_BINARY,    /* op, a, b */
    SP_N_NEGATE,    /* a */
    SP_N_POSITIVE,  /* a */
    SP_N_ATTRIBUTE, /* a.text */
    SP_N_ITEM,      /* a[b] */
    SP_N_SLICE,     /* a:b:c, each may be NULL */
    SP_N_CALL,      /* a(call) */
    SP_N_FILTER,    /* a|text(call); a NULL: the block's text */
    SP_N_TEST,      /* a is text(call) */
    /* statements */
    SP_N_DATA,         /* text */
    SP_N_PRINT,        /* a */
    SP_N_FOR,          /* a target, b iterable, c test; items body, others else; flag: recursive */
    SP_N_IF,           /* items: branches (SP_N_BRANCH), others: else */
    SP_N_BRANCH,       /* a condition, items body */
    SP_N_SET,          /* a target, b value */
    SP_N_SET_BLOCK,    /* a target, b filter, items body */
    SP_N_MACRO,        /* text, i_name, params and defaults, items body */
    SP_N_CALL_BLOCK,   /* a call; params and defaults, items body */
    SP_N_FILTER_BLOCK, /* b filter, items body */
    SP_N_WITH,         /* targets, values in call; items body */
    SP_N_SCOPE,        /* items body: generation, autoescape false */
    SP_N_BREAK,
    SP_N_CONTINUE,
} sp_node_kind;

typedef struct sp_node sp_node;

/* Arguments of a call, parameters of a macro (args: names, values: defaults, NULL for none), bindings of a with. */
typedef struct {
    sp_node **args; /* [n_args] */
    size_t n_args;
    const sp_text **names; /* [n_values] of keyword arguments */
    sp_node **values;      /* [n_values] */
    size_t n_values;
    sp_node *star;      /* *args, or NULL */
    sp_node *star_star; /* **kwargs, or NULL */
} sp_call;

struct sp_node {
    uint8_t kind; /* sp_node_kind */
    uint8_t op;   /* sp_operator */
    bool flag;
    uint8_t catches; /* of a macro: SP_CATCH_* */
    int line;
    int depth; /* of the tree below it */
    int i_name;
    const sp_text *text;
    sp_value constant;
    sp_node *a, *b, *c;
    sp_node **items;
    size_t n_items;
    sp_node **others;
    size_t n_others;
    const sp_callable *callable; /* of a filter or test; NULL: unknown, fails when it is reached */
    sp_call *call;
};

/* The special names that a macro's body reads, and so what it accepts beyond its parameters. */
enum { SP_CATCH_VARARGS = 1, SP_CATCH_KWARGS = 2, SP_CATCH_CALLER = 4 };

struct sp_template {
    sp_arena arena;
    const char *name;
    sp_string source;
    const sp_text **names; /* [n_names] every variable name; index is i_name */
    size_t n_names;
    bool *loaded; /* [n_names] read somewhere, not only set */
    sp_node **body;
    size_t n_body;
    int i_loop, i_caller, i_varargs, i_kwargs; /* of these names */
};

#endif
