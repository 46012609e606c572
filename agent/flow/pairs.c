/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/pairs.h"

#include "base/mem.h"
#include "flow/wants.h"

#include <errno.h>

/* Parts of 2^32: two numbers whose multiples lie far from each other, whatever workers there
 * are. */
#define PHASE_SRC 2654435769u
#define PHASE_DST 3242174889u

static struct pair *pair_of(const struct wb_flow *f, uint32_t worker, uint32_t src)
{
	assert(worker < f->n_asker && src < f->plan->n_worker);
	return &f->pair[(size_t)worker * f->plan->n_worker + src];
}

static enum fetch_kind kind_of(const struct wb_flow *f, uint32_t src)
{
	const struct wb_plan_worker *w = &f->plan->worker[src];

	if (w->role == WB_ROLE_TRAINER)
		return FETCH_RECEIVE;
	return f->edge[w->domain].is_near ? FETCH_NEAR : FETCH_EXCHANGE;
}

int wb__pairs_init(struct wb_flow *f)
{
	uint32_t n = f->local->n_want ? f->local->n : 0;
	size_t n_pair = (size_t)n * f->plan->n_worker;

	f->n_asker = n;

	f->pair = wb_alloc(n_pair * sizeof(*f->pair));
	if (!f->pair || wb_turns_init(&f->holding, f->n_domain) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < n_pair; i++)
		f->pair[i] = (struct pair){.queue = {FLOW_NONE, FLOW_NONE}, .next = FLOW_NONE};
	for (int k = 0; k < FETCH_REMOTE; k++) {
		f->live[k] = wb_zalloc(n, sizeof(*f->live[k]));
		f->n_flying[k] = wb_zalloc(n, sizeof(*f->n_flying[k]));
		if (!f->live[k] || !f->n_flying[k] || wb_turns_init(&f->asking[k], n) < 0)
			return -ENOMEM;
		for (uint32_t w = 0; w < n; w++)
			if (wb_least_init(&f->live[k][w], f->plan->n_worker) < 0)
				return -ENOMEM;
	}
	return 0;
}

void wb__pairs_finish(struct wb_flow *f)
{
	for (int k = 0; k < FETCH_REMOTE; k++) {
		for (uint32_t w = 0; f->live[k] && w < f->n_asker; w++)
			wb_least_finish(&f->live[k][w]);
		wb_free(f->live[k]);
		wb_free(f->n_flying[k]);
		wb_turns_finish(&f->asking[k]);
	}
	wb_turns_finish(&f->holding);
	wb_free(f->pair);
}

/* ---- order ---------------------------------------------------------------------------------- */

/* A wide window is refilled by halves: the grants of one wake-up go together. */
static bool is_full(const struct wb_flow *f, struct pair *p)
{
	if (p->outstanding >= f->o.window)
		p->is_full = true;
	else if (f->o.window <= FLOW_WINDOW || p->outstanding <= f->o.window / 2)
		p->is_full = false;
	return p->is_full;
}

/* The part of the pair's share that was asked for; the pair with the least goes first. */
static uint64_t rank_of(
	const struct wb_flow *f, const struct pair *p, uint32_t worker, uint32_t src)
{
	uint32_t phase = src * PHASE_SRC + f->local->member[worker].plan_worker * PHASE_DST;

	assert(p->n_asked < p->n_all);
	return ((uint64_t)p->n_asked << 32 | phase) / p->n_all;
}

/* Make the pair live, if it can be. */
static void wake(struct wb_flow *f, uint32_t worker, uint32_t src)
{
	struct pair *p = pair_of(f, worker, src);
	enum fetch_kind kind = kind_of(f, src);

	if (f->is_filling || p->is_live || p->is_held || p->queue.head == FLOW_NONE ||
		is_full(f, p))
		return;
	p->is_live = true;
	wb_least_add(&f->live[kind][worker], src, rank_of(f, p, worker, src));
	wb_turns_add(&f->asking[kind], worker);
}

static void hold(struct wb_flow *f, uint32_t worker, uint32_t src)
{
	struct pair *p = pair_of(f, worker, src);
	uint32_t d = f->plan->worker[src].domain;

	assert(!p->is_live && !p->is_held);
	p->is_held = true;
	p->next = f->edge[d].held_pair;
	f->edge[d].held_pair = (uint32_t)(p - f->pair);
	wb_turns_add(&f->holding, d);
}

void wb__pairs_release(struct wb_flow *f, uint32_t domain)
{
	uint32_t at = f->edge[domain].held_pair;

	f->edge[domain].held_pair = FLOW_NONE;
	while (at != FLOW_NONE) {
		struct pair *p = &f->pair[at];

		p->is_held = false;
		wake(f, at / f->plan->n_worker, at % f->plan->n_worker);
		at = p->next;
	}
}

void wb__pairs_release_all(struct wb_flow *f)
{
	uint32_t d;

	while ((d = wb_turns_take(&f->holding)) != LIST_NONE)
		wb__pairs_release(f, d);
}

uint64_t wb__pairs_due(const struct wb_flow *f, uint64_t now_ns)
{
	uint64_t next = 0;

	for (uint32_t d = f->holding.head; d != LIST_NONE; d = f->holding.next[d])
		for (int k = 0; k < FETCH_REMOTE; k++) {
			uint64_t at = f->edge[d].ask[k].busy_until_ns;

			if (at > now_ns && (!next || at < next))
				next = at;
		}
	return next;
}

/* ---- queues --------------------------------------------------------------------------------- */

void wb__pair_push(struct wb_flow *f, uint32_t i)
{
	uint32_t worker = f->local->want[i].worker, src = f->want[i].src;
	struct pair *p = pair_of(f, worker, src);

	wb__want_push(f, &p->queue, i);
	p->n_all++;
	wake(f, worker, src);
}

void wb__pair_push_again(struct wb_flow *f, uint32_t i)
{
	uint32_t worker = f->local->want[i].worker, src = f->want[i].src;
	struct pair *p = pair_of(f, worker, src);

	wb__want_push(f, &p->queue, i);
	if (p->n_asked)
		p->n_asked--;
	else
		p->n_all++; /* its share has begun anew meanwhile */
	wake(f, worker, src);
}

struct want_list wb__pair_take_all(struct wb_flow *f, uint32_t worker, uint32_t src)
{
	struct pair *p = pair_of(f, worker, src);
	struct want_list all = p->queue;

	p->queue = (struct want_list){FLOW_NONE, FLOW_NONE};
	p->n_all = p->n_asked = 0;
	return all;
}

void wb__pairs_fill(struct wb_flow *f, bool on)
{
	f->is_filling = on;
	for (uint32_t w = 0; !on && w < f->n_asker; w++)
		for (uint32_t src = 0; src < f->plan->n_worker; src++)
			wake(f, w, src);
}

void wb__pair_ended(struct wb_flow *f, uint32_t worker, uint32_t src)
{
	struct pair *p = pair_of(f, worker, src);

	assert(p->outstanding);
	p->outstanding--;
	wake(f, worker, src);
}

void wb__pair_flight_get(struct wb_flow *f, uint32_t worker, enum fetch_kind kind)
{
	f->n_flying[kind][worker]++;
}

void wb__pair_flight_put(struct wb_flow *f, uint32_t worker, enum fetch_kind kind)
{
	assert(f->n_flying[kind][worker]);
	f->n_flying[kind][worker]--;
	if (f->live[kind][worker].n)
		wb_turns_add(&f->asking[kind], worker);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* By the rails that the plan lends, if they carry; otherwise by the two workers' own.  Only the
 * latter are waited for: a lender's rail may be broken, and nobody needs it.  A source that is not
 * the plan's has only its own rails: nobody has found room for it on a lender's. */
static wb_conn_t conn_for(const struct wb_flow *f, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];
	uint32_t dst = f->local->member[w->worker].plan_worker, src = f->want[i].src;
	bool is_lent = src == w->src && (w->dst_rail != dst || w->src_rail != src);
	wb_conn_t conn = 0;

	if (is_lent)
		conn = f->o.env->conn(f->o.env->ctx, w->dst_rail, w->src_rail, true);
	return conn ? conn : f->o.env->conn(f->o.env->ctx, dst, src, false);
}

/* Start a want of a pair that is not live any more. 0: one more is on its way, or has failed; 1:
 * none can be; -EAGAIN: none can be, for want of a slot, or of room in the transport. */
static int start_one(struct wb_flow *f, uint32_t worker, uint32_t src)
{
	struct pair *p = pair_of(f, worker, src);
	enum fetch_kind kind = kind_of(f, src);
	uint32_t i = p->queue.head, d = f->plan->worker[src].domain;
	wb_conn_t conn = 0;
	int rc;

	if (i == FLOW_NONE)
		return 1;
	if (!wb__flow_fetch_is_busy(f, d, kind))
		conn = conn_for(f, i);
	rc = conn ? wb__flow_fetch_start(f, i, kind, conn) : -ENOTCONN;
	if (rc == -ENOTCONN) {
		hold(f, worker, src);
		return 1;
	}
	if (rc != -EAGAIN) {
		(void)wb__want_pop(f, &p->queue);
		p->n_asked++;
		p->outstanding += rc == 0;
		wb__flow_fetch_started(f, i);
	}
	wake(f, worker, src);
	if (rc < 0 && rc != -EAGAIN)
		wb__want_failed(f, i, rc);
	return rc == -EAGAIN ? rc : 0;
}

/* The same for the worker's live pairs, the one with the least rank first. */
static int start_next(struct wb_flow *f, uint32_t worker, enum fetch_kind kind)
{
	while (f->n_flying[kind][worker] < f->flights_max[kind]) {
		uint32_t src = wb_least_take(&f->live[kind][worker]);
		int rc;

		if (src == LIST_NONE)
			return 1;
		pair_of(f, worker, src)->is_live = false;
		rc = start_one(f, worker, src);
		if (rc != 1)
			return rc;
	}
	return 1;
}

void wb__pairs_pump(struct wb_flow *f, enum fetch_kind kind)
{
	struct wb_turns *r = &f->asking[kind];
	uint32_t n_short = 0;

	while (n_short < r->n) {
		uint32_t w = wb_turns_take(r);
		int rc = start_next(f, w, kind);

		if (rc == 0)
			n_short = 0;
		else if (rc == -EAGAIN)
			n_short++;
		if (rc != 1)
			wb_turns_add(r, w);
	}
}
