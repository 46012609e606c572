/* SPDX-License-Identifier: Apache-2.0 */
/* Every wait ends: with news that is lost, plans that are never activated, repair that never comes.
 */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct world_opts shape = {.seed = 11,
	.trainer_agents = 2,
	.trainers_per_agent = 1,
	.engines = 2,
	.agents_per_engine = 2,
	.workers_per_agent = 1,
	.step_deadline_ns = WB_NS_PER_S,
	.transfer_deadline_ns = WB_NS_PER_S,
	.peers_reconnect = true};

/* All are there, and run. */
static void all_hold(const struct world *w, int64_t version)
{
	world_check_hold(w, version);
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		ck_assert_int_eq(w->worker[i].phase, WORLD_RUN);
}

/* An agent that a busy machine held up finds both deadlines over at once: its lead's, which knows
 * that something is missing, and its party's, which knows what. */
START_TEST(who_wakes_up_after_all_deadlines_says_what_is_missing)
{
	struct world_opts o = shape;
	struct world w;

	o.engines = o.agents_per_engine = 1;
	o.rollout_staged = _i;
	o.bytes_per_s = 1000;
	world_init(&w, &o);
	world_plan(&w);
	world_send(&w, 1);
	world_run_for(&w, o.transfer_deadline_ns / 2);
	world_stall_agent(&w, o.trainer_agents, 2 * o.transfer_deadline_ns);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	ck_assert_msg(strstr(w.last_culprit, "waiting for chunk") != NULL, "%s", w.last_culprit);
	world_finish(&w);
}
END_TEST

/* The operator died, or those it had planned without came back: the plan before stays in use, at
 * all agents or only at some. */
START_TEST(a_plan_that_is_never_activated_stops_no_transfer)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct world w;

	o.rollout_staged = _i & 1;
	world_init(&w, &o);
	world_plan(&w);
	e = world_epoch_make(&w);
	for (uint32_t i = 0; i < e->n_agent; i++)
		if (_i < 2 || i % 2 == (uint32_t)_i % 2)
			world_must(world_epoch_install(&w, e, e->agent[i], NULL), NULL);
	for (int64_t v = 1; v <= 3; v++) {
		world_check_send(&w, v, 5 * WB_NS_PER_S);
		ck_assert_str_eq(w.last_result, "Succeeded");
		all_hold(&w, v);
	}
	for (uint32_t i = 0; i < w.n_agent; i++) { /* what a new operator may adopt */
		const struct wb_roster *r = wb_transfer_running(w.agent[i].core, &world_object);

		ck_assert_uint_eq(r->id.number, 1);
	}
	world_plan(&w);
	world_check_send(&w, 4, 5 * WB_NS_PER_S);
	all_hold(&w, 4);
	world_finish(&w);
}
END_TEST

/* Its operator died after ACTIVATE had reached the trainers' agents: PREPARE implies it. */
START_TEST(activate_that_reached_half_of_the_agents_is_enough)
{
	struct world_opts o = shape;
	struct world_epoch *e;
	struct world w;

	o.rollout_staged = _i & 1;
	o.all_engines = _i & 2;
	world_init(&w, &o);
	e = world_epoch_make(&w);
	for (uint32_t i = 0; i < e->n_agent; i++)
		world_must(world_epoch_install(&w, e, e->agent[i], NULL), NULL);
	for (uint32_t i = 0; i < o.trainer_agents; i++) {
		struct world_agent *a = &w.agent[e->agent[i]];

		world_must(wb_transfer_activate(a->core, &e->id), NULL);
		world_after(a);
	}
	world_check_send(&w, 1, 5 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, "Succeeded");
	all_hold(&w, 1);
	world_finish(&w);
}
END_TEST

static uint32_t n_phase(const struct world *w, enum world_phase phase)
{
	uint32_t n = 0;

	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		n += w->worker[i].phase == phase;
	return n;
}

/* Workers torn by a trainer's death: the plan without the old process must not forget them. */
START_TEST(the_wait_for_repair_ends_under_a_new_plan)
{
	struct world_opts o = shape;
	struct world w;
	uint32_t n = 0;

	o.engines = 1;
	o.trainer_staged = _i;
	o.scale = 256;
	o.transfer_deadline_ns = 5 * WB_NS_PER_S;
	world_init(&w, &o);
	world_plan(&w);
	world_send(&w, 1);
	while (n_phase(&w, WORLD_BEGUN) < 2)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, 100000); /* the first bytes */
	world_kill_agent(&w, 1);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_uint_eq(n_phase(&w, WORLD_TORN), 2);
	world_restart(&w, 1);
	world_plan(&w);
	world_run_for(&w, 2 * WB_NS_PER_S); /* the plan before goes */
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert(!w.worker[i].is_torn_final);
	world_plan(&w); /* and another */
	world_run_for(&w, o.transfer_deadline_ns + WB_NS_PER_S);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		n += w.worker[i].is_torn_final;
	ck_assert_uint_eq(n, 2); /* their polls raise */
	world_send(&w, 2);
	ck_assert(world_run(&w, 5 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	all_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* The coordinator's last word does not reach a trainer, though nobody calls the other one down: for
 * good (its own deadline ends the wait), or until the coordinator has given it up (then it is
 * told). */
START_TEST(news_that_is_lost_is_not_waited_for)
{
	struct world_opts o = shape;
	struct wb_sim_fault f = {.kind = WB_SIM_DROP, .items = WB_SIM_MSG};
	bool is_short = _i & 1;
	struct world w;
	uint64_t begin;

	o.rollout_staged = _i & 2;
	o.step_deadline_ns = 5 * WB_NS_PER_S;
	world_init(&w, &o);
	world_plan(&w);
	world_send(&w, 1);
	while (w.worker[1].send_state != WB_APP_SEND_RELEASED)
		ck_assert(wb_sim_step(w.net));
	begin = f.from_ns = world_now(&w);
	f.until_ns = is_short ? begin + 13 * WB_NS_PER_S : 0;
	f.from = w.agent[0].name;
	f.to = w.agent[1].name;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &f), 0);
	ck_assert(world_run(&w, 60 * WB_NS_PER_S));
	ck_assert_uint_le(world_now(&w) - begin, (is_short ? 16 : 28) * WB_NS_PER_S);
	ck_assert_int_lt(w.worker[1].send_code, 0);
	ck_assert_msg(strstr(w.worker[1].why, "agent trainer-0") != NULL, "%s", w.worker[1].why);
	all_hold(&w, 1);
	wb_sim_faults_clear(w.net);
	world_run_for(&w, 3 * WB_NS_PER_S);
	world_check_send(&w, 2, 5 * WB_NS_PER_S);
	all_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* A trainer's question waits at the coordinator when one of the two calls the other one down, who
 * is alive and hears nothing of it.  It is asked again, or forgotten by both. */
START_TEST(a_question_is_not_lost_when_one_side_calls_the_other_down)
{
	struct world_opts o = shape;
	struct world w;
	uint32_t deaf = (uint32_t)_i;
	int64_t v = 1;

	world_init(&w, &o);
	world_plan(&w);
	world_fill(&w.worker[1], v);
	world_send_one(&w.worker[1], v);
	world_run_for(&w, WB_NS_PER_MS);
	wb_transfer_peer_down(w.agent[deaf].core, &w.epochs->id, 1 - deaf, "a test says so");
	world_after(&w.agent[deaf]);
	world_run_for(&w, WB_NS_PER_MS);
	if (w.worker[1].send_state == WB_APP_SEND_FINAL) {
		ck_assert_int_lt(w.worker[1].send_code, 0);
		v++;
		world_fill(&w.worker[1], v);
		world_send_one(&w.worker[1], v);
	}
	world_fill(&w.worker[0], v);
	world_send_one(&w.worker[0], v);
	ck_assert(world_run(&w, 10 * WB_NS_PER_S));
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert_str_eq(w.last_result, "Succeeded");
	ck_assert_int_eq(w.worker[1].send_code, 0);
	all_hold(&w, v);
	world_finish(&w);
}
END_TEST

/* An agent gave messages up while its engine's lead was stopped, and the lead hears of it from the
 * first answer in the next transfer: that one has lost nothing. */
START_TEST(a_gap_ends_no_younger_transfer)
{
	struct wb_sim_fault f = {.kind = WB_SIM_DROP, .items = WB_SIM_MSG};
	struct world_opts o = shape;
	struct world_agent *lead, *other;
	struct world w;

	o.rollout_staged = _i & 1;
	o.all_engines = _i & 2;
	world_init(&w, &o);
	world_plan(&w);
	world_send(&w, 1);
	ck_assert(world_run(&w, 5 * WB_NS_PER_S));
	world_run_for(&w, WB_NS_PER_S);
	lead = &w.agent[o.trainer_agents];
	other = lead + 1;
	f.from = other->name;
	f.to = lead->name;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &f), 0);
	wb_transfer_peer_down(other->core, &w.epochs->id, o.trainer_agents, "a test says so");
	world_after(other);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	wb_sim_faults_clear(w.net);
	world_check_send(&w, 2, 10 * WB_NS_PER_S);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s", w.last_culprit);
	all_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* Nothing of @items comes from one of the agents to another for @ns. */
static void hold_back(
	struct world *w, uint32_t first, uint32_t n, bool from_any, unsigned items, uint64_t ns)
{
	struct wb_sim_fault f = {.kind = WB_SIM_PARTITION,
		.items = items,
		.from_ns = world_now(w),
		.until_ns = world_now(w) + ns};

	for (uint32_t to = first; to < first + n; to++)
		for (uint32_t from = first; from < (from_any ? first + 1 : first + n); from++) {
			f.from = from_any ? NULL : w->agent[from].name;
			f.to = w->agent[to].name;
			ck_assert_int_eq(wb_sim_fault_add(w->net, &f), 0);
		}
}

static void send_one(struct world_worker *k, int64_t version)
{
	world_fill(k, version);
	world_send_one(k, version);
}

static void second_is_committed(struct world *w)
{
	ck_assert(world_run(w, 10 * WB_NS_PER_S));
	world_run_for(w, 10 * WB_NS_PER_MS);
	for (uint32_t i = 0; i < w->n_trainer; i++)
		ck_assert_msg(
			w->worker[i].send_code == 0, "%s: %s", w->worker[i].name, w->worker[i].why);
	ck_assert_str_eq(w->last_result, "Succeeded");
	all_hold(w, 2);
}

/* One worker of an agent was let go by its snapshot and calls again; the other one is in its
 * user's code until the transfer has ended, which takes longer than engineStepDeadlineSeconds. */
START_TEST(the_time_to_call_begins_when_the_transfer_before_has_ended)
{
	struct world_opts o = shape;
	struct world w;
	uint64_t begin;

	o.trainer_agents = 1;
	o.trainers_per_agent = 2;
	o.trainer_staged = true;
	o.transfer_deadline_ns = 10 * WB_NS_PER_S;
	world_init(&w, &o);
	world_plan(&w);
	begin = world_now(&w);
	hold_back(&w, 1, 4, true, WB_SIM_DATA, 5 * WB_NS_PER_S / 2);
	world_send(&w, 1);
	while (w.worker[0].send_state != WB_APP_SEND_RELEASED)
		ck_assert(wb_sim_step(w.net));
	send_one(&w.worker[0], 2);
	while (w.worker[1].send_state != WB_APP_SEND_FINAL)
		ck_assert(wb_sim_step(w.net));
	ck_assert_uint_gt(world_now(&w) - begin, 2 * o.step_deadline_ns);
	ck_assert_int_eq(w.worker[1].send_code, 0);
	world_run_for(&w, o.step_deadline_ns - 100 * WB_NS_PER_MS);
	send_one(&w.worker[1], 2);
	second_is_committed(&w);
	world_finish(&w);
}
END_TEST

/* One worker called under a plan whose other trainer worker is dead; the new one of the next plan
 * has as long as anybody to call. */
START_TEST(the_time_to_call_begins_with_the_plan)
{
	struct world_opts o = shape;
	struct world w;

	o.trainer_agents = 1;
	o.trainers_per_agent = 2;
	world_init(&w, &o);
	world_plan(&w);
	world_send(&w, 1);
	ck_assert(world_run(&w, 5 * WB_NS_PER_S));
	world_kill_worker(&w, 1);
	send_one(&w.worker[0], 2);
	world_run_for(&w, o.step_deadline_ns - 100 * WB_NS_PER_MS);
	world_start_worker(&w, 1);
	world_plan(&w);
	world_run_for(&w, o.step_deadline_ns - 100 * WB_NS_PER_MS);
	send_one(&w.worker[1], 2);
	second_is_committed(&w);
	world_finish(&w);
}
END_TEST

/* The same between agents: one was restarted and asks under the next plan, while the coordinator's
 * workers are in a transfer of the plan before. */
START_TEST(the_time_to_call_begins_when_the_coordinators_transfer_has_ended)
{
	struct world_opts o = shape;
	struct world w;
	uint64_t begin;

	o.agents_per_engine = 1;
	o.transfer_deadline_ns = 10 * WB_NS_PER_S;
	world_init(&w, &o);
	world_plan(&w);
	begin = world_now(&w);
	hold_back(&w, 2, 2, false, WB_SIM_DATA, 5 * WB_NS_PER_S / 2);
	world_send(&w, 1);
	while (w.worker[0].send_state != WB_APP_SEND_RELEASED)
		ck_assert(wb_sim_step(w.net));
	world_run_for(&w, WB_NS_PER_MS);
	world_kill_agent(&w, 1);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_restart(&w, 1);
	world_plan(&w);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	send_one(&w.worker[1], 2);
	while (w.worker[0].send_state != WB_APP_SEND_FINAL)
		ck_assert(wb_sim_step(w.net));
	ck_assert_uint_gt(world_now(&w) - begin, 2 * o.step_deadline_ns);
	world_run_for(&w, o.step_deadline_ns - 100 * WB_NS_PER_MS);
	send_one(&w.worker[0], 2);
	second_is_committed(&w);
	world_finish(&w);
}
END_TEST

#define DIALLERS 8
#define TRIES 4 /* 50, 100, 200 ms apart */

/* Nobody can be dialled; who tried to reach the trainer when, by transport. */
static struct {
	struct world *w;
	const struct wb_xport *x[DIALLERS];
	uint64_t at[DIALLERS][TRIES];
	uint32_t n[DIALLERS];
} dials;

static int refuse_to_dial(
	struct wb_xport *x, const struct wb_xport_peer *p, wb_conn_t *out, struct wb_err *err)
{
	(void)out;
	for (uint32_t i = 0; i < DIALLERS; i++)
		if (dials.x[i] == x && !strcmp(p->name, dials.w->agent[0].name) &&
			dials.n[i] < TRIES)
			dials.at[i][dials.n[i]++] = world_now(dials.w);
	return wb_err_set(err, -ECONNREFUSED, "nobody listens");
}

/* Most that two of them are apart in how long they waited before their last try. */
static uint64_t spread(void)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (uint32_t i = 0; i < DIALLERS; i++) {
		uint64_t waited = dials.at[i][TRIES - 1] - dials.at[i][TRIES - 2];

		ck_assert_uint_eq(dials.n[i], TRIES);
		least = WB_MIN(least, waited);
		most = WB_MAX(most, waited);
	}
	return most - least;
}

START_TEST(those_who_fail_together_try_again_apart)
{
	struct world_opts o = shape;
	struct wb_xport_ops deaf;
	struct world w;

	o.trainer_agents = 1;
	o.engines = DIALLERS;
	o.agents_per_engine = 1;
	world_init(&w, &o);
	world_plan(&w);
	memset(&dials, 0, sizeof(dials));
	dials.w = &w;
	deaf = *w.agent[0].xport->ops;
	deaf.connect = refuse_to_dial;
	for (uint32_t i = 0; i < DIALLERS; i++) {
		dials.x[i] = w.agent[1 + i].xport;
		w.agent[1 + i].xport->ops = &deaf;
	}
	world_send(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_uint_gt(spread(), 20 * WB_NS_PER_MS);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("waits");
	TCase *tc = tcase_create("waits");

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, who_wakes_up_after_all_deadlines_says_what_is_missing, 0, 2);
	tcase_add_loop_test(tc, a_plan_that_is_never_activated_stops_no_transfer, 0, 4);
	tcase_add_loop_test(tc, activate_that_reached_half_of_the_agents_is_enough, 0, 4);
	tcase_add_loop_test(tc, the_wait_for_repair_ends_under_a_new_plan, 0, 2);
	tcase_add_loop_test(tc, news_that_is_lost_is_not_waited_for, 0, 4);
	tcase_add_loop_test(tc, a_question_is_not_lost_when_one_side_calls_the_other_down, 0, 2);
	tcase_add_loop_test(tc, a_gap_ends_no_younger_transfer, 0, 4);
	tcase_add_test(tc, the_time_to_call_begins_when_the_transfer_before_has_ended);
	tcase_add_test(tc, the_time_to_call_begins_with_the_plan);
	tcase_add_test(tc, the_time_to_call_begins_when_the_coordinators_transfer_has_ended);
	tcase_add_test(tc, those_who_fail_together_try_again_apart);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
