/* The program: finds the command, parses its options, runs it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/opts.h"
#include "util/buf.h"
#include "util/version.h"

/* The command line as typed, with quotes where a shell needs them. */
static char *join_command(int argc, char **argv) {
    sp_buf line = {0};
    for (int i = 0; i < argc; i++) {
        bool plain = argv[i][0] && !strpbrk(argv[i], " \t\n'\"\\$`*?[]{}()<>|&;#~!");
        sp_buf_text(&line, i ? " " : "");
        if (plain) {
            sp_buf_text(&line, argv[i]);
            continue;
        }
        sp_buf_char(&line, '\'');
        for (const char *c = argv[i]; *c; c++) sp_buf_text(&line, *c == '\'' ? "'\\''" : (char[]){*c, 0});
        sp_buf_char(&line, '\'');
    }
    return line.data;
}

/* Takes the places of standard streams that are closed, so that no file opened later becomes one of them; reads and
 * writes of the stand-ins fail as those of the closed ones would. */
static void claim_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) abort();
}

/* What was printed must have arrived: a full or closed stdout is a failure, a reader that left early ends the program
 * as a signal would, without a word. */
static int end(int status) {
    sp_error err = {0};
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status) return status;
    if (errno == EPIPE) return sp_cli_status(&(sp_error){.code = SP_ERR_CANCEL});
    sp_fail_errno(&err, "stdout");
    return sp_cli_fail(&err);
}

int main(int argc, char **argv) {
    claim_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is an error of a write, not a death */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that may not grow: half a line can then be cut off */
    sp_error err = {0};
    if (argc < 2) {
        sp_fail(&err, SP_ERR_USAGE, "no command found; see spill --help");
        return sp_cli_fail(&err);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        sp_help_program();
        return end(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("spill %s\n", SP_VERSION);
        return end(0);
    }
    const sp_command *command = sp_command_find(argv[1], &err);
    if (!command) return sp_cli_fail(&err);
    sp_invocation invocation = {0};
    if (!sp_opts_parse(command, argc - 2, argv + 2, &invocation, &err)) return sp_cli_fail(&err);
    if (invocation.options[SP_OPT_HELP].given) {
        sp_help_command(command);
        return end(0);
    }
    char *line = join_command(argc, argv);
    invocation.command_line = line ? line : "spill";
    int status = command->run(&invocation);
    free(line);
    return end(status);
}
