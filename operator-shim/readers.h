/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_READERS_H
#define WB_OPERATOR_READERS_H
/*
 * Decides who may read pages and metrics: the API server is asked whose token it is.
 *
 * A page of an object requires a token of a service account of the object's namespace, made for the
 * object's audience (weightbridge.io/NAMESPACE/NAME), as agents show; it need not be bound to a
 * pod, so `kubectl create token` makes one.  Metrics, if they are not for everybody, require a
 * token of a user who may "get" a path (SubjectAccessReview): /metrics for the operator's metrics,
 * and WBP_READER_PATH for those of agents, which ask through the operator.
 *
 * Questions go through an API client of their own, eight at a time.  Namespaces take turns, and so
 * do the addresses that read pages here.  So readers' questions delay no agent's token review,
 * those of one namespace's agents delay no other namespace, and somebody with a thousand wrong
 * tokens does not delay those who have a right one.  An answer is kept for some seconds
 * (kube/answers.h), and the same question gets the same answer meanwhile: a thousand agents that
 * one Prometheus reads cost one question.  Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"

struct wb__readers; /* opaque */

/** wb__readers_start - @kube_take: ours from here on (also on failure).  0, -ENOMEM or the random
 *  source's error. */
int wb__readers_start(struct wb_kube *kube_take, struct wb__readers **out);
/** wb__readers_stop - questions that are still open are answered with -ESHUTDOWN.  NULL is
 * allowed. */
void wb__readers_stop(struct wb__readers *r);

/* A question; borrowed for the call, except @path. */
struct wb__reader {
	const char *token; /* secret */
	const char *object; /* whose pages, "namespace/name"; NULL = metrics */
	const char *path; /* the path for metrics; static text */
	/* Who asks, for taking turns: an agent's namespace; for pages read here, the reader's
	 * address */
	const char *turn;
};

/** wb__readers_fn - the answer.  @rc 0: may read; -EACCES: not a valid token, or of another
 * namespace; -EPERM: the token's owner may not read; other codes: it could not be found out.
 * @sentence says why not. */
typedef void (*wb__readers_fn)(void *cookie, int rc, const char *sentence);
/** wb__readers_ask - ask; @fn is called once, perhaps before this returns. */
void wb__readers_ask(
	struct wb__readers *r, const struct wb__reader *who, wb__readers_fn fn, void *cookie);

#endif
