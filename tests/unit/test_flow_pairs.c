/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom workers of one agent ask, for how much at once, and in which order: between a transport that
 * only notes what it is asked and a lane that runs at once.
 *
 * Trainers 0 to 3 are agent 0, and each holds a tensor; the last one is three times as large as the
 * others.  4 and 5 are the engine of this agent, 6 and 7 that of another, and each wants all.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/hash.h"
#include "flow/flow.h"
#include "flow/internal.h"
#include "flow/lists.h"
#include "lane/lane.h"
#include "tests/common/fx_check.h"
#include "tests/common/fx_notes.h"
#include "tests/common/fx_plan.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#define TENSOR_ROWS 256 /* of the last three times as many */
#define ROWS (6 * TENSOR_ROWS)
#define BYTES (ROWS * 256 * 2)
#define CHUNK 1024
#define TRAINERS 4
#define WORKERS 8
#define AGENTS 3
#define ME 4 /* the first of this agent's two */
#define WINDOW 3
#define FLIGHTS 16

static struct {
	struct fx_notes notes;
	struct wb_fake_clock clock;
	struct wb_manifest *m;
	struct wb_map *map[WORKERS]; /* of the trainers, and one of all others */
	struct wb_plan *plan;
	struct wb_place place;
	struct wb_member member[2];
	uint8_t memory[2][BYTES];
	void *base[2][1];
	struct wb_lane *lane;
	struct wb_local *local;
	struct wb_slots slots;
	struct wb_flow_env env;
	struct wb_flow *f;
	int n_received, n_complete, n_failed;
	bool is_down[WORKERS]; /* no connection to that agent */
	bool lent_is_down; /* none by rails that are lent */
} d;

static uint8_t arena[16 * CHUNK];

/* Which rails a connection has. */
static wb_conn_t way(uint32_t dst, uint32_t src)
{
	return 100 + src * WORKERS + dst;
}

static wb_conn_t conn_to(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	(void)ctx;
	return d.is_down[d.plan->worker[src].domain] || (may_miss && d.lent_is_down)
		       ? 0
		       : way(dst, src);
}

static void received(void *ctx, struct wb_flow *f, uint32_t worker)
{
	(void)ctx;
	(void)f;
	(void)worker;
	d.n_received++;
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

static uint32_t rows_of(uint32_t tensor)
{
	return tensor == TRAINERS - 1 ? 3 * TENSOR_ROWS : TENSOR_ROWS;
}

static void make_maps(void)
{
	static const char *const names[TRAINERS] = {"w0", "w1", "w2", "w3"};
	struct fx_map all = {0};
	struct wb_tensor t[TRAINERS];
	uint32_t at = 0, p;

	for (uint32_t i = 0; i < TRAINERS; i++)
		t[i] = fx_tensor(names[i], WB_BF16, rows_of(i), 256);
	ck_assert_int_eq(wb_manifest_create(t, TRAINERS, &d.m, NULL), 0);
	all.m = d.m;
	p = fx_param(&all, "w", WB_BF16, ROWS, 256);
	for (uint32_t i = 0; i < TRAINERS; i++) {
		struct fx_map one = {.m = d.m};

		fx_copy(&one, fx_param(&one, names[i], WB_BF16, rows_of(i), 256), names[i],
			(struct fx_box){0, rows_of(i), 0, 256, 0, 0});
		d.map[i] = fx_map_done(&one);
		fx_copy(&all, p, names[i], (struct fx_box){0, rows_of(i), 0, 256, at, 0});
		at += rows_of(i);
	}
	d.map[TRAINERS] = fx_map_done(&all);
}

static void make_plan(void)
{
	static const uint32_t domain[WORKERS] = {0, 0, 0, 0, 1, 1, 2, 2};
	struct wb_plan_worker worker[WORKERS] = {0};
	struct wb_err err = {0};

	make_maps();
	for (uint32_t w = 0; w < WORKERS; w++)
		worker[w] = (struct wb_plan_worker){
			.role = w < TRAINERS ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT,
			.layout = w < TRAINERS ? w : TRAINERS,
			.engine = w < TRAINERS + 2 ? 0 : 1,
			.domain = domain[w],
			.node = domain[w]};
	struct wb_plan_input in = {.manifest = d.m,
		.layout = (const struct wb_map *const *)d.map,
		.n_layout = TRAINERS + 1,
		.worker = worker,
		.n_worker = WORKERS,
		.chunk_bytes = CHUNK};

	ck_assert_msg(!wb_plan_create(&in, &d.plan, &err), "%s", err.msg);
}

/* What comes to ME goes by the rail of ME + 1, and what worker 6 has by that of 7. */
static void lend(void)
{
	for (uint32_t i = 0; i < d.plan->n_route; i++) {
		struct wb_route *r = &d.plan->route[i];

		if (r->stage == WB_STAGE_INTERNAL)
			continue;
		if (r->dst == ME)
			r->dst_rail = ME + 1;
		if (r->src == TRAINERS + 2)
			r->src_rail = TRAINERS + 3;
	}
}

static void open_plan(uint32_t window, bool lends)
{
	static const uint8_t share[WB_POOLS] = {4, 4, 4, 4};
	struct wb_flow_opts o = {.slots = &d.slots, .env = &d.env, .transfer = 7, .window = window};
	struct wb_lane_opts lo = {0};
	struct wb_err err = {0};

	memset(&d, 0, sizeof(d));
	fx_notes_init(&d.notes);
	d.env = (struct wb_flow_env){.xport = &d.notes.x,
		.clock = &d.clock.clock,
		.conn = conn_to,
		.on_received = received,
		.on_complete = complete,
		.on_failed = failed};
	wb_fake_clock_init(&d.clock, WB_NS_PER_S);
	make_plan();
	if (lends)
		lend();
	ck_assert_int_eq(wb_lane_create_inline(&lo, &d.lane, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		d.base[i][0] = d.memory[i];
		d.member[i] =
			(struct wb_member){ME + i, d.map[TRAINERS], &d.place, d.base[i], d.lane};
	}
	ck_assert_msg(!wb_local_create(d.plan, d.m, d.member, 2, &d.local, &err), "%s", err.msg);
	ck_assert_int_eq(wb_slots_init(&d.slots, arena, sizeof(arena), CHUNK, share, NULL), 0);
	o.local = d.local;
	ck_assert_msg(!wb_flow_create(&o, &d.f, &err), "%s", err.msg);
}

static void open_window(uint32_t window)
{
	open_plan(window, false);
}

static void open_flow(void)
{
	open_window(WINDOW);
}

static void run_lane(void)
{
	struct wb_lane_job job;

	while (wb_lane_reap(d.lane, &job, 1))
		wb_flow_on_lane(&job);
}

/* Grant @k ends, and its place in the notes is free again. */
static void end_grant(int k, enum wb_xport_event_kind kind)
{
	struct wb_xport_event ev = {.kind = kind,
		.conn = d.notes.asked[k].conn,
		.cookie = d.notes.asked[k].grant.cookie,
		.code = kind == WB_XP_ARRIVED ? 0 : -ECANCELED};
	uint64_t transfer = 7;

	d.notes.asked[k] = d.notes.asked[--d.notes.n_asked];
	memcpy(ev.trailer + 24, &transfer, sizeof(transfer));
	wb_flow_on_xport(&ev);
	run_lane();
}

static uint32_t src_of(int k)
{
	return d.notes.asked[k].grant.chunk.src;
}

static uint32_t dst_of(int k)
{
	return d.notes.asked[k].grant.chunk.dst;
}

/* Grants that are out. */
static int n_out(uint32_t src, uint32_t dst)
{
	int n = 0;

	for (int k = 0; k < d.notes.n_asked; k++)
		n += (src == UINT32_MAX || src_of(k) == src) &&
		     (dst == UINT32_MAX || dst_of(k) == dst);
	return n;
}

static void close_flow(void)
{
	wb_flow_stop(d.f);
	while (d.notes.n_asked)
		end_grant(0, WB_XP_CANCELLED);
	run_lane();
	ck_assert(wb_flow_is_idle(d.f));
	wb_flow_destroy(d.f);
	wb_slots_finish(&d.slots);
	wb_local_destroy(d.local);
	wb_lane_destroy(d.lane);
	wb_plan_destroy(d.plan);
	for (int i = 0; i <= TRAINERS; i++)
		wb_map_destroy(d.map[i]);
	wb_manifest_destroy(d.m);
}

static uint32_t n_planned(uint32_t src, uint32_t dst)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < d.plan->n_route; i++)
		if (d.plan->route[i].src == src && d.plan->route[i].dst == dst)
			n += d.plan->route[i].chunk_end - d.plan->route[i].chunk_begin;
	return n;
}

/* ---- windows -------------------------------------------------------------------------------- */

/* All trainers are of one agent: each has a rail of its own, and each works. */
START_TEST(every_worker_of_an_agent_is_asked_by_every_worker)
{
	open_flow();
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	for (uint32_t src = 0; src < TRAINERS; src++)
		for (uint32_t dst = ME; dst < ME + 2; dst++) {
			ck_assert_uint_gt(n_planned(src, dst), WINDOW);
			ck_assert_int_eq(n_out(src, dst), WINDOW);
		}
	close_flow();
}
END_TEST

/* What ends for one worker is asked for by that worker. */
START_TEST(one_worker_that_gets_nothing_does_not_keep_another_from_its_chunks)
{
	open_flow();
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	for (int n = 0; n < 60; n++) {
		int k = 0;

		while (dst_of(k) != ME)
			k++;
		end_grant(k, WB_XP_ARRIVED);
		ck_assert_int_eq(n_out(UINT32_MAX, ME + 1), TRAINERS * WINDOW);
		ck_assert_int_gt(n_out(UINT32_MAX, ME), 0);
	}
	close_flow();
}
END_TEST

/* A wide window does not give a worker more than its flights. */
START_TEST(a_worker_has_so_many_chunks_in_flight_and_no_more)
{
	open_window(FLIGHTS);
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	for (int n = 0; n < 100; n++) {
		ck_assert_int_eq(n_out(UINT32_MAX, ME), FLIGHTS);
		ck_assert_int_eq(n_out(UINT32_MAX, ME + 1), FLIGHTS);
		end_grant(n % d.notes.n_asked, WB_XP_ARRIVED);
	}
	close_flow();
}
END_TEST

/* What engines have promised each other leaves as many grants to what trainers send. */
START_TEST(exchanges_hold_no_more_than_half_of_a_connections_grants)
{
	for (uint32_t window = WINDOW; window <= 32; window *= 2)
		for (uint32_t n = 1; n <= WB_XPORT_DEPTH; n++) {
			uint32_t receive = wb__flow_flights_max(FETCH_RECEIVE, window, n);
			uint32_t exchange = wb__flow_flights_max(FETCH_EXCHANGE, window, n);

			ck_assert(receive == WB_MAX(FLIGHTS, window));
			ck_assert(exchange >= 1 && exchange <= receive);
			ck_assert(exchange == 1 || n * exchange <= WB_XPORT_DEPTH / 2);
			ck_assert(exchange == receive || n * (exchange + 1) > WB_XPORT_DEPTH / 2);
		}
}
END_TEST

/* ---- order ---------------------------------------------------------------------------------- */

/* The last trainer has three times as much to send: at any time each was asked for the same part of
 * what it has. */
START_TEST(sources_get_on_in_proportion_to_what_they_have_to_send)
{
	uint32_t done[TRAINERS] = {0};
	struct wb_rng r = {(uint64_t)_i};

	open_window(FLIGHTS);
	ck_assert_uint_gt(n_planned(TRAINERS - 1, ME), 2 * n_planned(0, ME));
	wb_flow_open_sink(d.f, 0, NULL);
	while (!d.n_received) {
		int k = (int)wb_rng_below(&r, (uint64_t)d.notes.n_asked);
		double least = 1, most = 0;

		for (uint32_t src = 0; src < TRAINERS; src++) {
			double part = (done[src] + n_out(src, ME)) / (double)n_planned(src, ME);

			least = part < least ? part : least;
			most = part > most ? part : most;
		}
		ck_assert_msg(most - least < 0.1, "%.2f and %.2f", least, most);
		while (src_of(k) >= TRAINERS)
			k = (k + 1) % d.notes.n_asked;
		done[src_of(k)]++;
		end_grant(k, WB_XP_ARRIVED);
	}
	close_flow();
}
END_TEST

/* Trainers wait for what they send; engines do not wait for each other's. */
START_TEST(nothing_is_asked_of_engines_while_trainers_have_something_to_send)
{
	uint32_t left = 0;
	int k;

	open_flow();
	for (uint32_t src = 0; src < TRAINERS; src++)
		left += n_planned(src, ME);
	wb_flow_open_sink(d.f, 0, NULL);
	while (left) {
		int of_engines = n_out(TRAINERS + 2, ME) + n_out(TRAINERS + 3, ME);

		ck_assert_int_eq(of_engines > 0, d.notes.n_asked - of_engines == (int)left);
		for (k = 0; src_of(k) >= TRAINERS;)
			k++;
		end_grant(k, WB_XP_ARRIVED);
		left--;
	}
	ck_assert_int_eq(d.n_received, 1);
	close_flow();
}
END_TEST

/* ---- rails ---------------------------------------------------------------------------------- */

/* Whom a chunk of the plan's comes from and to, and by which rails. */
static wb_conn_t planned_way(uint32_t src, uint32_t dst)
{
	return way(dst == ME ? ME + 1 : dst, src == TRAINERS + 2 ? TRAINERS + 3 : src);
}

START_TEST(a_chunk_comes_by_the_rails_that_the_plan_names)
{
	int seen[WORKERS] = {0};

	open_plan(FLIGHTS, true);
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	while (d.n_complete < 2) {
		int k = d.notes.n_asked - 1;

		ck_assert_uint_eq(d.notes.asked[k].conn, planned_way(src_of(k), dst_of(k)));
		seen[src_of(k)]++;
		end_grant(k, WB_XP_ARRIVED);
	}
	for (int src = 0; src < WORKERS; src++)
		ck_assert_int_eq(seen[src] > 0, src != ME && src != ME + 1);
	close_flow();
}
END_TEST

/* Is grant @k one of those that the plan has? */
static bool is_planned(int k)
{
	const struct wb_xport_chunk *c = &d.notes.asked[k].grant.chunk;

	for (uint32_t i = 0; i < d.plan->n_route; i++) {
		const struct wb_route *r = &d.plan->route[i];

		if (r->class_id == c->cls && r->src == c->src && r->dst == c->dst &&
			c->chunk >= r->chunk_begin && c->chunk < r->chunk_end)
			return true;
	}
	return false;
}

/* 0: rails that are lent do not carry; 1: who was to send is lost, so that others do, to whom none
 * is lent. */
START_TEST(what_does_not_go_as_planned_comes_by_the_rails_of_the_two_themselves)
{
	uint32_t lost = _i ? TRAINERS + 2 : UINT32_MAX;
	int n_own = 0;

	open_plan(FLIGHTS, true);
	d.lent_is_down = !_i;
	if (_i)
		wb_flow_lose_worker(d.f, lost);
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	while (d.n_complete < 2) {
		int k = d.notes.n_asked - 1;
		uint32_t src = src_of(k), dst = dst_of(k);
		wb_conn_t conn = d.notes.asked[k].conn;

		ck_assert_uint_ne(src, lost);
		ck_assert_uint_eq(
			conn, _i && is_planned(k) ? planned_way(src, dst) : way(dst, src));
		n_own += conn != planned_way(src, dst);
		end_grant(k, WB_XP_ARRIVED);
	}
	ck_assert_int_gt(n_own, 0);
	close_flow();
}
END_TEST

/* ---- agents that cannot be asked --------------------------------------------------------------
 */

START_TEST(an_agent_that_is_not_connected_is_asked_when_it_is)
{
	bool by_tick = _i;

	open_flow();
	d.is_down[0] = true;
	wb_flow_open_sink(d.f, 0, NULL);
	ck_assert_int_eq(n_out(UINT32_MAX, ME), 0);
	d.is_down[0] = false;
	if (by_tick)
		(void)wb_flow_tick(d.f, wb_now_ns(&d.clock.clock));
	else
		wb_flow_conn_up(d.f, 0);
	ck_assert_int_eq(n_out(UINT32_MAX, ME), TRAINERS * WINDOW);
	close_flow();
}
END_TEST

/* Connections come and go, grants end well and not, sinks are dropped and opened again, trainers
 * are lost: what is wanted comes in the end. */
START_TEST(whatever_happens_on_the_way_all_comes_in_the_end)
{
	struct wb_rng r = {(uint64_t)_i};
	bool has_lost = false;

	open_flow();
	wb_flow_open_sink(d.f, 0, NULL);
	wb_flow_open_sink(d.f, 1, NULL);
	for (int n = 0; n < 400; n++) {
		uint32_t what = (uint32_t)wb_rng_below(&r, 16);
		uint32_t a = (uint32_t)wb_rng_below(&r, AGENTS);

		if (what == 0 && a != 1)
			d.is_down[a] = !d.is_down[a];
		if (what == 0 && !d.is_down[a])
			wb_flow_conn_up(d.f, a);
		if (what == 1)
			(void)wb_flow_tick(d.f, wb_now_ns(&d.clock.clock));
		if (what == 2 && a == 0 && !wb_flow_sink_complete(d.f, 0)) {
			wb_flow_drop_sink(d.f, 0);
			wb_flow_open_sink(d.f, 0, NULL);
		}
		if (what == 3 && a == 0 && !has_lost) {
			wb_flow_lose_worker(d.f, 1);
			has_lost = true;
		}
		if (what > 3 && d.notes.n_asked)
			end_grant((int)wb_rng_below(&r, (uint64_t)d.notes.n_asked),
				what == 4 ? WB_XP_LOST : WB_XP_ARRIVED);
	}
	memset(d.is_down, 0, sizeof(d.is_down));
	(void)wb_flow_tick(d.f, wb_now_ns(&d.clock.clock));
	while (d.notes.n_asked)
		end_grant(0, WB_XP_ARRIVED);
	ck_assert_int_eq(d.n_complete, 2);
	ck_assert_int_eq(d.n_failed, 0);
	close_flow();
}
END_TEST

/* ---- lists ---------------------------------------------------------------------------------- */

START_TEST(a_heap_gives_the_least_first)
{
	enum { CAP = 64 };
	uint64_t rank[CAP];
	bool is_in[CAP] = {false};
	struct wb_least h;
	struct wb_rng r = {(uint64_t)_i};

	ck_assert_int_eq(wb_least_init(&h, CAP), 0);
	for (int n = 0; n < 2000; n++) {
		uint32_t m = (uint32_t)wb_rng_below(&r, CAP), best = LIST_NONE;

		if (wb_rng_below(&r, 2) && !is_in[m]) {
			rank[m] = wb_rng_below(&r, 8);
			wb_least_add(&h, m, rank[m]);
			is_in[m] = true;
			continue;
		}
		for (uint32_t i = 0; i < CAP; i++)
			if (is_in[i] && (best == LIST_NONE || rank[i] < rank[best]))
				best = i;
		ck_assert_uint_eq(wb_least_take(&h), best);
		if (best != LIST_NONE)
			is_in[best] = false;
	}
	wb_least_finish(&h);
}
END_TEST

START_TEST(a_table_keeps_the_order_in_which_they_came)
{
	enum { CAP = 64 };
	uint32_t order[CAP], n = 0;
	uint64_t key[CAP];
	struct wb_keyed t;
	struct wb_rng r = {(uint64_t)_i};

	ck_assert_int_eq(wb_keyed_init(&t, CAP), 0);
	for (int i = 0; i < 3000; i++) {
		uint32_t m = (uint32_t)wb_rng_below(&r, CAP), at = 0, of_key = LIST_NONE;

		while (at < n && order[at] != m)
			at++;
		if (at < n) {
			wb_keyed_remove(&t, m);
			memmove(order + at, order + at + 1, (--n - at) * sizeof(*order));
		} else {
			key[m] = wb_rng_below(&r, 5);
			wb_keyed_add(&t, m, key[m]);
			order[n++] = m;
		}
		m = wb_keyed_oldest(&t);
		for (at = 0; at < n; at++, m = wb_keyed_later(&t, m))
			ck_assert_uint_eq(m, order[at]);
		ck_assert_uint_eq(m, LIST_NONE);
		for (at = n; at-- > 0;)
			of_key = key[order[at]] == 3 ? order[at] : of_key;
		ck_assert_uint_eq(wb_keyed_first(&t, 3), of_key);
	}
	wb_keyed_finish(&t);
}
END_TEST

/* ---- main ----------------------------------------------------------------------------------- */

int main(void)
{
	Suite *s = suite_create("flow_pairs");
	TCase *c = tcase_create("flow_pairs");

	suite_add_tcase(s, c);
	tcase_add_test(c, every_worker_of_an_agent_is_asked_by_every_worker);
	tcase_add_test(c, one_worker_that_gets_nothing_does_not_keep_another_from_its_chunks);
	tcase_add_test(c, a_worker_has_so_many_chunks_in_flight_and_no_more);
	tcase_add_test(c, exchanges_hold_no_more_than_half_of_a_connections_grants);
	tcase_add_loop_test(c, sources_get_on_in_proportion_to_what_they_have_to_send, 0, 8);
	tcase_add_test(c, nothing_is_asked_of_engines_while_trainers_have_something_to_send);
	tcase_add_test(c, a_chunk_comes_by_the_rails_that_the_plan_names);
	tcase_add_loop_test(
		c, what_does_not_go_as_planned_comes_by_the_rails_of_the_two_themselves, 0, 2);
	tcase_add_loop_test(c, an_agent_that_is_not_connected_is_asked_when_it_is, 0, 2);
	tcase_add_loop_test(c, whatever_happens_on_the_way_all_comes_in_the_end, 0, 200);
	tcase_add_loop_test(c, a_heap_gives_the_least_first, 0, 8);
	tcase_add_loop_test(c, a_table_keeps_the_order_in_which_they_came, 0, 8);
	return fx_run(s);
}
