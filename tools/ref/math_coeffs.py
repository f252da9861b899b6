#!/usr/bin/env python3
"""Coefficients of src/kernels/math.h: minimax polynomials by Remez exchange, rounded one by one.

A coefficient that is stored in fp32 (or double) is rounded, and the later ones are fitted again around it, so that the
rounding of the large low-order coefficients is made up for by the small ones. Needs mpmath. Prints the C macros and,
after each list, the largest error of the exact polynomial with the rounded coefficients (the evaluation's own rounding
comes on top: tests/kernels/check_vector.c --exhaustive measures that).
"""
import struct

from mpmath import mp, mpf, matrix, lu_solve, exp, log, tanh, sin, cos, sqrt, pi, atanh, floor, nint

mp.prec = 200
N_GRID = 2000


def to_f32(x):
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def to_f64(x):
    return mpf(float(x))


def chebyshev(low, high, n):
    return [(low + high) / 2 - (high - low) / 2 * cos(pi * i / (n - 1)) for i in range(n)]


def remez(target, weight, basis, low, high, rounds=8):
    """c minimising max |weight(x) (target(x) - sum c_i basis_i(x))| on [low, high], and that maximum."""
    n = len(basis)
    if n == 0:
        return [], max(abs(weight(x) * target(x)) for x in chebyshev(low, high, N_GRID))
    nodes = chebyshev(low, high, n + 1)
    grid = chebyshev(low, high, N_GRID)
    samples = [(weight(x), target(x), [b(x) for b in basis]) for x in grid]
    for _ in range(rounds):
        system, right = matrix(n + 1, n + 1), matrix(n + 1, 1)
        for i, x in enumerate(nodes):
            for j, b in enumerate(basis):
                system[i, j] = b(x)
            system[i, n] = mpf((-1) ** i) / weight(x)
            right[i] = target(x)
        solution = lu_solve(system, right)
        c = [solution[i] for i in range(n)]
        errors = [w * (t - sum(ci * bi for ci, bi in zip(c, b))) for w, t, b in samples]
        peaks = [0]  # the largest error of each run of one sign
        for i in range(1, N_GRID):
            if errors[i] * errors[peaks[-1]] < 0:
                peaks.append(i)
            elif abs(errors[i]) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        while len(peaks) > n + 1:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        if len(peaks) < n + 1:
            break
        nodes = [grid[i] for i in peaks]
    return c, max(abs(e) for e in errors)


def fit(target, weight, basis, low, high, rounding):
    fixed = []
    for i in range(len(basis)):
        rest = lambda x: target(x) - sum(c * b(x) for c, b in zip(fixed, basis))
        c, _ = remez(rest, weight, basis[i:], low, high)
        fixed.append(rounding(c[0]))
    rest = lambda x: target(x) - sum(c * b(x) for c, b in zip(fixed, basis))
    return fixed, max(abs(weight(x) * rest(x)) for x in chebyshev(low, high, N_GRID))


def powers(first, step, n):
    return [(lambda x, p=first + step * i: x ** p) for i in range(n)]


def hex_of(x):
    text = float(x).hex()
    head, exponent = text.split("p")
    head = head.rstrip("0") if "." in head else head
    return (head + "0" if head.endswith(".") else head) + "p" + exponent


def show(name, values, error, what, suffix):
    for i, value in enumerate(values):
        print(f"#define SP_{name}_{i} {hex_of(value)}{suffix}")
    print(f"/* {what}: at most 2^{float(log(error, 2)):.1f} */\n")


def split(value, bits, n_parts):
    """value as a sum of n_parts numbers of `bits` bits each, the last one rounded to double."""
    parts = []
    for _ in range(n_parts - 1):
        shift = bits - 1 - int(floor(log(abs(value), 2)))
        part = nint(value * mpf(2) ** shift) / mpf(2) ** shift
        parts.append(part)
        value -= part
    return parts + [to_f64(value)]


def main():
    tiny = mpf(2) ** -60
    half_ln2 = log(2) / 2 * mpf("1.0001")

    c, e = fit(lambda r: exp(r) - 1 - r, lambda r: exp(-r), powers(2, 1, 5), -half_ln2, half_ln2, to_f32)
    show("EXP_C", c, e, "exp(r) = 1 + r + r^2 (c0 + c1 r + ..), |r| <= ln2/2, relative error", "f")
    hi = nint(log(2) * mpf(2) ** 15) / mpf(2) ** 15
    print(f"#define SP_LN2_HI {hex_of(hi)}f\n#define SP_LN2_LO {hex_of(to_f32(log(2) - hi))}f\n")

    # fitted divided by f, which changes sign inside; the interval is lopsided so that no node is 0
    c, e = fit(lambda f: (2 ** f - 1) / f, lambda f: abs(f) * 2 ** -f, powers(0, 1, 5), -mpf("0.5001"), mpf("0.5002"), to_f32)
    show("EXP2_C", c, e, "2^f = 1 + f (c0 + c1 f + ..), |f| <= 1/2, relative error", "f")

    c, e = fit(lambda x: tanh(x) - x, lambda x: 1 / tanh(x), powers(3, 2, 5), tiny, mpf("0.625"), to_f32)
    show("TANH_C", c, e, "tanh(x) = x + x^3 (c0 + c1 x^2 + ..), |x| <= 0.625, relative error", "f")

    s_max = (sqrt(2) - 1) / (sqrt(2) + 1) * mpf("1.0001")
    c, e = fit(lambda s: 2 * atanh(s), lambda s: 1 / (2 * atanh(s)), powers(1, 2, 7), tiny, s_max, to_f64)
    show("LOG_C", c, e, "log((1 + s) / (1 - s)) = s (c0 + c1 s^2 + ..), relative error", "")
    print(f"#define SP_LN2 {hex_of(to_f64(log(2)))}\n")

    quarter = pi / 4 * mpf("1.0001")
    c, e = fit(lambda x: sin(x) - x, lambda x: 1 / sin(x), powers(3, 2, 5), tiny, quarter, to_f64)
    show("SIN_C", c, e, "sin(x) = x + x^3 (c0 + c1 x^2 + ..), |x| <= pi/4, relative error", "")
    c, e = fit(lambda x: cos(x) - 1, lambda x: mpf(1), powers(2, 2, 5), mpf(0), quarter, to_f64)
    show("COS_C", c, e, "cos(x) = 1 + x^2 (c0 + c1 x^2 + ..), |x| <= pi/4, absolute error", "")
    for i, part in enumerate(split(pi / 2, 26, 3)):
        print(f"#define SP_HALF_PI_{i} {hex_of(part)}")
    print(f"#define SP_TWO_OVER_PI {hex_of(to_f64(2 / pi))}")


if __name__ == "__main__":
    main()
