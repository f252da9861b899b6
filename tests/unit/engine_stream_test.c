/* The weights' stream: every byte of every matrix, once a pass, in schedule order, however it is cut and kept; faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/stream.h"
#include "engine_synthetic.h"
#include "planner/pin.h"
#include "util/size.h"

static const synthetic_shape shape = {
    .n_layers = 3, .d_model = 48, .n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .d_ffn = 136, .n_vocab = 331};

typedef struct {
    char path[64];
    sp_model *model;
} fixture;

static void make(fixture *f, bool tied) {
    *f = (fixture){.path = "/tmp/spill-stream-XXXXXX"};
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    synthetic_shape s = shape;
    s.tied_head = tied;
    f->model = synthetic_new(&s, f->path);
}

static void discard(fixture *f) {
    unlink(f->path);
    synthetic_free(f->model);
}

static bool chunk_is_right(const sp_chunk *c) {
    const unsigned char *bytes = c->w;
    uint64_t at = c->matrix->offset_bytes + (uint64_t)c->row0 * c->matrix->row_bytes;
    for (size_t i = 0; i < c->n_rows * c->matrix->row_bytes; i++)
        if (bytes[i] != synthetic_byte(at + i)) return false;
    return true;
}

static size_t layer_rows(const sp_layer *layer, bool last_without_logits) {
    size_t n_rows = layer->q.n_rows + layer->k.n_rows + layer->v.n_rows;
    if (last_without_logits) return n_rows;
    return n_rows + layer->o.n_rows + layer->gate.n_rows + layer->up.n_rows + layer->down.n_rows;
}

static size_t rows_of(const sp_model *model, sp_stream_part part) {
    size_t n_rows = part == SP_STREAM_NO_LOGITS ? 0 : model->head.n_rows;
    if (part == SP_STREAM_ALL && !model->arch.tied_head) n_rows += model->embed.n_rows;
    for (size_t l = 0; l < model->arch.n_layers; l++)
        n_rows += layer_rows(&model->layers[l], part == SP_STREAM_NO_LOGITS && l + 1 == model->arch.n_layers);
    return n_rows;
}

static size_t layer_bytes(const sp_model *model, size_t l) {
    const sp_layer *layer = &model->layers[l];
    const sp_matrix *matrices[] = {&layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
    size_t n_bytes = 0;
    for (size_t i = 0; i < 7; i++) n_bytes += matrices[i]->n_rows * matrices[i]->row_bytes;
    return n_bytes;
}

static size_t matrix_bytes(const sp_matrix *matrix) { return matrix->n_rows * matrix->row_bytes; }

/* One pass; checks order, coverage and content. */
static bool run_part(const sp_model *model, sp_stream *stream, size_t ffn_block, sp_stream_part part, sp_error *err) {
    size_t next_row[SP_WEIGHT_COUNT] = {0}, n_rows = 0, n_wanted = rows_of(model, part);
    sp_stream_begin_pass(stream, part);
    while (n_rows < n_wanted) {
        sp_chunk chunks[SP_STREAM_TAKE];
        size_t n = sp_stream_take(stream, n_rows % 300, chunks, err);
        if (n == 0) return false;
        for (size_t i = 0; i < n; i++) {
            const sp_chunk *c = &chunks[i];
            if (c->row0 == 0 && next_row[c->weight] == c->matrix->n_rows) next_row[c->weight] = 0;
            assert_int_equal(c->row0, next_row[c->weight]);
            next_row[c->weight] += c->n_rows;
            n_rows += c->n_rows;
            assert_true(chunk_is_right(c));
            if (c->weight == SP_WEIGHT_UP) assert_true(c->row0 / ffn_block == (c->row0 + c->n_rows - 1) / ffn_block);
            assert_true(c->matrix == chunks[0].matrix || c->i_layer == chunks[0].i_layer);
        }
        sp_stream_release(stream);
    }
    return sp_stream_end_pass(stream, err);
}

static bool run_pass(const sp_model *model, sp_stream *stream, size_t ffn_block, sp_error *err) {
    return run_part(model, stream, ffn_block, SP_STREAM_LOGITS, err);
}

/* A run is waited for: of chunks of a row each as many as are wanted, of one group, in half of the slots. */
static void waits_for_wanted_rows(void **state) {
    (void)state;
    fixture f;
    make(&f, false);
    const sp_stream_options options = {
        .chunk_bytes = 1, .ffn_block = 64, .n_slots = 24, .depth = 1, .n_embed_max = 1, .backend = SP_RING_THREADS};
    sp_error err = {0};
    sp_stream *stream = sp_stream_open(f.model, &options, &err);
    assert_non_null(stream);
    sp_chunk chunks[SP_STREAM_TAKE];
    sp_stream_begin_pass(stream, SP_STREAM_LOGITS);
    assert_true(sp_stream_take(stream, 9, chunks, &err) >= 9);
    sp_stream_release(stream);
    assert_true(sp_stream_take(stream, 1000, chunks, &err) >= 12);
    sp_stream_release(stream);
    sp_stream_close(stream);
    discard(&f);
}

static void gives_every_byte(void **state) {
    (void)state;
    fixture f;
    make(&f, false);
    const sp_stream_options table[] = {
        {.chunk_bytes = 1 << 20, .ffn_block = 136},
        {.chunk_bytes = 500, .ffn_block = 64},
        {.chunk_bytes = 1, .ffn_block = 64, .depth = 1},
        {.chunk_bytes = 1 << 20, .ffn_block = 136, .n_slots = 1},
        {.chunk_bytes = 1000,
         .ffn_block = 64,
         .n_slots = 3,
         .backend = SP_RING_THREADS,
         .depth = 3,
         .request_bytes = 4096},
        {.chunk_bytes = 3000, .ffn_block = 64, .n_slots = 2, .backend = SP_RING_AUTO, .depth = 9, .request_bytes = 512},
        {.chunk_bytes = 3000, .ffn_block = 64, .n_slots = 7, .backend = SP_RING_THREADS, .keep_embed = true},
        {.chunk_bytes = 700, .ffn_block = 128, .n_slots = 1000, .keep_embed = true},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        sp_error err = {0};
        sp_stream_options options = table[i];
        options.n_embed_max = 4;
        sp_stream *stream = sp_stream_open(f.model, &options, &err);
        assert_non_null(stream);
        for (int pass = 0; pass < 4; pass++) assert_true(run_pass(f.model, stream, options.ffn_block, &err));
        sp_stream_close(stream);
    }
    discard(&f);
}

/* Bytes landed so far: what passes took, and at most a ring's content more. */
static void check_bytes_read(const sp_stream *stream, size_t n_taken, size_t ring_bytes) {
    size_t n_bytes = sp_stream_bytes_read(stream);
    if (n_bytes < n_taken || n_bytes > n_taken + ring_bytes)
        fail_msg("%zu bytes read, %zu to %zu wanted", n_bytes, n_taken, n_taken + ring_bytes);
}

enum { N_PASSES = 5, CHUNK = 900, BLOCK = 64 };

static sp_stream *open_mixed(const sp_model *model, size_t n_slots, size_t n_pinned_layers, int bits) {
    sp_error err = {0};
    const sp_stream_options options = {.chunk_bytes = CHUNK,
                                       .ffn_block = BLOCK,
                                       .n_slots = n_slots,
                                       .n_pinned_layers = n_pinned_layers,
                                       .pin_head = bits & 1,
                                       .keep_embed = bits & 2,
                                       .n_embed_max = 4,
                                       .backend = bits & 4 ? SP_RING_THREADS : SP_RING_AUTO};
    sp_stream *stream = sp_stream_open(model, &options, &err);
    if (!stream) fail_msg("%s", err.text);
    return stream;
}

static void any_set_of_layers_is_pinned(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        fixture f;
        make(&f, tied);
        for (size_t i = 0; i < 3 * 4 * 8; i++) {
            static const size_t slots[] = {1, 3, 1000};
            size_t n_slots = slots[i % 3], n_pinned = i / 3 % 4;
            int bits = (int)(i / 12);
            sp_error err = {0};
            sp_stream *stream = open_mixed(f.model, n_slots, n_pinned, bits);
            size_t kept = bits & 1 ? matrix_bytes(&f.model->head) : 0, again = matrix_bytes(&f.model->head) - kept;
            if (bits & 2 && !tied) kept += matrix_bytes(&f.model->embed);
            for (uint32_t n = 0; n < 3; n++)
                *(n < n_pinned ? &kept : &again) += layer_bytes(f.model, sp_pin_order(3, n));
            for (int pass = 0; pass < N_PASSES; pass++) assert_true(run_pass(f.model, stream, BLOCK, &err));
            size_t unread = bits & 2 && !tied ? matrix_bytes(&f.model->embed) : 0; /* it may come last */
            check_bytes_read(stream, kept - unread + N_PASSES * again, n_slots * CHUNK + unread);
            sp_stream_close(stream);
        }
        discard(&f);
    }
}

static void what_a_pass_does_not_take_is_not_read(void **state) {
    (void)state;
    fixture f;
    make(&f, false);
    size_t head = matrix_bytes(&f.model->head), embed = matrix_bytes(&f.model->embed), products = head;
    for (size_t l = 0; l < 3; l++) products += layer_bytes(f.model, l);
    size_t last = layer_bytes(f.model, 2) - matrix_bytes(&f.model->layers[2].q) - matrix_bytes(&f.model->layers[2].k) -
                  matrix_bytes(&f.model->layers[2].v);
    static const sp_stream_part parts[] = {SP_STREAM_NO_LOGITS, SP_STREAM_NO_LOGITS, SP_STREAM_ALL, SP_STREAM_LOGITS,
                                           SP_STREAM_NO_LOGITS, SP_STREAM_LOGITS,    SP_STREAM_ALL};
    static const size_t slots[] = {1, 2, 5, 1000};
    for (size_t i = 0; i < 4; i++) {
        sp_error err = {0};
        size_t n_taken = 0;
        sp_stream *stream = open_mixed(f.model, slots[i], 0, 0);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            assert_true(run_part(f.model, stream, BLOCK, parts[k], &err));
            n_taken += parts[k] == SP_STREAM_NO_LOGITS ? products - head - last
                       : parts[k] == SP_STREAM_ALL     ? products + embed
                                                       : products;
            size_t ahead = sp_min_size(slots[i] * CHUNK, products - head - last);
            check_bytes_read(stream, n_taken, ahead);
        }
        sp_stream_close(stream);
    }
    discard(&f);
}

/* Memory comes piece by piece, at every possible moment: the bytes stay, fewer are read. */
static void the_pinned_set_grows(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        fixture f;
        make(&f, tied);
        for (size_t first = 0; first < 4; first++)
            for (size_t n_slots = 1; n_slots < 200; n_slots += 66) {
                sp_error err = {0};
                sp_stream *stream = open_mixed(f.model, n_slots, first % 2, tied ? 4 : 0);
                size_t n_memory = sp_stream_memory_bytes(stream), n_granted = 0;
                for (size_t pass = 0; pass < 12; pass++) {
                    sp_stream_part part = (pass + first) % 3 ? SP_STREAM_LOGITS : SP_STREAM_NO_LOGITS;
                    assert_true(run_part(f.model, stream, BLOCK, part, &err));
                    size_t lacking = sp_stream_growth_bytes(stream);
                    if (pass < first || lacking == SIZE_MAX) continue;
                    size_t granted = pass % 2 ? lacking : lacking / 2 + 1;
                    n_granted += granted;
                    sp_stream_grow(stream, granted);
                    assert_true(sp_stream_memory_bytes(stream) <= n_memory + n_granted);
                }
                assert_int_equal(sp_stream_growth_bytes(stream), SIZE_MAX);
                assert_true(run_pass(f.model, stream, BLOCK, &err));
                size_t n_bytes = sp_stream_bytes_read(stream);
                for (size_t pass = 0; pass < 3; pass++) assert_true(run_pass(f.model, stream, BLOCK, &err));
                assert_int_equal(sp_stream_bytes_read(stream), n_bytes);
                sp_stream_close(stream);
            }
        discard(&f);
    }
}

static void a_pass_may_end_early(void **state) {
    (void)state;
    fixture f;
    make(&f, true);
    for (size_t n_slots = 0; n_slots < 3; n_slots++) {
        sp_error err = {0};
        const sp_stream_options options = {.chunk_bytes = 900, .ffn_block = 64, .n_slots = n_slots, .n_embed_max = 1};
        sp_stream *stream = sp_stream_open(f.model, &options, &err);
        assert_non_null(stream);
        for (int pass = 0; pass < 3; pass++) {
            sp_chunk chunks[SP_STREAM_TAKE];
            sp_stream_begin_pass(stream, SP_STREAM_LOGITS);
            for (int i = 0; i < 5; i++) {
                assert_true(sp_stream_take(stream, 1, chunks, &err) > 0);
                sp_stream_release(stream);
            }
            assert_true(sp_stream_end_pass(stream, &err));
        }
        assert_true(run_pass(f.model, stream, 64, &err));
        sp_stream_close(stream);
    }
    discard(&f);
}

static void gives_embedding_rows(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        fixture f;
        make(&f, tied);
        for (size_t n_slots = 0; n_slots < 3; n_slots += 2) {
            sp_error err = {0};
            const sp_stream_options options = {
                .chunk_bytes = 900, .ffn_block = 64, .n_slots = n_slots, .n_embed_max = 3, .keep_embed = n_slots == 0};
            sp_stream *stream = sp_stream_open(f.model, &options, &err);
            assert_non_null(stream);
            for (int pass = 0; pass < 3; pass++) {
                const int32_t ids[] = {330, 0, 17};
                const void *rows[3];
                assert_true(sp_stream_embed(stream, ids, 3, rows, &err));
                for (size_t i = 0; i < 3; i++)
                    for (size_t b = 0; b < f.model->embed.row_bytes; b++)
                        assert_int_equal(((const unsigned char *)rows[i])[b],
                                         synthetic_byte(f.model->embed.offset_bytes +
                                                        (uint64_t)ids[i] * f.model->embed.row_bytes + b));
                assert_true(run_pass(f.model, stream, 64, &err));
            }
            sp_stream_close(stream);
        }
        discard(&f);
    }
}

/* A row of a chunk whose bits were turned over. */
static void turned_row(void *ctx, const sp_chunk *chunk, size_t i_row, void *out) {
    *(size_t *)ctx += 1;
    const unsigned char *row = (const unsigned char *)chunk->w + i_row * chunk->matrix->row_bytes;
    for (size_t b = 0; b < chunk->matrix->row_bytes; b++) ((unsigned char *)out)[b] = row[b] ^ 0xff;
}

/* A pass that turns the bits of every pinned chunk over, in place, as an engine would reorder them: in the first. */
static bool turn_over(const sp_model *model, sp_stream *stream, bool is_first, sp_error *err) {
    sp_stream_begin_pass(stream, SP_STREAM_LOGITS);
    for (size_t n_left = rows_of(model, SP_STREAM_LOGITS); n_left > 0; sp_stream_release(stream)) {
        sp_chunk chunks[SP_STREAM_TAKE];
        size_t n = sp_stream_take(stream, 1, chunks, err);
        if (n == 0) return false;
        for (size_t i = 0; i < n; i++) {
            sp_chunk *c = &chunks[i];
            n_left -= c->n_rows;
            assert_true(c->has_panels == (c->is_pinned && !is_first));
            if (!c->is_pinned || c->has_panels) continue;
            unsigned char *w = sp_stream_to_panels(stream, c);
            assert_true(c->w == w && c->has_panels && (uintptr_t)w % 64 == 0);
            assert_true(chunk_is_right(c));
            for (size_t b = 0; b < c->n_rows * c->matrix->row_bytes; b++) w[b] ^= 0xff;
        }
    }
    return sp_stream_end_pass(stream, err);
}

static void a_pinned_chunk_takes_another_form(void **state) {
    (void)state;
    fixture f;
    make(&f, true);
    const sp_matrix *embed = &f.model->embed;
    for (size_t n_slots = 0; n_slots < 2; n_slots++) {
        sp_error err = {0};
        size_t n_asked = 0;
        const sp_stream_options options = {.chunk_bytes = 5000,
                                           .ffn_block = 64,
                                           .n_slots = n_slots,
                                           .n_pinned_layers = 1,
                                           .pin_head = true,
                                           .n_embed_max = 2,
                                           .panel_row = turned_row,
                                           .panel_ctx = &n_asked};
        sp_stream *stream = sp_stream_open(f.model, &options, &err);
        assert_non_null(stream);
        for (int pass = 0; pass < 3; pass++) assert_true(turn_over(f.model, stream, pass == 0, &err));
        const int32_t ids[] = {330, 17};
        const void *rows[2];
        assert_true(sp_stream_embed(stream, ids, 2, rows, &err));
        assert_int_equal(n_asked, 2);
        for (size_t i = 0; i < 2; i++)
            for (size_t b = 0; b < embed->row_bytes; b++)
                assert_int_equal(((const unsigned char *)rows[i])[b],
                                 synthetic_byte(embed->offset_bytes + (uint64_t)ids[i] * embed->row_bytes + b));
        sp_stream_close(stream);
    }
    discard(&f);
}

static void a_file_cut_before_open_is_refused(void **state) {
    (void)state;
    fixture f;
    make(&f, false);
    sp_error err = {0};
    assert_int_equal(truncate(f.path, 5000), 0);
    const sp_stream_options options = {.chunk_bytes = 900, .ffn_block = 64, .n_embed_max = 1};
    assert_null(sp_stream_open(f.model, &options, &err));
    assert_non_null(strstr(err.text, "changed"));
    discard(&f);
}

static void a_file_that_shrinks_fails_the_pass(void **state) {
    (void)state;
    fixture f;
    make(&f, false);
    sp_error err = {0};
    const sp_stream_options options = {.chunk_bytes = 900, .ffn_block = 64, .n_slots = 1, .n_embed_max = 1};
    sp_stream *stream = sp_stream_open(f.model, &options, &err);
    assert_non_null(stream);
    assert_true(run_pass(f.model, stream, 64, &err));
    assert_int_equal(truncate(f.path, 5000), 0);
    assert_false(run_pass(f.model, stream, 64, &err));
    assert_int_equal(err.code, SP_ERR_IO);
    sp_error again = {0};
    assert_false(run_pass(f.model, stream, 64, &again));
    sp_stream_close(stream);
    discard(&f);
}

static void a_file_written_to_fails_the_pass(void **state) {
    (void)state;
    for (size_t n_slots = 0; n_slots < 2; n_slots++) {
        fixture f;
        make(&f, false);
        sp_error err = {0};
        const sp_stream_options options = {.chunk_bytes = 900, .ffn_block = 64, .n_slots = n_slots, .n_embed_max = 1};
        sp_stream *stream = sp_stream_open(f.model, &options, &err);
        assert_non_null(stream);
        FILE *file = fopen(f.path, "r+b");
        assert_non_null(file);
        usleep(20000); /* file times move in steps of a few ms */
        fputc(synthetic_byte(0), file);
        fclose(file);
        assert_false(run_pass(f.model, stream, 64, &err));
        assert_non_null(strstr(err.text, "changed"));
        sp_stream_close(stream);
        discard(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_every_byte),
        cmocka_unit_test(waits_for_wanted_rows),
        cmocka_unit_test(any_set_of_layers_is_pinned),
        cmocka_unit_test(what_a_pass_does_not_take_is_not_read),
        cmocka_unit_test(the_pinned_set_grows),
        cmocka_unit_test(a_pass_may_end_early),
        cmocka_unit_test(gives_embedding_rows),
        cmocka_unit_test(a_pinned_chunk_takes_another_form),
        cmocka_unit_test(a_file_cut_before_open_is_refused),
        cmocka_unit_test(a_file_that_shrinks_fails_the_pass),
        cmocka_unit_test(a_file_written_to_fails_the_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
