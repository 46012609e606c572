/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_TABLE_H
#define WB_DAEMON_TABLE_H
/*
 * The table that came with APP_ATTACH or APP_MEM_ACQUIRE: a worker's memory objects, and where in
 * them its parameters lie.
 *
 * It comes from an untrusted process, in a memfd that the process can write at any time: so it is
 * copied first, then every length and index is checked.  A table that was read keeps these rules:
 * every parameter of the map lies whole and aligned in one object, and all objects together are at
 * most WB__TABLE_BYTES_MAX, so that sums of their sizes do not overflow.
 * Loop thread.  Layer: daemon (L4).
 */
#include "lane/area.h"
#include "mem/mem.h"

#include <stdbool.h>
#include <stdint.h>

#define WB__TABLE_BYTES_MAX (1ull << 46)
#define WB__REGION_NONE UINT32_MAX

struct wb_err;

struct wb__table {
	struct wb_mem *mem; /* owned, n_mem each */
	void **base; /* addresses for the CPU, here; NULL = it cannot touch the object */
	uint32_t *region; /* numbers of their regions at the transport, or WB__REGION_NONE */
	struct wb_place *place; /* owned, one for each parameter */
	uint32_t n_mem;
	bool has_heap; /* there is an object that the CPU here cannot touch */
};

/* What the message says of the table; borrowed. */
struct wb__table_in {
	uint32_t n_mem, n_param;
	uint64_t bytes;
	const int *fds; /* the table, then the memfds of its objects */
	uint32_t n_fd;
};

/**
 * wb__table_read - check the table, and map what it names
 * @out:	to be released with wb__table_finish(), also after a failure
 * 0; -EINVAL with what is wrong, by name; -EPERM, -ENOSYS, -ENOMEM, ... as wb_mem_import().
 */
int wb__table_read(const struct wb__table_in *in, const struct wb_map *map, struct wb__table *out,
	struct wb_err *err);
/** wb__table_release - drop mappings and descriptors; sizes and places stay known. */
void wb__table_release(struct wb__table *t);
/** wb__table_finish - release and free what it has.  A zeroed table is allowed. */
void wb__table_finish(struct wb__table *t);

#endif
