/* The plan: a pure function of model, machine and request; no I/O, so any machine can be planned for and the plan
 * tested. The engine executes it and decides nothing. Plain data, thread-safe. */
#ifndef SPILL_PLANNER_PLAN_H
#define SPILL_PLANNER_PLAN_H

#include <jansson.h>

#include "io/ring.h"
#include "kernels/device.h"
#include "model/model.h"
#include "planner/estimate.h"
#include "util/buf.h"
#include "util/error.h"

typedef enum { SP_PLACE_AUTO, SP_PLACE_RESIDENT, SP_PLACE_STREAM } sp_placement;

/* What the machine is: read by planner/machine.h or from a file; rates are measured, 0 where they were not. */
typedef struct {
    uint64_t ram_bytes;   /* RAM */
    uint64_t limit_bytes; /* min(RAM, every cgroup limit up the tree) */
    size_t n_cpus;
    char isa[16];
    double memory_bps; /* read bandwidth */
    sp_rates rates;    /* of the instruction set, mode and weight format of the run */

    double disk_bps;              /* cold sequential read of the drives that hold the model */
    int64_t disk_measured_s;      /* wall clock */
    bool disk_measured_now;       /* by this very run */
    double cached_bps;            /* reads of the same files out of the page cache */
    sp_ring_backend read_backend; /* these three: how the drive is read best, io/ring.h; 0: its defaults */
    size_t read_depth, read_request_bytes;
} sp_machine;

/* What a run may take: memory_bytes (--memory), or with 0 three quarters of the machine's limit. */
uint64_t sp_plan_budget_bytes(const sp_machine *machine, uint64_t memory_bytes);

typedef struct {
    size_t n_prompt, max_new; /* tokens */
    uint32_t block;           /* of the request's forest; 0: its prompt begins like no other */
} sp_plan_row;

/* What is asked. Zero means default. */
typedef struct {
    sp_mode mode;
    sp_placement placement;
    uint64_t memory_bytes;    /* --memory; sp_plan_budget_bytes */
    size_t rows_cap;          /* --rows; 0: none */
    size_t pass_tokens;       /* tokens of a pass, for tests; 0: the planner's choice */
    size_t n_rows;            /* rows of the input, as far as known or guessed */
    size_t prompt_tokens;     /* sum over rows */
    size_t new_tokens;        /* sum over rows of max_tokens */
    size_t row_tokens_max;    /* longest prompt + max_tokens; 0: not known */
    const sp_plan_row *known; /* [n_known] the first rows; those after them are taken to be like them in turn */
    size_t n_known;
    const sp_forest *forest;     /* of the known rows' prompts; NULL: no two begin alike */
    const sp_observed *observed; /* earlier runs of this model, or NULL */
    double elapsed_s;            /* that the run has already taken: part of the estimate */
    double cached_share;         /* of the model's files in the page cache, 0 to 1 */
} sp_plan_request;

typedef struct {
    sp_placement placement; /* RESIDENT or STREAM */
    sp_mode mode;
    uint64_t budget_bytes;
    uint64_t weight_bytes;     /* as in the model */
    uint64_t pinned_bytes;     /* weights kept in memory: exactly those of the three fields that follow */
    size_t n_pinned_layers;    /* matrices of the first so many layers of planner/pin.h; L when resident */
    bool pin_head;             /* the head's matrix, which is the embedding too if they are tied */
    bool keep_embed;           /* an untied embedding; one that is not kept is read by row */
    uint64_t ring_bytes;       /* slots of streamed chunks */
    uint64_t activation_bytes; /* buffers of one pass, logits included: an upper bound */
    uint64_t overhead_bytes;   /* program, tokenizer, rows' text, what pinned matrices' places waste: an allowance */
    uint64_t kv_bytes;         /* room for KV pages: the most that may be taken */
    uint64_t kv_token_bytes;   /* of one token, all layers */
    size_t kv_pages;    /* pages of SP_KV_PAGE_TOKENS tokens (each of all layers); a row that needs more cannot run */
    size_t rows;        /* rows in flight at most */
    size_t pass_tokens; /* tokens of a pass at most, at least rows */
    size_t pass_logits; /* spans that want logits in a pass at most */
    size_t ffn_block;   /* columns of gate and up that exist at a time, a multiple of SP_PACK_COLS or all */
    size_t chunk_bytes; /* a chunk of weights at most */
    size_t ring_slots;  /* 0 when resident */
    sp_ring_backend read_backend; /* these three: how the model's drive is read best, io/ring.h; 0: its defaults */
    size_t read_depth, read_request_bytes;
    double pass_seconds;    /* of a decode pass with `rows` rows; 0: not known, rates were not measured */
    sp_estimate estimate;   /* of the whole request, elapsed_s included; 0: not known */
    double estimate_passes; /* likely */
} sp_plan;

/* The placement, rows, pinned layers and pass size that finish the request soonest, by simulation, within the budget.
 * False with SP_ERR_MEMORY (and the number of bytes that would do) when not even one row of average length fits. More
 * memory never makes the estimate slower (by more than a few percent, where a model begins to fit as a whole: fewer
 * rows are in flight then, and results come sooner). */
bool sp_plan_build(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, sp_plan *plan,
                   sp_error *err) SP_MUST_CHECK;

/* For simulations of what a plan is executed with: a cost with the request's corrections (false: no rates are known),
 * and a job without rows. */
bool sp_plan_cost(const sp_model *model, const sp_machine *machine, const sp_observed *observed, sp_cost *cost);
sp_sim_job sp_plan_sim_job(const sp_model *model, const sp_machine *machine, const sp_plan *plan);

/* The plan for people: two lines, each with a newline. False when the buffer failed. */
bool sp_plan_text(const sp_model *model, const sp_machine *machine, const sp_plan_request *request, const sp_plan *plan,
                  sp_buf *out);

/* What the user should know before it happens: a --memory above what machine and cgroups allow, one line without its
 * newline; nothing is appended when there is nothing to say. False when the buffer failed. */
bool sp_plan_warning(const sp_machine *machine, const sp_plan_request *request, const sp_plan *plan, sp_buf *out);

/* The fields of the plan event (docs/planning.md), without "event"; a new object of the caller's. */
json_t *sp_plan_json(const sp_model *model, const sp_machine *machine, const sp_plan_request *request,
                     const sp_plan *plan);

#endif
