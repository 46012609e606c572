/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_INTERNAL_H
#define WB_TRANSFER_INTERNAL_H
/*
 * The core's state: objects, their workers, epochs, and the runs of the four roles.
 * Shared by the files of this folder.  Not for others.
 */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "lane/lane.h"
#include "proto/peers.h"
#include "transfer/core.h"

#define CORE_WORKERS_MAX 256
#define CORE_FLOWS_MAX 8
#define CORE_ORPHANS_MAX 1024
#define CORE_VERDICTS_MAX 64
#define CORE_RETRY_MIN_NS (50 * WB_NS_PER_MS)
#define CORE_RETRY_MAX_NS (2 * WB_NS_PER_S)
#define CORE_LATE_NS (WB_NS_PER_S / 2) /* for a party to say what it waits for at the deadline */
#define CORE_READY_NS WB_NS_PER_S /* from READY to ACTIVATE, when nothing is wrong */
#define CORE_LINK_NS                                                                               \
	(10 * WB_NS_PER_S) /* an agent that cannot be reached for so long sends nothing */
/* A question to a leader that is gone: waits for the next plan, is sent again meanwhile. */
#define CORE_ASK_NS (10 * WB_NS_PER_S)
/* For an agent to be started again, and the answer; as much of the step deadline as that is. */
#define CORE_DOUBT_NS (15 * WB_NS_PER_S)
#define CORE_DOUBT_MAX_NS (25 * WB_NS_PER_S)
#define CORE_ASK_AGAIN_NS WB_NS_PER_S
#define CORE_VAIN_NS (5 * WB_NS_PER_S) /* for an answer of a leader whose object may be gone */
#define CORE_JOINT_NS (5 * WB_NS_PER_S) /* for judges, when another plan waits for them */
#define CORE_DRAIN_NS (5 * WB_NS_PER_S) /* old readers of parameters, before they are cut off */

struct object;

struct worker {
	struct wb_core_worker w;
	struct object *obj;
	uint64_t held_transfer, seen_transfer;
	int64_t held_version;
	bool gone; /* detached; waits for its last job */
	/* same step */
	bool is_parked, begun;
	uint64_t resuming; /* transfer whose after_update_hook it runs; 0 = none */
	uint32_t parked_at;
	bool expects_feed;
	uint64_t hold_transfer; /* a feed that ended, of which it has not heard; 0 = none */
	int64_t hold_version;
	struct wb_core_past past; /* goes on with what happens here */
	/* Torn by that transfer, or not repaired by it: it waits until then; 0 = no more. */
	uint64_t repair_ns, repair_transfer;
	uint64_t doubt_ns; /* until then its agent waits for the end of past.begun; 0 = it does not
			    */
	/* trainer */
	bool has_sent, sent_hold;
	bool holds; /* its parameters stay as they are beyond the receive stage */
	bool letting_go; /* it has ended its hold, readers may be left */
	int64_t sent_version;
	uint64_t sent_ns;
	struct wb_core_area area; /* rollout; head NULL = none */
	bool installed;
	bool asleep; /* its memory is away; slept_*: what it held */
	uint64_t slept_transfer;
	int64_t slept_version;
	uint8_t *image; /* borrowed */
	uint64_t image_bytes;
	uint64_t stop_ns, begun_ns, resume_ns; /* of the last transfer */
};

/* A bulk connection that this agent dials. */
struct link {
	wb_conn_t conn; /* 0 = none */
	bool up;
	uint32_t at; /* which of the peer's addresses to dial */
	uint64_t retry_ns, backoff_ns;
	bool is_wanted; /* since the last tick */
	bool is_unknown; /* the agent answered, and does not know this plan */
	uint64_t wanted_ns; /* somebody waits for it in vain since; 0 = nobody */
	uint64_t lost_transfer; /* when it was lost, so often, and the last time why */
	uint32_t n_lost;
	char lost[200];
};

/* Control messages to and from one agent: link.c. */
struct wire {
	uint64_t tx_seq, rx_seq; /* last sent, last taken in */
	struct kept *head, *tail; /* owned: not confirmed yet */
	uint64_t resend_ns, backoff_ns, confirm_ns; /* 0 = nothing due */
	bool is_down;
	uint64_t gap_backoff_ns;
	uint64_t gap_ns; /* some were given up: the peer is told until it says that it knows */
	uint64_t sent_transfer; /* highest that a message to it was about */
	uint64_t skipped; /* highest that those given up were about */
};

struct epoch {
	struct object *obj;
	struct wb_roster r;
	struct wb_plan *plan;
	struct wb_local *local; /* parameters */
	struct wb_local *staged; /* the same with staging areas for parameters; NULL = none */
	struct worker **member; /* by local index */
	struct wb_image **image; /* owned: of trainers with snapshots, by local index */
	bool *trains, *leads; /* by agent: has trainer workers; leads an engine */
	uint8_t *has_party; /* bit engine * n_agent + agent: has workers of the engine */
	struct link *link; /* by agent */
	struct wire *wire; /* by agent */
	struct wb_xport_epoch xp;
	struct wb_flow_env fenv;
	uint32_t me; /* this agent's number in the roster */
	bool is_active;
	uint64_t ready_ns; /* when it was installed */
	uint64_t active_ns; /* when it became active */
	uint64_t seen; /* transfers up to this number have begun: of them only holders have anything
			*/
	bool has_begun; /* a transfer: the plan before may go */
	uint32_t n_refused; /* leader: refusals of what trainers asked */
	uint32_t refused_seen; /* trainers: the last of those they heard of */
	bool is_announced; /* leader: the trainers know that it is active */
	uint64_t served; /* transfer: the greatest that trainers here were opened for */
	struct party *party; /* by engine */
	struct lead *lead; /* by engine */
	struct trigger *trigger; /* by agent */
};

/* An engine's workers in this agent, on their way through a transfer. */
enum party_state {
	PARTY_NONE,
	PARTY_CLEARING, /* staged: old readers of the areas finish */
	PARTY_STAGED, /* whole in the areas; the workers run */
	PARTY_STOPPING, /* promised; workers run to the target */
	PARTY_HOOKS, /* all parked; before_update_hook runs */
	PARTY_STOPPED, /* waits for OPEN */
	PARTY_OPENING, /* old readers of the parameters finish */
	PARTY_MOVING, /* into parameters, or areas */
	PARTY_COPYING, /* the workers install */
	PARTY_COMPLETE, /* waits for END */
	PARTY_ENDING, /* after_update_hook runs */
};

struct party {
	enum party_state state;
	struct epoch *e;
	struct wb_flow *flow;
	uint32_t engine, lead, losses;
	uint64_t transfer;
	int64_t version;
	bool is_feed, is_opened, has_target;
	bool is_staged; /* by areas */
	bool is_decided; /* no hook can stop it any more */
	bool opening; /* sinks are being opened: no conclusions yet */
	uint32_t source_engine, target;
	uint8_t *feed; /* owned: plan workers to fetch from */
	uint32_t n_received, n_complete;
	uint64_t deadline_ns, drain_ns;
	uint64_t lead_ns; /* its lead has a deadline of its own: this is for one that is silent */
	/* when its phases began and ended */
	uint64_t begin_ns, open_ns, complete_ns, copy_ns, copied_ns, end_ns;
};

/* The lead's book of one engine in one transfer. */
enum lead_state {
	LEAD_NONE,
	LEAD_STAGING, /* into areas, the workers run */
	LEAD_STAGED, /* waits for the decision */
	LEAD_PROMISES,
	LEAD_STOPS,
	LEAD_MOVING,
	LEAD_INSTALLING,
	LEAD_ENDING,
	LEAD_DONE
};

/* One that proposes a decision, and learns which was chosen. */
enum ballot_state { BALLOT_NONE, BALLOT_ASKING, BALLOT_ACCEPTING, BALLOT_WAITING };
enum decision { DECIDE_NONE, DECIDE_COMMIT, DECIDE_ABORT };

struct ballot {
	enum ballot_state state;
	struct object *obj;
	uint64_t transfer, number, accepted, seen; /* seen: greatest number met */
	uint64_t retry_ns, backoff_ns;
	enum decision want, value;
	uint32_t n_judge, n_yes;
	uint64_t judge[WB_AREA_JUDGES_MAX];
	bool answered[WB_AREA_JUDGES_MAX];
};

/* What this agent remembers as a judge of one transfer; kept in a file. */
struct verdict {
	uint64_t transfer, promised, accepted;
	uint64_t value; /* enum decision */
};

/* What parties say of their areas under a new plan. */
struct resume {
	bool *heard; /* owned, by agent */
	uint64_t transfer;
	int64_t version;
	bool is_pending, is_whole, is_installing;
};

/* An update whose end workers of the engine have missed: doubt.c. */
struct doubt_agent {
	bool is_in_doubt, is_asked, was_asked;
};

struct doubt_next { /* of another run; transfer 0 = none */
	uint32_t from, count, state;
	uint64_t transfer;
};

struct doubt {
	struct doubt_next next;
	struct epoch *e;
	struct doubt_agent *agent; /* owned, by agent; NULL = never needed */
	uint32_t engine, count, state;
	uint64_t transfer; /* 0 = nobody is in doubt */
	uint64_t committed; /* the last that was answered so; 0 = none */
};

struct lead_agent {
	/* bools only, in front: read by offset */
	bool takes_part, promised, stopped, received, complete, installed, ended, down;
	uint32_t losses; /* losses it has taken in when it said received */
};

struct lead {
	enum lead_state state;
	struct epoch *e;
	uint32_t engine, leader, losses, target;
	uint64_t transfer;
	int64_t version;
	bool is_feed, cancelled, received_told;
	bool is_staged, is_decided, is_installing;
	bool is_superseded; /* dropped for a newer version */
	bool has_torn; /* parties say that workers of theirs are torn, since it last committed */
	struct ballot ballot;
	struct resume resume;
	struct doubt doubt;
	uint32_t source_engine;
	struct lead_agent *agent; /* owned, by agent */
	enum wb_engine_state result; /* of this run */
	enum wb_engine_state told; /* what that leaves: one that was torn stays so when it aborts */
	enum wb_engine_state ended; /* for the parties */
	int64_t code;
	char sentence[WB_ERR_MSG_MAX];
	uint64_t deadline_ns, begin_wall_ns, staged_ns;
	uint64_t bytes[WB_STAGES];
	uint64_t stall_ns, n_stall;
	struct wbk_sum sum;
};

/* The leader's book of one transfer; a feed has one of its own. */
enum leader_state { LEADER_IDLE, LEADER_RUNNING, LEADER_RELEASED };

struct leader_engine {
	bool takes_part, is_superseded;
	enum wb_engine_state state;
	uint32_t losses;
	char sentence[512];
};

struct leader {
	enum leader_state state;
	struct epoch *e;
	bool is_feed;
	bool is_proposed, is_decided, is_cancelled, is_superseded;
	struct ballot ballot;
	uint32_t feed_engine, source_engine;
	uint64_t transfer;
	int64_t version;
	uint32_t losses;
	struct leader_engine *engine; /* owned, by engine */
	uint64_t begin_ns, begin_wall_ns, deadline_ns, proposed_ns;
	uint64_t idle_ns; /* when the last one ended */
	uint64_t bytes[WB_STAGES];
	uint64_t stall_ns, n_stall;
	struct leader *next; /* feeds */
};

/* What trainer agents have asked the leader for. */
struct trigger {
	bool asked;
	uint64_t next_after; /* its next version is ready beside this transfer; 0 = not */
	uint64_t asked_ns;
	uint64_t highest; /* transfer that the agent knew: a later one answers it */
	int64_t version;
	int64_t code;
	char sentence[512];
};

/* The trainer workers of this agent in a transfer. */
enum trainers_state {
	TRAINERS_IDLE,
	TRAINERS_ASKED,
	TRAINERS_SERVING,
	TRAINERS_RELEASING,
	TRAINERS_RELEASED
};

struct trainers {
	enum trainers_state state;
	struct epoch *e;
	struct wb_flow *flow;
	uint64_t transfer;
	uint32_t asked_refused; /* refusal that was known then: a later one answers it */
	uint64_t asked_highest; /* transfer that was known when the leader was asked */
	uint64_t asked_seq; /* number of the question on its wire */
	/* The leader is gone and has not confirmed the question: it waits for the next plan until
	 * then (0 = it does not), and is sent again meanwhile. */
	uint64_t hold_ns, again_ns;
	bool is_dropped; /* with the leader's wire */
	char lost[256]; /* why the leader is called gone */
	int64_t version;
	uint64_t begin_ns, drain_ns, deadline_ns;
	uint64_t idle_ns; /* when the last one ended here */
	bool is_told; /* the workers know that they are released */
	bool has_next; /* the leader knows that the next version is ready */
	bool has_final; /* FINAL came while the release was under way */
	uint8_t *final_body; /* owned: the message, encoded */
	size_t final_len;
};

struct orphan {
	struct wb_xport_event ev;
	struct epoch *e;
	uint64_t until_ns;
};

struct object {
	struct wb_core *core;
	struct object *next;
	char *uid, *name;
	struct epoch *cur, *prev; /* newest installed, the one before */
	uint64_t highest; /* transfer that a PREPARE here has named */
	uint64_t issued; /* transfer that our leader or trainers know */
	uint64_t given; /* by leaders here, kept in a file */
	struct wb_flow *flow[CORE_FLOWS_MAX];
	struct epoch *flow_epoch[CORE_FLOWS_MAX];
	bool flow_stopped[CORE_FLOWS_MAX];
	bool flow_staged[CORE_FLOWS_MAX]; /* rollouts by their areas */
	struct verdict verdict[CORE_VERDICTS_MAX]; /* by transfer, oldest first */
	uint32_t n_verdict;
	uint64_t ask_ns; /* when to ask again how updates ended that workers are in doubt of */
	uint64_t asked; /* greatest number of a ballot from here */
	uint64_t forgotten; /* transfers up to here have no verdict any more */
	bool is_judge; /* verdicts were read, or there was nothing to read */
	struct wb_slots slots;
	size_t slot_bytes;
	struct leader leader;
	struct leader *feeds;
	struct trainers trainers;
	bool is_deleted; /* another of its name has an active plan */
	struct digest *digest; /* owned: sums for wbctl verify, under way; NULL = none */
	/* chunks sent again that were reported, and those for their sums */
	uint64_t resent_transfer, resent_told, mismatched_told;
};

struct loop_msg {
	struct loop_msg *next;
	struct object *obj;
	uint32_t kind_agent; /* sender's agent number */
	uint8_t *bytes;
	size_t len;
};

#define CORE_ARENAS_MAX 8

struct wb_core {
	struct wb_core_opts o;
	struct {
		char uid[64];
		void *base;
		size_t bytes;
	} arena[CORE_ARENAS_MAX];
	uint32_t n_arena;
	const struct wb_core_env *env;
	char *agent;
	struct wb_rng dials; /* when to try again */
	struct object *objects;
	struct worker *worker[CORE_WORKERS_MAX];
	uint32_t n_worker;
	struct orphan *orphan;
	uint32_t n_orphan;
	struct loop_msg *self_head,
		**self_tail; /* messages to ourselves, handled after each event */
	bool draining_self;
	bool closing; /* the transport is gone */
	uint64_t violations; /* messages that were not their sender's to say */
	struct { /* runs of digest.c, by number */
		uint64_t begun, done;
		struct wb_buf page; /* what the last one found */
	} digest;
	struct {
		wb_conn_t conn;
		struct epoch *e;
		uint32_t agent; /* at its other end; n_agent of the roster = unknown */
	} * conn;
	size_t n_conn, cap_conn;
};

enum progress { PROGRESS_RECEIVED = 1, PROGRESS_COMPLETE, PROGRESS_FAILED, PROGRESS_INSTALLED };

static inline uint64_t now_ns(const struct wb_core *c)
{
	return wb_now_ns(c->env->clock);
}

/* deleted.c */
/** wb__core_supersede - a plan of its object is active: others of that name were deleted. */
void wb__core_supersede(struct epoch *e);
/** wb__core_forget_deleted - those of which nothing is under way.  Not from within an event. */
void wb__core_forget_deleted(struct wb_core *c);

/* show.c */
bool wb__core_is_moving(const struct object *o);

/* epoch.c */
/** wb__core_stop_kept_flows - those that are only there for readers of what is held. */
void wb__core_stop_kept_flows(struct object *o);

/* core.c */
void wb__core_send(struct epoch *e, uint32_t agent, struct wb_msg_peer *m);
void wb__core_trace(
	struct object *o, const char *what, const char *who, uint64_t transfer, uint64_t v);
struct epoch *wb__core_epoch_find(struct object *o, uint64_t term, uint64_t number);
/* The newest plan that is active; NULL = none.  An operator may send a plan and never activate it:
 * it died, or those it planned without came back. */
static inline struct epoch *active_epoch(const struct object *o)
{
	return o->cur && o->cur->is_active     ? o->cur
	       : o->prev && o->prev->is_active ? o->prev
					       : NULL;
}

/** wb__core_fault - WB_FAULT may end the process here. */
void wb__core_fault(
	const struct object *o, enum wb_fault_place place, uint64_t transfer, int64_t version);
void wb__core_activate(struct epoch *e);
/* The plan that transfers begin under: the newest that is active here.  NULL = none (yet). */
struct epoch *wb__core_usable(const struct object *o);
/* When the plan before may be used instead of one that does not become active; 0 = not waiting. */
uint64_t wb__core_usable_at(const struct object *o);
/* Since when there is a usable plan, if there is. */
uint64_t wb__core_usable_since(const struct object *o);
uint64_t wb__core_seed(const struct object *o, uint64_t transfer);
struct worker *wb__core_worker_of(struct epoch *e, uint32_t plan_worker); /* NULL = not here */
const char *wb__core_worker_name(const struct epoch *e, uint32_t plan_worker);
void wb__core_drain_self(struct wb_core *c);
/* Grants that came before their flow, and whose flow will not come any more. */
void wb__core_orphans_refuse(struct epoch *e);
/* digest.c */
void wb__core_digest_cancel(struct object *o);
uint64_t wb__core_digest_tick(struct object *o, uint64_t now);
/* link.c */
void wb__core_wire_send(struct epoch *e, uint32_t agent, struct wb_msg_peer *m);
/* @has_gap: the peer has given some up, and us. */
bool wb__core_wire_take(struct epoch *e, uint32_t from, const struct wb_msg_peer *m, bool *has_gap);
/* Until it is heard again.  Transfers above @highest are not known here, so nothing about them was
 * under way. */
void wb__core_wire_down(struct wire *w, uint64_t highest, uint64_t now);
void wb__core_wire_flush(struct epoch *e); /* confirm now what is not confirmed */
/* The peer has not confirmed message @seq or one before it. */
bool wb__core_wire_keeps(const struct wire *w, uint64_t seq);
bool wb__core_wire_is_busy(const struct epoch *e);
uint64_t wb__core_wire_tick(struct object *o, uint64_t now);
/* epoch.c */
void wb__core_object_destroy(struct object *o);
void wb__core_epoch_forget(struct epoch *e, const struct worker *w);
uint64_t wb__core_epoch_tick(struct object *o, uint64_t now);
bool wb__core_flow_uses(const struct object *o, int flow, const struct worker *w);
void wb__core_flow_drop_worker(struct object *o, int flow, const struct worker *w);
bool wb__core_holds(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
/* flows.c */
/* By areas where the object is staged. */
struct wb_flow *wb__core_flow_get(struct epoch *e, uint64_t transfer, bool make);
/* By parameters in any mode: feeds. */
struct wb_flow *wb__core_flow_direct(struct epoch *e, uint64_t transfer, bool make);
/* One that @plan_worker of this agent may be read from; NULL = none (yet). */
struct wb_flow *wb__core_flow_source(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
const char *wb__core_no_flow(const struct epoch *e); /* why none could be made */
void wb__core_flows_retire(struct object *o, uint64_t below); /* stop flows of older transfers */
void wb__core_flows_prune(struct object *o, uint64_t below); /* of those, the ones nobody holds */
void wb__core_flows_reap(struct object *o);
bool wb__core_flow_is_kept(
	const struct object *o, int flow); /* committed, only there for readers */
/* What of the engine's workers nobody may touch any more. */
enum quiet { QUIET_PARAMS, QUIET_AREAS };
bool wb__core_flows_quiet(
	struct epoch *e, uint32_t engine, uint64_t transfer, enum quiet what, bool cut);
int wb__core_flow_env_init(struct epoch *e);
/** wb__core_link_failed - a dialled connection has ended: one that was never up is next dialled at
 *  the peer's next address. */
void wb__core_link_failed(struct epoch *e, uint32_t agent);
/** wb__core_links_tick - dial again, and give up sources that cannot be reached; after the flows'
 *  ticks, which say whom they miss. */
uint64_t wb__core_links_tick(struct object *o, uint64_t now);
/* core.c */
struct worker *wb__core_worker(const struct wb_core *c, uint32_t id);
/* show.c */
const char *wb__core_party_name(enum party_state s);
const char *wb__core_trainers_name(enum trainers_state s);
/* The parameters of a worker here are a mix, also while that is repaired. */
bool wb__core_engine_is_torn(const struct epoch *e, uint32_t engine);
/* waits.c: append ,"waits":[...] */
void wb__core_waits_json(const struct object *o, struct wb_buf *out);
/* sleep.c: false with a sentence when the worker cannot take part in a transfer. */
/* STOP or STAGE for an engine whose memory is away here: refused, nobody is stopped. */
bool wb__core_refuse_asleep(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
bool wb__core_can_take_part(struct epoch *e, uint32_t local, char *text, size_t cap);
/* party.c */
void wb__core_party_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_party_worker(struct worker *w, uint16_t type, const void *msg);
void wb__core_party_worker_lost(struct worker *w, const char *why);
void wb__core_party_received(struct epoch *e, struct wb_flow *f, uint32_t local);
void wb__core_party_complete(struct epoch *e, struct wb_flow *f, uint32_t local);
void wb__core_party_failed(
	struct epoch *e, struct wb_flow *f, uint32_t local, const struct wb_err *err);
/* party_ends.c */
void wb__core_party_lead_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
uint64_t wb__core_party_tick(struct object *o, uint64_t now);
/* After an order of the lead that begins something: it will say how that ends. */
void wb__core_party_expect_end(struct party *p);
/* The same engine has begun something under a newer plan @e. */
void wb__core_party_overtaken(struct epoch *e, uint32_t engine);
void wb__core_party_broken(struct party *p, const char *why);
/* repair.c: what is torn are workers, whatever plan they are in: one that is told so waits for a
 * transfer that repairs it, and no longer than until its deadline. */
void wb__core_repair_await(struct worker *w, const struct epoch *e, uint64_t transfer);
bool wb__core_is_in_run(const struct worker *w); /* of a party, also to its very end */
uint64_t wb__core_repair_tick(struct object *o, uint64_t now);
/* party.c: the worker has the transfer, verified; it stopped for it at poll @count. */
void wb__core_holds_now(struct worker *w, uint64_t transfer, int64_t version, uint32_t count);
/* stage.c */
void wb__core_party_stage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_party_staged(struct party *p);
bool wb__core_party_restage(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_party_copy(struct party *p);
void wb__core_party_install(struct party *p);
void wb__core_party_installed(
	struct worker *w, struct party *p, const struct wb_msg_app_installed *m);
void wb__core_party_forget(struct epoch *e, uint32_t engine, uint64_t transfer);
/* party.c, for stage.c and party_ends.c */
void wb__core_party_fail(struct party *p, int code, const char *sentence);
void wb__core_party_open(struct party *p);
/* Anything but Committed; @m says what of it, and why. */
void wb__core_party_failed_end(struct party *p, const struct wb_msg_peer *m);
/* Nothing lands any more, and nobody waits for what its workers never got. */
void wb__core_party_stop_flow(struct party *p);
void wb__core_party_progress(struct party *p, enum progress what);
void wb__core_to_worker(struct worker *w, uint16_t type, const void *msg);
/* judge.c */
void wb__core_judge_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_judge_load(struct object *o);
/* A leader here has given a transfer this number: it outlives the process. */
void wb__core_judge_number(struct object *o, uint64_t transfer);
/* ballot.c */
void wb__core_ballot_first(struct ballot *b, struct epoch *e, uint64_t transfer);
void wb__core_ballot_ask(struct ballot *b, struct object *o, uint64_t transfer,
	const uint64_t *judge, uint32_t n_judge);
void wb__core_ballot_stop(struct ballot *b);
void wb__core_ballot_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
uint64_t wb__core_ballot_tick(struct object *o, uint64_t now);
uint64_t wb__core_judge_hash(const char *agent);
uint32_t wb__core_judges(const struct epoch *e, uint64_t judge[WB_AREA_JUDGES_MAX]);
/* resume.c */
/* Runs of the plan before that cannot end there: before anybody says what its areas hold. */
void wb__core_resume_end_old(struct epoch *e);
/* After wb__core_doubt(): what is in doubt is answered first. */
void wb__core_resume(struct epoch *e);
/* All parties have said what their areas hold, and nobody is in doubt any more? */
void wb__core_resume_look(struct epoch *e, uint32_t engine);
void wb__core_resume_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/* doubt.c */
/* Under a new plan: workers here that missed the END of an update ask for it. */
void wb__core_doubt(struct epoch *e);
/* The lead of a party that has stopped, or is whole, is gone: its workers wait for the next. */
void wb__core_doubt_begin(struct party *p);
/* END came after all; false: nobody here is in doubt of it. */
bool wb__core_doubt_end(struct epoch *e, const struct wb_msg_peer *m);
void wb__core_doubt_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
uint64_t wb__core_doubt_tick(struct object *o, uint64_t now);
/* The engine's lead has begun something and not answered: it does not know. */
void wb__core_doubt_over(struct epoch *e, uint32_t engine);
/* What the lead asked of an agent that is gone since, or its answer, is lost. */
void wb__core_doubt_agent_down(struct lead *l, uint32_t agent, uint64_t upto);
/* The lead has asked this agent, and holds TARGET back until it knows. */
bool wb__core_doubt_waits_for(const struct lead *l, uint32_t agent);
/* times.c: to the env, when the workers go on. */
void wb__core_times_party(struct party *p);
void wb__core_times_trainers(struct trainers *t);
/* lead.c */
void wb__core_lead_resume(struct lead *l, const struct resume *r);
/* The run cannot end: its areas are taken up under the new plan. */
void wb__core_lead_broken(struct lead *l, const char *why);
/* Is this agent the one, or among those, that it waits for? */
bool wb__core_lead_is_late(const struct lead *l, uint32_t agent);
void wb__core_lead_chosen(struct lead *l, enum decision d);
/** wb__core_lead_hand_over - a plan comes that takes this one's place: judges are asked, if that is
 *  needed and the leader has had its time. */
void wb__core_lead_hand_over(struct lead *l);
/* Nobody is in doubt any more: TARGET waited for that. */
void wb__core_lead_go_on(struct lead *l);
void wb__core_lead_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_lead_agent_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
uint64_t wb__core_lead_tick(struct object *o, uint64_t now);
/* leader.c */
void wb__core_leader_chosen(struct leader *l, enum decision d);
/** wb__core_leader_hand_over - a plan comes that takes @e's place: a proposal that no majority has
 *  answered in time ends here, as one whose outcome is not known. */
void wb__core_leader_hand_over(struct epoch *e);
bool wb__core_is_end(enum wb_engine_state s); /* nothing more comes of the engine */
bool wb__core_has_trainer(const struct epoch *e, uint32_t agent);

/* roles.c */
int wb__core_roles_create(struct epoch *e); /* -ENOMEM */
void wb__core_roles_finish(struct epoch *e);
/* Is the message one that agent @from may send to this one (proto/peers.h)?  Else it is counted. */
bool wb__core_may_say(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_leader_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_leader_agent_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
uint64_t wb__core_leader_tick(struct object *o, uint64_t now);
int wb__core_leader_feed(struct epoch *e, uint32_t engine, uint32_t source, struct wb_err *err);
/* trainers.c */
void wb__core_trainers_msg(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
void wb__core_trainers_replanned(struct epoch *e);
void wb__core_trainers_send(struct worker *w, int64_t version, bool hold);
void wb__core_trainers_release(struct worker *w, uint64_t transfer);
void wb__core_trainers_snapped(struct epoch *e, struct wb_flow *f, uint32_t local, int rc);
void wb__core_trainers_worker_lost(struct worker *w, const char *why);
/* @unheard: what was asked of it has not been confirmed. */
void wb__core_trainers_leader_down(struct epoch *e, uint32_t agent, bool unheard, const char *why);
bool wb__core_trainers_unheard(const struct epoch *e, uint32_t agent);
/* The leader may have called this agent down, and forgotten what it asked. */
void wb__core_trainers_ask_again(struct epoch *e, uint32_t agent);
uint64_t wb__core_trainers_tick(struct object *o, uint64_t now);

static inline uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* Workers of @engine in this agent: for each local index i of a rollout of the engine. */
#define for_party_worker(e, en, i)                                                                 \
	for (uint32_t i = 0; i < (e)->local->n; i++)                                               \
		if ((e)->plan->worker[(e)->local->member[i].plan_worker].role ==                   \
				WB_ROLE_ROLLOUT &&                                                 \
			(e)->plan->worker[(e)->local->member[i].plan_worker].engine == (en))

#endif
