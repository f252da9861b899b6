/* The engine: executes passes. One pass is one trip through the weights for a set of spans (docs/DESIGN.md section 5).
 *
 * An engine holds an opened model, its weights' stream (engine/stream.h), the KV cache and the activations of one pass,
 * all inside the plan's budget. It knows sequences (a row in flight) by slot number; which rows run and when is the
 * scheduler's affair (jobs/). Not thread-safe: one caller at a time; it spreads its work over the device's threads
 * itself. */
#ifndef SPILL_ENGINE_ENGINE_H
#define SPILL_ENGINE_ENGINE_H

#include "kernels/device.h"
#include "model/identity.h"
#include "model/model.h"
#include "planner/plan.h"
#include "util/error.h"

typedef struct sp_engine sp_engine;

/* model, plan and device are borrowed and must outlive the engine. Starts reading weights in the background; returns at
 * once. */
sp_engine *sp_engine_open(const sp_model *model, const sp_plan *plan, sp_device *device, sp_error *err) SP_MUST_CHECK;
void sp_engine_close(sp_engine *engine);

/* A row in flight whose prompt has n_prompt tokens (dynamic rotary scaling asks for it). n_tokens_max is the greatest
 * length (prompt + new tokens) the row can reach, a bound only. Fails with SP_ERR_MEMORY when plan->rows are open
 * already, or when that many tokens are more than all pages hold. */
bool sp_engine_seq_open(sp_engine *engine, size_t n_prompt, size_t n_tokens_max, uint32_t *seq,
                        sp_error *err) SP_MUST_CHECK;
void sp_engine_seq_close(sp_engine *engine, uint32_t seq); /* gives its pages back */

/* Says that the row's next logits will be those of its first n_length tokens (the prompt; then one more each step),
 * before the first span that leads to them. One rotary scaling (longrope) turns all of a row's positions by
 * its length: when that changes them, the cache is of no use any more and its pages are given back. Returns the tokens
 * still in the cache; the caller feeds the others, [that, n_length), in one pass or in several. For most models nothing
 * ever changes. */
size_t sp_engine_seq_set_length(sp_engine *engine, uint32_t seq, size_t n_length);

/* Pages that n_tokens more of this sequence would take, and pages free now. */
size_t sp_engine_pages_needed(const sp_engine *engine, uint32_t seq, size_t n_tokens);
size_t sp_engine_pages_free(const sp_engine *engine);

/* Rows whose prompts begin with the same tokens share whole pages of keys and values: of models, and lengths of rows,
 * whose keys do not depend on the row's length (model/rope.h).
 *
 * reserve takes the pages for a sequence's first n_tokens tokens now, of those that are free. adopt gives a sequence
 * that holds nothing the n_pages full pages of others: it holds their tokens. These may be tokens that another span of
 * its next pass computes; if that pass fails, the sequence is good for nothing but to be closed. keep makes a page
 * outlive its sequences, until it is dropped. */
void sp_engine_seq_reserve(sp_engine *engine, uint32_t seq, size_t n_tokens);
uint32_t sp_engine_seq_page(const sp_engine *engine, uint32_t seq, size_t i_page); /* that it has taken */
void sp_engine_seq_adopt(sp_engine *engine, uint32_t seq, const uint32_t *pages, size_t n_pages);
void sp_engine_page_keep(sp_engine *engine, uint32_t page);
void sp_engine_page_drop(sp_engine *engine, uint32_t page);

/* Between passes: from now on no more than n_pages pages are in use at a time (as many as are used now, or more). When
 * that leaves memory for another layer of weights, the free pages' memory goes back to the system and the weights'
 * stream pins as many layers instead; else nothing happens. Results do not change. */
void sp_engine_set_kv_limit(sp_engine *engine, size_t n_pages);

/* n_tokens tokens of a sequence, to be appended behind those it holds. A span that wants logits gets those of its last
 * token. */
typedef struct {
    uint32_t seq;
    const int32_t *tokens;
    size_t n_tokens;
    bool want_logits;
} sp_span;

typedef struct {
    uint64_t ns;               /* wall time of the pass */
    uint64_t wait_ns;          /* of it, waiting for weights that had not landed */
    uint64_t boundary_wait_ns; /* of that, for rows of the embedding and the first matrix */
    uint64_t bytes_read;       /* from the drive during the pass */
    bool was_spared;           /* a thread stood back for the reads: computing could have been faster */
    size_t n_tokens, n_logits;
} sp_pass_stats;

/* At most plan->pass_tokens tokens and plan->pass_logits spans that want logits; at most one span per sequence.
 * On failure (I/O, a token id outside the vocabulary, too few pages free; a NaN does not count) the sequences' caches
 * are as before. stats may be NULL. */
bool sp_engine_pass(sp_engine *engine, const sp_span *spans, size_t n_spans, sp_pass_stats *stats,
                    sp_error *err) SP_MUST_CHECK;

/* Logits [V] of span i of the last pass (which wanted them), valid until the next pass. Raw: after the model's own cap,
 * before temperature. */
const float *sp_engine_logits(const sp_engine *engine, size_t i_span);

/* A hash of all the weights' bytes, however they are kept. False until the first pass with logits has ended: it reads
 * them all. */
bool sp_engine_content_hash(const sp_engine *engine, sp_hash *out);

/* Memory held for weights, activations and rows; KV pages are touched as they are first used. */
size_t sp_engine_memory_bytes(const sp_engine *engine);

#endif
