/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/common/fx_several.h"
#include "tests/common/fx_check.h"

#include "base/base.h"
#include "base/mem.h"
#include "planner/binding.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct fx_several fx_several;

static uint8_t arena[16 * FX_SEVERAL_BYTES];

static wb_conn_t conn_to(void *ctx, uint32_t dst, uint32_t src, bool may_miss)
{
	uint32_t domain = fx_several.plan->worker[src].domain;

	(void)may_miss;
	(void)ctx;
	(void)dst;
	return fx_several.is_down ? 0 : 100 + domain;
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
	fx_several.n_complete++;
}

static void failed(void *ctx, struct wb_flow *f, uint32_t worker, const struct wb_err *err)
{
	(void)ctx;
	(void)f;
	(void)worker;
	fx_several.failed_code = err->code;
	snprintf(fx_several.why, sizeof(fx_several.why), "%s", err->msg);
	fx_several.n_failed++;
}

static void mismatch(void *ctx, struct wb_flow *f, const struct wb_flow_mismatch *m)
{
	(void)ctx;
	(void)f;
	(void)m;
	fx_several.n_mismatch++;
}

void fx_several_open_shape(const struct fx_several_shape *is)
{
	uint32_t first = is->first, n = is->n;
	uint8_t share[WB_POOLS] = {4, 4, 4, 4};
	struct wb_plan_worker worker[FX_SEVERAL_WORKERS + FX_SEVERAL_READERS] = {
		{.role = WB_ROLE_TRAINER}, {.role = WB_ROLE_ROLLOUT},
		{.role = WB_ROLE_ROLLOUT, .engine = 1},
		{.role = WB_ROLE_TRAINER, .domain = 1, .node = 1},
		{.role = WB_ROLE_ROLLOUT, .engine = 2, .domain = 2, .node = is->is_near ? 0 : 2}};
	uint32_t n_slot = is->n_slot ? is->n_slot : sizeof(arena) / (FX_SEVERAL_BYTES / 2);
	struct wb_flow_opts o = {.slots = &fx_several.slots,
		.env = &fx_several.env,
		.transfer = 7,
		.window = 8,
		.sums = is->sums,
		.stall_ns = WB_NS_PER_S};
	struct wb_lane_opts lo = {0};
	struct wb_err err = {0};

	memset(&fx_several, 0, sizeof(fx_several));
	fx_notes_init(&fx_several.notes);
	fx_several.env = (struct wb_flow_env){.xport = &fx_several.notes.x,
		.clock = &fx_several.clock.clock,
		.conn = conn_to,
		.on_received = received,
		.on_complete = complete,
		.on_failed = failed,
		.on_mismatch = mismatch};
	wb_fake_clock_init(&fx_several.clock, WB_NS_PER_S);
	fx_several.m = fx_model_manifest();
	/* Transposed, nothing is sent from where it lies. */
	fx_several.map = is->is_turned ? fx_model_turned(fx_several.m)
				       : fx_model_rows(fx_several.m, 0, MODEL_ROWS);
	for (uint32_t i = 0; i < is->readers; i++)
		worker[FX_SEVERAL_WORKERS + i] = (struct wb_plan_worker){
			.role = WB_ROLE_ROLLOUT, .engine = 3 + i, .domain = 3 + i, .node = 3 + i};
	struct wb_plan_input in = {.manifest = fx_several.m,
		.layout = (const struct wb_map *const *)&fx_several.map,
		.n_layout = 1,
		.worker = worker,
		.n_worker = FX_SEVERAL_WORKERS + is->readers,
		.chunk_bytes = FX_SEVERAL_BYTES / 2};

	ck_assert_msg(!wb_plan_create(&in, &fx_several.plan, &err), "%s", err.msg);
	ck_assert_uint_eq(fx_several.plan->n_chunk, 2);
	ck_assert_int_eq(wb_lane_create_inline(&lo, &fx_several.lane, NULL), 0);
	for (uint32_t i = 0; i < n; i++) {
		memset(fx_several.memory[i], (int)(first + i + 1), FX_SEVERAL_BYTES);
		fx_several.base[i][0] = fx_several.memory[i];
		fx_several.member[i] = (struct wb_member){first + i, fx_several.map,
			&fx_several.place, fx_several.base[i], fx_several.lane};
	}
	ck_assert_msg(!wb_local_create(fx_several.plan, fx_several.m, fx_several.member, n,
			      &fx_several.local, &err),
		"%s", err.msg);
	if (is->only_sends)
		wb_slots_shares(false, share);
	ck_assert_int_eq(
		wb_slots_init(&fx_several.slots, arena, n_slot * (size_t)(FX_SEVERAL_BYTES / 2),
			FX_SEVERAL_BYTES / 2, share, NULL),
		0);
	o.local = fx_several.local;
	ck_assert_msg(!wb_flow_create(&o, &fx_several.f, &err), "%s", err.msg);
}

void fx_several_open_with(uint32_t first, uint32_t n, bool sums)
{
	fx_several_open_shape(&(struct fx_several_shape){.first = first, .n = n, .sums = sums});
}

void fx_several_open(uint32_t first, uint32_t n)
{
	fx_several_open_with(first, n, false);
}

void fx_several_close(void)
{
	ck_assert(wb_flow_is_idle(fx_several.f));
	wb_flow_destroy(fx_several.f);
	wb_slots_finish(&fx_several.slots);
	wb_local_destroy(fx_several.local);
	wb_lane_destroy(fx_several.lane);
	wb_plan_destroy(fx_several.plan);
	wb_map_destroy(fx_several.map);
	wb_manifest_destroy(fx_several.m);
}

/* All that the lane did. */
void fx_several_run_lane(void)
{
	struct wb_lane_job job;

	while (wb_lane_reap(fx_several.lane, &job, 1))
		wb_flow_on_lane(&job);
}

/* Grant @k of those that were sent ends. */
void fx_several_end_grant_with(int k, enum wb_xport_event_kind kind, const struct wbk_sum *sum)
{
	struct wb_xport_event ev = {.kind = kind,
		.conn = fx_several.notes.asked[k].conn,
		.cookie = fx_several.notes.asked[k].grant.cookie,
		.code = kind == WB_XP_ARRIVED ? 0 : -ECANCELED};
	uint64_t transfer = 7;

	if (sum) {
		memcpy(ev.trailer, sum, sizeof(*sum));
		ev.trailer[16] = 1;
	}
	memcpy(ev.trailer + 24, &transfer, 8);
	wb_flow_on_xport(&ev);
	fx_several_run_lane();
}

void fx_several_end_grant(int k, enum wb_xport_event_kind kind)
{
	fx_several_end_grant_with(k, kind, NULL);
}

void fx_several_ask(wb_conn_t conn, uint64_t grant, uint32_t src, uint32_t dst, uint32_t chunk)
{
	struct wb_xport_event ev = {.kind = WB_XP_GRANT, .conn = conn, .grant = grant};

	ev.chunk = (struct wb_xport_chunk){.transfer = 7,
		.bytes = FX_SEVERAL_BYTES / 2,
		.chunk = chunk,
		.gen = 1,
		.src = src,
		.dst = dst};
	wb_flow_on_grant(fx_several.f, &ev);
}

void fx_several_end_write(int i)
{
	struct wb_xport_event ev = {.kind = WB_XP_WRITE_DONE,
		.conn = fx_several.notes.answer[i].conn,
		.cookie = fx_several.notes.answer[i].write.cookie};

	if (!fx_several.notes.answer[i].code)
		wb_flow_on_xport(&ev);
}

void fx_several_end_writes(void)
{
	for (int i = 0; i < fx_several.notes.n_answer; i++)
		fx_several_end_write(i);
}

const struct wb_xport_write *fx_several_last_write(void)
{
	return &fx_several.notes.answer[fx_several.notes.n_answer - 1].write;
}
