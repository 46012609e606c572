/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/roster.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/addr.h"
#include "net/psk.h"
#include "xport/xport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

static int allocate(const struct wb_msg_plan *m, struct wb_roster *r)
{
	assert(m->n_agents && m->n_engines);
	r->object = wb_strdup(m->object);
	r->agent = wb_zalloc(m->n_agents, sizeof(*r->agent));
	r->engine = wb_zalloc(m->n_engines, sizeof(*r->engine));
	r->worker = wb_zalloc(r->plan->n_worker, sizeof(*r->worker));
	if (!r->object || !r->agent || !r->engine || !r->worker)
		return -ENOMEM;
	r->n_agent = m->n_agents;
	r->n_engine = m->n_engines;
	r->n_worker = r->plan->n_worker;
	r->me = r->coordinator = NONE;
	for (uint32_t e = 0; e < m->n_engines; e++) {
		r->engine[e].lead = NONE;
		r->engine[e].name = wb_strdup(m->engines[e]);
		if (!r->engine[e].name)
			return -ENOMEM;
	}
	return 0;
}

static int add_worker(const struct wb_p_endpoint *e, uint32_t agent, uint32_t i,
	struct wb_roster *r, struct wb_err *err)
{
	uint32_t w = e->workers[i];
	char name[WBP_NAME_MAX + 32];

	if (w >= r->n_worker || r->plan->worker[w].domain != agent || r->worker[w].name)
		return wb_err_set(err, WB_EPLAN,
			"agent %s is said to have worker %u, which the plan has elsewhere or not "
			"at all",
			e->agent, w);
	if (i < e->n_names && e->names[i] && e->names[i][0])
		snprintf(name, sizeof(name), "%.256s", e->names[i]);
	else
		snprintf(name, sizeof(name), "%.200s/worker %u", e->agent, e->ids[i]);
	r->worker[w].local = e->ids[i];
	r->worker[w].rails = e->n_rails ? e->rails[i] : 0;
	r->worker[w].name = wb_strdup(name);
	return r->worker[w].name ? 0 : -ENOMEM;
}

/* The addresses that an agent tells of itself, as text: an older agent has one. */
static const char *const *hosts_of(const struct wb_p_endpoint *e, uint32_t *n)
{
	*n = e->n_hosts ? e->n_hosts : 1;
	return e->n_hosts ? (const char *const *)e->hosts : (const char *const *)&e->host;
}

/* Append @way, at another of the agent's addresses, to those that are in @out already. */
static int add_way(const struct wb_p_endpoint *e, const char *way, const char *addr, char *out)
{
	char one[WB_XPORT_ENDPOINT_MAX];
	size_t at = strlen(out);
	int n;

	if (wb__addr_rehost(way, e->host, addr, one, sizeof(one)) < 0)
		snprintf(one, sizeof(one), "%s", way);
	n = snprintf(out + at, WB_XPORT_ENDPOINT_MAX - at, "%s%s", at ? ";" : "", one);
	return n < 0 || (size_t)n >= WB_XPORT_ENDPOINT_MAX - at ? -ENOSPC : 0;
}

/* All agents can dial this agent by bulk; those that know of several ways, by its other ways. */
static char *bulk_at(const struct wb_p_endpoint *e, const char *addr)
{
	char bulk[WB_XPORT_ENDPOINT_MAX] = "";
	int rc = 0;

	for (uint32_t i = 0; i < e->n_ways && rc == 0; i++)
		rc = add_way(e, e->ways[i], addr, bulk);
	if (rc == 0 && e->bulk && e->bulk[0])
		rc = add_way(e, e->bulk, addr, bulk);
	return wb_strdup(rc < 0 ? e->bulk : bulk);
}

/* Where to dial it: control and bulk at its best address, and at the others. */
static int add_addrs(
	const struct wb_p_endpoint *e, const struct wb__addrs *mine, struct wb_roster_agent *a)
{
	char control[WBP_HOST_MAX + 16];
	const char *best = e->host;
	struct wb__addrs to;
	uint32_t n;
	const char *const *theirs = hosts_of(e, &n);

	wb__addrs_choose(mine, theirs, n, &to);
	a->is_foreign = mine->n && !to.n && e->port;
	if (to.n)
		best = to.a[0];
	wb__addr_join(best, (uint16_t)e->port, control, sizeof(control));
	a->control = wb_strdup(control);
	a->bulk = bulk_at(e, best);
	if (!a->control || !a->bulk)
		return -ENOMEM;
	if (to.n < 2)
		return 0;
	a->addr = wb_zalloc(to.n, sizeof(*a->addr));
	a->more_bulk = wb_zalloc(to.n, sizeof(*a->more_bulk));
	if (!a->addr || !a->more_bulk)
		return -ENOMEM;
	for (a->n_addr = 0; a->n_addr < to.n; a->n_addr++) {
		a->addr[a->n_addr] = wb_strdup(to.a[a->n_addr]);
		if (a->n_addr)
			a->more_bulk[a->n_addr - 1] = bulk_at(e, to.a[a->n_addr]);
		if (!a->addr[a->n_addr] || (a->n_addr && !a->more_bulk[a->n_addr - 1])) {
			a->n_addr++; /* both are freed, whichever there is */
			return -ENOMEM;
		}
	}
	return 0;
}

static bool has_rails(const char *bulk, uint32_t rails)
{
	char some[WB_XPORT_ENDPOINT_MAX];

	return !rails || (bulk && !wb_xport_endpoint_of(bulk, rails, some, sizeof(some)));
}

static int add_agent(const struct wb_p_endpoint *e, uint32_t agent, const struct wb__addrs *mine,
	struct wb_roster *r, struct wb_err *err)
{
	int rc;

	if (e->n_workers != e->n_ids || (e->n_rails && e->n_rails != e->n_workers))
		return wb_err_set(err, -EBADMSG, "agent %s: %u workers, %u ids, %u with rails",
			e->agent, e->n_workers, e->n_ids, e->n_rails);
	r->agent[agent].name = wb_strdup(e->agent);
	r->agent[agent].is_absent = !e->port;
	r->agent[agent].version = e->version;
	rc = r->agent[agent].name ? add_addrs(e, mine, &r->agent[agent]) : -ENOMEM;
	for (uint32_t i = 0; i < e->n_rails && rc == 0; i++)
		if (!has_rails(r->agent[agent].bulk, e->rails[i]))
			return wb_err_set(err, -EBADMSG,
				"agent %s: worker %u has rails %#x of those at '%.200s'", e->agent,
				e->ids[i], e->rails[i], r->agent[agent].bulk);
	for (uint32_t i = 0; i < e->n_workers && rc == 0; i++)
		rc = add_worker(e, agent, i, r, err);
	return rc;
}

/* Do these two have to speak?  Trainers with everybody, the others with those of their engines. */
static bool must_meet(const struct wb_plan *plan, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < plan->n_worker; i++) {
		const struct wb_plan_worker *x = &plan->worker[i];

		for (uint32_t k = 0; x->domain == a && k < plan->n_worker; k++) {
			const struct wb_plan_worker *y = &plan->worker[k];

			if (y->domain == b &&
				(x->role == WB_ROLE_TRAINER || y->role == WB_ROLE_TRAINER ||
					x->engine == y->engine))
				return true;
		}
	}
	return false;
}

static int check_families(
	const struct wb__roster_in *in, const struct wb_roster *r, struct wb_err *err)
{
	char ours[WB__ADDRS_MAX * WB__ADDR_MAX], theirs[sizeof(ours)];
	const char *own[WB__ADDRS_MAX];

	for (uint32_t a = 0; a < r->n_agent; a++) {
		const char *const *host;
		uint32_t n;

		if (!r->agent[a].is_foreign || !must_meet(r->plan, r->me, a))
			continue;
		for (uint32_t i = 0; i < in->mine->n; i++)
			own[i] = in->mine->a[i];
		host = hosts_of(&in->m->agents[a], &n);
		return wb_err_set(err, -EAFNOSUPPORT,
			"agent %s (%s) and agent %s (%s) have no address family in common: give "
			"one of them an address of the other's",
			in->me, wb__addrs_text(own, in->mine->n, ours, sizeof(ours)),
			r->agent[a].name, wb__addrs_text(host, n, theirs, sizeof(theirs)));
	}
	return 0;
}

/* "shm, tcp", into @out, which it returns. */
static const char *transports_of(const char *bulk, char *out, size_t cap)
{
	char way[WB_XPORT_ENDPOINT_MAX];
	size_t at = 0;

	snprintf(out, cap, "none");
	for (uint32_t i = 0; at < cap && wb_xport_way(bulk, i, way, sizeof(way)); i++)
		at += (size_t)snprintf(
			out + at, cap - at, "%s%s", i ? ", " : "", wb_xport_of_endpoint(way));
	return out;
}

/* What an agent does not get over its transports it cannot get from anybody else for long: engines
 * feed each other. */
static int check_transports(const struct wb_roster *r, struct wb_err *err)
{
	const char *mine = r->agent[r->me].bulk;
	char ours[64], others[64];

	for (uint32_t a = 0; a < r->n_agent; a++) {
		const char *theirs = r->agent[a].bulk;

		if (a == r->me || r->agent[a].is_absent || (!mine[0] && !theirs[0]) ||
			wb_xport_meet(mine, theirs, r->allowed, r->encrypted))
			continue;
		return wb_err_set(err, -EPROTONOSUPPORT,
			"agent %s moves weights over %s and agent %s over %s: start all agents of "
			"an object with the same --transport%s%s%s",
			r->agent[r->me].name, transports_of(mine, ours, sizeof(ours)),
			r->agent[a].name, transports_of(theirs, others, sizeof(others)),
			r->allowed ? ", of those that spec.transport allows: " : "",
			r->allowed ? r->allowed : "",
			r->encrypted ? "; encryption is TLS, which verbs has not" : "");
	}
	return 0;
}

/* Leads: the agent of an engine's first worker, and of the first trainer worker. */
static int choose_leads(struct wb_roster *r, struct wb_err *err)
{
	for (uint32_t w = 0; w < r->n_worker; w++) {
		const struct wb_plan_worker *x = &r->plan->worker[w];

		if (!r->worker[w].name)
			return wb_err_set(err, WB_EPLAN, "worker %u of the plan is at no agent", w);
		if (x->role == WB_ROLE_TRAINER) {
			if (r->coordinator == NONE)
				r->coordinator = x->domain;
			continue;
		}
		if (x->engine >= r->n_engine)
			return wb_err_set(
				err, WB_EPLAN, "engine %u of the plan has no name", x->engine);
		if (r->engine[x->engine].lead == NONE)
			r->engine[x->engine].lead = x->domain;
	}
	if (r->coordinator == NONE)
		return wb_err_set(err, WB_EPLAN, "the plan has no trainer worker");
	for (uint32_t e = 0; e < r->n_engine; e++)
		if (r->engine[e].lead == NONE)
			return wb_err_set(err, WB_EPLAN, "engine %s has no worker in the plan",
				r->engine[e].name);
	return 0;
}

/* By another agent's part of the plan, this agent's workers would need nothing, and have all of it
 * at once. */
static int check_part(const struct wb_roster *r, struct wb_err *err)
{
	if (!r->plan->is_part || r->plan->domain == r->me)
		return 0;
	return wb_err_set(err, WB_EPLAN,
		"the part of the plan is of agent %u, and this is agent %u", r->plan->domain,
		r->me);
}

static int fill(const struct wb__roster_in *in, struct wb_roster *r, struct wb_err *err)
{
	const struct wb_msg_plan *m = in->m;
	const char *allowed = in->object->allowed;
	int rc = allocate(m, r);

	r->encrypted = in->object->encrypted;
	if (rc == 0 && allowed && allowed[0]) {
		r->allowed = wb_strdup(allowed);
		rc = r->allowed ? 0 : -ENOMEM;
	}
	for (uint32_t a = 0; a < m->n_agents && rc == 0; a++) {
		rc = add_agent(&m->agents[a], a, in->mine, r, err);
		if (m->agents[a].port && !strcmp(m->agents[a].agent, in->me))
			r->me = a;
	}
	if (rc == 0 && r->me == NONE)
		return wb_err_set(err, -ENOENT, "the plan has no agent called %s", in->me);
	if (rc == 0)
		rc = check_part(r, err);
	if (rc == 0)
		rc = choose_leads(r, err);
	if (rc == 0)
		rc = check_transports(r, err);
	return rc < 0 ? rc : check_families(in, r, err);
}

static void set_mode(const struct wb__roster_in *in, struct wb_roster *r)
{
	const struct wb_p_object *o = in->object;

	assert(in->patience_ns);
	r->patience_ns = in->patience_ns;
	r->transfer_deadline_ns = o->transfer_deadline_ns;
	r->engine_step_deadline_ns = o->step_deadline_ns;
	r->trainer_staged = o->sender_staging == WB_STAGING_HOST_MEMORY;
	r->rollout_staged = o->receiver_staging == WB_STAGING_HOST_MEMORY;
	r->supersede = o->overlap == WB_OVERLAP_SUPERSEDE;
	r->all_engines = o->commit == WB_COMMIT_ALL_ENGINES;
	r->sums = o->checksums;
	r->read_back = o->read_back;
}

int wb__roster_create(const struct wb__roster_in *in, struct wb_plan *plan_take,
	struct wb_roster **out, struct wb_err *err)
{
	const struct wb_msg_plan *m = in->m;
	struct wb_epoch_id id = {*in->id, m->epoch.term, m->epoch.number};
	struct wb_roster *r = wb_roster_create(&id);
	int rc;

	*out = NULL;
	if (!r) {
		wb_plan_destroy(plan_take);
		return wb_err_set(err, -ENOMEM, "no memory for a roster");
	}
	r->plan = plan_take;
	if (!m->n_agents || !m->n_engines)
		rc = wb_err_set(err, -EBADMSG, "the plan has %u agents and %u engines", m->n_agents,
			m->n_engines);
	else if (wb_hex_parse(m->key, r->key, sizeof(r->key)) < 0)
		rc = wb_err_set(err, -EBADMSG, "the key of the epoch is not %d hex digits",
			2 * WB_ROSTER_KEY_BYTES);
	else
		rc = fill(in, r, err);
	if (rc == -ENOMEM)
		wb_err_set(err, rc, "no memory for the roster of %u agents", m->n_agents);
	if (rc < 0) {
		wb_roster_put(r);
		return rc;
	}
	assert(r->me < r->n_agent && r->coordinator < r->n_agent);
	set_mode(in, r);
	*out = r;
	return 0;
}
