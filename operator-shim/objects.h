/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_OBJECTS_H
#define WB_OPERATOR_OBJECTS_H
/*
 * The WeightTransfers of a cluster: this watches them, gives them to serve, and writes their status
 * and events.
 *
 * A spec is read some time after it was seen: namespaces take turns, and between slices of a few
 * milliseconds the loop does everything else.  So only the owner of twenty thousand objects waits
 * for them, and no lease and no agent does.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/serve/serve.h"

struct wb_kube;
struct wb_loop;
struct wb__certs;
struct wb__events;
struct wb__identity;
struct wb__objects; /* opaque */
struct wb__statuses;

/* What wb__objects_start() needs; borrowed: all live until wb__objects_stop(), except @kube. */
struct wb__objects_parts {
	struct wb_loop *loop;
	struct wb_kube *kube; /* for the watch */
	struct wb_serve *serve;
	struct wb__statuses *statuses;
	struct wb__events *events;
	struct wb__certs *certs; /* NULL = agents show no tokens */
	struct wb__identity *identity; /* NULL = the same */
	const char *watch_namespace; /* "" = all */
	/* May be NULL.  Returns the release that serves this namespace; NULL = we do. */
	const char *(*served_by)(void *cookie, const char *ns);
	void *cookie;
	uint64_t term_min;
};

/** wb__objects_start - watch and serve.  0 or -ENOMEM.  Release with wb__objects_stop(). */
int wb__objects_start(const struct wb__objects_parts *p, struct wb__objects **out);
/** wb__objects_stop - serve keeps what it has.  NULL is allowed. */
void wb__objects_stop(struct wb__objects *d);
/** wb__objects_is_synced - serve has been told of all objects that exist. */
bool wb__objects_is_synced(const struct wb__objects *d);
/** wb__objects_revise - the answer of served_by() for @ns has changed: we begin to serve its
 * objects, or leave them and write nothing about them any more. */
void wb__objects_revise(struct wb__objects *d, const char *ns);
/** wb__objects_leave - leave all objects: agents are disconnected with the sentence @why, and
 * nothing is written any more.  wb__objects_stop() must follow. */
void wb__objects_leave(struct wb__objects *d, const char *why);
/** wb__objects_changed - the state of @object ("namespace/name") may differ from its written
 * status. */
void wb__objects_changed(struct wb__objects *d, const char *object);
/** wb__objects_event - write a Kubernetes Event about the object, and about the pod that has proved
 * to be the cause. */
void wb__objects_event(struct wb__objects *d, const struct wb_serve_event *e);

#endif
