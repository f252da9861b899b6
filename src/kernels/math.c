/* exp, log, tanh, sin and cos of one number, our own so that no result depends on the C library.
 *
 * exp and tanh are the vector code's formulas (cpu/vector.inc.c) on one lane, the same operations in the same order.
 * log, sin and cos, needed once a row or once a pass, are computed in double and rounded once.
 *
 * Errors measured by check_vector --exhaustive: over all floats exp 1.013 ulp, tanh 1.332 ulp, log 0.5000 ulp
 * (correctly rounded but for near ties); sin and cos 0.5000 ulp for |x| < 2^25, then 6.6e-8 absolute to 2^30, 4.3e-5 to
 * 2^40. */
#include "kernels/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/ops.h"

float sp_exp(float x) {
    if (x < SP_EXP_ZERO) return 0.0f;
    if (!(x < SP_EXP_INF)) return x + INFINITY;
    float t = fmaf(x, SP_LOG2_E, SP_ROUND_MAGIC);
    float n = t - SP_ROUND_MAGIC;
    float r = fmaf(-n, SP_LN2_LO, fmaf(-n, SP_LN2_HI, x));
    float q = fmaf(SP_EXP_C_4, r, SP_EXP_C_3);
    q = fmaf(q, r, SP_EXP_C_2);
    q = fmaf(q, r, SP_EXP_C_1);
    q = fmaf(q, r, SP_EXP_C_0);
    float p = 1.0f + fmaf(r * r, q, r);
    uint32_t p_bits, t_bits;
    memcpy(&p_bits, &p, sizeof p);
    memcpy(&t_bits, &t, sizeof t);
    p_bits += t_bits << 23;
    memcpy(&p, &p_bits, sizeof p);
    return p;
}

float sp_tanh(float x) {
    float a = fabsf(x);
    if (a < SP_TANH_SPLIT) {
        float x2 = x * x;
        float q = fmaf(SP_TANH_C_4, x2, SP_TANH_C_3);
        q = fmaf(q, x2, SP_TANH_C_2);
        q = fmaf(q, x2, SP_TANH_C_1);
        q = fmaf(q, x2, SP_TANH_C_0);
        return fmaf(x * x2, q, x);
    }
    return copysignf(1.0f - 2.0f / (sp_exp(a + a) + 1.0f), x);
}

/* x = 2^e m, m in [sqrt(1/2), sqrt(2)): log x = e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1). Denormal x counts as 0. */
float sp_log(float x) {
    if (!(x > 0.0f)) return x == 0.0f ? -INFINITY : NAN;
    if (isinf(x)) return x;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (bits < 0x00800000u) return -INFINITY;
    enum { SQRT_HALF_BITS = 0x3f3504f3 };
    int32_t e = (int32_t)(bits - SQRT_HALF_BITS) >> 23;
    bits -= (uint32_t)e << 23;
    float m;
    memcpy(&m, &bits, sizeof m);
    double s = ((double)m - 1.0) / ((double)m + 1.0), z = s * s;
    double p = SP_LOG_C_6;
    p = p * z + SP_LOG_C_5;
    p = p * z + SP_LOG_C_4;
    p = p * z + SP_LOG_C_3;
    p = p * z + SP_LOG_C_2;
    p = p * z + SP_LOG_C_1;
    p = p * z + SP_LOG_C_0;
    return (float)((double)e * SP_LN2 + s * p);
}

/* r = x - n pi/2, exact to about 2^-53 for |x| < 2^27 since n times each part of pi/2 is exact; then by quadrant. */
void sp_sincos(float x, float *sin_x, float *cos_x) {
    const double reach = 0x1p27, two_pi = 4.0 * (SP_HALF_PI_0 + SP_HALF_PI_1);
    double angle = (double)x;
    if (!(fabs(angle) < reach))
        angle = fmod(angle, two_pi); /* past the reach: some digits are lost, NaN for infinity */
    double n = angle * SP_TWO_OVER_PI;
    n = n < 0.0 ? n - 0.5 : n + 0.5;
    int32_t quadrant = n == n ? (int32_t)n : 0;
    n = (double)quadrant;
    double r = ((angle - n * SP_HALF_PI_0) - n * SP_HALF_PI_1) - n * SP_HALF_PI_2, z = r * r;
    double p = SP_SIN_C_4;
    p = p * z + SP_SIN_C_3;
    p = p * z + SP_SIN_C_2;
    p = p * z + SP_SIN_C_1;
    p = p * z + SP_SIN_C_0;
    double s = r + r * z * p;
    p = SP_COS_C_4;
    p = p * z + SP_COS_C_3;
    p = p * z + SP_COS_C_2;
    p = p * z + SP_COS_C_1;
    p = p * z + SP_COS_C_0;
    double c = 1.0 + z * p;
    double swap = quadrant & 1 ? c : s;
    *cos_x = (float)(((quadrant + 1) & 2) ? -(quadrant & 1 ? s : c) : (quadrant & 1 ? s : c));
    *sin_x = (float)((quadrant & 2) ? -swap : swap);
}
