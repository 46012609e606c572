/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H
/*
 * A small deployment in one thread: production agents (transfer, flow) on simulated nodes, workers
 * with real parameters that poll at random times, a plan, and no operator but the test.
 *
 * A model of a few bf16 matrices; trainers hold row shards, engines column shards (every second
 * tensor transposed), so that every chunk is cut and assembled.  Byte values follow from
 * (checkpoint position, version).
 */
#include "transfer/core.h"
#include "xport/sim/sim.h"

#define WORLD_TENSORS 5

struct world_worker {
	struct world *world;
	uint32_t agent, plan_worker, id, tp_rank, tp;
	enum wb_role role;
	uint32_t engine;
	bool alive, parked, in_update;
	struct wb_map *map;
	uint8_t *memory; /* all parameters, one memory object */
	size_t bytes;
	void *base[1];
	struct wb_place *place;
	struct wb_lane *lane;
	struct wb_poll_page page;
	uint64_t poll_ns; /* greatest pause between polls */
	uint32_t polls;
	/* what happened */
	int64_t version; /* installed */
	uint32_t changed_at; /* poll count of the last change */
	uint32_t n_updates, n_aborted, n_torn;
	int send_state;
	int64_t send_code;
	char why[512];
};

struct world_agent {
	struct world *world;
	char name[32];
	bool alive, counts_bytes;
	struct wb_core *core;
	struct wb_core_env env;
	struct wb_xport *xport;
	uint8_t *arena;
	uint64_t timer;
	char endpoint[WB_XPORT_ENDPOINT_MAX];
};

struct world_opts {
	uint64_t seed;
	uint32_t trainer_agents, trainers_per_agent; /* TP = all trainers */
	uint32_t engines, agents_per_engine, workers_per_agent;
	uint32_t scale; /* rows of the matrices, a multiple of 16; 0 = 64 */
	uint32_t chunk_bytes; /* 0 = the planner's choice */
	size_t arena_bytes; /* 0 = 64 chunks */
	uint64_t poll_ns; /* 0 = 200 us */
	uint64_t step_deadline_ns, transfer_deadline_ns; /* 0 = 5 s, 5 s */
};

struct world {
	struct world_opts o;
	struct wb_sim_net *net;
	struct wb_manifest *manifest;
	struct wb_plan *plan;
	struct world_agent agent[32];
	struct world_worker worker[64];
	uint32_t n_agent, n_worker, n_trainer;
	uint64_t term, number;
	/* reports of leaders */
	uint32_t n_final;
	uint64_t last_transfer;
	char last_result[32], last_culprit[1024];
};

void world_init(struct world *w, const struct world_opts *o);
void world_finish(struct world *w);
/** world_plan - plan over all live workers, install and activate everywhere; new epoch. */
void world_plan(struct world *w);
/** world_send - every trainer writes @version into its parameters and calls send_weights. */
void world_send(struct world *w, int64_t version);
/** world_run - until every trainer's send is final, or @limit_ns of simulated time passed. */
bool world_run(struct world *w, uint64_t limit_ns);
/** world_run_for - just let time pass. */
void world_run_for(struct world *w, uint64_t ns);
void world_kill_agent(struct world *w, uint32_t agent);
/** world_restart - a killed agent and its workers come back, with zeroed parameters. */
void world_restart(struct world *w, uint32_t agent);
/** world_holds - every byte of the worker's parameters is that of @version. */
bool world_holds(const struct world *w, const struct world_worker *k, int64_t version);
uint32_t world_agent_of_engine(const struct world *w, uint32_t engine);

#endif
