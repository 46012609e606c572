/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVE_SERVE_H
#define WB_SERVE_SERVE_H
/*
 * The operator's side of its connections to agents.
 *
 * Events in: a channel that was accepted, its frames, time.  Actions out: frames, and work for a
 * thread.  The decisions between them are made by reconcile.  What agents upload is kept by digest
 * for as long as an object knows it; everything else can be built again from agents that reconnect.
 *
 * Threads: the loop's; only planning runs elsewhere.  Layer: operator-shim/serve.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/lent.h"
#include "net/chan.h"
#include "operator-shim/spec/spec.h"

#include <jansson.h>

struct wb_budget_limits; /* budget.h */
struct wb_buf;
struct wb_serve; /* opaque */

struct wb_serve_event {
	const char *object; /* "namespace/name" */
	const char *reason, *text;
	const char *about; /* the agent, pod or engine concerned; "" = the object as a whole */
	/* The pod that, by its token, has proved to be the cause; or NULL */
	const char *pod, *pod_uid;
};

/* One object of a cluster. */
struct wb_serve_object_desc {
	const struct wb_spec *spec;
	uint64_t uid; /* not 0; another uid is another object */
	uint64_t term_min; /* our term is at least this */
	const json_t *stored; /* status that an earlier leader wrote, or NULL; borrowed */
	bool has_pods; /* wb_serve_pod() reports all pods */
};

/* A pod of an object, that has not ended; borrowed for the call. */
struct wb_serve_pod {
	const char *name;
	const json_t *labels; /* or NULL */
	const char *unscheduled; /* why it has no node, as its scheduler says; NULL = it has one */
	bool has_sidecar; /* it has an agent */
};

/* What an agent says it is; borrowed for the call. */
struct wb_serve_claim {
	const char *agent, *token; /* the token is secret */
	const char *const *object; /* "namespace/name" */
	size_t n_object; /* at least 1 */
};

/* What a token proves: a pod, in a namespace; borrowed for the call. */
struct wb_serve_who {
	const char *ns, *pod, *pod_uid;
};

struct wb_serve_env {
	void *ctx;
	const struct wb_clock *clock; /* monotonic */
	uint64_t (*wall_ns)(void *ctx); /* since the epoch, for status */
	int (*random)(void *ctx, void *out, size_t bytes); /* unpredictable bytes; 0 or negative */
	/* Call wb_serve_tick() at this time (UINT64_MAX = never); replaces the time asked for
	 * before. */
	void (*arm)(void *ctx, uint64_t at_ns);
	/* Optional: find out whether the claim is true, then call wb_serve_authenticated(), but not
	 * before this returns. */
	void (*authenticate)(void *ctx, uint32_t peer, const struct wb_serve_claim *c);
	/* Optional: the peer is gone: its claim need not be checked any more. */
	void (*unclaim)(void *ctx, uint32_t peer);
	/* Optional: find out whether the owner of @token, which is secret, may read agents'
	 * metrics, then call wb_serve_reader(), perhaps before this returns.  @ns: namespace of the
	 * agent that asks; "" = not proved. */
	void (*reader)(
		void *ctx, uint32_t peer, uint64_t number, const char *token, const char *ns);
	/* Optional: something worth a Kubernetes event; all borrowed. */
	void (*event)(void *ctx, const struct wb_serve_event *e);
	/* Optional: the status of this object ("namespace/name") may have changed. */
	void (*changed)(void *ctx, const char *object);
	/* Run @work on another thread, then @done on this one.  0 or negative. */
	int (*work)(void *ctx, void (*work)(void *), void (*done)(void *), void *cookie);
	struct wb_fault *fault; /* borrowed; NULL = none */
};

#define WB_SERVE_SERIES_MAX 128

struct wb_serve_opts {
	const char *name; /* of this operator, for agents' logs */
	const struct wb_spec *spec; /* copied */
	size_t n_spec; /* 0: objects come by wb_serve_put() */
	uint64_t settle_ns; /* see wb_reconcile_opts; 0 = at once */
	/* How many objects may have metrics under their own name; of one namespace at most half as
	 * many; the others share series "other" */
	unsigned n_series;
	const struct wb_budget_limits *limits; /* NULL = those of a large machine */
};

/** wb_serve_create - 0, -EINVAL, -ENOMEM or the random source's error. */
int wb_serve_create(const struct wb_serve_opts *o, const struct wb_serve_env *env,
	struct wb_serve **out, struct wb_err *err);
/** wb_serve_destroy - close what is open, and free; a running job ends by itself.  NULL is allowed.
 * Channels' last callbacks may come later and do no harm. */
void wb_serve_destroy(struct wb_serve *s);

/** wb_serve_accept - a new channel; serve binds its callbacks. */
void wb_serve_accept(struct wb_serve *s, struct wb_chan *ch);
/** wb_serve_refused - note a connection that got no channel (wrong key ...), for log and
 * metrics. */
void wb_serve_refused(struct wb_serve *s, const char *peer, const struct wb_err *why);
/** wb_serve_tick - time has passed: call it when env.arm() asked for it; it calls env.arm()
 * again. */
void wb_serve_tick(struct wb_serve *s);
/** wb_serve_drain - tell agents that this operator is going away, and close all channels. */
void wb_serve_drain(struct wb_serve *s, const char *why);
/** wb_serve_update - the same objects, described anew.  0; -EINVAL when an object is new or gone
 *  (that needs a restart) or a field may not change; then nothing has changed.  -ENOMEM. */
int wb_serve_update(struct wb_serve *s, const struct wb_spec *spec, size_t n, struct wb_err *err);
/**
 * wb_serve_put - an object came or changed
 * If the uid has changed, the object's agents are disconnected, and come back.  Only where serve
 * was created without objects.  0; -EINVAL when a field may not change; -EDQUOT when its namespace,
 * or all, have as many as the budget allows; -ENOMEM.
 */
int wb_serve_put(struct wb_serve *s, const struct wb_serve_object_desc *d, struct wb_err *err);
/** wb_serve_has_room - the budget allows one more object of that namespace.  @name:
 *  "namespace/name". */
bool wb_serve_has_room(const struct wb_serve *s, const char *name);
/** wb_serve_remove - the object is not served any more; its agents are disconnected with the
 * sentence @why.
 *  @name: "namespace/name". */
void wb_serve_remove(struct wb_serve *s, const char *name, const char *why);
/** wb_serve_status - the status of an object.  New reference; NULL = no such object. */
json_t *wb_serve_status(const struct wb_serve *s, const char *name);
/** wb_serve_spec - the spec that is served, defaults filled in.  New reference; NULL = no such
 *  object, or no memory. */
json_t *wb_serve_spec(const struct wb_serve *s, const char *name);
/** wb_serve_looks - a number that rises when the status may have changed; 0 = no such object. */
uint64_t wb_serve_looks(const struct wb_serve *s, const char *name);
/** wb_serve_authenticated - the answer about @peer, which may be gone: @rc 0 lets it in, else it is
 * refused with the sentence, and may come again.  @who: whose token it is, NULL when that is not
 * known (-EACCES) or cannot be found out now (-EAGAIN).  Only objects of its namespace report a
 * refusal; a refusal that no object reports is counted, and logged at a bounded rate. */
void wb_serve_authenticated(struct wb_serve *s, uint32_t peer, const struct wb_serve_who *who,
	int rc, const char *sentence);
/** wb_serve_reader - the answer to question @number of @peer, which may be gone: @rc 0; -EACCES:
 * the token is not valid; -EPERM: its owner may not read; else it could not be found out. */
void wb_serve_reader(
	struct wb_serve *s, uint32_t peer, uint64_t number, int rc, const char *sentence);
/** wb_serve_let_go - close the connections of an agent of an object: its pod is gone. */
void wb_serve_let_go(struct wb_serve *s, const char *object, const char *agent, const char *why);
/** wb_serve_pod - a pod of @object ("namespace/name") came or changed.  Unknown objects are
 * ignored: call it again when they come. */
void wb_serve_pod(struct wb_serve *s, const char *object, const struct wb_serve_pod *p);
/** wb_serve_pod_gone - the pod was deleted, has ended, or belongs to another object now. */
void wb_serve_pod_gone(struct wb_serve *s, const char *object, const char *name);
/** wb_serve_redirect - redirect agents to the leader at @host; "" = we serve them.  Copied. */
void wb_serve_redirect(struct wb_serve *s, const char *host, uint16_t port);
/** wb_serve_idle - turn all agents away with this sentence; "" = stop doing so.  Copied. */
void wb_serve_idle(struct wb_serve *s, const char *sentence);
/** wb_serve_leader - host of the leader to which agents are redirected; "" = we lead.  Borrowed. */
const char *wb_serve_leader(const struct wb_serve *s);
/** wb_serve_n_agent - number of agents connected now. */
size_t wb_serve_n_agent(const struct wb_serve *s);

/**
 * wb_serve_object - one object as JSON: apiVersion, kind, metadata, spec, status, and under
 * "detail" what the CRD has no place for (bytes by stage, times with their uncertainty)
 * @name:	"namespace/name" or "name"; NULL = the only one
 * New reference; NULL when there is no such object, or no memory.
 */
json_t *wb_serve_object(const struct wb_serve *s, const char *name);
/** wb_serve_list - all objects as a WeightTransferList.  New reference. */
json_t *wb_serve_list(const struct wb_serve *s);
/** wb_serve_plan - active plan of an object, packed (planner/parts.h), lent; false: none known
 * here.
 */
bool wb_serve_plan(struct wb_serve *s, const char *name, struct wb_lent *out);
/** wb_serve_manifest - encoded manifest of that plan, lent; false: none known here. */
bool wb_serve_manifest(struct wb_serve *s, const char *name, struct wb_lent *out);
/**
 * wb_serve_lend_page - lend a page: @body, charged to object @name (or "" for none) until it is
 * given back
 * @body:	taken, and empty afterwards; also on failure
 * 0; -EDQUOT: too many bytes of pages of this object, of its namespace or of all are being read
 * already; or another error.  With a sentence.
 */
int wb_serve_lend_page(struct wb_serve *s, const char *name, struct wb_buf *body,
	struct wb_lent *out, struct wb_err *err);
/** wb_serve_trace - append the last transfers of an object as trace events (JSON object format,
 *  opens in Perfetto); false = no such object. */
bool wb_serve_trace(const struct wb_serve *s, const char *name, struct wb_buf *out);
/** wb_serve_metrics - append Prometheus text. */
void wb_serve_metrics(struct wb_serve *s, struct wb_buf *out);
struct wb_metrics;
/** wb_serve_own_metrics - serve's metrics, to which main adds figures: see the enum in
 * metrics.h. */
struct wb_metrics *wb_serve_own_metrics(struct wb_serve *s);

#endif
