/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that needs more connections or open files than an agent has is refused in a sentence. */
#include "base/base.h"
#include "base/err.h"
#include "base/file.h"
#include "daemon/limits.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define AGENTS_MAX 4096

static struct wb_plan_worker worker[AGENTS_MAX];
static struct wb_roster_agent agent[AGENTS_MAX];
static struct wb_roster_worker who[AGENTS_MAX];
static char bulk[256];

/* An agent a worker: @trainers of them first. */
static int check(uint32_t trainers, uint32_t engines, uint32_t me, uint64_t open_files,
	const struct wb__limits_need *has, struct wb__limits_need *out, struct wb_err *err)
{
	uint32_t n = trainers + engines;
	struct wb_plan plan = {.n_worker = n, .worker = worker};
	struct wb_roster r = {.plan = &plan,
		.agent = agent,
		.worker = who,
		.n_agent = n,
		.n_worker = n,
		.me = me};
	struct wb__limits_in in = {.n_rail = 1, .roster = &r, .has = has, .open_files = open_files};

	ck_assert_uint_le(n, AGENTS_MAX);
	memset(who, 0, sizeof(who)); /* under TSan all tests are of one process */
	for (uint32_t i = 0; i < n; i++) {
		worker[i] = (struct wb_plan_worker){
			.role = i < trainers ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, .domain = i};
		agent[i] = (struct wb_roster_agent){.bulk = bulk};
	}
	memset(err, 0, sizeof(*err));
	return wb__limits_check(&in, out, err);
}

static const struct wb__limits_need none[WB__OBJECTS_MAX];

static const struct {
	const char *bulk;
	uint32_t trainers, engines, me;
	uint64_t conns, files;
} counts[] = {
	/* An engine gets from all others, and all other engines from it. */
	{"10.0.0.1:7444", 2, 140, 2, 2 + 2 * 139, 2 * (2 + 2 * 139) + 2 * 141},
	{"10.0.0.1:7444", 2, 256, 2, 2 + 2 * 255, 2 * (2 + 2 * 255) + 2 * 257},
	/* A trainer gets nothing. */
	{"10.0.0.1:7444", 2, 140, 0, 140, 2 * 140 + 2 * 141},
	/* A socket for each rail of the peer; one on a host. */
	{"10.0.0.1:1,10.0.1.1:1,10.0.2.1:1,10.0.3.1:1", 1, 3, 1, 5, 4 * 5 + 2 * 3},
	{"unix:@a", 1, 3, 1, 5, 5 + 2 * 3},
	{"unix:@a,unix:@b", 1, 1, 1, 1, 2 + 2},
	/* Of several transports that which takes most: any may be the one. */
	{"unix:@a;verbs:10.0.0.1:1;10.0.0.1:1", 1, 3, 1, 5, 2 * 5 + 2 * 3},
	{"unix:@a,unix:@b,unix:@c;10.0.0.1:1", 1, 3, 1, 5, 3 * 5 + 2 * 3},
};

START_TEST(an_agent_counts_all_that_it_may_have_to_reach)
{
	struct wb__limits_need need;
	struct wb_err err;

	snprintf(bulk, sizeof(bulk), "%s", counts[_i].bulk);
	ck_assert_int_eq(check(counts[_i].trainers, counts[_i].engines, counts[_i].me, UINT64_MAX,
				 none, &need, &err),
		0);
	ck_assert_uint_eq(need.conns, counts[_i].conns);
	ck_assert_uint_eq(need.files, counts[_i].files);
}
END_TEST

/* A trainer agent of three workers, two of them on one rail, and an engine's of two with one each.
 */
START_TEST(each_set_of_rails_has_connections_of_its_own)
{
	struct wb_plan plan = {.n_worker = 5, .worker = worker};
	struct wb_roster r = {
		.plan = &plan, .agent = agent, .worker = who, .n_agent = 2, .n_worker = 5, .me = 1};
	struct wb__limits_in in = {
		.n_rail = 4, .roster = &r, .has = none, .open_files = UINT64_MAX};
	struct wb__limits_need need;
	struct wb_err err;

	snprintf(bulk, sizeof(bulk), "10.0.0.1:1,10.0.1.1:1,10.0.2.1:1,10.0.3.1:1");
	for (uint32_t i = 0; i < 5; i++) {
		worker[i] = (struct wb_plan_worker){
			.role = i < 3 ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT, .domain = i >= 3};
		who[i].rails = (uint32_t[]){1, 1, 14, 3, 12}[i];
	}
	agent[0] = agent[1] = (struct wb_roster_agent){.bulk = bulk};
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), 0);
	/* Here {0,1} and {2,3}, there {0} and {1,2,3}: two sockets a rail at least, and two
	 * channels. */
	ck_assert_uint_eq(need.conns, 4);
	ck_assert_uint_eq(need.files, 2 * (2 + 3) + 2);
}
END_TEST

/* shm and verbs have a descriptor each of what workers lend, shm one more for each rail. */
START_TEST(memory_that_transports_keep_open_counts)
{
	struct wb_plan plan = {.n_worker = 2, .worker = worker};
	struct wb_roster r = {
		.plan = &plan, .agent = agent, .worker = who, .n_agent = 2, .n_worker = 2, .me = 1};
	struct wb__limits_in in = {
		.n_rail = 4, .roster = &r, .has = none, .open_files = UINT64_MAX};
	struct wb__limits_need need;
	struct wb_err err = {0};

	snprintf(bulk, sizeof(bulk), "unix:@a;10.0.0.1:1");
	ck_assert_int_eq(check(1, 1, 1, UINT64_MAX, none, &need, &err), 0);
	in.open_files = 256 + 2 * (4 + 2); /* a connection of four, two channels, twice */
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), 0);
	in.n_memory = 10;
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), -EMFILE);
	in.open_files += 10 * (4 + 2);
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), 0);
	in.open_files--;
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), -EMFILE);
}
END_TEST

START_TEST(who_is_absent_or_foreign_is_not_reached)
{
	struct wb_plan plan = {.n_worker = 3, .worker = worker};
	struct wb_roster r = {
		.plan = &plan, .agent = agent, .worker = who, .n_agent = 3, .n_worker = 3, .me = 2};
	struct wb__limits_in in = {.n_rail = 1, .roster = &r, .has = none};
	struct wb__limits_need need;
	struct wb_err err;

	snprintf(bulk, sizeof(bulk), "10.0.0.1:7444");
	ck_assert_int_eq(check(1, 2, 2, UINT64_MAX, none, &need, &err), 0);
	agent[0].is_absent = agent[1].is_foreign = true;
	in.open_files = UINT64_MAX;
	ck_assert_int_eq(wb__limits_check(&in, &need, &err), 0);
	ck_assert_uint_eq(need.conns, 0);
}
END_TEST

START_TEST(a_plan_beyond_the_open_files_is_refused_with_both_figures)
{
	struct wb__limits_need need;
	struct wb_err err;

	snprintf(bulk, sizeof(bulk), "10.0.0.1:7444");
	/* Two plans live at once, and 256 files are for all else. */
	ck_assert_int_eq(check(2, 140, 2, 2 * 842 + 256, none, &need, &err), 0);
	ck_assert_int_eq(check(2, 140, 2, 2 * 842 + 255, none, &need, &err), -EMFILE);
	ck_assert_str_eq(err.msg,
		"the 142 agents of this plan, with the plan that will follow it and other objects "
		"here, take up to 1940 open files, and the hard limit is 1939: raise it (ulimit "
		"-Hn, "
		"LimitNOFILE), or put more workers beside each agent, so that there are fewer "
		"agents");
}
END_TEST

START_TEST(a_plan_beyond_the_connections_is_refused_with_both_figures)
{
	struct wb__limits_need has[WB__OBJECTS_MAX] = {{0}}, need;
	struct wb_err err;

	snprintf(bulk, sizeof(bulk), "10.0.0.1:7444");
	/* The plan that it has of this object is the one before, counted already. */
	has[0].conns = has[0].files = 1u << 20;
	ck_assert_int_eq(check(1, 4095, 1, UINT64_MAX, has, &need, &err), 0);
	for (int i = 1; i < 5; i++)
		has[i] = need;
	ck_assert_int_eq(check(1, 4095, 1, UINT64_MAX, has, &need, &err), -EMFILE);
	ck_assert_ptr_nonnull(strstr(err.msg, "take up to 81890 bulk connections"));
	ck_assert_ptr_nonnull(strstr(err.msg, "an agent has at most 65536"));
}
END_TEST

START_TEST(the_hard_limit_is_taken)
{
	struct rlimit l, was;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	l = was;
	l.rlim_cur = 64;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &l), 0);
	ck_assert_uint_eq(wb_open_files_raise(), was.rlim_max);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &l), 0);
	ck_assert_uint_eq(l.rlim_cur, was.rlim_max);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("limits");
	TCase *t = tcase_create("limits");

	suite_add_tcase(s, t);
	tcase_add_loop_test(
		t, an_agent_counts_all_that_it_may_have_to_reach, 0, (int)WB_ARRAY_SIZE(counts));
	tcase_add_test(t, each_set_of_rails_has_connections_of_its_own);
	tcase_add_test(t, memory_that_transports_keep_open_counts);
	tcase_add_test(t, who_is_absent_or_foreign_is_not_reached);
	tcase_add_test(t, a_plan_beyond_the_open_files_is_refused_with_both_figures);
	tcase_add_test(t, a_plan_beyond_the_connections_is_refused_with_both_figures);
	tcase_add_test(t, the_hard_limit_is_taken);
	return fx_run(s);
}
