/* SPDX-License-Identifier: Apache-2.0 */
/* Who dies is missed at once: deadlines are minutes here, and nobody waits for one.  A fault at any
 * event of a transfer; a later one commits at every engine that is there. */
#include "proto/peers.h"
#include "tests/common/fx_check.h"
#include "tests/common/world_op.h"

#include "base/base.h"
#include "base/log.h"

#include <check.h>
#include <errno.h>
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

/* An agent is to die when it has sent a message, which may be lost, or when a trace is written. */
static struct {
	uint32_t agent, kind, how; /* PROGRESS: its progress; 0 = any */
	const char *trace; /* NULL = by the message */
	bool is_said;
} last_word;

static void on_trace(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)who;
	(void)value;
	(void)a;
	(void)transfer;
	last_word.is_said |= last_word.trace && !strcmp(what, last_word.trace);
}

static void on_report(void *ctx, struct world_agent *a, const struct wb_transfer_report *r)
{
	(void)ctx;
	world_op_report(&op, a, r);
	if (r->is_feed && r->kind == WB_REPORT_FINAL && r->state[0] != WB_ENGINE_COMMITTED)
		snprintf(refused, sizeof(refused), "%s", r->sentence[0]);
}

/* Engines may still be in the transfer before; worker @caller in a call, NO_ONE = none. */
#define NO_ONE UINT32_MAX
static bool is_planned_but(uint32_t caller)
{
	for (uint32_t i = 0; i < w.n_worker; i++)
		if (w.worker[i].phase != WORLD_DOWN &&
			(!w.worker[i].id || (w.worker[i].send_ns && i != caller)))
			return false;
	return world_op_is_quiet(&op);
}

static bool is_planned(void)
{
	return is_planned_but(NO_ONE);
}

static bool is_rest(void)
{
	for (uint32_t i = 0; i < w.n_worker; i++)
		if (w.worker[i].phase >= WORLD_BEFORE && w.worker[i].phase <= WORLD_AFTER)
			return false;
	return is_planned();
}

static void come_to_plan_but(uint32_t caller)
{
	uint64_t end = world_now(&w) + SOON;

	while (!is_planned_but(caller) && world_now(&w) < end)
		ck_assert(wb_sim_step(w.net));
	ck_assert(is_planned_but(caller));
}

static void come_to_plan(void)
{
	come_to_plan_but(NO_ONE);
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

/* Up to a place of a transfer. */
static void part_of(int64_t version, int place)
{
	world_send(&w, version);
	for (int i = 0; i < 5 + place * 11; i++)
		ck_assert(wb_sim_step(w.net));
}

static void part_of_a_transfer(int place)
{
	commits(1);
	part_of(2, place);
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

static void on_last_word(void *ctx, const struct world_agent *from, const char *to,
	const struct wb_msg_peer *m, const void *data, size_t bytes)
{
	(void)ctx;
	(void)to;
	(void)data;
	(void)bytes;
	last_word.is_said |= !last_word.trace && from->index == last_word.agent &&
			     m->kind == last_word.kind &&
			     (!last_word.how || m->how == last_word.how);
}

static const struct {
	uint32_t agent, kind, how;
	const char *trace;
	int64_t holds; /* what the engine has then; -1: it may be torn */
} words[] = {
	{2, WBP_PEER_PROMISE, 0, NULL, 1},
	{2, WBP_PEER_STOPPED, 0, NULL, 1},
	{2, WBP_PEER_HEARD, 0, NULL, -1},
	{2, 0, 0, "receive", -1},
	{2, WBP_PEER_PROGRESS, 1, NULL, -1},
	{2, WBP_PEER_PROGRESS, 2, NULL, -1},
	{2, 0, 0, "Committed", 2}, /* END is lost */
	{2, WBP_PEER_ENDED, 0, NULL, 2},
	{1, WBP_PEER_STOP, 0, NULL, 1},
	{1, WBP_PEER_TARGET, 0, NULL, 1},
	{1, WBP_PEER_ALL_STOPPED, 0, NULL, 1},
	{1, WBP_PEER_OPEN, 0, NULL, -1},
	{1, 0, 0, "Committed", -1}, /* nobody has heard END */
	{1, WBP_PEER_ENGINE, WB_ENGINE_COMMITTED, NULL, 2},
};
#define FIRST_OF_LEAD 8
#define N_OF_LEAD ((int)WB_ARRAY_SIZE(words) - FIRST_OF_LEAD)

/* Two workers that wait for each other in each step, under two agents: the lead's and another. */
static struct world_opts in_step(int i)
{
	struct world_opts o = shape;

	o.trainer_staged = i & 1;
	o.engines = 1;
	o.agents_per_engine = 2;
	o.drift = 1;
	o.deaf = true;
	o.scale = 16;
	o.seed = 5 + (uint64_t)i;
	return o;
}

static void die_at(const struct world_opts *o, int word)
{
	uint64_t until;

	begin(o);
	commits(1);
	last_word.agent = words[word].agent;
	last_word.kind = words[word].kind;
	last_word.how = words[word].how;
	last_word.trace = words[word].trace;
	last_word.is_said = false;
	w.watch.message = on_last_word;
	world_send(&w, 2);
	until = world_now(&w) + SOON;
	while (!last_word.is_said && world_now(&w) < until)
		ck_assert(wb_sim_step(w.net));
	ck_assert(last_word.is_said);
	last_word.trace = NULL;
	w.watch.message = NULL;
	world_kill_agent_only(&w, last_word.agent);
}

/* The coordinator's agent is restarted; its trainer worker comes back with its next call, as it has
 * no thread.  Others may call at once, or when they know that the coordinator is gone: the plan
 * that comes of it answers all. */
START_TEST(a_call_while_the_coordinator_restarts_waits_for_the_plan)
{
	struct world_opts o = shape;
	bool hears = _i & 1, in_transfer = _i & 2;

	o.trainer_agents = 2;
	o.lazy_trainers = true;
	o.seed = 5 + (uint64_t)_i;
	begin(&o);
	commits(1);
	if (in_transfer)
		part_of(2, _i);
	world_kill_agent_only(&w, 0);
	world_run_for(&w, hears ? 2 * WB_NS_PER_S : 1 + (uint64_t)_i * WB_NS_PER_MS);
	world_start_agent(&w, 0);
	if (in_transfer) /* the call before has failed */
		ck_assert(world_run(&w, SOON));
	world_send_one(&w.worker[1], w.worker[1].version = 3);
	world_fill(&w.worker[1], 3);
	world_run_for(&w, 100 * WB_NS_PER_MS);
	world_come_back(&w.worker[0]);
	come_to_plan_but(1);
	world_fill(&w.worker[0], 3);
	world_send_one(&w.worker[0], w.worker[0].version = 3);
	ck_assert(world_run(&w, SOON));
	ck_assert_msg(w.worker[1].send_code == 0, "%s", w.worker[1].why);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert(world_holds(&w, &w.worker[i], 3));
	end();
}
END_TEST

/* One whose coordinator does not come back hears of it soon. */
START_TEST(a_call_to_a_coordinator_that_stays_away_ends)
{
	struct world_opts o = shape;

	o.trainer_agents = 2;
	o.lazy_trainers = true;
	begin(&o);
	commits(1);
	world_kill_agent_only(&w, 0);
	world_send_one(&w.worker[1], 2);
	world_run_for(&w, SOON);
	ck_assert_int_eq(w.worker[1].send_state, WB_APP_SEND_FINAL);
	ck_assert_int_eq(w.worker[1].send_code, WB_EUNKNOWN);
	ck_assert_msg(strstr(w.worker[1].why, "trainer-0") != NULL, "%s", w.worker[1].why);
	end();
}
END_TEST

/* The other worker of the engine may have heard how it ended, and waits for the one that has not.
 * The truth is told, and the next transfer commits. */
START_TEST(a_worker_whose_agent_died_before_the_end_hears_of_it)
{
	int i = _i % (int)WB_ARRAY_SIZE(words), more = _i / (int)WB_ARRAY_SIZE(words);
	struct world_opts o = in_step(more);
	const struct world_worker *a, *b;

	die_at(&o, i);
	a = &w.worker[1];
	b = &w.worker[2];
	world_run_for(&w, (uint64_t)(more % 3) * 700 * WB_NS_PER_MS);
	world_start_agent(&w, words[i].agent);
	come_to_plan();
	world_run_for(&w, 2 * WB_NS_PER_S);
	ck_assert_int_eq(a->phase, b->phase);
	if (words[i].holds > 0 || a->phase != WORLD_TORN) {
		ck_assert_int_eq(a->phase, WORLD_RUN);
		ck_assert(words[i].holds < 0 || a->version == words[i].holds);
		ck_assert(world_holds(&w, a, a->version) && world_holds(&w, b, a->version));
	}
	commits(3);
	end();
}
END_TEST

static void no_words(const char *from, const char *to, uint64_t ns)
{
	struct wb_sim_fault f = {.kind = WB_SIM_DROP,
		.items = WB_SIM_MSG,
		.from = from,
		.to = to,
		.until_ns = world_now(&w) + ns};

	ck_assert_int_eq(wb_sim_fault_add(w.net, &f), 0);
}

static void restart_engine(void)
{
	for (uint32_t i = 1; i <= 2; i++)
		world_kill_worker(&w, i);
	for (uint32_t i = 1; i <= 2; i++)
		world_start_worker(&w, i);
}

/* The lead that began anew asks how the update ended, and the other agent cannot be reached until
 * it is given up: the answer, which is lost, holds nothing up later.  Each worker goes by what it
 * knows of itself; where that parts them the engine's user ends it. */
START_TEST(a_question_about_an_update_is_not_asked_for_ever)
{
	int i = FIRST_OF_LEAD + _i % N_OF_LEAD;
	struct world_opts o = in_step(_i / N_OF_LEAD);

	die_at(&o, i);
	no_words("e0-0", "e0-1", 13 * WB_NS_PER_S);
	no_words("e0-1", "e0-0", 13 * WB_NS_PER_S);
	world_start_agent(&w, 1);
	world_run_for(&w, 14 * WB_NS_PER_S);
	if (words[i].holds < 0 && w.worker[1].phase != w.worker[2].phase)
		restart_engine();
	come_to_plan();
	commits(3);
	end();
}
END_TEST

/* END was lost with the lead: one worker has heard it, stands in its collective, and cannot be
 * asked; the other one is torn for all that anybody knows.  Its user ends the engine. */
static void restart_if_torn(void)
{
	uint64_t until = world_now(&w) + SOON + 10 * WB_NS_PER_S; /* doubt takes 25 s */

	while (!is_planned() && world_now(&w) < until)
		ck_assert(wb_sim_step(w.net));
	if (is_planned())
		return;
	ck_assert(w.worker[1].phase == WORLD_TORN || w.worker[2].phase == WORLD_TORN);
	restart_engine();
}

START_TEST(an_engine_in_step_survives_an_agent_of_it)
{
	struct world_opts o = in_step(_i);

	begin(&o);
	commits(1);
	world_send(&w, 2);
	for (int i = 0; i < _i / 4 * 2; i++)
		ck_assert(wb_sim_step(w.net));
	world_kill_agent_only(&w, 1 + (uint32_t)_i / 2 % 2);
	world_run_for(&w, (uint64_t)(_i % 3) * 700 * WB_NS_PER_MS);
	world_start_agent(&w, 1 + (uint32_t)_i / 2 % 2);
	restart_if_torn();
	come_to_plan();
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
 * heard from two sides: its agent refuses, and the coordinator says so; in any order. */
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
	ck_assert_int_lt(wb_transfer_feed(a->core, &op.active->id, 1, 0, &err), 0);
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
	fx_add_points(tc, a_restarted_trainer_agent_holds_nobody_up, 0, STEPS);
	fx_add_points(tc, a_restarted_rollout_agent_holds_nobody_up, 0, STEPS);
	fx_add_points(tc, a_call_while_the_coordinator_restarts_waits_for_the_plan, 0, STEPS);
	tcase_add_test(tc, a_call_to_a_coordinator_that_stays_away_ends);
	fx_add_points(tc, a_worker_whose_agent_died_before_the_end_hears_of_it, 0,
		(int)WB_ARRAY_SIZE(words) * 6);
	fx_add_points(tc, a_question_about_an_update_is_not_asked_for_ever, 0, 4 * N_OF_LEAD);
	fx_add_points(tc, an_engine_in_step_survives_an_agent_of_it, 0, 3 * STEPS);
	fx_add_points(tc, engines_that_leave_hold_nobody_up, 0, STEPS);
	fx_add_points(tc, an_engine_that_leaves_in_its_hook_takes_nothing_with_it, 0, STEPS);
	tcase_add_test(tc, a_feed_that_cannot_begin_is_reported);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
