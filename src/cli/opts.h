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
    SP_CMD_RESUME = 1 << 7,
    SP_CMD_STATUS = 1 << 8,
    SP_CMD_TAIL = 1 << 9,
    SP_CMD_RUNS = 1 << 10,
    SP_CMD_JOBS = SP_CMD_RUN | SP_CMD_PLAN,
    SP_CMD_ALL = 0x7fffffff, /* whatever commands there will be */
};

/* What an option takes. */
typedef enum {
    SP_KIND_FLAG,     /* nothing */
    SP_KIND_COUNT,    /* a whole number, at least 0 */
    SP_KIND_NUMBER,   /* a number, at least 0 */
    SP_KIND_SIZE,     /* bytes: 512M, 4G; powers of 1024 */
    SP_KIND_DURATION, /* 30s, 90m, 8h, 1d */
    SP_KIND_DATE,     /* YYYY-MM-DD */
    SP_KIND_TEXT,     /* anything but nothing */
    SP_KIND_PATH,     /* the same */
    SP_KIND_CHOICE,   /* one of the words of its value */
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
    unsigned commands; /* SP_CMD_* */
    const char *help;
} sp_option;
extern const sp_option sp_options[SP_OPT_COUNT];

typedef struct {
    bool given;
    const char *text; /* as written */
    int64_t count;    /* COUNT, SIZE (bytes), DATE (seconds since 1970), CHOICE (index) */
    double number;    /* NUMBER, DURATION (seconds) */
} sp_option_value;

enum { SP_MAX_ARGS = 16, SP_MAX_COMMANDS = 32 };

typedef struct {
    sp_option_value options[SP_OPT_COUNT];
    const char *args[SP_MAX_ARGS]; /* positional */
    size_t n_args;
    const char *command_line; /* as typed, for manifests */
} sp_invocation;

typedef struct {
    const char *name;
    unsigned bit;         /* SP_CMD_* */
    const char *synopsis; /* positional arguments */
    size_t min_args, max_args;
    const char *summary;                         /* one line */
    const char *description;                     /* paragraphs for --help and the man page */
    int (*run)(const sp_invocation *invocation); /* returns the exit status */
} sp_command;
extern const sp_command sp_commands[];
extern const size_t sp_n_commands;

/* Parses argv[0..argc) (after the command's name) into *invocation, which is zero before and borrows from argv. `--`
 * ends options, "-" is an argument. With --help the number of arguments is not checked. */
bool sp_opts_parse(const sp_command *command, int argc, char **argv, sp_invocation *invocation,
                   sp_error *err) SP_MUST_CHECK;

/* The command of that name, or NULL with an error that may name the one that was meant. */
const sp_command *sp_command_find(const char *name, sp_error *err) SP_MUST_CHECK;

/* Exit statuses of the program. */
enum {
    SP_EXIT_DONE = 0,
    SP_EXIT_FAILED = 1,
    SP_EXIT_UNUSABLE = 2,   /* usage, or input that cannot be worked on */
    SP_EXIT_ROW_ERRORS = 3, /* done, but some rows have errors */
    SP_EXIT_STOPPED = 75,   /* from outside, can go on: EX_TEMPFAIL of sysexits.h */
};

/* The one of a failure. */
int sp_cli_status(const sp_error *err);
/* The same, and prints "spill: <text>" on stderr. */
int sp_cli_fail(const sp_error *err);

/* help.c */
void sp_help_program(void);
void sp_help_command(const sp_command *command);
int sp_cmd_help(const sp_invocation *invocation); /* help [COMMAND | man | completion] */

/* cmd_<name>.c */
int sp_cmd_run(const sp_invocation *invocation);
int sp_cmd_resume(const sp_invocation *invocation);
int sp_cmd_status(const sp_invocation *invocation);
int sp_cmd_tail(const sp_invocation *invocation);
int sp_cmd_runs(const sp_invocation *invocation);
int sp_cmd_plan(const sp_invocation *invocation);
int sp_cmd_tokenize(const sp_invocation *invocation);
int sp_cmd_doctor(const sp_invocation *invocation);
int sp_cmd_check(const sp_invocation *invocation);
int sp_cmd_probe(const sp_invocation *invocation);

#endif
