/* Logarithm, exponential and power in double precision from additions and multiplications alone, so that RoPE
 * frequencies are the same bytes on every machine, whatever its C library. Error below 4e-16 relative for the
 * logarithm, 2e-15 for the others at the arguments that configs allow; rounded to fp32 that is the nearest value but
 * for about one argument in 10^7. Pure, thread-safe. Private to the model module. */
#ifndef SPILL_MODEL_REALMATH_H
#define SPILL_MODEL_REALMATH_H

double sp_real_log(double x);            /* x > 0, normal */
double sp_real_exp(double x);            /* |x| < 700 */
float sp_real_powf(float base, float e); /* base > 0; rounded to fp32 */

#endif
