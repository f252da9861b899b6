/* Configs and directories: every family fixture opens with the weights where they are; every way in which a config or
 * a directory can be wrong is refused with its message. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/identity.h"
#include "model/model.h"
#include "model_files.h"
#include "util/json.h"

#define FAMILIES "tests/fixtures/families/"

/* ---- good models ---- */

static void check_matrix(const sp_model *model, const sp_matrix *m, size_t n_rows, size_t n_cols) {
    assert_non_null(m->name);
    assert_int_equal(m->n_rows, n_rows);
    assert_int_equal(m->n_cols, n_cols);
    assert_true(m->row_bytes * m->format->block_elems == n_cols * m->format->block_bytes);
    assert_true(m->i_file < model->n_files);
    assert_true(m->offset_bytes + n_rows * m->row_bytes <= model->files[m->i_file].n_bytes);
}

static void check_vector(const sp_model *model, const sp_vector *v, size_t n_elems) {
    if (!v->name) return;
    assert_int_equal(v->n_elems, n_elems);
    size_t n_bytes = n_elems / v->format->block_elems * v->format->block_bytes;
    assert_true(v->offset_bytes + n_bytes <= model->files[v->i_file].n_bytes);
}

static void check_model(const sp_model *model) {
    const sp_arch *a = &model->arch;
    size_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    check_matrix(model, &model->embed, a->n_vocab, a->d_model);
    check_matrix(model, &model->head, a->n_vocab, a->d_model);
    assert_int_equal(a->tied_head, model->head.offset_bytes == model->embed.offset_bytes);
    for (size_t l = 0; l < a->n_layers; l++) {
        const sp_layer *w = &model->layers[l];
        check_matrix(model, &w->q, q, a->d_model);
        check_matrix(model, &w->k, kv, a->d_model);
        check_matrix(model, &w->v, kv, a->d_model);
        check_matrix(model, &w->o, a->d_model, q);
        check_matrix(model, &w->gate, a->d_ffn, a->d_model);
        check_matrix(model, &w->up, a->d_ffn, a->d_model);
        check_matrix(model, &w->down, a->d_model, a->d_ffn);
        assert_non_null(w->attn_norm.name);
        assert_non_null(w->ffn_norm.name);
        check_vector(model, &w->attn_norm, a->d_model);
        check_vector(model, &w->ffn_norm, a->d_model);
        check_vector(model, &w->q_norm, a->head_dim);
        check_vector(model, &w->k_norm, a->head_dim);
        check_vector(model, &w->q_bias, q);
        check_vector(model, &w->k_bias, kv);
        check_vector(model, &w->v_bias, kv);
        check_vector(model, &w->o_bias, a->d_model);
        check_vector(model, &w->gate_bias, a->d_ffn);
        check_vector(model, &w->up_bias, a->d_ffn);
        check_vector(model, &w->down_bias, a->d_model);
        assert_true(a->layers[l].i_rope < a->n_ropes);
    }
}

static sp_model *open_good(const char *path) {
    sp_error err = {0};
    sp_model *model = sp_model_open(path, &err);
    if (!model) print_error("%s\n", err.text);
    assert_non_null(model);
    return model;
}

static void test_every_fixture_opens(void **state) {
    (void)state;
    size_t n_opened = 0;
    DIR *dir = opendir(FAMILIES);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "README.md") == 0) continue;
        char path[512];
        snprintf(path, sizeof path, FAMILIES "%s", entry->d_name);
        sp_model *model = open_good(path);
        assert_string_equal(model->name, entry->d_name);
        check_model(model);
        sp_model_close(model);
        n_opened++;
    }
    closedir(dir);
    assert_true(n_opened >= 20);
}

/* What distinguishes the variants. */
static void test_variants(void **state) {
    (void)state;
    sp_model *m = open_good(FAMILIES "llama-linear");
    assert_true(m->arch.tied_head); /* the stored head is passed over */
    sp_model_close(m);
    m = open_good(FAMILIES "llama-bias");
    assert_non_null(m->layers[1].o_bias.name);
    assert_null(m->layers[1].down_bias.name);
    sp_model_close(m);
    m = open_good(FAMILIES "qwen2");
    assert_non_null(m->layers[0].q_bias.name);
    assert_null(m->layers[0].o_bias.name);
    assert_int_equal(m->arch.layers[0].window, 0); /* use_sliding_window is false */
    assert_int_equal(m->arch.n_vocab, 352);
    assert_int_equal(m->arch.n_stop_ids, 2); /* from generation_config alone */
    sp_model_close(m);
    m = open_good(FAMILIES "qwen2-window");
    assert_int_equal(m->arch.layers[0].window, 0);
    assert_int_equal(m->arch.layers[1].window, 12);
    assert_int_equal(m->arch.layers[2].window, 12);
    sp_model_close(m);
    m = open_good(FAMILIES "qwen3-bias");
    assert_int_equal(m->arch.layers[0].window, 0);
    assert_int_equal(m->arch.layers[1].window, 10);
    assert_non_null(m->layers[0].o_bias.name);
    assert_non_null(m->layers[0].q_norm.name);
    sp_model_close(m);
    m = open_good(FAMILIES "phi3-longrope");
    const sp_layer *w = &m->layers[0]; /* parts of one tensor, one behind the other */
    assert_true(w->k.offset_bytes == w->q.offset_bytes + w->q.n_rows * w->q.row_bytes);
    assert_true(w->v.offset_bytes == w->k.offset_bytes + w->k.n_rows * w->k.row_bytes);
    assert_true(w->up.offset_bytes == w->gate.offset_bytes + w->gate.n_rows * w->gate.row_bytes);
    assert_ptr_equal(w->q.name, w->v.name);
    assert_int_equal(m->arch.ropes[0].switch_pos, 64);
    assert_int_equal(m->arch.ropes[0].n_dims, 12);
    sp_model_close(m);
    m = open_good(FAMILIES "sharded-llama3");
    assert_int_equal(m->n_files, 3);
    assert_int_equal(m->arch.n_stop_ids, 2); /* 2 of config.json, [2, 6] of generation_config.json */
    assert_int_equal(m->arch.stop_ids[1], 6);
    sp_model_close(m);
}

static void test_name_is_last_component(void **state) {
    (void)state;
    static const char *const paths[] = {FAMILIES "llama3/", FAMILIES "llama3///", FAMILIES "qwen2/../llama3",
                                        FAMILIES "llama3/."};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        sp_model *m = open_good(paths[i]);
        assert_string_equal(m->name, "llama3");
        sp_model_close(m);
    }
}

static void test_identity(void **state) {
    (void)state;
    scratch s;
    scratch_new(&s);
    scratch_link_all(&s, FAMILIES "llama3");
    sp_error err = {0};
    sp_model *a = open_good(FAMILIES "llama3"), *b = open_good(s.path);
    sp_model_identity first, second, third;
    assert_true(sp_model_identity_read(a, &first, &err));
    assert_true(sp_model_identity_read(b, &second, &err));
    assert_memory_equal(&first.description, &second.description, sizeof first.description);
    assert_int_equal(first.n_files, 1);
    assert_false(first.files[0].is_known);
    scratch_write(&s, "chat_template.jinja", "x", 1);
    assert_true(sp_model_identity_read(b, &third, &err));
    assert_memory_not_equal(&first.description, &third.description, sizeof first.description);
    char hex[SP_HASH_HEX_BYTES];
    assert_int_equal(strlen(sp_hash_hex(&first.description, hex)), 32);
    sp_model_identity_deinit(&first);
    sp_model_identity_deinit(&second);
    sp_model_identity_deinit(&third);
    sp_model_close(a);
    sp_model_close(b);
    scratch_remove(&s);
}

/* ---- refused configs ---- */

static const struct {
    const char *fixture, *key, *value; /* NULL: deleted */
    sp_error_code code;
    const char *want;
} config_cases[] = {
    {"llama3", "model_type", NULL, SP_ERR_INPUT, "config.json: model_type is absent, want the name of"},
    {"llama3", "model_type", "7", SP_ERR_INPUT, "model_type is 7, want a string"},
    {"llama3", "model_type", "\"mamba\"", SP_ERR_SUPPORT, "model_type 'mamba' is not supported; supported: llama"},
    {"llama3", "model_type", "\"mixtral\"", SP_ERR_SUPPORT, "model_type 'mixtral' is not supported"},
    {"llama3", "architectures", "[\"LlamaForSequenceClassification\"]", SP_ERR_SUPPORT,
     "architecture 'LlamaForSequenceClassification' is not supported"},
    {"llama3", "architectures", "[\"LlavaForConditionalGeneration\"]", SP_ERR_SUPPORT, "LlavaForConditionalGeneration"},
    {"llama3", "architectures", "[]", SP_ERR_INPUT, "architectures is [], want a list of one name"},
    {"llama3", "quantization_config", "{\"quant_method\": \"gptq\"}", SP_ERR_SUPPORT, "quantization_config"},
    {"llama3", "vision_config", "{\"hidden_size\": 3}", SP_ERR_SUPPORT, "vision models"},
    {"llama3", "is_encoder_decoder", "true", SP_ERR_SUPPORT, "encoder-decoder"},
    {"llama3", "num_local_experts", "8", SP_ERR_SUPPORT, "num_local_experts is 8: not supported (mixture of experts)"},
    {"llama3", "vocab_size", NULL, SP_ERR_INPUT, "vocab_size is absent, want a whole number from 1 to 16777216"},
    {"llama3", "vocab_size", "true", SP_ERR_INPUT, "vocab_size is true"},
    {"llama3", "vocab_size", "\"320\"", SP_ERR_INPUT, "vocab_size is \"320\""},
    {"llama3", "vocab_size", "0", SP_ERR_INPUT, "vocab_size is 0"},
    {"llama3", "vocab_size", "-5", SP_ERR_INPUT, "vocab_size is -5"},
    {"llama3", "vocab_size", "320.5", SP_ERR_INPUT, "vocab_size is 320.5"},
    {"llama3", "vocab_size", "321", SP_ERR_INPUT,
     "tensor 'model.embed_tokens.weight' has shape [320, 64], want [321, 64] by config.json"},
    {"llama3", "hidden_size", "9223372036854775807", SP_ERR_INPUT, "hidden_size is 9223372036854775807, want"},
    {"llama3", "hidden_size", "1e300", SP_ERR_INPUT, "hidden_size is 1"},
    {"llama3", "hidden_size", "[64]", SP_ERR_INPUT, "hidden_size is [64]"},
    {"llama3", "hidden_size", "60", SP_ERR_INPUT, "want [320, 60] by config.json"},
    {"llama3", "intermediate_size", NULL, SP_ERR_INPUT, "intermediate_size is absent"},
    {"llama3", "num_hidden_layers", "100000", SP_ERR_INPUT,
     "num_hidden_layers is 100000, want a whole number from 1 to 4096"},
    {"llama3", "num_hidden_layers", "3", SP_ERR_INPUT, "tensor 'model.layers.2.input_layernorm.weight' is missing"},
    {"llama3", "num_hidden_layers", "1", SP_ERR_INPUT,
     "has no place in the llama architecture that config.json describes"},
    {"llama3", "num_attention_heads", NULL, SP_ERR_INPUT, "num_attention_heads is absent"},
    {"llama3", "num_key_value_heads", "3", SP_ERR_INPUT, "num_key_value_heads is 3, want a divisor"},
    {"llama3", "head_dim", "15", SP_ERR_INPUT, "head_dim: heads of 15 dims, want an even number"},
    {"llama3", "head_dim", "100000", SP_ERR_INPUT, "head_dim is 100000"},
    {"llama-bias", "num_attention_heads", "6", SP_ERR_INPUT, "num_attention_heads is 6, want a divisor of hidden_size"},
    {"llama-bias", "hidden_size", "262144", SP_ERR_INPUT, "dims, want an even number up to 16384"},
    {"llama3", "max_position_embeddings", NULL, SP_ERR_INPUT, "max_position_embeddings is absent"},
    {"llama3", "rms_norm_eps", NULL, SP_ERR_INPUT, "rms_norm_eps is absent"},
    {"llama3", "rms_norm_eps", "-1e-5", SP_ERR_INPUT, "rms_norm_eps is -1"},
    {"llama3", "rms_norm_eps", "\"NaN\"", SP_ERR_INPUT, "rms_norm_eps is \"NaN\""},
    {"llama3", "hidden_act", "\"relu\"", SP_ERR_SUPPORT,
     "hidden_act is \"relu\": not supported (known: silu, swish, gelu_pytorch_tanh)"},
    {"llama3", "tie_word_embeddings", "\"yes\"", SP_ERR_INPUT, "tie_word_embeddings is \"yes\", want true or false"},
    {"llama3", "tie_word_embeddings", "false", SP_ERR_INPUT,
     "tensor 'lm_head.weight' is missing (tie_word_embeddings is not true)"},
    {"llama3", "tie_word_embeddings", NULL, SP_ERR_INPUT, "tensor 'lm_head.weight' is missing"},
    {"llama3", "attention_bias", "true", SP_ERR_INPUT, "tensor 'model.layers.0.self_attn.q_proj.bias' is missing"},
    {"llama-bias", "attention_bias", "false", SP_ERR_INPUT, "self_attn."},
    {"llama3", "eos_token_id", "320", SP_ERR_INPUT,
     "eos_token_id holds 320, want token ids below the vocabulary of 320"},
    {"llama3", "eos_token_id", "[1, -1]", SP_ERR_INPUT, "eos_token_id holds -1"},
    {"llama3", "eos_token_id", "[\"</s>\"]", SP_ERR_INPUT, "eos_token_id holds \"</s>\""},
    {"llama3", "rope_theta", "0", SP_ERR_INPUT, "rope_theta is 0"},
    {"llama3", "rope_scaling", "4", SP_ERR_INPUT, "rope_scaling is 4, want an object"},
    {"llama3", "rope_scaling.rope_type", "\"mrope\"", SP_ERR_SUPPORT,
     "rope_type is \"mrope\": not supported (known: default, linear, dynamic, llama3, yarn, longrope)"},
    {"llama3", "rope_scaling.factor", NULL, SP_ERR_INPUT, "rope_scaling.factor is absent, want a number"},
    {"llama3", "rope_scaling.factor", "\"8\"", SP_ERR_INPUT, "rope_scaling.factor is \"8\""},
    {"llama3", "rope_scaling.factor", "0", SP_ERR_INPUT, "rope_scaling.factor is 0"},
    {"llama3", "rope_scaling.high_freq_factor", "1.0", SP_ERR_INPUT,
     "high_freq_factor is 1.0, want more than low_freq_factor"},
    {"llama3", "original_max_position_embeddings", "32", SP_ERR_INPUT,
     "original_max_position_embeddings is 32, but rope_scaling.original_max_position_embeddings is 64"},
    {"llama3", "rope_parameters", "{\"rope_type\": \"default\"}", SP_ERR_INPUT,
     "rope_scaling and rope_parameters differ"},
    {"qwen3-bias", "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}", SP_ERR_SUPPORT,
     "RoPE by layer type"},
    {"llama3", "partial_rotary_factor", "0.5", SP_ERR_SUPPORT, "partial_rotary_factor is 0.5: not supported"},
    {"odd-phi3", "partial_rotary_factor", "1.5", SP_ERR_INPUT, "partial_rotary_factor is 1.5"},
    {"odd-phi3", "partial_rotary_factor", "0.01", SP_ERR_INPUT, "partial_rotary_factor is 0.01"},
    {"phi3-longrope", "rope_scaling.long_factor", NULL, SP_ERR_INPUT, "rope_scaling.long_factor is absent"},
    {"phi3-longrope", "rope_scaling.long_factor", "[1, 2]", SP_ERR_INPUT,
     "rope_scaling.long_factor has 2 entries, want 6"},
    {"phi3-longrope", "rope_scaling.short_factor", "[1, 2, 3, 4, 5, \"6\"]", SP_ERR_INPUT,
     "rope_scaling.short_factor[5] is \"6\""},
    {"phi3-longrope", "rope_scaling.short_factor", "[1, 2, 3, 4, 5, -6]", SP_ERR_INPUT, "short_factor[5] is -6"},
    {"qwen2-window", "sliding_window", "0", SP_ERR_INPUT, "sliding_window is 0"},
    {"qwen2-window", "layer_types", "[\"full_attention\"]", SP_ERR_INPUT, "want a list with one name a layer"},
    {"qwen2-window", "layer_types", "[\"full_attention\", \"linear_attention\", \"full_attention\"]", SP_ERR_SUPPORT,
     "layer_types is [\"full_attention\", \"linear_attention\""},
    {"mistral-window", "layer_types", "[\"full_attention\"]", SP_ERR_SUPPORT, "layer_types"},
};

static void test_refused_configs(void **state) {
    (void)state;
    scratch s;
    scratch_new(&s);
    for (size_t i = 0; i < sizeof config_cases / sizeof config_cases[0]; i++) {
        sp_error err = {0};
        char path[512];
        snprintf(path, sizeof path, FAMILIES "%s", config_cases[i].fixture);
        scratch_clear(&s);
        scratch_link_all(&s, path);
        json_t *config = sp_json_load(scratch_path(&s, "config.json"), 1 << 20, &err);
        assert_non_null(config);
        json_edit(config, config_cases[i].key, config_cases[i].value);
        scratch_write_json(&s, "config.json", config);
        json_decref(config);
        expect_refused(s.path, config_cases[i].code, config_cases[i].want);
    }
    scratch_remove(&s);
}

static void test_refused_texts(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *want;
    } cases[] = {
        {"config.json", "", "config.json: not JSON"},
        {"config.json", "[1]", "config.json: want a JSON object"},
        {"config.json", "{\"vocab_size\": NaN}", "config.json: not JSON at line 1"},
        {"config.json", "{\"vocab_size\": 1e999}", "config.json: not JSON"},
        {"config.json", "{\"a\": 1, \"a\": 2}", "config.json: not JSON"},
        {"generation_config.json", "{", "generation_config.json: not JSON"},
        {"generation_config.json", "7", "generation_config.json: want a JSON object"},
        {"generation_config.json", "{\"eos_token_id\": 4000}", "generation_config.json: eos_token_id holds 4000"},
    };
    scratch s;
    scratch_new(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_clear(&s);
        scratch_link_all(&s, FAMILIES "llama3");
        scratch_write(&s, cases[i].file, cases[i].text, strlen(cases[i].text));
        expect_refused(s.path, SP_ERR_INPUT, cases[i].want);
    }
    scratch_remove(&s);
}

/* ---- refused directories ---- */

static void test_refused_directories(void **state) {
    (void)state;
    scratch s;
    scratch_new(&s);
    expect_refused("/nonexistent/model", SP_ERR_INPUT, "/nonexistent/model: no such model");
    expect_refused(s.path, SP_ERR_INPUT, "no config.json");
    scratch_write(&s, "adapter_config.json", "{}", 2);
    expect_refused(s.path, SP_ERR_SUPPORT, "an adapter, not a model");
    scratch_clear(&s);
    scratch_link_all(&s, FAMILIES "llama3");
    scratch_unlink(&s, "model.safetensors");
    expect_refused(s.path, SP_ERR_INPUT, "no model.safetensors and no model.safetensors.index.json");
    scratch_write(&s, "pytorch_model.bin", "", 0);
    expect_refused(s.path, SP_ERR_SUPPORT, "only pytorch_model*.bin weights");
    scratch_clear(&s);
    scratch_link_all(&s, FAMILIES "llama3");
    scratch_write(&s, "other.safetensors", "", 0);
    expect_refused(s.path, SP_ERR_INPUT, "'other.safetensors' lies beside model.safetensors");
    scratch_unlink(&s, "other.safetensors");
    scratch_write(&s, "consolidated.safetensors", "", 0); /* known to lie beside, passed over */
    sp_model_close(open_good(s.path));
    scratch_write(&s, "model.safetensors", "GGUF", 4);
    expect_refused(s.path, SP_ERR_INPUT, "model.safetensors: 4 bytes, too short");
    expect_refused(scratch_path(&s, "config.json"), SP_ERR_INPUT, "config.json: not a GGUF file");
    expect_refused("/dev/null", SP_ERR_INPUT, "/dev/null: not a regular file");
    scratch_remove(&s);
}

#define SHARD(n) "model-0000" n "-of-00003.safetensors"
static const char index_name[] = "model.safetensors.index.json";

static void test_refused_shards(void **state) {
    (void)state;
    scratch s;
    sp_error err = {0};
    scratch_new(&s);
    scratch_link_all(&s, FAMILIES "sharded-llama3");
    json_t *index = sp_json_load(scratch_path(&s, index_name), 1 << 20, &err);
    assert_non_null(index);
    json_t *map = json_object_get(index, "weight_map");

    scratch_unlink(&s, SHARD("2"));
    expect_refused(s.path, SP_ERR_INPUT, "shard '" SHARD("2") "' is missing");
    scratch_clear(&s);
    scratch_link_all(&s, FAMILIES "sharded-llama3");
    scratch_write(&s, "model-00004-of-00003.safetensors", "", 0);
    expect_refused(s.path, SP_ERR_INPUT, "'model-00004-of-00003.safetensors' lies beside the shards but is not named");
    scratch_unlink(&s, "model-00004-of-00003.safetensors");

    scratch_unlink(&s, index_name);
    expect_refused(s.path, SP_ERR_INPUT, "'" SHARD("1") "' without model.safetensors.index.json");
    scratch_write(&s, index_name, "{}", 2);
    expect_refused(s.path, SP_ERR_INPUT, "want an object weight_map");
    json_object_set_new(map, "model.norm.weight", json_string(SHARD("1")));
    scratch_write_json(&s, index_name, index);
    expect_refused(s.path, SP_ERR_INPUT, "tensor 'model.norm.weight' is in '" SHARD("3") "', want '" SHARD("1") "'");
    json_object_del(map, "model.norm.weight");
    scratch_write_json(&s, index_name, index);
    expect_refused(s.path, SP_ERR_INPUT, "tensor 'model.norm.weight' of '" SHARD("3") "' is not in the index");
    json_object_set_new(map, "model.norm.weight", json_string(SHARD("3")));
    json_object_set_new(map, "extra", json_string(SHARD("3")));
    scratch_write_json(&s, index_name, index);
    expect_refused(s.path, SP_ERR_INPUT, "tensor 'extra' is not in '" SHARD("3") "'");
    json_object_set_new(map, "extra", json_string("../x.safetensors"));
    scratch_write_json(&s, index_name, index);
    expect_refused(s.path, SP_ERR_INPUT, "weight_map of 'extra' is '../x.safetensors'");
    json_object_set_new(map, "extra", json_integer(3));
    scratch_write_json(&s, index_name, index);
    expect_refused(s.path, SP_ERR_INPUT, "weight_map of 'extra' is 'no string'");
    json_decref(index);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fixture_opens),    cmocka_unit_test(test_variants),
        cmocka_unit_test(test_name_is_last_component), cmocka_unit_test(test_identity),
        cmocka_unit_test(test_refused_configs),        cmocka_unit_test(test_refused_texts),
        cmocka_unit_test(test_refused_directories),    cmocka_unit_test(test_refused_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
