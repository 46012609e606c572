/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/world_check.h"
#include "tests/common/fx_check.h"

#include <string.h>

#define SOON (20 * WB_NS_PER_S)

void world_check_send(struct world *w, int64_t version, uint64_t limit_ns)
{
	world_send(w, version);
	ck_assert_msg(world_run(w, limit_ns), "version %lld hangs", (long long)version);
	world_run_for(w, WB_NS_PER_MS);
}

void world_check_hold(const struct world *w, int64_t version)
{
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++) {
		const struct world_worker *k = &w->worker[i];

		if (k->phase == WORLD_DOWN)
			continue;
		ck_assert_msg(world_holds(w, k, version),
			"worker %u does not hold version %lld: %s", i, (long long)version, k->why);
		ck_assert_int_eq(k->version, version);
	}
}

const struct world_opts world_small = {.seed = 31,
	.trainer_agents = 1,
	.trainers_per_agent = 1,
	.engines = 2,
	.agents_per_engine = 1,
	.workers_per_agent = 1,
	.scale = 128,
	.step_deadline_ns = 600 * WB_NS_PER_S,
	.transfer_deadline_ns = 120 * WB_NS_PER_S,
	.peers_reconnect = true};

void world_check_begin(struct world *w, const struct world_opts *o)
{
	world_init(w, o);
	world_plan(w);
}

void world_check_commits(struct world *w, int64_t version)
{
	world_check_send(w, version, SOON);
	ck_assert_msg(
		!strcmp(w->last_result, "Succeeded"), "%s: %s", w->last_result, w->last_culprit);
	world_run_for(w, WB_NS_PER_S);
	world_check_hold(w, version);
}

void world_check_call(struct world *w, uint32_t trainer, int64_t version)
{
	struct world_worker *k = &w->worker[trainer];

	world_fill(k, version);
	k->version = version;
	world_send_one(k, version);
}

void world_check_phase(struct world *w, uint32_t worker, enum world_phase phase)
{
	uint64_t end = world_now(w) + SOON;

	while (w->worker[worker].phase != phase && world_now(w) < end)
		ck_assert(wb_sim_step(w->net));
	ck_assert_int_eq(w->worker[worker].phase, phase);
}

void world_check_take(struct world *w, const struct world_epoch *e)
{
	for (uint32_t i = 0; i < e->n_agent; i++) {
		struct wb_err err = {0};
		int rc = world_epoch_install(w, e, e->agent[i], &err);

		ck_assert_msg(rc == 0, "%s: %s", w->agent[e->agent[i]].name, err.msg);
		world_after(&w->agent[e->agent[i]]);
	}
}

const struct world_opts world_shapes[WORLD_SHAPES] = {
	{.seed = 1,
		.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 1,
		.agents_per_engine = 1,
		.workers_per_agent = 1},
	{.seed = 2,
		.trainer_agents = 2,
		.trainers_per_agent = 2,
		.engines = 2,
		.agents_per_engine = 1,
		.workers_per_agent = 2},
	{.seed = 3,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = 2,
		.agents_per_engine = 2,
		.workers_per_agent = 1},
	{.seed = 4,
		.trainer_agents = 1,
		.trainers_per_agent = 4,
		.engines = 4,
		.agents_per_engine = 1,
		.workers_per_agent = 1},
	{.seed = 5,
		.trainer_agents = 2,
		.trainers_per_agent = 2,
		.engines = 3,
		.agents_per_engine = 2,
		.workers_per_agent = 2,
		.scale = 256},
	/* Runs long enough to go from and into parameters directly, not through slots. */
	{.seed = 6,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = 2,
		.agents_per_engine = 2,
		.workers_per_agent = 1,
		.scale = 1024,
		.chunk_bytes = 16384},
};

/* The synchronisation modes, and with staged rollouts both policies. */
const struct world_mode world_modes[WORLD_MODES] = {
	{"None, None", false, false, false},
	{"HostMemory, None", true, false, false},
	{"None, HostMemory", false, true, false},
	{"HostMemory, HostMemory", true, true, false},
	{"None, HostMemory, AllEngines", false, true, true},
	{"HostMemory, HostMemory, AllEngines", true, true, true},
};

struct world_opts world_with_mode(const struct world_opts *shape, const struct world_mode *m)
{
	struct world_opts o = *shape;

	o.trainer_staged = m->trainer_staged;
	o.rollout_staged = m->rollout_staged;
	o.all_engines = m->all_engines;
	return o;
}
