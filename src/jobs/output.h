/* Where results may not go: into what the run reads. Pure checks of files, nothing is opened. */
#ifndef SPILL_JOBS_OUTPUT_H
#define SPILL_JOBS_OUTPUT_H

#include "model/model.h"
#include "util/error.h"

typedef struct {
    const char *path; /* NULL: none is named */
    bool to_stdout;   /* results go there (too) */
} sp_output;

/* Neither path nor what stdout is may be the input ("-": what stdin is) or a file of the model. */
bool sp_output_check(const sp_output *output, const char *input_path, const sp_model *model,
                     sp_error *err) SP_MUST_CHECK;
bool sp_output_is_same_file(const char *a, const char *b);
/* Whether two paths name the same entry of one directory, be it there or not. */
bool sp_output_is_same_place(const char *a, const char *b);

#endif
