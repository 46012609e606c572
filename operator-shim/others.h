/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_OTHERS_H
#define WB_OPERATOR_OTHERS_H
/*
 * The namespaces that are served by releases for some namespaces, as the release for all namespaces
 * sees them.
 *
 * Each such namespace has a Lease (scopes.h) in the name of its release, renewed every few seconds;
 * a Lease that has no holder, or has not changed for a minute by our own clock, does not count.
 * Somebody who forges a Lease keeps us away from the namespace in which he may write, and from no
 * other.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include <stddef.h>

struct wb_kube;
struct wb__others; /* opaque */

struct wb__others_cb {
	void *cookie;
	/* The namespaces that others serve are known.  Also called when we may not read the Leases
	 * (403: the role of an older chart), or could not for half a minute: then we assume that
	 * nobody else serves until we can read them, and the log says so.  Called once. */
	void (*on_known)(void *cookie);
	/* Another release serves @ns now, or (@release NULL) none does any more.  Both borrowed. */
	void (*on_changed)(void *cookie, const char *ns, const char *release);
};

/** wb__others_start - @kube: for the watch, borrowed; @release: "namespace/name" of our own Lease,
 *  copied.  0 or -ENOMEM.  Release with wb__others_stop(). */
int wb__others_start(struct wb_kube *kube, const char *release, const struct wb__others_cb *cb,
	struct wb__others **out);
/** wb__others_stop - no callback is called afterwards.  NULL is allowed. */
void wb__others_stop(struct wb__others *t);
/** wb__others_release - the release that serves @ns, borrowed; NULL = none.  @t may be NULL. */
const char *wb__others_release(const struct wb__others *t, const char *ns);
/** wb__others_count - number of namespaces that others serve.  @t may be NULL. */
size_t wb__others_count(const struct wb__others *t);

#endif
