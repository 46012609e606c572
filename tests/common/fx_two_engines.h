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
struct lead *lead_of(uint32_t agent);
struct party *party_of(uint32_t agent);
/* A message of that kind about transfer @transfer, whose version is ten times that. */
struct wb_msg_peer about(uint32_t kind, uint64_t transfer);
/* e1 feeds it with what transfer 1 brought. */
void feed_e0(void);
/* Its agents end and come back, under a plan that has them. */
void restart_e0(void);

#endif
