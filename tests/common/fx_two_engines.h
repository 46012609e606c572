/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WB_TESTS_FX_TWO_ENGINES_H
#define WB_TESTS_FX_TWO_ENGINES_H
/*
 * The deployment that tests of single checks use: agents 0 to 2 have a trainer worker each (0 to
 * 2), 3 and 4 are engine e0 with workers 3 and 4, 5 and 6 engine e1.
 */
#include "tests/common/fx_said.h"

enum { LEADER = 0, TRAINER = 1, LEAD = 3, PARTY = 4, LEAD1 = 5, PARTY1 = 6 };

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

#endif
