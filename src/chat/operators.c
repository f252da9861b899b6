/* Arithmetic and comparison, with Python's rules for each pair of types. Integers have 64 bits: a result that Python
 * would hold in more is an error. */
#include <math.h>
#include <string.h>

#include "chat/render.h"
#include "util/size.h"

static const char *const symbols[] = {
    [SP_OP_ADD] = "+",       [SP_OP_SUB] = "-", [SP_OP_MUL] = "*",           [SP_OP_DIV] = "/",
    [SP_OP_FLOORDIV] = "//", [SP_OP_MOD] = "%", [SP_OP_POW] = "** or pow()", [SP_OP_GT] = ">",
    [SP_OP_GE] = ">=",       [SP_OP_LT] = "<",  [SP_OP_LE] = "<=",
};

static sp_value overflow(sp_render *r) { sp_render_fail(r, "an integer beyond 64 bits"); }

static sp_value power(sp_render *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    while (exponent > 0) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return overflow(r);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base)) return overflow(r);
    }
    return sp_value_int(result);
}

static sp_value operate_ints(sp_render *r, sp_operator op, int64_t a, int64_t b) {
    int64_t out;
    if ((op == SP_OP_FLOORDIV || op == SP_OP_MOD) && a == INT64_MIN && b == -1) return overflow(r);
    switch (op) {
        case SP_OP_ADD:
            return __builtin_add_overflow(a, b, &out) ? overflow(r) : sp_value_int(out);
        case SP_OP_SUB:
            return __builtin_sub_overflow(a, b, &out) ? overflow(r) : sp_value_int(out);
        case SP_OP_MUL:
            return __builtin_mul_overflow(a, b, &out) ? overflow(r) : sp_value_int(out);
        case SP_OP_DIV:
            return sp_value_real((double)a / (double)b);
        case SP_OP_FLOORDIV:
            return sp_value_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
        case SP_OP_MOD:
            return sp_value_int(a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b);
        default:
            return b >= 0 ? power(r, a, b) : sp_value_real(pow((double)a, (double)b));
    }
}

static double floor_mod(double a, double b) {
    double mod = fmod(a, b);
    if (mod == 0) return copysign(0, b);
    return (b < 0) != (mod < 0) ? mod + b : mod;
}

static double floor_divide(double a, double b) {
    double mod = fmod(a, b);
    double quotient = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0, a / b);
    double down = floor(quotient);
    return quotient - down > 0.5 ? down + 1 : down;
}

static sp_value operate_reals(sp_render *r, sp_operator op, double a, double b) {
    double out;
    switch (op) {
        case SP_OP_ADD:
            return sp_value_real(a + b);
        case SP_OP_SUB:
            return sp_value_real(a - b);
        case SP_OP_MUL:
            return sp_value_real(a * b);
        case SP_OP_DIV:
            return sp_value_real(a / b);
        case SP_OP_FLOORDIV:
            return sp_value_real(floor_divide(a, b));
        case SP_OP_MOD:
            return sp_value_real(floor_mod(a, b));
        default:
            out = pow(a, b);
            if (isnan(out) && !isnan(a) && !isnan(b)) sp_render_fail(r, "a power that is a complex number");
            if (isinf(out) && isfinite(a) && isfinite(b)) sp_render_fail(r, "the result of a power is too large");
            return sp_value_real(out);
    }
}

static sp_value operate_numbers(sp_render *r, sp_operator op, sp_value a, sp_value b) {
    bool real = a.kind == SP_V_REAL || b.kind == SP_V_REAL;
    bool divides = op == SP_OP_DIV || op == SP_OP_FLOORDIV || op == SP_OP_MOD;
    if (divides && sp_value_as_real(b) == 0) sp_render_fail(r, "division by zero");
    if (op == SP_OP_POW && sp_value_as_real(a) == 0 && sp_value_as_real(b) < 0)
        sp_render_fail(r, "zero to a negative power");
    if (real) return operate_reals(r, op, sp_value_as_real(a), sp_value_as_real(b));
    return operate_ints(r, op, sp_value_as_int(a), sp_value_as_int(b));
}

static sp_value concat_seqs(sp_render *r, sp_value a, sp_value b) {
    const sp_seq *x = a.as.seq, *y = b.as.seq;
    sp_value out = a.kind == SP_V_LIST ? sp_value_list(r, x->n + y->n) : sp_value_tuple(r, x->n + y->n);
    sp_render_charge(r, x->n + y->n);
    if (x->n) memcpy(sp_value_items(out), x->items, x->n * sizeof *x->items);
    if (y->n) memcpy(sp_value_items(out) + x->n, y->items, y->n * sizeof *y->items);
    return out;
}

static sp_value concat_texts(sp_render *r, const sp_text *a, const sp_text *b) {
    if (a->markup == b->markup) return sp_value_text(sp_text_concat(r, a, b));
    sp_sink sink = {.r = r};
    sp_sink_escape(&sink, sp_value_text(a));
    sp_sink_escape(&sink, sp_value_text(b));
    sp_text *joined = SP_RENDER_NEW(r, sp_text);
    *joined = *sp_sink_finish(&sink);
    joined->markup = true;
    return sp_value_text(joined);
}

static sp_value repeat(sp_render *r, sp_value v, int64_t times) {
    size_t n_times = times > 0 ? (size_t)times : 0;
    if (v.kind == SP_V_TEXT) {
        sp_sink sink = {.r = r};
        const sp_text *text = v.as.text;
        if (!text->n_user) {
            sp_sink_repeat(&sink, text->data, text->n_bytes, n_times);
        } else {
            for (size_t i = 0; i < n_times; i++) sp_sink_text(&sink, text);
        }
        return sp_sink_value(&sink);
    }
    const sp_seq *seq = v.as.seq;
    size_t n = 0;
    if (!sp_mul_size(seq->n, n_times, &n) || n > r->limit_bytes) sp_render_claim(r, r->limit_bytes);
    sp_value out = v.kind == SP_V_LIST ? sp_value_list(r, n) : sp_value_tuple(r, n);
    sp_render_charge(r, n);
    for (size_t i = 0; i < n; i++) sp_value_items(out)[i] = seq->items[i % seq->n];
    return out;
}

static bool repeatable(sp_value v) { return v.kind == SP_V_TEXT || sp_value_is_seq(v); }

static sp_value compute(sp_render *r, sp_operator op, sp_value a, sp_value b) {
    if (sp_value_is_number(a) && sp_value_is_number(b)) return operate_numbers(r, op, a, b);
    if (op == SP_OP_MOD && a.kind == SP_V_TEXT) return sp_value_text(sp_format_percent(r, a.as.text, b));
    if (a.kind == SP_V_UNDEFINED) sp_undefined_fail(r, a);
    if (b.kind == SP_V_UNDEFINED) sp_undefined_fail(r, b);
    if (op == SP_OP_ADD && a.kind == b.kind) {
        if (a.kind == SP_V_TEXT) return concat_texts(r, a.as.text, b.as.text);
        if (sp_value_is_seq(a)) return concat_seqs(r, a, b);
    }
    if (op == SP_OP_MUL && repeatable(a) && sp_value_is_int(b)) return repeat(r, a, sp_value_as_int(b));
    if (op == SP_OP_MUL && repeatable(b) && sp_value_is_int(a)) return repeat(r, b, sp_value_as_int(a));
    if (op == SP_OP_ADD && repeatable(a))
        sp_render_fail(r, "can only concatenate %s (not \"%s\") to %s", sp_value_type(a), sp_value_type(b),
                       sp_value_type(a));
    sp_render_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op], sp_value_type(a),
                   sp_value_type(b));
}

sp_value sp_operate(sp_render *r, sp_operator op, sp_value a, sp_value b) {
    switch (op) {
        case SP_OP_EQ:
            return sp_value_bool(sp_value_eq(r, a, b));
        case SP_OP_NE:
            return sp_value_bool(!sp_value_eq(r, a, b));
        case SP_OP_GT:
            return sp_value_bool(sp_value_compare(r, a, b, ">") > 0);
        case SP_OP_GE:
            return sp_value_bool(sp_value_compare(r, a, b, ">=") >= 0);
        case SP_OP_LT:
            return sp_value_bool(sp_value_compare(r, a, b, "<") < 0);
        case SP_OP_LE:
            return sp_value_bool(sp_value_compare(r, a, b, "<=") <= 0);
        case SP_OP_IN:
            return sp_value_bool(sp_value_contains(r, b, a));
        case SP_OP_NOT_IN:
            return sp_value_bool(!sp_value_contains(r, b, a));
        default:
            return compute(r, op, a, b);
    }
}

sp_value sp_negate(sp_render *r, sp_value v, bool minus) {
    if (v.kind == SP_V_UNDEFINED) sp_undefined_fail(r, v);
    if (v.kind == SP_V_REAL) return sp_value_real(minus ? -v.as.real : v.as.real);
    if (!sp_value_is_int(v))
        sp_render_fail(r, "bad operand type for unary %s: '%s'", minus ? "-" : "+", sp_value_type(v));
    if (!minus) return sp_value_int(sp_value_as_int(v));
    return operate_ints(r, SP_OP_SUB, 0, sp_value_as_int(v));
}
