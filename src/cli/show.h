/* What a run shows: a live block on a terminal, plain lines elsewhere, JSON lines for programs. All on stderr. */
#ifndef SPILL_CLI_SHOW_H
#define SPILL_CLI_SHOW_H

#include <stdio.h>

#include "jobs/job.h"

typedef enum { SP_SHOW_LIVE, SP_SHOW_PLAIN, SP_SHOW_QUIET, SP_SHOW_JSON } sp_show_style;

typedef struct sp_show sp_show;

/* style LIVE becomes PLAIN when stderr is no terminal. */
sp_show *sp_show_new(sp_show_style style);
sp_job_events sp_show_events(sp_show *show);
/* The last line: what was done, where it is, what to do next. */
void sp_show_end(sp_show *show, const sp_job_result *result);
/* The last line of a run that failed: "spill: ..." or an event of its own. */
void sp_show_fail(sp_show *show, const sp_error *err);
void sp_show_free(sp_show *show);

/* The plan for people, and for programs (the caller's), with what is known of bad rows. */
void sp_show_plan(FILE *to, const sp_job_info *info);
json_t *sp_show_plan_json(const sp_job_info *info);

#endif
