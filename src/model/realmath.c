/* log by the series of atanh, exp by the Taylor series of the reduced argument. */
#include "model/realmath.h"

#include <math.h>

/* ln 2 in two parts: the first has 21 trailing zero bits, so its product with an exponent is exact. */
static const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
static const double ln2_inverse = 0x1.71547652b82fep+0;

double sp_real_log(double x) {
    int exponent = 0;
    double m = frexp(x, &exponent); /* exact: [0.5, 1) */
    if (m < 0x1.6a09e667f3bcdp-1) { /* sqrt(1/2): keeps |s| <= 0.1716 */
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * s2; /* s2^11 / 23 < 1e-18: more terms change nothing */
    return exponent * ln2_high + (exponent * ln2_low + (2 * s + 2 * s * sum));
}

double sp_real_exp(double x) {
    double n = floor(x * ln2_inverse + 0.5);
    double r = (x - n * ln2_high) - n * ln2_low; /* |r| <= 0.347 */
    double sum = 1;
    for (int k = 14; k >= 1; k--) sum = sum * r / k + 1; /* 0.347^15 / 15! < 1e-19 */
    return ldexp(sum, (int)n);
}

float sp_real_powf(float base, float e) { return (float)sp_real_exp((double)e * sp_real_log((double)base)); }
