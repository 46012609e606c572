/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulation tests (tests/common/chaos.h).
 *
 *	test_transfer_chaos			seeds of `make check`, and what they are worth
 *	test_transfer_chaos FIRST COUNT [MODE [HOOK_MS [WIDE]]]	that many seeds; ends with the
 *figures test_transfer_chaos seed N [MODE [HOOK_MS [WIDE]]]	one seed, with its trace on stderr
 *
 * WIDE 1: of the deployments of tests/common/chaos_wide.h.
 */
#include "tests/common/chaos.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/log.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __SANITIZE_THREAD__ /* one thread: nothing to find, and 20 times slower */
#define CHECK_SEEDS 20
#define WIDE_SEEDS 10
#else
#define CHECK_SEEDS 240
#define WIDE_SEEDS 100
#endif
#define A_TEST 10 /* seeds a process */

static struct chaos c; /* large */

/* Runs that once failed; what a seed makes has changed since, the failures have tests of their own
 * where they were found to be bugs (test_transfer_ends, test_transfer_waits, test_transfer_prompt,
 * test_transfer_joint, test_transfer_world, test_transfer_feeds, test_transfer_doubt,
 * test_client_install). */
static const struct {
	uint64_t seed;
	int mode;
} regressions[] = {{389, 0}, {482, 0}, {1103, 0}, {1228, 0}, {1571, 0}, {1665, 0}, {1742, 0},
	{1823, 0}, {1845, 0}, {1872, 0}, {1806, 0}, {2374, 0}, {1588, -1}, {2552, -1}, {2739, -1},
	{2005, -1}, {2871, -1}, {4490, -1}, {5785, -1}, {7519, -1}, {50748, -1}, {51356, -1},
	{51652, -1}, {53406, -1}, {58482, -1}, {56273, -1}, {58399, -1}, {14, 6}, {41, 6}, {173, 6},
	{472, 6}, {1229, 6}, {1546, 6}, {1680, 6}, {1912, 6}, {280, 7}, {2423, 11}, {20561, 6},
	{700662, -1}, {5004155, -1}, {7003024, -1}, {7019307, -1}, {7009900, -1}, {7014727, -1},
	{536, -1}, {685, -1}, {7014506, -1}, {40025, -1}, {41163, -1}, {41616, -1}, {51737, -1},
	{20261128835, -1}, {20261130108, -1}, {20261130410, -1}, {20261130757, -1},
	{20271136124, -1}, {20261136643, -1}, {20271129858, -1}, {30261124197, -1},
	{30271125422, -1}, {40261126687, -1}, {50261126185, -1}, {50261126348, -1},
	{50271125588, -1}, {44171, -1}, {72261131100, -1}, {300000000884, -1}, {310000001535, -1},
	{400000005772, -1}, {540000011321, -1}, {590000003644, -1}, {670000000478, -1},
	{640000011725, -1}, {820000047601, -1}, {880000005616, -1}, {890000051981, -1},
	{890000080718, -1}, {900000042697, -1}, {950000100268, -1}, {958030007223, -1},
	{958030145268, -1}, {958030186899, -1}, {958030010310, -1}, {958230008699, -1},
	{958630162169, -1}, {958830126205, -1}, {960000045882, -1}, {964000026831, -1}};

START_TEST(seeds_keep_the_invariants)
{
	for (uint64_t s = (uint64_t)_i * A_TEST; s < (uint64_t)(_i + 1) * A_TEST; s++) {
		struct chaos_opts o = {.seed = 1 + s, .mode = -1};

		ck_assert_msg(
			chaos_run(&c, &o), "seed %llu: %s", (unsigned long long)o.seed, c.wrong);
	}
}
END_TEST

START_TEST(seeds_that_failed_once_pass)
{
	struct chaos_opts o = {.seed = regressions[_i].seed, .mode = regressions[_i].mode};

	ck_assert_msg(chaos_run(&c, &o), "seed %llu: %s", (unsigned long long)o.seed, c.wrong);
}
END_TEST

/* Of these, runs that once failed. */
static const uint64_t wide_regressions[] = {90261125867, 11126113521, 951000000117, 951000000444,
	952000000054, 952000000063, 952000000113, 953000000747, 953000005594, 954000001209,
	955000000972, 959700002732, 960000045882};

START_TEST(seeds_of_wider_worlds_that_failed_once_pass)
{
	struct chaos_opts o = {.seed = wide_regressions[_i], .mode = -1, .wide = true};

	ck_assert_msg(chaos_run(&c, &o), "seed %llu: %s; world: %s", (unsigned long long)o.seed,
		c.wrong, c.says);
}
END_TEST

START_TEST(seeds_of_wider_worlds_keep_the_invariants)
{
	for (uint64_t s = (uint64_t)_i * A_TEST; s < (uint64_t)(_i + 1) * A_TEST; s++) {
		struct chaos_opts o = {.seed = 1 + s, .mode = -1, .wide = true};

		ck_assert_msg(chaos_run(&c, &o), "seed %llu: %s; world: %s",
			(unsigned long long)o.seed, c.wrong, c.says);
	}
}
END_TEST

/* One waited for chunks of another that had given up; one was read from when it was gone. */
START_TEST(engines_of_one_pod_keep_the_invariants)
{
	static const struct chaos_opts failed[] = {
		{.seed = 41, .mode = 6}, {.seed = 2936, .mode = -1}};

	for (uint64_t s = 0; s < A_TEST; s++) {
		struct chaos_opts o = {.seed = 1 + s + (uint64_t)_i * A_TEST, .mode = -1};

		if (_i == 0 && s < WB_ARRAY_SIZE(failed))
			o = failed[s];
		o.one_pod = true;
		ck_assert_msg(
			chaos_run(&c, &o), "seed %llu: %s", (unsigned long long)o.seed, c.wrong);
	}
}
END_TEST

/* Longer than the deadline of a step allows, too: updates end, by name, and the engine is well
 * again when hooks are short. */
START_TEST(hooks_that_take_long_end_updates_and_no_engine)
{
	static const struct chaos_opts failed[] = {{.seed = 6100422, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 6100508, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 6100586, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 6103854, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 6100745, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 91261130597, .hook_ns = 250 * WB_NS_PER_MS},
		{.seed = 6100152, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 6103043, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 6103144, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 520000000398, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 520000002738, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 550000004336, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 550000004394, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 550000006600, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 550000006838, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 580000001090, .hook_ns = 2 * WB_NS_PER_S},
		{.seed = 580000001627, .hook_ns = 2 * WB_NS_PER_S}};

	for (uint64_t s = 0; s < (_i ? A_TEST : WB_ARRAY_SIZE(failed)); s++) {
		struct chaos_opts o = {.seed = 1 + s + (uint64_t)_i * A_TEST,
			.hook_ns = _i % 2 ? 250 * WB_NS_PER_MS : 2 * WB_NS_PER_S};

		if (_i == 0)
			o = failed[s];
		o.mode = -1;
		ck_assert_msg(chaos_run(&c, &o), "seed %llu, hooks of %llu ms: %s",
			(unsigned long long)o.seed, (unsigned long long)(o.hook_ns / WB_NS_PER_MS),
			c.wrong);
	}
}
END_TEST

START_TEST(a_seed_replays_exactly)
{
	struct chaos_opts o = {.seed = 77 + (uint64_t)_i, .mode = -1, .wide = _i % 2};
	uint64_t digest, events;

	chaos_run(&c, &o);
	digest = c.digest;
	events = c.events;
	chaos_run(&c, &o);
	ck_assert_uint_eq(events, c.events);
	ck_assert_uint_eq(digest, c.digest);
	o.seed++;
	chaos_run(&c, &o);
	ck_assert_uint_ne(digest, c.digest);
}
END_TEST

static int run_seeds(const struct chaos_opts *of, uint64_t count)
{
	uint64_t first = of->seed;
	uint64_t committed = 0, failed_runs = 0, faults = 0, torn = 0, updates = 0, feeds = 0;
	uint64_t events = 0, failed = 0, doubts = 0, resumed = 0, superseded = 0, left = 0;
	uint64_t worlds[CHAOS_WIDE] = {0}, fired[CHAOS_WIDE] = {0};
	time_t begin = time(NULL);

	for (uint64_t s = first; s < first + count; s++) {
		struct chaos_opts o = *of;

		o.seed = s;
		if (!chaos_run(&c, &o)) {
			printf("FAIL seed %llu: %s%s%s\n", (unsigned long long)s, c.wrong,
				o.wide ? "; world: " : "", o.wide ? c.says : "");
			fflush(stdout);
			failed++;
		}
		committed += c.n_committed;
		failed_runs += c.n_aborted;
		superseded += c.n_superseded;
		faults += c.n_fault;
		torn += c.n_torn;
		updates += c.n_updates;
		feeds += c.n_feed;
		doubts += c.n_doubt;
		resumed += c.n_resumed;
		left += c.n_left;
		events += c.events;
		for (int i = 0; i < CHAOS_WIDE; i++) {
			worlds[i] += c.wide >> i & 1;
			fired[i] += c.wide_fired[i];
		}
	}
	for (int i = 0; i < CHAOS_WIDE && of->wide; i++)
		printf("wide: %s: in %llu worlds, %llu %s\n", chaos_wide_name((enum chaos_wide)i),
			(unsigned long long)worlds[i], (unsigned long long)fired[i],
			chaos_wide_unit((enum chaos_wide)i));
	printf("seeds %llu to %llu: %llu events, %llu faults, %llu transfers committed, %llu not "
	       "(%llu superseded), "
	       "%llu updates of workers, %llu torn, %llu feeds, %llu in doubt, %llu resumed, "
	       "%llu trainers left early, %ld s\n",
		(unsigned long long)first, (unsigned long long)(first + count - 1),
		(unsigned long long)events, (unsigned long long)faults,
		(unsigned long long)committed, (unsigned long long)failed_runs,
		(unsigned long long)superseded, (unsigned long long)updates,
		(unsigned long long)torn, (unsigned long long)feeds, (unsigned long long)doubts,
		(unsigned long long)resumed, (unsigned long long)left, (long)(time(NULL) - begin));
	printf("%llu passed, %llu failed, 0 skipped\n", (unsigned long long)(count - failed),
		(unsigned long long)failed);
	return failed ? 1 : 0;
}

static int run_one(struct chaos_opts o)
{
	bool ok;

	o.is_tracing = true;
	ok = chaos_run(&c, &o);
	printf("seed %llu: %s; %llu events, %u faults, digest %016llx\n",
		(unsigned long long)o.seed, ok ? "ok" : c.wrong, (unsigned long long)c.events,
		c.n_fault, (unsigned long long)c.digest);
	for (int i = 0; i < CHAOS_WIDE; i++)
		if (c.wide >> i & 1)
			printf("wide: %s: %llu %s\n", chaos_wide_name((enum chaos_wide)i),
				(unsigned long long)c.wide_fired[i],
				chaos_wide_unit((enum chaos_wide)i));
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	bool is_one = argc > 2 && !strcmp(argv[1], "seed");
	struct chaos_opts o = {
		.seed = argc > 2 ? strtoull(argv[is_one ? 2 : 1], NULL, 0) : 0,
		.mode = argc > 3 ? atoi(argv[3]) : -1,
		.hook_ns = argc > 4 ? strtoull(argv[4], NULL, 0) * WB_NS_PER_MS : 0,
		.wide = argc > 5 && atoi(argv[5]),
	};
	TCase *tc;
	Suite *s;

	wb_log_level_max = WB_LOG_ERROR;
	if (is_one)
		return run_one(o);
	if (argc > 2)
		return run_seeds(&o, strtoull(argv[2], NULL, 0));
	s = suite_create("chaos");
	tc = tcase_create("chaos");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_seed_replays_exactly, 0, 5);
	tcase_add_loop_test(tc, engines_of_one_pod_keep_the_invariants, 0, 4);
	tcase_add_loop_test(tc, hooks_that_take_long_end_updates_and_no_engine, 0, 6);
	tcase_add_loop_test(tc, seeds_that_failed_once_pass, 0,
		(int)(sizeof(regressions) / sizeof(regressions[0])));
	tcase_add_loop_test(tc, seeds_of_wider_worlds_that_failed_once_pass, 0,
		(int)WB_ARRAY_SIZE(wide_regressions));
	fx_add_points(tc, seeds_of_wider_worlds_keep_the_invariants, 0, WIDE_SEEDS / A_TEST);
	fx_add_points(tc, seeds_keep_the_invariants, 0, CHECK_SEEDS / A_TEST);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
