/* SPDX-License-Identifier: Apache-2.0 */
/* How much of each class every holder sends and every needer takes from the network. */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Trainers send bytes more than once only if they are done in 1 / SPREAD_TIME of the transfer. */
#define SPREAD_TIME 2

static int find_rates(const struct wb_plan *p, struct wb__shares *s)
{
	s->rate = wb_zalloc(p->n_worker, sizeof(*s->rate));
	if (!s->rate)
		return -ENOMEM;
	s->is_rated = true;
	for (uint32_t i = 0; i < p->n_worker; i++)
		s->is_rated &= p->worker[i].rail_bytes_per_s != 0;
	for (uint32_t i = 0; i < p->n_worker; i++)
		s->rate[i] = s->is_rated ? (double)p->worker[i].rail_bytes_per_s : 1;
	return 0;
}

/* Make a group for each holder set.  Equal sets begin at the same member. */
static int group_send(const struct wb_plan *p, struct wb__shares *s)
{
	uint32_t *seen = wb_zalloc((size_t)p->n_member + 1, sizeof(*seen));

	if (!seen)
		return -ENOMEM;
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		uint32_t copies = k->is_direct ? k->needer_end - k->needer_begin : 1;
		uint32_t *at = &seen[k->holder_begin];

		if (!*at) {
			s->send[s->n_send] =
				(struct wb__group){.member = p->member + k->holder_begin,
					.n = k->holder_end - k->holder_begin};
			*at = ++s->n_send;
		}
		s->send[*at - 1].bytes += k->bytes * copies;
		s->send_of[c] = *at - 1;
	}
	wb_free(seen);
	return 0;
}

struct by_node {
	uint32_t node, domain, worker;
};

static int cmp_node(const void *a, const void *b)
{
	const struct by_node *x = a, *y = b;

	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	return x->worker < y->worker ? -1 : x->worker > y->worker;
}

/* Make the groups of one needer set.  Their members lie in take_member from @at on; returns the
 * end. */
static uint32_t cut_set(const struct wb_plan *p, const struct wb_class *k, struct wb__shares *s,
	struct by_node *tmp, uint32_t at)
{
	uint32_t n = k->needer_end - k->needer_begin, begin = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t w = p->member[k->needer_begin + i];

		tmp[i] = (struct by_node){p->worker[w].node, p->worker[w].domain, w};
	}
	qsort(tmp, n, sizeof(*tmp), cmp_node);
	for (uint32_t i = 0; i < n; i++) {
		s->take_member[at + i] = tmp[i].worker;
		if (i + 1 < n && !k->is_direct && tmp[i + 1].node == tmp[i].node)
			continue;
		s->take[s->n_take++] = (struct wb__group){.member = s->take_member + at + begin,
			.n = i + 1 - begin,
			.n_need = i + 1 - begin};
		begin = i + 1;
	}
	return at + n;
}

static int group_take(const struct wb_plan *p, struct wb__shares *s)
{
	/* By needer set: 1 more than the first class that has it.  Direct classes are counted
	 * apart. */
	uint32_t *seen = wb_zalloc(2 * ((size_t)p->n_member + 1), sizeof(*seen)), at = 0;
	struct by_node *tmp = wb_zalloc(p->n_worker, sizeof(*tmp));

	if (!seen || !tmp) {
		wb_free(seen);
		wb_free(tmp);
		return -ENOMEM;
	}
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		uint32_t *first = &seen[2 * k->needer_begin + k->is_direct];

		if (*first) {
			s->take_begin[c] = s->take_begin[*first - 1];
			s->take_end[c] = s->take_end[*first - 1];
		} else {
			*first = c + 1;
			s->take_begin[c] = s->n_take;
			at = cut_set(p, k, s, tmp, at);
			s->take_end[c] = s->n_take;
		}
		for (uint32_t g = s->take_begin[c]; g < s->take_end[c]; g++)
			s->take[g].bytes += k->bytes;
	}
	wb_free(seen);
	wb_free(tmp);
	return 0;
}

static int share_storage(struct wb__shares *s)
{
	size_t n = 0;

	for (uint32_t i = 0; i < s->n_send; i++)
		n += s->send[i].n;
	for (uint32_t i = 0; i < s->n_take; i++)
		n += s->take[i].n;
	s->bytes = wb_zalloc(n, sizeof(*s->bytes));
	if (!s->bytes)
		return -ENOMEM;
	n = 0;
	for (uint32_t i = 0; i < s->n_send; i++) {
		s->send[i].share = s->bytes + n;
		n += s->send[i].n;
	}
	for (uint32_t i = 0; i < s->n_take; i++) {
		s->take[i].share = s->bytes + n;
		n += s->take[i].n;
	}
	return 0;
}

static int most_loaded(
	const struct wb_plan *p, const struct wb__group *g, uint32_t n, uint64_t *most)
{
	uint64_t *load = wb_zalloc(p->n_worker, sizeof(*load));

	if (!load)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < g[i].n; k++)
			load[g[i].member[k]] += g[i].share[k];
	for (uint32_t i = 0; i < p->n_worker; i++)
		*most = WB_MAX(*most, load[i]);
	wb_free(load);
	return 0;
}

/*
 * For the bound, leave only bytes that must cross a rail.  A node that holds what it needs has it
 * without a rail, and its rollouts can pass it on, so the trainers need not send such a class by
 * their rails.  A direct class is not passed on: trainers send it to every other needer.
 */
static int leave_crossing(const struct wb_plan *p, struct wb__shares *s)
{
	uint32_t *mark = wb_zalloc(p->n_worker, sizeof(*mark));

	if (!mark)
		return -ENOMEM;
	for (uint32_t c = 0; c < p->n_class; c++) {
		const struct wb_class *k = &p->cls[c];
		uint64_t *send = &s->send[s->send_of[c]].bytes;
		bool is_passed_on = false;

		wb__mark_holders(p, c, mark);
		for (uint32_t g = s->take_begin[c]; g < s->take_end[c]; g++) {
			if (mark[p->worker[s->take[g].member[0]].node] != c + 1)
				continue;
			s->take[g].bytes -= k->bytes;
			if (!is_passed_on || k->is_direct)
				*send -= k->bytes;
			is_passed_on = true;
		}
	}
	wb_free(mark);
	return 0;
}

static int balance_send(const struct wb_plan *p, struct wb__shares *s, double *time)
{
	*time = 0;
	return wb__balance(s->send, s->n_send, s->rate, p->n_worker, WB__BEGIN_BY_RATE, time);
}

/* Add the bytes that trainers send more than once (@is_more), or subtract them.  Returns whether
 * there are any. */
static bool add_spread(const struct wb_plan *p, struct wb__shares *s, bool is_more)
{
	bool is_any = false;

	for (uint32_t c = 0; c < p->n_class; c++) {
		uint64_t n = wb__n_spread(WB_SPREAD_NODES, s->take_end[c] - s->take_begin[c]);
		uint64_t more = p->cls[c].is_direct ? 0 : (n - 1) * p->cls[c].bytes;

		s->send[s->send_of[c]].bytes += is_more ? more : -more;
		is_any |= more > 0;
	}
	return is_any;
}

/* Let trainers send a class that very many nodes need once to each part of these nodes, if that
 * delays neither the transfer nor the trainers, which go on when they have sent everything. */
static int spread(const struct wb_plan *p, struct wb__shares *s)
{
	double time;
	int rc;

	s->nodes_max = WB_SPREAD_NODES;
	if (!add_spread(p, s, true))
		return 0;
	rc = balance_send(p, s, &time);
	if (rc < 0 || time <= WB_MAX(s->send_time, s->take_time) / SPREAD_TIME)
		return rc;
	s->nodes_max = UINT32_MAX;
	(void)add_spread(p, s, false);
	return balance_send(p, s, &time);
}

static int make(const struct wb_plan *p, bool is_bound, bool may_lend, struct wb__shares *out)
{
	struct wb__shares s = {.may_lend = may_lend};
	int rc = find_rates(p, &s);

	s.send = wb_zalloc(p->n_class, sizeof(*s.send));
	s.take = wb_zalloc(2 * (size_t)p->n_member, sizeof(*s.take));
	s.take_member = wb_zalloc(2 * (size_t)p->n_member, sizeof(*s.take_member));
	s.send_of = wb_zalloc(p->n_class, sizeof(*s.send_of));
	s.take_begin = wb_zalloc(p->n_class, sizeof(*s.take_begin));
	s.take_end = wb_zalloc(p->n_class, sizeof(*s.take_end));
	if (!s.send || !s.take || !s.take_member || !s.send_of || !s.take_begin || !s.take_end)
		rc = -ENOMEM;
	if (!rc)
		rc = group_send(p, &s);
	if (!rc)
		rc = group_take(p, &s);
	if (!rc && is_bound)
		rc = leave_crossing(p, &s);
	if (!rc)
		rc = share_storage(&s);
	if (!rc)
		rc = balance_send(p, &s, &s.send_time);
	if (!rc)
		rc = wb__take_time(p, &s, &s.take_time);
	s.time = WB_MAX(s.send_time, s.take_time);
	if (!rc && !is_bound)
		rc = spread(p, &s);
	if (!rc && !is_bound)
		rc = wb__lend_rails(p, &s);
	if (!rc)
		rc = most_loaded(p, s.send, s.n_send, &s.send_max);
	if (!rc)
		rc = most_loaded(p, s.take, s.n_take, &s.take_max);
	if (rc < 0) {
		wb__shares_finish(&s);
		return rc;
	}
	*out = s;
	return 0;
}

/* Does any node have workers of both roles? */
static int is_colocated(const struct wb_plan *p)
{
	uint8_t *role = wb_zalloc(p->n_worker, 1);
	int both = 0;

	if (!role)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->n_worker; i++)
		role[p->worker[i].node] |= (uint8_t)p->worker[i].role;
	for (uint32_t v = 0; v < p->n_worker; v++)
		both |= role[v] == (WB_ROLE_TRAINER | WB_ROLE_ROLLOUT);
	wb_free(role);
	return both;
}

int wb__shares_make(const struct wb_plan *p, bool may_lend, struct wb__shares *out)
{
	struct wb__shares s = {0}, bound = {0};
	int rc = make(p, false, may_lend, &s);
	int both = rc ? 0 : is_colocated(p);

	if (both)
		rc = both < 0 ? both : make(p, true, may_lend, &bound);
	if (!rc && both) {
		s.send_time = bound.send_time;
		s.take_time = bound.take_time;
	}
	wb__shares_finish(&bound);
	if (rc < 0) {
		wb__shares_finish(&s);
		return rc;
	}
	*out = s;
	return 0;
}

void wb__shares_finish(struct wb__shares *s)
{
	wb_free(s->send);
	wb_free(s->take);
	wb_free(s->bytes);
	wb_free(s->take_member);
	wb_free(s->lent_member);
	wb_free(s->lent_bytes);
	wb_free(s->rate);
	wb_free(s->send_of);
	wb_free(s->take_begin);
	wb_free(s->take_end);
	memset(s, 0, sizeof(*s));
}
