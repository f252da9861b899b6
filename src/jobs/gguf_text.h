/* Tokenizer and chat template out of a GGUF file's metadata. */
#ifndef SPILL_JOBS_GGUF_TEXT_H
#define SPILL_JOBS_GGUF_TEXT_H

#include "chat/messages.h"
#include "model/gguf.h"
#include "tokenizer/tokenizer.h"

/* Both are the caller's, to be freed with sp_tokenizer_free and sp_chat_close, and borrow nothing from the file. NULL
 * on failure: SP_ERR_INPUT for metadata that is missing or wrong, SP_ERR_SUPPORT for a kind that is not known. A file
 * without a template gives a chat without one. Thread-safe. */
sp_tokenizer *sp_gguf_text_tokenizer(const sp_gguf *gguf, sp_error *err) SP_MUST_CHECK;
sp_chat *sp_gguf_text_chat(const sp_gguf *gguf, const sp_tokenizer *tokenizer, sp_error *err) SP_MUST_CHECK;

#endif
