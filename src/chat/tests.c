/* The tests of "is": a table. */
#include "chat/render.h"

static bool leaves(sp_render *r, sp_value v, sp_value divisor, int64_t rest) {
    return sp_value_eq(r, sp_operate(r, SP_OP_MOD, v, divisor), sp_value_int(rest));
}
SP_NATIVE(is_odd) { return sp_value_bool(leaves(r, self, sp_value_int(2), 1)); }
SP_NATIVE(is_even) { return sp_value_bool(leaves(r, self, sp_value_int(2), 0)); }
SP_NATIVE(is_divisible) { return sp_value_bool(leaves(r, self, a[0], 0)); }
SP_NATIVE(is_defined) { return sp_value_bool(self.kind != SP_V_UNDEFINED); }
SP_NATIVE(is_undefined) { return sp_value_bool(self.kind == SP_V_UNDEFINED); }
SP_NATIVE(is_none) { return sp_value_bool(self.kind == SP_V_NONE); }
SP_NATIVE(is_boolean) { return sp_value_bool(self.kind == SP_V_BOOL); }
SP_NATIVE(is_true) { return sp_value_bool(self.kind == SP_V_BOOL && self.as.truth); }
SP_NATIVE(is_false) { return sp_value_bool(self.kind == SP_V_BOOL && !self.as.truth); }
SP_NATIVE(is_integer) { return sp_value_bool(self.kind == SP_V_INT); }
SP_NATIVE(is_real) { return sp_value_bool(self.kind == SP_V_REAL); }
SP_NATIVE(is_number) { return sp_value_bool(sp_value_is_number(self)); }
SP_NATIVE(is_string) { return sp_value_bool(self.kind == SP_V_TEXT); }
SP_NATIVE(is_mapping) { return sp_value_bool(self.kind == SP_V_DICT); }
SP_NATIVE(is_escaped) { return sp_value_bool(self.kind == SP_V_TEXT && self.as.text->markup); }
SP_NATIVE(is_iterable) { return sp_value_bool(sp_value_iterable(self) || self.kind == SP_V_LOOP); }
SP_NATIVE(is_in) { return sp_value_bool(sp_value_contains(r, a[0], self)); }

SP_NATIVE(is_lower) { return sp_call_text_method(r, self, "islower", NULL, 0); }
SP_NATIVE(is_upper) { return sp_call_text_method(r, self, "isupper", NULL, 0); }

SP_NATIVE(is_sequence) {
    size_t n;
    bool has_length = self.kind != SP_V_LOOP && self.kind != SP_V_VIEW && sp_value_length(r, self, &n);
    return sp_value_bool(has_length);
}

SP_NATIVE(is_callable) {
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

SP_NATIVE(is_same) {
    if (self.kind != a[0].kind) return sp_value_bool(false);
    if (self.kind == SP_V_NONE) return sp_value_bool(true);
    if (sp_value_is_number(self)) return sp_value_bool(sp_value_eq(r, self, a[0]));
    return sp_value_bool(self.as.object == a[0].as.object);
}

static sp_value known(sp_render *r, sp_value name, const sp_callable *(*find)(const sp_text *)) {
    if (!sp_value_hashable(name)) sp_render_fail(r, "unhashable type: '%s'", sp_value_type(name));
    return sp_value_bool(name.kind == SP_V_TEXT && find(name.as.text));
}
SP_NATIVE(is_filter) { return known(r, self, sp_filter_find); }
SP_NATIVE(is_test) { return known(r, self, sp_test_find); }

SP_NATIVE(is_eq) { return sp_operate(r, SP_OP_EQ, self, a[0]); }
SP_NATIVE(is_ne) { return sp_operate(r, SP_OP_NE, self, a[0]); }
SP_NATIVE(is_gt) { return sp_operate(r, SP_OP_GT, self, a[0]); }
SP_NATIVE(is_ge) { return sp_operate(r, SP_OP_GE, self, a[0]); }
SP_NATIVE(is_lt) { return sp_operate(r, SP_OP_LT, self, a[0]); }
SP_NATIVE(is_le) { return sp_operate(r, SP_OP_LE, self, a[0]); }

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
