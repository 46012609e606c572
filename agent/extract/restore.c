/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the content of parameters in snapshots, and puts it back. */
#include "base/mem.h"
#include "extract/device.h"
#include "extract/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Allocate memory in large pages if the kernel has them: page faults take most of the time of a
 * snapshot. */
static uint8_t *alloc_large(size_t bytes)
{
	uint8_t *p = wb_alloc(bytes);
	uintptr_t page = 2u << 20, begin = ((uintptr_t)p + page - 1) / page * page;

	if (p && bytes > 2 * page)
		(void)madvise(
			(void *)begin, ((uintptr_t)p + bytes - begin) / page * page, MADV_HUGEPAGE);
	return p;
}

bool wb__is_kept(const struct wb_probe *p, const struct wb__param *a)
{
	return a->state != WB__ALIAS && a->state != WB__OUT && a->geom.total &&
	       (!p->opts.keep_no_snapshot || a->needs_snapshot);
}

static int snapshot_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];
	const struct wb__geom *g = &a->geom;
	size_t row_bytes = g->cols * a->elem_bytes;

	if (a->dev || !wb__is_kept(p, a))
		return 0;
	a->snapshot = alloc_large(g->total * a->elem_bytes);
	if (!a->snapshot)
		return -ENOMEM;
	a->has_snapshot = true;
	for (uint64_t r = 0; r < g->rows_all; r++)
		memcpy(a->snapshot + r * row_bytes, a->data + wb__geom_row(g, r) * a->elem_bytes,
			row_bytes);
	return 0;
}

int wb__snapshot(struct wb_probe *p)
{
	int rc = wb__parallel(p->threads, p->n_param, snapshot_task, p);

	return rc < 0 ? rc : wb__dev_snapshot(p);
}

static void put_back(const struct wb__param *a, uint8_t *data)
{
	const struct wb__geom *g = &a->geom;
	size_t row_bytes = g->cols * a->elem_bytes;

	for (uint64_t r = 0; r < g->rows_all; r++)
		memcpy(data + wb__geom_row(g, r) * a->elem_bytes, a->snapshot + r * row_bytes,
			row_bytes);
}

/* Without a snapshot, put back only what load_weights will not write again.  If the classes are not
 * known, put back everything that was there after the first pass. */
static void put_back_unwritten(const struct wb__param *a)
{
	uint32_t first = wb__const_raw(a->dtype, WB_PASS_CONST);
	const struct wb__residual *res = &a->residual;
	size_t run = 0;

	for (uint64_t i = 0; i < a->geom.total; i++) {
		uint8_t *elem = a->data + wb__geom_at(&a->geom, i) * a->elem_bytes;

		if (a->cls && a->cls[i] != WB__UNWRITTEN)
			continue;
		while (run < res->n && res->run[run].begin + res->run[run].n <= i)
			run++;
		if (run < res->n && res->run[run].begin <= i)
			memcpy(elem,
				res->value + (res->run[run].at + i - res->run[run].begin) *
						     a->elem_bytes,
				a->elem_bytes);
		else
			memcpy(elem, &first, a->elem_bytes); /* it held the first constant */
	}
}

bool wb__equals_snapshot(struct wb_probe *p, const struct wb__param *a)
{
	const struct wb__geom *g = &a->geom;
	size_t row_bytes = g->cols * a->elem_bytes;

	if (a->dev)
		return wb__dev_equals_snapshot(p, a);
	for (uint64_t r = 0; r < g->rows_all; r++)
		if (memcmp(a->data + wb__geom_row(g, r) * a->elem_bytes,
			    a->snapshot + r * row_bytes, row_bytes) != 0)
			return false;
	return true;
}

static int restore_task(void *ctx, size_t task)
{
	struct wb_probe *p = ctx;
	struct wb__param *a = &p->param[task];

	if (a->state == WB__ALIAS || a->state == WB__OUT || a->dev)
		return 0;
	/* load_weights may have written a LEFT parameter in a later call, which then failed. */
	if (a->state == WB__LEFT && (!a->snapshot || wb__equals_snapshot(p, a)))
		return 0;
	if (a->snapshot) {
		if (a->data)
			put_back(a, a->data);
	} else if (!a->data) {
		return 0;
	} else if (a->cls || p->pass.kind == WB_PASS_CONST_B) {
		put_back_unwritten(a);
	}
	return 0;
}

int wb__restore(struct wb_probe *p)
{
	/* Work that a failed loader has queued on devices would otherwise be done after this. */
	int rc = wb__dev_settle(p), failed = 0;

	/* Memory that was put in a parameter's place may be that of another parameter, whose own
	 * content counts, so it is written first.  If what was moved is not a parameter, the caller
	 * puts the original memory in its place again. */
	for (uint32_t i = 0; i < p->n_param; i++) {
		struct wb__param *a = &p->param[i];

		if (!a->moved_to || !a->has_snapshot || a->role != WB_PROBE_PARAM)
			continue;
		if (a->dev || wb__dev_where(p, a->moved_to))
			failed = wb__dev_put_elsewhere(p, a);
		else
			put_back(a, a->moved_to);
		rc = rc ? rc : failed;
	}
	/* Tasks cannot fail. */
	(void)wb__parallel(p->threads, p->n_param, restore_task, p);
	failed = wb__dev_restore(p);
	return rc ? rc : failed;
}
