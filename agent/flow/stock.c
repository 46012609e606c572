/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainer workers that leave before all has been sent: what others still lack from them lies in
 * slots.
 *
 * A stock is a snapshot of what is left, taken late.  Its chunks are those that others lack,
 * including those that were sent and are not verified: they may be asked for again.  It is kept
 * until the source is closed, when every engine has verified what trainers send.
 *
 * A chunk that is not packed yet is served from the parameters, by way of a slot if need be: the
 * stock waits for slots, and nobody waits for the stock.  It leaves some slots free, so that what
 * else is to be sent from here (to engines that read from rollout workers, feeds) goes on beside
 * it.
 */
#include "base/mem.h"
#include "flow/internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define FEW_PART 3 /* part of what a worker is to send: packing costs a copy of that much */
#define FEW_STEP 8 /* part of what was left that must be sent before it is said again */
#define FEW_MORE 4 /* times that it is said, beside once for each worker */
#define SPARE_PART 64 /* part of the slots that is left free */

/* ---- when ----------------------------------------------------------------------------------- */

static uint32_t spare(const struct wb_flow *f)
{
	return WB_MAX(1, f->o.slots->n_pool[WB_POOL_SEND] / SPARE_PART);
}

void wb__flow_few_opened(struct wb_flow *f, uint32_t worker)
{
	uint32_t w = f->local->member[worker].plan_worker, n = 0;

	for (uint32_t i = 0; i < f->plan->n_route; i++) {
		const struct wb_route *r = &f->plan->route[i];

		if (r->src == w && r->stage == WB_STAGE_RECEIVE)
			n += r->chunk_end - r->chunk_begin;
	}
	f->few.left[worker] = f->few.planned[worker] = n;
	f->few.is_far[worker] = false;
}

/* Chunks that are sent again, or were not planned, count as well: then it is said a little early
 * that few are left, and said once more. */
void wb__flow_few_sent(struct wb_flow *f, uint32_t worker, bool is_far)
{
	f->few.is_far[worker] |= is_far;
	f->few.left[worker] -= f->few.left[worker] > 0;
	f->due |= DUE_FEW;
}

/* May the worker leave, and has it no stock? */
static bool is_waiting(const struct wb_flow *f, uint32_t worker)
{
	return f->few.planned[worker] && f->source_open[worker] == SOURCE_OPEN &&
	       !(f->snap && f->snap[worker].image);
}

static bool is_packing(const struct wb_flow *f)
{
	for (uint32_t w = 0; f->n_stock && w < f->local->n; w++)
		if (f->snap[w].stock && !f->snap[w].is_told)
			return true;
	return false;
}

/*
 * How many chunks the next worker may have in slots.  When all workers are equally far, those that
 * leave first may have more than those that leave last, so that they are packed one after the
 * other, and answers go on between.
 */
static uint32_t share(const struct wb_flow *f)
{
	uint32_t n = f->o.slots->n_pool[WB_POOL_SEND], used = spare(f), n_waiting = 0;

	for (uint32_t w = 0; w < f->local->n; w++) {
		used += f->n_stock && f->snap[w].stock ? f->snap[w].image->n : 0;
		n_waiting += is_waiting(f, w) && f->few.is_far[w];
	}
	n -= WB_MIN(n, used);
	return n_waiting < 2 ? n : (uint32_t)((uint64_t)n * 5 / 4 / n_waiting);
}

/*
 * Workers whose bytes all go through memory of this host have no stock: those who lack a chunk copy
 * it as fast as it can be packed, so packing it first takes time from both and lets nobody go
 * earlier.  The price: an engine of this host that begins late keeps such a trainer worker until it
 * has its receive stage, or until it is given up.
 */
bool wb_flow_sends_far(const struct wb_flow *f, uint32_t worker)
{
	assert(worker < f->local->n);
	return f->few.is_far[worker];
}

/* What the worker that has the least left has left; UINT32_MAX if that is not little. */
static uint32_t least_left(const struct wb_flow *f)
{
	uint32_t least = UINT32_MAX, most = share(f);

	for (uint32_t w = 0; w < f->local->n; w++)
		if (is_waiting(f, w) && f->few.is_far[w] &&
			f->few.left[w] <= f->few.planned[w] / FEW_PART && f->few.left[w] <= most)
			least = WB_MIN(least, f->few.left[w]);
	return least;
}

void wb__flow_few_pump(struct wb_flow *f)
{
	struct few *few = &f->few;
	uint32_t left;

	if (!f->o.env->on_few || f->stopping || few->n_said == f->local->n + FEW_MORE ||
		is_packing(f))
		return;
	left = least_left(f);
	/* It was said already, and came to nothing. */
	if (left == UINT32_MAX || (few->said && left >= few->said - few->said / FEW_STEP))
		return;
	few->n_said++;
	few->said = WB_MAX(1, left);
	f->o.env->on_few(f->o.env->ctx, f);
}

/* ---- what others lack ----------------------------------------------------------------------- */

struct lacking {
	uint64_t *out;
	uint32_t n, cap;
};

static void add_want(const struct wb_flow *f, struct lacking *l, uint32_t i)
{
	const struct wb_want *w = &f->local->want[i];

	if (l->n < l->cap)
		l->out[l->n] = WB_FLOW_LACK(f->want[i].src, chunk_id(f, w->cls, w->chunk));
	l->n++;
}

static void add_queue(
	const struct wb_flow *f, struct lacking *l, uint32_t worker, const struct want_list *q)
{
	for (uint32_t i = q->head; i != FLOW_NONE; i = f->want[i].next)
		if (f->local->want[i].worker == worker)
			add_want(f, l, i);
}

/* Add what @worker lacks from trainer worker @src of this agent. */
static void add_mine(const struct wb_flow *f, struct lacking *l, uint32_t worker, uint32_t src)
{
	uint32_t i = wb_keyed_oldest(&f->mine_waiting);

	add_queue(f, l, worker, &f->mine[f->local->index_of[src]]);
	for (; i != LIST_NONE; i = wb_keyed_later(&f->mine_waiting, i))
		if (f->local->want[i].worker == worker && f->want[i].src == src)
			add_want(f, l, i);
}

static bool is_trainer_of(const struct wb_flow *f, uint32_t w, uint32_t domain)
{
	return f->plan->worker[w].role == WB_ROLE_TRAINER && f->plan->worker[w].domain == domain;
}

uint32_t wb_flow_lacking(
	const struct wb_flow *f, uint32_t worker, uint32_t domain, uint64_t *out, uint32_t cap)
{
	struct lacking l = {.out = out, .cap = cap};

	if (sink_is_over(f, worker) || worker >= f->n_asker)
		return 0;
	for (uint32_t src = 0; src < f->plan->n_worker; src++) {
		if (!is_trainer_of(f, src, domain))
			continue;
		if (f->local->index_of[src] >= 0)
			add_mine(f, &l, worker, src);
		else
			add_queue(f, &l, worker,
				&f->pair[(size_t)worker * f->plan->n_worker + src].queue);
	}
	for_fetches (f, fl) {
		if (!fl->in_use || f->want[fl->want].state != WANT_FLYING ||
			f->local->want[fl->want].worker != worker ||
			fl->gen != f->want[fl->want].gen)
			continue;
		if (is_trainer_of(f, f->want[fl->want].src, domain))
			add_want(f, &l, fl->want);
	}
	return l.n;
}

bool wb_flow_was_opened(const struct wb_flow *f, uint32_t worker)
{
	const struct sink *s = &f->sink[worker];

	return s->open || s->received || s->failed;
}

/* ---- the stock ------------------------------------------------------------------------------ */

static void give_back(struct wb_flow *f, struct snap *s)
{
	for (uint32_t i = 0; i < s->next; i++)
		wb_slots_put(f->o.slots, s->slot[i]);
	wb_image_destroy(s->stock);
	wb_free(s->slot);
	s->image = s->stock = NULL;
	s->slot = NULL;
	s->is_over = s->is_told; /* a stock that failed may be made anew */
	f->n_stock--;
}

static struct wb_image *make_image(const struct wb_flow *f, uint32_t n)
{
	struct wb_image *im = wb_zalloc(1, sizeof(*im));

	if (!im)
		return NULL;
	im->cls = wb_alloc((n + 1) * sizeof(*im->cls));
	im->chunk = wb_alloc((n + 1) * sizeof(*im->chunk));
	im->off = wb_alloc(f->plan->n_chunk * sizeof(*im->off));
	if (im->cls && im->chunk && im->off) {
		memset(im->off, 0xff, f->plan->n_chunk * sizeof(*im->off));
		return im;
	}
	wb_image_destroy(im);
	return NULL;
}

/* Find the classes and chunks of ascending numbers. -EINVAL: one is not of this worker. */
static int fill_image(const struct wb_flow *f, struct wb_image *im, uint32_t worker,
	const uint32_t *id, uint32_t n)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		while (k < f->plan->n_class &&
			id[i] >= f->plan->cls[k].chunk_base + f->plan->cls[k].n_chunk)
			k++;
		if (k == f->plan->n_class || (i && id[i] <= id[i - 1]) ||
			!wb_local_is_member(f->local, worker, k))
			return -EINVAL;
		im->cls[im->n] = k;
		im->chunk[im->n++] = id[i] - f->plan->cls[k].chunk_base;
	}
	return 0;
}

int wb_flow_stock(struct wb_flow *f, uint32_t worker, const uint32_t *id, uint32_t n)
{
	struct snap s = {.base = f->o.slots->base};
	uint32_t most = share(f);
	int rc = wb__flow_snaps_init(f);

	if (rc < 0)
		return rc;
	if (f->stopping || !is_waiting(f, worker) || is_packing(f))
		return -EBUSY;
	if (n > most)
		return -ENOSPC;
	s.slot = wb_alloc((n + 1) * sizeof(*s.slot));
	s.image = s.stock = make_image(f, n);
	rc = s.slot && s.stock ? fill_image(f, s.stock, worker, id, n) : -ENOMEM;
	if (rc < 0) {
		wb_image_destroy(s.stock);
		wb_free(s.slot);
		return rc;
	}
	f->snap[worker] = s;
	f->n_stock++;
	f->few.said = 0;
	memset(f->have[worker], 0, f->plan->n_chunk);
	wb__flow_pump(f, DUE_SNAP);
	return 0;
}

void *wb__flow_stock_slot(struct wb_flow *f, struct snap *s)
{
	if (f->o.slots->n_free[WB_POOL_SEND] <= spare(f))
		return NULL;
	s->slot[s->next] = wb_slots_get(f->o.slots, WB_POOL_SEND);
	return wb_slots_at(f->o.slots, s->slot[s->next]);
}

void wb__flow_stock_packed(struct wb_flow *f, struct snap *s, uint32_t id, const void *at)
{
	s->stock->off[id] = (uint64_t)((const uint8_t *)at - f->o.slots->base);
}

/* Are the worker's parameters free of all that answers from them, or may yet? */
bool wb__flow_stock_is_free(const struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->serve.n; i++) {
		const struct wb_flight *fl = &f->serve.all[i];

		if (fl->in_use && fl->worker == worker && !fl->wire &&
			!(fl->slot != WB_SLOT_NONE && fl->is_packed))
			return false;
	}
	for (uint32_t i = 0; i < f->fetch[FETCH_LOCAL].n; i++) {
		const struct wb_flight *fl = &f->fetch[FETCH_LOCAL].all[i];

		if (fl->in_use && !fl->wire && fl->step == STEP_WIRE &&
			f->local->index_of[fl->src] == (int32_t)worker)
			return false;
	}
	return f->snap[worker].n_out == 0;
}

static bool is_read(const struct wb_flow *f, uint32_t worker)
{
	for (uint32_t i = 0; i < f->serve.n; i++)
		if (f->serve.all[i].in_use && f->serve.all[i].worker == worker &&
			f->serve.all[i].wire)
			return true;
	for (uint32_t i = 0; i < f->fetch[FETCH_LOCAL].n; i++) {
		const struct wb_flight *fl = &f->fetch[FETCH_LOCAL].all[i];

		if (fl->in_use && fl->wire && f->local->index_of[fl->src] == (int32_t)worker)
			return true;
	}
	return f->snap[worker].n_out > 0;
}

void wb__flow_stock_drop(struct wb_flow *f, uint32_t worker)
{
	if (!f->snap || !f->snap[worker].stock || f->snap[worker].is_over)
		return;
	f->snap[worker].is_over = true;
	f->due |= DUE_SNAP;
}

void wb__flow_stock_reap(struct wb_flow *f)
{
	for (uint32_t w = 0; f->n_stock && w < f->local->n; w++)
		if (f->snap[w].is_over && f->snap[w].stock && !is_read(f, w)) {
			give_back(f, &f->snap[w]);
			f->due |= DUE_SERVE; /* asks that wait for a slot */
		}
}

void wb__flow_stock_finish(struct wb_flow *f)
{
	for (uint32_t w = 0; f->n_stock && w < f->local->n; w++)
		if (f->snap[w].stock)
			give_back(f, &f->snap[w]);
}
