/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/limits.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"
#include "planner/plan.h"
#include "xport/xport.h"

#include <errno.h>
#include <string.h>

#define PLANS_AT_ONCE 2 /* of an object: the running one, and the next */
#define FILES_BESIDE 256 /* workers, their memory, lanes, listeners */

static unsigned long long ull(uint64_t v)
{
	return v;
}

/* Which agents have rollout workers: they dial. */
static bool *find_receivers(const struct wb__limits_in *in)
{
	bool *is = wb_zalloc(in->roster->n_agent, sizeof(*is));

	for (uint32_t w = 0; is && w < in->roster->n_worker; w++)
		if (in->roster->plan->worker[w].role == WB_ROLE_ROLLOUT)
			is[in->roster->plan->worker[w].domain] = true;
	return is;
}

static int count(const struct wb__limits_in *in, struct wb__limits_need *out)
{
	bool *receives = find_receivers(in);

	if (!receives)
		return -ENOMEM;
	*out = (struct wb__limits_need){0};
	for (uint32_t a = 0; a < in->roster->n_agent; a++) {
		const struct wb_roster_agent *to = &in->roster->agent[a];
		uint32_t n = (receives[in->roster->me] ? 1 : 0) + (receives[a] ? 1 : 0);

		if (a == in->roster->me || to->is_absent || to->is_foreign)
			continue;
		out->conns += n;
		/* Control channels: one a side when both dial at once. */
		out->files += n * (uint64_t)wb_xport_sockets(in->n_rail, to->bulk) + 2;
	}
	wb_free(receives);
	return 0;
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
