/* A row in flight: tokens in, text out, stops. */
#include "jobs/row.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "util/clock.h"
#include "util/size.h"

static const char *const finish_names[] = {
    [SP_FINISH_NONE] = "", [SP_FINISH_STOP] = "stop", [SP_FINISH_LENGTH] = "length", [SP_FINISH_CALLS] = "tool_calls"};

const char *sp_finish_name(sp_finish finish) { return finish_names[finish]; }

void sp_stop_ids_add(sp_stop_ids *stops, int32_t id) {
    if (id < 0 || sp_stop_ids_has(stops, id)) return;
    stops->ids = realloc(stops->ids, (stops->n + 1) * sizeof *stops->ids);
    SP_CHECK(stops->ids != NULL);
    size_t at = stops->n++;
    for (; at > 0 && stops->ids[at - 1] > id; at--) stops->ids[at] = stops->ids[at - 1];
    stops->ids[at] = id;
}

bool sp_stop_ids_has(const sp_stop_ids *stops, int32_t id) {
    for (size_t i = 0; i < stops->n; i++)
        if (stops->ids[i] == id) return true;
    return false;
}

/* A row without a seed gets one from the command's and its own name, so that neither its line nor its neighbours
 * matter. */
static uint64_t row_seed(const sp_request *request, int64_t default_seed) {
    if (request->decoding.has_seed) return (uint64_t)request->decoding.seed;
    return XXH64(request->custom_id, strlen(request->custom_id), (uint64_t)default_seed);
}

/* Stop strings that are special tokens: the text never shows those, so they are known by their ids. */
static void add_stop_tokens(sp_row *row, const sp_tokenizer *tokenizer) {
    const sp_decoding *decoding = &row->request.decoding;
    for (size_t i = 0; i < decoding->n_stop; i++) {
        int32_t id = sp_tokenizer_find(tokenizer, decoding->stop[i], decoding->stop_bytes[i]);
        if (sp_tokenizer_is_special(tokenizer, id)) sp_stop_ids_add(&row->stop_tokens, id);
    }
}

/* What bounds the next token: what there is so far. */
static void set_sampling(sp_row *row) {
    row->sampling.generated = row->n_new ? row->tokens + row->n_prompt : NULL;
    row->sampling.n_generated = row->n_new;
    row->sampling.mask = row->n_new < row->request.decoding.min_tokens ? row->goes_on : NULL;
}

sp_row *sp_row_new(sp_request *request, sp_ids *prompt, size_t max_new, const sp_tokenizer *tokenizer,
                   const uint64_t *goes_on, int64_t default_seed, sp_error *err) {
    sp_row *row = calloc(1, sizeof *row);
    SP_CHECK(row != NULL);
    row->request = *request;
    *request = (sp_request){0};
    row->n_prompt = prompt->n;
    row->max_new = max_new;
    row->tokens = prompt->ids;
    row->goes_on = goes_on;
    *prompt = (sp_ids){0};
    const sp_decoding *decoding = &row->request.decoding;
    row->sampling = (sp_sample_options){
        .temperature = (float)decoding->temperature,
        .top_p = (float)decoding->top_p,
        .top_k = decoding->top_k,
        .seed = row_seed(&row->request, default_seed),
        .frequency_penalty = (float)decoding->frequency_penalty,
        .presence_penalty = (float)decoding->presence_penalty,
        .bias = decoding->bias,
        .n_bias = decoding->n_bias,
        .logprobs = decoding->logprobs,
        .n_top = decoding->top_logprobs,
    };
    add_stop_tokens(row, tokenizer);
    set_sampling(row);
    row->detok = sp_detok_new(tokenizer, true, err);
    if (row->detok) return row;
    sp_row_free(row);
    return NULL;
}

void sp_row_free(sp_row *row) {
    if (!row) return;
    sp_request_deinit(&row->request);
    sp_detok_free(row->detok);
    sp_buf_deinit(&row->text);
    free(row->stop_tokens.ids);
    free(row->tokens);
    free(row->samples);
    free(row);
}

size_t sp_row_find_stop(const sp_decoding *decoding, const char *text, size_t n_bytes, size_t from) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < decoding->n_stop; i++) {
        const char *hit =
            from < n_bytes ? memmem(text + from, n_bytes - from, decoding->stop[i], decoding->stop_bytes[i]) : NULL;
        if (hit && (size_t)(hit - text) < best) best = (size_t)(hit - text);
    }
    return best;
}

/* Looks for stop strings in what was decoded since the text was old_bytes long; cuts the text at one. One that begins
 * among the first min_tokens tokens is passed over. */
static bool cut_at_stop(sp_row *row, size_t old_bytes) {
    size_t longest = 1;
    if (row->n_new <= row->request.decoding.min_tokens) row->min_bytes = row->text.n_bytes;
    for (size_t i = 0; i < row->request.decoding.n_stop; i++)
        longest = sp_max_size(longest, row->request.decoding.stop_bytes[i]);
    size_t from = sp_max_size(old_bytes >= longest - 1 ? old_bytes - (longest - 1) : 0, row->min_bytes);
    size_t at = sp_row_find_stop(&row->request.decoding, row->text.data, row->text.n_bytes, from);
    if (at == SIZE_MAX) return false;
    row->text.n_bytes = at;
    row->text.data[at] = '\0';
    row->finish = SP_FINISH_STOP;
    row->is_cut = true;
    return true;
}

/* Room for one more generated token; what a row takes follows what it generates, never what it asks for. */
static void grow(sp_row *row) {
    if (row->n_new < row->room_new) return;
    row->room_new = row->room_new ? row->room_new * 2 : 32;
    row->tokens = realloc(row->tokens, (row->n_prompt + row->room_new) * sizeof *row->tokens);
    SP_CHECK(row->tokens != NULL);
    if (!row->sampling.logprobs) return;
    row->samples = realloc(row->samples, row->room_new * sizeof *row->samples);
    SP_CHECK(row->samples != NULL);
}

bool sp_row_push(sp_row *row, const sp_sample *sample, const sp_stop_ids *stops, sp_error *err) {
    if (row->n_new == 0) row->first_token_ns = sp_clock_ns();
    grow(row);
    if (row->samples) row->samples[row->n_new] = *sample;
    row->tokens[row->n_prompt + row->n_new++] = sample->id;
    size_t old_bytes = row->text.n_bytes;
    bool may_end = row->n_new > row->request.decoding.min_tokens;
    bool ended = sp_stop_ids_has(stops, sample->id) || (may_end && sp_stop_ids_has(&row->stop_tokens, sample->id));
    bool good = ended || sp_detok_push(row->detok, sample->id, &row->text);
    bool last = ended || row->n_new == row->max_new;
    if (good && last) good = sp_detok_finish(row->detok, &row->text);
    if (!good) return sp_fail(err, SP_ERR_MEMORY, "token %zu: no memory for the row's text", row->n_new);
    if (!cut_at_stop(row, old_bytes) && last) row->finish = ended ? SP_FINISH_STOP : SP_FINISH_LENGTH;
    set_sampling(row);
    if (row->finish != SP_FINISH_NONE) row->finished_ns = sp_clock_ns();
    return true;
}
