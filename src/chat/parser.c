/* Tokens to a tree: statements, and the token stream that expression.c shares. What Jinja finds out when it compiles
 * (an unknown filter, a break outside of a loop) is found here too. Depth is bounded twice: nesting while parsing, and
 * the height of every tree, so that evaluation needs no more than MAX_DEPTH nested calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/native.h"
#include "chat/parse.h"
#include "chat/text.h"
#include "util/size.h"

enum {
    MAX_TEMPLATE_BYTES = 4 << 20, /* the largest real ones have 20 KB */
    MAX_NESTING = 100,            /* parentheses and blocks; Jinja's own parser ends near 90 */
    MAX_DEPTH = 250,              /* of a tree: a chain of as many operators */
};

void sp_parse_fail(sp_parse *p, int line, const char *format, ...) {
    char text[SP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sp_fail(p->err, SP_ERR_INPUT, "%s line %d: %s", p->tpl->name, line, text);
    longjmp(p->escape, 1);
}

void *sp_parse_alloc(sp_parse *p, size_t n, size_t elem_bytes) {
    return sp_arena_calloc(&p->tpl->arena, n, elem_bytes);
}

void sp_parse_enter(sp_parse *p) {
    if (++p->depth > MAX_NESTING)
        sp_parse_fail(p, sp_parse_peek(p, 0)->line, "nested more than %d levels deep", MAX_NESTING);
}

void sp_parse_leave(sp_parse *p) { p->depth--; }

sp_node *sp_parse_node(sp_parse *p, sp_node_kind kind, int line) {
    sp_node *node = sp_parse_alloc(p, 1, sizeof *node);
    node->kind = (uint8_t)kind;
    node->line = line;
    node->depth = 1;
    node->i_name = -1;
    return node;
}

static int deeper(int depth, const sp_node *child) { return child && child->depth > depth ? child->depth : depth; }

static int deepest(int depth, sp_node *const *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) depth = deeper(depth, nodes[i]);
    return depth;
}

void sp_parse_measure(sp_parse *p, sp_node *node) {
    int depth = deeper(deeper(deeper(0, node->a), node->b), node->c);
    depth = deepest(deepest(depth, node->items, node->n_items), node->others, node->n_others);
    const sp_call *call = node->call;
    if (call) {
        depth = deepest(deepest(depth, call->args, call->n_args), call->values, call->n_values);
        depth = deeper(deeper(depth, call->star), call->star_star);
    }
    node->depth = depth + 1;
    if (node->depth > MAX_DEPTH) sp_parse_fail(p, node->line, "a chain of more than %d operations", MAX_DEPTH);
}

const sp_token *sp_parse_peek(const sp_parse *p, size_t ahead) {
    return &p->tokens[sp_min_size(p->at + ahead, p->n_tokens - 1)];
}

const sp_token *sp_parse_next(sp_parse *p) {
    const sp_token *token = sp_parse_peek(p, 0);
    if (token->kind != SP_T_END) p->at++;
    return token;
}

bool sp_parse_is(const sp_parse *p, sp_token_kind kind) { return sp_parse_peek(p, 0)->kind == kind; }

static bool token_is_name(const sp_token *token, const char *name) {
    return token->kind == SP_T_NAME && sp_text_is(token->text, name);
}

bool sp_parse_is_name(const sp_parse *p, const char *name) { return token_is_name(sp_parse_peek(p, 0), name); }

bool sp_parse_skip(sp_parse *p, sp_token_kind kind) {
    bool is = sp_parse_is(p, kind);
    if (is) sp_parse_next(p);
    return is;
}

bool sp_parse_skip_name(sp_parse *p, const char *name) {
    bool is = sp_parse_is_name(p, name);
    if (is) sp_parse_next(p);
    return is;
}

static const char *const kind_names[] = {
    [SP_T_END] = "end of template",
    [SP_T_DATA] = "template data / text",
    [SP_T_VARIABLE_BEGIN] = "begin of print statement",
    [SP_T_VARIABLE_END] = "end of print statement",
    [SP_T_BLOCK_BEGIN] = "begin of statement block",
    [SP_T_BLOCK_END] = "end of statement block",
    [SP_T_NAME] = "name",
    [SP_T_STRING] = "string",
    [SP_T_INTEGER] = "integer",
    [SP_T_REAL] = "float",
    [SP_T_ADD] = "+",
    [SP_T_SUB] = "-",
    [SP_T_DIV] = "/",
    [SP_T_FLOORDIV] = "//",
    [SP_T_MUL] = "*",
    [SP_T_MOD] = "%",
    [SP_T_POW] = "**",
    [SP_T_TILDE] = "~",
    [SP_T_LBRACKET] = "[",
    [SP_T_RBRACKET] = "]",
    [SP_T_LPAREN] = "(",
    [SP_T_RPAREN] = ")",
    [SP_T_LBRACE] = "{",
    [SP_T_RBRACE] = "}",
    [SP_T_EQ] = "==",
    [SP_T_NE] = "!=",
    [SP_T_GT] = ">",
    [SP_T_GE] = ">=",
    [SP_T_LT] = "<",
    [SP_T_LE] = "<=",
    [SP_T_ASSIGN] = "=",
    [SP_T_DOT] = ".",
    [SP_T_COLON] = ":",
    [SP_T_PIPE] = "|",
    [SP_T_COMMA] = ",",
    [SP_T_SEMICOLON] = ";",
};

/* The token's text for %.*s, or its kind's name. */
static const char *describe(const sp_token *token, int *n_bytes) {
    bool named = token->kind == SP_T_NAME;
    const char *text = named ? token->text->data : kind_names[token->kind];
    size_t n = named ? token->text->n_bytes : strlen(text);
    *n_bytes = (int)sp_min_size(n, 60);
    return text;
}

void sp_parse_unexpected(sp_parse *p, const char *wanted) {
    const sp_token *token = sp_parse_peek(p, 0);
    int n;
    const char *got = describe(token, &n);
    if (token->kind == SP_T_END) sp_parse_fail(p, token->line, "unexpected end of template, expected '%s'", wanted);
    sp_parse_fail(p, token->line, "expected '%s', got '%.*s'", wanted, n, got);
}

const sp_token *sp_parse_expect(sp_parse *p, sp_token_kind kind) {
    if (!sp_parse_is(p, kind)) sp_parse_unexpected(p, kind_names[kind]);
    return sp_parse_next(p);
}

static void expect_name(sp_parse *p, const char *name) {
    if (!sp_parse_skip_name(p, name)) sp_parse_unexpected(p, name);
}

int sp_parse_intern(sp_parse *p, const sp_text *name, bool load) {
    sp_template *tpl = p->tpl;
    size_t i = 0;
    while (i < tpl->n_names && !sp_text_eq(tpl->names[i], name)) i++;
    if (i == tpl->n_names) {
        if (i == p->room_names) {
            size_t room = sp_max_size(32, p->room_names * 2);
            const sp_text **names = sp_parse_alloc(p, room, sizeof(sp_text *));
            bool *loaded = sp_parse_alloc(p, room, sizeof *loaded);
            if (i) {
                memcpy(names, tpl->names, i * sizeof(sp_text *));
                memcpy(loaded, tpl->loaded, i * sizeof *loaded);
            }
            tpl->names = names;
            tpl->loaded = loaded;
            p->room_names = room;
        }
        tpl->names[tpl->n_names++] = name;
    }
    tpl->loaded[i] |= load;
    return (int)i;
}

void sp_node_list_add(sp_parse *p, sp_node_list *list, sp_node *node) {
    if (list->n == list->room) {
        list->room = sp_max_size(4, list->room * 2);
        sp_node **items = sp_parse_alloc(p, list->room, sizeof(sp_node *));
        if (list->n) memcpy(items, list->items, list->n * sizeof(sp_node *));
        list->items = items;
    }
    list->items[list->n++] = node;
}

/* ---- statements ---- */

/* What a body may contain; saved around the parts of a statement that change it. */
typedef struct {
    bool in_loop;
    bool soft;
    uint8_t catches;
} context;

static context save(const sp_parse *p) { return (context){p->in_loop, p->soft, p->catches}; }

static void restore(sp_parse *p, context c) {
    p->in_loop = c.in_loop;
    p->soft = c.soft;
    p->catches = c.catches;
}

static bool at_end_tag(const sp_parse *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (sp_parse_is_name(p, *ends)) return true;
    return false;
}

static sp_node *parse_statement(sp_parse *p);

/* Everything up to a block tag whose name is in `ends` (NULL: the end of the template); that name is next. */
static void parse_nodes(sp_parse *p, const char *const *ends, sp_node ***items, size_t *n_items) {
    sp_node_list list = {0};
    int line = sp_parse_peek(p, 0)->line;
    sp_parse_enter(p);
    for (;;) {
        const sp_token *token = sp_parse_next(p);
        sp_node *node = NULL;
        if (token->kind == SP_T_END) {
            if (ends)
                sp_parse_fail(p, token->line, "unexpected end of template: '%s' of line %d is missing", *ends, line);
            break;
        } else if (token->kind == SP_T_DATA) {
            node = sp_parse_node(p, SP_N_DATA, token->line);
            node->text = token->text;
        } else if (token->kind == SP_T_VARIABLE_BEGIN) {
            node = sp_parse_node(p, SP_N_PRINT, token->line);
            node->a = sp_parse_tuple(p, true, NULL, false);
            sp_parse_expect(p, SP_T_VARIABLE_END);
            sp_parse_measure(p, node);
        } else {
            if (at_end_tag(p, ends)) break;
            node = parse_statement(p);
            sp_parse_measure(p, node);
            sp_parse_expect(p, SP_T_BLOCK_END);
        }
        sp_node_list_add(p, &list, node);
    }
    sp_parse_leave(p);
    *items = list.items;
    *n_items = list.n;
}

/* The end of a tag, then its body into node->items. */
static void parse_body(sp_parse *p, sp_node *node, const char *const *ends) {
    sp_parse_skip(p, SP_T_COLON);
    sp_parse_expect(p, SP_T_BLOCK_END);
    parse_nodes(p, ends, &node->items, &node->n_items);
}

static void parse_else_body(sp_parse *p, sp_node *node, const char *const *ends) {
    sp_parse_skip(p, SP_T_COLON);
    sp_parse_expect(p, SP_T_BLOCK_END);
    parse_nodes(p, ends, &node->others, &node->n_others);
}

static bool assigns(const sp_node *target, int i_name) {
    for (size_t i = 0; i < target->n_items; i++)
        if (assigns(target->items[i], i_name)) return true;
    return target->i_name == i_name;
}

static sp_node *parse_for(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_FOR, line);
    node->a = sp_parse_target(p, "in", false);
    if (assigns(node->a, p->tpl->i_loop)) sp_parse_fail(p, line, "can't assign to special loop variable in for-loop");
    expect_name(p, "in");
    node->b = sp_parse_tuple(p, false, "recursive", false);
    if (sp_parse_skip_name(p, "if")) node->c = sp_parse_expression(p, true);
    node->flag = sp_parse_skip_name(p, "recursive");
    context outer = save(p);
    p->in_loop = true;
    p->soft = false;
    parse_body(p, node, (const char *const[]){"endfor", "else", NULL});
    restore(p, (context){outer.in_loop, false, p->catches});
    if (sp_parse_is_name(p, "else")) {
        sp_parse_next(p);
        parse_else_body(p, node, (const char *const[]){"endfor", NULL});
    }
    expect_name(p, "endfor");
    restore(p, (context){outer.in_loop, outer.soft, p->catches});
    return node;
}

static sp_node *parse_if(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_IF, line);
    sp_node_list branches = {0};
    bool soft = p->soft;
    p->soft = true;
    do {
        sp_node *branch = sp_parse_node(p, SP_N_BRANCH, sp_parse_peek(p, 0)->line);
        branch->a = sp_parse_tuple(p, false, NULL, false);
        parse_body(p, branch, (const char *const[]){"endif", "elif", "else", NULL});
        sp_parse_measure(p, branch);
        sp_node_list_add(p, &branches, branch);
    } while (sp_parse_skip_name(p, "elif"));
    if (sp_parse_skip_name(p, "else")) parse_else_body(p, node, (const char *const[]){"endif", NULL});
    expect_name(p, "endif");
    p->soft = soft;
    node->items = branches.items;
    node->n_items = branches.n;
    return node;
}

static sp_node *parse_set(sp_parse *p, int line) {
    sp_node *target = sp_parse_target(p, NULL, true);
    sp_node *node = sp_parse_node(p, sp_parse_is(p, SP_T_ASSIGN) ? SP_N_SET : SP_N_SET_BLOCK, line);
    node->a = target;
    if (sp_parse_skip(p, SP_T_ASSIGN)) {
        node->b = sp_parse_tuple(p, true, NULL, false);
        return node;
    }
    node->b = sp_parse_filter(p, NULL, false);
    bool soft = p->soft;
    p->soft = false;
    parse_body(p, node, (const char *const[]){"endset", NULL});
    expect_name(p, "endset");
    p->soft = soft;
    return node;
}

/* "(a, b=1)" of a macro or call block. */
static sp_call *parse_signature(sp_parse *p) {
    sp_call *call = sp_parse_alloc(p, 1, sizeof *call);
    sp_node_list params = {0}, defaults = {0};
    sp_parse_expect(p, SP_T_LPAREN);
    while (!sp_parse_is(p, SP_T_RPAREN)) {
        if (params.n) sp_parse_expect(p, SP_T_COMMA);
        sp_node *param = sp_parse_name_target(p);
        sp_node *value = NULL;
        if (sp_parse_skip(p, SP_T_ASSIGN))
            value = sp_parse_expression(p, true);
        else if (defaults.n && defaults.items[defaults.n - 1])
            sp_parse_fail(p, param->line, "non-default argument follows default argument");
        sp_node_list_add(p, &params, param);
        sp_node_list_add(p, &defaults, value);
    }
    sp_parse_expect(p, SP_T_RPAREN);
    *call = (sp_call){.args = params.items, .n_args = params.n, .values = defaults.items, .n_values = defaults.n};
    return call;
}

static void parse_macro_body(sp_parse *p, sp_node *node, const char *end) {
    context outer = save(p);
    p->in_loop = false;
    p->soft = false;
    p->catches = 0;
    parse_body(p, node, (const char *const[]){end, NULL});
    expect_name(p, end);
    node->catches = p->catches;
    /* what an inner macro catches, the outer one's body mentions too */
    restore(p, (context){outer.in_loop, outer.soft, outer.catches | node->catches});
}

static sp_node *parse_macro(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_MACRO, line);
    sp_node *name = sp_parse_name_target(p);
    node->text = name->text;
    node->i_name = name->i_name;
    node->call = parse_signature(p);
    parse_macro_body(p, node, "endmacro");
    return node;
}

static sp_node *parse_call_block(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_CALL_BLOCK, line);
    if (sp_parse_is(p, SP_T_LPAREN))
        node->call = parse_signature(p);
    else
        node->call = sp_parse_alloc(p, 1, sizeof *node->call);
    node->a = sp_parse_expression(p, true);
    if (node->a->kind != SP_N_CALL) sp_parse_fail(p, line, "expected call");
    parse_macro_body(p, node, "endcall");
    return node;
}

static sp_node *parse_filter_block(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_FILTER_BLOCK, line);
    node->b = sp_parse_filter(p, NULL, true);
    bool soft = p->soft;
    p->soft = false;
    parse_body(p, node, (const char *const[]){"endfilter", NULL});
    expect_name(p, "endfilter");
    p->soft = soft;
    return node;
}

static sp_node *parse_with(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_WITH, line);
    sp_node_list targets = {0}, values = {0};
    while (!sp_parse_is(p, SP_T_BLOCK_END)) {
        if (targets.n) sp_parse_expect(p, SP_T_COMMA);
        sp_node_list_add(p, &targets, sp_parse_target(p, NULL, false));
        sp_parse_expect(p, SP_T_ASSIGN);
        sp_node_list_add(p, &values, sp_parse_expression(p, true));
    }
    node->call = sp_parse_alloc(p, 1, sizeof *node->call);
    *node->call = (sp_call){.args = targets.items, .n_args = targets.n, .values = values.items, .n_values = values.n};
    bool soft = p->soft;
    p->soft = false;
    parse_body(p, node, (const char *const[]){"endwith", NULL});
    expect_name(p, "endwith");
    p->soft = soft;
    return node;
}

/* A body in a scope of its own; in the reference a function of its own, so that break does not reach out of it. */
static sp_node *parse_generation(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_SCOPE, line);
    context outer = save(p);
    p->in_loop = false;
    p->soft = false;
    parse_body(p, node, (const char *const[]){"endgeneration", NULL});
    expect_name(p, "endgeneration");
    restore(p, (context){outer.in_loop, outer.soft, p->catches});
    return node;
}

static sp_node *parse_autoescape(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_SCOPE, line);
    sp_node *on = sp_parse_expression(p, true);
    if (on->kind != SP_N_CONST || on->constant.kind != SP_V_BOOL || on->constant.as.truth)
        sp_parse_fail(p, line, "autoescape is not supported");
    parse_body(p, node, (const char *const[]){"endautoescape", NULL});
    expect_name(p, "endautoescape");
    return node;
}

static sp_node *parse_print(sp_parse *p, int line) {
    sp_node *node = sp_parse_node(p, SP_N_SCOPE, line);
    sp_node_list list = {0};
    while (!sp_parse_is(p, SP_T_BLOCK_END)) {
        if (list.n) sp_parse_expect(p, SP_T_COMMA);
        sp_node *print = sp_parse_node(p, SP_N_PRINT, line);
        print->a = sp_parse_expression(p, true);
        sp_parse_measure(p, print);
        sp_node_list_add(p, &list, print);
    }
    node->items = list.items;
    node->n_items = list.n;
    return node;
}

static sp_node *parse_jump(sp_parse *p, int line) {
    bool is_break = sp_text_is(p->tokens[p->at - 1].text, "break");
    if (!p->in_loop) sp_parse_fail(p, line, "'%s' outside of a loop", is_break ? "break" : "continue");
    return sp_parse_node(p, is_break ? SP_N_BREAK : SP_N_CONTINUE, line);
}

static sp_node *parse_refused(sp_parse *p, int line) {
    const sp_text *tag = p->tokens[p->at - 1].text;
    sp_parse_fail(p, line, "'%.*s' is not supported: a chat template is one file", (int)tag->n_bytes, tag->data);
}

static const struct {
    const char *tag;
    sp_node *(*parse)(sp_parse *p, int line);
} statements[] = {
    {"for", parse_for},         {"if", parse_if},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"generation", parse_generation},
    {"print", parse_print},     {"autoescape", parse_autoescape},
    {"break", parse_jump},      {"continue", parse_jump},
    {"extends", parse_refused}, {"include", parse_refused},
    {"import", parse_refused},  {"from", parse_refused},
    {"block", parse_refused},
};

static sp_node *parse_statement(sp_parse *p) {
    const sp_token *token = sp_parse_peek(p, 0);
    if (token->kind != SP_T_NAME) sp_parse_fail(p, token->line, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (sp_parse_skip_name(p, statements[i].tag)) return statements[i].parse(p, token->line);
    char quoted[64];
    sp_parse_fail(p, token->line, "unknown tag '%s'",
                  sp_printable(token->text->data, token->text->n_bytes, quoted, sizeof quoted));
}

static bool valid_utf8(const char *data, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        size_t width;
        if (sp_text_char(data, n_bytes, i, &width) < 0) return false;
        i += width;
    }
    return true;
}

static void fail_unknown(sp_parse *p) {
    char quoted[64];
    const sp_node *node = p->unknown;
    sp_parse_fail(p, node->line, "no %s named '%s'", node->kind == SP_N_FILTER ? "filter" : "test",
                  sp_printable(node->text->data, node->text->n_bytes, quoted, sizeof quoted));
}

static int intern_word(sp_parse *p, const char *word) {
    return sp_parse_intern(p, sp_text_borrow(&p->tpl->arena, word, strlen(word)), false);
}

/* The part that may leave by longjmp; false when it did. */
static bool parse_all(sp_parse *p, const char *text, size_t n_bytes) {
    sp_template *tpl = p->tpl;
    if (setjmp(p->escape)) return false;
    if (n_bytes > MAX_TEMPLATE_BYTES)
        sp_parse_fail(p, 1, "%zu bytes, at most %d are read", n_bytes, (int)MAX_TEMPLATE_BYTES);
    if (!valid_utf8(text, n_bytes)) sp_parse_fail(p, 1, "not valid UTF-8");
    tpl->i_loop = intern_word(p, "loop");
    tpl->i_caller = intern_word(p, "caller");
    tpl->i_varargs = intern_word(p, "varargs");
    tpl->i_kwargs = intern_word(p, "kwargs");
    sp_lexer_run(p, text, n_bytes);
    parse_nodes(p, NULL, &tpl->body, &tpl->n_body);
    if (p->unknown) fail_unknown(p);
    return true;
}

sp_template *sp_template_parse(const char *text, size_t n_bytes, const char *name, sp_error *err) {
    sp_template *tpl = calloc(1, sizeof *tpl);
    if (!tpl) {
        sp_fail(err, SP_ERR_MEMORY, "%s: no memory for a template", name);
        return NULL;
    }
    tpl->name = sp_arena_text(&tpl->arena, name, strlen(name));
    tpl->source = (sp_string){sp_arena_text(&tpl->arena, text, n_bytes), n_bytes};
    sp_parse *p = SP_ARENA_NEW(&tpl->arena, sp_parse);
    p->tpl = tpl;
    p->err = err;
    if (parse_all(p, text, n_bytes)) return tpl;
    sp_template_free(tpl);
    return NULL;
}

void sp_template_free(sp_template *tpl) {
    if (!tpl) return;
    sp_arena_deinit(&tpl->arena);
    free(tpl);
}

bool sp_template_reads(const sp_template *tpl, const char *name) {
    for (size_t i = 0; i < tpl->n_names; i++)
        if (sp_text_is(tpl->names[i], name)) return tpl->loaded[i];
    return false;
}

bool sp_template_mentions(const sp_template *tpl, const char *text) {
    return memmem(tpl->source.text, tpl->source.n_bytes, text, strlen(text)) != NULL;
}
