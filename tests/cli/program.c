/* Runs the spill program for a test. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                       \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static char scratch[64];

static void remove_scratch(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    if (system(command) != 0) fprintf(stderr, "%s is left behind\n", scratch);
}

const char *scratch_dir(void) {
    if (!scratch[0]) {
        snprintf(scratch, sizeof scratch, "/tmp/spill-test-XXXXXX");
        REQUIRE(mkdtemp(scratch) != NULL);
        atexit(remove_scratch);
    }
    return scratch;
}

const char *scratch_file(const char *name, const char *text) {
    static char *paths[64]; /* live as long as the process */
    static size_t n_paths;
    char *path;
    REQUIRE(n_paths < sizeof paths / sizeof *paths && asprintf(&path, "%s/%s", scratch_dir(), name) > 0);
    paths[n_paths++] = path;
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL);
    fputs(text, file);
    REQUIRE(fclose(file) == 0);
    return path;
}

typedef struct {
    char *data;
    size_t n_bytes;
} text;

static bool read_some(int fd, text *into) {
    char block[65536];
    ssize_t got = read(fd, block, sizeof block);
    if (got <= 0) return false;
    into->data = realloc(into->data, into->n_bytes + (size_t)got + 1);
    REQUIRE(into->data != NULL);
    memcpy(into->data + into->n_bytes, block, (size_t)got);
    into->n_bytes += (size_t)got;
    return true;
}

/* Feeds input and collects both outputs until they are closed. */
static void converse(int in, int out, int err, const char *input, text *out_text, text *err_text) {
    size_t left = input ? strlen(input) : 0;
    struct pollfd fds[] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
    while (fds[1].fd >= 0 || fds[2].fd >= 0) {
        if (left == 0 && fds[0].fd >= 0) {
            close(in);
            fds[0].fd = -1;
        }
        REQUIRE(poll(fds, 3, -1) >= 0 || errno == EINTR);
        if (fds[0].revents) {
            ssize_t put = write(in, input, left < 65536 ? left : 65536);
            if (put < 0) left = 0; /* it does not read: its business */
            if (put > 0) input += put, left -= (size_t)put;
        }
        if (fds[1].revents && !read_some(out, out_text)) fds[1].fd = -1;
        if (fds[2].revents && !read_some(err, err_text)) fds[2].fd = -1;
    }
    if (fds[0].fd >= 0) close(in);
    close(out);
    close(err);
}

program_run run_shell(const char *command, const char *input) {
    int in[2], out[2], err[2];
    REQUIRE(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    setenv("SPILL_HOME", scratch_dir(), 1);
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    text out_text = {calloc(1, 1), 0}, err_text = {calloc(1, 1), 0};
    converse(in[1], out[0], err[0], input, &out_text, &err_text);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    out_text.data[out_text.n_bytes] = '\0';
    err_text.data[err_text.n_bytes] = '\0';
    return (program_run){WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_text.data, err_text.data,
                         out_text.n_bytes};
}

program_run run_spill(const char *args, const char *input) {
    const char *program = getenv("SPILL");
    REQUIRE(program != NULL);
    char *command;
    REQUIRE(asprintf(&command, "exec '%s' %s", program, args) > 0);
    program_run run = run_shell(command, input);
    free(command);
    return run;
}

void program_run_free(program_run *run) {
    free(run->out);
    free(run->err);
    *run = (program_run){0};
}

json_t *result_lines(const char *lines) {
    json_t *all = json_object();
    while (*lines) {
        size_t n_bytes = strcspn(lines, "\n");
        json_error_t where;
        json_t *line = json_loadb(lines, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
        const char *id = json_string_value(json_object_get(line, "custom_id"));
        if (!line || !id || lines[n_bytes] != '\n') {
            fprintf(stderr, "not a result line: %.*s (%s)\n", (int)(n_bytes < 300 ? n_bytes : 300), lines, where.text);
            exit(1);
        }
        char key[600];
        bool is_error = json_is_object(json_object_get(line, "error"));
        const char *code = json_string_value(json_object_get(json_object_get(line, "error"), "code"));
        bool is_second = code && strcmp(code, "duplicate_custom_id") == 0; /* whichever of the two was written first */
        snprintf(key, sizeof key, "%s", id);
        if (is_second || json_object_get(all, key))
            snprintf(key, sizeof key, "%s (%s again)", id, is_error ? "error" : "result");
        if (json_object_get(all, key)) {
            fprintf(stderr, "custom_id %s is there twice\n", key);
            exit(1);
        }
        json_object_set_new(all, key, line);
        lines += n_bytes + 1;
    }
    return all;
}

char *result_body(const json_t *line) {
    json_t *body = json_deep_copy(json_object_get(json_object_get(line, "response"), "body"));
    if (!body) return NULL;
    json_object_del(body, "id");
    json_object_del(body, "created");
    char *dumped = json_dumps(body, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(body);
    return dumped;
}
