/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_flow.h"
#include "tests/common/fx_check.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>

struct fx_flow fx;

static uint8_t arena[4 * FX_SEND_SLOTS * FX_CHUNK];

static wb_conn_t conn_to(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	uint32_t domain = fx.plan->worker[src].domain;

	(void)may_miss;
	(void)ctx;
	(void)dst;
	return 100 + domain;
}

static void received(void *ctx, struct wb_flow *f, uint32_t worker)
{
	(void)ctx;
	(void)f;
	(void)worker;
	fx.n_received++;
}

static void complete(void *ctx, struct wb_flow *f, uint32_t worker)
{
	(void)ctx;
	(void)f;
	(void)worker;
	fx.n_complete++;
}

static void failed(void *ctx, struct wb_flow *f, uint32_t worker, const struct wb_err *err)
{
	(void)ctx;
	(void)f;
	(void)worker;
	(void)err;
	fx.n_failed++;
}

static void mismatch(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m)
{
	(void)ctx;
	(void)f;
	(void)m;
	fx.n_mismatch++;
}

static void snapped(void *ctx, struct wb_flow *f, uint32_t worker, int rc)
{
	(void)ctx;
	(void)f;
	(void)worker;
	ck_assert_int_eq(rc, 0);
	fx.n_snapped++;
}

static uint64_t now(const struct wb_clock *c)
{
	(void)c;
	return fx.now;
}

static void make_plan(enum fx_shape shape)
{
	struct wb_plan_worker worker[FX_WORKERS] = {0};
	struct wb_err err = {0};

	fx.m = fx_model_manifest();
	fx.map = shape == FX_TURNED   ? fx_model_turned(fx.m)
		 : shape == FX_BLOCKS ? fx_model_blocks(fx.m)
				      : fx_model_rows(fx.m, 0, MODEL_ROWS);
	for (uint32_t i = 0; i < FX_WORKERS; i++)
		worker[i] = (struct wb_plan_worker){
			.role = i < FX_TRAINERS ? WB_ROLE_TRAINER : WB_ROLE_ROLLOUT,
			.engine = i < FX_TRAINERS ? 0 : i - FX_TRAINERS,
			.domain = i,
			.node = i};
	struct wb_plan_input in = {.manifest = fx.m,
		.layout = (const struct wb_map *const *)&fx.map,
		.n_layout = 1,
		.worker = worker,
		.n_worker = FX_WORKERS,
		.chunk_bytes = FX_CHUNK};

	ck_assert_msg(!wb_plan_create(&in, &fx.plan, &err), "%s", err.msg);
	ck_assert_uint_eq(fx.plan->n_class, 1);
	ck_assert_uint_eq(fx.plan->n_chunk, FX_CHUNKS);
}

void fx_flow_open(uint32_t worker, enum fx_shape shape, struct wb_flow_opts o)
{
	static const uint8_t share[WB_POOLS] = {4, 4, 4, 4};
	struct wb_member me = {0};
	struct wb_lane_opts lo = {.depth = fx.lane_depth};
	struct wb_err err = {0};

	memset(&fx, 0, sizeof(fx));
	fx_notes_init(&fx.notes);
	fx.now = WB_NS_PER_S;
	fx.clock.now_ns = now;
	fx.env = (struct wb_flow_env){.xport = &fx.notes.x,
		.clock = &fx.clock,
		.conn = conn_to,
		.on_received = received,
		.on_complete = complete,
		.on_mismatch = mismatch,
		.on_snapped = snapped,
		.on_failed = failed};
	make_plan(shape);
	memset(fx.memory, (int)worker + 1, sizeof(fx.memory));
	fx.base[0] = fx.memory;
	ck_assert_int_eq(wb_lane_create_inline(&lo, &fx.lane, NULL), 0);
	me = (struct wb_member){worker, fx.map, &fx.place, fx.base, fx.lane};
	ck_assert_msg(!wb_local_create(fx.plan, fx.m, &me, 1, &fx.local, &err), "%s", err.msg);
	ck_assert_int_eq(wb_slots_init(&fx.slots, arena, sizeof(arena), FX_CHUNK, share, NULL), 0);
	o.local = fx.local;
	o.slots = &fx.slots;
	o.env = &fx.env;
	o.transfer = FX_TRANSFER;
	o.window = o.window ? o.window : FX_CHUNKS;
	ck_assert_msg(!wb_flow_create(&o, &fx.f, &err), "%s", err.msg);
}

/* All that the lane did. */
void fx_run_lane(void)
{
	struct wb_lane_job job;

	while (wb_lane_reap(fx.lane, &job, 1)) {
		fx.n_sum += job.kind == WB_LANE_SUM;
		wb_flow_on_lane(&job);
	}
}

/* ---- grants that this agent has sent -------------------------------------------------------- */

struct wbk_sum fx_sum_of(uint32_t chunk, const void *bytes)
{
	struct wbk_sum sum = {{0, 0}};
	struct wbk_sum_keys keys;

	wbk_sum_keys_init(&keys, 0);
	wbk_sum_add(&keys, (uint64_t)chunk * FX_CHUNK, bytes, FX_CHUNK, &sum);
	return sum;
}

/* Bytes for grant @k, of 40 + its chunk; with the trailer of a trainer. */
static void deliver(int k, enum how how, uint8_t trailer[WB_XPORT_TRAILER_BYTES])
{
	static uint8_t bytes[FX_CHUNK];
	const struct wb_xport_grant *g = &fx.notes.asked[k].grant;
	uint64_t transfer = how == OTHER_TRANSFER ? FX_TRANSFER - 1 : FX_TRANSFER;
	struct wbk_sum sum;
	size_t at = 0;

	memset(bytes, 40 + (int)g->chunk.chunk, sizeof(bytes));
	sum = fx_sum_of(g->chunk.chunk, bytes);
	sum.lane[0] += how == WRONG_SUM;
	for (uint32_t i = 0; i < g->n_iov; i++) {
		memcpy(g->iov[i].iov_base, bytes + at, g->iov[i].iov_len);
		if (g->observe)
			g->observe(g->ctx, g->iov[i].iov_base, g->iov[i].iov_len, at);
		if (how == LANDED_ELSEWHERE)
			memset(g->iov[i].iov_base, 0, g->iov[i].iov_len);
		at += g->iov[i].iov_len;
	}
	memcpy(trailer, &sum, sizeof(sum));
	trailer[16] = 1; /* summed */
	memcpy(trailer + 24, &transfer, sizeof(transfer));
}

void fx_end_grant(int k, enum how how)
{
	struct wb_xport_event ev = {.kind = how == REFUSED      ? WB_XP_REFUSED
					    : how == TAKEN_BACK ? WB_XP_CANCELLED
								: WB_XP_ARRIVED,
		.conn = fx.notes.asked[k].conn,
		.cookie = fx.notes.asked[k].grant.cookie,
		.code = how >= REFUSED ? -ECANCELED : 0};

	ck_assert(!fx.notes.asked[k].is_over);
	fx.notes.asked[k].is_over = true;
	if (how < REFUSED)
		deliver(k, how, ev.trailer);
	wb_flow_on_xport(&ev);
}

void fx_end_all(bool from_trainers, enum how how)
{
	for (int k = 0; k < fx.notes.n_asked; k++)
		if (!fx.notes.asked[k].is_over &&
			(fx.notes.asked[k].grant.chunk.src < FX_TRAINERS) == from_trainers) {
			fx_end_grant(k, how);
			fx_run_lane();
		}
}

/* The last grant for @chunk. */
int fx_last_for(uint32_t chunk)
{
	for (int k = fx.notes.n_asked; k-- > 0;)
		if (fx.notes.asked[k].grant.chunk.chunk == chunk)
			return k;
	ck_abort_msg("chunk %u was not asked for", chunk);
}

/* The first grant that is out, to a trainer or to another engine. */
int fx_first_out(bool to_trainer)
{
	for (int k = 0; k < fx.notes.n_asked; k++)
		if (!fx.notes.asked[k].is_over &&
			(fx.notes.asked[k].grant.chunk.src < FX_TRAINERS) == to_trainer)
			return k;
	ck_abort_msg("no such grant is out");
}

void fx_flow_close(void)
{
	wb_flow_stop(fx.f);
	for (int k = 0; k < fx.notes.n_asked; k++)
		if (!fx.notes.asked[k].is_over)
			fx_end_grant(k, TAKEN_BACK);
	fx_run_lane();
	for (int k = 0; k < fx.notes.n_answer; k++) {
		struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
			.conn = fx.notes.answer[k].conn,
			.cookie = fx.notes.answer[k].write.cookie};

		if (!fx.notes.answer[k].code && !fx.notes.answer[k].is_over)
			wb_flow_on_xport(&ev);
		fx_run_lane();
	}
	ck_assert(wb_flow_is_idle(fx.f));
	wb_flow_destroy(fx.f);
	wb_slots_finish(&fx.slots);
	wb_local_destroy(fx.local);
	wb_lane_destroy(fx.lane);
	wb_plan_destroy(fx.plan);
	wb_map_destroy(fx.map);
	wb_manifest_destroy(fx.m);
}

/* All of it is here, as 40 + its chunk. */
void fx_is_installed(void)
{
	ck_assert_int_eq(fx.n_complete, 1);
	ck_assert_int_eq(fx.n_failed, 0);
	for (uint32_t i = 0; i < FX_CHUNKS; i++)
		ck_assert_uint_eq(fx.memory[i * FX_CHUNK + FX_CHUNK / 2], 40 + i);
}

void fx_install(struct wb_flow_opts o)
{
	fx_flow_open(2, false, o);
	wb_flow_open_sink(fx.f, 0, NULL);
	while (!fx.n_complete) {
		fx_end_all(true, GOOD);
		fx_end_all(false, GOOD);
	}
	fx_is_installed();
}
