/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets, with which a standby sends readers on to the leader. */
#include "net/ticket.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/clock.h"

#include <check.h>
#include <string.h>

static const struct {
	const char *what, *path, *object;
	int64_t later_s;
	bool other_key, holds;
} uses[] = {
	{"at once", "/status", "rl/grpo", 0, false, true},
	{"a minute later", "/status", "rl/grpo", 60, false, true},
	{"too late", "/status", "rl/grpo", 61, false, false},
	{"where the clock is behind", "/status", "rl/grpo", -60, false, true},
	{"where the clock is far behind", "/status", "rl/grpo", -61, false, false},
	{"for another page", "/plan", "rl/grpo", 0, false, false},
	{"for another object", "/status", "rl/grpo2", 0, false, false},
	{"for all objects", "/status", NULL, 0, false, false},
	{"at another operator", "/status", "rl/grpo", 0, true, false},
};

START_TEST(a_ticket_is_for_one_page_one_object_and_a_minute)
{
	const uint64_t now = 1000000 * WB_NS_PER_S;
	struct wb_ticket_key a = {.is_set = false}, b = a;
	char text[WB_TICKET_TEXT];

	wb_ticket_make(&a, "/status", "rl/grpo", now, text);
	ck_assert_str_eq(text, ""); /* no key */
	ck_assert(!wb_ticket_holds(&a, "/status", "rl/grpo", text, now));
	wb_ticket_key_set(&a, "secret", 6);
	wb_ticket_key_set(&b, uses[_i].other_key ? "Secret" : "secret", 6);
	wb_ticket_make(&a, "/status", "rl/grpo", now, text);
	ck_assert_msg(wb_ticket_holds(&b, uses[_i].path, uses[_i].object, text,
			      now + (uint64_t)(uses[_i].later_s * (int64_t)WB_NS_PER_S)) ==
			      uses[_i].holds,
		"%s", uses[_i].what);
}
END_TEST

START_TEST(what_is_no_ticket_holds_for_nothing)
{
	static const char *const texts[] = {"", "1", "1.", "1000060.", "1000060.00", "x.y",
		"1000060.0000000000000000000000000000000000000000000000000000000000000000"};
	struct wb_ticket_key k;

	wb_ticket_key_set(&k, "secret", 6);
	ck_assert(!wb_ticket_holds(&k, "/status", "", NULL, 1000000 * WB_NS_PER_S));
	for (size_t i = 0; i < WB_ARRAY_SIZE(texts); i++)
		ck_assert_msg(!wb_ticket_holds(&k, "/status", "", texts[i], 1000000 * WB_NS_PER_S),
			"%s", texts[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tickets");
	TCase *t = tcase_create("tickets");

	tcase_add_loop_test(
		t, a_ticket_is_for_one_page_one_object_and_a_minute, 0, WB_ARRAY_SIZE(uses));
	tcase_add_test(t, what_is_no_ticket_holds_for_nothing);
	suite_add_tcase(s, t);
	return fx_run(s);
}
