/* GGUF metadata: keys and typed values, read once and held in memory.
 *
 * A file is a header, metadata, tensor infos, then aligned data; versions 2 and 3, little-endian. Everything before the
 * data lies in one buffer, and what the getters return is borrowed from it until the model is closed. Immutable after
 * open; shared by threads. */
#ifndef SPILL_MODEL_GGUF_H
#define SPILL_MODEL_GGUF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file.h"
#include "util/buf.h"
#include "util/error.h"

/* Numbers of the format. */
typedef enum {
    SP_GGUF_U8 = 0,
    SP_GGUF_I8 = 1,
    SP_GGUF_U16 = 2,
    SP_GGUF_I16 = 3,
    SP_GGUF_U32 = 4,
    SP_GGUF_I32 = 5,
    SP_GGUF_F32 = 6,
    SP_GGUF_BOOL = 7,
    SP_GGUF_TEXT = 8,
    SP_GGUF_ARRAY = 9,
    SP_GGUF_U64 = 10,
    SP_GGUF_I64 = 11,
    SP_GGUF_F64 = 12,
    SP_GGUF_N_TYPES
} sp_gguf_type;

typedef struct {
    const char *key;
    sp_gguf_type type; /* of the value, or of the elements of an array */
    bool is_array;
    size_t n_elems; /* 1 unless an array */
    /* [n_elems] of the type, aligned for it: uint8_t, int32_t, float... BOOL as bytes; TEXT as sp_string, with a NUL
     * behind a single value and none behind an element of an array. */
    const void *data;
} sp_gguf_value;

typedef struct sp_gguf sp_gguf;

const sp_gguf_value *sp_gguf_find(const sp_gguf *gguf, const char *key); /* NULL: no such key */
size_t sp_gguf_n_values(const sp_gguf *gguf);
const sp_gguf_value *sp_gguf_at(const sp_gguf *gguf, size_t i);

/* Typed getters. A key that is not there gives the fallback or NULL and 0; one of another type is an error that names
 * it. */
bool sp_gguf_get_text(const sp_gguf *gguf, const char *key, sp_string *out, bool *found, sp_error *err) SP_MUST_CHECK;
bool sp_gguf_get_int(const sp_gguf *gguf, const char *key, int64_t fallback, int64_t *out, sp_error *err) SP_MUST_CHECK;
/* 1, 0, or -1 when the key is absent. */
bool sp_gguf_get_flag(const sp_gguf *gguf, const char *key, int *out, sp_error *err) SP_MUST_CHECK;
bool sp_gguf_get_texts(const sp_gguf *gguf, const char *key, const sp_string **out, size_t *n,
                       sp_error *err) SP_MUST_CHECK;
bool sp_gguf_get_floats(const sp_gguf *gguf, const char *key, const float **out, size_t *n,
                        sp_error *err) SP_MUST_CHECK;
bool sp_gguf_get_int32s(const sp_gguf *gguf, const char *key, const int32_t **out, size_t *n,
                        sp_error *err) SP_MUST_CHECK;

/* The chat template called `name`, or the default one for NULL (keys tokenizer.chat_template and
 * tokenizer.chat_template.NAME). *found false when there is none. */
bool sp_gguf_get_template(const sp_gguf *gguf, const char *name, sp_string *out, bool *found,
                          sp_error *err) SP_MUST_CHECK;

#endif
