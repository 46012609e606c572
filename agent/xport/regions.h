/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_XPORT_REGIONS_H
#define WB_XPORT_REGIONS_H
/*
 * Which region a range of memory lies in: an index by address.  A chunk costs time by how many
 * ranges it has, not by how many regions there are.
 *
 * Regions may overlap.  If several hold a range, the oldest is found: so whoever counts a use of a
 * region finds the same one when the use is over, whatever was added meanwhile.
 * Threads: one owner (the loop, or a rail).  Layer: xport (L2), internal.
 */
#include "xport/xport.h"

#define WB__REGIONS_MAX 1024
#define WB__REGION_NONE UINT32_MAX

struct wb__region_key {
	uint64_t object;
	uintptr_t base, end;
	uintptr_t reach; /* greatest end of this key and those before it of the same object */
	uint64_t age;
	uint32_t id;
};

struct wb__regions {
	struct wb__region_key key[WB__REGIONS_MAX]; /* by object, base, age */
	uint32_t n, hint;
	uint64_t age;
	uint64_t n_looked; /* keys looked at so far, for tests */
};

/** wb__regions_put - add region @r under number @id, which must not be in the index. */
void wb__regions_put(struct wb__regions *x, uint32_t id, const struct wb_xport_region *r);
/** wb__regions_drop - forget @id; does nothing when it is not in the index. */
void wb__regions_drop(struct wb__regions *x, uint32_t id);
/** wb__regions_find - the oldest region of @object with all of [@p, @p + @bytes), or
 *  WB__REGION_NONE. */
uint32_t wb__regions_find(struct wb__regions *x, uint64_t object, const void *p, size_t bytes);
/** wb__regions_touch - is any of [@p, @p + @bytes) in a region of @object? */
bool wb__regions_touch(struct wb__regions *x, uint64_t object, const void *p, size_t bytes);

#endif
