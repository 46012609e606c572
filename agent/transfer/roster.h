/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_ROSTER_H
#define WB_TRANSFER_ROSTER_H
/*
 * The record of an epoch: its id and key, its plan, and who takes part: agents with their
 * addresses, engines, workers, deadlines.  Index = the plan's number: agents are the plan's
 * domains, engines its engines, workers its workers.
 *
 * One record an epoch, counted.  A reference is held by who goes by the epoch: the daemon while it
 * makes room for the plan, then the core, for as long as the plan is its newest or the one before.
 * Control channels and the transport have an entry for it and hold none: what is told of the end
 * (wb_roster_on_end()) takes theirs away, so that a key is good exactly as long as its epoch.
 * Threads: loop thread.  Layer: transfer (L3).
 */
#include "base/ident.h"

#define WB_ROSTER_KEY_BYTES 32

struct wb_plan;

struct wb_roster_agent {
	char *name;
	char *control; /* host:port of its control channel */
	char *bulk; /* endpoint of its transports, best first */
	/* Where it has several addresses that can be dialled from here: all of them, best first,
	 * and the endpoints with those after the first, one fewer. */
	char **addr, **more_bulk;
	uint32_t n_addr; /* 0: control and bulk say it all */
	bool is_foreign; /* it has no address of a family that this agent has: never dialled */
	bool is_absent; /* gone when this was planned: only the plan's geometry has its workers */
	uint32_t version; /* of the protocol, that it speaks at least; 0 = not known */
};

struct wb_roster_engine {
	char *name;
	uint32_t lead; /* agent */
	uint32_t attempt; /* last feed that the operator asked for; 0 = none */
};

struct wb_roster_worker {
	char *name; /* "pod/worker 3 (rank 1)" for sentences */
	uint32_t local; /* the worker's number at its agent */
	uint32_t rails; /* of its agent, that carry its bytes, a bit each; 0 = all */
};

struct wb_roster {
	struct wb_epoch_id id;
	char *object; /* its name: namespace/name */
	uint8_t key[WB_ROSTER_KEY_BYTES];
	struct wb_plan *plan; /* owned */
	struct wb_roster_agent *agent;
	struct wb_roster_engine *engine;
	struct wb_roster_worker *worker;
	uint32_t n_agent, n_engine, n_worker;
	uint32_t me; /* this agent */
	uint32_t coordinator; /* agent of the trainer worker that leads */
	uint64_t transfer_deadline_ns, engine_step_deadline_ns;
	uint64_t patience_ns; /* an agent that says nothing for so long is gone; not 0 */
	/* The object's mode, the same at every agent. */
	bool trainer_staged; /* trainers send from a snapshot */
	bool rollout_staged; /* rollouts receive beside their parameters */
	bool all_engines; /* no engine changes before all of them can */
	bool sums; /* of every chunk, from the trainer's parameters to where it arrives */
	bool read_back; /* and of what was installed */
	bool encrypted; /* chunks that leave the host travel in TLS */
	char *allowed; /* transports that may carry it, best first, with commas; NULL = all */
	bool supersede; /* a newer version takes the place of one not installed yet */
	/* Its life; for roster.c. */
	uint32_t refs;
	void (*gone)(void *ctx, const struct wb_roster *r);
	void *gone_ctx;
};

/** wb_roster_create - of that epoch, with nobody in it and one reference, the caller's; NULL when
 *  memory is short.  The caller fills it in: what it points to is its own, from wb_alloc(). */
struct wb_roster *wb_roster_create(const struct wb_epoch_id *id);
/** wb_roster_get - one more reference; returns @r. */
struct wb_roster *wb_roster_get(struct wb_roster *r);
/** wb_roster_put - one reference less.  With the last one the epoch is over: who made it known is
 *  told, and all is freed, the key wiped.  NULL is allowed. */
void wb_roster_put(struct wb_roster *r);
/** wb_roster_on_end - its key is known now: @gone is to take that back when the epoch is over.
 *  Once; @ctx is borrowed until then. */
void wb_roster_on_end(
	struct wb_roster *r, void (*gone)(void *ctx, const struct wb_roster *r), void *ctx);

#endif
