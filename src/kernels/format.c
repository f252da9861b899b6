/* The table of number formats: formats.def's rows with their plain C conversion, which is also the dequantizer table of
 * the scalar and NEON products. */
#include "kernels/format.h"

#include <string.h>

#define SP_QUANT_TABLE sp_quant_scalar
#include "kernels/quant/quant.inc.c"

static const sp_format formats[SP_FMT_COUNT] = {
#define SP_FORMAT(id, name, block_elems, block_bytes, ggml_type) \
    [SP_FMT_##id] = {SP_FMT_##id, name, block_elems, block_bytes, ggml_type, to_f32_##id},
#include "kernels/formats.def"
#undef SP_FORMAT
};

const sp_format *sp_format_get(sp_format_id id) { return &formats[id]; }

const sp_format *sp_format_find(const char *name) {
    for (size_t i = 0; i < SP_FMT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const sp_format *sp_format_from_ggml(int32_t ggml_type) {
    for (size_t i = 0; i < SP_FMT_COUNT; i++)
        if (formats[i].ggml_type == ggml_type) return &formats[i];
    return NULL;
}
