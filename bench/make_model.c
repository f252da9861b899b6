/* spill_make_model: a model of any shape with random weights, in Hugging Face layout, to measure with.
 *
 *     spill_make_model DIR [--preset llama3.3-70b] [--layers 8] [--hidden ...] [--clone] ...
 *
 * config.json is a real architecture's, the tokenizer a byte-level one of 261 tokens (the vocabulary is padded beyond
 * it), the weights uniform with the variance that keeps activations near 1, a function of the seed and the place alone.
 * One shard holds the embedding, one each layer, one the final norm and the head; tensors lie in order of name, as
 * published checkpoints have them.
 *
 * --clone: the data of all layers but the first, and of the head, are clones (FICLONERANGE) of the first one's and the
 * embedding's, so that a model of 141 GB takes 4; headers are padded with spaces to the file system's block for that.
 * Every read of it still goes to the drive: clones share blocks of the drive, not pages of memory, when the page cache
 * is bypassed. The file system must know reflinks (XFS, btrfs): bench/stream_mount.sh makes one. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <linux/fs.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/format.h"
#include "util/buf.h"
#include "util/error.h"
#include "util/rng.h"
#include "util/size.h"

enum { MAX_TENSORS = 16, PATH_BYTES = 4096, NAME_BYTES = 128, WRITE_BYTES = 4 << 20 };

/* ---- shapes ---- */

typedef struct {
    const char *name;
    const char *family;
    size_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ffn, n_vocab;
    bool tied;
} shape;

static const shape presets[] = {
    {"llama3.3-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, false},
    {"llama3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, false},
    {"qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 128, 29568, 152064, false},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, true},
    {"qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, false},
    {"tiny", "llama", 4, 256, 4, 2, 64, 704, 512, false},
};

typedef struct {
    const char *name, *model_type, *architecture;
    bool qkv_bias, qk_norm;
} family;

static const family families[] = {
    {"llama", "llama", "LlamaForCausalLM", false, false},
    {"mistral", "mistral", "MistralForCausalLM", false, false},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", true, false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", false, true},
};

typedef struct {
    const char *dtype; /* as safetensors writes it, and as config.json does */
    const char *torch_dtype;
    size_t elem_bytes;
} element;

static const element elements[] = {{"BF16", "bfloat16", 2}, {"F16", "float16", 2}, {"F32", "float32", 4}};

typedef struct {
    const char *directory;
    shape shape;
    const family *family;
    const element *element;
    uint64_t seed;
    bool clone;
    size_t block_bytes; /* headers are padded to this */
} recipe;

/* ---- shards ---- */

typedef struct {
    char name[NAME_BYTES];
    size_t n_rows, n_cols; /* n_cols 0: a vector of n_rows */
    float bound;           /* values are uniform in (-bound, bound); 0: all 1 */
} tensor;

typedef struct {
    char file_name[NAME_BYTES];
    tensor tensors[MAX_TENSORS];
    size_t n_tensors;
    uint64_t n_bytes; /* data */
} shard;

static size_t tensor_elems(const tensor *t) { return t->n_rows * (t->n_cols ? t->n_cols : 1); }

static void add(shard *s, const recipe *r, const char *prefix, const char *name, tensor t) {
    tensor *to = &s->tensors[s->n_tensors++];
    *to = t;
    snprintf(to->name, sizeof to->name, "%s%s", prefix, name);
    s->n_bytes += tensor_elems(to) * r->element->elem_bytes;
}

/* Variance 1 / fan-in; what is added to the residual stream 2 L times is smaller by that, so that it stays near 1. */
static float bound_for(size_t n_cols, double n_added) { return (float)sqrt(3.0 / ((double)n_cols * n_added)); }

static tensor matrix(size_t n_rows, size_t n_cols, double n_added) {
    return (tensor){.n_rows = n_rows, .n_cols = n_cols, .bound = bound_for(n_cols, n_added)};
}
static tensor ones(size_t n) { return (tensor){.n_rows = n}; }
static tensor bias(size_t n) { return (tensor){.n_rows = n, .bound = 0.1f}; }

static void describe_layer(const recipe *r, size_t i_layer, shard *s) {
    const shape *m = &r->shape;
    size_t q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    double n_added = 2.0 * (double)m->n_layers;
    char p[40];
    snprintf(p, sizeof p, "model.layers.%zu.", i_layer);
    add(s, r, p, "input_layernorm.weight", ones(m->d_model));
    add(s, r, p, "mlp.down_proj.weight", matrix(m->d_model, m->d_ffn, n_added));
    add(s, r, p, "mlp.gate_proj.weight", matrix(m->d_ffn, m->d_model, 1));
    add(s, r, p, "mlp.up_proj.weight", matrix(m->d_ffn, m->d_model, 1));
    add(s, r, p, "post_attention_layernorm.weight", ones(m->d_model));
    if (r->family->qkv_bias) add(s, r, p, "self_attn.k_proj.bias", bias(kv));
    if (r->family->qk_norm) add(s, r, p, "self_attn.k_norm.weight", ones(m->head_dim));
    add(s, r, p, "self_attn.k_proj.weight", matrix(kv, m->d_model, 1));
    add(s, r, p, "self_attn.o_proj.weight", matrix(m->d_model, q, n_added));
    if (r->family->qkv_bias) add(s, r, p, "self_attn.q_proj.bias", bias(q));
    if (r->family->qk_norm) add(s, r, p, "self_attn.q_norm.weight", ones(m->head_dim));
    add(s, r, p, "self_attn.q_proj.weight", matrix(q, m->d_model, 1));
    if (r->family->qkv_bias) add(s, r, p, "self_attn.v_proj.bias", bias(kv));
    add(s, r, p, "self_attn.v_proj.weight", matrix(kv, m->d_model, 1));
}

static size_t n_shards(const recipe *r) { return r->shape.n_layers + 2; }

/* Shard 0: embedding; 1..L: layers; L + 1: head and final norm. The head comes first there, so that its data starts a
 * block, as the embedding's does, and can be its clone. */
static void describe_shard(const recipe *r, size_t i, shard *s) {
    *s = (shard){0};
    snprintf(s->file_name, sizeof s->file_name, "model-%05zu-of-%05zu.safetensors", i + 1, n_shards(r));
    const shape *m = &r->shape;
    if (i == 0) {
        add(s, r, "", "model.embed_tokens.weight", matrix(m->n_vocab, m->d_model, 1));
    } else if (i <= m->n_layers) {
        describe_layer(r, i - 1, s);
    } else {
        if (!m->tied) add(s, r, "", "lm_head.weight", matrix(m->n_vocab, m->d_model, 1));
        add(s, r, "", "model.norm.weight", ones(m->d_model));
    }
}

/* Length and JSON header, padded with spaces to whole blocks. */
static bool build_header(const recipe *r, const shard *s, sp_buf *out) {
    sp_buf json = {0};
    uint64_t at = 0;
    bool good = sp_buf_text(&json, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < s->n_tensors; i++) {
        const tensor *t = &s->tensors[i];
        uint64_t end = at + tensor_elems(t) * r->element->elem_bytes;
        good = good &&
               sp_buf_printf(&json, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", t->name, r->element->dtype, t->n_rows);
        if (t->n_cols) good = good && sp_buf_printf(&json, ",%zu", t->n_cols);
        good = good &&
               sp_buf_printf(&json, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    good = good && sp_buf_text(&json, "}");
    uint64_t length = good ? sp_round_up(8 + json.n_bytes, r->block_bytes) - 8 : 0;
    while (good && json.n_bytes < length) good = sp_buf_char(&json, ' ');
    good = good && sp_buf_add(out, &length, sizeof length) && sp_buf_add(out, json.data, json.n_bytes);
    sp_buf_deinit(&json);
    return good;
}

/* ---- data ---- */

/* To nearest even; |value| < 65504. Below 2^-14 halves are multiples of 2^-24. */
static uint16_t f16_from_f32(float value) {
    uint32_t bits, magnitude;
    memcpy(&bits, &value, sizeof bits);
    if (fabsf(value) < 0x1p-14f)
        magnitude = (uint32_t)lrintf(fabsf(value) * 0x1p24f);
    else
        magnitude = (((bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u)) >> 13) - ((127 - 15) << 10);
    return (uint16_t)(bits >> 31 << 15 | magnitude);
}

static void store(const element *e, char *to, float value) {
    if (e->elem_bytes == 4) {
        memcpy(to, &value, 4);
        return;
    }
    uint16_t bits = e->dtype[0] == 'B' ? sp_bf16_from_f32(value) : f16_from_f32(value);
    memcpy(to, &bits, 2);
}

/* Elements [first, first + n) of a tensor; first is a multiple of 8. 16 random bits make a value. */
static void fill(const recipe *r, const tensor *t, uint64_t key, size_t first, size_t n, char *to) {
    size_t elem_bytes = r->element->elem_bytes;
    for (size_t i = 0; i < n; i += 8) {
        sp_rng_block block = sp_rng_philox(r->seed, (first + i) / 8, key);
        for (size_t j = 0; j < 8 && i + j < n; j++) {
            int16_t bits = (int16_t)(block.v[j / 2] >> 16 * (j % 2));
            float value = t->bound > 0 ? ((float)bits + 0.5f) * 0x1p-15f * t->bound : 1.0f;
            store(r->element, to + (i + j) * elem_bytes, value);
        }
    }
}

static bool write_all(int fd, const char *path, const void *data, size_t n_bytes, sp_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, (const char *)data + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return sp_fail_errno(err, "%s: writing", path);
        done += (size_t)n;
    }
    return true;
}

static bool write_data(const recipe *r, const shard *s, size_t i_shard, int fd, const char *path, sp_error *err) {
    char *chunk = malloc(WRITE_BYTES);
    if (!chunk) return sp_fail(err, SP_ERR_MEMORY, "no memory");
    size_t elem_bytes = r->element->elem_bytes, max_elems = WRITE_BYTES / elem_bytes;
    bool good = true;
    for (size_t i = 0; good && i < s->n_tensors; i++) {
        size_t n_elems = tensor_elems(&s->tensors[i]);
        for (size_t at = 0; good && at < n_elems; at += max_elems) {
            size_t n = sp_min_size(max_elems, n_elems - at);
            fill(r, &s->tensors[i], i_shard * MAX_TENSORS + i, at, n, chunk);
            good = write_all(fd, path, chunk, n * elem_bytes, err);
        }
    }
    free(chunk);
    return good;
}

/* The first n_bytes of data behind the header of `from` become those of fd; a whole number of blocks is cloned, what is
 * behind them written. */
static bool clone_data(const recipe *r, const shard *from, uint64_t n_bytes, int fd, const char *path, sp_error *err) {
    char from_path[PATH_BYTES];
    snprintf(from_path, sizeof from_path, "%s/%s", r->directory, from->file_name);
    sp_buf header = {0};
    if (!build_header(r, from, &header)) return sp_fail(err, SP_ERR_MEMORY, "no memory");
    struct file_clone_range range = {.src_offset = header.n_bytes, .src_length = n_bytes};
    sp_buf_deinit(&header);
    range.dest_offset = (uint64_t)lseek(fd, 0, SEEK_CUR);
    int from_fd = open(from_path, O_RDONLY | O_CLOEXEC);
    if (from_fd < 0) return sp_fail_errno(err, "%s", from_path);
    range.src_fd = from_fd;
    bool good = ioctl(fd, FICLONERANGE, &range) == 0 ||
                sp_fail_errno(err, "%s: cloning %llu bytes (a file system with reflinks is needed)", path,
                              (unsigned long long)n_bytes);
    close(from_fd);
    lseek(fd, 0, SEEK_END);
    return good;
}

/* The shard whose data a clone shares: the first layer's for layers, the embedding's for the head. */
static bool fill_shard(const recipe *r, const shard *s, size_t i, int fd, const char *path, sp_error *err) {
    size_t i_from = i <= r->shape.n_layers ? 1 : 0;
    uint64_t clone_bytes =
        i_from == 1 ? s->n_bytes : s->tensors[0].n_rows * s->tensors[0].n_cols * r->element->elem_bytes;
    if (!r->clone || i <= 1 || clone_bytes == 0) return write_data(r, s, i, fd, path, err);
    shard from;
    describe_shard(r, i_from, &from);
    if (!clone_data(r, &from, clone_bytes, fd, path, err)) return false;
    if (clone_bytes == s->n_bytes) return true;
    shard rest = *s; /* the final norm behind the head */
    rest.tensors[0] = s->tensors[1];
    rest.n_tensors = 1;
    return write_data(r, &rest, i, fd, path, err);
}

static bool write_shard(const recipe *r, const shard *s, size_t i, sp_error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->directory, s->file_name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return sp_fail_errno(err, "%s", path);
    sp_buf header = {0};
    bool good = build_header(r, s, &header) || sp_fail(err, SP_ERR_MEMORY, "no memory");
    good = good && write_all(fd, path, header.data, header.n_bytes, err) && fill_shard(r, s, i, fd, path, err);
    sp_buf_deinit(&header);
    /* on the drive, and out of the page cache: what is measured next starts cold */
    if (good && fsync(fd) != 0) good = sp_fail_errno(err, "%s: fsync", path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return good;
}

/* ---- the small files ---- */

static bool write_json(const recipe *r, const char *name, json_t *value, sp_error *err) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", r->directory, name);
    bool good = json_dump_file(value, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(value);
    return good || sp_fail_errno(err, "%s", path);
}

enum { N_BYTE_TOKENS = 256 };
static const char *const special_tokens[] = {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                             "<|end_header_id|>", "<|eot_id|>"};
enum { N_SPECIAL = sizeof special_tokens / sizeof *special_tokens };

static json_t *config_json(const recipe *r) {
    const shape *m = &r->shape;
    return json_pack("{s:[s],s:s,s:s,s:b,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:s,s:i,s:i,s:b,s:b}", "architectures",
                     r->family->architecture, "model_type", r->family->model_type, "torch_dtype",
                     r->element->torch_dtype, "tie_word_embeddings", (int)m->tied, "hidden_size", (int)m->d_model,
                     "num_hidden_layers", (int)m->n_layers, "num_attention_heads", (int)m->n_heads,
                     "num_key_value_heads", (int)m->n_kv_heads, "head_dim", (int)m->head_dim, "intermediate_size",
                     (int)m->d_ffn, "vocab_size", (int)m->n_vocab, "max_position_embeddings", 131072, "rope_theta",
                     500000.0, "rms_norm_eps", 1e-5, "hidden_act", "silu", "bos_token_id", N_BYTE_TOKENS,
                     "eos_token_id", N_BYTE_TOKENS + N_SPECIAL - 1, "attention_bias", 0, "use_cache", 1);
}

/* GPT-2's names of bytes: printable Latin-1 as itself, the others from U+0100 on. */
static void name_of_byte(int byte, char *out) {
    int code = 0x100, is_plain = 0;
    for (int b = 0; b <= byte; b++) {
        is_plain = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (!is_plain && b < byte) code++;
    }
    if (is_plain) code = byte;
    if (code < 0x80) {
        snprintf(out, 3, "%c", code);
        return;
    }
    snprintf(out, 3, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static json_t *tokenizer_json(void) {
    json_t *vocab = json_object(), *added = json_array();
    for (int i = 0; i < N_BYTE_TOKENS; i++) {
        char name[4];
        name_of_byte(i, name);
        json_object_set_new(vocab, name, json_integer(i));
    }
    for (int i = 0; i < N_SPECIAL; i++)
        json_array_append_new(
            added, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", N_BYTE_TOKENS + i, "content", special_tokens[i],
                             "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    json_t *byte_level =
        json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1);
    json_t *model = json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:[]}", "type", "BPE", "dropout", "unk_token",
                              "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "ignore_merges", 0, "vocab", vocab, "merges");
    return json_pack("{s:s,s:n,s:n,s:o,s:n,s:O,s:n,s:o,s:o}", "version", "1.0", "truncation", "padding", "added_tokens",
                     added, "normalizer", "pre_tokenizer", byte_level, "post_processor", "decoder", byte_level, "model",
                     model);
}

static json_t *tokenizer_config_json(void) {
    static const char chat_template[] =
        "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
    return json_pack("{s:s,s:s,s:s,s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token",
                     special_tokens[0], "eos_token", special_tokens[N_SPECIAL - 1], "chat_template", chat_template,
                     "clean_up_tokenization_spaces", 0);
}

static json_t *index_json(const recipe *r) {
    json_t *map = json_object();
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < n_shards(r); i++) {
        shard s;
        describe_shard(r, i, &s);
        total_bytes += s.n_bytes;
        for (size_t t = 0; t < s.n_tensors; t++) json_object_set_new(map, s.tensors[t].name, json_string(s.file_name));
    }
    return json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total_bytes, "weight_map", map);
}

static bool make(const recipe *r, sp_error *err) {
    if (mkdir(r->directory, 0777) != 0 && errno != EEXIST) return sp_fail_errno(err, "%s", r->directory);
    if (!write_json(r, "config.json", config_json(r), err) || !write_json(r, "tokenizer.json", tokenizer_json(), err) ||
        !write_json(r, "tokenizer_config.json", tokenizer_config_json(), err) ||
        !write_json(r, "model.safetensors.index.json", index_json(r), err))
        return false;
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < n_shards(r); i++) {
        shard s;
        describe_shard(r, i, &s);
        total_bytes += s.n_bytes;
        if (!write_shard(r, &s, i, err)) return false;
    }
    printf("%s: %zu shards, %.1f GB\n", r->directory, n_shards(r), (double)total_bytes / 1e9);
    return true;
}

/* ---- command line ---- */

static const char usage[] =
    "usage: spill_make_model DIR [--preset NAME] [--family NAME] [--layers N] [--hidden N] [--heads N] [--kv-heads N]\n"
    "         [--head-dim N] [--ffn N] [--vocab N] [--tied] [--dtype BF16|F16|F32] [--seed N] [--clone]\n";

#define FIND(table, wanted) find((table), sizeof *(table), sizeof(table) / sizeof *(table), (wanted))

/* Row of a table whose first member is its name, or NULL. */
static const void *find(const void *table, size_t row_bytes, size_t n_rows, const char *name) {
    for (size_t i = 0; i < n_rows; i++) {
        const char *const *row = (const void *)((const char *)table + i * row_bytes);
        if (strcmp(*row, name) == 0) return row;
    }
    fprintf(stderr, "spill_make_model: '%s' is not known\n%s", name, usage);
    exit(2);
}

/* Sizes of the shape that have an option. */
static const struct {
    const char *name;
    size_t at;
} size_options[] = {
    {"layers", offsetof(shape, n_layers)},   {"hidden", offsetof(shape, d_model)},
    {"heads", offsetof(shape, n_heads)},     {"kv-heads", offsetof(shape, n_kv_heads)},
    {"head-dim", offsetof(shape, head_dim)}, {"ffn", offsetof(shape, d_ffn)},
    {"vocab", offsetof(shape, n_vocab)},
};
enum { N_SIZES = sizeof size_options / sizeof *size_options };

static void parse(int argc, char **argv, recipe *r) {
    struct option options[N_SIZES + 7] = {{"preset", 1, 0, 'p'}, {"family", 1, 0, 'f'}, {"dtype", 1, 0, 'd'},
                                          {"seed", 1, 0, 's'},   {"tied", 0, 0, 't'},   {"clone", 0, 0, 'c'}};
    for (size_t i = 0; i < N_SIZES; i++) options[6 + i] = (struct option){size_options[i].name, 1, 0, 256 + (int)i};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c >= 256) {
            size_t value = strtoull(optarg, NULL, 10);
            memcpy((char *)&r->shape + size_options[c - 256].at, &value, sizeof value);
        } else if (c == 'p') {
            r->shape = *(const shape *)FIND(presets, optarg);
        } else if (c == 'f') {
            r->shape.family = optarg;
        } else if (c == 'd') {
            r->element = FIND(elements, optarg);
        } else if (c == 's') {
            r->seed = strtoull(optarg, NULL, 10);
        } else if (c == 't') {
            r->shape.tied = true;
        } else if (c == 'c') {
            r->clone = true;
        } else {
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        exit(2);
    }
    r->directory = argv[optind];
    r->family = FIND(families, r->shape.family);
}

int main(int argc, char **argv) {
    recipe r = {.shape = presets[0], .element = &elements[0], .block_bytes = 4096};
    parse(argc, argv, &r);
    sp_error err = {0};
    if (make(&r, &err)) return 0;
    fprintf(stderr, "spill_make_model: %s\n", err.text);
    return 1;
}
