/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Make the routes: which worker sends which chunks of a class to which worker.
 *
 * Holders divide a class's grid by their shares, and the needers of every node do so too.  The
 * needers of a node that get a range of the grid in this way are its takers.  Wherever a taker
 * changes, the grid is cut into intervals, and the chunks of an interval are split evenly over the
 * nodes: trainers send the part of a node to its taker, which passes it on to the takers of the
 * other nodes.  A taker passes on at most as much as it takes, so exchange never loads a rail more
 * than ingress does.
 *
 * The error of rounding to whole chunks is carried to the next class, so a rail is never more than
 * about a chunk away from its share, whatever the number of classes.  Large classes come first.
 * Chunks that are left over go to fast rails first, since a slow rail needs a long time for one
 * chunk more.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUTES_MAX (1u << 27)
#define TINY 16 /* a class counts as a chunk divided by this, or more */
/* With few peers, what a taker is the first to get comes in parts of at least 1 / GRAINS of it. */
#define GRAINS 16

struct want {
	int64_t bytes;
	double rate; /* of its rail, relative to the fastest */
	uint32_t pos, order;
};

/* The chunks from the end of the range before to @end are the worker's, and go by that rail. */
struct range {
	uint32_t end, worker, rail;
};

struct routing {
	struct wb_plan *p;
	const struct wb__shares *s;
	size_t cap_route;
	/* By rail: bytes owed (share less what was given so far) as sender, as taker, and as the
	 * taker that is the first to get them. */
	int64_t *owed_send, *owed_take, *owed_first;
	uint32_t *started; /* by rail: intervals whose first part its taker got */
	uint64_t *near; /* by worker: bytes from another domain of its node, through memory */
	double rate_max;
	bool few_peers;
	struct want *want; /* scratch of n_worker */
	uint32_t *count; /* scratch of n_worker */
	struct range *hold; /* holders of the class at hand */
	uint32_t n_hold;
	struct range *take; /* takers; those of group g begin at take_at[g] */
	size_t cap_take;
	uint32_t *take_at; /* by group of the class, and the end of the last one */
	const struct range **taker; /* of groups at hand: takers in the interval at hand */
	uint32_t *cut; /* interval bounds */
	size_t cap_cut;
};

/* How much a rail lacks: more bytes owed weigh more, and more so on a fast rail. */
static double weigh(const struct want *w)
{
	return (double)w->bytes * (w->bytes > 0 ? w->rate : 1);
}

static int by_want(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	double a_key = weigh(x), b_key = weigh(y);

	if (a_key != b_key)
		return a_key > b_key ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* The bytes that a class counts for.  Tiny classes count for more than they have: else one rail
 * that is owed a chunk would get very many of them, each from another trainer. */
static uint64_t class_bytes(const struct wb_plan *p, const struct wb_class *k)
{
	return WB_MAX(k->bytes, p->chunk_bytes / TINY);
}

static uint64_t range_bytes(
	const struct wb_plan *p, const struct wb_class *k, uint32_t a, uint32_t b)
{
	uint64_t end = WB_MIN((uint64_t)b * p->chunk_bytes, class_bytes(p, k));

	return end - WB_MIN((uint64_t)a * p->chunk_bytes, end);
}

/* A member's part of @bytes of a class, by the shares of its group. */
static int64_t part(const struct wb__group *g, uint32_t pos, uint64_t bytes)
{
	return g->bytes ? (int64_t)((unsigned __int128)bytes * g->share[pos] / g->bytes) : 0;
}

static int64_t whole_chunks(const struct routing *r, int64_t bytes, uint32_t left)
{
	return bytes > 0 ? WB_MIN(bytes / r->p->chunk_bytes, left) : 0;
}

/* An entry of want[]: the member at position @pos wants @bytes by @rail.  @order decides among
 * equals. */
static struct want want_of(
	const struct routing *r, int64_t bytes, uint32_t rail, uint32_t pos, uint32_t order)
{
	return (struct want){bytes, r->s->rate[rail] / r->rate_max, pos, order};
}

/*
 * Deal out @left chunks to the @n entries of want[]: count[pos] is what each wants, rounded.  While
 * chunks last, an entry that wants some bytes gets at least @grain of them, and those that want
 * most come first.  So few members get a small class, and the others get more of the next: a worker
 * does not talk to all others for a little of each class.  Chunks that are left over go one by one
 * to those that lack most.
 */
static void deal(struct routing *r, uint32_t n, uint32_t left, uint64_t grain)
{
	int64_t least = (int64_t)(grain / r->p->chunk_bytes);

	if (least > 1)
		qsort(r->want, n, sizeof(*r->want), by_want);
	for (uint32_t i = 0; i < n; i++) {
		struct want *w = &r->want[i];
		int64_t count = whole_chunks(r, w->bytes, left);

		if (count < least && least > 1)
			count = WB_MIN(w->bytes > 0 ? least : 0, left);
		r->count[w->pos] = (uint32_t)count;
		w->bytes -= count * r->p->chunk_bytes;
		left -= (uint32_t)count;
	}
	if (left)
		qsort(r->want, n, sizeof(*r->want), by_want);
	for (uint32_t i = 0; left; left--, i = (i + 1) % n)
		r->count[r->want[i].pos]++;
}

/* Set count[i] to the number of a class's chunks that member i gets: its part, and what it is owed
 * from before. */
static void apportion(
	struct routing *r, const struct wb_class *k, const struct wb__group *g, const int64_t *owed)
{
	uint64_t bytes = class_bytes(r->p, k);

	for (uint32_t i = 0; i < g->n; i++) {
		uint32_t w = g->member[i];

		r->want[i] = want_of(r, part(g, i, bytes) + owed[w], w, i, i);
	}
	deal(r, g->n, k->n_chunk, 0);
}

/* A needer of the group in the domain of @lender; there is at least one.  @turn chooses among
 * several. */
static uint32_t needer_near(
	const struct wb_plan *p, const struct wb__group *g, uint32_t lender, uint32_t turn)
{
	uint32_t begin = 0, end, domain = p->worker[lender].domain;

	while (p->worker[g->member[begin]].domain != domain)
		begin++;
	for (end = begin; end < g->n_need && p->worker[g->member[end]].domain == domain;)
		end++;
	return g->member[begin + turn % (end - begin)];
}

/* Make ranges of the chunks in count[], in member order from member @turn on, and subtract what was
 * given from what is owed.  Chunks that come by a lent rail go to a needer.  Returns the number of
 * ranges. */
static uint32_t lay_ranges(struct routing *r, const struct wb_class *k, const struct wb__group *g,
	uint32_t turn, int64_t *owed, struct range *out)
{
	uint32_t at = 0, n = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		uint32_t pos = (i + turn) % g->n, count = r->count[pos], w = g->member[pos];
		bool is_lent = g->n_need && pos >= g->n_need;

		owed[w] += part(g, pos, class_bytes(r->p, k));
		owed[w] -= (int64_t)range_bytes(r->p, k, at, at + count);
		at += count;
		if (count)
			out[n++] =
				(struct range){at, is_lent ? needer_near(r->p, g, w, pos) : w, w};
	}
	return n;
}

static int add_route(struct routing *r, struct wb_route x)
{
	struct wb_plan *p = r->p;
	int rc = wb_grow(&p->route, &r->cap_route, (size_t)p->n_route + 1, ROUTES_MAX, sizeof(x));

	if (rc < 0)
		return rc;
	if (wb_route_is_inside(p, &x)) { /* through memory, by no rail */
		x.src_rail = x.src;
		x.dst_rail = x.dst;
	}
	p->route[p->n_route++] = x;
	return 0;
}

static struct wb_route route_of(uint32_t cls, uint32_t a, uint32_t b, enum wb_stage stage,
	const struct range *src, const struct range *dst)
{
	return (struct wb_route){cls, a, b, stage, (uint16_t)src->worker, (uint16_t)dst->worker,
		(uint16_t)src->rail, (uint16_t)dst->rail};
}

/* Add the receive routes of chunks [a, b) to one worker, from the holders of these chunks. */
static int receive(struct routing *r, uint32_t cls, uint32_t a, uint32_t b, const struct range *dst)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < r->n_hold && at < b; i++) {
		uint32_t lo = WB_MAX(at, a), hi = WB_MIN(r->hold[i].end, b);
		int rc = 0;

		if (lo < hi)
			rc = add_route(
				r, route_of(cls, lo, hi, WB_STAGE_RECEIVE, &r->hold[i], dst));
		if (rc < 0)
			return rc;
		at = r->hold[i].end;
	}
	return 0;
}

/* The node that gets the first part of an interval: the one whose taker got the first part least
 * often. */
static uint32_t first_node(struct routing *r, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t g = 1; g < n; g++)
		if (r->started[r->taker[g]->rail] < r->started[r->taker[best]->rail])
			best = g;
	r->started[r->taker[best]->rail]++;
	return best;
}

/* Add the receive and external routes of chunks [a, b), in which every group has one taker. */
static int route_interval(struct routing *r, uint32_t cls, uint32_t a, uint32_t b, uint32_t n)
{
	const struct wb_class *k = &r->p->cls[cls];
	int64_t even = (int64_t)(range_bytes(r->p, k, a, b) / n);
	uint32_t turn = n > 1 ? first_node(r, n) : 0, at = a;

	for (uint32_t g = 0; g < n; g++) {
		uint32_t rail = r->taker[g]->rail;

		r->want[g] = want_of(r, even + r->owed_first[rail], rail, g, (g + n - turn) % n);
	}
	deal(r, n, b - a, r->few_peers ? r->s->take_max / n / GRAINS : 0);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t g = (i + turn) % n, end = at + r->count[g];
		const struct range *src = r->taker[g];
		int rc = 0;

		r->owed_first[src->rail] += even - (int64_t)range_bytes(r->p, k, at, end);
		if (end > at)
			rc = receive(r, cls, at, end, src);
		for (uint32_t d = 0; d < n && end > at && !rc; d++)
			if (d != g)
				rc = add_route(r, route_of(cls, at, end, WB_STAGE_EXTERNAL, src,
							  r->taker[d]));
		if (rc < 0)
			return rc;
		at = end;
	}
	return 0;
}

/* Add the routes by which @n needers, all of one domain, get chunks [a, @from.end) of worker @from.
 * If @from is in another domain, the needer that has got the least in this way gets the chunks from
 * there, and passes them on.  Else @from is in this domain, and passes them on itself. */
static int route_domain(struct routing *r, uint32_t cls, const uint32_t *member, uint32_t n,
	uint32_t a, struct range from)
{
	const struct wb_plan *p = r->p;
	bool is_there = p->worker[from.worker].domain == p->worker[member[0]].domain;
	struct range via = from;
	int rc = 0;

	if (!is_there) {
		via.worker = member[0];
		for (uint32_t m = 1; m < n; m++)
			if (r->near[member[m]] < r->near[via.worker])
				via.worker = member[m];
		r->near[via.worker] += range_bytes(p, &p->cls[cls], a, from.end);
		rc = add_route(r, route_of(cls, a, from.end, WB_STAGE_INTERNAL, &from, &via));
	}
	for (uint32_t m = 0; m < n && !rc; m++) {
		struct range to = {from.end, member[m], member[m]};

		if (to.worker != via.worker)
			rc = add_route(r, route_of(cls, a, to.end, WB_STAGE_INTERNAL, &via, &to));
	}
	return rc;
}

/* Add the internal routes of a node: every other needer gets each range from its taker.  Another
 * domain of the node gets a range only once from outside. */
static int route_inside(struct routing *r, uint32_t cls, const struct wb__group *g,
	const struct range *take, uint32_t n_take)
{
	const struct wb_plan_worker *w = r->p->worker;
	uint32_t at = 0;

	for (uint32_t i = 0; i < n_take; i++) {
		for (uint32_t m = 0, end; m < g->n_need; m = end) {
			uint32_t domain = w[g->member[m]].domain;
			int rc;

			for (end = m + 1; end < g->n_need && w[g->member[end]].domain == domain;)
				end++;
			rc = route_domain(r, cls, g->member + m, end - m, at, take[i]);
			if (rc < 0)
				return rc;
		}
		at = take[i].end;
	}
	return 0;
}

static int by_u32(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Find the takers of every group, and add the routes by which they pass on what they take to the
 * other needers of their node. */
static int lay_takers(struct routing *r, uint32_t cls)
{
	const struct wb_class *k = &r->p->cls[cls];
	uint32_t g0 = r->s->take_begin[cls], n = r->s->take_end[cls] - g0, at = 0;

	for (uint32_t g = 0; g < n; g++) {
		const struct wb__group *t = &r->s->take[g0 + g];
		int rc =
			wb_grow(&r->take, &r->cap_take, at + t->n, SIZE_MAX / 64, sizeof(*r->take));

		if (rc < 0)
			return rc;
		apportion(r, k, t, r->owed_take);
		r->take_at[g] = at;
		at += lay_ranges(r, k, t, 0, r->owed_take, r->take + at);
		rc = route_inside(r, cls, t, r->take + r->take_at[g], at - r->take_at[g]);
		if (rc < 0)
			return rc;
	}
	r->take_at[n] = at;
	return 0;
}

/* Route groups [lo, hi) of a class.  An interval lies between any two successive changes of their
 * takers. */
static int route_groups(struct routing *r, uint32_t cls, uint32_t lo, uint32_t hi)
{
	uint32_t from = 0, begin = r->take_at[lo], n = r->take_at[hi] - begin;
	int rc = wb_grow(&r->cut, &r->cap_cut, n, SIZE_MAX / 64, sizeof(*r->cut));

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		r->cut[i] = r->take[begin + i].end;
	qsort(r->cut, n, sizeof(*r->cut), by_u32);
	for (uint32_t g = lo; g < hi; g++)
		r->taker[g - lo] = &r->take[r->take_at[g]];
	for (uint32_t i = 0; i < n && !rc; i++) {
		if (r->cut[i] == from)
			continue;
		for (uint32_t g = 0; g < hi - lo; g++)
			r->taker[g] += r->taker[g]->end <= from;
		rc = route_interval(r, cls, from, r->cut[i], hi - lo);
		from = r->cut[i];
	}
	return rc;
}

static int route_class(struct routing *r, uint32_t cls)
{
	const struct wb_class *k = &r->p->cls[cls];
	const struct wb__group *send = &r->s->send[r->s->send_of[cls]];
	uint32_t n = r->s->take_end[cls] - r->s->take_begin[cls];
	uint32_t n_spread = wb__n_spread(r->s->nodes_max, n);
	int rc;

	apportion(r, k, send, r->owed_send);
	r->n_hold = lay_ranges(r, k, send, 0, r->owed_send, r->hold);
	rc = lay_takers(r, cls);
	for (uint32_t i = 0; i < n_spread && !rc; i++)
		rc = route_groups(r, cls, (uint32_t)((uint64_t)n * i / n_spread),
			(uint32_t)((uint64_t)n * (i + 1) / n_spread));
	return rc;
}

/* Route a direct class: every needer gets all of it from the trainers, and each begins with another
 * holder. */
static int route_direct(struct routing *r, uint32_t cls)
{
	const struct wb_class *k = &r->p->cls[cls];
	const struct wb__group *send = &r->s->send[r->s->send_of[cls]];
	uint32_t g0 = r->s->take_begin[cls], n = r->s->take_end[cls] - g0;
	int rc = lay_takers(r, cls);

	for (uint32_t g = 0; g < n && !rc; g++) {
		uint32_t from = 0;

		apportion(r, k, send, r->owed_send);
		r->n_hold = lay_ranges(r, k, send, g % send->n, r->owed_send, r->hold);
		for (uint32_t i = r->take_at[g]; i < r->take_at[g + 1] && !rc; i++) {
			rc = receive(r, cls, from, r->take[i].end, &r->take[i]);
			from = r->take[i].end;
		}
	}
	return rc;
}

int wb__route_order(const void *a, const void *b)
{
	const struct wb_route *x = a, *y = b;

	if (x->stage != y->stage)
		return x->stage < y->stage ? -1 : 1;
	if (x->dst != y->dst)
		return x->dst < y->dst ? -1 : 1;
	if (x->class_id != y->class_id)
		return x->class_id < y->class_id ? -1 : 1;
	return x->chunk_begin < y->chunk_begin ? -1 : x->chunk_begin > y->chunk_begin;
}

static void sort_and_merge(struct wb_plan *p)
{
	uint32_t kept = 0;

	if (!p->n_route)
		return;
	qsort(p->route, p->n_route, sizeof(*p->route), wb__route_order);
	for (uint32_t i = 1; i < p->n_route; i++) {
		struct wb_route *x = &p->route[kept], *y = &p->route[i];

		if (x->stage == y->stage && x->dst == y->dst && x->src == y->src &&
			x->class_id == y->class_id && x->chunk_end == y->chunk_begin &&
			x->src_rail == y->src_rail && x->dst_rail == y->dst_rail)
			x->chunk_end = y->chunk_end;
		else
			p->route[++kept] = *y;
	}
	p->n_route = kept + 1;
}

static int by_size(const void *a, const void *b)
{
	const struct wb__sized *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->cls < y->cls ? -1 : x->cls > y->cls;
}

struct wb__sized *wb__classes_by_size(const struct wb_plan *p)
{
	struct wb__sized *order = wb_zalloc(p->n_class, sizeof(*order));

	for (uint32_t c = 0; order && c < p->n_class; c++)
		order[c] = (struct wb__sized){p->cls[c].bytes, c};
	if (order && p->n_class)
		qsort(order, p->n_class, sizeof(*order), by_size);
	return order;
}

static int route_all(struct routing *r)
{
	struct wb_plan *p = r->p;
	struct wb__sized *order = wb__classes_by_size(p);
	int rc = 0;

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_class && !rc; i++)
		rc = p->cls[order[i].cls].is_direct ? route_direct(r, order[i].cls)
						    : route_class(r, order[i].cls);
	wb_free(order);
	if (!rc)
		sort_and_merge(p);
	return rc;
}

int wb__routes_make(struct wb_plan *p, const struct wb__shares *s, bool few_peers)
{
	struct routing r = {.p = p, .s = s, .few_peers = few_peers};
	size_t n = p->n_worker;
	int rc = -ENOMEM;

	r.owed_send = wb_zalloc(3 * n, sizeof(*r.owed_send));
	r.owed_take = r.owed_send + n;
	r.owed_first = r.owed_take + n;
	r.started = wb_zalloc(n, sizeof(*r.started));
	r.near = wb_zalloc(n, sizeof(*r.near));
	r.want = wb_zalloc(n, sizeof(*r.want));
	r.count = wb_zalloc(n, sizeof(*r.count));
	r.hold = wb_zalloc(n, sizeof(*r.hold));
	r.take_at = wb_zalloc(n + 1, sizeof(*r.take_at));
	r.taker = wb_zalloc(n, sizeof(struct range *));
	for (uint32_t i = 0; i < p->n_worker; i++)
		r.rate_max = WB_MAX(r.rate_max, s->rate[i]);
	if (r.owed_send && r.started && r.near && r.want && r.count && r.hold && r.take_at &&
		r.taker)
		rc = route_all(&r);
	wb_free(r.owed_send);
	wb_free(r.started);
	wb_free(r.near);
	wb_free(r.want);
	wb_free(r.count);
	wb_free(r.hold);
	wb_free(r.take_at);
	wb_free((void *)r.taker);
	wb_free(r.take);
	wb_free(r.cut);
	return rc;
}
