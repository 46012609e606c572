/* SPDX-License-Identifier: Apache-2.0 */
/* Which network interfaces an agent's rails are, and which workers each belongs to. */
#include "base/base.h"
#include "base/err.h"
#include "daemon/rails.h"
#include "mem/numa.h"
#include "tests/common/fx_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int find(const char *const *named, struct wb__rails *out, struct wb_err *err)
{
	struct wb__options o = {.rail_bytes_per_s = 7};

	while (o.n_named < WB_XPORT_RAILS_MAX && named[o.n_named]) {
		o.named[o.n_named] = named[o.n_named];
		o.n_named++;
	}
	o.n_rail = o.n_named ? o.n_named : 3;
	return wb__rails_find(&o, "10.0.0.9", "10.0.0.9", out, err);
}

/* All of 127/8 is here, and nothing of TEST-NET-1. */
static const struct {
	const char *named[3];
	const char *says; /* in the refusal */
} refused[] = {
	{{"192.0.2.1"}, "--rail 192.0.2.1: no network interface of this host has this address"},
	{{"127.0.0.2", "192.0.2.1"}, "--rail 192.0.2.1: no network interface of this host"},
	{{"no-such-nic"}, "--rail no-such-nic: it is no address, and no network interface"},
	{{"0.0.0.0"}, "--rail 0.0.0.0: no network interface of this host has this address"},
	{{"127.0.0.2", "127.0.0.2,rate=1M"}, "127.0.0.2 is given twice"},
	{{"127.0.0.2,speed=1M"}, "--rail 127.0.0.2: 'speed=1M' is none of rate=BYTES/s, numa=NODE"},
	{{"127.0.0.2,rate"}, "'rate' is none of"},
	{{"127.0.0.2,rate=fast"}, "'rate=fast' is none of"},
	{{"127.0.0.2,numa=64"}, "'numa=64' is none of"},
	{{"127.0.0.2,workers=0+"}, "'workers=0+' is none of"},
	{{"127.0.0.2,workers=64"}, "'workers=64' is none of"},
	{{"127.0.0.2,workers=-1"}, "'workers=-1' is none of"},
	{{",rate=1M"}, "expected ADDRESS or INTERFACE"},
};

START_TEST(a_rail_that_cannot_be_is_refused_by_name)
{
	struct wb__rails r;
	struct wb_err err = {0};

	ck_assert_int_lt(find(refused[_i].named, &r, &err), 0);
	ck_assert_msg(strstr(err.msg, refused[_i].says) != NULL, "%s", err.msg);
}
END_TEST

START_TEST(a_rail_is_an_address_with_a_rate_a_node_and_workers)
{
	static const char *const named[] = {
		"127.0.0.2,rate=5M,numa=1,workers=0+3", "127.0.0.3", "lo", NULL};
	struct wb__rails r;
	struct wb_err err = {0};

	ck_assert_msg(!find(named, &r, &err), "%s", err.msg);
	ck_assert(r.is_named && r.n == 3);
	ck_assert_str_eq(r.rail[0].addr, "127.0.0.2");
	ck_assert_uint_eq(r.rail[0].bytes_per_s, 5000000);
	ck_assert_int_eq(r.rail[0].numa, 1);
	ck_assert_uint_eq(r.rail[0].places, 9);
	ck_assert_uint_eq(r.rail[1].bytes_per_s, 7); /* --rail-rate */
	ck_assert_int_eq(r.rail[1].numa, WB_NUMA_UNKNOWN);
	ck_assert_uint_eq(r.rail[1].places, 0);
	ck_assert_str_eq(r.rail[2].addr, "127.0.0.1"); /* of the family asked for */
	ck_assert_str_eq(r.rail[2].interface, "lo");
}
END_TEST

START_TEST(rails_that_are_only_counted_share_an_address_and_all_workers)
{
	static const char *const none[] = {NULL};
	struct wb__rails_worker w[2] = {{.role = WB_ROLE_TRAINER}, {.role = WB_ROLE_TRAINER}};
	struct wb__rails r;
	struct wb_err err = {0};

	ck_assert_int_eq(find(none, &r, &err), 0);
	ck_assert(!r.is_named && r.n == 3);
	ck_assert_str_eq(r.rail[2].addr, "10.0.0.9");
	wb__rails_share(&r, w, 2);
	ck_assert(!w[0].rails && !w[1].rails);
}
END_TEST

#define N (-1) /* not known */

/* Workers in the order of their places; -2 ends a list. */
static const struct {
	const char *what;
	int rail_numa[9], worker_numa[9];
	uint64_t places[8];
	uint32_t rails[8];
} shares[] = {
	{"a rail each", {N, N, N, N, -2}, {N, N, N, N, -2}, {0}, {1, 2, 4, 8}},
	{"two workers a rail", {N, N, -2}, {N, N, N, N, -2}, {0}, {1, 2, 1, 2}},
	{"two rails a worker", {N, N, N, N, -2}, {N, N, -2}, {0}, {5, 10}},
	{"no rail is left over", {N, N, N, -2}, {N, N, -2}, {0}, {5, 2}},
	{"one worker has all, which is said by 0", {N, N, -2}, {N, -2}, {0}, {0}},
	{"near ones", {1, 1, 0, 0, -2}, {0, 0, 1, 1, -2}, {0}, {4, 8, 1, 2}},
	{"near ones, two a rail", {1, 0, -2}, {0, 0, 1, 1, -2}, {0}, {2, 2, 1, 1}},
	{"a node without workers", {0, 1, -2}, {0, 0, -2}, {0}, {0, 1}},
	{"nodes of workers without rails", {0, 0, -2}, {0, 1, -2}, {0}, {0, 0}},
	{"not known where workers are", {0, 1, -2}, {N, N, -2}, {0}, {1, 2}},
	{"not known where some rails are", {0, N, -2}, {0, 1, -2}, {0}, {1, 2}},
	{"named", {N, N, N, -2}, {N, N, N, -2}, {4, 2, 1}, {4, 2, 1}},
	{"named for one, the rest go round", {N, N, N, -2}, {N, N, N, -2}, {0, 1, 0}, {2, 1, 4}},
	{"named for two of one rail", {N, N, -2}, {N, N, -2}, {3, 0}, {0, 1}},
};

START_TEST(each_rail_belongs_to_workers_near_it_or_in_turns)
{
	struct wb__rails_worker w[8] = {{0}};
	struct wb__rails r = {.is_named = true};
	uint32_t n = 0;

	for (; shares[_i].rail_numa[r.n] != -2; r.n++)
		r.rail[r.n] = (struct wb__rail){
			.numa = shares[_i].rail_numa[r.n], .places = shares[_i].places[r.n]};
	for (; shares[_i].worker_numa[n] != -2; n++)
		w[n] = (struct wb__rails_worker){.role = WB_ROLE_TRAINER,
			.rank = (int64_t)n,
			.numa = shares[_i].worker_numa[n]};
	wb__rails_share(&r, w, n);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_msg(w[i].rails == shares[_i].rails[i], "%s: worker %u has %#x",
			shares[_i].what, i, w[i].rails);
}
END_TEST

/* Those of one GPU have one place, whatever they came as. */
START_TEST(trainers_and_rollouts_have_places_each_by_engine_and_rank)
{
	struct wb__rails_worker w[] = {
		{.role = WB_ROLE_ROLLOUT, .engine = "b", .rank = 0, .id = 1, .numa = N},
		{.role = WB_ROLE_TRAINER, .rank = 9, .id = 2, .numa = N},
		{.role = WB_ROLE_ROLLOUT, .engine = "a", .rank = 5, .id = 3, .numa = N},
		{.role = WB_ROLE_TRAINER, .rank = 8, .id = 4, .numa = N},
		{.role = WB_ROLE_ROLLOUT, .engine = "a", .rank = 4, .id = 5, .numa = N},
	};
	static const uint32_t by_id[] = {0, 4, 2, 2, 1, 1};
	struct wb__rails r = {.is_named = true, .n = 3};

	for (int i = 0; i < 3; i++)
		r.rail[i].numa = N;
	wb__rails_share(&r, w, WB_ARRAY_SIZE(w));
	for (uint32_t i = 0; i < WB_ARRAY_SIZE(w); i++)
		if (w[i].role == WB_ROLE_ROLLOUT)
			ck_assert_uint_eq(w[i].rails, by_id[w[i].id]);
	ck_assert_uint_eq(w[0].id, 4); /* put in order */
	ck_assert_uint_eq(w[0].rails, 5);
	ck_assert_uint_eq(w[1].rails, 2);
}
END_TEST

/* Whose rate it is, the interface's or the cap's. */
START_TEST(an_interface_has_a_number_where_it_sets_the_rate)
{
	struct wb__rail r = {.addr = "10.0.0.1", .link_bytes_per_s = 100}, other = r;
	uint64_t nic = wb__rail_nic(&r);

	ck_assert_uint_ne(nic, 0);
	r.bytes_per_s = 200;
	ck_assert_uint_eq(wb__rail_nic(&r), nic);
	snprintf(other.addr, sizeof(other.addr), "10.0.0.2");
	ck_assert_uint_ne(wb__rail_nic(&other), nic);
	r.bytes_per_s = 50;
	ck_assert_uint_eq(wb__rail_nic(&r), 0);
	r.link_bytes_per_s = 0; /* of no interface that is known */
	ck_assert_uint_eq(wb__rail_nic(&r), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rails");
	TCase *t = tcase_create("rails");

	tcase_add_loop_test(
		t, a_rail_that_cannot_be_is_refused_by_name, 0, (int)WB_ARRAY_SIZE(refused));
	tcase_add_test(t, a_rail_is_an_address_with_a_rate_a_node_and_workers);
	tcase_add_test(t, rails_that_are_only_counted_share_an_address_and_all_workers);
	tcase_add_loop_test(
		t, each_rail_belongs_to_workers_near_it_or_in_turns, 0, (int)WB_ARRAY_SIZE(shares));
	tcase_add_test(t, trainers_and_rollouts_have_places_each_by_engine_and_rank);
	tcase_add_test(t, an_interface_has_a_number_where_it_sets_the_rate);
	suite_add_tcase(s, t);
	return fx_run(s);
}
