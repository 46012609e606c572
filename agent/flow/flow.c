/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/internal.h"

#include "base/mem.h"
#include "flow/pairs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FLAG_SUMMED 1u

void wb__flow_trailer_write(const struct wb_flow *f, struct wbk_sum sum, uint32_t gen, uint8_t *out)
{
	uint32_t flags = f->o.sums ? FLAG_SUMMED : 0;

	memcpy(out, &sum.lane[0], 8);
	memcpy(out + 8, &sum.lane[1], 8);
	memcpy(out + 16, &flags, 4);
	memcpy(out + 20, &gen, 4);
	memcpy(out + 24, &f->o.transfer, 8);
}

int wb__flow_trailer_read(const struct wb_flow *f, const uint8_t *in, struct wbk_sum *sum)
{
	uint64_t transfer;
	uint32_t flags;

	memcpy(&sum->lane[0], in, 8);
	memcpy(&sum->lane[1], in + 8, 8);
	memcpy(&flags, in + 16, 4);
	memcpy(&transfer, in + 24, 8);
	if (transfer != f->o.transfer)
		return WB_ESTALE;
	return f->o.sums && !(flags & FLAG_SUMMED) ? WB_ECKSUM : 0;
}

struct wb_flight *wb__flow_flight_get(struct flight_pool *p)
{
	struct wb_flight *fl = p->free;

	if (!fl)
		return NULL;
	assert(!fl->in_use && p->n_free);
	p->free = fl->next;
	p->n_free--;
	fl->next = NULL;
	fl->slot = WB_SLOT_NONE;
	fl->wire = NULL;
	fl->in_use = true;
	fl->gone = fl->misplaced = fl->is_parked = fl->is_packed = false;
	fl->is_summing = fl->is_summed = false;
	fl->refusal = 0;
	fl->rail = WB_FLOW_NO_RAIL;
	fl->n_box = fl->n_iov = 0;
	fl->sum = (struct wbk_sum){{0, 0}};
	return fl;
}

void wb__flow_wait(struct flight_list *l, struct wb_flight *fl)
{
	fl->next = NULL;
	*(l->head ? &l->tail->next : &l->head) = fl;
	l->tail = fl;
}

void wb__flow_slot_put(struct wb_flight *fl)
{
	if (fl->slot == WB_SLOT_NONE)
		return;
	assert(fl->kind != FLIGHT_SERVE || fl->flow->edge[fl->domain].held[SERVE_SLOT]);
	wb_slots_put(fl->flow->o.slots, fl->slot);
	fl->slot = WB_SLOT_NONE;
	if (fl->kind == FLIGHT_SERVE)
		fl->flow->edge[fl->domain].held[SERVE_SLOT]--;
}

void wb__flow_flight_put(struct wb_flight *fl)
{
	struct flight_pool *p = fl->pool;

	assert(fl->in_use && p->n_free < p->n && !fl->is_parked);
	wb__flow_slot_put(fl);
	if (fl->kind == FLIGHT_SERVE)
		fl->flow->edge[fl->domain].held[SERVE_FLIGHT]--;
	if (fl->kind == FLIGHT_FETCH)
		wb__pair_flight_put(fl->flow, fl->worker, (enum fetch_kind)(p - fl->flow->fetch));
	fl->in_use = false;
	fl->next = p->free;
	p->free = fl;
	p->n_free++;
	if (fl->flow->n_stock && (fl->kind == FLIGHT_SERVE || fl->kind == FLIGHT_LOCAL))
		fl->flow->due |= DUE_SNAP; /* it may have been what a stock waits for */
}

int wb__flow_pool_init(struct wb_flow *f, struct flight_pool *p, uint32_t n, enum flight_kind kind)
{
	size_t box_bytes = f->local->boxes_max * sizeof(struct wbk_box);
	size_t iov_bytes = kind == FLIGHT_SNAP || kind == FLIGHT_CHECK
				   ? 0
				   : FLOW_IOV_MAX * sizeof(struct iovec);
	size_t scratch_bytes = wb_align_up(f->local->boxes_max * sizeof(uint32_t), 16);
	uint8_t *at;

	p->all = wb_zalloc(n, sizeof(*p->all));
	/* Most of this memory is never touched. */
	p->memory_bytes = n * (box_bytes + iov_bytes + scratch_bytes);
	p->memory = wb_pages_alloc(p->memory_bytes);
	if (!p->all || !p->memory)
		return -ENOMEM;
	at = p->memory;
	for (uint32_t i = 0; i < n; i++) {
		struct wb_flight *fl = &p->all[i];

		fl->flow = f;
		fl->pool = p;
		fl->kind = kind;
		fl->slot = WB_SLOT_NONE;
		fl->iov = (void *)at;
		fl->box = (void *)(at + iov_bytes);
		fl->scratch = (void *)(at + iov_bytes + box_bytes);
		at += box_bytes + iov_bytes + scratch_bytes;
		fl->next = p->free;
		p->free = fl;
	}
	p->n = p->n_free = n;
	return 0;
}

void wb__flow_pool_finish(struct flight_pool *p)
{
	wb_free(p->all);
	wb_pages_free(p->memory, p->memory_bytes);
	*p = (struct flight_pool){0};
}

/* Exchange runs beside the receive stage only where trainers cannot fill this agent's ingress:
 * then waiting would waste it.  Else receive first, so that trainers leave early. */
static bool trainers_are_narrow(const struct wb_flow *f)
{
	const struct wb_plan *p = f->plan;
	uint64_t received = 0, here = 0;
	uint32_t trainers = 0, sinks = 0, rollouts = 0;

	for (uint32_t w = 0; w < p->n_worker; w++) {
		if (p->worker[w].role == WB_ROLE_TRAINER)
			trainers++;
		else
			rollouts++;
		sinks += p->worker[w].role == WB_ROLE_ROLLOUT && f->local->index_of[w] >= 0;
	}
	/* An agent's part of the plan has no routes of other agents. */
	for (uint32_t k = 0; k < p->n_class; k++) {
		const struct wb_class *c = &p->cls[k];
		uint32_t times = c->is_direct ? c->needer_end - c->needer_begin : 1;

		received += (uint64_t)times * c->n_chunk;
	}
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		if (r->stage == WB_STAGE_RECEIVE && f->local->index_of[r->dst] >= 0)
			here += r->chunk_end - r->chunk_begin;
	}
	/* Time of the trainers' egress against time of our ingress for the same stage. */
	return trainers && sinks && rollouts && received * sinks * 9 > here * trainers * 10;
}

static int alloc_checks(struct wb_flow *f)
{
	if (!f->o.read_back || !f->o.sums || !f->local->n_want)
		return 0;
	f->copies = wb_zalloc(f->local->n, sizeof(*f->copies));
	if (!f->copies)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->local->n; i++)
		if (!(f->copies[i] = wb_zalloc(f->plan->n_chunk, sizeof(*f->copies[i]))))
			return -ENOMEM;
	return wb__flow_pool_init(f, &f->checks, 2 * f->local->n, FLIGHT_CHECK);
}

uint32_t wb__flow_flights_max(enum fetch_kind kind, uint32_t window, uint32_t n)
{
	uint32_t most = WB_MAX(FLOW_FLIGHTS_MAX, window);

	assert(n);
	return kind == FETCH_EXCHANGE || kind == FETCH_NEAR
		       ? WB_MIN(most, WB_MAX(1, WB_XPORT_DEPTH / 2 / n))
		       : most;
}

static int alloc_fetches(struct wb_flow *f, bool has_near)
{
	uint32_t n = f->local->n_want ? f->local->n : 0;
	int rc = wb_keyed_init(&f->mine_waiting, f->local->n_want);

	for (int k = 0; k < FETCH_KINDS; k++)
		f->flights_max[k] = wb__flow_flights_max(k, f->o.window, f->local->n);
	if (rc == 0)
		rc = wb__pairs_init(f);
	for (int k = 0; k < FETCH_KINDS && rc == 0; k++) {
		uint32_t workers = k == FETCH_NEAR && !has_near ? 0 : n;

		rc = wb__flow_pool_init(f, &f->fetch[k], WB_MAX(1, workers * f->flights_max[k]),
			k == FETCH_LOCAL ? FLIGHT_LOCAL : FLIGHT_FETCH);
	}
	return rc;
}

/* Mark the other agents of this node.  True: there are some. */
static bool mark_near(struct wb_flow *f)
{
	const struct wb_plan_worker *w = f->plan->worker;
	bool has_near = false;

	for (uint32_t i = 0; i < f->plan->n_worker; i++) {
		bool is_near = w[i].node == f->local->node && w[i].domain != f->local->domain;

		f->edge[w[i].domain].is_near = is_near;
		has_near |= is_near;
	}
	return has_near;
}

static int alloc_arrays(struct wb_flow *f)
{
	const struct wb_local *l = f->local;
	uint32_t n_answer = f->plan->n_worker * 2 * FLOW_FLIGHTS_MAX;
	int rc;

	f->want = wb_zalloc(l->n_want, sizeof(*f->want));
	f->edge = wb_zalloc(f->n_domain, sizeof(*f->edge));
	f->sum = wb_zalloc(f->plan->n_chunk, sizeof(*f->sum));
	f->sum_known = wb_zalloc(f->plan->n_chunk, 1);
	f->is_summing = wb_zalloc(f->plan->n_chunk, 1);
	f->have = wb_zalloc(l->n, sizeof(*f->have));
	f->lost = wb_zalloc(f->plan->n_worker, 1);
	f->source_open = wb_zalloc(l->n, 1);
	f->sink = wb_zalloc(l->n, sizeof(*f->sink));
	f->mine = wb_zalloc(l->n, sizeof(*f->mine));
	f->moved = wb_zalloc(l->n, sizeof(*f->moved));
	f->few.left = wb_zalloc(l->n, sizeof(*f->few.left));
	f->few.planned = wb_zalloc(l->n, sizeof(*f->few.planned));
	f->few.is_far = wb_zalloc(l->n, sizeof(*f->few.is_far));
	if (!f->want || !f->edge || !f->sum || !f->sum_known || !f->is_summing || !f->have ||
		!f->lost || !f->source_open || !f->sink || !f->mine || !f->moved || !f->few.left ||
		!f->few.planned || !f->few.is_far)
		return -ENOMEM;
	for (uint32_t w = 0; w < f->plan->n_worker && f->o.env->is_foreign; w++)
		if (f->o.env->is_foreign(f->o.env->ctx, f->plan->worker[w].domain))
			f->lost[w] = FLOW_FOREIGN;
	for (uint32_t i = 0; i < l->n; i++)
		if (!(f->have[i] = wb_zalloc(f->plan->n_chunk, 1)))
			return -ENOMEM;
	rc = alloc_checks(f);
	if (rc < 0)
		return rc;
	rc = alloc_fetches(f, mark_near(f));
	if (rc == 0)
		rc = wb__flow_asks_init(f);
	if (rc < 0)
		return rc;
	n_answer = WB_MIN(n_answer, FLOW_ANSWERS_MAX + (l->n - 1) * FLOW_ANSWERS_MORE);
	return wb__flow_pool_init(f, &f->serve, n_answer, FLIGHT_SERVE);
}

static void empty_queues(struct wb_flow *f)
{
	const struct want_list none = {FLOW_NONE, FLOW_NONE};

	for (uint32_t d = 0; d < f->n_domain; d++) {
		f->edge[d].held_pair = FLOW_NONE;
		for (int k = 0; k < SERVE_KINDS; k++)
			f->edge[d].serve[k] = none;
	}
	for (uint32_t i = 0; i < f->local->n; i++)
		f->mine[i] = none;
}

/* If the receiver moves the bytes, a chunk costs its source next to nothing, and all agents share
 * the cores of one host: more chunks are asked for ahead, or a receiver that copies waits for a
 * source that waits for a core. */
static uint32_t default_window(const struct wb_xport *x)
{
	return x && x->ops->caps & WB_XPORT_CAP_LOCAL ? FLOW_WINDOW_LOCAL : FLOW_WINDOW;
}

int wb_flow_create(const struct wb_flow_opts *o, struct wb_flow **out, struct wb_err *err)
{
	struct wb_flow *f = wb_zalloc(1, sizeof(*f));

	if (!f)
		return wb_err_set(err, -ENOMEM, "no memory for transfer %llu",
			(unsigned long long)o->transfer);
	f->o = *o;
	f->o.window = o->window ? o->window : default_window(o->env->xport);
	f->local = o->local;
	f->plan = o->local->plan;
	f->version = WB_FAULT_ANY;
	f->created_ns = wb_now_ns(o->env->clock);
	for (uint32_t w = 0; w < f->plan->n_worker; w++)
		f->n_domain = WB_MAX(f->n_domain, f->plan->worker[w].domain + 1);
	if (alloc_arrays(f) < 0) {
		wb_flow_destroy(f);
		return wb_err_set(err, -ENOMEM, "no memory for the %u chunks of transfer %llu",
			o->local->n_want, (unsigned long long)o->transfer);
	}
	empty_queues(f);
	wbk_sum_keys_init(&f->keys, o->sum_seed);
	f->exchange_early = trainers_are_narrow(f);
	*out = f;
	return 0;
}

void wb_flow_destroy(struct wb_flow *f)
{
	if (!f)
		return;
	wb__flow_stock_finish(f);
	for (uint32_t i = 0; f->have && i < f->local->n; i++)
		wb_free(f->have[i]);
	for (int k = 0; k < FETCH_KINDS; k++)
		wb__flow_pool_finish(&f->fetch[k]);
	wb__flow_pool_finish(&f->serve);
	wb__flow_pool_finish(&f->snaps);
	wb__flow_pool_finish(&f->checks);
	for (uint32_t i = 0; f->copies && i < f->local->n; i++)
		wb_free(f->copies[i]);
	wb__flow_asks_finish(f);
	wb__pairs_finish(f);
	wb_keyed_finish(&f->mine_waiting);
	wb_free(f->mine);
	wb_free(f->moved);
	wb_free(f->few.left);
	wb_free(f->few.planned);
	wb_free(f->few.is_far);
	wb_free(f->copies);
	wb_free(f->snap);
	wb_free(f->want);
	wb_free(f->edge);
	wb_free(f->sum);
	wb_free(f->sum_known);
	wb_free(f->is_summing);
	wb_free(f->have);
	wb_free(f->lost);
	wb_free(f->source_open);
	wb_free(f->sink);
	wb_free(f);
}

bool wb_flow_is_idle(const struct wb_flow *f)
{
	for (int k = 0; k < FETCH_KINDS; k++)
		if (f->fetch[k].n_free != f->fetch[k].n)
			return false;
	return f->n_ask_used == 0 && f->serve.n_free == f->serve.n &&
	       f->snaps.n_free == f->snaps.n && f->checks.n_free == f->checks.n;
}

static bool touches(const struct wb_flight *fl, uint32_t worker)
{
	const struct wb_flow *f = fl->flow;

	if (!fl->in_use || (fl->kind == FLIGHT_SERVE && (fl->step == STEP_WAIT || fl->wire)))
		return false;
	return fl->worker == worker ||
	       (fl->kind == FLIGHT_LOCAL && !fl->wire &&
		       f->local->index_of[f->want[fl->want].src] == (int32_t)worker);
}

bool wb_flow_uses(const struct wb_flow *f, uint32_t worker)
{
	for_fetches (f, fl)
		if (touches(fl, worker))
			return true;
	for (uint32_t i = 0; i < f->serve.n; i++)
		if (touches(&f->serve.all[i], worker))
			return true;
	for (uint32_t i = 0; i < f->snaps.n; i++)
		if (touches(&f->snaps.all[i], worker))
			return true;
	for (uint32_t i = 0; i < f->checks.n; i++)
		if (touches(&f->checks.all[i], worker))
			return true;
	return false;
}

void wb_flow_stop(struct wb_flow *f)
{
	f->stopping = true;
	for (uint32_t w = 0; w < f->local->n; w++)
		wb__flow_stock_drop(f, w);
	for_fetches (f, fl)
		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->step == STEP_WIRE)
			(void)wb_xport_cancel(f->o.env->xport, fl->conn, (uint64_t)(uintptr_t)fl);
	wb__flow_fetch_unpark(f);
	wb__flow_review(f);
	wb__flow_pump(f, DUE_SERVE | DUE_SNAP);
}

void wb__flow_pump(struct wb_flow *f, unsigned due)
{
	f->due |= due;
	if (f->is_pumping)
		return;
	f->is_pumping = true;
	while (f->due) {
		due = f->due;
		f->due = 0;
		if (due & DUE_SNAP)
			wb__flow_snap_pump(f);
		if (due & DUE_SERVE)
			wb__flow_serve_pump(f);
		if (due & DUE_CHECK)
			wb__flow_check_pump(f);
		if (due & DUE_FETCH)
			wb__flow_fetch_pump(f);
		if (due & DUE_FEW)
			wb__flow_few_pump(f);
	}
	f->is_pumping = false;
}

void wb_flow_set_version(struct wb_flow *f, int64_t version)
{
	f->version = (uint64_t)version;
}

unsigned wb__flow_fault(struct wb_flow *f, enum wb_fault_place place, void *p, uint64_t bytes)
{
	struct wb_fault_at at = {f->version, f->o.transfer, WB_FAULT_ANY};
	struct wb_fault_hit hit;

	if (!wb_fault_hit(f->o.env->fault, place, &at, &hit))
		return 0;
	if ((hit.actions & WB_FAULT_FLIP) && p && bytes)
		((uint8_t *)p)[hit.bit / 8 % bytes] ^= (uint8_t)(1u << hit.bit % 8);
	return hit.actions;
}

uint64_t wb_flow_transfer(const struct wb_flow *f)
{
	return f->o.transfer;
}

void wb_flow_on_xport(const struct wb_xport_event *ev)
{
	struct wb_flight *fl = (struct wb_flight *)(uintptr_t)ev->cookie;
	struct wb_flow *f = fl->flow;

	if (fl->kind == FLIGHT_SERVE)
		wb__flow_serve_xport(fl, ev);
	else
		wb__flow_fetch_xport(fl, ev);
	wb__flow_pump(f, 0);
}

void wb_flow_on_lane(const struct wb_lane_job *job)
{
	struct wb_flight *fl = (struct wb_flight *)(uintptr_t)job->cookie;
	struct wb_flow *f = fl->flow;

	if (fl->kind == FLIGHT_SERVE)
		wb__flow_serve_lane(fl, job);
	else if (fl->kind == FLIGHT_SNAP)
		wb__flow_snap_lane(fl, job);
	else if (fl->kind == FLIGHT_CHECK)
		wb__flow_check_lane(fl, job);
	else
		wb__flow_fetch_lane(fl, job);
	wb__flow_pump(f, 0);
}

int wb__flow_flight_boxes(struct wb_flight *fl, bool all)
{
	int n = wb_local_boxes(
		fl->flow->local, fl->worker, fl->cls, fl->chunk, all, fl->box, fl->scratch);

	fl->n_box = n < 0 ? 0 : (uint32_t)n;
	return n < 0 ? n : 0;
}

int wb__flow_flight_shape(struct wb_flight *fl, bool all)
{
	const struct wb_member *m = &fl->flow->local->member[fl->worker];
	int runs, rc = wb__flow_flight_boxes(fl, all);

	if (rc < 0 || !m->base)
		return rc < 0 ? rc : FLOW_BY_SLOT;
	runs = wb_walk_runs(fl->box, fl->n_box, m->base, WB_XPORT_RUN_MIN, fl->iov, FLOW_IOV_MAX);
	if (runs <= 0)
		return FLOW_BY_SLOT;
	fl->n_iov = (uint32_t)runs;
	return runs == 1 || fl->bytes / (uint32_t)runs >=
				       wb_xport_run_min(fl->flow->o.env->xport, fl->conn)
		       ? FLOW_DIRECT
		       : FLOW_TOO_SHORT;
}

int wb__flow_flight_lane(struct wb_flight *fl, enum wb_lane_kind kind, bool sums)
{
	struct wb_flow *f = fl->flow;
	struct wb_member *m = &f->local->member[fl->worker];
	struct wb_lane_job job = {
		.kind = kind,
		.bases = m->base,
		.box = fl->box,
		.n_box = fl->n_box,
		.keys = sums && f->o.sums ? &f->keys : NULL,
		.cookie = (uint64_t)(uintptr_t)fl,
		.cold = fl->kind == FLIGHT_SNAP,
	};

	if (kind != WB_LANE_SUM) {
		job.wire = fl->wire ? fl->wire : wb_slots_at(f->o.slots, fl->slot);
		job.wire_bytes = fl->bytes;
	}
	return wb_lane_submit(m->lane, &job);
}

struct wbk_sum wb_flow_worker_sum(const struct wb_flow *f, uint32_t worker)
{
	struct wbk_sum s = {{0, 0}};

	for (uint32_t k = 0; k < f->plan->n_class; k++)
		for (uint32_t c = 0;
			wb_local_is_member(f->local, worker, k) && c < f->plan->cls[k].n_chunk;
			c++) {
			s.lane[0] += f->sum[chunk_id(f, k, c)].lane[0];
			s.lane[1] += f->sum[chunk_id(f, k, c)].lane[1];
		}
	return s;
}
