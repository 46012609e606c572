/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose rails land what a domain takes from the network.  Those who need it, as long as that does
 * not hold the transfer up; else other rollout workers of the domain too, and for no more than what
 * is too much for the needers.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define GAIN 1.01 /* rails are lent where it would take that much longer without */

/* Groups and rollout workers of each domain, side by side. */
struct lend {
	const struct wb_plan *p;
	struct wb__shares *s;
	uint32_t *group, *group_begin; /* owned: numbers of s->take; by domain, one more */
	uint32_t *worker, *worker_begin; /* owned: plan workers; by domain, one more */
	struct wb__group *g; /* owned: groups of one domain */
	uint8_t *needs_rails; /* owned, by domain */
};

static uint32_t domain_of(const struct lend *x, uint32_t group)
{
	return x->p->worker[x->s->take[group].member[0]].domain;
}

/* begin[d + 2] counts domain d: to be summed, and then to be filled at begin[d + 1]. */
static void sum_up(uint32_t *begin, uint32_t n)
{
	for (uint32_t d = 2; d < n + 2; d++)
		begin[d] += begin[d - 1];
}

static void list_domains(struct lend *x)
{
	const struct wb_plan *p = x->p;

	for (uint32_t i = 0; i < x->s->n_take; i++)
		x->group_begin[domain_of(x, i) + 2]++;
	for (uint32_t w = 0; w < p->n_worker; w++)
		x->worker_begin[p->worker[w].domain + 2] += p->worker[w].role == WB_ROLE_ROLLOUT;
	sum_up(x->group_begin, p->n_worker);
	sum_up(x->worker_begin, p->n_worker);
	for (uint32_t i = 0; i < x->s->n_take; i++)
		x->group[x->group_begin[domain_of(x, i) + 1]++] = i;
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT)
			x->worker[x->worker_begin[p->worker[w].domain + 1]++] = w;
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

/* Each domain by itself, so that one slow domain does not leave the others unbalanced. */
static int balance_domain(struct lend *x, uint32_t d, enum wb__begin begin, double *time)
{
	uint32_t at = x->group_begin[d], n = x->group_begin[d + 1] - at;

	for (uint32_t i = 0; i < n; i++)
		x->g[i] = x->s->take[x->group[at + i]];
	return n ? wb__balance(x->g, n, x->s->rate, x->p->n_worker, begin, time) : 0;
}

static int balance_needers(struct lend *x, double least, size_t *n_lent)
{
	for (uint32_t d = 0; d < x->p->n_worker; d++) {
		size_t n_group = x->group_begin[d + 1] - x->group_begin[d];
		double time = 0;
		int rc = balance_domain(x, d, WB__BEGIN_BY_RATE, &time);

		if (rc < 0)
			return rc;
		x->needs_rails[d] = x->s->may_lend && x->s->is_rated && time > GAIN * least;
		if (x->needs_rails[d])
			*n_lent += n_group * (x->worker_begin[d + 1] - x->worker_begin[d]);
	}
	return 0;
}

static bool is_member(const struct wb__group *g, uint32_t worker)
{
	for (uint32_t i = 0; i < g->n_need; i++)
		if (g->member[i] == worker)
			return true;
	return false;
}

/* The other rollout workers of its domain join a group, in @member, with nothing yet. */
static void widen(
	struct lend *x, struct wb__group *g, uint32_t d, uint32_t *member, uint64_t *share)
{
	uint32_t n = g->n_need;

	memcpy(member, g->member, n * sizeof(*member));
	memcpy(share, g->share, n * sizeof(*share));
	for (uint32_t i = x->worker_begin[d]; i < x->worker_begin[d + 1]; i++)
		if (!is_member(g, x->worker[i]))
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
	for (uint32_t d = 0; d < x->p->n_worker; d++) {
		double time = least;
		int rc;

		for (uint32_t i = x->group_begin[d]; x->needs_rails[d] && i < x->group_begin[d + 1];
			i++) {
			struct wb__group *g = &s->take[x->group[i]];

			widen(x, g, d, s->lent_member + at, s->lent_bytes + at);
			at += g->n;
		}
		rc = x->needs_rails[d] ? balance_domain(x, d, WB__BEGIN_AS_IS, &time) : 0;
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
		list_domains(&x);
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
		bytes[p->worker[s->take[i].member[0]].domain] += (double)s->take[i].bytes;
	for (uint32_t w = 0; w < p->n_worker; w++)
		if (p->worker[w].role == WB_ROLE_ROLLOUT)
			rate[p->worker[w].domain] += s->rate[w];
	for (uint32_t d = 0; d < p->n_worker; d++)
		if (bytes[d] > 0)
			most = WB_MAX(most, bytes[d] / rate[d]);
	wb_free(bytes);
	*out = most;
	return 0;
}
