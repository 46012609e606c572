/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_FLOWS_H
#define WB_TRANSFER_FLOWS_H
/*
 * The flows of an object: how a transfer's bytes move to and from this agent's workers, one flow a
 * transfer, epoch and kind of memory (object.h: struct flow_slot).
 *
 * A flow is made when first needed, stopped when overtaken, and destroyed when it is stopped and
 * idle.  Parties and trainers have borrowed pointers to the flow of their run, which become NULL
 * when it is destroyed.  Invariant: no two flows that are not stopped have the same epoch, transfer
 * and kind.
 */
#include "transfer/object.h"

#define TRANSFER_DRAIN_NS                                                                          \
	(5 * WB_NS_PER_S) /* old readers of parameters, before they are cut off                    \
			   */

/** wb__transfer_flow_env_init - set the callbacks of the epoch's flows. */
void wb__transfer_flow_env_init(struct epoch *e);
/** wb__transfer_flow_get - the flow of that transfer, over areas where the object's rollouts are
 * staged.  NULL: there is none, and @make is false or none could be made (wb__transfer_no_flow()
 * says why).  Borrowed. */
struct wb_flow *wb__transfer_flow_get(struct epoch *e, uint64_t transfer, bool make);
/** wb__transfer_flow_direct - the same over parameters, in any mode: for feeds. */
struct wb_flow *wb__transfer_flow_direct(struct epoch *e, uint64_t transfer, bool make);
/** wb__transfer_flow_source - the flow in which @plan_worker of this agent may be read for that
 * transfer, made if the worker holds it; NULL = none (yet). */
struct wb_flow *wb__transfer_flow_source(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
/** wb__transfer_no_flow - why no flow could be made.  Static. */
const char *wb__transfer_no_flow(const struct epoch *e);
/** wb__transfer_seed - seed of the sums of a transfer.  Both sides compute it, so that data of an
 * older transfer in a slot does not pass. */
uint64_t wb__transfer_seed(const struct object *o, uint64_t transfer);
/** wb__transfer_flows_retire - stop the flows of transfers below @below. */
void wb__transfer_flows_retire(struct object *o, uint64_t below);
/** wb__transfer_flows_prune - the same, but spares flows that a run here uses, or whose version
 * somebody here holds; then reaps. */
void wb__transfer_flows_prune(struct object *o, uint64_t below);
/** wb__transfer_stop_kept_flows - stop flows that are kept only for readers of a version, of one
 * epoch or (@e NULL) of both.  Readers ask again, and find a new flow. */
void wb__transfer_stop_kept_flows(struct object *o, const struct epoch *e);
/** wb__transfer_flow_stop - stop @f (NULL is allowed), unless a run here uses it.  Readers ask
 * again, and find a new flow. */
void wb__transfer_flow_stop(struct object *o, const struct wb_flow *f);
/** wb__transfer_flows_reap - destroy the flows that are stopped and idle. */
void wb__transfer_flows_reap(struct object *o);
/** wb__transfer_flows_use - does any flow of the worker's object still touch its memory? */
bool wb__transfer_flows_use(const struct worker *w);
/** wb__transfer_flows_drop_worker - the worker leaves, or its memory goes away: end its part in all
 * flows.  A flow that has a whole snapshot of it goes on. */
void wb__transfer_flows_drop_worker(struct object *o, const struct worker *w);

/* Which memory of the engine's workers nobody may touch any more. */
enum quiet { QUIET_PARAMS, QUIET_AREAS };

/**
 * wb__transfer_flows_quiet - before parameters or areas of an engine change
 * Nobody may be reading them for an older transfer, and nothing of an older one may still land
 * there.  Closes the workers as sources of older transfers.  True: all is quiet; false: call it
 * again.  @cut: drop the connections of those who still read.
 */
bool wb__transfer_flows_quiet(
	struct epoch *e, uint32_t engine, uint64_t transfer, enum quiet what, bool cut);

#endif
