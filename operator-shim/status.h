/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_STATUS_H
#define WB_OPERATOR_STATUS_H
/*
 * Keeps each object's status at the API server up to date.
 *
 * Statuses are written through an API client of their own, so that they wait for nothing else, and
 * namespaces take turns (kube/turns.h), so that no status waits for another tenant's thousand.  A
 * status is written by server-side apply when it differs from what is stored, at most once a second
 * for each object; the end of a transfer, and a condition that became true or stopped being true,
 * at most twice a second.  It is also written every four to five minutes when it does not differ:
 * status.operator.renewTime says that somebody still vouches for the rest.  The write carries the
 * resourceVersion last seen, so it never changes an object that was made again.  Such a
 * confirmation costs the API server about 15 ms of processor time and etcd 1.5 ms (for an object of
 * 10 KB): with a thousand objects that is 4 writes a second, 6 % of one processor.
 *
 * A status is about the generation that is in force; condition Accepted says whether this is the
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

#define WB__OWN_VERSIONS 32 /* of 16 s and more, by which a watch may be late */
#define WB__VERSION_BYTES 64

/* For one object; embedded in the user's own struct. */
struct wb__status {
	struct wb_kube_turn turn; /* its place among the statuses to be written */
	struct wb_due due; /* when it is to be looked at */
	struct wb__statuses *all;
	const char *ns, *name, *key; /* borrowed, live as long */
	char version[WB__VERSION_BYTES]; /* resourceVersion that the API server has */
	/* resourceVersion that the watch reported during a write; "" = none */
	char beside[WB__VERSION_BYTES];
	json_t *written; /* status that the API server has */
	json_t *sending; /* status under way */
	struct wb_kube_rq *rq;
	uint64_t looks; /* wb_serve_looks() of what was compared last */
	/* Write not earlier than; write not later than, even if nothing changes */
	uint64_t next_write_ns, confirm_ns;
	uint64_t next_news_ns; /* write what cannot wait for next_write_ns not earlier than this */
	bool is_changed; /* changed in a way that looks does not show */
	bool is_held; /* what was compared last differs, and waits for next_write_ns */
	struct wb_kube_backoff backoff;
	/* Hashes of the resourceVersions that our writes produced */
	uint64_t own[WB__OWN_VERSIONS];
	unsigned own_at;
	/* The newest spec, and the one that is in force. */
	int64_t generation, in_force;
	const char *reason; /* static; NULL = the newest is in force */
	char *why; /* why the newest is not in force; owned */
	bool is_judged, is_served;
};

/** wb__statuses_start - @kube_take: ours from here on (also on failure); @name: of this replica,
 *  copied.  0 or -ENOMEM.  Release with wb__statuses_stop(). */
int wb__statuses_start(struct wb_loop *loop, struct wb_kube *kube_take, struct wb_serve *serve,
	const char *name, struct wb__statuses **out);
/** wb__statuses_stop - call it after the last wb__status_finish().  NULL is allowed. */
void wb__statuses_stop(struct wb__statuses *a);
/** wb__statuses_follow - set the watch in which to look when a write was refused for its version;
 * NULL = none, and nothing is written any more. */
void wb__statuses_follow(struct wb__statuses *a, const struct wb_kube_watch *w);
/** wb__status_begin - begin to keep the status of an object.  @ns, @name and @key are borrowed
 * until wb__status_finish(). */
void wb__status_begin(struct wb__status *st, struct wb__statuses *a, const char *ns,
	const char *name, const char *key);
void wb__status_finish(struct wb__status *st);
/** wb__status_seen - the API server has this object now.  Changes of its status by somebody else
 * are overwritten, also those made while a write of ours was under way; our own writes come back
 * late, and are ignored. */
void wb__status_seen(struct wb__status *st, const json_t *object);
/** wb__status_changed - the object's state may differ from the written status. */
void wb__status_changed(struct wb__status *st);
/** wb__status_served - the spec of @generation is in force, though it is not the newest;
 * wb__status_judged() reports about the newest. */
void wb__status_served(struct wb__status *st, int64_t generation);
/** wb__status_judged - serve has taken the spec of @generation (@reason NULL), or refused it: then
 * the previous spec stays in force, if there was one.  @reason: static, one word; @why: a
 * sentence. */
void wb__status_judged(
	struct wb__status *st, int64_t generation, const char *reason, const char *why);

#endif
