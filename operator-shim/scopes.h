/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_SCOPES_H
#define WB_OPERATOR_SCOPES_H
/*
 * What the leader of a release serves: the WeightTransfers of all namespaces, or of some.
 *
 * Of some, each namespace has a Lease of its own, WB__SCOPE_LEASE in that namespace, held in the
 * name of the release and not of a replica: so of two releases that watch it the first serves it,
 * and the second says so and serves its other ones until that Lease is gone or has not been renewed
 * for a minute.  A namespace whose Lease is taken from us is left, and one whose Lease can neither
 * be read nor made (it was deleted, or our rights in it) is idle after 15 s; both are tried on, and
 * the other ones go on.  Of all, other such releases are kept away by kube/claim.h before this
 * begins, and namespaces with a Lease of that name are left to who holds it, whoever came first
 * (others.h): a release for some namespaces sees nothing but those.  Whoever may write Leases in a
 * namespace can keep operators away from it, and from no other one.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/objects.h"

#define WB__SCOPE_LEASE "weightbridge-serves"

struct wb__scopes; /* opaque */

struct wb__scopes_opts {
	struct wb__objects_parts parts; /* of each, but for identity, statuses and namespace */
	struct wb_kube *claims; /* for the Leases; borrowed, NULL where none are needed */
	const char *const *watched; /* namespaces; none = all.  Copied */
	size_t n_watched;
	const char *release; /* "namespace/name" of its Lease; copied */
	const char *address; /* of this replica; copied */
	bool has_tokens;
	/* A client for the reviews, or the statuses, of one scope.  0 or negative. */
	int (*connect)(void *cookie, bool is_for_status, struct wb_kube **out);
	const char *instance; /* of this replica, for statuses; borrowed */
	void (*on_lost)(void *cookie, const char *why); /* it cannot go on: end */
	void *cookie;
};

/** wb__scopes_start - 0 or negative.  Release with wb__scopes_stop(). */
int wb__scopes_start(const struct wb__scopes_opts *o, struct wb__scopes **out);
/** wb__scopes_stop - nothing is written any more; serve keeps what it has.  NULL is allowed. */
void wb__scopes_stop(struct wb__scopes *s);
/** wb__scopes_why_unready - NULL when what is served is known, else why not.  Static text.  One of
 *  some namespaces keeps us unready once, at first, and not for long: who may write in it could
 * else take us from all others. */
const char *wb__scopes_why_unready(struct wb__scopes *s);

/* As of objects.h and identity.h, for the scope that it is about; NULL is allowed. */
/** wb__scopes_changed - see wb__objects_changed(). */
void wb__scopes_changed(struct wb__scopes *s, const char *object);
/** wb__scopes_event - see wb__objects_event(). */
void wb__scopes_event(struct wb__scopes *s, const struct wb_serve_event *e);
/** wb__scopes_ask - see wb__identity_ask(); who comes for a namespace that is not served here is
 *  told so. */
void wb__scopes_ask(struct wb__scopes *s, uint32_t peer, const struct wb_serve_claim *c);
/** wb__scopes_refuse - the peer that asked is told the sentence soon, from the loop, and comes
 * again.
 */
void wb__scopes_refuse(
	struct wb_loop *loop, struct wb_serve *serve, uint32_t peer, const char *sentence);
/** wb__scopes_forget - see wb__identity_forget(). */
void wb__scopes_forget(struct wb__scopes *s, uint32_t peer);

#endif
