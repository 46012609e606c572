/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_DOUBT_H
#define WB_TRANSFER_DOUBT_H
/*
 * A doubt: an update whose end workers of an engine have missed (doubt.c).  The workers' own side
 * is in worker.h (past.begun); this is the lead's book of the update that it looks into.
 *
 * Either nobody is in doubt (transfer 0), or agents are asked until all have answered or one has
 * seen the update committed.  Invariant: one run is looked into at a time; another may wait in
 * `next`, and only then.
 */
#include "transfer/internal.h"

/* How long an answer is awaited, with the time in which an agent is started again; the step
 * deadline where that is longer, but not above the maximum. */
#define TRANSFER_DOUBT_NS (15 * WB_NS_PER_S)
#define TRANSFER_DOUBT_MAX_NS (25 * WB_NS_PER_S)
#define TRANSFER_DOUBT_TOLD_NS                                                                     \
	(600 * WB_NS_PER_S) /* all have stopped: as long as a library waits */
#define TRANSFER_ASK_AGAIN_NS WB_NS_PER_S

struct lead;
struct party;

struct doubt_agent {
	bool is_in_doubt; /* workers there are in doubt, and are to be told */
	bool is_asked; /* it was asked, and has not answered yet */
	bool was_asked; /* once is enough: when it was asked it ended its run */
};

struct doubt_next { /* a question about another run, which waits; transfer 0 = none */
	uint32_t from, poll, says;
	uint64_t transfer;
};

struct doubt {
	struct doubt_next next;
	struct epoch *e;
	struct doubt_agent *agent; /* owned, by agent; NULL = never needed */
	uint32_t engine, poll,
		says; /* poll: count at its stop; says: SAYS_* of doubt.c, from all who answered */
	uint64_t transfer; /* 0 = nobody is in doubt */
	uint64_t committed; /* last transfer that was answered as committed; 0 = none */
};

/** wb__transfer_doubt - a new plan is active: workers here that missed the END of an update ask for
 * it. */
void wb__transfer_doubt(struct epoch *e);
/** wb__transfer_doubt_begin - the party has stopped, or is whole, and its lead is gone: its workers
 * wait for the next lead. */
void wb__transfer_doubt_begin(struct party *p);
/** wb__transfer_doubt_end - END came after all.  False: nobody here is in doubt of it.  When it
 * proves nothing, as it may be of another run of the same transfer, the lead is asked. */
bool wb__transfer_doubt_end(struct epoch *e, const struct wb_msg_peer *m);
/** wb__transfer_doubt_tick - ask again, or go by what is known here; when to call again, 0 = never.
 */
uint64_t wb__transfer_doubt_tick(struct object *o, uint64_t now);
/** wb__transfer_doubt_asks_late - was a worker here told Torn by a guess, and is the question how
 * that update ended still out?  Meanwhile no stop is set for the worker: it would poll up to the
 * stop, and could then not go on from where the engine's other workers went on, who may wait for it
 * in their next step. */
bool wb__transfer_doubt_asks_late(const struct epoch *e, uint32_t engine);
/** wb__transfer_doubt_over - the engine's lead has begun something without an answer, so it does
 * not know one: workers here that are in doubt are told Torn. */
void wb__transfer_doubt_over(struct epoch *e, uint32_t engine);
/** wb__transfer_doubt_agent_down - @agent is gone: what the lead asked it, or its answer, is lost.
 * Runs of transfers above @upto are not affected. */
void wb__transfer_doubt_agent_down(struct lead *l, uint32_t agent, uint64_t upto);
/** wb__transfer_doubt_waits_for - the lead has asked this agent, and holds TARGET back until it
 * knows.
 */
bool wb__transfer_doubt_waits_for(const struct lead *l, uint32_t agent);

#endif
