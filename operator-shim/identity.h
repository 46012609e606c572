/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_IDENTITY_H
#define WB_OPERATOR_IDENTITY_H
/*
 * Which pod an agent is in: its token is shown to the API server, whose answer must name a pod that
 * is alive, has the object's name as its label, and has the agent's name.
 *
 * Token reviews go through an API client of their own (200 a second, 32 at a time), so that a
 * thousand agents that reconnect do not delay status writes.  When a pod goes, its agent's
 * connection is closed.  Serve is told of the pods of each object: their labels, and whether they
 * have a sidecar.  Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/kube/http.h"
#include "operator-shim/serve/serve.h"

#define WB__LABEL_NAME "weightbridge.io/name"
#define WB__SIDECAR_NAME "weightbridge-agent" /* name of the container with the agent */

struct wb__identity; /* opaque */

/** wb__identity_start - @kube: for the pods; @reviews_take: for the tokens, ours from here on (also
 *  on failure).  @ns: "" = all.  0 or -ENOMEM.  Release with wb__identity_stop(). */
int wb__identity_start(struct wb_kube *kube, struct wb_kube *reviews_take, struct wb_serve *serve,
	const char *ns, struct wb__identity **out);
void wb__identity_stop(struct wb__identity *d);
/** wb__identity_ask - show the token to the API server and tell serve the answer about @peer.  @c
 *  is copied.  When memory is short there is no answer: the agent is closed at the deadline of its
 *  HELLO and comes again. */
void wb__identity_ask(struct wb__identity *d, uint32_t peer, const struct wb_serve_claim *c);
/** wb__identity_forget - the peer is gone: its token is not checked any more. */
void wb__identity_forget(struct wb__identity *d, uint32_t peer);
/** wb__identity_tell - tell serve the pods of an object that serve has just been given. */
void wb__identity_tell(struct wb__identity *d, const char *ns, const char *name);
/** wb__identity_is_synced - the watch has listed all pods once. */
bool wb__identity_is_synced(const struct wb__identity *d);

#endif
