/* SPDX-License-Identifier: Apache-2.0 */
/* Staged trainers: versions come from snapshots. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include <check.h>
#include <string.h>

static void scribble(void *ctx, struct world_worker *k)
{
	uint32_t *n = ctx;

	if (k->send_state == WB_APP_SEND_RELEASED && !k->held) {
		memset(k->memory, 0xee, k->bytes);
		++*n;
	}
}

/* Every trainer overwrites its parameters as soon as send_weights returns. */
START_TEST(versions_arrive_from_snapshots)
{
	struct world_opts o = world_shapes[_i];
	struct world w;
	uint32_t n = 0;

	o.trainer_staged = true;
	world_init(&w, &o);
	w.watch = (struct world_watch){.ctx = &n, .send_state = scribble};
	world_plan(&w);
	for (int64_t v = 1; v <= 5; v++) {
		world_check_send(&w, v, 20 * WB_NS_PER_S);
		world_check_hold(&w, v);
	}
	ck_assert_uint_eq(n, 5 * w.n_trainer);
	world_finish(&w);
}
END_TEST

START_TEST(snapshots_hold_each_needed_byte_once)
{
	struct world w;
	struct world_epoch *e;
	struct wb_plan *p;
	struct wb_err err = {0};
	uint64_t sum = 0;

	world_init(&w, &world_shapes[_i]);
	e = world_epoch_make(&w);
	ck_assert_int_eq(wb_plan_decode(e->bytes, e->len, &p, &err), 0);
	for (uint32_t i = 0; i < p->n_worker; i++)
		sum += p->worker[i].role == WB_ROLE_TRAINER ? wb_image_bytes(p, i) : 0;
	ck_assert_uint_ge(sum, p->model_bytes);
	ck_assert_uint_le(sum, p->model_bytes + 63 * (uint64_t)p->n_chunk);
	wb_plan_destroy(p);
	world_finish(&w);
}
END_TEST

/* An engine dies after the trainers went on, perhaps after it committed: its share comes from the
 * snapshots, soon: nobody listens where it was, and a transfer has five seconds here. */
START_TEST(a_snapshot_sends_again_when_parameters_are_gone)
{
	struct world_opts o = world_shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;
	uint32_t n = 0;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	o.trainer_staged = true;
	world_init(&w, &o);
	w.watch = (struct world_watch){.ctx = &n, .send_state = scribble};
	world_plan(&w);
	world_send(&w, 2);
	world_run_for(&w, 50000 + wb_rng_below(&rng, 1500000));
	world_kill_agent(&w, world_agent_of_engine(&w, 1));
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_str_eq(w.last_result, "Succeeded");
	world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

/* close() and exit right after send_weights: the engines commit all the same. */
START_TEST(trainers_may_exit_once_their_snapshot_is_taken)
{
	struct world_opts o = world_shapes[_i];
	struct world w;
	uint32_t n = 0;

	o.trainer_staged = true;
	world_init(&w, &o);
	w.watch = (struct world_watch){.ctx = &n, .send_state = scribble};
	world_plan(&w);
	world_send(&w, 1);
	while (n < w.n_trainer)
		world_run_for(&w, 2000);
	for (uint32_t i = 0; i < w.n_trainer; i++)
		world_kill_worker(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	world_check_hold(&w, 1);
	ck_assert_str_eq(w.last_result, "Succeeded");
	world_finish(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("snapshots");
	TCase *tc = tcase_create("world");
	tcase_add_loop_test(tc, versions_arrive_from_snapshots, 0, WORLD_SHAPES);
	tcase_add_loop_test(tc, snapshots_hold_each_needed_byte_once, 0, WORLD_SHAPES);
	fx_add_points(tc, a_snapshot_sends_again_when_parameters_are_gone, 0, 60);
	tcase_add_loop_test(tc, trainers_may_exit_once_their_snapshot_is_taken, 0, WORLD_SHAPES);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
