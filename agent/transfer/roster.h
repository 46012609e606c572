/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_ROSTER_H
#define WB_TRANSFER_ROSTER_H
/*
 * The record of an epoch: its id and key, its plan, and who takes part: agents with their
 * addresses, engines, workers, deadlines.  Its arrays go by the plan's numbers: agents are the
 * plan's domains, engines its engines, workers its workers.
 *
 * There is one record for each epoch, with a count of references.  Whoever uses the epoch holds
 * one: the daemon while it makes room for the plan, then the core, for as long as the plan is its
 * newest or the one before.  Control channels and the transport have entries for the epoch but no
 * reference: the callback of wb_roster_on_end() removes the entries, so that a key is good exactly
 * as long as its epoch.
 * Threads: loop thread.  Layer: transfer (L3).
 */
#include "base/ident.h"

#define WB_ROSTER_KEY_BYTES 32

struct wb_plan;

struct wb_roster_agent {
	char *name;
	char *control; /* host:port of its control channel */
	char *bulk; /* endpoint of its transports, best first */
	/* If several of its addresses can be dialled from here: all of them, best first, and in
	 * more_bulk the endpoints of all but the first. */
	char **addr, **more_bulk;
	uint32_t n_addr; /* 0: control and bulk have its only address */
	bool is_foreign; /* it has no address of a family that this agent has: never dialled */
	bool is_absent; /* gone when this was planned: its workers count for the geometry only */
	uint32_t version; /* it speaks at least this protocol version; 0 = not known */
};

struct wb_roster_engine {
	char *name;
	uint32_t lead; /* number of an agent */
	uint32_t attempt; /* last feed that the operator asked for; 0 = none */
};

struct wb_roster_worker {
	char *name; /* "pod/worker 3 (rank 1)" for sentences */
	uint32_t local; /* the worker's number at its agent */
	uint32_t rails; /* its agent's rails that carry its bytes, a bit each; 0 = all */
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
	uint64_t patience_ns; /* an agent that says nothing for this long is gone; not 0 */
	/* The object's mode, the same at every agent. */
	bool trainer_staged; /* trainers send from a snapshot */
	bool rollout_staged; /* rollouts receive beside their parameters */
	bool all_engines; /* no engine changes before all of them can */
	bool sums; /* checksum each chunk, from the trainer's parameters to its destination */
	bool read_back; /* and checksum what was installed */
	bool encrypted; /* chunks that leave the host travel in TLS */
	char *allowed; /* transports that may carry bytes, best first, with commas; NULL = all */
	bool supersede; /* a newer version takes the place of one not installed yet */
	/* Its lifetime; only for roster.c. */
	uint32_t refs;
	void (*gone)(void *ctx, const struct wb_roster *r);
	void *gone_ctx;
};

/** wb_roster_create - an empty record of epoch @id with one reference, the caller's; NULL: no
 * memory.  The caller fills it in.  The record owns what it points to, which must come from
 * wb_alloc(). */
struct wb_roster *wb_roster_create(const struct wb_epoch_id *id);
/** wb_roster_get - one more reference; returns @r. */
struct wb_roster *wb_roster_get(struct wb_roster *r);
/** wb_roster_put - one reference less.  With the last one the epoch is over: the callback of
 * wb_roster_on_end() is called, the key is wiped and all is freed.  NULL is allowed. */
void wb_roster_put(struct wb_roster *r);
/** wb_roster_on_end - somebody else has the epoch's key now: @gone is called when the epoch is
 * over, and takes it away again.  At most once for each record; @ctx is borrowed until then. */
void wb_roster_on_end(
	struct wb_roster *r, void (*gone)(void *ctx, const struct wb_roster *r), void *ctx);

#endif
