/* The tests of "is": a table. */
#include "chat/render.h"

#define TEST(name) static sp_value name(sp_render *r, sp_value self, const sp_value *a, const sp_args *raw)
#define UNUSED (void)r, (void)self, (void)a, (void)raw

static bool leaves(sp_render *r, sp_value v, sp_value divisor, int64_t rest) {
    return sp_value_eq(r, sp_operate(r, SP_OP_MOD, v, divisor), sp_value_int(rest));
}
TEST(is_odd) { return UNUSED, sp_value_bool(leaves(r, self, sp_value_int(2), 1)); }
TEST(is_even) { return UNUSED, sp_value_bool(leaves(r, self, sp_value_int(2), 0)); }
TEST(is_divisible) { return UNUSED, sp_value_bool(leaves(r, self, a[0], 0)); }
TEST(is_defined) { return UNUSED, sp_value_bool(self.kind != SP_V_UNDEFINED); }
TEST(is_undefined) { return UNUSED, sp_value_bool(self.kind == SP_V_UNDEFINED); }
TEST(is_none) { return UNUSED, sp_value_bool(self.kind == SP_V_NONE); }
TEST(is_boolean) { return UNUSED, sp_value_bool(self.kind == SP_V_BOOL); }
TEST(is_true) { return UNUSED, sp_value_bool(self.kind == SP_V_BOOL && self.as.truth); }
TEST(is_false) { return UNUSED, sp_value_bool(self.kind == SP_V_BOOL && !self.as.truth); }
TEST(is_integer) { return UNUSED, sp_value_bool(self.kind == SP_V_INT); }
TEST(is_real) { return UNUSED, sp_value_bool(self.kind == SP_V_REAL); }
TEST(is_number) { return UNUSED, sp_value_bool(sp_value_is_number(self)); }
TEST(is_string) { return UNUSED, sp_value_bool(self.kind == SP_V_TEXT); }
TEST(is_mapping) { return UNUSED, sp_value_bool(self.kind == SP_V_DICT); }
TEST(is_escaped) { return UNUSED, sp_value_bool(self.kind == SP_V_TEXT && self.as.text->markup); }
TEST(is_iterable) { return UNUSED, sp_value_bool(sp_value_iterable(self) || self.kind == SP_V_LOOP); }
TEST(is_in) { return UNUSED, sp_value_bool(sp_value_contains(r, a[0], self)); }

static sp_value in_case(sp_render *r, sp_value self, const char *method) {
    sp_value text = sp_value_text(sp_value_str(r, self));
    sp_text name = {.data = method, .n_bytes = 7};
    return sp_call_native(r, sp_method_find(text, &name), text, &(sp_args){0});
}
TEST(is_lower) { return UNUSED, in_case(r, self, "islower"); }
TEST(is_upper) { return UNUSED, in_case(r, self, "isupper"); }

TEST(is_sequence) {
    UNUSED;
    size_t n;
    bool has_length = self.kind != SP_V_LOOP && self.kind != SP_V_VIEW && sp_value_length(r, self, &n);
    return sp_value_bool(has_length);
}

TEST(is_callable) {
    UNUSED;
    switch (self.kind) {
        case SP_V_UNDEFINED:
        case SP_V_LOOP:
        case SP_V_MACRO:
        case SP_V_METHOD:
        case SP_V_FUNCTION:
        case SP_V_JOINER:
            return sp_value_bool(true);
        default:
            return sp_value_bool(false);
    }
}

TEST(is_same) {
    UNUSED;
    if (self.kind != a[0].kind) return sp_value_bool(false);
    if (self.kind == SP_V_NONE) return sp_value_bool(true);
    if (sp_value_is_number(self)) return sp_value_bool(sp_value_eq(r, self, a[0]));
    return sp_value_bool(self.as.object == a[0].as.object);
}

static sp_value known(sp_render *r, sp_value name, const sp_callable *(*find)(const sp_text *)) {
    if (!sp_value_hashable(name)) sp_render_fail(r, "unhashable type: '%s'", sp_value_type(name));
    return sp_value_bool(name.kind == SP_V_TEXT && find(name.as.text));
}
TEST(is_filter) { return UNUSED, known(r, self, sp_filter_find); }
TEST(is_test) { return UNUSED, known(r, self, sp_test_find); }

TEST(is_eq) { return UNUSED, sp_operate(r, SP_OP_EQ, self, a[0]); }
TEST(is_ne) { return UNUSED, sp_operate(r, SP_OP_NE, self, a[0]); }
TEST(is_gt) { return UNUSED, sp_operate(r, SP_OP_GT, self, a[0]); }
TEST(is_ge) { return UNUSED, sp_operate(r, SP_OP_GE, self, a[0]); }
TEST(is_lt) { return UNUSED, sp_operate(r, SP_OP_LT, self, a[0]); }
TEST(is_le) { return UNUSED, sp_operate(r, SP_OP_LE, self, a[0]); }

static const sp_callable tests[] = {
    {"odd", is_odd, 0, 0, {0}},
    {"even", is_even, 0, 0, {0}},
    {"divisibleby", is_divisible, 1, 1, {"num"}},
    {"defined", is_defined, 0, 0, {0}},
    {"undefined", is_undefined, 0, 0, {0}},
    {"filter", is_filter, 0, 0, {0}},
    {"test", is_test, 0, 0, {0}},
    {"none", is_none, 0, 0, {0}},
    {"boolean", is_boolean, 0, 0, {0}},
    {"false", is_false, 0, 0, {0}},
    {"true", is_true, 0, 0, {0}},
    {"integer", is_integer, 0, 0, {0}},
    {"float", is_real, 0, 0, {0}},
    {"lower", is_lower, 0, 0, {0}},
    {"upper", is_upper, 0, 0, {0}},
    {"string", is_string, 0, 0, {0}},
    {"mapping", is_mapping, 0, 0, {0}},
    {"number", is_number, 0, 0, {0}},
    {"sequence", is_sequence, 0, 0, {0}},
    {"iterable", is_iterable, 0, 0, {0}},
    {"callable", is_callable, 0, 0, {0}},
    {"sameas", is_same, 1, 1, {"other"}},
    {"escaped", is_escaped, 0, 0, {0}},
    {"in", is_in, 1, 1, {"seq"}},
    {"==", is_eq, 1, 1, {""}},
    {"eq", is_eq, 1, 1, {""}},
    {"equalto", is_eq, 1, 1, {""}},
    {"!=", is_ne, 1, 1, {""}},
    {"ne", is_ne, 1, 1, {""}},
    {">", is_gt, 1, 1, {""}},
    {"gt", is_gt, 1, 1, {""}},
    {"greaterthan", is_gt, 1, 1, {""}},
    {">=", is_ge, 1, 1, {""}},
    {"ge", is_ge, 1, 1, {""}},
    {"<", is_lt, 1, 1, {""}},
    {"lt", is_lt, 1, 1, {""}},
    {"lessthan", is_lt, 1, 1, {""}},
    {"<=", is_le, 1, 1, {""}},
    {"le", is_le, 1, 1, {""}},
};

const sp_callable *sp_test_find(const sp_text *name) {
    return sp_callable_find(tests, sizeof tests / sizeof *tests, name);
}
