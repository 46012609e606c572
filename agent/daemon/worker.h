/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_WORKER_H
#define WB_DAEMON_WORKER_H
/*
 * A worker as it attached: its layout, its memory as mapped here, its lane and its poll page.
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
	uint32_t object_index; /* which of the objects served here */
	uint32_t number; /* from 1, among the workers attached here */
	char name[WB_XPORT_NAME_MAX + 64]; /* "rollout-0/worker 3 (rank 2)" */
	char *object, *model, *engine; /* owned */
	enum wb_role role;
	int64_t rank;
	int numa; /* node that it runs on, WB_NUMA_UNKNOWN */
	uint32_t sender_staging, receiver_staging;
	const struct wb_manifest *manifest; /* borrowed from the contents */
	const struct wb_map *map;
	/* Its memory; where only the worker itself can touch part of it, its lane runs there. */
	struct wb__table t;
	/* Object that the table's regions are registered for; 0 = not registered. */
	uint64_t region_object;
	struct wb_poll_page *page; /* mapped */
	int page_fd;
	struct wb_lane *lane;
	/* Owned; NULL = the lane is a thread that works on mappings of this process.  Else the lane
	 * is remote, and its other side is the library in the worker, or imports. */
	struct wb_lane_remote_fds *lane_fds;
	struct wb_watch *lane_watch;
	struct wb__imports *imports; /* owned; its memory of a GPU, imported here; NULL = none */
	bool is_lane_known; /* it is known who has the other side, until the worker's memory goes */
	struct wb__ending *ending; /* owned; waits for its process to end, in which its lane runs */
	bool is_import_old; /* imports has memory that the worker does not offer any more */
	char lane_why[WBP_TEXT_MAX]; /* why the worker has the lane of its memory of a GPU; or "" */
	wb_loop_fn on_lane; /* with on_lane_cookie: wb__worker_lane() may say more now */
	void *on_lane_cookie;
	struct wb__worker_area *area; /* owned; NULL = not staged */
	struct wb__area_raw area_raw; /* an area that is being made */
	struct wb_lane *area_lane; /* the worker's lane, or one here where the worker's is remote */
	struct wb_watch *area_watch;
	struct wb_transfer_past past; /* as it told when it attached */
	bool in_core, is_planned;
	bool is_leaving; /* detached; waits for the core */
	bool is_releasing; /* it releases its memory; waits for the core */
	bool had_area; /* it had a staging area, and gets one again */
	uint64_t slept_object; /* object that its regions were registered for */
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
	uint64_t bytes; /* bytes of descriptions; 0 = none */
	const int *fds; /* the last descriptors of its message */
	uint32_t n_fd;
	const char *unshared; /* why there are none */
};

/**
 * wb__worker_create - check and import what APP_ATTACH brought
 * Returns 0 or negative with a sentence for the worker.  Release with wb__worker_destroy().
 */
int wb__worker_create(struct wb__agent *a, struct wb__contents *contents,
	const struct wb__attach_in *in, struct wb__worker **out, struct wb_err *err);
/** wb__worker_destroy - free it; only when the core does not know it (any more), and
 * wb__worker_let_go() has returned true.  NULL is allowed. */
void wb__worker_destroy(struct wb__worker *w);

/** wb__worker_exports - find the descriptors of @x, whose other fields are set: among the @n_fd of
 * its message they are in front of the last @behind.  0; -EINVAL: there are not as many. */
int wb__worker_exports(
	struct wb__exports *x, const int *fds, uint32_t n_fd, uint32_t behind, struct wb_err *err);
/**
 * wb__worker_lane - settle who has the other side of the worker's lane
 * @t:	the worker's table; @x describes the part of it that the CPU cannot map
 * Call it until it is known; @x is used the first time only.  0; -EINPROGRESS: on_lane() comes.
 * If nothing can be imported that is no failure: lane_why says so.
 */
int wb__worker_lane(struct wb__worker *w, const struct wb__table *t, const struct wb__exports *x);
/** wb__worker_lane_anew - the worker offers other memory than was imported, or none: call
 * wb__worker_lane() again. */
void wb__worker_lane_anew(struct wb__worker *w);
/** wb__worker_lane_is_awaited - wb__worker_lane() was called, and still returns -EINPROGRESS:
 * on_lane() comes. */
bool wb__worker_lane_is_awaited(const struct wb__worker *w);
/** wb__worker_lane_is_lost - the other side of the lane was here, and ended by itself: the worker
 * can only leave. */
bool wb__worker_lane_is_lost(const struct wb__worker *w);
/** wb__worker_lane_is_here - does this process pack and assemble for it? */
bool wb__worker_lane_is_here(const struct wb__worker *w);
/** wb__worker_await_end - an attached worker leaves, or is sent away, and has not said goodbye:
 * until its process is gone, a device may still copy what a lane there had begun.  When it is gone,
 * or was waited for long enough (ending.h), wb__worker_let_go() lets go of the slots. */
void wb__worker_await_end(struct wb__worker *w);
/** wb__worker_forget_end - do not wait for the process any more: this agent stops, and uses no slot
 * again. */
void wb__worker_forget_end(struct wb__worker *w);
/** wb__worker_let_go - begin to release what was imported, which takes a thread some time.  True:
 * nothing of it is left, and nobody works on the worker's lane any more; false: call it again
 * later, on_lane() comes.  The lane of a worker that leaves is aborted when this becomes true, and
 * not before: what runs there would go on writing slots that others have by then. */
bool wb__worker_let_go(struct wb__worker *w);
/** wb__worker_name - give the worker the name that all tools and messages call it by, with the
 * least number that no other worker here has. */
void wb__worker_name(struct wb__worker *w);

/** wb__worker_area - give a rollout worker a staging area: the one that it has kept, or a new one.
 * Does nothing when it has one.  0; -EINPROGRESS while its pages are taken: call it again later; or
 * negative. */
int wb__worker_area(struct wb__worker *w, struct wb_err *err);

/** wb__worker_unmap - the core says that nothing uses the worker's memory: drop the mappings, the
 * descriptors and the staging area.  False: a write still uses a region, or what was imported is
 * not let go yet: call it again later. */
bool wb__worker_unmap(struct wb__worker *w);
/** wb__worker_remap - the memory is there again, as a new table and memfds say.  0; or negative,
 * and then no table is mapped.  -EINPROGRESS while the memory is imported or pages of its staging
 * area are taken: call it again later.  After any other failure imported memory may still be here,
 * and has to go before the worker is told (wb__worker_let_go()). */
int wb__worker_remap(struct wb__worker *w, const struct wb_msg_app_mem_acquire *m, const int *fds,
	uint32_t n_fd, struct wb_err *err);

/** wb__worker_regions_add - make the worker's memory known to the transport as a source, if the
 * transport wants that.  Does nothing when it is known.  0 or negative. */
int wb__worker_regions_add(struct wb__worker *w, uint64_t object, struct wb_err *err);
/** wb__worker_regions_remove - true: no region is left; false: a write still uses one, call it
 * again later. */
bool wb__worker_regions_remove(struct wb__worker *w);

#endif
