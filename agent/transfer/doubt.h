/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_DOUBT_H
#define WB_TRANSFER_DOUBT_H
/*
 * A doubt: an update whose end workers of an engine have missed (doubt.c).  The workers know that
 * they are in one (worker.h: past.begun); this is the lead's book of the one that it looks into.
 *
 * Nobody is in doubt (transfer 0), or agents are asked until all have said or one has seen it
 * committed.  Invariant: one run at a time; another waits in `next`, and only while there is one.
 */
#include "transfer/internal.h"

/* For an agent to be started again, and the answer; as much of the step deadline as that is. */
#define TRANSFER_DOUBT_NS (15 * WB_NS_PER_S)
#define TRANSFER_DOUBT_MAX_NS (25 * WB_NS_PER_S)
#define TRANSFER_DOUBT_TOLD_NS                                                                     \
	(600 * WB_NS_PER_S) /* all have stopped: as long as a library waits */
#define TRANSFER_ASK_AGAIN_NS WB_NS_PER_S

struct lead;
struct party;

struct doubt_agent {
	bool is_in_doubt; /* workers there are, and are to be told */
	bool is_asked; /* has not answered yet */
	bool was_asked; /* once is enough: it has ended its run */
};

struct doubt_next { /* of another run; transfer 0 = none */
	uint32_t from, poll, says;
	uint64_t transfer;
};

struct doubt {
	struct doubt_next next;
	struct epoch *e;
	struct doubt_agent *agent; /* owned, by agent; NULL = never needed */
	uint32_t engine, poll,
		says; /* poll count of its stop; SAYS_* of doubt.c, of all that said */
	uint64_t transfer; /* 0 = nobody is in doubt */
	uint64_t committed; /* the last that was answered so; 0 = none */
};

/** wb__transfer_doubt - under a new plan: workers here that missed the END of an update ask for it.
 */
void wb__transfer_doubt(struct epoch *e);
/** wb__transfer_doubt_begin - the lead of a party that has stopped, or is whole, is gone: its
 * workers wait for the next. */
void wb__transfer_doubt_begin(struct party *p);
/** wb__transfer_doubt_end - END came after all; false: nobody here is in doubt of it.  What it does
 *  not prove is asked for: it may be that of another run of the same transfer. */
bool wb__transfer_doubt_end(struct epoch *e, const struct wb_msg_peer *m);
/** wb__transfer_doubt_tick - ask again, or go by what is known here; when to call again, 0 = never.
 */
uint64_t wb__transfer_doubt_tick(struct object *o, uint64_t now);
/** wb__transfer_doubt_asks_late - a worker here was told Torn by a guess, and the question how that
 * update ended is out.  No stop is set for it meanwhile: it would poll up to that, and could not go
 * on from where the others, which may wait for it in their next step, went on. */
bool wb__transfer_doubt_asks_late(const struct epoch *e, uint32_t engine);
/** wb__transfer_doubt_over - the engine's lead has begun something and not answered: it does not
 * know.
 */
void wb__transfer_doubt_over(struct epoch *e, uint32_t engine);
/** wb__transfer_doubt_agent_down - what the lead asked of an agent that is gone since, or its
 * answer, is lost. */
void wb__transfer_doubt_agent_down(struct lead *l, uint32_t agent, uint64_t upto);
/** wb__transfer_doubt_waits_for - the lead has asked this agent, and holds TARGET back until it
 * knows.
 */
bool wb__transfer_doubt_waits_for(const struct lead *l, uint32_t agent);

#endif
