/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_KUBE_RIVALS_H
#define WB_KUBE_RIVALS_H
/*
 * Leases of other releases that claim to serve all namespaces, kept up to date from lists of
 * Leases.
 *
 * Anybody who has rights in a namespace can write a Lease there, so a label alone proves nothing.
 * The Lease also names the service account, of its own namespace, that its operator runs as: the
 * claim counts when that account may write the status of WeightTransfers in all namespaces, which
 * only an administrator of the cluster can have allowed.  The user of this file checks this for
 * each Lease in turn (wb_kube_rivals_unproved()).  Only WB_KUBE_RIVALS_OF_NAMESPACE Leases of a
 * namespace are considered, so that forged ones cannot hide an honest one in another namespace.  A
 * claim is dead when its Lease has not changed for a minute, by our own clock.
 *
 * Pure: @now_ns is any clock that does not go back.  Threads: the caller's.
 * Layer: operator-shim/kube (over base).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define WB_KUBE_RIVALS_OF_NAMESPACE 8
#define WB_KUBE_RIVALS_TRIES 3

struct wb_kube_rival {
	char ns[64], name[254], account[254]; /* account "" = it names none, or an invalid one */
	char uid[64], born[32]; /* metadata.creationTimestamp */
	char version[64];
	uint64_t seen_ns; /* when it last changed */
	uint64_t asked_ns; /* when its account was last asked about; 0 = never */
	unsigned n_failed; /* questions without an answer, one after the other */
	bool is_proved, is_listed;
};

/* Zeroed is empty; release with wb_kube_rivals_finish(). */
struct wb_kube_rivals {
	struct wb_kube_rival *rival; /* owned */
	size_t n, cap;
};

/** wb_kube_rivals_finish - free what @r has; it is empty afterwards. */
void wb_kube_rivals_finish(struct wb_kube_rivals *r);

/** wb_kube_rivals_begin - a list begins; its pages follow. */
void wb_kube_rivals_begin(struct wb_kube_rivals *r);
/** wb_kube_rivals_page - one page of the list; @own_uid: of our own Lease, which is no rival.  0 or
 * -ENOMEM. */
int wb_kube_rivals_page(
	struct wb_kube_rivals *r, const json_t *list, const char *own_uid, uint64_t now_ns);
/** wb_kube_rivals_end - that was the last page: Leases that were not in the list are gone. */
void wb_kube_rivals_end(struct wb_kube_rivals *r);

/** wb_kube_rivals_unproved - a rival that is alive and whose account has not been asked about for a
 * minute; NULL = none.  Valid until the next list. */
struct wb_kube_rival *wb_kube_rivals_unproved(struct wb_kube_rivals *r, uint64_t now_ns);
/** wb_kube_rivals_answered - the answer about the account of @x: whether it may serve all
 * namespaces. */
void wb_kube_rivals_answered(struct wb_kube_rival *x, bool is_allowed, uint64_t now_ns);
/** wb_kube_rivals_failed - there was no answer.  The account is asked about again,
 * WB_KUBE_RIVALS_TRIES times in all (an honest rival must not be missed because of one lost
 * answer).  After that @x counts as asked, and stays proved or unproved as before; at first it is
 * unproved. */
void wb_kube_rivals_failed(struct wb_kube_rival *x, uint64_t now_ns);
/** wb_kube_rivals_live - a rival that is proved and alive; NULL = there is none.  @n_out: how many
 * there are. */
const struct wb_kube_rival *wb_kube_rivals_live(
	const struct wb_kube_rivals *r, uint64_t now_ns, unsigned *n_out);
/** wb_kube_rivals_is_eldest - the Lease made at @born, with @uid, is older than all rivals that are
 * proved and alive. */
bool wb_kube_rivals_is_eldest(
	const struct wb_kube_rivals *r, const char *born, const char *uid, uint64_t now_ns);

#endif
