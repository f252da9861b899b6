/* The journal's records as they lie in the file; shared by its writer (journal.c) and its reader (journal_read.c). */
#ifndef SPILL_JOBS_JOURNAL_FORMAT_H
#define SPILL_JOBS_JOURNAL_FORMAT_H

#include "jobs/journal.h"

#define SP_JOURNAL_NAME "journal"
#define SP_JOURNAL_MAGIC "spill journal 1"

enum { SP_JOURNAL_HEADER = 1, SP_JOURNAL_INPUT, SP_JOURNAL_TOKENS };

typedef struct {
    uint32_t check; /* of the two that follow and the payload */
    uint32_t n_bytes;
    uint32_t kind;
} sp_journal_head;
_Static_assert(sizeof(sp_journal_head) == 12, "on disk");

typedef struct {
    uint64_t n_bytes;
    char hash[32]; /* digits */
    uint64_t at_end;
} sp_journal_input_record;
_Static_assert(sizeof(sp_journal_input_record) == 48, "on disk");

/* Then int32_t ids[n]; with has_logprobs, for each token float logprob, uint32_t n_top, sp_token_logprob top[n_top]. */
typedef struct {
    uint64_t i_line;
    uint32_t from, n;
    uint32_t has_logprobs, n_top;
} sp_journal_tokens_record;
_Static_assert(sizeof(sp_journal_tokens_record) == 24, "on disk");

uint32_t sp_journal_check(const sp_journal_head *head, const void *payload);
/* Where the last good record ends. */
uint64_t sp_journal_good_bytes(const sp_journal_state *state);
/* The next record of tokens, from number *i on, of a row that is not forgotten; payload is borrowed. False: none. */
bool sp_journal_next(const sp_journal_state *state, size_t *i, const void **payload, size_t *n_bytes);

#endif
