/* Typed, bounded reading of a model's fields: config.json, generation_config.json, the metadata of a GGUF file. Private
 * to the model module.
 *
 * Every reader names file, key, what it found and what it wants. null means absent. Whole numbers may be written 5.0,
 * but not "5" or true; reals are finite (JSON has no others). */
#ifndef SPILL_MODEL_CONFIG_H
#define SPILL_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

typedef struct {
    const json_t *object; /* borrowed */
    const char *file;     /* path, for messages */
    const char *inside;   /* what stands before a key in messages: "", "rope_scaling." */
} sp_config;

/* The value, or NULL when the key is absent or null. */
const json_t *sp_config_get(const sp_config *config, const char *key);

/* The key must be there. */
bool sp_config_size(const sp_config *config, const char *key, size_t min, size_t max, size_t *out,
                    sp_error *err) SP_MUST_CHECK;
bool sp_config_real(const sp_config *config, const char *key, double min, double max, double *out,
                    sp_error *err) SP_MUST_CHECK;

/* An absent key leaves *out as it is: set it to the default before. */
bool sp_config_size_if(const sp_config *config, const char *key, size_t min, size_t max, size_t *out,
                       sp_error *err) SP_MUST_CHECK;
bool sp_config_real_if(const sp_config *config, const char *key, double min, double max, double *out,
                       sp_error *err) SP_MUST_CHECK;
bool sp_config_bool_if(const sp_config *config, const char *key, bool *out, sp_error *err) SP_MUST_CHECK;
bool sp_config_text_if(const sp_config *config, const char *key, const char **out, sp_error *err) SP_MUST_CHECK;

/* A word of a list and what it stands for. */
typedef struct {
    const char *word;
    int value;
} sp_config_choice;

/* The value of the word that is the key's; a word that is not among the n choices fails with SP_ERR_SUPPORT. */
bool sp_config_choice_if(const sp_config *config, const char *key, const sp_config_choice *choices, size_t n, int *out,
                         sp_error *err) SP_MUST_CHECK;

/* A list of exactly n reals in [min, max]; the key must be there. */
bool sp_config_reals(const sp_config *config, const char *key, double min, double max, size_t n, float *out,
                     sp_error *err) SP_MUST_CHECK;

/* An object; *found false when absent. `inside` is the prefix for messages, and must outlive *out. */
bool sp_config_object_if(const sp_config *config, const char *key, const char *inside, sp_config *out, bool *found,
                         sp_error *err) SP_MUST_CHECK;

/* Appends to ids[*n] the token ids of a key that is an id, a list of ids or absent; each is below n_vocab and appended
 * only once. More than `room` in all is an error. */
bool sp_config_ids_if(const sp_config *config, const char *key, size_t n_vocab, int32_t *ids, size_t room, size_t *n,
                      sp_error *err) SP_MUST_CHECK;

/* Fails with SP_ERR_INPUT: "<file>: <inside><key> is <value>, want <want>". */
bool sp_config_fail(const sp_config *config, const char *key, const char *want, sp_error *err);
/* Fails with SP_ERR_SUPPORT: "<file>: <inside><key> is <value>: not supported (<what is>)". */
bool sp_config_unsupported(const sp_config *config, const char *key, const char *what_is, sp_error *err);

#endif
