/* SPDX-License-Identifier: Apache-2.0 */
/* How often an address may begin a handshake. */
#include "base/base.h"
#include "net/pace.h"
#include "tests/common/fx_check.h"

#include <arpa/inet.h>
#include <check.h>

enum { MS = 1000000, BURST = 4, STEP_MS = 100 };

static struct wb__pace pace;

static struct wb__source source_of(unsigned n)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000000u + n)};

	return wb__source_of((const struct sockaddr *)&sa);
}

/* Milliseconds until its turn, or -1: only after @latest_ms. */
static int turn(unsigned n, unsigned now_ms, unsigned latest_ms)
{
	struct wb__source s = source_of(n);
	uint64_t at;

	if (!wb__pace_take(&pace, &s, (uint64_t)now_ms * MS, (uint64_t)latest_ms * MS, &at))
		return -1;
	return (int)(at / MS) - (int)now_ms;
}

static void set_up(void)
{
	wb__pace_init(&pace, BURST, 1000 / STEP_MS);
}

static const struct {
	const char *what;
	struct {
		unsigned at_ms, latest_ms;
		int wait_ms;
	} come[8];
} visits[] = {
	{"four at once, then one each 100 ms",
		{{1000, 9000, 0}, {1000, 9000, 0}, {1000, 9000, 0}, {1000, 9000, 0},
			{1000, 9000, 100}, {1000, 9000, 200}, {1050, 9000, 250},
			{1300, 9000, 100}}},
	{"at that pace nobody waits",
		{{1000, 9000, 0}, {1100, 9000, 0}, {1200, 9000, 0}, {1300, 9000, 0},
			{1400, 9000, 0}, {1500, 9000, 0}, {1600, 9000, 0}, {1700, 9000, 0}}},
	{"what was not used is kept, but no more than four",
		{{1000, 9000, 0}, {1000, 9000, 0}, {5000, 9000, 0}, {5000, 9000, 0},
			{5000, 9000, 0}, {5000, 9000, 0}, {5000, 9000, 100}, {5000, 9000, 200}}},
	{"who would be too late takes no turn from the next",
		{{1000, 9000, 0}, {1000, 9000, 0}, {1000, 9000, 0}, {1000, 9000, 0},
			{1000, 1099, -1}, {1000, 1099, -1}, {1000, 1100, 100}, {1000, 1100, -1}}},
};

START_TEST(an_address_has_its_pace)
{
	for (unsigned i = 0; i < 8; i++) {
		int got = turn(1, visits[_i].come[i].at_ms, visits[_i].come[i].latest_ms);

		ck_assert_msg(got == visits[_i].come[i].wait_ms, "%s: visit %u waits %d ms",
			visits[_i].what, i, got);
	}
}
END_TEST

START_TEST(each_address_has_its_own)
{
	for (unsigned i = 0; i < 100; i++)
		turn(1, 1000, 90000);
	ck_assert_int_eq(turn(2, 1000, 90000), 0);
	ck_assert_int_gt(turn(1, 1000, 90000), 9000);
}
END_TEST

START_TEST(what_comes_from_within_the_pod_has_none)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct wb__source here = wb__source_of((const struct sockaddr *)&sa);
	uint64_t at;

	for (unsigned i = 0; i < 1000; i++) {
		ck_assert(wb__pace_take(&pace, &here, 5, 5, &at));
		ck_assert_uint_eq(at, 5);
	}
}
END_TEST

START_TEST(of_more_addresses_than_are_remembered_the_greedy_one_is)
{
	for (unsigned i = 0; i < 100; i++)
		turn(1, 1000, 90000);
	for (unsigned n = 2; n < 2 + 4 * WB__PACE_SOURCES; n++)
		ck_assert_int_eq(turn(n, 1000 + n, 90000), 0);
	ck_assert_int_gt(turn(1, 3000, 90000), 5000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_pace");
	TCase *t = tcase_create("pace");

	tcase_add_checked_fixture(t, set_up, NULL);
	tcase_add_loop_test(t, an_address_has_its_pace, 0, WB_ARRAY_SIZE(visits));
	tcase_add_test(t, each_address_has_its_own);
	tcase_add_test(t, what_comes_from_within_the_pod_has_none);
	tcase_add_test(t, of_more_addresses_than_are_remembered_the_greedy_one_is);
	suite_add_tcase(s, t);
	return fx_run(s);
}
