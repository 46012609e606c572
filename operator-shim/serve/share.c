/* SPDX-License-Identifier: Apache-2.0 */
/* What of a plan an agent gets: the head and its part, or all of it in a list. */
#include "base/buf.h"
#include "base/mem.h"
#include "operator-shim/serve/internal.h"

#include <errno.h>
#include <inttypes.h>

#define LIST_MAX (1u << 30) /* bytes that an agent of version 1 takes */

/* Its number in the plan, or -ENOENT. */
static int domain_of(const struct object *o, const struct peer *p)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_members(o->r, &n);

	for (size_t i = 0; i < n; i++)
		if (w[i].agent == p->id)
			return (int)w[i].plan.domain;
	return -ENOENT;
}

/* All of a plan, from its parts. */
static int list(const struct blob *plan, struct blob **out, struct wb_err *err)
{
	struct wb_plan *p = NULL;
	uint8_t *data = NULL;
	size_t bytes = 0;
	struct wb_buf b;
	int rc = wb_plan_decode(plan->data, plan->bytes, &p, err);

	if (rc < 0)
		return rc;
	wb_buf_init(&b, LIST_MAX);
	rc = wb_plan_encode(p, &b);
	if (rc == 0)
		rc = wb_buf_take(&b, &data, &bytes);
	wb_buf_finish(&b);
	wb_plan_destroy(p);
	if (rc == -E2BIG)
		return wb_err_set(err, -EDQUOT,
			"all of the plan, as an agent of protocol version 1 takes it, has more "
			"than %u MiB: upgrade the agent",
			LIST_MAX >> 20);
	if (rc < 0)
		return wb_err_set(err, rc, "list the plan: %s", wb_strerror(rc));
	*out = wb__serve_blob_make(WB_CONTENT_PLAN, plan->digest, data, bytes);
	return *out ? 0 : -ENOMEM;
}

/* Once for all agents of version 1.  It may take no more memory than planning does. */
static int make_list(struct wb_serve *s, struct object *o, const struct peer *p, struct wb_err *err)
{
	uint64_t bytes = wb_budget_limits(s->budget)->planning_bytes;
	bool is_over;
	int rc;

	if (o->list)
		return 0;
	wb_mem_allow(bytes);
	rc = list(o->next_plan, &o->list, err);
	is_over = wb_mem_over();
	wb_mem_allow(0);
	if (rc < 0 && is_over)
		return wb_err_set(err, -EDQUOT,
			"agent %s speaks protocol version %u, for which all of the plan has to be "
			"listed, and that takes more than %" PRIu64
			" MiB: upgrade the agent, or raise --planning-memory (chart value "
			"planningMemory)",
			p->hello.agent, p->session.version, bytes >> 20);
	if (rc < 0)
		return rc;
	rc = wb__serve_blob_charge(s, o, o->list, false, err);
	if (rc < 0)
		wb__serve_forget_list(o);
	return rc;
}

void wb__serve_forget_list(struct object *o)
{
	wb__serve_blob_put(o->list);
	o->list = NULL;
}

int wb__serve_share(struct wb_serve *s, struct object *o, const struct peer *p, struct share *out,
	struct wb_err *err)
{
	const struct blob *plan = o->next_plan;
	int domain = domain_of(o, p), rc;

	if (domain < 0 || (uint32_t)domain + 1 >= plan->n_slice)
		return wb_err_set(err, -ENOENT, "it is not in the plan");
	if (p->session.version >= WBP_PARTS_SINCE) {
		*out = (struct share){.of = wb__serve_blob_get(o->next_plan),
			.slice = {plan->slice[0], plan->slice[1 + domain]},
			.kind = {WB_CONTENT_HEAD, WB_CONTENT_PART},
			.n = 2};
		return 0;
	}
	rc = make_list(s, o, p, err);
	if (rc < 0)
		return rc;
	*out = (struct share){.of = wb__serve_blob_get(o->list),
		.slice = {{0, o->list->bytes, o->list->digest}},
		.kind = {WB_CONTENT_PLAN},
		.n = 1};
	return 0;
}
