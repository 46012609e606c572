/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which part of a plan an agent gets: the head and its own part, or, with version 1, a list
 * of the whole plan. */
#include "operator-shim/serve/internal.h"

#include <errno.h>

/* The number of the agent's domain in the plan, or -ENOENT. */
static int domain_of(const struct object *o, const struct peer *p)
{
	size_t n;
	const struct wb_reconcile_member *w = wb_reconcile_members(o->r, &n);

	for (size_t i = 0; i < n; i++)
		if (w[i].agent == p->id)
			return (int)w[i].plan.domain;
	return -ENOENT;
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
	if (!o->list) {
		*out = (struct share){0};
		rc = wb__serve_start_list(s, o);
		return rc < 0 ? wb_err_set(err, rc, "listing it could not start") : 0;
	}
	*out = (struct share){.of = wb__serve_blob_get(o->list),
		.slice = {{0, o->list->bytes, o->list->digest}},
		.kind = {WB_CONTENT_PLAN},
		.n = 1};
	return 0;
}

/* The peer has waited for a list.  Send the list, or, if @rc says that there will be none, refuse
 * the peer or close its connection. */
static void settle(struct object *o, struct peer *p, int rc, const struct wb_err *err)
{
	struct share share;

	if (rc == 0)
		rc = wb__serve_share(o->s, o, p, &share, NULL);
	if (rc == 0)
		wb__serve_outgo_share(p, o, &share);
	else
		wb__serve_drop_outgo(p, o);
	if (rc == -EDQUOT)
		wb__serve_over(p, err);
	else if (rc < 0 && rc != -ENOENT)
		wb_session_end(&p->session, rc, "all of the plan cannot be listed for it: %s",
			err->code ? err->msg : wb_strerror(rc)); /* the agent will come back */
}

void wb__serve_listed(
	struct object *o, struct wb_digest of, struct blob *list, int rc, const struct wb_err *err)
{
	struct peer *next;

	if (!o->next_plan || !wb_digest_eq(o->next_plan->digest, of)) {
		wb__serve_blob_put(list);
		return;
	}
	wb__serve_forget_list(o);
	o->list = list;
	for (struct peer *p = o->s->peer; p; p = next) {
		next = p->next;
		if (wb__serve_outgo_waits(p, o))
			settle(o, p, rc, err);
	}
}
