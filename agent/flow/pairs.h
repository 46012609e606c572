/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_FLOW_PAIRS_H
#define WB_FLOW_PAIRS_H
/*
 * Pairs: what one worker of this agent asks of one worker of another agent, in order, and which
 * pair is next.
 *
 * A want is in the queue of its pair.  A pair with something in its queue is exactly one of
 *	live	in the heap of its own worker and kind: it can be asked
 *	full	its window is: it is live again when a grant of it has ended
 *	held	its agent is not connected, or has no room for grants: live again when it is, or
 *		looked at again by a tick
 * and an own worker with something live, and less than its share of flights, waits in the ring of
 * its kind.  So an event moves the one pair that it is about, whatever there is beside it.
 *
 * The heap is ordered by how much of a pair's share has been asked for: so sources proceed in
 * proportion to what each has to send to the worker, and end together.  Each pair begins at another
 * point of its share, so that workers do not all turn to one source at once.
 * Loop thread.  Not for others than flow.
 */
#include "flow/internal.h"

/** wb__pairs_init - make pairs for all workers of the plan; 0 or -ENOMEM.  Call wb__pairs_finish()
 * in either case. */
int wb__pairs_init(struct wb_flow *f);
void wb__pairs_finish(struct wb_flow *f);
/** wb__pair_push - put want @i at the end of its pair's queue; its source is a worker of another
 * agent. */
void wb__pair_push(struct wb_flow *f, uint32_t i);
/** wb__pair_push_again - the same for a want that was asked for in vain, and still counts in the
 * pair's share. */
void wb__pair_push_again(struct wb_flow *f, uint32_t i);
/** wb__pair_take_all - take the whole queue, which is empty then; the pair's share begins anew. */
struct want_list wb__pair_take_all(struct wb_flow *f, uint32_t worker, uint32_t src);
/** wb__pairs_fill - while @on, wants only go into queues; when it ends, each pair that got some is
 * put in order, by all that it got. */
void wb__pairs_fill(struct wb_flow *f, bool on);
/** wb__pair_ended - a grant of this pair, counted by wb__pairs_pump(), has ended. */
void wb__pair_ended(struct wb_flow *f, uint32_t worker, uint32_t src);
/** wb__pair_flight_put - a flight of this worker and kind, counted by wb__pair_flight_get(), has
 * ended. */
void wb__pair_flight_put(struct wb_flow *f, uint32_t worker, enum fetch_kind kind);
void wb__pair_flight_get(struct wb_flow *f, uint32_t worker, enum fetch_kind kind);
/** wb__pairs_release - pairs held for agent @domain are looked at by the next pump. */
void wb__pairs_release(struct wb_flow *f, uint32_t domain);
/** wb__pairs_release_all - the same for all agents. */
void wb__pairs_release_all(struct wb_flow *f);
/** wb__pairs_due - the first time after @now_ns when an agent that had no room is to be asked
 * again; 0 = there is none. */
uint64_t wb__pairs_due(const struct wb_flow *f, uint64_t now_ns);
/** wb__pairs_pump - ask for whatever can be asked for; own workers take turns. */
void wb__pairs_pump(struct wb_flow *f, enum fetch_kind kind);

#endif
