/* SPDX-License-Identifier: Apache-2.0 */
/* Agents, workers and engines of an object: who is connected, lost or refused, and what engines
 * hold. */
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct agent *wb__reconcile_agent_by_id(const struct wb_reconcile *r, uint32_t id)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].id == id && r->agent[i].is_up)
			return &r->agent[i];
	return NULL;
}

/* This is called for each worker at each look, so look first where the instance was last found. */
struct agent *wb__reconcile_agent_by_instance(const struct wb_reconcile *r, uint64_t instance)
{
	uint16_t *hint = &r->hint[wb_mix64(instance) % HINTS];

	if (*hint < r->n_agent && r->agent[*hint].instance == instance)
		return &r->agent[*hint];
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].instance == instance) {
			*hint = (uint16_t)i;
			return &r->agent[i];
		}
	return NULL;
}

static struct agent *agent_by_name(const struct wb_reconcile *r, const char *name)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (!strcmp(r->agent[i].name, name))
			return &r->agent[i];
	return NULL;
}

struct engine *wb__reconcile_engine(const struct wb_reconcile *r, const char *name)
{
	size_t lo = 0, hi = r->n_engine;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = strcmp(name, r->engine[mid].name);

		if (!c)
			return &r->engine[mid];
		if (c < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

static int make_engine(struct wb_reconcile *r, const char *name)
{
	size_t at = 0;
	int rc;

	if (wb__reconcile_engine(r, name))
		return 0;
	rc = wb_grow(
		&r->engine, &r->engine_cap, r->n_engine + 1, WB_WORKERS_MAX, sizeof(*r->engine));
	if (rc < 0)
		return rc;
	while (at < r->n_engine && strcmp(r->engine[at].name, name) < 0)
		at++;
	memmove(&r->engine[at + 1], &r->engine[at], (r->n_engine - at) * sizeof(*r->engine));
	memset(&r->engine[at], 0, sizeof(r->engine[at]));
	snprintf(r->engine[at].name, sizeof(r->engine[at].name), "%s", name);
	wb__reconcile_restore_engine(r, &r->engine[at]);
	r->n_engine++;
	return 0;
}

static void count_worker(struct engine *e, const struct worker *w, const struct agent *a)
{
	if (!e->n_worker) {
		e->held = w->held;
		e->is_mixed = false;
	} else if (w->held.transfer != e->held.transfer) {
		e->is_mixed = true;
		if (w->held.transfer < e->held.transfer)
			e->held = w->held;
	}
	e->held.is_torn |= w->held.is_torn;
	e->n_worker++;
	e->n_up += a && a->is_up;
	if (a && (a->families == WB_RECONCILE_IPV4 || a->families == WB_RECONCILE_IPV6))
		e->only |= a->families;
}

int wb__reconcile_count_engines(struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_engine; i++) {
		r->engine[i].n_worker = r->engine[i].n_up = r->engine[i].only = 0;
		r->engine[i].is_mixed = false;
		r->engine[i].held = (struct wb_reconcile_held){0};
	}
	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *w = &r->worker[i];
		const struct agent *a = wb__reconcile_agent_by_instance(r, w->instance);
		int rc;

		if (w->role != WB_ROLE_ROLLOUT || w->is_refused)
			continue;
		rc = make_engine(r, w->engine);
		if (rc < 0)
			return rc;
		count_worker(wb__reconcile_engine(r, w->engine), w, a);
	}
	for (size_t i = 0; i < r->n_engine; i++) {
		const struct engine *e = &r->engine[i];

		if (e->n_worker == r->spec.workers_per_engine && !e->held.is_torn &&
			e->held.transfer > r->top.transfer)
			r->top = e->held;
	}
	return 0;
}

void wb__reconcile_drop_engines(struct wb_reconcile *r)
{
	size_t keep = 0;

	for (size_t i = 0; i < r->n_engine; i++) {
		struct engine *e = &r->engine[i];

		if (!e->n_worker && !wb__reconcile_has_engine(&r->active.who, e->name))
			continue;
		if (keep != i)
			r->engine[keep] = *e;
		keep++;
	}
	r->n_engine = keep;
}

/* Worker @id of that instance of an agent, or NULL. */
static struct worker *find_worker(const struct wb_reconcile *r, uint64_t instance, uint32_t id)
{
	for (size_t i = 0; i < r->n_worker; i++)
		if (r->worker[i].instance == instance && r->worker[i].id == id)
			return &r->worker[i];
	return NULL;
}

static void name_worker(struct worker *w, const struct agent *a, const char *name)
{
	if (name)
		snprintf(w->name, sizeof(w->name), "%.*s", WB_RECONCILE_WORKER_MAX, name);
	else
		snprintf(w->name, sizeof(w->name), "%.150s/worker %u", a->name, w->id);
}

static int reject(struct wb_reconcile *r, const struct agent *a, uint32_t worker,
	enum member_fault fault, const char *why)
{
	static const char *const reasons[] = {[FAULT_ROLE] = "RoleMismatch",
		[FAULT_ENGINE] = "EngineLabelMissing",
		[FAULT_COUNT] = NULL};

	return wb__reconcile_act(r,
		&(struct wb_reconcile_action){.what = WB_DO_REJECT,
			.agent = a->id,
			.worker = worker,
			.code = -EEXIST,
			.reason = reasons[fault]},
		why);
}

/* Whether @w cannot take part beside the workers that are there; a sentence in @why says why.
 * @may_change: a worker that is in the way is not connected, and may be gone. */
static bool is_unwanted(const struct wb_reconcile *r, const struct worker *w, bool *may_change,
	char *why, size_t bytes)
{
	bool is_trainer = w->role == WB_ROLE_TRAINER;
	uint32_t want = is_trainer ? r->spec.trainer_workers : r->spec.workers_per_engine, n = 0;
	bool has_lost = false;
	char group[192];

	*may_change = false;
	if (is_trainer)
		snprintf(group, sizeof(group), "the trainer");
	else
		snprintf(group, sizeof(group), "engine %s", w->engine);
	if (w->rank >= (int64_t)want) {
		snprintf(why, bytes, "%s: %s has %u workers by the spec (%s), so ranks are 0 to %u",
			w->name, group, want,
			is_trainer ? "trainer.workers" : "rollout.workersPerEngine", want - 1);
		return true;
	}
	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *o = &r->worker[i];
		const struct agent *a = wb__reconcile_agent_by_instance(r, o->instance);
		bool is_lost = a && !a->is_up;

		if (o->is_refused || o->role != w->role || strcmp(o->engine, w->engine) != 0)
			continue;
		n++;
		has_lost |= is_lost;
		if (w->rank < 0 || o->rank != w->rank)
			continue;
		snprintf(why, bytes,
			"rank %lld of %s is claimed by two workers, %s and %s: give each its own "
			"rank, or none",
			(long long)w->rank, group, o->name, w->name);
		*may_change = is_lost;
		return true;
	}
	if (n < want)
		return false;
	snprintf(why, bytes, "%s: %s already has its %u workers (%s)", w->name, group, want,
		is_trainer ? "trainer.workers" : "rollout.workersPerEngine");
	*may_change = has_lost;
	return true;
}

static void drop_worker(struct wb_reconcile *r, size_t i)
{
	if (r->worker[i].is_refused)
		r->refused[0] = '\0';
	memmove(&r->worker[i], &r->worker[i + 1], (r->n_worker - i - 1) * sizeof(*r->worker));
	r->n_worker--;
}

static void drop_workers_of(struct wb_reconcile *r, uint64_t instance)
{
	for (size_t i = r->n_worker; i-- > 0;)
		if (r->worker[i].instance == instance)
			drop_worker(r, i);
}

static int add_worker(struct wb_reconcile *r, struct wb_reconcile_now now, const struct agent *a,
	const struct wb_reconcile_worker *in)
{
	char why[WB_RECONCILE_SENTENCE_MAX];
	struct worker w = {.instance = a->instance,
		.id = in->id,
		.role = in->role,
		.rank = in->rank,
		.map = in->map,
		.manifest = in->manifest,
		.held = in->held,
		.plan_index = in->plan_index,
		.waiting_index = in->waiting_index,
		.rails = in->rails};
	enum member_fault fault;
	bool may_change = false;
	int rc;

	name_worker(&w, a, in->name);
	/* A worker that is in a plan already is not new: its agent only connects again. */
	if (in->plan_index == WB_RECONCILE_NONE && in->waiting_index == WB_RECONCILE_NONE)
		w.joined = r->active.epoch;
	fault = wb__reconcile_place_worker(r, a, &w, in->engine, why, sizeof(why));
	for (size_t i = r->n_worker; i-- > 0;)
		if (r->worker[i].instance == a->instance && r->worker[i].id == in->id)
			drop_worker(r, i); /* reported again */
	rc = wb_grow(&r->worker, &r->worker_cap, r->n_worker + 1, 2 * WB_WORKERS_MAX,
		sizeof(*r->worker));
	if (rc < 0)
		return rc;
	if (fault == FAULT_NONE && is_unwanted(r, &w, &may_change, why, sizeof(why)))
		fault = FAULT_COUNT;
	if (may_change) {
		/* Do not reject the worker yet: it would end, although the worker in its place is
		 * probably gone. */
		w.is_refused = w.waits_for_place = true;
	} else if (fault != FAULT_NONE) {
		w.is_refused = true;
		if (fault == FAULT_COUNT)
			snprintf(r->refused, sizeof(r->refused), "%s", why);
		else
			wb__reconcile_note_fault(r, a, fault, now, why);
		rc = reject(r, a, w.id, fault, why);
	}
	r->worker[r->n_worker++] = w;
	if (rc == 0 && w.held.transfer > r->transfer_seen)
		r->transfer_seen = w.held.transfer;
	return rc;
}

int wb__reconcile_judge_waiting(struct wb_reconcile *r)
{
	char why[WB_RECONCILE_SENTENCE_MAX];
	int rc = 0;

	for (size_t i = 0; i < r->n_worker && rc == 0; i++) {
		struct worker *w = &r->worker[i];
		const struct agent *a = wb__reconcile_agent_by_instance(r, w->instance);
		bool may_change;

		if (!w->waits_for_place || !a || !a->is_up)
			continue;
		if (!is_unwanted(r, w, &may_change, why, sizeof(why))) {
			w->is_refused = w->waits_for_place = false;
			r->is_dirty = true;
		} else if (!may_change) {
			w->waits_for_place = false;
			snprintf(r->refused, sizeof(r->refused), "%s", why);
			rc = reject(r, a, w->id, FAULT_COUNT, why);
		}
	}
	return rc;
}

static void drop_agent(struct wb_reconcile *r, struct agent *a)
{
	size_t i = (size_t)(a - r->agent);

	drop_workers_of(r, a->instance);
	memmove(a, a + 1, (r->n_agent - i - 1) * sizeof(*a));
	r->n_agent--;
}

static int say_lost(struct wb_reconcile *r, const struct agent *a)
{
	char text[400];

	if (a->has_no_pod)
		snprintf(text, sizeof(text), "the pod of agent %s is gone", a->name);
	else
		snprintf(text, sizeof(text),
			"agent %s did not come back within spec.heartbeatTimeoutSeconds (%u s)",
			a->name, r->spec.heartbeat_timeout_s);
	return wb__reconcile_event_about(r, "AgentLost", a->name, text);
}

void wb__reconcile_expire_agents(struct wb_reconcile *r, struct wb_reconcile_now now)
{
	for (size_t i = r->n_agent; i-- > 0;) {
		struct agent *a = &r->agent[i];

		if (a->is_up)
			continue;
		if (now.ns < a->lost_at_ns && !a->has_no_pod) {
			wb__reconcile_due(r, a->lost_at_ns);
			continue;
		}
		say_lost(r, a);
		drop_agent(r, a);
		r->is_dirty = true;
	}
}

void wb__reconcile_pod_is_gone(struct wb_reconcile *r, const char *agent)
{
	struct agent *a = agent_by_name(r, agent);

	if (a)
		a->has_no_pod = true;
}

void wb__reconcile_has_pod_again(struct wb_reconcile *r, const char *agent)
{
	struct agent *a = agent_by_name(r, agent);

	if (a)
		a->has_no_pod = false;
}

void wb_reconcile_hear(struct wb_reconcile *r, uint64_t term, uint64_t from)
{
	if (r->term == 0)
		r->term = 1;
	if (term >= WB_RECONCILE_NUMBER_MAX)
		return;
	if (term > r->term || (term == r->term && from != r->o.operator_id)) {
		r->term = term + 1;
		r->last_number = 0;
	}
}

/* The slot of an agent that connects: its old one, or a new one. */
static int place_agent(
	struct wb_reconcile *r, const struct wb_reconcile_agent *in, struct agent **out)
{
	struct agent *a = wb__reconcile_agent_by_instance(r, in->instance);
	int rc;

	if (!a) {
		a = agent_by_name(r, in->name);
		if (a)
			drop_agent(r, a); /* another run: what the old one had is gone */
		rc = wb_grow(&r->agent, &r->agent_cap, r->n_agent + 1, WB_RECONCILE_AGENTS_MAX,
			sizeof(*r->agent));
		if (rc < 0)
			return rc;
		a = &r->agent[r->n_agent++];
	}
	memset(a, 0, sizeof(*a));
	snprintf(a->name, sizeof(a->name), "%s", in->name);
	if (in->memory && *in->memory)
		a->memory = wb_hash64(in->memory, strlen(in->memory), 0) | 1;
	a->id = in->id;
	a->instance = in->instance;
	a->is_up = true;
	a->rail_bytes_per_s = in->rail_bytes_per_s;
	a->memory_bytes_per_s = in->memory_bytes_per_s;
	a->n_rail = WB_MIN(in->n_rail, WB_RECONCILE_RAILS_MAX);
	for (uint32_t i = 0; i < a->n_rail; i++) {
		a->rail[i] = in->rail[i];
		a->nic[i] = in->nic ? in->nic[i] : 0;
	}
	a->running = in->running;
	a->waiting = in->waiting;
	a->needs_all = in->needs_all;
	a->via = in->via;
	a->families = in->families;
	*out = a;
	return 0;
}

int wb_reconcile_agent_up(
	struct wb_reconcile *r, struct wb_reconcile_now now, const struct wb_reconcile_agent *in)
{
	struct agent *a;
	int rc, worst = 0;

	r->is_dirty = true;
	wb_reconcile_hear(r, in->heard_term, in->heard_operator);
	r->transfer_seen = WB_MAX(r->transfer_seen, in->transfer_seen);
	rc = place_agent(r, in, &a);
	if (rc < 0)
		return rc;
	if ((in->running.epoch.term || in->waiting.epoch.term) && !r->active.epoch.term &&
		!r->adopt_since_ns)
		r->adopt_since_ns = now.ns;
	drop_workers_of(r, a->instance);
	for (size_t i = 0; i < in->n_worker; i++) {
		rc = add_worker(r, now, a, &in->worker[i]);
		worst = rc < 0 ? rc : worst;
	}
	rc = wb__reconcile_look(r, now);
	return worst < 0 ? worst : rc;
}

int wb_reconcile_agent_down(
	struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent, bool is_orderly)
{
	struct agent *a = wb__reconcile_agent_by_id(r, agent);

	if (!a)
		return 0;
	r->is_dirty = true;
	/* PLAN could not be made for others while this agent was not connected, so they may not
	 * have got it.  Send it again to all that are not READY; an agent that has it answers at
	 * once. */
	for (size_t i = 0; i < r->n_agent; i++)
		if (!same_epoch(r->agent[i].ready, r->agent[i].sent))
			r->agent[i].sent = (struct wb_reconcile_epoch){0};
	if (is_orderly) {
		drop_agent(r, a);
	} else {
		a->is_up = false;
		a->lost_at_ns = now.ns + r->spec.heartbeat_timeout_s * WB_NS_PER_S;
	}
	return wb__reconcile_look(r, now);
}

static const struct wb_reconcile_worker *in_list(
	const struct wb_reconcile_worker *list, size_t n, const struct worker *w)
{
	for (size_t i = 0; i < n; i++)
		if (list[i].id == w->id && list[i].role == w->role &&
			wb_digest_eq(list[i].map, w->map))
			return &list[i];
	return NULL;
}

int wb_reconcile_workers(struct wb_reconcile *r, struct wb_reconcile_now now, uint32_t agent,
	const struct wb_reconcile_worker *worker, size_t n)
{
	const struct agent *a = wb__reconcile_agent_by_id(r, agent);
	int rc = 0, look;

	if (!a)
		return 0;
	r->is_dirty = true;
	for (size_t i = r->n_worker; i-- > 0;)
		if (r->worker[i].instance == a->instance && !in_list(worker, n, &r->worker[i]))
			drop_worker(r, i);
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct worker *w = find_worker(r, a->instance, worker[i].id);

		if (w)
			w->rails = worker[i].rails; /* a new worker may change them */
		else
			rc = add_worker(r, now, a, &worker[i]);
	}
	look = wb__reconcile_look(r, now);
	return rc < 0 ? rc : look;
}
