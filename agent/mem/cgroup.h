/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_MEM_CGROUP_H
#define WB_MEM_CGROUP_H
/*
 * How much memory this process may use according to its control group (v2).  Layer: mem (L1).
 * Blocks (reads small files).  Any thread.
 */
#include <stdint.h>

struct wb_err;

struct wb_cgroup_memory {
	uint64_t limit_bytes; /* smallest memory.max of the group and its parents; UINT64_MAX = none
			       */
	/* memory.current of the group that sets the limit; without a limit, of the own group */
	uint64_t used_bytes;
};

/**
 * wb_cgroup_memory - read limit and use
 * @root:	mount point of the hierarchy; NULL = "/sys/fs/cgroup"
 * @self:	file that names the own group; NULL = "/proc/self/cgroup"
 * Returns 0; -ENOENT when there is no version 2 hierarchy or no memory controller (*out then says
 * that there is no limit); -EBADMSG for content that is not understood.
 */
int wb_cgroup_memory(
	const char *root, const char *self, struct wb_cgroup_memory *out, struct wb_err *err);

#endif
