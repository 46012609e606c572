/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_READERS_H
#define WB_OPERATOR_READERS_H
/*
 * Who may read the operator's pages from another pod: the API server is asked whose token it is.
 *
 * A page of an object takes a token of a service account of the object's namespace, made for the
 * object's audience (weightbridge.io/NAMESPACE/NAME), as agents show; it need not be bound to a
 * pod, so that `kubectl create token` makes one.  Metrics, where they are not for everybody, take a
 * token of whoever may "get" the path /metrics (SubjectAccessReview).
 *
 * A client of its own, eight requests at a time: what readers ask holds up no agent's token.
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"

struct wb__readers; /* opaque */

/** wb__readers_start - @kube_take: ours from here on (also on failure).  0 or -ENOMEM. */
int wb__readers_start(struct wb_kube *kube_take, struct wb__readers **out);
/** wb__readers_stop - what is still asked is answered with -ESHUTDOWN.  NULL is allowed. */
void wb__readers_stop(struct wb__readers *r);

/** wb__readers_fn - 0: let it read; -EACCES, or -EAGAIN (it could not be found out), with a
 *  sentence. */
typedef void (*wb__readers_fn)(void *cookie, int rc, const char *sentence);
/** wb__readers_ask - may the owner of @token read about @object ("namespace/name"; NULL: metrics)?
 *  @fn follows, once, and not from in here.  0; -EBUSY (too many are asked about); -ENOMEM. */
int wb__readers_ask(struct wb__readers *r, const char *token, const char *object, wb__readers_fn fn,
	void *cookie);

#endif
