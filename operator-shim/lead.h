/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_LEAD_H
#define WB_OPERATOR_LEAD_H
/*
 * Who leads, found out on a thread of its own.
 *
 * The Lease has to be renewed within 10 s.  The operator's loop may have more to do than that on a
 * machine with little time for it: thousands of objects listed, or deleted at once.  Asked on that
 * loop, whoever took over would meet the same objects and lose the lead in its turn.  So a thread
 * has a loop and a client of its own, with nothing else on them, and what it finds is told on the
 * operator's loop.  One that stands still for good is ended by its liveness probe.
 *
 * Threads: the caller's loop, where all callbacks come.  Layer: operator-shim.
 */
#include "operator-shim/kube/claim.h"

struct wb_loop;
struct wb__lead; /* opaque */

struct wb__lead_opts {
	struct wb_kube_lease_opts lease;
	bool serves_all; /* of all releases one: see claim.h */
};

struct wb__lead_cb {
	void *cookie;
	/* We hold the Lease; @transitions is the fencing number. */
	void (*on_leading)(void *cookie, uint64_t transitions);
	/* And serve: no other release does.  Comes once, after that. */
	void (*on_serve)(void *cookie);
	/* Release @rival ("namespace/name" of its Lease) serves all namespaces. */
	void (*on_idle)(void *cookie, const char *rival);
	/* We led and do not any more: stop at once.  Is the last. */
	void (*on_lost)(void *cookie, const char *why);
	/* Another replica leads, at @address ("" = not known). */
	void (*on_other)(void *cookie, const char *address);
};

/** wb__lead_start - @config_take is taken over (also on failure).  0 or negative with a sentence.
 *  Release with wb__lead_stop(). */
int wb__lead_start(struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb__lead_opts *o, const struct wb__lead_cb *cb, struct wb__lead **out,
	struct wb_err *err);
/** wb__lead_stop - no callback comes after; waits for the thread.  The Lease stays as it is.  NULL
 *  is allowed.  From the loop, and not from a callback of this. */
void wb__lead_stop(struct wb__lead *l);
/** wb__lead_release - when we lead: give the Lease up, so that the next takes over at once; then
 *  @done (also when it fails).  No other callback comes after. */
void wb__lead_release(struct wb__lead *l, void (*done)(void *cookie), void *cookie);
/** wb__lead_last_ok_ns - when the API server last answered with 2xx (monotonic); 0 = never. */
uint64_t wb__lead_last_ok_ns(const struct wb__lead *l);

#endif
