/* The hash of a model's weights: the same however they are cut, kept and read; another when any byte is another, or
 * rows have changed places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/content.h"
#include "engine_synthetic.h"

enum { BLOCK = 64 };

typedef struct {
    char path[64];
    sp_model *model;
    sp_pool *pool;
    sp_device *device;
} rig;

static int set_up(void **state) {
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    sp_error err = {0};
    snprintf(r->path, sizeof r->path, "/tmp/spill-content-XXXXXX");
    int fd = mkstemp(r->path);
    assert_true(fd >= 0);
    close(fd);
    const synthetic_shape shape = {
        .n_layers = 2, .d_model = 48, .n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .d_ffn = 136, .n_vocab = 331};
    r->model = synthetic_new(&shape, r->path);
    r->pool = sp_pool_new(3, &err);
    r->device = r->pool ? sp_device_open_cpu(r->pool, SP_MODE_BF16, NULL, &err) : NULL;
    assert_non_null(r->device);
    *state = r;
    return 0;
}

static int tear_down(void **state) {
    rig *r = *state;
    unlink(r->path);
    sp_device_close(r->device);
    sp_pool_free(r->pool);
    synthetic_free(r->model);
    free(r);
    return 0;
}

static sp_hash hash_of(const rig *r, const sp_stream_options *options, const char *vector) {
    sp_error err = {0};
    sp_hash hash;
    sp_arena arena = {0};
    sp_stream *stream = sp_stream_open(r->model, options, &err);
    if (!stream) fail_msg("%s", err.text);
    sp_content *content = sp_content_new(r->model, sp_stream_n_extents(stream), r->device, &arena);
    sp_content_add_vector(content, vector, strlen(vector));
    for (int part = SP_STREAM_NO_LOGITS; part <= SP_STREAM_ALL; part++) { /* what was seen counts once */
        size_t n_left = r->model->embed.n_rows;
        sp_stream_begin_pass(stream, (sp_stream_part)part);
        assert_false(sp_content_hash(content, &hash));
        for (sp_weight last = SP_WEIGHT_Q; part == SP_STREAM_ALL ? n_left > 0 : last != SP_WEIGHT_DOWN;) {
            sp_chunk chunks[SP_STREAM_TAKE];
            size_t n = sp_stream_take(stream, 1, chunks, &err);
            assert_true(n > 0);
            sp_content_see(content, chunks, n);
            last = chunks[n - 1].weight;
            for (size_t i = 0; i < n; i++)
                if (chunks[i].weight == SP_WEIGHT_EMBED) n_left -= chunks[i].n_rows;
            sp_stream_release(stream);
        }
        assert_true(sp_stream_end_pass(stream, &err));
    }
    assert_true(sp_content_is_whole(content) && sp_content_hash(content, &hash));
    sp_stream_close(stream);
    sp_arena_deinit(&arena);
    return hash;
}

static const sp_stream_options plain = {.chunk_bytes = 1000, .ffn_block = BLOCK, .n_slots = 4, .n_embed_max = 1};

static bool same(sp_hash a, sp_hash b) { return memcmp(&a, &b, sizeof a) == 0; }

static void the_way_of_the_bytes_does_not_matter(void **state) {
    const rig *r = *state;
    sp_hash wanted = hash_of(r, &plain, "norm");
    const sp_stream_options others[] = {
        {.chunk_bytes = 1 << 20, .ffn_block = 136, .n_embed_max = 1},
        {.chunk_bytes = 1, .ffn_block = BLOCK, .n_slots = 9, .n_embed_max = 1, .backend = SP_RING_THREADS},
        {.chunk_bytes = 5000, .ffn_block = 136, .n_slots = 2, .n_embed_max = 1, .n_pinned_layers = 1, .pin_head = true},
        {.chunk_bytes = 700, .ffn_block = BLOCK, .n_slots = 1, .n_embed_max = 1, .keep_embed = true},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(same(wanted, hash_of(r, &others[i], "norm")));
}

/* Changes the file behind its time stamp. */
static void write_at(const rig *r, uint64_t offset_bytes, const void *data, size_t n_bytes) {
    struct stat st;
    int fd = open(r->path, O_WRONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(pwrite(fd, data, n_bytes, (off_t)offset_bytes), n_bytes);
    assert_int_equal(futimens(fd, (const struct timespec[]){st.st_atim, st.st_mtim}), 0);
    close(fd);
}

static void every_byte_matters(void **state) {
    const rig *r = *state;
    sp_hash wanted = hash_of(r, &plain, "norm");
    assert_false(same(wanted, hash_of(r, &plain, "Norm")));
    const sp_layer *layer = &r->model->layers[1];
    const sp_matrix *matrices[] = {&layer->q,  &layer->k,    &layer->v,       &layer->o,       &layer->gate,
                                   &layer->up, &layer->down, &r->model->head, &r->model->embed};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const sp_matrix *m = matrices[i];
        uint64_t at = m->offset_bytes + m->n_rows * m->row_bytes - 1 - 7 * i;
        unsigned char other = synthetic_byte(at) ^ 0x10, original = synthetic_byte(at);
        write_at(r, at, &other, 1);
        assert_false(same(wanted, hash_of(r, &plain, "norm")));
        write_at(r, at, &original, 1);
    }
    assert_true(same(wanted, hash_of(r, &plain, "norm")));
}

static void rows_have_their_places(void **state) {
    const rig *r = *state;
    sp_hash wanted = hash_of(r, &plain, "norm");
    const sp_matrix *m = &r->model->layers[0].down;
    unsigned char rows[2][1000];
    assert_true(m->row_bytes <= sizeof rows[0]);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < m->row_bytes; i++) rows[k][i] = synthetic_byte(m->offset_bytes + k * m->row_bytes + i);
    write_at(r, m->offset_bytes, rows[1], m->row_bytes);
    write_at(r, m->offset_bytes + m->row_bytes, rows[0], m->row_bytes);
    assert_false(same(wanted, hash_of(r, &plain, "norm")));
    write_at(r, m->offset_bytes, rows[0], m->row_bytes);
    write_at(r, m->offset_bytes + m->row_bytes, rows[1], m->row_bytes);
    assert_true(same(wanted, hash_of(r, &plain, "norm")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_way_of_the_bytes_does_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_byte_matters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_have_their_places, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
