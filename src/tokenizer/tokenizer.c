/* The tokenizer object: its life, the last step of opening, and the small queries. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/internal.h"

sp_tokenizer *sp_tokenizer_new(sp_error *err) {
    sp_tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        sp_fail(err, SP_ERR_MEMORY, "no memory for a tokenizer");
        return NULL;
    }
    t->bos_id = t->eos_id = -1;
    t->bpe.unk_id = SP_UNK_NONE;
    return t;
}

void sp_tokenizer_free(sp_tokenizer *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n_norms; i++) sp_regex_free(t->norms[i].pattern.regex);
    for (size_t i = 0; i < t->n_pres; i++) sp_regex_free(t->pres[i].pattern.regex);
    sp_added_set_deinit(&t->added_raw);
    sp_added_set_deinit(&t->added_normalized);
    sp_bpe_deinit(&t->bpe);
    sp_vocab_deinit(&t->vocab);
    sp_arena_deinit(&t->arena);
    free(t);
}

bool sp_tokenizer_finish(sp_tokenizer *t, sp_error *err) {
    t->rewrites = t->n_norms > 0;
    for (size_t i = 0; i < t->n_pres; i++)
        if (t->pres[i].kind != SP_PRE_SPLIT) t->rewrites = true;
    return sp_vocab_index_literal(&t->vocab, err) && sp_decode_prepare(t, err) &&
           sp_vocab_index_model(&t->vocab, t->bpe.byte_level, err) && sp_bpe_prepare(&t->bpe, &t->vocab, err);
}

bool sp_tokenizer_match_added(sp_tokenizer *t, sp_added_token token, sp_error *err) {
    const char *text = sp_vocab_text(&t->vocab, (size_t)token.id);
    size_t n_bytes = t->vocab.literal[token.id].n_bytes;
    bool special = t->vocab.flags[token.id] & SP_TOK_SPECIAL;
    if (!(token.rules & SP_ADDED_NORMALIZED)) {
        t->added_raw.has_special |= special;
        return sp_added_set_add(&t->added_raw, text, n_bytes, token, err);
    }
    /* Such a token is looked for in normalized text, so its own text is normalized too. */
    sp_buf normalized = {.limit_bytes = 1 << 20};
    sp_matcher *matcher = sp_matcher_new(n_bytes, err);
    bool ok = matcher && sp_normalize(t->norms, t->n_norms, text, n_bytes, false, matcher, &normalized, err) &&
              sp_added_set_add(&t->added_normalized, normalized.data, normalized.n_bytes, token, err);
    if (ok && (normalized.n_bytes != n_bytes || memcmp(normalized.data, text, n_bytes) != 0))
        ok = sp_vocab_rename(&t->vocab, token.id, normalized.data, normalized.n_bytes, err);
    t->added_normalized.has_special |= special;
    sp_matcher_free(matcher);
    sp_buf_deinit(&normalized);
    return ok;
}

size_t sp_tokenizer_n_vocab(const sp_tokenizer *t) { return t->vocab.n_ids; }
int32_t sp_tokenizer_eos_id(const sp_tokenizer *t) { return t->eos_id; }
int32_t sp_tokenizer_bos_id(const sp_tokenizer *t) { return t->bos_id; }

bool sp_tokenizer_is_special(const sp_tokenizer *t, int32_t id) {
    return id >= 0 && (size_t)id < t->vocab.n_ids && (t->vocab.flags[id] & SP_TOK_SPECIAL);
}

int32_t sp_tokenizer_find(const sp_tokenizer *t, const char *text, size_t n_bytes) {
    return sp_vocab_find_literal(&t->vocab, text, n_bytes);
}

const char *sp_tokenizer_special_text(const sp_tokenizer *t, const char *name) {
    for (size_t i = 0; i < t->n_specials; i++)
        if (strcmp(t->specials[i].name, name) == 0) return t->specials[i].text;
    return NULL;
}
