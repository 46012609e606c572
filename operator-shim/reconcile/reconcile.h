/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_RECONCILE_RECONCILE_H
#define WB_RECONCILE_RECONCILE_H
/*
 * The decisions of the operator about one WeightTransfer.
 *
 * The caller reports what it sees; each report returns 0 or -ENOMEM and leaves actions, which the
 * caller takes with wb_reconcile_take() and carries out in order.  Nothing here waits: when
 * wb_reconcile_due_ns() has come, the caller reports a tick.
 *
 * If there are pods, a worker's engine is the value of its pod's label, followed by /NAME when the
 * app names one, and its role must be that of the pod's role label.
 *
 * Membership: all trainer workers of the spec and every complete engine (at least one, or as many
 * as rollout.engines says).  It is stable for a moment before it is planned.  A plan is sent to all
 * agents with members, and activated when all of them are READY.  Another membership gives another
 * epoch, after the running transfer has ended.  While trainer workers are gone, an engine that
 * joins needs them only for the geometry of the classes: it is planned with the trainer workers of
 * the previous plan as absent members, and fed by an engine that holds the version; the next plan
 * has the new trainers.  Agents that come back unchanged to a new operator with a running plan keep
 * it (adoption).  All of them are READY for a plan that one of them runs, so a plan of which only
 * some have heard ACTIVATE is kept as well, and activated at the others.  Until all members of the
 * plan are back, nothing is planned anew for as long as agents may take to find a new operator
 * (wb_beat_return_ns()), or until the agents of all pods are here.
 *
 * A transfer is believed to run from the moment when its coordinator reports that it has begun, by
 * a plan of this object: one that agents were sent, or run.  (Agents of an object that was deleted
 * and made again continue with the plan of the previous object, and may report about it.)  The
 * belief ends when the coordinator reports the end; when all engines have reported it and the
 * coordinator's report does not follow; when the coordinator is gone; or at the deadlines of spec.
 * A plan, too, waits for transfers no longer than these deadlines, however many follow each other.
 *
 * Invariants: epochs only rise; a term is above every term heard; status.transfer never falls; a
 * status field changes only on a report.
 * Threads: one at a time.  Layer: operator-shim/reconcile (over base, proto, planner, spec).
 */
#include "base/hash.h"
#include "operator-shim/spec/spec.h"
#include "planner/plan.h"
#include "proto/words.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WB_RECONCILE_NAME_MAX 253 /* of an agent */
#define WB_RECONCILE_ENGINE_MAX 127 /* length of an engine's name */
/* Of a pod's name, which is its agent's name; longer ones are cut */
#define WB_RECONCILE_AGENT_MAX 63
#define WB_RECONCILE_WORKER_MAX 191 /* length of a worker's name */
#define WB_RECONCILE_SENTENCE_MAX 1024
#define WB_RECONCILE_AGENTS_MAX 16384
#define WB_RECONCILE_RAILS_MAX 16 /* of an agent */
#define WB_RECONCILE_NONE UINT32_MAX

struct wb_reconcile; /* opaque */

struct wb_reconcile_now {
	uint64_t ns; /* monotonic */
	uint64_t wall_ns; /* since the epoch; for the times in status only */
};

struct wb_reconcile_epoch {
	uint64_t term, number; /* 0, 0 = none */
};

struct wb_reconcile_opts {
	uint64_t operator_id; /* random, of this run of the operator; not 0 */
	uint64_t settle_ns; /* membership must be unchanged for this long before it is planned */
	uint64_t term_min; /* our term is at least this */
	bool has_pods; /* wb_reconcile_pod() reports all pods that may take part */
};

/* ---- reports ---- */

struct wb_reconcile_held {
	uint64_t transfer; /* committed; 0 = none */
	int64_t version;
	bool is_torn;
};

struct wb_reconcile_worker {
	uint32_t id; /* the agent's; never used twice in one run of the agent */
	const char *name; /* as its agent calls it; NULL = made of agent and id; borrowed */
	enum wb_role role;
	const char *engine; /* rollouts: as the app says, may be "" with pods; borrowed */
	int64_t rank; /* hint; -1 = none */
	struct wb_digest map, manifest;
	struct wb_reconcile_held held;
	uint32_t plan_index; /* worker number in the agent's running plan, WB_RECONCILE_NONE */
	uint32_t waiting_index; /* the same in its waiting plan */
	uint32_t rails; /* rails of its agent that carry its bytes, one bit each; 0 = all */
};

/* A plan as an agent knows it; epoch.term 0 = none. */
struct wb_reconcile_known {
	struct wb_reconcile_epoch epoch;
	struct wb_digest plan;
	uint32_t n_worker; /* workers of all agents together */
};

enum { WB_RECONCILE_IPV4 = 1, WB_RECONCILE_IPV6 = 2 };

struct wb_reconcile_agent {
	uint32_t id; /* the caller's number of this connection; never used twice */
	/* Borrowed for the call.  Only one agent of a name is let in at a time: what another
	 * instance of this name had is gone. */
	const char *name;
	/* Equal for agents that can reach each other's memory; NULL, "" = it shares memory with
	 * none */
	const char *memory;
	/* Rate at which each of its rails copies in this memory; 0 = not known */
	uint64_t memory_bytes_per_s;
	uint64_t instance; /* random, of this run of the agent */
	uint64_t heard_term, heard_operator; /* the highest term it ever heard, and from whom */
	struct wb_reconcile_known running; /* its active plan */
	struct wb_reconcile_known
		waiting; /* a plan that it was READY for, and that is not active there */
	/* Bytes per second of each of its rails, 0 = unknown; borrowed for the call.  Without
	 * rails, rail_bytes_per_s is for all together. */
	const uint64_t *rail;
	const uint64_t
		*nic; /* n_rail interface numbers, one for each rate; 0 = none; NULL: not told */
	uint32_t n_rail; /* at most WB_RECONCILE_RAILS_MAX */
	uint64_t rail_bytes_per_s;
	uint64_t transfer_seen; /* greatest transfer that it ever took part in */
	bool needs_all; /* it takes no plan with absent members (protocol version 1) */
	uint32_t via; /* WB_VIA_* (spec/transport.h): how it can move weights; 0 = not known */
	uint32_t families; /* WB_RECONCILE_IPV4 | _IPV6: families of its addresses; 0 = not known */
	const struct wb_reconcile_worker *worker; /* attached now; borrowed for the call */
	size_t n_worker;
};

struct wb_reconcile_pod {
	const char *name, *role, *engine; /* values of its labels, NULL = none; borrowed */
	const char *unscheduled; /* why it has no node, as its scheduler says; NULL = it has one */
	bool has_sidecar; /* it has an agent */
};

/* What is refused: an agent for its token, version or name, or a worker for its library, role or
 * engine. */
enum wb_reconcile_refusal {
	WB_REFUSED_TOKEN,
	WB_REFUSED_VERSION,
	WB_REFUSED_NAME, /* an agent that is alive has this name */
	WB_REFUSED_LIBRARY,
	WB_REFUSED_BUDGET, /* a budget of the operator's memory is used up */
	WB_REFUSED_ROLE,
	WB_REFUSED_ENGINE,
};

struct wb_reconcile_planned {
	uint32_t job; /* of the action */
	int rc; /* 0 or the planner's code */
	const char *sentence; /* when rc < 0; borrowed for the call */
	struct wb_digest plan;
	uint32_t n_tensor, rounds;
	uint64_t model_bytes, delivered_bytes;
	uint64_t node_bound_ns, worker_bound_ns; /* 0 = unknown */
	const char *bound; /* what sets the bound, or NULL */
	uint64_t planning_ns;
};

struct wb_reconcile_engine_report {
	const char *engine;
	enum wb_engine_state state; /* one that ends a transfer */
	uint64_t transfer; /* the transfer this is about */
	int64_t version;
	bool is_feed; /* another engine brought the version, outside a transfer */
	struct wb_reconcile_epoch epoch; /* of the plan that was used; term 0 = not known */
	/* Or NULL.  transport: names, separated by commas.  fallback: what is not reached by the
	 * best one, and why. */
	const char *transport, *fallback;
	const char *memory_path; /* or NULL */
	const char *reason, *message; /* or NULL */
};

struct wb_reconcile_culprit {
	const char *engine, *pod, *rail, *phase; /* NULL = not known */
	uint32_t worker; /* WB_RECONCILE_NONE = not known */
};

struct wb_reconcile_transfer_report {
	/* The agent that reports this, and which run of it: for a begin, the coordinator. */
	const char *agent; /* NULL = not known */
	uint64_t instance;
	struct wb_reconcile_epoch epoch; /* of the plan that the transfer uses */
	uint64_t transfer;
	int64_t version;
	bool is_end; /* else it has just begun */
	enum wb_result result;
	uint64_t start_wall_ns, end_wall_ns;
	uint64_t ewtt_ns, stall_ns; /* end-to-end time; mean stall of a worker */
	uint64_t network_bytes, delivered_bytes;
	struct wb_reconcile_culprit culprit;
	const char *message; /* or NULL */
};

/* ---- actions ---- */

enum wb_reconcile_do {
	WB_DO_NEED_BLOB, /* ask agent for the map or manifest with this digest */
	WB_DO_PLAN, /* plan wb_reconcile_members() and report it with this job number */
	WB_DO_SEND_PLAN, /* send epoch, members and the plan with this digest to agent */
	WB_DO_ACTIVATE, /* tell agent that epoch is active, with wb_reconcile_feeds() */
	WB_DO_REJECT, /* refuse worker */
	/* Tell agent's waiting workers: code 0 = how far planning is, else why there is no plan */
	WB_DO_NOTICE,
	WB_DO_EVENT, /* for the log and for Kubernetes events */
};

struct wb_reconcile_action {
	enum wb_reconcile_do what;
	uint32_t agent, worker; /* ids */
	uint32_t job;
	bool is_manifest; /* NEED_BLOB */
	struct wb_digest digest;
	struct wb_reconcile_epoch epoch;
	int code;
	const char *reason; /* EVENT, REJECT: one word for the reason, or NULL; static */
	char about[WB_RECONCILE_ENGINE_MAX + 1]; /* EVENT: the agent or engine, "" = the object */
	/* EVENT about the end of a transfer: one word for how it ended; static */
	const char *result;
	char *sentence; /* owned by the action; may be NULL */
};

/* One worker of a membership, in plan order: index i is worker number i of the plan. */
struct wb_reconcile_member {
	uint32_t agent, worker; /* ids */
	uint64_t instance; /* of the agent */
	uint32_t plan_index, waiting_index; /* as the agent reported them */
	char engine[WB_RECONCILE_ENGINE_MAX + 1];
	char agent_name[WB_RECONCILE_AGENT_MAX + 1]; /* cut */
	int64_t rank;
	struct wb_digest map, manifest;
	bool is_absent; /* a trainer worker of the plan before that is gone: agent is
			 * WB_RECONCILE_NONE
			 */
	uint32_t rails; /* rails of its agent that carry its bytes, one bit each; 0 = all */
	struct wb_plan_worker plan; /* layout: position in wb_reconcile_layouts() */
};

struct wb_reconcile_feed {
	char engine[WB_RECONCILE_ENGINE_MAX + 1], source[WB_RECONCILE_ENGINE_MAX + 1];
	uint64_t transfer;
	int64_t version;
	uint32_t attempt; /* number of the try for this version; from 1 */
	/* Number of the try among all, also those of earlier operators: another number is another
	 * try */
	uint32_t serial;
};

/** wb_reconcile_create - state of one object; @spec is copied.  0, -EINVAL, -ENOMEM. */
int wb_reconcile_create(
	const struct wb_reconcile_opts *o, const struct wb_spec *spec, struct wb_reconcile **out);
/** wb_reconcile_destroy - free it, with the actions that were not taken.  NULL is allowed. */
void wb_reconcile_destroy(struct wb_reconcile *r);

/**
 * wb_reconcile_restore - continue from the status that an earlier leader wrote; call it right after
 * creation
 * @status:	borrowed, untrusted; what is not understood is left out
 * Version, transfer and the last transfers are kept, and our term is above that of the stored plan.
 * wb_reconcile_status() gives the stored status until a plan is active again, or agents have had
 * time to come back (wb_beat_return_ns(): after that, silence is evidence).  0 or -ENOMEM.
 */
int wb_reconcile_restore(struct wb_reconcile *r, struct wb_reconcile_now now, const json_t *status);

/** wb_reconcile_hear - an agent has heard of @term from operator @from; ours must be above.  A term
 * that is too large for a status is a lie, and ignored. */
void wb_reconcile_hear(struct wb_reconcile *r, uint64_t term, uint64_t from);

/* Reports.  Each returns 0, or -ENOMEM with the state still consistent (report a tick later).
 * An unknown id is ignored: its owner went in the meantime. */
int wb_reconcile_agent_up(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_agent *agent);
/** @is_orderly: the agent said goodbye; else it may come back within heartbeatTimeoutSeconds. */
int wb_reconcile_agent_down(
	struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent, bool is_orderly);
/** All workers of an agent that is up; replaces the list before. */
int wb_reconcile_workers(struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent,
	const struct wb_reconcile_worker *worker, size_t n);
/** wb_reconcile_rails - @sentence: a port that this agent's rails use is down; "": none is. */
int wb_reconcile_rails(
	struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent, const char *sentence);
/** A map or manifest arrived whole (rc 0) or is not usable (@sentence). */
int wb_reconcile_blob(struct wb_reconcile *r, struct wb_reconcile_now now, struct wb_digest digest,
	int rc, const char *sentence);
/** wb_reconcile_planned - the job of a WB_DO_PLAN has ended; the result of a job that is not wanted
 * any more is ignored. */
int wb_reconcile_planned(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_reconcile_planned *p);
/** @rc: 0, or why the agent cannot take the plan. */
int wb_reconcile_ready(struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent,
	struct wb_reconcile_epoch epoch, int rc, const char *sentence);
/** wb_reconcile_engine - what an agent reports about an engine; strings are copied. */
int wb_reconcile_engine(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_engine_report *e);
/** wb_reconcile_transfer - a transfer has begun or ended, as its coordinator reports; strings are
 * copied. */
int wb_reconcile_transfer(struct wb_reconcile *r, struct wb_reconcile_now now,
	const struct wb_reconcile_transfer_report *t);
/** wb_reconcile_tick - time has passed: call it at wb_reconcile_due_ns(). */
int wb_reconcile_tick(struct wb_reconcile *r, struct wb_reconcile_now now);
/** A pod with this object's label, that has not ended, has appeared or changed. */
int wb_reconcile_pod(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_reconcile_pod *p);
/** wb_reconcile_pod_gone - the pod of this name was deleted or has ended: its agent does not come
 *  back. */
int wb_reconcile_pod_gone(struct wb_reconcile *r, struct wb_reconcile_now now, const char *name);
/** An agent that wants to serve this object was refused, or a worker of it for its library.
 * @sentence "": it is not refused for its name or library any more. */
int wb_reconcile_refused(struct wb_reconcile *r, struct wb_reconcile_now now,
	enum wb_reconcile_refusal what, const char *agent, const char *sentence);
/** Another spec for the same object (already checked with wb_spec_check_update()). */
int wb_reconcile_spec(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_spec *spec);

/** wb_reconcile_take - take the next action; false when there is none.  Release its sentence with
 * wb_free(). */
bool wb_reconcile_take(struct wb_reconcile *r, struct wb_reconcile_action *out);
/** wb_reconcile_due_ns - when a tick is due, UINT64_MAX = never. */
uint64_t wb_reconcile_due_ns(const struct wb_reconcile *r);
/** wb_reconcile_term - the term of this operator's plans; above all terms that it has heard of. */
uint64_t wb_reconcile_term(const struct wb_reconcile *r);

/** wb_reconcile_members - the membership that is being planned or distributed, else the active one.
 * Valid until the next report. */
const struct wb_reconcile_member *wb_reconcile_members(const struct wb_reconcile *r, size_t *n);
/** wb_reconcile_active_members - members of the active plan; none if there is no plan.  Valid until
 * the next report. */
const struct wb_reconcile_member *wb_reconcile_active_members(
	const struct wb_reconcile *r, size_t *n);
/** wb_reconcile_forget - forget that the bytes of this map or manifest are here, since the caller
 * wants to free them; false: a worker or a plan needs them. */
bool wb_reconcile_forget(struct wb_reconcile *r, struct wb_digest digest);
/** wb_reconcile_layouts - distinct map digests of the membership of wb_reconcile_members(). */
const struct wb_digest *wb_reconcile_layouts(const struct wb_reconcile *r, size_t *n);
/** wb_reconcile_feeds - engines to be brought to the current version by another engine. */
const struct wb_reconcile_feed *wb_reconcile_feeds(const struct wb_reconcile *r, size_t *n);
/** wb_reconcile_active - epoch and digest of the active plan (term 0 = none). */
struct wb_reconcile_epoch wb_reconcile_active(
	const struct wb_reconcile *r, struct wb_digest *digest_out);
/** wb_reconcile_transfer_seen - greatest transfer number that any agent reported. */
uint64_t wb_reconcile_transfer_seen(const struct wb_reconcile *r);

/** wb_reconcile_looks - rises when the status may have changed. */
uint64_t wb_reconcile_looks(const struct wb_reconcile *r);
/** wb_reconcile_status - the CRD's status object.  New reference; NULL = no memory. */
json_t *wb_reconcile_status(const struct wb_reconcile *r);

#endif
