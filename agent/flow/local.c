/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/local.h"

#include "base/base.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

static int bind_members(struct wb_local *l, struct wb_err *err)
{
	for (uint32_t i = 0; i < l->n; i++) {
		struct wb_member *m = &l->member[i];
		int rc;

		if (m->plan_worker >= l->plan->n_worker)
			return wb_err_set(err, WB_EPLAN,
				"worker %u is not in the plan of %u workers", m->plan_worker,
				l->plan->n_worker);
		l->index_of[m->plan_worker] = (int32_t)i;
		rc = wb_binding_create(
			l->plan, l->manifest, m->map, m->plan_worker, &l->binding[i], err);
		if (rc < 0)
			return rc;
		l->boxes_max = WB_MAX(l->boxes_max, wb_binding_boxes_max(l->binding[i]));
	}
	return 0;
}

static uint64_t want_key(const struct wb_local *l, uint32_t worker, uint32_t cls, uint32_t chunk)
{
	return (uint64_t)worker << 32 | (l->plan->cls[cls].chunk_base + chunk);
}

/* From the last to the first, so that the wants of a worker are in order. */
static int index_wants(struct wb_local *l, struct wb_err *err)
{
	l->want_first = wb_alloc(l->n * sizeof(*l->want_first));
	l->want_same = wb_alloc(l->n_want * sizeof(*l->want_same));
	if (!l->want_first || !l->want_same || wb_keyed_init(&l->want_of, l->n_want) < 0)
		return wb_err_set(err, -ENOMEM, "no memory for %u chunks", l->n_want);
	for (uint32_t i = 0; i < l->n; i++)
		l->want_first[i] = UINT32_MAX;
	for (uint32_t i = l->n_want; i-- > 0;) {
		const struct wb_want *w = &l->want[i];

		l->want_same[i] = l->want_first[w->worker];
		l->want_first[w->worker] = i;
		wb_keyed_add(&l->want_of, i, want_key(l, w->worker, w->cls, w->chunk));
	}
	return 0;
}

static uint64_t route_bytes(const struct wb_plan *p, const struct wb_route *r)
{
	uint64_t n = r->chunk_end - r->chunk_begin;

	return n ? (n - 1) * p->chunk_bytes +
			       wb_chunk_len(p, &p->cls[r->class_id], r->chunk_end - 1)
		 : 0;
}

static void count_bytes(struct wb_local *l)
{
	for (uint32_t i = 0; i < l->plan->n_route; i++) {
		const struct wb_route *r = &l->plan->route[i];
		int32_t src = l->index_of[r->src], dst = l->index_of[r->dst];

		if (src >= 0)
			l->bytes[src].out += route_bytes(l->plan, r);
		if (dst >= 0)
			l->bytes[dst].in += route_bytes(l->plan, r);
	}
}

static int list_wants(struct wb_local *l, struct wb_err *err)
{
	const struct wb_plan *p = l->plan;
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->n_route; i++)
		if (l->index_of[p->route[i].dst] >= 0)
			n += p->route[i].chunk_end - p->route[i].chunk_begin;
	l->want = wb_zalloc(n, sizeof(*l->want));
	if (!l->want)
		return wb_err_set(err, -ENOMEM, "no memory for %llu chunks", (unsigned long long)n);
	for (uint32_t i = 0; i < p->n_route; i++) {
		const struct wb_route *r = &p->route[i];

		for (uint32_t c = r->chunk_begin; l->index_of[r->dst] >= 0 && c < r->chunk_end; c++)
			l->want[l->n_want++] = (struct wb_want){
				.worker = (uint32_t)l->index_of[r->dst],
				.cls = r->class_id,
				.chunk = c,
				.src = r->src,
				.dst_rail = r->dst_rail,
				.src_rail = r->src_rail,
				.stage = (uint8_t)r->stage,
			};
	}
	return index_wants(l, err);
}

int wb_local_create(const struct wb_plan *plan, const struct wb_manifest *manifest,
	const struct wb_member *member, uint32_t n, struct wb_local **out, struct wb_err *err)
{
	struct wb_local *l = wb_zalloc(1, sizeof(*l));
	int rc = -ENOMEM;

	assert(n > 0);
	if (!l)
		return wb_err_set(err, -ENOMEM, "no memory for a plan");
	l->plan = plan;
	l->manifest = manifest;
	l->n = n;
	l->member = wb_memdup(member, n * sizeof(*member));
	l->binding = wb_zalloc(n, sizeof(struct wb_binding *));
	l->index_of = wb_zalloc(plan->n_worker, sizeof(*l->index_of));
	l->shape = wb_zalloc((size_t)n * plan->n_chunk, 1);
	l->bytes = wb_zalloc(n, sizeof(*l->bytes));
	if (!l->member || !l->binding || !l->index_of || !l->shape || !l->bytes) {
		wb_err_set(err, rc, "no memory for a plan of %u workers", plan->n_worker);
		goto err_destroy;
	}
	memset(l->index_of, 0xff, plan->n_worker * sizeof(*l->index_of));
	rc = bind_members(l, err);
	if (rc < 0)
		goto err_destroy;
	l->domain = plan->worker[member[0].plan_worker].domain;
	l->node = plan->worker[member[0].plan_worker].node;
	count_bytes(l);
	rc = list_wants(l, err);
	if (rc < 0)
		goto err_destroy;
	*out = l;
	return 0;
err_destroy:
	wb_local_destroy(l);
	return rc;
}

void wb_local_destroy(struct wb_local *l)
{
	if (!l)
		return;
	wb_free(l->shape);
	if (l->is_view) {
		wb_free(l->member);
		wb_free(l);
		return;
	}
	for (uint32_t i = 0; l->binding && i < l->n; i++)
		wb_binding_destroy(l->binding[i]);
	wb_free(l->binding);
	wb_free(l->member);
	wb_free(l->index_of);
	wb_free(l->want);
	wb_free(l->want_first);
	wb_free(l->want_same);
	wb_free(l->bytes);
	wb_keyed_finish(&l->want_of);
	wb_free(l);
}

int wb_local_view(const struct wb_local *of, const struct wb_member *member, struct wb_local **out)
{
	struct wb_local *l = wb_memdup(of, sizeof(*of));

	if (!l)
		return -ENOMEM;
	l->is_view = true;
	l->member = wb_memdup(member, of->n * sizeof(*member));
	l->shape = wb_zalloc((size_t)of->n * of->plan->n_chunk, 1);
	if (!l->member || !l->shape) {
		wb_local_destroy(l);
		return -ENOMEM;
	}
	*out = l;
	return 0;
}

int wb_local_boxes(const struct wb_local *l, uint32_t index, uint32_t cls, uint32_t chunk, bool all,
	struct wbk_box *box, uint32_t *scratch)
{
	const struct wb_member *m = &l->member[index];
	int n = wb_binding_boxes(l->binding[index], cls, chunk, all, box, scratch, l->boxes_max);

	for (int i = 0; i < n; i++) {
		const struct wb_place *at = &m->place[scratch[i]];

		box[i].base = at->mem;
		box[i].mem_off += at->off_bytes;
	}
	return n;
}

uint32_t wb_local_want(const struct wb_local *l, uint32_t index, uint32_t cls, uint32_t chunk)
{
	return wb_keyed_first(&l->want_of, want_key(l, index, cls, chunk));
}

bool wb_local_is_member(const struct wb_local *l, uint32_t index, uint32_t cls)
{
	return wb_class_has_member(l->plan, &l->plan->cls[cls], l->member[index].plan_worker);
}
