/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes that take time and move nothing.  The launch of a job overlaps with the copy of the job
 * before; copies run one after the other.
 */
#include "predict/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>

#define LANE_DEPTH 64 /* as in agents (agent/lane) */

static struct model_lane *lane_of(struct wb_lane *l)
{
	return wb_container_of(l, struct model_lane, lane);
}

/* Does the job's chunk come from another worker of the agent?  It then goes through a slot of the
 * domain's pool. */
static bool is_internal(const struct model_lane *l, const struct wb_lane_job *job)
{
	const struct wb_slots *s = &l->m->agent[l->agent].slots;
	uintptr_t at = (uintptr_t)job->wire - (uintptr_t)s->base;

	return at / s->slot_bytes < s->n && s->pool_of[at / s->slot_bytes] == WB_POOL_DOMAIN;
}

/* Bytes a second of a job: over the bus to the host, between workers, or in one device's memory. */
static double rate(const struct model_lane *l, const struct wb_lane_job *job)
{
	const struct model *m = l->m;
	bool is_rollout = m->in.plan->worker[l->worker].role == WB_ROLE_ROLLOUT;

	if (wb__predict_is_host(&m->agent[l->agent], job->wire) ||
		(is_rollout && m->in.rollout_staged))
		return m->in.params.host_gbs * 1e9;
	if (job->kind == WB_LANE_PACK && is_internal(l, job))
		return m->in.params.fabric_gbs * 1e9;
	return m->in.params.lane_gbs * 1e9;
}

static int submit(struct wb_lane *lane, const struct wb_lane_job *job)
{
	struct model_lane *l = lane_of(lane);
	double copy = (double)job->wire_bytes / rate(l, job);
	double begin = WB_MAX(l->free_s, l->m->now);

	l->job[(l->head + lane->n_out) % lane->depth] = *job;
	l->free_s = begin + copy;
	l->busy_s += copy;
	wb__predict_at(
		l->m, begin + wb__predict_us(l->m->in.params.lane_us) + copy, EV_LANE, l->agent, l);
	return 0;
}

static int reap(struct wb_lane *lane, struct wb_lane_job *job, int n)
{
	struct model_lane *l = lane_of(lane);
	int got = 0;

	for (; got < n && l->n_done; got++, l->n_done--) {
		job[got] = l->job[l->head];
		job[got].rc = 0;
		job[got].sum = (struct wbk_sum){{0, 0}};
		l->head = (l->head + 1) % lane->depth;
	}
	return got;
}

static void give_up(struct wb_lane *lane)
{
	(void)lane; /* what is under way ends by itself */
}

static const struct wb_lane_ops ops = {submit, reap, NULL, give_up, give_up};

void wb__predict_lane_done(struct model_lane *l)
{
	const struct wb_lane_job *job = &l->job[(l->head + l->n_done++) % l->lane.depth];

	if (job->kind == WB_LANE_ASSEMBLE && is_internal(l, job))
		wb__predict_arrived(l->m, WB_STAGE_INTERNAL, l->worker, l->worker, job->wire_bytes);
}

int wb__predict_lane_init(struct model_lane *l, struct model *m, uint32_t agent, uint32_t worker)
{
	if (wb__predict_reserve(m, LANE_DEPTH) < 0)
		return -ENOMEM;
	*l = (struct model_lane){
		.lane = {.ops = &ops, .depth = LANE_DEPTH, .fd = -1},
		.m = m,
		.agent = agent,
		.worker = worker,
		.job = wb_zalloc(LANE_DEPTH, sizeof(*l->job)),
	};
	return l->job ? 0 : -ENOMEM;
}
