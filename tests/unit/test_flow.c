/* SPDX-License-Identifier: Apache-2.0 */
/* An agent of several workers: what it gives to others, and what it takes from them and from its
 * own. */
#include "tests/common/fx_check.h"
#include "tests/common/fx_several.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* ---- sources -------------------------------------------------------------------------------- */

START_TEST(a_grant_taken_back_is_that_of_its_own_connection)
{
	fx_several_open(0, 1);
	fx_several_ask(1, 0x10000, 0, 2, 0);
	fx_several_ask(2, 0x10000, 0, 4, 0); /* another connection counts from the same number */
	wb_flow_grant_gone(fx_several.f, 1, 0x10000);
	ck_assert_int_eq(fx_several.notes.n_answer, 0);
	wb_flow_open_source(fx_several.f, 0);
	ck_assert_int_eq(fx_several.notes.n_answer, 1);
	ck_assert_int_eq(fx_several.notes.answer[0].code, 0);
	ck_assert_uint_eq(fx_several.notes.answer[0].conn, 2);
	fx_several_end_writes();
	fx_several_close();
}
END_TEST

START_TEST(a_connection_that_goes_down_takes_its_waiting_grants_along)
{
	fx_several_open(0, 1);
	for (wb_conn_t conn = 1; conn < 1000; conn++) {
		fx_several_ask(conn, 0x10000, 0, 2, 0);
		fx_several_ask(conn, 0x10001, 0, 2, 1);
		ck_assert_int_eq(
			fx_several.notes.n_answer, 0); /* there is room: nobody is told -EBUSY */
		wb_flow_conn_down(fx_several.f, conn);
		ck_assert(wb_flow_is_idle(fx_several.f));
	}
	fx_several_close();
}
END_TEST

static int n_written(void)
{
	int n = 0;

	for (int i = 0; i < fx_several.notes.n_answer; i++)
		n += !fx_several.notes.answer[i].code;
	return n;
}

/* From another agent, or from a worker of its own.  To wait for a slot that there is none of would
 * be for ever, and name nobody. */
START_TEST(a_sink_that_has_no_slots_to_receive_in_fails_at_once)
{
	bool by_itself = _i;

	fx_several_open_shape(&(struct fx_several_shape){.first = by_itself ? 0 : 1,
		.n = by_itself ? 2 : 1,
		.is_turned = true,
		.only_sends = true});
	if (by_itself)
		wb_flow_open_source(fx_several.f, 0);
	wb_flow_open_sink(fx_several.f, by_itself, NULL);
	ck_assert_int_eq(fx_several.n_failed, 1);
	ck_assert_int_eq(fx_several.failed_code, -ENOBUFS);
	ck_assert_msg(
		strstr(fx_several.why, "the agent of this worker has set aside no slot") != NULL,
		"%s", fx_several.why);
	ck_assert_int_eq(fx_several.notes.n_asked, 0);
	fx_several_close();
}
END_TEST

/* There is one trainer, and it has its slots for all who ask: those that take and do not read keep
 * some of them from nobody. */
START_TEST(readers_that_stop_reading_leave_slots_for_others)
{
	const int frozen = _i;
	int held;

	fx_several_open_shape(&(struct fx_several_shape){
		.n = 1, .is_turned = true, .readers = FX_SEVERAL_READERS});
	wb_flow_open_source(fx_several.f, 0);
	for (int r = 0; r < frozen; r++)
		for (uint64_t k = 0; k < 16; k++)
			fx_several_ask(
				1 + (wb_conn_t)r, k, 0, FX_SEVERAL_WORKERS + (uint32_t)r, k % 2);
	fx_several_run_lane();
	held = n_written(); /* they do not end */
	ck_assert_int_ge(held, frozen);
	/* Others come, read, and come again. */
	for (uint64_t k = 0; k < 20; k++)
		for (uint32_t r = (uint32_t)frozen; r < FX_SEVERAL_READERS; r++) {
			int before = fx_several.notes.n_answer;

			fx_several_ask(1 + (wb_conn_t)r, k, 0, FX_SEVERAL_WORKERS + r, k % 2);
			fx_several_run_lane();
			ck_assert_msg(fx_several.notes.n_answer == before + 1,
				"reader %u of %d gets nothing", r, FX_SEVERAL_READERS);
			fx_several_end_write(before);
			fx_several.notes.n_answer = before;
		}
	/* Their engines are given up: each is hung up on, and hears no more. */
	for (int r = 0; r < frozen; r++) {
		int before = fx_several.notes.n_hang_up;

		wb_flow_lose_worker(fx_several.f, FX_SEVERAL_WORKERS + (uint32_t)r);
		ck_assert_int_gt(fx_several.notes.n_hang_up, before);
		wb_flow_conn_down(fx_several.f, 1 + (wb_conn_t)r);
	}
	fx_several_end_writes();
	fx_several_run_lane();
	ck_assert_int_eq(fx_several.notes.n_answer, held); /* nobody waits for the rest */
	ck_assert_uint_eq(
		fx_several.slots.n_free[WB_POOL_SEND], fx_several.slots.n_pool[WB_POOL_SEND]);
	fx_several_close();
}
END_TEST

/* As many as there are may ask before there is anything to send: they are parked, none is refused
 * while it asks for no more than it may. */
START_TEST(asks_for_what_is_not_there_yet_wait)
{
	fx_several_open_shape(&(struct fx_several_shape){
		.n = 1, .is_turned = true, .readers = FX_SEVERAL_READERS});
	for (uint32_t r = 0; r < FX_SEVERAL_READERS; r++)
		for (uint64_t k = 0; k < 16; k++)
			fx_several_ask(1 + r, k, 0, FX_SEVERAL_WORKERS + r, k % 2);
	ck_assert_int_eq(fx_several.notes.n_answer, 0);
	for (uint32_t r = 0; r < FX_SEVERAL_READERS; r++)
		wb_flow_conn_down(fx_several.f, 1 + r);
	ck_assert(wb_flow_is_idle(fx_several.f));
	fx_several_close();
}
END_TEST

static const uint8_t from_trainer_3[FX_SEVERAL_WORKERS] = {0, 0, 0, 1, 0};

/* Worker 4's agent asks for chunks of @src, which wait, until it is told that there is no room; how
 * many that are. */
static uint64_t ask_until_busy(uint32_t src, uint64_t *grant)
{
	int before = fx_several.notes.n_answer;
	uint64_t n = 0;

	for (;; n++) {
		fx_several_ask(5, (*grant)++, src, 4, (uint32_t)n % 2);
		if (fx_several.notes.n_answer > before)
			break;
	}
	ck_assert_int_eq(fx_several.notes.answer[before].code, -EBUSY);
	return n;
}

/* An agent that has trainers and rollouts is asked for both: what waits here for rollouts' chunks
 * leaves as much room for asks of trainers' chunks, which are answered without regard to anything.
 * What they took is there again when they have gone. */
START_TEST(asks_that_wait_for_an_engine_leave_room_for_those_of_a_trainer)
{
	uint64_t grant = 0, engine = 0, trainer = 0;
	int before;

	fx_several_open(0, 2);
	wb_flow_open_sink(fx_several.f, 1, from_trainer_3);
	for (int round = 0; round < 2; round++) {
		uint64_t was[2] = {engine, trainer};

		engine = ask_until_busy(1, &grant);
		trainer = ask_until_busy(0, &grant);
		ck_assert_uint_gt(engine, 0);
		ck_assert_uint_ge(trainer, engine);
		if (round) {
			ck_assert_uint_eq(engine, was[0]);
			ck_assert_uint_eq(trainer, was[1]);
		}
		wb_flow_conn_down(fx_several.f, 5);
	}
	wb_flow_open_source(fx_several.f, 0);
	ask_until_busy(1, &grant);
	before = fx_several.notes.n_answer;
	for (uint32_t c = 0; c < 2; c++)
		fx_several_ask(5, grant++, 0, 4, c);
	ck_assert_int_eq(fx_several.notes.n_answer, before + 2);
	for (int i = before; i < fx_several.notes.n_answer; i++)
		ck_assert_int_eq(fx_several.notes.answer[i].code, 0);
	wb_flow_drop_sink(fx_several.f, 1);
	for (int i = 0; i < fx_several.notes.n_asked; i++)
		fx_several_end_grant(i, WB_XP_CANCELLED);
	wb_flow_conn_down(fx_several.f, 5);
	fx_several_end_writes();
	fx_several_close();
}
END_TEST

/* ---- sinks ---------------------------------------------------------------------------------- */

static const uint8_t from_rollout_1[FX_SEVERAL_WORKERS] = {0, 1, 0, 0, 0};

/* Everybody else is gone, so that nobody goes on with a feed. */
static void lose_others(uint32_t src)
{
	for (uint32_t w = 0; w < FX_SEVERAL_WORKERS; w++)
		if (w != src)
			wb_flow_lose_worker(fx_several.f, w);
}

START_TEST(a_sink_opened_anew_does_not_count_what_was_asked_before)
{
	fx_several_open(1, 1);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	ck_assert_int_eq(fx_several.notes.n_asked, 2);
	wb_flow_drop_sink(fx_several.f, 0);
	ck_assert_int_eq(fx_several.notes.n_cancel, 2);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	/* One had arrived when it was taken back, the other had not. */
	fx_several_end_grant(0, _i ? WB_XP_ARRIVED : WB_XP_CANCELLED);
	fx_several_end_grant(1, WB_XP_CANCELLED);
	ck_assert_int_eq(fx_several.notes.n_asked, 4);
	ck_assert_int_eq(fx_several.n_complete, 0);
	fx_several_end_grant(2, WB_XP_ARRIVED);
	ck_assert_int_eq(fx_several.n_complete, 0);
	fx_several_end_grant(3, WB_XP_ARRIVED);
	ck_assert_int_eq(fx_several.n_complete, 1);
	ck_assert(wb_flow_sink_complete(fx_several.f, 0));
	fx_several_close();
}
END_TEST

START_TEST(a_closed_worker_of_the_own_agent_is_not_read)
{
	fx_several_open(1, 2);
	wb_flow_mark_installed(fx_several.f, 0, NULL);
	wb_flow_close_source(fx_several.f, 0); /* a newer transfer is about to change it */
	lose_others(1);
	wb_flow_open_sink(fx_several.f, 1, from_rollout_1);
	fx_several_run_lane();
	ck_assert_uint_eq(fx_several.memory[1][0], 3);
	ck_assert_int_eq(fx_several.n_complete, 0);
	ck_assert_int_eq(fx_several.n_failed, 1);
	fx_several_close();
}
END_TEST

START_TEST(a_closed_trainer_of_the_own_agent_is_not_waited_for)
{
	fx_several_open(0, 3);
	wb_flow_close_source(fx_several.f, 0);
	wb_flow_open_sink(fx_several.f, 1, NULL);
	wb_flow_open_sink(fx_several.f, 2, NULL);
	for (int k = 0; k < fx_several.notes.n_asked; k++)
		fx_several_end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(fx_several.n_complete, 2);
	ck_assert_int_eq(fx_several.n_failed, 0);
	fx_several_close();
}
END_TEST

static struct wbk_sum sum_at(uint32_t chunk, const void *p)
{
	struct wbk_sum sum = {{0, 0}};
	struct wbk_sum_keys keys;

	wbk_sum_keys_init(&keys, 0);
	wbk_sum_add(&keys, chunk * (FX_SEVERAL_BYTES / 2), p, FX_SEVERAL_BYTES / 2, &sum);
	return sum;
}

START_TEST(a_write_says_the_sum_of_what_it_sent_whatever_is_learnt_meanwhile)
{
	struct wbk_sum sent, here;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	int k = 0;

	fx_several_open_with(0, 3, true);
	wb_flow_open_source(fx_several.f, 0);
	fx_several_ask(1, 0x10000, 0, 4, 0);
	ck_assert_int_eq(fx_several.notes.n_answer, 1);
	/* Another trainer's chunk 0, with other bytes, comes for a worker of this agent. */
	wb_flow_open_sink(fx_several.f, 1, from_trainer_3);
	ck_assert_int_eq(fx_several.notes.n_asked, 2);
	k = fx_several.notes.asked[0].grant.chunk.chunk != 0;
	memset(fx_several.notes.asked[k].grant.iov[0].iov_base, 9, FX_SEVERAL_BYTES / 2);
	here = sum_at(0, fx_several.notes.asked[k].grant.iov[0].iov_base);
	fx_several.notes.asked[k].grant.observe(fx_several.notes.asked[k].grant.ctx,
		fx_several.notes.asked[k].grant.iov[0].iov_base, FX_SEVERAL_BYTES / 2, 0);
	fx_several_end_grant_with(k, WB_XP_ARRIVED, &here);
	/* A rail goes on with the write. */
	sent = sum_at(0, fx_several.memory[0]);
	fx_several_last_write()->observe(
		fx_several_last_write()->ctx, fx_several.memory[0], FX_SEVERAL_BYTES / 2, 0);
	fx_several_last_write()->trailer(fx_several_last_write()->ctx, trailer);
	ck_assert_mem_eq(trailer, &sent, sizeof(sent));
	fx_several_end_writes();
	fx_several_end_grant(!k, WB_XP_CANCELLED);
	wb_flow_drop_sink(fx_several.f, 1);
	fx_several_end_grant(2, WB_XP_CANCELLED);
	fx_several_close();
}
END_TEST

/* Worker 1 of this agent has both chunks of trainer 3, and the sums that came with them. */
static void open_installed(void)
{
	fx_several_open_with(1, 1, true);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	ck_assert_int_eq(fx_several.notes.n_asked, 2);
	for (int k = 0; k < 2; k++) {
		const struct iovec *at = fx_several.notes.asked[k].grant.iov;
		struct wbk_sum sum =
			sum_at(fx_several.notes.asked[k].grant.chunk.chunk, at->iov_base);

		fx_several.notes.asked[k].grant.observe(
			fx_several.notes.asked[k].grant.ctx, at->iov_base, FX_SEVERAL_BYTES / 2, 0);
		fx_several_end_grant_with(k, WB_XP_ARRIVED, &sum);
	}
	ck_assert_int_eq(fx_several.n_complete, 1);
}

/* The bytes are right, and the source says nothing of their sum. */
START_TEST(a_chunk_without_a_sum_is_not_taken_where_sums_are_on)
{
	fx_several_open_with(1, 1, _i != 0);
	lose_others(3);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	for (int k = 0; k < fx_several.notes.n_asked; k++) {
		if (fx_several.notes.asked[k].grant.observe)
			fx_several.notes.asked[k].grant.observe(fx_several.notes.asked[k].grant.ctx,
				fx_several.notes.asked[k].grant.iov->iov_base, FX_SEVERAL_BYTES / 2,
				0);
		fx_several_end_grant(k, WB_XP_ARRIVED);
	}
	ck_assert_int_eq(fx_several.n_complete, !_i);
	ck_assert_int_eq(fx_several.n_failed, _i);
	ck_assert_int_eq(fx_several.failed_code, _i ? WB_ECKSUM : 0);
	ck_assert_int_eq(fx_several.n_mismatch, 0); /* nobody knows whether it is damaged */
	ck_assert_msg(!_i || strstr(fx_several.why, "worker 3") != NULL, "%s", fx_several.why);
	fx_several_close();
}
END_TEST

/* Else what engines have promised each other could keep a trainer's chunks from coming, which those
 * promises wait for. */
START_TEST(what_engines_send_takes_no_slot_of_what_trainers_send)
{
	static const struct {
		uint8_t feed[FX_SEVERAL_WORKERS];
		bool is_near;
		uint32_t receive, exchange, domain; /* slots that are taken */
	} of[] = {{{0, 0, 0, 1, 0}, false, 2, 0, 0}, {{0, 0, 0, 0, 1}, false, 0, 2, 0},
		{{0, 0, 0, 0, 1}, true, 0, 0, 2}};
	const uint32_t *n_pool = fx_several.slots.n_pool, *n_free = fx_several.slots.n_free;

	fx_several_open_shape(&(struct fx_several_shape){
		.first = 1, .n = 1, .is_turned = true, .is_near = of[_i].is_near});
	wb_flow_open_sink(fx_several.f, 0, of[_i].feed);
	ck_assert_int_eq(fx_several.notes.n_asked, 2);
	ck_assert_uint_eq(n_pool[WB_POOL_RECEIVE] - n_free[WB_POOL_RECEIVE], of[_i].receive);
	ck_assert_uint_eq(n_pool[WB_POOL_EXCHANGE] - n_free[WB_POOL_EXCHANGE], of[_i].exchange);
	ck_assert_uint_eq(n_pool[WB_POOL_DOMAIN] - n_free[WB_POOL_DOMAIN], of[_i].domain);
	for (int k = 0; k < 2; k++)
		fx_several_end_grant(k, WB_XP_ARRIVED);
	fx_several_run_lane();
	ck_assert_int_eq(fx_several.n_complete, 1);
	fx_several_close();
}
END_TEST

/* A slot that waits for a neighbour is not there for copies between workers of this agent, and
 * these are done while it waits. */
START_TEST(what_comes_from_neighbours_leaves_half_of_the_slots_to_copies)
{
	static const uint8_t from_near[FX_SEVERAL_WORKERS] = {0, 0, 0, 0, 1};

	fx_several_open_shape(&(struct fx_several_shape){
		.first = 1, .n = 1, .is_turned = true, .is_near = true, .n_slot = 8});
	ck_assert_uint_eq(fx_several.slots.n_pool[WB_POOL_DOMAIN], 2);
	wb_flow_open_sink(fx_several.f, 0, from_near);
	for (int k = 0; k < 2; k++) {
		ck_assert_int_eq(fx_several.notes.n_asked, k + 1);
		ck_assert_uint_eq(fx_several.slots.n_free[WB_POOL_DOMAIN], 1);
		fx_several_end_grant(k, WB_XP_ARRIVED);
	}
	ck_assert_int_eq(fx_several.n_complete, 1);
	fx_several_close();
}
END_TEST

/* A chunk that found no slot is not tried again before there is one: each try takes a flight, and
 * looks through all pieces of the chunk. */
START_TEST(a_chunk_that_waits_for_a_slot_costs_nothing_meanwhile)
{
	uint32_t gen[2];

	fx_several_open_shape(
		&(struct fx_several_shape){.first = 1, .n = 1, .is_turned = true, .n_slot = 4});
	ck_assert_uint_eq(fx_several.slots.n_pool[WB_POOL_RECEIVE], 1);
	wb_flow_open_sink(fx_several.f, 0, from_trainer_3);
	ck_assert_int_eq(fx_several.notes.n_asked, 1);
	for (int k = 0; k < 100; k++)
		wb_flow_conn_up(fx_several.f, 2);
	ck_assert_int_eq(fx_several.notes.n_asked, 1);
	for (int k = 0; k < 2; k++) {
		fx_several_end_grant(k, WB_XP_ARRIVED);
		ck_assert_int_eq(fx_several.notes.n_asked, 2);
		gen[k] = fx_several.notes.asked[k].grant.chunk.gen;
	}
	ck_assert_int_eq(fx_several.n_complete, 1);
	/* Each try has a number.  One more than the other: that which found out that it needs a
	 * slot. */
	ck_assert_uint_le(gen[1], gen[0] + 1);
	fx_several_close();
}
END_TEST

/* All ask one of those who are left for what an engine that is gone had received.  Here that one is
 * a neighbour, which by the plan has it from this agent: each would wait for the other. */
START_TEST(what_is_lost_is_not_asked_of_a_neighbour)
{
	fx_several_open_shape(
		&(struct fx_several_shape){.first = 4, .n = 1, .is_near = true, .readers = 2});
	wb_flow_lose_worker(fx_several.f, 5);
	wb_flow_open_sink(fx_several.f, 0, NULL);
	ck_assert_int_eq(fx_several.notes.n_asked, 2);
	for (int k = 0; k < 2; k++) {
		const struct wb_xport_chunk *c = &fx_several.notes.asked[k].grant.chunk;
		const struct wb_want *w =
			&fx_several.local->want[wb_local_want(fx_several.local, 0, 0, c->chunk)];

		/* By the plan one comes from a neighbour, and the other from the lost one. */
		ck_assert_uint_eq(w->src, c->chunk ? 5 : 1);
		ck_assert_uint_eq(w->stage, c->chunk ? WB_STAGE_EXTERNAL : WB_STAGE_INTERNAL);
		if (c->chunk)
			ck_assert_int_eq(fx_several.plan->worker[c->src].role, WB_ROLE_TRAINER);
		else
			ck_assert_uint_eq(c->src, 1);
	}
	wb_flow_drop_sink(fx_several.f, 0);
	for (int k = 0; k < 2; k++)
		fx_several_end_grant(k, WB_XP_CANCELLED);
	fx_several_close();
}
END_TEST

/* What a neighbour asks for that is not here yet waits at this agent, as long as all that it may
 * wait for comes without that neighbour.  Once somebody is lost that is not so: the neighbour is
 * told to ask again, and holds no slot meanwhile.  Others wait as before. */
START_TEST(a_neighbour_waits_without_a_slot_once_somebody_is_lost)
{
	bool is_near = _i;

	fx_several_open_shape(&(struct fx_several_shape){.first = 1, .n = 1, .is_near = is_near});
	fx_several_ask(1, 0x10000, 1, 4, 0);
	ck_assert_int_eq(fx_several.notes.n_answer, 0);
	wb_flow_lose_worker(fx_several.f, 3);
	ck_assert_int_eq(fx_several.notes.n_answer, is_near);
	fx_several_ask(1, 0x10001, 1, 4, 1);
	ck_assert_int_eq(fx_several.notes.n_answer, is_near ? 2 : 0);
	for (int k = 0; k < fx_several.notes.n_answer; k++)
		ck_assert_int_eq(fx_several.notes.answer[k].code, -EBUSY);
	wb_flow_stop(fx_several.f);
	fx_several_close();
}
END_TEST

enum then { NOTHING, IS_DROPPED, IS_CLOSED, CLOSED_BEFORE_IT_IS_ASKED_FOR, FLOW_STOPS, THENS };

/* What it holds goes bad, and who reads it tells: it is repaired, unless its memory is not this
 * flow's any more. */
START_TEST(nothing_is_asked_for_a_worker_that_is_gone)
{
	int n = 2;

	open_installed();
	fx_several_ask(1, 0x10000, 1, 4, 0);
	ck_assert_int_eq(fx_several.notes.n_answer, 1);
	fx_several.memory[0][5] ^= 1;
	fx_several_last_write()->observe(
		fx_several_last_write()->ctx, fx_several.memory[0], FX_SEVERAL_BYTES / 2, 0);
	if (_i == IS_DROPPED)
		wb_flow_drop_sink(fx_several.f, 0);
	if (_i == IS_CLOSED)
		wb_flow_close_source(fx_several.f, 0);
	if (_i == FLOW_STOPS)
		wb_flow_stop(fx_several.f);
	fx_several.is_down = _i == CLOSED_BEFORE_IT_IS_ASKED_FOR;
	fx_several_end_writes();
	if (fx_several.is_down)
		wb_flow_close_source(fx_several.f, 0);
	fx_several.is_down = false;
	wb_flow_conn_up(fx_several.f, 1);
	ck_assert_int_eq(fx_several.notes.n_asked, _i == NOTHING ? ++n : n);
	if (n > 2)
		fx_several_end_grant(2, WB_XP_CANCELLED);
	ck_assert_int_eq(fx_several.notes.n_asked, n > 2 ? 4 : 2); /* still wanted */
	wb_flow_close_source(fx_several.f, 0);
	if (n > 2)
		fx_several_end_grant(3, WB_XP_CANCELLED);
	ck_assert_int_eq(fx_several.notes.n_asked, n > 2 ? 4 : 2); /* no more */
	fx_several_close();
}
END_TEST

/* ---- main ----------------------------------------------------------------------------------- */

int main(void)
{
	Suite *s = suite_create("flow");
	TCase *c = tcase_create("flow");

	suite_add_tcase(s, c);
	tcase_add_test(c, a_grant_taken_back_is_that_of_its_own_connection);
	tcase_add_test(c, a_connection_that_goes_down_takes_its_waiting_grants_along);
	tcase_add_loop_test(c, a_sink_opened_anew_does_not_count_what_was_asked_before, 0, 2);
	tcase_add_test(c, a_closed_worker_of_the_own_agent_is_not_read);
	tcase_add_test(c, a_closed_trainer_of_the_own_agent_is_not_waited_for);
	tcase_add_loop_test(c, nothing_is_asked_for_a_worker_that_is_gone, 0, THENS);
	tcase_add_loop_test(c, a_sink_that_has_no_slots_to_receive_in_fails_at_once, 0, 2);
	tcase_add_loop_test(c, readers_that_stop_reading_leave_slots_for_others, 0, 4);
	tcase_add_test(c, asks_for_what_is_not_there_yet_wait);
	tcase_add_test(c, asks_that_wait_for_an_engine_leave_room_for_those_of_a_trainer);
	tcase_add_loop_test(c, what_engines_send_takes_no_slot_of_what_trainers_send, 0, 3);
	tcase_add_test(c, what_comes_from_neighbours_leaves_half_of_the_slots_to_copies);
	tcase_add_test(c, a_chunk_that_waits_for_a_slot_costs_nothing_meanwhile);
	tcase_add_test(c, what_is_lost_is_not_asked_of_a_neighbour);
	tcase_add_loop_test(c, a_neighbour_waits_without_a_slot_once_somebody_is_lost, 0, 2);
	tcase_add_loop_test(c, a_chunk_without_a_sum_is_not_taken_where_sums_are_on, 0, 2);
	tcase_add_test(c, a_write_says_the_sum_of_what_it_sent_whatever_is_learnt_meanwhile);
	return fx_run(s);
}
