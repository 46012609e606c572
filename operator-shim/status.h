/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_STATUS_H
#define WB_OPERATOR_STATUS_H
/*
 * What the API server has of each object's status, and what it is to have.
 *
 * Statuses are written by a client of their own, so that they wait for nothing else, and by turns
 * of their namespaces (kube/turns.h), so that none waits for another tenant's thousand.  By
 * server-side apply, when it differs from what is stored, at most once a second an object, the end
 * of a transfer and conditions that begin or end to hold twice a second; and every four to five
 * minutes when it does not: status.operator.renewTime says that somebody still vouches for the
 * rest.  The write carries the resourceVersion last seen, so it never lands on an object that was
 * made again. Such a confirmation costs the API server some 15 ms of a processor and etcd 1.5 ms
 * (an object of 10 KB): with a thousand objects 4 writes a second, 6 % of one processor.
 *
 * A status answers the generation that is in force; condition Accepted says whether that is the
 * newest.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "base/dues.h"
#include "operator-shim/kube/http.h"
#include "operator-shim/kube/text.h"
#include "operator-shim/kube/turns.h"

struct wb_loop;
struct wb_serve;
struct wb_kube_watch;
struct wb__statuses; /* opaque: of all objects */

#define WB__OWN_VERSIONS 32 /* of 16 s and more, that a watch may be late */
#define WB__VERSION_BYTES 64

/* Of one object; in place in what the user keeps of it. */
struct wb__status {
	struct wb_kube_turn turn; /* to be written */
	struct wb_due due; /* to be looked at */
	struct wb__statuses *all;
	const char *ns, *name, *key; /* borrowed, live as long */
	char version[WB__VERSION_BYTES]; /* that the API server has */
	char beside[WB__VERSION_BYTES]; /* that the watch told of during a write; "" = of none */
	json_t *written; /* status that it has */
	json_t *sending; /* status under way */
	struct wb_kube_rq *rq;
	uint64_t looks; /* of what was compared last */
	uint64_t next_write_ns, confirm_ns; /* not earlier; not later, though nothing changes */
	uint64_t next_news_ns; /* what cannot wait for next_write_ns: not earlier */
	bool is_changed; /* beside what looks tells */
	bool is_held; /* what was compared last differs, and waits for next_write_ns */
	struct wb_kube_backoff backoff;
	uint64_t own[WB__OWN_VERSIONS]; /* hashes of the versions that our writes gave */
	unsigned own_at;
	/* The newest spec, and the one that is in force. */
	int64_t generation, in_force;
	const char *reason; /* static; NULL = the newest is in force */
	char *why; /* it is not; owned */
	bool is_judged, is_served;
};

/** wb__statuses_start - @kube_take: ours from here on (also on failure); @name: of this replica,
 *  copied.  0 or -ENOMEM.  Release with wb__statuses_stop(). */
int wb__statuses_start(struct wb_loop *loop, struct wb_kube *kube_take, struct wb_serve *serve,
	const char *name, struct wb__statuses **out);
/** wb__statuses_stop - after the last wb__status_finish().  NULL is allowed. */
void wb__statuses_stop(struct wb__statuses *a);
/** wb__statuses_follow - where to look when a write was refused for its version; NULL = nowhere,
 * and nothing is written any more. */
void wb__statuses_follow(struct wb__statuses *a, const struct wb_kube_watch *w);
/** wb__status_begin - @ns, @name and @key are borrowed until wb__status_finish(). */
void wb__status_begin(struct wb__status *st, struct wb__statuses *a, const char *ns,
	const char *name, const char *key);
void wb__status_finish(struct wb__status *st);
/** wb__status_seen - the API server has this object now.  What somebody else wrote into its status
 * is put right, also when it was written while a write of ours was under way; what we wrote comes
 * back late and does not count. */
void wb__status_seen(struct wb__status *st, const json_t *object);
/** wb__status_changed - what is so may differ from what is written. */
void wb__status_changed(struct wb__status *st);
/** wb__status_served - the spec of @generation is in force, though it is not the newest:
 *  wb__status_judged() tells of that one. */
void wb__status_served(struct wb__status *st, int64_t generation);
/** wb__status_judged - serve has taken the spec of @generation (@reason NULL), or refused it: then
 *  the one before stays in force, if there was one.  @reason: static, one word; @why: a sentence.
 */
void wb__status_judged(
	struct wb__status *st, int64_t generation, const char *reason, const char *why);

#endif
