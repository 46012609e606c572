/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_RECONCILE_INTERNAL_H
#define WB_RECONCILE_INTERNAL_H
/*
 * State of one object, shared by the files of this folder.
 */
#include "base/base.h"
#include "base/clock.h"
#include "operator-shim/reconcile/reconcile.h"

#define WB_RECONCILE_NUMBER_MAX 9007199254740991ll /* of the CRD: exact in every JSON */

struct agent {
	uint32_t id;
	char name[WB_RECONCILE_NAME_MAX + 1];
	uint64_t instance;
	bool is_up;
	uint64_t lost_at_ns; /* while not up: when it counts as gone */
	/* What this connection was told and has said. */
	struct wb_reconcile_known running, waiting;
	struct wb_reconcile_epoch sent, ready, told;
	uint32_t told_gen, notice_gen;
	bool is_in_active, is_in_next; /* has members in that plan */
	bool needs_all; /* as in struct wb_reconcile_agent */
	bool has_no_pod; /* it was deleted, or has ended: once it is not connected it is gone */
	uint32_t via; /* WB_VIA_* */
	uint32_t families;
	char reduced[301]; /* a port of it that is down; "" = none is */
	uint64_t rail_bytes_per_s, memory_bytes_per_s;
	uint64_t memory; /* that it shares with others, as a number; 0 = none */
	uint64_t rail[WB_RECONCILE_RAILS_MAX]; /* bytes a second of each; n_rail 0: not told */
	uint64_t nic[WB_RECONCILE_RAILS_MAX]; /* 0 = of no interface that others could use */
	uint32_t n_rail;
	/* Scratch of choose.c: */
	uint32_t n_pick, n_pick_of[WB_RECONCILE_RAILS_MAX]; /* of each rail */
	uint32_t n_user_of[WB_RECONCILE_RAILS_MAX]; /* with those of others on its interface */
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
	uint32_t rails; /* a bit each, 0 = all */
	struct wb_reconcile_epoch
		joined; /* it came when this was active: takes part in later ones */
	bool is_refused; /* it does not take part */
	/* Nor does this one, yet: its place is held by one whose agent is not connected, which may
	 * come back, or is given up. */
	bool waits_for_place;
};

struct engine {
	char name[WB_RECONCILE_ENGINE_MAX + 1];
	enum wb_engine_state state;
	char transport[65], memory_path[65], reason[129];
	char fallback[301]; /* why not a better one; "" = there is none */
	char message[WB_RECONCILE_SENTENCE_MAX];
	/* Recounted from the workers at each look. */
	uint32_t n_worker, n_up;
	struct wb_reconcile_held held;
	bool is_mixed; /* its workers hold different transfers */
	uint32_t only; /* families that an agent of it has alone */
	uint64_t ended_transfer; /* the last it reported the end of */
	/* How the transfer that is believed to run has ended there, by its own word; else IDLE. */
	enum wb_engine_state current_end;
	/* The last that it dropped for the next one, and until when that is waited for. */
	uint64_t superseded, next_comes_ns;
	/* Feeding it. */
	struct wb_reconcile_feed feed; /* transfer 0 = none */
	uint64_t feed_until_ns; /* 0 = not running */
	uint64_t feed_next_ns;
	uint64_t apart_transfer; /* of which it was said that nobody in reach has it */
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
	uint32_t asked; /* agent id, WB_RECONCILE_NONE */
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
	struct wb_digest print; /* of everything above and the spec */
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

/* For agents to end by themselves what nobody leads any more. */
#define ALONE_NS (5 * WB_NS_PER_S)

struct transfer {
	struct wb_reconcile_transfer_report t; /* pointers inside are not used */
	bool is_by_engines; /* the coordinator has not said how it ended */
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
	uint16_t *hint; /* HINTS, owned: where an instance was found last, by its hash */
	struct worker *worker;
	size_t n_worker, worker_cap;
	struct engine *engine; /* sorted by name */
	size_t n_engine, engine_cap;
	struct pod *pod; /* sorted by name */
	size_t n_pod, pod_cap;
	struct refusal refusal; /* of an agent, the last one */
	struct blob *blob;
	size_t n_blob, blob_cap;

	struct routing active, next;
	enum stage stage;
	uint64_t stage_due_ns;
	uint32_t job;
	bool is_checking; /* the job plans an adopted epoch again */
	const char
		*fail_reason; /* static; of the last plan, until there is one; NULL = none failed */
	char fail[WB_RECONCILE_SENTENCE_MAX];
	uint64_t retry_ns; /* when it failed for want of room, not for what it is: 0 = not */
	uint64_t wait_since_ns; /* first attach without a plan, 0 = not waiting */
	bool is_late; /* planDeadlineSeconds are over */
	uint64_t adopt_since_ns; /* since when members of a running plan are waited for, 0 = not */

	struct membership wanted;
	bool is_dirty; /* workers or agents changed: choose again */
	bool is_complete; /* the wanted members are connected */
	bool is_interim; /* all but trainers, who are not needed to feed an engine that joins */
	uint32_t n_trainer_up, n_engine_up;
	char waiting[WB_RECONCILE_SENTENCE_MAX]; /* who is missing; "" = nobody */
	char aside[WB_RECONCILE_SENTENCE_MAX]; /* engines that are incomplete beside complete ones
						*/
	char refused[WB_RECONCILE_SENTENCE_MAX]; /* last refusal of a worker that is still there */

	uint32_t feed_gen, feed_serial;
	struct wb_reconcile_feed *feed; /* running, for wb_reconcile_feeds() */
	size_t n_feed, feed_cap;

	struct transfer current; /* t.transfer 0 = none */
	uint64_t current_until_ns, current_coordinator; /* instance of an agent; 0 = not known */
	uint64_t judge_lost_ns; /* a trainer's agent of the running plan is gone since; 0 = none */
	/* The coordinator is gone, or all engines have ended: then the others still have so long.
	 */
	uint64_t current_alone_ns;
	uint64_t held_since_ns; /* a plan waits for transfers since; 0 = none does */
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

	struct wb_reconcile_action *action; /* ring would be nicer; queues are short */
	size_t n_action, action_cap, action_at;
	uint64_t due_ns;
};

/* report.c */
/** wb__reconcile_end_transfer - it has ended: as its coordinator says, or only as its engines say.
 */
int wb__reconcile_end_transfer(
	struct wb_reconcile *r, const struct wb_reconcile_transfer_report *t, bool is_by_engines);

/* current.c */
/** wb__reconcile_check_current - a transfer whose coordinator is gone, or does not speak of it any
 * more, ended with what its engines say; else with its deadline. */
int wb__reconcile_check_current(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_transfer_ns - the longest that a transfer may take, by the spec. */
uint64_t wb__reconcile_transfer_ns(const struct wb_reconcile *r);
/* members.c */
/** wb__reconcile_agent_by_id - the agent of a connection that is up, or NULL.  As those below:
 * borrowed until agents come or go. */
struct agent *wb__reconcile_agent_by_id(const struct wb_reconcile *r, uint32_t id);
/** wb__reconcile_agent_by_instance - the agent that runs as this instance, up or lost a moment ago,
 * or NULL.  Quick: asked for each worker at each look. */
struct agent *wb__reconcile_agent_by_instance(const struct wb_reconcile *r, uint64_t instance);
/** wb__reconcile_engine - the engine of this name, or NULL. */
struct engine *wb__reconcile_engine(const struct wb_reconcile *r, const char *name);
/** wb__reconcile_count_engines - recount engines from workers; makes missing ones. */
int wb__reconcile_count_engines(struct wb_reconcile *r);
/** wb__reconcile_expire_agents - drop agents that were lost for too long, or whose pod is gone,
 * with their workers; of the others, when to look again. */
void wb__reconcile_expire_agents(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_judge_waiting - workers that wait for a place get it, or are refused, or wait on.
 */
int wb__reconcile_judge_waiting(struct wb_reconcile *r);
/** wb__reconcile_pod_is_gone - of the agent of this name, if there is one;
 * wb__reconcile_has_pod_again. */
void wb__reconcile_pod_is_gone(struct wb_reconcile *r, const char *agent);
void wb__reconcile_has_pod_again(struct wb_reconcile *r, const char *agent);
/** wb__reconcile_drop_engines - forget engines without workers that are in no plan. */
void wb__reconcile_drop_engines(struct wb_reconcile *r);

/* pods.c */
/** wb__reconcile_place_worker - its engine, as pod and app say; or a fault, with a sentence. */
enum member_fault wb__reconcile_place_worker(const struct wb_reconcile *r, const struct agent *a,
	struct worker *w, const char *app_engine, char *why, size_t bytes);
/** wb__reconcile_note_fault - of a worker: FAULT_ROLE or FAULT_ENGINE. */
void wb__reconcile_note_fault(struct wb_reconcile *r, const struct agent *a,
	enum member_fault fault, struct wb_reconcile_now now, const char *sentence);
/** wb__reconcile_expire_refusal - forget the refusal that is told when its time is over, or when
 * the agent has come in. */
void wb__reconcile_expire_refusal(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_without_sidecar - names up to five, "" when all have one.  Returns @out. */
const char *wb__reconcile_without_sidecar(const struct wb_reconcile *r, char *out, size_t bytes);
/** wb__reconcile_unscheduled - pods that have no node, and why; "" when all have one.  Returns
 * @out. */
const char *wb__reconcile_unscheduled(const struct wb_reconcile *r, char *out, size_t bytes);
/** wb__reconcile_all_pods_connected - there are pods, and the agent of each is here: nobody else
 * can come. */
bool wb__reconcile_all_pods_connected(const struct wb_reconcile *r);
/** wb__reconcile_members_reason - why members are missing; the worst that is known.  @bare,
 *  @unscheduled: what the functions above say. */
const char *wb__reconcile_members_reason(
	const struct wb_reconcile *r, bool is_lost, const char *bare, const char *unscheduled);

/* transport.c */
/** wb__reconcile_transport_fits - every member can move weights as the spec asks; else planning has
 *  failed with a sentence. */
bool wb__reconcile_transport_fits(struct wb_reconcile *r, const struct membership *m);
/** wb__reconcile_transport_print - what of the spec that depends on: another value, another try. */
uint32_t wb__reconcile_transport_print(const struct wb_reconcile *r);
/** wb__reconcile_worse_transport - an engine is reached by a worse transport than was asked for, or
 *  than there is: the condition's reason, and a sentence in @text.  NULL: none is. */
const char *wb__reconcile_worse_transport(const struct wb_reconcile *r, char *text, size_t cap);

/* choose.c */
/** wb__reconcile_choose - wanted membership into @out; sets is_complete and waiting. */
int wb__reconcile_choose(struct wb_reconcile *r, struct membership *out);
/** wb__reconcile_membership_finish - free the lists; the struct is zeroed. */
void wb__reconcile_membership_finish(struct membership *m);
/** wb__reconcile_has_engine - a rollout worker of that engine is in the membership. */
bool wb__reconcile_has_engine(const struct membership *m, const char *name);

/* absent.c */
/* Which worker of which agent. */
struct member_key {
	uint64_t instance;
	uint32_t worker;
};
/** wb__reconcile_active_keys - of the active plan's members that are here, sorted; wb_free() it.
 * NULL = no memory. */
struct member_key *wb__reconcile_active_keys(const struct wb_reconcile *r, size_t *n);
/** wb__reconcile_has_key - true when the worker is among the @n sorted keys. */
bool wb__reconcile_has_key(
	const struct member_key *k, size_t n, uint64_t instance, uint32_t worker);
/** wb__reconcile_is_interim - engines that hold the version can bring it to one that is not in the
 *  plan, while trainers are gone.  @active: the keys of the active plan. */
bool wb__reconcile_is_interim(
	const struct wb_reconcile *r, const struct member_key *active, size_t n_active);

/* epoch.c */
/** wb__reconcile_advance - choose the membership anew where that is due, and take the next plan as
 * many stages further as it can go now.  0 or -ENOMEM. */
int wb__reconcile_advance(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_has_blob - the bytes of this map or manifest are here, whole. */
bool wb__reconcile_has_blob(const struct wb_reconcile *r, struct wb_digest d);
/** wb__reconcile_tell_active - ACTIVATE for agents that have not heard of the epoch or its feeds.
 */
int wb__reconcile_tell_active(struct wb_reconcile *r);
/** wb__reconcile_fail - there will be no plan: stage FAILED, and an event.  @reason: static;
 * @sentence is copied, cut where it is too long. */
void wb__reconcile_fail(struct wb_reconcile *r, const char *reason, const char *sentence);
/** wb__reconcile_retry_later - room may have been made in the meantime. */
void wb__reconcile_retry_later(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_retry - what spoke against the last plan may not hold any more. */
void wb__reconcile_retry(struct wb_reconcile *r);

/* feed.c */
/** wb__reconcile_feed - give engines that lack the current version a source, end what failed or
 * took too long, and list the feeds that agents are to know.  None begins while a transfer or a
 * plan is under way.  0 or -ENOMEM. */
int wb__reconcile_feed(struct wb_reconcile *r, struct wb_reconcile_now now);
/** wb__reconcile_is_source - it holds the current version and is in the active plan. */
bool wb__reconcile_is_source(const struct wb_reconcile *r, const struct engine *e);
/** wb__reconcile_stop_feeds - no feed is under way any more: what they lead to is of the plan
 *  before. */
void wb__reconcile_stop_feeds(struct wb_reconcile *r);
/** wb__reconcile_feed_failed - this try is over; the next one comes later, each time twice as long.
 */
void wb__reconcile_feed_failed(
	struct wb_reconcile *r, struct engine *e, struct wb_reconcile_now now);

/* waits.c */
/** wb__reconcile_say_wait - what the next plan waits for, and who holds it up. */
void wb__reconcile_say_wait(const struct wb_reconcile *r, char *out, size_t bytes);

/* conditions.c */
/** wb__reconcile_conditions - the conditions of the status from all that is known now. */
void wb__reconcile_conditions(struct wb_reconcile *r, struct wb_reconcile_now now);

/* restore.c */
/** wb__reconcile_return_ns - how long agents may take to come back to a new operator. */
uint64_t wb__reconcile_return_ns(const struct wb_reconcile *r);
/** wb__reconcile_restored_end - a transfer has ended: one that ran when the status was stored does
 * not any more. */
void wb__reconcile_restored_end(struct wb_reconcile *r, uint64_t transfer);
/** wb__reconcile_settle_stored - whether the stored status is still the best that is known. */
void wb__reconcile_settle_stored(struct wb_reconcile *r, struct wb_reconcile_now now);

/** wb__reconcile_restore_engine - what the stored status says of an engine that appears. */
void wb__reconcile_restore_engine(const struct wb_reconcile *r, struct engine *e);
/** wb__reconcile_restore_plan - the figures of the active plan, when the stored status has them. */
void wb__reconcile_restore_plan(struct wb_reconcile *r);

/* state.c */
/** wb__reconcile_act - append an action for wb_reconcile_take(); both are copied, @sentence NULL =
 * none. 0, or -E2BIG or -ENOMEM, and nothing is appended. */
int wb__reconcile_act(
	struct wb_reconcile *r, const struct wb_reconcile_action *a, const char *sentence);
/** wb__reconcile_event - append an Event about the object.  @reason: static.  0 or negative, as
 *  wb__reconcile_act(). */
int wb__reconcile_event(struct wb_reconcile *r, const char *reason, const char *sentence);
/** wb__reconcile_event_about - the same, about one of many agents or engines. */
int wb__reconcile_event_about(
	struct wb_reconcile *r, const char *reason, const char *about, const char *sentence);
/** wb__reconcile_due - look again at @at_ns at the latest. */
void wb__reconcile_due(struct wb_reconcile *r, uint64_t at_ns);
/** wb__reconcile_look - after each report and tick: expire, choose, advance, feed, tell, and the
 *  conditions.  0 or -ENOMEM; the state is consistent all the same, and it looks again in 1 s. */
int wb__reconcile_look(struct wb_reconcile *r, struct wb_reconcile_now now);

/** same_epoch - one plan: same term and same number. */
static inline bool same_epoch(struct wb_reconcile_epoch a, struct wb_reconcile_epoch b)
{
	return a.term == b.term && a.number == b.number;
}

#endif
