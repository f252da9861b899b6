/* Result lines: OpenAI batch output, one line a row, keys in a fixed order.
 *
 * response.body, less its id and created, is a function of the weights, the row, its parameters and the mode alone: two
 * runs are compared by it with memcmp. What differs between runs is in the `spill` object. */
#ifndef SPILL_JOBS_RESULT_H
#define SPILL_JOBS_RESULT_H

#include "chat/answer.h"
#include "jobs/row.h"

/* What all rows of a job have in common. */
typedef struct {
    const char *run_id;
    const char *model_name;   /* last path component (plus +ADAPTER) */
    const char *model_hash;   /* of its description, hex */
    const char *content_hash; /* of its weights, hex; NULL in lines written before they were read */
    const char *mode;         /* "bf16", "fp32" */
    const char *precision;    /* of the weights: "BF16", "Q4_1" */
    const char *placement;    /* "resident", "stream" */
    const char *isa;
    const char *mode_backend; /* "cpu" */
    int64_t created_s;
    bool echo_tokens;
    const sp_tokenizer *tokenizer;
} sp_result_context;

/* Appends the line of a finished row and its answer, with its LF. False when memory ends. */
bool sp_result_row(sp_buf *out, const sp_result_context *context, const sp_row *row, const sp_answer *answer);

/* Appends the line of a row that is an error. */
bool sp_result_error(sp_buf *out, const sp_result_context *context, const char *custom_id, size_t i_line,
                     sp_row_code code, const char *message);

#endif
