/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_FLOWS_H
#define WB_TRANSFER_FLOWS_H
/*
 * The flows of an object: how a transfer's bytes move to and from this agent's workers, one flow a
 * transfer, epoch and kind of memory (object.h: struct flow_slot).
 *
 * Made on first need, stopped when overtaken, destroyed when a stopped one is idle.  Parties and
 * trainers have borrowed pointers to the flow of their run: they become NULL when it is destroyed.
 * Invariant: of those that are not stopped no two have the same epoch, transfer and kind.
 */
#include "transfer/object.h"

#define TRANSFER_DRAIN_NS                                                                          \
	(5 * WB_NS_PER_S) /* old readers of parameters, before they are cut off                    \
			   */

/** wb__transfer_flow_env_init - what flows of the epoch call. */
void wb__transfer_flow_env_init(struct epoch *e);
/** wb__transfer_flow_get - by areas where the object is staged.  NULL: there is none, and none was
 * to be made, or could be (wb__transfer_no_flow() says why).  Borrowed. */
struct wb_flow *wb__transfer_flow_get(struct epoch *e, uint64_t transfer, bool make);
/** wb__transfer_flow_direct - the same by parameters in any mode: feeds. */
struct wb_flow *wb__transfer_flow_direct(struct epoch *e, uint64_t transfer, bool make);
/** wb__transfer_flow_source - one that @plan_worker of this agent may be read from; NULL = none
 * (yet).
 */
struct wb_flow *wb__transfer_flow_source(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
/** wb__transfer_no_flow - why none could be made.  Static. */
const char *wb__transfer_no_flow(const struct epoch *e);
/** wb__transfer_seed - of the sums of a transfer; both sides compute it, so that an old slot's data
 *  fails by its seed. */
uint64_t wb__transfer_seed(const struct object *o, uint64_t transfer);
/** wb__transfer_flows_retire - stop flows of transfers below. */
void wb__transfer_flows_retire(struct object *o, uint64_t below);
/** wb__transfer_flows_prune - of those, the ones nobody holds or uses. */
void wb__transfer_flows_prune(struct object *o, uint64_t below);
/** wb__transfer_stop_kept_flows - those that are only there for readers of what is held, of one
 * epoch or (@e NULL) of both: readers ask again, and find a new one. */
void wb__transfer_stop_kept_flows(struct object *o, const struct epoch *e);
/** wb__transfer_flow_stop - that one (NULL = none), unless it is in use here: who reads from it
 * asks again, and finds a new one. */
void wb__transfer_flow_stop(struct object *o, const struct wb_flow *f);
/** wb__transfer_flows_reap - destroy those that are stopped and idle. */
void wb__transfer_flows_reap(struct object *o);
/** wb__transfer_flows_use - does any flow of its object still touch the worker's memory? */
bool wb__transfer_flows_use(const struct worker *w);
/** wb__transfer_flows_drop_worker - it leaves, or its memory goes: its part of all flows ends. */
void wb__transfer_flows_drop_worker(struct object *o, const struct worker *w);

/* What of the engine's workers nobody may touch any more. */
enum quiet { QUIET_PARAMS, QUIET_AREAS };

/**
 * wb__transfer_flows_quiet - before parameters or areas of an engine change
 * Nobody may be reading them for an older transfer, and nothing of an older one may still land
 * there.  Closes those sources.  True when quiet; @cut drops the connections of who still reads.
 */
bool wb__transfer_flows_quiet(
	struct epoch *e, uint32_t engine, uint64_t transfer, enum quiet what, bool cut);

#endif
