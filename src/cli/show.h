/* What a run shows: a live block on a terminal, plain lines elsewhere, JSON lines for programs. All on stderr. */
#ifndef SPILL_CLI_SHOW_H
#define SPILL_CLI_SHOW_H

#include "jobs/job.h"

typedef enum { SP_SHOW_LIVE, SP_SHOW_PLAIN, SP_SHOW_QUIET, SP_SHOW_JSON } sp_show_style;

typedef struct sp_show sp_show;

/* style LIVE becomes PLAIN when stderr is no terminal. */
sp_show *sp_show_new(sp_show_style style);
sp_job_events sp_show_events(sp_show *show);
/* The last line: what was done, where it is, what to do next. */
void sp_show_end(sp_show *show, const sp_job_result *result);
/* Takes the live block away, so that an error has a line of its own. */
void sp_show_clear(sp_show *show);
void sp_show_free(sp_show *show);

#endif
