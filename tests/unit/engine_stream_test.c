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

/* One pass; checks order, coverage and content. */
static bool run_pass(const sp_model *model, sp_stream *stream, size_t ffn_block, sp_error *err) {
    size_t next_row[SP_WEIGHT_COUNT] = {0}, n_rows = 0, n_wanted = model->head.n_rows;
    for (size_t l = 0; l < model->arch.n_layers; l++) {
        const sp_layer *layer = &model->layers[l];
        n_wanted += layer->q.n_rows + layer->k.n_rows + layer->v.n_rows + layer->o.n_rows + layer->gate.n_rows +
                    layer->up.n_rows + layer->down.n_rows;
    }
    while (n_rows < n_wanted) {
        sp_chunk chunks[SP_STREAM_TAKE];
        size_t n = sp_stream_take(stream, chunks, err);
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
            for (int i = 0; i < 5; i++) {
                assert_true(sp_stream_take(stream, chunks, &err) > 0);
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
        cmocka_unit_test(a_pass_may_end_early),
        cmocka_unit_test(gives_embedding_rows),
        cmocka_unit_test(a_file_cut_before_open_is_refused),
        cmocka_unit_test(a_file_that_shrinks_fails_the_pass),
        cmocka_unit_test(a_file_written_to_fails_the_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
