/* A device: where operations run. Today the CPU: a thread pool, the kernel tables of the best ISA this processor has
 * (less those SPILL_DISABLE_ISA names) and the compute mode. The engine sees this handle and kernels/ops.h, nothing
 * below them, so that a second backend is a second implementation of the same functions.
 *
 * One operation at a time per device (the pool runs one job); different devices are independent. */
#ifndef SPILL_KERNELS_DEVICE_H
#define SPILL_KERNELS_DEVICE_H

#include "kernels/format.h"
#include "util/error.h"
#include "util/threads.h"

typedef enum {
    SP_MODE_BF16, /* matrix products of bf16 inputs, everything else fp32 */
    SP_MODE_FP32, /* everything fp32: the reference mode */
} sp_mode;

typedef struct sp_device sp_device;

/* disable_isa: comma-separated ISA names to leave out ("amx,avx512"; see sp_device_isa_names), or NULL. An unknown name
 * is an error. The pool is borrowed and must outlive the device. */
sp_device *sp_device_open_cpu(sp_pool *pool, sp_mode mode, const char *disable_isa, sp_error *err) SP_MUST_CHECK;
void sp_device_close(sp_device *device);
sp_pool *sp_device_pool(const sp_device *device); /* the one it was opened with */
sp_mode sp_device_mode(const sp_device *device);
const char *sp_device_isa(const sp_device *device); /* name of the ISA that runs the products, e.g. "amx" */
const char *const *sp_device_isa_names(void);       /* all known, best first, NULL-terminated */
bool sp_device_isa_usable(const char *isa_name);    /* does this processor (and kernel) have it? */

#endif
