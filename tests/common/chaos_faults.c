/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in a simulated deployment, and how it comes back. */
#include "tests/common/chaos.h"

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

enum fault {
	KILL_AGENT,
	KILL_POD,
	KILL_WORKERS,
	STALL_AGENT,
	STALL_WORKER,
	KILL_OPERATOR,
	CUT_CONTROL,
	DROP_MESSAGE,
	DROP_BULK,
	DELAY,
	DOUBLE,
	FLIP,
	PARTITION,
	HOOK_RAISES,
	REORDER,
	FAULTS_HASTY, /* those above: of deployments with short deadlines */
	ENGINES_LEAVE = FAULTS_HASTY,
	FAULTS,
};

static const char *const fault_names[] = {"kill agent", "kill pod", "kill workers", "stall agent",
	"stall worker", "kill operator", "cut control", "drop message", "drop bulk", "delay",
	"double", "flip", "partition", "hook raises", "reorder", "engines leave"};

/* What hangs up or dies is heard of: with these alone no deadline is needed. */
#define HEARD                                                                                      \
	(1u << KILL_AGENT | 1u << KILL_POD | 1u << KILL_WORKERS | 1u << STALL_WORKER |             \
		1u << KILL_OPERATOR | 1u << CUT_CONTROL | 1u << DELAY | 1u << DOUBLE |             \
		1u << HOOK_RAISES | 1u << ENGINES_LEAVE)

struct restart {
	struct chaos *c;
	enum fault what;
	uint32_t agent;
	enum wb_role role;
	uint32_t engine;
};

static void on_restart(void *ctx)
{
	struct restart *r = ctx;
	struct chaos *c = r->c;
	struct world *w = c->w;

	if (c->digest) { /* the run is over */
		free(r);
		return;
	}
	if (r->what == KILL_OPERATOR)
		world_op_restart(&c->op);
	else if (r->what != KILL_WORKERS)
		world_start_agent(w, r->agent);
	if (r->what == KILL_WORKERS)
		for (uint32_t i = 0; i < w->n_worker; i++)
			if (w->worker[i].role == r->role && w->worker[i].engine == r->engine)
				world_start_worker(w, i);
	c->n_restart--;
	c->fault_ns = chaos_later(c->fault_ns, world_now(w));
	free(r);
}

static void restart_later(
	struct chaos *c, enum fault what, const struct world_worker *k, uint32_t agent)
{
	struct restart *r = calloc(1, sizeof(*r));
	uint64_t ns = 1 + chaos_below(c, chaos_below(c, 2) ? 3 * WB_NS_PER_S : 20 * WB_NS_PER_MS);

	*r = (struct restart){c, what, agent, k ? k->role : WB_ROLE_TRAINER, k ? k->engine : 0};
	c->n_restart++;
	wb_sim_timer(c->w->net, world_now(c->w) + ns, on_restart, r);
}

/* An engine, or the trainers, are one program: all its processes go and come together. */
static void kill_group(struct chaos *c, const struct world_worker *k)
{
	for (uint32_t i = 0; i < c->w->n_worker; i++)
		if (c->w->worker[i].role == k->role && c->w->worker[i].engine == k->engine)
			world_kill_worker(c->w, i);
	restart_later(c, KILL_WORKERS, k, 0);
}

static void kill_pod(struct chaos *c, uint32_t agent)
{
	struct world *w = c->w;

	world_kill_agent(w, agent);
	restart_later(c, KILL_POD, NULL, agent);
	for (uint32_t i = 0, last = UINT32_MAX; i < w->n_worker; i++)
		if (w->worker[i].agent == agent && w->worker[i].engine != last) {
			last = w->worker[i]
				       .engine; /* a pod's workers are in the order of engines */
			kill_group(c, &w->worker[i]);
		}
}

static void add_rule(struct chaos *c, enum wb_sim_fault_kind kind, unsigned items)
{
	struct world *w = c->w;
	uint64_t now = world_now(w);
	const char *to = w->agent[chaos_below(c, w->n_agent)].name;
	struct wb_sim_fault f = {.kind = kind, .items = items, .from_ns = now};

	if (chaos_below(c, 2))
		f.to = to;
	if (kind == WB_SIM_DROP) {
		f.nth = 1 + chaos_below(c, 5);
	} else if (kind == WB_SIM_PARTITION) {
		f.to = to;
		f.until_ns = now + chaos_below(c, 3 * WB_NS_PER_S);
	} else {
		f.ppm = (uint32_t)(1 + chaos_below(c, 200000));
		f.ns = chaos_below(c, 20 * WB_NS_PER_MS);
		f.until_ns = now + chaos_below(c, 2 * WB_NS_PER_S);
	}
	if (wb_sim_fault_add(w->net, &f) < 0) {
		wb_sim_faults_clear(w->net);
		(void)wb_sim_fault_add(w->net, &f);
	}
	c->fault_ns = chaos_later(c->fault_ns, chaos_later(now, f.until_ns));
}

static void stall(struct chaos *c, enum fault what, uint32_t agent, struct world_worker *k)
{
	static const uint64_t most[] = {50 * WB_NS_PER_MS, 2 * WB_NS_PER_S, 14 * WB_NS_PER_S};
	struct world *w = c->w;
	uint64_t ns = 1 + chaos_below(c, most[chaos_below(c, c->is_patient ? 2 : 3)]);
	uint64_t now = world_now(w);

	if (what == STALL_AGENT)
		world_stall_agent(w, agent, ns);
	else
		k->stall_until_ns = chaos_later(k->stall_until_ns, now + ns);
	c->fault_ns = chaos_later(c->fault_ns, now + ns);
}

/* Scaled down: the workers of an engine end, then its agents, each when it is not busy or its grace
 * period is over; after a while the engine is there again. */
#define GRACE_NS (3 * WB_NS_PER_S)
#define LEAVE_LOOK_NS (50 * WB_NS_PER_MS)

struct leave {
	struct chaos *c;
	uint32_t engine, life[WORLD_AGENTS];
	uint64_t until_ns, back_ns;
};

static void come_back(struct leave *l)
{
	struct world *w = l->c->w;

	for (uint32_t a = 0; a < w->o.agents_per_engine; a++)
		world_start_agent(w, world_agent_of_engine(w, l->engine) + a);
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].role == WB_ROLE_ROLLOUT && w->worker[i].engine == l->engine)
			world_start_worker(w, i);
	l->c->is_away[l->engine] = false;
	l->c->fault_ns = chaos_later(l->c->fault_ns, world_now(w));
	free(l);
}

static void on_leave_look(void *ctx)
{
	struct leave *l = ctx;
	struct world *w = l->c->w;
	uint64_t now = world_now(w);

	if (l->c->digest) { /* the run is over */
		free(l);
		return;
	}
	if (now >= l->back_ns) {
		come_back(l);
		return;
	}
	for (uint32_t i = 0; i < w->o.agents_per_engine; i++) {
		struct world_agent *a = &w->agent[world_agent_of_engine(w, l->engine) + i];

		if (a->alive && a->life == l->life[i] &&
			(now >= l->until_ns || !wb_transfer_is_busy(a->core)))
			world_kill_agent_only(w, a->index);
	}
	wb_sim_timer(w->net, now + LEAVE_LOOK_NS, on_leave_look, l);
}

static void leave(struct chaos *c, uint32_t engine)
{
	struct world *w = c->w;
	struct leave *l;
	bool in_order = chaos_below(c, 2);
	uint64_t now = world_now(w);

	if (c->is_away[engine])
		return;
	c->is_away[engine] = true;
	l = calloc(1, sizeof(*l));
	*l = (struct leave){.c = c,
		.engine = engine,
		.until_ns = now + GRACE_NS,
		.back_ns = now + GRACE_NS + chaos_below(c, 20 * WB_NS_PER_S)};
	for (uint32_t i = 0; i < w->o.agents_per_engine; i++)
		l->life[i] = w->agent[world_agent_of_engine(w, engine) + i].life;
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].role == WB_ROLE_ROLLOUT && w->worker[i].engine == engine)
			world_end_worker(w, i, in_order ? NULL : "exited (killed)");
	wb_sim_timer(w->net, now + chaos_below(c, 2 * LEAVE_LOOK_NS), on_leave_look, l);
}

/* Sometimes more than one at once; not all. */
static void engines_leave(struct chaos *c, uint32_t first)
{
	uint32_t there = 0, n = 1 + (uint32_t)chaos_below(c, 2);

	for (uint32_t en = 0; en < c->w->o.engines; en++)
		there += !c->is_away[en];
	for (uint32_t i = 0; i < c->w->o.engines && n && there > 1; i++, n--, there--)
		leave(c, (first + i) % c->w->o.engines);
}

void chaos_inject(struct chaos *c)
{
	struct world *w = c->w;
	enum fault what =
		(enum fault)chaos_below(c, c->is_patient ? (uint64_t)FAULTS : FAULTS_HASTY);
	uint32_t agent = (uint32_t)chaos_below(c, w->n_agent),
		 b = (uint32_t)chaos_below(c, w->n_agent);
	struct world_worker *k = &w->worker[chaos_below(c, w->n_worker)];

	if (!(c->fault_kinds >> what & 1))
		return;
	c->n_fault++;
	c->fault_ns = chaos_later(c->fault_ns, world_now(w));
	if (c->o.is_tracing)
		fprintf(stderr, "%14.6f FAULT %s (agent %s, worker %u)\n",
			(double)world_now(w) / 1e6, fault_names[what], w->agent[agent].name,
			k->index);
	switch (what) {
	case KILL_AGENT:
		if (!w->agent[agent].alive)
			return;
		world_kill_agent_only(w, agent);
		restart_later(c, what, NULL, agent);
		break;
	case KILL_POD:
		if (w->agent[agent].alive)
			kill_pod(c, agent);
		break;
	case KILL_WORKERS:
		if (k->phase != WORLD_DOWN)
			kill_group(c, k);
		break;
	case STALL_AGENT:
	case STALL_WORKER:
		stall(c, what, agent, k);
		break;
	case KILL_OPERATOR:
		if (!c->op.alive)
			return;
		world_op_kill(&c->op);
		restart_later(c, what, NULL, 0);
		break;
	case CUT_CONTROL:
		wb_sim_pipe_cut(w->net, w->agent[agent].name, w->agent[b].name);
		break;
	case DROP_MESSAGE:
		add_rule(c, WB_SIM_DROP, WB_SIM_MSG);
		break;
	case DROP_BULK:
		add_rule(c, WB_SIM_DROP, WB_SIM_GRANT | WB_SIM_DATA | WB_SIM_CONNECT);
		break;
	case DELAY:
		add_rule(c, WB_SIM_DELAY, chaos_below(c, 2) ? WB_SIM_MSG : 0);
		break;
	case DOUBLE:
		add_rule(c, WB_SIM_DUP, WB_SIM_MSG | WB_SIM_GRANT);
		break;
	case REORDER:
		add_rule(c, WB_SIM_REORDER, WB_SIM_MSG);
		break;
	case ENGINES_LEAVE:
		engines_leave(c, k->engine);
		break;
	case FLIP:
		add_rule(c, WB_SIM_FLIP, WB_SIM_DATA);
		break;
	case PARTITION:
		add_rule(c, WB_SIM_PARTITION, 0);
		break;
	default:
		k->hook_raises = k->role == WB_ROLE_ROLLOUT;
		break;
	}
}

void chaos_choose_faults(struct chaos *c)
{
	c->fault_kinds =
		chaos_below(c, 2) ? UINT32_MAX : (uint32_t)chaos_below(c, 1u << FAULTS_HASTY);
	if (c->w->o.no_sums) /* nobody would notice */
		c->fault_kinds &= ~(1u << FLIP);
	if (c->is_patient)
		c->fault_kinds = (c->fault_kinds | 1u << ENGINES_LEAVE) & HEARD;
}
