/* What this machine is: memory with every limit on it, processors, kernels. Reads /proc, cgroups and the processor. */
#ifndef SPILL_PLANNER_MACHINE_H
#define SPILL_PLANNER_MACHINE_H

#include "planner/plan.h"
#include "util/error.h"

/* Rates are left 0: nothing is measured here. */
bool sp_machine_read(sp_machine *machine, sp_error *err) SP_MUST_CHECK;

/* The smallest memory limit of the cgroups that `proc_cgroup` (the text of /proc/self/cgroup) names and of all above
 * them, under the file system root `sys_root` ("/sys/fs/cgroup"); UINT64_MAX: none. For sp_machine_read and tests. */
uint64_t sp_machine_cgroup_limit(const char *proc_cgroup, const char *sys_root);

#endif
