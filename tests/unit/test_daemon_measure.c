/* SPDX-License-Identifier: Apache-2.0 */
/* What one agent asks another to measure: its text, its memory, and the addresses of rails. */
#include "base/base.h"
#include "base/err.h"
#include "daemon/agent.h"
#include "daemon/measure.h"
#include "tests/common/fx_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NONCE "00112233445566778899aabbccddeeff"
#define MIB (1ull << 20)

/* ---- text ------------------------------------------------------------------------------------
 */

START_TEST(a_request_is_the_same_after_its_text)
{
	const struct wb__measure_request q = {.nonce = NONCE,
		.transport = "verbs",
		.rails = 16,
		.memory = 256 * MIB,
		.is_v6 = _i & 1,
		.is_encrypted = _i & 2,
		.is_forced = _i & 4,
		.from = "r:0 @b&c",
		.to = "trainer-0.ns"};
	struct wb__measure_request got;
	char text[WB__MEASURE_TEXT], again[WB__MEASURE_TEXT];

	wb__measure_text(&q, text);
	ck_assert_int_eq(wb__measure_parse(text, &got), 0);
	wb__measure_text(&got, again);
	ck_assert_str_eq(text, again);
	ck_assert_str_eq(got.from, q.from);
	ck_assert_str_eq(got.to, q.to);
	ck_assert(got.is_v6 == q.is_v6 && got.is_encrypted == q.is_encrypted &&
		  got.is_forced == q.is_forced && got.memory == q.memory && got.rails == 16);
}
END_TEST

START_TEST(the_longest_names_have_room)
{
	struct wb__measure_request q = {.nonce = NONCE,
		.transport = "verbs",
		.rails = 16,
		.memory = WB__MEASURE_MEMORY_MAX};
	struct wb__measure_request got;
	char text[WB__MEASURE_TEXT];

	memset(q.from, 'a', sizeof(q.from) - 1);
	memset(q.to, 'b', sizeof(q.to) - 1);
	wb__measure_text(&q, text);
	ck_assert_int_eq(wb__measure_parse(text, &got), 0);
	ck_assert_str_eq(got.to, q.to);
}
END_TEST

static const char *const bad[] = {"", "/", "x", NONCE, NONCE "/tcp/1/4096/4--/a",
	NONCE "/tcp/1/4096/4--/a/", NONCE "/tcp/1/4096/4--//b", NONCE "/tcp/1/4096/4--/a/b/c",
	NONCE "/udp/1/4096/4--/a/b", NONCE "/tcp/0/4096/4--/a/b", NONCE "/tcp/17/4096/4--/a/b",
	NONCE "/tcp/1/4095/4--/a/b", NONCE "/tcp/1/268435457/4--/a/b", NONCE "/tcp/1/-1/4--/a/b",
	NONCE "/tcp/1/4096/4-/a/b", NONCE "/tcp/1/4096/4---/a/b", NONCE "0/tcp/1/4096/4--/a/b",
	"0011/tcp/1/4096/4--/a/b", "00112233445566778899aabbccddeef,/tcp/1/4096/4--/a/b",
	NONCE "/tcp/1/4096/4--/a/"
	      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"};

START_TEST(what_no_agent_asks_for_is_no_request)
{
	struct wb__measure_request q;

	ck_assert_int_eq(wb__measure_parse(NONCE "/tcp/1/4096/4--/a/b", &q), 0);
	ck_assert_msg(wb__measure_parse(bad[_i], &q) == -EINVAL, "%s", bad[_i]);
}
END_TEST

/* ---- memory ----------------------------------------------------------------------------------
 */

static const struct {
	uint64_t asked, limit, used, due; /* due: of buffers that nobody has written yet */
	int rc; /* of reading the control group */
	const char *words; /* NULL = it may be taken */
} rooms[] = {
	{64 * MIB, 1024 * MIB, 896 * MIB, 0, 0, NULL},
	{64 * MIB, 1024 * MIB, 897 * MIB, 0, 0, "container 127 MiB are left"},
	{64 * MIB, 1024 * MIB, 1024 * MIB, 0, 0, "container 0 MiB are left"},
	{64 * MIB, 1024 * MIB, 1025 * MIB, 0, 0, "container 0 MiB are left"},
	{64 * MIB, 4352 * MIB, 64 * MIB, 4096 * MIB, 0, NULL},
	{97 * MIB, 4352 * MIB, 64 * MIB, 4096 * MIB, 0, "container 192 MiB are left"},
	{4096, 4096 * MIB, 64 * MIB, 4096 * MIB, 0, "container 0 MiB are left"},
	{256 * MIB, UINT64_MAX, 1, 4096 * MIB, 0, NULL},
	{256 * MIB, 0, 0, 4096 * MIB, -ENOENT, NULL},
	{256 * MIB + 1, UINT64_MAX, 1, 0, 0, "starts none of more than 256 MiB"},
	{4096, 0, 0, 0, 0, "container 0 MiB are left"},
};

static uint64_t left_in(int i)
{
	const struct wb_cgroup_memory m = {
		.limit_bytes = rooms[i].limit, .used_bytes = rooms[i].used};

	return wb__measure_left(rooms[i].rc, &m, rooms[i].due);
}

START_TEST(a_source_takes_half_of_what_is_left_beside_buffers_at_most)
{
	struct wb_err err = {0};
	int rc = wb__measure_room(rooms[_i].asked, left_in(_i), &err);

	ck_assert_int_eq(rc, rooms[_i].words ? -ENOMEM : 0);
	ck_assert_msg(!rooms[_i].words || strstr(err.msg, rooms[_i].words), "%s", err.msg);
}
END_TEST

/* Its user may have more than others start here, and is told by which options he asks for it. */
START_TEST(a_receiver_takes_half_of_what_is_left_beside_buffers_at_most)
{
	struct wb_err err = {0};
	bool is_well = rooms[_i].limit == UINT64_MAX || !rooms[_i].words;

	ck_assert_int_eq(
		wb__measure_landing(rooms[_i].asked, left_in(_i), &err), is_well ? 0 : -ENOMEM);
	ck_assert_msg(is_well || (strstr(err.msg, rooms[_i].words) &&
					 strstr(err.msg, "lower --sizes or --depths")),
		"%s", err.msg);
}
END_TEST

/* ---- tickets ---------------------------------------------------------------------------------
 */

static const char *nonce_of(uint32_t i)
{
	static char text[WB__MEASURE_NONCE + 1];

	snprintf(text, sizeof(text), "%032x", i);
	return text;
}

START_TEST(a_ticket_is_taken_once_for_as_long_as_it_holds)
{
	const uint64_t second = 1000000000, begin = 7 * second;
	struct wb__measure_used u = {.n = 0};
	const uint64_t end = begin + WB__MEASURE_HOLDS_S * second; /* of the first */
	uint32_t i;

	for (i = 0; i < WB__MEASURE_USED_MAX; i++) {
		ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i), begin + i * second), 0);
		wb__measure_use(&u, nonce_of(i), begin + i * second);
	}
	/* One more would push out the first, which could be used again. */
	ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i), end - 1), -EAGAIN);
	for (uint32_t k = 0; k < WB__MEASURE_USED_MAX; k++)
		ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(k), end - 1), -EEXIST);
	ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i), end), 0);
	wb__measure_use(&u, nonce_of(i), end);
	ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i), end + second), -EEXIST);
	ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i + 1), end), -EAGAIN);
	ck_assert_int_eq(wb__measure_may_use(&u, nonce_of(i + 1), end + second), 0);
}
END_TEST

/* ---- addresses -------------------------------------------------------------------------------
 */

static struct wb__agent agent_of(const char *device, const char *folder, uint32_t n, bool is_named)
{
	struct wb__agent a = {.addrs = {.a = {"10.0.0.1", "fd00::1"}, .n = 2}};

	a.o.rail_device = device;
	a.o.shm_folder = folder;
	a.rails.n = n;
	a.rails.is_named = is_named;
	for (uint32_t i = 0; i < n; i++)
		snprintf(a.rails.rail[i].addr, WB__ADDR_MAX, "10.0.%u.1", i + 7);
	return a;
}

static const struct {
	const char *transport, *device, *folder;
	uint32_t rails, asked; /* asked 0: for a receiver */
	bool is_named, is_v6;
	const char *want;
} lists[] = {
	{"tcp", "", "", 1, 1, false, false, "10.0.0.1"},
	{"tcp", "", "", 2, 1, false, true, "fd00::1,fd00::1"},
	{"tcp", "d0,d1", "", 2, 0, true, true, "10.0.7.1,10.0.8.1"},
	{"verbs", "d0,d1/2", "", 2, 2, false, false, "d0@10.0.0.1,d1/2@10.0.0.1"},
	{"verbs", "d0,d1/2", "", 2, 2, true, false, "d0@10.0.7.1,d1/2@10.0.8.1"},
	{"verbs", "", "", 2, 2, true, false, "10.0.7.1,10.0.8.1"},
	{"verbs", ",d1", "", 2, 2, false, true, "fd00::1,d1@fd00::1"},
	{"shm", "", "", 1, 2, false, false, "@,@"},
	{"shm", "", "/run/wb", 2, 0, false, false, "@,@"},
	{"shm", "", "/run/wb", 1, 2, false, false,
		"/run/wb/wb-bench-0011223344556677.0,/run/wb/wb-bench-0011223344556677.1"},
};

START_TEST(rails_are_at_the_addresses_of_the_agent)
{
	struct wb__agent a =
		agent_of(lists[_i].device, lists[_i].folder, lists[_i].rails, lists[_i].is_named);
	struct wb__measure_request q = {.nonce = NONCE, .rails = lists[_i].asked};
	char list[WB__MEASURE_LIST];

	ck_assert_int_eq(wb__measure_rails(&a, lists[_i].transport, lists[_i].is_v6,
				 lists[_i].asked ? &q : NULL, list),
		0);
	ck_assert_str_eq(list, lists[_i].want);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("daemon bench");
	TCase *t = tcase_create("daemon bench");

	suite_add_tcase(s, t);
	tcase_add_loop_test(t, a_request_is_the_same_after_its_text, 0, 8);
	tcase_add_test(t, the_longest_names_have_room);
	tcase_add_loop_test(t, what_no_agent_asks_for_is_no_request, 0, (int)WB_ARRAY_SIZE(bad));
	tcase_add_loop_test(t, a_source_takes_half_of_what_is_left_beside_buffers_at_most, 0,
		(int)WB_ARRAY_SIZE(rooms));
	tcase_add_loop_test(t, a_receiver_takes_half_of_what_is_left_beside_buffers_at_most, 0,
		(int)WB_ARRAY_SIZE(rooms));
	tcase_add_test(t, a_ticket_is_taken_once_for_as_long_as_it_holds);
	tcase_add_loop_test(
		t, rails_are_at_the_addresses_of_the_agent, 0, (int)WB_ARRAY_SIZE(lists));
	return fx_run(s);
}
