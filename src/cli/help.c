/* Help, man page and completion, all from the tables. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/opts.h"
#include "kernels/device.h"
#include "util/version.h"

enum { OPTION_COLUMN = 28, MAX_WIDTH = 100 };

static size_t page_width(void) {
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 50) return MAX_WIDTH;
    return size.ws_col < MAX_WIDTH ? size.ws_col : MAX_WIDTH;
}

/* Prints text wrapped at words, its lines after the first indented. */
static void print_wrapped(const char *text, size_t column, size_t indent) {
    size_t width = page_width();
    for (bool first = true; *text; first = false) {
        if (*text == '\n') {
            printf("\n%*s", (int)indent, "");
            column = indent;
            text++;
            first = true;
            if (!*text) break;
        }
        size_t n = strcspn(text, " \n");
        if (!first && column + 1 + n > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)n, text);
        column += n;
        text += n;
        while (*text == ' ') text++;
    }
    putchar('\n');
}

static void option_head(const sp_option *option, char *head, size_t head_bytes) {
    char letter[8] = "    ";
    if (option->short_name) snprintf(letter, sizeof letter, "-%c, ", option->short_name);
    snprintf(head, head_bytes, "%s--%s%s%s", letter, option->long_name, option->value ? " " : "",
             option->value ? option->value : "");
}

void sp_help_program(void) {
    printf("spill %s: runs language models bigger than memory over files of prompts\n\nusage: spill COMMAND ...\n\n",
           SP_VERSION);
    for (size_t i = 0; i < sp_n_commands; i++) printf("  %-10s %s\n", sp_commands[i].name, sp_commands[i].summary);
    printf(
        "\nJobs and measurements are kept in $SPILL_HOME (default: $XDG_DATA_HOME/spill, else ~/.local/share/spill).\n"
        "spill COMMAND --help tells more. Try: spill run models/fields models/fields/sample.jsonl\n");
}

void sp_help_command(const sp_command *command) {
    printf("usage: spill %s%s%s [options]\n\n", command->name, *command->synopsis ? " " : "", command->synopsis);
    print_wrapped(command->description, 0, 0);
    printf("\noptions:\n");
    for (size_t i = 0; i < SP_OPT_COUNT; i++) {
        if (!(sp_options[i].commands & command->bit)) continue;
        char head[80];
        option_head(&sp_options[i], head, sizeof head);
        int n = printf("  %s", head);
        if (n >= OPTION_COLUMN) putchar('\n');
        printf("%*s", n < OPTION_COLUMN ? OPTION_COLUMN - n : OPTION_COLUMN, "");
        print_wrapped(sp_options[i].help, OPTION_COLUMN, OPTION_COLUMN);
    }
}

/* ---- man page ---- */

/* troff text: backslashes, and dots and quotes that begin a line, are escaped. */
static void man_text(const char *text) {
    for (bool line_start = true; *text; text++) {
        if (line_start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        line_start = *text == '\n';
        if (*text == '\n')
            fputs("\n.PP\n", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
    }
    putchar('\n');
}

static void man_page(void) {
    printf(".TH SPILL 1 \"\" \"spill %s\" \"User Commands\"\n.SH NAME\n", SP_VERSION);
    printf("spill \\- runs language models bigger than memory over files of prompts\n.SH SYNOPSIS\n");
    for (size_t i = 0; i < sp_n_commands; i++)
        printf(".B spill %s\n%s%s[options]\n.br\n", sp_commands[i].name, sp_commands[i].synopsis,
               *sp_commands[i].synopsis ? " " : "");
    for (size_t i = 0; i < sp_n_commands; i++) {
        printf(".SH SPILL %s\n", sp_commands[i].name);
        man_text(sp_commands[i].description);
        for (size_t k = 0; k < SP_OPT_COUNT; k++) {
            if (!(sp_options[k].commands & sp_commands[i].bit) || k == SP_OPT_HELP) continue;
            char head[80];
            option_head(&sp_options[k], head, sizeof head);
            printf(".TP\n.B ");
            man_text(head + strspn(head, " "));
            man_text(sp_options[k].help);
        }
    }
    printf(
        ".SH ENVIRONMENT\n.TP\n.B SPILL_HOME\nwhere jobs and measurements are kept (default: $XDG_DATA_HOME/spill, "
        "else ~/.local/share/spill).\n");
    printf(".TP\n.B SPILL_DISABLE_ISA\ncomma-separated instruction sets not to use, of:");
    for (const char *const *name = sp_device_isa_names(); *name; name++) printf(" %s", *name);
    putchar('\n');
}

/* ---- bash completion ---- */

static void completion(void) {
    printf(
        "_spill() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]}\n"
        "  local words=\"");
    for (size_t i = 0; i < sp_n_commands; i++) printf("%s ", sp_commands[i].name);
    printf(
        "\"\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "    COMPREPLY=($(compgen -W \"$words--help --version\" -- \"$cur\"))\n    return\n  fi\n  case $prev in\n");
    for (size_t i = 0; i < SP_OPT_COUNT; i++) {
        if (sp_options[i].kind != SP_KIND_CHOICE) continue;
        printf("    --%s) COMPREPLY=($(compgen -W \"", sp_options[i].long_name);
        for (const char *c = sp_options[i].value; *c; c++) putchar(*c == '|' ? ' ' : *c);
        printf("\" -- \"$cur\")); return ;;\n");
    }
    printf("  esac\n  case $cmd in\n");
    for (size_t i = 0; i < sp_n_commands; i++) {
        printf("    %s) local opts=\"", sp_commands[i].name);
        for (size_t k = 0; k < SP_OPT_COUNT; k++)
            if (sp_options[k].commands & sp_commands[i].bit) printf("--%s ", sp_options[k].long_name);
        printf("\" ;;\n");
    }
    printf(
        "    *) local opts= ;;\n  esac\n  case $cmd in\n    help) ;;\n"
        "    resume|status|tail) words=$(\"${COMP_WORDS[0]}\" runs 2>/dev/null | cut -d ' ' -f 1) ;;\n"
        "    *) words= ;;\n  esac\n"
        "  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\"))\n"
        "  elif [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
        "  else COMPREPLY=($(compgen -f -- \"$cur\")); fi\n}\ncomplete -o filenames -F _spill spill\n");
}

int sp_cmd_help(const sp_invocation *invocation) {
    const char *topic = invocation->n_args ? invocation->args[0] : NULL;
    if (!topic) {
        sp_help_program();
        return 0;
    }
    static const struct {
        const char *name;
        void (*print)(void);
    } pages[] = {{"man", man_page}, {"completion", completion}};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(topic, pages[i].name) != 0) continue;
        pages[i].print();
        return 0;
    }
    sp_error err = {0};
    const sp_command *command = sp_command_find(topic, &err);
    if (!command) return sp_cli_fail(&err);
    sp_help_command(command);
    return 0;
}
