/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_LEASE_H
#define WB_KUBE_LEASE_H
/*
 * Leader election: one Lease object of coordination.k8s.io/v1, which each replica watches and tries
 * to take, and which the leader renews.
 *
 * The decision is pure (wb_kube_lease_judge()); the rest sends requests.  A record has expired
 * when, by our own clock, it has not changed for its duration since we first saw it: clocks of
 * other machines do not matter.  What others have put into its metadata stays.  A write carries the
 * resourceVersion that was read, so if two replicas write, one is refused.  A leader that cannot
 * renew for renew_ns has lost the lead, and reports so before others may take over.
 *
 * leaseTransitions rises with each new leader, but when the Lease was deleted it begins again at 1.
 * So it fences nothing by itself.  A leader begins its terms at this number, and then raises them
 * above every term that an agent or the stored status tells of (wb_reconcile_hear(),
 * wb_reconcile_restore()): these are what keeps an earlier leader's plans apart from its own.
 *
 * Threads: the loop's.  Layer: operator-shim/kube (over base, net).
 */
#include "operator-shim/kube/http.h"

#define WB_KUBE_LEASE_SERVES "weightbridge.io/serves" /* label: see claim.h */
#define WB_KUBE_LEASE_ADDRESS "weightbridge.io/address" /* annotation: where the leader serves */
#define WB_KUBE_LEASE_ACCOUNT "weightbridge.io/account" /* annotation: see claim.h */

struct wb_kube_lease_view {
	const char *holder; /* "" = nobody */
	uint64_t duration_s;
	uint64_t unchanged_ns; /* since the record changed, as seen by us */
	uint64_t since_renewal_ns; /* since our last renewal; only while we hold the Lease */
};

enum wb_kube_lease_step {
	WB_KUBE_LEASE_WAIT, /* somebody else leads */
	WB_KUBE_LEASE_TAKE, /* nobody leads: become the holder */
	WB_KUBE_LEASE_RENEW, /* we lead: write again */
	WB_KUBE_LEASE_LOST, /* we led, and may not any more */
};

/** wb_kube_lease_judge - what to do about a record; @leading: we believe that we lead. */
enum wb_kube_lease_step wb_kube_lease_judge(
	const struct wb_kube_lease_view *v, const char *me, bool leading, uint64_t renew_ns);

#define WB_KUBE_LEASE_HOLDER 320 /* bytes */
/** wb_kube_lease_holder - the holder of @lease, for display and comparison; "" = nobody.  Others
 * can write anything there: a name that does not fit, or is not printable ASCII, becomes "?". */
void wb_kube_lease_holder(const json_t *lease, char out[WB_KUBE_LEASE_HOLDER]);

struct wb_kube_lease; /* opaque */

struct wb_kube_lease_opts {
	const char *namespace_, *name; /* of the Lease; copied */
	const char *identity; /* of this replica; unique for each run; copied */
	const char *address; /* "host:port" that agents reach us at; copied */
	uint64_t duration_ns, renew_ns, retry_ns; /* 0 = 15 s, 10 s, 2 s */
};

struct wb_kube_lease_cb {
	void *cookie;
	/* We lead; @transitions: leaseTransitions, see above. */
	void (*on_leading)(void *cookie, uint64_t transitions);
	/* We led, and do not lead any more: stop at once. */
	void (*on_lost)(void *cookie, const char *why);
	/* Another replica leads, at @address ("" = not known). */
	void (*on_other)(void *cookie, const char *holder, const char *address);
};

/** wb_kube_lease_start - 0 or -ENOMEM.  Release with wb_kube_lease_stop(). */
int wb_kube_lease_start(struct wb_kube *k, const struct wb_kube_lease_opts *o,
	const struct wb_kube_lease_cb *cb, struct wb_kube_lease **out);
/** wb_kube_lease_stop - no callback is called afterwards.  NULL is allowed. */
void wb_kube_lease_stop(struct wb_kube_lease *l);
/** wb_kube_lease_stake - write, or leave out, label weightbridge.io/serves=all from now on. */
void wb_kube_lease_stake(struct wb_kube_lease *l, bool stake);
/** wb_kube_lease_account - write annotation weightbridge.io/account from now on.  @name is copied;
 * when memory is short the annotation is left out. */
void wb_kube_lease_account(struct wb_kube_lease *l, const char *name);
/** wb_kube_lease_is_staked - our Lease has the label, as it was last seen. */
bool wb_kube_lease_is_staked(const struct wb_kube_lease *l);
/** wb_kube_lease_record - the Lease as it was last seen; borrowed, NULL = not seen yet. */
const json_t *wb_kube_lease_record(const struct wb_kube_lease *l);
/** wb_kube_lease_release - if we lead, give up the Lease, so that the next replica takes over at
 * once; then call @done (also when it fails).  No other callback is called afterwards. */
void wb_kube_lease_release(struct wb_kube_lease *l, void (*done)(void *cookie));

#endif
