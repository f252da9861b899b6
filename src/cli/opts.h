/* Options and commands as tables (opts.def, commands.c): parsing, help, man page and completion come from them. */
#ifndef SPILL_CLI_OPTS_H
#define SPILL_CLI_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

/* Which commands take an option, as bits. */
enum {
    SP_CMD_RUN = 1 << 0,
    SP_CMD_PLAN = 1 << 1,
    SP_CMD_TOKENIZE = 1 << 2,
    SP_CMD_DOCTOR = 1 << 3,
    SP_CMD_CHECK = 1 << 4,
    SP_CMD_HELP = 1 << 5,
    SP_CMD_PROBE = 1 << 6,
    SP_CMD_JOBS = SP_CMD_RUN | SP_CMD_PLAN,
    SP_CMD_ALL = (1 << 7) - 1,
};

typedef enum {
    SP_KIND_FLAG,
    SP_KIND_COUNT,
    SP_KIND_NUMBER,
    SP_KIND_SIZE,
    SP_KIND_DURATION,
    SP_KIND_DATE,
    SP_KIND_TEXT,
    SP_KIND_PATH,
    SP_KIND_CHOICE
} sp_option_kind;

typedef enum {
#define SP_OPTION(id, long_name, short_name, kind, value, commands, help) SP_OPT_##id,
#include "cli/opts.def"
#undef SP_OPTION
    SP_OPT_COUNT
} sp_option_id;

typedef struct {
    const char *long_name; /* without dashes */
    char short_name;       /* 0: none */
    sp_option_kind kind;
    const char *value; /* placeholder, or a|b|c of a choice */
    unsigned commands;
    const char *help;
} sp_option;
extern const sp_option sp_options[SP_OPT_COUNT];

typedef struct {
    bool given;
    const char *text; /* as written */
    int64_t count;    /* COUNT, SIZE (bytes), DATE (seconds since 1970), CHOICE (index) */
    double number;    /* NUMBER, DURATION (seconds) */
} sp_option_value;

enum { SP_MAX_ARGS = 16 };

typedef struct {
    sp_option_value options[SP_OPT_COUNT];
    const char *args[SP_MAX_ARGS]; /* positional */
    size_t n_args;
    const char *command_line; /* as typed, for manifests */
} sp_invocation;

typedef struct {
    const char *name;
    unsigned bit;
    const char *synopsis; /* positional arguments */
    size_t min_args, max_args;
    const char *summary;                         /* one line */
    const char *description;                     /* paragraphs for --help and the man page */
    int (*run)(const sp_invocation *invocation); /* returns the exit status */
} sp_command;
extern const sp_command sp_commands[];
extern const size_t sp_n_commands;

/* Parses argv[0..argc) (after the command's name). `--` ends options, "-" is an argument. */
bool sp_opts_parse(const sp_command *command, int argc, char **argv, sp_invocation *invocation,
                   sp_error *err) SP_MUST_CHECK;

/* The nearest name to `word` within two edits among n names, or NULL. For "did you mean". */
const char *sp_opts_nearest(const char *word, const char *const *names, size_t n);

/* Exit status of a failure: 2 for usage and unusable input, 75 when it was stopped from outside, else 1. */
int sp_cli_status(const sp_error *err);
/* The same, and prints "spill: <text>" on stderr. */
int sp_cli_fail(const sp_error *err);

/* help.c */
void sp_help_program(void);
void sp_help_command(const sp_command *command);
int sp_cmd_help(const sp_invocation *invocation); /* help [COMMAND | man | completion] */

/* cmd_<name>.c */
int sp_cmd_run(const sp_invocation *invocation);
int sp_cmd_plan(const sp_invocation *invocation);
int sp_cmd_tokenize(const sp_invocation *invocation);
int sp_cmd_doctor(const sp_invocation *invocation);
int sp_cmd_check(const sp_invocation *invocation);
int sp_cmd_probe(const sp_invocation *invocation);

#endif
