/* Tokenizer and chat template out of a GGUF file's metadata (keys tokenizer.ggml.*, docs/formats.md). */
#include "jobs/gguf_text.h"

#include <string.h>

#include "util/arena.h"

/* A text that may be absent, as a NUL-terminated copy; NULL then. */
static bool get_text(const sp_gguf *gguf, const char *key, sp_arena *arena, const char **out, sp_error *err) {
    sp_string text;
    bool found = false;
    *out = NULL;
    if (!sp_gguf_get_text(gguf, key, &text, &found, err)) return false;
    if (found) *out = sp_arena_text(arena, text.text, text.n_bytes);
    return true;
}

static bool read_vocabulary(const sp_gguf *gguf, sp_arena *arena, sp_tokenizer_gguf *src, sp_error *err) {
    size_t n_scores = 0, n_types = 0;
    bool good = get_text(gguf, "tokenizer.ggml.model", arena, &src->model, err) &&
                get_text(gguf, "tokenizer.ggml.pre", arena, &src->pre, err) &&
                sp_gguf_get_texts(gguf, "tokenizer.ggml.tokens", &src->tokens, &src->n_tokens, err) &&
                sp_gguf_get_texts(gguf, "tokenizer.ggml.merges", &src->merges, &src->n_merges, err) &&
                sp_gguf_get_floats(gguf, "tokenizer.ggml.scores", &src->scores, &n_scores, err) &&
                sp_gguf_get_int32s(gguf, "tokenizer.ggml.token_type", &src->types, &n_types, err);
    if (!good) return false;
    if (!src->model || !src->n_tokens)
        return sp_fail(err, SP_ERR_INPUT, "tokenizer.ggml.%s: not in the file; a tokenizer needs it",
                       src->model ? "tokens" : "model");
    if ((src->scores && n_scores != src->n_tokens) || (src->types && n_types != src->n_tokens))
        return sp_fail(err, SP_ERR_INPUT,
                       "tokenizer.ggml: %zu tokens, %zu scores, %zu types found; equal numbers wanted", src->n_tokens,
                       n_scores, n_types);
    return true;
}

sp_tokenizer *sp_gguf_text_tokenizer(const sp_gguf *gguf, sp_error *err) {
    sp_arena arena = {0};
    sp_tokenizer_gguf src = {0};
    sp_tokenizer *tokenizer = NULL;
    if (read_vocabulary(gguf, &arena, &src, err) &&
        sp_gguf_get_int(gguf, "tokenizer.ggml.bos_token_id", -1, &src.bos_id, err) &&
        sp_gguf_get_int(gguf, "tokenizer.ggml.eos_token_id", -1, &src.eos_id, err) &&
        sp_gguf_get_int(gguf, "tokenizer.ggml.unknown_token_id", -1, &src.unk_id, err) &&
        sp_gguf_get_flag(gguf, "tokenizer.ggml.add_bos_token", &src.add_bos, err) &&
        sp_gguf_get_flag(gguf, "tokenizer.ggml.add_eos_token", &src.add_eos, err) &&
        sp_gguf_get_flag(gguf, "tokenizer.ggml.add_space_prefix", &src.add_space_prefix, err))
        tokenizer = sp_tokenizer_open_gguf(&src, err);
    sp_arena_deinit(&arena);
    return tokenizer;
}

sp_chat *sp_gguf_text_chat(const sp_gguf *gguf, const sp_tokenizer *tokenizer, sp_error *err) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    sp_string text = {"", 0};
    bool found = false;
    if (!sp_gguf_get_template(gguf, NULL, &text, &found, err)) return NULL;
    json_t *special = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = sp_tokenizer_special_text(tokenizer, names[i]);
        if (value) json_object_set_new(special, names[i], json_string(value));
    }
    sp_chat *chat = sp_chat_open_text(found ? text.text : NULL, text.n_bytes, special, err);
    json_decref(special);
    return chat;
}
