/* SPDX-License-Identifier: Apache-2.0 */
/* Sources: answer grants from trainer parameters, or from installed and verified chunks. */
#include "flow/wants.h"

#include <errno.h>
#include <string.h>

static void refuse(struct wb_flight *fl, int code)
{
	fl->flow->stats.refused++;
	/* -ENOENT and -ENOTCONN: nobody waits for the answer any more. */
	if (!fl->gone)
		(void)wb_xport_refuse(fl->flow->o.env->xport, fl->conn, fl->grant, code);
	wb__flow_flight_put(fl);
}

static bool is_trainer(const struct wb_flow *f, uint32_t worker)
{
	return f->plan->worker[f->local->member[worker].plan_worker].role == WB_ROLE_TRAINER;
}

/* The worker's own want of the chunk, if that is not there yet; FLOW_NONE. */
static uint32_t want_of(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	for (uint32_t i = 0; i < f->local->n_want; i++) {
		const struct wb_want *w = &f->local->want[i];

		if (w->worker == worker && w->cls == cls && w->chunk == chunk)
			return f->want[i].state == WANT_DONE ? FLOW_NONE : i;
	}
	return FLOW_NONE;
}

/* Those who ask around for a chunk do not wait for each other. */
static bool asks_around(const struct wb_flow *f, const struct wb_flight *fl)
{
	uint32_t i = f->has_last ? want_of(f, fl->worker, fl->cls, fl->chunk) : FLOW_NONE;

	return i != FLOW_NONE && f->sink[fl->worker].open && f->want[i].is_last;
}

/* 1: can be answered; 0: not yet; < 0: never. */
static int readiness(const struct wb_flow *f, const struct wb_flight *fl)
{
	if (f->stopping)
		return -ECANCELED;
	if (f->snap && f->snap[fl->worker].image && f->source_open[fl->worker] == 1) {
		if (!wb__flow_image_at(f, fl->worker, chunk_id(f, fl->cls, fl->chunk)))
			return -ENOENT; /* another holder has it */
		return f->have[fl->worker][chunk_id(f, fl->cls, fl->chunk)]
			       ? 1
			       : f->snap[fl->worker].rc;
	}
	if (is_trainer(f, fl->worker))
		return f->source_open[fl->worker] == 1 ? 1
		       : f->source_open[fl->worker]    ? -ECANCELED
						       : 0;
	if (f->source_open[fl->worker] == 2 || f->sink[fl->worker].failed)
		return -ECANCELED;
	if (f->have[fl->worker][chunk_id(f, fl->cls, fl->chunk)])
		return 1;
	return asks_around(f, fl) ? -ENODATA : 0;
}

static void observe(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct wb_flight *fl = ctx;

	(void)wire_off;
	wb_walk_feed(&fl->walk, data, bytes);
}

/* The trainer's sum where this agent is a relay, else what was read just now.  On a rail's thread:
 * the flow's sums are the loop's, which may learn this one meanwhile. */
static void trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	struct wb_flight *fl = ctx;

	if (fl->is_relay) {
		memcpy(out, fl->trailer, sizeof(fl->trailer));
		return;
	}
	if (fl->slot == WB_SLOT_NONE && !fl->wire)
		fl->sum = fl->walk.sum;
	wb__flow_trailer_write(fl->flow, fl->sum, fl->gen, out);
}

static int write_out(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	bool direct = fl->slot == WB_SLOT_NONE && !fl->wire;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	struct wb_xport_write w = {
		.grant = fl->grant,
		.cookie = (uint64_t)(uintptr_t)fl,
		.iov = fl->iov,
		.n_iov = fl->n_iov,
		.observe = direct && f->o.sums ? observe : NULL,
		.trailer = trailer,
		.ctx = fl,
	};
	int rc;

	fl->step = STEP_WIRE;
	fl->is_relay = f->sum_known[id];
	if (fl->is_relay)
		wb__flow_trailer_write(f, f->sum[id], fl->gen, fl->trailer);
	rc = wb_xport_write(f->o.env->xport, fl->conn, &w);
	if (rc == -EAGAIN) {
		fl->step = STEP_WAIT; /* answered again by the next pump */
		return rc;
	}
	if (rc < 0)
		refuse(fl, rc);
	return 0;
}

/* Returns -EAGAIN when the flight has to wait for a slot or the transport. */
static int answer(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int shape;

	if (fl->slot != WB_SLOT_NONE) /* packed already, the transport was busy */
		return write_out(fl);
	if (wb__flow_fault(f, WB_FAULT_SEND, NULL, 0) & WB_FAULT_DROP) {
		refuse(fl, -EIO);
		return 0;
	}
	fl->wire = wb__flow_image_at(f, fl->worker, chunk_id(f, fl->cls, fl->chunk));
	if (fl->wire) {
		/* Packed and summed when the snapshot was taken. */
		fl->iov[0] = (struct iovec){fl->wire, fl->bytes};
		fl->n_iov = 1;
		return write_out(fl);
	}
	shape = wb__flow_flight_shape(fl, false);
	if (shape < 0) {
		refuse(fl, shape);
		return 0;
	}
	if (shape == 1) {
		wb_walk_start(&fl->walk, fl->box, fl->n_box, f->o.sums ? &f->keys : NULL);
		return write_out(fl);
	}
	/* One reader that stops reading must not hold every send slot. */
	if (f->edge[fl->domain].serving > f->o.slots->n_pool[WB_POOL_SEND] / 2)
		return -EAGAIN;
	fl->slot = wb_slots_get(f->o.slots, WB_POOL_SEND);
	if (fl->slot == WB_SLOT_NONE)
		return -EAGAIN;
	f->edge[fl->domain].serving++; /* until the slot is put back */
	fl->iov[0] = (struct iovec){wb_slots_at(f->o.slots, fl->slot), fl->bytes};
	fl->n_iov = 1;
	fl->step = STEP_LANE;
	if (wb__flow_flight_lane(fl, true, true) < 0) {
		wb__flow_slot_put(fl);
		fl->step = STEP_WAIT;
		return -EAGAIN;
	}
	return 0;
}

void wb__flow_serve_pump(struct wb_flow *f)
{
	struct wb_flight **at = &f->waiting;

	while (*at) {
		struct wb_flight *fl = *at;
		int ready = fl->gone ? -ECANCELED : readiness(f, fl);

		if (ready == 0) {
			at = &fl->next;
			continue;
		}
		*at = fl->next;
		fl->next = NULL;
		if (ready < 0) {
			refuse(fl, ready);
		} else if (answer(fl) == -EAGAIN) {
			fl->next = *at;
			*at = fl;
			at = &fl->next;
		}
	}
}

/* The asker repairs a chunk that this worker is waiting for it to send: each would wait for ever.
 */
static bool waits_for_asker(
	const struct wb_flow *f, uint32_t worker, const struct wb_xport_chunk *c)
{
	uint32_t i;

	if ((c->gen < 2 && !f->has_lost) || is_trainer(f, worker) ||
		f->have[worker][chunk_id(f, c->cls, c->chunk)])
		return false;
	i = want_of(f, worker, c->cls, c->chunk);
	return i != FLOW_NONE && f->want[i].src == c->dst;
}

void wb_flow_on_grant(struct wb_flow *f, const struct wb_xport_event *ev)
{
	const struct wb_xport_chunk *c = &ev->chunk;
	struct wb_flight *fl, **end;
	int32_t worker = c->src < f->plan->n_worker ? f->local->index_of[c->src] : -1;

	if (worker < 0 || c->cls >= f->plan->n_class || c->dst >= f->plan->n_worker ||
		c->chunk >= f->plan->cls[c->cls].n_chunk ||
		c->bytes != wb_chunk_len(f->plan, &f->plan->cls[c->cls], c->chunk) ||
		!wb_local_is_member(f->local, (uint32_t)worker, c->cls)) {
		(void)wb_xport_refuse(f->o.env->xport, ev->conn, ev->grant, -EINVAL);
		return;
	}
	if (waits_for_asker(f, (uint32_t)worker, c)) {
		(void)wb_xport_refuse(f->o.env->xport, ev->conn, ev->grant, -EDEADLK);
		return;
	}
	fl = wb__flow_flight_get(&f->serve);
	if (!fl) {
		(void)wb_xport_refuse(f->o.env->xport, ev->conn, ev->grant, -EBUSY);
		return;
	}
	fl->step = STEP_WAIT;
	fl->worker = (uint32_t)worker;
	fl->cls = c->cls;
	fl->chunk = c->chunk;
	fl->gen = c->gen;
	fl->bytes = c->bytes;
	fl->domain = f->plan->worker[c->dst].domain;
	fl->conn = ev->conn;
	fl->grant = ev->grant;
	for (end = &f->waiting; *end; end = &(*end)->next)
		;
	*end = fl;
	wb__flow_serve_pump(f);
}

void wb_flow_grant_gone(struct wb_flow *f, wb_conn_t conn, uint64_t grant)
{
	for (uint32_t i = 0; i < f->serve.n; i++) {
		struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->conn == conn && fl->grant == grant)
			fl->gone = true;
	}
	wb__flow_serve_pump(f);
}

void wb_flow_conn_down(struct wb_flow *f, wb_conn_t conn)
{
	for (uint32_t i = 0; i < f->serve.n; i++)
		if (f->serve.all[i].in_use && f->serve.all[i].conn == conn)
			f->serve.all[i].gone = true;
	wb__flow_serve_pump(f);
}

void wb__flow_serve_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	fl->sum = job->sum;
	if (!is_trainer(f, fl->worker))
		wb__flow_fault(f, WB_FAULT_RELAY, wb_slots_at(f->o.slots, fl->slot), fl->bytes);
	if (job->rc < 0 || fl->gone) {
		refuse(fl, job->rc < 0 ? job->rc : -ECANCELED);
	} else if (f->o.sums && f->sum_known[id] &&
		   memcmp(&fl->sum, &f->sum[id], sizeof(fl->sum))) {
		/* Installed here, verified, and different now: repair before anybody gets it. */
		wb__flow_fetch_again(f, fl->worker, fl->cls, fl->chunk, WB_FLOW_RELAY);
		refuse(fl, WB_ECKSUM);
	} else if (write_out(fl) == -EAGAIN) {
		fl->next = f->waiting;
		f->waiting = fl;
	}
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
}

void wb__flow_serve_xport(struct wb_flight *fl, const struct wb_xport_event *ev)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	bool was_direct = fl->slot == WB_SLOT_NONE && !fl->wire;

	assert(ev->kind == WB_XP_WRITE_DONE);
	if (ev->code == 0) {
		f->stats.sent_bytes += fl->bytes;
		if (was_direct && f->o.sums && f->sum_known[id] &&
			memcmp(&fl->walk.sum, &f->sum[id], sizeof(f->sum[id])))
			wb__flow_fetch_again(f, fl->worker, fl->cls, fl->chunk, WB_FLOW_RELAY);
	}
	wb__flow_flight_put(fl);
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
}

void wb_flow_open_source(struct wb_flow *f, uint32_t worker)
{
	f->source_open[worker] = 1;
	wb__flow_serve_pump(f);
	wb__flow_fetch_pump(f);
}

void wb_flow_close_source(struct wb_flow *f, uint32_t worker)
{
	f->source_open[worker] = 2;
	wb__flow_serve_pump(f);
}

bool wb_flow_source_busy(const struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->serve.n; i++) {
		const struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->worker == worker && fl->step != STEP_WAIT)
			return true;
	}
	for (uint32_t i = 0; i < f->snaps.n; i++)
		if (f->snaps.all[i].in_use && f->snaps.all[i].worker == worker)
			return true;
	return false;
}

void wb_flow_mark_installed(struct wb_flow *f, uint32_t worker, const struct wb_flow *sums)
{
	memset(f->have[worker], 1, f->plan->n_chunk);
	if (sums && wb_digest_eq(sums->plan->digest, f->plan->digest) &&
		sums->o.sum_seed == f->o.sum_seed) {
		memcpy(f->sum, sums->sum, f->plan->n_chunk * sizeof(*f->sum));
		memcpy(f->sum_known, sums->sum_known, f->plan->n_chunk);
	}
	wb__flow_serve_pump(f);
}

void wb_flow_cut_worker(struct wb_flow *f, uint32_t worker)
{
	wb_flow_cut_source(f, worker);
	for (uint32_t i = 0; i < f->fetch.n; i++) {
		const struct wb_flight *fl = &f->fetch.all[i];

		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->worker == worker &&
			fl->step == STEP_WIRE)
			(void)wb_xport_disconnect(f->o.env->xport, fl->conn);
	}
}

void wb_flow_cut_source(struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->serve.n; i++) {
		const struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->worker == worker && fl->step == STEP_WIRE)
			(void)wb_xport_disconnect(f->o.env->xport, fl->conn);
	}
}
