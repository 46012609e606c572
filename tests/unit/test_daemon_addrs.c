/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses an agent tells others, and which of a peer's it dials, in which order. */
#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/addr.h"
#include "daemon/roster.h"
#include "tests/common/fx_check.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct wb__addrs of(const char *list)
{
	struct wb__addrs a = {0};
	struct wb_err err = {0};

	ck_assert_msg(!*list || wb__addrs_parse(list, &a, &err) == 0, "%s", err.msg);
	return a;
}

static const char *text(const struct wb__addrs *a)
{
	static char out[WB__ADDRS_MAX * WB__ADDR_MAX];
	const char *list[WB__ADDRS_MAX];

	for (uint32_t i = 0; i < a->n; i++)
		list[i] = a->a[i];
	return wb__addrs_text(list, a->n, out, sizeof(out));
}

static const struct {
	const char *list, *is; /* or what the error says */
	int rc;
} lists[] = {
	{"10.0.0.1", "IPv4 10.0.0.1", 0},
	{"10.0.0.1,fd00::1", "IPv4 10.0.0.1, IPv6 fd00::1", 0},
	{"fd00:0:0::1,10.0.0.1,fd00::1", "IPv6 fd00::1, IPv4 10.0.0.1", 0}, /* each once */
	{"::1", "IPv6 ::1", 0},
	{"10.0.0.1,", "'10.0.0.1,' is not HOST[,HOST]...", -EINVAL},
	{",10.0.0.1", "is not HOST[,HOST]...", -EINVAL},
	{"10.0.0.1,no such host", "the name no such host has no address", -ENOENT},
	{"10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8,10.0.0.9",
		"more than 8 addresses", -EINVAL},
};

START_TEST(a_list_of_addresses_is_taken_or_what_is_wrong_is_said)
{
	struct wb_err err = {0};
	struct wb__addrs a;

	ck_assert_int_eq(wb__addrs_parse(lists[_i].list, &a, &err), lists[_i].rc);
	if (lists[_i].rc)
		ck_assert_msg(strstr(err.msg, lists[_i].is) != NULL, "%s", err.msg);
	else
		ck_assert_str_eq(text(&a), lists[_i].is);
}
END_TEST

static const struct {
	const char *mine, *theirs[4], *dialled;
} choices[] = {
	{"10.0.0.1", {"10.0.0.2"}, "IPv4 10.0.0.2"},
	{"fd00::1", {"fd00::2"}, "IPv6 fd00::2"},
	/* Own first family first, whatever the peer likes best. */
	{"10.0.0.1,fd00::1", {"fd00::2", "10.0.0.2"}, "IPv4 10.0.0.2, IPv6 fd00::2"},
	{"fd00::1,10.0.0.1", {"10.0.0.2", "fd00::2"}, "IPv6 fd00::2, IPv4 10.0.0.2"},
	/* One side has one family. */
	{"10.0.0.1", {"fd00::2", "10.0.0.2"}, "IPv4 10.0.0.2"},
	{"fd00::1", {"10.0.0.2", "fd00::2"}, "IPv6 fd00::2"},
	{"10.0.0.1,fd00::1", {"fd00::2"}, "IPv6 fd00::2"},
	{"10.0.0.1,fd00::1", {"10.0.0.2"}, "IPv4 10.0.0.2"},
	/* None in common. */
	{"10.0.0.1", {"fd00::2"}, ""},
	{"fd00::1", {"10.0.0.2"}, ""},
	/* Several of a family keep their order. */
	{"10.0.0.1,fd00::1", {"10.0.0.3", "fd00::2", "10.0.0.2"},
		"IPv4 10.0.0.3, IPv4 10.0.0.2, IPv6 fd00::2"},
	/* What is no address is nobody's. */
	{"10.0.0.1", {"here", "10.0.0.2", "", "10.0.0.256"}, "IPv4 10.0.0.2"},
	{"", {"10.0.0.2"}, ""},
};

START_TEST(a_peer_is_dialled_in_a_family_that_both_have)
{
	struct wb__addrs mine = of(choices[_i].mine), to;
	uint32_t n = 0;

	while (n < 4 && choices[_i].theirs[n])
		n++;
	wb__addrs_choose(&mine, choices[_i].theirs, n, &to);
	ck_assert_str_eq(text(&to), choices[_i].dialled);
}
END_TEST

static const struct {
	const char *endpoint, *from, *to, *is;
} rehosted[] = {
	{"10.0.0.1:7444", "10.0.0.1", "fd00::1", "[fd00::1]:7444"},
	{"[fd00::1]:1,[fd00::1]:2", "fd00::1", "10.0.0.1", "10.0.0.1:1,10.0.0.1:2"},
	{"10.0.0.1:1,10.0.0.1:1", "10.0.0.1", "10.0.0.2", "10.0.0.2:1,10.0.0.2:1"},
	{"10.0.0.11:1,10.0.0.1:2", "10.0.0.1", "::1", "10.0.0.11:1,[::1]:2"},
	{"unix:@x", "10.0.0.1", "::1", "unix:@x"},
	{"verbs:10.0.0.1:1", "10.0.0.1", "::1", "verbs:[::1]:1"},
	{"", "10.0.0.1", "::1", ""},
};

START_TEST(an_endpoint_gets_another_address_in_brackets_where_it_needs_them)
{
	char out[64];

	ck_assert_int_eq(wb__addr_rehost(rehosted[_i].endpoint, rehosted[_i].from, rehosted[_i].to,
				 out, sizeof(out)),
		0);
	ck_assert_str_eq(out, rehosted[_i].is);
	ck_assert_int_eq(wb__addr_rehost("1.1.1.1:7444", "1.1.1.1", "fd00::1", out, 14), -ENOSPC);
}
END_TEST

/* ---- in a plan ---- */

/* A trainer and two engines of one worker each, every one at an agent of its own. */
static struct wb_plan_worker workers[3] = {{.role = WB_ROLE_TRAINER},
	{.role = WB_ROLE_ROLLOUT, .engine = 0, .domain = 1},
	{.role = WB_ROLE_ROLLOUT, .engine = 1, .domain = 2}};
static uint32_t numbers[] = {0, 1, 2};
static uint32_t over_shm = UINT32_MAX; /* the agent that does not use tcp */
static const uint32_t *rails_of_a; /* two rails, of which these are its worker's; NULL = not said */

static const char *const *ways[3]; /* of each agent: one beside bulk */
static const char *allowed;
static bool is_encrypted;

/* The roster's own. */
static struct wb_plan *make_plan(void)
{
	struct wb_plan *plan = wb_zalloc(1, sizeof(*plan));

	plan->n_worker = 3;
	plan->worker = wb_memdup(workers, sizeof(workers));
	return plan;
}

static int roster_of(const char *me, const char *mine, const char *const hosts[3][2],
	struct wb_roster **r, struct wb_err *err)
{
	static const char *const names[] = {"t", "a", "b"}, *const engines[] = {"e0", "e1"};
	static char key[65], bulk[3][64];
	struct wb_p_endpoint e[3] = {0};
	struct wb__addrs addrs = of(mine);
	struct wb_p_object o = {
		.transfer_deadline_ns = 1, .allowed = allowed, .encrypted = is_encrypted};
	struct wb_msg_plan m = {.object = "n/o",
		.key = key,
		.agents = e,
		.n_agents = 3,
		.engines = (void *)(uintptr_t)engines,
		.n_engines = 2};
	struct wb_object_id id = wb_object_id_of(0x0123456789abcdef);
	struct wb__roster_in in = {me, &o, &id, &m, &addrs, 1};

	memset(key, 'a', 64);
	for (uint32_t i = 0; i < 3; i++) {
		wb__addr_join(hosts[i][0], 7, bulk[i], sizeof(bulk[i]));
		if (i == over_shm)
			snprintf(bulk[i], sizeof(bulk[i]), "unix:@weights");
		if (i == 1 && rails_of_a)
			snprintf(bulk[i], sizeof(bulk[i]), "10.1.0.2:7,10.2.0.2:7");
		e[i] = (struct wb_p_endpoint){.agent = names[i],
			.host = hosts[i][0],
			.port = 7,
			.bulk = bulk[i],
			.workers = &numbers[i],
			.n_workers = 1,
			.ids = &numbers[i],
			.n_ids = 1};
		e[i].ways = (void *)(uintptr_t)ways[i];
		e[i].n_ways = ways[i] ? 1 : 0;
		e[i].rails = i == 1 ? rails_of_a : NULL;
		e[i].n_rails = e[i].rails ? 1 : 0;
		if (hosts[i][1]) {
			e[i].hosts = (void *)(uintptr_t)hosts[i];
			e[i].n_hosts = 2;
		}
	}
	return wb__roster_create(&in, make_plan(), r, err);
}

/* Engines that have nothing to say to each other need no common family. */
START_TEST(a_trainer_of_both_families_joins_engines_of_one_each)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", "fd00::1"}, {"10.0.0.2", NULL}, {"fd00::3", NULL}};
	struct wb_err err = {0};
	struct wb_roster *r;

	ck_assert_msg(!roster_of("t", "10.0.0.1,fd00::1", hosts, &r, &err), "%s", err.msg);
	ck_assert_str_eq(r->agent[1].control, "10.0.0.2:7");
	ck_assert_str_eq(r->agent[2].control, "[fd00::3]:7");
	ck_assert_str_eq(r->agent[2].bulk, "[fd00::3]:7");
	ck_assert(!r->agent[1].is_foreign && !r->agent[2].is_foreign);
	wb_roster_put(r);
	ck_assert_msg(!roster_of("b", "fd00::3", hosts, &r, &err), "%s", err.msg);
	ck_assert_str_eq(r->agent[0].control, "[fd00::1]:7");
	ck_assert_str_eq(r->agent[0].bulk, "[fd00::1]:7");
	ck_assert_uint_eq(r->agent[0].n_addr, 0);
	ck_assert(r->agent[1].is_foreign);
	wb_roster_put(r);
}
END_TEST

START_TEST(of_two_common_families_each_has_its_endpoint)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", "fd00::1"}, {"10.0.0.2", "fd00::2"}, {"10.0.0.3", "fd00::3"}};
	struct wb_err err = {0};
	struct wb_roster *r;

	ck_assert_msg(!roster_of("a", "fd00::2,10.0.0.2", hosts, &r, &err), "%s", err.msg);
	ck_assert_str_eq(r->agent[0].control, "[fd00::1]:7");
	ck_assert_str_eq(r->agent[0].bulk, "[fd00::1]:7");
	ck_assert_uint_eq(r->agent[0].n_addr, 2);
	ck_assert_str_eq(r->agent[0].addr[0], "fd00::1");
	ck_assert_str_eq(r->agent[0].addr[1], "10.0.0.1");
	ck_assert_str_eq(r->agent[0].more_bulk[0], "10.0.0.1:7");
	wb_roster_put(r);
}
END_TEST

START_TEST(agents_without_a_common_family_are_named_with_those_they_have)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", NULL}, {"10.0.0.2", NULL}, {"fd00::3", "fd00::4"}};
	struct wb_err err = {0};
	struct wb_roster *r;

	ck_assert_int_eq(roster_of("t", "10.0.0.1", hosts, &r, &err), -EAFNOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err.msg,
		"agent t (IPv4 10.0.0.1) and agent b (IPv6 fd00::3, IPv6 fd00::4) have no address "
		"family in common"));
	ck_assert_ptr_null(r);
	/* Those who have nothing to do with it are ready. */
	ck_assert_msg(!roster_of("a", "10.0.0.2", hosts, &r, &err), "%s", err.msg);
	wb_roster_put(r);
}
END_TEST

START_TEST(agents_of_two_transports_are_named_with_those_they_have)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", NULL}, {"10.0.0.2", NULL}, {"10.0.0.3", NULL}};
	struct wb_err err = {0};
	struct wb_roster *r;

	over_shm = 2;
	ck_assert_int_eq(roster_of("a", "10.0.0.2", hosts, &r, &err), -EPROTONOSUPPORT);
	ck_assert_str_eq(err.msg,
		"agent a moves weights over tcp and agent b over shm: start all agents of an "
		"object with the same --transport");
	ck_assert_ptr_null(r);
	ck_assert_int_eq(roster_of("b", "10.0.0.3", hosts, &r, &err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(
		strstr(err.msg, "agent b moves weights over shm and agent t over tcp"));
	over_shm = UINT32_MAX;
}
END_TEST

/* The better way stands before that which every agent knows, each at the address dialled. */
START_TEST(an_agent_of_several_transports_is_dialled_by_any)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", "fd00::1"}, {"10.0.0.2", "fd00::2"}, {"10.0.0.3", NULL}};
	static const char *const rdma[] = {"verbs:10.0.0.1:7"},
				 *const far[] = {"unix:@wb-00000000000000aa-0000000000000001"};
	static const char *const near[] = {"unix:@wb-00000000000000ab-0000000000000001"};
	struct wb_err err = {0};
	struct wb_roster *r;

	ways[0] = rdma;
	ck_assert_msg(!roster_of("a", "fd00::2,10.0.0.2", hosts, &r, &err), "%s", err.msg);
	ck_assert_str_eq(r->agent[0].bulk, "verbs:[fd00::1]:7;[fd00::1]:7");
	ck_assert_str_eq(r->agent[0].more_bulk[0], "verbs:10.0.0.1:7;10.0.0.1:7");
	ck_assert_ptr_null(r->allowed);
	wb_roster_put(r);
	/* What may not be used does not count, and it is said why. */
	allowed = "shm,verbs";
	ck_assert_int_eq(roster_of("t", "10.0.0.1", hosts, &r, &err), -EPROTONOSUPPORT);
	ck_assert_str_eq(err.msg,
		"agent t moves weights over verbs, tcp and agent a over tcp: start all agents of "
		"an "
		"object with the same --transport, of those that spec.transport allows: shm,verbs");
	/* Nor does memory of another host. */
	ways[0] = far;
	ways[1] = near;
	allowed = "shm";
	ck_assert_int_eq(roster_of("t", "10.0.0.1", hosts, &r, &err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err.msg, "agent t moves weights over shm, tcp and agent a"));
	ways[1] = ways[2] = far;
	ck_assert_msg(!roster_of("t", "10.0.0.1", hosts, &r, &err), "%s", err.msg);
	ck_assert_str_eq(r->allowed, "shm");
	wb_roster_put(r);
	ways[0] = ways[1] = ways[2] = NULL;
	allowed = NULL;
}
END_TEST

START_TEST(a_workers_rails_are_addresses_of_its_agent)
{
	static const char *const hosts[3][2] = {
		{"10.0.0.1", NULL}, {"10.0.0.2", NULL}, {"10.0.0.3", NULL}};
	static const uint32_t second = 2, third = 4;
	struct wb_err err = {0};
	struct wb_roster *r;

	rails_of_a = &second;
	ck_assert_msg(!roster_of("t", "10.0.0.1", hosts, &r, &err), "%s", err.msg);
	ck_assert(!r->worker[0].rails && r->worker[1].rails == second && !r->worker[2].rails);
	wb_roster_put(r);
	rails_of_a = &third;
	ck_assert_int_eq(roster_of("t", "10.0.0.1", hosts, &r, &err), -EBADMSG);
	ck_assert_msg(strstr(err.msg, "agent a: worker 1 has rails 0x4 of those at "
				      "'10.1.0.2:7,10.2.0.2:7'") != NULL,
		"%s", err.msg);
	rails_of_a = NULL;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("addrs");
	TCase *t = tcase_create("addrs");

	tcase_add_loop_test(t, a_list_of_addresses_is_taken_or_what_is_wrong_is_said, 0,
		(int)WB_ARRAY_SIZE(lists));
	tcase_add_loop_test(
		t, a_peer_is_dialled_in_a_family_that_both_have, 0, (int)WB_ARRAY_SIZE(choices));
	tcase_add_loop_test(t, an_endpoint_gets_another_address_in_brackets_where_it_needs_them, 0,
		(int)WB_ARRAY_SIZE(rehosted));
	tcase_add_test(t, a_trainer_of_both_families_joins_engines_of_one_each);
	tcase_add_test(t, of_two_common_families_each_has_its_endpoint);
	tcase_add_test(t, agents_without_a_common_family_are_named_with_those_they_have);
	tcase_add_test(t, agents_of_two_transports_are_named_with_those_they_have);
	tcase_add_test(t, an_agent_of_several_transports_is_dialled_by_any);
	tcase_add_test(t, a_workers_rails_are_addresses_of_its_agent);
	suite_add_tcase(s, t);
	return fx_run(s);
}
