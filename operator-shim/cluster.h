/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_OPERATOR_CLUSTER_H
#define WB_OPERATOR_CLUSTER_H
/*
 * The operator in a cluster: WeightTransfers are watched and served, their status is written.
 *
 * One replica leads (a Lease) and serves; the others send agents to it.  If there are two releases,
 * one of them serves (kube/claim.h; scopes.h if they watch only some namespaces).  For the leader,
 * `objects` watches, and `status` and `events` write.
 *
 * Threads: the loop's.  Layer: operator-shim.
 */
#include "operator-shim/serve/serve.h"

struct wb_loop;
struct wb_err;
struct wb__cluster; /* opaque */

struct wb__cluster_opts {
	const char *kubeconfig; /* NULL = use the pod's account */
	const char *const *watched; /* namespaces; none = all */
	size_t n_watched;
	const char *lease_namespace,
		*lease_name; /* "" = the pod's namespace, or "default"; "" = the program's name */
	const char *name; /* of this replica */
	const char *address; /* "host:port" that agents reach us at; "" = not known */
	const char *tls_secret; /* "" = the certificate is in files */
	/* The authority, when the certificate is in files; "" = agents get it from elsewhere */
	const char *tls_ca;
	const char *const *tls_name; /* for the Secret */
	size_t n_tls_name;
	bool has_tokens; /* agents show tokens: pods are watched, tokens reviewed */
};

struct wb__cluster_cb {
	void *cookie;
	void (*on_lost)(void *cookie, const char *why); /* another replica leads: end at once */
	/* With a Secret: certificate and key, PEM, at first and when they change. */
	void (*on_pair)(void *cookie, const char *cert, const char *key);
};

/** wb__cluster_start - kubeconfig, watched and address are borrowed until wb__cluster_stop().
 * @serve was created without objects and outlives this.  0 or negative with a sentence.  Blocks for
 * files. */
int wb__cluster_start(struct wb_loop *loop, struct wb_serve *serve,
	const struct wb__cluster_opts *o, const struct wb__cluster_cb *cb, struct wb__cluster **out,
	struct wb_err *err);
/** wb__cluster_stop - NULL is allowed. */
void wb__cluster_stop(struct wb__cluster *c);
/** wb__cluster_release - write nothing more, give up the lease, then call @done. */
void wb__cluster_release(struct wb__cluster *c, void (*done)(void *cookie), void *cookie);

/* Calls that serve makes: see struct wb_serve_env. */
/** wb__cluster_changed - the status of @object may have changed. */
void wb__cluster_changed(struct wb__cluster *c, const char *object);
/** wb__cluster_forget - the connection @peer is gone: the answer about its token is not needed any
 * more. */
void wb__cluster_forget(struct wb__cluster *c, uint32_t peer);
/** wb__cluster_authenticate - ask whose token it is; wb_serve_authenticated() gets the answer
 * later.  While no replica is known to lead, the answer is that the agent should try again.  When
 * @c is NULL there is no answer: the agent's connection is closed at the deadline of its HELLO, ten
 * seconds later, and it comes again. */
void wb__cluster_authenticate(
	struct wb__cluster *c, uint32_t peer, const struct wb_serve_claim *claim);
/** wb__cluster_reader - find out whether the owner of @token may read agents' metrics;
 * wb_serve_reader() gets the answer, perhaps before this returns.  @ns: namespace of the agent that
 * asks. */
void wb__cluster_reader(
	struct wb__cluster *c, uint32_t peer, uint64_t number, const char *token, const char *ns);
/** wb__cluster_event - write an Event about an object; @e is copied. */
void wb__cluster_event(struct wb__cluster *c, const struct wb_serve_event *e);

struct wb__readers;
/** wb__cluster_readers - what decides who may read pages; lives as long as the cluster. */
struct wb__readers *wb__cluster_readers(const struct wb__cluster *c);

/** wb__cluster_why_unready - NULL when agents may connect, else why not.  Static text. */
const char *wb__cluster_why_unready(const struct wb__cluster *c);

#endif
