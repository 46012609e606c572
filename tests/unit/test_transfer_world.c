/* SPDX-License-Identifier: Apache-2.0 */
/* Whole agents over the simulated network: transfers, same step, losses, feeds. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/hash.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct world_opts shapes[] = {
	{.seed = 1,
		.trainer_agents = 1,
		.trainers_per_agent = 1,
		.engines = 1,
		.agents_per_engine = 1,
		.workers_per_agent = 1},
	{.seed = 2,
		.trainer_agents = 2,
		.trainers_per_agent = 2,
		.engines = 2,
		.agents_per_engine = 1,
		.workers_per_agent = 2},
	{.seed = 3,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = 2,
		.agents_per_engine = 2,
		.workers_per_agent = 1},
	{.seed = 4,
		.trainer_agents = 1,
		.trainers_per_agent = 4,
		.engines = 4,
		.agents_per_engine = 1,
		.workers_per_agent = 1},
	{.seed = 5,
		.trainer_agents = 2,
		.trainers_per_agent = 2,
		.engines = 3,
		.agents_per_engine = 2,
		.workers_per_agent = 2,
		.scale = 256},
	/* Runs long enough to go from and into parameters directly, not through slots. */
	{.seed = 6,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = 2,
		.agents_per_engine = 2,
		.workers_per_agent = 1,
		.scale = 1024,
		.chunk_bytes = 16384},
};

#define N_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

/* The synchronisation modes, and with staged rollouts both policies. */
static const struct mode {
	const char *name;
	bool trainer_staged, rollout_staged, all_engines;
} modes[] = {
	{"None, None", false, false, false},
	{"HostMemory, None", true, false, false},
	{"None, HostMemory", false, true, false},
	{"HostMemory, HostMemory", true, true, false},
	{"None, HostMemory, AllEngines", false, true, true},
	{"HostMemory, HostMemory, AllEngines", true, true, true},
};
#define N_MODES ((int)(sizeof(modes) / sizeof(modes[0])))

static struct world_opts with_mode(const struct world_opts *shape, const struct mode *m)
{
	struct world_opts o = *shape;

	o.trainer_staged = m->trainer_staged;
	o.rollout_staged = m->rollout_staged;
	o.all_engines = m->all_engines;
	return o;
}

START_TEST(every_version_arrives_byte_for_byte)
{
	struct world_opts o = with_mode(&shapes[_i % N_SHAPES], &modes[_i / N_SHAPES]);
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 5; v++) {
		world_check_send(&w, v, 20 * WB_NS_PER_S);
		world_check_hold(&w, v);
		ck_assert_str_eq(w.last_result, "Succeeded");
	}
	world_finish(&w);
}
END_TEST

START_TEST(all_workers_of_an_engine_change_at_the_same_poll)
{
	struct world_opts o = shapes[4];
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

/* Kill an engine's agent at a random moment of a transfer: the others commit, the dead one comes
 * back and is fed without a trainer. */
START_TEST(a_lost_engine_is_left_behind_and_fed_when_it_returns)
{
	struct world_opts o = shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;
	struct wb_err err = {0};
	uint32_t dead;
	bool torn;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	world_send(&w, 2);
	world_run_for(&w, 50000 + wb_rng_below(&rng, 1500000));
	dead = world_agent_of_engine(&w, 1);
	world_kill_agent(&w, dead);
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	/* Lost after the trainers were let go, what only it held is lost with it: the other engine
	 * is Torn, says so, and the next transfer repairs it. */
	torn = w.worker[w.n_trainer].n_torn > 0;
	if (torn) {
		ck_assert_str_eq(w.last_result, "Torn");
		ck_assert_msg(
			strstr(w.last_culprit, "has no source left") != NULL, "%s", w.last_culprit);
	} else {
		ck_assert_msg(world_holds(&w, &w.worker[w.n_trainer], 2), "seed %d: %s %s", _i,
			w.last_result, w.last_culprit);
	}
	world_restart(&w, dead);
	world_plan(&w);
	if (torn)
		goto repair;
	wb_transfer_expect_feed(w.agent[dead].core, &world_object, 1);
	ck_assert_int_eq(wb_transfer_feed(w.agent[world_agent_of_engine(&w, 0)].core, &w.epochs->id,
				 1, 0, &err),
		0);
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_check_hold(&w, 2);
repair:
	world_send(&w, 3);
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_check_hold(&w, 3);
	world_finish(&w);
}
END_TEST

/* Engine 1 comes back with nothing and is fed by engine 0, which leaves meanwhile: in order, or
 * with its whole pod.  @others: engines that hold the version too. */
static void feed_without_its_source(struct world *w, int i, uint32_t others)
{
	struct world_opts o = shapes[1];
	struct wb_rng rng = {(uint64_t)i};
	struct wb_err err = {0};
	uint32_t dead;

	o.seed = 100 + (uint64_t)i;
	o.scale = 1024;
	o.engines = 2 + others;
	world_init(w, &o);
	world_plan(w);
	world_check_send(w, 2, 20 * WB_NS_PER_S);
	dead = world_agent_of_engine(w, 1);
	world_kill_agent(w, dead);
	world_run_for(w, 10 * WB_NS_PER_MS);
	world_restart(w, dead);
	world_plan(w);
	for (uint32_t a = 0; a < w->n_agent; a++)
		wb_transfer_seen(w->agent[a].core, &world_object, 1);
	wb_transfer_expect_feed(w->agent[dead].core, &world_object, 1);
	ck_assert_int_eq(wb_transfer_feed(w->agent[world_agent_of_engine(w, 0)].core,
				 &w->epochs->id, 1, 0, &err),
		0);
	while (w->worker[w->n_worker - 1 - others * 2].phase != WORLD_BEGUN)
		world_run_for(w, 1000);
	world_run_for(w, wb_rng_below(&rng, 1000000));
	for (uint32_t k = w->n_trainer; k < w->n_worker; k++)
		if (w->worker[k].engine == 0)
			world_end_worker(w, k, NULL);
	if (i % 2)
		world_kill_agent(w, world_agent_of_engine(w, 0));
	world_run_for(w, WB_NS_PER_S);
}

START_TEST(a_feed_goes_on_from_other_engines_when_its_source_leaves)
{
	struct world w;

	feed_without_its_source(&w, _i, 1 + (uint32_t)_i % 2);
	for (uint32_t k = w.n_trainer; k < w.n_worker; k++)
		if (w.worker[k].engine == 1) {
			ck_assert_msg(world_holds(&w, &w.worker[k], 2), "seed %d: %s %s", _i,
				w.worker[k].why, w.last_culprit);
			ck_assert_uint_eq(w.worker[k].n_torn, 0);
		}
	world_finish(&w);
}
END_TEST

START_TEST(a_feed_that_nobody_can_go_on_with_fails_at_once)
{
	struct world w;

	feed_without_its_source(&w, _i, 0);
	ck_assert_int_eq(w.worker[w.n_worker - 1].phase, WORLD_TORN);
	ck_assert_msg(strstr(w.worker[w.n_worker - 1].why, "has no source left") != NULL, "%s",
		w.worker[w.n_worker - 1].why);
	if (!(_i % 2))
		ck_assert_str_eq(w.last_result, "Torn");
	world_finish(&w);
}
END_TEST

/* A coordinator whose process restarted goes on above the number in its file.  One whose pod is new
 * and that was told nothing begins with a number that has been used: it is refused by name, and the
 * next one is above. */
START_TEST(a_number_is_never_used_twice)
{
	struct world_opts o = with_mode(&shapes[1], &modes[_i / 2]);
	bool is_new = _i % 2;
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++)
		world_check_send(&w, v, 20 * WB_NS_PER_S);
	world_kill_agent(&w, 0);
	w.agent[0].n_file = is_new ? 0 : w.agent[0].n_file;
	world_run_for(&w, 2 * WB_NS_PER_S);
	world_restart(&w, 0);
	world_plan(&w);
	world_check_send(&w, 4, 20 * WB_NS_PER_S);
	ck_assert_str_eq(w.last_result, is_new ? "Aborted" : "Succeeded");
	if (is_new)
		ck_assert_msg(
			strstr(w.last_culprit, "is not above 3") != NULL, "%s", w.last_culprit);
	world_check_hold(&w, is_new ? 3 : 4);
	world_check_send(&w, 5, 20 * WB_NS_PER_S);
	world_check_hold(&w, 5);
	ck_assert_uint_gt(w.last_transfer, 3);
	world_finish(&w);
}
END_TEST

/* All agents were killed: the workers' areas still know the numbers that were used. */
START_TEST(numbers_outlive_all_agents_with_the_areas)
{
	struct world_opts o = with_mode(&shapes[1], &modes[2 + _i]);
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++)
		world_check_send(&w, v, 20 * WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++) {
		world_kill_agent_only(&w, i);
		w.agent[i].n_file = 0;
	}
	world_run_for(&w, 2 * WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++)
		world_start_agent(&w, i);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t i = 0; i < w.n_agent; i++) /* what the operator hears */
		ck_assert_uint_eq(wb_transfer_highest(w.agent[i].core, "default/sim"),
			i < o.trainer_agents ? 0 : 3);
	world_plan(&w);
	world_check_send(&w, 4, 20 * WB_NS_PER_S);
	ck_assert_msg(strstr(w.last_culprit, "is not above 3") != NULL, "%s", w.last_culprit);
	world_check_send(&w, 5, 20 * WB_NS_PER_S);
	world_check_hold(&w, 5);
	world_finish(&w);
}
END_TEST

static uint32_t n_held(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_trainer; i++)
		n += w->worker[i].held;
	return n;
}

/* An engine dies right after the trainers' release, with chunks that only it has.  Without a hold
 * the other one is Torn; with it those chunks are sent again. */
START_TEST(a_hold_sends_again_what_a_lost_engine_alone_had)
{
	struct world_opts o = shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	o.hold = _i % 2;
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	world_send(&w, 2);
	while (w.worker[0].send_state < WB_APP_SEND_RELEASED)
		world_run_for(&w, 2000);
	world_run_for(&w, wb_rng_below(&rng, 20000));
	world_kill_agent(&w, world_agent_of_engine(&w, 1));
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "seed %d: the send hangs", _i);
	world_run_for(&w, 10 * WB_NS_PER_MS);
	ck_assert_uint_eq(w.worker[w.n_trainer].n_torn, o.hold ? 0 : 1);
	ck_assert_str_eq(w.last_result, o.hold ? "Succeeded" : "Torn");
	if (o.hold)
		world_check_hold(&w, 2);
	world_finish(&w);
}
END_TEST

START_TEST(a_hold_lasts_until_release_or_the_last_outcome)
{
	struct world_opts o = shapes[1];
	struct world w;
	bool seen = false;

	o.hold = true;
	o.scale = 256;
	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 4; v++) {
		world_send(&w, v);
		for (int step = 0; step < 5000 && !n_held(&w); step++)
			world_run_for(&w, 2000);
		if (n_held(&w) && v % 2) {
			/* Every worker is let go although the transfer is not over. */
			world_release(&w);
			world_run_for(&w, 20000);
			seen |= w.worker[0].send_state == WB_APP_SEND_RELEASED;
			ck_assert_uint_eq(n_held(&w), 0);
			memset(w.worker[0].memory, 0xee, w.worker[0].bytes);
		}
		ck_assert(world_run(&w, 20 * WB_NS_PER_S));
		world_run_for(&w, WB_NS_PER_MS);
		ck_assert_uint_eq(n_held(&w), 0); /* final: nothing is left to hold */
		world_check_hold(&w, v);
	}
	ck_assert(seen);
	world_finish(&w);
}
END_TEST

/* ---- snapshots ----------------------------------------------------------------------------- */

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
	struct world_opts o = shapes[_i];
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

	world_init(&w, &shapes[_i]);
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
 * snapshots, at the latest when it has not been reached for ten seconds. */
START_TEST(a_snapshot_sends_again_when_parameters_are_gone)
{
	struct world_opts o = shapes[1];
	struct wb_rng rng = {(uint64_t)_i};
	struct world w;
	uint32_t n = 0;

	o.seed = 100 + (uint64_t)_i;
	o.scale = 256;
	o.trainer_staged = true;
	o.transfer_deadline_ns = 20 * WB_NS_PER_S;
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
	struct world_opts o = shapes[_i];
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

/* Half of the chunks come long after the deadline: by then their memory is told torn, or (staged)
 * belongs to the next transfer.  Large chunks, or none would land in parameters by itself: what
 * comes late into a slot is only thrown away. */
START_TEST(late_writes_land_nowhere)
{
	struct world_opts o = with_mode(&shapes[1], &modes[_i]);
	struct wb_sim_fault f = {
		.kind = WB_SIM_DELAY, .items = WB_SIM_DATA, .ppm = 500000, .ns = 3 * WB_NS_PER_S};
	uint64_t was[WORLD_WORKERS] = {0};
	struct world w;

	o.scale = 1024;
	o.chunk_bytes = 16384;
	o.transfer_deadline_ns = 200 * WB_NS_PER_MS;
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 20 * WB_NS_PER_S);
	wb_sim_fault_add(w.net, &f);
	world_send(&w, 2);
	ck_assert_msg(world_run(&w, 60 * WB_NS_PER_S), "the send hangs");
	ck_assert_str_ne(w.last_result, "Succeeded");
	wb_sim_faults_clear(w.net);
	if (o.rollout_staged) { /* the areas are filled again while late chunks are on their way */
		world_check_hold(&w, 1);
		world_send(&w, 3);
		ck_assert(world_run(&w, 60 * WB_NS_PER_S));
		/* Areas are not filled before the late chunks are taken back: that may cost it. */
		if (strcmp(w.last_result, "Succeeded"))
			world_check_hold(&w, 1);
	}
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		was[i] = wb_hash64(w.worker[i].memory, w.worker[i].bytes, 0);
	world_run_for(&w, 5 * WB_NS_PER_S);
	for (uint32_t i = w.n_trainer; i < w.n_worker; i++)
		ck_assert_uint_eq(was[i], wb_hash64(w.worker[i].memory, w.worker[i].bytes, 0));
	world_send(&w, 4);
	ck_assert(world_run(&w, 60 * WB_NS_PER_S));
	world_run_for(&w, 10 * WB_NS_PER_MS);
	world_check_hold(&w, 4);
	world_finish(&w);
}
END_TEST

START_TEST(flipped_bits_on_the_wire_are_caught_and_sent_again)
{
	struct world w;
	struct wb_sim_fault f = {.kind = WB_SIM_FLIP, .items = WB_SIM_DATA, .ppm = 50000};

	world_init(&w, &shapes[2]);
	world_plan(&w);
	wb_sim_fault_add(w.net, &f);
	for (int64_t v = 1; v <= 3; v++) {
		world_check_send(&w, v, 60 * WB_NS_PER_S);
		world_check_hold(&w, v);
	}
	ck_assert_uint_gt(wb_sim_hits(w.net), 0);
	world_finish(&w);
}
END_TEST

START_TEST(one_slot_a_pool_does_not_deadlock)
{
	struct world_opts o = shapes[4];
	struct world w;

	o.arena_bytes = 4 * 2048;
	world_init(&w, &o);
	world_plan(&w);
	world_check_send(&w, 1, 60 * WB_NS_PER_S);
	world_check_hold(&w, 1);
	world_finish(&w);
}
END_TEST

/* Three versions; chunks that arrived over the network. */
static uint64_t three_with_lanes_of(uint32_t depth, const struct mode *mode)
{
	struct world_opts o = with_mode(&shapes[4], mode);
	uint64_t chunks = 0;
	struct world w;

	o.lane_depth = depth;
	o.twins = true;
	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++) {
		world_check_send(&w, v, 60 * WB_NS_PER_S);
		ck_assert_msg(!strcmp(w.last_result, "Succeeded"), "%s %s", w.last_result,
			w.last_culprit);
		world_check_hold(&w, v);
	}
	for (uint32_t a = 0; a < w.n_agent; a++) {
		struct wb_xport_stats s;

		ck_assert_int_eq(wb_xport_rail_stats(w.agent[a].xport, 0, &s), 0);
		chunks += s.rx_chunks;
	}
	world_finish(&w);
	return chunks;
}

/* Each chunk is packed here and put into two places there, and lanes take one to three jobs at a
 * time: nothing is lost, and nothing asked for twice. */
START_TEST(full_lanes_are_waited_for)
{
	const struct mode *mode = &modes[_i % N_MODES];

	ck_assert_uint_eq(three_with_lanes_of(1 + (uint32_t)_i / N_MODES, mode),
		three_with_lanes_of(0, mode));
}
END_TEST

/* Two to four engines pass on what they got to each other, all ways at once, by one slot each. */
START_TEST(engines_relay_both_ways_with_one_slot_a_pool)
{
	struct world_opts o = {.seed = 60 + (uint64_t)_i,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = (uint32_t)_i,
		.agents_per_engine = 1,
		.workers_per_agent = 2,
		.scale = 256,
		.chunk_bytes = 2048,
		.arena_bytes = 4 * 2048};
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++) {
		world_check_send(&w, v, 60 * WB_NS_PER_S);
		world_check_hold(&w, v);
	}
	for (uint32_t e = 0; e < o.engines; e++) {
		struct wb_xport_stats s;

		ck_assert_int_eq(
			wb_xport_rail_stats(w.agent[world_agent_of_engine(&w, e)].xport, 0, &s), 0);
		ck_assert_uint_gt(s.tx_chunks, 0); /* to the others */
		ck_assert_uint_gt(s.rx_chunks, s.tx_chunks / 8);
	}
	world_finish(&w);
}
END_TEST

/* What engine e2's agent does when it is told to receive: nothing. */
static void stop_reading(void *ctx, struct world_agent *a, const char *what, const char *who,
	uint64_t transfer, uint64_t value)
{
	(void)ctx;
	(void)transfer;
	(void)value;
	if (!strcmp(what, "receive") && !strcmp(who, "e2"))
		world_stall_agent(a->world, a->index, 3 * WB_NS_PER_S);
}

START_TEST(a_peer_that_reads_nothing_does_not_stop_other_edges)
{
	struct world_opts o = {.seed = 70,
		.trainer_agents = 2,
		.trainers_per_agent = 1,
		.engines = 3,
		.agents_per_engine = 1,
		.workers_per_agent = 1,
		.scale = 1024,
		.chunk_bytes = 2048,
		.arena_bytes = 16 * 2048,
		.transfer_deadline_ns = 8 * WB_NS_PER_S};
	struct world w;

	world_init(&w, &o);
	world_plan(&w);
	w.watch.trace = stop_reading;
	world_send(&w, 1);
	world_run_for(&w, WB_NS_PER_S);
	for (uint32_t e = 0; e < 2; e++) {
		struct wb_xport_stats s;

		ck_assert_int_eq(
			wb_xport_rail_stats(w.agent[world_agent_of_engine(&w, e)].xport, 0, &s), 0);
		ck_assert_msg(s.rx_chunks > 100, "engine %u got %llu chunks meanwhile", e,
			(unsigned long long)s.rx_chunks);
	}
	ck_assert(w.agent[world_agent_of_engine(&w, 2)].stall_until_ns > world_now(&w));
	w.watch.trace = NULL;
	ck_assert(world_run(&w, 20 * WB_NS_PER_S));
	world_run_for(&w, WB_NS_PER_MS);
	world_check_hold(&w, 1);
	world_finish(&w);
}
END_TEST

/* A bit flips at each place on the way: found by its sum, sent again, and the version is right. */
static const char *const flips[] = {
	"flip=slot:chunk=3", "flip=slot:0.02", "flip=relay:chunk=2", "flip=relay:0.2"};

START_TEST(flipped_bits_are_caught_wherever_they_happen)
{
	struct world_opts o = shapes[2];
	struct world w;

	o.fault = flips[_i];
	o.scale = 256;
	world_init(&w, &o);
	world_plan(&w);
	for (int64_t v = 1; v <= 3; v++) {
		world_check_send(&w, v, 60 * WB_NS_PER_S);
		world_check_hold(&w, v);
	}
	ck_assert_uint_gt(w.n_mismatch, 0);
	world_finish(&w);
}
END_TEST

/* A parameter that goes bad after it was verified: who reads it next tells.  It is repaired from
 * the trainers, or, when they have been let go and nobody else has it, the engine says so at once.
 */
START_TEST(a_parameter_that_goes_bad_is_repaired_or_named)
{
	struct world_opts o = shapes[1];
	uint32_t repaired = 0, named = 0;

	o.workers_per_agent = 1; /* whole matrices: chunks land in the parameters themselves */
	o.scale = 512;
	o.chunk_bytes = 16384;
	for (uint32_t k = 1; k <= 3; k++) { /* those of the first version */
		char fault[40];
		struct world w;

		snprintf(fault, sizeof(fault), "flip=install:chunk=%u", k);
		o.fault = fault;
		world_init(&w, &o);
		world_plan(&w);
		world_check_send(&w, 1, 4 * WB_NS_PER_S); /* not by a deadline */
		if (w.n_mismatch && !w.last_culprit[0]) {
			repaired++;
			world_check_hold(&w, 1);
		} else if (w.n_mismatch) {
			named++;
			ck_assert_msg(strstr(w.last_culprit, "no source left") != NULL, "%s",
				w.last_culprit);
		}
		world_check_send(&w, 2, 20 * WB_NS_PER_S);
		world_check_hold(&w, 2);
		world_finish(&w);
	}
	printf("%u repaired, %u named\n", repaired, named);
	ck_assert_uint_gt(repaired, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sim");
	TCase *tc = tcase_create("world");

	tcase_add_loop_test(tc, every_version_arrives_byte_for_byte, 0, N_SHAPES * N_MODES);
	tcase_add_test(tc, all_workers_of_an_engine_change_at_the_same_poll);
	tcase_add_test(tc, a_thousand_versions_change_at_the_same_poll_without_a_barrier);
	tcase_add_test(tc, greatest_count_plus_one_without_a_promise_is_not_enough);
	tcase_add_test(tc, workers_in_a_collective_of_their_own_do_not_deadlock);
	fx_add_points(tc, a_lost_engine_is_left_behind_and_fed_when_it_returns, 0, 60);
	fx_add_points(tc, a_feed_goes_on_from_other_engines_when_its_source_leaves, 0, 60);
	fx_add_points(tc, a_feed_that_nobody_can_go_on_with_fails_at_once, 0, 20);
	tcase_add_loop_test(tc, a_number_is_never_used_twice, 0, 2 * N_MODES);
	tcase_add_loop_test(tc, numbers_outlive_all_agents_with_the_areas, 0, N_MODES - 2);
	fx_add_points(tc, a_hold_sends_again_what_a_lost_engine_alone_had, 0, 60);
	tcase_add_test(tc, a_hold_lasts_until_release_or_the_last_outcome);
	tcase_add_loop_test(tc, versions_arrive_from_snapshots, 0, N_SHAPES);
	tcase_add_loop_test(tc, snapshots_hold_each_needed_byte_once, 0, N_SHAPES);
	fx_add_points(tc, a_snapshot_sends_again_when_parameters_are_gone, 0, 60);
	tcase_add_loop_test(tc, trainers_may_exit_once_their_snapshot_is_taken, 0, N_SHAPES);
	tcase_add_loop_test(tc, late_writes_land_nowhere, 0, N_MODES);
	tcase_add_test(tc, flipped_bits_on_the_wire_are_caught_and_sent_again);
	tcase_add_loop_test(tc, flipped_bits_are_caught_wherever_they_happen, 0,
		(int)(sizeof(flips) / sizeof(flips[0])));
	tcase_add_test(tc, a_parameter_that_goes_bad_is_repaired_or_named);
	tcase_add_test(tc, one_slot_a_pool_does_not_deadlock);
	tcase_add_loop_test(tc, full_lanes_are_waited_for, 0, 3 * N_MODES);
	tcase_add_loop_test(tc, engines_relay_both_ways_with_one_slot_a_pool, 2, 5);
	tcase_add_test(tc, a_peer_that_reads_nothing_does_not_stop_other_edges);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
