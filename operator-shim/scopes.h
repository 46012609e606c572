/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_SCOPES_H
#define WB_OPERATOR_SCOPES_H
/*
 * What the leader of a release serves: the WeightTransfers of all namespaces, or of some.
 *
 * If it serves some, each namespace has a Lease of its own, WB__SCOPE_LEASE in that namespace, held
 * in the name of the release and not of a replica.  So if two releases watch a namespace the first
 * serves it; the second says so, and serves its other namespaces until that Lease is gone or has
 * not been renewed for a minute.  A namespace whose Lease is taken from us is left, and one whose
 * Lease can be neither read nor made (the namespace was deleted, or our rights in it) is idle after
 * 15 s; both are tried again and again, and the other namespaces are not affected.  If it serves
 * all, kube/claim.h keeps other such releases away before this begins, and namespaces with a Lease
 * of that name are left to its holder, no matter who came first (others.h), since a release for
 * some namespaces sees only these.  Somebody who may write Leases in a namespace can keep operators
 * away from it, but from no other namespace.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/objects.h"

#define WB__SCOPE_LEASE "weightbridge-serves"

struct wb__scopes; /* opaque */

struct wb__scopes_opts {
	/* The parts of each scope, except identity, statuses and namespace */
	struct wb__objects_parts parts;
	struct wb_kube *claims; /* client for the Leases; borrowed, NULL if none are needed */
	const char *const *watched; /* namespaces; none = all.  Copied */
	size_t n_watched;
	const char *release; /* "namespace/name" of its Lease; copied */
	const char *address; /* of this replica; copied */
	bool has_tokens;
	/* Make a client for the token reviews, or the statuses, of one scope.  0 or negative. */
	int (*connect)(void *cookie, bool is_for_status, struct wb_kube **out);
	const char *instance; /* of this replica, for statuses; borrowed */
	void (*on_lost)(void *cookie, const char *why); /* it cannot continue: end the program */
	void *cookie;
};

/** wb__scopes_start - 0 or negative.  Release with wb__scopes_stop(). */
int wb__scopes_start(const struct wb__scopes_opts *o, struct wb__scopes **out);
/** wb__scopes_stop - nothing is written any more; serve keeps what it has.  NULL is allowed. */
void wb__scopes_stop(struct wb__scopes *s);
/** wb__scopes_why_unready - NULL when it is known what we serve, else why not.  Static text.  If we
 * serve some namespaces, each can keep us unready only once, at the start, and not for long:
 * otherwise somebody who may write in one could keep us away from all others. */
const char *wb__scopes_why_unready(struct wb__scopes *s);

/* As in objects.h and identity.h, for the scope that is concerned; @s may be NULL. */
/** wb__scopes_changed - see wb__objects_changed(). */
void wb__scopes_changed(struct wb__scopes *s, const char *object);
/** wb__scopes_event - see wb__objects_event(). */
void wb__scopes_event(struct wb__scopes *s, const struct wb_serve_event *e);
/** wb__scopes_ask - see wb__identity_ask(); an agent of a namespace that is not served here is told
 * so. */
void wb__scopes_ask(struct wb__scopes *s, uint32_t peer, const struct wb_serve_claim *c);
/** wb__scopes_refuse - the peer is refused with the sentence soon, from the loop, and may come
 * again. */
void wb__scopes_refuse(
	struct wb_loop *loop, struct wb_serve *serve, uint32_t peer, const char *sentence);
/** wb__scopes_forget - see wb__identity_forget(). */
void wb__scopes_forget(struct wb__scopes *s, uint32_t peer);

#endif
