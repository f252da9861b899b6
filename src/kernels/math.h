/* Constants of our own exp, log, tanh, sin and cos, made by tools/ref/math_coeffs.py. math.c (one number) and
 * cpu/vector.inc.c (16 lanes) evaluate the same formulas with them, operation by operation, so their bits agree. The
 * error given with each list is that of the polynomial; what the functions reach is said in math.c. */
#ifndef SPILL_KERNELS_MATH_H
#define SPILL_KERNELS_MATH_H

/* exp(x) = 2^n exp(r), n = x / ln 2 rounded to an integer by adding 1.5 * 2^23, whose low mantissa bits then hold n.
 * exp(r) = 1 + r + r^2 (c0 + c1 r + ..), |r| <= ln2/2, relative error at most 2^-28.2 */
#define SP_LOG2_E 0x1.715476p+0f
#define SP_ROUND_MAGIC 0x1.8p+23f
#define SP_LN2_HI 0x1.62e4p-1f
#define SP_LN2_LO 0x1.7f7d1cp-20f
#define SP_EXP_C_0 0x1.fffffcp-2f
#define SP_EXP_C_1 0x1.55548cp-3f
#define SP_EXP_C_2 0x1.555858p-5f
#define SP_EXP_C_3 0x1.123dep-7f
#define SP_EXP_C_4 0x1.6ac74cp-10f
#define SP_EXP_INF 0x1.62e43p+6f    /* the least x whose exp is past FLT_MAX: infinity from here on */
#define SP_EXP_ZERO -0x1.5d589ep+6f /* the least x whose exp is a normal number: zero below */

/* 2^f = 1 + f (c0 + c1 f + ..), |f| <= 1/2, relative error at most 2^-23.3: attention's weights, which are at most 1 */
#define SP_EXP2_C_0 0x1.62e42ap-1f
#define SP_EXP2_C_1 0x1.ebf9a2p-3f
#define SP_EXP2_C_2 0x1.c6b58ep-5f
#define SP_EXP2_C_3 0x1.3cf4d6p-7f
#define SP_EXP2_C_4 0x1.5cc5ap-10f
#define SP_EXP2_ZERO -126.0f /* zero from here down */

/* tanh(x) = x + x^3 (c0 + c1 x^2 + ..), |x| < 0.625, relative error at most 2^-27.7; past it 1 - 2 / (exp(2|x|) + 1) */
#define SP_TANH_SPLIT 0.625f
#define SP_TANH_C_0 -0x1.555532p-2f
#define SP_TANH_C_1 0x1.1106f6p-3f
#define SP_TANH_C_2 -0x1.b835a4p-5f
#define SP_TANH_C_3 0x1.51f8cep-6f
#define SP_TANH_C_4 -0x1.750ce4p-8f

/* gelu_tanh(g) = 0.5 g (1 + tanh(u)) = g / (1 + exp(-2u)), u = sqrt(2/pi) (g + 0.044715 g^3): -2u = g (c0 + c1 g^2) */
#define SP_GELU_C_0 -1.5957691216057308f
#define SP_GELU_C_1 -0.07135481282556505f

/* In double: log((1 + s) / (1 - s)) = s (c0 + c1 s^2 + ..), relative error at most 2^-52 */
#define SP_LN2 0x1.62e42fefa39efp-1
#define SP_LOG_C_0 0x1.0000000000001p+1
#define SP_LOG_C_1 0x1.5555555552344p-1
#define SP_LOG_C_2 0x1.999999a661c56p-2
#define SP_LOG_C_3 0x1.24923f5d11d43p-2
#define SP_LOG_C_4 0x1.c7238e8eb0acbp-3
#define SP_LOG_C_5 0x1.730a7e6d74fp-3
#define SP_LOG_C_6 0x1.5a0050f2ee783p-3

/* In double, |x| <= pi/4: sin(x) = x + x^3 (c0 + c1 x^2 + ..), relative error at most 2^-47.5;
 * cos(x) = 1 + x^2 (c0 + c1 x^2 + ..), absolute error at most 2^-43.2. pi/2 in parts of 26 bits: n * part is exact in
 * double for n < 2^27. */
#define SP_TWO_OVER_PI 0x1.45f306dc9c883p-1
#define SP_HALF_PI_0 0x1.921fb58p+0
#define SP_HALF_PI_1 -0x1.dde974p-27
#define SP_HALF_PI_2 0x1.1a62633145c07p-54
#define SP_SIN_C_0 -0x1.555555555222cp-3
#define SP_SIN_C_1 0x1.1111110c86446p-7
#define SP_SIN_C_2 -0x1.a019f9381dacbp-13
#define SP_SIN_C_3 0x1.71d76c640cae3p-19
#define SP_SIN_C_4 -0x1.a9615ff08ef3ep-26
#define SP_COS_C_0 -0x1.ffffffffffb08p-2
#define SP_COS_C_1 0x1.5555554f2a27p-5
#define SP_COS_C_2 -0x1.6c16b883c9206p-10
#define SP_COS_C_3 0x1.a011165b1daf5p-16
#define SP_COS_C_4 -0x1.24293e6370f0fp-22

#endif
