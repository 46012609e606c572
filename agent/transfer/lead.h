/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_LEAD_H
#define WB_TRANSFER_LEAD_H
/*
 * A lead: the book of one engine in one transfer or feed, kept by the agent of its first worker.
 * Owned by its epoch, one for each engine.  It gives its parties their orders and says how the run
 * ended.  (The *coordinator* leads the whole transfer: coordinator.h.)
 *
 * Invariants: a lead that is not NONE has an entry for each agent; TARGET is sent when all parties
 * have promised, OPEN or INSTALL when all have stopped and all who ask for it know so; Committed is
 * said only when all parties are whole or (staged) have installed; how a run ended is said once.  A
 * staged run goes through STAGING, STAGED and INSTALLING, another one through MOVING; judges are
 * asked in STAGED only; a deadline ends each state but STAGED and DONE.
 */
#include "transfer/ballot.h"
#include "transfer/doubt.h"
#include "transfer/resume.h"

#define TRANSFER_JOINT_NS (5 * WB_NS_PER_S) /* for a decision, when another plan waits for it */

enum lead_state {
	LEAD_NONE,
	LEAD_STAGING, /* receive into areas; the workers run */
	LEAD_STAGED, /* waits for the decision */
	LEAD_PROMISES,
	LEAD_STOPS,
	LEAD_TELLING, /* all have stopped, and are told so */
	LEAD_MOVING,
	LEAD_INSTALLING,
	LEAD_ENDING,
	LEAD_DONE
};

struct lead_agent {
	/* These bools come first, and no other type among them: they are read by offset. */
	bool takes_part, promised, stopped, heard, received, complete, installed, ended, down;
	uint32_t losses; /* losses that it had taken in when it said RECEIVED */
	uint64_t since; /* number on its wire of this run's first order to it; 0 = any */
};

struct lead {
	enum lead_state state;
	struct epoch *e;
	uint32_t engine, coordinator, losses, target;
	uint64_t transfer;
	int64_t version;
	bool is_feed; /* brings what others hold */
	bool is_staged; /* by areas */
	bool is_decided; /* COMMIT was chosen */
	bool is_superseded; /* dropped for a newer version */
	/* Since it last committed, a party has said that workers of its own are torn. */
	bool has_torn;
	struct ballot ballot;
	struct resume resume;
	struct doubt doubt;
	uint32_t source_engine;
	struct lead_agent *agent; /* owned, by agent */
	enum wb_engine_state result; /* of this run */
	/* What the run leaves: an engine that was torn stays so when the run aborts. */
	enum wb_engine_state told;
	enum wb_engine_state ended; /* of this run, as the parties are told */
	int64_t code;
	char sentence[WB_ERR_MSG_MAX];
	uint64_t deadline_ns, begin_wall_ns, staged_ns;
	uint64_t bytes[WB_STAGES];
	uint64_t stall_ns, n_stall;
	struct wbk_sum sum;
};

/** wb__transfer_lead_engine_lost - LOST came from the coordinator: the parties take over the share
 * of the lost engine. */
void wb__transfer_lead_engine_lost(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_lead_agent_down - @agent is gone; transfers above @upto are not affected. */
void wb__transfer_lead_agent_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
/** wb__transfer_lead_resume - take up the transfer that areas hold, as all parties have said. */
void wb__transfer_lead_resume(struct lead *l, const struct resume *r);
/** wb__transfer_lead_broken - the run cannot end as it should, and fails; what is whole in areas is
 * taken up under the new plan. */
void wb__transfer_lead_broken(struct lead *l, const char *why);
/** wb__transfer_leads_run - has a run begun that is not over? */
static inline bool wb__transfer_leads_run(const struct lead *l)
{
	return l->state != LEAD_NONE && l->state != LEAD_DONE;
}

/** wb__transfer_lead_is_late - does the lead wait for this agent, alone or among others? */
bool wb__transfer_lead_is_late(const struct lead *l, uint32_t agent);
/** wb__transfer_lead_chosen - the decision is known; does nothing unless the lead waits for it. */
void wb__transfer_lead_chosen(struct lead *l, enum decision d);
/** wb__transfer_lead_hand_over - a plan is about to take this one's place: ask the judges, if the
 * lead waits for the decision and the coordinator has had its time. */
void wb__transfer_lead_hand_over(struct lead *l);
/** wb__transfer_lead_go_on - send TARGET, once all have promised and nobody is in doubt any
 * more. */
void wb__transfer_lead_go_on(struct lead *l);

/* lead_begin.c */

/** wb__transfer_lead_may_begin - may the engine begin what PREPARE @m asks for?  If not, @from is
 *  told why. */
bool wb__transfer_lead_may_begin(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_lead_overtake - if the engine is in a run under the plan before, end it: @m
 * overtakes it. */
void wb__transfer_lead_overtake(struct epoch *e, const struct wb_msg_peer *m);
/** wb__transfer_lead_refuse - tell @from, who asked, that the engine does not begin @m, and why. */
void wb__transfer_lead_refuse(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, int64_t code, const char *why);

/* lead.c */

/** wb__transfer_lead_tick - deadlines; when to call again, 0 = never. */
uint64_t wb__transfer_lead_tick(struct object *o, uint64_t now);

#endif
