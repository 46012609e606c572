/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "tests/common/fx_check.h"

#include <check.h>

static unsigned may(struct wb_log_bound *b, unsigned n, uint64_t now_ns)
{
	unsigned said = 0;

	for (unsigned i = 0; i < n; i++)
		said += wb_log_may(b, "test", now_ns);
	return said;
}

START_TEST(what_others_can_cause_has_a_bound_in_the_log)
{
	struct wb_log_bound b = {0};
	uint64_t now = 100 * WB_NS_PER_S;

	ck_assert_uint_eq(may(&b, 1000, now), 20);
	ck_assert_uint_eq(b.left_out, 980);
	ck_assert_uint_eq(may(&b, 1000, now + 2 * WB_NS_PER_S), 0);
	ck_assert_uint_eq(may(&b, 1000, now + 7 * WB_NS_PER_S), 2);
	ck_assert_uint_eq(may(&b, 1000, now + 9 * WB_NS_PER_S), 1); /* the rest of a step counts */
	ck_assert_uint_eq(may(&b, 1000, now + 900 * WB_NS_PER_S), 20); /* and no more */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("log");

	tcase_add_test(t, what_others_can_cause_has_a_bound_in_the_log);
	suite_add_tcase(s, t);
	return fx_run(s);
}
