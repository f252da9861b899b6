/* Opening a GGUF file. Private to the model module; what others see of it is model/gguf.h. */
#ifndef SPILL_MODEL_GGUF_FILE_H
#define SPILL_MODEL_GGUF_FILE_H

#include "model/gguf.h"
#include "model/tensors.h"

/* Whether the file starts with the magic number, of either byte order. */
bool sp_gguf_is_magic(const unsigned char first_bytes[4]);

/* "uint32", "string": the format's own name of a type. */
const char *sp_gguf_type_name(sp_gguf_type type);

/* Reads metadata and tensor infos; adds the tensors to the set as file number i_file, their names borrowed from the
 * result. NULL on failure. */
sp_gguf *sp_gguf_open(const sp_file *file, uint32_t i_file, sp_tensor_set *set, sp_error *err) SP_MUST_CHECK;
void sp_gguf_close(sp_gguf *gguf); /* NULL is fine */

/* Bytes before the tensor data, for hashing. */
const void *sp_gguf_header(const sp_gguf *gguf, size_t *n_bytes);

/* The scalars and short arrays of numbers (at most 4,096) whose keys start with prefix, as a JSON object with the rest
 * of the key as its key, so that model/config.h reads them. Owned by the caller; NULL on failure. */
json_t *sp_gguf_fields(const sp_gguf *gguf, const char *prefix, sp_error *err) SP_MUST_CHECK;

#endif
