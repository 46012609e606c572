/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_SERVE_SERVE_H
#define WB_SERVE_SERVE_H
/*
 * The operator towards its agents.
 *
 * Events in: a channel that was accepted, its frames, time.  Actions out: frames, and work for a
 * thread.  Everything between is reconcile's.  What agents upload is kept by digest for as long
 * as an object knows it; everything else can be built again from agents that reconnect.
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
	const char *about; /* agent, pod or engine that it is about; "" = the object as a whole */
	const char *pod, *pod_uid; /* that has proved to be the cause, by its token; or NULL */
};

/* One object of a cluster. */
struct wb_serve_object_desc {
	const struct wb_spec *spec;
	uint64_t uid; /* not 0; another uid is another object */
	uint64_t term_min; /* our term is at least this */
	const json_t *stored; /* status that an earlier leader wrote, or NULL; borrowed */
	bool has_pods; /* wb_serve_pod() tells of all there are */
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
	/* Call wb_serve_tick() at this time (UINT64_MAX = never); replaces what was asked before.
	 */
	void (*arm)(void *ctx, uint64_t at_ns);
	/* Optional: find out whether the claim holds, then wb_serve_authenticated(), later and not
	 * from in here. */
	void (*authenticate)(void *ctx, uint32_t peer, const struct wb_serve_claim *c);
	/* Optional: that peer is gone: its claim need not be looked at any more. */
	void (*unclaim)(void *ctx, uint32_t peer);
	/* Optional: find out whether the owner of @token, which is secret, may read agents'
	 * metrics, then wb_serve_reader(), also from in here.  @ns: of the agent that asks; "" =
	 * not proved. */
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
	unsigned n_series; /* objects that may have metrics by their name: half of it, those of one
			      namespace; the others share series "other" */
	const struct wb_budget_limits *limits; /* NULL = those of a large machine */
};

/** wb_serve_create - 0, -EINVAL, -ENOMEM or the random source's error. */
int wb_serve_create(const struct wb_serve_opts *o, const struct wb_serve_env *env,
	struct wb_serve **out, struct wb_err *err);
/** wb_serve_destroy - closes what is open, and frees; a running job ends by itself.  NULL is
 *  allowed.  Channels' last callbacks may come later and do no harm. */
void wb_serve_destroy(struct wb_serve *s);

/** wb_serve_accept - a new channel; serve binds its callbacks. */
void wb_serve_accept(struct wb_serve *s, struct wb_chan *ch);
/** wb_serve_refused - a connection that got no channel (wrong key ...), for log and metrics. */
void wb_serve_refused(struct wb_serve *s, const char *peer, const struct wb_err *why);
/** wb_serve_tick - time has passed: call it when env.arm() asked for it; it asks again. */
void wb_serve_tick(struct wb_serve *s);
/** wb_serve_drain - tell agents that this operator leaves, and close all channels. */
void wb_serve_drain(struct wb_serve *s, const char *why);
/** wb_serve_update - the same objects, described anew.  0; -EINVAL when an object is new or gone
 *  (that needs a restart) or a field may not change; then nothing has changed.  -ENOMEM. */
int wb_serve_update(struct wb_serve *s, const struct wb_spec *spec, size_t n, struct wb_err *err);
/**
 * wb_serve_put - an object came or changed
 * Agents of an object with another uid are let go and come back.  Only where serve was created
 * without objects.  0; -EINVAL when a field may not change; -EDQUOT when its namespace, or all,
 * have as many as the budget allows; -ENOMEM.
 */
int wb_serve_put(struct wb_serve *s, const struct wb_serve_object_desc *d, struct wb_err *err);
/** wb_serve_has_room - the budget allows one more object of that namespace.  @name:
 *  "namespace/name". */
bool wb_serve_has_room(const struct wb_serve *s, const char *name);
/** wb_serve_remove - the object is served no more; its agents are let go with the sentence @why.
 *  @name: "namespace/name". */
void wb_serve_remove(struct wb_serve *s, const char *name, const char *why);
/** wb_serve_status - the status of an object.  New reference; NULL = no such object. */
json_t *wb_serve_status(const struct wb_serve *s, const char *name);
/** wb_serve_spec - the spec that is served, defaults filled in.  New reference; NULL = no such
 *  object, or no memory. */
json_t *wb_serve_spec(const struct wb_serve *s, const char *name);
/** wb_serve_looks - rises when that status may have changed; 0 = no such object. */
uint64_t wb_serve_looks(const struct wb_serve *s, const char *name);
/** wb_serve_authenticated - the answer about @peer, which may be gone: 0 lets it in, else it is
 *  turned away with the sentence, and may come again.  @who: whose token it is, NULL when that is
 * not known (-EACCES) or cannot be found out now (-EAGAIN).  Only objects of its namespace speak of
 * a refusal; one that no object speaks of is counted, and logged at a bounded rate. */
void wb_serve_authenticated(struct wb_serve *s, uint32_t peer, const struct wb_serve_who *who,
	int rc, const char *sentence);
/** wb_serve_reader - the answer to question @number of @peer, which may be gone: 0; -EACCES: it is
 *  nobody's token; -EPERM: its owner may not; else it could not be found out. */
void wb_serve_reader(
	struct wb_serve *s, uint32_t peer, uint64_t number, int rc, const char *sentence);
/** wb_serve_let_go - close the connections of an agent of an object: its pod is gone. */
void wb_serve_let_go(struct wb_serve *s, const char *object, const char *agent, const char *why);
/** wb_serve_pod - a pod of @object ("namespace/name") came or changed.  Unknown objects are
 *  ignored: tell again when they come. */
void wb_serve_pod(struct wb_serve *s, const char *object, const struct wb_serve_pod *p);
/** wb_serve_pod_gone - it was deleted, has ended, or is of another object now. */
void wb_serve_pod_gone(struct wb_serve *s, const char *object, const char *name);
/** wb_serve_redirect - send agents to the leader at @host; "" = we serve them.  Copied. */
void wb_serve_redirect(struct wb_serve *s, const char *host, uint16_t port);
/** wb_serve_idle - turn all agents away with this sentence; "" = not any more.  Copied. */
void wb_serve_idle(struct wb_serve *s, const char *sentence);
/** wb_serve_leader - host of the leader that agents are sent to, "" = we are it.  Borrowed. */
const char *wb_serve_leader(const struct wb_serve *s);
/** wb_serve_n_agent - agents connected now. */
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
 * wb_serve_lend_page - @body, charged to @name (of an object, or "") until it is given back
 * @body:	taken, empty after; on failure too
 * 0; -EDQUOT: so much of that object's, its namespace's or all pages is being read already; another
 * error.  With a sentence.
 */
int wb_serve_lend_page(struct wb_serve *s, const char *name, struct wb_buf *body,
	struct wb_lent *out, struct wb_err *err);
/** wb_serve_trace - append the last transfers of an object as trace events (JSON object format,
 *  opens in Perfetto); false = no such object. */
bool wb_serve_trace(const struct wb_serve *s, const char *name, struct wb_buf *out);
/** wb_serve_metrics - append Prometheus text. */
void wb_serve_metrics(struct wb_serve *s, struct wb_buf *out);
struct wb_metrics;
/** wb_serve_own_metrics - for figures that main adds: see the enum in metrics.h. */
struct wb_metrics *wb_serve_own_metrics(struct wb_serve *s);

#endif
