/* safetensors headers: a scanner for just the JSON that such a header may hold, so that memory is bounded by the
 * tensors it names, whatever else the text contains. */
#include "model/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "util/json.h"
#include "util/size.h"

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX_BYTES = 100000000,         /* the reference library's limit */
    METADATA_MAX_BYTES = 8 * 1024 * 1024, /* ours: it is parsed into a tree only to be checked */
};

/* Every dtype of the format; those without a row in formats.def can be in a file but not be a weight. */
static const struct {
    const char *name;
    size_t n_bits;
} dtypes[] = {
    {"BF16", 16},   {"F16", 16},    {"F32", 32},        {"F64", 64},        {"I8", 8},      {"U8", 8},
    {"I16", 16},    {"U16", 16},    {"I32", 32},        {"U32", 32},        {"I64", 64},    {"U64", 64},
    {"BOOL", 8},    {"C64", 64},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

typedef struct {
    const char *path;
    const char *text;
    size_t n_bytes;
    size_t at;
    sp_error *err;
} scanner;

typedef struct {
    const char *text; /* borrowed from the scanner or from `decoded` */
    size_t n_bytes;
    json_t *decoded; /* owned; NULL unless the string had escapes or bytes beyond ASCII */
} token;

static void token_deinit(token *t) {
    json_decref(t->decoded);
    *t = (token){0};
}

static bool token_is(const token *t, const char *text) {
    return t->n_bytes == strlen(text) && memcmp(t->text, text, t->n_bytes) == 0;
}

static bool fail_at(const scanner *s, const char *want) {
    if (s->at >= s->n_bytes)
        return sp_fail(s->err, SP_ERR_INPUT, "%s: header ends at byte %zu, want %s", s->path, s->at, want);
    char found[16];
    return sp_fail(s->err, SP_ERR_INPUT, "%s: header byte %zu: found '%s', want %s", s->path, s->at,
                   sp_printable(s->text + s->at, 1, found, sizeof found), want);
}

static void skip_space(scanner *s) {
    while (s->at < s->n_bytes && strchr(" \t\r\n", s->text[s->at]) && s->text[s->at]) s->at++;
}

/* Passes over white space and `c`; false without an error if something else is there. */
static bool accept_char(scanner *s, char c) {
    skip_space(s);
    if (s->at >= s->n_bytes || s->text[s->at] != c) return false;
    s->at++;
    return true;
}

static bool take_char(scanner *s, char c, const char *want) { return accept_char(s, c) || fail_at(s, want); }

/* A JSON string. Plain ASCII is borrowed as it stands, anything else goes through the JSON library. */
static bool take_text(scanner *s, token *out) {
    *out = (token){0};
    if (!take_char(s, '"', "a string")) return false;
    size_t start = s->at;
    bool plain = true;
    for (;; s->at++) {
        if (s->at >= s->n_bytes) return fail_at(s, "the end of a string");
        unsigned char c = (unsigned char)s->text[s->at];
        if (c == '"') break;
        if (c < 0x20) return fail_at(s, "no control byte in a string");
        if (c == '\\' || c >= 0x80) plain = false;
        if (c == '\\' && ++s->at >= s->n_bytes) return fail_at(s, "the end of a string");
    }
    size_t n_bytes = s->at++ - start;
    if (n_bytes > SP_TENSOR_NAME_MAX_BYTES)
        return sp_fail(s->err, SP_ERR_INPUT, "%s: header byte %zu: a name of %zu bytes, at most %d", s->path, start,
                       n_bytes, SP_TENSOR_NAME_MAX_BYTES);
    *out = (token){.text = s->text + start, .n_bytes = n_bytes};
    if (plain) return true;
    out->decoded = json_loadb(s->text + start - 1, n_bytes + 2, JSON_DECODE_ANY, NULL);
    if (!out->decoded) {
        s->at = start;
        return fail_at(s, "a valid UTF-8 string");
    }
    out->text = json_string_value(out->decoded);
    out->n_bytes = json_string_length(out->decoded);
    return true;
}

static bool take_size(scanner *s, size_t *out) {
    skip_space(s);
    size_t value = 0;
    size_t start = s->at;
    for (; s->at < s->n_bytes && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++)
        if (!sp_mul_size(value, 10, &value) || !sp_add_size(value, (size_t)(s->text[s->at] - '0'), &value))
            return sp_fail(s->err, SP_ERR_INPUT, "%s: header byte %zu: a number past 64 bits", s->path, start);
    bool leading_zero = s->at - start > 1 && s->text[start] == '0';
    if (leading_zero) s->at = start;
    if (s->at == start) return fail_at(s, "a whole number");
    *out = value;
    return true;
}

/* "[1, 2, 3]", at most n_max of them. */
static bool take_sizes(scanner *s, size_t *out, uint32_t n_max, uint32_t *n_out) {
    *n_out = 0;
    if (!take_char(s, '[', "'['")) return false;
    if (accept_char(s, ']')) return true;
    do {
        if (*n_out == n_max)
            return sp_fail(s->err, SP_ERR_SUPPORT, "%s: header byte %zu: more than %u numbers in a list", s->path,
                           s->at, n_max);
        if (!take_size(s, &out[(*n_out)++])) return false;
    } while (accept_char(s, ','));
    return take_char(s, ']', "',' or ']'");
}

/* {"key": "text", ...}: scanned for strings, then parsed as a whole so that duplicate keys are found. */
static bool take_metadata(scanner *s) {
    skip_space(s);
    size_t start = s->at;
    if (!take_char(s, '{', "'{': __metadata__ holds strings by name")) return false;
    bool more = !accept_char(s, '}');
    while (more) {
        token t;
        bool good = take_text(s, &t);
        token_deinit(&t);
        if (!good || !take_char(s, ':', "':'")) return false;
        skip_space(s);
        size_t value_at = s->at;
        if (!take_char(s, '"', "a string: __metadata__ holds nothing else")) return false;
        for (; s->at < s->n_bytes && s->text[s->at] != '"'; s->at++)
            if (s->text[s->at] == '\\') s->at++;
        if (s->at >= s->n_bytes) {
            s->at = s->n_bytes;
            return fail_at(s, "the end of a string");
        }
        s->at++;
        if (s->at - value_at > METADATA_MAX_BYTES) break;
        more = accept_char(s, ',');
        if (!more && !take_char(s, '}', "',' or '}'")) return false;
    }
    if (s->at - start > METADATA_MAX_BYTES)
        return sp_fail(s->err, SP_ERR_INPUT, "%s: __metadata__ of more than %d bytes", s->path, METADATA_MAX_BYTES);
    json_t *tree = sp_json_parse(s->text + start, s->at - start, "__metadata__", s->err);
    json_decref(tree);
    return tree || sp_error_wrap(s->err, "%s", s->path);
}

/* Fills type, and from shape and type the size, which must be that of the data. */
static bool finish_tensor(scanner *s, sp_tensor *tensor, const token *dtype, size_t begin, size_t end) {
    char shown[64];
    size_t i_dtype = 0;
    while (i_dtype < N_DTYPES && !token_is(dtype, dtypes[i_dtype].name)) i_dtype++;
    if (i_dtype == N_DTYPES)
        return sp_fail(s->err, SP_ERR_INPUT, "%s: tensor '%s' has unknown dtype '%s'", s->path, tensor->name,
                       sp_printable(dtype->text, dtype->n_bytes, shown, sizeof shown));
    tensor->type_name = dtypes[i_dtype].name;
    tensor->format = sp_format_find(tensor->type_name);
    size_t n_bits = dtypes[i_dtype].n_bits;
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        if (!sp_mul_size(n_bits, tensor->dims[i], &n_bits))
            return sp_fail(s->err, SP_ERR_INPUT, "%s: tensor '%s' has shape %s: too big", s->path, tensor->name,
                           sp_tensor_shape_text(tensor->dims, tensor->n_dims, shown, sizeof shown));
    if (end < begin || n_bits % 8 || n_bits / 8 != end - begin)
        return sp_fail(s->err, SP_ERR_INPUT, "%s: tensor '%s' %s of %s: data_offsets [%zu, %zu], want %zu bytes",
                       s->path, tensor->name, sp_tensor_shape_text(tensor->dims, tensor->n_dims, shown, sizeof shown),
                       tensor->type_name, begin, end, n_bits / 8);
    tensor->n_bytes = end - begin;
    tensor->offset_bytes = begin;
    return true;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, each key once, no other. */
static bool take_tensor(scanner *s, sp_tensor *tensor) {
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    token dtype = {0}, key = {0};
    size_t range[2] = {0, 0};
    uint32_t n_range = 0;
    unsigned seen = 0;
    bool good = take_char(s, '{', "'{'");
    while (good) {
        token_deinit(&key);
        good = take_text(s, &key);
        if (!good) break;
        unsigned field = token_is(&key, "dtype")          ? DTYPE
                         : token_is(&key, "shape")        ? SHAPE
                         : token_is(&key, "data_offsets") ? OFFSETS
                                                          : 0;
        if (!field || (seen & field)) {
            char shown[64];
            good = sp_fail(s->err, SP_ERR_INPUT, "%s: tensor '%s': key '%s' %s", s->path, tensor->name,
                           sp_printable(key.text, key.n_bytes, shown, sizeof shown), field ? "twice" : "is unknown");
            break;
        }
        seen |= field;
        good = take_char(s, ':', "':'") &&
               (field == DTYPE   ? take_text(s, &dtype)
                : field == SHAPE ? take_sizes(s, tensor->dims, SP_TENSOR_MAX_DIMS, &tensor->n_dims)
                                 : take_sizes(s, range, 2, &n_range));
        if (good && !accept_char(s, ',')) break;
    }
    good = good && take_char(s, '}', "',' or '}'");
    if (good && (seen != ALL || n_range != 2))
        good = sp_fail(s->err, SP_ERR_INPUT, "%s: tensor '%s': want dtype, shape and two data_offsets", s->path,
                       tensor->name);
    good = good && finish_tensor(s, tensor, &dtype, range[0], range[1]);
    token_deinit(&key);
    token_deinit(&dtype);
    return good;
}

static bool take_header(scanner *s, uint32_t i_file, sp_arena *arena, sp_tensor_set *set) {
    bool seen_metadata = false;
    if (s->n_bytes == 0 || s->text[0] != '{') return fail_at(s, "'{'");
    s->at = 1;
    bool more = !accept_char(s, '}');
    while (more) {
        token name;
        if (!take_text(s, &name)) return false;
        bool is_metadata = token_is(&name, "__metadata__");
        sp_tensor tensor = {.i_file = i_file};
        if (!is_metadata) tensor.name = sp_arena_text(arena, name.text, name.n_bytes);
        token_deinit(&name);
        if (!take_char(s, ':', "':'")) return false;
        if (is_metadata && seen_metadata) return sp_fail(s->err, SP_ERR_INPUT, "%s: __metadata__ twice", s->path);
        seen_metadata |= is_metadata;
        if (is_metadata ? !take_metadata(s) : !take_tensor(s, &tensor)) return false;
        if (!is_metadata && !sp_tensor_set_add(set, &tensor, s->path, s->err)) return false;
        more = accept_char(s, ',');
        if (!more && !take_char(s, '}', "',' or '}'")) return false;
    }
    skip_space(s);
    return s->at == s->n_bytes || fail_at(s, "nothing but white space after the header's object");
}

/* Tensors [first, set->n) must follow each other from 0 to data_bytes; then their offsets become those in the file. */
static bool check_layout(const sp_file *file, sp_tensor_set *set, size_t first, uint64_t data_start, sp_error *err) {
    uint32_t *order = sp_tensor_set_order(set, first);
    if (!order) return sp_fail(err, SP_ERR_MEMORY, "%s: no memory for %zu tensors", file->path, set->n - first);
    uint64_t at = 0;
    bool good = true;
    for (size_t i = 0; good && i < set->n - first; i++) {
        const sp_tensor *t = &set->items[order[i]];
        if (t->offset_bytes != at)
            good = sp_fail(err, SP_ERR_INPUT, "%s: tensor '%s' starts at byte %llu of the data, want %llu (%s)",
                           file->path, t->name, (unsigned long long)t->offset_bytes, (unsigned long long)at,
                           t->offset_bytes > at ? "a hole" : "an overlap");
        at = t->offset_bytes + t->n_bytes;
    }
    free(order);
    if (good && at != file->n_bytes - data_start)
        good = sp_fail(err, SP_ERR_INPUT, "%s: %llu bytes of data, want %llu: the file is %s", file->path,
                       (unsigned long long)(file->n_bytes - data_start), (unsigned long long)at,
                       at > file->n_bytes - data_start ? "cut short" : "longer than its header says");
    for (size_t i = first; good && i < set->n; i++) set->items[i].offset_bytes += data_start;
    return good;
}

bool sp_safetensors_read(const sp_file *file, uint32_t i_file, sp_arena *arena, sp_tensor_set *set, sp_error *err) {
    unsigned char length[LENGTH_BYTES];
    if (file->n_bytes < LENGTH_BYTES)
        return sp_fail(err, SP_ERR_INPUT, "%s: %llu bytes, too short for a safetensors file", file->path,
                       (unsigned long long)file->n_bytes);
    if (!sp_file_read_at(file, 0, length, sizeof length, err)) return false;
    uint64_t header_bytes = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) header_bytes = header_bytes << 8 | length[i];
    if (header_bytes > HEADER_MAX_BYTES || header_bytes > file->n_bytes - LENGTH_BYTES)
        return sp_fail(err, SP_ERR_INPUT, "%s: header of %llu bytes, at most %llu are possible", file->path,
                       (unsigned long long)header_bytes,
                       (unsigned long long)sp_min_size(HEADER_MAX_BYTES, file->n_bytes - LENGTH_BYTES));
    char *text = malloc(header_bytes ? (size_t)header_bytes : 1);
    if (!text)
        return sp_fail(err, SP_ERR_MEMORY, "%s: no memory for a header of %llu bytes", file->path,
                       (unsigned long long)header_bytes);
    scanner s = {.path = file->path, .text = text, .n_bytes = (size_t)header_bytes, .err = err};
    size_t first = set->n;
    bool good = sp_file_read_at(file, LENGTH_BYTES, text, s.n_bytes, err) && take_header(&s, i_file, arena, set) &&
                check_layout(file, set, first, LENGTH_BYTES + header_bytes, err);
    free(text);
    return good;
}
