/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_TRAINERS_H
#define WB_TRANSFER_TRAINERS_H
/*
 * The trainers: the trainer workers of this agent in a transfer.  Owned by the object, one.  They
 * ask the coordinator when all of them have called send_weights, and serve until it lets them go.
 *
 * Invariants: those that are not IDLE have an epoch, and those that serve a deadline; FINAL is kept
 * while they are RELEASING only; workers are told RELEASED only when nobody
 * reads their parameters any more, by RELEASE or before (leave.c); a call is answered once, by a
 * transfer or a refusal.
 */
#include "transfer/internal.h"

/* A question to a coordinator that is gone: waits for the next plan, is sent again meanwhile. */
#define TRANSFER_ASK_NS (10 * WB_NS_PER_S)
#define TRANSFER_VAIN_NS                                                                           \
	(5 * WB_NS_PER_S) /* for an answer of a coordinator whose object may be gone               \
			   */

enum trainers_state {
	TRAINERS_IDLE,
	TRAINERS_ASKED,
	TRAINERS_SERVING,
	TRAINERS_RELEASING,
	TRAINERS_RELEASED
};

/* What others lack of the trainer workers here, asked when it is little (leave.c). */
struct leave {
	uint32_t question; /* its number; answers to another are late */
	uint32_t n_asked; /* agents that have not answered; 0 = no question is under way */
	bool *is_asked; /* owned, by agent: those */
	uint64_t *lack; /* owned: what the others have said */
	uint32_t n_lack;
};

struct trainers {
	enum trainers_state state;
	struct epoch *e;
	struct wb_flow *flow; /* borrowed (flows.h); NULL = not opened, or gone */
	uint64_t transfer;
	uint32_t call; /* number of what was asked: SERVE and FINAL of another do not answer it */
	uint32_t asked_refused; /* refusal that was known then: a later one answers it */
	uint64_t asked_highest; /* transfer that was known when the coordinator was asked */
	uint64_t asked_seq; /* number of the question on its wire */
	/* The coordinator is gone and has not confirmed the question: it waits for the next plan
	 * until then (0 = it does not), and is sent again meanwhile. */
	uint64_t hold_ns, again_ns;
	bool is_dropped; /* the question, with the coordinator's wire */
	char lost[256]; /* why the coordinator is called gone */
	int64_t version;
	uint64_t begin_ns, drain_ns, deadline_ns;
	uint64_t idle_ns; /* when the last one ended here */
	bool is_told; /* the workers know that they are released */
	bool has_next; /* the coordinator knows that the next version is ready */
	/* Owned: FINAL, encoded, which came while the release was under way; NULL = it has not. */
	uint8_t *final_body;
	size_t final_len;
	struct leave leave; /* while SERVING only */
};

/** wb__transfer_trainers_replanned - a new plan: a question that was not answered is asked again.
 */
void wb__transfer_trainers_replanned(struct epoch *e);
/** wb__transfer_trainers_forget - a question that nobody will answer: asked again under the next
 * plan.
 */
void wb__transfer_trainers_forget(struct trainers *t);
/** wb__transfer_trainers_send - the worker has called send_weights; @version < 0: the coordinator
 * numbers;
 *  @flags: enum wb_app_send_flag. */
void wb__transfer_trainers_send(struct worker *w, int64_t version, uint32_t flags);
/** wb__transfer_trainers_release - the worker ends its hold of that transfer. */
void wb__transfer_trainers_release(struct worker *w, uint64_t transfer);
/** wb__transfer_trainers_snapped - a snapshot is whole, or (@rc < 0) could not be made. */
void wb__transfer_trainers_snapped(struct epoch *e, struct wb_flow *f, uint32_t local, int rc);
/** wb__transfer_has_left - local trainer worker @local has been let go, or may have its memory
 * changed: what is still to be sent of it lies in a snapshot or in slots. */
bool wb__transfer_has_left(const struct trainers *t, uint32_t local);
/** wb__transfer_trainers_worker_lost - it left, or died. */
void wb__transfer_trainers_worker_lost(struct worker *w, const char *why);
/** wb__transfer_trainers_coordinator_down - the agent is gone.  @unheard: what was asked of it has
 * not been confirmed.  Nothing when it does not lead. */
void wb__transfer_trainers_coordinator_down(
	struct epoch *e, uint32_t agent, bool unheard, const char *why);
/** wb__transfer_trainers_unheard - has the coordinator, that agent, not confirmed the question? */
bool wb__transfer_trainers_unheard(const struct epoch *e, uint32_t agent);
/** wb__transfer_trainers_ask_again - the coordinator may have called this agent down, and forgotten
 * what it asked. */
void wb__transfer_trainers_ask_again(struct epoch *e, uint32_t agent);
/** wb__transfer_trainers_tick - deadlines, and old readers; when to call again, 0 = never. */
uint64_t wb__transfer_trainers_tick(struct object *o, uint64_t now);

/* leave.c */

/** wb__transfer_leave_ask - little is left to send of @f: ask what of it others lack.  Nothing when
 * it is not the flow that trainers serve with, or they cannot leave early. */
void wb__transfer_leave_ask(struct epoch *e, const struct wb_flow *f);
/** wb__transfer_leave_reset - no answer is awaited any more. */
void wb__transfer_leave_reset(struct trainers *t);

/* times.c */

/** wb__transfer_times_trainers - when its workers stood still, to the env. */
void wb__transfer_times_trainers(struct trainers *t);

#endif
