/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_WORLD_OP_H
#define TESTS_WORLD_OP_H
/*
 * The operator of a simulated world: plans when membership changed, activates when all are ready,
 * has laggards fed; it may die and a new one adopts what it finds.  Its orders take a random time.
 * The rules are those of operator-shim/reconcile, without its waits for people.
 */
#include "tests/common/world.h"

#define WORLD_OP_ENGINES 64

enum world_op_stage { WORLD_OP_NONE, WORLD_OP_SETTLING, WORLD_OP_SENDING };

struct world_feed {
	uint32_t attempt, serial, source; /* engines are the world's numbers */
	uint64_t transfer, until_ns, next_ns;
};

struct world_op {
	struct world *w;
	bool alive;
	uint32_t life;
	enum world_op_stage stage;
	uint64_t stage_due_ns, wanted;
	struct world_epoch *active, *next;
	bool activated[WORLD_AGENTS]; /* they have taken ACTIVATE of the active plan */
	uint32_t ready_life[WORLD_AGENTS], told_life[WORLD_AGENTS], told_gen[WORLD_AGENTS];
	uint64_t pipe_ns[WORLD_AGENTS][2];
	uint64_t running; /* transfer; 0 = none */
	uint64_t judge_lost_ns;
	uint32_t running_agent, running_life;
	uint64_t seen; /* highest number any agent told of */
	uint64_t seen_active; /* the same when the active plan was made active */
	uint64_t top; /* highest committed transfer that it knows of */
	uint32_t gen, serial; /* serial: of feeds; agents outlive operators, so it does too */
	struct world_feed feed[WORLD_OP_ENGINES];
	bool is_behind;
	uint64_t changed_ns; /* when a plan was activated */
	/* what the agents' daemons remember */
	struct world_epoch *waiting[WORLD_AGENTS];
	struct world_epoch *known[WORLD_AGENTS];
	uint32_t known_life[WORLD_AGENTS], attempt[WORLD_AGENTS][WORLD_OP_ENGINES];
};

/** world_op_start - begins to work; its timer runs as long as op->w lives and it is alive. */
void world_op_start(struct world_op *op, struct world *w);
void world_op_kill(struct world_op *op);
/** world_op_restart - another one: a new term, and it knows only what agents tell. */
void world_op_restart(struct world_op *op);
/** world_op_is_quiet - the wanted plan is active everywhere and nobody is being fed. */
bool world_op_is_quiet(const struct world_op *op);

/* From the world's watch. */
void world_op_report(
	struct world_op *op, struct world_agent *a, const struct wb_transfer_report *r);

#endif
