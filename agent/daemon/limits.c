/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/limits.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/plan.h"
#include "xport/xport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLANS_AT_ONCE 2 /* of an object: the running one, and the next */
#define FILES_A_MEMORY 2 /* beside one for each rail: shm's and verbs' own */
#define FILES_BESIDE 256 /* workers, their memory, lanes, listeners */

static unsigned long long ull(uint64_t v)
{
	return v;
}

static const struct wb_plan_worker *worker(const struct wb__limits_in *in, uint32_t w)
{
	return &in->roster->plan->worker[w];
}

/* Workers of one agent with the same rails: they share its connections. */
struct set {
	uint32_t agent, rails;
};

static int by_agent_rails(const void *a, const void *b)
{
	const struct set *x = a, *y = b;

	if (x->agent != y->agent)
		return x->agent < y->agent ? -1 : 1;
	return x->rails < y->rails ? -1 : x->rails > y->rails;
}

/* Each set once, in @s with room for all workers. Sorted, since 4,096 workers compared with each
 * other take seconds under a sanitizer. */
static uint32_t find_sets(const struct wb__limits_in *in, struct set *s)
{
	uint32_t n = 0;

	for (uint32_t w = 0; w < in->roster->n_worker; w++)
		s[w] = (struct set){worker(in, w)->domain, in->roster->worker[w].rails};
	qsort(s, in->roster->n_worker, sizeof(*s), by_agent_rails);
	for (uint32_t w = 0; w < in->roster->n_worker; w++)
		if (!n || by_agent_rails(&s[n - 1], &s[w]) != 0)
			s[n++] = s[w];
	return n;
}

/* Which agents have rollout workers: they dial. */
static bool *find_receivers(const struct wb__limits_in *in)
{
	bool *is = wb_zalloc(in->roster->n_agent, sizeof(*is));

	for (uint32_t w = 0; is && w < in->roster->n_worker; w++)
		if (worker(in, w)->role == WB_ROLE_ROLLOUT)
			is[worker(in, w)->domain] = true;
	return is;
}

/* Sockets of a connection between these sets of rails. */
static uint64_t sockets(
	const struct wb__limits_in *in, const char *bulk, uint32_t mine, uint32_t theirs)
{
	char some[WB_XPORT_ENDPOINT_MAX];

	if (wb_xport_endpoint_of(bulk, theirs, some, sizeof(some)) < 0)
		return WB_XPORT_SOCKETS_MAX; /* refused before, by its roster */
	return wb_xport_sockets(mine ? (uint32_t)__builtin_popcount(mine) : in->n_rail, some);
}

/* Count connections of one set of rails here with all sets of the others. */
static void count_set(const struct wb__limits_in *in, const bool *receives, const struct set *s,
	uint32_t n_set, uint32_t mine, struct wb__limits_need *out)
{
	const struct wb_roster *r = in->roster;

	for (uint32_t i = 0; i < n_set; i++) {
		const struct wb_roster_agent *to = &r->agent[s[i].agent];
		uint32_t n = (receives[r->me] ? 1 : 0) + (receives[s[i].agent] ? 1 : 0);

		if (s[i].agent == r->me || to->is_absent || to->is_foreign)
			continue;
		out->conns += n;
		out->files += n * sockets(in, to->bulk, mine, s[i].rails);
	}
}

static int count(const struct wb__limits_in *in, struct wb__limits_need *out)
{
	const struct wb_roster *r = in->roster;
	bool *receives = find_receivers(in);
	struct set *s = wb_zalloc(r->n_worker, sizeof(*s));
	uint32_t n_set = s ? find_sets(in, s) : 0;

	*out = (struct wb__limits_need){0};
	for (uint32_t i = 0; receives && i < n_set; i++)
		if (s[i].agent == r->me)
			count_set(in, receives, s, n_set, s[i].rails, out);
	for (uint32_t a = 0; a < r->n_agent; a++)
		/* Control channels: one a side when both dial at once. */
		if (a != r->me && !r->agent[a].is_absent && !r->agent[a].is_foreign)
			out->files += 2;
	wb_free(receives);
	wb_free(s);
	return receives && s ? 0 : -ENOMEM;
}

int wb__limits_check(
	const struct wb__limits_in *in, struct wb__limits_need *out, struct wb_err *err)
{
	struct wb__limits_need all;
	int rc = count(in, out);

	assert(in->roster->me < in->roster->n_agent && in->object < WB__OBJECTS_MAX);
	if (rc < 0)
		return wb_err_set(err, rc, "no memory to count connections");
	all = *out;
	for (uint32_t i = 0; i < WB__OBJECTS_MAX; i++) {
		if (i == in->object)
			continue;
		all.conns += in->has[i].conns;
		all.files += in->has[i].files;
	}
	all.conns *= PLANS_AT_ONCE;
	all.files = all.files * PLANS_AT_ONCE + FILES_BESIDE;
	all.files += (uint64_t)in->n_memory * (in->n_rail + FILES_A_MEMORY);
	if (all.conns > WB_XPORT_CONNS_MAX)
		return wb_err_set(err, -EMFILE,
			"the %u agents of this plan, with the plan that will follow it and other "
			"objects here, take up to %llu bulk connections, and an agent has at most "
			"%u: put more workers beside each agent, so that there are fewer agents",
			in->roster->n_agent, ull(all.conns), WB_XPORT_CONNS_MAX);
	if (all.files > in->open_files)
		return wb_err_set(err, -EMFILE,
			"the %u agents of this plan, with the plan that will follow it and other "
			"objects here, take up to %llu open files, and the hard limit is %llu: "
			"raise it (ulimit -Hn, LimitNOFILE), or put more workers beside each "
			"agent, "
			"so that there are fewer agents",
			in->roster->n_agent, ull(all.files), ull(in->open_files));
	return 0;
}
