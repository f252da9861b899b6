/* How fast this machine's operations are: measured once for an instruction set, mode and weight format, kept in
 * machine.json, and what planner/cost.h makes a pass's time from. */
#ifndef SPILL_PLANNER_RATES_H
#define SPILL_PLANNER_RATES_H

#include "kernels/device.h"
#include "util/error.h"

enum { SP_RATE_POINTS = 5 };
/* Tokens at which products are measured: 1, 8, 32, 128, 512. One token is bound by memory, many by arithmetic. */
extern const size_t sp_rate_tokens[SP_RATE_POINTS];

/* Of all threads together. Plain data; all 0: not measured. */
typedef struct {
    char isa[16], format[16];
    sp_mode mode;
    size_t n_threads;
    double linear_flops[SP_RATE_POINTS]; /* products with a matrix that no cache holds */
    double panel_flops[SP_RATE_POINTS];  /* the same with weights in panel form (kernels/ops.h); 0: as linear_flops */
    double decode_flops, prefill_flops;  /* attention of single tokens of many rows; of many tokens of one row */
    double vector_bps;                   /* norms, activations: bytes of fp32 */
    double call_s;                       /* an operation that has nothing to do: fork and join */
    int64_t measured_s;                  /* wall clock */
} sp_rates;

/* Takes about a quarter of a second on a machine of 200 GFLOP/s, and no more than limit_s by much on a slower one. */
bool sp_rates_measure(sp_device *device, const sp_format *format, size_t n_threads, double limit_s, sp_rates *rates,
                      sp_error *err) SP_MUST_CHECK;

/* Seconds that a weight takes in a product with n_tokens tokens, so large a share of them in panel form: linear between
 * the points of measurement. Pure. */
double sp_rates_weight_seconds(const sp_rates *rates, double n_tokens, double panel_share);

#endif
