/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_RECONCILE_INTERNAL_H
#define WB_RECONCILE_INTERNAL_H
/*
 * State of one object, shared by the files of this folder.
 */
#include "base/base.h"
#include "base/clock.h"
#include "operator-shim/reconcile/reconcile.h"

/* Greatest number in the CRD: exact in every JSON parser */
#define WB_RECONCILE_NUMBER_MAX 9007199254740991ll

struct agent {
	uint32_t id;
	char name[WB_RECONCILE_NAME_MAX + 1];
	uint64_t instance;
	bool is_up;
	uint64_t lost_at_ns; /* while it is not up: when it will count as gone */
	/* What this connection was told and has said. */
	struct wb_reconcile_known running, waiting;
	struct wb_reconcile_epoch sent, ready, told;
	uint32_t told_gen, notice_gen;
	bool is_in_active, is_in_next; /* has members in that plan */
	bool needs_all; /* as in struct wb_reconcile_agent */
	bool has_no_pod; /* its pod was deleted or has ended: once it is not connected it is gone */
	uint32_t via; /* WB_VIA_* */
	uint32_t families;
	char reduced[301]; /* a sentence about a port of it that is down; "" = none is */
	uint64_t rail_bytes_per_s, memory_bytes_per_s;
	uint64_t memory; /* number of the memory that it shares with others; 0 = none */
	/* Bytes per second of each rail; n_rail 0: it did not say */
	uint64_t rail[WB_RECONCILE_RAILS_MAX];
	/* Number of each rail's interface; 0 = none that others could use */
	uint64_t nic[WB_RECONCILE_RAILS_MAX];
	uint32_t n_rail;
	/* Scratch of choose.c: */
	uint32_t n_pick, n_pick_of[WB_RECONCILE_RAILS_MAX]; /* of each rail */
	/* Picks of this rail, and of others' rails on its interface */
	uint32_t n_user_of[WB_RECONCILE_RAILS_MAX];
	uint32_t domain, node_number;
};

struct worker {
	uint64_t instance; /* of its agent */
	uint32_t id;
	char name[WB_RECONCILE_WORKER_MAX + 1];
	enum wb_role role;
	char engine[WB_RECONCILE_ENGINE_MAX + 1];
	int64_t rank;
	struct wb_digest map, manifest;
	struct wb_reconcile_held held;
	uint32_t plan_index, waiting_index;
	uint32_t rails; /* one bit for each rail; 0 = all */
	struct wb_reconcile_epoch
		joined; /* the epoch that was active when it came: it takes part in later ones */
	bool is_refused; /* it does not take part */
	/* This one does not take part yet: its place is taken by a worker whose agent is not
	 * connected, and which may come back or be given up. */
	bool waits_for_place;
};

struct engine {
	char name[WB_RECONCILE_ENGINE_MAX + 1];
	enum wb_engine_state state;
	char transport[65], memory_path[65], reason[129];
	char fallback[301]; /* why the transport is not a better one; "" = there is no better one */
	char message[WB_RECONCILE_SENTENCE_MAX];
	/* Counted again from the workers at each wb__reconcile_look(). */
	uint32_t n_worker, n_up;
	struct wb_reconcile_held held;
	bool is_mixed; /* its workers hold different transfers */
	uint32_t only; /* WB_RECONCILE_IPV4, _IPV6: each is the only family of some agent of it */
	uint64_t ended_transfer; /* the last transfer whose end it reported */
	/* How the transfer that is believed to run has ended there, as the engine itself says; else
	 * IDLE. */
	enum wb_engine_state current_end;
	/* The last transfer that it dropped in favour of the next one, and until when the next one
	 * is waited for. */
	uint64_t superseded, next_comes_ns;
	/* How another engine feeds it. */
	struct wb_reconcile_feed feed; /* transfer 0 = none */
	uint64_t feed_until_ns; /* 0 = not running */
	uint64_t feed_next_ns;
	/* The transfer about which an event said that no engine in reach has it */
	uint64_t apart_transfer;
};

struct pod {
	char name[WB_RECONCILE_AGENT_MAX + 1], role[64], engine[64];
	char unscheduled[201]; /* "" = it is scheduled */
	bool has_sidecar;
};

/* Why a worker cannot take part. */
enum member_fault { FAULT_NONE, FAULT_ROLE, FAULT_ENGINE, FAULT_COUNT };

struct refusal {
	enum wb_reconcile_refusal what;
	uint64_t until_ns; /* 0 = none */
	char agent[WB_RECONCILE_AGENT_MAX + 1], text[WB_RECONCILE_SENTENCE_MAX];
};

struct blob {
	struct wb_digest digest;
	bool is_manifest, is_here;
	uint32_t asked; /* id of the agent that was asked for it, or WB_RECONCILE_NONE */
	bool is_wanted;
};

enum stage {
	STAGE_NONE,
	STAGE_SETTLING,
	STAGE_BLOBS,
	STAGE_COMPUTING,
	STAGE_SENDING,
	STAGE_FAILED, /* until the membership or the spec changes */
};

struct membership {
	struct wb_reconcile_member *m; /* owned */
	size_t n, cap;
	struct wb_digest *layout; /* owned */
	size_t n_layout, layout_cap;
	uint32_t n_engine, n_domain, n_absent;
	struct wb_digest print; /* digest of everything above and of the spec */
};

struct routing {
	struct membership who;
	struct wb_reconcile_epoch epoch; /* 0 = none */
	struct wb_digest digest;
	struct wb_reconcile_planned info;
	char bound[129];
	uint64_t computed_wall_ns;
	bool has_info;
};

enum cond_type { COND_READY, COND_MEMBERS, COND_PLANNED, COND_UP_TO_DATE, COND_DEGRADED, CONDS };
enum cond_status { COND_UNKNOWN, COND_TRUE, COND_FALSE };

struct cond {
	enum cond_status status;
	uint64_t since_wall_ns;
	const char *reason; /* static */
	char message[WB_RECONCILE_SENTENCE_MAX];
};

#define RECENT_MAX 10

/* Time for agents to end by themselves a transfer that nobody leads any more. */
#define ALONE_NS (5 * WB_NS_PER_S)

struct transfer {
	struct wb_reconcile_transfer_report t; /* pointers inside are not used */
	bool is_by_engines; /* only engines, not the coordinator, have said how it ended */
	char engine[WB_RECONCILE_ENGINE_MAX + 1], pod[WB_RECONCILE_NAME_MAX + 1], rail[65],
		phase[65];
	char message[WB_RECONCILE_SENTENCE_MAX];
};

#define HINTS 2048

struct wb_reconcile {
	struct wb_reconcile_opts o;
	struct wb_spec spec;
	uint64_t term, last_number;
	uint64_t transfer_seen;
	struct wb_reconcile_held top; /* greatest transfer any engine committed */

	struct agent *agent;
	size_t n_agent, agent_cap;
	/* HINTS entries, owned: where an instance was last found, indexed by its hash */
	uint16_t *hint;
	struct worker *worker;
	size_t n_worker, worker_cap;
	struct engine *engine; /* sorted by name */
	size_t n_engine, engine_cap;
	struct pod *pod; /* sorted by name */
	size_t n_pod, pod_cap;
	struct refusal refusal; /* the last refusal */
	struct blob *blob;
	size_t n_blob, blob_cap;

	struct routing active, next;
	enum stage stage;
	uint64_t stage_due_ns;
	uint32_t job;
	bool is_checking; /* the job plans an adopted epoch again */
	const char
		*fail_reason; /* static; why the last plan failed, until there is one; NULL = not */
	char fail[WB_RECONCILE_SENTENCE_MAX];
	uint64_t retry_ns; /* when to try again, if it failed only for lack of room; 0 = not */
	uint64_t wait_since_ns; /* first attach without a plan, 0 = not waiting */
	bool is_late; /* the time of planDeadlineSeconds is over */
	/* Since when members of a running plan have been waited for; 0 = not waiting */
	uint64_t adopt_since_ns;

	struct membership wanted;
	bool is_dirty; /* workers or agents changed: choose again */
	bool is_complete; /* the wanted members are connected */
	/* The wanted members are all except trainers, which are not needed to feed an engine that
	 * joins */
	bool is_interim;
	uint32_t n_trainer_up, n_engine_up;
	char waiting[WB_RECONCILE_SENTENCE_MAX]; /* who is missing; "" = nobody */
	char aside[WB_RECONCILE_SENTENCE_MAX]; /* incomplete engines, while others are complete */
	char refused[WB_RECONCILE_SENTENCE_MAX]; /* last refusal of a worker that is still there */

	uint32_t feed_gen, feed_serial;
	struct wb_reconcile_feed *feed; /* feeds that are running, for wb_reconcile_feeds() */
	size_t n_feed, feed_cap;

	struct transfer current; /* t.transfer 0 = none */
	uint64_t current_until_ns, current_coordinator; /* instance of an agent; 0 = not known */
	/* Since when a trainer's agent of the running plan has been gone; 0 = none is */
	uint64_t judge_lost_ns;
	/* When the coordinator is gone, or all engines have ended the transfer: the others still
	 * have until then. */
	uint64_t current_alone_ns;
	uint64_t held_since_ns; /* since when a plan has waited for transfers; 0 = none waits */
	char current_coordinator_name[WB_RECONCILE_NAME_MAX + 1];
	struct transfer recent[RECENT_MAX]; /* newest first */
	uint32_t n_recent;

	/* What an earlier leader wrote. */
	json_t *stored; /* shown while is_stored; its plan is shown until there is another */
	bool is_stored;
	uint64_t stored_until_ns;
	uint64_t looks;

	struct cond cond[CONDS];
	uint32_t notice_gen;
	int notice_code;
	char notice[WB_RECONCILE_SENTENCE_MAX];

	struct wb_reconcile_action *action; /* a ring would be better, but queues are short */
	size_t n_action, action_cap, action_at;
	uint64_t due_ns;
};

/* report.c */
/** wb__reconcile_end_transfer - note that a transfer has ended: as its coordinator says, or
 * (@is_by_engines) as only its engines say. */
int wb__reconcile_end_transfer(
	struct wb_reconcile *r, const struct wb_reconcile_transfer_report *t, bool is_by_engines);

/* current.c */
/** wb__reconcile_check_current - end a transfer whose coordinator is gone, or does not report it
 * any more: with what its engines say, else at its deadline. */
int wb__reconcile_check_current(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_transfer_ns - the longest that a transfer may take, by the spec. */
uint64_t wb__reconcile_transfer_ns(const struct wb_reconcile *r);
/* members.c */
/** wb__reconcile_agent_by_id - the agent of a connection that is up, or NULL.  Like the pointers
 * that the functions below return, it is borrowed until agents come or go. */
struct agent *wb__reconcile_agent_by_id(const struct wb_reconcile *r, uint32_t id);
/** wb__reconcile_agent_by_instance - the agent that runs as this instance, up or lost a short time
 * ago, or NULL.  Quick, since it is called for each worker at each look. */
struct agent *wb__reconcile_agent_by_instance(const struct wb_reconcile *r, uint64_t instance);
/** wb__reconcile_engine - the engine of this name, or NULL. */
struct engine *wb__reconcile_engine(const struct wb_reconcile *r, const char *name);
/** wb__reconcile_count_engines - count engines again from workers; makes missing ones. */
int wb__reconcile_count_engines(struct wb_reconcile *r);
/** wb__reconcile_expire_agents - drop agents that were lost for too long, or whose pod is gone,
 * with their workers; for the others, set when to look again. */
void wb__reconcile_expire_agents(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_judge_waiting - decide about workers that wait for a place: each gets it, is
 * refused, or continues to wait. */
int wb__reconcile_judge_waiting(struct wb_reconcile *r);
/** wb__reconcile_pod_is_gone - the pod of the agent of this name is gone, or
 * (wb__reconcile_has_pod_again) exists again; does nothing when there is no such agent. */
void wb__reconcile_pod_is_gone(struct wb_reconcile *r, const char *agent);
void wb__reconcile_has_pod_again(struct wb_reconcile *r, const char *agent);
/** wb__reconcile_drop_engines - forget engines without workers that are in no plan. */
void wb__reconcile_drop_engines(struct wb_reconcile *r);

/* pods.c */
/** wb__reconcile_place_worker - set the engine of @w from what pod and app say; returns FAULT_NONE,
 * or a fault with a sentence in @why. */
enum member_fault wb__reconcile_place_worker(const struct wb_reconcile *r, const struct agent *a,
	struct worker *w, const char *app_engine, char *why, size_t bytes);
/** wb__reconcile_note_fault - record the refusal of a worker; @fault: FAULT_ROLE or
 * FAULT_ENGINE. */
void wb__reconcile_note_fault(struct wb_reconcile *r, const struct agent *a,
	enum member_fault fault, struct wb_reconcile_now now, const char *sentence);
/** wb__reconcile_expire_refusal - forget the recorded refusal when its time is over, or when the
 * agent has been let in. */
void wb__reconcile_expire_refusal(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_without_sidecar - names of up to five pods without a sidecar; "" when all have
 * one.  Returns @out. */
const char *wb__reconcile_without_sidecar(const struct wb_reconcile *r, char *out, size_t bytes);
/** wb__reconcile_unscheduled - pods that have no node, and why; "" when all have one.  Returns
 * @out. */
const char *wb__reconcile_unscheduled(const struct wb_reconcile *r, char *out, size_t bytes);
/** wb__reconcile_all_pods_connected - there are pods, and the agent of each is connected, so no
 * other agent can come. */
bool wb__reconcile_all_pods_connected(const struct wb_reconcile *r);
/** wb__reconcile_members_reason - why members are missing: the worst reason that is known.  @bare,
 * @unscheduled: results of wb__reconcile_without_sidecar() and wb__reconcile_unscheduled(). */
const char *wb__reconcile_members_reason(
	const struct wb_reconcile *r, bool is_lost, const char *bare, const char *unscheduled);

/* transport.c */
/** wb__reconcile_transport_fits - true when every member can move weights as the spec asks; else
 * planning fails with a sentence. */
bool wb__reconcile_transport_fits(struct wb_reconcile *r, const struct membership *m);
/** wb__reconcile_transport_print - a number made of the parts of the spec on which
 * wb__reconcile_transport_fits() depends: another value means that planning is worth another
 * try. */
uint32_t wb__reconcile_transport_print(const struct wb_reconcile *r);
/** wb__reconcile_worse_transport - an engine is reached by a worse transport than was asked for, or
 *  than there is: the condition's reason, and a sentence in @text.  NULL: none is. */
const char *wb__reconcile_worse_transport(const struct wb_reconcile *r, char *text, size_t cap);

/* choose.c */
/** wb__reconcile_choose - write the wanted membership to @out; sets is_complete and waiting. */
int wb__reconcile_choose(struct wb_reconcile *r, struct membership *out);
/** wb__reconcile_membership_finish - free the lists; the struct is zeroed. */
void wb__reconcile_membership_finish(struct membership *m);
/** wb__reconcile_has_engine - a rollout worker of engine @name is in the membership. */
bool wb__reconcile_has_engine(const struct membership *m, const char *name);

/* absent.c */
/* Identifies a worker of an agent. */
struct member_key {
	uint64_t instance;
	uint32_t worker;
};
/** wb__reconcile_active_keys - keys of the active plan's members that are connected, sorted;
 * release with wb_free().  NULL = no memory. */
struct member_key *wb__reconcile_active_keys(const struct wb_reconcile *r, size_t *n);
/** wb__reconcile_has_key - true when the worker is among the @n sorted keys. */
bool wb__reconcile_has_key(
	const struct member_key *k, size_t n, uint64_t instance, uint32_t worker);
/** wb__reconcile_is_interim - engines that hold the current version can bring it to an engine that
 * is not in the plan, while trainers are gone.  @active: the keys of the active plan. */
bool wb__reconcile_is_interim(
	const struct wb_reconcile *r, const struct member_key *active, size_t n_active);

/* epoch.c */
/** wb__reconcile_advance - choose the membership anew when that is due, and take the next plan
 * through as many stages as it can go now.  0 or -ENOMEM. */
int wb__reconcile_advance(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_has_blob - all bytes of this map or manifest are here. */
bool wb__reconcile_has_blob(const struct wb_reconcile *r, struct wb_digest d);
/** wb__reconcile_tell_active - send ACTIVATE to agents that have not heard of the active epoch or
 * its feeds. */
int wb__reconcile_tell_active(struct wb_reconcile *r);
/** wb__reconcile_fail - there will be no plan: stage FAILED, and an event.  @reason: static;
 * @sentence is copied, and cut if it is too long. */
void wb__reconcile_fail(struct wb_reconcile *r, const char *reason, const char *sentence);
/** wb__reconcile_retry_later - if planning failed for lack of room, let it begin again once
 * retry_ns has come, when there may be room. */
void wb__reconcile_retry_later(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_retry - let planning begin again, since the reason why the last plan failed may
 * not hold any more. */
void wb__reconcile_retry(struct wb_reconcile *r);

/* feed.c */
/** wb__reconcile_feed - give engines that lack the current version a source, end feeds that failed
 * or took too long, and list the feeds that agents are to know.  None begins while a transfer or a
 * plan is under way.  0 or -ENOMEM. */
int wb__reconcile_feed(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_is_source - the engine holds the current version and is in the active plan. */
bool wb__reconcile_is_source(const struct wb_reconcile *r, const struct engine *e);
/** wb__reconcile_stop_feeds - forget all feeds under way: what they report belongs to the previous
 * plan. */
void wb__reconcile_stop_feeds(struct wb_reconcile *r);
/** wb__reconcile_feed_failed - this try is over; the next one comes later, after a delay that
 * doubles each time. */
void wb__reconcile_feed_failed(
	struct wb_reconcile *r, struct engine *e, struct wb_reconcile_now now);

/* waits.c */
/** wb__reconcile_say_wait - write to @out what the next plan waits for, and what holds it up. */
void wb__reconcile_say_wait(const struct wb_reconcile *r, char *out, size_t bytes);

/* conditions.c */
/** wb__reconcile_conditions - set the status's conditions from all that is known now. */
void wb__reconcile_conditions(struct wb_reconcile *r, struct wb_reconcile_now now);

/* restore.c */
/** wb__reconcile_return_ns - how long agents may take to come back to a new operator. */
uint64_t wb__reconcile_return_ns(const struct wb_reconcile *r);
/** wb__reconcile_restored_end - a transfer has ended: if the stored status shows it as running, it
 * is not shown so any more. */
void wb__reconcile_restored_end(struct wb_reconcile *r, uint64_t transfer);
/** wb__reconcile_settle_stored - decide whether the stored status is still the best that is
 * known. */
void wb__reconcile_settle_stored(struct wb_reconcile *r, struct wb_reconcile_now now);

/** wb__reconcile_restore_engine - set what the stored status says about an engine that appears. */
void wb__reconcile_restore_engine(const struct wb_reconcile *r, struct engine *e);
/** wb__reconcile_restore_plan - set the figures of the active plan, if the stored status has
 * them. */
void wb__reconcile_restore_plan(struct wb_reconcile *r);

/* state.c */
/** wb__reconcile_act - append an action for wb_reconcile_take(); @a and @sentence are copied, NULL
 * = no sentence.  0; on -E2BIG or -ENOMEM nothing is appended. */
int wb__reconcile_act(
	struct wb_reconcile *r, const struct wb_reconcile_action *a, const char *sentence);
/** wb__reconcile_event - append an Event about the object.  @reason: static.  0 or negative, as
 *  wb__reconcile_act(). */
int wb__reconcile_event(struct wb_reconcile *r, const char *reason, const char *sentence);
/** wb__reconcile_event_about - the same, about one agent or engine, which @about names. */
int wb__reconcile_event_about(
	struct wb_reconcile *r, const char *reason, const char *about, const char *sentence);
/** wb__reconcile_due - look again at @at_ns at the latest. */
void wb__reconcile_due(struct wb_reconcile *r, uint64_t at_ns);
/** wb__reconcile_look - call it after each report and tick: expires agents, chooses members,
 * advances the plan, feeds engines, tells agents, and sets the conditions.  0 or -ENOMEM; the state
 * is consistent all the same, and it looks again in 1 s. */
int wb__reconcile_look(struct wb_reconcile *r, struct wb_reconcile_now now);

/** same_epoch - both name the same plan: same term and same number. */
static inline bool same_epoch(struct wb_reconcile_epoch a, struct wb_reconcile_epoch b)
{
	return a.term == b.term && a.number == b.number;
}

#endif
