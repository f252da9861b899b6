/* Reading a finished row's answer. Marks around calls and reasoning are special tokens in some models, which a row's
 * text leaves out: so the tokens are decoded once more, with the marks. */
#include "jobs/reading.h"

#include <stdlib.h>

#include "util/size.h"

/* As many tokens at a prompt's end hold a mark of reasoning, should it be spelled by letters. */
enum { PROMPT_END_TOKENS = 16 };

/* The ids that become text: all but the special tokens that are no marks. Heap. */
static int32_t *shown_ids(const sp_tokenizer *tokenizer, const sp_chat_style *style, const int32_t *ids, size_t *n) {
    int32_t *shown = malloc((*n + 1) * sizeof *shown);
    size_t n_shown = 0;
    SP_CHECK(shown != NULL);
    for (size_t i = 0; i < *n; i++) {
        const char *text = "";
        size_t n_bytes = 0;
        bool is_hidden = sp_tokenizer_is_skipped(tokenizer, ids[i]) &&
                         !(sp_tokenizer_token_text(tokenizer, ids[i], &text, &n_bytes) &&
                           sp_chat_style_has_mark(style, text, n_bytes));
        if (!is_hidden) shown[n_shown++] = ids[i];
    }
    *n = n_shown;
    return shown;
}

static bool decode(const sp_tokenizer *tokenizer, const sp_chat_style *style, const int32_t *ids, size_t n,
                   sp_buf *text, sp_error *err) {
    int32_t *shown = shown_ids(tokenizer, style, ids, &n);
    bool good = sp_tokenizer_decode(tokenizer, shown, n, false, text, err);
    free(shown);
    return good;
}

static bool opens_reasoning(const sp_row *row, const sp_tokenizer *tokenizer, const sp_chat_style *style, bool *opens,
                            sp_error *err) {
    sp_buf end = {0};
    size_t n = sp_min_size(row->n_prompt, PROMPT_END_TOKENS);
    bool good = decode(tokenizer, style, row->tokens + row->n_prompt - n, n, &end, err);
    *opens = good && end.n_bytes && sp_chat_style_opens_reasoning(style, end.data, end.n_bytes);
    sp_buf_deinit(&end);
    return good;
}

/* The text with marks, cut where the row's text was: marks only make it longer, so the stop string is at or behind that
 * place. One that the marks pull apart is not found, and the text goes on to its end. */
static bool text_with_marks(const sp_row *row, const sp_tokenizer *tokenizer, const sp_chat_style *style, sp_buf *text,
                            sp_error *err) {
    const int32_t *ids = row->tokens + row->n_prompt;
    size_t n = row->n_new;
    if (row->finish == SP_FINISH_STOP && !row->is_cut) n--; /* the token that ended it is no part of it */
    if (!decode(tokenizer, style, ids, n, text, err)) return false;
    size_t at = row->is_cut && text->n_bytes
                    ? sp_row_find_stop(&row->request.decoding, text->data, text->n_bytes, row->text.n_bytes)
                    : SIZE_MAX;
    if (at != SIZE_MAX) text->n_bytes = at;
    return true;
}

bool sp_row_read_answer(sp_row *row, const sp_frontend *frontend, sp_buf *text, sp_answer *answer, sp_error *err) {
    const sp_request *request = &row->request;
    sp_chat_style style = frontend->style;
    sp_answer_options options = {.keep_reasoning = request->raw_reasoning, .read_calls = !request->raw_calls};
    if (!request->has_tools) style.calls = NULL;
    *answer = (sp_answer){.has_content = true, .content = {row->text.data, row->text.n_bytes}};
    if (!style.calls && !style.reasoning) return true;
    if (!text_with_marks(row, frontend->tokenizer, &style, text, err)) return false;
    if (style.reasoning && !opens_reasoning(row, frontend->tokenizer, &style, &options.in_reasoning, err)) return false;
    sp_answer_read(&style, &options, text->data ? text->data : "", text->n_bytes, answer);
    if (answer->n_calls && row->finish == SP_FINISH_STOP) row->finish = SP_FINISH_CALLS;
    return true;
}
