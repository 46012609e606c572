/* SPDX-License-Identifier: Apache-2.0 */
/* Whole agents over the simulated network: transfers, same step, losses, feeds. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include <check.h>
#include <string.h>

START_TEST(every_version_arrives_byte_for_byte)
{
	struct world_opts o =
		world_with_mode(&world_shapes[_i % WORLD_SHAPES], &world_modes[_i / WORLD_SHAPES]);
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 5; v++) {
		world_check_send(&w, v, 20 * WB_NS_PER_S);
		world_check_hold(&w, v);
		ck_assert_str_eq(w.last_result, "Succeeded");
	}
	world_finish(&w);
}
END_TEST

/* Kill an engine's agent at a random moment of a transfer: the others commit, the dead one comes
 * back and is fed without a trainer. */
START_TEST(a_lost_engine_is_left_behind_and_fed_when_it_returns)
{
	struct world_opts o = world_shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;
	struct wb_err err = {0};
	uint32_t dead;
	bool torn;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	world_send(&w, 2);
	world_run_for(&w, 50000 + wb_rng_below(&rng, 1500000));
	dead = world_agent_of_engine(&w, 1);
	world_kill_agent(&w, dead);
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	/* Lost after the trainers were let go, what only it held is lost with it: the other engine
	 * is Torn, says so, and the next transfer repairs it. */
	torn = w.worker[w.n_trainer].n_torn > 0;
	if (torn) {
		/* Partly: the other one had committed. */
		ck_assert_msg(strstr(w.last_result, "Torn") != NULL, "%s", w.last_result);
		ck_assert_msg(
			strstr(w.last_culprit, "has no source left") != NULL, "%s", w.last_culprit);
	} else {
		ck_assert_msg(world_holds(&w, &w.worker[w.n_trainer], 2), "seed %d: %s %s", _i,
			w.last_result, w.last_culprit);
	}
	world_restart(&w, dead);
	world_plan(&w);
	if (torn)
		goto repair;
	wb_transfer_expect_feed(w.agent[dead].core, &world_object, 1);
	ck_assert_int_eq(wb_transfer_feed(w.agent[world_agent_of_engine(&w, 0)].core, &w.epochs->id,
				 1, 0, &err),
		0);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_check_hold(&w, 2);
repair:
	world_send(&w, 3);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_check_hold(&w, 3);
	world_finish(&w);
}
END_TEST

/* Engine 1 comes back with nothing and is fed by engine 0, which leaves meanwhile: in order, or
 * with its whole pod.  @others: engines that hold the version too. */
static void feed_without_its_source(struct world *w, int i, uint32_t others)
{
	struct world_opts o = world_shapes[1];
	struct wb_rng rng = {(uint64_t)i};
	struct wb_err err = {0};
	uint32_t dead;

	o.seed = 100 + (uint64_t)i;
	o.scale = 1024;
	o.engines = 2 + others;
	world_init(w, &o);
	world_plan(w);
	world_check_send(w, 2, 20 * WB_NS_PER_S);
	dead = world_agent_of_engine(w, 1);
	world_kill_agent(w, dead);
	world_run_for(w, 10 * WB_NS_PER_MS);
	world_restart(w, dead);
	world_plan(w);
	for (uint32_t a = 0; a < w->n_agent; a++)
		wb_transfer_seen(w->agent[a].core, &world_object, 1);
	wb_transfer_expect_feed(w->agent[dead].core, &world_object, 1);
	ck_assert_int_eq(wb_transfer_feed(w->agent[world_agent_of_engine(w, 0)].core,
				 &w->epochs->id, 1, 0, &err),
		0);
	while (w->worker[w->n_worker - 1 - others * 2].phase != WORLD_BEGUN)
		world_run_for(w, 1000);
	world_run_for(w, wb_rng_below(&rng, 1000000));
	for (uint32_t k = w->n_trainer; k < w->n_worker; k++)
		if (w->worker[k].engine == 0)
			world_end_worker(w, k, NULL);
	if (i % 2)
		world_kill_agent(w, world_agent_of_engine(w, 0));
	world_run_for(w, WB_NS_PER_S);
}

START_TEST(a_feed_goes_on_from_other_engines_when_its_source_leaves)
{
	struct world w;

	feed_without_its_source(&w, _i, 1 + (uint32_t)_i % 2);
	for (uint32_t k = w.n_trainer; k < w.n_worker; k++)
		if (w.worker[k].engine == 1) {
			ck_assert_msg(world_holds(&w, &w.worker[k], 2), "seed %d: %s %s", _i,
				w.worker[k].why, w.last_culprit);
			ck_assert_uint_eq(w.worker[k].n_torn, 0);
		}
	world_finish(&w);
}
END_TEST

START_TEST(a_feed_that_nobody_can_go_on_with_fails_at_once)
{
	struct world w;

	feed_without_its_source(&w, _i, 0);
	ck_assert_int_eq(w.worker[w.n_worker - 1].phase, WORLD_TORN);
	ck_assert_msg(strstr(w.worker[w.n_worker - 1].why, "has no source left") != NULL, "%s",
		w.worker[w.n_worker - 1].why);
	if (!(_i % 2))
		ck_assert_str_eq(w.last_result, "Torn");
	world_finish(&w);
}
END_TEST

/* A coordinator whose process restarted goes on above the number in its file.  One whose pod is new
 * and that was told nothing begins with a number that has been used: it is refused by name, and the
 * next one is above. */
START_TEST(a_number_is_never_used_twice)
{
	struct world_opts o = world_with_mode(&world_shapes[1], &world_modes[_i / 2]);
	bool is_new = _i % 2;
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++)
		world_check_send(&w, v, 20 * WB_NS_PER_S);
	world_kill_agent(&w, 0);
	w.agent[0].n_file = is_new ? 0 : w.agent[0].n_file;
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 0);
	world_plan(&w);
	world_check_send(&w, 4, 20 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, is_new ? "Aborted" : "Succeeded");
	if (is_new)
		ck_assert_msg(
			strstr(w.last_culprit, "is not above 3") != NULL, "%s", w.last_culprit);
	world_check_hold(&w, is_new ? 3 : 4);
	world_check_send(&w, 5, 20 * WB_NS_PER_S);
	world_check_hold(&w, 5);
	ck_assert_uint_gt(w.last_transfer, 3);
	world_finish(&w);
}
END_TEST

/* All agents were killed: the workers' areas still know the numbers that were used. */
START_TEST(numbers_outlive_all_agents_with_the_areas)
{
	struct world_opts o = world_with_mode(&world_shapes[1], &world_modes[2 + _i]);
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++)
		world_check_send(&w, v, 20 * WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++) {
		world_kill_agent_only(&w, i);
		w.agent[i].n_file = 0;
	}
	world_run_for(&w, 2 * WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++)
		world_start_agent(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++) /* what the operator hears */
		ck_assert_uint_eq(wb_transfer_highest(w.agent[i].core, "default/sim"),
			i < o.trainer_agents ? 0 : 3);
	world_plan(&w);
	world_check_send(&w, 4, 20 * WB_NS_PER_S);
	ck_assert_msg(strstr(w.last_culprit, "is not above 3") != NULL, "%s", w.last_culprit);
	world_check_send(&w, 5, 20 * WB_NS_PER_S);
	world_check_hold(&w, 5);
	world_finish(&w);
}
END_TEST

static uint32_t n_held(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_trainer; i++)
		n += w->worker[i].held;
	return n;
}

/* An engine dies right after the trainers' release, with chunks that only it has.  Without a hold
 * the other one is Torn; with it those chunks are sent again. */
START_TEST(a_hold_sends_again_what_a_lost_engine_alone_had)
{
	struct world_opts o = world_shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	o.hold = _i % 2;
	o.older_agents = true; /* nobody leaves early, with some of it in slots */
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	world_send(&w, 2);
	while (w.worker[0].send_state < WB_APP_SEND_RELEASED)
		world_run_for(&w, 2000);
	world_run_for(&w, wb_rng_below(&rng, 20000));
	world_kill_agent(&w, world_agent_of_engine(&w, 1));
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_uint_eq(w.worker[w.n_trainer].n_torn, o.hold ? 0 : 1);
	ck_assert_str_eq(w.last_result, o.hold ? "Succeeded" : "Torn");
	if (o.hold)
		world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

START_TEST(a_hold_lasts_until_release_or_the_last_outcome)
{
	struct world_opts o = world_shapes[1];
	struct world w;
	bool seen = false;

	o.hold = true;
	o.scale = 256;
	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 4; v++) {
		world_send(&w, v);
		for (int step = 0; step < 5000 && !n_held(&w); step++)
			world_run_for(&w, 2000);
		if (n_held(&w) && v % 2) {
			/* Every worker is let go although the transfer is not over. */
			world_release(&w);
			world_run_for(&w, 20000);
			seen |= w.worker[0].send_state == WB_APP_SEND_RELEASED;
			ck_assert_uint_eq(n_held(&w), 0);
			memset(w.worker[0].memory, 0xee, w.worker[0].bytes);
		}
		ck_assert(world_run(&w, 20 * WB_NS_PER_S));
		world_run_for(&w, WB_NS_PER_MS);
		ck_assert_uint_eq(n_held(&w), 0); /* final: nothing is left to hold */
		world_check_hold(&w, v);
	}
	ck_assert(seen);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim");
	TCase *tc = tcase_create("world");

	tcase_add_loop_test(tc, every_version_arrives_byte_for_byte, 0, WORLD_SHAPES * WORLD_MODES);
	fx_add_points(tc, a_lost_engine_is_left_behind_and_fed_when_it_returns, 0, 60);
	fx_add_points(tc, a_feed_goes_on_from_other_engines_when_its_source_leaves, 0, 60);
	fx_add_points(tc, a_feed_that_nobody_can_go_on_with_fails_at_once, 0, 20);
	tcase_add_loop_test(tc, a_number_is_never_used_twice, 0, 2 * WORLD_MODES);
	tcase_add_loop_test(tc, numbers_outlive_all_agents_with_the_areas, 0, WORLD_MODES - 2);
	fx_add_points(tc, a_hold_sends_again_what_a_lost_engine_alone_had, 0, 60);
	tcase_add_test(tc, a_hold_lasts_until_release_or_the_last_outcome);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
