/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_WORKER_H
#define WB_DAEMON_WORKER_H
/*
 * A worker as attached: its layout, its memory as mapped here, its lane and its poll page.
 *
 * Made from what an untrusted process sent: every length and index is checked.  Lives until the
 * core says that nothing uses it any more.  Loop thread.  Layer: daemon (L4).
 */
#include "daemon/area.h"
#include "daemon/ending.h"
#include "daemon/imports.h"
#include "daemon/table.h"
#include "net/loop.h"
#include "proto/messages.h"
#include "transfer/core.h"

struct wb__agent;
struct wb__worker_area;
struct wb__contents;
struct wb_seq;
struct wb_watch;

struct wb__worker {
	struct wb__worker *next;
	struct wb__agent *a;
	struct wb_seq *conn; /* NULL = it left */
	uint32_t id, pid;
	uint32_t object_index; /* which of those served here */
	uint32_t number; /* from 1, among those attached here */
	char name[WB_XPORT_NAME_MAX + 64]; /* "rollout-0/worker 3 (rank 2)" */
	char *object, *model, *engine; /* owned */
	enum wb_role role;
	int64_t rank;
	int numa; /* node that it runs on, WB_NUMA_UNKNOWN */
	uint32_t sender_staging, receiver_staging;
	const struct wb_manifest *manifest; /* of the contents */
	const struct wb_map *map;
	struct wb__table t; /* its memory; part of it only it can touch: its lane runs there */
	uint64_t region_object; /* of the table's regions; 0 = not registered */
	struct wb_poll_page *page; /* mapped */
	int page_fd;
	struct wb_lane *lane;
	/* Owned struct; NULL = the lane is a thread over mappings of this process.  Else it is a
	 * remote one, whose other side is the library in the worker, or imports. */
	struct wb_lane_remote_fds *lane_fds;
	struct wb_watch *lane_watch;
	struct wb__imports *imports; /* owned; its memory of a GPU, here; NULL = none */
	bool is_lane_known; /* who has the other side; until its memory goes */
	struct wb__ending *ending; /* owned; its process may not be gone, and its lane runs there */
	bool is_import_old; /* imports are of memory that it does not offer any more */
	char lane_why[WBP_TEXT_MAX]; /* the worker has it, of memory of a GPU: why; or "" */
	wb_loop_fn on_lane; /* with on_lane_cookie: wb__worker_lane() may say more now */
	void *on_lane_cookie;
	struct wb__worker_area *area; /* owned; NULL = not staged */
	struct wb__area_raw area_raw; /* before that */
	struct wb_lane *area_lane; /* the worker's own lane, or one here where that is remote */
	struct wb_watch *area_watch;
	struct wb_transfer_past past; /* as it told when it attached */
	bool in_core, is_planned;
	bool is_leaving; /* detached; waits for the core */
	bool is_releasing; /* its memory is let go of; waits for the core */
	bool had_area; /* it had a staging area, and gets one again */
	uint64_t slept_object; /* what its regions were registered for */
};

/* What came with APP_ATTACH; borrowed. */
struct wb__attach_in {
	uint32_t id; /* number for the new worker */
	uint32_t object_index;
	const struct wb_msg_app_attach *m;
	const int *fds;
	uint32_t n_fd;
	wb_loop_fn on_lane;
	void *on_lane_cookie;
};

/* What a worker says of memory of a GPU; borrowed. */
struct wb__exports {
	uint64_t bytes; /* of descriptions; 0 = none */
	const int *fds; /* the last of its message */
	uint32_t n_fd;
	const char *unshared; /* why there are none */
};

/**
 * wb__worker_create - check and import what APP_ATTACH brought
 * Returns 0 or negative with a sentence for the worker.  Release with wb__worker_destroy().
 */
int wb__worker_create(struct wb__agent *a, struct wb__contents *contents,
	const struct wb__attach_in *in, struct wb__worker **out, struct wb_err *err);
/** wb__worker_destroy - only when the core does not know it (any more), and wb__worker_let_go().
 *  NULL is allowed. */
void wb__worker_destroy(struct wb__worker *w);

/** wb__worker_exports - find the descriptors of @x, of which all else is set: among the @n_fd of
 * its message, in front of the last @behind.  0; -EINVAL: so many did not come. */
int wb__worker_exports(
	struct wb__exports *x, const int *fds, uint32_t n_fd, uint32_t behind, struct wb_err *err);
/**
 * wb__worker_lane - settle who has the other side of its lane
 * @t:	its table, of which @x describes what the CPU cannot map
 * Asks until it is known; @x is for the first time.  0; -EINPROGRESS: on_lane() comes.  That
 * nothing can be imported is no failure: lane_why says it.
 */
int wb__worker_lane(struct wb__worker *w, const struct wb__table *t, const struct wb__exports *x);
/** wb__worker_lane_anew - it offers other memory than was imported, or none: ask again. */
void wb__worker_lane_anew(struct wb__worker *w);
/** wb__worker_lane_is_awaited - asked for, and wb__worker_lane() has no other answer yet: on_lane()
 *  comes. */
bool wb__worker_lane_is_awaited(const struct wb__worker *w);
/** wb__worker_lane_is_lost - it was here, and ended by itself: the worker can only leave. */
bool wb__worker_lane_is_lost(const struct wb__worker *w);
/** wb__worker_lane_is_here - does this process pack and assemble for it? */
bool wb__worker_lane_is_here(const struct wb__worker *w);
/** wb__worker_await_end - an attached worker leaves, or is sent away, and has not said goodbye:
 * what it had begun on a lane of its own, a device may copy until its process is gone.  Then, or
 * when that was waited for long enough (ending.h), wb__worker_let_go() lets its slots go. */
void wb__worker_await_end(struct wb__worker *w);
/** wb__worker_forget_end - do not wait any more: this agent stops, and uses no slot again. */
void wb__worker_forget_end(struct wb__worker *w);
/** wb__worker_let_go - of what was imported, which takes a thread some time.  True when nothing of
 *  it is left, and nobody works on its lane any more; false: again later, on_lane() comes.  The
 *  lane of one that is leaving is aborted then, and not before: what runs there would go on
 *  writing slots that others have by then. */
bool wb__worker_let_go(struct wb__worker *w);
/** wb__worker_name - what all tools and messages call it: the least number that none has who is
 *  here. */
void wb__worker_name(struct wb__worker *w);

/** wb__worker_area - a staging area for a rollout worker: the one it has kept, or a new one that it
 *  is given.  Again: nothing.  0; -EINPROGRESS while its pages are taken: again later; or negative.
 */
int wb__worker_area(struct wb__worker *w, struct wb_err *err);

/** wb__worker_unmap - the core says that nothing uses its memory: drop the mappings, descriptors
 *  and the staging area.  False: a write still uses a region, again later. */
bool wb__worker_unmap(struct wb__worker *w);
/** wb__worker_remap - the memory is there again, as a new table and memfds say.  0; or negative,
 * and no table is mapped: -EINPROGRESS while its memory is imported or pages of its staging area
 * are taken, again later; else what was imported may be here still, and has to go before the worker
 * hears it (wb__worker_let_go()). */
int wb__worker_remap(struct wb__worker *w, const struct wb_msg_app_mem_acquire *m, const int *fds,
	uint32_t n_fd, struct wb_err *err);

/** wb__worker_regions_add - make its memory known to the transport as a source, where the transport
 *  asks for that.  Again: nothing.  0 or negative. */
int wb__worker_regions_add(struct wb__worker *w, uint64_t object, struct wb_err *err);
/** wb__worker_regions_remove - true when none is left; false: a write still uses one, again later.
 */
bool wb__worker_regions_remove(struct wb__worker *w);

#endif
