/* SPDX-License-Identifier: Apache-2.0 */
/* A lane of the simulated world whose jobs take their time: they are done in order, each at a
 * moment of its own, and read and write memory then, not when they are submitted.  Like the
 * threads of a real lane it stops and dies with its agent. */
#include "lane/internal.h"
#include "tests/common/world.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

struct slow_lane {
	struct wb_lane lane;
	struct world_agent *agent;
	uint32_t life; /* of the agent */
	uint64_t timer;
	uint32_t head, n_done; /* of the oldest job not reaped; so many of them are done */
	struct wb_lane_job job[];
};

static void on_job(void *ctx);

static void start_job(struct slow_lane *s)
{
	const struct world *w = s->agent->world;

	s->timer = wb_sim_timer(w->net,
		world_now(w) + 1 + wb_rng_below(wb_sim_rng(w->net), w->o.lane_ns), on_job, s);
}

static void on_job(void *ctx)
{
	struct slow_lane *s = ctx;
	struct world_agent *a = s->agent;

	s->timer = 0;
	if (!a->alive || a->life != s->life)
		return;
	if (a->stall_until_ns > world_now(a->world)) {
		s->timer = wb_sim_timer(a->world->net, a->stall_until_ns, on_job, s);
		return;
	}
	wb__lane_run(&s->job[(s->head + s->n_done++) % s->lane.depth]);
	a->world->n_slow_job++;
	if (s->n_done < s->lane.n_out)
		start_job(s);
	world_after(a);
}

static int slow_submit(struct wb_lane *l, const struct wb_lane_job *job)
{
	struct slow_lane *s = wb_container_of(l, struct slow_lane, lane);

	s->job[(s->head + l->n_out) % l->depth] = *job;
	if (!s->timer)
		start_job(s);
	return 0;
}

static int slow_reap(struct wb_lane *l, struct wb_lane_job *job, int n)
{
	struct slow_lane *s = wb_container_of(l, struct slow_lane, lane);
	int got = 0;

	for (; got < n && s->n_done; got++, s->n_done--) {
		job[got] = s->job[s->head];
		s->head = (s->head + 1) % l->depth;
	}
	return got;
}

static void slow_abort(struct wb_lane *l)
{
	(void)l; /* of memory that is mapped here: what is under way is done */
}

static void slow_destroy(struct wb_lane *l)
{
	struct slow_lane *s = wb_container_of(l, struct slow_lane, lane);

	wb_sim_timer_cancel(s->agent->world->net, s->timer);
	wb_free(s);
}

static const struct wb_lane_ops slow_ops = {slow_submit, slow_reap, NULL, slow_abort, slow_destroy};

struct wb_lane *world_lane_create(struct world_agent *a)
{
	struct wb_lane_opts lo = {.depth = a->world->o.lane_depth};
	struct wb_err err = {0};
	struct slow_lane *s;
	struct wb_lane *l;
	uint32_t depth = 0;

	if (!a->world->o.lane_ns) {
		world_must(wb_lane_create_inline(&lo, &l, &err), &err);
		return l;
	}
	world_must(wb__lane_depth(&lo, &depth, &err), &err);
	s = wb_zalloc(1, sizeof(*s) + depth * sizeof(s->job[0]));
	s->lane = (struct wb_lane){.ops = &slow_ops, .depth = depth, .fd = -1};
	s->agent = a;
	s->life = a->life;
	return &s->lane;
}

bool world_lane_is_busy(const struct wb_lane *l)
{
	return l && l->ops == &slow_ops &&
	       l->n_out > ((const struct slow_lane *)(const void *)l)->n_done;
}
