/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_PAIRS_H
#define WB_FLOW_PAIRS_H
/*
 * Pairs: what one worker of this agent asks of one worker of another, in order, and which pair is
 * next.
 *
 * A want is in the queue of its pair.  A pair with something in its queue is exactly one of
 *	live	in the heap of its own worker and kind: it can be asked
 *	full	its window is: it is live again when a grant of it has ended
 *	held	its agent is not connected, or has no room for grants: live again when it is, or
 *		looked at again by a tick
 * and an own worker with something live, and less than its share of flights, waits in the ring of
 * its kind.  So an event moves the one pair that it is about, whatever there is beside it.
 *
 * The heap is ordered by how much of a pair's share has been asked for: sources get on in
 * proportion to what each has to send to the worker, and end together.  Where in its share a pair
 * begins differs from pair to pair, so that workers do not all turn to one source at once.
 * Loop thread.  Not for others than flow.
 */
#include "flow/internal.h"

/** wb__pairs_init - for all workers of the plan, and as many flights as they may have; 0 or
 *  -ENOMEM.  wb__pairs_finish() in either case. */
int wb__pairs_init(struct wb_flow *f);
void wb__pairs_finish(struct wb_flow *f);
/** wb__pair_push - want @i at the end of the queue of its worker and source, which is of another
 *  agent. */
void wb__pair_push(struct wb_flow *f, uint32_t i);
/** wb__pair_push_again - the same of one that was asked for in vain and is of that share still. */
void wb__pair_push_again(struct wb_flow *f, uint32_t i);
/** wb__pair_take_all - the queue, which is empty then: its share begins anew. */
struct want_list wb__pair_take_all(struct wb_flow *f, uint32_t worker, uint32_t src);
/** wb__pairs_fill - while @on pairs only fill, so that each is put in order by all that it gets;
 *  then those that got something are. */
void wb__pairs_fill(struct wb_flow *f, bool on);
/** wb__pair_ended - a grant of this pair has ended; was counted by wb__pairs_pump(). */
void wb__pair_ended(struct wb_flow *f, uint32_t worker, uint32_t src);
/** wb__pair_flight_put - a flight of this worker and kind has ended; wb__pair_flight_get() has
 *  counted it. */
void wb__pair_flight_put(struct wb_flow *f, uint32_t worker, enum fetch_kind kind);
void wb__pair_flight_get(struct wb_flow *f, uint32_t worker, enum fetch_kind kind);
/** wb__pairs_release - those held for agent @domain are looked at by the next pump. */
void wb__pairs_release(struct wb_flow *f, uint32_t domain);
/** wb__pairs_release_all - the same for all agents. */
void wb__pairs_release_all(struct wb_flow *f);
/** wb__pairs_due - when an agent that had no room is to be asked again, of those after @now_ns; 0 =
 *  there is none. */
uint64_t wb__pairs_due(const struct wb_flow *f, uint64_t now_ns);
/** wb__pairs_pump - ask for whatever can be asked for, own workers in turns. */
void wb__pairs_pump(struct wb_flow *f, enum fetch_kind kind);

#endif
