/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TRANSFER_ROSTER_H
#define WB_TRANSFER_ROSTER_H
/*
 * Who takes part in an epoch: agents with their addresses, engines, workers, deadlines.
 *
 * Comes from the operator beside the plan.  Index = the plan's number: agents are the plan's
 * domains, engines its engines, workers its workers.  Owned by the epoch.  Layer: transfer (L3).
 */
#include <stdbool.h>
#include <stdint.h>

#define WB_ROSTER_KEY_BYTES 32

struct wb_roster_agent {
	char *name;
	char *control; /* host:port of its control channel */
	char *bulk; /* endpoint of its transport */
	/* Where it has several addresses that can be dialled from here: all of them, best first,
	 * and the endpoints with those after the first, one fewer. */
	char **addr, **more_bulk;
	uint32_t n_addr; /* 0: control and bulk say it all */
	bool is_foreign; /* it has no address of a family that this agent has: never dialled */
	bool is_absent; /* gone when this was planned: only the plan's geometry has its workers */
};

struct wb_roster_engine {
	char *name;
	uint32_t lead; /* agent */
};

struct wb_roster_worker {
	char *name; /* "pod/worker 3 (rank 1)" for sentences */
	uint32_t local; /* the worker's number at its agent */
};

struct wb_roster {
	char *uid, *object; /* uid of the transfer object; namespace/name */
	uint64_t term, number;
	uint8_t key[WB_ROSTER_KEY_BYTES];
	struct wb_roster_agent *agent;
	struct wb_roster_engine *engine;
	struct wb_roster_worker *worker;
	uint32_t n_agent, n_engine, n_worker;
	uint32_t coordinator; /* agent of the trainer worker that leads */
	uint64_t transfer_deadline_ns, engine_step_deadline_ns;
	/* The object's mode, the same at every agent. */
	bool trainer_staged; /* trainers send from a snapshot */
	bool rollout_staged; /* rollouts receive beside their parameters */
	bool all_engines; /* no engine changes before all of them can */
	bool sums; /* of every chunk, from the trainer's parameters to where it arrives */
	bool read_back; /* and of what was installed */
	bool encrypted; /* chunks that leave the host travel in TLS */
	bool supersede; /* a newer version takes the place of one not installed yet */
};

/** wb_roster_finish - free what it owns; the struct is zeroed, its key too. */
void wb_roster_finish(struct wb_roster *r);

#endif
