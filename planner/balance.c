/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split work over members so that the member that ends last ends as early as possible.
 *
 * Unless the caller wants to keep the present shares, every group is first split by rate, which is
 * optimal in regular deployments.  Then load is moved from members whose time (load / rate) is
 * above T to members whose time is below T, along shortest paths member -> group -> member.  If
 * there is no such path, the members that the search reached hold only work that no other member
 * can take.  Then their load / rate is a lower bound, and T is raised to it.  When no member is
 * above T, T is both the bound and the result.
 */
#include "planner/internal.h"

#include "base/base.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define SLACK 1e-4 /* part of T; a member whose time is above T by more is overloaded */
/* These limits only end the search for a needlessly exact split.  The bound holds whenever the
 * search ends. */
#define MOVES_MAX 200000
#define SEEN_MAX (UINT64_C(1) << 32) /* members looked at in all searches */

struct edge {
	uint32_t group, pos; /* member[pos] of the group */
};

struct balance {
	struct wb__group *g;
	uint32_t n, n_member;
	const double *rate;
	uint64_t *load; /* by member */
	struct edge *edge; /* by member: edge[first[m] .. first[m + 1]) */
	uint32_t *first, *queue;
	struct edge *from; /* by member: edge by which the search reached it */
	uint32_t *prev; /* by member: the one before it on the path, or ROOT, or UNSEEN */
	uint8_t *group_seen;
	uint64_t n_looks;
	double time; /* T: no member should need longer */
	double bound; /* of the time: no split is faster */
};

#define ROOT UINT32_MAX
#define UNSEEN (UINT32_MAX - 1)

static void split_by_rate(struct balance *b, struct wb__group *g)
{
	double sum = 0, part = 0;
	uint64_t done = 0;

	for (uint32_t i = 0; i < g->n; i++)
		sum += b->rate[g->member[i]];
	for (uint32_t i = 0; i < g->n; i++) {
		uint64_t end;

		part += b->rate[g->member[i]];
		end = i + 1 == g->n ? g->bytes : (uint64_t)((double)g->bytes * (part / sum));
		end = WB_MAX(WB_MIN(end, g->bytes), done);
		g->share[i] = end - done;
		done = end;
	}
}

static bool is_over(const struct balance *b, uint32_t m)
{
	return (double)b->load[m] > b->time * b->rate[m] * (1 + SLACK) + 1;
}

static double room(const struct balance *b, uint32_t m)
{
	return b->time * b->rate[m] - (double)b->load[m];
}

/* Search breadth first from all overloaded members.  Returns a member with room, or ROOT if none
 * was reached; then @n_seen is the number of members reached, which are in queue[]. */
static uint32_t search(struct balance *b, uint32_t *n_seen)
{
	uint32_t head = 0, tail = 0;

	memset(b->group_seen, 0, b->n);
	b->n_looks += b->n + b->n_member;
	for (uint32_t m = 0; m < b->n_member; m++) {
		b->prev[m] = UNSEEN;
		if (is_over(b, m)) {
			b->prev[m] = ROOT;
			b->queue[tail++] = m;
		}
	}
	while (head < tail) {
		uint32_t m = b->queue[head++];

		for (uint32_t e = b->first[m]; e < b->first[m + 1]; e++) {
			const struct wb__group *g = &b->g[b->edge[e].group];

			if (b->group_seen[b->edge[e].group] || !g->share[b->edge[e].pos])
				continue;
			b->group_seen[b->edge[e].group] = 1;
			b->n_looks += g->n;
			for (uint32_t i = 0; i < g->n; i++) {
				uint32_t to = g->member[i];

				if (b->prev[to] != UNSEEN)
					continue;
				b->prev[to] = m;
				b->from[to] = b->edge[e];
				b->queue[tail++] = to;
				if (room(b, to) >= 1)
					return to;
			}
		}
	}
	*n_seen = tail;
	return ROOT;
}

static uint32_t pos_of(const struct wb__group *g, uint32_t m)
{
	uint32_t i = 0;

	while (g->member[i] != m)
		i++;
	return i;
}

/* Move as much load as fits along the path that ends at @to. */
static void move(struct balance *b, uint32_t to)
{
	double fits = room(b, to);
	uint64_t n;
	uint32_t m;

	for (m = to; b->prev[m] != ROOT; m = b->prev[m]) {
		const struct edge *e = &b->from[m];

		fits = WB_MIN(fits, (double)b->g[e->group].share[e->pos]);
	}
	fits = WB_MIN(fits, -room(b, m));
	n = WB_MAX((uint64_t)fits, 1);
	for (m = to; b->prev[m] != ROOT; m = b->prev[m]) {
		const struct edge *e = &b->from[m];
		struct wb__group *g = &b->g[e->group];

		g->share[e->pos] -= n;
		g->share[pos_of(g, m)] += n;
	}
	b->load[m] -= n;
	b->load[to] += n;
}

static void raise_time(struct balance *b, uint32_t n_seen)
{
	double load = 0, rate = 0;

	for (uint32_t i = 0; i < n_seen; i++) {
		load += (double)b->load[b->queue[i]];
		rate += b->rate[b->queue[i]];
	}
	/* A member that was reached is overloaded, and none has room.  So their load / rate is
	 * above the old time, except for rounding. */
	b->bound = WB_MAX(b->bound, load / rate);
	b->time = WB_MAX(load / rate, b->time * (1 + SLACK / 8));
}

static void count_loads(struct balance *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		for (uint32_t k = 0; k < b->g[i].n; k++)
			b->load[b->g[i].member[k]] += b->g[i].share[k];
}

static void solve(struct balance *b, enum wb__begin begin, double least)
{
	uint64_t load = 0;
	double rate = 0;
	uint32_t n_seen = 0;

	for (uint32_t i = 0; begin == WB__BEGIN_BY_RATE && i < b->n; i++)
		split_by_rate(b, &b->g[i]);
	count_loads(b);
	for (uint32_t m = 0; m < b->n_member; m++) {
		load += b->load[m];
		if (b->first[m + 1] > b->first[m])
			rate += b->rate[m];
	}
	b->time = b->bound = WB_MAX(rate > 0 ? (double)load / rate : 0, least);
	for (uint32_t i = 0; i < MOVES_MAX && b->n_looks < SEEN_MAX; i++) {
		uint32_t to = search(b, &n_seen);

		if (to != ROOT)
			move(b, to);
		else if (n_seen)
			raise_time(b, n_seen);
		else
			break;
	}
}

static int index_edges(struct balance *b)
{
	size_t n = 0;

	for (uint32_t i = 0; i < b->n; i++)
		n += b->g[i].n;
	b->first = wb_zalloc((size_t)b->n_member + 2, sizeof(*b->first));
	b->edge = wb_zalloc(n, sizeof(*b->edge));
	if (!b->first || !b->edge)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n; i++)
		for (uint32_t k = 0; k < b->g[i].n; k++)
			b->first[b->g[i].member[k] + 2]++;
	for (uint32_t m = 2; m < b->n_member + 2; m++)
		b->first[m] += b->first[m - 1];
	for (uint32_t i = 0; i < b->n; i++)
		for (uint32_t k = 0; k < b->g[i].n; k++)
			b->edge[b->first[b->g[i].member[k] + 1]++] = (struct edge){i, k};
	return 0;
}

int wb__balance(struct wb__group *g, uint32_t n, const double *rate, uint32_t n_member,
	enum wb__begin begin, double *time)
{
	struct balance b = {.g = g, .n = n, .n_member = n_member, .rate = rate};
	int rc = index_edges(&b);

	b.load = wb_zalloc(n_member, sizeof(*b.load));
	b.queue = wb_zalloc(n_member, sizeof(*b.queue));
	b.from = wb_zalloc(n_member, sizeof(*b.from));
	b.prev = wb_zalloc(n_member, sizeof(*b.prev));
	b.group_seen = wb_zalloc(n, sizeof(*b.group_seen));
	if (!b.load || !b.queue || !b.from || !b.prev || !b.group_seen)
		rc = -ENOMEM;
	if (!rc) {
		solve(&b, begin, *time);
		*time = b.bound;
	}
	wb_free(b.first);
	wb_free(b.edge);
	wb_free(b.load);
	wb_free(b.queue);
	wb_free(b.from);
	wb_free(b.prev);
	wb_free(b.group_seen);
	return rc;
}
