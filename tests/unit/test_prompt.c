/* SPDX-License-Identifier: Apache-2.0 */
/* Who dies is missed at once: deadlines are minutes here, and nobody waits for one.  A fault at any
 * event of a transfer; a later one commits at every engine that is there. */
#include "tests/common/fx_check.h"
#include "tests/common/world_op.h"

#include "base/log.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define SOON (20 * WB_NS_PER_S)
#define STEPS 64 /* a fault at each of so many places in a transfer */

static const struct world_opts shape = {.seed = 5,
	.trainer_agents = 1,
	.trainers_per_agent = 1,
	.engines = 2,
	.agents_per_engine = 1,
	.workers_per_agent = 1,
	.scale = 128,
	.hook_ns = WB_NS_PER_MS,
	.step_deadline_ns = 600 * WB_NS_PER_S,
	.transfer_deadline_ns = 120 * WB_NS_PER_S,
	.peers_reconnect = true};

static struct world w;
static struct world_op op;
static char refused[512];

static void on_trace(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)who;
	(void)value;
	world_op_trace(&op, a, what, transfer);
}

static void on_report(void *ctx, struct world_agent *a, const struct wb_core_report *r)
{
	(void)ctx;
	world_op_report(&op, a, r);
	if (r->is_feed && r->is_final && strcmp(r->state[0], "Committed"))
		snprintf(refused, sizeof(refused), "%s", r->sentence[0]);
}

/* Engines may still be in the transfer before. */
static bool is_planned(void)
{
	for (uint32_t i = 0; i < w.n_worker; i++)
		if (w.worker[i].phase != WORLD_DOWN && (!w.worker[i].id || w.worker[i].send_ns))
			return false;
	return world_op_is_quiet(&op);
}

static bool is_rest(void)
{
	for (uint32_t i = 0; i < w.n_worker; i++)
		if (w.worker[i].phase >= WORLD_BEFORE && w.worker[i].phase <= WORLD_AFTER)
			return false;
	return is_planned();
}

static void come_to_plan(void)
{
	uint64_t end = world_now(&w) + SOON;

	while (!is_planned() && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert(is_planned());
}

static void come_to_rest(void)
{
	uint64_t end = world_now(&w) + SOON;

	while (!is_rest() && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	for (uint32_t i = 0; i < w.n_worker && !is_rest(); i++)
		fprintf(stderr, "worker %u: phase %d, %s\n", i, (int)w.worker[i].phase,
			w.worker[i].why);
	ck_assert(is_rest());
	world_run_for(&w, 200 * WB_NS_PER_MS);
}

static void begin(const struct world_opts *o)
{
	world_init(&w, o);
	w.watch = (struct world_watch){.trace = on_trace, .report = on_report};
	refused[0] = '\0';
	world_op_start(&op, &w);
	come_to_rest();
}

static void end(void)
{
	op.alive = false;
	w.watch = (struct world_watch){0};
	world_finish(&w);
}

static void commits(int64_t version)
{
	world_send(&w, version);
	ck_assert(world_run(&w, SOON));
	world_run_for(&w, 100 * WB_NS_PER_MS);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++) {
		if (w.worker[i].phase == WORLD_DOWN)
			continue;
		ck_assert_int_eq(w.worker[i].phase, WORLD_RUN);
		ck_assert_msg(world_holds(&w, &w.worker[i], version), "worker %u: %s; %s", i,
			w.worker[i].why, w.last_culprit);
	}
}

static struct world_opts mode(int i)
{
	struct world_opts o = shape;

	o.trainer_staged = i & 1;
	o.rollout_staged = i & 2;
	return o;
}

/* Version 2, up to a place of its transfer. */
static void part_of_a_transfer(int place)
{
	commits(1);
	world_send(&w, 2);
	for (int i = 0; i < 5 + place * 11; i++)
		ck_assert(wb_sim_step(w.net));
}

/* Its workers stay and attach to the next one, whose first transfer begins before others have heard
 * that the one before is gone. */
START_TEST(a_restarted_trainer_agent_holds_nobody_up)
{
	struct world_opts o = mode(_i);

	begin(&o);
	part_of_a_transfer(_i / 4);
	world_kill_agent_only(&w, 0);
	world_run_for(&w, (uint64_t)(_i % 3) * 300 * WB_NS_PER_MS);
	world_start_agent(&w, 0);
	come_to_plan();
	commits(3);
	end();
}
END_TEST

START_TEST(a_restarted_rollout_agent_holds_nobody_up)
{
	struct world_opts o = mode(_i);

	o.trainer_agents = 2;
	begin(&o);
	part_of_a_transfer(_i / 4);
	world_kill_agent_only(&w, 2 + (uint32_t)_i % 2);
	world_run_for(&w, (uint64_t)(_i % 3) * 700 * WB_NS_PER_MS);
	world_start_agent(&w, 2 + (uint32_t)_i % 2);
	come_to_rest();
	commits(3);
	end();
}
END_TEST

/* Two of three engines are scaled down at once: their workers end, then their agents. */
START_TEST(engines_that_leave_hold_nobody_up)
{
	struct world_opts o = mode(_i);
	bool in_order = _i & 8;

	o.engines = 3;
	begin(&o);
	part_of_a_transfer(_i / 4);
	for (uint32_t i = 2; i < w.n_worker; i++)
		world_end_worker(&w, i, in_order ? NULL : "exited (killed)");
	world_run_for(&w, (uint64_t)(_i % 3) * 30 * WB_NS_PER_MS);
	world_kill_agent_only(&w, 2);
	world_kill_agent_only(&w, 3);
	come_to_rest();
	commits(3);
	end();
}
END_TEST

/* The other engine waits for its share, which then comes from a trainer.  Whether that is gone is
 * heard from two sides: its agent refuses, and the leader says so; in any order. */
START_TEST(an_engine_that_leaves_in_its_hook_takes_nothing_with_it)
{
	struct world_opts o = shape;
	uint64_t until;

	o.seed = 100 + (uint64_t)_i;
	begin(&o);
	commits(1);
	w.worker[2].hook_ns = 30 * WB_NS_PER_S;
	world_send(&w, 2);
	until = world_now(&w) + SOON;
	while (w.worker[1].phase != WORLD_BEGUN && world_now(&w) < until)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, 20 * WB_NS_PER_MS);
	ck_assert_int_eq(w.worker[1].phase, WORLD_BEGUN);
	ck_assert_int_eq(w.worker[2].phase, WORLD_BEFORE);
	if (_i & 4) /* both are there when it looks */
		wb_sim_node_stall(w.net, w.agent[1].name, 50 * WB_NS_PER_MS);
	world_end_worker(&w, 2, _i & 1 ? NULL : "exited (killed)");
	if (_i & 2)
		world_kill_agent_only(&w, 2);
	come_to_rest();
	ck_assert_msg(world_holds(&w, &w.worker[1], 2) && w.worker[1].version == 2, "%s; %s",
		w.worker[1].why, w.last_culprit);
	ck_assert_uint_eq(w.worker[1].n_torn, 0);
	end();
}
END_TEST

/* The operator waits for a feed, with plans and other feeds, until it has heard how it ended. */
START_TEST(a_feed_that_cannot_begin_is_reported)
{
	struct world_agent *a;
	struct wb_err err = {0};

	begin(&shape);
	a = &w.agent[1];
	ck_assert_int_lt(
		wb_core_feed(a->core, world_uid, op.active->term, op.active->number, 1, 0, &err),
		0);
	ck_assert_msg(strstr(refused, "engine e0") != NULL, "%s", refused);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prompt");
	TCase *tc = tcase_create("prompt");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, a_restarted_trainer_agent_holds_nobody_up, 0, STEPS);
	tcase_add_loop_test(tc, a_restarted_rollout_agent_holds_nobody_up, 0, STEPS);
	tcase_add_loop_test(tc, engines_that_leave_hold_nobody_up, 0, STEPS);
	tcase_add_loop_test(tc, an_engine_that_leaves_in_its_hook_takes_nothing_with_it, 0, STEPS);
	tcase_add_test(tc, a_feed_that_cannot_begin_is_reported);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
