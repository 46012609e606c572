/* SPDX-License-Identifier: Apache-2.0 */
/* All workers of an engine change at the same poll. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include <check.h>
#include <string.h>

START_TEST(all_workers_of_an_engine_change_at_the_same_poll)
{
	struct world_opts o = world_shapes[4];
	struct world w;

	o.poll_ns = 20 * WB_NS_PER_MS;
	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 20; v++) {
		uint32_t at[8] = {0};

		world_check_send(&w, v, 60 * WB_NS_PER_S);
		for (uint32_t i = w.n_trainer; i < w.n_worker; i++) {
			uint32_t *first = &at[w.worker[i].engine];

			if (!*first)
				*first = w.worker[i].changed_at;
			ck_assert_uint_eq(*first, w.worker[i].changed_at);
		}
	}
	world_finish(&w);
}
END_TEST

/* 4 workers of one engine in 2 pods; true when all changed at the same poll, in each version. */
static bool same_step(const struct world_opts *more, int64_t versions)
{
	struct world_opts o = {.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 1,
		.agents_per_engine = 2,
		.workers_per_agent = 2,
		.scale = 16,
		.poll_ns = 20 * WB_NS_PER_MS,
		.seed = more->seed,
		.naive = more->naive,
		.drift = more->drift};
	struct world w;
	bool same = true;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; same && v <= versions; v++) {
		world_send(&w, v);
		same = world_run(&w, 60 * WB_NS_PER_S) && !strcmp(w.last_result, "Succeeded");
		world_run_for(&w, WB_NS_PER_MS);
		for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
			same &= w.worker[i].version == v &&
				w.worker[i].changed_at == w.worker[w.n_trainer].changed_at;
	}
	world_finish(&w);
	return same;
}

START_TEST(a_thousand_versions_change_at_the_same_poll_without_a_barrier)
{
	struct world_opts o = {.seed = 7};

	ck_assert(same_step(&o, 1000));
}
END_TEST

/* The test above is worth something: without the promise it fails. */
START_TEST(greatest_count_plus_one_without_a_promise_is_not_enough)
{
	struct world_opts o = {.seed = 7, .naive = true};

	ck_assert(!same_step(&o, 1000));
}
END_TEST

START_TEST(workers_in_a_collective_of_their_own_do_not_deadlock)
{
	struct world_opts o = {.seed = 8, .drift = 1};

	ck_assert(same_step(&o, 200));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("steps");
	TCase *tc = tcase_create("world");
	tcase_add_test(tc, all_workers_of_an_engine_change_at_the_same_poll);
	tcase_add_test(tc, a_thousand_versions_change_at_the_same_poll_without_a_barrier);
	tcase_add_test(tc, greatest_count_plus_one_without_a_promise_is_not_enough);
	tcase_add_test(tc, workers_in_a_collective_of_their_own_do_not_deadlock);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
