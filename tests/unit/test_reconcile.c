/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's decisions: reports in, actions out, as text so that a test reads like a log. */
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(members_maps_plan_ready_then_active)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);

	up(agent(1, "train", t, 2));
	ck_assert_str_eq(did(false), "");
	up(agent(2, "roll", &e, 1));
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(m12@2)");
	blobs(1, 1);
	blobs(10, 11);
	ck_assert_str_eq(did(false), "");
	blobs(12, 12);
	ck_assert_str_eq(did(false), "plan(1)");
	planned(1, 99);
	ck_assert_str_eq(did(false), "send(1:1.1) send(2:1.1)");
	ready(2, 1, 1);
	ck_assert_str_eq(did(false), "");
	ready(1, 1, 1);
	ck_assert_str_eq(did(false), "event(PlanActivated) activate(1:1.1) activate(2:1.1)");
	ck_assert_str_eq(cond("Ready", NULL, NULL), "True");
}
END_TEST

START_TEST(trainer_rank_0_comes_first_in_the_plan)
{
	struct wb_reconcile_worker t0 = trainer(1, 1, 10), t1 = trainer(1, 0, 11);
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	const struct wb_reconcile_member *m;
	size_t n;

	up(agent(1, "a", &t0, 1));
	up(agent(2, "b", &t1, 1));
	up(agent(3, "c", &e, 1));
	blobs(1, 1);
	blobs(10, 12);
	m = wb_reconcile_members(r, &n);
	ck_assert_uint_eq(n, 3);
	ck_assert_uint_eq(m[0].agent, 2);
	ck_assert_uint_eq(m[1].agent, 1);
	ck_assert_uint_eq(m[2].agent, 3);
	ck_assert_uint_eq(m[0].plan.domain, 0);
	ck_assert_uint_eq(m[2].plan.domain, 2);
	ck_assert_uint_eq(m[2].plan.layout, 2);
}
END_TEST

START_TEST(membership_settles_before_it_is_planned)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(2, 1);

	wb_reconcile_destroy(r);
	ck_assert_int_eq(
		wb_reconcile_create(
			&(struct wb_reconcile_opts){.operator_id = 7, .settle_ns = S}, &s, &r),
		0);
	up(agent(1, "train", t, 2));
	up(agent(2, "roll-a", &e1, 1));
	ck_assert_str_eq(did(false), "");
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + S);
	now.ns += S / 2;
	up(agent(3, "roll-b", &e2, 1));
	ck_assert_uint_eq(wb_reconcile_due_ns(r), now.ns + S);
	later(S);
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(m12@2)");
}
END_TEST

START_TEST(different_manifests_are_fetched_for_the_planner_to_compare)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_planned p = {.job = 1,
		.rc = WB_EPLAN,
		.sentence = "workers describe different checkpoints: kv_buffer_cast: only rollout"};
	const char *reason, *message;

	e.manifest = dig(2);
	up(agent(1, "train", t, 2));
	up(agent(2, "roll", &e, 1));
	ck_assert_str_eq(did(false), "need(M1@1) need(m10@1) need(m11@1) need(M2@2) need(m12@2)");
	blobs(1, 2);
	blobs(10, 12);
	ck_assert_str_eq(did(false), "plan(1)");
	ck_assert_int_eq(wb_reconcile_planned(r, now, &p), 0);
	ck_assert_str_eq(did(false), "event(PlanFailed)");
	ck_assert_str_eq(cond("Planned", &reason, &message), "False");
	ck_assert_str_eq(reason, "TensorMismatch");
	ck_assert_ptr_nonnull(strstr(message, "kv_buffer_cast: only rollout"));
}
END_TEST

START_TEST(torn_engines_are_counted)
{
	const char *reason, *message;

	run_two_engines();
	engine("e2", WB_ENGINE_TORN, 6, false);
	ck_assert_str_eq(cond("Degraded", &reason, &message), "True");
	ck_assert_str_eq(reason, "EngineTorn");
	ck_assert_ptr_nonnull(strstr(message, "engine e2 holds a mix of two versions"));
	engine("e1", WB_ENGINE_TORN, 6, false);
	ck_assert_str_eq(cond("Degraded", &reason, &message), "True");
	ck_assert_ptr_nonnull(strstr(message, "2 of 2 engines, e1 among them, hold a mix"));
}
END_TEST

START_TEST(term_is_above_every_term_heard)
{
	struct wb_reconcile_worker t = trainer(1, 0, 10);
	struct wb_reconcile_agent a = agent(1, "a", &t, 1);

	a.heard_term = 9;
	a.heard_operator = 5;
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 10);
	a = agent(2, "b", NULL, 0);
	a.heard_term = 10;
	a.heard_operator = 77; /* us */
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 10);
	a = agent(3, "c", NULL, 0);
	a.heard_term = 10;
	a.heard_operator = 5;
	up(a);
	ck_assert_uint_eq(wb_reconcile_term(r), 11);
}
END_TEST

static const char *state_of_e1(void)
{
	static char text[32];
	json_t *o = wb_reconcile_status(r), *e = json_array_get(json_object_get(o, "engines"), 0);

	ck_assert_str_eq(json_string_value(json_object_get(e, "name")), "e1");
	snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(e, "state")));
	json_decref(o);
	return text;
}

/* Its pods were made again, as one does. */
START_TEST(state_of_an_engine_goes_with_the_workers_it_was_true_of)
{
	enum wb_engine_state said = _i ? WB_ENGINE_TORN : WB_ENGINE_COMMITTED;
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);

	run_two_engines();
	engine("e1", said, 6, false);
	ck_assert_str_eq(state_of_e1(), wb_word(&wb_engine_state_words, said));
	up(agent(12, "roll-a", &e1, 1));
	ck_assert_str_eq(state_of_e1(), "Idle");
	ck_assert_str_eq(cond("Degraded", NULL, NULL), "False");
}
END_TEST

START_TEST(status_transfer_never_falls_and_reports_count_once)
{
	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 9, false);
	engine("e2", WB_ENGINE_COMMITTED, 8, false);
	transfer(9, true, WB_RESULT_SUCCEEDED);
	transfer(8, true, WB_RESULT_ABORTED);
	transfer(9, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(field("transfer", NULL), 9);
	ck_assert_int_eq(field("lastTransfer", "transfer"), 9);
	{
		json_t *o = wb_reconcile_status(r), *list = json_object_get(o, "recentTransfers");

		ck_assert_uint_eq(json_array_size(list), 2);
		json_decref(o);
	}
	for (uint64_t t = 10; t < 30; t++)
		transfer(t, true, WB_RESULT_ABORTED);
	{
		json_t *o = wb_reconcile_status(r), *list = json_object_get(o, "recentTransfers");

		ck_assert_uint_eq(json_array_size(list), 10);
		json_decref(o);
	}
	ck_assert_str_eq(cond("UpToDate", NULL, NULL), "False");
}
END_TEST

START_TEST(suspended_object_is_not_ready)
{
	struct wb_spec s = spec_of(2, 1);
	const char *reason;

	run_two_engines();
	s.engines = 2;
	s.suspend = true;
	ck_assert_int_eq(wb_reconcile_spec(r, now, &s), 0);
	ck_assert_str_eq(cond("Ready", &reason, NULL), "False");
	ck_assert_str_eq(reason, "Suspended");
}
END_TEST

START_TEST(transition_time_changes_with_the_status_only)
{
	json_t *a, *b, *c;

	run_two_engines();
	a = wb_reconcile_status(r);
	now.wall_ns += 100 * S;
	now.ns += S;
	transfer(6, false, 0); /* Ready stays True, the reason changes */
	b = wb_reconcile_status(r);
	c = json_array_get(json_object_get(a, "conditions"), 0);
	ck_assert(json_equal(json_object_get(c, "lastTransitionTime"),
		json_object_get(json_array_get(json_object_get(b, "conditions"), 0),
			"lastTransitionTime")));
	ck_assert(!json_equal(c, json_array_get(json_object_get(b, "conditions"), 0)));
	json_decref(a);
	json_decref(b);
}
END_TEST

static struct wb_reconcile_worker random_worker(struct wb_rng *rng, uint32_t id, const char *eng)
{
	return wb_rng_below(rng, 2) ? rollout(id, eng, 12)
				    : trainer(id, (int64_t)wb_rng_below(rng, 3) - 1, 10);
}

/* Random reports: nothing crashes, epochs rise, and status.transfer never falls. */
START_TEST(random_reports_keep_the_invariants)
{
	uint64_t seed = 1000 + (uint64_t)_i;
	struct wb_rng rng = {seed};
	struct wb_reconcile_epoch last = {0};
	uint64_t top = 0;
	uint32_t next_id = 1;

	printf("seed %llu\n", (unsigned long long)seed);
	for (unsigned step = 0; step < 400; step++) {
		char name[16], eng[16];
		uint32_t id = next_id > 1 ? 1 + (uint32_t)wb_rng_below(&rng, next_id) : 1;
		struct wb_reconcile_worker w[2];
		struct wb_reconcile_agent a;
		struct wb_reconcile_action act;
		struct wb_reconcile_epoch e;

		now.ns += wb_rng_below(&rng, 4 * S);
		snprintf(name, sizeof(name), "p%u", (unsigned)wb_rng_below(&rng, 5));
		snprintf(eng, sizeof(eng), "e%u", (unsigned)wb_rng_below(&rng, 3));
		w[0] = random_worker(&rng, 1 + (uint32_t)wb_rng_below(&rng, 2), eng);
		w[1] = random_worker(&rng, 3 - w[0].id, eng);
		switch (wb_rng_below(&rng, 8)) {
		case 0:
		case 1:
			a = agent(next_id, name, w, 1 + wb_rng_below(&rng, 2));
			a.instance = 100 + wb_rng_below(&rng, 10);
			a.heard_term = wb_rng_below(&rng, 4);
			next_id++;
			up(a);
			break;
		case 2:
			wb_reconcile_agent_down(r, now, id, wb_rng_below(&rng, 2));
			break;
		case 3:
		case 4:
			workers(id, w, wb_rng_below(&rng, 3));
			break;
		case 5:
			engine(eng, WB_ENGINE_COMMITTED + wb_rng_below(&rng, 5),
				wb_rng_below(&rng, 20), wb_rng_below(&rng, 2));
			break;
		case 6:
			transfer(1 + wb_rng_below(&rng, 20), wb_rng_below(&rng, 2),
				(enum wb_result)wb_rng_below(&rng, 5));
			break;
		default:
			wb_reconcile_tick(r, now);
		}
		while (wb_reconcile_take(r, &act)) {
			wb_free(act.sentence);
			if (act.what == WB_DO_NEED_BLOB)
				wb_reconcile_blob(r, now, act.digest, 0, NULL);
			else if (act.what == WB_DO_PLAN)
				planned(act.job, 50 + act.job);
			else if (act.what == WB_DO_SEND_PLAN)
				ready(act.agent, act.epoch.term, act.epoch.number);
		}
		e = wb_reconcile_active(r, NULL);
		ck_assert(e.term > last.term || (e.term == last.term && e.number >= last.number));
		last = e;
		ck_assert_uint_ge(wb_reconcile_term(r), e.term);
		{
			json_t *o = wb_reconcile_status(r), *t = json_object_get(o, "transfer");

			ck_assert_uint_ge(t ? (uint64_t)json_integer_value(t) : 0, top);
			top = t ? (uint64_t)json_integer_value(t) : 0;
			json_decref(o);
		}
	}
}
END_TEST

START_TEST(reports_survive_each_failed_allocation)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e = rollout(1, "e1", 12);
	struct wb_reconcile_agent a = agent(1, "train", t, 2), b = agent(2, "roll", &e, 1);
	struct wb_spec s = spec_of(2, 1);
	bool is_done = false;

	for (uint64_t at = 1; !is_done; at++) {
		make(&s, 77);
		wb_mem_fail_at(at);
		wb_reconcile_agent_up(r, now, &a);
		wb_reconcile_agent_up(r, now, &b);
		is_done = !wb_mem_failed();
		wb_mem_fail_at(0);
		/* What was not possible then is done at the next report. */
		up(a);
		up(b);
		did(false);
		blobs(1, 1);
		blobs(10, 12);
		planned(1, 99);
		ready(1, 1, 1);
		ready(2, 1, 1);
		ck_assert_uint_eq(wb_reconcile_active(r, NULL).number, 1);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reconcile");
	TCase *tc = tcase_create("decisions");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, members_maps_plan_ready_then_active);
	tcase_add_test(tc, trainer_rank_0_comes_first_in_the_plan);
	tcase_add_test(tc, membership_settles_before_it_is_planned);
	tcase_add_test(tc, different_manifests_are_fetched_for_the_planner_to_compare);
	tcase_add_test(tc, torn_engines_are_counted);
	tcase_add_test(tc, term_is_above_every_term_heard);
	tcase_add_loop_test(tc, state_of_an_engine_goes_with_the_workers_it_was_true_of, 0, 2);
	tcase_add_test(tc, status_transfer_never_falls_and_reports_count_once);
	tcase_add_test(tc, suspended_object_is_not_ready);
	tcase_add_test(tc, transition_time_changes_with_the_status_only);
	tcase_add_loop_test(tc, random_reports_keep_the_invariants, 0, 20);
	tcase_add_test(tc, reports_survive_each_failed_allocation);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
