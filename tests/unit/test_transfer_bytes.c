/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are late, flipped, or have little room: in every mode they arrive, or their place is
 * named. */
#include "tests/common/fx_check.h"
#include "tests/common/world_check.h"

#include "base/hash.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Half of the chunks come long after the deadline: by then their memory is told torn, or (staged)
 * belongs to the next transfer.  Large chunks, or none would land in parameters by itself: what
 * comes late into a slot is only thrown away. */
START_TEST(late_writes_land_nowhere)
{
	struct world_opts o = world_with_mode(&world_shapes[1], &world_modes[_i]);
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

	world_init(&w, &world_shapes[2]);
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

/* As above, where the source's lanes sum what is read from parameters, and take two jobs at a time.
 * Large chunks, or all would go through slots. */
START_TEST(flipped_bits_are_caught_by_the_sums_of_lanes_in_every_mode)
{
	struct world_opts o = world_with_mode(&world_shapes[1], &world_modes[_i]);
	struct wb_sim_fault f = {.kind = WB_SIM_FLIP, .items = WB_SIM_DATA, .ppm = 50000};
	struct world w;

	o.scale = 1024;
	o.chunk_bytes = 16384;
	o.lane_depth = 2;
	o.xport_caps = WB_XPORT_CAP_UNTOUCHED | WB_XPORT_CAP_REGIONS;
	world_init(&w, &o);
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
	struct world_opts o = world_shapes[4];
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
static uint64_t three_with_lanes_of(uint32_t depth, const struct world_mode *mode)
{
	struct world_opts o = world_with_mode(&world_shapes[4], mode);
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
	const struct world_mode *mode = &world_modes[_i % WORLD_MODES];

	ck_assert_uint_eq(three_with_lanes_of(1 + (uint32_t)_i / WORLD_MODES, mode),
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
	struct world_opts o = world_shapes[2];
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
	struct world_opts o = world_shapes[1];
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
	Suite *s = suite_create("bytes");
	TCase *tc = tcase_create("world");
	tcase_add_loop_test(tc, late_writes_land_nowhere, 0, WORLD_MODES);
	tcase_add_test(tc, flipped_bits_on_the_wire_are_caught_and_sent_again);
	tcase_add_loop_test(
		tc, flipped_bits_are_caught_by_the_sums_of_lanes_in_every_mode, 0, WORLD_MODES);
	tcase_add_loop_test(tc, flipped_bits_are_caught_wherever_they_happen, 0,
		(int)(sizeof(flips) / sizeof(flips[0])));
	tcase_add_test(tc, a_parameter_that_goes_bad_is_repaired_or_named);
	tcase_add_test(tc, one_slot_a_pool_does_not_deadlock);
	tcase_add_loop_test(tc, full_lanes_are_waited_for, 0, 3 * WORLD_MODES);
	tcase_add_loop_test(tc, engines_relay_both_ways_with_one_slot_a_pool, 2, 5);
	tcase_add_test(tc, a_peer_that_reads_nothing_does_not_stop_other_edges);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
