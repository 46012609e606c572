/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources: answer asks from trainer parameters, or from installed and verified chunks.
 *
 * Sums.  What goes through a lane is summed there.  What is written from the parameters is summed
 * by the rail as it goes by, if the transport touches it.  If it does not (WB_XPORT_CAP_UNTOUCHED),
 * the lane of the worker sums the chunk once, for all who ask: asks that come meanwhile are parked.
 * A chunk that was verified here has the trainer's sum already.  An agent that asks for it again
 * may have got other bytes: then the lane looks once more, and finds out whether the parameters
 * have changed.
 */
#include "flow/wants.h"

#include <errno.h>
#include <string.h>

static bool is_trainer(const struct wb_flow *f, uint32_t worker)
{
	return f->plan->worker[f->local->member[worker].plan_worker].role == WB_ROLE_TRAINER;
}

int wb__flow_readiness(const struct wb_flow *f, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	uint32_t id = chunk_id(f, cls, chunk);
	const struct snap *s = wb__flow_snap_of(f, worker);

	if (f->stopping)
		return -ECANCELED;
	if (s && f->source_open[worker] == SOURCE_OPEN) {
		if (wb__flow_image_at(f, worker, id))
			return f->have[worker][id] ? 1 : s->rc;
		if (!wb__flow_reads_on(s))
			return -ENOENT; /* another holder has it */
	}
	if (is_trainer(f, worker))
		return f->source_open[worker] == SOURCE_OPEN ? 1
		       : f->source_open[worker]              ? -ECANCELED
							     : 0;
	if (f->source_open[worker] == SOURCE_CLOSED || f->sink[worker].failed)
		return -ECANCELED;
	if (f->have[worker][id])
		return 1;
	return wb__want_asks_around(f, worker, cls, chunk) ? -ENODATA : 0;
}

/* By the plan, what is waited for here ends by itself.  Once somebody is lost, or did not have the
 * chunk, this engine may have to ask another one for it, and may have no slot left to do so: the
 * chunk that has the slot may be one that waits at the asker. */
static bool may_circle(const struct wb_flow *f, const struct ask *a)
{
	uint32_t i;

	if (is_trainer(f, a->worker) || (!f->has_lost && a->gen < 2))
		return false;
	if (f->edge[a->domain].is_near)
		return f->has_lost;
	i = f->sink[a->worker].open ? wb__want_of(f, a->worker, a->cls, a->chunk) : FLOW_NONE;
	return i != FLOW_NONE && !wb__want_from_trainer(f, i);
}

int wb__flow_ask_readiness(const struct wb_flow *f, const struct ask *a)
{
	int ready = wb__flow_readiness(f, a->worker, a->cls, a->chunk);

	return ready == 0 && may_circle(f, a) ? -EBUSY : ready;
}

/* ---- one answer ----------------------------------------------------------------------------- */

static void later(struct wb_flight *fl)
{
	fl->step = STEP_WAIT;
	wb__flow_wait(&fl->flow->unsent, fl);
}

/* Asks that have waited for the chunk's sum are looked at again, whichever worker they ask. */
static void end_sum(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	if (!fl->is_summing)
		return;
	fl->is_summing = false;
	f->is_summing[id] = 0;
	for (uint32_t w = 0; w < f->local->n; w++)
		wb__flow_wake(f, w, id);
}

static void refuse(struct wb_flight *fl, int code)
{
	struct wb_flow *f = fl->flow;

	end_sum(fl);
	/* -ENOENT and -ENOTCONN: nobody waits for the answer any more. */
	if (!fl->gone && wb_xport_refuse(f->o.env->xport, fl->conn, fl->grant, code) == -EAGAIN) {
		fl->refusal = code;
		later(fl);
		return;
	}
	f->stats.refused++;
	wb__flow_flight_put(fl);
}

static void observe(void *ctx, const void *data, size_t bytes, uint64_t wire_off)
{
	struct wb_flight *fl = ctx;

	(void)wire_off;
	wb_walk_feed(&fl->walk, data, bytes);
}

/* The trainer's sum if this agent is a relay, otherwise the sum of what was read just now.  This
 * runs on a rail's thread: the flow's sums belong to the loop, which may learn this one
 * meanwhile. */
static void trailer(void *ctx, uint8_t out[WB_XPORT_TRAILER_BYTES])
{
	struct wb_flight *fl = ctx;

	if (fl->is_relay) {
		memcpy(out, fl->trailer, sizeof(fl->trailer));
		return;
	}
	if (fl->slot == WB_SLOT_NONE && !fl->wire && !fl->is_summed)
		fl->sum = fl->walk.sum;
	wb__flow_trailer_write(fl->flow, fl->sum, fl->gen, out);
}

static void write_out(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	bool is_looked_at = fl->slot == WB_SLOT_NONE && !fl->wire && !fl->is_summed;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	struct wb_xport_write w = {
		.grant = fl->grant,
		.cookie = (uint64_t)(uintptr_t)fl,
		.iov = fl->iov,
		.n_iov = fl->n_iov,
		.observe = is_looked_at && f->o.sums ? observe : NULL,
		.trailer = trailer,
		.ctx = fl,
	};
	int rc;

	if (is_looked_at)
		wb_walk_start(&fl->walk, fl->box, fl->n_box, f->o.sums ? &f->keys : NULL);
	fl->step = STEP_WIRE;
	/* What a lane found of a trainer's parameters is the sum of what it read then, and not of
	 * what is read now. */
	fl->is_relay =
		f->sum_known[id] && !fl->is_summed && (fl->wire || !is_trainer(f, fl->worker));
	if (fl->is_relay)
		wb__flow_trailer_write(f, f->sum[id], fl->gen, fl->trailer);
	rc = wb_xport_write(f->o.env->xport, fl->conn, &w);
	if (rc == -EAGAIN)
		later(fl);
	else if (rc < 0)
		refuse(fl, rc);
}

static void to_lane(struct wb_flight *fl, enum wb_lane_kind kind)
{
	int rc;

	fl->step = STEP_LANE;
	rc = wb__flow_flight_lane(fl, kind, true);
	if (rc == -EAGAIN)
		later(fl);
	else if (rc < 0)
		refuse(fl, rc);
}

/* The lane sums the chunk, and then it is written; those who ask for it meanwhile wait for this. */
static void sum(struct wb_flight *fl)
{
	fl->is_summing = true;
	fl->flow->is_summing[chunk_id(fl->flow, fl->cls, fl->chunk)] = 1;
	to_lane(fl, WB_LANE_SUM);
}

/* Write the chunk from the parameters themselves. */
static void write_direct(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	bool is_untouched =
		wb_xport_carrier(f->o.env->xport, fl->conn)->caps & WB_XPORT_CAP_UNTOUCHED;

	if (f->o.sums && is_untouched && (!f->sum_known[id] || fl->gen > FLOW_GEN_FIRST)) {
		sum(fl);
		return;
	}
	fl->is_summed = f->o.sums && is_untouched;
	if (fl->is_summed)
		fl->sum = f->sum[id];
	write_out(fl);
}

/* Try answers that had to wait once more: what they are from may be closed by now. */
static void send_unsent(struct wb_flow *f)
{
	struct wb_flight *fl = f->unsent.head, *next;

	f->unsent = (struct flight_list){0};
	for (; fl; fl = next) {
		int ready = wb__flow_readiness(f, fl->worker, fl->cls, fl->chunk);

		next = fl->next;
		fl->next = NULL;
		if (fl->gone || fl->refusal || ready <= 0)
			refuse(fl, fl->refusal ? fl->refusal : ready < 0 ? ready : -ECANCELED);
		else if (fl->slot != WB_SLOT_NONE && !fl->is_packed)
			to_lane(fl, WB_LANE_PACK);
		else if (fl->is_summing)
			sum(fl);
		else
			write_out(fl);
	}
}

/* ---- asks to answers ------------------------------------------------------------------------ */

static uint32_t n_free(const struct wb_flow *f, enum serve_kind kind)
{
	return kind == SERVE_FLIGHT ? f->serve.n_free : f->o.slots->n_free[WB_POOL_SEND];
}

/* A reader that stops reading keeps what it has.  So no reader gets more than is then left for
 * others: one takes half at most, and however many there are, each takes at most half of what the
 * others leave. */
static bool may_take(const struct wb_flow *f, uint32_t domain, enum serve_kind kind)
{
	return f->edge[domain].held[kind] < n_free(f, kind);
}

static struct wb_flight *flight_of(struct wb_flow *f, const struct ask *a)
{
	struct wb_flight *fl = wb__flow_flight_get(&f->serve);

	assert(fl); /* pump_ring() has looked */
	fl->worker = a->worker;
	fl->cls = a->cls;
	fl->chunk = a->chunk;
	fl->gen = a->gen;
	fl->bytes = wb_chunk_len(f->plan, &f->plan->cls[a->cls], a->chunk);
	fl->domain = a->domain;
	fl->conn = a->conn;
	fl->grant = a->grant;
	f->edge[a->domain].held[SERVE_FLIGHT]++; /* until it is put back */
	return fl;
}

/* The chunk was packed and summed when the snapshot was taken, perhaps after it was asked for. */
static bool answer_from_image(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;

	fl->wire = wb__flow_image_at(f, fl->worker, chunk_id(f, fl->cls, fl->chunk));
	if (!fl->wire)
		return false;
	fl->iov[0] = (struct iovec){fl->wire, fl->bytes};
	fl->n_iov = 1;
	write_out(fl);
	return true;
}

/* True: answered from an image or from the parameters themselves.  False: it needs a slot. */
static bool answer_direct(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	uint8_t *known = wb_local_shape(f->local, fl->worker, chunk_id(f, fl->cls, fl->chunk));
	int shape;

	if (answer_from_image(fl))
		return true;
	shape = *known & WB_LEAVES_BY_SLOT ? FLOW_BY_SLOT : wb__flow_flight_shape(fl, false);
	if (shape < 0)
		refuse(fl, shape);
	else if (shape == FLOW_DIRECT)
		write_direct(fl);
	else if (shape == FLOW_BY_SLOT)
		*known |= WB_LEAVES_BY_SLOT;
	return shape < 0 || shape == FLOW_DIRECT;
}

static void answer_by_slot(struct wb_flight *fl)
{
	struct wb_flow *f = fl->flow;
	int rc = wb__flow_flight_boxes(fl, false);

	if (rc < 0) {
		refuse(fl, rc);
		return;
	}
	fl->slot = wb_slots_get(f->o.slots, WB_POOL_SEND);
	assert(fl->slot != WB_SLOT_NONE); /* pump_ring() has looked */
	f->edge[fl->domain].held[SERVE_SLOT]++; /* until the slot is put back */
	fl->iov[0] = (struct iovec){wb_slots_at(f->o.slots, fl->slot), fl->bytes};
	fl->n_iov = 1;
	to_lane(fl, WB_LANE_PACK);
}

static void answer(struct wb_flow *f, uint32_t i, enum serve_kind kind)
{
	struct wb_flight *fl = flight_of(f, &f->ask[i]);

	if (kind == SERVE_SLOT) {
		wb__flow_ask_free(f, i);
		if (!answer_from_image(fl))
			answer_by_slot(fl);
	} else if (wb__flow_fault(f, WB_FAULT_SEND, NULL, 0) & WB_FAULT_DROP) {
		wb__flow_ask_free(f, i);
		refuse(fl, -EIO);
	} else if (answer_direct(fl)) {
		wb__flow_ask_free(f, i);
	} else {
		wb__flow_flight_put(fl);
		wb__flow_ask_unqueue(f, i);
		wb__flow_ask_queue(f, i, SERVE_SLOT);
	}
}

/* Answer the first of what @domain asks for. -EAGAIN: it stays where it is. */
static int serve_one(struct wb_flow *f, uint32_t domain, enum serve_kind kind)
{
	uint32_t i = f->edge[domain].serve[kind].head;
	const struct ask *a = &f->ask[i];
	int ready;

	if (i == FLOW_NONE)
		return 0;
	ready = wb__flow_ask_readiness(f, a);
	if (ready > 0 && f->is_summing[chunk_id(f, a->cls, a->chunk)])
		ready = 0;
	if (ready == 0) {
		wb__flow_ask_park(f, i);
		return 0;
	}
	if (ready < 0) {
		if (wb_xport_refuse(f->o.env->xport, a->conn, a->grant, ready) == -EAGAIN)
			return -EAGAIN;
		f->stats.refused++;
		wb__flow_ask_free(f, i);
		return 0;
	}
	if (!may_take(f, domain, SERVE_FLIGHT) || !may_take(f, domain, kind))
		return -EAGAIN;
	answer(f, i, kind);
	return 0;
}

/* Agents take turns. */
static void pump_ring(struct wb_flow *f, enum serve_kind kind)
{
	struct wb_turns *r = &f->serving[kind];
	uint32_t idle = 0;

	while (idle < r->n && n_free(f, SERVE_FLIGHT) && n_free(f, kind)) {
		uint32_t d = wb_turns_take(r);

		idle = serve_one(f, d, kind) == -EAGAIN ? idle + 1 : 0;
		if (f->edge[d].serve[kind].head != FLOW_NONE)
			wb_turns_add(r, d);
	}
}

void wb__flow_serve_pump(struct wb_flow *f)
{
	send_unsent(f);
	for (int k = 0; k < SERVE_KINDS; k++)
		pump_ring(f, k);
}

/* ---- events --------------------------------------------------------------------------------- */

/* The lane has summed a chunk that goes out from the parameters. */
static void summed(struct wb_flight *fl, int rc)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	bool is_new = rc == 0 && (!f->sum_known[id] || is_trainer(f, fl->worker));
	int ready;

	fl->is_summed = true;
	if (is_new) {
		f->sum[id] = fl->sum;
		f->sum_known[id] = 1;
	}
	end_sum(fl);
	ready = wb__flow_readiness(f, fl->worker, fl->cls, fl->chunk);
	if (rc < 0 || fl->gone || ready <= 0) {
		refuse(fl, rc < 0 ? rc : ready < 0 ? ready : -ECANCELED);
	} else if (!is_trainer(f, fl->worker) && memcmp(&fl->sum, &f->sum[id], sizeof(fl->sum))) {
		wb__flow_fetch_again(f, fl->worker, fl->cls, fl->chunk, WB_FLOW_RELAY);
		refuse(fl, WB_ECKSUM);
	} else {
		write_out(fl);
	}
}

static void packed(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);

	fl->is_packed = true;
	if (!is_trainer(f, fl->worker))
		wb__flow_fault(f, WB_FAULT_RELAY, wb_slots_at(f->o.slots, fl->slot), fl->bytes);
	if (job->rc < 0 || fl->gone) {
		refuse(fl, job->rc < 0 ? job->rc : -ECANCELED);
	} else if (f->o.sums && f->sum_known[id] && !is_trainer(f, fl->worker) &&
		   memcmp(&fl->sum, &f->sum[id], sizeof(fl->sum))) {
		/* Installed here, verified, and different now: repair before anybody gets it. */
		wb__flow_fetch_again(f, fl->worker, fl->cls, fl->chunk, WB_FLOW_RELAY);
		refuse(fl, WB_ECKSUM);
	} else {
		write_out(fl);
	}
}

void wb__flow_serve_lane(struct wb_flight *fl, const struct wb_lane_job *job)
{
	struct wb_flow *f = fl->flow;

	fl->sum = job->sum;
	if (fl->is_summing)
		summed(fl, job->rc);
	else
		packed(fl, job);
	f->due |= DUE_SERVE | DUE_FETCH;
}

/* It went by a transport that leaves the host. */
static bool is_far(const struct wb_flight *fl)
{
	return !(wb_xport_carrier(fl->flow->o.env->xport, fl->conn)->caps & WB_XPORT_CAP_LOCAL);
}

void wb__flow_serve_xport(struct wb_flight *fl, const struct wb_xport_event *ev)
{
	struct wb_flow *f = fl->flow;
	uint32_t id = chunk_id(f, fl->cls, fl->chunk);
	bool was_looked_at = fl->slot == WB_SLOT_NONE && !fl->wire && !fl->is_summed;

	assert(ev->kind == WB_XP_WRITE_DONE && fl->step == STEP_WIRE);
	if (ev->code == 0) {
		f->stats.sent_bytes += fl->bytes;
		f->moved[fl->worker].out += fl->bytes;
		if (is_trainer(f, fl->worker))
			wb__flow_few_sent(f, fl->worker, is_far(fl));
		if (was_looked_at && f->o.sums && f->sum_known[id] &&
			memcmp(&fl->walk.sum, &f->sum[id], sizeof(f->sum[id])))
			wb__flow_fetch_again(f, fl->worker, fl->cls, fl->chunk, WB_FLOW_RELAY);
	}
	wb__flow_flight_put(fl);
	f->due |= DUE_SERVE | DUE_FETCH;
}

void wb_flow_open_source(struct wb_flow *f, uint32_t worker)
{
	if (is_trainer(f, worker) && f->source_open[worker] != SOURCE_OPEN)
		wb__flow_few_opened(f, worker);
	f->source_open[worker] = SOURCE_OPEN;
	wb__flow_review(f);
	wb__flow_pump(f, DUE_SERVE | DUE_FETCH);
}

void wb_flow_close_source(struct wb_flow *f, uint32_t worker)
{
	f->source_open[worker] = SOURCE_CLOSED;
	wb__flow_stock_drop(f, worker);
	if (!is_trainer(f, worker))
		wb__want_drop_worker(f, worker);
	wb__flow_review(f);
	wb__flow_pump(f, DUE_SERVE);
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
	wb__flow_review(f);
	wb__flow_pump(f, DUE_SERVE);
}

void wb_flow_cut_worker(struct wb_flow *f, uint32_t worker)
{
	wb_flow_cut_source(f, worker);
	for_fetches (f, fl)
		if (fl->in_use && fl->kind == FLIGHT_FETCH && fl->worker == worker &&
			fl->step == STEP_WIRE)
			(void)wb_xport_disconnect(f->o.env->xport, fl->conn);
}

void wb_flow_cut_source(struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->serve.n; i++) {
		const struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->worker == worker && fl->step == STEP_WIRE)
			(void)wb_xport_disconnect(f->o.env->xport, fl->conn);
	}
}
