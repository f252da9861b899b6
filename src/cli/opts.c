/* The command line by the tables of commands and options; exit statuses. */
#include "cli/opts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const sp_option sp_options[SP_OPT_COUNT] = {
#define SP_OPTION(id, long_name, short_name, kind, value, commands, help) \
    {long_name, short_name, SP_KIND_##kind, value, commands, help},
#include "cli/opts.def"
#undef SP_OPTION
};

/* ---- values ---- */

static bool bad_value(const sp_option *option, const char *text, const char *want, sp_error *err) {
    return sp_fail(err, SP_ERR_USAGE, "--%s: '%s' found, %s wanted", option->long_name, text, want);
}

static bool parse_count(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    char *end;
    errno = 0;
    value->count = strtoll(text, &end, 10);
    if (errno || end == text || *end || value->count < 0) return bad_value(option, text, "a whole number", err);
    return true;
}

static bool parse_number(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    char *end;
    value->number = strtod(text, &end);
    if (end == text || *end || !isfinite(value->number) || value->number < 0)
        return bad_value(option, text, "a number of at least 0", err);
    return true;
}

typedef struct {
    const char *letters;
    double factor;
} unit_row;

/* A number that is not negative, and at most one unit of units[n]; *rest is what follows them. */
static bool parse_unit(const char *text, const unit_row *units, size_t n, double *out, const char **rest) {
    char *end;
    *out = strtod(text, &end);
    *rest = end;
    if (end == text || !isfinite(*out) || *out < 0) return false;
    for (size_t i = 0; i < n && *end; i++) {
        if (!strchr(units[i].letters, *end)) continue;
        *out *= units[i].factor;
        *rest = end + 1;
        break;
    }
    return true;
}

static bool parse_size(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    static const unit_row units[] = {{"kK", 0x1p10}, {"mM", 0x1p20}, {"gG", 0x1p30}, {"tT", 0x1p40}};
    double bytes = 0;
    const char *rest;
    bool good = parse_unit(text, units, sizeof units / sizeof *units, &bytes, &rest) && bytes >= 1 && bytes < 0x1p63;
    if (!good || (*rest && strcmp(rest, "B") != 0 && strcmp(rest, "iB") != 0))
        return bad_value(option, text, "a size such as 4G or 512M", err);
    value->count = (int64_t)bytes;
    return true;
}

static bool parse_duration(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    static const unit_row units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    const char *rest;
    bool good = parse_unit(text, units, sizeof units / sizeof *units, &value->number, &rest);
    if (!good || *rest || value->number <= 0) return bad_value(option, text, "a time such as 90m, 8h or 30s", err);
    return true;
}

static bool parse_date(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    struct tm day = {0};
    const char *end = strlen(text) == 10 ? strptime(text, "%Y-%m-%d", &day) : NULL;
    int month_day = day.tm_mday;
    time_t seconds = end && !*end ? timegm(&day) : -1; /* normalises 31 February: compare */
    if (!end || *end || day.tm_mday != month_day) return bad_value(option, text, "a date YYYY-MM-DD", err);
    value->count = (int64_t)seconds;
    return true;
}

static bool parse_choice(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    size_t n = strlen(text);
    const char *at = option->value;
    for (value->count = 0; at; value->count++) {
        size_t n_word = strcspn(at, "|");
        if (n == n_word && strncmp(at, text, n) == 0) return true;
        at = at[n_word] ? at + n_word + 1 : NULL;
    }
    return bad_value(option, text, option->value, err);
}

static bool parse_text(const sp_option *option, const char *text, sp_option_value *value, sp_error *err) {
    (void)value;
    return *text || bad_value(option, text, option->value, err);
}

typedef bool parse_fn(const sp_option *option, const char *text, sp_option_value *value, sp_error *err);
static parse_fn *const parsers[] = {
    [SP_KIND_FLAG] = NULL,       [SP_KIND_COUNT] = parse_count,       [SP_KIND_NUMBER] = parse_number,
    [SP_KIND_SIZE] = parse_size, [SP_KIND_DURATION] = parse_duration, [SP_KIND_DATE] = parse_date,
    [SP_KIND_TEXT] = parse_text, [SP_KIND_PATH] = parse_text,         [SP_KIND_CHOICE] = parse_choice,
};

/* ---- names ---- */

/* Edit distance (Levenshtein, one row at a time); SIZE_MAX for words over 30 letters. */
static size_t distance(const char *a, const char *b) {
    enum { MAX_LETTERS = 30 };
    size_t n = strlen(a), m = strlen(b);
    size_t row[MAX_LETTERS + 1];
    if (n > MAX_LETTERS || m > MAX_LETTERS) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

/* The one of n names that word begins, if it is the only one; else the nearest to it within two edits, or NULL. */
static const char *nearest_name(const char *word, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t best_distance = 3, n_begun = 0;
    for (size_t i = 0; i < n; i++) {
        if (!*word || strncmp(names[i], word, strlen(word)) != 0) continue;
        best = names[i];
        n_begun++;
    }
    if (n_begun == 1) return best;
    best = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

const sp_command *sp_command_find(const char *name, sp_error *err) {
    const char *names[SP_MAX_COMMANDS];
    SP_CHECK(sp_n_commands <= SP_MAX_COMMANDS);
    for (size_t i = 0; i < sp_n_commands; i++) {
        if (strcmp(sp_commands[i].name, name) == 0) return &sp_commands[i];
        names[i] = sp_commands[i].name;
    }
    const char *nearest = nearest_name(name, names, sp_n_commands);
    sp_fail(err, SP_ERR_USAGE, "%s: no such command; %s%s%s", name,
            nearest ? "did you mean spill " : "see spill --help", nearest ? nearest : "", nearest ? "?" : "");
    return NULL;
}

static bool unknown_option(const sp_command *command, const char *word, sp_error *err) {
    const char *names[SP_OPT_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < SP_OPT_COUNT; i++)
        if (sp_options[i].commands & command->bit) names[n++] = sp_options[i].long_name;
    const char *nearest = strncmp(word, "--", 2) == 0 ? nearest_name(word + 2, names, n) : NULL;
    if (nearest)
        return sp_fail(err, SP_ERR_USAGE, "%s: no such option of spill %s; did you mean --%s?", word, command->name,
                       nearest);
    return sp_fail(err, SP_ERR_USAGE, "%s: no such option; see spill %s --help", word, command->name);
}

/* Option i matches `word` (without its value): --long or -s. */
static bool matches(const sp_option *option, const char *word, size_t n_word) {
    if (word[1] != '-') return n_word == 2 && option->short_name && option->short_name == word[1];
    return strlen(option->long_name) == n_word - 2 && strncmp(option->long_name, word + 2, n_word - 2) == 0;
}

static bool parse_option(const sp_command *command, int argc, char **argv, int *i, sp_invocation *invocation,
                         sp_error *err) {
    const char *word = argv[*i];
    size_t n_word = word[1] == '-' ? strcspn(word, "=") : 2;
    for (size_t id = 0; id < SP_OPT_COUNT; id++) {
        const sp_option *option = &sp_options[id];
        if (!(option->commands & command->bit) || !matches(option, word, n_word)) continue;
        sp_option_value *value = &invocation->options[id];
        if (value->given) return sp_fail(err, SP_ERR_USAGE, "--%s: given twice, once wanted", option->long_name);
        value->given = true;
        if (option->kind == SP_KIND_FLAG)
            return !word[n_word] || sp_fail(err, SP_ERR_USAGE, "--%s: takes no value", option->long_name);
        value->text = word[n_word] ? word + n_word + (word[1] == '-') : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value->text)
            return sp_fail(err, SP_ERR_USAGE, "--%s: no value found, %s wanted", option->long_name, option->value);
        return parsers[option->kind](option, value->text, value, err);
    }
    return unknown_option(command, word, err);
}

bool sp_opts_parse(const sp_command *command, int argc, char **argv, sp_invocation *invocation, sp_error *err) {
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
        } else if (!options_end && word[0] == '-' && word[1]) {
            if (!parse_option(command, argc, argv, &i, invocation, err)) return false;
        } else if (invocation->n_args == SP_MAX_ARGS) {
            return sp_fail(err, SP_ERR_USAGE, "%s: more than %d arguments", command->name, SP_MAX_ARGS);
        } else {
            if (!*word) return sp_fail(err, SP_ERR_USAGE, "%s: an empty argument found", command->name);
            invocation->args[invocation->n_args++] = word;
        }
    }
    if (invocation->options[SP_OPT_HELP].given) return true;
    if (invocation->n_args < command->min_args || invocation->n_args > command->max_args)
        return sp_fail(err, SP_ERR_USAGE, "%s: %zu arguments found, wanted: spill %s %s; see --help", command->name,
                       invocation->n_args, command->name, command->synopsis);
    return true;
}

int sp_cli_status(const sp_error *err) {
    static const int statuses[] = {
        [SP_OK] = SP_EXIT_DONE,
        [SP_ERR_USAGE] = SP_EXIT_UNUSABLE,
        [SP_ERR_INPUT] = SP_EXIT_UNUSABLE,
        [SP_ERR_IO] = SP_EXIT_FAILED,
        [SP_ERR_MEMORY] = SP_EXIT_FAILED,
        [SP_ERR_SUPPORT] = SP_EXIT_UNUSABLE,
        [SP_ERR_CANCEL] = SP_EXIT_STOPPED,
    };
    return statuses[err->code];
}

int sp_cli_fail(const sp_error *err) {
    fprintf(stderr, "spill: %s\n", err->text);
    return sp_cli_status(err);
}
