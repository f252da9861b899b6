/* Bytes as what a model wrote, in every format of tool calls: what is taken apart lies in order, and arguments are JSON
 * objects. The first byte picks the format and the options. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chat/calls.h"
#include "util/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const sp_reasoning_marks marks = {"<think>", "</think>"};
    if (n_bytes == 0) return 0;
    sp_chat_style style = {.calls = &sp_call_formats[data[0] % sp_n_call_formats], .reasoning = &marks};
    sp_answer_options options = {
        .read_calls = !(data[0] & 0x20), .in_reasoning = data[0] & 0x40, .keep_reasoning = data[0] & 0x80};
    char *text = malloc(n_bytes); /* so that a read past its end is seen */
    SP_CHECK(text != NULL);
    memcpy(text, data + 1, n_bytes - 1);
    sp_answer answer;
    sp_answer_read(&style, &options, text, n_bytes - 1, &answer);
    SP_CHECK(answer.n_calls == 0 || options.read_calls);
    SP_CHECK(answer.content.n_bytes + answer.reasoning.n_bytes <= n_bytes - 1);
    for (size_t i = 0; i < answer.n_calls; i++) {
        sp_error err = {0};
        bool is_wide;
        const sp_tool_call *call = &answer.calls[i];
        json_t *arguments =
            sp_json_parse_wide(call->arguments.text, call->arguments.n_bytes, "arguments", &is_wide, &err);
        SP_CHECK(call->name.n_bytes > 0 && json_is_object(arguments));
        json_decref(arguments);
    }
    sp_answer_deinit(&answer);
    free(text);
    return 0;
}
