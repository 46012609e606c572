/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_EPOCH_H
#define WB_TRANSFER_EPOCH_H
/*
 * An epoch: a plan and its roster, as far as they concern this agent.  Owned by its object, which
 * keeps two: the newest that was installed and the one before.  It holds a reference to its roster
 * (roster.h: when the last reference goes, the epoch's key is forgotten everywhere), and owns the
 * runs of its engines (parties and leads), the wires and links to its agents, and its images.
 *
 * An epoch becomes active when ACTIVATE comes, or any message of a transfer under it, and stays so.
 * The one before goes once a transfer has begun under an active one (`has_begun`) and nothing uses
 * the old one.  Invariants: a transfer has begun only under an active epoch; `member[i]` is a
 * worker of this agent or, once it has left, NULL.
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
	struct wb_local *local; /* with the workers' parameters as memory */
	struct wb_local *staged; /* the same with rollouts' staging areas instead; NULL = none */
	struct worker **member; /* by local index */
	struct wb_image **image; /* owned: of trainers with snapshots, by local index */
	/* By agent: whether it has trainer workers; whether it leads an engine. */
	bool *trains, *leads;
	uint8_t *has_party; /* bit engine * n_agent + agent: the agent has workers of the engine */
	struct links links; /* to agents */
	struct wire *wire; /* by agent */
	struct wb_flow_env fenv;
	uint32_t me; /* this agent's number in the roster */
	bool is_active;
	uint64_t ready_ns; /* when it was installed */
	uint64_t active_ns; /* when it became active */
	/* Transfers up to this began elsewhere: only who holds one has bytes of it. */
	uint64_t seen;
	bool has_begun; /* a transfer has begun under it: the plan before may go */
	uint32_t n_refused; /* coordinator: how often it refused what trainers asked for */
	uint32_t refused_seen; /* trainers: the last refusal that they heard of */
	bool is_announced; /* coordinator: the trainers know that it is active */
	uint64_t served; /* greatest transfer for which trainers here became sources */
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

/** active_epoch - the newest plan that is active; NULL = none.  The newest of all may never become
 * active: its operator died, or agents that it was planned without came back. */
static inline struct epoch *active_epoch(const struct object *o)
{
	return o->cur && o->cur->is_active     ? o->cur
	       : o->prev && o->prev->is_active ? o->prev
					       : NULL;
}

/** wb__transfer_epoch - the epoch of that id; NULL = it is not here (any more). */
struct epoch *wb__transfer_epoch(const struct wb_transfer_core *c, const struct wb_epoch_id *id);
/** wb__transfer_epoch_find - the one of the object's two epochs with that id; NULL = neither. */
struct epoch *wb__transfer_epoch_find(const struct object *o, const struct wb_epoch_id *id);
/** wb__transfer_before - the plan before, where @e is the newest; NULL = there is none. */
static inline struct epoch *wb__transfer_before(const struct epoch *e)
{
	return e == e->obj->cur ? e->obj->prev : NULL;
}

/** wb__transfer_activate - the epoch is in use from now on; nothing happens when it is already. */
void wb__transfer_activate(struct epoch *e);
/** wb__transfer_usable - the plan under which transfers may begin: the newest when it is active
 * here; else the one before, after the newest has not become active for TRANSFER_READY_NS.  NULL =
 * none (yet). */
struct epoch *wb__transfer_usable(const struct object *o);
/** wb__transfer_usable_at - when the plan before may be used because the newest has not become
 * active; 0 = this is not awaited. */
uint64_t wb__transfer_usable_at(const struct object *o);
/** wb__transfer_usable_since - since when there is a usable plan, or when there will be one; 0 =
 * not known. */
uint64_t wb__transfer_usable_since(const struct object *o);
/** wb__transfer_images_fit - is there room for the snapshots of @e?  Room is shared out anew when a
 * newer plan comes, even if that one has to wait or is refused. */
bool wb__transfer_images_fit(const struct epoch *e);
/** wb__transfer_worker_of - the worker of this agent with that number in the plan; NULL = it is not
 * here (any more). */
struct worker *wb__transfer_worker_of(struct epoch *e, uint32_t plan_worker);
/** wb__transfer_worker_name - name of a worker of the plan, for sentences; "?" = the plan has none
 * of that number. */
const char *wb__transfer_worker_name(const struct epoch *e, uint32_t plan_worker);
/** wb__transfer_epoch_forget - the worker's memory is gone: make its places in the epoch NULL.  @e
 * NULL is allowed. */
void wb__transfer_epoch_forget(struct epoch *e, const struct worker *w);
/** wb__transfer_epoch_tick - let the plan before go when nothing uses it; when to call again, 0 =
 * never. */
uint64_t wb__transfer_epoch_tick(struct object *o, uint64_t now);
/** wb__transfer_holds - can a worker here be read for that transfer?  A rollout that has it in its
 * parameters, or a trainer that keeps it after its end (keep.c). */
bool wb__transfer_holds(struct epoch *e, uint32_t plan_worker, uint64_t transfer);
/** wb__transfer_engine_is_torn - the parameters of a worker of the engine here are a mix, also
 * while they are being repaired. */
bool wb__transfer_engine_is_torn(const struct epoch *e, uint32_t engine);

/* roles.c */

/** wb__transfer_roles_create - note which roles each agent has by the plan; 0 or -ENOMEM. */
int wb__transfer_roles_create(struct epoch *e);
/** wb__transfer_roles_finish - free what wb__transfer_roles_create() made; also when it was never
 * called. */
void wb__transfer_roles_finish(struct epoch *e);
/** wb__transfer_has_trainer - has the agent trainer workers? */
bool wb__transfer_has_trainer(const struct epoch *e, uint32_t agent);
/** wb__transfer_engine_in - number that the engine has in @to, the object's other plan; UINT32_MAX:
 * it has none, or @to is NULL. */
uint32_t wb__transfer_engine_in(const struct epoch *to, const struct epoch *e, uint32_t engine);
/** wb__transfer_may_say - may agent @from send this message to this agent (proto/peers.h)?  If not,
 * it is counted, and logged now and then. */
bool wb__transfer_may_say(struct epoch *e, uint32_t from, const struct wb_msg_peer *m);

#endif
