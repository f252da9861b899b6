/* What a model wrote, taken apart: reasoning, tool calls and the rest; and how a model's template has both written.
 *
 * How tool calls look is no matter of a model's name: the template is made to write a call of an earlier turn, and the
 * format (the table in calls.c) that reads it back is the model's. A text that is not a whole, well-formed sequence of
 * calls stays text to its last byte. Pure functions of their arguments, thread-safe on different values. */
#ifndef SPILL_CHAT_ANSWER_H
#define SPILL_CHAT_ANSWER_H

#include "chat/messages.h"
#include "tokenizer/tokenizer.h"
#include "util/arena.h"

typedef struct sp_call_format sp_call_format; /* a row of the table; immutable, never freed */

typedef struct {
    const char *open, *close;
} sp_reasoning_marks;

/* All borrowed from tables. */
typedef struct {
    const sp_call_format *calls;         /* NULL: not known */
    const sp_reasoning_marks *reasoning; /* NULL: the template speaks of none */
    bool object_arguments;               /* the template needs the arguments of calls as objects, not as text */
    bool no_developer;                   /* it knows no developer role */
} sp_chat_style;

/* Renders a few conversations. tokenizer (may be NULL): one that has the marks of reasoning declares them as well as a
 * template does. A chat without template has no style at all. */
sp_chat_style sp_chat_style_of(const sp_chat *chat, const sp_tokenizer *tokenizer);
/* Whether a special token of this text is a mark that sp_answer_read needs to see. */
bool sp_chat_style_has_mark(const sp_chat_style *style, const char *text, size_t n_bytes);
/* Whether a prompt that ends in this text has opened the reasoning, so that the answer begins inside it. */
bool sp_chat_style_opens_reasoning(const sp_chat_style *style, const char *prompt_end, size_t n_bytes);

typedef struct {
    bool in_reasoning;   /* the text begins inside it */
    bool keep_reasoning; /* it is ordinary content */
    bool read_calls;
} sp_answer_options;

typedef struct {
    sp_string name;
    sp_string arguments; /* one JSON object, as the model wrote it */
} sp_tool_call;

/* Strings are borrowed from the text or from the arena. */
typedef struct {
    bool has_reasoning, has_content; /* false: null */
    sp_string reasoning;             /* without white space around it */
    sp_string content;               /* what is neither reasoning nor calls */
    sp_tool_call *calls;             /* [n_calls] */
    size_t n_calls;
    sp_arena arena;
} sp_answer;

/* text is borrowed while the answer lives; sp_answer_deinit in every case. */
void sp_answer_read(const sp_chat_style *style, const sp_answer_options *options, const char *text, size_t n_bytes,
                    sp_answer *answer);
void sp_answer_deinit(sp_answer *answer); /* zero-initialised is fine */

#endif
