/* SPDX-License-Identifier: Apache-2.0 */
/* Plans, feeds and decisions that meet at a bad moment. */
#include "tests/common/fx_check.h"
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/log.h"
#include "transfer/epoch.h"
#include "transfer/internal.h"
#include "transfer/object.h"
#include "transfer/worker.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct world_opts shape = {.seed = 3,
	.trainer_agents = 1,
	.trainers_per_agent = 1,
	.engines = 2,
	.agents_per_engine = 1,
	.workers_per_agent = 1,
	.scale = 256};

static struct world w;

/* The first @engines of one worker each. */
static void commits_to(int64_t version, uint32_t engines)
{
	world_send(&w, version);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s: %s", w.last_result, w.last_culprit);
	for (uint32_t i = w.n_trainer; i < w.n_trainer + engines; i++)
		ck_assert_msg(world_holds(&w, &w.worker[i], version), "worker %u: %s; %s", i,
			w.worker[i].why, w.last_culprit);
}

static void commits(int64_t version)
{
	commits_to(version, w.n_worker - w.n_trainer);
}

static void begin(const struct world_opts *o)
{
	world_init(&w, o);
	world_plan(&w);
}

static struct world_opts mode(int i)
{
	struct world_opts o = shape;

	o.trainer_staged = i & 1;
	o.rollout_staged = i & 2;
	return o;
}

static void install(const struct world_epoch *e, uint32_t agent)
{
	struct wb_err err = {0};
	int rc = world_epoch_install(&w, e, agent, &err);

	ck_assert_msg(rc == 0, "%s: %d: %s", w.agent[agent].name, rc, err.msg);
	world_after(&w.agent[agent]);
}

static void activate(const struct world_epoch *e, uint32_t agent)
{
	ck_assert_int_eq(wb_transfer_activate(w.agent[agent].core, &e->id), 0);
	world_after(&w.agent[agent]);
}

static void install_all(const struct world_epoch *e)
{
	for (uint32_t a = 0; a < e->n_agent; a++)
		install(e, e->agent[a]);
	for (uint32_t a = 0; a < e->n_agent; a++)
		activate(e, e->agent[a]);
}

/* The planner's choice may be another one when an engine joins. */
START_TEST(a_plan_with_other_chunks_is_taken_by_who_holds_a_version)
{
	struct world_opts o = mode(_i / 2);

	begin(&o);
	commits(1);
	w.o.chunk_bytes = _i % 2 ? 1024 : 4096;
	install_all(world_epoch_make(&w));
	commits(2);
	w.o.chunk_bytes = 2048;
	install_all(world_epoch_make(&w));
	commits(3);
	world_finish(&w);
}
END_TEST

/* Some agents have cut their slots for the next plan, which the others do not have yet. */
START_TEST(a_transfer_of_the_plan_before_does_not_fill_slots_of_the_next)
{
	struct world_opts o = mode(_i / 2);
	struct world_epoch *e;

	begin(&o);
	if (_i % 2)
		commits(1);
	w.o.chunk_bytes = 1024;
	e = world_epoch_make(&w);
	install(e, 1);
	world_send(&w, 2);
	ck_assert(world_run(&w, WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_uint_eq(w.n_mismatch, 0);
	ck_assert(world_holds(&w, &w.worker[2], 2));
	/* Unstaged, the other engine has begun to be written. */
	ck_assert_str_eq(w.last_result, o.rollout_staged ? "Succeeded" : "PartlyTorn");
	ck_assert_msg(strstr(w.last_culprit, "for a newer plan") != NULL, "%s", w.last_culprit);
	ck_assert(o.rollout_staged || !strncmp(w.last_culprit, "1 of 2 Torn: engine ", 20));
	install(e, 0);
	install(e, 2);
	for (uint32_t a = 0; a < 3; a++)
		activate(e, a);
	commits(3);
	world_finish(&w);
}
END_TEST

START_TEST(a_trainer_that_has_asked_does_not_fill_slots_of_the_next_plan)
{
	struct world_opts o = mode(_i);
	struct world_epoch *e;

	o.trainer_agents = 2;
	begin(&o);
	commits(1);
	world_fill(&w.worker[1], w.worker[1].version = 2);
	world_send_one(&w.worker[1], 2);
	world_run_for(&w, WB_NS_PER_MS);
	w.o.chunk_bytes = 1024;
	e = world_epoch_make(&w);
	install(e, 1);
	world_fill(&w.worker[0], w.worker[0].version = 2);
	world_send_one(&w.worker[0], 2);
	ck_assert(world_run(&w, WB_NS_PER_S));
	ck_assert_uint_eq(w.n_mismatch, 0);
	ck_assert_msg(
		strstr(w.last_culprit, "trainer-1 cannot send") != NULL, "%s", w.last_culprit);
	for (uint32_t a = 0; a < 4; a++)
		if (a != 1)
			install(e, a);
	for (uint32_t a = 0; a < 4; a++)
		activate(e, a);
	commits(3);
	world_finish(&w);
}
END_TEST

/* Room for snapshots is shared out anew by the next plan, which may wait yet, or be refused. */
START_TEST(a_snapshot_is_not_larger_than_what_the_next_plan_leaves_for_it)
{
	struct world_opts o = mode(1 + 2 * _i);
	const struct world_worker *k;
	uint64_t bytes;

	o.trainer_agents = 2;
	begin(&o);
	commits(1);
	k = &w.worker[1];
	world_fill(&w.worker[1], w.worker[1].version = 2);
	world_send_one(&w.worker[1], 2);
	world_run_for(&w, WB_NS_PER_MS);
	bytes = w.agent[k->agent].core->worker[0]->image_bytes;
	wb_transfer_set_image(w.agent[k->agent].core, k->id, k->image, 64);
	world_fill(&w.worker[0], w.worker[0].version = 2);
	world_send_one(&w.worker[0], 2);
	ck_assert(world_run(&w, WB_NS_PER_S));
	ck_assert_msg(strstr(w.last_culprit, "trainer-1 cannot send: its agent has shared out the "
					     "room for snapshots") != NULL,
		"%s", w.last_culprit);
	wb_transfer_set_image(w.agent[k->agent].core, k->id, k->image, bytes);
	commits(3);
	world_finish(&w);
}
END_TEST

START_TEST(a_plan_that_is_refused_leaves_the_slots_as_they_were)
{
	struct world_opts o = mode(_i);
	struct world_epoch *e;
	struct wb_err err = {0};

	begin(&o);
	w.o.chunk_bytes = 65536; /* more than the arena can be cut into */
	e = world_epoch_make(&w);
	for (uint32_t a = 0; a < 3; a++)
		ck_assert_int_eq(world_epoch_install(&w, e, a, &err), -EINVAL);
	commits(1);
	world_finish(&w);
}
END_TEST

/* ---- ballots ------------------------------------------------------------------------------- */

static bool is_over(const struct ballot *b)
{
	return b->state == BALLOT_NONE;
}

/* Two engines of a pod are in doubt, the second a moment later, and one of five judges has taken
 * the coordinator's COMMIT: who asks does so by a number of its own, or what is said to one counts
 * for the other, and each has its own decision. */
/* @worker runs beside the trainer from now on, when it starts. */
static void move_to_trainer(uint32_t worker)
{
	world_kill_worker(&w, worker);
	w.worker[worker].agent = w.worker[0].agent;
}

static struct object *object_at(uint32_t agent)
{
	return wb__transfer_object(w.agent[agent].core, &world_object);
}

static const uint32_t *pools(void)
{
	return object_at(0)->slots.n_pool;
}

/* Whose slots were all for sending.  Without its engine it keeps those for receiving. */
START_TEST(an_engine_that_joins_the_trainers_agent_has_slots_to_receive_in)
{
	struct world_opts o = mode(_i);

	world_init(&w, &o);
	move_to_trainer(2);
	world_plan(&w);
	commits_to(1, 1);
	for (int p = 0; p < WB_POOLS; p++)
		ck_assert_uint_eq(pools()[p], p == WB_POOL_SEND ? 64 : 0);
	world_start_worker(&w, 2);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_plan(&w);
	ck_assert_uint_eq(pools()[WB_POOL_RECEIVE], 24);
	ck_assert_uint_eq(pools()[WB_POOL_EXCHANGE], 16);
	ck_assert_uint_eq(pools()[WB_POOL_DOMAIN], 8);
	ck_assert_uint_eq(pools()[WB_POOL_SEND], 16);
	commits(2);
	world_kill_worker(&w, 2);
	world_plan(&w);
	ck_assert_uint_eq(pools()[WB_POOL_RECEIVE], 24);
	commits_to(3, 1);
	world_finish(&w);
}
END_TEST

/* A transfer that has begun keeps its slots: that plan is for later. */
START_TEST(slots_are_not_taken_from_a_transfer_for_an_engine_that_joins)
{
	struct world_opts o = mode(_i);
	struct world_epoch *e;
	struct wb_err err = {0};

	world_init(&w, &o);
	move_to_trainer(2);
	world_plan(&w);
	world_start_worker(&w, 2);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_send(&w, 1);
	world_run_for(&w, WB_NS_PER_MS);
	e = world_epoch_make(&w);
	ck_assert_int_eq(world_epoch_install(&w, e, 0, &err), -EBUSY);
	ck_assert_msg(strstr(err.msg, "needs other slots") != NULL, "%s", err.msg);
	world_after(&w.agent[0]);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_str_eq(w.last_result, "Succeeded");
	install_all(e);
	commits(2);
	world_finish(&w);
}
END_TEST

static void set_slots(uint32_t agent, uint32_t n)
{
	ck_assert_int_eq(wb_transfer_set_arena(w.agent[agent].core, &world_object,
				 w.agent[agent].arena, (size_t)n * w.o.chunk_bytes),
		0);
}

START_TEST(slots_are_cut_anew_of_a_buffer_of_another_size)
{
	static const uint32_t sizes[] = {32, 64, 16};
	struct world_opts o = mode(_i);

	begin(&o);
	commits(1);
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(sizes); i++) {
		for (uint32_t at = 0; at < 3; at++)
			set_slots(at, sizes[i]);
		ck_assert_uint_ne(object_at(0)->slots.n, sizes[i]); /* with the next plan */
		world_plan(&w);
		for (uint32_t at = 0; at < 3; at++)
			ck_assert_uint_eq(object_at(at)->slots.n, sizes[i]);
		commits(2 + i);
	}
	world_finish(&w);
}
END_TEST

/* It may be the very plan that the transfer waits for: after a while it goes on in what there is,
 * and the next one has the new slots. */
START_TEST(a_plan_does_not_wait_for_ever_to_have_more_slots_or_fewer)
{
	struct world_opts o = mode(_i);
	struct world_epoch *e;
	struct wb_err err = {0};
	uint64_t until;

	o.bytes_per_s = 20000;
	o.transfer_deadline_ns = 600 * WB_NS_PER_S;
	begin(&o);
	set_slots(1, 32);
	world_send(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	e = world_epoch_make(&w);
	until = world_now(&w) + 4 * WB_NS_PER_S;
	while (world_now(&w) < until) {
		ck_assert_int_eq(world_epoch_install(&w, e, 1, &err), -EBUSY);
		world_after(&w.agent[1]);
		world_run_for(&w, 100 * WB_NS_PER_MS);
	}
	world_run_for(&w, 2 * WB_NS_PER_S);
	install(e, 1);
	ck_assert_uint_eq(object_at(1)->slots.n, 64);
	ck_assert_uint_eq(
		wb_transfer_arena_used(w.agent[1].core, &world_object), 64 * w.o.chunk_bytes);
	ck_assert(world_run(&w, 600 * WB_NS_PER_S));
	world_run_for(&w, WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, "Succeeded");
	install(e, 0);
	install(e, 2);
	for (uint32_t at = 0; at < 3; at++)
		activate(e, at);
	world_plan(&w);
	ck_assert_uint_eq(object_at(1)->slots.n, 32);
	world_finish(&w);
}
END_TEST

START_TEST(engines_of_a_pod_in_doubt_learn_the_same)
{
	struct world_opts o = shape;
	struct object *judge, *own;
	struct ballot *first, *second;
	uint64_t names[WB_AREA_JUDGES_MAX], pause = (uint64_t)_i % 20 * 5000;
	uint32_t n;

	o.seed = 1000 + (uint64_t)_i;
	o.trainer_agents = 5;
	o.scale = 80;
	o.one_pod = o.rollout_staged = o.all_engines = true;
	begin(&o);
	judge = w.agent[1].core->objects;
	judge->verdict[judge->n_verdict++] = (struct verdict){7, 1, 1, DECIDE_COMMIT};
	own = w.agent[5].core->objects;
	first = &own->cur->lead[0].ballot;
	second = &own->cur->lead[1].ballot;
	n = wb__transfer_judges(own->cur, names);
	ck_assert_uint_eq(n, 5);
	wb__transfer_ballot_ask(first, own, 7, names, n);
	world_after(&w.agent[5]);
	world_run_for(&w, pause);
	wb__transfer_ballot_ask(second, own, 7, names, n);
	world_after(&w.agent[5]);
	while (!is_over(first) || !is_over(second))
		ck_assert(wb_sim_step(w.net));
	ck_assert_msg(first->value == second->value, "%s for one engine, %s for the other",
		first->value == DECIDE_COMMIT ? "COMMIT" : "ABORT",
		second->value == DECIDE_COMMIT ? "COMMIT" : "ABORT");
	world_finish(&w);
}
END_TEST

/* ---- feeds --------------------------------------------------------------------------------- */

static int feed(const struct world_epoch *e, uint32_t agent, uint32_t engine, uint32_t source)
{
	struct wb_err err = {0};
	int rc = wb_transfer_feed(w.agent[agent].core, &e->id, engine, source, &err);

	world_after(&w.agent[agent]);
	return rc;
}

/* Engines have other numbers under the next plan. */
START_TEST(a_feed_is_not_taken_for_one_of_the_plan_before)
{
	struct world_opts o = shape;
	struct world_epoch *e;

	o.engines = 3;
	begin(&o);
	commits(1);
	for (uint32_t a = 2; a <= 3; a++) {
		world_kill_agent(&w, a);
		world_restart(&w, a);
	}
	world_run_for(&w, WB_NS_PER_S);
	install_all(e = world_epoch_make(&w));
	wb_sim_node_stall(w.net, w.agent[2].name, 60 * WB_NS_PER_S);
	ck_assert_int_eq(feed(e, 1, 1, 0), 0);
	w.agent[2].is_silent = true;
	install_all(e = world_epoch_make(&w));
	ck_assert_uint_eq(e->engine[1], 2);
	ck_assert_int_eq(feed(e, 1, 1, 0), 0);
	world_run_for(&w, 2 * WB_NS_PER_S);
	ck_assert(world_holds(&w, &w.worker[3], 1));
	ck_assert_int_eq(w.worker[3].version, 1);
	world_finish(&w);
}
END_TEST

/* It was ordered while the engine was behind, and comes when that has caught up. */
START_TEST(a_feed_that_comes_late_changes_nothing)
{
	struct world_opts o = shape;
	struct world_epoch *e;

	begin(&o);
	commits(1);
	w.worker[2].hook_ns = 5 * WB_NS_PER_S;
	world_send(&w, 2);
	while (w.worker[2].phase != WORLD_AFTER || w.worker[1].version != 2)
		ck_assert(wb_sim_step(w.net));
	install_all(e = world_epoch_make(&w));
	ck_assert_int_eq(w.worker[2].phase, WORLD_AFTER);
	ck_assert_int_eq(feed(e, 1, 1, 0), 0);
	world_run_for(&w, 10 * WB_NS_PER_S);
	ck_assert_uint_eq(w.worker[2].n_updates, 2);
	commits(3);
	world_finish(&w);
}
END_TEST

/* An agent that has not heard ACTIVATE is read from by one that has. */
START_TEST(a_grant_says_that_its_plan_is_active)
{
	struct world_opts o = shape;
	struct world_epoch *e;

	o.agents_per_engine = 2;
	begin(&o);
	commits(1);
	for (uint32_t a = 3; a <= 4; a++) {
		world_kill_agent(&w, a);
		world_restart(&w, a);
	}
	world_run_for(&w, WB_NS_PER_S);
	e = world_epoch_make(&w);
	for (uint32_t a = 0; a < 5; a++)
		install(e, a);
	for (uint32_t a = 0; a < 5; a++)
		if (a != 2)
			activate(e, a);
	ck_assert_int_eq(feed(e, 1, 1, 0), 0);
	world_run_for(&w, 2 * WB_NS_PER_S);
	ck_assert(world_holds(&w, &w.worker[4], 1));
	ck_assert(wb_epoch_id_eq(&wb_transfer_running(w.agent[2].core, &world_object)->id, &e->id));
	install_all(world_epoch_make(&w));
	commits(2);
	world_finish(&w);
}
END_TEST

/* ---- engines of one pod --------------------------------------------------------------------- */

/* What an engine that is gone would have given to another of its pod, which begins later and has
 * not heard of it from the coordinator, comes from elsewhere. */
START_TEST(nothing_is_read_from_an_engine_of_the_pod_that_is_gone)
{
	struct world_opts o = mode(_i);
	struct wb_sim_fault late = {
		.kind = WB_SIM_PARTITION, .items = WB_SIM_MSG, .from = "trainer-0", .to = "e0-0"};

	o.one_pod = true;
	o.step_deadline_ns = 60 * WB_NS_PER_S;
	o.transfer_deadline_ns = 60 * WB_NS_PER_S;
	begin(&o);
	commits(1);
	w.worker[2].stall_until_ns = world_now(&w) + WB_NS_PER_S;
	world_send(&w, 2);
	world_run_for(&w, 500 * WB_NS_PER_MS);
	late.until_ns = world_now(&w) + 3 * WB_NS_PER_S;
	ck_assert_int_eq(wb_sim_fault_add(w.net, &late), 0);
	world_kill_worker(&w, 1);
	world_run_for(&w, 5 * WB_NS_PER_S);
	ck_assert_msg(world_holds(&w, &w.worker[2], 2), "%s", w.last_culprit);
	world_finish(&w);
}
END_TEST

/* ---- what is said -------------------------------------------------------------------------- */

START_TEST(what_is_torn_is_said_to_be_under_the_next_plan)
{
	struct world_opts o = shape;
	struct wb_buf page;

	begin(&o);
	commits(1);
	world_send(&w, 2);
	while (w.worker[1].phase != WORLD_BEGUN)
		ck_assert(wb_sim_step(w.net));
	world_kill_worker(&w, 0);
	world_run_for(&w, 2 * WB_NS_PER_S);
	ck_assert_int_eq(w.worker[1].phase, WORLD_TORN);
	ck_assert_str_eq(wb_transfer_torn(w.agent[1].core), "e0");
	world_start_worker(&w, 0);
	world_run_for(&w, WB_NS_PER_S);
	install_all(world_epoch_make(&w));
	ck_assert_ptr_nonnull(wb_transfer_torn(w.agent[1].core));
	wb_buf_init(&page, 65536);
	wb_transfer_status_json(w.agent[1].core, &page);
	wb_buf_u8(&page, 0);
	ck_assert_ptr_nonnull(strstr((const char *)page.data, "\"phase\":\"Torn\""));
	wb_buf_finish(&page);
	commits(3);
	ck_assert_ptr_null(wb_transfer_torn(w.agent[1].core));
	world_finish(&w);
}
END_TEST

/* ---- memory that goes away ----------------------------------------------------------------- */

/* The lead is elsewhere, and old readers of the area are still there when it goes. */
START_TEST(nothing_is_received_into_an_area_that_was_released)
{
	struct world_opts o = shape;
	struct wb_transfer_core *c;
	struct epoch *e;
	struct party *p;
	struct wb_err err = {0};

	o.agents_per_engine = 2;
	o.rollout_staged = true;
	begin(&o);
	commits(1);
	c = w.agent[2].core;
	e = c->objects->cur;
	p = &e->party[0];
	*p = (struct party){.state = PARTY_CLEARING,
		.e = e,
		.lead = 1,
		.transfer = 99,
		.is_staged = true,
		.drain_ns = world_now(&w) + WB_NS_PER_S};
	ck_assert_int_eq(wb_transfer_sleep(c, w.worker[2].id, &err), 0);
	ck_assert(wb_transfer_is_quiet(c, w.worker[2].id));
	(void)wb_transfer_tick(c);
	ck_assert_ptr_null(p->flow);
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("corners");
	TCase *tc = tcase_create("corners");

	wb_log_level_max = WB_LOG_ERROR;
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, a_plan_with_other_chunks_is_taken_by_who_holds_a_version, 0, 8);
	tcase_add_loop_test(
		tc, a_transfer_of_the_plan_before_does_not_fill_slots_of_the_next, 0, 8);
	tcase_add_loop_test(
		tc, a_trainer_that_has_asked_does_not_fill_slots_of_the_next_plan, 0, 4);
	tcase_add_loop_test(
		tc, a_snapshot_is_not_larger_than_what_the_next_plan_leaves_for_it, 0, 2);
	tcase_add_loop_test(tc, a_plan_that_is_refused_leaves_the_slots_as_they_were, 0, 4);
	tcase_add_loop_test(
		tc, an_engine_that_joins_the_trainers_agent_has_slots_to_receive_in, 0, 4);
	tcase_add_loop_test(tc, slots_are_not_taken_from_a_transfer_for_an_engine_that_joins, 0, 4);
	tcase_add_loop_test(tc, slots_are_cut_anew_of_a_buffer_of_another_size, 0, 4);
	tcase_add_loop_test(tc, a_plan_does_not_wait_for_ever_to_have_more_slots_or_fewer, 0, 4);
	fx_add_points(tc, engines_of_a_pod_in_doubt_learn_the_same, 0, 400);
	tcase_add_test(tc, a_feed_is_not_taken_for_one_of_the_plan_before);
	tcase_add_test(tc, a_feed_that_comes_late_changes_nothing);
	tcase_add_test(tc, a_grant_says_that_its_plan_is_active);
	tcase_add_loop_test(tc, nothing_is_read_from_an_engine_of_the_pod_that_is_gone, 0, 2);
	tcase_add_test(tc, what_is_torn_is_said_to_be_under_the_next_plan);
	tcase_add_test(tc, nothing_is_received_into_an_area_that_was_released);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
