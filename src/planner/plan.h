/* The plan: a pure function of model, machine and request; no I/O, so any machine can be planned for and the plan
 * tested. The engine executes it and decides nothing. Plain data, thread-safe. */
#ifndef SPILL_PLANNER_PLAN_H
#define SPILL_PLANNER_PLAN_H

#include "kernels/device.h"
#include "model/model.h"
#include "util/error.h"

typedef enum { SP_PLACE_AUTO, SP_PLACE_RESIDENT, SP_PLACE_STREAM } sp_placement;

/* What the machine is: measured or read by planner/machine.c, or from a file. */
typedef struct {
    uint64_t ram_bytes;   /* RAM */
    uint64_t limit_bytes; /* min(RAM, every cgroup limit up the tree) */
    size_t n_cpus;
    char isa[16];
    double disk_bps;   /* cold sequential read, 0: not measured */
    double gemm_flops; /* all threads, bf16 mode, 0: not measured */
    double memory_bps; /* read bandwidth, 0: not measured */
} sp_machine;

/* What is asked. Zero means default. */
typedef struct {
    sp_mode mode;
    sp_placement placement;
    uint64_t memory_bytes; /* --memory; 0: 75% of limit_bytes */
    size_t n_threads;
    size_t rows_cap;       /* --rows; 0: none */
    size_t n_rows;         /* rows of the input, as far as known */
    size_t prompt_tokens;  /* sum over rows */
    size_t new_tokens;     /* sum over rows of max_tokens */
    size_t row_tokens_max; /* longest prompt + max_tokens */
} sp_plan_request;

typedef struct {
    sp_placement placement; /* RESIDENT or STREAM */
    sp_mode mode;
    uint64_t budget_bytes;
    uint64_t weight_bytes, pinned_bytes, ring_bytes;
    uint64_t activation_bytes; /* buffers of one pass, logits included */
    uint64_t kv_bytes;         /* room for KV pages: the most that may be taken */
    uint64_t kv_token_bytes;   /* of one token, all layers */
    size_t kv_pages;           /* pages of SP_KV_PAGE_TOKENS tokens (each of all layers) */
    size_t rows;               /* rows in flight at most */
    size_t pass_tokens;        /* tokens of a pass at most */
    size_t pass_logits;        /* spans that want logits in a pass at most */
    double pass_seconds;       /* of a decode pass with `rows` rows */
    double estimate_low_s, estimate_likely_s, estimate_high_s;
} sp_plan;

/* False with SP_ERR_MEMORY (and the number of bytes that would do) when even one row does not fit. */
bool sp_plan_build(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, sp_plan *plan,
                   sp_error *err) SP_MUST_CHECK;

#endif
