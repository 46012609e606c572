/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_DAEMON_IMPORTS_H
#define WB_DAEMON_IMPORTS_H
/*
 * The agent's own lane for a worker with memory of a GPU: that memory, imported here, and the
 * thread that packs and assembles in it.
 *
 * The thread does all the work for which a driver may take its time: it imports what the worker
 * exported, opens its side of the worker's remote lane (lane.h), as the library in the worker
 * would, runs jobs until it is stopped, and lets everything go.  So nothing of the worker's memory
 * is touched or held once the thread is over.  That something cannot be imported is no failure: the
 * worker can run the same lane.
 *
 * Loop thread.  Layer: daemon (L4).
 */
#include "daemon/table.h"
#include "lane/lane.h"

struct wb_loop;
struct wb__imports;

enum wb__imports_state {
	WB__IMPORTS_TRYING, /* it is not known yet whether it can be imported */
	WB__IMPORTS_WORKING, /* it has the memory, and takes jobs */
	WB__IMPORTS_OVER, /* it has nothing, and its thread is done */
};

/* Borrowed for the call; descriptors are duplicated. */
struct wb__imports_in {
	struct wb_loop *loop;
	const char *name; /* name of the thread, at most 15 characters */
	const struct wb__table *table; /* the worker's objects */
	uint64_t export_bytes; /* bytes of the descriptions in fds[0] */
	const int *fds; /* the descriptions, then the descriptors of what they describe */
	uint32_t n_fd;
	struct wb_lane_remote_fds lane; /* of the worker's lane */
	int arena_fd; /* memfd of its slots */
	/* Called from the loop whenever the state has changed by itself; never from inside these
	 * calls. */
	void (*on_change)(void *cookie);
	void *cookie;
};

/**
 * wb__imports_begin - start to import; on_change() follows
 * 0; negative with a sentence, and then nothing was started: -EINVAL (the descriptions are not of
 * what the table asks for), -EMFILE, -ENOMEM, -EAGAIN.
 */
int wb__imports_begin(
	const struct wb__imports_in *in, struct wb__imports **out, struct wb_err *err);
/** wb__imports_state - the present state; it may change without a call. */
enum wb__imports_state wb__imports_state(const struct wb__imports *i);
/** wb__imports_why - if it is OVER and never was WORKING: why; else "".  Borrowed. */
const char *wb__imports_why(const struct wb__imports *i);
/** wb__imports_stop - the jobs that are under way end, then all is let go, and the state becomes
 * OVER.  Calling it again does nothing. */
void wb__imports_stop(struct wb__imports *i);
/** wb__imports_destroy - only when it is OVER.  NULL is allowed. */
void wb__imports_destroy(struct wb__imports *i);

#endif
