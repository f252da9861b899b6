/* A model's text side: tokenizer, chat template and the ids that end a turn. Turns a request into prompt ids.
 *
 * Immutable after open; shared by threads. */
#ifndef SPILL_JOBS_FRONTEND_H
#define SPILL_JOBS_FRONTEND_H

#include "chat/answer.h"
#include "jobs/request.h"
#include "jobs/row.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

typedef struct {
    sp_tokenizer *tokenizer;
    sp_chat *chat;
    sp_chat_style style;
    sp_stop_ids stops;
    uint64_t
        *goes_on; /* mask of all ids of the model but the stops (as in sp_sample_options), heap; NULL without model */
} sp_frontend;

typedef struct {
    bool plain_text;           /* control tokens in message text are ordinary text */
    bool no_generation_prompt; /* render without the opening of the assistant's turn */
    bool as_transformers; /* nothing but what it does: tools and the like that the template never reads are let through,
                           * roles and arguments of calls stay as they are written */
    int64_t now_s;        /* what templates see as today; 0: the clock */
} sp_prompt_options;

/* For a model (its directory or GGUF file), which is not borrowed. False with err filled and *frontend empty:
 * SP_ERR_INPUT for files that are missing or wrong, SP_ERR_SUPPORT for what is not known. */
bool sp_frontend_open_model(sp_frontend *frontend, const sp_model *model, sp_error *err) SP_MUST_CHECK;
/* The same for a directory with tokenizer.json and tokenizer_config.json alone. */
bool sp_frontend_open_dir(sp_frontend *frontend, const char *dir, sp_error *err) SP_MUST_CHECK;
void sp_frontend_deinit(sp_frontend *frontend); /* an empty one is fine */

/* Appends the prompt's ids; rendered (may be NULL) receives the text they come from. SP_ROW_OK, or the code with err
 * filled. */
sp_row_code sp_frontend_prompt(const sp_frontend *frontend, const sp_request *request, const sp_prompt_options *options,
                               sp_ids *ids, sp_buf *rendered, sp_error *err);

/* Whether the model takes a row: its positions hold the prompt and a token more, its vocabulary has the ids that the
 * request names. SP_ROW_OK, or the code with err filled. */
sp_row_code sp_frontend_fits(const sp_arch *arch, const sp_request *request, size_t n_prompt, sp_error *err);

#endif
