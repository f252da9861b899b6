/* Rows: bytes are an input file. Lines are split and parsed as a job would; whatever a line is, it has a name and, when
 * it is bad, a message of one line. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "jobs/input.h"
#include "jobs/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    int fd = memfd_create("rows", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes) return 0;
    sp_error err = {0};
    sp_input *input = sp_input_open(path, &err);
    sp_shape shape = SP_SHAPE_UNKNOWN;
    sp_decoding defaults = sp_decoding_default();
    sp_line line;
    while (input && sp_input_next(input, &line, &err) > 0) {
        sp_request request;
        sp_error row_err = {0};
        sp_row_code code = sp_request_parse(&request, &line, &defaults, &shape, &row_err);
        SP_CHECK(request.custom_id && strlen(request.custom_id) > 0);
        SP_CHECK((code == SP_ROW_OK) == (row_err.code == SP_OK));
        SP_CHECK(code == SP_ROW_OK ||
                 (strlen(row_err.text) > 0 && strlen(row_err.text) < 500 && !strchr(row_err.text, '\n')));
        sp_request_deinit(&request);
    }
    sp_input_close(input);
    close(fd);
    return 0;
}
