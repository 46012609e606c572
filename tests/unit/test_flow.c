/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow between a transport that only notes what it is asked and a lane that runs at once: events
 * come in the order that a test wants.
 *
 * Workers of one class, two chunks: trainers 0 (domain 0) and 3 (domain 1), rollouts 1 and 2
 * (domain 0) and 4 (domain 2).  Each domain is a node, or 0 and 2 are one.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "flow/flow.h"
#include "lane/lane.h"
#include "planner/binding.h"
#include "planner/plan.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_model.h"
#include "tests/common/fx_notes.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BYTES MODEL_BYTES
#define WORKERS 5
#define READERS 12 /* more rollouts, each in an agent of its own, where a test has them */

static struct fix {
	struct fx_notes notes;
	struct wb_fake_clock clock;
	struct wb_manifest *m;
	struct wb_map *map;
	struct wb_plan *plan;
	struct wb_place place;
	struct wb_member member[WORKERS];
	uint8_t memory[WORKERS][BYTES];
	void *base[WORKERS][1];
	struct wb_lane *lane;
	struct wb_local *local;
	struct wb_slots slots;
	struct wb_flow_env env;
	struct wb_flow *f;
	int n_complete, n_failed, failed_code, n_mismatch;
	char why[WB_ERR_MSG_MAX]; /* it has failed */
	bool is_down; /* no connection to anybody */
} d;

static uint8_t arena[16 * BYTES];

static wb_conn_t conn_to(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	uint32_t domain = d.plan->worker[src].domain;

	(void)may_miss;
	(void)ctx;
	(void)dst;
	return d.is_down ? 0 : 100 + domain;
}

static void received(void *ctx, struct wb_flow *f, uint32_t worker)
{
	(void)ctx;
	(void)f;
	(void)worker;
}

static void complete(void *ctx, struct wb_flow *f, uint32_t worker)
{
	(void)ctx;
	(void)f;
	(void)worker;
	d.n_complete++;
}

static void failed(void *ctx, struct wb_flow *f, uint32_t worker, const struct wb_err *err)
{
	(void)ctx;
	(void)f;
	(void)worker;
	d.failed_code = err->code;
	snprintf(d.why, sizeof(d.why), "%s", err->msg);
	d.n_failed++;
}

static void mismatch(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m)
{
	(void)ctx;
	(void)f;
	(void)m;
	d.n_mismatch++;
}

struct shape {
	uint32_t first, n; /* of the plan's workers of domain 0, which are this agent's */
	bool sums, is_turned;
	bool only_sends; /* its slots are cut for an agent without rollout workers */
	uint32_t readers;
	bool is_near; /* domain 2 is of the node of domain 0 */
	uint32_t n_slot; /* 0: 32 */
};

static void open_shape(const struct shape *is)
{
	uint32_t first = is->first, n = is->n;
	uint8_t share[WB_POOLS] = {4, 4, 4, 4};
	struct wb_plan_worker worker[WORKERS + READERS] = {{.role = WB_ROLE_TRAINER},
		{.role = WB_ROLE_ROLLOUT}, {.role = WB_ROLE_ROLLOUT, .engine = 1},
		{.role = WB_ROLE_TRAINER, .domain = 1, .node = 1},
		{.role = WB_ROLE_ROLLOUT, .engine = 2, .domain = 2, .node = is->is_near ? 0 : 2}};
	uint32_t n_slot = is->n_slot ? is->n_slot : sizeof(arena) / (BYTES / 2);
	struct wb_flow_opts o = {.slots = &d.slots,
		.env = &d.env,
		.transfer = 7,
		.window = 8,
		.sums = is->sums,
		.stall_ns = WB_NS_PER_S};
	struct wb_lane_opts lo = {0};
	struct wb_err err = {0};

	memset(&d, 0, sizeof(d));
	fx_notes_init(&d.notes);
	d.env = (struct wb_flow_env){.xport = &d.notes.x,
		.clock = &d.clock.clock,
		.conn = conn_to,
		.on_received = received,
		.on_complete = complete,
		.on_failed = failed,
		.on_mismatch = mismatch};
	wb_fake_clock_init(&d.clock, WB_NS_PER_S);
	d.m = fx_model_manifest();
	/* Transposed, nothing is sent from where it lies. */
	d.map = is->is_turned ? fx_model_turned(d.m) : fx_model_rows(d.m, 0, MODEL_ROWS);
	for (uint32_t i = 0; i < is->readers; i++)
		worker[WORKERS + i] = (struct wb_plan_worker){
			.role = WB_ROLE_ROLLOUT, .engine = 3 + i, .domain = 3 + i, .node = 3 + i};
	struct wb_plan_input in = {.manifest = d.m,
		.layout = (const struct wb_map *const *)&d.map,
		.n_layout = 1,
		.worker = worker,
		.n_worker = WORKERS + is->readers,
		.chunk_bytes = BYTES / 2};

	ck_assert_msg(!wb_plan_create(&in, &d.plan, &err), "%s", err.msg);
	ck_assert_uint_eq(d.plan->n_chunk, 2);
	ck_assert_int_eq(wb_lane_create_inline(&lo, &d.lane, NULL), 0);
	for (uint32_t i = 0; i < n; i++) {
		memset(d.memory[i], (int)(first + i + 1), BYTES);
		d.base[i][0] = d.memory[i];
		d.member[i] = (struct wb_member){first + i, d.map, &d.place, d.base[i], d.lane};
	}
	ck_assert_msg(!wb_local_create(d.plan, d.m, d.member, n, &d.local, &err), "%s", err.msg);
	if (is->only_sends)
		wb_slots_shares(false, share);
	ck_assert_int_eq(wb_slots_init(&d.slots, arena, n_slot * (size_t)(BYTES / 2), BYTES / 2,
				 share, NULL),
		0);
	o.local = d.local;
	ck_assert_msg(!wb_flow_create(&o, &d.f, &err), "%s", err.msg);
}

static void open_flow_with(uint32_t first, uint32_t n, bool sums)
{
	open_shape(&(struct shape){.first = first, .n = n, .sums = sums});
}

static void open_flow(uint32_t first, uint32_t n)
{
	open_flow_with(first, n, false);
}

static void close_flow(void)
{
	ck_assert(wb_flow_is_idle(d.f));
	wb_flow_destroy(d.f);
	wb_slots_finish(&d.slots);
	wb_local_destroy(d.local);
	wb_lane_destroy(d.lane);
	wb_plan_destroy(d.plan);
	wb_map_destroy(d.map);
	wb_manifest_destroy(d.m);
}

/* All that the lane did. */
static void run_lane(void)
{
	struct wb_lane_job job;

	while (wb_lane_reap(d.lane, &job, 1))
		wb_flow_on_lane(&job);
}

/* Grant @k of those that were sent ends. */
static void end_grant_with(int k, enum wb_xport_event_kind kind, const struct wbk_sum *sum)
{
	struct wb_xport_event ev = {.kind = kind,
		.conn = d.notes.asked[k].conn,
		.cookie = d.notes.asked[k].grant.cookie,
		.code = kind == WB_XP_ARRIVED ? 0 : -ECANCELED};
	uint64_t transfer = 7;

	if (sum) {
		memcpy(ev.trailer, sum, sizeof(*sum));
		ev.trailer[16] = 1;
	}
	memcpy(ev.trailer + 24, &transfer, 8);
	wb_flow_on_xport(&ev);
	run_lane();
}

static void end_grant(int k, enum wb_xport_event_kind kind)
{
	end_grant_with(k, kind, NULL);
}

static void ask(wb_conn_t conn, uint64_t grant, uint32_t src, uint32_t dst, uint32_t chunk)
{
	struct wb_xport_event ev = {.kind = WB_XP_GRANT, .conn = conn, .grant = grant};

	ev.chunk = (struct wb_xport_chunk){.transfer = 7,
		.bytes = BYTES / 2,
		.chunk = chunk,
		.gen = 1,
		.src = src,
		.dst = dst};
	wb_flow_on_grant(d.f, &ev);
}

static void end_write(int i)
{
	struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
		.conn = d.notes.answer[i].conn,
		.cookie = d.notes.answer[i].write.cookie};

	if (!d.notes.answer[i].code)
		wb_flow_on_xport(&ev);
}

static void end_writes(void)
{
	for (int i = 0; i < d.notes.n_answer; i++)
		end_write(i);
}

static const struct wb_xport_write *last_write(void)
{
	return &d.notes.answer[d.notes.n_answer - 1].write;
}

/* ---- sources -------------------------------------------------------------------------------- */

START_TEST(a_grant_taken_back_is_that_of_its_own_connection)
{
	open_flow(0, 1);
	ask(1, 0x10000, 0, 2, 0);
	ask(2, 0x10000, 0, 4, 0); /* another connection counts from the same number */
	wb_flow_grant_gone(d.f, 1, 0x10000);
	ck_assert_int_eq(d.notes.n_answer, 0);
	wb_flow_open_source(d.f, 0);
	ck_assert_int_eq(d.notes.n_answer, 1);
	ck_assert_int_eq(d.notes.answer[0].code, 0);
	ck_assert_uint_eq(d.notes.answer[0].conn, 2);
	end_writes();
	close_flow();
}
END_TEST

START_TEST(a_connection_that_goes_down_takes_its_waiting_grants_along)
{
	open_flow(0, 1);
	for (wb_conn_t conn = 1; conn < 1000; conn++) {
		ask(conn, 0x10000, 0, 2, 0);
		ask(conn, 0x10001, 0, 2, 1);
		ck_assert_int_eq(d.notes.n_answer, 0); /* there is room: nobody is told -EBUSY */
		wb_flow_conn_down(d.f, conn);
		ck_assert(wb_flow_is_idle(d.f));
	}
	close_flow();
}
END_TEST

static int n_written(void)
{
	int n = 0;

	for (int i = 0; i < d.notes.n_answer; i++)
		n += !d.notes.answer[i].code;
	return n;
}

/* From another agent, or from a worker of its own.  To wait for a slot that there is none of would
 * be for ever, and name nobody. */
START_TEST(a_sink_that_has_no_slots_to_receive_in_fails_at_once)
{
	bool by_itself = _i;

	open_shape(&(struct shape){.first = by_itself ? 0 : 1,
		.n = by_itself ? 2 : 1,
		.is_turned = true,
		.only_sends = true});
	if (by_itself)
		wb_flow_open_source(d.f, 0);
	wb_flow_open_sink(d.f, by_itself, NULL);
	ck_assert_int_eq(d.n_failed, 1);
	ck_assert_int_eq(d.failed_code, -ENOBUFS);
	ck_assert_msg(strstr(d.why, "the agent of this worker has set aside no slot") != NULL, "%s",
		d.why);
	ck_assert_int_eq(d.notes.n_asked, 0);
	close_flow();
}
END_TEST

/* There is one trainer, and it has its slots for all who ask: those that take and do not read keep
 * some of them from nobody. */
START_TEST(readers_that_stop_reading_leave_slots_for_others)
{
	const int frozen = _i;
	int held;

	open_shape(&(struct shape){.n = 1, .is_turned = true, .readers = READERS});
	wb_flow_open_source(d.f, 0);
	for (int r = 0; r < frozen; r++)
		for (uint64_t k = 0; k < 16; k++)
			ask(1 + (wb_conn_t)r, k, 0, WORKERS + (uint32_t)r, k % 2);
	run_lane();
	held = n_written(); /* they do not end */
	ck_assert_int_ge(held, frozen);
	/* Others come, read, and come again. */
	for (uint64_t k = 0; k < 20; k++)
		for (uint32_t r = (uint32_t)frozen; r < READERS; r++) {
			int before = d.notes.n_answer;

			ask(1 + (wb_conn_t)r, k, 0, WORKERS + r, k % 2);
			run_lane();
			ck_assert_msg(d.notes.n_answer == before + 1,
				"reader %u of %d gets nothing", r, READERS);
			end_write(before);
			d.notes.n_answer = before;
		}
	/* Their engines are given up: each is hung up on, and hears no more. */
	for (int r = 0; r < frozen; r++) {
		int before = d.notes.n_hang_up;

		wb_flow_lose_worker(d.f, WORKERS + (uint32_t)r);
		ck_assert_int_gt(d.notes.n_hang_up, before);
		wb_flow_conn_down(d.f, 1 + (wb_conn_t)r);
	}
	end_writes();
	run_lane();
	ck_assert_int_eq(d.notes.n_answer, held); /* nobody waits for the rest */
	ck_assert_uint_eq(d.slots.n_free[WB_POOL_SEND], d.slots.n_pool[WB_POOL_SEND]);
	close_flow();
}
END_TEST

/* As many as there are may ask before there is anything to send: they are parked, none is refused
 * while it asks for no more than it may. */
START_TEST(asks_for_what_is_not_there_yet_wait)
{
	open_shape(&(struct shape){.n = 1, .is_turned = true, .readers = READERS});
	for (uint32_t r = 0; r < READERS; r++)
		for (uint64_t k = 0; k < 16; k++)
			ask(1 + r, k, 0, WORKERS + r, k % 2);
	ck_assert_int_eq(d.notes.n_answer, 0);
	for (uint32_t r = 0; r < READERS; r++)
		wb_flow_conn_down(d.f, 1 + r);
	ck_assert(wb_flow_is_idle(d.f));
	close_flow();
}
END_TEST

static const uint8_t from_trainer_3[WORKERS] = {0, 0, 0, 1, 0};

/* Worker 4's agent asks for chunks of @src, which wait, until it is told that there is no room; how
 * many that are. */
static uint64_t ask_until_busy(uint32_t src, uint64_t *grant)
{
	int before = d.notes.n_answer;
	uint64_t n = 0;

	for (;; n++) {
		ask(5, (*grant)++, src, 4, (uint32_t)n % 2);
		if (d.notes.n_answer > before)
			break;
	}
	ck_assert_int_eq(d.notes.answer[before].code, -EBUSY);
	return n;
}

/* An agent that has trainers and rollouts is asked for both: what waits here for rollouts' chunks
 * leaves as much room for asks of trainers' chunks, which are answered without regard to anything.
 * What they took is there again when they have gone. */
START_TEST(asks_that_wait_for_an_engine_leave_room_for_those_of_a_trainer)
{
	uint64_t grant = 0, engine = 0, trainer = 0;
	int before;

	open_flow(0, 2);
	wb_flow_open_sink(d.f, 1, from_trainer_3);
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
		wb_flow_conn_down(d.f, 5);
	}
	wb_flow_open_source(d.f, 0);
	ask_until_busy(1, &grant);
	before = d.notes.n_answer;
	for (uint32_t c = 0; c < 2; c++)
		ask(5, grant++, 0, 4, c);
	ck_assert_int_eq(d.notes.n_answer, before + 2);
	for (int i = before; i < d.notes.n_answer; i++)
		ck_assert_int_eq(d.notes.answer[i].code, 0);
	wb_flow_drop_sink(d.f, 1);
	for (int i = 0; i < d.notes.n_asked; i++)
		end_grant(i, WB_XP_CANCELLED);
	wb_flow_conn_down(d.f, 5);
	end_writes();
	close_flow();
}
END_TEST

/* ---- sinks ---------------------------------------------------------------------------------- */

static const uint8_t from_rollout_1[WORKERS] = {0, 1, 0, 0, 0};

/* Everybody else is gone, so that nobody goes on with a feed. */
static void lose_others(uint32_t src)
{
	for (uint32_t w = 0; w < WORKERS; w++)
		if (w != src)
			wb_flow_lose_worker(d.f, w);
}

START_TEST(a_sink_opened_anew_does_not_count_what_was_asked_before)
{
	open_flow(1, 1);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	ck_assert_int_eq(d.notes.n_asked, 2);
	wb_flow_drop_sink(d.f, 0);
	ck_assert_int_eq(d.notes.n_cancel, 2);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	/* One had arrived when it was taken back, the other had not. */
	end_grant(0, _i ? WB_XP_ARRIVED : WB_XP_CANCELLED);
	end_grant(1, WB_XP_CANCELLED);
	ck_assert_int_eq(d.notes.n_asked, 4);
	ck_assert_int_eq(d.n_complete, 0);
	end_grant(2, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 0);
	end_grant(3, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 1);
	ck_assert(wb_flow_sink_complete(d.f, 0));
	close_flow();
}
END_TEST

START_TEST(a_closed_worker_of_the_own_agent_is_not_read)
{
	open_flow(1, 2);
	wb_flow_mark_installed(d.f, 0, NULL);
	wb_flow_close_source(d.f, 0); /* a newer transfer is about to change it */
	lose_others(1);
	wb_flow_open_sink(d.f, 1, from_rollout_1);
	run_lane();
	ck_assert_uint_eq(d.memory[1][0], 3);
	ck_assert_int_eq(d.n_complete, 0);
	ck_assert_int_eq(d.n_failed, 1);
	close_flow();
}
END_TEST

START_TEST(a_closed_trainer_of_the_own_agent_is_not_waited_for)
{
	open_flow(0, 3);
	wb_flow_close_source(d.f, 0);
	wb_flow_open_sink(d.f, 1, NULL);
	wb_flow_open_sink(d.f, 2, NULL);
	for (int k = 0; k < d.notes.n_asked; k++)
		end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 2);
	ck_assert_int_eq(d.n_failed, 0);
	close_flow();
}
END_TEST

static struct wbk_sum sum_at(uint32_t chunk, const void *p)
{
	struct wbk_sum sum = {{0, 0}};
	struct wbk_sum_keys keys;

	wbk_sum_keys_init(&keys, 0);
	wbk_sum_add(&keys, chunk * (BYTES / 2), p, BYTES / 2, &sum);
	return sum;
}

START_TEST(a_write_says_the_sum_of_what_it_sent_whatever_is_learnt_meanwhile)
{
	struct wbk_sum sent, here;
	uint8_t trailer[WB_XPORT_TRAILER_BYTES];
	int k = 0;

	open_flow_with(0, 3, true);
	wb_flow_open_source(d.f, 0);
	ask(1, 0x10000, 0, 4, 0);
	ck_assert_int_eq(d.notes.n_answer, 1);
	/* Another trainer's chunk 0, with other bytes, comes for a worker of this agent. */
	wb_flow_open_sink(d.f, 1, from_trainer_3);
	ck_assert_int_eq(d.notes.n_asked, 2);
	k = d.notes.asked[0].grant.chunk.chunk != 0;
	memset(d.notes.asked[k].grant.iov[0].iov_base, 9, BYTES / 2);
	here = sum_at(0, d.notes.asked[k].grant.iov[0].iov_base);
	d.notes.asked[k].grant.observe(
		d.notes.asked[k].grant.ctx, d.notes.asked[k].grant.iov[0].iov_base, BYTES / 2, 0);
	end_grant_with(k, WB_XP_ARRIVED, &here);
	/* A rail goes on with the write. */
	sent = sum_at(0, d.memory[0]);
	last_write()->observe(last_write()->ctx, d.memory[0], BYTES / 2, 0);
	last_write()->trailer(last_write()->ctx, trailer);
	ck_assert_mem_eq(trailer, &sent, sizeof(sent));
	end_writes();
	end_grant(!k, WB_XP_CANCELLED);
	wb_flow_drop_sink(d.f, 1);
	end_grant(2, WB_XP_CANCELLED);
	close_flow();
}
END_TEST

/* Worker 1 of this agent has both chunks of trainer 3, and the sums that came with them. */
static void open_installed(void)
{
	open_flow_with(1, 1, true);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	ck_assert_int_eq(d.notes.n_asked, 2);
	for (int k = 0; k < 2; k++) {
		const struct iovec *at = d.notes.asked[k].grant.iov;
		struct wbk_sum sum = sum_at(d.notes.asked[k].grant.chunk.chunk, at->iov_base);

		d.notes.asked[k].grant.observe(
			d.notes.asked[k].grant.ctx, at->iov_base, BYTES / 2, 0);
		end_grant_with(k, WB_XP_ARRIVED, &sum);
	}
	ck_assert_int_eq(d.n_complete, 1);
}

/* The bytes are right, and the source says nothing of their sum. */
START_TEST(a_chunk_without_a_sum_is_not_taken_where_sums_are_on)
{
	open_flow_with(1, 1, _i != 0);
	lose_others(3);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	for (int k = 0; k < d.notes.n_asked; k++) {
		if (d.notes.asked[k].grant.observe)
			d.notes.asked[k].grant.observe(d.notes.asked[k].grant.ctx,
				d.notes.asked[k].grant.iov->iov_base, BYTES / 2, 0);
		end_grant(k, WB_XP_ARRIVED);
	}
	ck_assert_int_eq(d.n_complete, !_i);
	ck_assert_int_eq(d.n_failed, _i);
	ck_assert_int_eq(d.failed_code, _i ? WB_ECKSUM : 0);
	ck_assert_int_eq(d.n_mismatch, 0); /* nobody knows whether it is damaged */
	ck_assert_msg(!_i || strstr(d.why, "worker 3") != NULL, "%s", d.why);
	close_flow();
}
END_TEST

/* Else what engines have promised each other could keep a trainer's chunks from coming, which those
 * promises wait for. */
START_TEST(what_engines_send_takes_no_slot_of_what_trainers_send)
{
	static const struct {
		uint8_t feed[WORKERS];
		bool is_near;
		uint32_t receive, exchange, domain; /* slots that are taken */
	} of[] = {{{0, 0, 0, 1, 0}, false, 2, 0, 0}, {{0, 0, 0, 0, 1}, false, 0, 2, 0},
		{{0, 0, 0, 0, 1}, true, 0, 0, 2}};
	const uint32_t *n_pool = d.slots.n_pool, *n_free = d.slots.n_free;

	open_shape(
		&(struct shape){.first = 1, .n = 1, .is_turned = true, .is_near = of[_i].is_near});
	wb_flow_open_sink(d.f, 0, of[_i].feed);
	ck_assert_int_eq(d.notes.n_asked, 2);
	ck_assert_uint_eq(n_pool[WB_POOL_RECEIVE] - n_free[WB_POOL_RECEIVE], of[_i].receive);
	ck_assert_uint_eq(n_pool[WB_POOL_EXCHANGE] - n_free[WB_POOL_EXCHANGE], of[_i].exchange);
	ck_assert_uint_eq(n_pool[WB_POOL_DOMAIN] - n_free[WB_POOL_DOMAIN], of[_i].domain);
	for (int k = 0; k < 2; k++)
		end_grant(k, WB_XP_ARRIVED);
	run_lane();
	ck_assert_int_eq(d.n_complete, 1);
	close_flow();
}
END_TEST

/* A slot that waits for a neighbour is not there for copies between workers of this agent, and
 * these are done while it waits. */
START_TEST(what_comes_from_neighbours_leaves_half_of_the_slots_to_copies)
{
	static const uint8_t from_near[WORKERS] = {0, 0, 0, 0, 1};

	open_shape(&(struct shape){
		.first = 1, .n = 1, .is_turned = true, .is_near = true, .n_slot = 8});
	ck_assert_uint_eq(d.slots.n_pool[WB_POOL_DOMAIN], 2);
	wb_flow_open_sink(d.f, 0, from_near);
	for (int k = 0; k < 2; k++) {
		ck_assert_int_eq(d.notes.n_asked, k + 1);
		ck_assert_uint_eq(d.slots.n_free[WB_POOL_DOMAIN], 1);
		end_grant(k, WB_XP_ARRIVED);
	}
	ck_assert_int_eq(d.n_complete, 1);
	close_flow();
}
END_TEST

/* A chunk that found no slot is not tried again before there is one: each try takes a flight, and
 * looks through all pieces of the chunk. */
START_TEST(a_chunk_that_waits_for_a_slot_costs_nothing_meanwhile)
{
	uint32_t gen[2];

	open_shape(&(struct shape){.first = 1, .n = 1, .is_turned = true, .n_slot = 4});
	ck_assert_uint_eq(d.slots.n_pool[WB_POOL_RECEIVE], 1);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	ck_assert_int_eq(d.notes.n_asked, 1);
	for (int k = 0; k < 100; k++)
		wb_flow_conn_up(d.f, 2);
	ck_assert_int_eq(d.notes.n_asked, 1);
	for (int k = 0; k < 2; k++) {
		end_grant(k, WB_XP_ARRIVED);
		ck_assert_int_eq(d.notes.n_asked, 2);
		gen[k] = d.notes.asked[k].grant.chunk.gen;
	}
	ck_assert_int_eq(d.n_complete, 1);
	/* Each try has a number.  One more than the other: that which found out that it needs a
	 * slot. */
	ck_assert_uint_le(gen[1], gen[0] + 1);
	close_flow();
}
END_TEST

/* All ask one of those who are left for what an engine that is gone had received.  Here that one is
 * a neighbour, which by the plan has it from this agent: each would wait for the other. */
START_TEST(what_is_lost_is_not_asked_of_a_neighbour)
{
	open_shape(&(struct shape){.first = 4, .n = 1, .is_near = true, .readers = 2});
	wb_flow_lose_worker(d.f, 5);
	wb_flow_open_sink(d.f, 0, NULL);
	ck_assert_int_eq(d.notes.n_asked, 2);
	for (int k = 0; k < 2; k++) {
		const struct wb_xport_chunk *c = &d.notes.asked[k].grant.chunk;
		const struct wb_want *w = &d.local->want[wb_local_want(d.local, 0, 0, c->chunk)];

		/* By the plan one comes from a neighbour, and the other from the lost one. */
		ck_assert_uint_eq(w->src, c->chunk ? 5 : 1);
		ck_assert_uint_eq(w->stage, c->chunk ? WB_STAGE_EXTERNAL : WB_STAGE_INTERNAL);
		if (c->chunk)
			ck_assert_int_eq(d.plan->worker[c->src].role, WB_ROLE_TRAINER);
		else
			ck_assert_uint_eq(c->src, 1);
	}
	wb_flow_drop_sink(d.f, 0);
	for (int k = 0; k < 2; k++)
		end_grant(k, WB_XP_CANCELLED);
	close_flow();
}
END_TEST

/* What a neighbour asks for that is not here yet waits at this agent, as long as all that it may
 * wait for comes without that neighbour.  Once somebody is lost that is not so: the neighbour is
 * told to ask again, and holds no slot meanwhile.  Others wait as before. */
START_TEST(a_neighbour_waits_without_a_slot_once_somebody_is_lost)
{
	bool is_near = _i;

	open_shape(&(struct shape){.first = 1, .n = 1, .is_near = is_near});
	ask(1, 0x10000, 1, 4, 0);
	ck_assert_int_eq(d.notes.n_answer, 0);
	wb_flow_lose_worker(d.f, 3);
	ck_assert_int_eq(d.notes.n_answer, is_near);
	ask(1, 0x10001, 1, 4, 1);
	ck_assert_int_eq(d.notes.n_answer, is_near ? 2 : 0);
	for (int k = 0; k < d.notes.n_answer; k++)
		ck_assert_int_eq(d.notes.answer[k].code, -EBUSY);
	wb_flow_stop(d.f);
	close_flow();
}
END_TEST

static void refuse_grant(int k, int code)
{
	struct wb_xport_event ev = {.kind = WB_XP_REFUSED,
		.conn = d.notes.asked[k].conn,
		.cookie = d.notes.asked[k].grant.cookie,
		.code = code};

	wb_flow_on_xport(&ev);
}

/* A source that has no room is asked again after a while, and longer and longer while it stays so:
 * that is no try, and nobody else is asked.  One that never has any is given up, by name. */
START_TEST(a_busy_source_is_asked_again_later)
{
	bool recovers = _i;
	uint64_t began, at;
	int n_asked = 0;

	open_flow(1, 1);
	began = wb_now_ns(&d.clock.clock);
	for (uint32_t w = 0; w < WORKERS; w += 2)
		wb_flow_lose_worker(d.f, w);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	while (!d.n_failed && n_asked < (recovers ? 10 : 1000)) {
		int n = d.notes.n_asked;

		ck_assert_int_gt(n, 0);
		d.notes.n_asked = 0;
		d.clock.now += WB_NS_PER_MS; /* the way there and back */
		for (int k = 0; k < n; k++)
			refuse_grant(k, -EBUSY);
		n_asked++;
		ck_assert_int_eq(d.notes.n_asked, 0); /* not at once */
		at = wb_flow_tick(d.f, wb_now_ns(&d.clock.clock));
		ck_assert(d.n_failed || at > wb_now_ns(&d.clock.clock));
		d.clock.now = at;
		(void)wb_flow_tick(d.f, at);
	}
	ck_assert_int_eq(d.n_failed, !recovers);
	for (int k = 0; recovers && k < 2; k++)
		end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, recovers);
	if (!recovers) {
		ck_assert_int_eq(d.failed_code, -EBUSY);
		ck_assert_msg(strstr(d.why, "worker 3") != NULL, "%s", d.why);
		ck_assert_int_lt(n_asked, 30);
		ck_assert_uint_ge(wb_now_ns(&d.clock.clock) - began, WB_NS_PER_S);
	}
	close_flow();
}
END_TEST

/* What it said before counts no more when nobody has asked it for as long as one that brings
 * nothing is borne: here its connection was gone meanwhile. */
START_TEST(a_source_that_was_busy_long_ago_is_not_given_up_when_it_is_busy_again)
{
	int n;

	open_flow(1, 1);
	for (uint32_t w = 0; w < WORKERS; w += 2)
		wb_flow_lose_worker(d.f, w);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	for (int round = 0; round < 2; round++) {
		n = d.notes.n_asked;
		ck_assert_int_gt(n, 0);
		d.notes.n_asked = 0;
		for (int k = 0; k < n; k++)
			refuse_grant(k, -EBUSY);
		ck_assert_int_eq(d.n_failed, 0);
		d.is_down = true;
		d.clock.now = wb_now_ns(&d.clock.clock) + 2 * WB_NS_PER_S;
		(void)wb_flow_tick(d.f, d.clock.now);
		d.is_down = false;
		wb_flow_conn_up(d.f, 1);
		(void)wb_flow_tick(d.f, d.clock.now);
	}
	for (int k = 0; k < 2; k++)
		end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 1);
	close_flow();
}
END_TEST

enum then { NOTHING, IS_DROPPED, IS_CLOSED, CLOSED_BEFORE_IT_IS_ASKED_FOR, FLOW_STOPS, THENS };

/* What it holds goes bad, and who reads it tells: it is repaired, unless its memory is not this
 * flow's any more. */
START_TEST(nothing_is_asked_for_a_worker_that_is_gone)
{
	int n = 2;

	open_installed();
	ask(1, 0x10000, 1, 4, 0);
	ck_assert_int_eq(d.notes.n_answer, 1);
	d.memory[0][5] ^= 1;
	last_write()->observe(last_write()->ctx, d.memory[0], BYTES / 2, 0);
	if (_i == IS_DROPPED)
		wb_flow_drop_sink(d.f, 0);
	if (_i == IS_CLOSED)
		wb_flow_close_source(d.f, 0);
	if (_i == FLOW_STOPS)
		wb_flow_stop(d.f);
	d.is_down = _i == CLOSED_BEFORE_IT_IS_ASKED_FOR;
	end_writes();
	if (d.is_down)
		wb_flow_close_source(d.f, 0);
	d.is_down = false;
	wb_flow_conn_up(d.f, 1);
	ck_assert_int_eq(d.notes.n_asked, _i == NOTHING ? ++n : n);
	if (n > 2)
		end_grant(2, WB_XP_CANCELLED);
	ck_assert_int_eq(d.notes.n_asked, n > 2 ? 4 : 2); /* still wanted */
	wb_flow_close_source(d.f, 0);
	if (n > 2)
		end_grant(3, WB_XP_CANCELLED);
	ck_assert_int_eq(d.notes.n_asked, n > 2 ? 4 : 2); /* no more */
	close_flow();
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
	tcase_add_loop_test(c, a_busy_source_is_asked_again_later, 0, 2);
	tcase_add_test(c, a_source_that_was_busy_long_ago_is_not_given_up_when_it_is_busy_again);
	tcase_add_loop_test(c, a_chunk_without_a_sum_is_not_taken_where_sums_are_on, 0, 2);
	tcase_add_test(c, a_write_says_the_sum_of_what_it_sent_whatever_is_learnt_meanwhile);
	return fx_run(s);
}
