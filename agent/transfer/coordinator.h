/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_COORDINATOR_H
#define WB_TRANSFER_COORDINATOR_H
/*
 * A coordinator: the book of one transfer, kept by the agent of the plan's first trainer worker; a
 * feed has one of its own, kept by the lead of the engine that feeds.  Owned by its object (feeds:
 * a list).  It asks the engines' leads and the trainers' agents, and says how the transfer ended.
 *
 * Invariants: a coordinator that is not IDLE has an epoch of its object, an entry for each engine
 * and a deadline; the number that it gives a transfer is above all that it has seen; it proposes
 * COMMIT only when every engine is Staged and nothing was cancelled; FINAL is said when every
 * engine has ended.
 */
#include "transfer/ballot.h"

enum coordinator_state { COORDINATOR_IDLE, COORDINATOR_RUNNING, COORDINATOR_RELEASED };

struct coordinator_engine {
	bool takes_part, is_superseded;
	enum wb_engine_state state;
	uint64_t since; /* number of PREPARE, on the wire to its lead */
	uint32_t losses;
	char sentence[512];
};

struct coordinator {
	enum coordinator_state state;
	struct epoch *e;
	bool is_feed; /* brings one engine what another holds */
	bool is_proposed; /* COMMIT was proposed to the judges: it cannot cancel alone any more */
	bool is_cancelled; /* leads were told to give up */
	bool is_superseded; /* dropped for a newer version */
	struct ballot ballot;
	uint32_t feed_engine, source_engine;
	uint64_t transfer;
	int64_t version;
	uint32_t losses;
	struct coordinator_engine *engine; /* owned, by engine */
	uint64_t begin_ns, begin_wall_ns, deadline_ns, proposed_ns;
	uint64_t idle_ns; /* when the last one ended */
	uint64_t bytes[WB_STAGES];
	uint64_t stall_ns, n_stall;
	struct coordinator *next; /* feeds */
};

/* What an agent with trainer workers has asked the coordinator for. */
struct trigger {
	bool asked; /* all its trainer workers have called, and no transfer answers that yet */
	uint64_t next_after; /* this transfer runs and the agent's next version is ready; 0 = not */
	uint64_t asked_ns;
	/* Number that the agent gave the call; 0: an older agent, which gives none. */
	uint32_t call;
	uint32_t served; /* the call that the coordinator's last transfer answers; 0 = none */
	/* Greatest transfer that the agent knew when it asked: a later one answers. */
	uint64_t highest;
	uint64_t refused_seq; /* number of the message that told it of the last refusal; 0 = none */
	/* Version that was refused: the agent's own or, where it had not asked, the others'. */
	int64_t refused_version;
	int64_t version;
	int64_t code;
	char sentence[512];
};

/** wb__transfer_coordinator_agent_down - @agent is gone; transfers above @upto are not affected. */
void wb__transfer_coordinator_agent_down(
	struct epoch *e, uint32_t agent, uint64_t upto, const char *why);
/** wb__transfer_coordinator_chosen - the decision on what it proposed is known. */
void wb__transfer_coordinator_chosen(struct coordinator *l, enum decision d);
/** wb__transfer_coordinator_hand_over - a plan is about to take @e's place: a proposal that no
 * majority has answered in time ends here, as one whose outcome is not known. */
void wb__transfer_coordinator_hand_over(struct epoch *e);
/** wb__transfer_coordinator_feed - bring @engine to what @source holds.  0 (also when this feed is
 * under way already); -EAFNOSUPPORT, -ENOENT, -EBUSY or -ENOMEM with a sentence. */
int wb__transfer_coordinator_feed(
	struct epoch *e, uint32_t engine, uint32_t source, struct wb_err *err);
/** wb__transfer_coordinator_tick - look at deadlines, and begin what may begin; when to call again,
 * 0 = never. */
uint64_t wb__transfer_coordinator_tick(struct object *o, uint64_t now);
/** wb__transfer_is_end - has an engine in this state ended the transfer? */
bool wb__transfer_is_end(enum wb_engine_state s);

#endif
