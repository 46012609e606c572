/* SPDX-License-Identifier: Apache-2.0 */
/* Trainer workers that leave early: what others lack lies in slots, and nothing else is read. */
#include "base/base.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_flow.h"

#include <check.h>
#include <errno.h>
#include <string.h>

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

/* Without what the lane makes of it. */
static void only_ask(uint32_t dst, uint32_t chunk)
{
	struct wb_xport_event ev = question(0, dst, chunk);

	wb_flow_on_grant(fx.f, &ev);
}

static void ask(uint32_t dst, uint32_t chunk)
{
	only_ask(dst, chunk);
	fx_run_lane();
}

static void end_write(int k)
{
	struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
		.conn = fx.notes.answer[k].conn,
		.cookie = fx.notes.answer[k].write.cookie};

	ck_assert(!fx.notes.answer[k].is_over && !fx.notes.answer[k].code);
	fx.notes.answer[k].is_over = true;
	wb_flow_on_xport(&ev);
	fx_run_lane();
}

static void stock(const uint32_t *id, uint32_t n)
{
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, id, n), 0);
}

static uint32_t n_free(void)
{
	return fx.slots.n_free[WB_POOL_SEND];
}

/* Answer @k is chunk @chunk as trainer 0 had it, bytes and sum; as its rail would read it. */
static void is_as_it_was(int k, uint32_t chunk)
{
	static uint8_t bytes[FX_CHUNK];
	const struct wb_xport_write *w = &fx.notes.answer[k].write;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	struct wbk_sum sum;
	size_t at = 0;

	ck_assert_int_eq(fx.notes.answer[k].code, 0);
	for (uint32_t i = 0; i < w->n_iov; i++) {
		memcpy(bytes + at, w->iov[i].iov_base, w->iov[i].iov_len);
		if (w->observe)
			w->observe(w->ctx, bytes + at, w->iov[i].iov_len, at);
		at += w->iov[i].iov_len;
	}
	ck_assert_uint_eq(at, FX_CHUNK);
	for (size_t i = 0; i < at; i++)
		ck_assert_uint_eq(bytes[i], 1);
	sum = fx_sum_of(chunk, bytes);
	w->trailer(w->ctx, trailer);
	ck_assert_mem_eq(trailer, &sum, sizeof(sum));
}

/* Straight from parameters (0), or through slots (1). */
static void begin(int is_short)
{
	fx_flow_open(0, is_short, FX_SUMS);
	wb_flow_open_source(fx.f, 0);
}

/* Asked for once more, too: what was sent may be wrong where it arrives. */
START_TEST(what_others_lack_is_served_from_slots_when_the_parameters_have_changed)
{
	static const uint32_t id[] = {1, 5};

	begin(_i);
	stock(id, 2);
	ck_assert_int_eq(fx.n_snapped, 0);
	fx_run_lane();
	ck_assert_int_eq(fx.n_snapped, 1);
	ck_assert(wb_flow_image_is_whole(fx.f, 0) && !wb_flow_uses(fx.f, 0));
	memset(fx.memory, 0xee, sizeof(fx.memory));
	for (int k = 0; k < 3; k++) {
		ask(2, id[k % 2]);
		is_as_it_was(k, id[k % 2]);
		ck_assert(!wb_flow_uses(fx.f, 0));
		end_write(k);
	}
	fx_flow_close();
}
END_TEST

START_TEST(what_is_in_no_slot_is_refused_when_they_may_change)
{
	static const uint32_t id[] = {1};

	begin(_i);
	stock(id, 1);
	fx_run_lane();
	ask(2, 3);
	ck_assert_int_eq(fx.notes.answer[0].code, -ENOENT); /* another holder may have it */
	fx_flow_close();
}
END_TEST

/* It counts from the first chunk that has gone by a transport that leaves the host, and by worker.
 */
START_TEST(who_has_sent_nothing_does_not_send_far)
{
	begin(_i);
	ck_assert(!wb_flow_sends_far(fx.f, 0));
	ask(2, 1);
	fx_run_lane();
	ck_assert(!wb_flow_sends_far(fx.f, 0));
	end_write(0);
	ck_assert(wb_flow_sends_far(fx.f, 0));
	fx_flow_close();
}
END_TEST

/* Whoever asks before that does not wait for the stock. */
START_TEST(what_is_not_packed_yet_is_read_from_the_parameters)
{
	static const uint32_t id[] = {1, 5};
	struct wb_lane_job job;

	begin(0);
	stock(id, 2);
	only_ask(2, 5);
	only_ask(3, 2);
	ck_assert_int_eq(fx.notes.n_answer, 2);
	is_as_it_was(0, 5);
	is_as_it_was(1, 2);
	while (wb_lane_reap(fx.lane, &job, 1))
		wb_flow_on_lane(&job);
	ck_assert_int_eq(fx.n_snapped, 0); /* both are read still */
	end_write(0);
	ck_assert_int_eq(fx.n_snapped, 0);
	end_write(1);
	ck_assert_int_eq(fx.n_snapped, 1);
	fx_flow_close();
}
END_TEST

/* One that is packed and on the wire is not. */
START_TEST(who_packs_reads_and_who_sends_a_slot_does_not)
{
	begin(1);
	only_ask(2, 2); /* with its lane */
	stock(NULL, 0);
	ck_assert_int_eq(fx.notes.n_answer, 0);
	ck_assert_int_eq(fx.n_snapped, 0);
	fx_run_lane();
	ck_assert_int_eq(fx.notes.n_answer, 1);
	(void)wb_flow_tick(fx.f, fx.now);
	ck_assert_int_eq(fx.n_snapped, 1);
	memset(fx.memory, 0xee, sizeof(fx.memory));
	is_as_it_was(0, 2);
	fx_flow_close();
}
END_TEST

/* It was asked for, and waited for a slot, while the parameters could be read. */
START_TEST(who_waited_for_a_slot_gets_what_was_packed_meanwhile)
{
	uint32_t chunk = 0;

	begin(1);
	while (fx.notes.n_answer == (int)chunk)
		ask(2, chunk++);
	chunk--;
	ck_assert_uint_lt(chunk, FX_CHUNKS);
	stock(&chunk, 1);
	fx_run_lane();
	ck_assert_int_eq(fx.n_snapped, 1);
	memset(fx.memory, 0xee, sizeof(fx.memory));
	end_write(0);
	ck_assert_int_eq(fx.notes.n_answer, (int)chunk + 1);
	is_as_it_was((int)chunk, chunk);
	fx_flow_close();
}
END_TEST

/* Also one who waits for a rail: its answer would be written when there is room. */
START_TEST(slots_come_back_when_the_source_is_closed_and_nobody_reads_them)
{
	static const uint32_t id[] = {0, 1, 2};
	uint32_t all;

	begin(_i);
	all = n_free();
	stock(id, 3);
	fx_run_lane();
	ck_assert_uint_eq(n_free(), all - 3);
	ask(2, 1);
	end_write(0);
	ck_assert_uint_eq(n_free(), all - 3); /* sent is not verified */
	ask(2, 1);
	wb_flow_close_source(fx.f, 0);
	ck_assert_uint_eq(n_free(), all - 3);
	ck_assert(wb_flow_image_is_whole(fx.f, 0));
	is_as_it_was(1, 1);
	ask(2, 0);
	ck_assert_int_eq(fx.notes.answer[2].code, -ECANCELED);
	end_write(1);
	ck_assert_uint_eq(n_free(), all);
	ck_assert(wb_flow_image_is_whole(fx.f, 0)); /* nor does it need the parameters any more */
	fx_flow_close();
}
END_TEST

START_TEST(slots_come_back_when_the_flow_stops)
{
	static const uint32_t id[] = {0, 1};
	uint32_t all;

	begin(0);
	all = n_free();
	stock(id, 2);
	if (_i)
		fx_run_lane();
	wb_flow_stop(fx.f);
	fx_run_lane();
	ck_assert_uint_eq(n_free(), all);
	ck_assert_int_eq(fx.n_snapped, _i);
	fx_flow_close();
}
END_TEST

/* Chunks that have to be packed to be sent, and that nobody foresaw. */
START_TEST(a_stock_leaves_slots_for_others)
{
	static const uint32_t id[] = {0, 1, 2, 3, 4, 5, 6, 7};

	begin(1);
	ck_assert_uint_eq(n_free(), FX_CHUNKS);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, id, FX_CHUNKS), -ENOSPC);
	ask(2, 7); /* a slot is taken, and comes back */
	stock(id, FX_CHUNKS - 1);
	fx_run_lane();
	ck_assert_int_eq(fx.n_snapped, 0);
	end_write(0);
	ck_assert_int_eq(fx.n_snapped, 1);
	ck_assert_uint_eq(n_free(), 1);
	fx_flow_close();
}
END_TEST

/* It stays one of the parameters, and what is asked for meanwhile goes on. */
START_TEST(a_source_that_is_closed_before_all_is_packed_has_no_stock)
{
	static const uint32_t id[] = {0, 1};
	uint32_t all;

	begin(0);
	all = n_free();
	stock(id, 2);
	wb_flow_close_source(fx.f, 0);
	ck_assert(wb_flow_uses(fx.f, 0)); /* the lane packs */
	ck_assert_uint_eq(n_free(), all - 2);
	fx_run_lane();
	ck_assert_int_eq(fx.n_snapped, 0);
	ck_assert(!wb_flow_image_is_whole(fx.f, 0) && !wb_flow_uses(fx.f, 0));
	ck_assert_uint_eq(n_free(), all);
	fx_flow_close();
}
END_TEST

START_TEST(what_makes_no_stock)
{
	static const uint32_t falling[] = {5, 1}, twice[] = {1, 1}, none[] = {FX_CHUNKS},
			      one[] = {1};

	fx_flow_open(0, 0, FX_SUMS);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, one, 1), -EBUSY); /* not open */
	wb_flow_open_source(fx.f, 0);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, falling, 2), -EINVAL);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, twice, 2), -EINVAL);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, none, 1), -EINVAL);
	stock(one, 1);
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, one, 1), -EBUSY);
	fx_run_lane();
	ck_assert_int_eq(wb_flow_stock(fx.f, 0, one, 1), -EBUSY);
	wb_flow_close_source(fx.f, 0);
	fx_flow_close();
}
END_TEST

/* ---- when ----------------------------------------------------------------------------------- */

static int n_few;

static void few(void *ctx, struct wb_flow *f)
{
	(void)ctx;
	ck_assert_ptr_eq(f, fx.f);
	n_few++;
}

/* A third of what the plan has the worker send, each chunk to its one reader. */
START_TEST(it_is_said_when_little_is_left_to_send)
{
	uint32_t planned = 0;

	n_few = 0;
	fx_flow_open(0, _i, FX_SUMS);
	fx.env.on_few = few;
	wb_flow_open_source(fx.f, 0);
	for (uint32_t i = 0; i < fx.plan->n_route; i++)
		if (fx.plan->route[i].src == 0 && fx.plan->route[i].stage == WB_STAGE_RECEIVE)
			planned += fx.plan->route[i].chunk_end - fx.plan->route[i].chunk_begin;
	ck_assert_uint_ge(planned, 4);
	for (uint32_t i = 0; i < planned; i++) {
		ck_assert_int_eq(n_few, planned - i <= planned / 3);
		ask(2, i);
		end_write((int)i);
		if (planned - i - 1 <= planned / 3)
			break;
	}
	ck_assert_int_eq(n_few, 1);
	fx_flow_close();
}
END_TEST

/* ---- what is lacked ------------------------------------------------------------------------- */

/* Of engine 2: chunks that it waits for from the agent of that trainer, asked for or not. */
static uint32_t lacking(uint32_t trainer)
{
	uint64_t lack[FX_CHUNKS];
	uint32_t n = wb_flow_lacking(fx.f, 0, trainer, lack, FX_CHUNKS);

	ck_assert_uint_le(n, FX_CHUNKS);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_uint_eq(lack[i] >> 32, trainer);
	return n;
}

START_TEST(what_is_lacked_is_what_is_not_verified)
{
	uint32_t n[FX_TRAINERS];
	uint64_t one;
	int k;

	fx_flow_open(2, _i, FX_SUMS);
	ck_assert(!wb_flow_was_opened(fx.f, 0));
	wb_flow_open_sink(fx.f, 0, NULL);
	ck_assert(wb_flow_was_opened(fx.f, 0));
	for (uint32_t t = 0; t < FX_TRAINERS; t++)
		n[t] = lacking(t);
	ck_assert_uint_gt(n[0] + n[1], 0);
	k = fx_first_out(true);
	ck_assert_int_ge(k, 0);
	one = fx.notes.asked[k].grant.chunk.src;
	ck_assert_uint_eq(wb_flow_lacking(fx.f, 0, (uint32_t)one, NULL, 0), n[one]);
	fx_end_grant(k, WRONG_SUM);
	fx_run_lane();
	ck_assert_uint_eq(lacking((uint32_t)one), n[one]);
	k = fx_first_out(true);
	one = fx.notes.asked[k].grant.chunk.src;
	fx_end_grant(k, GOOD);
	fx_run_lane();
	ck_assert_uint_eq(lacking((uint32_t)one), n[one] - 1);
	wb_flow_drop_sink(fx.f, 0);
	ck_assert_uint_eq(lacking((uint32_t)one), 0);
	fx_end_all(true, TAKEN_BACK);
	fx_flow_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stock");
	TCase *tc = tcase_create("stock");

	tcase_add_loop_test(
		tc, what_others_lack_is_served_from_slots_when_the_parameters_have_changed, 0, 2);
	tcase_add_loop_test(tc, what_is_in_no_slot_is_refused_when_they_may_change, 0, 2);
	tcase_add_loop_test(tc, who_has_sent_nothing_does_not_send_far, 0, 2);
	tcase_add_test(tc, what_is_not_packed_yet_is_read_from_the_parameters);
	tcase_add_test(tc, who_packs_reads_and_who_sends_a_slot_does_not);
	tcase_add_test(tc, who_waited_for_a_slot_gets_what_was_packed_meanwhile);
	tcase_add_loop_test(
		tc, slots_come_back_when_the_source_is_closed_and_nobody_reads_them, 0, 2);
	tcase_add_loop_test(tc, slots_come_back_when_the_flow_stops, 0, 2);
	tcase_add_test(tc, a_stock_leaves_slots_for_others);
	tcase_add_test(tc, a_source_that_is_closed_before_all_is_packed_has_no_stock);
	tcase_add_test(tc, what_makes_no_stock);
	tcase_add_loop_test(tc, it_is_said_when_little_is_left_to_send, 0, 2);
	tcase_add_loop_test(tc, what_is_lacked_is_what_is_not_verified, 0, 2);
	suite_add_tcase(s, tc);
	return fx_run(s);
}
