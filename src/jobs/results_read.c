/* Reading a results file back. A line is known by what the writer (result.c) puts first and last, and by its brackets;
 * a tree of every value would take hundreds of times the time. */
#include "jobs/results_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/json.h"
#include "util/size.h"

enum { LINES_MAX = 1 << 30 }; /* of an input of which the journal says nothing */

static const char first_key[] = "{\"id\":\"batch_req_";

/* The run and line number of a result line, and where its custom_id's string begins; NULL when it is none. */
static const char *read_head(const char *line, char *id, size_t *i_line) {
    size_t n_key = sizeof first_key - 1;
    if (strncmp(line, first_key, n_key) != 0) return NULL;
    const char *from = line + n_key, *quote = strchr(from, '"'), *dash = quote;
    while (dash && dash > from && *dash != '-') dash--;
    if (!dash || dash == from || (size_t)(dash - from) >= 48) return NULL;
    memcpy(id, from, (size_t)(dash - from));
    id[dash - from] = '\0';
    char *end;
    *i_line = strtoull(dash + 1, &end, 10);
    static const char next_key[] = "\",\"custom_id\":";
    if (end != quote || *i_line == 0 || strncmp(quote, next_key, sizeof next_key - 1) != 0) return NULL;
    return quote + sizeof next_key - 1;
}

/* Whether quotes and brackets are closed where the line ends, and not before. */
static bool is_whole(const char *line, size_t n_bytes) {
    size_t depth = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = line[i];
        if (c == '"') {
            for (i++; i < n_bytes && line[i] != '"'; i++) i += line[i] == '\\';
            if (i >= n_bytes) return false;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0 || (--depth == 0 && i + 1 != n_bytes)) return false;
        }
    }
    return depth == 0 && n_bytes > 0;
}

/* Behind the custom_id's string: an error line has no response. */
static bool is_error_line(const char *custom_id) {
    const char *at = custom_id + 1;
    while (*at && *at != '"') at += *at == '\\' && at[1] ? 2 : 1;
    static const char no_response[] = "\",\"response\":null,";
    return strncmp(at, no_response, sizeof no_response - 1) == 0;
}

static void set_done(sp_resume *resume, size_t i_line) {
    if (i_line >= resume->done_lines) {
        size_t old = resume->done_lines / 8, n_bytes = sp_max_size(2 * old, i_line / 8 + 1);
        resume->done = realloc(resume->done, n_bytes);
        SP_CHECK(resume->done != NULL);
        memset(resume->done + old, 0, n_bytes - old);
        resume->done_lines = n_bytes * 8;
    }
    resume->done[i_line / 8] |= (unsigned char)(1 << i_line % 8);
}

static bool not_ours(const sp_resume *resume, size_t n_lines, sp_error *err) {
    return sp_fail(
        err, SP_ERR_USAGE,
        "%s: line %zu is not a result of run %s; take it out, or run the rows with another -o and drop this run "
        "with rm -r %s",
        resume->results_path, n_lines, resume->rundir.id, resume->rundir.path);
}

static bool is_damaged(const sp_resume *resume, size_t n_lines, sp_error *err) {
    return sp_fail(err, SP_ERR_USAGE,
                   "%s: line %zu is damaged, it holds bytes that are zero; take it out (sed -i %zud FILE) and its row "
                   "is run again",
                   resume->results_path, n_lines, n_lines);
}

static bool read_lines(sp_resume *resume, FILE *file, sp_error *err) {
    char *line = NULL;
    size_t room = 0, n_lines = 0;
    uint64_t n_read = sp_resume_mark(resume)->n_bytes, most_lines = n_read ? n_read : LINES_MAX; /* a byte a line */
    bool good = true;
    for (ssize_t got; good && (got = getline(&line, &room, file)) > 0;) {
        size_t n_bytes = (size_t)got - 1, i_line;
        if (line[n_bytes] != '\n') break; /* torn, or zeros to the file's end that were never on the drive */
        char id[48];
        n_lines++;
        if (memchr(line, '\0', n_bytes)) { /* lines behind it are whole: cutting here would lose them */
            good = is_damaged(resume, n_lines, err);
            break;
        }
        const char *custom_id = read_head(line, id, &i_line);
        if (!custom_id || strcmp(id, resume->rundir.id) != 0 || !is_whole(line, n_bytes) || i_line > most_lines ||
            sp_resume_is_done(resume, i_line)) {
            good = not_ours(resume, n_lines, err);
            break;
        }
        set_done(resume, i_line);
        sp_journal_forget(resume->journal, i_line);
        resume->n_done++;
        resume->n_errors += is_error_line(custom_id);
        resume->results_bytes += (size_t)got;
    }
    free(line);
    return good && (!ferror(file) || sp_fail_errno(err, "%s", resume->results_path));
}

bool sp_results_read(sp_resume *resume, sp_error *err) {
    struct stat st;
    if (stat(resume->results_path, &st) != 0)
        return (errno == ENOENT && resume->wrote_none) ||
               sp_fail(err, SP_ERR_USAGE,
                       "%s: the results of run %s are gone (%s); run its rows as a new job, and drop this one with "
                       "rm -r %s",
                       resume->results_path, resume->rundir.id, strerror(errno), resume->rundir.path);
    if (!S_ISREG(st.st_mode))
        return sp_fail(err, SP_ERR_USAGE,
                       "%s: run %s wrote to no regular file, it cannot be continued; run its rows "
                       "as a new job",
                       resume->results_path, resume->rundir.id);
    FILE *file = fopen(resume->results_path, "re");
    if (!file) {
        sp_fail_errno(err, "%s", resume->results_path);
        return false;
    }
    bool good = read_lines(resume, file, err);
    fclose(file);
    return good;
}

/* Where each row's line begins. */
static void find_lines(sp_resume *resume) {
    char *line = NULL, id[48];
    size_t room = 0, i_line;
    uint64_t at = 0;
    resume->lines = fopen(resume->results_path, "re");
    resume->line_at = calloc(resume->done_lines + 1, sizeof *resume->line_at);
    SP_CHECK(resume->line_at != NULL);
    while (resume->lines && at < resume->results_bytes) {
        ssize_t got = getline(&line, &room, resume->lines);
        if (got <= 0) break;
        if (read_head(line, id, &i_line) && i_line < resume->done_lines) resume->line_at[i_line] = at;
        at += (uint64_t)got;
    }
    free(line);
}

bool sp_results_text(sp_resume *resume, size_t i_line, sp_buf *text) {
    if (!sp_resume_is_done(resume, i_line)) return false;
    if (!resume->line_at) find_lines(resume);
    char *line = NULL;
    size_t room = 0;
    sp_error ignored = {0};
    bool is_there = resume->lines && fseeko(resume->lines, (off_t)resume->line_at[i_line], SEEK_SET) == 0;
    ssize_t got = is_there ? getline(&line, &room, resume->lines) : 0;
    json_t *json = got > 0 ? sp_json_parse(line, (size_t)got, "result", &ignored) : NULL;
    const json_t *body = json_object_get(json_object_get(json, "response"), "body");
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    const json_t *content = json_object_get(json_object_get(choice, "message"), "content");
    bool good = json_is_null(content) || /* nothing but calls */
                (json_is_string(content) && sp_buf_add(text, json_string_value(content), json_string_length(content)));
    json_decref(json);
    free(line);
    return good;
}

bool sp_results_first_id(const char *path, char *id) {
    char line[256] = "";
    size_t i_line;
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool is_line = fgets(line, sizeof line, file) != NULL && read_head(line, id, &i_line);
    fclose(file);
    return is_line;
}
