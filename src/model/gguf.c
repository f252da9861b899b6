/* The GGUF reader: header, metadata, tensor infos; then the places of the tensors are checked.
 *
 * How long the part before the data is stands nowhere in the file. So the buffer has room for the longest that is read,
 * which costs address space only, and the file is read into it piece by piece as the cursor moves: what was parsed
 * never moves. Counts are believed only as far as the file could hold them. */
#include <stdlib.h>
#include <string.h>

#include "model/gguf_file.h"
#include "util/arena.h"
#include "util/buf.h"
#include "util/size.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are used as they lie in the file");

enum {
    PIECE_BYTES = 1 << 20,
    HEADER_MAX_BYTES = 128 << 20, /* ours: real ones are under 20 MB, and a refusal must stay cheap */
    KEY_MAX_BYTES = 1024,
    VALUE_MAX_COUNT = 65536,
    VALUE_MIN_BYTES = 8 + 1 + 4 + 1,          /* empty key's length, one letter, type, one byte */
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* length, one letter, n_dims, one dim, type, offset */
    TEXT_MIN_BYTES = 8,
    GGUF_MAX_DIMS = 4,
    DEFAULT_ALIGNMENT = 32,
    ALIGNMENT_MAX = 1 << 20,
};

static const unsigned char magic[4] = {'G', 'G', 'U', 'F'};

static const struct {
    const char *name;
    size_t n_bytes; /* 0: not of one size */
} types[SP_GGUF_N_TYPES] = {
    [SP_GGUF_U8] = {"uint8", 1},    [SP_GGUF_I8] = {"int8", 1},    [SP_GGUF_U16] = {"uint16", 2},
    [SP_GGUF_I16] = {"int16", 2},   [SP_GGUF_U32] = {"uint32", 4}, [SP_GGUF_I32] = {"int32", 4},
    [SP_GGUF_F32] = {"float32", 4}, [SP_GGUF_BOOL] = {"bool", 1},  [SP_GGUF_TEXT] = {"string", 0},
    [SP_GGUF_ARRAY] = {"array", 0}, [SP_GGUF_U64] = {"uint64", 8}, [SP_GGUF_I64] = {"int64", 8},
    [SP_GGUF_F64] = {"float64", 8},
};

/* Tensor types that have no row in formats.def, to refuse them by name (numbers of ggml). */
static const struct {
    uint32_t number;
    const char *name;
} other_formats[] = {
    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},   {40, "NVFP4"},
};
enum { N_OTHER_FORMATS = sizeof other_formats / sizeof other_formats[0] };

struct sp_gguf {
    unsigned char *header;
    size_t header_bytes;
    sp_arena arena;
    sp_gguf_value *values;
    size_t n_values;
    uint64_t data_start;
};

typedef struct {
    const sp_file *file;
    unsigned char *data; /* [room_bytes], of which n_bytes have been read */
    size_t n_bytes, room_bytes;
    size_t at;
    sp_error *err;
} cursor;

/* Reads on until n_bytes lie ahead of the cursor. */
static bool fill(cursor *c, size_t n_bytes) {
    if (n_bytes > c->room_bytes - c->at)
        return sp_fail(
            c->err, SP_ERR_INPUT, "%s: byte %zu: %s", c->file->path, c->at,
            c->room_bytes == c->file->n_bytes ? "the file ends inside the metadata" : "more metadata than spill reads");
    size_t missing = n_bytes - (c->n_bytes - c->at);
    size_t piece = sp_min_size(sp_max_size(missing, PIECE_BYTES), c->room_bytes - c->n_bytes);
    if (!sp_file_read_at(c->file, c->n_bytes, c->data + c->n_bytes, piece, c->err)) return false;
    c->n_bytes += piece;
    return true;
}

/* The next n_bytes, or NULL with an error. */
static const unsigned char *take(cursor *c, size_t n_bytes) {
    if (n_bytes > c->n_bytes - c->at && !fill(c, n_bytes)) return NULL;
    c->at += n_bytes;
    return c->data + c->at - n_bytes;
}

static bool take_u32(cursor *c, uint32_t *out) {
    const unsigned char *p = take(c, sizeof *out);
    if (p) memcpy(out, p, sizeof *out);
    return p != NULL;
}

static bool take_u64(cursor *c, uint64_t *out) {
    const unsigned char *p = take(c, sizeof *out);
    if (p) memcpy(out, p, sizeof *out);
    return p != NULL;
}

static bool take_text(cursor *c, sp_string *out) {
    uint64_t n_bytes = 0;
    if (!take_u64(c, &n_bytes)) return false;
    if (n_bytes > c->file->n_bytes)
        return sp_fail(c->err, SP_ERR_INPUT, "%s: byte %zu: a string of %llu bytes in a file of %llu", c->file->path,
                       c->at - sizeof n_bytes, (unsigned long long)n_bytes, (unsigned long long)c->file->n_bytes);
    out->text = (const char *)take(c, (size_t)n_bytes);
    out->n_bytes = (size_t)n_bytes;
    return out->text != NULL;
}

/* A key or tensor name: not empty, bounded, without NUL; a terminated copy in the arena. */
static bool take_name(cursor *c, sp_arena *arena, const char *what, const char **out) {
    sp_string text = {0};
    size_t at = c->at;
    if (!take_text(c, &text)) return false;
    if (text.n_bytes == 0 || text.n_bytes > KEY_MAX_BYTES || memchr(text.text, 0, text.n_bytes))
        return sp_fail(c->err, SP_ERR_INPUT, "%s: byte %zu: a %s of %zu bytes, want 1 to %d without NUL", c->file->path,
                       at, what, text.n_bytes, KEY_MAX_BYTES);
    *out = sp_arena_text(arena, text.text, text.n_bytes);
    return true;
}

/* n things of at least min_bytes each can be ahead, by the size of the file. */
static bool check_count(cursor *c, uint64_t n, size_t min_bytes, const char *what) {
    return n <= (c->room_bytes - c->at) / min_bytes ||
           sp_fail(c->err, SP_ERR_INPUT, "%s: byte %zu: %llu %s do not fit a file of %llu bytes", c->file->path, c->at,
                   (unsigned long long)n, what, (unsigned long long)c->file->n_bytes);
}

static bool check_bools(cursor *c, const char *key, const unsigned char *data, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (data[i] > 1)
            return sp_fail(c->err, SP_ERR_INPUT, "%s: %s holds byte %u, want 0 or 1", c->file->path, key, data[i]);
    return true;
}

/* n_elems values of value->type; copied only where the file's alignment does not suit the type. */
static bool take_elems(cursor *c, sp_arena *arena, sp_gguf_value *value) {
    if (value->type == SP_GGUF_TEXT) {
        sp_string *texts = SP_ARENA_ARRAY(arena, sp_string, value->n_elems);
        value->data = texts;
        for (size_t i = 0; i < value->n_elems; i++)
            if (!take_text(c, &texts[i])) return false;
        if (!value->is_array) texts[0].text = sp_arena_text(arena, texts[0].text, texts[0].n_bytes);
        return true;
    }
    size_t n_bytes = 0;
    if (!sp_mul_size(value->n_elems, types[value->type].n_bytes, &n_bytes)) return false;
    const unsigned char *data = take(c, n_bytes);
    if (!data) return false;
    if (value->type == SP_GGUF_BOOL && !check_bools(c, value->key, data, n_bytes)) return false;
    if ((uintptr_t)data % types[value->type].n_bytes) data = memcpy(sp_arena_alloc(arena, n_bytes), data, n_bytes);
    value->data = data;
    return true;
}

static bool take_value(cursor *c, sp_arena *arena, sp_gguf_value *value) {
    uint32_t type = 0;
    uint64_t n_elems = 1;
    if (!take_name(c, arena, "key", &value->key) || !take_u32(c, &type)) return false;
    value->is_array = type == SP_GGUF_ARRAY;
    if (value->is_array && (!take_u32(c, &type) || !take_u64(c, &n_elems))) return false;
    if (type >= SP_GGUF_N_TYPES || type == SP_GGUF_ARRAY)
        return sp_fail(c->err, SP_ERR_INPUT, "%s: %s has type %u%s, want one of 0 to %d", c->file->path, value->key,
                       type, value->is_array ? " in an array" : "", SP_GGUF_N_TYPES - 1);
    size_t min_bytes = type == SP_GGUF_TEXT ? TEXT_MIN_BYTES : types[type].n_bytes;
    if (!check_count(c, n_elems, min_bytes, "elements")) return false;
    value->type = (sp_gguf_type)type;
    value->n_elems = (size_t)n_elems;
    return take_elems(c, arena, value);
}

/* The format of a tensor type number, or NULL with an error that names the type. */
static const sp_format *find_format(cursor *c, uint32_t number, const char *name) {
    const sp_format *format = number <= INT32_MAX ? sp_format_from_ggml((int32_t)number) : NULL;
    if (format) return format;
    size_t i = 0;
    while (i < N_OTHER_FORMATS && other_formats[i].number != number) i++;
    if (i == N_OTHER_FORMATS) {
        sp_fail(c->err, SP_ERR_SUPPORT, "%s: tensor '%s' has unknown type number %u", c->file->path, name, number);
        return NULL;
    }
    sp_buf known = {0};
    for (size_t k = 0; k < SP_FMT_COUNT; k++) sp_buf_printf(&known, " %s", sp_format_get((sp_format_id)k)->name);
    sp_fail(c->err, SP_ERR_SUPPORT, "%s: tensor '%s' is %s, which is not supported; supported:%s", c->file->path, name,
            other_formats[i].name, known.data ? known.data : "");
    sp_buf_deinit(&known);
    return NULL;
}

/* Dimensions stand contiguous first in the file; sp_tensor has them row-major. */
static bool take_tensor(cursor *c, sp_arena *arena, sp_tensor *tensor) {
    uint32_t number = 0;
    uint64_t dims[GGUF_MAX_DIMS] = {0};
    if (!take_name(c, arena, "tensor name", &tensor->name) || !take_u32(c, &tensor->n_dims)) return false;
    if (tensor->n_dims == 0 || tensor->n_dims > GGUF_MAX_DIMS)
        return sp_fail(c->err, SP_ERR_INPUT, "%s: tensor '%s' has %u dimensions, want 1 to %d", c->file->path,
                       tensor->name, tensor->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        if (!take_u64(c, &dims[i])) return false;
    if (!take_u32(c, &number) || !take_u64(c, &tensor->offset_bytes)) return false;
    const sp_format *format = find_format(c, number, tensor->name);
    if (!format) return false;
    tensor->format = format;
    tensor->type_name = format->name;
    size_t n_elems = 1, n_bytes = 0;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        tensor->dims[tensor->n_dims - 1 - i] = (size_t)dims[i];
        fits = fits && dims[i] > 0 && sp_mul_size(n_elems, (size_t)dims[i], &n_elems);
    }
    fits = fits && dims[0] % format->block_elems == 0 &&
           sp_mul_size(n_elems / format->block_elems, format->block_bytes, &n_bytes);
    tensor->n_bytes = n_bytes;
    if (fits && n_bytes <= c->file->n_bytes) return true;
    char shown[100];
    return sp_fail(c->err, SP_ERR_INPUT, "%s: tensor '%s' has shape %s of %s: empty, uneven or bigger than the file",
                   c->file->path, tensor->name, sp_tensor_shape_text(tensor->dims, tensor->n_dims, shown, sizeof shown),
                   format->name);
}

static bool take_head(cursor *c, uint64_t *n_tensors, uint64_t *n_values) {
    uint32_t version = 0;
    const unsigned char *first = take(c, sizeof magic);
    if (!first) return false;
    if (memcmp(first, magic, sizeof magic) != 0)
        return sp_fail(c->err, SP_ERR_INPUT, "%s: not a GGUF file (no magic number)", c->file->path);
    if (!take_u32(c, &version)) return false;
    if (version == 0x02000000u || version == 0x03000000u)
        return sp_fail(c->err, SP_ERR_SUPPORT, "%s: a big-endian GGUF file, want little-endian", c->file->path);
    if (version != 2 && version != 3)
        return sp_fail(c->err, SP_ERR_SUPPORT, "%s: GGUF version %u, want 2 or 3", c->file->path, version);
    if (!take_u64(c, n_tensors) || !take_u64(c, n_values)) return false;
    if (*n_values > VALUE_MAX_COUNT)
        return sp_fail(c->err, SP_ERR_INPUT, "%s: %llu metadata entries, at most %d are read", c->file->path,
                       (unsigned long long)*n_values, VALUE_MAX_COUNT);
    return check_count(c, *n_values, VALUE_MIN_BYTES, "metadata entries") &&
           check_count(c, *n_tensors, TENSOR_MIN_BYTES, "tensors");
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const sp_gguf_value *)a)->key, ((const sp_gguf_value *)b)->key);
}

static bool sort_values(cursor *c, sp_gguf *gguf) {
    qsort(gguf->values, gguf->n_values, sizeof *gguf->values, by_key);
    for (size_t i = 1; i < gguf->n_values; i++)
        if (strcmp(gguf->values[i - 1].key, gguf->values[i].key) == 0)
            return sp_fail(c->err, SP_ERR_INPUT, "%s: key %s is there twice", c->file->path, gguf->values[i].key);
    return true;
}

static bool read_alignment(cursor *c, const sp_gguf *gguf, uint64_t *alignment) {
    *alignment = DEFAULT_ALIGNMENT;
    const sp_gguf_value *value = sp_gguf_find(gguf, "general.alignment");
    if (!value) return true;
    if (value->type == SP_GGUF_U32 && !value->is_array) *alignment = *(const uint32_t *)value->data;
    bool good = value->type == SP_GGUF_U32 && !value->is_array && *alignment >= 1 && *alignment <= ALIGNMENT_MAX &&
                (*alignment & (*alignment - 1)) == 0;
    return good || sp_fail(c->err, SP_ERR_INPUT, "%s: general.alignment is %llu (%s), want a power of two as uint32",
                           c->file->path, (unsigned long long)*alignment, types[value->type].name);
}

/* Offsets are aligned, apart and inside the file; then they become those in the file. */
static bool check_layout(cursor *c, sp_tensor_set *set, size_t first, uint64_t data_start, uint64_t alignment) {
    size_t n = set->n - first;
    uint64_t data_bytes = c->file->n_bytes > data_start ? c->file->n_bytes - data_start : 0;
    uint32_t *order = sp_tensor_set_order(set, first);
    if (!order) return sp_fail(c->err, SP_ERR_MEMORY, "%s: no memory for %zu tensors", c->file->path, n);
    bool good = true;
    uint64_t end = 0;
    for (size_t i = 0; good && i < n; i++) {
        const sp_tensor *t = &set->items[order[i]];
        const char *wrong = t->offset_bytes % alignment                 ? "is not aligned"
                            : t->offset_bytes < end                     ? "overlaps the one before"
                            : t->offset_bytes > data_bytes              ? "starts past the end of the file"
                            : t->n_bytes > data_bytes - t->offset_bytes ? "ends past the end of the file"
                                                                        : NULL;
        if (wrong)
            good = sp_fail(c->err, SP_ERR_INPUT, "%s: tensor '%s' at byte %llu of %llu bytes of data %s", c->file->path,
                           t->name, (unsigned long long)t->offset_bytes, (unsigned long long)data_bytes, wrong);
        end = t->offset_bytes + t->n_bytes;
    }
    free(order);
    for (size_t i = first; good && i < set->n; i++) set->items[i].offset_bytes += data_start;
    return good;
}

static bool parse(cursor *c, sp_gguf *gguf, uint32_t i_file, sp_tensor_set *set) {
    uint64_t n_tensors = 0, n_values = 0, alignment = 0;
    if (!take_head(c, &n_tensors, &n_values)) return false;
    gguf->values = SP_ARENA_ARRAY(&gguf->arena, sp_gguf_value, (size_t)n_values);
    for (gguf->n_values = 0; gguf->n_values < n_values; gguf->n_values++)
        if (!take_value(c, &gguf->arena, &gguf->values[gguf->n_values])) return false;
    if (!sort_values(c, gguf) || !read_alignment(c, gguf, &alignment)) return false;
    size_t first = set->n;
    for (uint64_t i = 0; i < n_tensors; i++) {
        sp_tensor tensor = {.i_file = i_file};
        if (!take_tensor(c, &gguf->arena, &tensor) || !sp_tensor_set_add(set, &tensor, c->file->path, c->err))
            return false;
    }
    gguf->header_bytes = c->at;
    gguf->data_start = (c->at + alignment - 1) / alignment * alignment;
    return check_layout(c, set, first, gguf->data_start, alignment);
}

const char *sp_gguf_type_name(sp_gguf_type type) { return types[type].name; }

bool sp_gguf_is_magic(const unsigned char first_bytes[4]) { return memcmp(first_bytes, magic, sizeof magic) == 0; }

sp_gguf *sp_gguf_open(const sp_file *file, uint32_t i_file, sp_tensor_set *set, sp_error *err) {
    sp_gguf *gguf = calloc(1, sizeof *gguf);
    size_t room_bytes = (size_t)(file->n_bytes < HEADER_MAX_BYTES ? file->n_bytes : HEADER_MAX_BYTES);
    if (gguf) gguf->header = malloc(room_bytes ? room_bytes : 1);
    if (!gguf || !gguf->header) {
        sp_fail(err, SP_ERR_MEMORY, "%s: no memory for %zu bytes of metadata", file->path, room_bytes);
    } else {
        cursor c = {.file = file, .data = gguf->header, .room_bytes = room_bytes, .err = err};
        if (parse(&c, gguf, i_file, set)) return gguf;
    }
    sp_gguf_close(gguf);
    return NULL;
}

void sp_gguf_close(sp_gguf *gguf) {
    if (!gguf) return;
    sp_arena_deinit(&gguf->arena);
    free(gguf->header);
    free(gguf);
}

const void *sp_gguf_header(const sp_gguf *gguf, size_t *n_bytes) {
    *n_bytes = gguf->header_bytes;
    return gguf->header;
}

const sp_gguf_value *sp_gguf_find(const sp_gguf *gguf, const char *key) {
    sp_gguf_value wanted = {.key = key};
    return gguf->n_values ? bsearch(&wanted, gguf->values, gguf->n_values, sizeof *gguf->values, by_key) : NULL;
}

size_t sp_gguf_n_values(const sp_gguf *gguf) { return gguf->n_values; }
const sp_gguf_value *sp_gguf_at(const sp_gguf *gguf, size_t i) { return &gguf->values[i]; }
