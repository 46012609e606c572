/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on their way to agents: one copy, a piece at a time, and a newer one instead of the rest.
 */
#include "operator-shim/serve/budget.h"
#include "operator-shim/serve/metrics.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_serve.h"

static struct wire other;

static uint64_t used_by_plans(void)
{
	struct wb_buf b;

	wb_buf_init(&b, 1 << 20);
	wb_serve_metrics(s, &b);
	wb_buf_finish(&b);
	return (uint64_t)wb_metric_get(wb_serve_own_metrics(s), WB_SM_BUDGET_USED,
		WB_LABELS(wb_budget_name(WB_BUDGET_PLANS), "all"));
}

/* The plan begins to go to both. */
static void planned(bool is_train_slow, bool is_roll_slow)
{
	join_both();
	content(&train, 1, manifest_digest, &manifest_bytes);
	content(&train, 2, map_digest, &map_bytes);
	train.is_slow = is_train_slow;
	roll.is_slow = is_roll_slow;
	run_job();
}

static struct wb_digest hears_content(struct wire *w)
{
	struct wb_digest d;
	union wb_msg m;

	expect(w, WBP_CONTENT, &m);
	d = m.content.digest;
	wb_msg_free(WBP_CONTENT, &m);
	return d;
}

/* As it is named in the head. */
static struct wb_digest hears_head(struct wire *w)
{
	struct wb_digest d;
	union wb_msg m;

	expect(w, WBP_CONTENT, &m);
	ck_assert_uint_eq(m.content.kind, WB_CONTENT_HEAD);
	memcpy(&d.hi, m.content.data + 8, 8);
	memcpy(&d.lo, m.content.data + 16, 8);
	wb_msg_free(WBP_CONTENT, &m);
	return d;
}

static void hears_plan(struct wire *w, uint64_t number)
{
	union wb_msg m;

	expect(w, WBP_PLAN, &m);
	ck_assert_uint_eq(m.plan.epoch.number, number);
	wb_msg_free(WBP_PLAN, &m);
}

START_TEST(a_piece_goes_when_the_last_has_left)
{
	planned(true, true);
	hears_head(&train);
	expect_nothing(&train);
	make_room(&train);
	hears_content(&train);
	expect_nothing(&train);
	make_room(&train);
	hears_plan(&train, 1);
	make_room(&train);
	expect_nothing(&train);
	end_both();
}
END_TEST

START_TEST(an_agent_that_does_not_read_holds_up_nobody)
{
	planned(true, false);
	hears_head(&roll);
	hears_content(&roll);
	hears_plan(&roll, 1);
	hears_head(&train);
	expect_nothing(&train);
	end_both();
}
END_TEST

START_TEST(all_agents_are_lent_the_same_bytes_and_they_are_charged_once)
{
	const void *head;
	uint64_t plan_bytes;

	planned(true, true);
	plan_bytes = used_by_plans();
	ck_assert_uint_eq(train.n_lent, 1);
	ck_assert_ptr_eq(train.lent[0].data, roll.lent[0].data);
	head = train.lent[0].data;
	make_room(&train);
	make_room(&roll);
	ck_assert_uint_eq(train.n_lent, 1);
	/* Their parts follow the head, each its own. */
	ck_assert_ptr_ne(train.lent[0].data, roll.lent[0].data);
	ck_assert_uint_lt((uintptr_t)train.lent[0].data - (uintptr_t)head, plan_bytes);
	ck_assert_uint_lt((uintptr_t)roll.lent[0].data - (uintptr_t)head, plan_bytes);
	make_room(&train);
	make_room(&roll);
	ck_assert_uint_eq(train.n_lent, 1);
	ck_assert_ptr_eq(train.lent[0].data, roll.lent[0].data); /* PLAN, too */
	ck_assert_uint_eq(used_by_plans(), plan_bytes);
	end_both();
}
END_TEST

static void third_joins(void)
{
	union wb_msg m;

	open_wire(&other);
	hello(&other, "other", 13);
	expect(&other, WBP_WELCOME, &m);
	wb_msg_free(WBP_WELCOME, &m);
	say_workers(&other, 2, "e2");
	run_job();
}

START_TEST(a_newer_plan_takes_the_place_of_what_is_left)
{
	struct wb_digest first, second;
	uint64_t before;

	planned(true, true);
	first = hears_content(&train);
	third_joins();
	second = hears_content(&other);
	hears_content(&other);
	hears_plan(&other, 2); /* nobody had the first one whole */
	ck_assert(!wb_digest_eq(first, second));
	before = used_by_plans(); /* the piece that is queued holds the first one */
	make_room(&train);
	make_room(&roll);
	ck_assert_uint_lt(used_by_plans(), before);
	ck_assert(wb_digest_eq(hears_content(&train), second));
	make_room(&train);
	hears_content(&train);
	make_room(&train);
	hears_plan(&train, 2);
	end_wire(&other);
	end_both();
}
END_TEST

/* It cannot know the epoch, but it can guess. */
START_TEST(activate_comes_after_the_plan_even_when_ready_came_before_it)
{
	struct wb_msg_ready r = {.object = "default/a", .epoch = {1, 1}};

	planned(true, true);
	r.digest = hears_head(&roll);
	make_room(&roll);
	hears_content(&roll);
	agent_says(&roll, WBP_READY, &r);
	agent_says(&train, WBP_READY, &r);
	expect_nothing(&roll);
	make_room(&roll);
	hears_plan(&roll, 1);
	activated(&roll);
	end_both();
}
END_TEST

/* Who gets the list and who gets a part are ready for the same plan. */
START_TEST(an_agent_of_version_1_gets_all_of_the_same_plan)
{
	uint64_t packed;

	roll_version = 1;
	planned(false, false);
	packed = used_by_plans();
	take_plan(&train, 1);
	run_job();
	take_plan(&roll, 1);
	activated(&train);
	activated(&roll);
	ck_assert_str_eq(ready_reason(), "True Idle");
	ck_assert_uint_gt(packed, 0);
	end_both();
	roll_version = 0;
}
END_TEST

static void limit(const char *budget)
{
	struct wb_budget_limits l;

	tear_down_serve();
	wb_budget_size(UINT64_C(1) << 30, &l);
	ck_assert_int_eq(wb_budget_override(&l, budget), 0);
	set_up_limited_serve(&l);
}

/* Listing a large plan takes seconds, and whose plan is large is its tenant's to say. */
START_TEST(a_list_is_made_beside_the_loop)
{
	roll_version = 1;
	planned(false, false);
	take_plan(&train, 1); /* who needs none does not wait for it */
	expect_nothing(&roll);
	run_job();
	take_plan(&roll, 1);
	activated(&train);
	activated(&roll);
	end_both();
	roll_version = 0;
}
END_TEST

/* Where an object may have two jobs: the list of the first plan is not of the second. */
START_TEST(a_list_that_comes_after_a_newer_plan_is_of_no_use)
{
	void (*list_work)(void *), (*list_done)(void *);
	struct wb_digest second;
	void *list;

	limit("planning=4/4/4");
	roll_version = 1;
	planned(false, false);
	list_work = job_work;
	list_done = job_done;
	list = job_cookie;
	third_joins();
	second = hears_head(&other);
	list_work(list);
	list_done(list);
	expect_nothing(&roll);
	run_job();
	ck_assert(wb_digest_eq(hears_content(&roll), second));
	hears_plan(&roll, 2);
	end_wire(&other);
	end_both();
	roll_version = 0;
}
END_TEST

START_TEST(who_waits_for_a_list_may_go_and_so_may_all)
{
	roll_version = 1;
	planned(false, false);
	end_wire(&roll);
	run_job();
	end_both();
	roll_version = 0;
}
END_TEST

START_TEST(a_list_without_room_turns_its_agent_away_and_nobody_else)
{
	char text[64];
	union wb_msg m;
	uint64_t held;

	roll_version = 1;
	planned(false, false);
	held = used_by_plans();
	run_job();
	end_both();
	snprintf(text, sizeof(text), "plans=%llu", (unsigned long long)held);
	limit(text);
	planned(false, false);
	run_job();
	expect(&roll, WBP_REJECT, &m);
	ck_assert_msg(strstr(m.reject.sentence, "--budget plans"), "%s", m.reject.sentence);
	ck_assert(m.reject.retry);
	wb_msg_free(WBP_REJECT, &m);
	take_plan(&train, 1);
	ck_assert_uint_eq(used_by_plans(), held);
	end_both();
	roll_version = 0;
}
END_TEST

START_TEST(an_agent_that_goes_while_its_plan_is_sent_leaves_nothing)
{
	planned(true, true);
	end_both();
	ck_assert_uint_gt(used_by_plans(), 0); /* the object's own */
}
END_TEST

START_TEST(an_operator_that_ends_while_a_plan_is_sent_leaves_nothing)
{
	planned(true, true);
	wb_serve_destroy(s);
	s = NULL;
	end_both();
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("serve_outgo");
	TCase *tc = tcase_create("outgo");

	tcase_add_checked_fixture(tc, set_up_serve, tear_down_serve);
	tcase_add_test(tc, a_piece_goes_when_the_last_has_left);
	tcase_add_test(tc, an_agent_that_does_not_read_holds_up_nobody);
	tcase_add_test(tc, all_agents_are_lent_the_same_bytes_and_they_are_charged_once);
	tcase_add_test(tc, a_newer_plan_takes_the_place_of_what_is_left);
	tcase_add_test(tc, activate_comes_after_the_plan_even_when_ready_came_before_it);
	tcase_add_test(tc, an_agent_of_version_1_gets_all_of_the_same_plan);
	tcase_add_test(tc, a_list_is_made_beside_the_loop);
	tcase_add_test(tc, a_list_that_comes_after_a_newer_plan_is_of_no_use);
	tcase_add_test(tc, who_waits_for_a_list_may_go_and_so_may_all);
	tcase_add_test(tc, a_list_without_room_turns_its_agent_away_and_nobody_else);
	tcase_add_test(tc, an_agent_that_goes_while_its_plan_is_sent_leaves_nothing);
	tcase_add_test(tc, an_operator_that_ends_while_a_plan_is_sent_leaves_nothing);
	suite_add_tcase(all, tc);
	return all;
}

int main(void)
{
	return fx_run(suite());
}
