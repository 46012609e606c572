/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which of the attached workers make up the plan, and says who is missing. */
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"
#include "operator-shim/spec/transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pick {
	const struct worker *w;
	struct agent *a;
};

void wb__reconcile_membership_finish(struct membership *m)
{
	wb_free(m->m);
	wb_free(m->layout);
	memset(m, 0, sizeof(*m));
}

bool wb__reconcile_has_engine(const struct membership *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->m[i].plan.role == WB_ROLE_ROLLOUT && !strcmp(m->m[i].engine, name))
			return true;
	return false;
}

/* Plan order: trainers first; then by engine, rank, agent's name and worker number.  The trainer
 * worker of rank 0 comes first, so its agent is the coordinator. */
static int by_plan_order(const void *x, const void *y)
{
	const struct pick *a = x, *b = y;
	int c;

	if (a->w->role != b->w->role)
		return a->w->role < b->w->role ? -1 : 1;
	c = strcmp(a->w->engine, b->w->engine);
	if (c)
		return c;
	if (a->w->rank != b->w->rank)
		return a->w->rank < b->w->rank ? -1 : 1;
	c = strcmp(a->a->name, b->a->name);
	if (c)
		return c;
	return a->w->id < b->w->id ? -1 : a->w->id > b->w->id;
}

static bool is_whole(const struct wb_reconcile *r, const struct worker *w)
{
	const struct engine *e;

	if (w->role == WB_ROLE_TRAINER)
		return true;
	e = wb__reconcile_engine(r, w->engine);
	return e && e->n_worker == r->spec.workers_per_engine;
}

static bool is_on(const struct worker *w, uint32_t rail)
{
	return !w->rails || w->rails >> rail & 1;
}

/* A rail that workers of the plan use, and whose interface is known.  Rails of other agents may be
 * on the same interface. */
struct use {
	uint64_t nic;
	struct agent *a;
	uint32_t rail;
};

static int by_nic(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	return x->nic < y->nic ? -1 : x->nic > y->nic;
}

/* Set n_user_of of each rail: how many workers use it or other rails on the same interface. */
static int count_users(struct wb_reconcile *r)
{
	size_t n = 0;
	struct use *u;

	for (size_t i = 0; i < r->n_agent; i++)
		n += r->agent[i].n_rail;
	u = wb_zalloc(n, sizeof(*u));
	if (!u)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < r->n_agent; i++) {
		struct agent *a = &r->agent[i];

		for (uint32_t k = 0; k < a->n_rail; k++) {
			a->n_user_of[k] = a->n_pick_of[k];
			if (a->nic[k] && a->n_pick_of[k])
				u[n++] = (struct use){a->nic[k], a, k};
		}
	}
	if (n)
		qsort(u, n, sizeof(*u), by_nic);
	for (size_t i = 0, end; i < n; i = end) {
		uint32_t sum = 0;

		for (end = i; end < n && u[end].nic == u[i].nic; end++)
			sum += u[end].a->n_pick_of[u[end].rail];
		for (size_t k = i; k < end; k++)
			u[k].a->n_user_of[u[k].rail] = sum;
	}
	wb_free(u);
	return 0;
}

/* The worker's share of the rates of its rails, which other workers may use too; 0 = a rate is not
 * known. */
static uint64_t rate_of(const struct pick *p)
{
	const struct agent *a = p->a;
	uint64_t sum = 0;

	if (!a->n_rail)
		return a->rail_bytes_per_s / a->n_pick;
	for (uint32_t k = 0; k < a->n_rail; k++) {
		if (!is_on(p->w, k))
			continue;
		if (!a->rail[k])
			return 0;
		sum += a->rail[k] / a->n_user_of[k];
	}
	return sum;
}

/* How many domains and nodes have numbers. */
struct numbers {
	uint32_t domain, node;
};

/* Whether a rail of @a copies through memory at least as fast as it sends, as far as is known.  If
 * it does not, sending a byte by a rail takes less time than copying it through memory. */
static bool copies_fast(const struct agent *a)
{
	uint32_t n = WB_MAX(a->n_rail, 1);

	return !a->memory_bytes_per_s || a->rail_bytes_per_s / n <= a->memory_bytes_per_s;
}

/* Whether weights of this object go from @a to @b through memory.  Weights that have to be
 * encrypted may not. */
static bool shares_memory(
	const struct wb_reconcile *r, const struct agent *a, const struct agent *b)
{
	return a->memory && a->memory == b->memory && copies_fast(a) && copies_fast(b) &&
	       wb_spec_allowed(&r->spec) & WB_VIA_SHM && r->spec.encryption == WB_ENCRYPTION_NONE;
}

/* Number the agents (domains) and the nodes from 0, in plan order.  Agents that share memory are
 * one node; every other agent is a node of its own, wherever it runs. */
static struct numbers number_agents(struct wb_reconcile *r, const struct pick *p, size_t n)
{
	uint32_t n_domain = 0, n_node = 0;

	for (size_t i = 0; i < r->n_agent; i++)
		r->agent[i].domain = r->agent[i].node_number = WB_RECONCILE_NONE;
	for (size_t i = 0; i < r->n_agent; i++) {
		r->agent[i].n_pick = 0;
		memset(r->agent[i].n_pick_of, 0, sizeof(r->agent[i].n_pick_of));
	}
	for (size_t i = 0; i < n; i++) {
		struct agent *a = p[i].a;

		a->n_pick++;
		for (uint32_t k = 0; k < a->n_rail; k++)
			a->n_pick_of[k] += is_on(p[i].w, k);
		if (a->domain != WB_RECONCILE_NONE)
			continue;
		a->domain = n_domain++;
		for (size_t k = 0; k < r->n_agent; k++)
			if (r->agent[k].node_number != WB_RECONCILE_NONE &&
				shares_memory(r, &r->agent[k], a))
				a->node_number = r->agent[k].node_number;
		if (a->node_number == WB_RECONCILE_NONE)
			a->node_number = n_node++;
	}
	return (struct numbers){n_domain, n_node};
}

static int layout_of(struct membership *m, struct wb_digest map, uint32_t *out)
{
	int rc;

	for (size_t i = 0; i < m->n_layout; i++)
		if (wb_digest_eq(m->layout[i], map)) {
			*out = (uint32_t)i;
			return 0;
		}
	rc = wb_grow(
		&m->layout, &m->layout_cap, m->n_layout + 1, WB_WORKERS_MAX, sizeof(*m->layout));
	if (rc < 0)
		return rc;
	*out = (uint32_t)m->n_layout;
	m->layout[m->n_layout++] = map;
	return 0;
}

static int add_member(struct membership *m, const struct pick *p)
{
	const struct worker *w = p->w;
	struct wb_reconcile_member *to;
	uint32_t layout = 0;
	int rc;

	rc = wb_grow(&m->m, &m->cap, m->n + 1, WB_WORKERS_MAX, sizeof(*m->m));
	if (rc == 0)
		rc = layout_of(m, w->map, &layout);
	if (rc < 0)
		return rc;
	to = &m->m[m->n];
	memset(to, 0, sizeof(*to));
	to->agent = p->a->id;
	to->worker = w->id;
	to->instance = w->instance;
	to->rank = w->rank;
	to->plan_index = w->plan_index;
	to->waiting_index = w->waiting_index;
	to->map = w->map;
	to->manifest = w->manifest;
	memcpy(to->engine, w->engine, sizeof(to->engine));
	snprintf(
		to->agent_name, sizeof(to->agent_name), "%.*s", WB_RECONCILE_AGENT_MAX, p->a->name);
	to->plan.role = w->role;
	to->plan.layout = layout;
	to->rails = w->rails;
	to->plan.rail_bytes_per_s = rate_of(p);
	to->plan.domain = p->a->domain;
	to->plan.node = p->a->node_number;
	if (w->role == WB_ROLE_ROLLOUT) {
		const struct wb_reconcile_member *prev = m->n ? to - 1 : NULL;

		if (!prev || prev->plan.role != WB_ROLE_ROLLOUT ||
			strcmp(prev->engine, to->engine) != 0)
			m->n_engine++;
		to->plan.engine = m->n_engine - 1;
	}
	m->n_domain = WB_MAX(m->n_domain, to->plan.domain + 1);
	m->n++;
	return 0;
}

static int add_absent(
	struct membership *m, const struct wb_reconcile_member *was, uint32_t domain, uint32_t node)
{
	uint32_t layout = 0;
	int rc;

	rc = wb_grow(&m->m, &m->cap, m->n + 1, WB_WORKERS_MAX, sizeof(*m->m));
	if (rc == 0)
		rc = layout_of(m, was->map, &layout);
	if (rc < 0)
		return rc;
	m->m[m->n] = *was;
	m->m[m->n].agent = WB_RECONCILE_NONE;
	m->m[m->n].instance = 0;
	m->m[m->n].plan_index = m->m[m->n].waiting_index = WB_RECONCILE_NONE;
	m->m[m->n].is_absent = true;
	m->m[m->n].plan.layout = layout;
	m->m[m->n].plan.domain = domain;
	m->m[m->n].plan.node = node;
	m->n_domain = WB_MAX(m->n_domain, domain + 1);
	m->n_absent++;
	m->n++;
	return 0;
}

/* Add, as absent members, the trainer workers of the active plan that are gone.  The numbers of
 * their domains and nodes come after those of the agents that are here.  Each domain is a node of
 * its own, whatever it was before: an absent trainer sends nothing, so it shares no memory. */
static int add_all_absent(const struct wb_reconcile *r, struct membership *m, struct numbers next)
{
	const struct membership *was = &r->active.who;
	/* Of each domain: 1 + which of the absent ones it is; 0 = none yet */
	uint32_t *number = wb_zalloc(was->n_domain + 1, sizeof(*number)), n_domain = 0;
	int rc = number ? 0 : -ENOMEM;

	for (size_t i = 0; i < was->n && rc == 0; i++) {
		const struct wb_reconcile_member *w = &was->m[i];
		bool is_here = false;
		uint32_t at;

		if (w->plan.role != WB_ROLE_TRAINER)
			continue;
		for (size_t k = 0; k < m->n - m->n_absent && !w->is_absent && !is_here; k++)
			is_here = m->m[k].instance == w->instance && m->m[k].worker == w->worker;
		if (is_here)
			continue;
		if (!number[w->plan.domain])
			number[w->plan.domain] = ++n_domain;
		at = number[w->plan.domain] - 1;
		rc = add_absent(m, w, next.domain + at, next.node + at);
	}
	wb_free(number);
	return rc;
}

/* Memberships with the same print need the same plan, with the same workers in the same places. */
static int fingerprint(const struct wb_reconcile *r, struct membership *m)
{
	struct wb_buf b;

	wb_buf_init(&b, 64u << 20);
	wb_buf_u64(&b, r->spec.trainer_buffer_bytes);
	wb_buf_u64(&b, r->spec.rollout_buffer_bytes);
	wb_buf_u32(&b, r->spec.trainer_staging);
	wb_buf_u32(&b, r->spec.rollout_staging);
	wb_buf_u32(&b, r->spec.overlap);
	wb_buf_u32(&b, r->spec.checksums);
	wb_buf_u32(&b, r->spec.encryption);
	wb_buf_u32(&b, wb__reconcile_transport_print(r));
	wb_buf_u32(&b, r->spec.commit_policy);
	wb_buf_u32(&b, r->spec.transfer_deadline_s);
	wb_buf_u32(&b, r->spec.engine_step_deadline_s);
	for (size_t i = 0; i < m->n; i++) {
		const struct wb_reconcile_member *w = &m->m[i];

		wb_buf_u64(&b, w->instance);
		wb_buf_u32(&b, w->worker);
		wb_buf_u32(&b, w->plan.role);
		wb_buf_u32(&b, w->is_absent);
		wb_buf_str(&b, w->engine);
		wb_buf_u64(&b, w->map.hi);
		wb_buf_u64(&b, w->map.lo);
		wb_buf_u64(&b, w->manifest.hi);
		wb_buf_u64(&b, w->manifest.lo);
	}
	if (b.rc == 0)
		m->print = wb_digest_of(b.data, b.len);
	wb_buf_finish(&b);
	return b.rc;
}

static void list_names(
	const struct wb_reconcile *r, struct wb_buf *b, enum wb_role role, const char *engine)
{
	unsigned n = 0;

	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *w = &r->worker[i];

		if (w->is_refused || w->role != role || strcmp(w->engine, engine) != 0)
			continue;
		if (n++ == 8) {
			wb_buf_printf(b, ", ...");
			break;
		}
		wb_buf_printf(b, "%s%s", n == 1 ? "" : ", ", w->name);
	}
	if (!n)
		wb_buf_printf(b, "none");
}

static void say_ranks_missing(const struct wb_reconcile *r, struct wb_buf *b)
{
	uint32_t said = 0;

	for (uint32_t rank = 0; rank < r->spec.trainer_workers && said < 8; rank++) {
		bool is_there = false, has_ranks = true;

		for (size_t i = 0; i < r->n_worker; i++) {
			const struct worker *w = &r->worker[i];

			if (w->role != WB_ROLE_TRAINER || w->is_refused)
				continue;
			has_ranks &= w->rank >= 0;
			is_there |= w->rank == rank;
		}
		if (!has_ranks || is_there)
			continue;
		wb_buf_printf(b, "%s%u", said ? ", " : ", missing rank ", rank);
		said++;
	}
}

static void say_engines(const struct wb_reconcile *r, struct wb_buf *b, uint32_t want)
{
	unsigned said = 0;

	wb_buf_printf(b, "%swaiting for %u of %u engines of %u workers", b->len ? "; " : "",
		want - r->n_engine_up, want, r->spec.workers_per_engine);
	for (size_t i = 0; i < r->n_engine && said < 8; i++) {
		const struct engine *e = &r->engine[i];

		if (!e->n_worker || e->n_up == r->spec.workers_per_engine)
			continue;
		wb_buf_printf(b, "%s engine %s has %u of %u (", said++ ? "," : ";", e->name,
			e->n_up, r->spec.workers_per_engine);
		list_names(r, b, WB_ROLE_ROLLOUT, e->name);
		wb_buf_printf(b, ")");
	}
}

static void say_aside(struct wb_reconcile *r)
{
	struct wb_buf b;

	wb_buf_init(&b, 65536);
	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (!e->n_worker || e->n_up == r->spec.workers_per_engine)
			continue;
		wb_buf_printf(&b, "%sengine %s has %u of %u workers (", b.len ? "; " : "", e->name,
			e->n_up, r->spec.workers_per_engine);
		list_names(r, &b, WB_ROLE_ROLLOUT, e->name);
		wb_buf_printf(&b, ")");
	}
	snprintf(r->aside, sizeof(r->aside), "%s", wb_buf_cstr(&b));
	wb_buf_finish(&b);
}

static void say_lost(const struct wb_reconcile *r, struct wb_buf *b)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (!r->agent[i].is_up)
			wb_buf_printf(b, "; agent %s is not connected", r->agent[i].name);
	for (size_t i = 0; i < r->n_worker; i++)
		if (r->worker[i].waits_for_place)
			wb_buf_printf(b, "; %s waits for a place that is given up with it",
				r->worker[i].name);
}

static void say_waiting(struct wb_reconcile *r, uint32_t want_engines)
{
	struct wb_buf b;

	wb_buf_init(&b, 65536);
	if (r->n_trainer_up < r->spec.trainer_workers) {
		wb_buf_printf(&b, "waiting for %u of %u trainer workers",
			r->spec.trainer_workers - r->n_trainer_up, r->spec.trainer_workers);
		if (r->n_trainer_up)
			say_ranks_missing(r, &b);
		wb_buf_printf(&b, "; attached: ");
		list_names(r, &b, WB_ROLE_TRAINER, "");
	}
	if (r->n_trainer_up > r->spec.trainer_workers) {
		wb_buf_printf(&b,
			"%u trainer workers are attached, and spec.trainer.workers is %u: end "
			"those that are too many, or raise it; attached: ",
			r->n_trainer_up, r->spec.trainer_workers);
		list_names(r, &b, WB_ROLE_TRAINER, "");
	}
	if (r->n_engine_up < want_engines)
		say_engines(r, &b, want_engines);
	if (b.len)
		say_lost(r, &b);
	snprintf(r->waiting, sizeof(r->waiting), "%s", wb_buf_cstr(&b));
	wb_buf_finish(&b);
}

static void count_up(struct wb_reconcile *r)
{
	uint32_t want = r->spec.engines ? r->spec.engines : 1;

	r->n_trainer_up = r->n_engine_up = 0;
	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *w = &r->worker[i];
		const struct agent *a = wb__reconcile_agent_by_instance(r, w->instance);

		if (w->role == WB_ROLE_TRAINER && !w->is_refused && a && a->is_up)
			r->n_trainer_up++;
	}
	for (size_t i = 0; i < r->n_engine; i++)
		r->n_engine_up += r->engine[i].n_up == r->spec.workers_per_engine;
	r->is_complete = r->n_trainer_up == r->spec.trainer_workers && r->n_engine_up >= want;
	say_waiting(r, want);
	r->aside[0] = '\0';
	if (r->is_complete)
		say_aside(r);
}

/* Find the workers that take part, in plan order.  The trainers of an interim plan are those of the
 * previous plan, connected or not; a new trainer worker waits until all trainers are connected. */
static size_t pick_workers(
	struct wb_reconcile *r, const struct member_key *active, size_t n_active, struct pick *p)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *w = &r->worker[i];
		struct agent *a = wb__reconcile_agent_by_instance(r, w->instance);

		if (!a || w->is_refused || !is_whole(r, w))
			continue;
		if (r->is_interim && w->role == WB_ROLE_TRAINER &&
			!wb__reconcile_has_key(active, n_active, w->instance, w->id))
			continue;
		p[n++] = (struct pick){w, a};
	}
	qsort(p, n, sizeof(*p), by_plan_order);
	return n;
}

static int fill(struct wb_reconcile *r, struct membership *out, const struct pick *p, size_t n)
{
	struct numbers next = number_agents(r, p, n);
	int rc = count_users(r);
	size_t i = 0;

	for (; i < n && rc == 0 && p[i].w->role == WB_ROLE_TRAINER; i++)
		rc = add_member(out, &p[i]);
	if (rc == 0 && r->is_interim)
		rc = add_all_absent(r, out, next);
	for (; i < n && rc == 0; i++)
		rc = add_member(out, &p[i]);
	return rc == 0 ? fingerprint(r, out) : rc;
}

int wb__reconcile_choose(struct wb_reconcile *r, struct membership *out)
{
	struct pick *p = wb_zalloc(r->n_worker + 1, sizeof(*p));
	size_t n_active, n;
	struct member_key *active = wb__reconcile_active_keys(r, &n_active);
	int rc = p && active ? 0 : -ENOMEM;

	memset(out, 0, sizeof(*out));
	if (rc == 0) {
		count_up(r);
		r->is_interim = wb__reconcile_is_interim(r, active, n_active);
		n = pick_workers(r, active, n_active, p);
		rc = fill(r, out, p, n);
	}
	if (rc < 0)
		wb__reconcile_membership_finish(out);
	wb_free(active);
	wb_free(p);
	return rc;
}
