/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_AREA_H
#define WB_DAEMON_AREA_H
/*
 * The agent's side of a worker's staging area: its mapping here and its lane.
 * Loop thread.  Layer: daemon (L4).
 */
#include "daemon/fill.h"
#include "lane/area.h"

struct wb__worker_area {
	int fd;
	uint64_t bytes;
	uint8_t *map;
	void **base; /* owned: address of each memory object's shadow */
	uint32_t region; /* number of its region at the transport; UINT32_MAX = none */
	bool is_new; /* the worker has not been sent it yet */
	bool in_core;
};

struct wb_err;
struct wb_loop;

/* An area whose pages are being taken. */
struct wb__area_raw {
	bool is_made;
	int fd;
	uint64_t bytes;
	struct wb__fill *fill;
};

struct wb__area_in {
	struct wb_loop *loop;
	const uint64_t *mem_bytes; /* of each memory object */
	uint32_t n_mem;
	/* Bytes of it that will be written; if these are nearly all, the pages are taken. */
	uint64_t used;
};

/** wb__worker_area_create - make a new area, empty.  @raw: kept by the caller between calls, zeroed
 * at first.  0; -EINPROGRESS: call it again later; or negative. */
int wb__worker_area_create(const struct wb__area_in *in, struct wb__area_raw *raw,
	struct wb__worker_area **out, struct wb_err *err);
/** wb__area_raw_drop - the area that is being made is not wanted any more. */
void wb__area_raw_drop(struct wb__area_raw *raw);
/** wb__worker_area_import - map an area that a worker has kept; its content is not trusted.  @fd:
 * borrowed.  0; -EINVAL: it is no area for these memory objects; -ENOMEM. */
int wb__worker_area_import(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t bytes, int fd,
	struct wb__worker_area **out, struct wb_err *err);
/** wb__worker_area_head - the page that says what the area holds. */
static inline struct wb_area_head *wb__worker_area_head(const struct wb__worker_area *a)
{
	return (struct wb_area_head *)(void *)a->map;
}
/** wb__worker_area_destroy - unmap and close it; NULL is allowed.  The worker keeps its own
 *  descriptor. */
void wb__worker_area_destroy(struct wb__worker_area *a);

#endif
