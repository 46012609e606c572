/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_NUMA_H
#define WB_MEM_NUMA_H
/*
 * Which memory is near: NUMA nodes of processors and network interfaces, as the kernel reports
 * them.
 *
 * Only a hint for speed: what cannot be read is unknown, which is not an error.
 * @root: where sysfs is; NULL = "/sys".  Layer: mem (L1).  Blocks (reads small files).  Any thread.
 */
#include <sched.h>

#define WB_NUMA_UNKNOWN (-1)
#define WB_NUMA_NODES_MAX 64 /* node numbers are below this; there may be gaps */

/** wb_numa_of_interface - the node of a network interface's device; WB_NUMA_UNKNOWN: it is virtual
 * (veth), or the kernel does not say. */
int wb_numa_of_interface(const char *root, const char *name);
/** wb_numa_of_cpus - the node that has all of these processors; WB_NUMA_UNKNOWN: they are on
 * several nodes, or the machine has only one. */
int wb_numa_of_cpus(const char *root, const cpu_set_t *cpus);
/** wb_numa_cpus - get the processors of @node.  0; -ENOENT, and @out is empty. */
int wb_numa_cpus(const char *root, int node, cpu_set_t *out);

#endif
