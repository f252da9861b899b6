/* Expressions, by recursive descent, one function per level of precedence, as Jinja has them: filters and tests bind
 * tighter than unary minus' operand but the power operator stands outside of them; "x if y" needs no else. */
#include <string.h>

#include "chat/native.h"
#include "chat/parse.h"
#include "chat/text.h"

static sp_node *parse_unary(sp_parse *p, bool with_filter);

static sp_node *make_binary(sp_parse *p, sp_node_kind kind, sp_node *a, sp_node *b) {
    sp_node *node = sp_parse_node(p, kind, a->line);
    node->a = a;
    node->b = b;
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_pow(sp_parse *p) {
    sp_node *left = parse_unary(p, true);
    while (sp_parse_skip(p, SP_T_POW)) {
        left = make_binary(p, SP_N_BINARY, left, parse_unary(p, true));
        left->op = SP_OP_POW;
    }
    return left;
}

/* The operator of a token within one level's list. */
typedef struct {
    sp_token_kind token;
    sp_operator op;
} operator_row;

static bool skip_operator(sp_parse *p, const operator_row *rows, size_t n, uint8_t *op) {
    for (size_t i = 0; i < n; i++) {
        if (!sp_parse_skip(p, rows[i].token)) continue;
        *op = (uint8_t)rows[i].op;
        return true;
    }
    return false;
}

static sp_node *parse_product(sp_parse *p) {
    static const operator_row rows[] = {
        {SP_T_MUL, SP_OP_MUL}, {SP_T_DIV, SP_OP_DIV}, {SP_T_FLOORDIV, SP_OP_FLOORDIV}, {SP_T_MOD, SP_OP_MOD}};
    sp_node *left = parse_pow(p);
    for (uint8_t op; skip_operator(p, rows, 4, &op);) {
        left = make_binary(p, SP_N_BINARY, left, parse_pow(p));
        left->op = op;
    }
    return left;
}

static sp_node *parse_concat(sp_parse *p) {
    sp_node *first = parse_product(p);
    if (!sp_parse_is(p, SP_T_TILDE)) return first;
    sp_node_list list = {0};
    sp_node_list_add(p, &list, first);
    while (sp_parse_skip(p, SP_T_TILDE)) sp_node_list_add(p, &list, parse_product(p));
    sp_node *node = sp_parse_node(p, SP_N_CONCAT, first->line);
    node->items = list.items;
    node->n_items = list.n;
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_sum(sp_parse *p) {
    static const operator_row rows[] = {{SP_T_ADD, SP_OP_ADD}, {SP_T_SUB, SP_OP_SUB}};
    sp_node *left = parse_concat(p);
    for (uint8_t op; skip_operator(p, rows, 2, &op);) {
        left = make_binary(p, SP_N_BINARY, left, parse_concat(p));
        left->op = op;
    }
    return left;
}

static bool skip_comparison(sp_parse *p, uint8_t *op) {
    static const operator_row rows[] = {{SP_T_EQ, SP_OP_EQ}, {SP_T_NE, SP_OP_NE}, {SP_T_LT, SP_OP_LT},
                                        {SP_T_LE, SP_OP_LE}, {SP_T_GT, SP_OP_GT}, {SP_T_GE, SP_OP_GE}};
    if (skip_operator(p, rows, 6, op)) return true;
    const sp_token *next = sp_parse_peek(p, 1);
    if (sp_parse_skip_name(p, "in")) {
        *op = SP_OP_IN;
        return true;
    }
    if (!sp_parse_is_name(p, "not") || next->kind != SP_T_NAME || !sp_text_is(next->text, "in")) return false;
    sp_parse_next(p);
    sp_parse_next(p);
    *op = SP_OP_NOT_IN;
    return true;
}

static sp_node *parse_compare(sp_parse *p) {
    sp_node *first = parse_sum(p);
    sp_node_list list = {0};
    for (uint8_t op; skip_comparison(p, &op);) {
        sp_node *operand = sp_parse_node(p, SP_N_OPERAND, first->line);
        operand->op = op;
        operand->a = parse_sum(p);
        sp_parse_measure(p, operand);
        sp_node_list_add(p, &list, operand);
    }
    if (!list.n) return first;
    sp_node *node = sp_parse_node(p, SP_N_COMPARE, first->line);
    node->a = first;
    node->items = list.items;
    node->n_items = list.n;
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_not(sp_parse *p) {
    int line = sp_parse_peek(p, 0)->line;
    if (!sp_parse_skip_name(p, "not")) return parse_compare(p);
    sp_parse_enter(p);
    sp_node *node = sp_parse_node(p, SP_N_NOT, line);
    node->a = parse_not(p);
    sp_parse_measure(p, node);
    sp_parse_leave(p);
    return node;
}

static sp_node *parse_and(sp_parse *p) {
    sp_node *left = parse_not(p);
    while (sp_parse_skip_name(p, "and")) left = make_binary(p, SP_N_AND, left, parse_not(p));
    return left;
}

static sp_node *parse_or(sp_parse *p) {
    sp_node *left = parse_and(p);
    while (sp_parse_skip_name(p, "or")) left = make_binary(p, SP_N_OR, left, parse_and(p));
    return left;
}

static sp_node *parse_condition(sp_parse *p) {
    const sp_node *unknown = p->unknown;
    p->unknown = NULL;
    sp_node *value = parse_or(p);
    while (sp_parse_is_name(p, "if")) {
        p->unknown = NULL; /* only now it shows that this was a branch */
        sp_node *node = sp_parse_node(p, SP_N_COND, sp_parse_next(p)->line);
        bool soft = p->soft;
        p->soft = true;
        node->b = value;
        node->a = parse_or(p);
        if (sp_parse_skip_name(p, "else")) {
            sp_parse_enter(p);
            node->c = parse_condition(p);
            sp_parse_leave(p);
        }
        p->soft = soft;
        sp_parse_measure(p, node);
        value = node;
    }
    if (unknown) p->unknown = unknown;
    return value;
}

sp_node *sp_parse_expression(sp_parse *p, bool with_condition) {
    sp_parse_enter(p);
    sp_node *node = with_condition ? parse_condition(p) : parse_or(p);
    sp_parse_leave(p);
    return node;
}

static sp_node *make_constant(sp_parse *p, int line, sp_value value) {
    sp_node *node = sp_parse_node(p, SP_N_CONST, line);
    node->constant = value;
    return node;
}

/* Adjacent string literals are one. */
static sp_node *parse_string(sp_parse *p) {
    int line = sp_parse_peek(p, 0)->line;
    const sp_text *text = sp_parse_next(p)->text;
    while (sp_parse_is(p, SP_T_STRING)) {
        const sp_text *more = sp_parse_next(p)->text;
        char *data = sp_parse_alloc(p, text->n_bytes + more->n_bytes + 1, 1);
        memcpy(data, text->data, text->n_bytes);
        memcpy(data + text->n_bytes, more->data, more->n_bytes);
        text = sp_text_borrow(&p->tpl->arena, data, text->n_bytes + more->n_bytes);
    }
    return make_constant(p, line, sp_value_text(text));
}

static void note_special(sp_parse *p, int i_name) {
    if (i_name == p->tpl->i_varargs) p->catches |= SP_CATCH_VARARGS;
    if (i_name == p->tpl->i_kwargs) p->catches |= SP_CATCH_KWARGS;
    if (i_name == p->tpl->i_caller) p->catches |= SP_CATCH_CALLER;
}

static sp_node *parse_name(sp_parse *p, bool load, bool with_namespace) {
    static const struct {
        const char *word;
        sp_value value;
    } constants[] = {
        {"true", {.kind = SP_V_BOOL, .as.truth = true}},
        {"True", {.kind = SP_V_BOOL, .as.truth = true}},
        {"false", {.kind = SP_V_BOOL, .as.truth = false}},
        {"False", {.kind = SP_V_BOOL, .as.truth = false}},
        {"none", {.kind = SP_V_NONE}},
        {"None", {.kind = SP_V_NONE}},
    };
    const sp_token *token = sp_parse_next(p);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (sp_text_is(token->text, constants[i].word)) return make_constant(p, token->line, constants[i].value);
    sp_node *node = sp_parse_node(p, SP_N_NAME, token->line);
    node->text = token->text;
    if (with_namespace && sp_parse_skip(p, SP_T_DOT)) {
        node->kind = SP_N_NS_REF;
        node->text = sp_parse_expect(p, SP_T_NAME)->text;
        load = true;
    }
    node->i_name = sp_parse_intern(p, token->text, load);
    if (load) note_special(p, node->i_name);
    return node;
}

static sp_node *parse_list(sp_parse *p) {
    sp_node *node = sp_parse_node(p, SP_N_LIST, sp_parse_next(p)->line);
    sp_node_list list = {0};
    while (!sp_parse_is(p, SP_T_RBRACKET)) {
        if (list.n) sp_parse_expect(p, SP_T_COMMA);
        if (sp_parse_is(p, SP_T_RBRACKET)) break;
        sp_node_list_add(p, &list, sp_parse_expression(p, true));
    }
    sp_parse_expect(p, SP_T_RBRACKET);
    node->items = list.items;
    node->n_items = list.n;
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_dict(sp_parse *p) {
    sp_node *node = sp_parse_node(p, SP_N_DICT, sp_parse_next(p)->line);
    sp_node_list keys = {0}, values = {0};
    while (!sp_parse_is(p, SP_T_RBRACE)) {
        if (keys.n) sp_parse_expect(p, SP_T_COMMA);
        if (sp_parse_is(p, SP_T_RBRACE)) break;
        sp_node_list_add(p, &keys, sp_parse_expression(p, true));
        sp_parse_expect(p, SP_T_COLON);
        sp_node_list_add(p, &values, sp_parse_expression(p, true));
    }
    sp_parse_expect(p, SP_T_RBRACE);
    node->items = keys.items;
    node->n_items = keys.n;
    node->others = values.items;
    node->n_others = values.n;
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_primary(sp_parse *p, bool load, bool with_namespace) {
    const sp_token *token = sp_parse_peek(p, 0);
    switch (token->kind) {
        case SP_T_NAME:
            return parse_name(p, load, with_namespace);
        case SP_T_STRING:
            return parse_string(p);
        case SP_T_INTEGER:
        case SP_T_REAL:
            return make_constant(p, token->line, sp_parse_next(p)->number);
        case SP_T_LBRACKET:
            return parse_list(p);
        case SP_T_LBRACE:
            return parse_dict(p);
        case SP_T_LPAREN: {
            sp_parse_next(p);
            sp_node *node = sp_parse_tuple(p, true, NULL, true);
            sp_parse_expect(p, SP_T_RPAREN);
            return node;
        }
        default:
            sp_parse_unexpected(p, "an expression");
    }
}

/* A tuple's elements up to its end; `element` says how one is parsed. */
typedef enum { ELEMENT_CONDITION, ELEMENT_OR, ELEMENT_TARGET, ELEMENT_TARGET_NAMESPACE } element_kind;

static sp_node *parse_element(sp_parse *p, element_kind element) {
    if (element == ELEMENT_CONDITION || element == ELEMENT_OR)
        return sp_parse_expression(p, element == ELEMENT_CONDITION);
    sp_parse_enter(p);
    sp_node *node = parse_primary(p, false, element == ELEMENT_TARGET_NAMESPACE);
    sp_parse_leave(p);
    return node;
}

static sp_node *parse_elements(sp_parse *p, element_kind element, const char *until, bool parentheses) {
    sp_node_list list = {0};
    int line = sp_parse_peek(p, 0)->line;
    bool is_tuple = false;
    for (;;) {
        if (list.n) sp_parse_expect(p, SP_T_COMMA);
        sp_token_kind kind = sp_parse_peek(p, 0)->kind;
        if (kind == SP_T_VARIABLE_END || kind == SP_T_BLOCK_END || kind == SP_T_RPAREN) break;
        if (until && sp_parse_is_name(p, until)) break;
        sp_node_list_add(p, &list, parse_element(p, element));
        if (!sp_parse_is(p, SP_T_COMMA)) break;
        is_tuple = true;
    }
    if (!is_tuple && list.n) return list.items[0];
    if (!is_tuple && !parentheses) sp_parse_unexpected(p, "an expression");
    sp_node *node = sp_parse_node(p, SP_N_TUPLE, line);
    node->items = list.items;
    node->n_items = list.n;
    sp_parse_measure(p, node);
    return node;
}

sp_node *sp_parse_tuple(sp_parse *p, bool with_condition, const char *until, bool parentheses) {
    return parse_elements(p, with_condition ? ELEMENT_CONDITION : ELEMENT_OR, until, parentheses);
}

/* Turns an expression into a target: parentheses around a tuple of names are parsed as an expression. */
static void make_target(sp_parse *p, sp_node *node) {
    if (node->kind == SP_N_NAME || node->kind == SP_N_NS_REF) return;
    if (node->kind != SP_N_TUPLE) sp_parse_fail(p, node->line, "cannot assign to this expression");
    for (size_t i = 0; i < node->n_items; i++) make_target(p, node->items[i]);
}

sp_node *sp_parse_target(sp_parse *p, const char *until, bool with_namespace) {
    sp_node *node = parse_elements(p, with_namespace ? ELEMENT_TARGET_NAMESPACE : ELEMENT_TARGET, until, false);
    make_target(p, node);
    return node;
}

sp_node *sp_parse_name_target(sp_parse *p) {
    const sp_token *token = sp_parse_peek(p, 0);
    if (token->kind != SP_T_NAME) sp_parse_unexpected(p, "name");
    sp_node *node = parse_name(p, false, false);
    if (node->kind != SP_N_NAME) sp_parse_fail(p, token->line, "cannot assign to a constant");
    return node;
}

/* One argument of a call; false when it is misplaced. */
static bool parse_argument(sp_parse *p, sp_call *call, sp_node_list *args, sp_node_list *values) {
    if (sp_parse_skip(p, SP_T_MUL)) {
        if (call->star || call->star_star) return false;
        call->star = sp_parse_expression(p, true);
        return true;
    }
    if (call->star_star) return false;
    if (sp_parse_skip(p, SP_T_POW)) {
        call->star_star = sp_parse_expression(p, true);
        return true;
    }
    if (sp_parse_is(p, SP_T_NAME) && sp_parse_peek(p, 1)->kind == SP_T_ASSIGN) {
        const sp_text *name = sp_parse_next(p)->text;
        sp_parse_next(p);
        if (values->n % 8 == 0) {
            const sp_text **names = sp_parse_alloc(p, values->n + 8, sizeof(sp_text *));
            if (values->n) memcpy(names, call->names, values->n * sizeof(sp_text *));
            call->names = names;
        }
        for (size_t i = 0; i < values->n; i++)
            if (sp_text_eq(call->names[i], name)) return false;
        call->names[values->n] = name;
        sp_node_list_add(p, values, sp_parse_expression(p, true));
        return true;
    }
    if (call->star || values->n) return false;
    sp_node_list_add(p, args, sp_parse_expression(p, true));
    return true;
}

static sp_call *parse_arguments(sp_parse *p) {
    sp_call *call = sp_parse_alloc(p, 1, sizeof *call);
    sp_node_list args = {0}, values = {0};
    int line = sp_parse_expect(p, SP_T_LPAREN)->line;
    for (bool first = true; !sp_parse_is(p, SP_T_RPAREN); first = false) {
        if (!first) sp_parse_expect(p, SP_T_COMMA);
        if (sp_parse_is(p, SP_T_RPAREN)) break;
        if (!parse_argument(p, call, &args, &values)) sp_parse_fail(p, line, "invalid arguments of a call");
    }
    sp_parse_expect(p, SP_T_RPAREN);
    call->args = args.items;
    call->n_args = args.n;
    call->values = values.items;
    call->n_values = values.n;
    return call;
}

static sp_node *parse_call(sp_parse *p, sp_node *callee) {
    sp_node *node = sp_parse_node(p, SP_N_CALL, sp_parse_peek(p, 0)->line);
    node->a = callee;
    node->call = parse_arguments(p);
    sp_parse_measure(p, node);
    return node;
}

/* One subscript: an expression, or a slice. */
static sp_node *parse_subscript_part(sp_parse *p) {
    int line = sp_parse_peek(p, 0)->line;
    sp_node *start = sp_parse_is(p, SP_T_COLON) ? NULL : sp_parse_expression(p, true);
    if (!sp_parse_skip(p, SP_T_COLON)) return start;
    sp_node *node = sp_parse_node(p, SP_N_SLICE, line);
    node->a = start;
    sp_node **parts[] = {&node->b, &node->c};
    for (size_t i = 0; i < 2; i++) {
        if (i == 1 && !sp_parse_skip(p, SP_T_COLON)) break;
        if (sp_parse_is(p, SP_T_COLON) || sp_parse_is(p, SP_T_RBRACKET) || sp_parse_is(p, SP_T_COMMA)) continue;
        *parts[i] = sp_parse_expression(p, true);
    }
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_subscript(sp_parse *p, sp_node *obj) {
    const sp_token *token = sp_parse_next(p);
    sp_node *node = sp_parse_node(p, SP_N_ITEM, token->line);
    node->a = obj;
    if (token->kind == SP_T_DOT) {
        const sp_token *attribute = sp_parse_next(p);
        if (attribute->kind == SP_T_NAME) {
            node->kind = SP_N_ATTRIBUTE;
            node->text = attribute->text;
        } else if (attribute->kind == SP_T_INTEGER) {
            node->b = make_constant(p, attribute->line, attribute->number);
        } else {
            sp_parse_fail(p, attribute->line, "expected name or number");
        }
    } else {
        sp_node_list parts = {0};
        while (!sp_parse_is(p, SP_T_RBRACKET)) {
            if (parts.n) sp_parse_expect(p, SP_T_COMMA);
            sp_node_list_add(p, &parts, parse_subscript_part(p));
            if (parts.n > 1 && (parts.items[0]->kind == SP_N_SLICE || parts.items[parts.n - 1]->kind == SP_N_SLICE))
                sp_parse_fail(p, token->line, "a slice among several subscripts");
        }
        sp_parse_expect(p, SP_T_RBRACKET);
        if (parts.n == 1) {
            node->b = parts.items[0];
        } else {
            node->b = sp_parse_node(p, SP_N_TUPLE, token->line);
            node->b->items = parts.items;
            node->b->n_items = parts.n;
            sp_parse_measure(p, node->b);
        }
    }
    sp_parse_measure(p, node);
    return node;
}

static sp_node *parse_postfix(sp_parse *p, sp_node *node) {
    for (;;) {
        if (sp_parse_is(p, SP_T_DOT) || sp_parse_is(p, SP_T_LBRACKET))
            node = parse_subscript(p, node);
        else if (sp_parse_is(p, SP_T_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

/* The name of a filter or test, dots included. */
static const sp_text *parse_dotted(sp_parse *p) {
    const sp_text *name = sp_parse_expect(p, SP_T_NAME)->text;
    while (sp_parse_skip(p, SP_T_DOT)) {
        const sp_text *more = sp_parse_expect(p, SP_T_NAME)->text;
        size_t n_bytes = name->n_bytes + 1 + more->n_bytes;
        char *data = sp_parse_alloc(p, n_bytes + 1, 1);
        memcpy(data, name->data, name->n_bytes);
        data[name->n_bytes] = '.';
        memcpy(data + name->n_bytes + 1, more->data, more->n_bytes);
        name = sp_text_borrow(&p->tpl->arena, data, n_bytes);
    }
    return name;
}

static void resolve(sp_parse *p, sp_node *node) {
    node->callable = node->kind == SP_N_FILTER ? sp_filter_find(node->text) : sp_test_find(node->text);
    if (!node->callable && !p->soft) p->unknown = node;
}

sp_node *sp_parse_filter(sp_parse *p, sp_node *input, bool inline_start) {
    sp_node *node = input;
    while (inline_start || sp_parse_skip(p, SP_T_PIPE)) {
        inline_start = false;
        sp_node *filter = sp_parse_node(p, SP_N_FILTER, sp_parse_peek(p, 0)->line);
        filter->a = node;
        filter->text = parse_dotted(p);
        resolve(p, filter);
        if (sp_parse_is(p, SP_T_LPAREN)) filter->call = parse_arguments(p);
        sp_parse_measure(p, filter);
        node = filter;
    }
    return node;
}

/* An argument without parentheses may follow a test: "is divisibleby 3". */
static bool at_bare_argument(sp_parse *p) {
    switch (sp_parse_peek(p, 0)->kind) {
        case SP_T_STRING:
        case SP_T_INTEGER:
        case SP_T_REAL:
        case SP_T_LBRACKET:
        case SP_T_LBRACE:
            return true;
        case SP_T_NAME:
            if (sp_parse_is_name(p, "is"))
                sp_parse_fail(p, sp_parse_peek(p, 0)->line, "tests cannot be chained with 'is'");
            return !sp_parse_is_name(p, "else") && !sp_parse_is_name(p, "or") && !sp_parse_is_name(p, "and");
        default:
            return false;
    }
}

static sp_node *parse_test(sp_parse *p, sp_node *input) {
    int line = sp_parse_next(p)->line;
    bool negated = sp_parse_skip_name(p, "not");
    sp_node *node = sp_parse_node(p, SP_N_TEST, line);
    node->a = input;
    node->text = parse_dotted(p);
    resolve(p, node);
    if (sp_parse_is(p, SP_T_LPAREN)) {
        node->call = parse_arguments(p);
    } else if (at_bare_argument(p)) {
        sp_node_list args = {0};
        sp_parse_enter(p);
        sp_node_list_add(p, &args, parse_postfix(p, parse_primary(p, true, false)));
        sp_parse_leave(p);
        node->call = sp_parse_alloc(p, 1, sizeof *node->call);
        *node->call = (sp_call){.args = args.items, .n_args = args.n};
    }
    sp_parse_measure(p, node);
    if (!negated) return node;
    sp_node *not_node = sp_parse_node(p, SP_N_NOT, line);
    not_node->a = node;
    sp_parse_measure(p, not_node);
    return not_node;
}

static sp_node *parse_filters_and_tests(sp_parse *p, sp_node *node) {
    for (;;) {
        if (sp_parse_is(p, SP_T_PIPE))
            node = sp_parse_filter(p, node, false);
        else if (sp_parse_is_name(p, "is"))
            node = parse_test(p, node);
        else if (sp_parse_is(p, SP_T_LPAREN))
            node = parse_call(p, node);
        else
            return node;
    }
}

static sp_node *parse_unary(sp_parse *p, bool with_filter) {
    sp_node *node;
    int line = sp_parse_peek(p, 0)->line;
    if (sp_parse_is(p, SP_T_SUB) || sp_parse_is(p, SP_T_ADD)) {
        sp_parse_enter(p);
        bool minus = sp_parse_next(p)->kind == SP_T_SUB;
        node = sp_parse_node(p, minus ? SP_N_NEGATE : SP_N_POSITIVE, line);
        node->a = parse_unary(p, false);
        sp_parse_measure(p, node);
        sp_parse_leave(p);
    } else {
        node = parse_primary(p, true, false);
    }
    node = parse_postfix(p, node);
    return with_filter ? parse_filters_and_tests(p, node) : node;
}
