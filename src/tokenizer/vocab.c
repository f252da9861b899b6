/* Vocabulary: tokens by id, and from text to id.
 *
 * Ids come from a file, so memory follows the number of tokens there, not the ids' size: an id far above the number
 * of tokens is refused. Texts lie in one buffer; a slice names them, since the buffer moves while it grows. */
#include "tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer/unicode.h"
#include "util/size.h"

/* Ids may skip: padded and pruned vocabularies do. Beyond this slack over the tokens read so far a file lies. */
enum { ID_SLACK = 1 << 20 };

/* ---- the byte-level alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 on ---- */

static bool is_plain_byte(uint32_t b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

int sp_byte_of_char(uint32_t c) {
    if (c < 0x100) return is_plain_byte(c) ? (int)c : -1;
    if (c >= 0x100 + 68) return -1;
    uint32_t rank = c - 0x100; /* place among the bytes that are not plain: 0..32, 127..160, 173 */
    if (rank < 33) return (int)rank;
    if (rank < 33 + 34) return (int)(127 + rank - 33);
    return 173;
}

bool sp_bytes_of_text(const char *text, size_t n_bytes, sp_buf *out) {
    size_t before = out->n_bytes;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        i += sp_char_next(text + i, &c);
        int byte = sp_byte_of_char(c);
        if (byte < 0 || !sp_buf_char(out, (char)byte)) {
            out->n_bytes = before;
            return false;
        }
    }
    return true;
}

/* ---- tokens ---- */

static bool grow_ids(sp_vocab *v, size_t n_ids, sp_error *err) {
    if (n_ids > v->room_ids) {
        size_t room = sp_max_size(n_ids, v->room_ids * 2);
        sp_slice *literal = realloc(v->literal, room * sizeof *literal);
        if (literal) v->literal = literal;
        uint8_t *flags = realloc(v->flags, room);
        if (flags) v->flags = flags;
        if (!literal || !flags) return sp_fail(err, SP_ERR_MEMORY, "no memory for %zu token ids", room);
        memset(v->literal + v->room_ids, 0, (room - v->room_ids) * sizeof *literal);
        memset(v->flags + v->room_ids, 0, room - v->room_ids);
        v->room_ids = room;
    }
    if (n_ids > v->n_ids) v->n_ids = n_ids;
    return true;
}

bool sp_vocab_add(sp_vocab *v, int64_t id, const char *text, size_t n_bytes, uint8_t flags, sp_error *err) {
    char shown[64];
    int64_t limit = (int64_t)(v->n_model * 2 + ID_SLACK);
    if (id < 0 || id > limit)
        return sp_fail(err, SP_ERR_INPUT, "token '%s' has id %lld, want 0 to %lld",
                       sp_printable(text, n_bytes, shown, sizeof shown), (long long)id, (long long)limit);
    if (v->text.n_bytes + n_bytes >= UINT32_MAX)
        return sp_fail(err, SP_ERR_INPUT, "the vocabulary's texts exceed 4 GB");
    if (!grow_ids(v, (size_t)id + 1, err)) return false;
    if (v->flags[id]) {
        char other[64];
        sp_printable(sp_vocab_text(v, (size_t)id), v->literal[id].n_bytes, other, sizeof other);
        return sp_fail(err, SP_ERR_INPUT, "tokens '%s' and '%s' both have id %lld", other,
                       sp_printable(text, n_bytes, shown, sizeof shown), (long long)id);
    }
    v->literal[id] = (sp_slice){(uint32_t)v->text.n_bytes, (uint32_t)n_bytes};
    if (!sp_buf_add(&v->text, text, n_bytes) || !sp_buf_char(&v->text, '\0'))
        return sp_fail(err, SP_ERR_MEMORY, "no memory for the vocabulary's texts");
    v->flags[id] = flags;
    if (flags & SP_TOK_MODEL) v->n_model++;
    return true;
}

bool sp_vocab_rename(sp_vocab *v, int32_t id, const char *text, size_t n_bytes, sp_error *err) {
    if (v->text.n_bytes + n_bytes >= UINT32_MAX)
        return sp_fail(err, SP_ERR_INPUT, "the vocabulary's texts exceed 4 GB");
    sp_renamed *renamed = realloc(v->renamed, (v->n_renamed + 1) * sizeof *renamed);
    if (renamed) v->renamed = renamed;
    sp_slice slice = {(uint32_t)v->text.n_bytes, (uint32_t)n_bytes};
    if (!renamed || !sp_buf_add(&v->text, text, n_bytes) || !sp_buf_char(&v->text, '\0'))
        return sp_fail(err, SP_ERR_MEMORY, "no memory for the vocabulary's texts");
    v->renamed[v->n_renamed++] = (sp_renamed){id, slice};
    v->flags[id] |= SP_TOK_RENAMED;
    return true;
}

sp_slice sp_vocab_shown(const sp_vocab *v, size_t id) {
    for (size_t i = v->flags[id] & SP_TOK_RENAMED ? v->n_renamed : 0; i-- > 0;)
        if ((size_t)v->renamed[i].id == id) return v->renamed[i].slice;
    return v->literal[id];
}

/* ---- text to id ---- */

static uint32_t text_hash(const char *text, size_t n_bytes) { return (uint32_t)XXH3_64bits(text, n_bytes); }

static bool same_text(const sp_buf *texts, sp_slice slice, const char *text, size_t n_bytes) {
    return slice.n_bytes == n_bytes && memcmp(texts->data + slice.offset, text, n_bytes) == 0;
}

static int32_t index_find(const sp_text_index *index, const sp_buf *texts, const sp_slice *slices, const char *text,
                          size_t n_bytes) {
    if (index->n_slots == 0) return -1;
    size_t mask = index->n_slots - 1;
    for (size_t i = text_hash(text, n_bytes) & mask; index->slots[i]; i = (i + 1) & mask) {
        uint32_t id = index->slots[i] - 1;
        if (same_text(texts, slices[id], text, n_bytes)) return (int32_t)id;
    }
    return -1;
}

static void index_put(sp_text_index *index, const sp_buf *texts, const sp_slice *slices, size_t id) {
    const char *text = texts->data + slices[id].offset;
    size_t mask = index->n_slots - 1, i = text_hash(text, slices[id].n_bytes) & mask;
    while (index->slots[i] && !same_text(texts, slices[index->slots[i] - 1], text, slices[id].n_bytes))
        i = (i + 1) & mask;
    index->slots[i] = (uint32_t)id + 1;
}

/* Puts every token that has all of the flags into a fresh index. */
static bool index_build(sp_text_index *index, const sp_vocab *v, const sp_buf *texts, const sp_slice *slices,
                        uint8_t wanted, sp_error *err) {
    size_t n_slots = 64;
    while (n_slots < v->n_ids * 2) n_slots *= 2;
    free(index->slots);
    index->slots = calloc(n_slots, sizeof *index->slots);
    index->n_slots = index->slots ? n_slots : 0;
    if (!index->slots) return sp_fail(err, SP_ERR_MEMORY, "no memory for an index of %zu tokens", v->n_ids);
    for (size_t id = 0; id < v->n_ids; id++)
        if (v->flags[id] && (v->flags[id] & wanted) == wanted && slices[id].n_bytes)
            index_put(index, texts, slices, id);
    return true;
}

bool sp_vocab_index_literal(sp_vocab *v, sp_error *err) {
    return index_build(&v->by_literal, v, &v->text, v->literal, 0, err);
}

bool sp_vocab_index_one(sp_vocab *v, int32_t id, sp_error *err) {
    if (v->by_literal.n_slots < v->n_ids * 2) return sp_vocab_index_literal(v, err);
    index_put(&v->by_literal, &v->text, v->literal, (size_t)id);
    return true;
}

bool sp_vocab_index_model(sp_vocab *v, bool byte_level, sp_error *err) {
    return byte_level ? index_build(&v->by_model, v, &v->bytes, v->raw, SP_TOK_MODEL | SP_TOK_BYTES, err)
                      : index_build(&v->by_model, v, &v->text, v->literal, SP_TOK_MODEL, err);
}

int32_t sp_vocab_find_literal(const sp_vocab *v, const char *text, size_t n_bytes) {
    return index_find(&v->by_literal, &v->text, v->literal, text, n_bytes);
}

int32_t sp_vocab_find_model(const sp_vocab *v, bool byte_level, const char *text, size_t n_bytes) {
    return byte_level ? index_find(&v->by_model, &v->bytes, v->raw, text, n_bytes)
                      : index_find(&v->by_model, &v->text, v->literal, text, n_bytes);
}

void sp_vocab_deinit(sp_vocab *v) {
    sp_buf_deinit(&v->text);
    sp_buf_deinit(&v->bytes);
    free(v->literal);
    free(v->raw);
    free(v->flags);
    free(v->renamed);
    free(v->by_literal.slots);
    free(v->by_model.slots);
    *v = (sp_vocab){0};
}
