/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow makes of a transport's wishes: who sums what is written from parameters, and how long
 * the ranges of a chunk have to be. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_flow.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Generations as a_sink_asks_first_by_the_first_generation() finds them. */
#define FIRST 2
#define AGAIN 3

static void ask_gen(uint32_t src, uint32_t dst, uint32_t chunk, uint32_t gen)
{
	static uint64_t grant = 0x10000;
	struct wb_xport_event ev = {.kind = WB_XP_GRANT,
		.conn = 100 + dst,
		.grant = grant++,
		.chunk = {.transfer = FX_TRANSFER,
			.bytes = FX_CHUNK,
			.chunk = chunk,
			.gen = gen,
			.src = src,
			.dst = dst}};

	wb_flow_on_grant(fx.f, &ev);
}

static void end_writes(void)
{
	for (int k = 0; k < fx.notes.n_answer; k++) {
		struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
			.conn = fx.notes.answer[k].conn,
			.cookie = fx.notes.answer[k].write.cookie};

		if (fx.notes.answer[k].code || fx.notes.answer[k].is_over)
			continue;
		fx.notes.answer[k].is_over = true;
		wb_flow_on_xport(&ev);
		fx_run_lane();
	}
}

static uint32_t chunk_of(const struct wb_xport_write *w)
{
	return (uint32_t)((uint8_t *)w->iov[0].iov_base - fx.memory) / FX_CHUNK;
}

/* It says the sum of what the trainer's chunk is now. */
static bool says_the_sum(const struct wb_xport_write *w)
{
	struct wbk_sum want = fx_sum_of(chunk_of(w), w->iov[0].iov_base);
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];

	w->trailer(w->ctx, trailer);
	return !memcmp(trailer, &want, sizeof(want));
}

static int n_observed(void)
{
	int n = 0;

	for (int k = 0; k < fx.notes.n_answer; k++)
		n += fx.notes.answer[k].write.observe != NULL;
	return n;
}

/* ---- who sums -----------------------------------------------------------------------------------
 */

#define ENGINES (FX_WORKERS - FX_TRAINERS)
static const struct {
	uint32_t caps;
	bool sums;
	int by_lane, by_rail;
} sums[] = {{WB_XPORT_CAP_UNTOUCHED, true, FX_CHUNKS, 0}, {WB_XPORT_CAP_UNTOUCHED, false, 0, 0},
	{0, true, 0, 2 * ENGINES *FX_CHUNKS}, {0, false, 0, 0}};

/* Three engines ask for each chunk at the same time, and once more when they have it. */
START_TEST(a_source_that_is_only_read_sums_each_chunk_once_whoever_asks)
{
	fx_flow_open(0, FX_WHOLE, (struct wb_flow_opts){.sums = sums[_i].sums});
	fx.notes.ops.caps = sums[_i].caps;
	for (uint32_t i = 0; i < sizeof(fx.memory); i++)
		fx.memory[i] = (uint8_t)(i * 31 + i / 251);
	wb_flow_open_source(fx.f, 0);
	for (int round = 0; round < 2; round++) {
		for (uint32_t c = 0; c < FX_CHUNKS; c++)
			for (uint32_t e = FX_TRAINERS; e < FX_WORKERS; e++)
				ask_gen(0, e, c, FIRST);
		fx_run_lane();
		ck_assert_int_eq(fx.notes.n_answer, (round + 1) * ENGINES * FX_CHUNKS);
		for (int k = 0; k < fx.notes.n_answer && sums[_i].by_lane; k++)
			ck_assert(fx.notes.answer[k].code == 0 &&
				  says_the_sum(&fx.notes.answer[k].write));
		end_writes();
	}
	ck_assert_int_eq(fx.n_sum, sums[_i].by_lane);
	ck_assert_int_eq(n_observed(), sums[_i].by_rail);
	fx_flow_close();
}
END_TEST

/* The lane has no room for all of them at once. */
START_TEST(a_sum_waits_for_a_lane_that_is_full)
{
	fx.lane_depth = 2;
	fx_flow_open(0, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	wb_flow_open_source(fx.f, 0);
	for (uint32_t c = 0; c < FX_CHUNKS; c++)
		for (uint32_t e = FX_TRAINERS; e < FX_WORKERS; e++)
			ask_gen(0, e, c, FIRST);
	fx_run_lane();
	ck_assert_int_eq(fx.n_sum, FX_CHUNKS);
	ck_assert_int_eq(fx.notes.n_answer, ENGINES * FX_CHUNKS);
	fx_flow_close();
}
END_TEST

/* Nothing is sent of what may change by now; until the lane is through it is being read. */
START_TEST(a_source_that_is_closed_while_it_is_summed_sends_nothing)
{
	fx_flow_open(0, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	wb_flow_open_source(fx.f, 0);
	ask_gen(0, 2, 0, FIRST);
	ask_gen(0, 3, 0, FIRST);
	ck_assert(wb_flow_source_busy(fx.f, 0));
	wb_flow_close_source(fx.f, 0);
	ck_assert(wb_flow_source_busy(fx.f, 0));
	fx_run_lane();
	ck_assert(!wb_flow_source_busy(fx.f, 0));
	ck_assert_int_eq(fx.notes.n_answer, 2);
	for (int k = 0; k < 2; k++)
		ck_assert_int_eq(fx.notes.answer[k].code, -ECANCELED);
	fx_flow_close();
}
END_TEST

START_TEST(who_waits_for_a_sum_gets_it_though_the_first_asker_is_gone)
{
	fx_flow_open(0, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	wb_flow_open_source(fx.f, 0);
	ask_gen(0, 2, 0, FIRST);
	ask_gen(0, 3, 0, FIRST);
	wb_flow_conn_down(fx.f, 102);
	fx_run_lane();
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_uint_eq(fx.notes.answer[0].conn, 103);
	ck_assert(says_the_sum(&fx.notes.answer[0].write));
	ck_assert_int_eq(fx.n_sum, 1);
	fx_flow_close();
}
END_TEST

/* A lane that is over sums nothing: who asked hears of it, and so do those who waited. */
START_TEST(who_waits_for_a_sum_is_refused_when_the_lane_is_gone)
{
	fx_flow_open(0, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	wb_flow_open_source(fx.f, 0);
	wb_lane_abort(fx.lane);
	ask_gen(0, 2, 0, FIRST);
	ask_gen(0, 3, 0, FIRST);
	fx_run_lane();
	ck_assert_int_eq(fx.notes.n_answer, 2);
	for (int k = 0; k < 2; k++)
		ck_assert_int_eq(fx.notes.answer[k].code, -EPIPE);
	fx_flow_close();
}
END_TEST

/* An engine has verified what it has, so it reads nothing to answer.  Who comes back for other
 * bytes is why it looks; what has gone bad is fetched again and given to nobody. */
START_TEST(an_engine_sums_what_it_relays_only_for_who_asks_again)
{
	fx_flow_open(2, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	wb_flow_open_sink(fx.f, 0, NULL);
	while (!fx.n_complete) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	ask_gen(2, 3, 0, FIRST);
	fx_run_lane();
	ck_assert_int_eq(fx.n_sum, 0);
	ask_gen(2, 3, 0, AGAIN);
	fx_run_lane();
	ck_assert_int_eq(fx.n_sum, 1);
	ck_assert_int_eq(fx.notes.n_answer, 2);
	for (int k = 0; k < 2; k++)
		ck_assert(fx.notes.answer[k].code == 0 && says_the_sum(&fx.notes.answer[k].write));
	ck_assert_int_eq(n_observed(), 0);
	end_writes();
	fx.memory[5] ^= 1;
	ask_gen(2, 3, 0, AGAIN);
	fx_run_lane();
	ck_assert_int_eq(fx.notes.answer[2].code, WB_ECKSUM);
	ck_assert_int_eq(fx.n_mismatch, 1);
	fx_end_grant(fx_last_for(0), GOOD);
	fx_run_lane();
	ask_gen(2, 3, 0, AGAIN);
	fx_run_lane();
	ck_assert(fx.notes.answer[3].code == 0 && says_the_sum(&fx.notes.answer[3].write));
	fx_flow_close();
}
END_TEST

/* ---- how long ranges are ------------------------------------------------------------------------
 */

static const struct {
	enum fx_shape shape;
	uint32_t run_min;
	uint32_t ranges; /* of a chunk, at either side; 1: a slot, or the chunk as it lies there */
} runs[] = {{FX_BLOCKS, 0, FX_CHUNK / MODEL_BLOCK},
	{FX_BLOCKS, MODEL_BLOCK, FX_CHUNK / MODEL_BLOCK}, {FX_BLOCKS, MODEL_BLOCK + 1, 1},
	{FX_WHOLE, 2 * FX_CHUNK, 1}};

START_TEST(ranges_shorter_than_the_transport_wants_go_through_a_slot)
{
	bool is_direct = runs[_i].ranges > 1 || runs[_i].shape == FX_WHOLE;
	const uint8_t *at;

	for (uint32_t worker = 0; worker <= 2; worker += 2) {
		fx_flow_open(worker, runs[_i].shape, FX_SUMS);
		fx.notes.ops.run_min = runs[_i].run_min;
		if (worker == 0) {
			wb_flow_open_source(fx.f, 0);
			ask_gen(0, 2, 0, FIRST);
			fx_run_lane();
			ck_assert_uint_eq(fx.notes.answer[0].write.n_iov, runs[_i].ranges);
			at = fx.notes.answer[0].write.iov[0].iov_base;
		} else {
			wb_flow_open_sink(fx.f, 0, NULL);
			ck_assert_uint_eq(fx.notes.asked[0].grant.n_iov, runs[_i].ranges);
			at = fx.notes.asked[0].grant.iov[0].iov_base;
		}
		ck_assert_int_eq(at >= fx.memory && at < fx.memory + sizeof(fx.memory), is_direct);
		fx_flow_close();
	}
}
END_TEST

static struct wb_xport_ops other;
static struct wb_xport other_x = {.ops = &other};

static struct wb_xport *carrier(struct wb_xport *x, wb_conn_t conn)
{
	return conn == 103 ? &other_x : x;
}

/* Of a set: what one transport has no use for, another one has. */
START_TEST(each_connection_has_ranges_as_its_own_transport_wants)
{
	static const struct {
		uint32_t engine, ranges;
	} order[] = {{3, 1}, {2, FX_CHUNK / MODEL_BLOCK}, {3, 1}};

	fx_flow_open(0, FX_BLOCKS, FX_SUMS);
	other = fx.notes.ops;
	other.run_min = 2 * MODEL_BLOCK;
	fx.notes.ops.carrier = carrier;
	wb_flow_open_source(fx.f, 0);
	for (size_t i = 0; i < WB_ARRAY_SIZE(order); i++) {
		ask_gen(0, order[i].engine, 0, FIRST);
		fx_run_lane();
		ck_assert_uint_eq(fx.notes.answer[i].write.n_iov, order[i].ranges);
	}
	fx_flow_close();
}
END_TEST

/* ---- what a try is worth ------------------------------------------------------------------------
 */

START_TEST(a_sink_asks_first_by_the_first_generation)
{
	fx_flow_open(2, FX_WHOLE, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	ck_assert_int_gt(fx.notes.n_asked, 0);
	for (int k = 0; k < fx.notes.n_asked; k++)
		ck_assert_uint_eq(fx.notes.asked[k].grant.chunk.gen, FIRST);
	fx_end_grant(0, WRONG_SUM);
	ck_assert_uint_eq(
		fx.notes.asked[fx_last_for(fx.notes.asked[0].grant.chunk.chunk)].grant.chunk.gen,
		AGAIN);
	fx_flow_close();
}
END_TEST

/* It is not tried again, and counts no tries, until there is one. */
START_TEST(a_chunk_in_too_short_ranges_waits_for_a_slot)
{
	int n;

	fx_flow_open(2, FX_BLOCKS, FX_SUMS);
	fx.notes.ops.run_min = MODEL_BLOCK + 1;
	while (fx.slots.n_free[WB_POOL_RECEIVE])
		(void)wb_slots_get(&fx.slots, WB_POOL_RECEIVE);
	wb_flow_open_sink(fx.f, 0, NULL);
	n = fx.notes.n_asked;
	for (int k = 0; k < 100; k++)
		wb_flow_conn_up(fx.f, 0);
	ck_assert_int_eq(fx.notes.n_asked, n);
	for (uint32_t i = 0; i < fx.slots.n; i++)
		if (fx.slots.pool_of[i] == WB_POOL_RECEIVE)
			wb_slots_put(&fx.slots, i);
	wb_flow_conn_up(fx.f, 0);
	ck_assert_int_gt(fx.notes.n_asked, n);
	for (int k = 0; k < fx.notes.n_asked; k++)
		ck_assert_uint_eq(fx.notes.asked[k].grant.chunk.gen, FIRST);
	fx_flow_close();
}
END_TEST

/* What a lane has found of a trainer's parameters it has read then, and perhaps wrongly: nobody is
 * told that it is of other bytes, by whatever transport and however often it asks. */
START_TEST(a_trainers_sum_is_of_what_is_sent)
{
	fx_flow_open(0, FX_WHOLE, FX_SUMS);
	fx.notes.ops.caps = WB_XPORT_CAP_UNTOUCHED;
	other = fx.notes.ops;
	other.caps = 0;
	fx.notes.ops.carrier = carrier;
	wb_flow_open_source(fx.f, 0);
	ask_gen(0, 2, 0, FIRST);
	fx_run_lane();
	fx.memory[5] ^= 1;
	for (uint32_t gen = FIRST; gen < FIRST + 3; gen++) {
		struct wb_xport_write *w = &fx.notes.answer[fx.notes.n_answer].write;

		ask_gen(0, 3, 0, gen);
		fx_run_lane();
		ck_assert_ptr_nonnull(w->observe);
		w->observe(w->ctx, w->iov[0].iov_base, w->iov[0].iov_len, 0);
		ck_assert(says_the_sum(w));
	}
	ask_gen(0, 2, 0, AGAIN);
	fx_run_lane();
	ck_assert(says_the_sum(&fx.notes.answer[fx.notes.n_answer - 1].write));
	fx_flow_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flow_sums");
	TCase *c = tcase_create("flow_sums");

	suite_add_tcase(s, c);
	tcase_add_loop_test(c, a_source_that_is_only_read_sums_each_chunk_once_whoever_asks, 0,
		(int)WB_ARRAY_SIZE(sums));
	tcase_add_test(c, a_sum_waits_for_a_lane_that_is_full);
	tcase_add_test(c, a_source_that_is_closed_while_it_is_summed_sends_nothing);
	tcase_add_test(c, who_waits_for_a_sum_gets_it_though_the_first_asker_is_gone);
	tcase_add_test(c, who_waits_for_a_sum_is_refused_when_the_lane_is_gone);
	tcase_add_test(c, an_engine_sums_what_it_relays_only_for_who_asks_again);
	tcase_add_loop_test(c, ranges_shorter_than_the_transport_wants_go_through_a_slot, 0,
		(int)WB_ARRAY_SIZE(runs));
	tcase_add_test(c, each_connection_has_ranges_as_its_own_transport_wants);
	tcase_add_test(c, a_sink_asks_first_by_the_first_generation);
	tcase_add_test(c, a_chunk_in_too_short_ranges_waits_for_a_slot);
	tcase_add_test(c, a_trainers_sum_is_of_what_is_sent);
	return fx_run(s);
}
