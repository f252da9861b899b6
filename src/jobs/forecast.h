/* What a job knows about time: the machine's rates for its model, what earlier runs of it showed, and the estimate of
 * what is left, from the planner's pure functions.
 *
 * Rates come from $SPILL_HOME/machine.json; one that is missing there is measured (the products in a fifth of a second,
 * the drive in one or two, and only when weights may be streamed) and kept. Products whose rates are an hour old are
 * measured again for a job of seconds, and kept if they are faster: the first time may have been a busy moment. One
 * caller at a time. */
#ifndef SPILL_JOBS_FORECAST_H
#define SPILL_JOBS_FORECAST_H

#include "jobs/batch.h"
#include "jobs/intake.h"
#include "planner/plan.h"

typedef struct sp_forecast sp_forecast;

/* All borrowed. */
typedef struct {
    const char *home;         /* as in sp_job_options */
    const char *machine_path; /* another machine's file to plan for: nothing is measured; NULL: this machine */
    const sp_model *model;
    const char *model_hash;
    sp_device *device;
    size_t n_threads;
    const char *input_path;
    size_t limit; /* rows of the input; 0: all */
} sp_forecast_setup;

/* Completes the request (its rows, earlier runs, what is in the page cache; its placement and memory are given) and the
 * machine's rates. False: the machine's file cannot be read. *out is the caller's in any case. */
bool sp_forecast_open(const sp_forecast_setup *setup, const sp_intake *intake, double elapsed_s, sp_machine *machine,
                      sp_plan_request *request, sp_forecast **out, sp_error *err) SP_MUST_CHECK;
/* Keeps what was measured and what the run showed, as far as the directory of jobs is there. NULL is fine. */
void sp_forecast_close(sp_forecast *forecast);

/* The run begins; machine and plan are copied. */
void sp_forecast_begin(sp_forecast *forecast, const sp_machine *machine, const sp_plan *plan);
void sp_forecast_pass(sp_forecast *forecast, const sp_batch_pass *pass);
void sp_forecast_row(sp_forecast *forecast, const sp_row *row);       /* has ended well */
const sp_observed *sp_forecast_observed(const sp_forecast *forecast); /* once it has begun; follows the run */
/* Of what is left; computed anew once a second at most. 0: the input's end is not known. */
sp_estimate sp_forecast_left(sp_forecast *forecast, const sp_intake *intake, sp_row *const *running, size_t n_running);

#endif
