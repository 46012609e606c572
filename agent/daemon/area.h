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
	void **base; /* owned: shadow of each memory object */
	uint32_t region; /* of the transport; UINT32_MAX = none */
	bool is_new; /* the worker does not have it yet */
	bool in_core;
};

struct wb_err;
struct wb_loop;

/* One whose pages are being taken. */
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
	uint64_t used; /* bytes of it that will be written; when nearly all: the pages are taken */
};

/** wb__worker_area_create - a new one, empty.  @raw: kept by the caller between calls, zeroed at
 * first.  0; -EINPROGRESS: again later; or negative. */
int wb__worker_area_create(const struct wb__area_in *in, struct wb__area_raw *raw,
	struct wb__worker_area **out, struct wb_err *err);
/** wb__area_raw_drop - it is not wanted any more. */
void wb__area_raw_drop(struct wb__area_raw *raw);
/** wb__worker_area_import - one that a worker has kept; untrusted.  @fd: borrowed.  0; -EINVAL when
 * it is not an area for these memory objects; -ENOMEM. */
int wb__worker_area_import(const uint64_t *mem_bytes, uint32_t n_mem, uint64_t bytes, int fd,
	struct wb__worker_area **out, struct wb_err *err);
/** wb__worker_area_head - the page that says what is inside. */
static inline struct wb_area_head *wb__worker_area_head(const struct wb__worker_area *a)
{
	return (struct wb_area_head *)(void *)a->map;
}
/** wb__worker_area_destroy - unmap and close it; NULL is allowed.  The worker keeps its own
 *  descriptor. */
void wb__worker_area_destroy(struct wb__worker_area *a);

#endif
