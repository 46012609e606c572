/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator must not believe: plans that not everybody has, versions that an engine has
 * only in part, reports that come late, numbers that were used.
 */
#include "tests/common/fx_check.h"
#include "tests/common/fx_reconcile.h"

/* ---- adoption ------------------------------------------------------------------------------ */

/* One agent back at a new operator, with its workers from @index on in the plans it has. */
static void back(uint32_t id, struct wb_reconcile_worker *k, size_t n, uint32_t index,
	struct wb_reconcile_known running, struct wb_reconcile_known waiting)
{
	static const char *const names[] = {"train", "roll-a", "roll-b"};
	struct wb_reconcile_agent a = agent(id, names[id - 21], k, n);

	a.heard_term = 3;
	a.heard_operator = 77;
	a.running = running;
	a.waiting = waiting;
	for (size_t i = 0; i < n; i++) {
		k[i].plan_index = running.epoch.term ? index + (uint32_t)i : WB_RECONCILE_NONE;
		k[i].waiting_index = waiting.epoch.term ? index + (uint32_t)i : WB_RECONCILE_NONE;
	}
	up(a);
}

/* The others run epoch 3.5, plan 99, of four workers. */
static const struct {
	struct wb_reconcile_known runs, waits; /* the agent that comes last */
	uint32_t index; /* its worker's */
	bool is_adopted;
} adoptions[] = {
	{{{3, 5}, {0, 99}, 4}, {{0, 0}, {0, 0}, 0}, 3, true},
	{{{3, 4}, {0, 98}, 4}, {{3, 5}, {0, 99}, 4}, 3, true},
	{{{3, 4}, {0, 99}, 4}, {{0, 0}, {0, 0}, 0}, 3, false}, /* another epoch */
	{{{3, 4}, {0, 98}, 4}, {{3, 6}, {0, 99}, 4}, 3, false}, /* two others */
	{{{3, 5}, {0, 98}, 4}, {{0, 0}, {0, 0}, 0}, 3, false}, /* another of that number */
	{{{3, 5}, {0, 99}, 5}, {{0, 0}, {0, 0}, 0}, 3, false}, /* one of more workers */
	{{{3, 5}, {0, 99}, 4}, {{0, 0}, {0, 0}, 0}, 2, false}, /* in the place of another */
	{{{3, 5}, {0, 99}, 4}, {{0, 0}, {0, 0}, 0}, 4, false}, /* in none */
};

START_TEST(a_plan_is_adopted_when_all_agents_have_it)
{
	struct wb_reconcile_worker t[] = {trainer(1, 0, 10), trainer(2, 1, 11)};
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12), e2 = rollout(1, "e2", 12);
	struct wb_reconcile_known runs = {{3, 5}, {0, 99}, 4}, none = {{0, 0}, {0, 0}, 0};
	struct wb_spec s = spec_of(2, 1);

	make(&s, 78);
	back(21, t, 2, 0, runs, none);
	back(22, &e1, 1, 2, runs, none);
	back(23, &e2, 1, adoptions[_i].index, adoptions[_i].runs, adoptions[_i].waits);
	ck_assert_int_eq(strstr(did(false), "PlanAdopted") != NULL, adoptions[_i].is_adopted);
	ck_assert_uint_eq(wb_reconcile_active(r, NULL).number, adoptions[_i].is_adopted ? 5 : 0);
}
END_TEST

/* ---- what engines hold ---------------------------------------------------------------------- */

struct holding {
	uint64_t transfer[2]; /* of an engine's two workers */
	bool is_torn;
};

/* One trainer worker on agent 1, engines e1, e2, ... of two workers on agents 2, 3, ...; active. */
static void run_pairs_of(const struct holding *h, uint32_t n, const uint32_t *families)
{
	static const char *const names[] = {"e1", "e2", "e3"};
	static const char *const pods[] = {"roll-a", "roll-b", "roll-c"};
	struct wb_reconcile_worker t = trainer(1, 0, 10);
	struct wb_spec s = spec_of(1, 2);

	s.engines = n;
	make(&s, 77);
	up(agent(1, "train", &t, 1));
	for (uint32_t i = 0; i < n; i++) {
		struct wb_reconcile_worker k[2];
		struct wb_reconcile_agent a;

		for (uint32_t j = 0; j < 2; j++) {
			k[j] = rollout(j + 1, names[i], 12);
			k[j].held = (struct wb_reconcile_held){h[i].transfer[j],
				(int64_t)h[i].transfer[j] * 10, h[i].is_torn && j};
		}
		a = agent(2 + i, pods[i], k, 2);
		a.families = families ? families[i] : 0;
		up(a);
	}
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	for (uint32_t i = 1; i <= n + 1; i++)
		ready(i, 1, 1);
	ck_assert_uint_eq(wb_reconcile_active(r, NULL).term, 1);
}

static void run_pairs(const struct holding *h, uint32_t n)
{
	run_pairs_of(h, n, NULL);
}

/* -1: none */
static int64_t version_of(size_t engine)
{
	json_t *o = wb_reconcile_status(r), *list = json_object_get(o, "engines");
	const json_t *v = json_object_get(json_array_get(list, engine), "version");
	int64_t got = v ? json_integer_value(v) : -1;

	json_decref(o);
	return got;
}

/* Who is fed by whom, when two engines hold this; and what the status says of e1. */
static const struct {
	struct holding e1, e2;
	const char *feed; /* ENGINE:SOURCE/TRANSFER, "" = none */
	int64_t version, n_updated;
} holdings[] = {
	{{{6, 6}, false}, {{6, 6}, false}, "", 60, 2},
	{{{5, 5}, false}, {{6, 6}, false}, "e1:e2/6", 50, 1},
	{{{0, 0}, false}, {{6, 6}, false}, "e1:e2/6", -1, 1},
	{{{6, 7}, false}, {{6, 6}, false}, "e1:e2/6", -1, 1}, /* mixed */
	{{{6, 6}, true}, {{6, 6}, false}, "e1:e2/6", -1, 1}, /* torn */
	{{{6, 7}, false}, {{5, 5}, false}, "", -1, 0}, /* nobody holds it whole */
	{{{6, 6}, true}, {{5, 5}, false}, "e1:e2/5", -1, 1},
};

START_TEST(a_version_is_what_all_workers_of_an_engine_hold)
{
	struct holding h[] = {holdings[_i].e1, holdings[_i].e2};
	const struct wb_reconcile_feed *f;
	char text[300] = "";
	size_t n;

	run_pairs(h, 2);
	f = wb_reconcile_feeds(r, &n);
	if (n)
		snprintf(text, sizeof(text), "%s:%s/%u", f[0].engine, f[0].source,
			(unsigned)f[0].transfer);
	ck_assert_str_eq(text, holdings[_i].feed);
	ck_assert_int_eq(version_of(0), holdings[_i].version);
	ck_assert_int_eq(field("updatedEngines", NULL), holdings[_i].n_updated);
}
END_TEST

enum { V4 = WB_RECONCILE_IPV4, V6 = WB_RECONCILE_IPV6 };

/* e1 is behind; e2 and e3 hold the version.  By whom is it fed, first and after that? */
static const struct {
	uint32_t families[3];
	const char *first, *second; /* NULL: by nobody */
} reaches[] = {
	{{0, 0, 0}, "e2", "e3"}, /* older agents do not say */
	{{V4 | V6, V4, V6}, "e2", "e3"},
	{{V4, V4 | V6, V4}, "e2", "e3"},
	{{V4, V6, V4}, "e3", "e3"},
	{{V6, V6, V4}, "e2", "e2"},
	{{V6, V4, V4 | V6}, "e3", "e3"},
	{{V6, V4, 0}, "e3", "e3"},
	{{V4, V6, V6}, NULL, NULL},
	{{V6, V4, V4}, NULL, NULL},
};

START_TEST(an_engine_is_fed_by_one_that_it_reaches)
{
	struct holding h[] = {{{5, 5}, false}, {{6, 6}, false}, {{6, 6}, false}};
	const char *want[] = {reaches[_i].first, reaches[_i].second};
	const char *said;
	size_t n;

	run_pairs_of(h, 3, reaches[_i].families);
	for (uint32_t k = 0; k < 2; k++) {
		const struct wb_reconcile_feed *f = wb_reconcile_feeds(r, &n);

		said = did(false);
		ck_assert_uint_eq(n, want[k] ? 1 : 0);
		if (want[k])
			ck_assert_str_eq(f[0].source, want[k]);
		/* Why not is said once. */
		ck_assert_int_eq(strstr(said, "EngineNotFed") != NULL, !want[k] && !k);
		engine("e1", WB_ENGINE_ABORTED, 6, true);
		later(100 * S);
	}
}
END_TEST

/* e1 asked e2 for the version before, in vain. */
START_TEST(each_version_is_asked_for_at_all_sources_in_turn)
{
	struct holding h[] = {{{5, 5}, false}, {{6, 6}, false}, {{6, 6}, false}};
	const char *const want[] = {"e2", "e3", "e2"};
	size_t n;

	run_pairs(h, 3);
	engine("e1", WB_ENGINE_ABORTED, 6, true);
	engine("e2", WB_ENGINE_COMMITTED, 7, false);
	engine("e3", WB_ENGINE_COMMITTED, 7, false);
	for (uint32_t k = 0; k < WB_ARRAY_SIZE(want); k++) {
		const struct wb_reconcile_feed *f;

		later(100 * S);
		f = wb_reconcile_feeds(r, &n);
		ck_assert_uint_eq(n, 1);
		ck_assert_uint_eq(f[0].transfer, 7);
		ck_assert_uint_eq(f[0].attempt, k + 1);
		ck_assert_msg(!strcmp(f[0].source, want[k]), "try %u asks %s", k + 1, f[0].source);
		engine("e1", WB_ENGINE_ABORTED, 7, true);
	}
}
END_TEST

/* The one that had it is gone. */
START_TEST(an_older_version_is_not_fed)
{
	struct holding h[] = {{{6, 6}, false}, {{5, 5}, false}, {{4, 4}, false}};
	size_t n;

	run_pairs(h, 3);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 2, true), 0);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(field("transfer", NULL), 6);
}
END_TEST

/* It has no plan by which it could send: that one was refused. */
START_TEST(an_engine_outside_the_plan_feeds_nobody)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 12);
	struct wb_reconcile_planned no = {.job = 2, .rc = WB_EPLAN, .sentence = "a test says so"};
	size_t n;

	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 5, false);
	engine("e2", WB_ENGINE_COMMITTED, 5, false);
	e3.held = (struct wb_reconcile_held){6, 60, false};
	up(agent(4, "roll-c", &e3, 1));
	ck_assert_int_eq(wb_reconcile_planned(r, now, &no), 0);
	ck_assert_ptr_nonnull(strstr(did(false), "PlanFailed"));
	ck_assert_int_eq(field("transfer", NULL), 6);
	wb_reconcile_feeds(r, &n);
	ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(what_a_part_of_an_engine_holds_is_no_version)
{
	struct wb_reconcile_worker half = rollout(1, "e9", 12);
	struct holding h[] = {{{5, 5}, false}};

	run_pairs(h, 1);
	half.held = (struct wb_reconcile_held){8, 80, false};
	up(agent(9, "roll-h", &half, 1));
	ck_assert_int_eq(field("transfer", NULL), 5);
	ck_assert_uint_eq(wb_reconcile_transfer_seen(r), 8); /* the number is used all the same */
}
END_TEST

/* The next version is on its way, unless the trainers' call for it comes to nothing. */
START_TEST(an_engine_that_was_superseded_gets_the_next_version_not_a_feed)
{
	struct wb_reconcile_engine_report dropped = {
		.engine = "e1", .state = WB_ENGINE_SUPERSEDED, .transfer = 6};
	uint64_t wait;

	run_two_engines();
	wait = spec_of(2, 1).engine_step_deadline_s * S;
	transfer(6, false, 0);
	ck_assert_int_eq(wb_reconcile_engine(r, now, &dropped), 0);
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	transfer(6, true, WB_RESULT_SUCCEEDED);
	ck_assert_ptr_null(strstr(did(false), "EngineFed"));
	ck_assert_uint_le(wb_reconcile_due_ns(r), now.ns + wait);
	if (_i) { /* it came, and was aborted */
		transfer(7, false, 0);
		transfer(7, true, WB_RESULT_ABORTED);
	} else {
		later(wait - 1);
		ck_assert_ptr_null(strstr(did(false), "EngineFed"));
		later(1);
	}
	ck_assert_ptr_nonnull(strstr(did(false), "EngineFed"));
}
END_TEST

START_TEST(feeds_are_not_tried_for_ever)
{
	unsigned n = 0;

	run_two_engines();
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	for (int i = 0; i < 20; i++) {
		n += strstr(did(false), "EngineFed") != NULL;
		engine("e1", WB_ENGINE_ABORTED, 6, true);
		later(100 * S);
	}
	ck_assert_uint_eq(n, 5);
	engine("e2", WB_ENGINE_COMMITTED, 7, false); /* another version is another matter */
	ck_assert_ptr_nonnull(strstr(did(false), "EngineFed"));
}
END_TEST

START_TEST(a_plan_waits_for_the_feed_that_runs)
{
	struct wb_reconcile_worker e3 = rollout(1, "e3", 12);

	run_two_engines();
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	ck_assert_ptr_nonnull(strstr(did(false), "EngineFed"));
	up(agent(4, "roll-c", &e3, 1));
	ck_assert_str_eq(did(false), "plan(2)");
	planned(2, 98);
	ck_assert_str_eq(did(false), "");
	engine("e1", WB_ENGINE_COMMITTED, 6, true);
	ck_assert_uint_le(wb_reconcile_due_ns(r), now.ns); /* nobody need say more */
	later(0);
	ck_assert_str_eq(did(false), "send(1:1.2) send(2:1.2) send(3:1.2) send(4:1.2)");
}
END_TEST

/* ---- reports that are late ------------------------------------------------------------------ */

static int64_t running(void)
{
	return field("currentTransfer", "transfer");
}

START_TEST(a_late_report_neither_ends_nor_replaces_the_transfer_that_runs)
{
	run_two_engines();
	transfer(4, false, 0);
	transfer(5, false, 0);
	transfer(4, true, WB_RESULT_ABORTED);
	ck_assert_int_eq(running(), 5);
	transfer(3, false, 0);
	ck_assert_int_eq(running(), 5);
	transfer(5, true, WB_RESULT_SUCCEEDED);
	ck_assert_int_eq(running(), -1);
	transfer(5, false, 0); /* its begin, said again */
	ck_assert_int_eq(running(), -1);
}
END_TEST

/* Its coordinator is there, and has forgotten it. */
START_TEST(a_transfer_that_nobody_ends_is_not_waited_for)
{
	struct wb_spec s = spec_of(2, 1);
	uint64_t bound = (s.transfer_deadline_s + s.engine_step_deadline_s) * S;

	run_two_engines();
	transfer(5, false, 0);
	ck_assert_uint_le(wb_reconcile_due_ns(r), now.ns + bound);
	later(bound - 1);
	ck_assert_int_eq(running(), 5);
	later(1);
	ck_assert_int_eq(running(), -1);
}
END_TEST

START_TEST(a_late_commit_takes_no_engine_back)
{
	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	engine("e1", WB_ENGINE_COMMITTED, 5, false);
	ck_assert_int_eq(version_of(0), 60);
}
END_TEST

/* The engine's worker is another process since; it came when epoch 1.1 was active. */
START_TEST(a_report_of_a_plan_before_says_nothing_of_a_new_worker)
{
	struct wb_reconcile_worker e1 = rollout(2, "e1", 12);
	struct wb_reconcile_engine_report rep = {.engine = "e1",
		.state = WB_ENGINE_COMMITTED,
		.transfer = 6,
		.version = 60,
		.epoch = {1, 1}};

	run_two_engines();
	workers(2, &e1, 1);
	ck_assert_int_eq(wb_reconcile_engine(r, now, &rep), 0);
	ck_assert_int_eq(version_of(0), -1);
	rep.epoch.number = 2;
	ck_assert_int_eq(wb_reconcile_engine(r, now, &rep), 0);
	ck_assert_int_eq(version_of(0), 60);
}
END_TEST

/* By its number it would be the one before: its parameters lie elsewhere. */
START_TEST(a_worker_with_another_map_is_another_worker)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 13);

	run_two_engines();
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	engine("e2", WB_ENGINE_COMMITTED, 6, false);
	did(false);
	workers(2, &e1, 1);
	ck_assert_str_eq(did(false), "need(m13@2)");
	ck_assert_int_eq(version_of(0), -1);
}
END_TEST

/* ---- numbers that were used ----------------------------------------------------------------- */

static uint64_t seen_after(const char *status)
{
	json_t *stored = json_loads(status, 0, NULL);
	struct wb_spec s = spec_of(2, 1);

	ck_assert_ptr_nonnull(stored);
	make(&s, 78);
	ck_assert_int_eq(wb_reconcile_restore(r, now, stored), 0);
	json_decref(stored);
	return wb_reconcile_transfer_seen(r);
}

START_TEST(transfer_numbers_that_anybody_knows_are_used)
{
	struct wb_reconcile_worker e1 = rollout(1, "e1", 12);
	struct wb_reconcile_agent a = agent(1, "roll", &e1, 1);

	ck_assert_uint_eq(seen_after("{\"transfer\": 7, \"version\": 70}"), 7);
	ck_assert_uint_eq(seen_after("{\"currentTransfer\": {\"transfer\": 9}}"), 9);
	ck_assert_uint_eq(seen_after("{\"recentTransfers\": [{\"transfer\": 8, \"result\": "
				     "\"Aborted\"}]}"),
		8);
	a.transfer_seen = 12;
	up(a);
	ck_assert_uint_eq(wb_reconcile_transfer_seen(r), 12);
	engine("e1", WB_ENGINE_ABORTED, 13, false);
	ck_assert_uint_eq(wb_reconcile_transfer_seen(r), 13);
	transfer(14, false, 0);
	ck_assert_uint_eq(wb_reconcile_transfer_seen(r), 14);
}
END_TEST

/* ---- while trainers are gone ---------------------------------------------------------------- */

/* e1 is in the plan, e2 joins; the trainers are gone for good, or may come back, and e1 holds the
 * version, or a mix. */
START_TEST(an_engine_joins_without_trainers_when_they_are_gone_and_another_can_feed_it)
{
	bool may_come_back = _i & 1, is_torn = _i & 2;
	struct wb_reconcile_worker t = trainer(1, 0, 10), e1 = rollout(1, "e1", 12);
	struct wb_reconcile_worker e2 = rollout(1, "e2", 12);
	struct wb_spec s = spec_of(1, 1);

	make(&s, 77);
	up(agent(1, "train", &t, 1));
	up(agent(2, "roll-a", &e1, 1));
	blobs(1, 1);
	blobs(10, 12);
	planned(1, 99);
	ready(1, 1, 1);
	ready(2, 1, 1);
	engine("e1", WB_ENGINE_COMMITTED, 6, false);
	if (is_torn)
		engine("e1", WB_ENGINE_TORN, 7, false);
	did(false);
	up(agent(3, "roll-b", &e2, 1));
	did(false);
	ck_assert_int_eq(wb_reconcile_agent_down(r, now, 1, !may_come_back), 0);
	ck_assert_str_eq(did(false), !may_come_back && !is_torn ? "plan(3)" : "");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reconcile_fences");
	TCase *tc = tcase_create("reconcile_fences");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(
		tc, a_plan_is_adopted_when_all_agents_have_it, 0, (int)WB_ARRAY_SIZE(adoptions));
	tcase_add_loop_test(tc, a_version_is_what_all_workers_of_an_engine_hold, 0,
		(int)WB_ARRAY_SIZE(holdings));
	tcase_add_test(tc, each_version_is_asked_for_at_all_sources_in_turn);
	tcase_add_test(tc, an_older_version_is_not_fed);
	tcase_add_loop_test(tc, an_engine_is_fed_by_one_that_it_reaches, 0,
		sizeof(reaches) / sizeof(reaches[0]));
	tcase_add_test(tc, an_engine_outside_the_plan_feeds_nobody);
	tcase_add_test(tc, what_a_part_of_an_engine_holds_is_no_version);
	tcase_add_loop_test(
		tc, an_engine_that_was_superseded_gets_the_next_version_not_a_feed, 0, 2);
	tcase_add_test(tc, feeds_are_not_tried_for_ever);
	tcase_add_test(tc, a_plan_waits_for_the_feed_that_runs);
	tcase_add_test(tc, a_late_report_neither_ends_nor_replaces_the_transfer_that_runs);
	tcase_add_test(tc, a_transfer_that_nobody_ends_is_not_waited_for);
	tcase_add_test(tc, a_late_commit_takes_no_engine_back);
	tcase_add_test(tc, a_report_of_a_plan_before_says_nothing_of_a_new_worker);
	tcase_add_test(tc, a_worker_with_another_map_is_another_worker);
	tcase_add_test(tc, transfer_numbers_that_anybody_knows_are_used);
	tcase_add_loop_test(tc,
		an_engine_joins_without_trainers_when_they_are_gone_and_another_can_feed_it, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return fx_run(suite());
}
