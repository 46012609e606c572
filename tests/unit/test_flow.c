/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow between a transport that only notes what it is asked and a lane that runs at once: events
 * come in the order that a test wants.
 *
 * Workers of one class, two chunks: trainers 0 (domain 0) and 3 (domain 1), rollouts 1 and 2
 * (domain 0) and 4 (domain 2).
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
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define ROWS 512
#define BYTES (ROWS * 256 * 2)
#define WORKERS 5
#define MAX 64

static struct fix {
	struct wb_xport x; /* first */
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
	/* What the transport was asked. */
	struct wb_xport_grant grant[MAX];
	wb_conn_t grant_conn[MAX], answer_conn[MAX];
	int answer[MAX]; /* 0 = written */
	uint64_t written[MAX];
	struct wb_xport_write write; /* the last one */
	int n_grant, n_answer, n_cancel;
	int n_complete, n_failed;
} d;

static uint8_t arena[16 * BYTES];

static int on_grant(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_grant *g)
{
	(void)x;
	ck_assert_int_lt(d.n_grant, MAX);
	d.grant_conn[d.n_grant] = conn;
	d.grant[d.n_grant++] = *g;
	return 0;
}

static int on_cancel(struct wb_xport *x, wb_conn_t conn, uint64_t cookie)
{
	(void)x;
	(void)conn;
	(void)cookie;
	d.n_cancel++;
	return 0;
}

static int on_answer(wb_conn_t conn, int code, uint64_t cookie)
{
	ck_assert_int_lt(d.n_answer, MAX);
	d.answer_conn[d.n_answer] = conn;
	d.written[d.n_answer] = cookie;
	d.answer[d.n_answer++] = code;
	return 0;
}

static int on_write(struct wb_xport *x, wb_conn_t conn, const struct wb_xport_write *w)
{
	(void)x;
	d.write = *w;
	return on_answer(conn, 0, w->cookie);
}

static int on_refuse(struct wb_xport *x, wb_conn_t conn, uint64_t grant, int code)
{
	(void)x;
	(void)grant;
	return on_answer(conn, code, 0);
}

static const struct wb_xport_ops ops = {.name = "notes",
	.grant = on_grant,
	.cancel = on_cancel,
	.write = on_write,
	.refuse = on_refuse};

static wb_conn_t conn_to(void *ctx, uint32_t domain)
{
	(void)ctx;
	return 100 + domain;
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
	(void)err;
	d.n_failed++;
}

/* An agent with the plan's workers of domain 0, from @first on, @n of them. */
static void open_flow_with(uint32_t first, uint32_t n, bool sums)
{
	static const uint8_t share[WB_POOLS] = {4, 4, 4, 4};
	struct wb_tensor t = fx_tensor("w", WB_BF16, ROWS, 256);
	struct wb_plan_worker worker[WORKERS] = {{.role = WB_ROLE_TRAINER},
		{.role = WB_ROLE_ROLLOUT}, {.role = WB_ROLE_ROLLOUT, .engine = 1},
		{.role = WB_ROLE_TRAINER, .domain = 1},
		{.role = WB_ROLE_ROLLOUT, .engine = 2, .domain = 2}};
	struct wb_flow_opts o = {
		.slots = &d.slots, .env = &d.env, .transfer = 7, .window = 8, .sums = sums};
	struct wb_lane_opts lo = {0};
	struct wb_err err = {0};
	struct fx_map f = {0};

	memset(&d, 0, sizeof(d));
	d.x.ops = &ops;
	d.env = (struct wb_flow_env){.xport = &d.x,
		.clock = &wb_clock_real,
		.conn = conn_to,
		.on_received = received,
		.on_complete = complete,
		.on_failed = failed};
	ck_assert_int_eq(wb_manifest_create(&t, 1, &d.m, NULL), 0);
	f.m = d.m;
	fx_copy(&f, fx_param(&f, "w", WB_BF16, ROWS, 256), "w",
		(struct fx_box){0, ROWS, 0, 256, 0, 0});
	d.map = fx_map_done(&f);
	struct wb_plan_input in = {.manifest = d.m,
		.layout = (const struct wb_map *const *)&d.map,
		.n_layout = 1,
		.worker = worker,
		.n_worker = WORKERS,
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
	ck_assert_int_eq(wb_slots_init(&d.slots, arena, sizeof(arena), BYTES / 2, share, NULL), 0);
	o.local = d.local;
	ck_assert_msg(!wb_flow_create(&o, &d.f, &err), "%s", err.msg);
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
		.conn = d.grant_conn[k],
		.cookie = d.grant[k].cookie,
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

static void end_writes(void)
{
	for (int i = 0; i < d.n_answer; i++) {
		struct wb_xport_event ev = {
			.kind = WB_XP_WRITE_DONE, .conn = d.answer_conn[i], .cookie = d.written[i]};

		if (!d.answer[i])
			wb_flow_on_xport(&ev);
	}
}

/* ---- sources -------------------------------------------------------------------------------- */

START_TEST(a_grant_taken_back_is_that_of_its_own_connection)
{
	open_flow(0, 1);
	ask(1, 0x10000, 0, 2, 0);
	ask(2, 0x10000, 0, 4, 0); /* another connection counts from the same number */
	wb_flow_grant_gone(d.f, 1, 0x10000);
	ck_assert_int_eq(d.n_answer, 0);
	wb_flow_open_source(d.f, 0);
	ck_assert_int_eq(d.n_answer, 1);
	ck_assert_int_eq(d.answer[0], 0);
	ck_assert_uint_eq(d.answer_conn[0], 2);
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
		ck_assert_int_eq(d.n_answer, 0); /* there is room: nobody is told -EBUSY */
		wb_flow_conn_down(d.f, conn);
		ck_assert(wb_flow_is_idle(d.f));
	}
	close_flow();
}
END_TEST

/* ---- sinks ---------------------------------------------------------------------------------- */

static const uint8_t from_trainer_3[WORKERS] = {0, 0, 0, 1, 0};
static const uint8_t from_rollout_1[WORKERS] = {0, 1, 0, 0, 0};

START_TEST(a_sink_opened_anew_does_not_count_what_was_asked_before)
{
	open_flow(1, 1);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	ck_assert_int_eq(d.n_grant, 2);
	wb_flow_drop_sink(d.f, 0);
	ck_assert_int_eq(d.n_cancel, 2);
	wb_flow_open_sink(d.f, 0, from_trainer_3);
	/* One had arrived when it was taken back, the other had not. */
	end_grant(0, _i ? WB_XP_ARRIVED : WB_XP_CANCELLED);
	end_grant(1, WB_XP_CANCELLED);
	ck_assert_int_eq(d.n_grant, 4);
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
	for (int k = 0; k < d.n_grant; k++)
		end_grant(k, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 2);
	ck_assert_int_eq(d.n_failed, 0);
	close_flow();
}
END_TEST

static struct wbk_sum sum_of(const void *p, size_t bytes)
{
	struct wbk_sum sum = {{0, 0}};
	struct wbk_sum_keys keys;

	wbk_sum_keys_init(&keys, 0);
	wbk_sum_add(&keys, 0, p, bytes, &sum);
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
	ck_assert_int_eq(d.n_answer, 1);
	/* Another trainer's chunk 0, with other bytes, comes for a worker of this agent. */
	wb_flow_open_sink(d.f, 1, from_trainer_3);
	ck_assert_int_eq(d.n_grant, 2);
	k = d.grant[0].chunk.chunk != 0;
	memset(d.grant[k].iov[0].iov_base, 9, BYTES / 2);
	here = sum_of(d.grant[k].iov[0].iov_base, BYTES / 2);
	d.grant[k].observe(d.grant[k].ctx, d.grant[k].iov[0].iov_base, BYTES / 2, 0);
	end_grant_with(k, WB_XP_ARRIVED, &here);
	/* A rail goes on with the write. */
	sent = sum_of(d.memory[0], BYTES / 2);
	d.write.observe(d.write.ctx, d.memory[0], BYTES / 2, 0);
	d.write.trailer(d.write.ctx, trailer);
	ck_assert_mem_eq(trailer, &sent, sizeof(sent));
	end_writes();
	end_grant(!k, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 1);
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
	tcase_add_test(c, a_write_says_the_sum_of_what_it_sent_whatever_is_learnt_meanwhile);
	return fx_run(s);
}
