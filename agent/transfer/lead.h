/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_LEAD_H
#define WB_TRANSFER_LEAD_H
/*
 * A lead: the book of one engine in one transfer or feed, kept by the agent of its first worker.
 * Owned by its epoch, one an engine.  It gives its parties their orders and says how the run ended.
 * (The *coordinator* leads the whole transfer: coordinator.h.)
 *
 * Invariants: one that is not NONE has a line for each agent; TARGET is sent when all have
 * promised, OPEN or INSTALL when all have stopped and all who ask know so; Committed is said only
 * when all are whole, or have installed; how a run ended is said once.  What is staged goes by
 * STAGING, STAGED and INSTALLING, what is not by MOVING; judges are asked in STAGED only; a
 * deadline ends each state but STAGED and DONE.
 */
#include "transfer/ballot.h"
#include "transfer/doubt.h"
#include "transfer/resume.h"

#define TRANSFER_JOINT_NS (5 * WB_NS_PER_S) /* for judges, when another plan waits for them */

enum lead_state {
	LEAD_NONE,
	LEAD_STAGING, /* into areas, the workers run */
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
	/* bools only, in front: read by offset */
	bool takes_part, promised, stopped, heard, received, complete, installed, ended, down;
	uint32_t losses; /* losses it has taken in when it said received */
	uint64_t since; /* number of the first order to it, on its wire; 0 = any */
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

/** wb__transfer_lead_engine_lost - LOST, of the coordinator: the parties take the engine's share
 * over.
 */
void wb__transfer_lead_engine_lost(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_lead_agent_down - an agent is gone, in transfers up to @upto. */
void wb__transfer_lead_agent_down(struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
/** wb__transfer_lead_resume - take up what parties have said that their areas hold. */
void wb__transfer_lead_resume(struct lead *l, const struct resume *r);
/** wb__transfer_lead_broken - the run cannot end: its areas are taken up under the new plan. */
void wb__transfer_lead_broken(struct lead *l, const char *why);
/** wb__transfer_leads_run - has a run begun that is not over? */
static inline bool wb__transfer_leads_run(const struct lead *l)
{
	return l->state != LEAD_NONE && l->state != LEAD_DONE;
}

/** wb__transfer_lead_is_late - is this agent the one, or among those, that it waits for? */
bool wb__transfer_lead_is_late(const struct lead *l, uint32_t agent);
/** wb__transfer_lead_chosen - the decision is known; nothing when it does not wait for it. */
void wb__transfer_lead_chosen(struct lead *l, enum decision d);
/** wb__transfer_lead_hand_over - a plan comes that takes this one's place: judges are asked, if
 * that is needed and the coordinator has had its time. */
void wb__transfer_lead_hand_over(struct lead *l);
/** wb__transfer_lead_go_on - nobody is in doubt any more: TARGET waited for that. */
void wb__transfer_lead_go_on(struct lead *l);

/* lead_begin.c */

/** wb__transfer_lead_may_begin - may the engine begin what PREPARE @m asks for?  If not, @from is
 *  told why. */
bool wb__transfer_lead_may_begin(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);
/** wb__transfer_lead_overtake - what the engine was about under the plan before is overtaken by @m.
 */
void wb__transfer_lead_overtake(struct epoch *e, const struct wb_msg_peer *m);
/** wb__transfer_lead_refuse - tell who asked that the engine does not begin @m, and why. */
void wb__transfer_lead_refuse(
	struct epoch *e, uint32_t from, const struct wb_msg_peer *m, int64_t code, const char *why);

/* lead.c */

/** wb__transfer_lead_tick - deadlines; when to call again, 0 = never. */
uint64_t wb__transfer_lead_tick(struct object *o, uint64_t now);

#endif
