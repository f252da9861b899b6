/* The fields of a request: one table lists what each is called, where it may stand and which function takes it.
 * Whatever is not in the table, and whatever cannot be honoured, is refused by name. Private to a request's parsing. */
#ifndef SPILL_JOBS_REQUEST_FIELDS_H
#define SPILL_JOBS_REQUEST_FIELDS_H

#include "jobs/request.h"

enum { SP_IN_PROMPT = 1, SP_IN_CHAT = 2, SP_IN_BODY = 4 };

typedef struct {
    const char *name;
    unsigned where; /* SP_IN_*: shapes whose object may hold it */
    /* Checks a value that is not null and puts it into the request, which borrows it. NULL: never honoured. */
    bool (*take)(sp_request *request, const char *field, const json_t *value, sp_error *err);
    const char *instead; /* what to do when take is NULL */
} sp_field;

/* NULL for a name that no such object may hold. */
const sp_field *sp_field_find(const char *name, unsigned where);

/* "<field>: <value> found, <want> wanted"; false. */
bool sp_field_refuse(sp_error *err, const char *field, const json_t *value, const char *want);

/* Checks a list of messages: roles, contents and tool calls that every template gets as they are. */
bool sp_messages_check(const json_t *messages, sp_error *err);

#endif
