/* Where results may not go. */
#include "jobs/output.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same(const struct stat *x, const struct stat *y) {
    return x->st_dev == y->st_dev && x->st_ino == y->st_ino;
}

bool sp_output_is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && is_same(&x, &y);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool same_directory(const char *a, const char *b) {
    char dirs[2][4200];
    const char *paths[2] = {a, b};
    for (size_t i = 0; i < 2; i++) {
        size_t n = (size_t)(base_name(paths[i]) - paths[i]);
        if (n + 2 > sizeof dirs[i]) return false;
        snprintf(dirs[i], sizeof dirs[i], "%.*s.", (int)n, paths[i]);
    }
    return sp_output_is_same_file(dirs[0], dirs[1]);
}

bool sp_output_is_same_place(const char *a, const char *b) {
    return strcmp(base_name(a), base_name(b)) == 0 && same_directory(a, b);
}

static bool same_as_stdout(const char *path) {
    struct stat x, y;
    return stat(path, &x) == 0 && fstat(STDOUT_FILENO, &y) == 0 && S_ISREG(y.st_mode) && is_same(&x, &y);
}

/* The input must not grow by the results: neither rows.jsonl >> rows.jsonl nor "-" from the file that stdout is. */
static bool check_stdout(const char *input_path, const sp_model *model, sp_error *err) {
    bool is_read = same_as_stdout(input_path);
    for (size_t i = 0; i < model->n_files; i++) is_read |= same_as_stdout(model->files[i].path);
    return !is_read || sp_fail(err, SP_ERR_USAGE, "stdout: is a file that this run reads; name another file with -o");
}

bool sp_output_check(const sp_output *output, const char *input_path, const sp_model *model, sp_error *err) {
    const char *input = strcmp(input_path, "-") == 0 ? "/dev/stdin" : input_path;
    if (output->to_stdout && !check_stdout(input, model, err)) return false;
    if (!output->path) return true;
    if (sp_output_is_same_file(output->path, input))
        return sp_fail(err, SP_ERR_USAGE, "%s: is the input; name another file with -o", output->path);
    for (size_t i = 0; i < model->n_files; i++)
        if (sp_output_is_same_file(output->path, model->files[i].path))
            return sp_fail(err, SP_ERR_USAGE, "%s: is a file of the model; name another file with -o", output->path);
    return true;
}
