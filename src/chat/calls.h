/* Ways in which models write tool calls. Private to the chat module. */
#ifndef SPILL_CHAT_CALLS_H
#define SPILL_CHAT_CALLS_H

#include "chat/answer.h"

/* A text that is being read, and the calls found so far. */
typedef struct {
    const char *at, *end;
    sp_answer *answer;
    size_t room; /* of answer->calls */
} sp_call_reader;

struct sp_call_format {
    const char *open;     /* what stands before calls; NULL: nothing need, calls are the whole answer */
    const char *close;    /* what stands behind them, unless the text ends there; NULL: nothing */
    const char *marks[4]; /* further marks that may be special tokens */
    /* Reads what stands between open and close: adds calls, moves at behind them. False: it is none. */
    bool (*read)(sp_call_reader *r);
};

/* In the order in which they are tried. */
extern const sp_call_format sp_call_formats[];
extern const size_t sp_n_call_formats;

/* Reads all calls of a text, and what stands around them as the answer's content. False, with no call in the answer,
 * when the text holds none or one that is not well-formed. */
bool sp_calls_read(const sp_call_format *format, const char *text, size_t n_bytes, sp_answer *answer);

#endif
