/* SPDX-License-Identifier: Apache-2.0 */
/* Wider worlds: which knobs a seed turns, what they do, and how often they did it. */
#include "tests/common/chaos.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

#define ONE_IN 3 /* seeds that have a knob */
#define BIG_ONE_IN 25 /* that have more agents than others; of these, one in */
#define HUGE_ONE_IN 20 /* has as many as there may be */
#define SLOW_NS (300 * WB_NS_PER_MS)
#define SOCKET_NS (2 * WB_NS_PER_MS)
#define LANE_NS (2 * WB_NS_PER_MS)
#define JUMP_NS (30 * WB_NS_PER_S)
#define ROUNDS_BIG 3u
#define POLL_BIG_NS (50 * WB_NS_PER_MS)
#define POLL_MANY_NS (5 * WB_NS_PER_MS) /* where many workers poll */

static const struct {
	const char *name, *unit;
} kinds[CHAOS_WIDE] = {
	[WIDE_NO_SUMS] = {"no sums", "updates without any"},
	[WIDE_SOCKETS] = {"sockets", "messages of workers overtaken by another's"},
	[WIDE_SLOW] = {"slow workers", "updates of theirs"},
	[WIDE_DISK] = {"full disk", "decisions and numbers not kept"},
	[WIDE_CLOCKS] = {"clocks", "jumps"},
	[WIDE_ASYMMETRIC] = {"one-way partitions", "items held back"},
	[WIDE_PARTIAL] = {"partial stalls", "items held back"},
	[WIDE_RAILS] = {"rails", "items that came after later ones of their connection"},
	[WIDE_REGIONS] = {"regions", "writes that were looked for in them"},
	[WIDE_LANES] = {"slow lanes", "jobs done later than submitted"},
	[WIDE_BIG] = {"big", "agents"},
	[WIDE_HOLDS] = {"holds", "that outlasted their transfer"},
	[WIDE_APART] = {"engines apart", "updates of theirs"},
	[WIDE_PODS] = {"pods of one host", "grants with more than 3 others outstanding"},
	[WIDE_NODES] = {"agents of one node", "updates of engines there"},
};

const char *chaos_wide_name(enum chaos_wide kind)
{
	return kinds[kind].name;
}

const char *chaos_wide_unit(enum chaos_wide kind)
{
	return kinds[kind].unit;
}

static bool has(const struct chaos *c, enum chaos_wide kind)
{
	return c->wide >> kind & 1;
}

static uint64_t below(struct chaos *c, uint64_t n)
{
	return wb_rng_below(&c->wide_rng, n);
}

/* Trainers cut rows, of which there are 16 at least, and an engine's workers 16 columns. */
static void grow(struct chaos *c, struct world_opts *o)
{
	static const struct {
		uint32_t trainer_agents, engines, agents, workers;
	} huge[] = {{16, 60, 4, 1}, {8, 64, 2, 2}, {16, 30, 8, 1}, {16, 15, 16, 1}};
	uint64_t n = below(c, WB_ARRAY_SIZE(huge));

	c->wide &= ~(1u << WIDE_PODS);
	o->one_pod = false;
	o->trainers_per_agent = 1;
	o->poll_ns = POLL_BIG_NS;
	if (!below(c, HUGE_ONE_IN)) {
		o->trainer_agents = huge[n].trainer_agents;
		o->engines = huge[n].engines;
		o->agents_per_engine = huge[n].agents;
		o->workers_per_agent = huge[n].workers;
		return;
	}
	o->trainer_agents = 1u << below(c, 5);
	o->engines = 6 + (uint32_t)below(c, 11);
	o->agents_per_engine = 1u << below(c, 2);
	o->workers_per_agent = 1u << below(c, 2);
}

/* Up to 8 workers a pod; enough chunks for a window of 8. */
static void fill_pods(struct chaos *c, struct world_opts *o)
{
	o->workers_per_agent = 2u << below(c, 3);
	o->trainers_per_agent = WB_MAX(o->trainers_per_agent, 1u << below(c, 3));
	o->scale *= 4;
	o->poll_ns = WB_MAX(o->poll_ns, POLL_MANY_NS);
	o->xport_caps |= WB_XPORT_CAP_LOCAL;
	o->one_pod = o->agents_per_engine == 1 && below(c, 2);
}

static uint32_t draw(const struct chaos *c, uint64_t kind)
{
	uint64_t one_in = kind == WIDE_BIG ? BIG_ONE_IN : ONE_IN;

	return (uint32_t)(wb_mix64(c->o.seed ^ (kind + 1) << 40) % one_in == 0) << kind;
}

void chaos_wide_shape(struct chaos *c, struct world_opts *o)
{
	c->wide_rng.state = wb_mix64(c->o.seed ^ 0x3d1de);
	/* Each by itself: another kind does not change what seeds have of these. */
	for (uint64_t i = 0; i < WIDE_NODES; i++)
		c->wide |= draw(c, i);
	c->wide |= c->wide ? 0 : 1u << below(c, WIDE_NODES);
	c->wide |= draw(c, WIDE_NODES);
	if (has(c, WIDE_NODES))
		o->agents_per_node = 2 + (uint32_t)(wb_mix64(c->o.seed ^ 0x20de) % 3);
	if (has(c, WIDE_NO_SUMS)) {
		o->no_sums = true;
		o->fault = NULL; /* flipped bits are not noticed then */
	}
	if (has(c, WIDE_SOCKETS))
		o->socket_ns = SOCKET_NS;
	if (has(c, WIDE_BIG))
		grow(c, o);
	if (has(c, WIDE_RAILS)) {
		o->rails = 2 + (uint32_t)below(c, 3);
		o->piece_bytes = 512u << below(c, 3);
		o->own_rails = wb_mix64(c->o.seed ^ 0x4a115) & 1;
	}
	if (has(c, WIDE_PARTIAL))
		o->piece_bytes = 512;
	if (has(c, WIDE_REGIONS))
		o->xport_caps |= WB_XPORT_CAP_REGIONS;
	if (wb_mix64(c->o.seed ^ 0x5a3) % 3 == 0)
		o->xport_caps |= WB_XPORT_CAP_UNTOUCHED;
	if (has(c, WIDE_PODS))
		fill_pods(c, o);
	if (has(c, WIDE_LANES))
		o->lane_ns = below(c, 2) ? LANE_NS : LANE_NS / 20;
	o->hold = o->keep = has(c, WIDE_HOLDS);
	o->apart = has(c, WIDE_APART);
	if (has(c, WIDE_DISK)) /* only what all engines decide is kept */
		o->rollout_staged = o->all_engines = true;
}

/* So slow that an engine can still be stopped within its deadline. */
static void slow_down(struct chaos *c, struct world_worker *k)
{
	uint64_t most = c->w->o.step_deadline_ns / (4 * (c->w->o.drift + 1ull));

	k->poll_ns = WB_MAX(k->poll_ns, WB_MIN(most, SLOW_NS));
	k->hook_ns = WB_MAX(k->hook_ns, WB_MIN(c->w->o.step_deadline_ns / 4, SLOW_NS));
	k->is_slow = true;
}

static void set_clocks(struct chaos *c)
{
	for (uint32_t i = 0; i < c->w->n_agent; i++)
		world_set_clock(c->w, i, below(c, 1000000 * WB_NS_PER_S),
			900000 + (uint32_t)below(c, 200000));
}

void chaos_wide_begin(struct chaos *c)
{
	struct world *w = c->w;

	chaos_wide_say(c, c->says, sizeof(c->says));
	if (has(c, WIDE_BIG)) { /* as many faults a transfer, not a message */
		c->fault_ppm = c->fault_ppm * 64 / w->n_agent;
		c->rounds = WB_MIN(c->rounds, ROUNDS_BIG);
	}
	if (has(c, WIDE_CLOCKS))
		set_clocks(c);
	for (uint32_t en = 0; has(c, WIDE_SLOW) && en < w->o.engines; en++) {
		uint32_t n = w->o.agents_per_engine * w->o.workers_per_agent;

		if (!en || below(c, 2))
			slow_down(c, &w->worker[w->n_trainer + en * n + below(c, n)]);
	}
}

/* Who sends, or who receives: one agent, all of an engine, or all trainers. */
static void choose_side(struct chaos *c, char *out, size_t cap)
{
	const struct world *w = c->w;

	switch (below(c, 3)) {
	case 0:
		snprintf(out, cap, "trainer-*");
		break;
	case 1:
		snprintf(out, cap, "e%u-*", w->o.one_pod ? 0 : (unsigned)below(c, w->o.engines));
		break;
	default:
		snprintf(out, cap, "%s", w->agent[below(c, w->n_agent)].name);
		break;
	}
}

static void hold_back(struct chaos *c, enum chaos_wide kind, unsigned items, uint32_t ppm)
{
	static const uint64_t most[] = {50 * WB_NS_PER_MS, 2 * WB_NS_PER_S, 14 * WB_NS_PER_S};
	struct world *w = c->w;
	char from[40], to[40];
	bool is_short = c->is_patient || items & WB_SIM_MSG; /* longer, and others give it up */
	struct wb_sim_fault f = {.kind = WB_SIM_PARTITION,
		.items = items,
		.from = from,
		.to = to,
		.from_ns = world_now(w),
		.ppm = ppm,
		.hits = &c->wide_fired[kind]};

	choose_side(c, from, sizeof(from));
	do
		choose_side(c, to, sizeof(to));
	while (!strcmp(from, to));
	if (kind == WIDE_PARTIAL && below(c, 2))
		snprintf(from, sizeof(from), "*");
	f.until_ns = f.from_ns + 1 + below(c, most[below(c, is_short ? 2 : 3)]);
	if (wb_sim_fault_add(w->net, &f) < 0) {
		wb_sim_faults_clear(w->net);
		(void)wb_sim_fault_add(w->net, &f);
	}
	chaos_until(c, f.until_ns);
	if (c->o.is_tracing)
		fprintf(stderr, "%14.6f FAULT %s from %s to %s for %.3f s\n",
			(double)world_now(w) / 1e6, kinds[kind].name, from, to,
			(double)(f.until_ns - f.from_ns) / 1e9);
}

static void jump(struct chaos *c)
{
	static const uint64_t most[] = {100 * WB_NS_PER_MS, 2 * WB_NS_PER_S, JUMP_NS};
	uint32_t agent = (uint32_t)below(c, c->w->n_agent);
	uint64_t ns = below(c, most[below(c, 3)]);

	c->wide_fired[WIDE_CLOCKS]++;
	world_set_clock(c->w, agent, ns, 900000 + (uint32_t)below(c, 200000));
	chaos_until(c, world_now(c->w));
	if (c->o.is_tracing)
		fprintf(stderr, "%14.6f FAULT the clock of %s jumps %.3f s\n",
			(double)world_now(c->w) / 1e6, c->w->agent[agent].name, (double)ns / 1e9);
}

static void fill_disk(struct chaos *c)
{
	uint32_t agent = (uint32_t)below(c, c->w->o.trainer_agents);
	uint64_t ns = 1 + below(c, (c->is_patient ? 1 : 5) * WB_NS_PER_S);

	world_fill_disk(c->w, agent, ns);
	chaos_until(c, world_now(c->w) + ns);
	if (c->o.is_tracing)
		fprintf(stderr, "%14.6f FAULT the disk of %s is full for %.3f s\n",
			(double)world_now(c->w) / 1e6, c->w->agent[agent].name, (double)ns / 1e9);
}

void chaos_wide_inject(struct chaos *c)
{
	static const enum chaos_wide faults[] = {
		WIDE_DISK, WIDE_CLOCKS, WIDE_ASYMMETRIC, WIDE_PARTIAL};
	enum chaos_wide kind = faults[below(c, WB_ARRAY_SIZE(faults))];

	if (!has(c, kind))
		return;
	c->n_fault++;
	switch (kind) {
	case WIDE_DISK:
		fill_disk(c);
		break;
	case WIDE_CLOCKS:
		jump(c);
		break;
	case WIDE_ASYMMETRIC:
		hold_back(c, kind, below(c, 2) ? WB_SIM_MSG : WB_SIM_ANY, 0);
		break;
	case WIDE_PARTIAL:
		hold_back(c, kind, WB_SIM_DATA, 1000000u >> below(c, 6));
		break;
	default:
		break;
	}
}

/* Asked again where the answer is late. */
void chaos_wide_holds(struct chaos *c)
{
	for (uint32_t i = 0; has(c, WIDE_HOLDS) && i < c->w->n_trainer; i++) {
		struct world_worker *k = &c->w->worker[i];

		if (k->phase == WORLD_RUN && k->id && k->held && !below(c, c->is_over ? 8 : 512))
			world_release_one(k);
	}
}

void chaos_wide_end(struct chaos *c)
{
	for (uint32_t i = 0; i < c->w->n_agent; i++)
		c->w->agent[i].full_until_ns = 0;
}

void chaos_wide_count(struct chaos *c)
{
	const struct world *w = c->w;
	const struct wb_sim_counts *n = wb_sim_counts(w->net);

	c->wide_fired[WIDE_BIG] = has(c, WIDE_BIG) ? w->n_agent : 0;
	c->wide_fired[WIDE_LANES] = w->n_slow_job;
	c->wide_fired[WIDE_RAILS] = n->overtaken;
	c->wide_fired[WIDE_REGIONS] = n->in_regions;
	c->wide_fired[WIDE_PODS] = has(c, WIDE_PODS) ? n->deep : 0;
	c->wide_fired[WIDE_DISK] = w->n_unsaved;
	c->wide_fired[WIDE_SOCKETS] = has(c, WIDE_SOCKETS) ? w->n_overtaken : 0;
	for (uint32_t i = 0; i < w->n_worker; i++) {
		const struct world_worker *k = &w->worker[i];

		c->wide_fired[WIDE_NO_SUMS] += has(c, WIDE_NO_SUMS) ? k->n_updates : 0;
		c->wide_fired[WIDE_APART] += has(c, WIDE_APART) ? k->n_updates : 0;
		c->wide_fired[WIDE_NODES] += has(c, WIDE_NODES) ? k->n_updates : 0;
		c->wide_fired[WIDE_SLOW] += k->is_slow ? k->n_updates : 0;
	}
}

void chaos_wide_say(const struct chaos *c, char *out, size_t cap)
{
	const struct world_opts *o = &c->w->o;
	size_t at = (size_t)snprintf(out, cap,
		"%u trainer agents x %u, %u engines x %u agents x %u workers%s%s%s%s%s%s, "
		"%u rails%s",
		o->trainer_agents, o->trainers_per_agent, o->engines, o->agents_per_engine,
		o->workers_per_agent, o->one_pod ? " in one pod" : "",
		o->trainer_staged ? ", trainers staged" : "",
		o->rollout_staged ? ", rollouts staged" : "", o->all_engines ? ", AllEngines" : "",
		o->supersede ? ", Supersede" : "", c->is_patient ? ", patient" : "",
		o->rails ? o->rails : 1, o->own_rails ? " of workers" : "");

	for (int i = 0; i < CHAOS_WIDE && at < cap; i++)
		if (has(c, (enum chaos_wide)i))
			at += (size_t)snprintf(out + at, cap - at, ", %s", kinds[i].name);
}
