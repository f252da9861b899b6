/* Bytes as a chat template, rendered over a fixed conversation with small limits. The spans of the user's text must lie
 * in the output, ascending. */
#include <stdint.h>
#include <stdlib.h>

#include "chat/template.h"
#include "util/json.h"

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\\u00e9 \"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
    "\"text\":\"<b>\\n\\ud83d\\ude00\"}]},{\"role\":\"assistant\",\"content\":\" a{{b}} "
    "\",\"tool_calls\":[{\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[null,true,\"z\"]}}}]}],\"tools\":[{\"function\":{\"name\":\"f\"}}]"
    ","
    "\"add_generation_prompt\":true,\"n\":-3}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static json_t *globals;
    sp_error err = {0};
    if (!globals) globals = sp_json_parse(conversation, sizeof conversation - 1, "conversation", &err);
    sp_template *tpl = sp_template_parse((const char *)data, n_bytes, "template", &err);
    if (!tpl) return 0;
    sp_buf out = {0};
    sp_chat_spans spans = {0};
    sp_render_options options = {.user_globals = globals,
                                 .now_s = 1785587696,
                                 .time_ns = 20000000,
                                 .memory_bytes = 4 << 20,
                                 .user_text = &spans};
    if (sp_template_render(tpl, &options, &out, &err)) {
        size_t at = 0;
        for (size_t i = 0; i < spans.n; i++) {
            if (spans.items[i].from_bytes < at || spans.items[i].to_bytes <= spans.items[i].from_bytes) abort();
            at = spans.items[i].to_bytes;
        }
        if (at > out.n_bytes) abort();
    } else if (err.code != SP_ERR_INPUT || out.n_bytes) {
        abort();
    }
    sp_chat_spans_deinit(&spans);
    sp_buf_deinit(&out);
    sp_template_free(tpl);
    return 0;
}
