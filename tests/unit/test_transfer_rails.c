/* SPDX-License-Identifier: Apache-2.0 */
/* Rails belong to workers: a worker's bytes go by its own, and one that cannot be reached takes
 * nobody else with it. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/base.h"
#include "planner/plan.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define WORKERS 4 /* of an agent */

static struct world w;

/* A trainer's agent and an engine's, each with so many workers. */
static struct world_opts opts(uint32_t rails)
{
	return (struct world_opts){.seed = 90,
		.trainer_agents = 1,
		.trainers_per_agent = WORKERS,
		.engines = 1,
		.agents_per_engine = 1,
		.workers_per_agent = WORKERS,
		.scale = 256,
		.chunk_bytes = 4096,
		.rails = rails,
		.rails_min = rails,
		.own_rails = true,
		.transfer_deadline_ns = 60 * WB_NS_PER_S,
		.step_deadline_ns = 60 * WB_NS_PER_S};
}

/* Bytes that cross the network from @src, or to @dst, by the plan. */
static uint64_t planned(const struct wb_plan *p, uint32_t src, uint32_t dst)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n_route; i++)
		for (uint32_t c = p->route[i].chunk_begin; c < p->route[i].chunk_end; c++)
			if ((p->route[i].src == src || p->route[i].dst == dst) &&
				p->worker[p->route[i].src].domain !=
					p->worker[p->route[i].dst].domain)
				sum += wb_chunk_len(p, &p->cls[p->route[i].class_id], c);
	return sum;
}

static struct wb_xport_stats stats(uint32_t agent, uint32_t rail)
{
	struct wb_xport_stats s;

	ck_assert_int_eq(wb_xport_rail_stats(w.agent[agent].xport, rail, &s), 0);
	return s;
}

/* As many rails as workers, then two workers a rail. */
START_TEST(a_workers_bytes_go_by_its_own_rail_at_both_ends)
{
	uint32_t rails = _i ? WORKERS / 2 : WORKERS;
	struct world_opts o = opts(rails);
	uint64_t in[WORKERS] = {0}, out[WORKERS] = {0};
	struct wb_plan *p;

	world_check_begin(&w, &o);
	ck_assert_int_eq(wb_plan_decode(w.epochs->bytes, w.epochs->len, &p, NULL), 0);
	for (uint32_t i = 0; i < WORKERS; i++) {
		out[i % rails] += planned(p, i, UINT32_MAX);
		in[i % rails] += planned(p, UINT32_MAX, WORKERS + i);
	}
	world_check_commits(&w, 1);
	for (uint32_t r = 0; r < rails; r++) {
		ck_assert_uint_gt(out[r], 0);
		ck_assert_uint_eq(stats(0, r).tx_bytes, out[r]);
		ck_assert_uint_eq(stats(1, r).rx_bytes, in[r]);
	}
	wb_plan_destroy(p);
	world_finish(&w);
}
END_TEST

static uint32_t n_lost;

static void note_lost(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)a;
	(void)who;
	(void)transfer;
	(void)value;
	n_lost += !strcmp(what, "cannot be reached");
}

/* What trainer 2 alone has does not come: its rail is at no address where anybody listens. */
START_TEST(who_cannot_be_reached_is_named_and_others_go_on)
{
	struct world_opts o = opts(WORKERS);
	char *at;

	/* Those that can be reached are far from their end when the other is given up. */
	o.bytes_per_s = 20000;
	world_init(&w, &o);
	at = strstr(w.agent[0].endpoint, "/2");
	ck_assert_ptr_nonnull(at);
	at[1] = '9';
	n_lost = 0;
	w.watch.trace = note_lost;
	world_plan(&w);
	world_check_send(&w, 1, 60 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, "Torn"); /* parameters are written in place */
	ck_assert_msg(
		strstr(w.last_culprit, "the last was worker 2: ") != NULL, "%s", w.last_culprit);
	ck_assert_uint_gt(n_lost, 0);
	for (uint32_t r = 0; r < WORKERS; r++)
		ck_assert_msg(!stats(0, r).tx_bytes == (r == 2), "rail %u: %llu", r,
			(unsigned long long)stats(0, r).tx_bytes);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transfer_rails");
	TCase *t = tcase_create("rails");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_workers_bytes_go_by_its_own_rail_at_both_ends, 0, 2);
	tcase_add_test(t, who_cannot_be_reached_is_named_and_others_go_on);
	suite_add_tcase(s, t);
	return fx_run(s);
}
