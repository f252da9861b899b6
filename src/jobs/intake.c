/* Rows of an input, read ahead. */
#include "jobs/intake.h"

#include <stdlib.h>
#include <string.h>

#include "model/rope.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/size.h"

/* HELD_ROWS bounds what bad rows take until there is a file for their lines. */
enum { LOOK_AHEAD_BYTES = 64 << 20, HELD_ROWS = 4096 };

struct sp_held_row {
    char *custom_id, *message; /* heap */
    size_t i_line;
    sp_row_code code;
};

/* ---- bad rows ---- */

static bool put_bad(sp_intake *intake, const sp_bad_row *row, sp_error *err) {
    if (!intake->held) return intake->setup.bad_row(intake->setup.ctx, row, err);
    if (intake->n_held == intake->held_room) {
        intake->held_room *= 2;
        intake->held = realloc(intake->held, intake->held_room * sizeof *intake->held);
        SP_CHECK(intake->held != NULL);
    }
    sp_held_row *held = &intake->held[intake->n_held++];
    *held = (sp_held_row){strdup(row->custom_id), strdup(row->message), row->i_line, row->code};
    SP_CHECK(held->custom_id && held->message);
    return true;
}

static void free_held(sp_intake *intake) {
    for (size_t i = 0; i < intake->n_held; i++) {
        free(intake->held[i].custom_id);
        free(intake->held[i].message);
    }
    free(intake->held);
    intake->held = NULL;
    intake->n_held = 0;
}

size_t sp_intake_first_bad(const sp_intake *intake) { return intake->n_held ? intake->held[0].i_line : 0; }

bool sp_intake_release(sp_intake *intake, sp_error *err) {
    bool good = true;
    for (size_t i = 0; good && i < intake->n_held; i++) {
        const sp_held_row *held = &intake->held[i];
        sp_bad_row row = {held->custom_id, held->i_line, held->code, held->message};
        good = intake->setup.bad_row(intake->setup.ctx, &row, err);
    }
    free_held(intake);
    return good;
}

/* ---- good rows ---- */

/* A good request and its prompt become a row, or an error line when they are more than the model can take. */
static sp_row_code make_row(const sp_intake *intake, sp_request *request, sp_row **row, sp_error *err) {
    const sp_intake_setup *setup = &intake->setup;
    sp_ids prompt = {0};
    sp_row_code code = sp_frontend_prompt(setup->frontend, request, setup->prompt, &prompt, NULL, err);
    if (code == SP_ROW_OK) code = sp_frontend_fits(setup->arch, request, prompt.n, err);
    if (code != SP_ROW_OK) {
        sp_ids_deinit(&prompt);
        return code;
    }
    sp_request_drop_prompt(request);
    size_t max_new = sp_min_size(request->decoding.max_tokens, setup->arch->n_positions - prompt.n);
    *row =
        sp_row_new(request, &prompt, max_new, setup->frontend->tokenizer, setup->frontend->goes_on, setup->seed, err);
    return *row ? SP_ROW_OK : SP_ROW_NUMERIC;
}

/* Only what an earlier run had in flight or ahead makes it longer than the look-ahead. */
static void grow_queue(sp_intake *intake) {
    size_t room = 2 * intake->queue_room;
    sp_row **queue = calloc(room, sizeof *queue);
    SP_CHECK(queue != NULL);
    for (size_t i = 0; i < intake->n_queued; i++)
        queue[i] = intake->queue[(intake->queue_head + i) % intake->queue_room];
    free(intake->queue);
    intake->queue = queue;
    intake->queue_room = room;
    intake->queue_head = 0;
}

/* Of some models a key depends on how long its row is, or becomes: such rows share none. */
static bool may_share(const sp_arch *arch, const sp_row *row) {
    for (size_t i = 0; i < arch->n_ropes; i++)
        if (!sp_rope_is_fixed(&arch->ropes[i], row->n_prompt, row->n_prompt + row->max_new)) return false;
    return true;
}

static void enqueue(sp_intake *intake, sp_row *row) {
    if (intake->n_queued == intake->queue_room) grow_queue(intake);
    intake->queue[(intake->queue_head + intake->n_queued++) % intake->queue_room] = row;
    if (may_share(intake->setup.arch, row))
        row->block = sp_prefixes_enter(intake->prefixes, row->tokens, row->n_prompt);
    intake->queued_bytes += row->request.line_bytes;
    intake->queued_prompt_tokens += row->n_prompt;
    intake->queued_new_tokens += row->max_new;
    intake->longest_row_tokens = sp_max_size(intake->longest_row_tokens, row->n_prompt + row->max_new);
}

const sp_row *sp_intake_at(const sp_intake *intake, size_t i) {
    return intake->queue[(intake->queue_head + i) % intake->queue_room];
}

/* The rows before it move, so that the oldest costs nothing to take. */
sp_row *sp_intake_take(sp_intake *intake, size_t i) {
    sp_row **queue = intake->queue, *row = queue[(intake->queue_head + i) % intake->queue_room];
    for (; i > 0; i--)
        queue[(intake->queue_head + i) % intake->queue_room] = queue[(intake->queue_head + i - 1) % intake->queue_room];
    intake->queue_head = (intake->queue_head + 1) % intake->queue_room;
    intake->n_queued--;
    intake->queued_bytes -= row->request.line_bytes;
    return row;
}

/* ---- lines ---- */

/* One line: a row into the queue, or a bad row. */
static bool take_line(sp_intake *intake, const sp_line *line, sp_error *err) {
    sp_request request;
    sp_error row_err = {0};
    sp_row *row = NULL;
    sp_row_code code = sp_request_parse(&request, line, intake->setup.decoding, &intake->shape, &row_err);
    if (!sp_idset_add(&intake->ids, request.custom_id)) {
        char id[80];
        sp_error_clear(&row_err);
        sp_fail(&row_err, SP_ERR_INPUT, "custom_id: '%s' found, an earlier row has the same",
                sp_printable(request.custom_id, strlen(request.custom_id), id, sizeof id));
        code = SP_ROW_DUPLICATE_ID;
    }
    const sp_resume *resume = intake->setup.resume;
    bool is_done = resume && sp_resume_is_done(resume, line->i_line), good = true;
    if (code == SP_ROW_OK && !is_done) code = make_row(intake, &request, &row, &row_err);
    if (row && resume) good = sp_journal_restore(resume->journal, row, &intake->setup.frontend->stops, err);
    intake->n_lines++;
    if (is_done && code == SP_ROW_OK && intake->setup.earlier_row)
        intake->setup.earlier_row(intake->setup.ctx, &request);
    if (is_done)
        ; /* its line is there */
    else if (row)
        enqueue(intake, row);
    else if (good)
        good = put_bad(intake, &(sp_bad_row){request.custom_id, line->i_line, code, row_err.text}, err);
    sp_request_deinit(&request);
    return good;
}

/* Whether the look-ahead has room for one more line, be it a good row or a bad one. */
static bool has_room(const sp_intake *intake) {
    bool is_full = intake->held && intake->n_held >= HELD_ROWS;
    return !is_full && (intake->n_queued == 0 || intake->queued_bytes < LOOK_AHEAD_BYTES);
}

/* Whether the next line is there, or comes by then. */
static bool is_ready(const sp_intake *intake, uint64_t until_ns) {
    uint64_t now_ns = sp_clock_ns();
    return sp_input_is_ready(intake->input, now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000) : 0);
}

bool sp_intake_fill(sp_intake *intake, size_t n_wanted, int patience_ms, sp_error *err) {
    const sp_intake_setup *setup = &intake->setup;
    uint64_t until_ns = sp_clock_ns() + (patience_ms > 0 ? (uint64_t)patience_ms * 1000000 : 0);
    while (!intake->is_dry) {
        sp_line line;
        bool is_checking = sp_input_is_expecting(intake->input);
        if (!is_checking && (intake->n_queued >= n_wanted || !has_room(intake))) return true;
        bool is_enough = setup->limit && intake->n_lines >= setup->limit;
        bool may_leave = !is_checking && !is_enough && patience_ms != SP_INTAKE_WAITS;
        if (may_leave && !is_ready(intake, until_ns)) return true;
        if (setup->should_stop(setup->ctx))
            return sp_fail(err, SP_ERR_CANCEL, "%s: stopped while reading it", setup->path);
        int got = is_enough && !is_checking ? 0 : sp_input_next(intake->input, &line, err);
        if (got < 0) return false;
        intake->is_dry = got == 0;
        if (got > 0 && !is_enough && !take_line(intake, &line, err)) return false;
    }
    return true;
}

bool sp_intake_open(sp_intake *intake, const sp_intake_setup *setup, sp_error *err) {
    *intake = (sp_intake){.setup = *setup};
    intake->input = sp_input_open(setup->path, err);
    if (!intake->input) return false;
    sp_input_stop_when(intake->input, setup->should_stop, setup->ctx);
    if (setup->resume) sp_input_expect(intake->input, sp_resume_mark(setup->resume), setup->resume->input_remedy);
    intake->prefixes = sp_prefixes_new();
    intake->queue_room = SP_LOOK_AHEAD_ROWS;
    intake->queue = calloc(intake->queue_room, sizeof *intake->queue);
    intake->held_room = HELD_ROWS;
    intake->held = calloc(intake->held_room, sizeof *intake->held);
    SP_CHECK(intake->queue && intake->held);
    return true;
}

void sp_intake_close(sp_intake *intake) {
    while (intake->n_queued > 0) sp_row_free(sp_intake_take(intake, 0));
    free(intake->queue);
    sp_prefixes_free(intake->prefixes);
    free_held(intake);
    sp_input_close(intake->input);
    sp_idset_deinit(&intake->ids);
}
