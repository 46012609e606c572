/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_CLAIM_H
#define WB_KUBE_CLAIM_H
/*
 * Only one release of the operator serves all namespaces: if there are two, the second one stays
 * idle.
 *
 * Replicas of one release agree by their Lease; another release has another Lease, and knows
 * nothing of the first.  So the Lease of a release that serves all namespaces, or is about to, has
 * the label weightbridge.io/serves=all (its stake), and a release that wants to serve looks for
 * other Leases with this label.  If it sees none it labels its own Lease and looks again: when two
 * releases do so at once, at least one sees the other.  A stake counts while it is proved and alive
 * (see rivals.h); to prove it, our Lease also names the service account that we run as.  A release
 * that serves keeps its stake for as long as it lives.
 *
 * The decision is pure (wb_kube_claim_judge()); the rest sends requests.  Threads: the loop's.
 * Layer: operator-shim/kube (over base, net).
 */
#include "operator-shim/kube/lease.h"

struct wb_kube_claim_view {
	bool is_staked; /* our Lease has the label */
	unsigned n_rival; /* stakes of others that count */
	bool is_eldest; /* our Lease is older than all of theirs */
	uint64_t staked_ns; /* for how long our Lease has had the label */
};

enum wb_kube_claim_step {
	WB_KUBE_CLAIM_WAIT, /* another release serves: remove our label, look again later */
	WB_KUBE_CLAIM_STAKE, /* label our Lease, and look again */
	WB_KUBE_CLAIM_SERVE,
};

/** wb_kube_claim_judge - what to do, given what is seen now.  Pure. */
enum wb_kube_claim_step wb_kube_claim_judge(const struct wb_kube_claim_view *v);

struct wb_kube_claim; /* opaque */

struct wb_kube_claim_cb {
	void *cookie;
	/* No other release serves.  Called once, and the last callback */
	void (*on_serve)(void *cookie);
	/* @rival: "namespace/name" of the Lease of the release that serves.  Called when it
	 * changes. */
	void (*on_idle)(void *cookie, const char *rival);
};

/** wb_kube_claim_start - @lease: ours, which we hold; borrowed.  0 or -ENOMEM. */
int wb_kube_claim_start(struct wb_kube *k, struct wb_kube_lease *lease,
	const struct wb_kube_claim_cb *cb, struct wb_kube_claim **out);
/** wb_kube_claim_stop - no callback comes after.  NULL is allowed. */
void wb_kube_claim_stop(struct wb_kube_claim *c);

#endif
