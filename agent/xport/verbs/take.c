/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver's side of a verbs lane: cuts a chunk into READs, and passes on what has landed. */
#include "xport/verbs/verbs.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* What a READ takes of a turn's budget.  It costs the same for any size, since the device moves the
 * bytes. */
#define PART_COST (WB__QUANTUM / 64)

static struct wb__verbs_rail *rail_of(const struct wb__lane *l)
{
	return wb__verbs_rail(l->s->rail);
}

/* ---- open and close -----------------------------------------------------------------------------
 */

int wb__take_open(struct wb__lane *l)
{
	l->remote = wb_zalloc(WB__REGIONS_MAX, sizeof(*l->remote));
	l->flight = wb_zalloc(l->s->n_slot, sizeof(*l->flight));
	l->part = wb_zalloc(WB__PARTS, sizeof(*l->part));
	l->again_tail = &l->again;
	if (!l->remote || !l->flight || !l->part)
		return -ENOMEM;
	for (uint32_t i = 0; i < WB__PARTS; i++) {
		l->part[i].next = l->free_part;
		l->free_part = &l->part[i];
	}
	return 0;
}

/* Give back what a part holds: a slab of the rail, or memory that it lands in. */
static void let_go(struct wb__lane *l, struct wb__part *p)
{
	struct wb__verbs_rail *vr = rail_of(l);

	wb_dassert(p->memory || vr->n_slab < WB__SLABS);
	if (p->memory)
		wb__host_let_go(vr->h, p->memory);
	else
		vr->free_slab[vr->n_slab++] = p->to;
}

static void free_part(struct wb__lane *l, struct wb__part *p)
{
	wb_dassert(p->f && p->is_done);
	let_go(l, p);
	p->f = NULL;
	p->next = l->free_part;
	l->free_part = p;
}

void wb__take_close(struct wb__lane *l)
{
	for (uint32_t i = 0; l->part && i < WB__PARTS; i++)
		if (l->part[i].f)
			let_go(l, &l->part[i]);
	wb_free(l->remote);
	wb_free(l->flight);
	wb_free(l->part);
}

/* ---- the source's memory ------------------------------------------------------------------------
 */

static bool is_in_use(const struct wb__lane *l, uint32_t region)
{
	for (uint32_t i = 0; i < WB__PARTS; i++)
		if (l->part[i].f && !l->part[i].is_done && l->part[i].region == region)
			return true;
	for (uint32_t i = l->take.at; i < l->take.n; i++)
		if (l->take.range[i].region == region)
			return true;
	return false;
}

int wb__take_memory(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__lane *l = wb__lane(s);
	struct wb__remote *m = f->region < WB__REGIONS_MAX ? &l->remote[f->region] : NULL;

	if (!m || (f->type == WBP_BULK_UNREGION && (!m->bytes || is_in_use(l, f->region))) ||
		(f->type == WBP_BULK_MEMORY && m->bytes &&
			(m->base != f->id || m->bytes != f->bytes)))
		return wb__sock_fail(s, -EPROTO, "agent %s announced a bad region", s->peer);
	if (f->type == WBP_BULK_UNREGION) {
		m->bytes = 0;
		return 0;
	}
	m->base = f->id;
	m->bytes = f->bytes;
	memcpy(m->key, f->key, sizeof(m->key));
	return 0;
}

static uint64_t bytes_of(const struct wb__sock *s, uint32_t region)
{
	return wb__lane(s)->remote[region].bytes;
}

int wb__take_table(struct wb__sock *s, const struct wb__frame *f)
{
	return wb__take_ranges(s, &wb__lane(s)->take, f, bytes_of);
}

/* ---- how a flight ends --------------------------------------------------------------------------
 */

static void end_flight(struct wb__lane *l, struct wb__flight *f)
{
	struct wb__frame release = {.type = WBP_BULK_RELEASE, .id = f->op->id};

	wb_dassert(!f->n_out && !f->first); /* nothing of it lands any more */
	wb_dassert(f->is_told || !f->op->is_dead);
	wb__sock_whole(l->s, f->op, f->trailer);
	f->op = NULL;
	/* A grant will soon follow, and one wake of the source is enough for both. */
	(void)wb__sock_send_lazy(l->s, &release); /* a failure is in s->code */
	wb__rail_ready(l->s->rail, l->s);
}

/* If no part of the flight is out any more, tell the user that it is cancelled, or end it when all
 * has come. */
static void check_flight(struct wb__lane *l, struct wb__flight *f)
{
	if (f->n_out)
		return;
	if (f->op->is_dead && !f->is_told) {
		f->is_told = true;
		wb__sock_cancelled(l->s, f->op);
	}
	if (!f->left && f->has_trailer)
		end_flight(l, f);
}

bool wb__take_revoke(struct wb__sock *s, struct wb__op *op)
{
	struct wb__flight *f = &wb__lane(s)->flight[wb__book_slot(op->id)];

	if (f->op != op)
		return true;
	f->is_told = !f->n_out;
	return f->is_told;
}

int wb__take_begin(struct wb__sock *s)
{
	struct wb__lane *l = wb__lane(s);
	struct wb__flight *f = &l->flight[wb__book_slot(s->rx_op->id)];

	assert(!f->op);
	*f = (struct wb__flight){
		.op = s->rx_op, .left = s->rx_op->bytes, .is_told = s->rx_op->is_dead};
	f->last = &f->first;
	l->now = f;
	l->part_bytes = (uint32_t)wb_ceil_div(f->left, WB_MAX(wb__lane_n_up(l), 1u));
	l->part_bytes = WB_MAX(WB_MIN(l->part_bytes, WB__PART_MAX), WB__PART_MIN);
	/* The receiver moves the bytes, so faults of the wire are carried out here. */
	return wb__fault_begin(s, s->rx_op);
}

int wb__take_trailer(struct wb__sock *s, const struct wb__frame *f)
{
	struct wb__lane *l = wb__lane(s);
	struct wb__flight *flight = l->now;

	if (!s->rx_op || s->rx_left || s->rx_op->id != f->id)
		return wb__sock_fail(s, -EPROTO, "agent %s ended a chunk too soon", s->peer);
	memcpy(flight->trailer, f->mac, sizeof(flight->trailer));
	flight->has_trailer = true;
	/* The next answer may begin while the bytes of this one are still coming. */
	s->rx_op = NULL;
	l->now = NULL;
	check_flight(l, flight);
	return s->code;
}

/* ---- parts go out -------------------------------------------------------------------------------
 */

static bool has_room(const struct wb__lane *l, const struct wb__qp *q)
{
	return q->state == WB__QP_UP && q->n_out < q->depth &&
	       rail_of(l)->n_out[q->device] < rail_of(l)->n_entry[q->device];
}

/* Are as many READs of the lane out as wb_xport_opts.reads_max allows? */
static bool is_full(const struct wb__lane *l)
{
	uint32_t most = l->s->rail->x->o.reads_max, n = 0;

	for (uint32_t k = 0; most && k < WBP_BULK_QPS; k++)
		n += l->qp[k].n_out;
	return most && n >= most;
}

/* Queue pairs that can carry bytes of @region into @m (NULL: a slab), a bit each: the source has
 * given a key for it, and its device has the landing.  If some of them are near a GPU's memory,
 * only those. */
static uint32_t carriers(const struct wb__lane *l, uint32_t region, const struct wb__memory *m)
{
	const uint32_t *key = l->remote[region].key;
	uint32_t all = 0, near = 0;

	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		uint32_t d = l->qp[k].device;

		if (l->qp[k].state != WB__QP_UP || !key[k] || (m && !m->mr[d]))
			continue;
		all |= 1u << k;
		if (m && m->near & 1u << d)
			near |= 1u << k;
	}
	return near ? near : all;
}

/* Of the queue pairs in @among that have room, the one with the fewest bytes under way, or -1. */
static int pick(const struct wb__lane *l, uint32_t among)
{
	int best = -1;

	if (is_full(l))
		return -1;
	for (int k = 0; k < WBP_BULK_QPS; k++)
		if (among & 1u << k && has_room(l, &l->qp[k]) &&
			(best < 0 || l->qp[k].bytes_out < l->qp[best].bytes_out))
			best = k;
	return best;
}

/* If no queue pair that is up can carry the memory, or none is up, end the connection.  A new queue
 * pair might carry it, but the source's message about that one comes behind this chunk in the
 * stream. */
static void check_carriers(struct wb__lane *l, uint32_t among, uint32_t region)
{
	static const uint32_t none[WBP_BULK_QPS] = {0};
	bool is_any = wb__lane_n_up(l);

	if (is_any && !among && !l->s->code && !memcmp(l->remote[region].key, none, sizeof(none)))
		(void)wb__sock_fail(l->s, -EACCES,
			"agent %s gives no key for its memory region %u, of which it sends: it may "
			"be of a version that has none, or has taken them back",
			l->s->peer, region);
	else if (is_any && !among && !l->s->code)
		(void)wb__sock_fail(l->s, -ENETUNREACH,
			"no queue pair that is left to agent %s reaches the memory", l->s->peer);
	if (!is_any && l->s->in_payload && !l->s->code)
		(void)wb__sock_fail(l->s, -ENETUNREACH,
			"no queue pair to agent %s was up when its chunk came", l->s->peer);
}

static void post(struct wb__lane *l, uint32_t k, struct wb__part *p)
{
	struct wb__verbs_rail *vr = rail_of(l);
	uint32_t d = l->qp[k].device;
	uint32_t key = p->memory ? p->memory->mr[d]->lkey
				 : wb__verbs_bounce(vr, l->s->hello.object, d)->lkey;

	if (!l->qp[k].head)
		wb__verbs_look_at(l->s->rail, l->s->rail->now_ns + WB__READ_DEADLINE_NS);
	wb__qp_add(l, k, p, key);
}

static int ring(struct wb__lane *l)
{
	for (uint32_t k = 0; k < WBP_BULK_QPS; k++) {
		int err = wb__qp_ring(l, k);

		if (err)
			wb__lane_lost(l, k, -err, strerror(err), false);
	}
	return l->s->code;
}

/* Post parts of lost queue pairs again; false: some are left. */
static bool post_again(struct wb__lane *l)
{
	while (l->again) {
		struct wb__part *p = l->again;
		uint32_t among = carriers(l, p->region, p->memory);
		int k = pick(l, among);

		if (k < 0) {
			check_carriers(l, among, p->region);
			return false;
		}
		l->again = p->next;
		if (!l->again)
			l->again_tail = &l->again;
		post(l, (uint32_t)k, p);
	}
	return true;
}

void wb__take_pump(struct wb__lane *l)
{
	if (!l->again || l->s->code)
		return;
	(void)post_again(l);
	(void)ring(l);
}

void wb__take_again(struct wb__lane *l, struct wb__part *list)
{
	while (list) {
		struct wb__part *p = list;

		list = p->next;
		p->next = NULL;
		*l->again_tail = p;
		l->again_tail = &p->next;
	}
}

/* The memory of the landing, if it is registered and the run is long enough to be worth a READ of
 * its own; else NULL.  @k: the queue pair, or -1. */
static struct wb__memory *direct(struct wb__lane *l, const struct wb__range *g, uint32_t most,
	const struct wb__flight *f, int *k, uint32_t *among)
{
	struct wb__memory *m;
	size_t run;
	const uint8_t *to = wb__op_span(f->op, &f->post, &run);

	if (run < most && run < WB__DIRECT_MIN)
		return NULL;
	m = wb__verbs_landing(rail_of(l), l->s->hello.object, to, WB_MIN(run, (size_t)most));
	*among = m ? carriers(l, g->region, m) : 0;
	*k = pick(l, *among);
	return *among ? m : NULL;
}

/* Decide where the next part lands, directly or in a slab, and how long it is.  Returns the queue
 * pair, or -1: there is no room or no slab now. */
static int place(struct wb__lane *l, struct wb__part *p, const struct wb__range *g, uint32_t most)
{
	struct wb__verbs_rail *vr = rail_of(l);
	uint32_t among;
	size_t run;
	int k;

	p->to = wb__op_span(p->f->op, &p->f->post, &run);
	p->memory = direct(l, g, most, p->f, &k, &among);
	if (!p->memory) {
		among = carriers(l, g->region, NULL);
		k = pick(l, among);
	}
	if (k < 0)
		check_carriers(l, among, g->region);
	if (k < 0 || (!p->memory && !vr->n_slab))
		return -1;
	most = WB_MIN(most, l->qp[k].max_msg);
	if (p->memory) {
		atomic_fetch_add(&p->memory->refs, 1);
		p->bytes = (uint32_t)WB_MIN(run, (size_t)most);
		return k;
	}
	p->bytes = WB_MIN(most, WB__SLAB_BYTES);
	p->to = vr->free_slab[--vr->n_slab];
	return k;
}

static uint32_t most_of(const struct wb__lane *l, const struct wb__range *g)
{
	const struct wb__bucket *b = &l->s->rail->rx;
	uint32_t most = WB_MIN(g->bytes, l->part_bytes);

	return b->rate > 0 ? (uint32_t)WB_MIN((double)most, b->burst) : most;
}

/* Post one part of the first range that is left; returns its bytes, or 0: no room now. */
static uint32_t post_part(struct wb__lane *l, struct wb__flight *f)
{
	struct wb__range *g = &l->take.range[l->take.at];
	struct wb__part *p = l->free_part;
	int k;

	if (!p)
		return 0;
	p->f = f;
	k = place(l, p, g, most_of(l, g));
	if (k < 0) {
		p->f = NULL;
		return 0;
	}
	l->free_part = p->next;
	p->region = g->region;
	p->off = g->off;
	p->is_done = false;
	p->after = NULL;
	*f->last = p;
	f->last = &p->after;
	f->n_out++;
	wb__op_skip(f->op, &f->post, p->bytes);
	post(l, (uint32_t)k, p);
	return p->bytes;
}

static void pass(struct wb__lane *l, uint32_t n)
{
	struct wb__range *g = &l->take.range[l->take.at];

	wb_dassert(n && n <= g->bytes && n <= l->s->rx_left);
	g->off += n;
	g->bytes -= n;
	l->take.at += !g->bytes;
	l->s->rx_left -= n;
}

/* Post what is left of the ranges, as far as there is room.  Returns as rx_payload. */
static int post_ranges(struct wb__sock *s, uint32_t *budget)
{
	struct wb__lane *l = wb__lane(s);
	struct wb__rail *r = s->rail;

	while (l->take.at < l->take.n) {
		uint32_t n = l->take.range[l->take.at].bytes;

		if (!*budget)
			return WB__AGAIN;
		if (!s->rx_op->is_dead) {
			if (!wb__bucket_ok(r, &r->rx))
				return WB__WAIT;
			n = post_part(l, l->now);
			if (!n)
				return WB__IDLE; /* until a READ ends or a queue pair is up */
			wb__bucket_take(&r->rx, n);
		} else {
			l->now->left -= n;
		}
		*budget -= WB_MIN(PART_COST, *budget);
		pass(l, n);
	}
	s->in_payload = false;
	return 0;
}

int wb__take_payload(struct wb__sock *s, uint32_t *budget)
{
	struct wb__lane *l = wb__lane(s);
	int rc, bad;

	if (s->rail->now_ns < s->hold_until_ns) {
		wb__rail_wake_at(s->rail, s->hold_until_ns);
		return WB__WAIT;
	}
	rc = post_again(l) ? post_ranges(s, budget) : WB__IDLE;
	bad = ring(l);
	return bad ? bad : rc;
}

/* ---- parts come in ------------------------------------------------------------------------------
 */

static void from_slab(struct wb__sock *s, struct wb__op *op, const uint8_t *p, uint32_t n)
{
	uint32_t piece = s->rail->x->o.piece_bytes;

	while (n) {
		size_t room;
		uint32_t some;

		(void)wb__op_span(op, &op->at, &room);
		some = (uint32_t)WB_MIN(room, (size_t)WB_MIN(n, piece));
		wb__op_move(op, p, some, piece);
		p += some;
		n -= some;
	}
	if (op->copy)
		op->copy(op->ctx, NULL, NULL, 0, op->at.done);
}

static void landed(struct wb__sock *s, struct wb__op *op, const struct wb__part *p)
{
	wb__count(&s->rail->rx_bytes, p->bytes);
	if (op->is_dead)
		return;
	if (p->memory) /* memory of a GPU has no observer, and no flip fault */
		wb__op_landed(op, p->bytes, s->rail->x->o.piece_bytes);
	else
		from_slab(s, op, p->to, p->bytes);
	if (s->drop_soon && op->at.done >= op->bytes / 2)
		(void)wb__sock_fail(s, -ECONNABORTED, "dropped by WB_FAULT");
}

/* Pass on parts that are done, in the order of the wire, up to the first that is not. */
static void advance(struct wb__lane *l, struct wb__flight *f)
{
	while (f->first && f->first->is_done && !l->s->code) {
		struct wb__part *p = f->first;

		f->first = p->after;
		if (!f->first)
			f->last = &f->first;
		landed(l->s, f->op, p);
		f->left -= p->bytes;
		free_part(l, p);
	}
	if (!l->s->code) /* otherwise the flight ends with the socket */
		check_flight(l, f);
}

void wb__take_upto(struct wb__lane *l, uint32_t k, uint32_t seq)
{
	struct wb__qp *q = &l->qp[k];

	while (q->head && (int32_t)(q->head->seq - seq) <= 0) {
		struct wb__part *p = q->head;

		q->head = p->next;
		if (!q->head)
			q->tail = &q->head;
		q->n_out--;
		wb_dassert(q->bytes_out >= p->bytes && p->f->n_out && !p->is_done);
		q->bytes_out -= p->bytes;
		rail_of(l)->n_out[q->device]--;
		p->is_done = true;
		q->depth = q->full_depth;
		l->again_at[k].n_lost = 0;
		p->f->n_out--;
		advance(l, p->f);
	}
	wb__take_pump(l);
	wb__rail_ready(l->s->rail, l->s);
}
