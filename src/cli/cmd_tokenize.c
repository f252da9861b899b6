/* spill tokenize: token ids and rendered prompts, for counting and for checking. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/opts.h"
#include "jobs/frontend.h"
#include "jobs/input.h"
#include "util/json.h"

typedef struct {
    const sp_invocation *invocation;
    sp_frontend frontend;
    sp_model *model; /* of a GGUF file; NULL for a directory */
    sp_prompt_options prompt;
    sp_shape shape;
    sp_buf line;
} tokenize;

static void put_ids(sp_buf *out, const sp_ids *ids) {
    sp_buf_text(out, "\"tokens\":");
    sp_json_int32s(out, ids->ids, ids->n);
}

static bool has(const tokenize *t, sp_option_id id) { return t->invocation->options[id].given; }

/* {"custom_id", "text"}: ids without special tokens unless asked for, and the text they decode to. */
static bool text_row(tokenize *t, const json_t *text, sp_error *err) {
    sp_ids ids = {0};
    sp_buf decoded = {0};
    sp_encode_options options = {.add_special = has(t, SP_OPT_ADD_SPECIAL), .plain_text = t->prompt.plain_text};
    bool good = sp_tokenizer_encode(t->frontend.tokenizer, json_string_value(text), json_string_length(text), &options,
                                    &ids, err) &&
                sp_tokenizer_decode(t->frontend.tokenizer, ids.ids, ids.n, false, &decoded, err);
    if (good) {
        put_ids(&t->line, &ids);
        sp_buf_text(&t->line, ",\"text\":");
        sp_json_quote(&t->line, decoded.data ? decoded.data : "", decoded.n_bytes);
    }
    sp_ids_deinit(&ids);
    sp_buf_deinit(&decoded);
    return good;
}

static bool prompt_row(tokenize *t, const sp_request *request, sp_error *err) {
    sp_ids ids = {0};
    sp_buf rendered = {0};
    bool good = sp_frontend_prompt(&t->frontend, request, &t->prompt, &ids, &rendered, err) == SP_ROW_OK;
    if (good) {
        sp_buf_text(&t->line, "\"prompt\":");
        sp_json_quote(&t->line, rendered.data ? rendered.data : "", rendered.n_bytes);
        sp_buf_char(&t->line, ',');
        put_ids(&t->line, &ids);
    }
    sp_ids_deinit(&ids);
    sp_buf_deinit(&rendered);
    return good;
}

/* A row of the text shape is its own: {"custom_id", "text"}, known by its "text". */
static bool one_row(tokenize *t, const sp_line *line, sp_error *row_err) {
    sp_request request;
    sp_decoding defaults = sp_decoding_default();
    sp_error ignored = {0};
    json_t *object = line->too_long ? NULL : sp_json_parse(line->text, line->n_bytes, "line", &ignored);
    const json_t *text = json_object_get(object, "text");
    bool is_text = json_is_string(text);
    if (!is_text) {
        json_decref(object); /* a line may have megabytes, and the request has its own tree */
        object = NULL;
    }
    sp_row_code code = sp_request_parse(&request, line, &defaults, &t->shape, is_text ? &ignored : row_err);
    sp_buf_clear(&t->line);
    sp_buf_text(&t->line, "{\"custom_id\":");
    sp_json_quote(&t->line, request.custom_id, strlen(request.custom_id));
    sp_buf_char(&t->line, ',');
    size_t mark = t->line.n_bytes;
    bool good = is_text ? text_row(t, text, row_err) : code == SP_ROW_OK && prompt_row(t, &request, row_err);
    if (!good) {
        t->line.n_bytes = mark;
        sp_buf_text(&t->line, "\"error\":{\"message\":");
        sp_json_quote(&t->line, row_err->text, strlen(row_err->text));
        sp_buf_char(&t->line, '}');
    }
    sp_buf_text(&t->line, "}\n");
    sp_request_deinit(&request);
    json_decref(object);
    return good;
}

static bool open_frontend(tokenize *t, const char *path, sp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0) return sp_fail(err, SP_ERR_INPUT, "%s: no such model directory or GGUF file", path);
    if (S_ISDIR(st.st_mode)) return sp_frontend_open_dir(&t->frontend, path, err);
    t->model = sp_model_open(path, err);
    return t->model && sp_frontend_open_model(&t->frontend, t->model, err);
}

static int run_rows(tokenize *t, sp_error *err) {
    size_t n_rows = 0, n_bad = 0;
    size_t limit = has(t, SP_OPT_LIMIT) ? (size_t)t->invocation->options[SP_OPT_LIMIT].count : SIZE_MAX;
    sp_input *input = sp_input_open(t->invocation->args[1], err);
    if (!input) return sp_cli_fail(err);
    sp_line line;
    int got = 0;
    while (n_rows < limit && (got = sp_input_next(input, &line, err)) > 0) {
        sp_error row_err = {0};
        n_bad += !one_row(t, &line, &row_err);
        n_rows++;
        if (fwrite(t->line.data, 1, t->line.n_bytes, stdout) != t->line.n_bytes) {
            if (errno != EPIPE) sp_fail_errno(err, "stdout");
            n_bad = 0; /* main() tells of a reader that left */
            break;
        }
    }
    sp_input_close(input);
    if (got >= 0 && n_rows == 0)
        sp_fail(err, SP_ERR_INPUT, "%s: no row found, at least one JSON line wanted", t->invocation->args[1]);
    if (err->code != SP_OK) return sp_cli_fail(err);
    return n_bad ? 3 : 0;
}

int sp_cmd_tokenize(const sp_invocation *invocation) {
    tokenize t = {
        .invocation = invocation,
        .prompt = {.plain_text = invocation->options[SP_OPT_PLAIN_TEXT].given,
                   .no_generation_prompt = invocation->options[SP_OPT_NO_GENERATION_PROMPT].given,
                   .as_transformers = true,
                   .now_s = invocation->options[SP_OPT_DATE].given ? invocation->options[SP_OPT_DATE].count : 0},
    };
    sp_error err = {0};
    int status = open_frontend(&t, invocation->args[0], &err) ? run_rows(&t, &err) : sp_cli_fail(&err);
    sp_frontend_deinit(&t.frontend);
    sp_model_close(t.model);
    sp_buf_deinit(&t.line);
    return status;
}
