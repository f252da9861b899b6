/* spill check: a JSONL file's first bad row, with its line number, in the time it takes to read the file. */
#include <stdio.h>
#include <string.h>

#include "cli/opts.h"
#include "jobs/frontend.h"
#include "jobs/idset.h"
#include "jobs/input.h"
#include "util/json.h"
#include "util/units.h"

typedef struct {
    sp_model *model; /* NULL without --model */
    sp_frontend frontend;
    sp_idset ids;
    sp_shape shape;
    size_t n_rows, n_prompt_tokens;
} check;

/* Against the model: does it render, does it fit? */
static sp_row_code check_prompt(check *c, const sp_request *request, sp_error *err) {
    sp_ids ids = {0};
    sp_row_code code = sp_frontend_prompt(&c->frontend, request, &(sp_prompt_options){0}, &ids, NULL, err);
    if (code == SP_ROW_OK) code = sp_frontend_fits(&c->model->arch, request, ids.n, err);
    c->n_prompt_tokens += ids.n;
    sp_ids_deinit(&ids);
    return code;
}

static bool check_line(check *c, const sp_line *line, sp_error *err) {
    sp_request request;
    sp_decoding defaults = sp_decoding_default();
    sp_row_code code = sp_request_parse(&request, line, &defaults, &c->shape, err);
    if (code == SP_ROW_OK && !sp_idset_add(&c->ids, request.custom_id)) {
        char id[80];
        sp_fail(err, SP_ERR_INPUT, "custom_id: '%s' found, an earlier row has the same",
                sp_printable(request.custom_id, strlen(request.custom_id), id, sizeof id));
        code = SP_ROW_DUPLICATE_ID;
    }
    if (code == SP_ROW_OK && c->model) code = check_prompt(c, &request, err);
    sp_request_deinit(&request);
    c->n_rows++;
    return code == SP_ROW_OK;
}

static int report(const sp_invocation *invocation, const check *c, size_t i_bad_line, const sp_error *row_err) {
    static const char *const shapes[] = {"none", "prompt", "chat", "batch"};
    const char *path = invocation->args[0];
    if (invocation->options[SP_OPT_JSON].given) {
        json_t *json = json_pack("{s:o,s:b,s:I,s:s}", "file", sp_json_text(path), "good", i_bad_line == 0, "rows",
                                 (json_int_t)c->n_rows, "shape", shapes[c->shape]);
        if (i_bad_line) json_object_set_new(json, "line", json_integer((json_int_t)i_bad_line));
        if (i_bad_line) json_object_set_new(json, "error", json_string(row_err->text));
        if (c->model) json_object_set_new(json, "prompt_tokens", json_integer((json_int_t)c->n_prompt_tokens));
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    } else if (i_bad_line) {
        sp_error err = *row_err;
        sp_error_wrap(&err, "%s:%zu", path, i_bad_line);
        fprintf(stderr, "spill: %s\n", err.text);
    } else {
        char shown[280];
        printf("%s: %zu good row%s of shape %s", sp_printable(path, strlen(path), shown, sizeof shown), c->n_rows,
               sp_units_s(c->n_rows), shapes[c->shape]);
        if (c->model) printf(", %zu prompt tokens", c->n_prompt_tokens);
        putchar('\n');
    }
    return i_bad_line ? SP_EXIT_UNUSABLE : SP_EXIT_DONE;
}

static int check_file(const sp_invocation *invocation, check *c, sp_error *err) {
    sp_input *input = sp_input_open(invocation->args[0], err);
    if (!input) return sp_cli_fail(err);
    sp_line line;
    sp_error row_err = {0};
    size_t i_bad_line = 0;
    int got = 0;
    while (!i_bad_line && (got = sp_input_next(input, &line, err)) > 0)
        if (!check_line(c, &line, &row_err)) i_bad_line = line.i_line;
    sp_input_close(input);
    if (got < 0 && err->code == SP_ERR_IO) err->code = SP_ERR_INPUT; /* as in spill run: a file to be mended */
    if (got == 0 && c->n_rows == 0)
        sp_fail(err, SP_ERR_INPUT, "%s: no row found, at least one JSON line wanted", invocation->args[0]);
    return err->code != SP_OK ? sp_cli_fail(err) : report(invocation, c, i_bad_line, &row_err);
}

int sp_cmd_check(const sp_invocation *invocation) {
    check c = {0};
    sp_error err = {0};
    bool good = true;
    if (invocation->options[SP_OPT_MODEL].given) {
        c.model = sp_model_open(invocation->options[SP_OPT_MODEL].text, &err);
        good = c.model && sp_frontend_open_model(&c.frontend, c.model, &err);
    }
    int status = good ? check_file(invocation, &c, &err) : sp_cli_fail(&err);
    sp_frontend_deinit(&c.frontend);
    sp_model_close(c.model);
    sp_idset_deinit(&c.ids);
    return status;
}
