/* Scratch directories and files for the tests of the model module. */
#ifndef SPILL_TESTS_MODEL_FILES_H
#define SPILL_TESTS_MODEL_FILES_H

#include <jansson.h>
#include <stddef.h>

#include "util/buf.h"
#include "util/error.h"

enum { SCRATCH_PATH_BYTES = 512 };

typedef struct {
    char path[SCRATCH_PATH_BYTES];
} scratch; /* a directory under $TMPDIR or /tmp */

void scratch_new(scratch *s);
void scratch_remove(scratch *s); /* with all that is in it */
void scratch_clear(scratch *s);  /* its files only */

/* "<scratch>/<name>", valid until the fourth call after. */
const char *scratch_path(const scratch *s, const char *name);
void scratch_write(const scratch *s, const char *name, const void *data, size_t n_bytes);
void scratch_write_json(const scratch *s, const char *name, const json_t *value);
/* Links every file of a fixture directory into the scratch one. */
void scratch_link_all(const scratch *s, const char *fixture);
void scratch_unlink(const scratch *s, const char *name);

/* Sets key ("a" or "a.b") of an object to a JSON text, or deletes it for NULL. */
void json_edit(json_t *object, const char *key, const char *value);

/* Opens the path, expects failure with this code and a message that holds `want`. */
void expect_refused(const char *path, sp_error_code code, const char *want);

/* GGUF pieces, little-endian. */
void put_u32(sp_buf *buf, uint32_t value);
void put_u64(sp_buf *buf, uint64_t value);
void put_f32(sp_buf *buf, float value);
void put_text(sp_buf *buf, const char *text);
void put_key_u32(sp_buf *buf, const char *key, uint32_t value);
void put_key_text(sp_buf *buf, const char *key, const char *value);

/* 8 bytes of length, header, n_data zero bytes. */
void safetensors_image(sp_buf *buf, const char *header, size_t n_data);

#endif
