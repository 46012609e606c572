/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_TRAINERS_H
#define WB_TRANSFER_TRAINERS_H
/*
 * The trainers: the trainer workers of this agent in a transfer.  Owned by the object, one.  They
 * ask the coordinator when all of them have called send_weights, and serve until it lets them go.
 *
 * Invariants: when not IDLE they have an epoch, and from SERVING on a deadline; FINAL is kept while
 * they are RELEASING only; workers are told RELEASED only when nobody reads their parameters any
 * more, by RELEASE or before (leave.c); a call is answered once, by a transfer or a refusal.
 */
#include "transfer/internal.h"

/* How long a question to a coordinator that is gone waits for the next plan; it is sent again
 * meanwhile. */
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

/* The question what others still lack of the trainer workers here, asked when that is little
 * (leave.c). */
struct leave {
	uint32_t question; /* its number; answers to another are late */
	uint32_t n_asked; /* agents that have not answered; 0 = no question is under way */
	bool *is_asked; /* owned, by agent: it has not answered */
	uint64_t *lack; /* owned: what the agents that have answered lack */
	uint32_t n_lack;
};

struct trainers {
	enum trainers_state state;
	struct epoch *e;
	struct wb_flow *flow; /* borrowed (flows.h); NULL = not opened, or gone */
	uint64_t transfer;
	uint32_t call; /* number of the question: SERVE and FINAL with another do not answer it */
	uint32_t asked_refused; /* last refusal known when it was asked: a later one answers it */
	uint64_t asked_highest; /* greatest transfer known when the coordinator was asked */
	uint64_t asked_seq; /* number of the question on its wire */
	/* The coordinator is gone and has not confirmed the question: until hold_ns (0 = this is
	 * not so) the question waits for the next plan; at again_ns it is sent again. */
	uint64_t hold_ns, again_ns;
	bool is_dropped; /* the question was dropped with what the coordinator's wire kept */
	char lost[256]; /* why the coordinator was declared gone */
	int64_t version;
	uint64_t begin_ns, drain_ns, deadline_ns;
	uint64_t idle_ns; /* when the last one ended here */
	bool is_told; /* the workers know that they are released */
	bool has_next; /* the coordinator knows that the next version is ready */
	/* Owned: the encoded FINAL that came while the release was under way; NULL = none has
	 * come. */
	uint8_t *final_body;
	size_t final_len;
	struct leave leave; /* while SERVING only */
};

/** wb__transfer_trainers_replanned - a new plan is active: a question without an answer is asked
 * again under it. */
void wb__transfer_trainers_replanned(struct epoch *e);
/** wb__transfer_trainers_forget - give up a question that nobody will answer; it is asked again
 * under the next plan. */
void wb__transfer_trainers_forget(struct trainers *t);
/** wb__transfer_trainers_send - the worker has called send_weights.  @version < 0: the transfer's
 * number becomes the version.  @flags: enum wb_app_send_flag. */
void wb__transfer_trainers_send(struct worker *w, int64_t version, uint32_t flags);
/** wb__transfer_trainers_release - the worker ends its hold of that transfer. */
void wb__transfer_trainers_release(struct worker *w, uint64_t transfer);
/** wb__transfer_trainers_snapped - a snapshot is whole, or (@rc < 0) could not be made. */
void wb__transfer_trainers_snapped(struct epoch *e, struct wb_flow *f, uint32_t local, int rc);
/** wb__transfer_has_left - may the memory of local trainer worker @local change, whether or not it
 * was told yet?  Yes, when what is still to be sent of it lies in a snapshot or in slots. */
bool wb__transfer_has_left(const struct trainers *t, uint32_t local);
/** wb__transfer_trainers_worker_lost - the worker left, or died. */
void wb__transfer_trainers_worker_lost(struct worker *w, const char *why);
/** wb__transfer_trainers_coordinator_down - @agent is gone; does nothing unless it is the
 * coordinator.  @unheard: it has not confirmed what it was asked. */
void wb__transfer_trainers_coordinator_down(
	struct epoch *e, uint32_t agent, bool unheard, const char *why);
/** wb__transfer_trainers_unheard - is @agent the coordinator, and has it not confirmed the
 * question? */
bool wb__transfer_trainers_unheard(const struct epoch *e, uint32_t agent);
/** wb__transfer_trainers_ask_again - if @agent is the coordinator, repeat the question: it may have
 * declared this agent down, and forgotten what it was asked. */
void wb__transfer_trainers_ask_again(struct epoch *e, uint32_t agent);
/** wb__transfer_trainers_tick - deadlines, and old readers; when to call again, 0 = never. */
uint64_t wb__transfer_trainers_tick(struct object *o, uint64_t now);

/* leave.c */

/** wb__transfer_leave_ask - little of @f is left to send: ask what others lack of it.  Does nothing
 * when @f is not the flow that the trainers serve with, or no worker can leave early. */
void wb__transfer_leave_ask(struct epoch *e, const struct wb_flow *f);
/** wb__transfer_leave_reset - await no answer any more; frees those that came. */
void wb__transfer_leave_reset(struct trainers *t);

/* times.c */

/** wb__transfer_times_trainers - tell the env when the trainer workers stood still. */
void wb__transfer_times_trainers(struct trainers *t);

#endif
