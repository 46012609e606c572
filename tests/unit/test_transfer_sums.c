/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of what workers hold, for `wbctl verify`: what they may cost, and whose they are. */
#include "base/buf.h"
#include "tests/common/fx_check.h"
#include "tests/common/world.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* A worker with several of the pieces that are summed at a time. */
static const struct world_opts shape = {.seed = 1,
	.trainer_agents = 1,
	.trainers_per_agent = 1,
	.engines = 1,
	.agents_per_engine = 1,
	.workers_per_agent = 1,
	.scale = 8192};

static struct world w;
static struct wb_transfer_core *core;
static struct wb_buf page;

static void set_up(void)
{
	world_init(&w, &shape);
	world_plan(&w);
	core = w.agent[0].core;
	ck_assert_uint_gt(w.worker[0].bytes, 4 << 20);
	wb_buf_init(&page, 1 << 20);
}

static void tear_down(void)
{
	wb_buf_finish(&page);
	world_finish(&w);
}

static const char *ask(uint64_t number)
{
	wb_buf_reset(&page);
	wb_transfer_digest_json(core, number, &page);
	return wb_buf_cstr(&page);
}

static bool is_done(uint64_t number)
{
	return strstr(ask(number), "\"done\":true");
}

/* Until the run is over; how many milliseconds that took. */
static int finish(uint64_t number)
{
	int ms = 0;

	while (!is_done(number)) {
		ck_assert_int_lt(++ms, 10000);
		world_run_for(&w, WB_NS_PER_MS);
		wb_transfer_tick(core); /* the world does not know that it was asked */
	}
	return ms;
}

/* Each event of the core is a tick, too: a transfer has thousands a second. */
START_TEST(sums_rest_however_often_the_core_is_called)
{
	ck_assert(!is_done(0));
	for (int i = 0; i < 1000; i++)
		wb_transfer_tick(core);
	ck_assert(!is_done(1));
	world_run_for(&w, 2 * WB_NS_PER_MS); /* one piece */
	for (int i = 0; i < 1000; i++)
		wb_transfer_tick(core);
	ck_assert(!is_done(1));
	ck_assert_int_gt(finish(1), 0);
}
END_TEST

START_TEST(who_asks_shares_the_run_that_is_under_way)
{
	ck_assert(strstr(ask(0), "\"number\":1}"));
	ck_assert(strstr(ask(0), "\"number\":1}"));
	finish(0);
	ck_assert(strstr(ask(0), "\"number\":2}"));
	/* One that was asked of the process before this one. */
	ck_assert(strstr(ask(77), "\"number\":2}"));
}
END_TEST

/* A stranger that asks without end gets the sums first; they are there for the others all the same.
 */
START_TEST(nobody_can_take_the_sums_from_whom_they_were_made_for)
{
	ck_assert(strstr(ask(0), "\"number\":1}"));
	finish(0);
	ck_assert(!is_done(0));
	world_run_for(&w, WB_NS_PER_MS);
	ck_assert(!is_done(0));
	ck_assert(is_done(1));
	ck_assert(strstr(wb_buf_cstr(&page), "\"number\":1,"));
	ck_assert(strstr(wb_buf_cstr(&page), "\"state\":\"ok\""));
	finish(2);
	ck_assert(is_done(1));
	ck_assert(strstr(wb_buf_cstr(&page), "\"number\":2,")); /* a later one is as good */
}
END_TEST

START_TEST(an_agent_without_a_plan_has_nothing_to_sum)
{
	struct world empty;

	world_init(&empty, &shape);
	core = empty.agent[0].core;
	ck_assert_str_eq(ask(0), "{\"done\":true,\"number\":1,\"objects\":[]}\n");
	world_finish(&empty);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("digest");
	TCase *t = tcase_create("digest");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, sums_rest_however_often_the_core_is_called);
	tcase_add_test(t, who_asks_shares_the_run_that_is_under_way);
	tcase_add_test(t, nobody_can_take_the_sums_from_whom_they_were_made_for);
	tcase_add_test(t, an_agent_without_a_plan_has_nothing_to_sum);
	suite_add_tcase(s, t);
	return fx_run(s);
}
