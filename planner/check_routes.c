/* SPDX-License-Identifier: Apache-2.0 */
/* Check the routes of every class by playing them chunk by chunk: which workers have a chunk, which
 * worker of a node took it from the network, and which worker of a domain took it from outside the
 * domain. */
#include "planner/internal.h"

#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct play {
	const struct wb_plan *p;
	struct wb_err *err;
	const struct wb_class *k;
	uint32_t cls;
	uint32_t *pos; /* by worker: position among the needers, NOBODY = none */
	struct slots {
		uint32_t *of; /* by domain, or node: its number in the class, NOBODY = none */
		uint32_t n;
		uint32_t *taker; /* by that number and chunk: who took it from outside, or NOBODY */
		size_t cap;
	} domain, node;
	uint8_t *is_holder; /* by worker */
	uint32_t *n_first; /* by chunk: nodes that received it from trainers */
	uint8_t *received; /* by node's number and chunk: its taker got it from a trainer */
	uint8_t *has; /* a bit for each needer position and chunk: that needer has it */
	size_t cap_first, cap_received, cap_has;
};

static int fault(const struct play *y, const struct wb_route *r, const char *what)
{
	return wb_err_set(y->err, WB_EPLAN,
		"class %" PRIu32 " chunks %" PRIu32 "-%" PRIu32 " from worker %" PRIu32
		" to worker %" PRIu32 ": %s",
		r->class_id, r->chunk_begin, r->chunk_end - 1, r->src, r->dst, what);
}

static void number(struct slots *s, uint32_t i)
{
	if (s->of[i] == NOBODY)
		s->of[i] = s->n++;
}

/* Record that nobody has taken anything yet. */
static int clear(struct slots *s, uint32_t n_chunk)
{
	size_t n = (size_t)s->n * n_chunk;
	int rc = wb_grow(&s->taker, &s->cap, n, SIZE_MAX / 64, sizeof(*s->taker));

	if (!rc)
		memset(s->taker, 0xff, n * sizeof(*s->taker));
	return rc;
}

static int enter(struct play *y, uint32_t cls)
{
	const struct wb_plan *p = y->p;
	const struct wb_class *k = y->k = &p->cls[cls];
	uint32_t n = k->needer_end - k->needer_begin;
	size_t bits = ((size_t)n * k->n_chunk + 7) / 8, n_received;
	int rc;

	y->cls = cls;
	y->domain.n = y->node.n = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t w = p->member[k->needer_begin + i];

		y->pos[w] = i;
		number(&y->domain, p->worker[w].domain);
		number(&y->node, p->worker[w].node);
	}
	for (uint32_t i = k->holder_begin; i < k->holder_end; i++)
		y->is_holder[p->member[i]] = 1;
	n_received = (size_t)y->node.n * k->n_chunk;
	rc = wb_grow(&y->n_first, &y->cap_first, k->n_chunk, SIZE_MAX / 64, sizeof(*y->n_first));
	if (!rc)
		rc = clear(&y->domain, k->n_chunk);
	if (!rc)
		rc = clear(&y->node, k->n_chunk);
	if (!rc)
		rc = wb_grow(&y->received, &y->cap_received, n_received, SIZE_MAX / 64, 1);
	if (!rc)
		rc = wb_grow(&y->has, &y->cap_has, bits, SIZE_MAX / 64, 1);
	if (rc < 0)
		return rc;
	memset(y->n_first, 0, k->n_chunk * sizeof(*y->n_first));
	memset(y->received, 0, n_received);
	memset(y->has, 0, bits);
	return 0;
}

static void leave(struct play *y)
{
	const struct wb_plan *p = y->p;

	for (uint32_t i = y->k->needer_begin; i < y->k->needer_end; i++) {
		y->pos[p->member[i]] = NOBODY;
		y->domain.of[p->worker[p->member[i]].domain] = NOBODY;
		y->node.of[p->worker[p->member[i]].node] = NOBODY;
	}
	for (uint32_t i = y->k->holder_begin; i < y->k->holder_end; i++)
		y->is_holder[p->member[i]] = 0;
}

/* Has @worker taken the chunk from a trainer? */
static bool has_received(const struct play *y, uint32_t worker, uint32_t c)
{
	uint32_t slot = y->node.of[y->p->worker[worker].node];
	size_t at = (size_t)slot * y->k->n_chunk + c;

	return slot != NOBODY && y->node.taker[at] == worker && y->received[at];
}

/* Play a chunk that comes from a trainer, or from a worker of another node that received it from a
 * trainer.  NULL, or what is wrong. */
static const char *play_network(
	struct play *y, const struct wb_route *r, uint32_t c, uint32_t *taker, uint8_t *received)
{
	if (r->stage == WB_STAGE_RECEIVE) {
		if (!y->is_holder[r->src])
			return "the source is no holder";
		if (!y->k->is_direct && y->n_first[c]++ >= wb__n_spread(WB_SPREAD_NODES, y->node.n))
			return "trainers send this too often";
		*received = 1;
	} else if (y->k->is_direct || wb_route_is_inside(y->p, r) || !has_received(y, r->src, c)) {
		return "the source is not the one that received this, or inside the node";
	}
	if (!y->k->is_direct && *taker != NOBODY)
		return "its node gets this twice";
	*taker = r->dst;
	return NULL;
}

/* One chunk of one route; NULL, or what is wrong with it. */
static const char *play_chunk(struct play *y, const struct wb_route *r, uint32_t c)
{
	const struct wb_plan_worker *to = &y->p->worker[r->dst];
	size_t in_node = (size_t)y->node.of[to->node] * y->k->n_chunk + c;
	size_t bit = (size_t)y->pos[r->dst] * y->k->n_chunk + c;
	uint32_t *taker = &y->domain.taker[(size_t)y->domain.of[to->domain] * y->k->n_chunk + c];
	const char *what = NULL;

	if (y->has[bit / 8] & 1 << bit % 8)
		return "it gets this twice";
	y->has[bit / 8] |= (uint8_t)(1 << bit % 8);
	if (r->stage != WB_STAGE_INTERNAL)
		what = play_network(y, r, c, &y->node.taker[in_node], &y->received[in_node]);
	else if (y->k->is_direct || !wb_route_is_inside(y->p, r))
		what = "the source is in another node, or its values are rounded";
	else if (!wb_route_is_near(y->p, r))
		return *taker == r->src ? NULL
					: "the source is not the one of its domain that took this";
	else if (y->node.taker[in_node] != r->src)
		what = "the source is not the one of its node that took this";
	else if (*taker != NOBODY)
		what = "its domain gets this twice";
	*taker = r->dst;
	return what;
}

/* Play the routes inside domains (@is_local) or all others.  Routes inside domains are played last,
 * since their sources may get the chunk by a route between domains. */
static int play_routes(struct play *y, const uint32_t *route, uint32_t n, bool is_local)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct wb_route *r = &y->p->route[route[i]];

		if (is_local != (r->stage == WB_STAGE_INTERNAL && !wb_route_is_near(y->p, r)))
			continue;
		if (y->pos[r->dst] == NOBODY)
			return fault(y, r, "the destination does not need it");
		for (uint32_t c = r->chunk_begin; c < r->chunk_end; c++) {
			const char *what = play_chunk(y, r, c);

			if (what)
				return fault(y, r, what);
		}
	}
	return 0;
}

static int play_class(struct play *y, const uint32_t *route, uint32_t n)
{
	size_t bits = (size_t)(y->k->needer_end - y->k->needer_begin) * y->k->n_chunk;
	int rc = play_routes(y, route, n, false);

	if (!rc)
		rc = play_routes(y, route, n, true);
	if (rc)
		return rc;
	for (size_t b = 0; b < bits; b++)
		if (!(y->has[b / 8] & 1 << b % 8))
			return wb_err_set(y->err, WB_EPLAN,
				"worker %" PRIu32 " does not get chunk %zu of class %" PRIu32,
				y->p->member[y->k->needer_begin + b / y->k->n_chunk],
				b % y->k->n_chunk, y->cls);
	return 0;
}

/* List the routes of each class: list[begin[c]] .. list[begin[c + 1]], in plan order and so by
 * stage.  Also check that the plan has them in order. */
static int list_routes(const struct wb_plan *p, uint32_t *begin, uint32_t *list, struct wb_err *err)
{
	for (uint32_t i = 0; i < p->n_route; i++) {
		if (i && wb__route_order(&p->route[i - 1], &p->route[i]) >= 0)
			return wb_err_set(err, WB_EPLAN, "route %" PRIu32 " is out of order", i);
		begin[p->route[i].class_id + 2]++;
	}
	for (uint32_t c = 2; c < p->n_class + 2; c++)
		begin[c] += begin[c - 1];
	for (uint32_t i = 0; i < p->n_route; i++)
		list[begin[p->route[i].class_id + 1]++] = i;
	return 0;
}

int wb__check_routes(const struct wb_plan *p, struct wb_err *err)
{
	struct play y = {.p = p, .err = err};
	uint32_t *begin = wb_zalloc((size_t)p->n_class + 2, sizeof(*begin));
	uint32_t *list = wb_zalloc(p->n_route, sizeof(*list));
	int rc = -ENOMEM;

	y.pos = wb_alloc(p->n_worker * sizeof(*y.pos));
	y.domain.of = wb_alloc(p->n_worker * sizeof(*y.domain.of));
	y.node.of = wb_alloc(p->n_worker * sizeof(*y.node.of));
	y.is_holder = wb_zalloc(p->n_worker, 1);
	if (begin && list && y.pos && y.domain.of && y.node.of && y.is_holder) {
		memset(y.pos, 0xff, p->n_worker * sizeof(*y.pos));
		memset(y.domain.of, 0xff, p->n_worker * sizeof(*y.domain.of));
		memset(y.node.of, 0xff, p->n_worker * sizeof(*y.node.of));
		rc = list_routes(p, begin, list, err);
	} else {
		wb_err_set(err, rc, "checking %" PRIu32 " routes", p->n_route);
	}
	for (uint32_t c = 0; c < p->n_class && !rc; c++) {
		rc = enter(&y, c);
		if (rc < 0)
			wb_err_set(err, rc, "checking %" PRIu32 " routes", p->n_route);
		else
			rc = play_class(&y, list + begin[c], begin[c + 1] - begin[c]);
		leave(&y);
	}
	wb_free(begin);
	wb_free(list);
	wb_free(y.pos);
	wb_free(y.domain.of);
	wb_free(y.domain.taker);
	wb_free(y.node.of);
	wb_free(y.node.taker);
	wb_free(y.is_holder);
	wb_free(y.n_first);
	wb_free(y.received);
	wb_free(y.has);
	return rc;
}
