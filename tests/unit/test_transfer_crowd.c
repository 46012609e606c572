/* SPDX-License-Identifier: Apache-2.0 */
/* Many engines at once, and what one of them may hold of what another needs. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* The trainer is late, or lost for a moment, just when engines have begun to ask: by then each has
 * asked the others for what they have not received yet. */
static const struct crowd {
	const char *what;
	uint32_t trainers, engines, window;
	enum wb_sim_fault_kind kind;
	unsigned items;
	uint64_t begin_ns, end_ns; /* after the first engine was told to receive */
} crowds[] = {
	{"accepted late", 1, 40, 0, WB_SIM_PARTITION, WB_SIM_CONNECT, 0, 500000},
	{"accepted late", 2, 254, 0, WB_SIM_PARTITION, WB_SIM_CONNECT, 0, 500000},
	{"accepted late", 1, 16, 8, WB_SIM_PARTITION, WB_SIM_CONNECT, 0, 1000000},
	{"connections lost", 1, 40, 0, WB_SIM_DROP, WB_SIM_GRANT | WB_SIM_DATA, 0, 400000},
	{"connections lost", 1, 128, 0, WB_SIM_DROP, WB_SIM_GRANT | WB_SIM_DATA, 0, 400000},
	{"connections lost", 1, 40, 8, WB_SIM_DROP, WB_SIM_GRANT | WB_SIM_DATA, 0, 400000},
};
#define N_CROWDS ((int)(sizeof(crowds) / sizeof(crowds[0])))

static void trainer_fault(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	const struct crowd *c = ctx;
	struct world *w = a->world;
	uint64_t now = world_now(w);
	struct wb_sim_fault f = {.kind = c->kind,
		.items = c->items,
		.from_ns = now + c->begin_ns,
		.until_ns = now + c->end_ns};

	(void)who;
	(void)transfer;
	(void)value;
	if (strcmp(what, "receive"))
		return;
	w->watch.trace = NULL;
	for (uint32_t t = 0; t < c->trainers; t++) {
		f.from = w->agent[t].name;
		ck_assert_int_eq(wb_sim_fault_add(w->net, &f), 0);
	}
}

START_TEST(engines_that_wait_for_each_other_hold_nothing_that_the_trainer_needs)
{
	struct crowd present = crowds[_i], *c = &present;
	struct world_opts o = {.seed = 80 + (uint64_t)_i,
		.trainer_agents = c->trainers,
		.trainers_per_agent = 1,
		.engines = c->engines,
		.agents_per_engine = 1,
		.workers_per_agent = 1,
		.scale = 256,
		.window = c->window};
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	w.watch.trace = trainer_fault;
	w.watch.ctx = &present;
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	printf("%u engines, window %u, %s: %s %.3f ms %s, %llu faults\n", c->engines, c->window,
		c->what, w.last_result, (double)world_now(&w) / 1e6, w.last_culprit,
		(unsigned long long)wb_sim_hits(w.net));
	ck_assert_uint_gt(wb_sim_hits(w.net), 0);
	ck_assert_str_eq(w.last_result, "Succeeded");
	world_check_hold(&w, 1);
	world_finish(&w);
}
END_TEST

static void hold_grants(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	struct world *w = a->world;
	struct wb_sim_fault f = {.kind = WB_SIM_PARTITION,
		.items = WB_SIM_GRANT,
		.to = w->agent[0].name,
		.until_ns = world_now(w) + 3 * WB_NS_PER_MS};

	(void)ctx;
	(void)who;
	(void)transfer;
	(void)value;
	if (strcmp(what, "receive"))
		return;
	w->watch.trace = NULL;
	ck_assert_int_eq(wb_sim_fault_add(w->net, &f), 0);
}

/* All engines ask one trainer for as much as they may, at once. */
START_TEST(a_source_is_asked_for_more_than_it_can_answer_at_once)
{
	struct world_opts o = {.seed = 90,
		.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 100,
		.agents_per_engine = 1,
		.workers_per_agent = 1,
		.scale = 1024,
		.bytes_per_s = 20000000};
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	w.watch.trace = hold_grants;
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	world_check_hold(&w, 1);
	ck_assert_uint_eq(w.n_resent, 0);
	world_finish(&w);
}
END_TEST

static void count_lost(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	uint32_t *n = ctx;

	(void)a;
	(void)transfer;
	(void)value;
	*n += !strcmp(what, "connection lost") && !strcmp(who, "e1-0");
}

static uint64_t sent_by(const struct world *w, uint32_t engine)
{
	struct wb_xport_stats s;

	ck_assert_int_eq(
		wb_xport_rail_stats(w->agent[world_agent_of_engine(w, engine)].xport, 0, &s), 0);
	return s.tx_chunks;
}

/* Engine e1 stops when it has begun to send to all others. */
START_TEST(who_does_not_answer_is_hung_up_on)
{
	struct world_opts o = {.seed = 95,
		.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 4,
		.agents_per_engine = 1,
		.workers_per_agent = 1,
		.scale = 1024,
		.step_deadline_ns = 300 * WB_NS_PER_S,
		.transfer_deadline_ns = 300 * WB_NS_PER_S};
	uint32_t n_lost = 0;
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	w.watch.trace = count_lost;
	w.watch.ctx = &n_lost;
	world_send(&w, 1);
	while (sent_by(&w, 1) < 30)
		ck_assert(wb_sim_step(w.net));
	world_stall_agent(&w, world_agent_of_engine(&w, 1), 60 * WB_NS_PER_S);
	world_run_for(&w, 9 * WB_NS_PER_S);
	ck_assert_uint_eq(n_lost, 0);
	world_run_for(&w, 2 * WB_NS_PER_S); /* its control connections are given up after 10 s */
	ck_assert_uint_eq(n_lost, 3);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("crowd");
	TCase *tc = tcase_create("crowd");

	fx_add_rows(
		tc, engines_that_wait_for_each_other_hold_nothing_that_the_trainer_needs, N_CROWDS);
	tcase_add_test(tc, a_source_is_asked_for_more_than_it_can_answer_at_once);
	tcase_add_test(tc, who_does_not_answer_is_hung_up_on);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
