/* Characters and the properties of them that the pipeline asks for. Pure, thread-safe. Private to the tokenizer. */
#ifndef SPILL_TOKENIZER_UNICODE_H
#define SPILL_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/utf8.h"

/* Decodes the character at text, which is valid UTF-8 and not at its end. Returns how many bytes it has. */
size_t sp_char_next(const char *text, uint32_t *c);
size_t sp_char_put(uint32_t c, char out[4]); /* returns how many bytes it wrote */
bool sp_char_is_numeric(uint32_t c);         /* Rust's char::is_numeric: categories Nd, Nl, No of Unicode 17 */
bool sp_char_is_space(uint32_t c);           /* White_Space */
bool sp_char_is_word(uint32_t c);            /* \w of Rust's regex crate */
bool sp_char_is_nfc_young(uint32_t c);       /* newer than Unicode 9 and not inert there: inert for us */
/* A stand-in is a character of as many bytes whose category all Unicode versions agree on (unicode.c). Whether any
 * character of text needs one; putting them in. */
bool sp_text_has_standins(const char *text, size_t n_bytes);
void sp_text_put_standins(char *text, size_t n_bytes);

#endif
