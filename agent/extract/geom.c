/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry of a parameter: its axes, and where its elements lie. */
#include "base/base.h"
#include "base/err.h"
#include "extract/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define SPAN_MAX (UINT64_C(1) << 56)

struct dim {
	uint64_t n;
	int64_t stride;
};

/* Dimensions of more than one element, outermost (largest stride) first. */
static uint32_t sorted_dims(const struct wb_probe_param *p, struct dim *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->ndim; i++) {
		uint32_t at = n;

		if (p->shape[i] == 1)
			continue;
		for (; at > 0 && d[at - 1].stride < p->stride[i]; at--)
			d[at] = d[at - 1];
		d[at] = (struct dim){p->shape[i], p->stride[i]};
		n++;
	}
	return n;
}

/* Each dimension must step over everything inside it, else two indices are one element. */
static int check_dims(
	const struct dim *d, uint32_t n, const char *name, uint64_t *span, struct wb_err *err)
{
	uint64_t inner = 1;

	for (uint32_t i = n; i-- > 0;) {
		uint64_t reach;

		if (d[i].stride < 1 || (uint64_t)d[i].stride < inner)
			return wb_err_set(err, -EINVAL,
				"parameter %s: a stride of %" PRId64
				" elements: reversed or overlapping elements are not supported",
				name, d[i].stride);
		if (!wb_mul_u64(d[i].n - 1, (uint64_t)d[i].stride, &reach) ||
			!wb_add_u64(reach, inner, &inner) || inner > SPAN_MAX)
			return wb_err_set(err, -EINVAL, "parameter %s is too large", name);
	}
	*span = inner;
	return 0;
}

static void set_axes(struct wb__geom *g, const struct dim *d, uint32_t n, bool is_nd)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool is_col = i + 1 == n && d[i].stride == 1;

		if (!is_nd && k && !is_col &&
			(uint64_t)g->stride[k - 1] == (uint64_t)d[i].stride * d[i].n) {
			g->n[k - 1] *= d[i].n;
			g->stride[k - 1] = d[i].stride;
			continue;
		}
		if (is_col && k == 0) { /* a vector is one row */
			g->n[k] = 1;
			g->stride[k++] = (int64_t)d[i].n;
		}
		g->n[k] = d[i].n;
		g->stride[k++] = d[i].stride;
	}
	if (!n || d[n - 1].stride != 1) { /* a strided vector is one column */
		if (!k) {
			g->n[k] = 1;
			g->stride[k++] = 1;
		}
		g->n[k] = 1;
		g->stride[k++] = 1;
	}
	g->n_axis = k;
}

int wb__geom_init(
	struct wb__geom *g, const struct wb_probe_param *p, bool is_nd, struct wb_err *err)
{
	struct dim d[WB_NDIM_MAX];
	uint32_t n;
	int rc;

	memset(g, 0, sizeof(*g));
	for (uint32_t i = 0; i < p->ndim; i++) {
		if (p->shape[i])
			continue;
		g->n_axis = 2; /* no elements: an empty shard */
		g->stride[0] = g->stride[1] = 1;
		g->slabs = 1;
		return 0;
	}
	n = sorted_dims(p, d);
	rc = check_dims(d, n, p->name, &g->span, err);
	if (rc < 0)
		return rc;
	set_axes(g, d, n, is_nd);
	g->slabs = 1;
	for (uint32_t i = 0; i + 2 < g->n_axis; i++)
		g->slabs *= g->n[i];
	g->rows = g->n[g->n_axis - 2];
	g->cols = g->n[g->n_axis - 1];
	g->rows_all = g->slabs * g->rows;
	g->total = g->rows_all * g->cols;
	return 0;
}

uint64_t wb__geom_row(const struct wb__geom *g, uint64_t row)
{
	uint64_t slab = row / g->rows;
	uint64_t at = row % g->rows * (uint64_t)g->stride[g->n_axis - 2];

	for (uint32_t i = g->n_axis - 2; i-- > 0 && slab;) {
		at += slab % g->n[i] * (uint64_t)g->stride[i];
		slab /= g->n[i];
	}
	return at;
}

uint64_t wb__geom_at(const struct wb__geom *g, uint64_t index)
{
	return wb__geom_row(g, index / g->cols) + index % g->cols;
}
