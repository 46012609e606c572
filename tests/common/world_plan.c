/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of the simulated world. */
#include "tests/common/world.h"

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/parts.h"
#include "proto/beat.h"

#include <stdio.h>
#include <string.h>

/* The text is longer than the operator's, as it was when the seeds of regressions were found. */
const struct wb_object_id world_object = {
	.uid = 1, .hash = 1, .text = "uid-of-the-simulated-object"};

uint32_t world_agent_of_engine(const struct world *w, uint32_t engine)
{
	/* A test may have moved it. */
	for (uint32_t i = w->n_trainer; i < w->n_worker; i++)
		if (w->worker[i].engine == engine)
			return w->worker[i].agent;
	return WORLD_AGENTS;
}

bool world_is_seen(const struct world *w, const struct world_worker *k)
{
	return k->id && !w->agent[k->agent].is_silent;
}

static bool is_complete(const struct world *w, enum wb_role role, uint32_t engine)
{
	for (uint32_t i = 0; i < w->n_worker; i++)
		if (w->worker[i].role == role && w->worker[i].engine == engine &&
			!world_is_seen(w, &w->worker[i]))
			return false;
	return true;
}

int world_epoch_agent(const struct world_epoch *e, uint32_t agent)
{
	for (uint32_t i = 0; i < e->n_agent; i++)
		if (e->agent[i] == agent)
			return (int)i;
	return -1;
}

int world_epoch_engine(const struct world_epoch *e, uint32_t engine)
{
	for (uint32_t i = 0; i < e->n_engine; i++)
		if (e->engine[i] == engine)
			return (int)i;
	return -1;
}

static bool choose_members(const struct world *w, struct world_epoch *e)
{
	if (!is_complete(w, WB_ROLE_TRAINER, 0))
		return false;
	for (uint32_t en = 0; en < w->o.engines; en++)
		if (is_complete(w, WB_ROLE_ROLLOUT, en))
			e->engine[e->n_engine++] = en;
	for (uint32_t i = 0; i < w->n_worker; i++) {
		const struct world_worker *k = &w->worker[i];

		if (k->role == WB_ROLE_ROLLOUT && world_epoch_engine(e, k->engine) < 0)
			continue;
		e->worker_id[e->n_worker] = k->id;
		e->worker[e->n_worker++] = i;
		if (world_epoch_agent(e, k->agent) < 0) {
			e->life[e->n_agent] = w->agent[k->agent].life;
			e->agent[e->n_agent++] = k->agent;
		}
	}
	return e->n_engine > 0;
}

static void make_plan(struct world *w, struct world_epoch *e)
{
	const struct wb_map *layout[WORLD_WORKERS];
	struct wb_plan_worker pw[WORLD_WORKERS];
	struct wb_plan_input in = {.manifest = w->manifest,
		.layout = layout,
		.worker = pw,
		.n_worker = e->n_worker,
		.trainer_buffer_bytes = 64 * (uint64_t)w->o.chunk_bytes, /* the arena may be less */
		.rollout_buffer_bytes = 64 * (uint64_t)w->o.chunk_bytes,
		.chunk_bytes = w->o.chunk_bytes};
	struct wb_plan *plan;
	struct wb_err err = {0};
	struct wb_buf b;

	for (uint32_t i = 0; i < e->n_worker; i++) {
		const struct world_worker *k = &w->worker[e->worker[i]];
		uint32_t l = 0, domain = (uint32_t)world_epoch_agent(e, k->agent);

		while (l < in.n_layout && !wb_digest_eq(layout[l]->digest, k->map->digest))
			l++;
		if (l == in.n_layout)
			layout[in.n_layout++] = k->map;
		pw[i] = (struct wb_plan_worker){.role = k->role,
			.layout = l,
			.domain = domain,
			.node = domain / WB_MAX(w->o.agents_per_node, 1)};
		if (k->role == WB_ROLE_ROLLOUT)
			pw[i].engine = (uint32_t)world_epoch_engine(e, k->engine);
	}
	world_must(wb_plan_create(&in, &plan, &err), &err);
	wb_buf_init(&b, 64u << 20);
	world_must(wb_plan_pack(plan, &b), NULL);
	world_must(wb_buf_take(&b, &e->bytes, &e->len), NULL);
	wb_plan_destroy(plan);
}

struct world_epoch *world_epoch_make(struct world *w)
{
	struct world_epoch *e = wb_zalloc(1, sizeof(*e));

	if (!choose_members(w, e)) {
		wb_free(e);
		return NULL;
	}
	e->id = (struct wb_epoch_id){world_object, w->term, ++w->number};
	make_plan(w, e);
	e->next = w->epochs;
	w->epochs = e;
	return e;
}

/* Of those of its agent, the ones that fall to it when they go round. */
static uint32_t rails_of(const struct world *w, const struct world_epoch *e, uint32_t worker)
{
	uint32_t agent = w->worker[e->worker[worker]].agent, place = 0, n = 0, rails = 0,
		 n_rail = 1;

	for (const char *s = w->agent[agent].endpoint; *s; s++)
		n_rail += *s == ',';
	for (uint32_t i = 0; i < e->n_worker; i++) {
		place += i < worker && w->worker[e->worker[i]].agent == agent;
		n += w->worker[e->worker[i]].agent == agent;
	}
	for (uint32_t k = place; k < WB_MAX(n, n_rail); k += n)
		rails |= 1u << k % n_rail;
	return rails;
}

/* Have the agents no address family in common? */
static bool are_apart(const struct world *w, uint32_t a, uint32_t b)
{
	int32_t family[2] = {-1, -1};

	for (uint32_t i = 0; i < w->n_worker && w->o.apart && !w->o.one_pod; i++) {
		const struct world_worker *k = &w->worker[i];

		if (k->role == WB_ROLE_TRAINER && (k->agent == a || k->agent == b))
			return false;
		if (k->agent == a)
			family[0] = (int32_t)k->engine % 2;
		if (k->agent == b)
			family[1] = (int32_t)k->engine % 2;
	}
	return family[0] != family[1];
}

static void fill_roster(
	const struct world *w, const struct world_epoch *e, uint32_t agent, struct wb_roster *r)
{
	r->object = wb_strdup("default/sim");
	r->me = (uint32_t)world_epoch_agent(e, agent);
	memset(r->key, 7, sizeof(r->key));
	r->n_agent = e->n_agent;
	r->n_engine = e->n_engine;
	r->n_worker = e->n_worker;
	r->agent = wb_zalloc(r->n_agent, sizeof(*r->agent));
	r->engine = wb_zalloc(r->n_engine, sizeof(*r->engine));
	r->worker = wb_zalloc(r->n_worker, sizeof(*r->worker));
	for (uint32_t i = 0; i < e->n_agent; i++) {
		r->agent[i].name = wb_strdup(w->agent[e->agent[i]].name);
		r->agent[i].bulk = wb_strdup(w->agent[e->agent[i]].endpoint);
		r->agent[i].version = w->o.older_agents ? 1 : WBP_VERSION_MAX;
		r->agent[i].is_foreign = are_apart(w, agent, e->agent[i]);
	}
	for (uint32_t i = 0; i < e->n_engine; i++) {
		char name[16];

		snprintf(name, sizeof(name), "e%u", e->engine[i]);
		r->engine[i].name = wb_strdup(name);
		r->engine[i].lead =
			(uint32_t)world_epoch_agent(e, world_agent_of_engine(w, e->engine[i]));
	}
	for (uint32_t i = 0; i < e->n_worker; i++) {
		r->worker[i].name = wb_strdup(w->worker[e->worker[i]].name);
		r->worker[i].local = e->worker_id[i];
		r->worker[i].rails = w->o.own_rails ? rails_of(w, e, i) : 0;
	}
	r->transfer_deadline_ns = w->o.transfer_deadline_ns;
	r->patience_ns = WB_BEAT_PATIENCE_NS;
	r->engine_step_deadline_ns = w->o.step_deadline_ns;
	r->trainer_staged = w->o.trainer_staged;
	r->rollout_staged = w->o.rollout_staged;
	r->all_engines = w->o.all_engines;
	r->supersede = w->o.supersede;
	r->sums = !w->o.no_sums;
}

/* What an agent has of it. */
static struct wb_plan *plan_of(const struct world_epoch *e, uint32_t agent)
{
	struct wb_plan_slice *slice;
	struct wb_plan_piece head = {.data = e->bytes}, part;
	struct wb_plan *plan;
	struct wb_err err = {0};
	int n = wb_plan_slices(e->bytes, e->len, &slice, &err), at = world_epoch_agent(e, agent);

	world_must(n > at ? 0 : -1, &err);
	head.bytes = slice[0].bytes;
	part = (struct wb_plan_piece){e->bytes + slice[1 + at].at, slice[1 + at].bytes};
	world_must(wb_plan_unpack(head, part, UINT64_MAX, &plan, &err), &err);
	wb_free(slice);
	return plan;
}

static void epoch_over(void *ctx, const struct wb_roster *r)
{
	struct world_agent *a = ctx;

	a->n_epoch--;
	if (a->xport)
		(void)wb_xport_epoch_remove(a->xport, &r->id);
}

int world_epoch_install(
	struct world *w, const struct world_epoch *e, uint32_t agent, struct wb_err *err)
{
	struct wb_roster *r = wb_roster_create(&e->id);
	struct world_agent *a = &w->agent[agent];
	struct wb_xport_epoch x = {.id = e->id, .key = {7}};
	int rc;

	r->plan = plan_of(e, agent);
	fill_roster(w, e, agent, r);
	rc = wb_transfer_install(a->core, r, err);
	if (rc == 0) {
		world_must(wb_xport_epoch_add(a->xport, &x, err), err);
		wb_roster_on_end(r, epoch_over, a);
		a->n_epoch++;
	}
	wb_roster_put(r);
	return rc;
}

void world_plan(struct world *w)
{
	struct world_epoch *e = world_epoch_make(w);
	struct wb_err err = {0};

	for (uint32_t i = 0; i < e->n_agent; i++)
		world_must(world_epoch_install(w, e, e->agent[i], &err), &err);
	for (uint32_t i = 0; i < e->n_agent; i++) {
		struct world_agent *a = &w->agent[e->agent[i]];

		world_must(wb_transfer_activate(a->core, &e->id), NULL);
		world_after(a);
	}
}
