/* Rows in: what a line becomes, and how each kind of bad line is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/request.h"
#include "jobs/row.h"

static sp_row_code parse(sp_request *request, const char *line, sp_shape *shape, sp_error *err) {
    sp_decoding defaults = sp_decoding_default();
    *err = (sp_error){0};
    return sp_request_parse(request, &(sp_line){line, strlen(line), 17, false}, &defaults, shape, err);
}

static const struct {
    const char *line;
    sp_row_code code;
    const char *message; /* part of it, NULL for a good row */
} cases[] = {
    {"{\"prompt\":\"hi\"}", SP_ROW_OK, NULL},
    {"{\"prompt\":\"hi\",\"system\":\"s\",\"expected\":\"x\",\"answer\":null}", SP_ROW_OK, NULL},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", SP_ROW_OK, NULL},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]}", SP_ROW_OK, NULL},
    {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
     "completions\",\"body\":{\"messages\":[{\"role\":\"user\","
     "\"content\":\"x\"}],\"model\":\"m\",\"n\":1,\"stream\":false,\"presence_penalty\":0,\"max_tokens\":5.0}}",
     SP_ROW_OK, NULL},
    {"{\"prompt\":\"hi\",\"tool_choice\":\"auto\",\"stop\":[\"a\",\"b\"],\"top_k\":-1,\"seed\":-5}", SP_ROW_OK, NULL},
    {"{\"prompt\":\"hi\",\"max_tokens\":3,\"max_completion_tokens\":3}", SP_ROW_OK, NULL},
    {"{\"prompt\":\"hi\"", SP_ROW_INVALID_JSON, "line 17: not JSON at column "},
    {"{", SP_ROW_INVALID_JSON, "an object a line wanted"},
    {"[1,2]", SP_ROW_INVALID_JSON, "an object wanted"},
    {"null", SP_ROW_INVALID_JSON, "an object wanted"},
    {"\"text\"", SP_ROW_INVALID_JSON, "an object wanted"},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", SP_ROW_INVALID_JSON, "duplicate"},
    {"{\"prompt\":\"\xff\"}", SP_ROW_INVALID_JSON, "line 17"},
    {"{}", SP_ROW_INVALID_REQUEST, "prompt, messages, body"},
    {"{\"prompt\":5}", SP_ROW_INVALID_REQUEST, "prompt: 5 found, a string wanted"},
    {"{\"prompt\":\"a\",\"max_tokens\":\"5\"}", SP_ROW_INVALID_REQUEST, "max_tokens: \"5\" found"},
    {"{\"prompt\":\"a\",\"max_tokens\":true}", SP_ROW_INVALID_REQUEST, "max_tokens: true found"},
    {"{\"prompt\":\"a\",\"max_tokens\":0}", SP_ROW_INVALID_REQUEST, "max_tokens: 0 found"},
    {"{\"prompt\":\"a\",\"max_tokens\":2.5}", SP_ROW_INVALID_REQUEST, "max_tokens: 2.5 found"},
    {"{\"prompt\":\"a\",\"max_tokens\":1e300}", SP_ROW_INVALID_REQUEST, "max_tokens"},
    {"{\"prompt\":\"a\",\"max_tokens\":3,\"max_completion_tokens\":4}", SP_ROW_INVALID_REQUEST, "two different values"},
    {"{\"prompt\":\"a\",\"temperature\":-1}", SP_ROW_INVALID_REQUEST, "temperature: -1 found"},
    {"{\"prompt\":\"a\",\"top_p\":0}", SP_ROW_INVALID_REQUEST, "top_p"},
    {"{\"prompt\":\"a\",\"top_p\":1.5}", SP_ROW_INVALID_REQUEST, "top_p"},
    {"{\"prompt\":\"a\",\"n\":2}", SP_ROW_INVALID_REQUEST, "n: 2 found"},
    {"{\"prompt\":\"a\",\"stream\":true}", SP_ROW_INVALID_REQUEST, "stream: true found, false wanted"},
    {"{\"prompt\":\"a\",\"frequency_penalty\":2.5}", SP_ROW_INVALID_REQUEST,
     "frequency_penalty: 2.5 found, a number from -2 to 2 wanted"},
    {"{\"prompt\":\"a\",\"presence_penalty\":\"1\"}", SP_ROW_INVALID_REQUEST, "presence_penalty: \"1\" found"},
    {"{\"prompt\":\"a\",\"response_format\":{\"type\":\"json_object\"}}", SP_ROW_INVALID_REQUEST,
     "response_format: {\"type\": \"json_object\"} found"},
    {"{\"prompt\":\"a\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"min_tokens\":2}", SP_ROW_OK,
     NULL},
    {"{\"prompt\":\"a\",\"min_tokens\":5,\"max_tokens\":4}", SP_ROW_INVALID_REQUEST,
     "min_tokens: 5 found, at most max_tokens (4) wanted"},
    {"{\"prompt\":\"a\",\"min_tokens\":-1}", SP_ROW_INVALID_REQUEST, "min_tokens: -1 found"},
    {"{\"prompt\":\"a\",\"modalities\":[\"text\",\"audio\"]}", SP_ROW_INVALID_REQUEST, "modalities"},
    {"{\"prompt\":\"a\",\"audio\":{\"voice\":\"x\"}}", SP_ROW_INVALID_REQUEST, "audio: not supported"},
    {"{\"prompt\":\"a\",\"stream_options\":{\"include_usage\":true}}", SP_ROW_INVALID_REQUEST,
     "stream_options: not supported, remove it"},
    {"{\"prompt\":\"a\",\"functions\":[]}", SP_ROW_INVALID_REQUEST, "functions: not supported, write tools"},
    {"{\"prompt\":\"a\",\"function_call\":\"auto\"}", SP_ROW_INVALID_REQUEST,
     "function_call: not supported, write tool_"},
    {"{\"prompt\":\"a\",\"web_search_options\":{}}", SP_ROW_INVALID_REQUEST, "web_search_options: not supported"},
    {"{\"prompt\":\"a\",\"store\":true,\"metadata\":{},\"user\":\"u\",\"service_tier\":\"flex\",\"safety_identifier\":"
     "\"s\","
     "\"prompt_cache_key\":\"k\",\"prompt_cache_retention\":\"24h\",\"prediction\":{\"type\":\"content\",\"content\":"
     "\"c\"}}",
     SP_ROW_OK, NULL},
    {"{\"prompt\":\"a\",\"user\":5,\"store\":1,\"metadata\":[]}", SP_ROW_OK, NULL},
    {"{\"prompt\":\"a\",\"parallel_tool_calls\":false,\"parse_tool_calls\":true,\"reasoning_format\":\"none\","
     "\"reasoning_effort\":\"high\",\"verbosity\":\"low\"}",
     SP_ROW_OK, NULL},
    {"{\"prompt\":\"a\",\"parallel_tool_calls\":0}", SP_ROW_INVALID_REQUEST, "parallel_tool_calls: 0 found"},
    {"{\"prompt\":\"a\",\"reasoning_format\":\"raw\"}", SP_ROW_INVALID_REQUEST, "reasoning_format: \"raw\" found"},
    {"{\"prompt\":\"a\",\"reasoning_effort\":3}", SP_ROW_INVALID_REQUEST, "reasoning_effort: 3 found"},
    {"{\"prompt\":\"a\",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}}", SP_ROW_INVALID_REQUEST,
     "tool_choice: {"},
    {"{\"prompt\":\"a\",\"tools\":[{\"type\":\"custom\"}]}", SP_ROW_INVALID_REQUEST, "tools[0].type: \"custom\" found"},
    {"{\"prompt\":\"a\",\"tools\":[{\"type\":\"function\",\"function\":{}}]}", SP_ROW_INVALID_REQUEST,
     "tools[0].function: {} found, an object with a name wanted"},
    {"{\"prompt\":\"a\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]}",
     SP_ROW_INVALID_REQUEST, "tools[0].function.strict: true found"},
    {"{\"prompt\":\"a\",\"stop\":\"\"}", SP_ROW_INVALID_REQUEST, "stop"},
    {"{\"prompt\":\"a\",\"stop\":[1]}", SP_ROW_INVALID_REQUEST, "stop: 1 found"},
    {"{\"prompt\":\"a\",\"logprobs\":1}", SP_ROW_INVALID_REQUEST, "logprobs: 1 found, true or false"},
    {"{\"prompt\":\"a\",\"top_logprobs\":5}", SP_ROW_INVALID_REQUEST, "needs logprobs"},
    {"{\"prompt\":\"a\",\"logprobs\":true,\"top_logprobs\":21}", SP_ROW_INVALID_REQUEST, "top_logprobs: 21 found"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", SP_ROW_INVALID_REQUEST, "logit_bias: key 'x'"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"5\":1,\"05\":2}}", SP_ROW_INVALID_REQUEST, "logit_bias: id 5 found twice"},
    {"{\"prompt\":\"a\",\"seed\":99999999999999999999}", SP_ROW_INVALID_REQUEST, "seed: 1e20 found"},
    {"{\"prompt\":\"a\",\"metadata\":{\"x\":99999999999999999999}}", SP_ROW_INVALID_REQUEST, "past 64 bits"},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"5\":101}}", SP_ROW_INVALID_REQUEST, "logit_bias: 101 found"},
    {"{\"prompt\":\"a\",\"tools\":{}}", SP_ROW_INVALID_REQUEST, "tools: {} found"},
    {"{\"prompt\":\"a\",\"tool_choice\":\"required\"}", SP_ROW_INVALID_REQUEST, "tool_choice"},
    {"{\"prompt\":\"a\",\"chat_template_kwargs\":[]}", SP_ROW_INVALID_REQUEST, "chat_template_kwargs"},
    {"{\"messages\":[]}", SP_ROW_INVALID_REQUEST, "messages: an empty list"},
    {"{\"messages\":\"hi\"}", SP_ROW_INVALID_REQUEST, "messages: \"hi\" found"},
    {"{\"messages\":[{\"content\":\"x\"}]}", SP_ROW_INVALID_REQUEST, "messages[0].role"},
    {"{\"messages\":[{\"role\":\"user\"}]}", SP_ROW_INVALID_REQUEST, "messages[0].content: missing"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":5}]}", SP_ROW_INVALID_REQUEST, "messages[0]: content: 5 found"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}",
     SP_ROW_INVALID_REQUEST, "messages[0].content[0]: \"image_url\" found"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{"
     "\"name\":\"f\","
     "\"arguments\":\"{}\"}},{\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"x\"}]"
     "}",
     SP_ROW_OK, NULL},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", SP_ROW_INVALID_REQUEST,
     "messages[0].tool_calls: {} found, a list of calls"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[5]}]}", SP_ROW_INVALID_REQUEST,
     "messages[0].tool_calls[0]: 5 found"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]}]}", SP_ROW_INVALID_REQUEST,
     "messages[0].tool_calls[0].type: \"custom\" found"},
    {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":[]}}]}]}",
     SP_ROW_INVALID_REQUEST, "messages[0].tool_calls[0].function.arguments: [] found"},
    {"{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}]}", SP_ROW_INVALID_REQUEST,
     "messages[0].function_call: {"},
    {"{\"body\":{}}", SP_ROW_INVALID_REQUEST, "body.messages: missing"},
    {"{\"body\":{\"prompt\":\"x\"}}", SP_ROW_INVALID_REQUEST, "prompt: unknown"},
    {"{\"body\":5}", SP_ROW_INVALID_REQUEST, "body: 5 found"},
    {"{\"method\":\"GET\",\"body\":{}}", SP_ROW_INVALID_REQUEST, "method: \"GET\" found"},
    {"{\"url\":\"/v1/embeddings\",\"body\":{}}", SP_ROW_INVALID_REQUEST, "url"},
    {"{\"extra\":1,\"body\":{}}", SP_ROW_INVALID_REQUEST, "extra: unknown field beside body"},
    {"{\"custom_id\":7,\"prompt\":\"a\"}", SP_ROW_INVALID_REQUEST, "custom_id: 7 found"},
    {"{\"custom_id\":\"\",\"prompt\":\"a\"}", SP_ROW_INVALID_REQUEST, "custom_id"},
    {"{\"custom_id\":\"a\\u0000b\",\"prompt\":\"a\"}", SP_ROW_INVALID_REQUEST, "custom_id"},
};

static void test_lines(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sp_request request;
        sp_error err;
        sp_shape shape = SP_SHAPE_UNKNOWN;
        sp_row_code code = parse(&request, cases[i].line, &shape, &err);
        if (code != cases[i].code || (cases[i].message && !strstr(err.text, cases[i].message)))
            fail_msg("%s: code %d, message '%s'", cases[i].line, (int)code, err.text);
        assert_true((code == SP_ROW_OK) == (shape != SP_SHAPE_UNKNOWN));
        assert_non_null(request.custom_id);
        sp_request_deinit(&request);
    }
}

static void test_names(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(parse(&request, "{\"prompt\":\"a\",\"custom_id\":null}", &shape, &err), SP_ROW_OK);
    assert_string_equal(request.custom_id, "row-000017");
    sp_request_deinit(&request);
    assert_int_equal(parse(&request, "not json", &shape, &err), SP_ROW_INVALID_JSON);
    assert_string_equal(request.custom_id, "row-000017");
    sp_request_deinit(&request);
    assert_int_equal(parse(&request, "{\"custom_id\":\"mine\",\"prompt\":5}", &shape, &err), SP_ROW_INVALID_REQUEST);
    assert_string_equal(request.custom_id, "mine");
    sp_request_deinit(&request);
}

static void test_wide_integers_keep_the_name(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(
        parse(&request, "{\"custom_id\":\"w\",\"prompt\":\"a\",\"metadata\":[99999999999999999999]}", &shape, &err),
        SP_ROW_INVALID_REQUEST);
    assert_string_equal(request.custom_id, "w");
    assert_int_equal(shape, SP_SHAPE_UNKNOWN);
    sp_request_deinit(&request);
}

/* What a waiting row keeps is what its answer needs. */
static void test_drop_prompt(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(
        parse(&request, "{\"custom_id\":\"a\",\"prompt\":\"p\",\"stop\":[\"END\"],\"expected\":\"e\",\"user\":\"u\"}",
              &shape, &err),
        SP_ROW_OK);
    sp_request_drop_prompt(&request);
    assert_null(request.prompt);
    assert_string_equal(request.custom_id, "a");
    assert_string_equal(request.decoding.stop[0], "END");
    assert_string_equal(json_string_value(request.expected), "e");
    sp_request_deinit(&request);
}

static void test_one_shape_per_file(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(parse(&request, "{\"prompt\":5}", &shape, &err), SP_ROW_INVALID_REQUEST);
    assert_int_equal(shape, SP_SHAPE_UNKNOWN); /* a bad row decides nothing */
    sp_request_deinit(&request);
    assert_int_equal(parse(&request, "{\"prompt\":\"a\"}", &shape, &err), SP_ROW_OK);
    sp_request_deinit(&request);
    assert_int_equal(parse(&request, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &shape, &err),
                     SP_ROW_INVALID_REQUEST);
    assert_non_null(strstr(err.text, "one shape per file"));
    sp_request_deinit(&request);
}

static void test_values(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(
        parse(&request,
              "{\"prompt\":\"a\",\"max_tokens\":5.0,\"temperature\":0.7,\"top_p\":0.9,\"top_k\":40,\"seed\":12,"
              "\"stop\":\"END\",\"logprobs\":true,\"top_logprobs\":3,\"logit_bias\":{\"9\":-100,\"3\":2.5},\"min_"
              "tokens\":2,"
              "\"frequency_penalty\":0.5,\"presence_penalty\":-1,\"tools\":[{}],\"parallel_tool_calls\":false}",
              &shape, &err),
        SP_ROW_OK);
    const sp_decoding *decoding = &request.decoding;
    assert_int_equal(decoding->max_tokens, 5);
    assert_true(decoding->temperature == 0.7 && decoding->top_p == 0.9);
    assert_int_equal(decoding->top_k, 40);
    assert_true(decoding->has_seed && decoding->seed == 12);
    assert_int_equal(decoding->n_stop, 1);
    assert_string_equal(decoding->stop[0], "END");
    assert_true(decoding->logprobs && decoding->top_logprobs == 3);
    assert_int_equal(decoding->n_bias, 2);
    assert_int_equal(decoding->bias[0].id, 3); /* ascending */
    assert_int_equal(decoding->bias[1].id, 9);
    assert_int_equal(decoding->min_tokens, 2);
    assert_true(decoding->frequency_penalty == 0.5 && decoding->presence_penalty == -1);
    assert_true(request.has_tools && request.one_call && !request.raw_calls && !request.raw_reasoning);
    sp_request_deinit(&request);
}

/* tool_choice none: the model is shown no tools. */
static void test_no_tools(void **state) {
    (void)state;
    sp_request request;
    sp_error err;
    sp_shape shape = SP_SHAPE_UNKNOWN;
    assert_int_equal(parse(&request, "{\"prompt\":\"a\",\"tools\":[{}],\"tool_choice\":\"none\"}", &shape, &err),
                     SP_ROW_OK);
    assert_true(request.tools == NULL && !request.has_tools);
    sp_request_deinit(&request);
}

static void test_stop_strings(void **state) {
    (void)state;
    const char *stops[] = {"END", "\n\n"};
    size_t bytes[] = {3, 2};
    sp_decoding decoding = {.n_stop = 2, .stop = stops, .stop_bytes = bytes};
    assert_int_equal(sp_row_find_stop(&decoding, "a\n\nENDb", 7, 0), 1); /* the earliest */
    assert_int_equal(sp_row_find_stop(&decoding, "a\n\nENDb", 7, 2), 3);
    assert_true(sp_row_find_stop(&decoding, "EN", 2, 0) == SIZE_MAX);
    assert_true(sp_row_find_stop(&decoding, "", 0, 0) == SIZE_MAX);
}

static void test_stop_ids(void **state) {
    (void)state;
    sp_stop_ids stops = {0};
    sp_stop_ids_add(&stops, 9);
    sp_stop_ids_add(&stops, 2);
    sp_stop_ids_add(&stops, 9);
    sp_stop_ids_add(&stops, -1); /* a tokenizer without an end token */
    assert_int_equal(stops.n, 2);
    assert_true(stops.ids[0] == 2 && stops.ids[1] == 9);
    assert_true(sp_stop_ids_has(&stops, 9) && !sp_stop_ids_has(&stops, 3));
    free(stops.ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_integers_keep_the_name),
        cmocka_unit_test(test_drop_prompt),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_one_shape_per_file),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_no_tools),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stop_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
