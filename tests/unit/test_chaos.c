/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulation tests (tests/common/chaos.h).
 *
 *	test_chaos			seeds of `make check`, and what they are worth
 *	test_chaos FIRST COUNT [MODE]	that many seeds; ends with the figures
 *	test_chaos seed N [MODE]	one seed, with its trace on stderr
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
#else
#define CHECK_SEEDS 240
#endif
#define A_TEST 10 /* seeds a process */

static struct chaos c; /* large */

/* Runs that once failed; what a seed makes has changed since, the failures have tests of their own
 * where they were found to be bugs (test_waits, test_prompt, test_joint, test_world,
 * test_client_install). */
static const struct {
	uint64_t seed;
	int mode;
} regressions[] = {{389, 0}, {482, 0}, {1103, 0}, {1228, 0}, {1571, 0}, {1665, 0}, {1742, 0},
	{1823, 0}, {1845, 0}, {1872, 0}, {1806, 0}, {2374, 0}, {1588, -1}, {2552, -1}, {2739, -1},
	{2005, -1}, {2871, -1}, {4490, -1}, {5785, -1}, {7519, -1}, {50748, -1}, {51356, -1},
	{51652, -1}, {53406, -1}, {58482, -1}, {56273, -1}, {58399, -1}, {14, 6}, {41, 6}, {173, 6},
	{472, 6}, {1229, 6}, {1546, 6}, {1680, 6}, {1912, 6}, {280, 7}, {2423, 11}, {20561, 6},
	{700662, -1}};

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

START_TEST(a_seed_replays_exactly)
{
	struct chaos_opts o = {.seed = 77 + (uint64_t)_i, .mode = -1};
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

static int run_seeds(uint64_t first, uint64_t count, int mode)
{
	uint64_t committed = 0, failed_runs = 0, faults = 0, torn = 0, updates = 0, feeds = 0;
	uint64_t events = 0, failed = 0, doubts = 0, resumed = 0, superseded = 0;
	time_t begin = time(NULL);

	for (uint64_t s = first; s < first + count; s++) {
		struct chaos_opts o = {.seed = s, .mode = mode};

		if (!chaos_run(&c, &o)) {
			printf("FAIL seed %llu: %s\n", (unsigned long long)s, c.wrong);
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
		events += c.events;
	}
	printf("seeds %llu to %llu: %llu events, %llu faults, %llu transfers committed, %llu not "
	       "(%llu superseded), "
	       "%llu updates of workers, %llu torn, %llu feeds, %llu in doubt, %llu resumed, "
	       "%ld s\n",
		(unsigned long long)first, (unsigned long long)(first + count - 1),
		(unsigned long long)events, (unsigned long long)faults,
		(unsigned long long)committed, (unsigned long long)failed_runs,
		(unsigned long long)superseded, (unsigned long long)updates,
		(unsigned long long)torn, (unsigned long long)feeds, (unsigned long long)doubts,
		(unsigned long long)resumed, (long)(time(NULL) - begin));
	printf("%llu passed, %llu failed, 0 skipped\n", (unsigned long long)(count - failed),
		(unsigned long long)failed);
	return failed ? 1 : 0;
}

static int run_one(uint64_t seed, int mode)
{
	struct chaos_opts o = {.seed = seed, .mode = mode, .is_tracing = true};
	bool ok = chaos_run(&c, &o);

	printf("seed %llu: %s; %llu events, %u faults, digest %016llx\n", (unsigned long long)seed,
		ok ? "ok" : c.wrong, (unsigned long long)c.events, c.n_fault,
		(unsigned long long)c.digest);
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	int mode = argc > 3 ? atoi(argv[3]) : -1;
	TCase *tc;
	Suite *s;

	wb_log_level_max = WB_LOG_ERROR;
	if (argc > 2 && !strcmp(argv[1], "seed"))
		return run_one(strtoull(argv[2], NULL, 0), mode);
	if (argc > 2)
		return run_seeds(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0), mode);
	s = suite_create("chaos");
	tc = tcase_create("chaos");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_seed_replays_exactly, 0, 5);
	tcase_add_loop_test(tc, engines_of_one_pod_keep_the_invariants, 0, 4);
	tcase_add_loop_test(tc, seeds_that_failed_once_pass, 0,
		(int)(sizeof(regressions) / sizeof(regressions[0])));
	tcase_add_loop_test(tc, seeds_keep_the_invariants, 0, CHECK_SEEDS / A_TEST);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
