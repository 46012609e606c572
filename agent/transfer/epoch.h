/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_EPOCH_H
#define WB_TRANSFER_EPOCH_H
/*
 * An epoch: a plan and its roster, as far as they concern this agent.  Owned by its object, which
 * keeps two: the newest installed and the one before.  It holds a reference to its roster
 * (roster.h: with the last one the epoch's key goes everywhere), and owns the runs of its engines
 * (parties and leads), the wires and links to its agents, and its images.
 *
 * Active once ACTIVATE came, or any message of a transfer under it; never inactive again.  The plan
 * before goes once a transfer has begun under an active one (`has_begun`) and nothing uses it.
 * Invariants: a transfer has begun only under an active one; `member[i]` is a worker of this agent
 * or, once it has left, NULL.
 */
#include "transfer/lead.h"
#include "transfer/link.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/worker.h"

#define TRANSFER_READY_NS WB_NS_PER_S /* from READY to ACTIVATE, when nothing is wrong */

struct epoch {
	struct object *obj;
	struct wb_roster *r; /* a reference */
	const struct wb_plan *plan; /* the roster's */
	struct wb_local *local; /* parameters */
	struct wb_local *staged; /* the same with staging areas for parameters; NULL = none */
	struct worker **member; /* by local index */
	struct wb_image **image; /* owned: of trainers with snapshots, by local index */
	bool *trains, *leads; /* by agent: has trainer workers; leads an engine */
	uint8_t *has_party; /* bit engine * n_agent + agent: has workers of the engine */
	struct links links; /* to agents */
	struct wire *wire; /* by agent */
	struct wb_flow_env fenv;
	uint32_t me; /* this agent's number in the roster */
	bool is_active;
	uint64_t ready_ns; /* when it was installed */
	uint64_t active_ns; /* when it became active */
	uint64_t seen; /* transfers up to this number have begun: of them only holders have anything
			*/
	bool has_begun; /* a transfer: the plan before may go */
	uint32_t n_refused; /* coordinator: refusals of what trainers asked */
	uint32_t refused_seen; /* trainers: the last of those they heard of */
	bool is_announced; /* coordinator: the trainers know that it is active */
	uint64_t served; /* transfer: the greatest that trainers here were opened for */
	struct party *party; /* by engine */
	struct lead *lead; /* by engine */
	struct trigger *trigger; /* by agent */
};

/* Workers of @engine in this agent: for each local index i of a rollout of the engine. */
#define for_party_worker(e, en, i)                                                                 \
	for (uint32_t i = 0; i < (e)->local->n; i++)                                               \
		if ((e)->plan->worker[(e)->local->member[i].plan_worker].role ==                   \
				WB_ROLE_ROLLOUT &&                                                 \
			(e)->plan->worker[(e)->local->member[i].plan_worker].engine == (en))

/** active_epoch - the newest plan that is active; NULL = none.  An operator may send a plan and
 *  never activate it: it died, or those it planned without came back. */
static inline struct epoch *active_epoch(const struct object *o)
{
	return o->cur && o->cur->is_active     ? o->cur
	       : o->prev && o->prev->is_active ? o->prev
					       : NULL;
}

/** wb__transfer_epoch - the epoch of that id; NULL = it is not here (any more). */
struct epoch *wb__transfer_epoch(const struct wb_transfer_core *c, const struct wb_epoch_id *id);
/** wb__transfer_epoch_find - one of the object's two; NULL = neither is that. */
struct epoch *wb__transfer_epoch_find(const struct object *o, const struct wb_epoch_id *id);
/** wb__transfer_before - the plan before, where @e is the newest; NULL = there is none. */
static inline struct epoch *wb__transfer_before(const struct epoch *e)
{
	return e == e->obj->cur ? e->obj->prev : NULL;
}

/** wb__transfer_activate - it is in use from now on; nothing when it is already. */
void wb__transfer_activate(struct epoch *e);
/** wb__transfer_usable - the plan that transfers begin under: the newest that is active here, or
 * the one before when that does not become active.  NULL = none (yet). */
struct epoch *wb__transfer_usable(const struct object *o);
/** wb__transfer_usable_at - when the plan before may be used instead of one that does not become
 *  active; 0 = not waiting. */
uint64_t wb__transfer_usable_at(const struct object *o);
/** wb__transfer_usable_since - since when there is a usable plan, if there is. */
uint64_t wb__transfer_usable_since(const struct object *o);
/** wb__transfer_images_fit - is there room for the snapshots of @e?  It is shared out anew when
 * another plan comes, which may wait yet, or be refused. */
bool wb__transfer_images_fit(const struct epoch *e);
/** wb__transfer_worker_of - NULL = it is not here (any more). */
struct worker *wb__transfer_worker_of(struct epoch *e, uint32_t plan_worker);
/** wb__transfer_worker_name - for sentences; "?" = the plan has none of that number. */
const char *wb__transfer_worker_name(const struct epoch *e, uint32_t plan_worker);
/** wb__transfer_epoch_forget - the worker's memory is gone: the epoch must not find it again.  @e
 * NULL is allowed. */
void wb__transfer_epoch_forget(struct epoch *e, const struct worker *w);
/** wb__transfer_epoch_tick - the plan before goes when nothing uses it; when to call again, 0 =
 * never.
 */
uint64_t wb__transfer_epoch_tick(struct object *o, uint64_t now);
/** wb__transfer_holds - has a rollout worker here that transfer in its parameters? */
bool wb__transfer_holds(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
/** wb__transfer_engine_is_torn - the parameters of a worker here are a mix, also while that is
 *  repaired. */
bool wb__transfer_engine_is_torn(const struct epoch *e, uint32_t engine);

/* roles.c */

/** wb__transfer_roles_create - who is who, by the plan; 0 or -ENOMEM. */
int wb__transfer_roles_create(struct epoch *e);
/** wb__transfer_roles_finish - what that made; also of one that was never made. */
void wb__transfer_roles_finish(struct epoch *e);
/** wb__transfer_has_trainer - has the agent trainer workers? */
bool wb__transfer_has_trainer(const struct epoch *e, uint32_t agent);
/** wb__transfer_engine_in - number that the engine has under @to, the object's other plan;
 * UINT32_MAX = none, or @to is NULL. */
uint32_t wb__transfer_engine_in(const struct epoch *to, const struct epoch *e, uint32_t engine);
/** wb__transfer_may_say - is the message one that agent @from may send to this one (proto/peers.h)?
 *  Else it is counted, and logged now and then. */
bool wb__transfer_may_say(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);

#endif
