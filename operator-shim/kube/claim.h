/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_CLAIM_H
#define WB_KUBE_CLAIM_H
/*
 * One release of the operator serves all namespaces: of two, the second one stays idle.
 *
 * Replicas of one release agree by their Lease; another release has another Lease, and knows
 * nothing of it.  So the Lease of a release that serves all namespaces, or is about to, has label
 * weightbridge.io/serves=all, and who wants to serve looks for others' Leases with it.  Who sees
 * none writes its own label and looks again: of two that wrote at once at least one sees the other.
 * A stake counts while it is proved and alive: see rivals.h; for that our Lease also names the
 * service account that we run as.  Who serves keeps its stake for as long as its release lives.
 *
 * The decision is pure (wb_kube_claim_judge()); the rest asks.  Threads: the loop's.
 * Layer: operator-shim/kube (over base, net).
 */
#include "operator-shim/kube/lease.h"

struct wb_kube_claim_view {
	bool is_staked; /* our Lease has the label */
	unsigned n_rival; /* stakes of others that count */
	bool is_eldest; /* our Lease is older than theirs */
	uint64_t staked_ns; /* for so long */
};

enum wb_kube_claim_step {
	WB_KUBE_CLAIM_WAIT, /* another release serves: without a label of ours, look again later */
	WB_KUBE_CLAIM_STAKE, /* label our Lease, and look again */
	WB_KUBE_CLAIM_SERVE,
};

/** wb_kube_claim_judge - what to do by what is seen now.  Pure. */
enum wb_kube_claim_step wb_kube_claim_judge(const struct wb_kube_claim_view *v);

struct wb_kube_claim; /* opaque */

struct wb_kube_claim_cb {
	void *cookie;
	void (*on_serve)(void *cookie); /* nobody else does.  Comes once, and is the last */
	/* @rival: "namespace/name" of the Lease of the release that does.  Comes when it changes.
	 */
	void (*on_idle)(void *cookie, const char *rival);
};

/** wb_kube_claim_start - @lease: ours, which we hold; borrowed.  0 or -ENOMEM. */
int wb_kube_claim_start(struct wb_kube *k, struct wb_kube_lease *lease,
	const struct wb_kube_claim_cb *cb, struct wb_kube_claim **out);
/** wb_kube_claim_stop - no callback comes after.  NULL is allowed. */
void wb_kube_claim_stop(struct wb_kube_claim *c);

#endif
