/* SPDX-License-Identifier: Apache-2.0 */
/* What a transfer meant for each worker of this agent: when it stood still, and for what. */
#include "transfer/epoch.h"
#include "transfer/object.h"
#include "transfer/party.h"
#include "transfer/trainers.h"
#include "transfer/worker.h"

enum { DRAIN, BEFORE, WIRE, INSTALL, AFTER, PHASES };

struct phases {
	struct wb_p_phase of[PHASES];
};

/* Add a phase; one that did not come to its end is left out. */
static void add(struct wb_p_worker_report *w, int phase, uint64_t start, uint64_t end)
{
	/* Not const because messages own their strings; nobody writes here. */
	static char name[PHASES][8] = {"drain", "before", "wire", "install", "after"};

	if (start && end > start)
		w->phases[w->n_phases++] = (struct wb_p_phase){name[phase], start, end};
}

static void tell(struct epoch *e, uint64_t transfer, int64_t version, struct wb_p_worker_report *w,
	uint32_t n)
{
	const struct wb_transfer_env *env = e->obj->core->env;
	struct wb_transfer_times times = {.epoch = &e->r->id,
		.transfer = transfer,
		.version = version,
		.worker = w,
		.n_worker = n};

	if (n && env->times)
		env->times(env->ctx, &times);
}

/* A report for one more worker, in arrays that all have room. */
static struct wb_p_worker_report *next(struct epoch *e, uint32_t local, uint32_t *n,
	struct wb_p_worker_report *w, struct phases *ph)
{
	const struct worker *m = e->member[local];
	struct wb_p_worker_report *r = &w[*n];

	if (!m || !m->stop_ns || m->resume_ns <= m->stop_ns)
		return NULL;
	*r = (struct wb_p_worker_report){.worker = e->local->member[local].plan_worker,
		.stop_ns = m->stop_ns,
		.resume_ns = m->resume_ns,
		.phases = ph[*n].of};
	++*n;
	return r;
}

/* Chunks are counted by flow, and a flow may serve several engines here: report each chunk once. */
static void resent_since(
	struct object *o, const struct wb_flow *f, uint64_t transfer, struct wb_p_worker_report *w)
{
	struct wb_flow_stats st;
	bool is_same = o->resent_transfer == transfer;

	if (!f)
		return;
	wb_flow_get_stats(f, &st);
	w->resent_chunks = st.resent - (is_same ? o->resent_told : 0);
	w->mismatched_chunks = st.mismatched - (is_same ? o->mismatched_told : 0);
	o->resent_transfer = transfer;
	o->resent_told = st.resent;
	o->mismatched_told = st.mismatched;
}

void wb__transfer_times_party(struct party *p)
{
	struct epoch *e = p->e;
	struct wb_p_worker_report *w = wb_zalloc(e->local->n, sizeof(*w)), *r;
	struct phases *ph = wb_zalloc(e->local->n, sizeof(*ph));
	uint32_t n = 0;

	for_party_worker (e, p->engine, i) {
		r = w && ph ? next(e, i, &n, w, ph) : NULL;
		if (!r)
			continue;
		add(r, DRAIN, r->stop_ns, p->begin_ns);
		add(r, BEFORE, p->begin_ns, e->member[i]->begun_ns);
		add(r, WIRE, p->open_ns, p->complete_ns);
		add(r, INSTALL, p->copy_ns, p->copied_ns);
		add(r, AFTER, p->end_ns, r->resume_ns);
	}
	if (n)
		resent_since(e->obj, p->flow, p->transfer, &w[0]);
	if (!p->is_feed)
		tell(e, p->transfer, p->version, w, n);
	wb_free(w);
	wb_free(ph);
}

void wb__transfer_times_trainers(struct trainers *t)
{
	struct epoch *e = t->e;
	struct wb_p_worker_report *w = wb_zalloc(e->local->n, sizeof(*w)), *r;
	struct phases *ph = wb_zalloc(e->local->n, sizeof(*ph));
	uint32_t n = 0;

	for (uint32_t i = 0; w && ph && i < e->local->n; i++) {
		if (e->plan->worker[e->local->member[i].plan_worker].role != WB_ROLE_TRAINER)
			continue;
		r = next(e, i, &n, w, ph);
		if (r)
			add(r, WIRE, r->stop_ns, r->resume_ns);
	}
	tell(e, t->transfer, t->version, w, n);
	wb_free(w);
	wb_free(ph);
}
