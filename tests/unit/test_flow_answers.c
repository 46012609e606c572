/* SPDX-License-Identifier: Apache-2.0 */
/* What a flow must not give, and to whom. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_flow.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* ---- what is given -------------------------------------------------------------------------- */

static struct wb_xport_event question(uint32_t src, uint32_t dst, uint32_t chunk)
{
	static uint64_t grant = 0x10000;

	return (struct wb_xport_event){.kind = WB_XP_GRANT,
		.conn = 100 + dst,
		.grant = grant++,
		.chunk = {.transfer = FX_TRANSFER,
			.bytes = FX_CHUNK,
			.chunk = chunk,
			.gen = 1,
			.src = src,
			.dst = dst}};
}

static void ask(uint32_t src, uint32_t dst, uint32_t chunk)
{
	struct wb_xport_event ev = question(src, dst, chunk);

	wb_flow_on_grant(fx.f, &ev);
	fx_run_lane();
}

static void end_write(int k)
{
	struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
		.conn = fx.notes.answer[k].conn,
		.cookie = fx.notes.answer[k].write.cookie};

	fx.notes.answer[k].is_over = true;
	wb_flow_on_xport(&ev);
	fx_run_lane();
}

START_TEST(a_trainer_is_read_while_it_is_open)
{
	fx_flow_open(0, _i, FX_SUMS);
	ask(0, 2, 0);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	wb_flow_open_source(fx.f, 0);
	fx_run_lane();
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, 0);
	ck_assert(wb_flow_source_busy(fx.f, 0) && wb_flow_uses(fx.f, 0));
	wb_flow_close_source(fx.f, 0);
	ck_assert(wb_flow_source_busy(fx.f, 0)); /* closed, and still read */
	end_write(0);
	ck_assert(!wb_flow_source_busy(fx.f, 0) && !wb_flow_uses(fx.f, 0));
	ask(0, 2, 1);
	ck_assert_int_eq(fx.notes.answer[1].code, -ECANCELED);
	fx_flow_close();
}
END_TEST

/* Also while a lane packs from it, before anything is on the wire. */
START_TEST(what_is_packed_from_is_in_use)
{
	struct wb_xport_event ev;

	fx_flow_open(0, true, FX_SUMS);
	wb_flow_open_source(fx.f, 0);
	ev = question(0, 2, 0);
	wb_flow_on_grant(fx.f, &ev);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	ck_assert(wb_flow_source_busy(fx.f, 0) && wb_flow_uses(fx.f, 0));
	fx_run_lane();
	ck_assert_int_eq(fx.notes.n_answer, 1);
	fx_flow_close();
}
END_TEST

START_TEST(a_grant_taken_back_is_no_other_one_of_its_connection)
{
	struct wb_xport_event ev[2] = {question(0, 2, 0), question(0, 2, 1)};

	fx_flow_open(0, false, FX_SUMS);
	for (int i = 0; i < 2; i++)
		wb_flow_on_grant(fx.f, &ev[i]);
	wb_flow_grant_gone(fx.f, ev[_i].conn, ev[_i].grant);
	wb_flow_open_source(fx.f, 0);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, 0);
	ck_assert_uint_eq(fx.notes.answer[0].grant, ev[!_i].grant);
	fx_flow_close();
}
END_TEST

START_TEST(an_engine_gives_what_it_has_until_it_is_closed)
{
	uint32_t chunk;
	int k;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	chunk = fx.notes.asked[k].grant.chunk.chunk;
	ask(2, 3, chunk);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	fx_end_grant(k, WRONG_SUM);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	fx_end_grant(fx_last_for(chunk), GOOD);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, 0);
	wb_flow_close_source(fx.f, 0); /* its memory is about to change */
	ask(2, 4, chunk);
	ck_assert_int_eq(fx.notes.answer[1].code, -ECANCELED);
	fx_flow_close();
}
END_TEST

/* A later run of the same flow. */
START_TEST(an_engine_that_begins_anew_gives_nothing_of_before)
{
	fx_install(FX_SUMS);
	wb_flow_drop_sink(fx.f, 0);
	wb_flow_open_sink(fx.f, 0, NULL);
	ask(2, 3, 0);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	fx_end_grant(fx_last_for(0), GOOD);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	fx_flow_close();
}
END_TEST

START_TEST(what_the_plan_does_not_say_is_refused)
{
	struct wb_xport_event ev = question(0, 2, 0);

	switch (_i) {
	case 0:
		ev.chunk.bytes--;
		break;
	case 1:
		ev.chunk.chunk = FX_CHUNKS;
		break;
	case 2:
		ev.chunk.cls = 1;
		break;
	case 3:
		ev.chunk.dst = FX_WORKERS;
		break;
	default:
		ev.chunk.src = 1; /* of another agent */
	}
	fx_flow_open(0, false, FX_SUMS);
	wb_flow_open_source(fx.f, 0);
	wb_flow_on_grant(fx.f, &ev);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, -EINVAL);
	fx_flow_close();
}
END_TEST

/* Who asks repairs a chunk that this engine waits for it to send. */
START_TEST(two_engines_do_not_wait_for_each_other)
{
	struct wb_xport_event ev;
	int k;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	fx_end_all(true, GOOD);
	k = fx_first_out(false);
	ev = question(2, fx.notes.asked[k].grant.chunk.src, fx.notes.asked[k].grant.chunk.chunk);
	ev.chunk.gen = 2;
	wb_flow_on_grant(fx.f, &ev);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, -EDEADLK);
	fx_flow_close();
}
END_TEST

START_TEST(one_reader_does_not_hold_all_send_slots)
{
	fx_flow_open(0, true, FX_SUMS);
	wb_flow_open_source(fx.f, 0);
	for (int n = 0; n < 2; n++)
		for (uint32_t i = 0; i < FX_CHUNKS; i++)
			ask(0, 2, i);
	ck_assert_int_gt(fx.notes.n_answer, 1);
	ck_assert_int_lt(fx.notes.n_answer, FX_SEND_SLOTS);
	ask(0, 3, 0);
	ck_assert_uint_eq(fx.notes.answer[fx.notes.n_answer - 1].conn, 103);
	ck_assert_int_eq(fx.notes.answer[fx.notes.n_answer - 1].code, 0);
	fx_flow_close();
}
END_TEST

/* What was verified here has gone bad since: whoever gets it is told the trainer's sum, not that of
 * what it got. */
START_TEST(a_relay_passes_the_trainers_sum_on)
{
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	struct wb_xport_write *w;
	struct wbk_sum want;

	fx_install(FX_SUMS);
	want = fx_sum_of(0, fx.memory);
	fx.memory[5] ^= 1;
	ask(2, 3, 0);
	w = &fx.notes.answer[0].write;
	for (uint32_t i = 0; i < w->n_iov; i++)
		w->observe(w->ctx, w->iov[i].iov_base, w->iov[i].iov_len, 0);
	w->trailer(w->ctx, trailer);
	ck_assert_mem_eq(trailer, &want, sizeof(want));
	fx_flow_close();
}
END_TEST

/* Nobody is known to have the chunk, and both look around for one who has. */
START_TEST(engines_that_ask_around_do_not_wait_for_each_other)
{
	fx_flow_open(2, false, FX_SUMS);
	for (uint32_t i = 0; i < FX_TRAINERS; i++)
		wb_flow_lose_worker(fx.f, i);
	wb_flow_open_sink(fx.f, 0, NULL);
	ck_assert_int_gt(fx.notes.n_asked, 0);
	ask(2, fx.notes.asked[0].grant.chunk.src == 3 ? 4 : 3, fx.notes.asked[0].grant.chunk.chunk);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, -ENODATA);
	fx_flow_close();
}
END_TEST

/* Once somebody is lost any engine may be asked, also one that waits for another engine itself, and
 * perhaps for a slot to do so, while its slot waits for the one that asks.  So who asks is told to
 * ask again, and holds nothing meanwhile.  What comes from a trainer can be waited for. */
START_TEST(nobody_waits_for_an_exchange_of_another_once_somebody_is_lost)
{
	struct wb_xport_chunk exchanged, received;
	uint32_t asker;
	int k;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(true);
	received = fx.notes.asked[k].grant.chunk;
	exchanged = fx.notes.asked[fx_first_out(false)].grant.chunk;
	asker = exchanged.src == 3 ? 4 : 3;
	ask(2, asker, exchanged.chunk);
	ask(2, asker, received.chunk);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	wb_flow_lose_worker(fx.f, 1 - received.src);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ask(2, asker, exchanged.chunk);
	ck_assert_int_eq(fx.notes.n_answer, 2);
	ck_assert_int_eq(fx.notes.answer[0].code, -EBUSY);
	ck_assert_int_eq(fx.notes.answer[1].code, -EBUSY);
	fx_end_grant(k, GOOD);
	ck_assert_int_eq(fx.notes.n_answer, 3);
	ck_assert_int_eq(fx.notes.answer[2].code, 0);
	fx_flow_close();
}
END_TEST

/* Who asks a second time has asked another source before, and may know of a loss that this agent
 * has not heard of yet. */
START_TEST(nor_does_who_asks_a_second_time)
{
	struct wb_xport_event ev;
	struct wb_xport_chunk exchanged;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	exchanged = fx.notes.asked[fx_first_out(false)].grant.chunk;
	for (uint32_t gen = 1; gen <= 2; gen++) {
		ev = question(2, exchanged.src == 3 ? 4 : 3, exchanged.chunk);
		ev.chunk.gen = gen;
		wb_flow_on_grant(fx.f, &ev);
		ck_assert_int_eq(fx.notes.n_answer, gen == 2);
	}
	ck_assert_int_eq(fx.notes.answer[0].code, -EBUSY);
	ck_assert_uint_eq(fx.notes.answer[0].grant, ev.grant);
	fx_flow_close();
}
END_TEST

/* The trainer that was asked is lost to us, and the engine of the plan is asked once more. */
START_TEST(who_waits_is_told_when_a_chunk_becomes_an_exchange)
{
	struct wb_xport_chunk first, second;
	int k;

	fx_flow_open(2, false, FX_SUMS);
	wb_flow_open_sink(fx.f, 0, NULL);
	k = fx_first_out(false);
	first = fx.notes.asked[k].grant.chunk;
	fx_end_grant(k, REFUSED);
	k = fx_last_for(first.chunk);
	second = fx.notes.asked[k].grant.chunk;
	ck_assert_uint_lt(second.src, FX_TRAINERS);
	ask(2, first.src == 3 ? 4 : 3, first.chunk);
	wb_flow_lose_worker(fx.f, 1 - second.src);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	fx_end_grant(k, TAKEN_BACK);
	ck_assert_uint_eq(fx.notes.asked[fx_last_for(first.chunk)].grant.chunk.src, first.src);
	ck_assert_int_eq(fx.notes.n_answer, 1);
	ck_assert_int_eq(fx.notes.answer[0].code, -EBUSY);
	fx_flow_close();
}
END_TEST

/* The lane has packed all of it, and has said nothing yet. */
START_TEST(a_snapshot_is_there_when_the_lane_says_so)
{
	static uint8_t memory[FX_CHUNKS * FX_CHUNK];
	struct wb_lane_job job;
	struct wb_image *image;

	fx_flow_open(0, _i, FX_SUMS);
	ck_assert_int_eq(wb_image_create(fx.plan, 0, &image), 0);
	ck_assert_uint_gt(image->n, 1);
	ck_assert_uint_le(image->bytes, sizeof(memory));
	ck_assert_int_eq(wb_flow_open_image(fx.f, 0, image, memory), 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct wb_xport_event ev = question(0, 2, image->chunk[i]);

		wb_flow_on_grant(fx.f, &ev);
		ck_assert_int_eq(fx.notes.n_answer, (int)i);
		ck_assert_int_eq(fx.n_snapped, 0);
		ck_assert(wb_flow_source_busy(fx.f, 0));
		ck_assert(!wb_flow_image_is_whole(fx.f, 0));
		ck_assert_uint_eq(wb_lane_reap(fx.lane, &job, 1), 1);
		wb_flow_on_lane(&job);
		ck_assert_int_eq(fx.notes.n_answer, (int)i + 1);
		ck_assert_int_eq(fx.notes.answer[i].code, 0);
	}
	fx_run_lane();
	ck_assert_int_eq(fx.n_snapped, 1);
	ck_assert(wb_flow_image_is_whole(fx.f, 0));
	fx_flow_close();
	wb_image_destroy(image);
}
END_TEST

/* Sums that go along to another flow of the same version are of the same seed. */
START_TEST(sums_of_another_seed_are_not_taken_over)
{
	struct wb_flow_opts o = {.sums = true, .transfer = FX_TRANSFER, .window = 1};
	bool is_same = _i;
	struct wb_flow *other;
	struct wbk_sum zero = {{0, 0}}, got;

	fx_install(FX_SUMS);
	o.local = fx.local;
	o.slots = &fx.slots;
	o.env = &fx.env;
	o.sum_seed = is_same ? 0 : 5;
	ck_assert_int_eq(wb_flow_create(&o, &other, NULL), 0);
	wb_flow_mark_installed(other, 0, fx.f);
	got = wb_flow_worker_sum(other, 0);
	ck_assert_int_eq(memcmp(&got, &zero, sizeof(got)) != 0, is_same);
	wb_flow_destroy(other);
	fx_flow_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flow_answers");
	TCase *tc = tcase_create("flow_answers");

	tcase_add_loop_test(tc, a_trainer_is_read_while_it_is_open, 0, 2);
	tcase_add_test(tc, what_is_packed_from_is_in_use);
	tcase_add_loop_test(tc, a_grant_taken_back_is_no_other_one_of_its_connection, 0, 2);
	tcase_add_test(tc, an_engine_gives_what_it_has_until_it_is_closed);
	tcase_add_test(tc, an_engine_that_begins_anew_gives_nothing_of_before);
	tcase_add_loop_test(tc, what_the_plan_does_not_say_is_refused, 0, 5);
	tcase_add_test(tc, two_engines_do_not_wait_for_each_other);
	tcase_add_test(tc, engines_that_ask_around_do_not_wait_for_each_other);
	tcase_add_test(tc, nobody_waits_for_an_exchange_of_another_once_somebody_is_lost);
	tcase_add_test(tc, nor_does_who_asks_a_second_time);
	tcase_add_test(tc, who_waits_is_told_when_a_chunk_becomes_an_exchange);
	tcase_add_loop_test(tc, a_snapshot_is_there_when_the_lane_says_so, 0, 2);
	tcase_add_test(tc, one_reader_does_not_hold_all_send_slots);
	tcase_add_test(tc, a_relay_passes_the_trainers_sum_on);
	tcase_add_loop_test(tc, sums_of_another_seed_are_not_taken_over, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
