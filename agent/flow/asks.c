/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants of other agents until they are answered.  An ask costs little, so that as many agents as
 * there are may ask for chunks that are not there yet; flights and slots are for answers.
 */
#include "base/mem.h"
#include "flow/wants.h"

#include <errno.h>

#define ASKS_MAX 16384

/* The most workers that any one agent has. */
static uint32_t widest(const struct wb_flow *f)
{
	uint32_t max = 0;

	for (uint32_t w = 0; w < f->plan->n_worker; w++) {
		uint32_t n = ++f->edge[f->plan->worker[w].domain].n_ask;

		max = WB_MAX(max, n);
	}
	for (uint32_t d = 0; d < f->n_domain; d++)
		f->edge[d].n_ask = 0;
	return max;
}

int wb__flow_asks_init(struct wb_flow *f)
{
	/* Twice what an agent has outstanding: what it took back may not be known here yet. */
	uint64_t share = 2 * FETCH_OF_ONE * (uint64_t)f->flights_max[FETCH_RECEIVE] * widest(f);
	uint64_t n = WB_MIN(f->n_domain * share, ASKS_MAX);

	f->n_ask = (uint32_t)n;
	f->ask_share = (uint32_t)WB_MAX(1, n / f->n_domain);
	f->ask_free = FLOW_NONE;
	f->ask = wb_zalloc(f->n_ask, sizeof(*f->ask));
	if (!f->ask || wb_keyed_init(&f->parked, f->n_ask) < 0 ||
		wb_keyed_init(&f->by_conn, f->n_ask) < 0)
		return -ENOMEM;
	for (uint32_t i = f->n_ask; i-- > 0;) {
		f->ask[i].next = f->ask_free;
		f->ask_free = i;
	}
	for (int k = 0; k < SERVE_KINDS; k++)
		if (wb_turns_init(&f->serving[k], f->n_domain) < 0)
			return -ENOMEM;
	return 0;
}

void wb__flow_asks_finish(struct wb_flow *f)
{
	wb_free(f->ask);
	wb_keyed_finish(&f->parked);
	wb_keyed_finish(&f->by_conn);
	for (int k = 0; k < SERVE_KINDS; k++)
		wb_turns_finish(&f->serving[k]);
}

/* ---- queues --------------------------------------------------------------------------------- */

void wb__flow_ask_queue(struct wb_flow *f, uint32_t i, enum serve_kind kind)
{
	struct ask *a = &f->ask[i];
	struct want_list *q = &f->edge[a->domain].serve[kind];

	a->state = ASK_QUEUED;
	a->kind = kind;
	a->next = FLOW_NONE;
	a->prev = q->tail;
	if (q->tail == FLOW_NONE)
		q->head = i;
	else
		f->ask[q->tail].next = i;
	q->tail = i;
	wb_turns_add(&f->serving[kind], a->domain);
}

void wb__flow_ask_unqueue(struct wb_flow *f, uint32_t i)
{
	struct ask *a = &f->ask[i];
	struct want_list *q = &f->edge[a->domain].serve[a->kind];

	assert(a->state == ASK_QUEUED && q->head != FLOW_NONE);
	if (a->prev == FLOW_NONE)
		q->head = a->next;
	else
		f->ask[a->prev].next = a->next;
	if (a->next == FLOW_NONE)
		q->tail = a->prev;
	else
		f->ask[a->next].prev = a->prev;
}

void wb__flow_ask_park(struct wb_flow *f, uint32_t i)
{
	struct ask *a = &f->ask[i];

	wb__flow_ask_unqueue(f, i);
	a->state = ASK_PARKED;
	wb_keyed_add(&f->parked, i, chunk_key(a->worker, chunk_id(f, a->cls, a->chunk)));
}

/* Is a rollout worker asked?  It answers when it has the chunk. */
static bool is_exchange(const struct wb_flow *f, uint32_t worker)
{
	return f->plan->worker[f->local->member[worker].plan_worker].role == WB_ROLE_ROLLOUT;
}

void wb__flow_ask_free(struct wb_flow *f, uint32_t i)
{
	struct ask *a = &f->ask[i];
	struct edge *e = &f->edge[a->domain];

	assert(a->state != ASK_FREE && e->n_ask && f->n_ask_used);
	if (a->state == ASK_PARKED)
		wb_keyed_remove(&f->parked, i);
	else
		wb__flow_ask_unqueue(f, i);
	wb_keyed_remove(&f->by_conn, i);
	e->n_ask--;
	assert(!is_exchange(f, a->worker) || e->n_ask_exchange);
	e->n_ask_exchange -= is_exchange(f, a->worker);
	f->n_ask_used--;
	a->state = ASK_FREE;
	a->next = f->ask_free;
	f->ask_free = i;
}

void wb__flow_wake(struct wb_flow *f, uint32_t worker, uint32_t id)
{
	uint32_t i;

	while ((i = wb_keyed_take(&f->parked, chunk_key(worker, id))) != LIST_NONE)
		wb__flow_ask_queue(f, i, SERVE_FLIGHT);
	while ((i = wb_keyed_take(&f->mine_waiting, chunk_key(worker, id))) != LIST_NONE)
		wb__want_push(f, &f->mine[worker], i);
}

/* An ask that will never be answered is refused now, and does not wait for a flight or a slot
 * first. */
static void review(struct wb_flow *f, uint32_t i)
{
	struct ask *a = &f->ask[i];
	int ready = wb__flow_ask_readiness(f, a);

	if (ready < 0) {
		if (wb_xport_refuse(f->o.env->xport, a->conn, a->grant, ready) != -EAGAIN) {
			f->stats.refused++;
			wb__flow_ask_free(f, i);
			return;
		}
	}
	if (ready && a->state == ASK_PARKED) {
		wb_keyed_remove(&f->parked, i);
		wb__flow_ask_queue(f, i, SERVE_FLIGHT);
	}
}

void wb__flow_review(struct wb_flow *f)
{
	uint32_t i = wb_keyed_oldest(&f->by_conn), next;

	for (; i != LIST_NONE; i = next) {
		next = wb_keyed_later(&f->by_conn, i);
		review(f, i);
	}
	wb__flow_mine_review(f);
}

/* ---- events --------------------------------------------------------------------------------- */

/* Does the asker repair a chunk that this worker waits for the asker to send?  Each would wait for
 * ever. */
static bool waits_for_asker(
	const struct wb_flow *f, uint32_t worker, const struct wb_xport_chunk *c)
{
	uint32_t i;

	if ((c->gen < 2 && !f->has_lost) || f->have[worker][chunk_id(f, c->cls, c->chunk)])
		return false;
	i = wb__want_of(f, worker, c->cls, c->chunk);
	return i != FLOW_NONE && f->want[i].src == c->dst;
}

static int take_ask(struct wb_flow *f, const struct wb_xport_event *ev, uint32_t worker)
{
	const struct wb_xport_chunk *c = &ev->chunk;
	struct edge *e = &f->edge[f->plan->worker[c->dst].domain];
	uint32_t i = f->ask_free;

	if (waits_for_asker(f, worker, c))
		return -EDEADLK;
	if (i == FLOW_NONE || e->n_ask == f->ask_share)
		return -EBUSY; /* the asker asks again when there is room */
	/* An ask for a rollout worker's chunk may wait here, and in the end for a trainer's chunk,
	 * perhaps one that the asking agent itself asks for: half of that agent's room is kept for
	 * asks for trainers' chunks. */
	if (is_exchange(f, worker) && e->n_ask_exchange >= WB_MAX(1, f->ask_share / 2))
		return -EBUSY;
	assert(f->ask[i].state == ASK_FREE && f->n_ask_used < f->n_ask);
	f->ask_free = f->ask[i].next;
	f->ask[i] = (struct ask){.conn = ev->conn,
		.grant = ev->grant,
		.worker = worker,
		.cls = c->cls,
		.chunk = c->chunk,
		.gen = c->gen,
		.domain = f->plan->worker[c->dst].domain};
	e->n_ask++;
	e->n_ask_exchange += is_exchange(f, worker);
	f->n_ask_used++;
	wb_keyed_add(&f->by_conn, i, ev->conn);
	wb__flow_ask_queue(f, i, SERVE_FLIGHT);
	return 0;
}

void wb_flow_on_grant(struct wb_flow *f, const struct wb_xport_event *ev)
{
	const struct wb_xport_chunk *c = &ev->chunk;
	int32_t worker = c->src < f->plan->n_worker ? f->local->index_of[c->src] : -1;
	int rc = 0;

	if (worker < 0 || c->cls >= f->plan->n_class || c->dst >= f->plan->n_worker ||
		c->chunk >= f->plan->cls[c->cls].n_chunk ||
		c->bytes != wb_chunk_len(f->plan, &f->plan->cls[c->cls], c->chunk) ||
		!wb_local_is_member(f->local, (uint32_t)worker, c->cls))
		rc = -EINVAL;
	if (rc == 0)
		rc = take_ask(f, ev, (uint32_t)worker);
	if (rc < 0)
		(void)wb_xport_refuse(f->o.env->xport, ev->conn, ev->grant, rc);
	else
		wb__flow_pump(f, DUE_SERVE);
}

void wb_flow_grant_gone(struct wb_flow *f, wb_conn_t conn, uint64_t grant)
{
	uint32_t i = wb_keyed_first(&f->by_conn, conn);

	while (i != LIST_NONE && f->ask[i].grant != grant)
		i = wb_keyed_next(&f->by_conn, i);
	if (i != LIST_NONE) {
		wb__flow_ask_free(f, i);
		return;
	}
	for (i = 0; i < f->serve.n; i++) {
		struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->conn == conn && fl->grant == grant)
			fl->gone = true;
	}
	wb__flow_pump(f, DUE_SERVE);
}

void wb_flow_conn_down(struct wb_flow *f, wb_conn_t conn)
{
	uint32_t i;

	while ((i = wb_keyed_first(&f->by_conn, conn)) != LIST_NONE)
		wb__flow_ask_free(f, i);
	for (i = 0; i < f->serve.n; i++)
		if (f->serve.all[i].in_use && f->serve.all[i].conn == conn)
			f->serve.all[i].gone = true;
	wb__flow_pump(f, DUE_SERVE);
}
