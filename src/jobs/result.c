/* Result lines, written key by key. */
#include "jobs/result.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "util/json.h"
#include "util/size.h"
#include "util/utf8.h"

static void put_text(sp_buf *out, const char *text) { sp_json_quote(out, text, strlen(text)); }

static void put_pair(sp_buf *out, const char *key, const char *text) {
    put_text(out, key);
    sp_buf_char(out, ':');
    put_text(out, text);
}

/* A log-probability: nine digits say exactly which fp32 it is; JSON has no infinity, OpenAI writes -9999. */
static void put_logprob(sp_buf *out, float value) {
    if (isinf(value))
        sp_buf_text(out, "-9999.0");
    else
        sp_buf_printf(out, "%.9g", (double)value);
}

/* "token":text,"id":N,"logprob":X,"bytes":[...]; an id past the tokenizer's vocabulary has no bytes. */
static void put_token(sp_buf *out, const sp_tokenizer *tokenizer, int32_t id, float value) {
    const char *bytes = "";
    size_t n_bytes = 0;
    bool known = sp_tokenizer_token_bytes(tokenizer, id, &bytes, &n_bytes);
    sp_buf text = {0};
    sp_utf8_lossy(&text, bytes, known ? n_bytes : 0);
    sp_buf_text(out, "\"token\":");
    sp_json_quote(out, text.data ? text.data : "", text.n_bytes);
    sp_buf_deinit(&text);
    sp_buf_printf(out, ",\"id\":%d,\"logprob\":", (int)id);
    put_logprob(out, value);
    sp_buf_text(out, ",\"bytes\":");
    if (!known) {
        sp_buf_text(out, "null");
        return;
    }
    sp_buf_char(out, '[');
    for (size_t i = 0; i < n_bytes; i++) sp_buf_printf(out, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    sp_buf_char(out, ']');
}

static void put_logprobs(sp_buf *out, const sp_result_context *context, const sp_row *row) {
    if (!row->samples) {
        sp_buf_text(out, "null");
        return;
    }
    sp_buf_text(out, "{\"content\":[");
    for (size_t i = 0; i < row->n_new; i++) {
        const sp_sample *sample = &row->samples[i];
        sp_buf_text(out, i ? ",{" : "{");
        put_token(out, context->tokenizer, sample->id, sample->logprob);
        sp_buf_text(out, ",\"top_logprobs\":[");
        for (size_t k = 0; k < sample->n_top; k++) {
            sp_buf_text(out, k ? ",{" : "{");
            put_token(out, context->tokenizer, sample->top[k].id, sample->top[k].logprob);
            sp_buf_char(out, '}');
        }
        sp_buf_text(out, "]}");
    }
    sp_buf_text(out, "],\"refusal\":null}");
}

static void put_string(sp_buf *out, bool is_there, sp_string text) {
    if (is_there)
        sp_json_quote(out, text.n_bytes ? text.text : "", text.n_bytes);
    else
        sp_buf_text(out, "null");
}

/* What the ids of a row's calls are made of: its name and its prompt, so that a conversation that goes on has no id
 * twice. */
static uint64_t hash_for_calls(const sp_row *row) {
    const char *name = row->request.custom_id;
    return XXH64(row->tokens, row->n_prompt * sizeof *row->tokens, XXH64(name, strlen(name), 0));
}

/* An id for call i: nine letters and digits, since some templates take no other. */
static void put_call_id(sp_buf *out, uint64_t row_hash, uint64_t i) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t hash = XXH64(&i, sizeof i, row_hash);
    char id[10] = {0};
    for (size_t k = 0; k < sizeof id - 1; k++, hash /= 62) id[k] = digits[hash % 62];
    put_text(out, id);
}

static void put_calls(sp_buf *out, const sp_row *row, const sp_answer *answer) {
    size_t n = row->request.one_call ? sp_min_size(answer->n_calls, 1) : answer->n_calls;
    if (n == 0) return;
    uint64_t row_hash = hash_for_calls(row);
    sp_buf_text(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < n; i++) {
        sp_buf_text(out, i ? ",{\"id\":" : "{\"id\":");
        put_call_id(out, row_hash, i);
        sp_buf_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
        put_string(out, true, answer->calls[i].name);
        sp_buf_text(out, ",\"arguments\":");
        put_string(out, true, answer->calls[i].arguments);
        sp_buf_text(out, "}}");
    }
    sp_buf_char(out, ']');
}

static void put_message(sp_buf *out, const sp_row *row, const sp_answer *answer) {
    sp_buf_text(out, "{\"role\":\"assistant\",\"content\":");
    put_string(out, answer->has_content, answer->content);
    if (answer->has_reasoning) {
        sp_buf_text(out, ",\"reasoning_content\":");
        put_string(out, true, answer->reasoning);
    }
    put_calls(out, row, answer);
    sp_buf_text(out, ",\"refusal\":null}");
}

static void put_body(sp_buf *out, const sp_result_context *context, const sp_row *row, const sp_answer *answer) {
    sp_buf_printf(out, "{\"id\":\"chatcmpl-%s-%zu\",\"object\":\"chat.completion\",\"created\":%lld,", context->run_id,
                  row->request.i_line, (long long)context->created_s);
    put_pair(out, "model", context->model_name);
    sp_buf_text(out, ",\"choices\":[{\"index\":0,\"message\":");
    put_message(out, row, answer);
    sp_buf_text(out, ",\"logprobs\":");
    put_logprobs(out, context, row);
    sp_buf_char(out, ',');
    put_pair(out, "finish_reason", sp_finish_name(row->finish));
    sp_buf_printf(out, "}],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu}}",
                  row->n_prompt, row->n_new, row->n_prompt + row->n_new);
}

/* The opening of the spill object: what all rows have in common. */
static void put_origin(sp_buf *out, const sp_result_context *context, size_t i_line) {
    const struct {
        const char *key, *text;
    } pairs[] = {{"mode", context->mode},
                 {"precision", context->precision},
                 {"placement", context->placement},
                 {"backend", context->mode_backend},
                 {"isa", context->isa}};
    sp_buf_printf(out, "\"spill\":{\"line\":%zu,", i_line);
    put_pair(out, "run", context->run_id);
    sp_buf_char(out, ',');
    put_pair(out, "model_hash", context->model_hash);
    sp_buf_text(out, ",\"content_hash\":");
    if (context->content_hash)
        put_text(out, context->content_hash);
    else
        sp_buf_text(out, "null");
    sp_buf_text(out, ",\"adapter_hash\":null");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        sp_buf_char(out, ',');
        put_pair(out, pairs[i].key, pairs[i].text);
    }
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

bool sp_result_row(sp_buf *out, const sp_result_context *context, const sp_row *row, const sp_answer *answer) {
    sp_buf_printf(out, "{\"id\":\"batch_req_%s-%zu\",\"custom_id\":", context->run_id, row->request.i_line);
    put_text(out, row->request.custom_id);
    sp_buf_printf(out, ",\"response\":{\"status_code\":200,\"request_id\":\"%s-%zu\",\"body\":", context->run_id,
                  row->request.i_line);
    put_body(out, context, row, answer);
    sp_buf_text(out, "},\"error\":null,");
    put_origin(out, context, row->request.i_line);
    const sp_sample_options *sampling = &row->sampling;
    sp_buf_printf(
        out,
        ",\"decoding\":{\"max_tokens\":%zu,\"min_tokens\":%zu,\"temperature\":%.9g,\"top_p\":%.9g,\"top_k\":%zu,"
        "\"frequency_penalty\":%.9g,\"presence_penalty\":%.9g,\"seed\":%lld},"
        "\"prompt_tokens\":%zu,\"new_tokens\":%zu,\"first_token_s\":%.6f,\"seconds\":%.6f,\"tokens\":",
        row->max_new, row->request.decoding.min_tokens, (double)sampling->temperature, (double)sampling->top_p,
        sampling->top_k, (double)sampling->frequency_penalty, (double)sampling->presence_penalty,
        (long long)sampling->seed, row->n_prompt, row->n_new, seconds_between(row->started_ns, row->first_token_ns),
        seconds_between(row->started_ns, row->finished_ns));
    sp_json_int32s(out, row->tokens + row->n_prompt, row->n_new);
    if (context->echo_tokens) {
        sp_buf_text(out, ",\"prompt_tokens_ids\":");
        sp_json_int32s(out, row->tokens, row->n_prompt);
    }
    return sp_buf_text(out, "}}\n") && !out->failed;
}

bool sp_result_error(sp_buf *out, const sp_result_context *context, const char *custom_id, size_t i_line,
                     sp_row_code code, const char *message) {
    sp_buf_printf(out, "{\"id\":\"batch_req_%s-%zu\",\"custom_id\":", context->run_id, i_line);
    put_text(out, custom_id);
    sp_buf_text(out, ",\"response\":null,\"error\":{");
    put_pair(out, "code", sp_row_code_name(code));
    sp_buf_char(out, ',');
    put_pair(out, "message", message);
    sp_buf_text(out, "},");
    put_origin(out, context, i_line);
    return sp_buf_text(out, "}}\n") && !out->failed;
}
