/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_TWO_ENGINES_H
#define WB_TESTS_FX_TWO_ENGINES_H
/*
 * The deployment that tests of single checks use: agents 0 to 2 have a trainer worker each (0 to
 * 2), 3 and 4 are engine e0 with workers 3 and 4, 5 and 6 engine e1.
 */
#include "tests/common/fx_said.h"

enum { COORDINATOR = 0, TRAINER = 1, LEAD = 3, PARTY = 4, LEAD1 = 5, PARTY1 = 6 };

#define TWO_ENGINES                                                                                \
	.trainer_agents = 3, .trainers_per_agent = 1, .engines = 2, .agents_per_engine = 2,        \
	.workers_per_agent = 1, .scale = 96

/* Of the agent's own engine. */
static inline struct lead *lead_of(uint32_t agent)
{
	return &epoch_of(agent)->lead[agent >= LEAD1];
}

static inline struct party *party_of(uint32_t agent)
{
	return &epoch_of(agent)->party[agent >= LEAD1];
}

static inline struct wb_msg_peer about(uint32_t kind, uint64_t transfer)
{
	return (struct wb_msg_peer){
		.kind = kind, .transfer = transfer, .version = (int64_t)transfer * 10};
}

/* e1 feeds it with what transfer 1 brought. */
static inline void feed_e0(void)
{
	struct wb_err err = {0};
	const struct epoch *e = epoch_of(LEAD1);

	for (uint32_t i = LEAD; i <= PARTY; i++)
		wb_transfer_expect_feed(w.agent[i].core, &world_object, 0);
	ck_assert_int_eq(wb_transfer_feed(w.agent[LEAD1].core, &e->r->id, 0, 1, &err), 0);
	world_after(&w.agent[LEAD1]);
}

/* Its agents end and come back, under a plan that has them. */
static inline void restart_e0(void)
{
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_kill_agent(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_restart(&w, i);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_plan(&w);
}

#endif
