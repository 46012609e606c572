/* SPDX-License-Identifier: Apache-2.0 */
/* A source that has no room for more grants: it is asked again, and given up in the end. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_several.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const uint8_t from_trainer_3[FX_SEVERAL_WORKERS] = {0, 0, 0, 1, 0};

static void refuse_grant(int k, int code)
{
	struct wb_xport_event ev = {.kind = WB_XP_REFUSED,
		.conn = fx_several.notes.asked[k].conn,
		.cookie = fx_several.notes.asked[k].grant.cookie,
		.code = code};

	wb_flow_on_xport(&ev);
}

/* A source that has no room is asked again after a while, and longer and longer while it stays so:
 * that is no try, and nobody else is asked.  One that never has any is given up, by name. */
START_TEST(a_busy_source_is_asked_again_later)
{
	bool recovers = _i;
	uint64_t began, at;
	int n_asked = 0;

	fx_several_open(1, 1);
	began = wb_now_ns(&fx_several.clock.clock);
	for (uint32_t w = 0; w < FX_SEVERAL_WORKERS; w += 2)
		wb_flow_lose_worker(fx_several.f, w);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	while (!fx_several.n_failed && n_asked < (recovers ? 10 : 1000)) {
		int n = fx_several.notes.n_asked;

		ck_assert_int_gt(n, 0);
		fx_several.notes.n_asked = 0;
		fx_several.clock.now += WB_NS_PER_MS; /* the way there and back */
		for (int k = 0; k < n; k++)
			refuse_grant(k, -EBUSY);
		n_asked++;
		ck_assert_int_eq(fx_several.notes.n_asked, 0); /* not at once */
		at = wb_flow_tick(fx_several.f, wb_now_ns(&fx_several.clock.clock));
		ck_assert(fx_several.n_failed || at > wb_now_ns(&fx_several.clock.clock));
		fx_several.clock.now = at;
		(void)wb_flow_tick(fx_several.f, at);
	}
	ck_assert_int_eq(fx_several.n_failed, !recovers);
	for (int k = 0; recovers && k < 2; k++)
		fx_several_end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(fx_several.n_complete, recovers);
	if (!recovers) {
		ck_assert_int_eq(fx_several.failed_code, -EBUSY);
		ck_assert_msg(strstr(fx_several.why, "worker 3") != NULL, "%s", fx_several.why);
		ck_assert_int_lt(n_asked, 30);
		ck_assert_uint_ge(wb_now_ns(&fx_several.clock.clock) - began, WB_NS_PER_S);
	}
	fx_several_close();
}
END_TEST

/* What it said before counts no more when nobody has asked it for as long as one that brings
 * nothing is borne: here its connection was gone meanwhile. */
START_TEST(a_source_that_was_busy_long_ago_is_not_given_up_when_it_is_busy_again)
{
	int n;

	fx_several_open(1, 1);
	for (uint32_t w = 0; w < FX_SEVERAL_WORKERS; w += 2)
		wb_flow_lose_worker(fx_several.f, w);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	for (int round = 0; round < 2; round++) {
		n = fx_several.notes.n_asked;
		ck_assert_int_gt(n, 0);
		fx_several.notes.n_asked = 0;
		for (int k = 0; k < n; k++)
			refuse_grant(k, -EBUSY);
		ck_assert_int_eq(fx_several.n_failed, 0);
		fx_several.is_down = true;
		fx_several.clock.now = wb_now_ns(&fx_several.clock.clock) + 2 * WB_NS_PER_S;
		(void)wb_flow_tick(fx_several.f, fx_several.clock.now);
		fx_several.is_down = false;
		wb_flow_conn_up(fx_several.f, 1);
		(void)wb_flow_tick(fx_several.f, fx_several.clock.now);
	}
	for (int k = 0; k < 2; k++)
		fx_several_end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(fx_several.n_complete, 1);
	fx_several_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flow_busy");
	TCase *c = tcase_create("flow_busy");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_busy_source_is_asked_again_later, 0, 2);
	tcase_add_test(c, a_source_that_was_busy_long_ago_is_not_given_up_when_it_is_busy_again);
	return fx_run(s);
}
