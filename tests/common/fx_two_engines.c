/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_two_engines.h"

struct lead *lead_of(uint32_t agent)
{
	return &epoch_of(agent)->lead[agent >= LEAD1];
}

struct party *party_of(uint32_t agent)
{
	return &epoch_of(agent)->party[agent >= LEAD1];
}

struct wb_msg_peer about(uint32_t kind, uint64_t transfer)
{
	return (struct wb_msg_peer){
		.kind = kind, .transfer = transfer, .version = (int64_t)transfer * 10};
}

void feed_e0(void)
{
	struct wb_err err = {0};
	const struct epoch *e = epoch_of(LEAD1);

	for (uint32_t i = LEAD; i <= PARTY; i++)
		wb_transfer_expect_feed(w.agent[i].core, &world_object, 0);
	ck_assert_int_eq(wb_transfer_feed(w.agent[LEAD1].core, &e->r->id, 0, 1, &err), 0);
	world_after(&w.agent[LEAD1]);
}

void restart_e0(void)
{
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_kill_agent(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = LEAD; i <= PARTY; i++)
		world_restart(&w, i);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_plan(&w);
}
