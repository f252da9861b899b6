/* Opening the CPU device: picks the tables by cascade, best ISA first, and owns the threads' scratch.
 *
 * An ISA is a row of ISA_ROWS. A product table is taken from the first row that is usable here, not disabled, and has
 * one for the mode; the vector table likewise, from its own cascade. Scalar has both and cannot be disabled. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/internal.h"
#include "util/size.h"

enum { CACHE_LINE = 64, MAX_NAME_BYTES = 16 };

typedef struct {
    const char *name;
    const char *implied; /* disabling this ISA by name disables the row too; NULL: only its own name does */
    const sp_linear_isa *linear;
    bool here;         /* compiled for this architecture */
    uint32_t features; /* of sp_cpu_features, all needed */
} isa_row;

#if defined(__x86_64__)
#define ON_X86(table) &(table), true
#define ON_ARM(table) NULL, false
#else
#define ON_X86(table) NULL, false
#define ON_ARM(table) &(table), true
#endif

/* Best first; scalar, which is everywhere and cannot be disabled, follows them. */
#define ISA_ROWS(ROW)                                                            \
    ROW("amx", NULL, ON_X86(sp_linear_amx), SP_CPU_AMX_BF16)                     \
    ROW("avx512bf16", "avx512", ON_X86(sp_linear_avx512bf16), SP_CPU_AVX512BF16) \
    ROW("avx512", NULL, ON_X86(sp_linear_avx512), SP_CPU_AVX512)                 \
    ROW("avx2", NULL, ON_X86(sp_linear_avx2), SP_CPU_AVX2)                       \
    ROW("neon", NULL, ON_ARM(sp_linear_neon), SP_CPU_NEON)
#define TABLE_ROW(name, ...) {name, __VA_ARGS__},
#define NAME(name, ...) name,
#define WORD(name, ...) " " name

static const isa_row isas[] = {ISA_ROWS(TABLE_ROW){"scalar", NULL, &sp_linear_scalar, true, 0}};
enum { N_ISAS = sizeof isas / sizeof *isas };

static bool row_usable(const isa_row *row) { return row->here && (sp_cpu_features() & row->features) == row->features; }

static const isa_row *find_row(const char *name, size_t n_bytes) {
    for (size_t i = 0; i < N_ISAS; i++)
        if (strlen(isas[i].name) == n_bytes && memcmp(isas[i].name, name, n_bytes) == 0) return &isas[i];
    return NULL;
}

const char *const *sp_device_isa_names(void) {
    static const char *const names[] = {ISA_ROWS(NAME) "scalar", NULL};
    return names;
}

bool sp_device_isa_usable(const char *isa_name) {
    const isa_row *row = find_row(isa_name, strlen(isa_name));
    return row != NULL && row_usable(row);
}

/* disabled[i] for each row, from "amx,avx512". */
static bool parse_disabled(const char *list, bool *disabled, sp_error *err) {
    while (list && *list) {
        size_t n = strcspn(list, ",");
        const isa_row *row = find_row(list, n);
        if (!row || row == &isas[N_ISAS - 1]) {
            char shown[4 * MAX_NAME_BYTES];
            return sp_fail(err, SP_ERR_USAGE,
                           "SPILL_DISABLE_ISA: '%s' found, wanted with commas between them some of:" ISA_ROWS(WORD),
                           sp_printable(list, n, shown, sizeof shown));
        }
        for (size_t i = 0; i < N_ISAS; i++)
            if (&isas[i] == row || (isas[i].implied && strcmp(isas[i].implied, row->name) == 0)) disabled[i] = true;
        list += n + (list[n] == ',');
    }
    return true;
}

sp_device *sp_device_open_cpu(sp_pool *pool, sp_mode mode, const char *disable_isa, sp_error *err) {
    bool disabled[N_ISAS] = {false};
    if (!parse_disabled(disable_isa, disabled, err)) return NULL;
    sp_device *device = calloc(1, sizeof *device);
    SP_CHECK(device != NULL);
    device->pool = pool;
    device->mode = mode;
    for (size_t i = N_ISAS; i-- > 0;) { /* the best last, so that it wins */
        if (disabled[i] || !row_usable(&isas[i])) continue;
        if (mode == SP_MODE_BF16 || !isas[i].linear->bf16_only) device->linear = isas[i].linear;
        const sp_vector_isa *vector = sp_vector_isa_find(isas[i].name);
        if (vector) device->vector = vector;
    }
    device->n_threads = sp_pool_n_threads(pool);
    device->scratch = calloc(device->n_threads, sizeof *device->scratch);
    SP_CHECK(device->scratch != NULL);
    sp_device_scratch(device, device->linear->scratch_bytes);
    return device;
}

void sp_device_close(sp_device *device) {
    if (!device) return;
    for (size_t i = 0; i < device->n_threads; i++) free(device->scratch[i]);
    free(device->scratch);
    free(device);
}

void sp_device_scratch(sp_device *device, size_t n_bytes) {
    if (n_bytes <= device->scratch_bytes) return;
    n_bytes = sp_round_up(n_bytes, CACHE_LINE);
    for (size_t i = 0; i < device->n_threads; i++) {
        free(device->scratch[i]);
        device->scratch[i] = aligned_alloc(CACHE_LINE, n_bytes);
        SP_CHECK(device->scratch[i] != NULL);
    }
    device->scratch_bytes = n_bytes;
}

sp_pool *sp_device_pool(const sp_device *device) { return device->pool; }
sp_mode sp_device_mode(const sp_device *device) { return device->mode; }
const char *sp_device_isa(const sp_device *device) { return device->linear->isa; }
