/* A row in flight: its request, its tokens so far, and when it ends.
 *
 *   WAITING -> RUNNING (its sequence holds n_cached of its tokens) -> FINISHED
 *      ^__________| pre-empted: the cache is given up, tokens are kept and prefilled again later
 *
 * One thread at a time per row. Rows do not know one another. */
#ifndef SPILL_JOBS_ROW_H
#define SPILL_JOBS_ROW_H

#include "engine/sample.h"
#include "jobs/request.h"
#include "tokenizer/tokenizer.h"
#include "util/buf.h"

typedef enum { SP_FINISH_NONE, SP_FINISH_STOP, SP_FINISH_LENGTH, SP_FINISH_CALLS } sp_finish;
const char *sp_finish_name(sp_finish finish); /* "stop", "length", "tool_calls"; "" while running */

/* Ids that end a turn, ascending. */
typedef struct {
    int32_t *ids; /* [n], heap */
    size_t n;
} sp_stop_ids;
/* Negative ids (none) and ids that are there already are passed over. */
void sp_stop_ids_add(sp_stop_ids *stops, int32_t id);
bool sp_stop_ids_has(const sp_stop_ids *stops, int32_t id);

typedef struct {
    sp_request request;
    int32_t *tokens; /* [n_prompt + n_new], heap: prompt, then generated */
    size_t n_prompt, n_new;
    size_t room_new;            /* tokens (and samples) there is memory for behind the prompt */
    size_t max_new;             /* max_tokens, cut at the model's positions */
    sp_stop_ids stop_tokens;    /* the row's stop strings that are special tokens */
    sp_sample_options sampling; /* of the next token; changes with every token */
    const uint64_t *goes_on;    /* the mask while the row has fewer than min_tokens; or NULL */
    sp_sample *samples;         /* [n_new] when logprobs are wanted, else NULL; heap */
    sp_detok *detok;
    sp_buf text;      /* decoded so far, special tokens left out, cut at a stop string */
    bool is_cut;      /* at a stop string */
    size_t min_bytes; /* of the text, of the first min_tokens tokens: stop strings are looked for behind them */
    sp_finish finish;
    uint32_t block; /* the last of its prompt's in sp_prefixes; 0: it shares none */
    uint32_t seq;   /* while running */
    bool is_running;
    size_t n_cached; /* tokens in the sequence's cache */
    uint64_t started_ns, finished_ns, first_token_ns;
} sp_row;

/* Takes the request and the prompt's ids (ownership moves in, also on failure); borrows the tokenizer and goes_on, the
 * mask of all ids but those that end a turn (needed for rows with min_tokens). NULL with SP_ERR_MEMORY. */
sp_row *sp_row_new(sp_request *request, sp_ids *prompt, size_t max_new, const sp_tokenizer *tokenizer,
                   const uint64_t *goes_on, int64_t default_seed, sp_error *err) SP_MUST_CHECK;
void sp_row_free(sp_row *row); /* NULL is fine */

/* Adds a generated token and decides whether the row is finished. False with SP_ERR_MEMORY when its text does not fit.
 */
bool sp_row_push(sp_row *row, const sp_sample *sample, const sp_stop_ids *stops, sp_error *err) SP_MUST_CHECK;

/* Where the earliest of the row's stop strings begins in text at or after `from`; SIZE_MAX: nowhere. */
size_t sp_row_find_stop(const sp_decoding *decoding, const char *text, size_t n_bytes, size_t from);

#endif
