/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_READERS_H
#define WB_OPERATOR_READERS_H
/*
 * Who may read, by the token he shows: the API server is asked whose it is.
 *
 * A page of an object takes a token of a service account of the object's namespace, made for the
 * object's audience (weightbridge.io/NAMESPACE/NAME), as agents show; it need not be bound to a
 * pod, so that `kubectl create token` makes one.  Metrics, where they are not for everybody, take a
 * token of whoever may "get" a path (SubjectAccessReview): /metrics of the operator, and
 * WBP_READER_PATH of agents, who ask through it.
 *
 * A client of its own, eight questions at a time, in which namespaces take turns, and for pages
 * read here the addresses that ask: what readers ask holds up no agent's token, what one
 * namespace's agents ask no other's, and who asks with a thousand wrong tokens not who has a right
 * one.  An answer holds for some seconds (kube/answers.h), and who asks the same meanwhile gets the
 * same: a thousand agents that one Prometheus reads cost one question.  Threads: the loop's. Layer:
 * operator-shim.
 */
#include "operator-shim/kube/http.h"

struct wb__readers; /* opaque */

/** wb__readers_start - @kube_take: ours from here on (also on failure).  0, -ENOMEM or the random
 *  source's error. */
int wb__readers_start(struct wb_kube *kube_take, struct wb__readers **out);
/** wb__readers_stop - what is still asked is answered with -ESHUTDOWN.  NULL is allowed. */
void wb__readers_stop(struct wb__readers *r);

/* A question; borrowed for the call, but for @path. */
struct wb__reader {
	const char *token; /* secret */
	const char *object; /* whose pages, "namespace/name"; NULL = metrics */
	const char *path; /* of metrics; static text */
	const char *turn; /* who asks, for turns: an agent's namespace; of pages read here the
			     address */
};

/** wb__readers_fn - 0: let it read; -EACCES: nobody's token, or of another namespace; -EPERM: its
 *  owner may not; else it could not be found out.  With a sentence. */
typedef void (*wb__readers_fn)(void *cookie, int rc, const char *sentence);
/** wb__readers_ask - @fn is called once, maybe from in here. */
void wb__readers_ask(
	struct wb__readers *r, const struct wb__reader *who, wb__readers_fn fn, void *cookie);

#endif
