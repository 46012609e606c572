/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decide by which rails a node takes its bytes from the network: by the rails of the workers that
 * need the bytes, as long as this does not delay the transfer.  Otherwise other rollout workers of
 * their domains lend their rails, for no more than what is too much for the needers' own.  A rail
 * belongs to an agent, and lands only bytes for workers of this agent.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* A node is lent rails if it would need longer than the transfer by more than this factor without
 * them. */
#define GAIN 1.01

/* The groups and the rollout workers of each node. */
struct lend {
	const struct wb_plan *p;
	struct wb__shares *s;
	uint32_t *group, *group_begin; /* owned: indices into s->take, by node; where these begin */
	uint32_t *worker, *worker_begin; /* owned: worker numbers, by node; where these begin */
	struct wb__group *g; /* owned: groups of one node */
	uint8_t *needs_rails; /* owned, by node */
};

static uint32_t node_of(const struct lend *x, uint32_t group)
{
	return x->p->worker[x->s->take[group].member[0]].node;
}

/* Before: begin[v + 2] is the count of node v.  After: the list of node v begins at begin[v + 1],
 * which is moved on while the list is filled, so that at the end begin[v] is its beginning. */
static void sum_up(uint32_t *begin, uint32_t n)
{
	for (uint32_t v = 2; v < n + 2; v++)
		begin[v] += begin[v - 1];
}

static void list_nodes(struct lend *x)
{
	const struct wb_plan *p = x->p;

	for (uint32_t i = 0; i < x->s->n_take; i++)
		x->group_begin[node_of(x, i) + 2]++;
	for (uint32_t w = 0; w < p->n_worker; w++)
		x->worker_begin[p->worker[w].node + 2] += p->worker[w].role == WB_ROLE_ROLLOUT;
	sum_up(x->group_begin, p->n_worker);
	sum_up(x->worker_begin, p->n_worker);
	for (uint32_t i = 0; i < x->s->n_take; i++)
		x->group[x->group_begin[node_of(x, i) + 1]++] = i;
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT)
			x->worker[x->worker_begin[p->worker[w].node + 1]++] = w;
}

static int lend_init(struct lend *x, const struct wb_plan *p, struct wb__shares *s)
{
	size_t n = (size_t)p->n_worker + 2;

	*x = (struct lend){.p = p, .s = s};
	x->group = wb_zalloc(s->n_take, sizeof(*x->group));
	x->group_begin = wb_zalloc(n, sizeof(*x->group_begin));
	x->worker = wb_zalloc(p->n_worker, sizeof(*x->worker));
	x->worker_begin = wb_zalloc(n, sizeof(*x->worker_begin));
	x->g = wb_zalloc(s->n_take, sizeof(*x->g));
	x->needs_rails = wb_zalloc(p->n_worker, 1);
	return x->group && x->group_begin && x->worker && x->worker_begin && x->g && x->needs_rails
		       ? 0
		       : -ENOMEM;
}

static void lend_finish(struct lend *x)
{
	wb_free(x->group);
	wb_free(x->group_begin);
	wb_free(x->worker);
	wb_free(x->worker_begin);
	wb_free(x->g);
	wb_free(x->needs_rails);
}

/* Balance one node by itself, so that a slow node does not leave the others unbalanced. */
static int balance_node(struct lend *x, uint32_t v, enum wb__begin begin, double *time)
{
	uint32_t at = x->group_begin[v], n = x->group_begin[v + 1] - at;

	for (uint32_t i = 0; i < n; i++)
		x->g[i] = x->s->take[x->group[at + i]];
	return n ? wb__balance(x->g, n, x->s->rate, x->p->n_worker, begin, time) : 0;
}

static int balance_needers(struct lend *x, double least, size_t *n_lent)
{
	for (uint32_t v = 0; v < x->p->n_worker; v++) {
		size_t n_group = x->group_begin[v + 1] - x->group_begin[v];
		double time = 0;
		int rc = balance_node(x, v, WB__BEGIN_BY_RATE, &time);

		if (rc < 0)
			return rc;
		x->needs_rails[v] = x->s->may_lend && x->s->is_rated && time > GAIN * least;
		if (x->needs_rails[v])
			*n_lent += n_group * (x->worker_begin[v + 1] - x->worker_begin[v]);
	}
	return 0;
}

/* May @worker lend its rail to the group?  It must be no needer, and be in the domain of a
 * needer. */
static bool may_lend(const struct wb_plan *p, const struct wb__group *g, uint32_t worker)
{
	bool is_near = false;

	for (uint32_t i = 0; i < g->n_need; i++) {
		if (g->member[i] == worker)
			return false;
		is_near |= p->worker[g->member[i]].domain == p->worker[worker].domain;
	}
	return is_near;
}

/* Add other rollout workers of the needers' domains to a group, with shares of 0.  The group's
 * members and shares move to @member and @share. */
static void widen(
	struct lend *x, struct wb__group *g, uint32_t v, uint32_t *member, uint64_t *share)
{
	uint32_t n = g->n_need;

	memcpy(member, g->member, n * sizeof(*member));
	memcpy(share, g->share, n * sizeof(*share));
	for (uint32_t i = x->worker_begin[v]; i < x->worker_begin[v + 1]; i++)
		if (may_lend(x->p, g, x->worker[i]))
			member[n++] = x->worker[i];
	g->member = member;
	g->share = share;
	g->n = n;
}

static int lend(struct lend *x, double least, size_t n_lent)
{
	struct wb__shares *s = x->s;
	size_t at = 0;

	s->lent_member = wb_zalloc(n_lent, sizeof(*s->lent_member));
	s->lent_bytes = wb_zalloc(n_lent, sizeof(*s->lent_bytes));
	if (!s->lent_member || !s->lent_bytes)
		return -ENOMEM;
	for (uint32_t v = 0; v < x->p->n_worker; v++) {
		double time = least;
		int rc;

		for (uint32_t i = x->group_begin[v]; x->needs_rails[v] && i < x->group_begin[v + 1];
			i++) {
			struct wb__group *g = &s->take[x->group[i]];

			widen(x, g, v, s->lent_member + at, s->lent_bytes + at);
			at += g->n;
		}
		rc = x->needs_rails[v] ? balance_node(x, v, WB__BEGIN_AS_IS, &time) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

int wb__lend_rails(const struct wb_plan *p, struct wb__shares *s)
{
	double least = WB_MAX(s->send_time, s->take_time);
	size_t n_lent = 0;
	struct lend x;
	int rc = lend_init(&x, p, s);

	if (!rc) {
		list_nodes(&x);
		rc = balance_needers(&x, least, &n_lent);
	}
	if (!rc && n_lent)
		rc = lend(&x, least, n_lent);
	lend_finish(&x);
	return rc;
}

int wb__take_time(const struct wb_plan *p, const struct wb__shares *s, double *out)
{
	double *bytes = wb_zalloc(2 * (size_t)p->n_worker, sizeof(*bytes)), *rate, most = 0;

	if (!bytes)
		return -ENOMEM;
	rate = bytes + p->n_worker;
	for (uint32_t i = 0; i < s->n_take; i++)
		bytes[p->worker[s->take[i].member[0]].node] += (double)s->take[i].bytes;
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT)
			rate[p->worker[w].node] += s->rate[w];
	for (uint32_t v = 0; v < p->n_worker; v++)
		if (bytes[v] > 0)
			most = WB_MAX(most, bytes[v] / rate[v]);
	wb_free(bytes);
	*out = most;
	return 0;
}
