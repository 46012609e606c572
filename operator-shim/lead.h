/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_LEAD_H
#define WB_OPERATOR_LEAD_H
/*
 * Leader election on a thread of its own.
 *
 * The Lease has to be renewed within 10 s.  The operator's loop may be busy for longer on a slow
 * machine: when thousands of objects are listed, or deleted at once.  If the Lease were renewed on
 * that loop, the replica that took over would meet the same objects, and lose the lead in its turn.
 * So a thread has a loop and an API client of its own, with nothing else on them, and its findings
 * are reported on the operator's loop.  An operator whose loop hangs for good is ended by its
 * liveness probe.
 *
 * Threads: the caller's loop, where all callbacks come.  Layer: operator-shim.
 */
#include "operator-shim/kube/claim.h"

struct wb_loop;
struct wb__lead; /* opaque */

struct wb__lead_opts {
	struct wb_kube_lease_opts lease;
	bool serves_all; /* serve all namespaces, which one release may: see claim.h */
};

struct wb__lead_cb {
	void *cookie;
	/* We hold the Lease; @transitions: the least term of plans, see kube/lease.h. */
	void (*on_leading)(void *cookie, uint64_t transitions);
	/* We also serve, since no other release does.  Called once, after on_leading. */
	void (*on_serve)(void *cookie);
	/* Release @rival ("namespace/name" of its Lease) serves all namespaces. */
	void (*on_idle)(void *cookie, const char *rival);
	/* We led, and do not lead any more: stop at once.  The last callback. */
	void (*on_lost)(void *cookie, const char *why);
	/* Another replica leads, at @address ("" = not known). */
	void (*on_other)(void *cookie, const char *address);
};

/** wb__lead_start - @config_take is taken over (also on failure).  0 or negative with a sentence.
 *  Release with wb__lead_stop(). */
int wb__lead_start(struct wb_loop *loop, struct wb_kube_config *config_take,
	const struct wb__lead_opts *o, const struct wb__lead_cb *cb, struct wb__lead **out,
	struct wb_err *err);
/** wb__lead_stop - no callback is called afterwards; waits for the thread.  The Lease stays as it
 * is.  NULL is allowed.  Call it from the loop, and not from one of the callbacks. */
void wb__lead_stop(struct wb__lead *l);
/** wb__lead_release - if we lead, give up the Lease, so that the next replica takes over at once;
 * then call @done (also when it fails).  No other callback is called afterwards. */
void wb__lead_release(struct wb__lead *l, void (*done)(void *cookie), void *cookie);
/** wb__lead_last_ok_ns - when the API server last answered with 2xx (monotonic); 0 = never. */
uint64_t wb__lead_last_ok_ns(const struct wb__lead *l);

#endif
