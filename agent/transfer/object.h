/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_OBJECT_H
#define WB_TRANSFER_OBJECT_H
/*
 * An object: one model whose versions move (a WeightTransfer), known by its uid.  Owned by the core
 * from its first plan until it is deleted and idle.  It owns its epochs, its flows, the books of
 * its coordinator and trainers, and what this agent remembers as a judge.
 *
 * Invariants: `cur` is newer than `prev`, and there is no `prev` without it; numbers of transfers
 * (`highest`, `issued`, `given`, `forgotten`) only rise; a flow in use names an epoch of this
 * object.
 */
#include "transfer/coordinator.h"
#include "transfer/judge.h"
#include "transfer/trainers.h"

#define TRANSFER_FLOWS_MAX 8

/* A flow of the object, and the plan that it goes by; made when first needed, kept while somebody
 * may read from it (flows.h). */
struct flow_slot {
	struct wb_flow *flow; /* owned; NULL = free */
	struct epoch *e;
	bool is_stopped; /* it is destroyed when its last flight has landed */
	bool is_staged; /* uses the rollouts' areas, not their parameters */
};

struct object {
	struct wb_transfer_core *core;
	struct object *next;
	struct wb_object_id id;
	char *name;
	struct epoch *cur, *prev; /* newest installed, the one before */
	uint64_t highest; /* greatest transfer that began at an engine here */
	uint64_t issued; /* greatest transfer that our coordinator or trainers know */
	uint64_t given; /* greatest number given by a coordinator here; kept in a file */
	struct flow_slot flows[TRANSFER_FLOWS_MAX];
	struct verdict verdict[TRANSFER_VERDICTS_MAX]; /* by transfer, oldest first */
	uint32_t n_verdict;
	uint64_t ask_ns; /* when to ask again how the updates in doubt ended (doubt.h) */
	uint64_t asked; /* greatest number of a ballot that began here */
	uint64_t forgotten; /* transfers up to here have no verdict any more */
	bool is_judge; /* its file could be read, or there was none */
	struct wb_slots slots;
	size_t slot_bytes, slots_bytes; /* of each, and of the memory that they were cut from */
	uint64_t slots_wait_ns; /* since when a plan waits for other slots; 0 = none does */
	struct coordinator coordinator;
	struct coordinator *feeds;
	struct trainers trainers;
	bool is_deleted; /* another object of its name has an active plan */
	struct digest *digest; /* owned: the run of sums for wbctl verify; NULL = none */
	/* Of that transfer: how many chunks were reported as sent again, and as sent again because
	 * their sum was wrong. */
	uint64_t resent_transfer, resent_told, mismatched_told;
};

/* For each flow of the object, stopped ones too. */
#define for_flow(o, x)                                                                             \
	for (struct flow_slot *x = (o)->flows; x < (o)->flows + TRANSFER_FLOWS_MAX; x++)           \
		if (x->flow)

/** wb__transfer_object - the object of that id; NULL = it has no plan here. */
struct object *wb__transfer_object(const struct wb_transfer_core *c, const struct wb_object_id *id);
/** wb__transfer_object_destroy - with all that it owns; nobody may use its memory any more. */
void wb__transfer_object_destroy(struct object *o);
/** wb__transfer_is_moving - is anything of a transfer, or of a feed, under way here? */
bool wb__transfer_is_moving(const struct object *o);
/** wb__transfer_has_flow - does it have a flow?  A stopped one counts. */
bool wb__transfer_has_flow(struct object *o);

/* deleted.c */

/** wb__transfer_supersede - a plan of @e's object is active: mark older objects of the same name as
 * deleted. */
void wb__transfer_supersede(struct epoch *e);
/** wb__transfer_forget_deleted - destroy deleted objects of which nothing is under way.  Not from
 * within an event. */
void wb__transfer_forget_deleted(struct wb_transfer_core *c);

/* digest.c */

/** wb__transfer_digest_cancel - end the run of sums, if there is one: the memory that it reads goes
 * away. */
void wb__transfer_digest_cancel(struct object *o);
/** wb__transfer_digest_tick - sum some more; when to call again, 0 = never. */
uint64_t wb__transfer_digest_tick(struct object *o, uint64_t now);

/* waits.c */

/** wb__transfer_waits_json - append ,"waits":[...]: who waits for whom, in sentences. */
void wb__transfer_waits_json(const struct object *o, struct wb_buf *out);

#endif
