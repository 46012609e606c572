/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether an engine that joins while trainers are gone may get a plan in which these
 * trainers are absent. */
#include "base/mem.h"
#include "operator-shim/reconcile/internal.h"

#include <stdlib.h>

static int by_key(const void *x, const void *y)
{
	const struct member_key *a = x, *b = y;

	if (a->instance != b->instance)
		return a->instance < b->instance ? -1 : 1;
	return a->worker < b->worker ? -1 : a->worker > b->worker;
}

struct member_key *wb__reconcile_active_keys(const struct wb_reconcile *r, size_t *n)
{
	const struct membership *m = &r->active.who;
	struct member_key *k = wb_zalloc(m->n + 1, sizeof(*k));

	*n = 0;
	if (!k)
		return NULL;
	for (size_t i = 0; i < m->n; i++)
		if (!m->m[i].is_absent)
			k[(*n)++] = (struct member_key){m->m[i].instance, m->m[i].worker};
	qsort(k, *n, sizeof(*k), by_key);
	return k;
}

bool wb__reconcile_has_key(const struct member_key *k, size_t n, uint64_t instance, uint32_t worker)
{
	struct member_key want = {instance, worker};

	return bsearch(&want, k, n, sizeof(*k), by_key) != NULL;
}

/* Whether an engine has all its workers connected, and one of them is not in the active plan. */
static bool has_joiner(const struct wb_reconcile *r, const struct member_key *active, size_t n)
{
	for (size_t i = 0; i < r->n_worker; i++) {
		const struct worker *w = &r->worker[i];
		const struct engine *e;

		if (w->role != WB_ROLE_ROLLOUT || w->is_refused ||
			wb__reconcile_has_key(active, n, w->instance, w->id))
			continue;
		e = wb__reconcile_engine(r, w->engine);
		if (e && e->n_up == r->spec.workers_per_engine)
			return true;
	}
	return false;
}

/* Whether a connected agent is too old for plans with absent members: it would refuse such a plan,
 * and its workers would end. */
static bool somebody_needs_all(const struct wb_reconcile *r)
{
	for (size_t i = 0; i < r->n_agent; i++)
		if (r->agent[i].is_up && r->agent[i].needs_all)
			return true;
	return false;
}

bool wb__reconcile_is_interim(
	const struct wb_reconcile *r, const struct member_key *active, size_t n)
{
	const struct membership *m = &r->active.who;
	uint32_t want = r->spec.engines ? r->spec.engines : 1;
	bool has_source = false;

	if (!r->active.epoch.term || !r->top.transfer || r->n_engine_up < want ||
		r->n_trainer_up >= r->spec.trainer_workers)
		return false;
	for (size_t i = 0; i < r->n_engine && !has_source; i++)
		has_source = wb__reconcile_is_source(r, &r->engine[i]);
	if (!has_source || !has_joiner(r, active, n) || somebody_needs_all(r))
		return false;
	/* The maps of trainer workers must be here, since nobody is left to upload those of absent
	 * ones. */
	for (size_t i = 0; i < m->n; i++)
		if (m->m[i].plan.role == WB_ROLE_TRAINER && !wb__reconcile_has_blob(r, m->m[i].map))
			return false;
	return true;
}
