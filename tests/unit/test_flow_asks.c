/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow must not take: sums, sources, and whom it asks. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_flow.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* ---- what arrives --------------------------------------------------------------------------- */

START_TEST(what_is_not_of_this_transfer_or_has_a_wrong_sum_is_asked_for_again)
{
	static const enum how hows[] = {OTHER_TRANSFER, WRONG_SUM};
	bool is_short = _i & 1;
	uint32_t gen;
	int k;

	fx_flow_open(2, is_short, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	gen = fx.notes.asked[k].grant.chunk.gen;
	fx_end_grant(k, hows[_i / 2]);
	fx_run_lane();
	ck_assert_uint_gt(
		fx.notes.asked[fx_last_for(fx.notes.asked[k].grant.chunk.chunk)].grant.chunk.gen,
		gen);
	for (int n = 0; n < 3; n++) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	ck_assert_int_eq(fx.n_complete, 1);
	fx_flow_close();
}
END_TEST

/* It crossed the word that takes it back, in a slot; what it was for may be another version's by
 * now. */
START_TEST(what_comes_for_a_sink_that_was_dropped_is_not_put_anywhere)
{
	uint8_t was[64];
	bool is_closed = _i;
	int k;

	fx_flow_open(2, true, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	memcpy(was, fx.memory, sizeof(was));
	if (is_closed)
		wb_flow_close_source(fx.f, 0);
	else
		wb_flow_drop_sink(fx.f, 0);
	for (; k < fx.notes.n_asked; k++)
		fx_end_grant(k, GOOD);
	fx_run_lane();
	for (size_t at = 0; at < FX_MEMORY; at += sizeof(was))
		ck_assert_mem_eq(fx.memory + at, was, sizeof(was));
	ck_assert_int_eq(fx.n_complete, 0);
	fx_flow_close();
}
END_TEST

/* Four times, or a moment's noise would cost a good source; and not for ever: the plan's source is
 * asked once more when its turn comes among all that hold the chunk. */
START_TEST(a_source_of_wrong_sums_is_left_for_another)
{
	uint32_t chunk, src;
	int k;

	fx_flow_open(2, _i, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	chunk = fx.notes.asked[k].grant.chunk.chunk;
	src = fx.notes.asked[k].grant.chunk.src;
	for (int n = 0; n < 8; n++) {
		k = fx_last_for(chunk);
		ck_assert(n >= 4 || fx.notes.asked[k].grant.chunk.src == src);
		fx_end_grant(k, WRONG_SUM);
		fx_run_lane();
	}
	ck_assert_uint_ne(fx.notes.asked[fx_last_for(chunk)].grant.chunk.src, src);
	fx_flow_close();
}
END_TEST

/* Its sum was right on the way; where it was put it is not. */
START_TEST(what_landed_elsewhere_is_asked_for_again)
{
	int k;

	fx_flow_open(2, false, FX_READ_BACK);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	fx_end_grant(k, LANDED_ELSEWHERE);
	fx_run_lane();
	ck_assert_int_eq(fx.n_mismatch, 1);
	ck_assert_int_ne(fx_last_for(fx.notes.asked[k].grant.chunk.chunk), k);
	for (int n = 0; n < 3; n++) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	fx_is_installed();
	fx_flow_close();
}
END_TEST

/* A slot is free again when its chunk is in the parameter, not once more when that was read. */
START_TEST(what_came_through_slots_is_read_as_well)
{
	fx_flow_open(2, true, FX_READ_BACK);
	wb_flow_open_sink(fx.f, 0, NULL);
	for (int n = 0; n < FX_CHUNKS && !fx.n_complete; n++) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	ck_assert_int_eq(fx.n_complete, 1);
	ck_assert_int_eq(fx.n_mismatch, 0);
	for (enum wb_pool p = 0; p < WB_POOLS; p++)
		ck_assert_uint_eq(fx.slots.n_free[p], fx.slots.n_pool[p]);
	fx_flow_close();
}
END_TEST

/* All but one chunk are there and were read; then the first goes bad. */
START_TEST(what_another_chunk_overwrote_is_found_when_all_are_there)
{
	uint32_t bad;
	int k, n;

	fx_flow_open(2, false, FX_READ_BACK);
	wb_flow_open_sink(fx.f, 0, NULL);
	fx_end_all(true, GOOD);
	fx_end_all(true, GOOD);
	k = fx_first_out(false);
	for (int i = 0; i < fx.notes.n_asked; i++)
		if (!fx.notes.asked[i].is_over && i != k) {
			fx_end_grant(i, GOOD);
			fx_run_lane();
		}
	bad = fx.notes.asked[0].grant.chunk.chunk;
	ck_assert(fx.notes.asked[0].is_over);
	fx.memory[bad * FX_CHUNK] ^= 1;
	n = fx.notes.n_asked;
	fx_end_grant(k, GOOD);
	fx_run_lane();
	ck_assert_int_eq(fx.n_complete, 0);
	ck_assert_int_eq(fx.n_mismatch, 1);
	ck_assert_int_eq(fx.notes.n_asked, n + 1);
	ck_assert_uint_eq(fx.notes.asked[n].grant.chunk.chunk, bad);
	fx_end_grant(n, GOOD);
	fx_run_lane();
	fx_is_installed();
	fx_flow_close();
}
END_TEST

/* The lane has all of them, and has said nothing of the last ones. */
START_TEST(it_is_complete_when_all_of_it_has_been_read)
{
	struct wb_lane_job job;
	int n = 0;

	fx_flow_open(2, false, FX_READ_BACK);
	wb_flow_open_sink(fx.f, 0, NULL);
	for (int k = 0; k < fx.notes.n_asked; k++)
		fx_end_grant(k, GOOD);
	while (wb_lane_reap(fx.lane, &job, 1)) {
		ck_assert_int_eq(fx.n_complete, 0);
		wb_flow_on_lane(&job);
		n++;
	}
	ck_assert_int_eq(n, 2 * FX_CHUNKS);
	fx_is_installed();
	fx_flow_close();
}
END_TEST

/* ---- whom to ask ---------------------------------------------------------------------------- */

/* Trainers may go when nothing is awaited from them: not before, and not when an engine is lost
 * whose chunk is on its way, since that may come from a trainer then. */
START_TEST(trainers_are_needed_for_what_is_out_and_for_what_a_lost_engine_owes)
{
	uint32_t lost;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	lost = fx.notes.asked[fx_first_out(false)].grant.chunk.src;
	fx_end_all(false, GOOD);
	ck_assert_int_eq(fx.n_received, 0);
	fx_flow_close();
	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	fx_end_all(true, GOOD);
	ck_assert_int_eq(fx.n_received, 1);
	ck_assert(wb_flow_sink_received(fx.f, 0));
	wb_flow_lose_worker(fx.f, lost);
	ck_assert(!wb_flow_sink_received(fx.f, 0));
	for (int k = 0; k < fx.notes.n_asked; k++)
		if (fx.notes.asked[k].is_taken_back)
			fx_end_grant(k, TAKEN_BACK);
	for (int n = 0; n < 3; n++) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	ck_assert(wb_flow_sink_received(fx.f, 0));
	fx_is_installed();
	fx_flow_close();
}
END_TEST

/* Whether its own refusal or the news of its loss comes first: sources are counted without it. */
static uint32_t asked_after_loss(enum how how)
{
	uint32_t chunk, lost, src;
	int k;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	fx_end_all(true, GOOD);
	k = fx_first_out(false);
	chunk = fx.notes.asked[k].grant.chunk.chunk;
	lost = fx.notes.asked[k].grant.chunk.src;
	wb_flow_lose_worker(fx.f, lost);
	fx_end_grant(k, how);
	src = fx.notes.asked[fx_last_for(chunk)].grant.chunk.src;
	ck_assert_uint_ne(src, lost);
	fx_flow_close();
	return src;
}

START_TEST(a_lost_source_is_not_counted_among_those_that_were_tried)
{
	ck_assert_uint_eq(asked_after_loss(REFUSED), asked_after_loss(TAKEN_BACK));
}
END_TEST

START_TEST(nobody_asks_a_worker_that_is_lost)
{
	fx_flow_open(2, false, FX_SUMS);
	wb_flow_lose_worker(fx.f, 3);
	wb_flow_lose_worker(fx.f, 0);
	wb_flow_open_sink(fx.f, 0, NULL);
	for (int n = 0; n < 3; n++) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	for (int k = 0; k < fx.notes.n_asked; k++)
		ck_assert(fx.notes.asked[k].grant.chunk.src != 3 &&
			  fx.notes.asked[k].grant.chunk.src != 0);
	fx_is_installed();
	fx_flow_close();
}
END_TEST

START_TEST(a_feed_asks_its_source)
{
	static const uint8_t feed[FX_WORKERS] = {0, 0, 0, 1, 0};

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, feed);
	ck_assert_int_eq(fx.notes.n_asked, FX_CHUNKS);
	for (int k = 0; k < fx.notes.n_asked; k++)
		ck_assert_uint_eq(fx.notes.asked[k].grant.chunk.src, 3);
	fx_flow_close();
}
END_TEST

/* Another rail of the trainer's agent may be stuck; others wait for it as well. */
START_TEST(a_trainer_that_sends_nothing_is_left_at_its_deadline)
{
	struct wb_flow_opts o = FX_SUMS;
	uint32_t chunk;
	int k;

	o.stall_ns = WB_NS_PER_S;
	fx_flow_open(2, false, o);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	chunk = fx.notes.asked[k].grant.chunk.chunk;
	for (int n = 0; n < 2; n++) { /* its turn comes once more, as above */
		ck_assert_uint_eq(wb_flow_tick(fx.f, fx.now), fx.now + o.stall_ns);
		fx.now += o.stall_ns;
		(void)wb_flow_tick(fx.f, fx.now);
		for (int i = 0, sent = fx.notes.n_asked; i < sent; i++)
			if (fx.notes.asked[i].is_taken_back && !fx.notes.asked[i].is_over)
				fx_end_grant(i, TAKEN_BACK);
	}
	ck_assert(fx.notes.asked[k].is_over);
	ck_assert_uint_ne(fx.notes.asked[fx_last_for(chunk)].grant.chunk.src,
		fx.notes.asked[k].grant.chunk.src);
	fx_flow_close();
}
END_TEST

/* It may have the next chunk, while it waits for this one itself. */
START_TEST(a_busy_source_is_asked_for_its_other_chunks_first)
{
	static const uint8_t feed[FX_WORKERS] = {0, 0, 0, 1, 0};
	struct wb_flow_opts o = FX_SUMS;
	struct wb_xport_event ev = {.kind = WB_XP_REFUSED, .code = -EBUSY};
	bool is_refused;

	o.window = 1;
	fx_flow_open(2, false, o);
	wb_flow_open_sink(fx.f, 0, feed);
	ck_assert_int_eq(fx.notes.n_asked, 1);
	ev.conn = fx.notes.asked[0].conn;
	ev.cookie = fx.notes.asked[0].grant.cookie;
	fx.notes.asked[0].is_over = true;
	wb_flow_on_xport(&ev);
	ck_assert_int_eq(fx.notes.n_asked, 1);
	fx.now = wb_flow_tick(fx.f, fx.now);
	(void)wb_flow_tick(fx.f, fx.now);
	for (int k = 1; k <= FX_CHUNKS; k++) {
		ck_assert_int_eq(fx.notes.n_asked, k + 1);
		is_refused =
			fx.notes.asked[k].grant.chunk.chunk == fx.notes.asked[0].grant.chunk.chunk;
		ck_assert_int_eq(is_refused, k == FX_CHUNKS);
		fx_end_grant(k, GOOD);
	}
	fx_is_installed();
	fx_flow_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flow_asks");
	TCase *tc = tcase_create("flow_asks");

	tcase_add_loop_test(
		tc, what_is_not_of_this_transfer_or_has_a_wrong_sum_is_asked_for_again, 0, 4);
	tcase_add_loop_test(tc, what_comes_for_a_sink_that_was_dropped_is_not_put_anywhere, 0, 2);
	tcase_add_loop_test(tc, a_source_of_wrong_sums_is_left_for_another, 0, 2);
	tcase_add_test(tc, what_landed_elsewhere_is_asked_for_again);
	tcase_add_test(tc, what_came_through_slots_is_read_as_well);
	tcase_add_test(tc, what_another_chunk_overwrote_is_found_when_all_are_there);
	tcase_add_test(tc, it_is_complete_when_all_of_it_has_been_read);
	tcase_add_test(tc, trainers_are_needed_for_what_is_out_and_for_what_a_lost_engine_owes);
	tcase_add_test(tc, a_lost_source_is_not_counted_among_those_that_were_tried);
	tcase_add_test(tc, nobody_asks_a_worker_that_is_lost);
	tcase_add_test(tc, a_feed_asks_its_source);
	tcase_add_test(tc, a_busy_source_is_asked_for_its_other_chunks_first);
	tcase_add_test(tc, a_trainer_that_sends_nothing_is_left_at_its_deadline);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
