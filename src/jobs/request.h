/* A row's request: one input line, checked and turned into what the engine and the template need.
 *
 * Input shapes (docs/rows.md): {"prompt", "system"?}, OpenAI chat lines {"messages"}, OpenAI batch lines {"custom_id",
 * "method", "url", "body"}. The first valid row decides the file's shape. A field that cannot be honoured makes the row
 * an error that names it; null means absent. Not thread-safe; different requests are independent. */
#ifndef SPILL_JOBS_REQUEST_H
#define SPILL_JOBS_REQUEST_H

#include <jansson.h>
#include <stdint.h>

#include "engine/sample.h"
#include "jobs/input.h"
#include "util/arena.h"
#include "util/error.h"

typedef enum { SP_SHAPE_UNKNOWN, SP_SHAPE_PROMPT, SP_SHAPE_CHAT, SP_SHAPE_BATCH } sp_shape;

/* Codes of error lines; sp_row_code_name gives the text in "error.code". */
typedef enum {
    SP_ROW_OK,
    SP_ROW_INVALID_JSON,    /* the line is not JSON, or not an object */
    SP_ROW_INVALID_REQUEST, /* a field is missing, wrong, unknown or cannot be honoured */
    SP_ROW_DUPLICATE_ID,    /* an earlier row has this custom_id */
    SP_ROW_TEMPLATE,        /* the chat template refused */
    SP_ROW_TOO_LONG,        /* more tokens than the model has positions, or memory has room for */
    SP_ROW_NUMERIC,         /* the model's output is not a number */
    SP_ROW_CODE_COUNT
} sp_row_code;
const char *sp_row_code_name(sp_row_code code);

enum { SP_TEMPERATURE_MAX = 100 }; /* beyond it every token is as likely as any other */

/* How a row is decoded: from its own fields, else from the command's defaults. */
typedef struct {
    size_t max_tokens, min_tokens;
    double temperature; /* 0: greedy */
    double top_p;       /* 1: off */
    size_t top_k;       /* 0: off */
    bool has_seed;
    int64_t seed;
    bool logprobs;
    size_t top_logprobs; /* 0..20 */
    size_t n_stop;
    const char **stop; /* [n_stop], none empty */
    size_t *stop_bytes;
    double frequency_penalty, presence_penalty; /* -2..2 */
    size_t n_bias;
    sp_logit_bias *bias; /* [n_bias], ascending ids */
} sp_decoding;

typedef struct {
    sp_arena arena;
    json_t *line;  /* the whole line, owned; the json_t below are borrowed from it */
    size_t i_line; /* from 1 */
    size_t line_bytes;
    const char *custom_id; /* the row's own, or row-NNNNNN; NUL-terminated, no NUL inside */
    const char *prompt;    /* shape prompt */
    size_t prompt_bytes;
    const char *system; /* shape prompt, or NULL */
    size_t system_bytes;
    const json_t *messages;                            /* else: a non-empty array of objects */
    const json_t *tools, *documents, *template_kwargs; /* or NULL */
    const json_t *reasoning_effort, *verbosity;        /* strings for the template, or NULL */
    const json_t *expected;                            /* for eval, or NULL */
    bool no_calls;                                     /* tool_choice "none": tools is NULL */
    bool one_call;                                     /* of several tool calls the first is given */
    bool raw_calls;                                    /* calls stay text */
    bool has_tools;                                    /* also when tools itself is dropped */
    bool raw_reasoning;                                /* reasoning stays in the content */
    sp_decoding decoding;
} sp_request;

/* What a row is decoded with when neither it nor the command says anything: 256 new tokens, greedy. */
sp_decoding sp_decoding_default(void);

/* Parses a line. *shape is UNKNOWN before the first valid row and set by it. On failure returns the code and fills
 * err with the message; request still has custom_id (the row's, if it could be read) and must be deinit-ed in every
 * case. */
sp_row_code sp_request_parse(sp_request *request, const sp_line *line, const sp_decoding *defaults, sp_shape *shape,
                             sp_error *err);
/* Gives up all that only the prompt is made of (messages, tools, documents, fields that are passed over), so that a row
 * that waits takes no more memory than its answer needs. */
void sp_request_drop_prompt(sp_request *request);
void sp_request_deinit(sp_request *request);

#endif
